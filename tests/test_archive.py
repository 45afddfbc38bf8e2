"""Archives of models: unpacked once, whole or not at all, and never outside."""

import io
import tarfile

import pytest

from albert import archive, file_io


def make(path, members):
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
    path = make(tmp_path / "a.tar.gz", {"./a.txt": b"A", "sub/b.txt": b"B" * 3_000_000})
    folder = archive.unpack(path, str(tmp_path / "cache"))
    assert (tmp_path / "cache" / folder / "a.txt").read_bytes() == b"A"
    assert (tmp_path / "cache" / folder / "sub" / "b.txt").read_bytes() == b"B" * 3_000_000
    assert archive.unpack(path, str(tmp_path / "cache")) == folder


def test_another_archive_of_the_same_name_is_unpacked_anew(tmp_path):
    one = archive.unpack(make(tmp_path / "a.tgz", {"a": b"1", "b": b""}), str(tmp_path / "cache"))
    other = archive.unpack(make(tmp_path / "a.tgz", {"a": b"2", "b": b""}), str(tmp_path / "cache"))
    assert one != other
    assert file_io.read_text(f"{other}/a", "a") == "2"


def test_a_single_folder_stands_for_the_archive(tmp_path):
    path = make(tmp_path / "a.tar.gz", {"albert_base/config.json": b"{}"})
    assert archive.unpack(path, str(tmp_path / "cache")).endswith("/albert_base")


def link(kind):
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a": b"", "../evil": b"x"}, r"member '../evil' lies outside"),
        ({"a/../../evil": b"x"}, r"'a/../../evil' lies outside"),
        ({"/tmp/evil": b"x"}, "'/tmp/evil' lies outside"),
        ({"link": link(tarfile.SYMTYPE)}, "'link' is neither a file nor a folder"),
        ({"link": link(tarfile.LNKTYPE)}, "'link' is neither a file nor a folder"),
        ({"link": link(tarfile.CHRTYPE)}, "'link' is neither a file nor a folder"),
    ],
)
def test_members_that_lead_out_are_refused(tmp_path, members, message):
    path = make(tmp_path / "a.tar.gz", {"good": b"x", **members})
    with pytest.raises(file_io.InputError, match=message):
        archive.unpack(path, str(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_cut_archive_is_named_and_leaves_nothing(tmp_path, share):
    import random

    noise = random.Random(1).randbytes(200_000)
    path = make(tmp_path / "a.tar.gz", {"a": noise, "b": noise})
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[: int(share * len(content))])
    with pytest.raises(file_io.InputError, match="a.tar.gz is cut off or not a .tar.gz archive"):
        archive.unpack(path, str(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []
