"""Finds the files of a model."""

import json
import pathlib
import re
import shutil
import sys
import tarfile

import pytest

from albert.io import file_io
from albert.model import hub_modules, sources
from albert.text import text_rules

TINY = pathlib.Path(__file__).parent.parent / "testdata" / "tiny.model"


def test_a_hub_module_brings_everything(golden):
    module = golden / "hub_tf1"
    source = sources.locate(hub_handle=str(module))
    assert source == sources.Source(
        config_file=str(module / "assets" / "albert_config.json"),
        checkpoint=str(module / "variables" / "variables"),
        spm_model_file=str(module / "assets" / "30k-clean.model"),
        vocab_file=None,
        rules=text_rules.TextRules(True),
    )


def test_the_module_says_whether_text_is_lower_cased_unless_the_user_does(golden, caplog):
    module = str(golden / "hub_tf1")
    with caplog.at_level("WARNING", logger="absl"):
        for given, expected in ((None, True), (True, True), (False, False)):
            assert not caplog.text
            found = sources.locate(sources.Given(rules={"do_lower_case": given}), hub_handle=module)
            assert found.rules.do_lower_case is expected
    assert "using do_lower_case=False, although the model has True" in caplog.text


def test_explicit_files_win_and_differences_are_told(golden, tmp_path, caplog):
    module = golden / "hub_tf1"
    assets = module / "assets"
    same = {
        "config_file": str(assets / "albert_config.json"),
        "spm_model_file": str(assets / "30k-clean.model"),
    }
    with caplog.at_level("WARNING", logger="absl"):
        source = sources.locate(sources.Given(**same), hub_handle=str(module))
        assert not caplog.text
        assert (source.config_file, source.spm_model_file) == tuple(same.values())
        config = json.loads((assets / "albert_config.json").read_text())
        (tmp_path / "mine.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.25}))
        mine = {"config_file": str(tmp_path / "mine.json"), "spm_model_file": str(TINY)}
        source = sources.locate(sources.Given(**mine), hub_handle=str(module))
    assert (source.config_file, source.spm_model_file) == tuple(mine.values())
    assert source.checkpoint == str(module / "variables" / "variables")
    assert re.search(
        r"using albert_config_file=.*mine.json, which differs .*: hidden_dropout_prob 0.25 ",
        caplog.text,
    )
    assert re.search(
        "using spm_model_file=.*tiny.model, although the model comes with", caplog.text
    )


@pytest.mark.parametrize("flag", ["spm_model_file", "vocab_file"])
@pytest.mark.parametrize("given", ["from_tf_hub", "gone/30k-clean.model"])
def test_a_vocabulary_that_is_no_file_is_that_of_the_hub_module(golden, caplog, flag, given):
    module = str(golden / "hub_tf1")
    wanted = sources.locate(hub_handle=module).spm_model_file
    with caplog.at_level("WARNING", logger="absl"):
        # With --spm_model_file, --vocab_file is not used, so it needs no word.
        both = {"spm_model_file": given, "vocab_file": given} if flag == "spm_model_file" else {}
        source = sources.locate(sources.Given(**{flag: given, **both}), hub_handle=module)
    assert source.spm_model_file == wanted
    assert caplog.text.count(f"{flag}={given} does not exist; using the hub module's file") == 1
    with pytest.raises(file_io.InputError) as caught:
        sources.locate(sources.Given(config_file=str(TINY), **{flag: given}))
    message = f"{flag}: the file {given} does not exist"
    if given == "from_tf_hub":
        message = f"{flag}=from_tf_hub stands for the file of a hub module, but no hub module"
    assert str(caught.value).startswith(message)


def test_a_chinese_module_brings_its_vocabulary(golden, tmp_path, caplog):
    module = tmp_path / "module"
    shutil.copytree(golden / "hub_tf1", module)
    (module / "assets" / "30k-clean.model").unlink()
    (module / "assets" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    files = {"spm_model_file": "from_tf_hub", "vocab_file": "gone/vocab.txt"}
    for given in ({"vocab_file": "from_tf_hub"}, files):
        source = sources.locate(sources.Given(**given), hub_handle=str(module))
        assert source.spm_model_file is None
        assert source.vocab_file == str(module / "assets" / "vocab.txt")


def test_a_configuration_that_is_not_there_is_never_passed_over(golden):
    module = str(golden / "hub_tf1")
    own = sources.locate(sources.Given("from_tf_hub"), hub_handle=module).config_file
    assert own == f"{module}/assets/albert_config.json"
    with pytest.raises(file_io.InputError, match="albert_config_file: .*gone.json does not exist"):
        sources.locate(sources.Given("gone.json"), hub_handle=module)
    with pytest.raises(file_io.InputError, match="albert_config_file=from_tf_hub stands for"):
        sources.locate(sources.Given("from_tf_hub"))


@pytest.mark.parametrize("vocabulary", ["30k-clean.model", "vocab.txt"])
def test_files_beside_a_checkpoint_are_found(golden, tmp_path, vocabulary):
    for ending in (".index", ".data-00000-of-00001"):
        shutil.copy(
            golden / "model" / "shared" / f"model.ckpt-best{ending}", tmp_path / f"model{ending}"
        )
    (tmp_path / "albert_config.json").write_text("{}")
    (tmp_path / vocabulary).write_text("")
    source = sources.locate(checkpoint=str(tmp_path))
    assert source.config_file == str(tmp_path / "albert_config.json")
    assert source.checkpoint == str(tmp_path / "model")
    found = source.spm_model_file or source.vocab_file
    assert found == str(tmp_path / vocabulary)
    assert bool(source.spm_model_file) == vocabulary.endswith(".model")
    (tmp_path / "other.model").write_text("")
    if vocabulary.endswith(".model"):
        with pytest.raises(file_io.InputError, match="several .model files .* choose one"):
            sources.locate(checkpoint=str(tmp_path))


def test_mistakes_are_named(golden, tmp_path):
    with pytest.raises(file_io.InputError, match="albert_config_file and spm.* be given"):
        sources.locate()
    with pytest.raises(file_io.InputError, match="is not a hub module: .*variables.index"):
        hub_modules.resolve(str(tmp_path))
    with pytest.raises(file_io.InputError, match="file nowhere does not exist"):
        hub_modules.resolve("nowhere")


def test_a_module_without_assets_is_named(golden, tmp_path):
    module = tmp_path / "module"
    shutil.copytree(golden / "hub_tf1", module)
    (module / "assets" / "30k-clean.model").unlink()
    with pytest.raises(file_io.InputError, match="vocab_file must be given: .*none in its assets"):
        sources.locate(hub_handle=str(module))
    assert sources.locate(hub_handle=str(module), needs_vocabulary=False).config_file
    shutil.rmtree(module / "assets")
    with pytest.raises(file_io.InputError, match="albert_config_file and .* none in its assets"):
        sources.locate(hub_handle=str(module))
    (module / "saved_model.pb").write_bytes(b"not a model")
    with pytest.raises(file_io.InputError, match="saved_model.pb is damaged"):
        sources.locate(hub_handle=str(module))


@pytest.mark.parametrize("inside", [".", "albert_module/1"])
def test_an_archive_is_unpacked_once(golden, tmp_path, monkeypatch, inside):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    with tarfile.open(tmp_path / "module.tar.gz", "w:gz") as tar:
        tar.add(golden / "hub_tf1", inside.split("/")[0])
    source = sources.locate(hub_handle=str(tmp_path / "module.tar.gz"))
    (folder,) = (tmp_path / "cache").iterdir()
    assert source.checkpoint.startswith(str(folder))
    assert source.spm_model_file.endswith("assets/30k-clean.model")
    before = folder.stat().st_mtime_ns
    assert sources.locate(hub_handle=str(tmp_path / "module.tar.gz")) == source
    assert folder.stat().st_mtime_ns == before


def test_a_url_without_the_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_hub", None)
    with pytest.raises(file_io.InputError, match=r"pip install tensorflow-hub 'setuptools<82'"):
        hub_modules.resolve("https://example.org/m")


def test_a_url_that_cannot_be_fetched_is_named(monkeypatch):
    tensorflow_hub = pytest.importorskip("tensorflow_hub")

    def fail(handle):
        raise OSError("no route to host")

    monkeypatch.setattr(tensorflow_hub, "resolve", fail)
    with pytest.raises(file_io.InputError, match="cannot fetch .*example.org/m: no route to host"):
        hub_modules.resolve("https://example.org/m")


@pytest.mark.parametrize(
    ("name", "way"),
    [("pytorch_model.bin", r"with transformers: CLASS.from_pretrained\(folder\).save_pretr"),
     ("model.PT", "load_state_dict"), ("tf_model.h5", "from_tf=True"), ("model.h5", "save a Tens"),
     ("model.onnx", "a computation, not weights to train")],
)  # fmt: skip
def test_weights_of_other_programs_come_with_the_way_to_convert_them(tmp_path, name, way):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(file_io.InputError, match=f"init_checkpoint=.*{name} cannot be read.*{way}"):
        sources.locate(checkpoint=str(tmp_path / name))
