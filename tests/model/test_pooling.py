"""Reading what a folder of sentence-transformers says about its vectors."""

import re

import pytest

from albert.io import file_io
from albert.model import huggingface, pooling
from tests.support import builders, vocabulary_samples


@pytest.mark.parametrize(("kind", "expected"), [("mean_tokens", "mean"), ("cls_token", "cls")])
def test_the_folder_says_its_pooling(tmp_path, kind, expected, caplog):
    assert pooling.read(str(tmp_path)) is None
    builders.write_pooling(tmp_path, kind, ["Normalize"])
    assert pooling.read(str(tmp_path)) == expected and not caplog.records
    config = file_io.read_json(str(tmp_path / "Pooling" / "config.json"), "configuration", dict)
    file_io.write_json(
        str(tmp_path / "Pooling" / "config.json"), {**config, "pooling_mode": expected}
    )
    assert pooling.read(str(tmp_path)) == expected and not caplog.records
    file_io.write_json(str(tmp_path / "Pooling" / "config.json"), {"pooling_mode": expected})
    assert pooling.read(str(tmp_path)) == expected


def test_what_is_not_computed_gets_a_warning(tmp_path, caplog):
    builders.write_pooling(tmp_path, "max_tokens", ["Dense"])
    assert pooling.read(str(tmp_path)) is None
    assert "also has Dense" in caplog.messages[0] and "asks for max," in caplog.messages[1]


@pytest.mark.parametrize(
    "modules",
    [
        {},
        ["Pooling"],
        *(
            [{"path": path, "type": "Pooling"}]
            for path in ("../other", "/tmp/x", "a/../..", "//", 5)
        ),
    ],
)
def test_modules_must_be_inside_the_folder(tmp_path, modules):
    file_io.write_json(str(tmp_path / "modules.json"), modules)
    for function in (pooling.read, pooling.files):
        with pytest.raises(file_io.InputError, match="modules.json"):
            function(str(tmp_path))


@pytest.mark.parametrize("normalized", [True, False])
def test_what_is_written_is_read(tmp_path, normalized, caplog):
    pooling.write(str(tmp_path), "mean", 8, normalized)
    assert pooling.read(str(tmp_path)) == "mean" and not caplog.records
    assert pooling.normalizes(str(tmp_path)) == normalized
    file_io.write_json(str(tmp_path / "sentence_xlnet_config.json"), {"max_seq_length": 9})
    assert pooling.read_max_length(str(tmp_path)) == 9
    names = ["modules.json", "1_Pooling/config.json", "sentence_xlnet_config.json"]
    assert pooling.files(str(tmp_path)) == {name: str(tmp_path / name) for name in names}


def test_texts_are_lower_cased_by_the_tokenizer_alone(tmp_path):
    lower = {"do_lower_case": True}
    for name, config in (("a", lower), ("b", {}), ("c", {"do_lower_case": False})):
        files = {"tokenizer_config": config, "sentence_bert_config": lower}
        path = vocabulary_samples.folder_with(tmp_path / name, **files)
        if name != "c":
            assert vocabulary_samples.tokenizer_of(path).tokenize("The FILM") == ["the", "film"]
            continue
        with pytest.raises(file_io.InputError, match="sentence_bert_config.json: do_lower_case is"):
            vocabulary_samples.tokenizer_of(path)


def test_prompts_get_a_warning(tmp_path, caplog):
    pooling.write(str(tmp_path), "mean", 8)
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    path = str(tmp_path / "config_sentence_transformers.json")
    for name, words in ((None, None), ("", None), ("query", "'query': .* puts 'query: ' before")):
        file_io.write_json(path, {**prompts, "default_prompt_name": name})
        pooling.warn_of_prompts(str(tmp_path))
        assert (re.search(words, caplog.text) is not None) if words else not caplog.records
    assert pooling.files(str(tmp_path))["config_sentence_transformers.json"] == path
    caplog.clear()
    file_io.write_json(path, prompts)
    config = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    file_io.write_json(str(tmp_path / "1_Pooling" / "config.json"), config)
    pooling.warn_of_prompts(str(tmp_path))
    assert "1_Pooling/config.json: include_prompt is false" in caplog.text


def test_a_model_in_a_folder_of_its_own_keeps_its_pooling(tmp_path):
    """As older versions of sentence-transformers write them."""
    builders.write_pooling(tmp_path, "mean_tokens", ["Normalize"])
    inside = tmp_path / "Transformer"
    inside.mkdir()
    file_io.write_json(str(inside / "sentence_bert_config.json"), {"max_seq_length": 9})
    (inside / "model.safetensors").write_bytes(b"")
    assert huggingface.find_weights(str(tmp_path)) == str(inside / "model.safetensors")
    assert pooling.read(str(inside)) == "mean" and pooling.normalizes(str(inside))
    assert pooling.read_max_length(str(inside)) == 9
    assert pooling.files(str(inside)) == {
        "modules.json": str(tmp_path / "modules.json"),
        "Pooling/config.json": str(tmp_path / "Pooling" / "config.json"),
        "sentence_bert_config.json": str(inside / "sentence_bert_config.json"),
    }
    other = tmp_path / "other"
    other.mkdir()
    assert pooling.read(str(other)) is None and pooling.files(str(other)) == {}
    file_io.write_json(str(tmp_path / "modules.json"), {"a": "list of something else"})
    assert pooling.read(str(inside)) is None
