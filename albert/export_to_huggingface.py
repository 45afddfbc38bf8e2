"""Writes a model as a folder that Hugging Face's transformers loads."""

from absl import flags, logging

from albert.cli import app, common_flags, record_flags
from albert.experiments import model_card
from albert.io import file_io


def define_flags(flag_values):
    text, _, _, switch = common_flags.definers(flag_values)
    text(
        "model_dir",
        None,
        "Folder of a training run, or of a released model: its best checkpoint, else its last.",
    )
    text(
        "checkpoint",
        None,
        'Weights, if others are meant: "best" or "last" of --model_dir, or a path.',
    )
    text("output_dir", None, "Folder to write to.")
    flags.DEFINE_enum(
        "head",
        None,
        [
            *("encoder", "pretraining", "masked_lm", "classification", "regression"),
            *("token_classification", "multiple_choice", "squad_v1"),
        ],
        "What the model is written as; by default what its folder or its variables tell.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "architecture",
        "albert",
        ["albert", "bert"],
        "Whose classes are to load it: bert for a model whose embeddings have the hidden size and "
        "whose layers share nothing.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "labels",
        [],
        "Names of a classifier's labels by id, comma-separated; by default those of its folder.",
        flag_values=flag_values,
    )
    text("albert_config_file", None, "JSON file of the model's sizes; by default the one found.")
    text("spm_model_file", None, "SentencePiece model; by default the one beside the checkpoint.")
    text("vocab_file", None, "WordPiece vocabulary; by default the one beside the checkpoint.")
    switch("do_lower_case", True, "Lower-case the text; by default what the folder says.")
    record_flags.define_card_flags(flag_values)
    flags.mark_flag_as_required("output_dir", flag_values=flag_values)


def main(values):
    if not (values.model_dir or values.checkpoint):
        raise file_io.InputError("give --model_dir or --checkpoint")
    from albert.export import huggingface_export

    # Before the folder, which may be the same one, gets other weights.
    prefix = huggingface_export.choose(values.model_dir, values.checkpoint)
    head = huggingface_export.export(
        model_dir=values.model_dir,
        checkpoint=values.checkpoint,
        output_dir=values.output_dir,
        head=values.head,
        labels=values.labels,
        architecture=values.architecture,
        config_file=values.albert_config_file,
        spm_model_file=values.spm_model_file,
        vocab_file=values.vocab_file,
        do_lower_case=values.do_lower_case if values["do_lower_case"].present else None,
    )
    record_flags.write_card(values, values.output_dir, prefix, model_card.transformers_form(head))
    logging.info("Wrote %s (%s)", values.output_dir, head)


if __name__ == "__main__":
    app.run(main, define_flags)
