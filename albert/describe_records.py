"""Describes the contents of files of training records, and checks each record.

Example:

    albert describe_records --input_file='records/*' --spm_model_file=albert_base_v2
"""

import dataclasses

from absl import flags

from albert.cli import app, options, path_flags
from albert.data import inspection, tfrecord
from albert.text import tokenization


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The files to describe, and the amount of output."""

    input_file: str = options.flag(
        None, "TFRecord files, gzip or not: comma-separated globs.", path=path_flags.INPUTS
    )
    vocab_file: str | None = options.flag(
        None, "WordPiece vocabulary, to show records in words.", path=path_flags.MODEL
    )
    spm_model_file: str | None = options.flag(
        None, "SentencePiece model, to show records in words.", path=path_flags.MODEL
    )
    num_examples: int = options.flag(3, "Records to show.", check=options.not_negative)


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.require("input_file")
    from albert.model import published, sources

    pieces = None
    if settings.spm_model_file or settings.vocab_file:
        spm_model_file, vocab_file = published.vocabularies(
            settings.spm_model_file, settings.vocab_file
        )
        # Whether text was lower-cased does not change the pieces of ids.
        rules = sources.rules_beside(spm_model_file or vocab_file, {"do_lower_case": True})
        tokenizer = tokenization.FullTokenizer(vocab_file, True, spm_model_file, rules)
        pieces = [tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)]
    paths = tfrecord.named_files(settings.input_file, "--input_file")
    description = inspection.describe(paths, settings.num_examples)
    print(inspection.report(description, pieces))


if __name__ == "__main__":
    app.run(main, define_flags)
