r"""Writes a checkpoint without optimizer state, with configuration and vocabulary next to it.

Example:

    albert export_checkpoints --albert_directory=out/pretraining \
        --export_path=out/model/
"""

import dataclasses
import os

from absl import flags, logging

from albert.cli import app, card_settings, options, path_flags, text_flags
from albert.experiments import model_card
from albert.io import file_io

FORM = model_card.ExportFormat(
    "tensorflow",
    "A TensorFlow checkpoint: give this folder as `--init_checkpoint` to a training script of the "
    "ALBERT toolkit, or its prefix to `tf.train.load_checkpoint`.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(text_flags.TextFlags):
    """The checkpoint, and the folder of its copy."""

    albert_directory: str = options.flag(
        None,
        "Folder of the checkpoint, with its configuration and vocabulary if they exist; or a "
        "published model, such as albert_base_v2.",
        required=True,
        path=path_flags.MODEL,
    )
    checkpoint_name: str = options.flag("model.ckpt-best", "Checkpoint in --albert_directory.")
    export_path: str = options.flag(
        None,
        "Prefix of the new checkpoint. If it ends in / it is a folder, and the checkpoint keeps "
        "its name (model.ckpt-best for weights of Hugging Face).",
        required=True,
        path=path_flags.outputs("", ".index", ".data-*", "/*.index"),
    )
    card: card_settings.Card = options.group(card_settings.Card)


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    from albert.model import checkpoints, huggingface, model_folder, pooling, published, sources

    folder = published.local_path(settings.albert_directory)
    source = os.path.join(folder, settings.checkpoint_name)
    prefix, target = checkpoints.resolve(source), settings.export_path
    if target.endswith("/") or file_io.is_dir(target):
        is_huggingface = huggingface.is_weights_file(prefix)
        name = checkpoints.BEST if is_huggingface else settings.checkpoint_name
        target = os.path.join(target, name)
    if huggingface.is_weights_file(target):
        raise file_io.InputError(
            f"--export_path={settings.export_path}: the prefix of a TensorFlow checkpoint must not "
            "have the name of Hugging Face weights; give a prefix such as model.ckpt-best"
        )
    if os.path.abspath(target) == os.path.abspath(prefix):
        raise file_io.InputError(f"--export_path={settings.export_path} is the checkpoint itself")
    given, beside = settings.text_rules(), os.path.dirname(prefix)
    is_described = file_io.exists(os.path.join(beside, sources.DESCRIPTION_NAME))
    if given and is_described:
        raise file_io.InputError(
            f"--{next(iter(given))}: {sources.DESCRIPTION_NAME} next to the checkpoint says how "
            "its texts become pieces; leave the flag out"
        )
    rules = model_folder.checked_rules(prefix, given)
    model_folder.warn_of_decision(model_folder.described_decision(beside), prefix)
    folder, name = os.path.dirname(target) or ".", os.path.basename(target)
    with file_io.atomic_folder(folder, last=f"{name}.index") as new:
        checkpoints.write_tensors(os.path.join(new, name), checkpoints.read_tensors(prefix))
        for path in sources.files_beside(prefix):
            file_io.copy(path, os.path.join(new, os.path.basename(path)))
        if rules and not is_described:
            model_folder.write_rules(new, rules)
        length_files = {x: os.path.join(beside, x) for x in huggingface.length_files(beside)}
        for place, path in (pooling.files(beside) | length_files).items():
            file_io.make_dirs(os.path.dirname(os.path.join(new, place)))
            file_io.copy(path, os.path.join(new, place))
    model_card.write_for_checkpoint(folder, prefix, FORM, **settings.card.facts())
    logging.info("Wrote %s", target)


if __name__ == "__main__":
    app.run(main, define_flags)
