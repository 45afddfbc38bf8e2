"""Reading what a folder of sentence-transformers says about its vectors."""

import pytest

from albert.io import file_io
from albert.model import pooling
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
    expected = ["modules.json", "1_Pooling/config.json", "sentence_xlnet_config.json"]
    assert pooling.files(str(tmp_path)) == expected


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
