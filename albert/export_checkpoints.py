"""Writes a checkpoint without optimizer state, with configuration and vocabulary beside it."""

import os

from absl import flags, logging

from albert.cli import app, common_flags, record_flags
from albert.io import file_io


def define_flags(flag_values):
    text, _, _, switch = common_flags.definers(flag_values)
    text(
        "albert_directory",
        None,
        "Folder of the checkpoint, and of configuration and vocabulary where they are known.",
    )
    text("checkpoint_name", "model.ckpt-best", "Checkpoint in --albert_directory.")
    text(
        "export_path",
        None,
        "Prefix of the new checkpoint; a name that ends in / is a folder for one of the same name.",
    )
    switch("do_lower_case", True, "Without effect: a checkpoint does not know of its texts.")
    record_flags.define_card_flags(flag_values)
    for name in ("albert_directory", "export_path"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def main(values):
    from albert.model import checkpoints, sources

    if not values.do_lower_case:
        logging.info("A checkpoint does not say --nodo_lower_case; give it where text is read")
    prefix = checkpoints.resolve(os.path.join(values.albert_directory, values.checkpoint_name))
    target = values.export_path
    if target.endswith("/") or file_io.is_dir(target):
        target = os.path.join(target, values.checkpoint_name)
    if os.path.abspath(target) == os.path.abspath(prefix):
        raise file_io.InputError(f"--export_path={values.export_path} is the checkpoint itself")
    folder = os.path.dirname(target) or "."
    file_io.make_dirs(folder)
    checkpoints.write_tensors(target, checkpoints.read_tensors(prefix))
    for path in sources.files_beside(prefix):
        copy = os.path.join(folder, os.path.basename(path))
        if os.path.abspath(copy) != os.path.abspath(path):
            file_io.copy(path, copy)
            logging.info("Copied %s", copy)
    record_flags.write_card(values, folder, prefix, record_flags.CHECKPOINT)
    logging.info("Wrote %s", target)


if __name__ == "__main__":
    app.run(main, define_flags)
