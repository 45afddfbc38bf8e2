"""Makes the table of a sweep over GLUE tasks from the result files of its runs."""

import os

from absl import flags

from albert.cli import app
from albert.experiments import glue_table
from albert.io import file_io


def define_flags(flag_values):
    """Flags of this script."""
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder of the sweep: a folder of results for each task, and sweep.json. The table goes "
        "to results.md and results.json in here.",
        flag_values=flag_values,
    )
    flags.DEFINE_list("tasks", None, "Tasks, in the order of the rows.", flag_values=flag_values)
    for name in ("output_dir", "tasks"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def main(values):
    summary = glue_table.summarize(values.output_dir, values.tasks)
    table = glue_table.to_markdown(summary)
    file_io.write_text(os.path.join(values.output_dir, "results.md"), table)
    file_io.write_json(os.path.join(values.output_dir, glue_table.NAME), summary)
    print(table, end="")


if __name__ == "__main__":
    app.run(main, define_flags)
