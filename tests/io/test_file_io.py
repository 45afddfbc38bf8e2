"""File access on local paths and, through TensorFlow's in-memory file system, on remote ones.
Archives: unpacked once, whole or not at all, and never outside.
"""

import gzip
import hashlib
import io
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import time
import tracemalloc

import pytest

from albert.io import archives, file_io
from albert.model import checkpoints, model_folder
from tests.support import processes
from tests.support.sources import ROOT


@pytest.fixture(params=["local", "remote"])
def folder(request, tmp_path):
    """An empty folder, as a path without a slash at its end."""
    if request.param == "local":
        yield str(tmp_path)
        return
    path = f"ram://test_file_io/{tmp_path.name}"
    file_io.make_dirs(path)
    yield path
    file_io.remove(path)


def _error(function, *arguments):
    with pytest.raises(file_io.InputError) as caught:
        function(*arguments)
    return str(caught.value)


def test_is_remote():
    assert file_io.is_remote("gs://bucket/file") and file_io.is_remote("ram://x")
    assert not file_io.is_remote("/a/b") and not file_io.is_remote("a:b")


def test_text_round_trip_keeps_line_ends(folder):
    path = f"{folder}/text"
    file_io.write_text(path, "größe\r\n▁b\n")
    assert file_io.read_text(path, "--x") == "größe\r\n▁b\n"
    with file_io.open_file(path, "rb") as file:
        assert file.read() == "größe\r\n▁b\n".encode()
    assert file_io.size(path) == 14
    assert file_io.sha256(path) == hashlib.sha256("größe\r\n▁b\n".encode()).hexdigest()


def test_json_round_trip(folder):
    path = f"{folder}/value.json"
    file_io.write_json(path, {"b": [1, None], "a": "ü"})
    assert file_io.read_json(path, "--x") == {"a": "ü", "b": [1, None]}
    assert file_io.read_text(path, "--x").startswith('{\n  "a": "ü",\n  "b"')


def test_folders(folder):
    file_io.make_dirs(f"{folder}/a/b")
    file_io.make_dirs(f"{folder}/a/b")
    file_io.write_text(f"{folder}/a/2.txt", "2")
    file_io.write_text(f"{folder}/a/1.txt", "1")
    assert file_io.listdir(f"{folder}/a") == ["1.txt", "2.txt", "b"]
    assert file_io.glob(f"{folder}/a/*.txt") == [f"{folder}/a/1.txt", f"{folder}/a/2.txt"]
    assert file_io.is_dir(f"{folder}/a") and not file_io.is_dir(f"{folder}/a/1.txt")
    assert file_io.exists(f"{folder}/a/1.txt") and not file_io.exists(f"{folder}/a/3.txt")


def test_remove(folder):
    file_io.make_dirs(f"{folder}/a")
    file_io.write_text(f"{folder}/a/file", "")
    file_io.write_text(f"{folder}/other", "")
    file_io.remove(f"{folder}/a")
    file_io.remove(f"{folder}/other")
    file_io.remove(f"{folder}/never was there")
    assert file_io.listdir(folder) == []


def test_remove_takes_a_link_and_not_what_it_points_to(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    os.symlink(tmp_path / "real", tmp_path / "link")
    file_io.remove(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["real"]
    assert (tmp_path / "real" / "file").exists()


def test_link_gives_a_second_name(folder):
    file_io.write_text(f"{folder}/a", "new")
    file_io.write_text(f"{folder}/b", "old")
    for _ in range(2):  # the second time both are one file already
        file_io.link(f"{folder}/a", f"{folder}/b")
        assert file_io.listdir(folder) == ["a", "b"]
        assert file_io.read_text(f"{folder}/b", "--x") == "new"
    file_io.remove(f"{folder}/a")
    assert file_io.read_text(f"{folder}/b", "--x") == "new"


def test_link_copies_where_there_are_no_links(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError

    monkeypatch.setattr(file_io.os, "link", refuse)
    file_io.write_text(str(tmp_path / "a"), "new")
    file_io.link(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_text() == "new"
    assert not os.path.samefile(tmp_path / "a", tmp_path / "b")


def test_rename_replaces(folder):
    file_io.write_text(f"{folder}/a", "new")
    file_io.write_text(f"{folder}/b", "old")
    file_io.rename(f"{folder}/a", f"{folder}/b")
    assert file_io.listdir(folder) == ["b"]
    assert file_io.read_text(f"{folder}/b", "--x") == "new"


def test_copy_within_and_across_file_systems(folder, tmp_path):
    file_io.write_text(f"{folder}/a", "text")
    file_io.write_text(f"{folder}/b", "old")
    for target in (f"{folder}/b", str(tmp_path / "c")):
        file_io.copy(f"{folder}/a", target)
        assert file_io.read_text(target, "--x") == "text"
    assert not [name for name in file_io.listdir(folder) if "tmp" in name]


def test_failed_copy_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").write_text("old")

    def full(source, target):
        open(target, "w").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_io.shutil, "copyfile", full)
    with pytest.raises(file_io.NoRoomError, match="No space.*; it needs 4 bytes"):
        file_io.copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert file_io.listdir(tmp_path) == ["a", "b"]
    assert (tmp_path / "b").read_text() == "old"


def test_interrupted_write_keeps_the_old_file(folder):
    file_io.write_text(f"{folder}/file", "old")
    with (
        pytest.raises(KeyboardInterrupt),
        file_io.atomic_writer(f"{folder}/file") as file,
    ):
        file.write("half")
        raise KeyboardInterrupt
    assert file_io.listdir(folder) == ["file"]
    assert file_io.read_text(f"{folder}/file", "--x") == "old"


def test_pipes_and_open_files_are_written_to_and_stay(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    file_io.write_text(str(pipe), "text")
    assert os.read(reader, 10) == b"text" and pipe.is_fifo()
    os.close(reader)
    code = (
        "from albert.io import file_io; print('before'); file_io.write_text('/dev/stdout', 'text')"
        "; print(' after')"
    )
    (tmp_path / "out").write_text("old ")
    with open(tmp_path / "out", "ab") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, cwd=ROOT)
    assert (tmp_path / "out").read_text() == "old before\ntext after\n"
    assert os.path.islink("/dev/stdout")
    with pytest.raises(file_io.InputError, match="pipe is a pipe, a regular file was expected"):
        file_io.copy(str(tmp_path / "out"), str(pipe))
    assert pipe.is_fifo()


def test_written_file_appears_only_when_whole(folder):
    with file_io.atomic_writer(f"{folder}/file", "wb") as file:
        file.write(b"1")
        assert "file" not in file_io.listdir(folder)
    assert file_io.listdir(folder) == ["file"]


def test_killed_writer_leaves_the_old_file(tmp_path):
    (tmp_path / "file").write_text("old")
    code = (
        "import os, sys\nfrom albert.io import file_io\n"
        "with file_io.atomic_writer(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush(); os._exit(9)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    assert run.returncode == 9
    assert (tmp_path / "file").read_text() == "old"


def test_a_new_folder_appears_only_when_whole(folder):
    with file_io.atomic_folder(f"{folder}/new/", last="b") as temporary:
        file_io.write_text(f"{temporary}/a", "1")
        file_io.write_text(f"{temporary}/b", "2")
        assert "new" not in file_io.listdir(folder)
    assert file_io.listdir(folder) == ["new"]
    assert file_io.listdir(f"{folder}/new") == ["a", "b"]


def test_files_get_into_a_folder_only_when_all_are_written(folder, monkeypatch):
    """The one that makes others count is the last; equal ones stay, and so do those of others."""
    for name in ("b", "mine"):
        file_io.write_text(f"{folder}/{name}", "old")
    moves = []

    def rename(source, target, real=file_io.rename):
        if ".tmp-" not in target:
            moves.append(os.path.basename(target))
        real(source, target)

    monkeypatch.setattr(file_io, "rename", rename)
    with file_io.atomic_folder(folder, last="a") as temporary:
        for name, text in {"a": "new", "b": "old", "c": "new"}.items():
            file_io.write_text(f"{temporary}/{name}", text)
        assert not file_io.exists(f"{folder}/a")
    assert moves == ["c", "a"]
    texts = {name: file_io.read_text(f"{folder}/{name}", "--x") for name in "a b c mine".split()}
    assert texts == {"a": "new", "b": "old", "c": "new", "mine": "old"}
    assert file_io.listdir(folder) == sorted(texts)
    with (
        pytest.raises(file_io.InputError, match="already has other files with the names b, mine, "),
        file_io.atomic_folder(folder, last="a") as temporary,
    ):
        for name in ("b", "c", "d", "mine"):
            file_io.write_text(f"{temporary}/{name}", "new")
    assert file_io.listdir(folder) == sorted(texts)
    assert file_io.read_text(f"{folder}/b", "--x") == "old"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_folder_changes_nothing(folder, error):
    file_io.make_dirs(f"{folder}/old")
    file_io.write_text(f"{folder}/old/a", "old")
    for name in ("old", "new"):
        with (
            pytest.raises(type(error)),
            file_io.atomic_folder(f"{folder}/{name}", last="a") as temporary,
        ):
            file_io.write_text(f"{temporary}/a", "new")
            raise error
    assert file_io.listdir(folder) == ["old"]
    assert file_io.listdir(f"{folder}/old") == ["a"]
    assert file_io.read_text(f"{folder}/old/a", "--x") == "old"


def test_an_atomic_folder_over_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    message = _error(lambda: file_io.atomic_folder(tmp_path / "file", last="a").__enter__())
    assert message == f"cannot make the folder {tmp_path / 'file'}: File exists"


# --- messages -----------------------------------------------------------------------------------


def test_open_input_errors(folder):
    assert _error(file_io.open_input, f"{folder}/none", "--train_file") == (
        f"--train_file: the file {folder}/none does not exist"
    )
    assert _error(file_io.open_input, folder, "--train_file") == (
        f"--train_file: {folder} is a folder, a file was expected"
    )


ENDLESS = {"pipe": "is a pipe", "device": "is a device or a socket"}


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_may_never_end_is_not_opened(tmp_path, kind):
    path = tmp_path / "model.json"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    message = f"{path} {ENDLESS[kind]}, a regular file was expected"
    for read in (file_io.open_input, file_io.read_text, file_io.read_json, file_io.expand_globs):
        assert _error(read, str(path), "--x").removeprefix("--x: ") == message
    for read in (file_io.open_file, file_io.sha256, file_io.map_bytes):
        assert _error(read, str(path)) == message
    with pytest.raises(file_io.InputError, match=re.escape(message)):
        model_folder.read(str(tmp_path))
    for part in ("index", "data-00000-of-00001"):
        for name in ("index", "data-00000-of-00001"):
            (tmp_path / f"model.ckpt-1.{name}").unlink(missing_ok=True)
            (tmp_path / f"model.ckpt-1.{name}").touch()
        (tmp_path / f"model.ckpt-1.{part}").unlink()
        path.rename(tmp_path / f"model.ckpt-1.{part}")
        with pytest.raises(file_io.InputError, match=f"model.ckpt-1.{part} {ENDLESS[kind]}"):
            checkpoints.reader(str(tmp_path / "model.ckpt-1"))
        path = tmp_path / f"model.ckpt-1.{part}"
        path.rename(tmp_path / "kept")
        path = tmp_path / "kept"


def test_small_files_have_a_limit(folder):
    path = f"{folder}/model.json"
    file_io.write_text(path, " " * 100)
    message = f"--x: {path} has more than 99 bytes, a small file was expected"
    assert _error(file_io.read_text, path, "--x", 99) == message
    assert _error(file_io.read_json, path, "--x", None, 99) == message
    assert file_io.read_text(path, "--x", 100) == file_io.read_text(path, "--x", None) == " " * 100


def test_a_large_description_is_not_read(tmp_path):
    with open(tmp_path / "model.json", "wb") as file:
        file.truncate(1 << 40)  # sparse
    tracemalloc.start()
    try:
        assert "small file was expected" in _error(model_folder.read, str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 4 * file_io.SMALL
    finally:
        tracemalloc.stop()


def test_open_input_unreadable(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    path.touch()

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    # Patched: tests that run as root may read everything.
    monkeypatch.setattr(file_io, "open_file", refuse)
    message = _error(file_io.open_input, str(path), "--vocab_file")
    assert message == f"--vocab_file: cannot read {path}: Permission denied"


def test_not_utf8(folder):
    with file_io.open_file(f"{folder}/file", "wb") as file:
        file.write(b"abc\xff")
    message = _error(file_io.read_text, f"{folder}/file", "--x")
    assert re.search(
        r"--x: .*/file is not UTF-8 text: .*0xff in position 3.*iconv -f CP1252", message
    )
    file_io.write_bytes(f"{folder}/file", "abc".encode("utf-16"))
    assert "iconv -f UTF-16 -t UTF-8" in _error(file_io.read_text, f"{folder}/file", "--x")
    file_io.write_bytes(f"{folder}/file", b"\x1f\x8b\x08\x00")
    assert "a gzip file does: unpack it" in _error(file_io.read_text, f"{folder}/file", "--x")


def test_bad_json(folder):
    file_io.write_text(f"{folder}/bad.json", '{\n  "a": 1,\n}')
    message = _error(file_io.read_json, f"{folder}/bad.json", "--albert_config_file")
    pattern = r"--albert_config_file: .*bad\.json is not valid JSON: .* \(line [23], column \d+\)$"
    assert re.search(pattern, message)


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 1}', '[{"b": {"a": 1, "a": null}}]'])
def test_a_repeated_key_in_json_is_named(folder, text):
    file_io.write_text(f"{folder}/a.json", text)
    message = _error(file_io.read_json, f"{folder}/a.json", "--x")
    assert "a.json is not valid JSON: the key 'a' appears 2 times in one object" in message


def test_json_with_byte_order_mark(folder):
    file_io.write_text(f"{folder}/a.json", '\ufeff{"a": 1}')
    assert file_io.read_json(f"{folder}/a.json", "--x") == {"a": 1}


def test_make_dirs_over_a_file(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        assert re.search(
            f"cannot make the folder {path}: (File exists|Not a directory)",
            _error(file_io.make_dirs, str(path)),
        )


def test_make_dirs_not_writable(tmp_path, monkeypatch):
    def refuse(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(file_io.tempfile, "TemporaryFile", refuse)
    message = _error(file_io.make_dirs, str(tmp_path))
    assert message == f"cannot write to the folder {tmp_path}: Read-only file system"


def test_expand_globs(folder):
    for name in ("b1", "b2", "a", "c[1]"):
        file_io.write_text(f"{folder}/{name}", "")
    file_io.make_dirs(f"{folder}/b3")
    found = file_io.expand_globs(f"{folder}/b*, {folder}/a,,{folder}/b2,{folder}/c[1]", "--x")
    assert found == [f"{folder}/{name}" for name in ("b1", "b2", "a", "c[1]")]
    file_io.make_dirs(f"{folder}/b3/d")
    file_io.write_text(f"{folder}/b3/d/e", "")
    if file_io.is_remote(folder):
        assert "b3: ** is only for local" in _error(file_io.glob, f"{folder}/**/b3")
    else:
        found = file_io.expand_globs(f"{folder}/**", "--x")
        assert found == [f"{folder}/{name}" for name in ("a", "b1", "b2", "b3/d/e", "c[1]")]


def test_globs_skip_temporary_files(folder):
    names = ["n.tf", "n.tf.tmp-2024-backup", "n.tf.tmp-99999-deadbeef", "o.tmp-8-deadbeef.part"]
    for name in names:
        file_io.write_text(f"{folder}/{name}", "")
    file_io.make_dirs(f"{folder}/p.tmp-7-deadbeef.buckets")
    file_io.write_text(f"{folder}/p.tmp-7-deadbeef.buckets/q", "")
    assert "no file matches" in _error(file_io.expand_globs, f"{folder}/*/*", "--x")
    found = file_io.expand_globs(f"{folder}/*", "--x")
    assert found == [f"{folder}/{name}" for name in names[:2]]
    # Who names one means it.
    for pattern in (names[2], "p.tmp-7-deadbeef.buckets/*"):
        (found,) = file_io.expand_globs(f"{folder}/{pattern}", "--x")
        assert found == f"{folder}/{pattern.replace('*', 'q')}"


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / os.fsdecode(b"b\xe9")).write_text("")
    message = _error(file_io.expand_globs, f"{tmp_path}/*", "--input_file")
    assert f"--input_file: the name of the file '{tmp_path}/b\\udce9' is not UTF-8" in message


def test_expand_globs_errors(folder):
    message = _error(file_io.expand_globs, f"{folder}/q*", "--input_file")
    assert message == f"--input_file: no file matches '{folder}/q*'"
    assert _error(file_io.expand_globs, " ,", "--x") == "--x: no file is named in ' ,'"
    assert "no file matches" in _error(file_io.expand_globs, folder, "--x")


def test_input_error_is_a_value_error():
    assert issubclass(file_io.InputError, ValueError)


def test_local_files_need_no_tensorflow(tmp_path):
    code = (
        "import sys\nfrom albert.io import file_io\n"
        "file_io.make_dirs(sys.argv[1] + '/a'); file_io.write_json(sys.argv[1] + '/b', 1)\n"
        "file_io.copy(sys.argv[1] + '/b', sys.argv[1] + '/c'); file_io.remove(sys.argv[1] + '/a')\n"
        "file_io.expand_globs(sys.argv[1] + '/*', ''); print('tensorflow' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = processes.run(command, check=True)
    assert run.stdout.strip() == "False"


def test_lines_of_text_have_their_numbers():
    lines = [b"\xef\xbb\xbfone\r\n", b"\n", b"\xef\xbb\xbf\xc3\xbc"]
    found = list(file_io.text_lines(lines, "data"))
    assert found == [(1, "one\r\n"), (2, "\n"), (3, "\ufeff\xfc")]  # a mark only at the start


def test_a_line_that_is_not_text_is_named():
    lines = file_io.text_lines([b"one\n", b"tw\xff\n"], "data.tsv")
    assert next(lines) == (1, "one\n")
    with pytest.raises(file_io.InputError, match="^data.tsv line 2: not UTF-8 text .*0xff"):
        next(lines)


# --- archives ----------------------------------------------------------------------------------


def make_archive(path, members):
    """{name: content, or a TarInfo to add as it is} -> archive."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return str(path)


def test_files_and_folders_are_unpacked(tmp_path):
    path = make_archive(tmp_path / "a.tar.gz", {"./a.txt": b"A", "sub/b.txt": b"B" * 3_000_000})
    folder = archives.unpack_archive(path, str(tmp_path / "cache"))
    assert (tmp_path / "cache" / folder / "a.txt").read_bytes() == b"A"
    assert (tmp_path / "cache" / folder / "sub" / "b.txt").read_bytes() == b"B" * 3_000_000
    assert archives.unpack_archive(path, str(tmp_path / "cache")) == folder


def test_another_archive_of_the_same_name_is_unpacked_again(tmp_path):
    one = archives.unpack_archive(
        make_archive(tmp_path / "a.tgz", {"a": b"1", "b": b""}), str(tmp_path / "cache")
    )
    other = archives.unpack_archive(
        make_archive(tmp_path / "a.tgz", {"a": b"2", "b": b""}), str(tmp_path / "cache")
    )
    assert one != other
    assert file_io.read_text(f"{other}/a", "a") == "2"


def test_a_single_folder_stands_for_the_archive(tmp_path):
    path = make_archive(tmp_path / "a.tar.gz", {"albert_base/config.json": b"{}"})
    assert archives.unpack_archive(path, str(tmp_path / "cache")).endswith("/albert_base")


def test_an_archive_that_is_replaced_meanwhile_is_the_one_that_was_hashed(tmp_path, monkeypatch):
    path = make_archive(tmp_path / "a.tar.gz", {"a": b"1", "b": b""})
    make_archive(tmp_path / "other", {"a": b"2", "b": b""})
    hash_file = file_io.sha256_of

    def hash_and_replace(file):
        digest = hash_file(file)
        (tmp_path / "other").replace(path)
        return digest

    monkeypatch.setattr(file_io, "sha256_of", hash_and_replace)
    folder = archives.unpack_archive(path, str(tmp_path / "cache"))
    assert file_io.read_text(f"{folder}/a", "a") == "1"


def link_to_etc(kind):
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a": b"", "../evil": b"x"}, r"member '../evil' lies outside"),
        ({"a/../../evil": b"x"}, r"'a/../../evil' lies outside"),
        ({"/tmp/evil": b"x"}, "'/tmp/evil' lies outside"),
        ({"link": link_to_etc(tarfile.SYMTYPE)}, "'link' is neither a file nor a folder"),
        ({"link": link_to_etc(tarfile.LNKTYPE)}, "'link' is neither a file nor a folder"),
        ({"link": link_to_etc(tarfile.CHRTYPE)}, "'link' is neither a file nor a folder"),
    ],
)
def test_members_that_lead_out_are_refused(tmp_path, members, message):
    path = make_archive(tmp_path / "a.tar.gz", {"good": b"x", **members})
    with pytest.raises(file_io.InputError, match=message):
        archives.unpack_archive(path, str(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []


def header(kind, size=0, name="name"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def packed(path, blocks):
    """An archive of blocks, each filled up to 512 bytes, whatever they mean."""
    with gzip.open(path, "wb") as out:
        for block in blocks:
            out.write(block + bytes(-len(block) % 512))
        out.write(bytes(1024))
    return str(path)


def pax(text):
    return header(tarfile.XHDTYPE, len(text)) + text


FILE = header(tarfile.REGTYPE, 1) + b"x"
SPARSE = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
LONG = b"65536 comment=" + b"x" * (2**16 - 15) + b"\n"
HOSTILE = {
    "pax headers": ([header(tarfile.XHDTYPE)] * 5000 + [FILE], "more than 16 headers for a member"),
    "long names": ([header(tarfile.GNUTYPE_LONGNAME)] * 5000, "more than 16 headers for a member"),
    "headers for all": ([header(tarfile.XGLTYPE)] * 5000, "more than 16 headers for a member"),
    "a huge header": ([header(tarfile.GNUTYPE_LONGNAME, 2**31)], "a header of 2147483648 bytes"),
    "a huge header of pax": ([header(tarfile.XHDTYPE, 2**31)], "a header of 2147483648 bytes"),
    "a long header": ([pax(bytes(2**16 + 1)), FILE], "a header of 65537 bytes"),
    "long headers": ([block for i in range(17) for block in
                      [*[pax(LONG)] * 16, header(tarfile.REGTYPE, 0, str(i))]], "or too many"),
    "a deep name": ([pax(b"4015 path=" + b"a/" * 2002 + b"\n"), FILE],
                    r"the member '(a/){50}' lies in more than 32 folders"),
    "an old sparse file": ([header(tarfile.GNUTYPE_SPARSE)], "has a sparse file"),
    "a sparse file": ([pax(SPARSE), FILE], "has a sparse file"),
    "folders": ([header(tarfile.DIRTYPE, 0, f"d/{i}") for i in range(501)],
                "holds more than 500 files and folders"),
    "folders in names": ([header(tarfile.REGTYPE, 0, f"{i}/" + "a/" * 30 + "f")
                          for i in range(20)], "holds more than 500 files and folders"),
    "no length": ([pax(b"x path=a\n"), FILE], "a damaged header of pax"),
    "many digits": ([pax(b"1" * 60_000), FILE], "a damaged header of pax"),
    "a size below zero": ([pax(b"11 size=-5\n"), FILE], "a size that is not a number"),
    "a NUL in a name": ([pax(b"12 path=a\0b\n"), FILE], "cannot be written"),
    "a cut header": ([b"x" * 100], "cut off, damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_of_archives_are_refused(tmp_path, case, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 500)  # 10,000 take seconds to make
    blocks, message = HOSTILE[case]
    path = packed(tmp_path / "a.tar.gz", blocks)
    started = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(file_io.InputError, match=message) as caught:
            archives.unpack_archive(path, str(tmp_path / "cache"))
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert path in text and "\n" not in text and len(text) < 1000
    assert time.process_time() - started < 5
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_behind_the_last_member_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_UNPACKED", 1000)
    path = packed(tmp_path / "a.tar.gz", [FILE, bytes(10_000_000)])
    with pytest.raises(file_io.InputError, match="unpacks to more than 20 times its size"):
        archives.unpack_archive(path, str(tmp_path / "cache"))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_of_archives_is_read(tmp_path, form):
    long = "x" * 90 + "/" + "\u00e9" * (10 if form == tarfile.USTAR_FORMAT else 120)
    path = tmp_path / "a.tar.gz"
    files = {"a": b"A" * 700, long: b"", "f/b": b"B" * 512}
    with tarfile.open(path, "w:gz", format=form, pax_headers={"comment": "for all"}) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1.5 if form == tarfile.PAX_FORMAT else 1
            tar.addfile(info, io.BytesIO(content))
    folder = pathlib.Path(archives.unpack_archive(str(path), str(tmp_path / "cache")))
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert found == files


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_cut_archive_is_named_and_leaves_nothing(tmp_path, share):
    noise = random.Random(1).randbytes(200_000)
    path = make_archive(tmp_path / "a.tar.gz", {"a": noise, "b": noise})
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[: int(share * len(content))])
    with pytest.raises(file_io.InputError, match="a.tar.gz is cut off, damaged or not a .tar.gz"):
        archives.unpack_archive(path, str(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []


def test_bytes_that_are_mapped(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(200)))
    assert file_io.map_bytes(str(path))[:] == bytes(range(200))
    assert file_io.free_bytes(str(tmp_path)) > 0
