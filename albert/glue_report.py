"""Makes the table of a sweep over GLUE tasks from the result files of its runs."""

import os

from absl import flags

from albert import classifier_utils, command_line, file_io, results

DONE, NOT_RUN = "done", "not run"
_COLUMNS = ("task", "metric", "best step", "score", "state")


def define_flags(flag_values):
    """Flags of this script."""
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder of the sweep: a folder of results for each task, and logs/<task>.status. The "
        "table goes to results.md and results.json in here.",
        flag_values=flag_values,
    )
    flags.DEFINE_list("tasks", None, "Tasks, in the order of the rows.", flag_values=flag_values)
    for name in ("output_dir", "tasks"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def read_metrics(folder, step):
    """All metrics that ``eval_results.txt`` of a folder holds for a step; {} if it has none.

    Raises:
      file_io.InputError: a value in it is not a number.
    """
    for block in results.read_blocks(folder):
        if block.step == step:
            return {k: v for k, v in block.values.items() if k not in ("best", "global_step")}
    return {}


def read_task(sweep_dir, name):
    """The row of one task.

    Args:
      sweep_dir: folder of the sweep.
      name: task as it was given to the sweep; also the name of its folder.

    Returns:
      dict: task, metric, state; best_step and score (None without an evaluation); metrics.

    Raises:
      file_io.InputError: ``best_trial.txt`` is not what `run_classifier` writes.
    """
    row = {"task": name, "best_step": None, "score": None, "metrics": {}}
    try:
        row["metric"] = classifier_utils.get_task(name).best_metric
    except file_io.InputError:
        row["metric"] = None  # its own run has failed and says why
    status = os.path.join(sweep_dir, "logs", f"{name}.status")
    row["state"] = file_io.read_text(status, "status").strip() if file_io.exists(status) else ""
    row["state"] = row["state"] or NOT_RUN
    folder = os.path.join(sweep_dir, name)
    trial = results.read_trial(folder) if row["state"] != NOT_RUN else None
    if trial:
        row["best_step"], row["score"] = trial.best_step, trial.best_value
        row["metrics"] = read_metrics(folder, trial.best_step)
    return row


def summarize(sweep_dir, names):
    """Rows of the tasks and the mean score of those that are done.

    Returns:
      dict: tasks (list of `read_task`), average (None if no task is done), num_averaged.
    """
    rows = [read_task(sweep_dir, name) for name in names]
    scores = [row["score"] for row in rows if row["state"] == DONE and row["score"] is not None]
    average = sum(scores) / len(scores) if scores else None
    return {"tasks": rows, "average": average, "num_averaged": len(scores)}


def to_markdown(summary):
    """The summary as a table; aligned, so that it can be read as it is."""
    number = lambda value: "-" if value is None else f"{value:.4f}"  # noqa: E731
    cells = [
        [
            row["task"],
            row["metric"] or "-",
            "-" if row["best_step"] is None else str(row["best_step"]),
            number(row["score"]),
            row["state"],
        ]
        for row in summary["tasks"]
    ]
    done = f"{summary['num_averaged']} of {len(cells)} tasks"
    cells.append(["average", "", "", number(summary["average"]), done])
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *cells, strict=True)]
    lines = [_COLUMNS, ["-" * width for width in widths], *cells]
    return "".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |\n"
        for line in lines
    )


def main(values):
    summary = summarize(values.output_dir, values.tasks)
    table = to_markdown(summary)
    file_io.write_text(os.path.join(values.output_dir, "results.md"), table)
    file_io.write_json(os.path.join(values.output_dir, "results.json"), summary)
    print(table, end="")


if __name__ == "__main__":
    command_line.run(main, define_flags)
