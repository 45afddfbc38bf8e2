"""Writes a pre-trained model as a reusable SavedModel that fine-tuning can start from."""

import os

from absl import flags, logging

from albert.cli import app, common_flags, record_flags
from albert.io import file_io


def define_flags(flag_values):
    text, integer, _, switch = common_flags.definers(flag_values)
    text(
        "albert_directory",
        None,
        "Folder of the model: checkpoint, configuration, vocabulary. In a Hugging Face folder the "
        "checkpoint is model.safetensors.",
    )
    text("checkpoint_name", "model.ckpt-best", "Checkpoint in --albert_directory.")
    text("export_path", None, "Folder to make.")
    switch("do_lower_case", True, "What the module says of its texts: lower-case them or not.")
    switch("use_einsum", True, "Without effect: both ways of the reference give the same numbers.")
    text(
        "preprocessing_path",
        None,
        "Also make this folder: a SavedModel that turns strings into the module's inputs (needs "
        "tensorflow-text).",
    )
    integer("max_seq_length", 128, "Length of the inputs that --preprocessing_path makes.")
    record_flags.define_card_flags(flag_values)
    for name in ("albert_directory", "export_path"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def main(values):
    from albert.export import hub_export
    from albert.model import checkpoints, encoder, model_folder, pretraining_heads, sources

    common_flags.require_positive(values, "max_seq_length")

    if not values.use_einsum:
        logging.info("--nouse_einsum has no effect: both ways give the same numbers")
    source = sources.locate(
        checkpoint=os.path.join(values.albert_directory, values.checkpoint_name),
        do_lower_case=values.do_lower_case if values["do_lower_case"].present else None,
    )
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    task, *_ = model_folder.sentence_tasks(os.path.dirname(source.checkpoint), source.checkpoint)
    model = pretraining_heads.PretrainingModel(config, sentence_task=task)
    report = checkpoints.restore(model, source.checkpoint)
    if report.new:
        raise file_io.InputError(
            f"{source.checkpoint} lacks {report.new}: a hub module has the pre-training heads"
        )
    logging.info("%s", report)
    if task != "sop":
        head = "has no `sop`" if task == "none" else "answers in `sop` what follows a text"
        logging.info("The model was trained with --sentence_task=%s: the module %s", task, head)
    if values.preprocessing_path:
        common_flags.check_seq_length(values, config)
        path = values.preprocessing_path
        hub_export.export_preprocessing(tokenizer, values.max_seq_length, path)
    hub_export.export_module(model, source, values.export_path)
    record_flags.write_card(values, values.export_path, source.checkpoint, record_flags.HUB_MODULE)


if __name__ == "__main__":
    app.run(main, define_flags)
