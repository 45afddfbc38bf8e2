r"""Predicts with the folder of a fine-tuned model: labels of texts or words, or choices.

Example:

    albert predict --model_dir=out/sst2 --input_file=texts.txt \
        --output_file=labels.tsv
"""

import collections
import contextlib
import dataclasses
import functools
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from albert.cli import app, model_settings, options, path_flags
from albert.io import file_io

if TYPE_CHECKING:
    from albert.model import decision as decisions
    from albert.serving import predictors

_TEXT_FLAGS = ("text_column", "text_pair_column", "id_column")
# The other kinds answer questions: see `ask`.
_OF_TEXTS = ("classifier", "multi_label_classifier")
KINDS = (*_OF_TEXTS, "token_classifier", "multiple_choice")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The model, and the input and output files."""

    model_dir: str = options.flag(
        None,
        "Folder of run_classifier, run_token_classifier, run_race or an export.",
        required=True,
        path=path_flags.MODEL,
    )
    input_file: str | None = options.flag(
        None,
        "Texts: .txt (one per line, two texts of a pair with a tab between), .csv, .tsv or .jsonl; "
        "for words .txt, .jsonl or .conll, for choices .jsonl; by default standard input.",
        path=path_flags.INPUT_OR_STDIN,
    )
    output_file: str | None = options.flag(
        None,
        "Predictions: .tsv or .jsonl (of words: .conll or .jsonl); by default standard output.",
        path=path_flags.OUTPUT,
    )
    input_format: str | None = options.flag(
        None,
        "Form of the input; by default inferred from the file name, for standard input txt, or "
        "jsonl for choices.",
        choices=("txt", "csv", "tsv", "jsonl", "conll"),
    )
    output_format: str | None = options.flag(
        None,
        "Form of the output; by default inferred from the file name, for standard output tsv, "
        "conll for words, jsonl for choices.",
        choices=("tsv", "jsonl", "conll"),
    )
    text_column: str | None = options.flag(
        None, "Column of the text; by default that of the training, or text."
    )
    text_pair_column: str | None = options.flag(
        None, "Column of the second text; by default that of the training, or text_pair."
    )
    id_column: str | None = options.flag(
        None, "Column of the id; by default that of the training. Empty: rows are numbered."
    )
    skip_empty: bool = options.flag(
        False,
        "Leave out rows without text, which are an error otherwise; the others keep their numbers.",
    )
    with_text: bool = options.flag(
        False, "Also write the text of each answer, for models of run_classifier."
    )
    batch_size: int = options.count(
        32,
        "Texts computed together. Standard input is answered whenever this many lines have come.",
    )
    inference: model_settings.Inference = options.group(model_settings.Inference)


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def given_columns(settings: Settings, input_format: str) -> dict[str, str]:
    """Returns the columns of the flags, by their names in `tables.Columns`."""
    if input_format == "txt":
        settings.refuse_given("input with columns (csv, tsv, jsonl)", *_TEXT_FLAGS)
    columns = {
        "text": settings.text_column,
        "text_pair": settings.text_pair_column,
        "guid": settings.id_column,
    }
    return {name: column for name, column in columns.items() if column is not None}


def find_formats(settings: Settings, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Returns the formats of input and output, from the flags or the file names.

    `inputs` and `outputs` are the possible ones; the first is that of standard input or output.
    """
    from albert.io import tables

    formats = []
    for name, path, value, choices in (
        ("input", settings.input_file, settings.input_format, inputs),
        ("output", settings.output_file, settings.output_format, outputs),
    ):
        if value and value not in choices:
            raise file_io.InputError(
                f"--{name}_format={value}: for this model it must be {' or '.join(choices)}"
            )
        formats.append(value or (tables.format_of(path, choices) if path else choices[0]))
    return formats


def report(results: Iterator[Any], decision: "decisions.Decision") -> Iterator[Any]:
    """Yields results, and logs at their end how many texts were cut, and how many not answered."""
    from albert.model.decision import ABSTAINS

    count = num_cut = abstained = 0
    for result in results:
        count, num_cut = count + 1, num_cut + result.truncated
        abstained += decision.may_abstain and result.prediction == ABSTAINS
        yield result
    if decision.may_abstain and count:
        logging.info("%s", decision.describe(count - abstained, count))
    if num_cut:
        logging.warning(
            "%d of %d texts were longer than the model's input and were cut", num_cut, count
        )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    file_io.check_folder_of(settings.output_file, "--output_file")
    model = model_settings.find_trained(settings.model_dir, settings.inference, *KINDS)
    if model.folder.kind not in _OF_TEXTS:
        settings.refuse_given("models of run_classifier", *_TEXT_FLAGS, "with_text")
    from albert.serving import predictors

    predictor = predictors.load(model)
    input_format, output_format = find_formats(
        settings, predictor.input_forms, predictor.output_forms
    )
    answer(settings, predictor, model.folder.decision, input_format, output_format)


def answer(
    settings: Settings,
    predictor: "predictors.Predictor",
    decision: "decisions.Decision",
    input_format: str,
    output_format: str,
) -> None:
    """Reads the input in one format, and writes its predictions in the other."""
    from albert.io import tables

    columns = given_columns(settings, input_format)
    write: Callable = predictor.write
    seen: collections.deque[Any] = collections.deque()
    skipped: list[str] = []
    mistakes: list[file_io.InputError] = []
    if settings.with_text:
        write = functools.partial(write, examples=_taken_from(seen))
    name, ahead = settings.input_file or "standard input", 1
    if settings.input_file:
        ahead = predictor.batches_ahead
    with file_io.open_input_or_stdin(settings.input_file, "--input_file") as lines:

        def read() -> Iterator:
            skipped.clear()  # by a first reading
            places = skipped if settings.skip_empty else None
            return predictor.read_lines(lines, name, input_format, skipped=places, **columns)

        def predict(examples: Iterator) -> Iterable:
            if settings.with_text:
                examples = _kept_in(seen, examples)
            results = predictor.predict(examples, settings.batch_size, ahead)
            return report(results, decision)

        with _remedy_named():
            if settings.output_file:
                results = predict(tables.read_checked(read, lines))
                with file_io.atomic_writer(settings.output_file) as file:
                    write(file, output_format, results)
            else:
                if isinstance(sys.stdout, io.TextIOWrapper):
                    sys.stdout.reconfigure(line_buffering=True)  # a reader may wait for each line
                results = predict(_until_mistake(read(), mistakes))
                write(sys.stdout, output_format, results)
            if skipped:
                logging.warning(
                    "%d rows without text were skipped, first %s", len(skipped), skipped[0]
                )
            for mistake in mistakes:
                raise mistake


def _kept_in(seen: collections.deque[Any], examples: Iterator[Any]) -> Iterator[Any]:
    """Yields examples, which are also kept until their answers are written."""
    for example in examples:
        seen.append(example)
        yield example


def _taken_from(seen: collections.deque[Any]) -> Iterator[Any]:
    while True:
        yield seen.popleft()


def _until_mistake(examples: Iterator[Any], mistakes: list[file_io.InputError]) -> Iterator[Any]:
    """Yields the examples before a mistake, to be answered, and adds the mistake to `mistakes`."""
    try:
        yield from examples
    except file_io.InputError as error:
        mistakes.append(error)


@contextlib.contextmanager
def _remedy_named() -> Iterator[None]:
    """Adds to the error of a row without text what to do."""
    from albert.io import tables

    try:
        yield
    except tables.NoTextError as error:
        raise file_io.InputError(f"{error}; --skip_empty leaves out rows without text") from error


if __name__ == "__main__":
    app.run(main, define_flags)
