"""Writes a small made-up corpus and GLUE tasks about the same words, to try the tools on."""

import os

from absl import flags, logging

from albert import common_flags, demo_data, file_io


def define_flags(flag_values):
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder for corpus/*.txt and glue/<task>/*.tsv; files of these names are replaced.",
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
    folders = {"corpus": demo_data.corpus(values.seed)}
    for name in demo_data.TASKS:
        folders[os.path.join("glue", name)] = demo_data.task_files(name, values.seed)
    for folder, files in folders.items():
        path = os.path.join(values.output_dir, folder)
        file_io.make_dirs(path)
        ending = ".txt" if folder == "corpus" else ".tsv"
        for name, text in files.items():
            file_io.write_text(os.path.join(path, name + ending), text)
            logging.info("%s%s: %d lines", os.path.join(path, name), ending, text.count("\n"))


if __name__ == "__main__":
    common_flags.run(main, define_flags)
