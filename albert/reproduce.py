"""Runs again what the folder of a run describes, and compares the results.

Exit status: 0 if they are equal, 1 if they differ.
"""

import os
import sys

from absl import flags, logging

from albert.cli import app, common_flags, record_flags
from albert.io import file_io


def define_flags(flag_values):
    text, _, _, switch = common_flags.definers(flag_values)
    text("run", None, "Output folder of the run, with its run.json.")
    text("output_dir", None, "New folder for the repetition.")
    switch(
        "accept_changed_inputs",
        False,
        "Go on where data, vocabulary, configuration or first weights are no longer those of the "
        "run.",
    )
    for name in ("run", "output_dir"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def check_inputs(values, record):
    """Refuses inputs that have changed, unless the flags accept them."""
    from albert.experiments import reproduction

    changed = reproduction.changed_inputs(record)
    for text in changed:
        logging.warning("Changed input: %s", text)
    if changed and not values.accept_changed_inputs:
        raise file_io.InputError(
            f"{len(changed)} input(s) of {values.run} have changed: {'; '.join(changed)}. "
            "--accept_changed_inputs goes on all the same"
        )


def main(values):
    from albert.experiments import reproduction
    from albert.training import run_record

    record = run_record.read(values.run)
    reproduction.trained(record)
    output_dir = os.path.abspath(values.output_dir)
    if file_io.is_dir(output_dir) and file_io.listdir(output_dir):
        raise file_io.InputError(f"--output_dir={values.output_dir} is not empty; name a new one")
    check_inputs(values, record)
    words = reproduction.command(record, output_dir, record_flags.changed_defaults(record))
    reproduction.repeat_schedule(record, values.run, output_dir)
    logging.info("Running %s", " ".join(words))
    reproduction.run(words, record["directory"])
    equal, different, circumstances = reproduction.compare(values.run, output_dir)
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
