"""Copies finished runs and sweeps to experiment trackers; their folders remain the master copy.

Example:

    albert export_runs --runs='out/sweep/*' --to=csv --output=out/tables
"""

import dataclasses
import re

from absl import flags

from albert.cli import app, options, path_flags
from albert.experiments import exported_runs, trackers
from albert.experiments.runs import find_folders
from albert.io import file_io


def _is_project(name: str, value: str) -> None:
    """Checks that the value of flag `name` is a name that all trackers take."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value):
        raise file_io.InputError(
            f"--{name}={value} must have 1 to 64 letters of a to z, digits, '_' and '-'"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The runs to export, and the tracker that gets them."""

    runs: tuple[str, ...] = options.flag(
        None,
        "Output folders of runs, of runs over seeds and of sweeps; globs are allowed.",
        required=True,
        path=path_flags.RUNS,
    )
    to: str = options.flag(
        None, "The tracker to write to.", choices=tuple(trackers.TRACKERS), required=True
    )
    output: str = options.flag(
        None,
        "Folder to write to, new or of an earlier export; for mlflow the file of an SQLite "
        "database or the URI of a tracking server.",
        required=True,
        path=path_flags.OUTPUT,
    )
    project: str | None = options.flag(
        None,
        f"Experiment of MLflow, or project of wandb and trackio; by default {trackers.PROJECT}.",
        check=_is_project,
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    if settings.to not in trackers.WITH_PROJECT:
        settings.refuse_given(f"--to={', '.join(trackers.WITH_PROJECT)}", "project")
    runs, missing = exported_runs.read(find_folders(settings.runs))
    project = settings.project or trackers.PROJECT
    counts = trackers.export(runs, settings.to, settings.output, project)
    if missing:
        print(f"Skipped, as they left no record: {', '.join(missing)}")
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    print(f"{len(runs)} runs in {settings.output}: {text}")


if __name__ == "__main__":
    app.run(main, define_flags)
