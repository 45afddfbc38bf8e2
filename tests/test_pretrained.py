"""Where a model's files are looked for."""

import shutil

import pytest

from albert import file_io, pretrained


def test_a_hub_module_brings_everything(golden):
    module = golden / "hub_tf1"
    source = pretrained.locate(hub_handle=str(module))
    assert source == pretrained.Source(
        config_file=str(module / "assets" / "albert_config.json"),
        checkpoint=str(module / "variables" / "variables"),
        spm_model_file=str(module / "assets" / "30k-clean.model"),
        vocab_file=None,
        do_lower_case=True,
    )


def test_the_module_says_whether_text_is_lower_cased(golden, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        source = pretrained.locate(hub_handle=str(golden / "hub_tf1"), do_lower_case=False)
    assert source.do_lower_case is True
    assert "do_lower_case=True; --do_lower_case=False is not used" in caplog.text


def test_explicit_files_win(golden):
    source = pretrained.locate(
        config_file="mine.json", hub_handle=str(golden / "hub_tf1"), spm_model_file="mine.model"
    )
    assert (source.config_file, source.spm_model_file) == ("mine.json", "mine.model")


@pytest.mark.parametrize("vocabulary", ["30k-clean.model", "vocab.txt"])
def test_files_beside_a_checkpoint_are_found(golden, tmp_path, vocabulary):
    for ending in (".index", ".data-00000-of-00001"):
        shutil.copy(
            golden / "model" / "shared" / f"model.ckpt-best{ending}", tmp_path / f"model{ending}"
        )
    (tmp_path / "albert_config.json").write_text("{}")
    (tmp_path / vocabulary).write_text("")
    source = pretrained.locate(checkpoint=str(tmp_path))
    assert source.config_file == str(tmp_path / "albert_config.json")
    assert source.checkpoint == str(tmp_path / "model")
    found = source.spm_model_file or source.vocab_file
    assert found == str(tmp_path / vocabulary)
    assert bool(source.spm_model_file) == vocabulary.endswith(".model")
    (tmp_path / "other.model").write_text("")
    if vocabulary.endswith(".model"):
        with pytest.raises(file_io.InputError, match="several .model files .* name one"):
            pretrained.locate(checkpoint=str(tmp_path))


def test_mistakes_are_named(golden, tmp_path):
    with pytest.raises(file_io.InputError, match="--albert_config_file must be given"):
        pretrained.locate(from_scratch=True)
    with pytest.raises(file_io.InputError, match="is not a hub module: .*variables.index"):
        pretrained.resolve_hub(str(tmp_path))
    with pytest.raises(file_io.InputError, match="there is no folder nowhere"):
        pretrained.resolve_hub("nowhere")


def test_a_url_that_cannot_be_fetched_is_named(monkeypatch):
    import tensorflow_hub

    def fail(handle):
        raise OSError("no route to host")

    monkeypatch.setattr(tensorflow_hub, "resolve", fail)
    with pytest.raises(file_io.InputError, match="cannot fetch .*example.org/m: no route to host"):
        pretrained.resolve_hub("https://example.org/m")
