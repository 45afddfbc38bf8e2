"""Downloads from a server on the loopback address that breaks off, stalls or sends other files."""

import concurrent.futures
import re
import urllib.error
import urllib.request

import pytest

from albert.io import downloads, file_io
from tests.support import file_server

MAGIC = b"\x1f\x8b"
CONTENT = MAGIC + bytes(range(256)) * 4000  # about 1 MB


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "WAIT_SECONDS", 0.01)
    (tmp_path / "cache").mkdir()
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


def test_a_part_that_is_complete_is_not_fetched_again(site, tmp_path):
    """As a kill between the last byte and the rename leaves it."""
    (tmp_path / "cache" / "a.tar.gz.part").write_bytes(CONTENT)
    (tmp_path / "cache" / "a.tar.gz.part.version").write_text('"1"')
    assert fetch(site, tmp_path) == CONTENT
    assert site.ranges == [f"bytes={len(CONTENT)}-"]


def test_another_range_than_requested_is_not_appended(site, tmp_path):
    site.break_at, site.range = [400_000], "bytes 0-9/10"
    with pytest.raises(file_io.InputError, match="the range 'bytes 0-9/10'"):
        fetch(site, tmp_path)
    assert fetch(site, tmp_path) == CONTENT


def test_a_slow_server_is_waited_for(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.4)
    site.pause = 0.06  # over the whole body more than the timeout
    assert fetch(site, tmp_path) == CONTENT
    assert site.ranges == [None]


@pytest.mark.parametrize("version", ['"1"', None])
def test_fewer_bytes_than_stated(site, tmp_path, version):
    site.version, site.length = version, len(CONTENT) + 1000
    if version:  # The server then says that it has no more.
        assert fetch(site, tmp_path) == CONTENT
    else:
        with pytest.raises(file_io.InputError, match="cannot fetch .*: 1000 bytes are missing"):
            fetch(site, tmp_path)
        assert left_over(tmp_path) == ["a.tar.gz.part"]


def test_redirects_are_followed_and_resumed(site, tmp_path):
    site.redirects, site.break_at = [site.url, f"{site.url}?again"], [400_000]
    assert fetch(site, tmp_path) == CONTENT
    assert site.ranges == [None, None, None, "bytes=400000-"]


def test_redirects_to_other_protocols_are_refused(site, tmp_path):
    site.redirects = ["ftp://127.0.0.1/a.tar.gz"]
    with pytest.raises(file_io.InputError, match="302 redirects to ftp://127.0.0.1/a.tar.gz"):
        fetch(site, tmp_path)
    redirect = downloads.Redirects().redirect_request
    encrypted = urllib.request.Request("https://a/b")
    with pytest.raises(urllib.error.HTTPError, match="redirects to http://a/c, which is not fol"):
        redirect(encrypted, None, 302, "Found", {}, "http://a/c")
    assert redirect(encrypted, None, 302, "Found", {}, "https://a/c").full_url == "https://a/c"


def test_the_proxy_of_the_environment_is_used(site, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", site.url.removesuffix("/a.tar.gz"))
    monkeypatch.delenv("no_proxy", raising=False)
    path = tmp_path / "cache" / "a.tar.gz"
    downloads.fetch("http://models.invalid/a.tar.gz", str(path), MAGIC)
    assert path.read_bytes() == CONTENT


def test_two_calls_fetch_once(site, tmp_path):
    site.pause = 0.02
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda _: fetch(site, tmp_path), range(2)))
    assert found == [CONTENT] * 2 and site.ranges == [None]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:x/a", "http://[::1/a", "http:///a", "http://ä/ä"]
)
def test_impossible_addresses_are_named(tmp_path, url):
    with pytest.raises(file_io.InputError, match=f"cannot fetch {re.escape(url)}: "):
        downloads.fetch(url, str(tmp_path / "a"), MAGIC)


def test_a_silent_server_is_given_up(site, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.2)
    site.break_at, site.stalls = [0, 0], True
    with pytest.raises(file_io.InputError, match=f"cannot fetch {site.url}: timed out"):
        fetch(site, tmp_path)


def test_another_file_is_rejected(site, tmp_path):
    site.content = b"<!DOCTYPE html>"
    with pytest.raises(file_io.InputError, match=r"b'<!DOCTYPE html>' \(Content-Type: app"):
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
