"""How the model in the package is made: its commands, and the texts that it learns from."""

import importlib
import sys

import numpy as np
import pytest

from tests.support import builders, command_lines
from tests.support.sources import ROOT

sys.path.insert(0, str(ROOT))
albert_mini, cloze_questions, sentence_pairs = (
    importlib.import_module(f"experiments.{name}")
    for name in ("albert_mini", "cloze_questions", "sentence_pairs")
)
WORDS = "the old house near river was sold to a man who came from town last year".split()


def test_its_commands_are_accepted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    folders = {name: tmp_path / name for name in ("teacher", "data", "work")}
    (tmp_path / "data" / "corpus_large").mkdir(parents=True)
    (tmp_path / "data" / "corpus_large" / "books_00.txt").write_text("")
    given = [f"--{name}={path}" for name, path in folders.items()]
    albert_mini.main([*given, "--learning_rate=6e-4", "--dry_run"])
    scripts, rates = [], []
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("python -m albert."):
            script, *arguments = line.removeprefix("python -m albert.").split(" ")
            scripts.append(script)
            settings = command_lines.read(script, *arguments)
            settings.check()
            if script == "run_pretraining":
                rates.append(settings.optimizer.learning_rate)
    assert rates == [6e-4]  # the flag file has another one
    expected = [*["create_pretraining_data"] * 4, "run_pretraining", "export_to_huggingface"]
    tasks = {"run_classifier", "run_squad_v1"}  # also where scores of other weights are recorded
    assert scripts[:6] == expected and set(scripts[6:]) == tasks


def test_pairs_are_from_alike_to_unlike():
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(20, 8))
    vectors = np.repeat(centres, 30, axis=0) + 0.3 * rng.normal(size=(600, 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pairs = list(sentence_pairs.mine(vectors, rng))
    assert 2300 < len(pairs) < 2800  # 600 times three neighbors, one nearby, half of a random one
    for one, other, cosine in pairs:
        assert one != other and cosine == pytest.approx(vectors[one] @ vectors[other], abs=1e-5)
    flat = sentence_pairs.flatten(pairs, rng)
    assert set(flat) < set(pairs)
    kept = [np.histogram([x for *_, x in some], 10, (0, 1))[0] for some in (pairs, flat)]
    assert kept[1].max() / np.median(kept[1]) < kept[0].max() / np.median(kept[0])
    assert any(cosine > 0.9 for *_, cosine in flat) and any(cosine < 0.1 for *_, cosine in flat)


def test_altered_copies_have_words_of_both():
    rng = np.random.default_rng(1)
    text, other = "a b c d e f g h", "x y z"
    copies = [sentence_pairs.alter(text, other, rng).split(" ") for _ in range(200)]
    assert all({*copy} <= {*text.split(), *other.split()} for copy in copies)
    assert any(len(copy) < 8 for copy in copies) and any("y" in copy for copy in copies)
    assert any(copy[0] != "a" and sorted(copy) == text.split() for copy in copies)


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(0)
    lines = [" ".join([*rng.choice(WORDS, 9), f"Anna {i} ."]) for i in range(60)]
    path = tmp_path / "text"
    path.write_text("\n".join([*lines[:30], "", *lines[30:]]) + "\n")
    return path


def read_documents(path):
    assert not path.with_suffix(".partial").exists()
    return [document.split("\n") for document in path.read_text().rstrip().split("\n\n")]


def test_files_of_pairs_have_two_lines_in_each_document(tmp_path, text):
    folder, target = builders.write_classifier(tmp_path / "teacher", pooling="mean"), tmp_path / "a"
    sentence_pairs.write([text], folder, target, count=40)
    pairs, lines = read_documents(target), {*text.read_text().splitlines()}
    assert len(pairs) > 40 and {len(pair) for pair in pairs} == {2}
    known = [[line in lines for line in pair] for pair in pairs]
    assert all(map(any, known)) and any(map(all, known))  # one of a pair may be an altered copy
    assert {(False, True), (True, False)} < {*map(tuple, known)}


def test_questions_lack_the_answer_that_the_passage_has(tmp_path, text):
    cloze_questions.write([text], tmp_path / "questions", count=50)
    pairs, words = read_documents(tmp_path / "questions"), {*WORDS, "Anna", "?"}
    assert len(pairs) == 50
    asked = {*"who what where which when year how many much".split()}
    for question, passage in pairs:
        assert question.endswith(" ?") and {*question.split()} & asked
        assert len(passage.split()) <= 95
        others = {word for word in question.split() if not word.isdigit()} - asked
        assert others <= words
    of_one = [p for q, p in pairs if not {"Anna", *map(str, range(60))} & {*q.split()}]
    assert len(of_one) > 25  # the name and the number after it are mostly the answer


def test_every_question_has_a_passage(tmp_path, text):
    """A fifth of the passages is from nearby, where a short document may end."""
    lines, path = [line for line in text.read_text().splitlines() if line], tmp_path / "short"
    path.write_text("\n\n".join("\n".join(lines[i : i + 2]) for i in range(0, 60, 2)))
    cloze_questions.write([path], tmp_path / "questions")
    assert {len(pair) for pair in read_documents(tmp_path / "questions")} == {2}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("the house was sold in 1872 to them .", {"when", "what year", "how many", "how much"}),
        ("then the house was sold to Anna .", {"who", "what", "where", "which"}),
        ("the house was sold again and again .", {"what", "which", "why", "how"}),
    ],
)
def test_the_question_word_fits_the_answer(words, wanted):
    rng, answer = np.random.default_rng(3), {"1872", "Anna"}
    questions = [cloze_questions.ask(words.split(), rng) for _ in range(60)]
    for question in questions:
        assert any(f" {word} " in f" {question}" for word in wanted)
    assert not answer & {word for question in questions for word in question.split()}
    assert len({*questions}) > 20
