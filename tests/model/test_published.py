"""Models by their published name, by URL and as archives."""

import os
import shutil
import tarfile

import pytest

from albert.io import file_io
from albert.model import pretraining_heads, published, sources
from tests.support import builders, file_server


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


def test_a_published_model_is_fetched_once(site, cache):
    source = sources.locate(checkpoint="albert_base_v2")
    assert files(source) == ["albert_config.json", "model.ckpt-best", "30k-clean.model"]
    assert (
        os.path.dirname(os.path.dirname(source.checkpoint)) == str(cache)
        or str(cache) in source.checkpoint
    )
    assert (cache / "albert_base_v2.tar.gz").exists()
    assert sources.locate(checkpoint="albert_base_v2") == source
    assert len(site.ranges) == 1


def test_a_local_folder_of_that_name_comes_first(site, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(archive.parent / "albert_base", "albert_base_v2")
    assert sources.locate(checkpoint="albert_base_v2").checkpoint.startswith("albert_base_v2")
    assert not site.ranges


def test_a_model_by_url(site, cache):
    source = sources.locate(checkpoint=site.url)
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
        f"cannot fetch .*refused.*; without a network, fetch it elsewhere and put it at {path}"
    )
    with pytest.raises(file_io.InputError, match=message):
        sources.locate(checkpoint="albert_large_v1")
    shutil.copy(archive, path)
    assert files(sources.locate(checkpoint="albert_large_v1"))[1] == "model.ckpt-best"


def test_a_bomb_is_not_unpacked(site, cache, tmp_path):
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar, open("/dev/zero", "rb") as zeros:
        info = tarfile.TarInfo("zeros")
        info.size = 1 << 31
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
    message = "is cut off, damaged or not a .tar.gz archive .*; delete .*_v1.tar.gz to fetch it"
    with pytest.raises(file_io.InputError, match=message):
        sources.locate(checkpoint="albert_base_v1")


def test_a_name_written_wrong_lists_the_names(cache):
    with pytest.raises(file_io.InputError, match="no checkpoint albert-base-v3 .*; published mode"):
        sources.locate(checkpoint="albert-base-v3")
    with pytest.raises(file_io.InputError) as caught:
        sources.locate(checkpoint="output/step_100")
    assert "published" not in str(caught.value)


def test_the_vocabulary_of_the_chinese_models_is_found(tmp_path):
    config = builders.tiny_config()
    builders.write_model(tmp_path, pretraining_heads.PretrainingModel(config, seed=1), config)
    (tmp_path / "30k-clean.model").unlink()
    shutil.copy("tests/testdata/tiny_vocab.txt", tmp_path / "vocab_chinese.txt")
    source = sources.locate(checkpoint=str(tmp_path))
    assert source.vocab_file == str(tmp_path / "vocab_chinese.txt")
