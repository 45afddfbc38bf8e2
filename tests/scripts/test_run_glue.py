"""The sweep: its commands, its table, and what it does about failures and Ctrl-C."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

from albert import glue_report, report
from albert.experiments import demo_data, glue_table, sweep_journal
from albert.io import file_io
from tests.support import command_lines, forked, processes
from tests.support.processes import interrupt
from tests.support.sources import ROOT

# task: warm-up, rate, steps, steps between checkpoints, batch
VALUES = {
    "SST-2": "1256 1e-5 20935 100 32",
    "MNLI": "1000 3e-5 10000 100 128",
    "CoLA": "320 1e-5 5336 100 16",
    "QNLI": "1986 1e-5 33112 200 32",
    "QQP": "1000 5e-5 14000 100 128",
    "RTE": "200 3e-5 800 100 32",
    "STS-B": "214 2e-5 3598 100 16",
    "MRPC": "200 2e-5 800 100 32",
}

# Stands in for the interpreter: notes the command of a task and behaves as its name asks.
FAKE = """#!/bin/bash
[[ $2 == albert.run_classifier ]] || exec {python} "$@"
printf '%q ' "${{@:3}}" >>{folder}/commands; echo >>{folder}/commands
for flag in "${{@:3}}"; do
  case $flag in
    --output_dir=*) out=${{flag#*=}} ;;
    --flagfile=*/glue_CoLA.flags) echo 'error: something is missing'; exit 1 ;;
    --flagfile=*/glue_QNLI.flags) echo "$$" >{folder}/running; sleep 60; exit 0 ;;
  esac
done
mkdir -p "$out"
printf '200:100:0.75' >"$out/best_trial.txt"
printf 'eval_accuracy = 0.75\\nf1 = 0.5\\nglobal_step = 100\\nbest = 0.75\\n{rule}\\n' \\
  >"$out/eval_results.txt"
"""


def _environment(folder, **extra):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "OUTPUT_DIR": str(folder / "out"), **extra}


@pytest.fixture
def fake(tmp_path):
    """Environment in which no model is trained."""
    for name in ("glue", "model"):
        (tmp_path / name).mkdir()
    python = tmp_path / "python"
    script = FAKE.format(python=shlex.quote(sys.executable), folder=tmp_path, rule="=" * 50)
    python.write_text(script)
    python.chmod(0o755)
    return _environment(
        tmp_path,
        PYTHON=str(python),
        GLUE_DIR=str(tmp_path / "glue"),
        ALBERT_DIR=str(tmp_path / "model"),
    )


def _sweep(environment, *arguments, folder=ROOT):
    return processes.run([str(ROOT / "run_glue.sh"), *arguments], env=environment, cwd=folder)


def _commands(folder):
    """{task: {flag: value}} of the commands that were run; the last of equal flags counts."""
    found = {}
    for line in (folder / "commands").read_text().splitlines():
        recipe, *given = shlex.split(line)
        lines = pathlib.Path(recipe.removeprefix("--flagfile=")).read_text().splitlines()
        words = [word for word in lines if not word.startswith("#")] + given
        words = [word.lstrip("-").split("=", 1) for word in words]
        command = {word[0]: word[1] if word[1:] else "true" for word in words}
        found[command["task_name"]] = command
    return found


@pytest.mark.slow
def test_every_task_gets_the_values_of_the_reference(fake, tmp_path):
    result = _sweep({**fake, "TASKS": " ".join(name for name in VALUES if name != "QNLI")})
    assert result.returncode == 1  # CoLA fails, the others continue
    for name, command in _commands(tmp_path).items():
        keys = "warmup_step learning_rate train_step save_checkpoints_steps train_batch_size"
        assert " ".join(command[key] for key in keys.split()) == VALUES[name]
        assert command["max_seq_length"] == "512" and command["optimizer"] == "adamw"
        assert command["do_train"] == command["do_eval"] == "true"
        assert command["init_checkpoint"] == str(tmp_path / "model")
        assert command["data_dir"] == str(tmp_path / "glue")
        assert command["output_dir"] == str(tmp_path / "out" / name)


@pytest.mark.slow
def test_environment_overrides(fake, tmp_path):
    fake.update(
        TASKS=" RTE   MRPC\n",
        MAX_STEPS="80",
        EXTRA_FLAGS="--max_seq_length=64 --learning_rate=1e-3",
        ALBERT_HUB="https://hub/albert",
    )
    result = _sweep(fake)
    assert result.returncode == 1
    assert "ALBERT_DIR and ALBERT_HUB both name a model" in result.stderr
    del fake["ALBERT_DIR"]
    assert _sweep(fake, folder=tmp_path).returncode == 0
    commands = _commands(tmp_path)
    assert list(commands) == ["RTE", "MRPC"]
    assert commands["RTE"]["train_step"] == "80" and commands["RTE"]["warmup_step"] == "20"
    assert commands["RTE"]["max_seq_length"] == "64"
    assert commands["RTE"]["learning_rate"] == "1e-3"
    assert commands["RTE"]["albert_hub_module_handle"] == "https://hub/albert"
    assert "init_checkpoint" not in commands["RTE"]


@pytest.mark.slow
def test_the_names_of_the_reference(fake, tmp_path):
    """A folder with configuration, vocabulary and glue/, and a checkpoint or a hub module."""
    root, own = tmp_path / "model", {**fake, "TASKS": "RTE"}
    for name in ("GLUE_DIR", "ALBERT_DIR"):
        del own[name]
    (root / "glue").mkdir()
    for name in ("albert_config.json", "30k-clean.model", "vocab.txt"):
        (root / name).touch()
    own["ALBERT_ROOT"] = str(root)
    files = {
        "albert_config_file": f"{root}/albert_config.json",
        "spm_model_file": f"{root}/30k-clean.model",
    }
    cases = [
        ({}, {"init_checkpoint": str(root)}),
        ({"INIT_CHECKPOINT": "w/model.ckpt-5"}, {"init_checkpoint": "w/model.ckpt-5", **files}),
        ({"ALBERT_HUB_MODULE_HANDLE": "hub"}, {"albert_hub_module_handle": "hub"}),
        ({"ALBERT_HUB_MODULE_HANDLE": "hub", "ALBERT_HUB": "hub/"}, {}),
        ({"ALBERT_DIR": f"{root}/"}, {}),
    ]
    names = ("init_checkpoint", "albert_hub_module_handle", "vocab_file", *files)
    for change, expected in cases:
        result = _sweep({**own, **change})
        assert result.returncode == 0, result.stderr
        command = _commands(tmp_path)["RTE"]
        assert command["data_dir"] == str(root / "glue")
        if expected:
            assert {name: command[name] for name in names if name in command} == expected
    (root / "30k-clean.model").unlink()
    _sweep({**own, "INIT_CHECKPOINT": "w/model.ckpt-5", "GLUE_DIR": fake["GLUE_DIR"]})
    command = _commands(tmp_path)["RTE"]
    assert command["vocab_file"] == f"{root}/vocab.txt" and command["data_dir"] == fake["GLUE_DIR"]
    _sweep({**fake, "ALBERT_DIR": "", "INIT_CHECKPOINT": "w/model.ckpt-5", "TASKS": "MRPC"})
    command = _commands(tmp_path)["MRPC"]
    assert {name: command[name] for name in names if name in command} == {
        "init_checkpoint": "w/model.ckpt-5"
    }
    for name in ("albert_base_v2", "albert_mini"):
        _sweep({**fake, "ALBERT_DIR": name, "TASKS": "MRPC"})
        assert _commands(tmp_path)["MRPC"]["init_checkpoint"] == name


@pytest.mark.slow
def test_test_data_is_predicted_where_it_is(fake, tmp_path):
    for path in ("MNLI/test_matched.tsv", "RTE/test.tsv"):
        (tmp_path / "glue" / path).parent.mkdir()
        (tmp_path / "glue" / path).touch()
    result = _sweep({**fake, "TASKS": "MNLI RTE MRPC"})
    assert result.returncode == 0
    predicted = {name: "do_predict" in command for name, command in _commands(tmp_path).items()}
    assert predicted == {"MNLI": True, "RTE": True, "MRPC": False}
    missing = tmp_path / "glue" / "MRPC" / "test.tsv"
    assert f"MRPC: there is no {missing}: no submit_results.tsv\n" in result.stdout
    assert result.stdout.endswith("Without test data, so without submit_results.tsv: MRPC\n")
    result = _sweep({**fake, "TASKS": "RTE MRPC", "PREDICT": "0"})
    assert "do_predict" not in _commands(tmp_path)["RTE"]
    assert "submit_results" not in result.stdout


@pytest.mark.slow
def test_a_failing_task_does_not_stop_the_others(fake, tmp_path):
    result = _sweep({**fake, "TASKS": "CoLA MRPC"})
    assert result.returncode == 1
    assert "error: something is missing" in result.stdout
    table = (tmp_path / "out" / "results.md").read_text()
    assert table in result.stdout
    log = tmp_path / "out" / "logs" / "CoLA.log"
    assert re.search(rf"\| CoLA +\| matthew_corr +\| - +\| - +\| failed; log: {log} +\|", table)
    assert re.search(r"\| MRPC +\| eval_accuracy +\| 100 +\| 0.7500 +\| done +\|", table)
    assert re.search(r"\| average +\| +\| +\| 0.7500 +\| 1 of 2 tasks", table)
    summary = json.loads((tmp_path / "out" / "results.json").read_text())
    assert summary["average"] == 0.75 and summary["num_averaged"] == 1
    assert summary["tasks"][1]["metrics"] == {"eval_accuracy": 0.75, "f1": 0.5}
    assert log.read_text() == "error: something is missing\n"


@pytest.mark.slow
def test_seeds_give_mean_and_deviation(fake, tmp_path):
    result = _sweep({**fake, "TASKS": "RTE MRPC", "SEEDS": " 3 14"})
    assert result.returncode == 0, result.stderr
    assert _commands(tmp_path)["RTE"]["output_dir"] == str(tmp_path / "out" / "RTE" / "seed_14")
    assert _commands(tmp_path)["RTE"]["seed"] == "14"
    table = (tmp_path / "out" / "results.md").read_text()
    assert re.search(
        r"\| RTE +\| eval_accuracy +\| - +\| 0.7500 +\| - +\| 0.0000 +\| 2 of 2 \| done", table
    )
    row = json.loads((tmp_path / "out" / "results.json").read_text())["tasks"][0]
    assert row["scores"] == {"3": 0.75, "14": 0.75} and row["metrics"]["f1"] == 0.5
    runs = len((tmp_path / "commands").read_text().splitlines())
    assert _sweep({**fake, "TASKS": "RTE MRPC", "SEEDS": "3 14 15"}).returncode == 0
    assert len((tmp_path / "commands").read_text().splitlines()) == runs + 2  # the new seed's
    command_lines.run(glue_report, f"--output_dir={tmp_path}/out", "--tasks=RTE,CoLA")
    table = (tmp_path / "out" / "results.md").read_text()
    assert "3 of 3" in table and re.search(r"\| CoLA .* not run", table)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_signals_stop_the_sweep_and_show_the_table(fake, tmp_path, kind, status):
    process = subprocess.Popen(
        [str(ROOT / "run_glue.sh")],
        env={**fake, "TASKS": "MRPC QNLI RTE"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    output = interrupt(process, tmp_path / "running", kind, status)
    assert re.search(r"\| MRPC .* 0.7500 +\| done", output)
    assert re.search(r"\| QNLI +\| eval_accuracy +\| - +\| - +\| interrupted; log:", output)
    assert re.search(r"\| RTE +\| eval_accuracy +\| - +\| - +\| not run", output)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"GLUE_DIR": ""}, "GLUE_DIR must name the folder"),
        ({"GLUE_DIR": "/no/such"}, "the folder /no/such does not exist"),
        ({"ALBERT_DIR": ""}, "ALBERT_DIR or ALBERT_HUB must name the model"),
        ({"ALBERT_DIR": "/no/such"}, "the folder /no/such does not exist"),
        ({"ALBERT_ROOT": "/other"}, "ALBERT_DIR=.* and ALBERT_ROOT=/other are two names for one"),
        (
            {"ALBERT_DIR": "", "ALBERT_HUB": "a", "ALBERT_HUB_MODULE_HANDLE": "b"},
            "ALBERT_HUB=a and ALBERT_HUB_MODULE_HANDLE=b are two names",
        ),
        (
            {"ALBERT_DIR": "", "ALBERT_HUB_MODULE_HANDLE": "a", "INIT_CHECKPOINT": "b"},
            "INIT_CHECKPOINT and the hub module a both name a model",
        ),
        ({"PREDICT": "yes"}, "PREDICT=yes is neither 0 nor 1"),
        ({"MAX_STEPS": "none"}, "MAX_STEPS=none is not a number"),
        ({"SEEDS": "1 x"}, "SEEDS: x is not a number"),
        ({"TASKS": "RTE WNLI"}, "TASKS: WNLI is none of SST-2"),
    ],
)
def test_mistakes_are_refused_before_any_work(fake, tmp_path, change, message):
    result = _sweep({**fake, **change})
    assert result.returncode == 1
    assert re.search(message, result.stderr)
    assert not (tmp_path / "commands").exists() and not (tmp_path / "out").exists()


def test_help_names_every_variable(fake, tmp_path):
    result = _sweep({**fake, "GLUE_DIR": ""}, "--help")
    assert result.returncode == 0
    names = """
        GLUE_DIR ALBERT_DIR ALBERT_HUB OUTPUT_DIR PREDICT TASKS MAX_STEPS SEEDS EXTRA_FLAGS PYTHON
        ALBERT_ROOT INIT_CHECKPOINT ALBERT_HUB_MODULE_HANDLE
    """
    for name in names.split():
        assert re.search(rf"^ +{name} ", result.stdout, re.M), name


# --- the table ----------------------------------------------------------------------------------


def _results(folder, task, trial, state="done", **fields):
    journal = sweep_journal.Journal(str(folder), {})
    number = len(journal.trials)
    journal.trials.append(sweep_journal.Trial(number, task, [], state=state, **fields))
    journal.write()
    (folder / task).mkdir(parents=True)
    (folder / task / "best_trial.txt").write_text(trial)


def test_report_averages_what_is_done(tmp_path):
    _results(tmp_path, "CoLA", "300:200:0.5")
    _results(tmp_path, "STS-B", "300:300:0.9")
    _results(tmp_path, "RTE", "100:100:0.6", state="interrupted")
    (tmp_path / "MNLI").mkdir()  # left by another sweep
    (tmp_path / "MNLI" / "best_trial.txt").write_text("1:1:0.1")
    summary = glue_table.summarize(str(tmp_path), ["CoLA", "STS-B", "RTE", "MNLI"])
    assert summary["average"] == pytest.approx(0.7) and summary["num_averaged"] == 2
    rows = {row["task"]: row for row in summary["tasks"]}
    assert rows["CoLA"]["metric"] == "matthew_corr" and rows["CoLA"]["best_step"] == 200
    assert rows["STS-B"]["metric"] == "pearson"
    assert rows["RTE"]["score"] == 0.6 and rows["RTE"]["state"].startswith("interrupted; ")
    assert rows["MNLI"]["score"] is None and rows["MNLI"]["state"] == "not run"
    lines = glue_table.to_markdown(summary).splitlines()
    assert lines[0].split() == "| task | metric | best step | score | state |".split()
    assert len({len(line) for line in lines}) == 1


def test_runs_that_have_learned_nothing_are_shown_as_such(tmp_path):
    _results(tmp_path, "RTE", "40:40:0.53", value=0.53, baseline=0.53, verdict="stuck")
    for seed, value in ((1, 0.9), (2, 0.5), (3, 0.7)):
        verdict = "stuck" if seed == 2 else ""
        fields = {"seed": seed, "value": value, "verdict": verdict, "baseline": 0.0}
        _results(tmp_path, f"CoLA/seed_{seed}", f"40:40:{value}", **fields)
    summary = glue_table.summarize(str(tmp_path), ["RTE", "CoLA"])
    first, second = summary["tasks"]
    assert first["score"] == 0.53 and second["score"] == pytest.approx(0.8)
    assert second["scores"] == {"1": 0.9, "3": 0.7}
    lines = glue_table.to_markdown(summary).splitlines()
    assert "| done; stuck; no better than a constant answer (0.5300) |" in lines[2]
    assert "2 of 3" in lines[3] and "| done; 1 of 3 stuck " in lines[3]


def test_report_reads_what_the_reference_wrote(golden):
    folder = golden / "runs" / "classifier"
    _, best_step, best_value = (folder / "best_trial.txt").read_text().split(":")
    metrics = glue_table.read_metrics(str(folder), int(best_step))
    assert metrics["eval_accuracy"] == pytest.approx(float(best_value))
    assert "global_step" not in metrics and "best" not in metrics
    assert glue_table.read_metrics(str(folder), 12345) == {}


def test_report_refuses_other_files(tmp_path):
    _results(tmp_path, "RTE", "hello")
    with pytest.raises(file_io.InputError, match=r"RTE/best_trial.txt: expected step:.*'hello'"):
        glue_table.summarize(str(tmp_path), ["RTE"])
    (tmp_path / "RTE" / "best_trial.txt").write_text("1:1:0.5")
    (tmp_path / "RTE" / "eval_results.txt").write_text("loss = high\n")
    with pytest.raises(file_io.InputError, match=r"eval_results.txt: expected lines .*'high'"):
        glue_table.summarize(str(tmp_path), ["RTE"])


# --- in earnest ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_sweep_with_a_model(tmp_path, golden, monkeypatch):
    """The first task lacks its data; the second is trained."""
    monkeypatch.setattr(demo_data, "SPLITS", (("train", 64), ("dev", 16), ("test", 4)))
    (tmp_path / "glue" / "STS-B").mkdir(parents=True)
    for split, text in demo_data.task_files("STS-B", seed=1).items():
        (tmp_path / "glue" / "STS-B" / f"{split}.tsv").write_text(text)
    environment = _environment(
        tmp_path,
        PYTHON=forked.python(),
        GLUE_DIR=str(tmp_path / "glue"),
        ALBERT_HUB=str(golden / "hub_tf1"),
        TASKS="MRPC STS-B",
        MAX_STEPS="6",
        EXTRA_FLAGS="--max_seq_length=32 --save_checkpoints_steps=3",
    )
    result = _sweep(environment)
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(r"the file \S+/MRPC/train.tsv does not exist", result.stdout)
    summary = json.loads((tmp_path / "out" / "results.json").read_text())
    failed, row = summary["tasks"]
    states = [task["state"].split(";")[0] for task in (failed, row)]
    assert states == ["failed", "done"], result.stdout
    assert summary["num_averaged"] == 1
    assert row["metric"] == "pearson"
    assert row["metrics"]["pearson"] == pytest.approx(row["score"], abs=1e-6)
    assert row["best_step"] in (0, 3, 6)
    lines = (tmp_path / "out" / "STS-B" / "submit_results.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 5
    pytest.importorskip("matplotlib")
    page = report.make_page(report.Settings(runs=(str(tmp_path / "out"),)))
    assert 'aria-label="STS-B: pearson: ' in page and "train.tsv does not exist" in page
