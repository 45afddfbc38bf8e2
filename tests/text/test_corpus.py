"""Corpora: blocks of whole documents, exact lines, errors that name file and line."""

import bz2
import gzip

import hypothesis
import pytest
from hypothesis import strategies as st

from albert.io import archives, file_io
from albert.text import corpus


def write(tmp_path, *contents):
    paths = []
    for number, content in enumerate(contents):
        path = tmp_path / f"text{number}.txt"
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def lines_of(plan):
    """Lists of lines of each segment."""
    return [
        [line for lines in corpus.read_lines(segment) for line in lines]
        for block in plan.blocks
        for segment in block
    ]


def documents_of(lines):
    """Lists of lines between blank ones."""
    documents, current = [], []
    for line in [*lines, ""]:
        if line.strip():
            current.append(line.strip())
        elif current:
            documents.append(current)
            current = []
    return documents


def test_lines_end_at_newlines_only(tmp_path):
    text = "one\u2028still one\x0b\nzwei\r\n\r\ntrois"
    (path,) = write(tmp_path, text.encode())
    plan = corpus.plan_blocks([path])
    # Two segments: what follows the last blank line is only known to be whole at the file's end.
    assert lines_of(plan) == [["one\u2028still one\x0b", "zwei\r", "\r"], ["trois"]]
    assert len(plan.blocks) == 1
    assert plan.num_bytes == len(text.encode())
    assert plan.cut_documents == 0


def test_byte_order_mark_is_dropped_at_the_start_only(tmp_path):
    (path,) = write(tmp_path, "\ufeffone\n\ufefftwo\n".encode())
    assert lines_of(corpus.plan_blocks([path])) == [["one", "\ufefftwo"]]


def test_blocks_hold_whole_documents_of_several_files(tmp_path):
    paths = write(tmp_path, b"a\nb\n\nc\n\n", b"d\n", b"", b"e\n\nf")
    plan = corpus.plan_blocks(paths, block_bytes=4)
    assert all(len(block) >= 1 for block in plan.blocks)
    found = [document for lines in lines_of(plan) for document in documents_of(lines)]
    assert found == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]
    assert len(plan.blocks) > 1
    # Blocks are filled across files.
    assert len(corpus.plan_blocks(paths).blocks) == 1


@hypothesis.given(
    st.lists(st.sampled_from(["", " \t", "ab", "é" * 5, "x" * 30, "z"]), max_size=60),
    st.booleans(),
    st.integers(1, 40),
)
@hypothesis.settings(deadline=None)
def test_division_into_blocks_keeps_every_document(tmp_path_factory, lines, ended, block_bytes):
    text = "\n".join(lines) + "\n" * ended
    (path,) = write(tmp_path_factory.mktemp("corpus"), text.encode())
    plan = corpus.plan_blocks([path], block_bytes, max_document_bytes=10_000)
    found = [document for part in lines_of(plan) for document in documents_of(part)]
    assert found == documents_of(lines)
    segments = [segment for block in plan.blocks for segment in block]
    assert sum(segment.end - segment.start for segment in segments) == len(text.encode())


def test_too_long_a_document_is_cut_between_sentences(tmp_path):
    (path,) = write(tmp_path, b"abcdefg\n" * 100)
    plan = corpus.plan_blocks([path], block_bytes=64, max_document_bytes=128)
    parts = lines_of(plan)
    assert plan.cut_documents == len(parts) - 1 > 1
    assert [line for part in parts for line in part if line] == ["abcdefg"] * 100


def test_too_long_a_line_is_refused(tmp_path):
    (path,) = write(tmp_path, b"one\n\n" + b"x" * 1000)
    with pytest.raises(file_io.InputError, match=r"text0.txt, line 3 has more than 128 bytes"):
        corpus.plan_blocks([path], block_bytes=64, max_document_bytes=128)


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_invalid_utf8_names_file_line_and_byte(tmp_path, block_bytes):
    good, bad = write(tmp_path, b"one\n", b"one\n\ntwo\n\nthr\xffee\n\nfour\n")
    with pytest.raises(file_io.InputError, match=r"text1.txt, line 5, byte 4: .*0xff"):
        corpus.plan_blocks([good, bad], block_bytes)


def test_other_encodings_and_line_ends_have_a_remedy(tmp_path):
    utf16, mac = write(tmp_path, "one\ntwo\n".encode("utf-16"), b"one\rtwo\r\rthree\r")
    with pytest.raises(file_io.InputError, match=r"line 1, byte 1: .*iconv -f UTF-16 -t UTF-8"):
        corpus.plan_blocks([utf16])
    with pytest.raises(file_io.InputError, match=r"text1.txt: its lines end in carriage returns"):
        corpus.plan_blocks([mac])


def test_multibyte_characters_may_lie_across_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PIECE_BYTES", 3)
    (path,) = write(tmp_path, "\ufeffäöü€\n\n𝄞𝄞\n".encode())
    assert lines_of(corpus.plan_blocks([path])) == [["äöü€", ""], ["𝄞𝄞"]]


def test_a_file_that_shrinks_is_noticed(tmp_path):
    (path,) = write(tmp_path, b"one\ntwo\n")
    plan = corpus.plan_blocks([path])
    (tmp_path / "text0.txt").write_bytes(b"one\n")
    with pytest.raises(file_io.InputError, match="was cut off while it was being read"):
        lines_of(plan)


# --- compressed text ------------------------------------------------------------------------------


def zstandard(content):
    return pytest.importorskip("zstandard").compress(content)


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard}
TEXT = "\n\n".join(f"line {n} äöü\nand {n * n}" for n in range(90)).encode()


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_text_is_divided_as_its_content(tmp_path, ending, monkeypatch):
    (plain,) = write(tmp_path, TEXT)
    path = tmp_path / f"text{ending}"
    path.write_bytes(PACKERS[ending](TEXT))
    plan, expected = (corpus.plan_blocks([str(name)], 100) for name in (path, plain))
    assert plan.num_bytes == len(TEXT) and len(plan.blocks) > 10
    places = [[(part.start, part.end) for part in block] for block in plan.blocks]
    assert places == [[(part.start, part.end) for part in block] for block in expected.blocks]
    opened = []
    monkeypatch.setattr(
        archives,
        "open_input",
        lambda *names, open_input=archives.open_input: opened.append(1) or open_input(*names),
    )
    assert lines_of(plan) == lines_of(expected)
    assert len(opened) == 1 + len(sum(plan.blocks, ()))  # the compressed one once
    # In any order, and when the file has changed.
    backwards = [list(corpus.read_lines(part)) for block in plan.blocks[::-1] for part in block]
    straight = [list(corpus.read_lines(part)) for block in plan.blocks[::-1] for part in block]
    assert backwards == straight and len(opened) > 30
    path.write_bytes(PACKERS[ending](TEXT.upper()))
    assert next(corpus.read_lines(plan.blocks[-1][0]))[0].startswith("LINE")


@pytest.mark.parametrize("ending", PACKERS)
def test_an_empty_compressed_file_is_damaged(tmp_path, ending):
    path = tmp_path / f"text{ending}"
    path.write_bytes(b"")
    expected = rf"text{ending} is cut off or damaged \(it has 0 bytes\)"
    with pytest.raises(file_io.InputError, match=expected):
        corpus.plan_blocks([str(path)])


def test_a_file_without_text_is_named(tmp_path, caplog):
    paths = [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.gz")]
    for path, content in zip(paths, (b"", b"text\n", gzip.compress(b"")), strict=True):
        file_io.write_bytes(path, content)
    assert corpus.plan_blocks(paths).num_bytes == 5
    warned = [record.getMessage() for record in caplog.records]
    assert warned == [f"There is no text in {path}" for path in paths[::2]]


def test_damaged_compressed_text_is_named(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(TEXT)[:-20])
    with pytest.raises(file_io.InputError, match="text.gz is cut off or damaged"):
        corpus.plan_blocks([str(path)])
    path.write_bytes(gzip.compress(TEXT + b"\n\xff\n"))
    with pytest.raises(file_io.InputError, match="text.gz, line 270, byte 1: not UTF-8"):
        corpus.plan_blocks([str(path)])
