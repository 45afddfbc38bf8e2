"""Whole preparations: what was planted is found, files are whole or not there."""

import gzip
import json
import os
import random

import pytest

from albert.io import file_io
from albert.text import contamination, corpus_preparation, duplicates
from albert.text.corpus_cleaning import Cleaning
from albert.text.corpus_preparation import Preparation

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
    text = (tmp_path / "out" / "report.txt").read_text()
    assert "evaluation sets: 60 documents overlap in 60 sentences\n    glue: 60 of 100" in text


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
    assert found["words"] == sum(len(duplicates.words(text)) for text in sentences)
    assert found["characters"] == sum(map(len, sentences))
    assert found["sentences_in_a_document"]["median"] == 6
    assert found["words_in_a_sentence"]["mean"] == 12
    assert report["left_out"]["lines_of_few_letters"] == 1
    assert report["left_out"]["documents_too_short"] == 1
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == json.loads(
        json.dumps(report)
    )
    text = (tmp_path / "out" / "report.txt").read_text()
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


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "corpus-00000.txt").write_text("precious")
    path = write(tmp_path / "a.txt", [document(random.Random(7))])
    with pytest.raises(file_io.InputError, match="has corpus-00000.txt and 0 other .*empty or new"):
        prepare([path], tmp_path / "out")
    assert (tmp_path / "out" / "corpus-00000.txt").read_text() == "precious"
    with pytest.raises(file_io.InputError, match="gs://b/c: expected a local folder"):
        corpus_preparation.prepare([path], "gs://b/c", EXACT_ONLY)
