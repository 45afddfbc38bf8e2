r"""Fills the [MASK] of texts with the most probable words, by a pre-trained model.

Example:

    albert fill_mask --model_dir=albert_base_v2 \
        --text='The capital of France is [MASK].'
"""

import dataclasses
from typing import TYPE_CHECKING

from absl import flags, logging

from albert.cli import app, model_settings, options, path_flags
from albert.io import file_io, tables

if TYPE_CHECKING:
    from albert.model import sources


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The model, the texts, and the answers to write."""

    model_dir: str | None = options.flag(
        None,
        "Model with a head for masked words: folder of run_pretraining, a published or a Hugging "
        "Face model, or the name of a published one. Short for --init_checkpoint.",
        path=path_flags.MODEL,
    )
    model: model_settings.ModelFiles = options.group(model_settings.ModelFiles)
    text: tuple[str, ...] = options.flag(
        (), "Text with [MASK] in the place of a word; may be given several times.", repeated=True
    )
    input_file: str | None = options.flag(
        None,
        "Texts: .txt (one per line) or .jsonl (objects with the key text).",
        path=path_flags.INPUT,
    )
    output_file: str | None = options.flag(
        None, "Answers, .jsonl; by default they are printed for readers.", path=path_flags.OUTPUT
    )
    top_k: int = options.count(5, "Number of answers to each [MASK].")
    batch_size: int = options.count(32, "Texts computed together.")

    def check(self) -> None:
        """Rejects missing and contradictory flags."""
        if bool(self.text) == bool(self.input_file):
            raise file_io.InputError(
                "give either --text='The capital of France is [MASK].' or --input_file"
            )
        if self.output_file:
            tables.format_of(self.output_file, ("jsonl",))
            file_io.check_folder_of(self.output_file, "--output_file")
        if not (self.model_dir or self.model.names_weights):
            raise file_io.InputError("no model: give --model_dir, such as albert_base_v2")
        if self.model_dir and self.model.names_weights:
            raise file_io.InputError(
                "--model_dir contradicts --init_checkpoint and --albert_hub_module_handle: give "
                "one of them"
            )

    def find(self) -> "sources.Source":
        """Returns the files of the model."""
        if not self.model_dir:
            return self.model.find()
        return dataclasses.replace(self.model, init_checkpoint=self.model_dir).find()

    def read_texts(self) -> list[tuple[str, str]]:
        """Returns the texts, each after its place for messages."""
        if not self.input_file:
            return [("--text", text) for text in self.text]
        form = tables.format_of(self.input_file, ("txt", "jsonl"))
        with file_io.open_input(self.input_file, "--input_file", "rb") as lines:
            return [
                (place, tables.text_of(row, "text", "key of the text", place))
                for place, row in tables.read_rows(lines, self.input_file, form, tables.Columns())
            ]


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    rows = settings.read_texts()
    from albert.serving import masked_words

    model = masked_words.MaskedWords.load(settings.find())
    encoded = []
    for place, text in rows:
        try:
            encoded.append(model.encode(text))
        except file_io.InputError as error:
            raise file_io.InputError(f"{place}: {error}") from error
    fills = model.fill_all(encoded, settings.top_k, settings.batch_size)
    texts = (text for _, text in rows)
    if not settings.output_file:
        for text, answers in zip(texts, fills, strict=True):
            print("\n".join(masked_words.describe(text, answers)), flush=True)
        return
    with file_io.atomic_writer(settings.output_file) as file:
        for number, (text, answers) in enumerate(zip(texts, fills, strict=True)):
            file.write(tables.json_line(masked_words.to_dict(number, text, answers)))
    logging.info("Wrote the answers to %d texts to %s", len(rows), settings.output_file)


if __name__ == "__main__":
    app.run(main, define_flags)
