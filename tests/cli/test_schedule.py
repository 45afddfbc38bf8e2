"""Flags of schedules, judgements and seeds: what they refuse, and what is built from them."""

import importlib
import json
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

from albert import run_classifier
from albert.cli import training
from albert.experiments import seed_runs
from albert.io import file_io, tables
from albert.tasks import custom, glue
from albert.training import contracts, optimizer_table
from tests.support import command_lines, processes
from tests.support.sources import ROOT

GIVEN = {
    "run_pretraining": {"input_file": "x", "do_train": True, "do_eval": True},
    "run_classifier": {"task_name": "SST-2", "data_dir": "x", "do_train": True, "do_eval": True},
    "run_race": {"data_dir": "x"},
    "run_squad_v1": {"train_file": "x", "predict_file": "y", "do_train": True, "do_predict": True},
}
FINE_TUNING = [script for script in GIVEN if script != "run_pretraining"]


def values_of(script, **changes):
    return command_lines.parse(script, **{"output_dir": "out", **GIVEN[script], **changes})


def settings_of(script, **changes):
    return command_lines.read(script, **{"output_dir": "out", **GIVEN[script], **changes})


def check(script, **changes):
    settings_of(script, **changes).check()


@pytest.mark.parametrize("script", GIVEN)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_every": -1}, "--eval_every=-1 must be at least 0"),
        ({"budget_minutes": -1}, "--budget_minutes=-1.0 must be at least 0"),
        ({"early_stopping_patience": -2}, "--early_stopping_patience=-2 must"),
    ],
)
def test_numbers_below_zero_are_refused(script, changes, message):
    check(script)
    with pytest.raises(file_io.InputError, match=message):
        check(script, **changes)


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_a_share_of_the_steps_is_checked(value):
    with pytest.raises(file_io.InputError, match=f"--average_last={value} must be between 0 and"):
        check("run_pretraining", average_last=value)
    with pytest.raises(file_io.InputError, match="--average_last: only for training"):
        check("run_pretraining", average_last=0.2, do_train=False, do_eval=True)


@pytest.mark.parametrize("script", GIVEN)
def test_what_would_do_nothing_is_refused(script):
    evaluation = "do_eval" if "do_eval" in values_of(script) else "do_predict"
    train_alone = {evaluation: False}
    for name in ("eval_every", "early_stopping_patience"):
        with pytest.raises(file_io.InputError, match=f"--{name}: only for training with eval"):
            check(script, **{name: 5, **train_alone})
    with pytest.raises(file_io.InputError, match="--metric_for_best: only for evaluations"):
        check(script, metric_for_best="eval_loss", **train_alone)
    with pytest.raises(file_io.InputError, match="--budget_minutes: only for training"):
        check(script, budget_minutes=5, do_train=False)
    if "start_warmup_step" in values_of(script):
        with pytest.raises(file_io.InputError, match="--start_warmup_step: only for runs without"):
            check(script, budget_minutes=5, start_warmup_step=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stuck_after": 1.0}, "--stuck_after=1.0 must be a fraction"),
        ({"num_seeds": 0}, "--num_seeds=0 must be at least 1"),
        ({"num_restarts": -1}, "--num_restarts=-1 must be at least 0"),
        ({"num_restarts": 1, "stuck_after": 0}, "--num_restarts needs --do_train and --stuck_af"),
        ({"num_seeds": 2, "do_eval": False}, "--num_seeds needs training with evaluations"),
        ({"num_seeds": 2, "export_dir": "x"}, "--export_dir: only for one run"),
    ],
)
def test_contradictions_of_fine_tuning_are_refused(changes, message):
    with pytest.raises(file_io.InputError, match=message):
        check("run_classifier", **changes)


def test_seeds_are_for_one_worker(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(file_io.InputError, match="--num_seeds is for one worker"):
        check("run_classifier", num_seeds=2)


def with_metric(name, task):
    return training.Schedule(metric_for_best=name).with_metric(task)


def test_the_metric_is_one_of_the_task():
    row = glue.get_task("MRPC")
    made = glue.make_task(row)
    chosen = with_metric("eval_loss", made)
    assert chosen.best_metric == "eval_loss"
    assert with_metric(None, made) is made
    with pytest.raises(
        file_io.InputError, match="--metric_for_best=f2: mrpc has .*, f1, .*macro_f1, "
    ):
        with_metric("f2", made)
    assert contracts.Task.__dataclass_fields__["metrics"].default == ()


def test_recipes_are_there():
    named = {run_classifier.find_recipe(row) for row in glue.TASKS}
    columns = tables.Columns()
    named.add(run_classifier.find_recipe(custom.CustomTask({}, columns, ("a", "b"))))
    assert len(named) == 9
    for path in named:
        assert (ROOT / path).exists(), path


def test_runs_get_what_the_flags_say():
    given = {"num_restarts": 2, "stuck_after": 0.1, "learning_rate": 5e-4}
    made = training.make_training(
        settings_of("run_classifier", **given), 100, 6, "recipes/glue_SST-2.flags"
    )
    judged = made.stuck
    assert (judged.stuck_after, judged.warmup_fraction, judged.num_restarts) == (0.1, 0.06, 2)
    for part in ("learning_rate=0.0005 with 6% of the steps", "recipes/glue_SST-2.flags"):
        assert part in judged.advice
    assert made.limits is None
    assert training.make_training(settings_of("run_pretraining"), 100, 6).stuck is None
    silent = settings_of("run_classifier", stuck_after=0)
    assert training.make_training(silent, 100, 6, "recipes/race.flags").stuck is None


@pytest.mark.parametrize("script", GIVEN)
def test_given_steps_bound_a_budget_and_defaults_do_not(script):
    length = {"run_pretraining": "num_train_steps", "run_squad_v1": "num_train_epochs"}
    for given, bound in (({}, None), ({length.get(script, "train_step"): 50}, 50)):
        settings = settings_of(script, budget_minutes=2, **given)
        found = training.make_training(settings, 50, 5).limits
        assert (found.minutes, found.max_steps) == (2.0, bound)


def test_the_share_of_the_warm_up_is_kept_within_a_budget():
    settings = settings_of("run_pretraining", budget_minutes=2, precision="bfloat16")
    found = training.make_training(settings, 1000, 100, poly_power=2.0).optimizer
    of_steps = optimizer_table.Settings(
        0.00176, 1000, 100, "lamb", poly_power=2.0, product_type="bfloat16"
    )
    assert found == of_steps
    fractions = found.in_fractions()
    assert (fractions.num_train_steps, fractions.num_warmup_steps) == (1, 0.1)


# --- seeds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", FINE_TUNING)
def test_each_seed_is_the_same_command(script, monkeypatch, capsys):
    """The script ends before it imports TensorFlow or looks at its data."""
    studies = []
    monkeypatch.setattr(
        seed_runs, "run", lambda study, *numbers: studies.append((study, numbers)) or "the table"
    )
    values = values_of(script, num_seeds=3, seed=7, learning_rate=1e-3, log_every_steps=5)
    importlib.import_module(f"albert.{script}").main(values)
    ((study, numbers),) = studies
    assert numbers == (7, 3)
    assert capsys.readouterr().out == ("the table\nNext:\n  python -m albert.report --runs=out\n")
    assert (study.folder, study.script) == ("out", script)
    expected = values_of(script, learning_rate=1e-3, log_every_steps=5)
    child = command_lines.parse(script, *study.arguments(8, "out/seed_8"))
    different = {name for name in child if repr(child[name].value) != repr(expected[name].value)}
    # The data is made once, in the folder of the study.
    data = {"cached_dir", "train_file", "eval_file", "predict_file"}
    data |= {"train_feature_file", "predict_feature_file", "predict_feature_left_file"}
    assert {"seed", "output_dir"} <= different <= {"seed", "output_dir"} | data
    assert len(different) > 2
    assert (child.seed, child.output_dir, child.num_seeds) == (8, "out/seed_8", 1)
    for name in different - {"seed", "output_dir"}:
        assert child[name].value.startswith("out/")


@pytest.mark.parametrize("status", [0, 3])
def test_a_run_is_a_process_of_its_own(status, tmp_path, monkeypatch):
    script = tmp_path / "program.py"
    script.write_text(f"import json, sys; json.dump(sys.argv, open('{tmp_path}/args', 'w'))\n"
                      f"sys.exit({status})\n")  # fmt: skip
    monkeypatch.setattr(sys, "executable", str(make_interpreter(tmp_path, script)))
    study = types.SimpleNamespace(script="run_race", arguments=lambda *given: [*map(str, given)])
    assert seed_runs.start(study, 4, "folder") == status
    found = json.loads((tmp_path / "args").read_text())
    assert found[1:] == ["-m", "albert.run_race", "4", "folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it")
def test_a_run_ends_with_the_program_that_started_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import os, sys, time\n"
                      f"open('{tmp_path}/running', 'w').write(str(os.getpid()))\n"
                      "time.sleep(60)\n")  # fmt: skip
    interpreter = make_interpreter(tmp_path, script)
    program = (
        f"import sys, types; sys.executable = {str(interpreter)!r}\n"
        "from albert.experiments import seed_runs\n"
        "study = types.SimpleNamespace(script='x', arguments=lambda *given: [])\n"
        "seed_runs.start(study, 1, '')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    running = tmp_path / "running"
    processes.wait_until(lambda: running.exists() and running.read_text(), parent)
    parent.kill()
    parent.wait()
    stat = pathlib.Path(f"/proc/{running.read_text()}/stat")

    def ended():
        return not stat.exists() or stat.read_text().split()[2] == "Z"

    processes.wait_until(ended, seconds=20)


def make_interpreter(folder, script):
    """A program that runs a script with the arguments it gets."""
    path = folder / "interpreter"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    path.chmod(0o755)
    return path


# --- metrics ------------------------------------------------------------------------------------


def rows_of(row):
    """Evaluation outputs of three examples."""
    kind = np.float32 if row.is_regression else np.int32
    labels = np.array([0, 1, 1], kind)
    return {
        "label_ids": labels, "predictions": labels, "per_example_loss": np.ones(3, np.float32),
        "is_real_example": np.ones(3, np.int32),
        "probabilities": np.full([3, max(len(row.labels), 1)], 0.5, np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("row", glue.TASKS, ids=lambda row: row.name)
def test_classifiers_have_the_metrics_that_they_name(row):
    made = glue.make_task(row)
    evaluator = made.evaluator()
    evaluator.update(rows_of(row))
    results = {name for name in evaluator.result() if not name.startswith("support_")}
    assert set(made.metrics) == results and made.best_metric in made.metrics


def test_other_tasks_have_the_metrics_that_they_name():
    from albert.tasks import pretraining, race
    from albert.tasks.squad import metrics as squad_metrics
    from albert.tasks.squad import task as squad_task

    made = race.make_task()
    evaluator = made.evaluator()
    levels = {"level": np.array([0, 1, 1])}
    evaluator.update({**rows_of(glue.get_task("MNLI")), **levels})
    assert set(made.metrics) == set(evaluator.result())
    for sentence in ("sop", "nsp", "none"):
        made = pretraining.make_task(sentence)
        kinds = [name.removesuffix("_loss") for name in made.metrics if name.endswith("_loss")]
        evaluator, parts = made.evaluator(), ("loss", "correct", "weight")
        evaluator.update({f"{kind}_{part}": np.ones(2) for kind in kinds for part in parts})
        assert set(made.metrics) == set(evaluator.result())
    question = {"id": "a", "answers": [{"text": "here"}]}
    dataset = [{"paragraphs": [{"qas": [question]}]}]
    settings = types.SimpleNamespace(max_seq_length=32)
    v1, v2 = (squad_task.make_task(kind, settings) for kind in squad_task.KINDS)
    assert set(v1.metrics) <= set(squad_metrics.evaluate_v1(dataset, {"a": "here"}))
    assert set(v2.metrics) <= set(squad_metrics.evaluate_v2(dataset, {"a": "here"}, {"a": 0.0}))
