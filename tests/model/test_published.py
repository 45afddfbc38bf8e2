"""Models by their published name, by URL and as archives."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from albert import (
    create_pretraining_data,
    export_checkpoints,
    export_to_huggingface,
    run_pretraining,
)
from albert.io import archives, file_io
from albert.model import checkpoints, model_folder, pretraining_heads, published, sources
from albert.serving import masked_words
from tests.support import builders, file_server
from tests.support.sources import ROOT


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An archive like the published ones."""
    folder = tmp_path_factory.mktemp("archive")
    config = builders.tiny_config()
    builders.write_model(
        folder / "albert_base", pretraining_heads.PretrainingModel(config, seed=1), config
    )
    with tarfile.open(folder / "made.tar.gz", "w:gz") as tar:
        tar.add(folder / "albert_base", "albert_base")
    return folder / "made.tar.gz"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def site(archive, cache, monkeypatch):
    with file_server.serve(archive.read_bytes()) as site:
        monkeypatch.setattr(published, "ADDRESS", f"{os.path.dirname(site.url)}/{{}}.tar.gz")
        yield site


def files(source):
    names = (source.config_file, source.checkpoint, source.spm_model_file)
    return [os.path.basename(name) for name in names]


def test_names():
    assert len(published.NAMES) == 12 and "albert_xxlarge_zh" in published.NAMES
    assert published.ADDRESS.format("albert_base_v2") == (
        "https://storage.googleapis.com/albert_models/albert_base_v2.tar.gz"
    )


def test_the_shipped_model_needs_no_network(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "ADDRESS", "http://there.is.no.network/{}")
    (name,) = published.SHIPPED
    source = sources.locate(checkpoint=name)
    names = [os.path.basename(x) for x in (source.config_file, source.checkpoint)]
    assert names == ["config.json", "model.safetensors"] and not cache.exists()
    assert source.config_file.startswith(str(ROOT / "albert" / "pretrained"))
    assert source.rules.lower and os.path.basename(source.vocab_file) == "vocab.txt"
    folder = ROOT / "albert" / "pretrained" / name
    assert sum(path.stat().st_size for path in folder.rglob("*")) <= 13_000_000
    with pytest.raises(file_io.InputError, match="did you mean albert_mini"):
        checkpoints.resolve("albert-mini")


def test_a_vocabulary_of_the_other_kind_is_named(cache):
    message = "^spm_model_file: expected one vocabulary .* found none; it has .* for vocab_file"
    with pytest.raises(file_io.InputError, match=message):
        published.vocabularies("albert_mini", None)


def test_the_shipped_model_fills_masks():
    model = masked_words.MaskedWords.load("albert_mini")
    (answers,) = model.fill("she opened the [MASK] and went into the house.", 5)
    assert "door" in [answer.word for answer in answers]


def test_a_published_model_is_fetched_once(site, cache):
    source = sources.locate(checkpoint="albert_base_v2")
    assert files(source) == ["albert_config.json", "model.ckpt-best", "30k-clean.model"]
    assert str(cache) in source.checkpoint
    assert (cache / "albert_base_v2.tar.gz").exists()
    assert sources.locate(checkpoint="albert_base_v2") == source
    assert len(site.ranges) == 1


def test_a_local_folder_of_that_name_comes_first(site, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(archive.parent / "albert_base", "albert_base_v2")
    assert sources.locate(checkpoint="albert_base_v2").checkpoint.startswith("albert_base_v2")
    assert not site.ranges


def test_python_takes_the_name(site):
    model = pretraining_heads.PretrainingModel(builders.tiny_config(), seed=2)
    expected = pretraining_heads.PretrainingModel(builders.tiny_config(), seed=1)
    checkpoints.restore(model, "albert_base_v2")
    for ours, theirs in zip(model.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("query", ["", "?download=true"])
def test_a_model_by_url(site, cache, query):
    source = sources.locate(checkpoint=site.url + query)
    assert files(source)[1] == "model.ckpt-best"
    (fetched,) = (path.name for path in cache.iterdir() if path.name.endswith(".tar.gz"))
    assert fetched.endswith("-a.tar.gz") and len(fetched) == 16 + len("-a.tar.gz")
    with pytest.raises(file_io.InputError, match="http://x/model is not the URL of a .tar.gz fil"):
        published.local_path("http://x/model")


def test_a_local_archive(archive, cache):
    source = sources.locate(checkpoint=str(archive))
    assert files(source)[1] == "model.ckpt-best" and str(cache) in source.checkpoint


def test_without_a_network_the_message_names_the_file_to_provide(archive, cache, monkeypatch):
    monkeypatch.setattr(published, "ADDRESS", "http://127.0.0.1:1/{}.tar.gz")
    path = cache / "albert_large_v1.tar.gz"
    message = (
        "cannot fetch .*refused.*; without a network, fetch http://127.0.0.1:1/albert_large_v1.tar."
        f"gz elsewhere and put it at {path}, or name your copy of the .tar.gz file"
    )
    with pytest.raises(file_io.InputError, match=message):
        sources.locate(checkpoint="albert_large_v1")
    shutil.copy(archive, path)
    assert files(sources.locate(checkpoint="albert_large_v1"))[1] == "model.ckpt-best"


def test_a_bomb_is_not_unpacked(site, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar, open("/dev/zero", "rb") as zeros:
        info = tarfile.TarInfo("zeros")
        info.size = 1 << 24
        tar.addfile(info, zeros)
    site.content = path.read_bytes()
    with pytest.raises(file_io.InputError, match="unpacks to more than 20 times its size"):
        sources.locate(checkpoint=site.url)
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_other_content_is_rejected(site, cache):
    site.content = b"<html>sign in</html>"
    with pytest.raises(file_io.InputError, match="another file than expected: it begins with b'<h"):
        sources.locate(checkpoint="albert_base_v2")
    site.content = b"\x1f\x8b cut off"
    with pytest.raises(file_io.InputError, match="cut off, damaged or .*: delete .*_v1.tar.gz"):
        sources.locate(checkpoint="albert_base_v1")


def test_a_name_written_wrong_lists_the_names(cache):
    for name in ("albert-base-v3", "albert/albert-base-v2", "albert_bse_v2"):
        with pytest.raises(file_io.InputError, match=f"{name} .* albert_base_v2\\? Pub"):
            sources.locate(checkpoint=name)
    with pytest.raises(file_io.InputError) as caught:
        sources.locate(checkpoint="output/step_100")
    assert "did you mean" not in str(caught.value)


def test_names_on_the_hub_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"):
        folder = name.split("/")[-1]
        advice = (
            f"give the folder {folder} after: .*snapshot_download.'{name}', local_dir='{folder}'"
        )
        with pytest.raises(file_io.InputError, match=advice):
            sources.locate(checkpoint=name)
        with pytest.raises(file_io.InputError, match=advice):
            model_folder.read(name)
    (tmp_path / "runs").mkdir()
    assert not any(map(published.suggestion, ("runs/sst-2", "/a/b-c", "x/model.ckpt-3", "sst2")))


def test_a_cache_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(file_io.InputError, match="^cannot make the folder .*file/cache: Not a dir"):
        sources.locate(checkpoint="albert_base_v2")


def test_hidden_files_of_macos_are_ignored(archive, cache, tmp_path):
    shutil.copytree(archive.parent / "albert_base", tmp_path / "albert_base")
    (tmp_path / "albert_base" / "._30k-clean.model").write_bytes(b"\0")
    (tmp_path / "._albert_base").write_bytes(b"\0")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "._albert_base", "._albert_base")
        tar.add(tmp_path / "albert_base", "albert_base")
    source = sources.locate(checkpoint=str(tmp_path / "a.tar.gz"))
    assert files(source)[1:] == ["model.ckpt-best", "30k-clean.model"]


def test_exports_take_the_name(site, tmp_path, run_script):
    run_script(export_checkpoints, albert_directory="albert_base_v2", export_path=f"{tmp_path}/a/")
    run_script(export_to_huggingface, model_dir="albert_base_v2", output_dir=tmp_path / "b")
    found = [pathlib.Path(sources.locate(checkpoint=str(tmp_path / x)).checkpoint) for x in "ab"]
    assert [path.name for path in found] == ["model.ckpt-best", "model.safetensors"]


def test_pre_training_data_takes_the_vocabulary(site, cache, tmp_path, run_script):
    (tmp_path / "text.txt").write_text("some words here\nand some more\n")
    flags = {"input_file": tmp_path / "text.txt", "max_seq_length": 16, "mask_in_training": True}
    run_script(
        create_pretraining_data,
        **flags,
        output_file=tmp_path / "a",
        spm_model_file="albert_base_v2",
    )
    path = sources.locate(checkpoint="albert_base_v2").spm_model_file
    for name, vocabulary in (("b", path), ("c", os.path.dirname(path))):
        run_script(
            create_pretraining_data, **flags, output_file=tmp_path / name, spm_model_file=vocabulary
        )
        assert (tmp_path / "a").read_bytes() == (tmp_path / name).read_bytes()
    with pytest.raises(file_io.InputError, match=r"one vocabulary vocab\*.txt in albert_b"):
        run_script(
            create_pretraining_data,
            **flags,
            output_file=tmp_path / "d",
            vocab_file="albert_base_v2",
        )


@pytest.mark.slow
def test_further_pre_training_takes_the_name(site, tmp_path, run_script):
    """The new folder has the vocabulary, so that fine-tuning can start from it."""
    (tmp_path / "text.txt").write_text("some words here\nand some more\n" * 5)
    run_script(
        create_pretraining_data,
        input_file=tmp_path / "text.txt",
        output_file=tmp_path / "records",
        spm_model_file="albert_base_v2",
        max_seq_length=16,
        max_predictions_per_seq=2,
    )
    for name in ("init_checkpoint", "spm_model_file"):
        folder = tmp_path / name
        config = sources.locate(checkpoint="albert_base_v2").config_file
        run_script(
            run_pretraining,
            **{"albert_config_file": config, name: "albert_base_v2"},
            input_file=tmp_path / "records",
            output_dir=folder,
            do_train=True,
            max_seq_length=16,
            max_predictions_per_seq=2,
            train_batch_size=2,
            num_train_steps=1,
            num_warmup_steps=0,
        )
        assert sources.locate(checkpoint=str(folder / "model.ckpt-1")).spm_model_file


def test_other_models_start_without_the_network():
    program = "import sys; from albert.model import sources; sys.exit('ssl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_the_vocabulary_of_the_chinese_models_is_found(tmp_path):
    config = builders.tiny_config()
    builders.write_model(tmp_path, pretraining_heads.PretrainingModel(config, seed=1), config)
    (tmp_path / "30k-clean.model").unlink()
    shutil.copy("tests/testdata/tiny_vocab.txt", tmp_path / "vocab_chinese.txt")
    source = sources.locate(checkpoint=str(tmp_path))
    assert source.vocab_file == str(tmp_path / "vocab_chinese.txt")
