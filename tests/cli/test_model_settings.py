"""Flags of the model that a command starts from."""

import shutil

import pytest

from albert.cli import model_settings
from albert.io import file_io
from albert.tasks import glue
from tests.support import builders, command_lines


def test_flags_find_the_files(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(builders.tiny_config().to_json_string())
    files = {"albert_config_file": config, "spm_model_file": builders.SPM}
    words = ["--from_scratch", "--nodo_lower_case"]
    found = command_lines.read(model_settings.ModelToUse, *words, **files).find()
    assert (found.config_file, found.spm_model_file) == (str(config), str(builders.SPM))
    assert found.rules.do_lower_case is False and found.checkpoint is None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return builders.write_classifier(tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize("words", [[], ["--do_lower_case", "--nokeep_accents", "--extra_pieces="]])
def test_a_trained_model_takes_flags_that_say_what_it_does(trained, tmp_path, words):
    vocabulary = shutil.copy(builders.SPM, tmp_path / "copy.model")
    settings = command_lines.read(model_settings.ModelToUse, *words, spm_model_file=vocabulary)
    source = settings.find_for_run(False, trained, glue.KIND)
    assert source.vocabulary.startswith(trained)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--nodo_lower_case", r"do_lower_case is False \(there True\); omit these flags"),
        ("--keep_accents", r"keep_accents is True \(there False\)"),
        ("--extra_pieces=NASA", r"extra_pieces is \['NASA'\] \(there \[\]\)"),
        ("--vocab_file={other}", r"vocab_file is .*other.txt \(there .*tiny.model, with other"),
        ("--spm_model_file={other}", r"spm_model_file is .*other.txt \(there .*tiny.model, with"),
        ("--spm_model_file={other}x", r"spm_model_file: the file .*other.txtx does not exist"),
    ],
)
def test_a_trained_model_refuses_flags_of_other_texts(trained, tmp_path, flags, message):
    (tmp_path / "other.txt").write_text("a\n")
    words = flags.format(other=tmp_path / "other.txt")
    settings = command_lines.read(model_settings.ModelToUse, words)
    with pytest.raises(file_io.InputError, match=message):
        settings.find_for_run(False, trained, glue.KIND)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        (
            {"do_lower_case": False},
            r"do_lower_case is False \(there True\); omit these flags and those that name",
        ),
        ({"vocab_file": "other.txt"}, r"the vocabulary is .*other.txt \(there .*tiny.model, with"),
    ],
)
def test_a_model_to_start_from_does_not_change_the_texts_of_a_trained_one(
    trained, tmp_path, monkeypatch, changes, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("a\n")
    vocabulary = {} if "vocab_file" in changes else {"spm_model_file": builders.SPM}
    values = {"albert_config_file": f"{trained}/albert_config.json", **vocabulary, **changes}
    settings = command_lines.read(model_settings.ModelToUse, **values)
    settings.find_for_run(True, trained, glue.KIND)
    if message is None:
        settings.find_for_run(False, trained, glue.KIND)
        return
    with pytest.raises(file_io.InputError, match=message):
        settings.find_for_run(False, trained, glue.KIND)
