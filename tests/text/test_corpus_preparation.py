"""Whole preparations: what was planted is found, files are whole or not there."""

import dataclasses
import gzip
import json
import os
import random
import resource
import subprocess
import sys

import pytest

from albert.io import file_io, locks, processes
from albert.text import contamination, corpus_cleaning, corpus_preparation, words
from albert.text.corpus_cleaning import Cleaning
from albert.text.corpus_preparation import Preparation
from tests.support.sources import ROOT

SENTENCES = Cleaning(lines="sentences", min_words=5)
EXACT_ONLY = Preparation(SENTENCES, near_duplicate_threshold=0)


def sentence(rng, words=12):
    """Words of three letters, of which there are 3000."""
    numbers = [rng.randrange(3000) for _ in range(words)]
    letters = (chr(97 + n // 225) + chr(97 + n // 15 % 15) + chr(97 + n % 15) for n in numbers)
    return " ".join(letters).capitalize() + "."


def document(rng, sentences=12):
    return [sentence(rng) for _ in range(sentences)]


def write(path, documents):
    content = "\n\n".join("\n".join(lines) for lines in documents)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return str(path)


def written(folder):
    """Documents of a corpus, as lists of sentences."""
    paths = sorted(folder.glob("corpus-*.txt"))
    texts = "".join(path.read_text("utf-8") for path in paths).split("\n\n")
    return [text.split("\n") for text in texts if text]


def prepare(paths, folder, preparation=EXACT_ONLY, num_workers=1):
    return corpus_preparation.prepare(paths, str(folder), preparation, num_workers)


# --- what was planted -----------------------------------------------------------------------------


def quality(found, planted):
    """(recall, precision)."""
    right = len(found & planted)
    return right / len(planted), right / max(1, len(found))


@pytest.mark.slow
def test_planted_duplicates_are_found(tmp_path):
    pytest.importorskip("datasketch")
    rng = random.Random(1)
    # Each document begins with a sentence of its own, which is its name.
    documents = [[f"Document {number} begins here.", *document(rng)] for number in range(300)]
    planted = set()

    def plant(lines, number):
        planted.add(number)
        documents.append([f"Document {number} begins here.", *lines])

    for number in range(60):  # the same but for white space: later the title is made equal too
        documents.append([line.replace(" ", "  ") for line in documents[number]])
    for number in range(60, 140):  # of 150 words two are others
        lines = list(documents[number][1:])
        for place in rng.sample(range(12), 2):
            words = lines[place].split()
            words[rng.randrange(12)] = "another"
            lines[place] = " ".join(words)
        plant(lines, 1000 + number)
    for number in range(140, 220):  # no duplicates: a third is the same
        documents.append([f"Document {2000 + number} begins here."])
        documents[-1] += documents[number][1:5] + document(rng, 8)
    paths = [
        write(tmp_path / "a.txt", documents[:250]),
        write(tmp_path / "b.txt.gz", documents[250:]),
    ]
    preparation = Preparation(SENTENCES, near_duplicate_threshold=0.7)
    report = prepare(paths, tmp_path / "out", preparation, num_workers=2)
    titles = [lines[0] for lines in written(tmp_path / "out")]
    assert report["left_out"]["exact_duplicates"] == 60 and len(set(titles)) == len(titles)
    everything = {" ".join(lines[0].split()) for lines in documents}
    gone = {int(title.split()[1]) for title in everything - set(titles)}
    recall, precision = quality(gone, planted)
    assert recall >= 0.95 and precision >= 0.95, (recall, precision)
    assert report["left_out"]["near_duplicates"] == len(gone)
    prepare(paths, tmp_path / "alone", preparation)
    for name in os.listdir(tmp_path / "out"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.fixture
def leaks(tmp_path):
    """(path of a text, planted sentences, all others): evaluation texts in some documents."""
    rng = random.Random(2)
    evaluation = [sentence(rng, 20) for _ in range(100)]
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    rows = "".join(f"{number}\t{text}\n" for number, text in enumerate(evaluation))
    (tmp_path / "glue" / "RTE" / "dev.tsv").write_text(f"index\tsentence\n{rows}")
    documents, planted = [document(rng) for _ in range(150)], set()
    for number in range(60):
        # As other programs leave them: other case and marks, amid other words.
        leak = f"So «{evaluation[number].upper()}» it goes"
        planted.add(leak)
        documents[number].insert(rng.randrange(1, 12), leak)
    for number in range(60, 100):  # twelve words in a row are no leak
        words = evaluation[number].split()
        documents[number].insert(3, " ".join(words[:12] + ["Else"] + words[13:]))
    others = {line for lines in documents for line in lines} - planted
    return write(tmp_path / "text.txt", documents), planted, others


def test_planted_leaks_are_found(leaks, tmp_path):
    path, planted, others = leaks
    preparation = Preparation(SENTENCES, 0, contamination=("glue",), data_dir=str(tmp_path))
    report = prepare([path], tmp_path / "out", preparation)
    documents = written(tmp_path / "out")
    left = {line for lines in documents for line in lines}
    recall, precision = quality((planted | others) - left, planted)
    assert recall >= 0.95 and precision >= 0.95, (recall, precision)
    assert report["left_out"]["contaminated_sentences"] == len(planted) == 60
    # What was before the sentence and what was behind it do not follow each other.
    assert len(documents) == 150 + 60
    found = report["contamination"]["sets"]["glue"]
    assert found["texts_found"] == 60 and found["texts"] == 2 + 200 and found["short_texts"] == 102
    rows = (tmp_path / "out" / "contamination.jsonl").read_text().splitlines()
    rows = [json.loads(row) for row in rows]
    assert sorted(row["document"] for row in rows) == list(range(60))
    assert all(row["file"] == path and row["set"] == "glue" and row["begins"] for row in rows)


def test_leaks_are_only_reported_if_asked(leaks, tmp_path):
    path, planted, others = leaks
    preparation = Preparation(SENTENCES, 0, 50, ("glue",), str(tmp_path), True)
    report = prepare([path], tmp_path / "out", preparation)
    assert {line for lines in written(tmp_path / "out") for line in lines} == planted | others
    assert report["left_out"]["contaminated_sentences"] == 0
    assert report["contamination"]["contaminated_documents"] == 60
    text = (tmp_path / "out" / "report.log").read_text()
    assert "evaluation sets: 60 documents overlap in 60 sentences\n    glue: 60 of 100" in text


def test_a_leak_counts_for_each_set_that_has_it(tmp_path):
    leak = sentence(random.Random(4), 20)
    for name, content in (("glue/RTE/dev.tsv", leak), ("squad/dev-v1.1.json", json.dumps([leak]))):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content)
    half = json.dumps([leak, f"\ud800 {leak}"])  # escaped: half of a surrogate pair
    (tmp_path / "squad" / "dev-v2.0.json").write_text(half)
    path = write(tmp_path / "a.txt", [[*document(random.Random(5)), leak]])
    preparation = Preparation(SENTENCES, 0, contamination=("glue", "squad"), data_dir=str(tmp_path))
    report = prepare([path], tmp_path / "out", preparation)
    assert report["left_out"]["contaminated_sentences"] == 1
    sets = report["contamination"]["sets"]
    assert (sets["glue"]["texts_found"], sets["glue"]["texts"]) == (1, 1)
    assert (sets["squad"]["texts_found"], sets["squad"]["texts"]) == (2, 2)
    rows = (tmp_path / "out" / "contamination.jsonl").read_text("utf-8").splitlines()
    begins = [json.loads(row)["begins"] for row in rows]
    assert begins == [leak[:80], leak[:80], f"\ufffd {leak}"[:80]]


def test_a_run_of_words_over_several_sentences(tmp_path):
    rng = random.Random(3)
    (tmp_path / "squad").mkdir()
    leak = [sentence(rng, 5) for _ in range(4)]
    (tmp_path / "squad" / "dev.json").write_text(json.dumps({"context": " ".join(leak)}))
    before, after = document(rng, 3), document(rng, 3)
    path = write(tmp_path / "a.txt", [before + leak[:3] + after, document(rng, 2) + leak[:2]])
    preparation = Preparation(SENTENCES, 0, contamination=("squad",), data_dir=str(tmp_path))
    prepare([path], tmp_path / "out", preparation)
    documents = written(tmp_path / "out")
    assert documents[:2] == [before, after]
    # Ten words are not thirteen.
    assert documents[2][-2:] == leak[:2]
    assert contamination.RUN_WORDS == 13


def test_boilerplate_lines(tmp_path):
    rng = random.Random(4)
    line = "Subscribe to our newsletter for more of this!"
    documents = [[*document(rng, 2), line, "Yes, I do."] for _ in range(8)]
    # Copies of one document do not make a line boilerplate.
    own = "This line is in one document and its copies only."
    documents += [[own, *documents[0][:2]]] * 9
    path = write(tmp_path / "a.txt", documents)
    report = prepare([path], tmp_path / "seven", Preparation(SENTENCES, 0, 7))
    assert report["left_out"]["boilerplate_lines"] == 8
    assert report["left_out"]["exact_duplicates"] == 8
    texts = written(tmp_path / "seven")
    assert not any(line in lines for lines in texts) and own in texts[-1]
    assert sum("Yes, I do." in lines for lines in texts) == 8
    for limit in (8, 0):
        report = prepare([path], tmp_path / f"limit{limit}", Preparation(SENTENCES, 0, limit))
        assert report["left_out"]["boilerplate_lines"] == 0


# --- files ----------------------------------------------------------------------------------------


def test_statistics_and_files_of_limited_size(tmp_path, monkeypatch):
    rng = random.Random(5)
    documents = [document(rng, 2 + number) for number in range(9)]
    path = write(tmp_path / "a.txt", [*documents, ["1 2 3"], ["too short"]])
    monkeypatch.setattr(corpus_preparation, "MAX_FILE_BYTES", 700)
    report = prepare([path], tmp_path / "out")
    assert written(tmp_path / "out") == documents
    found, sentences = report["written"], sum(documents, [])
    assert found["files"] == len(list((tmp_path / "out").glob("corpus-0000?.txt"))) > 2
    assert (found["documents"], found["sentences"]) == (9, len(sentences))
    assert found["words"] == sum(len(words.split(text)) for text in sentences)
    assert found["characters"] == sum(map(len, sentences))
    assert found["sentences_in_a_document"]["median"] == 6
    assert found["words_in_a_sentence"]["mean"] == 12
    assert report["left_out"]["lines_of_few_letters"] == 1
    assert report["left_out"]["documents_too_short"] == 1
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == json.loads(
        json.dumps(report)
    )
    text = (tmp_path / "out" / "report.log").read_text()
    assert "9 documents, 54 sentences" in text and "1 documents with too few words" in text
    names = os.listdir(tmp_path / "out")
    assert "parts" not in names and not [name for name in names if "tmp" in name]


@pytest.mark.parametrize("exists", [True, False])
def test_failures_leave_nothing(tmp_path, monkeypatch, exists):
    rng = random.Random(6)
    good = write(tmp_path / "a.txt", [document(rng)])
    damaged = write(tmp_path / "b.txt.gz", [document(rng)])
    (tmp_path / "b.txt.gz").write_bytes((tmp_path / "b.txt.gz").read_bytes()[:-20])
    if exists:
        (tmp_path / "out").mkdir()
    with pytest.raises(file_io.InputError, match="b.txt.gz is cut off or damaged"):
        prepare([good, damaged], tmp_path / "out", num_workers=2)
    nothing = write(tmp_path / "c.txt", [["1 2 3"]])
    with pytest.raises(file_io.InputError, match="nothing is left of 1 .*: 1 lines with too few"):
        prepare([nothing], tmp_path / "out")
    open_file = file_io.open_file

    def full(path, mode="r"):
        if "corpus-" in str(path):
            raise OSError(28, "No space left on device")
        return open_file(path, mode)

    monkeypatch.setattr(file_io, "open_file", full)
    with pytest.raises(file_io.InputError, match="cannot write .*out: No space left on device"):
        prepare([good], tmp_path / "out")
    left = os.listdir(tmp_path / "out") if exists else []
    assert not left
    expected = ["a.txt", "b.txt.gz", "c.txt", *(["out"] * exists)]
    assert sorted(os.listdir(tmp_path)) == expected


def test_bad_files_are_skipped_and_named(tmp_path):
    rng = random.Random(8)
    documents = [document(rng) for _ in range(3)]
    good = [write(tmp_path / f"good{n}.txt", [documents[n]]) for n in range(3)]
    bad = {
        "cut.txt.gz": gzip.compress(b"text " * 99)[:-9],
        "latin.txt": b"good line\nb\xe9d line\n",
        "row.jsonl": b'{"text": "a b c"}\n{"text": 5}\n',
        "deep.jsonl": b"[" * 100_000,
    }
    paths = [good[0]]
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        paths.append(str(tmp_path / name))
    paths += good[1:]
    with pytest.raises(file_io.InputError, match=r"cut off .*\(`skip_bad_files` skips such files"):
        prepare(paths, tmp_path / "out")
    skipping = dataclasses.replace(EXACT_ONLY, skip_bad_files=True)
    for workers in (1, 2):
        folder = tmp_path / f"out{workers}"
        report = prepare(paths, folder, skipping, workers)
        assert written(folder) == documents
        skipped = report["skipped_files"]
        assert [entry["file"] for entry in skipped] == paths[1:5]
        assert "row.jsonl line 2: expected a text in text_field=text; it is a number" in str(
            skipped
        )
        text = (folder / corpus_preparation.REPORT_TEXT).read_text()
        assert "  skipped: 4 file(s) that cannot be read\n    input_file: " in text
        assert all(name in text for name in bad)
    # A run resumes in a folder where a bad file ended it.
    assert prepare(paths, tmp_path / "out", skipping)["skipped_files"] == skipped
    assert written(tmp_path / "out") == documents
    with pytest.raises(file_io.InputError, match=r"of which 1 were skipped \(.*latin.txt line 2"):
        prepare([str(tmp_path / "latin.txt")], tmp_path / "none", skipping)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_input_is_called_so(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(file_io.InputError, match=rf"no text in .*a.txt, .*: {len(content)} bytes"):
        prepare([str(tmp_path / "a.txt")], tmp_path / "out")


def test_half_a_surrogate_pair_is_removed(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "One two three \\ud800four five six."}')
    report = prepare([str(tmp_path / "a.jsonl")], tmp_path / "out")
    assert written(tmp_path / "out") == [["One two three four five six."]]
    assert report["left_out"]["unseen_characters"] == 1


def test_a_run_that_was_killed_while_it_wrote_resumes(tmp_path):
    path = write(tmp_path / "a.txt", [document(random.Random(10))])
    (tmp_path / "out").mkdir()
    code = (
        "import os, signal, sys\n"
        "from albert.io import file_io\n"
        "with file_io.atomic_folder(sys.argv[1], 'report.json'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], cwd=ROOT)
    (left,) = os.listdir(tmp_path / "out")
    assert left.startswith(".new.tmp-")
    prepare([path], tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["corpus-00000.txt", "report.json", "report.log"]


KILLED = """
import os, signal, sys
from albert.io import file_io
from albert.text import corpus_cleaning, corpus_preparation

count, kind, paths, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3:-1], sys.argv[-1]
read, opened = corpus_cleaning.read_documents, []

def read_documents(path, *rest):
    opened.append(path)
    for place, text in enumerate(read(path, *rest)):
        if len(opened) > count and place == 1:
            os.kill(os.getpid(), getattr(signal, kind))
        yield text

corpus_cleaning.read_documents = read_documents
cleaning = corpus_cleaning.Cleaning(lines="sentences", min_words=5)
preparation = corpus_preparation.Preparation(cleaning, near_duplicate_threshold=0)
corpus_preparation.prepare(paths, folder, preparation)
"""


@pytest.mark.parametrize("exists", [True, False])
def test_a_run_that_was_killed_goes_on(tmp_path, exists, caplog):
    rng = random.Random(9)
    documents = [document(rng) for _ in range(12)]
    paths = [write(tmp_path / f"{n}.txt", documents[n * 2 : n * 2 + 2]) for n in range(6)]
    expected = prepare(paths, tmp_path / "whole")
    if exists:
        (tmp_path / "out").mkdir()
    for count, kind in ((2, "SIGKILL"), (1, "SIGINT"), (1, "SIGKILL")):
        arguments = [str(count), kind, *paths, str(tmp_path / "out")]
        ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], cwd=ROOT)
        assert ended.returncode
        assert not exists or os.listdir(tmp_path / "out") == [".unfinished"]
    with caplog.at_level("INFO", logger="absl"):
        assert prepare(paths, tmp_path / "out") == expected
    assert "Resuming: 4 file(s) were read earlier" in caplog.text
    for name in os.listdir(tmp_path / "whole"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "whole"))
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]


def test_a_lost_worker_leaves_what_is_done(tmp_path, monkeypatch):
    def lose(*arguments):
        yield from read(*arguments)
        raise processes.WorkerLost("a worker was killed")

    read = processes.run
    texts = [document(random.Random(n)) for n in range(2)]
    paths = [write(tmp_path / f"{n}.txt", [texts[n]] * 2) for n in range(2)]
    with monkeypatch.context() as patch, pytest.raises(processes.WorkerLost):
        patch.setattr(processes, "run", lose)
        prepare(paths, tmp_path / "out")
    assert len(os.listdir(tmp_path / "out.unfinished")) > 2
    # As after a power failure, in which a note reached the disk before its parts.
    os.truncate(tmp_path / "out.unfinished" / "000000.text", 9)
    prepare(paths, tmp_path / "out")
    assert written(tmp_path / "out") == texts


def test_only_what_fits_is_gone_on_with(tmp_path, monkeypatch):
    """Not files that have changed, nor other settings; and one run works at a time."""
    rng = random.Random(10)
    paths = [write(tmp_path / f"{n}.txt", [document(rng)]) for n in range(3)]
    read, opened = corpus_cleaning.read_documents, []
    interrupts = [True, False, True, False]

    def read_documents(path, *rest):
        if path == paths[2] and interrupts.pop(0):
            raise KeyboardInterrupt
        opened.append(path)
        return read(path, *rest)

    monkeypatch.setattr(corpus_cleaning, "read_documents", read_documents)
    with pytest.raises(KeyboardInterrupt):
        prepare(paths, tmp_path / "out")
    changed = [document(rng, 7)]
    write(tmp_path / "1.txt", changed)
    refused = pytest.raises(file_io.InputError, match="another run is making .*out")
    with locks.locked(str(tmp_path / "out.unfinished" / "lock"), ""), refused:
        prepare(paths, tmp_path / "out")
    prepare(paths, tmp_path / "out")
    assert opened == [paths[0], paths[1], paths[1], paths[2]]
    assert written(tmp_path / "out")[1:2] == changed
    opened.clear()
    with pytest.raises(KeyboardInterrupt):
        prepare(paths, tmp_path / "other")
    other = dataclasses.replace(EXACT_ONLY, max_line_repeats=3)
    prepare(paths, tmp_path / "other", other)
    assert opened == [*paths[:2], *paths]


@pytest.mark.parametrize(("other", "end"), [("bad.jsonl", "z.txt"), ("b.txt", "b.txt")])
def test_parts_of_other_files_are_not_taken_for_those_of_a_note(tmp_path, monkeypatch, other, end):
    """Another run was skipping its first file, or was inside it, when it ended."""
    rng = random.Random(12)
    texts = {name: [document(rng)] for name in ("a.txt", "b.txt", "z.txt")}
    paths = {name: write(tmp_path / name, content) for name, content in texts.items()}
    (tmp_path / "bad.jsonl").write_text("bad")
    paths["bad.jsonl"] = str(tmp_path / "bad.jsonl")
    skipping = dataclasses.replace(EXACT_ONLY, skip_bad_files=True)
    read, ends = corpus_cleaning.read_documents, []

    def read_documents(path, *rest):
        yield from read(path, *rest)
        if path in ends:
            raise KeyboardInterrupt

    monkeypatch.setattr(corpus_cleaning, "read_documents", read_documents)
    for first, last in (("a.txt", "z.txt"), (other, end)):
        ends = [paths[last]]
        with pytest.raises(KeyboardInterrupt):
            prepare([paths[first], paths["z.txt"]], tmp_path / "out", skipping)
    ends = []
    prepare([paths["a.txt"], paths["z.txt"]], tmp_path / "out", skipping)
    assert written(tmp_path / "out") == texts["a.txt"] + texts["z.txt"]


def test_files_are_read_again_for_other_texts_of_an_evaluation_set(tmp_path, monkeypatch):
    """Also if these have as many texts and words."""
    rng = random.Random(11)
    texts = [sentence(rng, 20) for _ in range(2)]
    paths = [write(tmp_path / f"{n}.txt", [[*document(rng), texts[n]]]) for n in range(2)]
    (tmp_path / "squad").mkdir()
    preparation = Preparation(SENTENCES, 0, contamination=("squad",), data_dir=str(tmp_path))
    read, interrupts = corpus_cleaning.read_documents, [True, False, True, False]

    def read_documents(path, *rest):
        if path == paths[1] and interrupts.pop(0):
            raise KeyboardInterrupt
        return read(path, *rest)

    monkeypatch.setattr(corpus_cleaning, "read_documents", read_documents)
    for first in (0, 1):
        (tmp_path / "squad" / "dev.json").write_text(json.dumps([texts[first]]))
        with pytest.raises(KeyboardInterrupt):
            prepare(paths, tmp_path / f"out{first}", preparation)
        (tmp_path / "squad" / "dev.json").write_text(json.dumps([texts[0]]))
        report = prepare(paths, tmp_path / f"out{first}", preparation)
        left = {line for lines in written(tmp_path / f"out{first}") for line in lines}
        assert left & set(texts) == {texts[1]}
        assert report["contamination"]["sets"]["squad"]["texts_found"] == 1


def test_more_files_than_may_be_open(tmp_path):
    pytest.importorskip("datasketch")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as file:
        count = file.fileno() + 40
    text = document(random.Random(13))
    paths = [write(tmp_path / f"{n}.txt", [[*text, f"Number {n} ends."]]) for n in range(count)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, limits[1]))
    try:
        report = prepare(paths, tmp_path / "out", Preparation(SENTENCES))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert report["left_out"]["near_duplicates"] == count - 1
    assert written(tmp_path / "out") == [[*text, "Number 0 ends."]]


def test_a_name_that_is_not_utf_8_is_refused_before_any_work(tmp_path):
    path = write(tmp_path / "a\udcff.txt", [document(random.Random(7))])
    with pytest.raises(file_io.InputError, match=r"input_file='.*a\\udcff.txt' holds invalid text"):
        prepare([path], tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "corpus-00000.txt").write_text("precious")
    path = write(tmp_path / "a.txt", [document(random.Random(7))])
    with pytest.raises(file_io.InputError, match="has corpus-00000.txt and 0 other .*empty or new"):
        prepare([path], tmp_path / "out")
    assert (tmp_path / "out" / "corpus-00000.txt").read_text() == "precious"
    with pytest.raises(file_io.InputError, match="gs://b/c: expected a local folder"):
        corpus_preparation.prepare([path], "gs://b/c", EXACT_ONLY)
