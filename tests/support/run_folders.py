"""Output folders of runs and sweeps as the scripts leave them, made without any training."""

import contextlib
import json
import math
import random

from albert.experiments import seed_runs as study
from albert.experiments import sweep_journal, sweep_plan
from albert.training import run_record, run_session


def make_run(folder, script="run_classifier", task="custom", metric="eval_accuracy", **settings):
    """Writes ``run.json`` and ``metrics.jsonl`` of a run with ten steps and two evaluations.

    Args:
      folder: path, made here.
      script, task, metric: of the run.
      **settings: flags; ``seed`` moves the scores, ``data`` names the data to predict; ``baseline``
        and ``test`` are scores of a constant answer and on test data; ``cost`` is what training has
        cost, see `run_record.Cost`.
    """
    folder.mkdir(parents=True)
    cost = settings.pop("cost", None)
    data, baseline, test = (settings.pop(name, None) for name in ("data", "baseline", "test"))
    flags = {"task_name": task, "learning_rate": 0.001, "seed": 1, **settings}
    recorder = run_session.Recorder(
        script=script,
        command=["python", "-m", f"albert.{script}", "--text_column=a b"],
        flags={n: {"value": v, "source": "command line"} for n, v in flags.items()},
        inputs={"predict_data": (str(data), [str(data)])} if data else {},
    )
    path, shift = str(folder), 0.01 * flags["seed"]
    with recorder.session(path, ["train", "eval", "predict"], {}):
        run_record.set_model(path, task, metric, 1000, 500)
        run_record.start_training(path, 0)
        for step in range(1, 11):
            rows = {"loss": 1 / step + shift, "accuracy": 0.5, "learning_rate": 0.01 / step}
            rows |= {"gradient_norm": 5.0**-step, "examples_per_second": 30.0 + step}
            run_record.append_training(path, step, step / 2, rows)
        for step in (5, 10):
            scores = {metric: 0.5 + step / 40 + shift, "eval_loss": 1.5 / step}
            run_record.append_evaluation(path, step, f"{path}/model.ckpt-{step}", scores)
        run_record.set_result(path, step, scores)
        if cost is not None:
            run_record.add_cost(path, cost)
        if baseline is not None:
            run_record.set_evaluated(path, 2, {metric: baseline})
        if test is not None:
            run_record.set_test(path, f"{path}/model.ckpt-{step}", step, {metric: test})
    return folder


def make_seeds(folder, seeds=(1, 2, 3), **settings):
    """Writes ``seeds.json`` and the folders of runs over seeds, which have all ended.

    Args:
      folder: path, made here.
      seeds: seeds of the runs.
      **settings: see `make_run`; ``scores`` are those of the runs.
    """
    scores, runs = settings.pop("scores", None), []
    for place, seed in enumerate(seeds):
        run = make_run(folder / f"seed_{seed}", seed=seed, **settings)
        record = run_record.read(str(run))
        if scores:
            value = {record["best_metric"]: scores[place]}
            run_record.update(str(run), lambda record, value=value: record["result"].update(value))
            record = run_record.read(str(run))
        runs.append(
            {
                "seed": seed, "folder": f"seed_{seed}", "status": study.FINISHED, "restarts": 0,
                "result": record["result"][record["best_metric"]], "step": 10,
            }
        )  # fmt: skip
    write_json(folder / study.SEEDS, study.summarize(record["best_metric"], runs))
    return folder


def write_curves(run, num_lines, shift=0.0):
    """Replaces the lines of training by many noisy ones, and keeps the evaluations."""
    path, noise = run / "metrics.jsonl", random.Random(shift)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    evaluations = [row for row in rows if row["kind"] == "eval"]
    lines = [
        {
            "kind": "train", "step": step, "seconds": step / 2,
            "loss": 0.7 * math.exp(-step / num_lines) + shift + 0.05 * noise.random(),
            "accuracy": 0.5, "learning_rate": 1e-3 * (1 - step / num_lines),
            "gradient_norm": 1 + noise.random(), "examples_per_second": 30 + noise.random(),
        }
        for step in range(1, num_lines + 1)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*lines, *evaluations]))


def grow_run(folder, status=run_record.DONE, **settings):
    """Trains a run of `make_run` for one more step; with another status it is left or fails.

    Args:
      folder: path of the run.
      status: what its record says afterwards.
      **settings: flags that change.
    """
    path, record = str(folder), run_record.read(str(folder))
    flags = record["flags"] | {
        name: {"value": value, "source": "command line"} for name, value in settings.items()
    }
    recorder = run_session.Recorder(record["script"], record["command"], flags, {})
    scores = {record["best_metric"]: 0.9, "eval_loss": 0.1}
    with contextlib.suppress(RuntimeError), recorder.session(path, ["train", "eval"], {}):
        run_record.start_training(path, 10)
        run_record.append_training(path, 11, 0.5, {"loss": 0.05})
        run_record.append_evaluation(path, 11, f"{path}/model.ckpt-11", scores)
        run_record.set_result(path, 11, scores)
        if status == run_record.FAILED:
            raise RuntimeError("out of memory")
    if status == run_record.RUNNING:
        run_record.update(path, lambda record: record.update(status=status, ended=None))
    return folder


def make_sweep(folder, parameters, score, seeds=(), cost=None, **spec):
    """Writes the journal and the folders of a grid whose trials have all ended.

    Args:
      folder: path.
      parameters: {name: list of values}.
      score: function of a point and a seed; None: the trial failed.
      seeds: of each point.
      cost: what each run has cost, see `make_run`.
      **spec: further keys of the specification.
    """
    fields = {"script": "run_classifier", "parameters": parameters, "seeds": list(seeds), **spec}
    plan = sweep_plan.make_plan(fields)
    folder.mkdir(parents=True)
    journal = sweep_journal.Journal(str(folder), {**plan.describe(), "settings": {"task": "x"}})
    for point in sweep_plan.points(plan):
        for seed in seeds or (None,):
            number = len(journal.trials)
            value = score(point, seed)
            journal.trials.append(
                sweep_journal.Trial(
                    number, f"trial_{number:04d}", [], point, seed,
                    state=sweep_journal.DONE if value is not None else sweep_journal.FAILED,
                    value=value, step=10, metrics={"eval_accuracy": value},
                    error=[] if value is not None else ["error: <out> of memory"],
                )
            )  # fmt: skip
            name = folder / f"trial_{number:04d}"
            if value is not None:
                own = {k: v for k, v in point.items() if k != "seed"}
                make_run(name, seed=seed or 1, cost=cost, **own)
    journal.write()
    return folder


def write_json(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path
