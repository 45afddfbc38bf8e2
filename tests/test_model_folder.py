"""Folders of fine-tuned models can be used alone."""

import dataclasses
import pathlib
import shutil

import pytest

from albert import checkpoints, file_io, heads, model_folder, modeling, pretrained

TESTDATA = pathlib.Path(__file__).parent / "testdata"
CONFIG = modeling.AlbertConfig(
    vocab_size=400, embedding_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=32,
)  # fmt: skip
SETTINGS = {"max_seq_length": 32, "labels": ["good", "bad"]}


def source_in(folder, **changes):
    """Files of a model elsewhere, which is gone when the folder is used."""
    folder.mkdir()
    shutil.copy(TESTDATA / "tiny.model", folder / "30k.model")
    shutil.copy(TESTDATA / "tiny_vocab.txt", folder / "words.txt")
    found = {"spm_model_file": str(folder / "30k.model"), "vocab_file": None, **changes}
    return pretrained.Source("config.json", None, do_lower_case=True, **found)


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
    assert found.source.do_lower_case
    tokenizer = model_folder.load_tokenizer(found.source, found.config)
    assert tokenizer.sp_model is not None
    # Also as the start of another run.
    located = pretrained.locate(checkpoint=str(tmp_path / "out"))
    assert located.spm_model_file == found.source.spm_model_file
    assert located.config_file == found.source.config_file


def test_a_run_that_starts_from_it_reads_texts_as_it_does(tmp_path, caplog):
    source = dataclasses.replace(source_in(tmp_path / "elsewhere"), do_lower_case=False)
    write(tmp_path / "out", source)
    folder = str(tmp_path / "out")
    with caplog.at_level("WARNING", logger="absl"):
        assert pretrained.locate(checkpoint=folder).do_lower_case is False
        same = pretrained.locate(checkpoint=folder, spm_model_file=source.spm_model_file)
        assert same.do_lower_case is False
        assert not caplog.text
        assert pretrained.locate(checkpoint=folder, do_lower_case=True).do_lower_case is True
    assert "--do_lower_case=True is used, but the model says False" in caplog.text


def test_wordpiece_vocabularies_are_found_too(tmp_path):
    source = source_in(tmp_path / "elsewhere", spm_model_file=None)
    source = pretrained.Source("", None, None, str(tmp_path / "elsewhere" / "words.txt"), False)
    write(tmp_path / "out", source)
    found = model_folder.read(str(tmp_path / "out"))
    assert found.source.vocab_file == str(tmp_path / "out" / "vocab.txt")
    assert not found.source.do_lower_case
    assert pretrained.locate(checkpoint=str(tmp_path / "out")).vocab_file.endswith("vocab.txt")


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


def test_mistakes_are_named(tmp_path):
    with pytest.raises(file_io.InputError, match="there is no model folder .*nowhere"):
        model_folder.read(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(file_io.InputError, match=r"empty has no model.json: expected the --output"):
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
