"""Makes the table of a sweep over GLUE tasks from the result files of its runs.

Example:

    albert glue_report --output_dir=out/glue --tasks=RTE,SST-2,MNLI
"""

import dataclasses
import os

from absl import flags

from albert.cli import app, options, path_flags
from albert.experiments import glue_table
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The sweep and the rows of its table."""

    output_dir: str = options.flag(
        None,
        "Folder of the sweep: a folder of results for each task, and sweep.json. The table is "
        "written to results.md and results.json in this folder.",
        required=True,
        path=path_flags.FOLDER,
    )
    tasks: tuple[str, ...] = options.flag(None, "Tasks, in the order of the rows.", required=True)
    baseline: str | None = options.flag(
        None,
        "Folder of another sweep over GLUE tasks: the table gets the probability that a run of "
        "--output_dir is better than a run of --baseline. Both sweeps need several seeds.",
        path=path_flags.FOLDER,
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    summary = glue_table.summarize(settings.output_dir, settings.tasks, settings.baseline)
    table = glue_table.to_markdown(summary)
    file_io.write_text(os.path.join(settings.output_dir, "results.md"), table)
    file_io.write_json(os.path.join(settings.output_dir, glue_table.NAME), summary)
    print(table, end="")


if __name__ == "__main__":
    app.run(main, define_flags)
