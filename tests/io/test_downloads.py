"""Downloads from a server on the loopback address that breaks off, stalls or sends other files."""

import pytest

from albert.io import downloads, file_io
from tests.support import file_server

MAGIC = b"\x1f\x8b"
CONTENT = MAGIC + bytes(range(256)) * 4000  # about 1 MB


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(downloads, "WAIT_SECONDS", 0.01)
    with file_server.serve(CONTENT) as site:
        yield site


def fetch(site, tmp_path):
    path = tmp_path / "cache" / "a.tar.gz"
    downloads.fetch(site.url, str(path), MAGIC)
    assert [p.name for p in path.parent.iterdir()] == ["a.tar.gz"]
    return path.read_bytes()


def left_over(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir())


@pytest.mark.parametrize("has_length", [True, False])
def test_a_file_is_fetched_once(site, tmp_path, has_length):
    site.has_length = has_length
    assert fetch(site, tmp_path) == CONTENT
    assert fetch(site, tmp_path) == CONTENT
    assert site.ranges == [None]


def test_a_download_that_breaks_off_resumes(site, tmp_path):
    site.break_at = [400_000, 300_000]
    assert fetch(site, tmp_path) == CONTENT
    assert site.ranges == [None, "bytes=400000-", "bytes=700000-"]


def test_the_next_call_resumes(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "MAX_ATTEMPTS", 1)
    site.break_at = [400_000]
    with pytest.raises(file_io.InputError, match=f"cannot fetch {site.url}: 624002 bytes are mis"):
        fetch(site, tmp_path)
    assert left_over(tmp_path) == ["a.tar.gz.part", "a.tar.gz.part.version"]
    assert fetch(site, tmp_path) == CONTENT
    assert site.ranges == [None, "bytes=400000-"]


@pytest.mark.parametrize("version", ['"2"', 'W/"1"', None])
def test_parts_of_two_versions_are_not_mixed(site, tmp_path, monkeypatch, version):
    monkeypatch.setattr(downloads, "MAX_ATTEMPTS", 1)
    site.break_at = [400_000]
    if version != '"2"':
        site.version = version
    with pytest.raises(file_io.InputError, match="cannot fetch"):
        fetch(site, tmp_path)
    site.version, site.content = version, MAGIC + bytes(900_000)
    assert fetch(site, tmp_path) == site.content


def test_a_file_that_shrank_is_fetched_from_its_start(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "MAX_ATTEMPTS", 1)
    site.break_at = [400_000]
    with pytest.raises(file_io.InputError, match="cannot fetch"):
        fetch(site, tmp_path)
    site.content = CONTENT[:1000]
    assert fetch(site, tmp_path) == CONTENT[:1000]
    assert site.ranges == [None, "bytes=400000-", None]


def test_a_silent_server_is_given_up(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.2)
    site.break_at, site.stalls = [0, 0], True
    with pytest.raises(file_io.InputError, match=f"cannot fetch {site.url}: timed out"):
        fetch(site, tmp_path)


def test_another_file_is_rejected(site, tmp_path):
    site.content = b"<!DOCTYPE html>"
    message = r"another file than expected: it begins with b'<!DOCTYPE html>' \(Content-Type: app"
    with pytest.raises(file_io.InputError, match=message):
        fetch(site, tmp_path)
    assert left_over(tmp_path) == []


def test_an_empty_file_is_rejected(site, tmp_path):
    site.has_length, site.break_at = False, [0]
    with pytest.raises(file_io.InputError, match="a.tar.gz is empty"):
        fetch(site, tmp_path)


@pytest.mark.parametrize("is_stated", [True, False])
def test_too_large_a_file_is_rejected(site, tmp_path, monkeypatch, is_stated):
    monkeypatch.setattr(downloads, "MAX_BYTES", 500_000)
    site.has_length = is_stated
    with pytest.raises(file_io.InputError, match="KiB or more; at most 488.3 KiB are fetched"):
        fetch(site, tmp_path)
    assert left_over(tmp_path) == []


def test_errors_of_the_server_are_named(site, tmp_path):
    site.status = 404
    with pytest.raises(file_io.InputError, match="cannot fetch .*: the server answers 404 Not Fou"):
        fetch(site, tmp_path)
    downloads_nowhere = "http://127.0.0.1:1/a.tar.gz"
    with pytest.raises(file_io.InputError, match=f"cannot fetch {downloads_nowhere}: .*refused"):
        downloads.fetch(downloads_nowhere, str(tmp_path / "b.tar.gz"), MAGIC)
