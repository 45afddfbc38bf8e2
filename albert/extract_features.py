"""Writes the encoder's vectors for texts, one text a line, as jsonl or npz."""

import contextlib
import sys

from absl import flags, logging

from albert.cli import app, common_flags
from albert.io import file_io


def define_flags(flag_values):
    common_flags.define_model_flags(flag_values)
    text, integer, _, _ = common_flags.definers(flag_values)
    text(
        "input_file",
        None,
        "Texts, one a line, two texts of a pair with a tab between; by default standard input.",
    )
    text("output_file", None, "Vectors: .jsonl or .npz; by default jsonl on standard output.")
    flags.DEFINE_list(
        "layers",
        ["-1"],
        "Layers, comma-separated: 0 is the first after the embeddings, -1 the last.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "vectors",
        "tokens",
        ["tokens", "mean", "first", "pooled"],
        "One for each token, their mean, that of [CLS], or the pooler's output (which is made of "
        "the last layer).",
        flag_values=flag_values,
    )
    integer("max_seq_length", 512, "Longest input in tokens; longer ones are cut.")
    integer("batch_size", 32, "Texts computed together.")


def parse_layers(values):
    """Numbers of --layers.

    Raises:
      file_io.InputError: one is no number, or --vectors=pooled, which has none.
    """
    if values.vectors == "pooled" and values["layers"].present:
        raise file_io.InputError(
            "--layers contradicts --vectors=pooled: the pooler works on the last layer"
        )
    try:
        return [int(layer) for layer in values.layers]
    except ValueError:
        raise file_io.InputError(
            f"--layers={','.join(values.layers)}: expected numbers such as -1,-2"
        ) from None


def main(values):

    common_flags.require_positive(values, "batch_size", "max_seq_length")
    layers = parse_layers(values)
    output = values.output_file
    if output and not output.endswith((".npz", ".jsonl")):
        raise file_io.InputError(f"--output_file={output}: expected a name in .jsonl or .npz")
    source = common_flags.source(values)
    if not (source.checkpoint or values.from_scratch):
        raise file_io.InputError(
            "no weights: give --init_checkpoint or --albert_hub_module_handle, or --from_scratch "
            "for random ones"
        )
    from albert.serving import embeddings

    extractor = embeddings.Extractor(source, layers, values.vectors, values.max_seq_length)
    opened = contextlib.nullcontext(sys.stdin.buffer)
    if values.input_file:
        opened = file_io.open_input(values.input_file, "--input_file", "rb")
    with opened as lines:
        texts = file_io.text_lines(lines, values.input_file or "standard input")
        rows = extractor.extract((line.rstrip("\r\n") for _, line in texts), values.batch_size)
        is_npz = output and output.endswith(".npz")
        write = embeddings.write_npz if is_npz else embeddings.write_jsonl
        logging.info("Wrote the vectors of %d texts", write(output, rows))


if __name__ == "__main__":
    app.run(main, define_flags)
