"""Reads the predictions of folders without ``examples.jsonl``: those of earlier versions.

The files of predictions are joined with the data by id; labels and ids are named as in training.
Each row has a place (file and line, or question), so that an error can name both sides.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from absl import logging

from albert.experiments.runs import Run
from albert.io import file_io, json_shapes, tables
from albert.model import decision
from albert.tasks import custom, glue, race, token_classification, word_files
from albert.tasks.outcomes import Outcome
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import outcomes as squad_outcomes
from albert.tasks.squad.task import Answers
from albert.training import run_facts, run_record

ANSWERS = "predictions.json"
_BEST = [{"text": str, "probability": json_shapes.NUMBER}]  # answers to a question, best first
_COLUMNS = ("id", "prediction")
_PROBABILITY = "probability_"
_FOLDERS_ONLY = (
    " can only be compared by the folders of runs: predict labeled data with do_predict and "
    "test_file, and name the folder"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Truth:
    """An example: its place, its text and its right answer."""

    place: str
    text: str
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Guess:
    """A prediction: its place, its label or number, and {label: probability}; {} for numbers."""

    place: str
    prediction: str
    probabilities: Mapping[str, float]


_Row = TypeVar("_Row", _Truth, _Guess)


def _by_id(rows: Iterable[tuple[str, _Row]]) -> dict[str, _Row]:
    """Returns {id: row} of pairs, after a check that no id is repeated."""
    result: dict[str, _Row] = {}
    for key, row in rows:
        if key in result:
            raise file_io.InputError(
                f"{row.place}: the id {key!r} is already that of {result[key].place}; ids must "
                "differ: name another column with id_column, or none, so that rows are numbered"
            )
        result[key] = row
    return result


def read_truths(path: str, flag: str, columns: tables.Columns) -> dict[str, _Truth]:
    """Reads {id: example} of a file of labeled rows; `flag`: the parameter that gave the path."""

    def rows() -> Iterator[tuple[str, _Truth]]:
        for number, (place, row) in enumerate(tables.read_file(path, flag)):
            if isinstance(row.get(columns.label or ""), list):
                raise file_io.InputError(f"{place}: several labels per text{_FOLDERS_ONLY}")
            label = tables.name_of(row, columns.label or "", "label_column", place)
            key = str(number)
            if columns.guid:
                key = tables.name_of(row, columns.guid, "id_column", place)
            names = filter(None, (columns.text, columns.text_pair))
            text = " / ".join(str(row[name]) for name in names if name in row)
            yield key, _Truth(place, text, label)

    return _by_id(rows())


def _probabilities_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns {label: probability} of a row; {} for numbers."""
    own = row.get("probabilities")
    if isinstance(own, dict):
        return own
    names = (name for name in row if name.startswith(_PROBABILITY))
    return {name.removeprefix(_PROBABILITY).strip(): row[name] for name in names}


def _read_guesses(path: str) -> dict[str, _Guess]:
    """Reads {id: prediction}.

    Args:
      path: tab-separated, comma-separated or jsonl by its ending, with the columns ``id``,
        ``prediction`` and, but for numbers, a ``probability_<label>`` for each label.
    """
    labels: tuple[str, ...] | None = None
    rows = []
    for place, row in tables.read_file(path, "predictions"):
        if not row.keys() >= set(_COLUMNS):
            raise file_io.InputError(
                f"{place}: expected the columns {' and '.join(_COLUMNS)}, found "
                f"{tables.name_list(row)}; predict again, or move the file away"
            )
        probabilities = _probabilities_of(row)
        if probabilities:
            _check_is_label(row["prediction"], probabilities, place)
        key, name = (tables.name_of(row, column, "predictions", place) for column in _COLUMNS)
        labels = tuple(probabilities) if labels is None else labels
        if set(labels) != set(probabilities):
            raise file_io.InputError(
                f"{place}: the probabilities are those of {', '.join(probabilities)}, in the first "
                f"row those of {tables.name_list(labels)}"
            )
        numbers = {label: _number_of(probabilities[label], place) for label in labels}
        rows.append((key, _Guess(place, name, numbers)))
    return _by_id(rows)


def _check_is_label(value: object, labels: Iterable[str], place: str) -> None:
    """Rejects a prediction that is none of the labels, such as several or no answer."""
    name = tables.as_name(value)
    if name in labels:
        return
    remedy = ""
    if name == decision.ABSTAINS:
        remedy = f". A model that abstains{_FOLDERS_ONLY}"
    elif not name or any(label in name for label in labels):
        remedy = f". Several labels per text{_FOLDERS_ONLY}"
    raise file_io.InputError(
        f"{place}: the prediction {value!r} has no probability; only "
        f"{tables.name_list([*labels])} have one{remedy}"
    )


def _number_of(value: str | float, place: str) -> float:
    """Returns the finite number in a text or in JSON; messages name its place."""
    if not isinstance(value, (str, int, float)) or not glue.is_number(str(value)):
        raise file_io.InputError(
            f"{place}: expected a number, found {value!r}; predictions of labels need the column "
            f"{_PROBABILITY}NAME of each label"
        )
    return float(value)


def _join(
    path: str, examples: Mapping[str, str], guesses: Mapping[str, str], is_part: bool = False
) -> list[str]:
    """Returns the ids of the predicted examples in the order of the data.

    Args:
      path: file of the predictions, for messages.
      examples, guesses: {id: place} of the data and of the predictions.
      is_part: whether only a part of the examples was to be predicted.
    """
    missing = [] if is_part else [key for key in examples if key not in guesses]
    extra = [key for key in guesses if key not in examples]
    problems = [
        f"{len(keys)} of {len(places)} {what}, the first is {keys[0]!r} ({places[keys[0]]})"
        for keys, places, what in (
            (missing, examples, "examples have no prediction"),
            (extra, guesses, "predictions belong to no example"),
        )
        if keys
    ]
    if problems or not examples:
        raise file_io.InputError(
            f"{path} holds the predictions of other examples than the data: "
            f"{'; '.join(problems) or 'there is no example'}; predict again, or name the column of "
            "the ids with id_column"
        )
    return [key for key in examples if key in guesses]


def _names_of_model(spellings: Iterable[str], labels: tuple[str, ...]) -> dict[str, str | None]:
    """Returns {label of the data: name that the model gives it}; None without such a name.

    `spellings` are labels as the data has them, `labels` those of the model.
    """
    words = glue.find_words(labels)
    names = {}
    for label in spellings:
        names[label] = tables.match_label(label, labels) or words.get(tables.label_key(label))
        if names[label] in words.values() and names[label] != label:
            logging.info("The label %s counts as %s, as in GLUE", label, names[label])
    return names


def read_table(path: str, truths: Mapping[str, _Truth], is_part: bool) -> list[Outcome]:
    """Reads the outcomes of a table of predictions, in the order of the data.

    The labels of the examples get the names that the model gives them, as in training, and 0 and
    1 the words of a GLUE task.

    Args:
      is_part: whether only a part of the examples was to be predicted.
    """
    guesses = _read_guesses(path)
    labels = tuple(next((guess.probabilities for guess in guesses.values()), ()))
    of_truths, of_guesses = (
        {key: row.place for key, row in rows.items()} for rows in (truths, guesses)
    )
    keys = _join(path, of_truths, of_guesses, is_part)
    if not labels:
        return [_number_outcome(key, truths[key], guesses[key]) for key in keys]
    names = _names_of_model({truth.label for truth in truths.values()}, labels)
    for truth in truths.values():
        if names[truth.label] is None:
            raise file_io.InputError(
                f"{truth.place}: the label {truth.label!r} is none of the labels in {path}: "
                f"{tables.name_list(labels)}"
            )
    rows = []
    for key in keys:
        truth, guess = truths[key], guesses[key]
        label = names[truth.label] or truth.label
        is_right = label == guess.prediction
        probabilities = {name: guess.probabilities[name] for name in labels}
        rows.append(Outcome(key, truth.text, label, guess.prediction, is_right, probabilities))
    return rows


def _number_outcome(key: str, truth: _Truth, guess: _Guess) -> Outcome:
    """Returns the outcome of a regression's example with id `key`."""
    prediction = _number_of(guess.prediction, guess.place)
    return Outcome(key, truth.text, _number_of(truth.label, truth.place), prediction)


def read_table_of_run(run: Run, path: str) -> list[Outcome]:
    """Reads a table of predictions of a classifier or of RACE; [] if its data has no labels."""
    truths = _truths_of(run)
    return read_table(path, truths, _predicts_part(run)) if truths else []


def _truths_of(run: Run) -> dict[str, _Truth] | None:
    """Reads {id: example} of the data of a run; None if it is gone or has no labels."""
    if run.record["script"] == "run_race":
        folder = _race_folder(run)
        return _by_id(_race_truths(run, folder)) if folder else None
    task, path = (run.flag("task_name") or "").lower(), run.find(_entry(run)["path"])
    if path is None:
        return None
    if task == custom.NAME:
        names = ("text_column", "text_pair_column", "label_column", "id_column")
        columns = tables.Columns(*map(run.flag, names))
        is_labeled = custom.CustomTask({"test": path}, columns, ()).is_labeled("test")
        return read_truths(path, "test_file", columns) if is_labeled else None
    if run.flag("predict_on") != "dev":
        return None  # GLUE's test data has no labels.
    examples = glue.get_task(task).iter_examples(
        os.path.dirname(os.path.dirname(path)), "dev", use_spm=False
    )
    return _by_id(
        (row.guid, _Truth(f"{path}: example {row.guid}", row.text, str(row.label)))
        for row in examples
    )


def _race_truths(run: Run, folder: str) -> Iterator[tuple[str, _Truth]]:
    """Yields (id, example) of the test questions of the levels of a run, in the folder of RACE."""
    levels = _race_levels(run)
    for row in race.iter_race_examples(folder, "test", do_lower_case=False, **levels):
        place = f"{folder}: question {row.guid} of the level {row.level}"
        yield row.guid, _Truth(place, row.text, chr(65 + row.label))


def _race_folder(run: Run) -> str | None:
    """Returns the folder of the RACE data; None if it is gone."""
    return run.find(run.flag("data_dir") or "")


def _race_levels(run: Run) -> dict[str, bool]:
    """Returns {"high_only", "middle_only"}, the flags of a run."""
    return {name: bool(run.flag(name)) for name in ("high_only", "middle_only")}


def _entry(run: Run) -> dict[str, Any]:
    """Returns the entry of the predicted data in ``run.json``, with "path" and "sha256"; or {}."""
    return run.predicted or {}


def _predicts_part(run: Run) -> bool:
    """Returns whether the flags of a run select a part of the data to predict."""
    by_length = run.flag("drop_longer_than") is not None
    return (
        by_length or bool(run.flag("answerable_only")) or run.flag("eval_fraction") not in (None, 1)
    )


# --- answers and words ----------------------------------------------------------------------------


def read_answers_of_run(run: Run, path: str) -> list[Outcome]:
    """Reads a run's file of answers to questions; [] if its data is gone or has no answers."""
    data = run.find(_entry(run)["path"])
    is_v2 = run.record["script"] == "run_squad_v2"
    return read_answers(path, data, is_v2, _predicts_part(run)) if data else []


def read_answers(path: str, data: str, is_v2: bool | None, is_part: bool) -> list[Outcome]:
    """Reads the outcomes of questions from a file of answers, and from those next to it.

    Args:
      path: JSON, {id of the question: answer}.
      data: the SQuAD file.
      is_v2: whether it is of SQuAD 2.0; None: it is if one of its questions has no answer.
      is_part: whether only a part of the questions was to be answered.

    Returns:
      The outcomes, without probability and null odds if there are no files with them; [] if the
      data has no answers.
    """
    examples = squad_answers.read_squad_examples(data, is_training=False)
    questions = {row.qas_id: row for row in examples}
    final = _read_by_question(path, questions, str, is_part)
    asked = [questions[key] for key in final]
    is_v2 = is_v2 if is_v2 is not None else not all(row.answers for row in asked)
    if not any(row.answers for row in asked):
        return []
    nbest: dict[str, Any] = {key: [{"text": x, "probability": None}] for key, x in final.items()}
    odds: dict[str, Any] = dict.fromkeys(final)
    if os.path.basename(path) == ANSWERS:
        nbest_path, odds_path = (
            os.path.join(os.path.dirname(path), f"{name}.json")
            for name in ("nbest_predictions", "null_odds")
        )
        if file_io.exists(nbest_path):
            nbest = _read_by_question(nbest_path, questions, _BEST, is_part)
        if file_io.exists(odds_path):
            odds = _read_by_question(odds_path, questions, json_shapes.NUMBER, is_part)
    best = {key: answers[0]["text"] for key, answers in nbest.items()}
    rows = squad_outcomes.question_outcomes(
        asked, Answers(best, nbest, odds if is_v2 else None), final
    )
    return [_without_unknown(row) for row in rows]


def _without_unknown(row: Outcome) -> Outcome:
    """Returns an outcome without those of its numbers that are None."""
    numbers = {name: number for name, number in row.numbers.items() if number is not None}
    return dataclasses.replace(row, numbers=numbers)


def _read_by_question(
    path: str, questions: Iterable[str], shape: Any, is_part: bool
) -> dict[str, Any]:
    """Reads {question id: value of a shape} from a file, in the order of the questions.

    Args:
      questions: ids.
      shape: as `json_shapes.check` takes it.
      is_part: whether the file may have fewer questions than these.
    """
    content = file_io.read_json(path, "answers", max_bytes=None)
    json_shapes.check(content, {"*": shape}, path)
    asked, answered = (dict.fromkeys(keys, "question") for keys in (questions, content))
    return {key: content[key] for key in _join(path, asked, answered, is_part)}


def read_words(path: str) -> list[Outcome]:
    """Reads sentences: a word, its label and its predicted label per line, empty lines between."""
    columns = (word_files.Columns(label=str(number)) for number in (2, 3))
    try:
        labels, predictions = (
            list(word_files.read(path, "predictions", own, True)) for own in columns
        )
    except file_io.InputError as error:
        raise file_io.InputError(
            f"{path}: expected words, their labels and the predicted labels; data without labels "
            f"cannot be compared ({error})"
        ) from error
    rows = [
        word_files.Prediction(row, list(guess.labels or ()), [])
        for row, guess in zip(labels, predictions, strict=True)
    ]
    # A part of the data may have no entity; the predictions show that the labels mark some.
    used = {label for row in rows for label in (*(row.sentence.labels or ()), *row.labels)}
    return list(token_classification.outcomes_of(rows, list(used)))


# --- changed data ---------------------------------------------------------------------------------


def find_change(run: Run) -> str:
    """Returns, in words, what changed in the data of a run since it was predicted, or ""."""
    entry = _entry(run)
    path, before = entry["path"], entry["sha256"]
    if before is None:
        return (
            f"{run_record.RUN} has no SHA-256 of {path}: whether it is still what was predicted is "
            "not known."
        )
    now = run_facts.describe_input(path, _files(run))["sha256"]
    if now == before:
        return ""
    change = f"it is now {now[:16]}…" if now else "it cannot be read any more"
    return (
        f"{path} has changed since it was predicted: its SHA-256 was {before[:16]}…, {change}. "
        "Texts and right answers below are from the current file, and may belong to other "
        "predictions."
    )


def _files(run: Run) -> list[str]:
    """Returns the existing paths of the data that was predicted."""
    entry = _entry(run)
    names = entry.get("files", [entry["path"]])
    if entry.get("count", 1) > len(names):  # Too many for the record to list.
        return race.files(_race_folder(run) or "", "test", **_race_levels(run))
    return [run.find(name) or name for name in names]
