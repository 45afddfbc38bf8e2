"""Writes a pre-trained model as a reusable SavedModel that fine-tuning can start from.

Example:

    albert export_to_tfhub --albert_directory=out/pretraining --export_path=out/module
"""

import dataclasses
import os
from typing import TYPE_CHECKING

from absl import flags, logging

from albert.cli import app, card_settings, model_settings, options, path_flags, text_flags
from albert.experiments import model_card
from albert.io import file_io
from albert.model import configuration, model_folder, sources

if TYPE_CHECKING:
    from albert.model.pretraining_heads import PretrainingModel

FORM = model_card.ExportFormat(
    "tensorflow",
    'A SavedModel: `tf.saved_model.load("…")`, `hub.KerasLayer("…")`, or '
    "`--albert_hub_module_handle` of the ALBERT toolkit.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(text_flags.TextFlags):
    """The model, and the folders to write."""

    albert_directory: str = options.flag(
        None,
        "Folder of the model (checkpoint, configuration and vocabulary; in a Hugging Face folder "
        "the checkpoint is model.safetensors), or a published model, such as albert_base_v2.",
        required=True,
        path=path_flags.MODEL,
    )
    checkpoint_name: str = options.flag("model.ckpt-best", "Checkpoint in --albert_directory.")
    export_path: str = options.flag(None, "Folder to make.", required=True, path=path_flags.FOLDER)
    use_einsum: bool = options.flag(
        True, "No effect: both computations of the reference give the same numbers."
    )
    preprocessing_path: str | None = options.flag(
        None,
        "Also make this folder: a SavedModel that turns strings into the module's inputs (needs "
        "tensorflow-text).",
        path=path_flags.FOLDER,
    )
    max_seq_length: int = options.count(
        128, "Length of the inputs that --preprocessing_path makes."
    )
    card: card_settings.Card = options.group(card_settings.Card)

    def check(self) -> None:
        """Rejects a flag without effect."""
        if "max_seq_length" in self.given and not self.preprocessing_path:
            raise file_io.InputError(
                "--max_seq_length is for --preprocessing_path: give both or leave it out"
            )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def read_model(checkpoint: str, config: configuration.AlbertConfig) -> "PretrainingModel":
    """Returns the pre-trained model of a checkpoint's prefix; it must have a pre-training head."""
    from albert.model import checkpoints, pretraining_heads

    task, *_ = model_folder.sentence_tasks(os.path.dirname(checkpoint), checkpoint)
    model = pretraining_heads.PretrainingModel(config, sentence_task=task)
    report = checkpoints.restore(model, checkpoint, allow_new_heads=False)
    if report.new:  # the pooler of a model without a sentence task
        raise file_io.InputError(
            f"{checkpoint} lacks {report.new}: a hub module has the pre-training heads"
        )
    logging.info("%s", report)
    if task != "sop":
        head = "has no `sop`" if task == "none" else "answers in `sop` what follows a text"
        logging.info("The model was trained with --sentence_task=%s: the module %s", task, head)
    return model


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    from albert.export import hub_export
    from albert.model import encoder, published

    if not settings.use_einsum:
        logging.info("--nouse_einsum has no effect: both computations give the same numbers")
    folder = published.local_path(settings.albert_directory)
    checkpoint = os.path.join(folder, settings.checkpoint_name)
    source = sources.locate(sources.Given(rules=settings.text_rules()), checkpoint=checkpoint)
    hub_export.check(source, *filter(None, (settings.export_path, settings.preprocessing_path)))
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    model = read_model(source.checkpoint or checkpoint, config)
    if path := settings.preprocessing_path:
        model_settings.check_seq_length(settings.max_seq_length, config)
        hub_export.export_preprocessing(tokenizer, settings.max_seq_length, path)
    hub_export.export_module(model, source, settings.export_path)
    facts = settings.card.facts()
    model_card.write_for_checkpoint(
        settings.export_path, source.checkpoint or checkpoint, FORM, **facts
    )


if __name__ == "__main__":
    app.run(main, define_flags)
