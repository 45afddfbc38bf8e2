"""Folders of runs over seeds with scores and predictions, made without any training."""

import json

from albert.training import run_record
from tests.support import run_folders

ANSWERS = ("no", "yes")


def write_data(path, count=60):
    """Writes labeled rows; every third one is "no"."""
    rows = [f"text {i}\t{ANSWERS[bool(i % 3)]}" for i in range(count)]
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return path


def write_predictions(path, wrong, count=60):
    """Writes predictions for `write_data`, which are right except for the rows in `wrong`."""
    rows = ["id\tprediction\tprobability_no\tprobability_yes"]
    for i in range(count):
        answer = ANSWERS[bool(i % 3) != (i in wrong)]
        rows.append(f"{i}\t{answer}\t0.5\t0.5")
    path.write_text("\n".join(rows) + "\n")


def make_run(folder, score, seed=1, data=None, wrong=None, cost=None, **settings):
    """Makes a run with a score; with `wrong` it keeps predictions of the file `data`."""
    columns = {"text_column": "text", "label_column": "label"}
    run_folders.make_run(folder, seed=seed, data=data, **columns, **settings)

    def change(record):
        record["result"] = {"step": 10, "eval_accuracy": score, "eval_loss": 1 - score}
        if cost:
            record["cost"] = cost

    run_record.update(str(folder), change)
    if wrong is not None:
        write_predictions(folder / "predictions.tsv", wrong)
    return folder


def make_seeds(folder, scores, data=None, wrong=None, lost=None, **settings):
    """Makes runs over seeds.

    Args:
      folder: path.
      scores: {seed: score}.
      data, settings: see `make_run`.
      wrong: {seed: wrong rows}; None: no predictions are kept.
      lost: {seed: status} of runs that are not finished: "failed" ones leave no folder.
    """
    runs = []
    for seed, score in scores.items():
        name, status = f"seed_{seed}", (lost or {}).get(seed, "finished")
        if status != "failed":
            rows = wrong and wrong[seed]
            make_run(folder / name, score, seed, data, rows, **settings)
        runs.append(
            {
                "seed": seed, "folder": name, "status": status, "restarts": 0,
                "result": None if status == "failed" else score, "step": 10,
            }
        )  # fmt: skip
    content = {"metric": "eval_accuracy", "mean": None, "deviation": None, "runs": runs}
    (folder / "seeds.json").write_text(json.dumps(content))
    return folder
