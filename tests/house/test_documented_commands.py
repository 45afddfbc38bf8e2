"""The commands of the README and of two pages run, with small data in place of large."""

import csv
import json
import os
import shlex
import shutil

import pytest

from tests.support import command_lines, documents
from tests.support.sources import ROOT

# Given after the documented flags, so that a run takes seconds.
LENGTHS = ["--max_seq_length=32", "--max_predictions_per_seq=5"]
STEPS = ["--save_checkpoints_steps=2", "--train_batch_size=4", "--max_seq_length=32"]
SMALL = {
    "train_vocab": ["--vocab_size=160"],
    "create_pretraining_data": [*LENGTHS, "--dupe_factor=1", "--num_workers=1"],
    "run_pretraining": [*LENGTHS, *STEPS, "--num_train_steps=2", "--num_warmup_steps=1"]
    + ["--max_eval_steps=1"],
    "run_classifier": [*STEPS, "--train_step=2", "--warmup_step=1", "--budget_minutes=0"]
    + ["--num_seeds=1"],
    "run_squad_v2": [*STEPS, "--train_fraction=0.01", "--eval_fraction=0.05"]
    + ["--num_train_epochs=1", "--max_query_length=16"],
    "predict": [],
    "ask": [],
    "report": [],
    "export_serving": [],
}
# Commands that no test here runs, and why.
NOT_RUN = {
    "run_race": "there is no small RACE; tests/tasks/test_run_race.py has its own",
    "serve": "serves until it is stopped; tests/serving/test_server.py has its own",
    "run_sweep": "starts one process per trial; tests/experiments/test_run_sweep.py has its own",
}
FIRST = ("train_vocab", "create_pretraining_data", "run_pretraining")
CONFIG = {"vocab_size": 160, "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1}
CONFIG |= {"num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64}


def run(command):
    script, *arguments = shlex.split(command)[2:]
    name = script.removeprefix("albert.")
    command_lines.run(name, *arguments, *SMALL[name])


def commands(page):
    for line in documents.commands(page):
        words = shlex.split(line)
        if words[:2] == ["python", "-m"]:
            name = words[2].removeprefix("albert.")
            if name not in NOT_RUN:
                yield name, line


def make_data(folder):
    command_lines.run("make_demo_data", output_dir=folder / "data")
    for name in ("recipes", "examples"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("corpus", "domain", "model", "records"):
        (folder / name).mkdir()
    text = (folder / "data/corpus/train.txt").read_text().split("\n\n")
    (folder / "corpus/a.txt").write_text("\n\n".join(text[:60]))
    (folder / "domain/a.txt").write_text("\n\n".join(text[60:80]))
    (folder / "heldout.txt").write_text("\n\n".join(text[80:90]))
    for name in ("train", "dev"):
        questions = json.loads((folder / f"data/squad/{name}.json").read_text())
        for article in questions["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    question["is_impossible"] = False
        (folder / f"data/squad/{name}-v2.0.json").write_text(json.dumps(questions))
        rows = (folder / f"data/glue/SST-2/{name}.tsv").read_text().splitlines()[1:9]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["review", "mood"], *(row.split("\t") for row in rows)])
    (folder / "new.txt").write_text("the happy cook\n")
    (folder / "text.txt").write_text("At dawn, the baker tasted the fine soup in the kitchen.\n")
    (folder / "model/albert_config.json").write_text(json.dumps(CONFIG))


@pytest.mark.slow
def test_documented_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_data(tmp_path)
    readme = list(commands("README.md"))
    for name, line in readme:
        if name in FIRST:
            run(line)
    shutil.copytree("model", "albert_base_v2")  # comes before the published model of this name
    for name, line in [*readme, *commands("docs/domain.md")]:
        if name not in FIRST or "domain" in line or "heldout" in line:
            run(line)
    shutil.rmtree("moods")
    own = [*commands("docs/own_data.md")]
    assert [name for name, _ in own] == [
        "run_classifier", "report", "run_classifier", "run_classifier", "predict", "export_serving"
    ]  # fmt: skip
    for _, line in own:
        run(line)
    found = (tmp_path / "moods" / "eval_results.txt").read_text()
    assert "calibrated_log_loss" in found and "abstention_max_error = 0.05" in found
    assert os.path.exists("moods.html") and os.path.exists("moods_onnx/model.onnx")
    assert os.path.exists("moods_seeds/model.ckpt-best.index")
    assert "prediction" in capsys.readouterr().out
    results = (tmp_path / "domain_model" / "eval_results.txt").read_text()
    assert "global_step = 0" in results and "global_step = 2" in results
    assert os.path.exists("moods/model.ckpt-best.index")
