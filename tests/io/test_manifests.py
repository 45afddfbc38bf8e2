"""Sizes and sums of files."""

import hashlib
import json
import os

import pytest

from albert.io import file_io, manifests


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "below" / "b").write_bytes(b"")
    manifests.write(str(tmp_path))
    return tmp_path


def test_the_manifest_of_a_folder_names_every_file(folder):
    files = json.loads((folder / manifests.NAME).read_text())["files"]
    assert files["a"] == {"bytes": 3, "sha256": hashlib.sha256(b"one").hexdigest()}
    assert sorted(files) == ["a", "below/b"]
    assert manifests.export_mismatch(str(folder)) is None
    (folder / "added").write_text("later")
    manifests.write(str(folder))  # It does not name itself.
    files = json.loads((folder / manifests.NAME).read_text())["files"]
    assert sorted(files) == ["a", "added", "below/b"]


def test_what_is_not_as_it_was_is_named(folder):
    (folder / "a").write_bytes(b"two")
    assert "a has the SHA-256" in manifests.export_mismatch(str(folder))
    (folder / "a").write_bytes(b"three")
    assert "a has 5 bytes, 3 were written" in manifests.export_mismatch(str(folder))
    (folder / "a").unlink()
    assert manifests.export_mismatch(str(folder)) == f"{folder}/a is missing"
    os.remove(folder / manifests.NAME)
    assert manifests.export_mismatch(str(folder)) is None


@pytest.mark.parametrize("content", [
    "", "null", "[]", '{"version": 1}', '{"version": 2, "files": {}}', "[" * 100_000,
    '{"version": 1, "files": {"a": 3}}', '{"version": 1, "files": {"a": {"bytes": "3"}}}',
])  # fmt: skip
def test_a_manifest_of_another_form_is_an_error(folder, content):
    (folder / manifests.NAME).write_text(content)
    with pytest.raises(file_io.InputError, match="^manifest: .*export.manifest.json "):
        manifests.read(str(folder / manifests.NAME), 1)
    assert manifests.NAME in manifests.export_mismatch(str(folder))
