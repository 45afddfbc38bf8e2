"""Folders of fine-tuned models can be used alone."""

import dataclasses
import json
import re
import shutil

import pytest

from albert.io import file_io
from albert.model import checkpoints, head_config, heads, model_folder, sources
from albert.text import text_rules
from tests.support.builders import TESTDATA, tiny_config

CONFIG = tiny_config(max_position_embeddings=32)
SETTINGS = {"max_seq_length": 32, "labels": ["good", "bad"]}


def source_in(folder, **changes):
    """Files of a model elsewhere, which is gone when the folder is used."""
    folder.mkdir()
    shutil.copy(TESTDATA / "tiny.model", folder / "30k.model")
    shutil.copy(TESTDATA / "tiny_vocab.txt", folder / "words.txt")
    found = {"spm_model_file": str(folder / "30k.model"), "vocab_file": None, **changes}
    return sources.Source("config.json", None, rules=text_rules.TextRules(True), **found)


def write(folder, source, kind="squad_v1"):
    model_folder.write(str(folder), kind, CONFIG, source, SETTINGS)
    prefix = str(folder / "model.ckpt-3")
    checkpoints.save(prefix, heads.SquadV1Model(CONFIG, seed=1))
    return prefix


def test_a_folder_is_all_that_is_needed(tmp_path):
    source = source_in(tmp_path / "elsewhere")
    prefix = write(tmp_path / "out", source)
    shutil.rmtree(tmp_path / "elsewhere")
    found = model_folder.read(str(tmp_path / "out"), "squad_v1", "squad_v2")
    assert (found.kind, found.config, found.settings) == ("squad_v1", CONFIG, SETTINGS)
    assert found.source.checkpoint == prefix
    assert found.source.rules.do_lower_case
    tokenizer = model_folder.load_tokenizer(found.source, found.config)
    assert tokenizer.sp_model is not None
    # Also as the start of another run.
    located = sources.locate(checkpoint=str(tmp_path / "out"))
    assert located.spm_model_file == found.source.spm_model_file
    assert located.config_file == found.source.config_file


def test_a_run_that_starts_from_it_reads_texts_as_it_does(tmp_path, caplog):
    source = dataclasses.replace(
        source_in(tmp_path / "elsewhere"), rules=text_rules.TextRules(False)
    )
    write(tmp_path / "out", source)
    folder = str(tmp_path / "out")
    with caplog.at_level("WARNING", logger="absl"):
        assert sources.locate(checkpoint=folder).rules.do_lower_case is False
        same = sources.locate(sources.Given(spm_model_file=source.spm_model_file), folder)
        assert same.rules.do_lower_case is False
        assert not caplog.text
        assert (
            sources.locate(sources.Given(rules={"do_lower_case": True}), folder).rules.do_lower_case
            is True
        )
    assert "using do_lower_case=True, although the model has False" in caplog.text


def test_wordpiece_vocabularies_are_found_too(tmp_path):
    source = source_in(tmp_path / "elsewhere", spm_model_file=None)
    source = sources.Source(
        "", None, None, str(tmp_path / "elsewhere" / "words.txt"), text_rules.TextRules(False)
    )
    write(tmp_path / "out", source)
    found = model_folder.read(str(tmp_path / "out"))
    assert found.source.vocab_file == str(tmp_path / "out" / "vocab.txt")
    assert not found.source.rules.do_lower_case
    assert sources.locate(checkpoint=str(tmp_path / "out")).vocab_file.endswith("vocab.txt")


def test_the_best_checkpoint_is_taken(tmp_path):
    prefix = write(tmp_path / "out", source_in(tmp_path / "elsewhere"))
    checkpoints.copy(prefix, str(tmp_path / "out" / "model.ckpt-best"))
    assert model_folder.read(str(tmp_path / "out")).source.checkpoint.endswith("ckpt-best")


def test_a_vocabulary_that_is_there_already_is_left_alone(tmp_path):
    """A training whose output folder is that of its vocabulary must not copy a file to itself."""
    source = source_in(tmp_path / "out")
    before = (tmp_path / "out" / "30k.model").stat()
    write(tmp_path / "out", source)
    after = (tmp_path / "out" / "30k.model").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


CHANGES = [
    ({"num_hidden_layers": 3}, r"num_hidden_layers 3 \(there 1\)"),
    ({"num_attention_heads": 4}, r"num_attention_heads 4 \(there 2\)"),
    ({"hidden_act": "relu", "num_hidden_layers": 2}, r"hidden_act relu \(there gelu\), num_hid"),
    ({"hidden_dropout_prob": 0.3, "initializer_range": 0.1}, None),
]


@pytest.mark.parametrize(("changes", "message"), CHANGES)
def test_a_configuration_that_was_changed_is_refused_though_the_weights_fit(
    tmp_path, changes, message
):
    write(tmp_path / "out", source_in(tmp_path / "elsewhere"))
    path = tmp_path / "out" / "albert_config.json"
    path.write_text(dataclasses.replace(CONFIG, **changes).to_json_string())
    uses = (
        lambda: model_folder.read(str(tmp_path / "out")),
        lambda: sources.locate(checkpoint=str(tmp_path / "out")),
    )
    for use in uses:
        if message is None:
            use()
            continue
        with pytest.raises(file_io.InputError, match=message) as raised:
            use()
        assert f"{path} is not the configuration that {path.parent}/model.json recorded" in str(
            raised.value
        )
    # What the user names counts, and a description without the entry says nothing.
    sources.locate(sources.Given(str(path)), str(tmp_path / "out"))
    name = tmp_path / "out" / "model.json"
    description = json.loads(name.read_text())
    del description["config"]
    name.write_text(json.dumps(description))
    for use in uses:
        use()


# --- folders that another program has trained ----------------------------------------------------


def foreign(folder, source):
    """A folder with a checkpoint alone."""
    write(folder, source)
    for path in folder.iterdir():
        if not path.name.startswith("model.ckpt"):
            path.unlink()
    return str(folder)


def test_a_run_without_training_adds_what_is_missing(tmp_path):
    source = source_in(tmp_path / "elsewhere")
    folder = foreign(tmp_path / "out", source)
    given = (folder, "squad_v1", CONFIG, source, SETTINGS)
    assert model_folder.write(*given, replace=False)
    found = model_folder.read(folder)
    assert (found.kind, found.config, found.settings) == ("squad_v1", CONFIG, SETTINGS)
    assert model_folder.load_tokenizer(found.source, found.config).sp_model is not None
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert not model_folder.write(*given, replace=False)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_what_is_there_is_kept_with_a_warning(tmp_path, caplog):
    source = source_in(tmp_path / "elsewhere")
    out = tmp_path / "out"
    folder = foreign(out, source)
    wide = dataclasses.replace(CONFIG, intermediate_size=32)
    cased = dataclasses.replace(source, rules=text_rules.TextRules(False))
    cases = [
        (
            CONFIG,
            source,
            {**SETTINGS, "labels": ["bad", "good"]},
            r'labels \["good", "bad"\] \(here',
        ),
        (CONFIG, cased, SETTINGS, "do_lower_case true"),
        (wide, source, SETTINGS, r"intermediate_size 16 \(here 32\)"),
    ]
    model_folder.write(folder, "squad_v1", CONFIG, source, SETTINGS, replace=False)
    (out / "30k.model").rename(out / "renamed.model")
    text = (out / "model.json").read_text().replace("30k.model", "renamed.model")
    (out / "model.json").write_text(text)
    with caplog.at_level("WARNING", logger="absl"):
        model_folder.write(folder, "squad_v1", CONFIG, source, SETTINGS, replace=False)
        assert not caplog.text  # the vocabulary's name is no difference
        for config, files, settings, message in cases:
            caplog.clear()
            assert not model_folder.write(
                folder, "squad_v1", config, files, settings, replace=False
            )
            assert re.search(rf"model.json is not changed, .*{message}", caplog.text)
        (out / "renamed.model").write_bytes(b"another")
        model_folder.write(folder, "squad_v1", CONFIG, source, SETTINGS, replace=False)
        assert "the vocabulary" in caplog.text
    assert (out / "model.json").read_text() == text
    assert not (out / "30k.model").exists()


@pytest.mark.parametrize("name", ["albert_config.json", "30k.model"])
def test_other_files_are_not_replaced_either(tmp_path, caplog, name):
    source = source_in(tmp_path / "elsewhere")
    out = tmp_path / "out"
    folder = foreign(out, source)
    other = dataclasses.replace(CONFIG, intermediate_size=32).to_json_string()
    (out / name).write_text(other)
    with caplog.at_level("WARNING", logger="absl"):
        assert not model_folder.write(folder, "squad_v1", CONFIG, source, SETTINGS, replace=False)
    assert "out is not changed, though this run used other values" in caplog.text
    assert (out / name).read_text() == other and not (out / "model.json").exists()
    # Another form of the same configuration stays too, but is no obstacle.
    (out / name).unlink()
    legacy = {**CONFIG.to_dict(), "net_structure_type": 0}
    (out / "albert_config.json").write_text(json.dumps(legacy))
    assert model_folder.write(folder, "squad_v1", CONFIG, source, SETTINGS, replace=False)
    assert json.loads((out / "albert_config.json").read_text()) == legacy


@pytest.mark.parametrize(
    ("kind", "settings", "vocabulary", "message"),
    [
        ("classifier", SETTINGS, "30k.model", r'kind "squad_v1" \(here "classifier"\)'),
        ("squad_v1", {"labels": ["bad", "good"]}, "30k.model", r'labels \["good", "bad"\] \(here'),
        ("squad_v1", {**SETTINGS, "task_name": "rte"}, "30k.model", r'null \(here "rte"\)'),
        ("squad_v1", SETTINGS, "other.model", r"the vocabulary .*30k.model \(here .*other.model\)"),
    ],
)
def test_training_never_resumes_another_model(tmp_path, kind, settings, vocabulary, message):
    source, out = source_in(tmp_path / "elsewhere"), tmp_path / "out"
    (tmp_path / "elsewhere" / "other.model").write_bytes(b"another")
    other = dataclasses.replace(source, spm_model_file=f"{tmp_path}/elsewhere/{vocabulary}")
    model_folder.write(str(out), "squad_v1", CONFIG, source, SETTINGS)
    model_folder.check_same_model(str(out), kind, CONFIG, other, settings)  # no checkpoint yet
    checkpoints.save(str(out / "model.ckpt-3"), heads.SquadV1Model(CONFIG, seed=1))
    longer = {**SETTINGS, "max_seq_length": 16}  # the same outputs
    model_folder.check_same_model(str(out), "squad_v1", CONFIG, source, longer)
    with pytest.raises(file_io.InputError, match=rf"another model: .*{message}.*; give another"):
        model_folder.check_same_model(str(out), kind, CONFIG, other, settings)


def test_fine_tuning_never_resumes_a_pre_training_run(tmp_path):
    source = source_in(tmp_path / "elsewhere")
    out = foreign(tmp_path / "out", source)
    given = (out, "squad_v1", CONFIG, source, SETTINGS)
    model_folder.check_same_model(*given)  # of the reference, for example
    out = foreign(tmp_path / "out", source)
    model_folder.write_pretrained(out, CONFIG, "sop", source)
    with pytest.raises(file_io.InputError, match="out holds checkpoints of a pre-training run"):
        model_folder.check_same_model(*given)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(file_io.InputError, match="there is no model folder .*nowhere"):
        model_folder.read(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(file_io.InputError, match=r"empty has no model.json: expected the output"):
        model_folder.read(str(tmp_path / "empty"))
    write(tmp_path / "out", source_in(tmp_path / "elsewhere"))
    with pytest.raises(file_io.InputError, match="of kind squad_v1; expected classifier"):
        model_folder.read(str(tmp_path / "out"), "classifier")
    for path in (tmp_path / "out").glob("model.ckpt*"):
        path.unlink()
    with pytest.raises(file_io.InputError, match="there is no checkpoint"):
        model_folder.read(str(tmp_path / "out"))
    (tmp_path / "out" / "model.json").write_text('{"version": 7}')
    with pytest.raises(file_io.InputError, match="not a model description of version 1"):
        model_folder.read(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("settings", "is_valid"),
    [
        ({}, True), ({"head_dropout_prob": 0.5}, True), ({"head_dropout_prob": 0}, True),
        ({"head_dropout_prob": True}, False), ({"head_dropout_prob": "0.5"}, False),
        ({"head_hidden_size": 8}, True), ({"head_hidden_size": None}, True),
        ({"head_hidden_size": 8.0}, False), ({"head_activation": 5}, False),
    ],
)  # fmt: skip
def test_settings_have_the_types_that_training_writes(settings, is_valid, tmp_path):
    """An int is accepted for a float, as JSON may contain 0 for 0.0; a bool is not."""
    source = source_in(tmp_path / "files")
    folder = model_folder.ModelFolder(str(tmp_path), "classifier", CONFIG, source, settings)
    if is_valid:
        assert folder.settings_as(head_config.Head) == head_config.Head(**settings)
    else:
        ((name, value),) = settings.items()
        message = f"the setting {name} is {re.escape(repr(value))}, which training never writes"
        with pytest.raises(file_io.InputError, match=message):
            folder.settings_as(head_config.Head)


def test_vocabularies_are_compared_by_pieces_where_one_is_a_tokenizer(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    for name, rows in (("same.txt", pieces), ("other.txt", [*pieces, "b"])):
        (tmp_path / name).write_text("\n".join(rows))
    model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(pieces)}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    (tmp_path / "a.model").write_bytes(b"\xff")
    there = f"{tmp_path}/tokenizer.json"
    for name, same in (("same.txt", True), ("other.txt", False), ("a.model", False)):
        assert model_folder.are_same_vocabularies(there, f"{tmp_path}/{name}") is same
        assert model_folder.are_same_vocabularies(f"{tmp_path}/{name}", there) is same
