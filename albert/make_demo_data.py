"""Writes a small made-up corpus, GLUE tasks and SQuAD questions about the same words.

Example:

    albert make_demo_data --output_dir=demo
"""

import dataclasses
import os

from absl import flags, logging

from albert.cli import app, options, path_flags
from albert.experiments import demo_data
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The output folder and the random seed."""

    output_dir: str = options.flag(
        None,
        "Folder for corpus/*.txt, glue/<task>/*.tsv and squad/*.json; files of these names are "
        "replaced.",
        required=True,
        path=path_flags.FOLDER,
    )
    seed: int = options.flag(12345, "Source of every choice: same seed, same files.", minimum=0)


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    folders = {
        "corpus": demo_data.corpus(settings.seed),
        "squad": demo_data.squad_files(settings.seed),
    }
    for name in demo_data.TASKS:
        folders[os.path.join("glue", name)] = demo_data.task_files(name, settings.seed)
    for folder, files in folders.items():
        path = os.path.join(settings.output_dir, folder)
        file_io.make_dirs(path)
        ending = {"corpus": ".txt", "squad": ".json"}.get(folder, ".tsv")
        for name, text in files.items():
            file_io.write_text(os.path.join(path, name + ending), text)
            logging.info("%s%s: %d lines", os.path.join(path, name), ending, text.count("\n"))


if __name__ == "__main__":
    app.run(main, define_flags)
