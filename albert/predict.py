"""Predicts with the folder of a fine-tuned model: labels of texts, or of words, or choices."""

import contextlib
import sys

from absl import flags

from albert.cli import app, common_flags, inference_flags
from albert.io import file_io

_TEXT_FLAGS = ("text_column", "text_pair_column", "id_column")
# The other kinds answer questions: see `ask`.
KINDS = ("classifier", "token_classifier", "multiple_choice")


def define_flags(flag_values):
    text, integer, *_ = common_flags.definers(flag_values)
    text(
        "model_dir", None, "Folder of run_classifier, run_token_classifier, run_race or an export."
    )
    text(
        "input_file", None,
        "Texts: .txt (one a line, two texts of a pair with a tab between), .csv, .tsv or .jsonl; "
        "for words .txt, .jsonl or .conll, for choices .jsonl; by default standard input.",
    )  # fmt: skip
    text(
        "output_file",
        None,
        "Predictions: .tsv or .jsonl (of words: .conll or .jsonl); by default standard output.",
    )
    flags.DEFINE_enum(
        "input_format", None, ["txt", "csv", "tsv", "jsonl", "conll"],
        "Form of the input; by default inferred from the file name, for standard input txt, or "
        "jsonl for choices.",
        flag_values=flag_values,
    )  # fmt: skip
    flags.DEFINE_enum(
        "output_format", None, ["tsv", "jsonl", "conll"],
        "Form of the output; by default inferred from the file name, for standard output tsv, "
        "conll for words, jsonl for choices.",
        flag_values=flag_values,
    )  # fmt: skip
    text("text_column", None, "Column of the text; by default that of the training, or text.")
    text("text_pair_column", None, "Column of the second text; as in training, or text_pair.")
    text("id_column", None, "Column of the id; as in training. Empty: rows are numbered.")
    integer(
        "batch_size", 32,
        "Texts computed together. Standard input is answered whenever so many lines are there.",
    )  # fmt: skip
    inference_flags.define(flag_values)
    flags.mark_flag_as_required("model_dir", flag_values=flag_values)


def given_columns(values, input_format):
    """The columns of the flags, by their names in `tables.Columns`."""
    if input_format == "txt":
        common_flags.refuse_given(values, "input with columns (csv, tsv, jsonl)", *_TEXT_FLAGS)
    given = {
        "text": values.text_column,
        "text_pair": values.text_pair_column,
        "guid": values.id_column,
    }
    return {name: value for name, value in given.items() if value is not None}


def find_formats(values, inputs, outputs):
    """Forms of input and output, from the flags or the names of the files.

    Args:
      values: flag values.
      inputs, outputs: the forms that there are; the first is that of standard input or output.
    """
    from albert.io import tables

    found = []
    for name, path, given, known in (
        ("input", values.input_file, values.input_format, inputs),
        ("output", values.output_file, values.output_format, outputs),
    ):
        if given and given not in known:
            raise file_io.InputError(
                f"--{name}_format={given}: for this model it must be {' or '.join(known)}"
            )
        found.append(given or (tables.format_of(path, known) if path else known[0]))
    return found


def main(values):
    common_flags.require_positive(values, "batch_size")
    model = inference_flags.found_model(values, *KINDS)
    if model.folder.kind != "classifier":
        common_flags.refuse_given(values, "models of run_classifier", *_TEXT_FLAGS)
    from albert.serving import predictors

    predictor = predictors.load(model)
    input_format, output_format = find_formats(
        values, predictor.input_forms, predictor.output_forms
    )
    columns = given_columns(values, input_format)
    source, name, ahead = contextlib.nullcontext(sys.stdin.buffer), "standard input", 1
    if values.input_file:
        name, ahead = values.input_file, predictor.batches_ahead
        source = file_io.open_input(name, "--input_file", "rb")
    with source as lines:
        examples = predictor.read_lines(lines, name, input_format, **columns)
        results = predictor.predict(examples, values.batch_size, ahead)
        if values.output_file:
            with file_io.atomic_writer(values.output_file) as file:
                predictor.write(file, output_format, results)
        else:
            sys.stdout.reconfigure(line_buffering=True)  # a reader may wait for each line
            predictor.write(sys.stdout, output_format, results)


if __name__ == "__main__":
    app.run(main, define_flags)
