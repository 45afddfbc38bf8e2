"""Versions, machine and hashes."""

import hashlib
import os
import re
import subprocess

import albert
from albert.training import run_facts
from tests.support.sources import ROOT


def test_versions_and_machine():
    found = run_facts.versions()
    assert found["albert"] == albert.__version__
    assert set(found) == {"albert", "python", "tensorflow", "numpy", "sentencepiece"}
    assert all(re.match(r"\d+\.\d+", version) for version in found.values())
    machine = run_facts.host()
    assert machine["cores"] >= 1 and machine["memory"] > 1 << 28
    assert machine["name"] and machine["processor"]


def test_the_commit_is_that_of_the_package(tmp_path, monkeypatch):
    """Not that of a repository around it, such as one that holds the environment."""
    module = tmp_path / "inside" / "albert" / "__init__.py"
    module.parent.mkdir(parents=True)
    assert run_facts.commit_of(str(tmp_path)) is None

    def git(*words):
        return subprocess.run(["git", "-C", tmp_path, *words], check=True)

    git("init", "-q")
    module.write_text("1")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "First")
    assert run_facts.commit_of(str(tmp_path / "inside")) is None
    index = (tmp_path / ".git" / "index").read_bytes()
    os.utime(module, (1, 1))  # Git would note it in the index, under a lock.
    assert re.fullmatch("[0-9a-f]{40}", run_facts.commit_of(str(tmp_path)))
    assert (tmp_path / ".git" / "index").read_bytes() == index
    module.write_text("2")
    assert re.fullmatch("[0-9a-f]{40}-dirty", run_facts.commit_of(str(tmp_path)))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_facts.commit_of(str(tmp_path)) is None


def test_the_commit_of_a_process_is_the_one_that_it_asked_for_first(tmp_path, monkeypatch):
    """Later changes of files are not those of the code that runs."""
    first = run_facts.git_commit()
    assert (first or "")[:40] == (run_facts.commit_of(str(ROOT)) or "")[:40]
    monkeypatch.setattr(albert, "__file__", str(tmp_path / "albert" / "__init__.py"))
    assert run_facts.git_commit() == first


def test_hashes_of_inputs(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a" * 100)
    two.write_bytes(b"b" * 50)
    found = run_facts.describe_input(str(one), [str(one)])
    expected = hashlib.sha256(b"a" * 100).hexdigest()
    assert found == {"path": str(one), "bytes": 100, "sha256": expected}
    both = [str(one), str(two)]
    found = run_facts.describe_input(str(tmp_path), both)
    assert (found["bytes"], found["count"], found["files"]) == (150, 2, both)
    two.write_bytes(b"c" * 50)
    assert run_facts.describe_input(str(tmp_path), both)["sha256"] != found["sha256"]
    monkeypatch.setattr(run_facts, "MAX_NAMES", 1)
    assert "files" not in run_facts.describe_input(str(tmp_path), both)


def test_of_long_files_both_ends_and_the_length_are_hashed(tmp_path, monkeypatch):
    monkeypatch.setattr(run_facts, "MAX_BYTES", 16)
    path = tmp_path / "file"
    seen = set()
    for content in (b"a" * 100, b"a" * 101, b"b" + b"a" * 99, b"a" * 99 + b"b"):
        path.write_bytes(content)
        seen.add(run_facts.describe_input(str(path), [str(path)])["sha256"])
    assert len(seen) == 4
    path.write_bytes(b"a" * 50 + b"b" + b"a" * 49)  # the price of it
    assert run_facts.describe_input(str(path), [str(path)])["sha256"] in seen
    # Of several files each gets its share: here 8 bytes, 4 at either end.
    files = [str(path), str(tmp_path / "other")]
    found = []
    for content in (b"c" * 8, b"c" * 9, b"c" * 4 + b"d" + b"c" * 4):
        (tmp_path / "other").write_bytes(content)
        found.append(run_facts.describe_input(str(tmp_path), files)["sha256"])
    assert found[0] != found[1] == found[2]


def test_an_input_that_is_gone_is_told_without_a_hash(tmp_path, caplog):
    found = run_facts.describe_input("x", [str(tmp_path / "gone")])
    assert found == {"path": "x", "bytes": None, "sha256": None}
    assert "x cannot be hashed" in caplog.text
