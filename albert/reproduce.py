"""Repeats the run that a folder describes, and compares the results.

Exit status: 0 if they are equal, 1 if they differ.

Example:

    albert reproduce --run=out/sst2 --output_dir=out/sst2_again
"""

import dataclasses
import os
import sys
from typing import Any

from absl import flags, logging

from albert.cli import app, command_flags, options, path_flags
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The run, and the folder of its repetition."""

    run: str = options.flag(
        None, "Output folder of the run, with its run.json.", required=True, path=path_flags.FOLDER
    )
    output_dir: str = options.flag(
        None, "New folder for the repetition.", required=True, path=path_flags.FOLDER
    )
    accept_changed_inputs: bool = options.flag(
        False,
        "Continue if data, vocabulary, configuration or first weights are no longer those of the "
        "run.",
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def check_inputs(settings: Settings, record: dict[str, Any]) -> None:
    """Rejects inputs that have changed since a run was recorded, unless the flags accept them."""
    from albert.experiments import reproduction

    changed = reproduction.changed_inputs(record)
    for text in changed:
        logging.warning("Changed input: %s", text)
    if changed and not settings.accept_changed_inputs:
        raise file_io.InputError(
            f"{len(changed)} input(s) of {settings.run} have changed: {'; '.join(changed)}. "
            "--accept_changed_inputs continues nevertheless"
        )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    from albert.experiments import reproduction
    from albert.training import run_record

    record = run_record.read(settings.run)
    reproduction.trained(record)
    output_dir = os.path.abspath(settings.output_dir)
    if file_io.is_dir(output_dir) and file_io.listdir(output_dir):
        raise file_io.InputError(f"--output_dir={settings.output_dir} is not empty; name a new one")
    check_inputs(settings, record)
    words = reproduction.command(record, output_dir, command_flags.changed_defaults(record))
    reproduction.repeat_schedule(record, settings.run, output_dir)
    logging.info("Running %s", " ".join(words))
    reproduction.run(words, record["directory"])
    equal, different, circumstances = reproduction.compare(settings.run, output_dir)
    for title, lines in (
        ("equal", equal),
        ("different", different),
        ("not the same around them", circumstances),
    ):
        for line in lines:
            print(f"{title}: {line}")
    if different:
        sys.exit(1)
    if not equal:
        raise file_io.InputError("neither run has metrics or results: nothing was compared")


if __name__ == "__main__":
    app.run(main, define_flags)
