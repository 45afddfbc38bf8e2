"""The example of several labels per text: what it writes, and its documented commands."""

import csv
import random
import runpy
import shlex
import sys

import pytest

from albert.model import encoder
from tests.support import builders, command_lines, documents
from tests.support.sources import ROOT

SCRIPT = "examples/several_labels.py"
SMALL = ["--train_step=2", "--save_checkpoints_steps=2", "--max_seq_length=32"]
SENTENCES = {
    "the plot is a mess and nobody ever laughs at it\t0": "comedy,story",
    "the cast is better than the stories they are in\t1": "acting,comparison,praise,story",
    "it is n't a film for people who like the sea\t0": "negation",
    "starlight falls on the comedown of a plotter in town\t0": "",  # parts of words are no words
    "too short a text\t1": None,
}


def write_data(folder, count):
    """Writes SST-2 of the sentences, in turns."""
    rng, rows = random.Random(0), [*SENTENCES]
    (folder / "SST-2").mkdir(parents=True)
    for split in ("train", "dev"):
        lines = [rows[i] if i < len(rows) else rng.choice(rows) for i in range(count)]
        text = "\n".join(["sentence\tlabel", *lines])
        (folder / "SST-2" / f"{split}.tsv").write_text(text, encoding="utf-8")


def run_example(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [SCRIPT, *arguments])
    runpy.run_path(str(ROOT / SCRIPT), run_name="__main__")


def test_sentences_have_the_labels_of_their_words(tmp_path, monkeypatch, capsys):
    write_data(tmp_path, len(SENTENCES))
    run_example(monkeypatch, f"--data_dir={tmp_path}", f"--output_dir={tmp_path / 'films'}")
    rows = {name: list(csv.reader((tmp_path / f"films/{name}.csv").open())) for name in
            ("train", "dev", "test")}  # fmt: skip
    expected = [
        [row.split("\t")[0], labels] for row, labels in SENTENCES.items() if labels is not None
    ]
    assert rows["train"] == [["text", "labels"], *expected]
    assert [rows["dev"][1:], rows["test"][1:]] == [expected[::2], expected[1::2]]
    assert "train.csv: 4 texts; none 1, acting 1, comedy 1," in capsys.readouterr().out


@pytest.mark.slow
def test_the_documented_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data/glue", 40)
    config = builders.tiny_config()
    builders.write_model(tmp_path / "albert_mini", encoder.AlbertModel(config, 1), config)
    page = documents.commands("docs/own_data_reference.md")
    make, train = (shlex.split(line) for line in page if "films" in line)
    assert make[:2] == ["python", SCRIPT]
    run_example(monkeypatch, *make[2:])
    shorter = [word for word in train[3:] if "recipes" not in word]
    recipe = f"--flagfile={ROOT / 'recipes/own_data.flags'}"
    command_lines.run("run_classifier", recipe, *shorter, *SMALL)
    found = (tmp_path / "films/model/eval_results.txt").read_text()
    assert "cross_fitted_macro_f1 = " in found and "threshold_praise = " in found
    assert "macro_f1 = " in (tmp_path / "films/model/predict_results.txt").read_text()
