"""The made-up data is what it claims to be: its own rules, checked from the words alone."""

import collections
import csv
import re

import pytest

from albert import make_demo_data
from albert.experiments import demo_data
from albert.tasks import glue
from albert.tasks.squad import answers as squad_answers
from tests.support import command_lines

GOOD = set(demo_data.QUALITIES["good"] + demo_data.FEELINGS["good"])
BAD = set(demo_data.QUALITIES["bad"] + demo_data.FEELINGS["bad"])


def _run(folder, *arguments):
    command_lines.run(make_demo_data, f"--output_dir={folder}", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo")
    _run(path)
    return path


def _rows(folder, task, split):
    with open(folder / "glue" / task / f"{split}.tsv", encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _words(text):
    return re.findall(r"\w+", text.lower())


def _places(sentence):
    """Places that the words of a sentence belong to."""
    words = set(_words(sentence))
    return {
        place
        for place, lists in demo_data.PLACES.items()
        if words & {place, *" ".join(lists).split()}
    }


def _time(sentence):
    """The time of the day that a sentence begins with."""
    (place,) = [i for i, time in enumerate(demo_data.TIMES) if sentence.lower().startswith(time)]
    return place


def _is_positive(sentence):
    words = _words(sentence)
    votes = set()
    for before, word in zip(["", *words], words, strict=False):
        if word in GOOD | BAD:
            votes.add((word in GOOD) != (before == "not"))
    (vote,) = votes
    return vote


def test_sst2_labels_follow_the_words(folder):
    rows = _rows(folder, "SST-2", "train")[1:]
    assert len(rows) == 3000
    assert all(label == str(int(_is_positive(text))) for text, label in rows)


def test_rte_labels_follow_the_words(folder):
    rows = _rows(folder, "RTE", "train")[1:]
    for _, first, second, label in rows:
        assert (label == "entailment") == (_time(first) < _time(second))
        assert len(_places(first) | _places(second)) == 1


def test_stsb_scores_follow_the_words(folder):
    header, *rows = _rows(folder, "STS-B", "train")
    one, two = header.index("sentence1"), header.index("sentence2")
    for row in rows:
        hours = _time(row[two]) - _time(row[one])
        assert float(row[-1]) == pytest.approx(5 - 5 * hours / 7, abs=1e-3)


@pytest.mark.parametrize("task", demo_data.TASKS)
def test_no_row_is_in_two_splits(folder, task):
    width = 1 if task == "SST-2" else 2
    texts = []
    for split, count in demo_data.SPLITS:
        rows = _rows(folder, task, split)[1:]
        assert len(rows) == count
        end = len(rows[0]) - (split != "test")
        texts += [tuple(row[end - width : end]) for row in rows]
    assert len(set(texts)) == len(texts) == 3500


@pytest.mark.parametrize("task", demo_data.TASKS)
def test_no_answer_is_worth_guessing(folder, task):
    for split in ("train", "dev"):
        labels = collections.Counter(row[-1] for row in _rows(folder, task, split)[1:])
        assert max(labels.values()) < 0.56 * sum(labels.values())


def test_files_are_read_as_glue_tasks(folder):
    for name in demo_data.TASKS:
        row = glue.get_task(name)
        counts = [
            len(list(row.examples(str(folder / "glue"), s))) for s in ("train", "dev", "test")
        ]
        assert counts == [3000, 400, 100]


def test_documents_go_through_the_day(folder):
    documents = (folder / "corpus" / "train.txt").read_text("utf-8").split("\n\n")
    assert len(documents) == demo_data.NUM_DOCUMENTS["train"]
    for document in documents:
        lines = document.strip().split("\n")
        times = [_time(line) for line in lines]
        assert len(times) >= 4 and times == sorted(set(times))
        assert len({place for line in lines for place in _places(line)}) == 1


def test_every_word_of_the_tasks_is_in_the_corpus(folder):
    known = set(_words((folder / "corpus" / "train.txt").read_text("utf-8")))
    for task in demo_data.TASKS:
        for row in _rows(folder, task, "dev")[1:]:
            for text in row:
                if " " in text:
                    assert set(_words(text)) <= known


def test_same_seed_same_files(folder, tmp_path):
    _run(tmp_path / "again")
    _run(tmp_path / "other", "--seed=1")
    for path in sorted(folder.rglob("*.*")):
        name = path.relative_to(folder)
        assert path.read_bytes() == (tmp_path / "again" / name).read_bytes()
        assert path.read_bytes() != (tmp_path / "other" / name).read_bytes()


def test_squad_answers_are_the_words_asked_for(folder):
    contexts = []
    for split, count in demo_data.NUM_PARAGRAPHS.items():
        path = str(folder / "squad" / f"{split}.json")
        examples = squad_answers.read_squad_examples(path, is_training=True)  # checks the places
        assert len(examples) == 4 * count
        contexts += {example.paragraph_text for example in examples}
        for example in examples:
            (place,) = [name for name in demo_data.PLACES if name in example.paragraph_text]
            people, _, things = demo_data.PLACES[place]
            allowed = {
                "who": people.split(),
                "what": things.split(),
                "where": list(demo_data.PLACES),
                "when": demo_data.TIMES,
            }[example.question_text.split()[0].lower()]
            assert example.orig_answer_text.lower() in allowed
    assert len(set(contexts)) == len(contexts) == sum(demo_data.NUM_PARAGRAPHS.values())
