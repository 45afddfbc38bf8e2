r"""Writes a model as a folder that Hugging Face's transformers loads.

Example:

    albert export_to_huggingface --model_dir=out/sst2 \
        --output_dir=out/sst2_huggingface
"""

import dataclasses

from absl import flags, logging

from albert.cli import app, card_settings, options, path_flags, text_flags
from albert.experiments import model_card
from albert.io import file_io
from albert.model import sources


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(text_flags.TextFlags):
    """The model to write, and the format."""

    model_dir: str | None = options.flag(
        None,
        "Folder of a training run (its best checkpoint, else its last) or a published model, such "
        "as albert_base_v2.",
        path=path_flags.MODEL,
    )
    checkpoint: str | None = options.flag(
        None,
        'Weights to write: "best" or "last" of --model_dir, or a path; by default the best, else '
        "the last.",
        path=path_flags.MODEL,
    )
    output_dir: str = options.flag(
        None,
        "Folder to write to.",
        required=True,
        path=path_flags.outputs(
            "/*.safetensors*", "/config.json", "/tokenizer*.json", "/vocab.txt", "/*.model"
        ),
    )
    head: str | None = options.flag(
        None,
        "Kind of model to write; by default the one that its folder or its variables show.",
        choices=(
            *("encoder", "pretraining", "masked_lm", "classification", "multi_label"),
            *("regression", "token_classification", "multiple_choice", "squad_v1"),
        ),
    )
    architecture: str | None = options.flag(
        None,
        "Classes of transformers that load the model; by default bert for a model whose embeddings "
        "have the hidden size and whose layers share nothing, else albert.",
        choices=("albert", "bert"),
    )
    weights: str = options.flag(
        "float32",
        "Number type of the stored weights: float16 takes half of the space.",
        choices=("float32", "float16"),
    )
    labels: tuple[str, ...] = options.flag(
        (), "Names of a classifier's labels by id, comma-separated; by default those of its folder."
    )
    albert_config_file: str | None = options.flag(
        None, "JSON file of the model's sizes; by default the one found.", path=path_flags.INPUT
    )
    spm_model_file: str | None = options.flag(
        None,
        "SentencePiece model; by default the one next to the checkpoint.",
        path=path_flags.INPUT,
    )
    vocab_file: str | None = options.flag(
        None,
        "WordPiece vocabulary; by default the one next to the checkpoint.",
        path=path_flags.INPUT,
    )
    card: card_settings.Card = options.group(card_settings.Card)

    def check(self) -> None:
        """Rejects a run without weights."""
        if not (self.model_dir or self.checkpoint):
            raise file_io.InputError("give --model_dir or --checkpoint")


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    from albert.export import huggingface_export

    # First, as the folder may be the same, whose weights are then replaced.
    prefix = huggingface_export.choose(settings.model_dir, settings.checkpoint)
    head = huggingface_export.export(
        model_dir=settings.model_dir,
        checkpoint=settings.checkpoint,
        output_dir=settings.output_dir,
        head=settings.head,
        labels=list(settings.labels),
        architecture=settings.architecture,
        weights_type=settings.weights,
        given=sources.Given(
            config_file=settings.albert_config_file,
            spm_model_file=settings.spm_model_file,
            vocab_file=settings.vocab_file,
            rules=settings.text_rules(),
        ),
    )
    form = model_card.transformers_form(head)
    model_card.write_for_checkpoint(settings.output_dir, prefix, form, **settings.card.facts())
    logging.info("Wrote %s (%s)", settings.output_dir, head)


if __name__ == "__main__":
    app.run(main, define_flags)
