"""Predicts the labels of texts with a fine-tuned classifier, from the folder of its training."""

import contextlib
import sys

from absl import flags

from albert import command_line, common_flags, file_io


def define_flags(flag_values):
    text, integer, *_ = common_flags.definers(flag_values)
    text("model_dir", None, "The --output_dir of a run of run_classifier.")
    text(
        *("input_file", None),
        "Texts: .txt (one a line, two texts of a pair with a tab between), .csv, .tsv or .jsonl; "
        "by default standard input.",
    )
    text("output_file", None, "Predictions: .tsv or .jsonl; by default standard output.")
    flags.DEFINE_enum(
        "input_format",
        None,
        ["txt", "csv", "tsv", "jsonl"],
        "Form of the input; by default told from the name of the file, txt for standard input.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "output_format",
        None,
        ["tsv", "jsonl"],
        "Form of the output; by default told from the name of the file, tsv for standard output.",
        flag_values=flag_values,
    )
    text("text_column", None, "Column of the text; by default that of the training, or text.")
    text("text_pair_column", None, "Column of the second text; as in training, or text_pair.")
    text("id_column", None, "Column of the id; as in training. Empty: rows are numbered.")
    integer(
        *("batch_size", 32),
        "Texts computed together. Standard input is answered whenever so many lines are there.",
    )
    flags.mark_flag_as_required("model_dir", flag_values=flag_values)


def make_columns(values, trained, input_format):
    """`tables.Columns` of the rows to predict."""
    from albert import tables

    if input_format == "txt":
        names = ("text_column", "text_pair_column", "id_column")
        common_flags.refuse_given(values, "input with columns (csv, tsv, jsonl)", *names)
        return tables.Columns(trained.text, trained.text_pair, None, None)
    chosen = lambda given, default: (default if given is None else given) or None  # noqa: E731
    return tables.Columns(
        chosen(values.text_column, trained.text),
        chosen(values.text_pair_column, trained.text_pair),
        None,
        chosen(values.id_column, trained.guid),
    )


def find_formats(values):
    """Forms of input and output, from the flags or the names of the files."""
    from albert import tables

    found = []
    for path, given, default, known in (
        (values.input_file, values.input_format, "txt", tuple(tables.FORMATS)),
        (values.output_file, values.output_format, "tsv", ("tsv", "jsonl")),
    ):
        found.append(given or (tables.format_of(path, known) if path else default))
    return found


def main(values):
    common_flags.require_positive(values, "batch_size")
    input_format, output_format = find_formats(values)
    from albert import predictors, tables

    predictor = predictors.TextPredictor(values.model_dir)
    columns = make_columns(values, predictor.columns, input_format)
    if values.input_file:
        source, batches = file_io.open_input(values.input_file, "--input_file", "rb"), 64
    else:
        source, batches = contextlib.nullcontext(sys.stdin.buffer), 1
    with source as lines:
        rows = tables.read_rows(lines, values.input_file or "standard input", input_format, columns)
        found = predictor.predict_rows(rows, columns, values.batch_size, batches)
        if values.output_file:
            with file_io.atomic_writer(values.output_file) as file:
                tables.write_predictions(file, output_format, predictor.labels, found)
        else:
            sys.stdout.reconfigure(line_buffering=True)  # whoever reads waits for these lines
            tables.write_predictions(sys.stdout, output_format, predictor.labels, found)


if __name__ == "__main__":
    command_line.run(main, define_flags)
