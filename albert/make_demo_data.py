"""Writes a small made-up corpus, GLUE tasks and SQuAD questions about the same words."""

import os

from absl import flags, logging

from albert.cli import app
from albert.experiments import demo_data
from albert.io import file_io


def define_flags(flag_values):
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder for corpus/*.txt, glue/<task>/*.tsv and squad/*.json; files of these names are "
        "replaced.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed",
        12345,
        "Source of every choice: same seed, same files.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.mark_flag_as_required("output_dir", flag_values=flag_values)


def main(values):
    folders = {
        "corpus": demo_data.corpus(values.seed),
        "squad": demo_data.squad_files(values.seed),
    }
    for name in demo_data.TASKS:
        folders[os.path.join("glue", name)] = demo_data.task_files(name, values.seed)
    for folder, files in folders.items():
        path = os.path.join(values.output_dir, folder)
        file_io.make_dirs(path)
        ending = {"corpus": ".txt", "squad": ".json"}.get(folder, ".tsv")
        for name, text in files.items():
            file_io.write_text(os.path.join(path, name + ending), text)
            logging.info("%s%s: %d lines", os.path.join(path, name), ending, text.count("\n"))


if __name__ == "__main__":
    app.run(main, define_flags)
