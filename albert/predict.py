"""Predicts with the folder of a fine-tuned model: labels of texts, or of words, or choices."""

import contextlib
import functools
import sys

from absl import flags

from albert.cli import app, common_flags, inference_flags
from albert.io import file_io

_TEXT_FLAGS = ("text_column", "text_pair_column", "id_column")


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


def make_columns(values, trained, input_format):
    """`tables.Columns` of the rows to predict."""
    from albert.io import tables

    if input_format == "txt":
        common_flags.refuse_given(values, "input with columns (csv, tsv, jsonl)", *_TEXT_FLAGS)
        return tables.Columns(trained.text, trained.text_pair, None, None)

    def chosen(given, default):
        return (default if given is None else given) or None

    return tables.Columns(
        chosen(values.text_column, trained.text),
        chosen(values.text_pair_column, trained.text_pair),
        None,
        chosen(values.id_column, trained.guid),
    )


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


def _label_texts(values, model, input_format, output_format):
    from albert.io import tables
    from albert.serving import predictors

    predictor = predictors.TextPredictor(model)
    columns = make_columns(values, predictor.columns, input_format)

    def answer(file, lines, name, ahead):
        rows = tables.read_rows(lines, name, input_format, columns)
        found = predictor.predict_rows(rows, columns, values.batch_size, ahead)
        tables.write_predictions(file, output_format, predictor.labels, found)

    return answer


def _label_words(values, model, *forms):
    from albert.serving import token_predictor

    predictor = token_predictor.TokenPredictor(model)
    return functools.partial(predictor.answer, forms, values.batch_size)


def _choose(values, model, *_):
    from albert.serving import choice_predictor

    predictor = choice_predictor.ChoicePredictor(model)
    return functools.partial(predictor.answer, values.batch_size)


# Kind of a model folder: what loads it, and the forms of input and output.
KINDS = {
    "classifier": (_label_texts, ("txt", "csv", "tsv", "jsonl"), ("tsv", "jsonl")),
    "token_classifier": (_label_words, ("txt", "jsonl", "conll"), ("conll", "jsonl")),
    "multiple_choice": (_choose, ("jsonl",), ("jsonl",)),
}


def main(values):
    common_flags.require_positive(values, "batch_size")
    model = inference_flags.found_model(values, *KINDS)
    load, *forms = KINDS[model.folder.kind]
    if model.folder.kind != "classifier":
        common_flags.refuse_given(values, "models of run_classifier", *_TEXT_FLAGS)
    answer = load(values, model, *find_formats(values, *forms))
    source, name, ahead = contextlib.nullcontext(sys.stdin.buffer), "standard input", 1
    if values.input_file:
        name, ahead = values.input_file, 64
        source = file_io.open_input(name, "--input_file", "rb")
    with source as lines:
        if values.output_file:
            with file_io.atomic_writer(values.output_file) as file:
                answer(file, lines, name, ahead)
        else:
            sys.stdout.reconfigure(line_buffering=True)  # whoever reads waits for these lines
            answer(sys.stdout, lines, name, ahead)


if __name__ == "__main__":
    app.run(main, define_flags)
