r"""Writes the encoder's vectors for texts, one text per line, as jsonl or npz.

Example:

    albert extract_features --init_checkpoint=albert_base_v2 --input_file=texts.txt \
        --output_file=vectors.npz --vectors=mean
"""

import dataclasses

from absl import flags, logging

from albert.cli import app, model_settings, options, path_flags
from albert.io import file_io
from albert.model import pooling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The model, the texts, and the vectors to write."""

    model: model_settings.ModelToUse = options.group(model_settings.ModelToUse)
    input_file: str | None = options.flag(
        None,
        "Texts, one per line, two texts of a pair with a tab between; by default standard input.",
        path=path_flags.INPUT_OR_STDIN,
    )
    output_file: str | None = options.flag(
        None,
        "Vectors: .jsonl or .npz; by default jsonl on standard output.",
        path=path_flags.OUTPUT,
    )
    layers: tuple[str, ...] = options.flag(
        ("-1",), "Layers whose vectors to write, comma-separated: 0 is the first, -1 the last."
    )
    vectors: str = options.flag(
        "tokens",
        "Vectors of a text: one for each token, the mean of these, the one of [CLS] (first), or "
        "the output of the pooler, which reads the last layer.",
        shown_default="as in a model of sentence-transformers; mean for one that was trained with "
        "it; else tokens",
        choices=("tokens", "mean", "first", "pooled"),
    )
    pooling: str | None = options.flag(
        None,
        "One vector of each text, named as in training: mean, or cls for --vectors=first.",
        choices=pooling.KINDS,
    )
    max_seq_length: int = options.count(
        512,
        "Longest input in tokens; longer ones are cut.",
        shown_default="512, or what the model says or has, if that is less",
    )
    batch_size: int = options.count(32, "Texts computed together.")

    def check(self) -> None:
        """Rejects unknown file types, and flags without effect."""
        if "vectors" in self.given and self.pooling:
            raise file_io.InputError("--pooling and --vectors both say which vectors; give one")
        if self.vectors == "pooled" and "layers" in self.given:
            raise file_io.InputError(
                "--layers contradicts --vectors=pooled: the pooler works on the last layer"
            )
        if self.output_file and not self.output_file.endswith((".npz", ".jsonl")):
            raise file_io.InputError(
                f"--output_file={self.output_file}: expected a name in .jsonl or .npz"
            )

    def layer_numbers(self) -> list[int]:
        """Returns the numbers of --layers."""
        if not self.layers:
            raise file_io.InputError("--layers: expected numbers such as -1,-2, found none")
        try:
            return [int(layer) for layer in self.layers]
        except ValueError:
            raise file_io.InputError(
                f"--layers={','.join(self.layers)}: expected numbers such as -1,-2"
            ) from None


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    layers = settings.layer_numbers()
    file_io.check_folder_of(settings.output_file, "--output_file")
    from albert.model import sources
    from albert.serving import embeddings

    source = settings.model.find()
    sources.check_weights(source, settings.model.from_scratch)
    kind = settings.vectors
    if settings.pooling:
        kind = embeddings.kind_of(settings.pooling)
    elif "vectors" not in settings.given:
        kind = embeddings.kind_for(source)
    length = settings.max_seq_length
    if "max_seq_length" not in settings.given:
        length = embeddings.length_for(source, length)
        logging.info("Texts are cut to %d tokens (--max_seq_length)", length)
    extractor = embeddings.Extractor(source, layers, kind, length)
    path, output = settings.input_file, settings.output_file
    with file_io.open_input_or_stdin(path, "--input_file") as lines:
        texts = file_io.text_lines(lines, path or "standard input")
        rows = extractor.extract((line.rstrip("\r\n") for _, line in texts), settings.batch_size)
        if output and output.endswith(".npz"):
            count = embeddings.write_npz(output, rows)
        else:
            count = embeddings.write_jsonl(output, rows)
        place = output or "standard output"
        logging.info("Wrote the vectors (%s) of %d texts to %s", kind, count, place)
        if extractor.cuts.cut:
            logging.warning("%s", extractor.cuts.describe())


if __name__ == "__main__":
    app.run(main, define_flags)
