"""Reads the kept predictions of a run for each example, with the right answers and the texts.

Metrics of predictions are functions of means over examples, so that a bootstrap only weighs the
examples: accuracy is the mean of 0 and 1, F1 follows from the means of three counts.
"""

import collections
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from albert.experiments import joined_predictions, report_predictions
from albert.experiments.joined_predictions import Truth
from albert.experiments.runs import Run, damage_named
from albert.io import file_io, tables
from albert.tasks import custom, entities, glue, prediction_files, token_classification, word_files
from albert.tasks.squad import metrics as squad_metrics

_TEXT_LENGTH = 400  # characters of a text that are kept


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric as a function of means over examples.

    Attributes:
      name: its name in the results of a run.
      rows: [examples, k] numbers of each example.
      of_means: function of means over examples [..., k]; returns the metric [...].
      is_right: whether it is the fraction of right examples (k is 1, rows are 0 or `scale`).
      scale: 1, or 100 for percent.
    """

    name: str
    rows: npt.NDArray
    of_means: Callable[[npt.NDArray], npt.NDArray]
    is_right: bool = False
    scale: float = 1.0

    @property
    def value(self) -> float:
        """Returns the metric of all examples."""
        return float(self.of_means(self.rows.mean(axis=0)))


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The predictions of one run.

    Attributes:
      path: the file of the predictions.
      data: the file or folder of the right answers.
      sha256: its hash when it was predicted; None if unknown.
      texts: {id: text}, in the order of the data.
      labels: {id: right answer as text}.
      found: {id: prediction as text}.
      right: {id: whether the prediction is right}; empty for numbers.
      metrics: {name: `Metric`}, the usual one first; rows in the order of the data.
    """

    path: str
    data: str
    sha256: str | None
    texts: Mapping[str, str]
    labels: Mapping[str, str]
    found: Mapping[str, str]
    right: Mapping[str, bool]
    metrics: Mapping[str, Metric]


def read(run: Run) -> Predictions:
    """Reads the predictions of a run.

    Raises:
      file_io.InputError: none are kept, their data has no labels or has changed since; the message
        says what is needed.
    """
    reader = _READERS.get(run.record["script"])
    if reader is None:
        raise file_io.InputError(f"{run.folder}: {run.record['script']} makes no predictions")
    names, how, read_own = reader
    paths = [os.path.join(run.folder, name) for name in names]
    if not run.predicted or not all(map(file_io.exists, paths)):
        raise file_io.InputError(
            f"{run.folder} keeps no predictions ({', '.join(names)}): run it with {_how(run, how)}"
        )
    source = report_predictions.read_source(run)
    if source.warning and run.predicted["sha256"] is not None:
        raise file_io.InputError(f"{run.folder}: {source.warning}")
    with damage_named(paths[0]):
        predictions = read_own(run, paths[0])
    return dataclasses.replace(
        predictions, path=paths[0], data=source.path, sha256=run.predicted["sha256"]
    )


def read_file(path: str, labels: str | None, columns: tables.Columns) -> Predictions:
    """Reads a file of predictions that is not in the folder of its run.

    Args:
      path: ``.tsv``, ``.csv`` or ``.jsonl`` with columns id and prediction, ``.json`` with answers
        by question, or ``.conll`` with words, labels and predicted labels.
      labels: file of the right answers; for ``.json`` a SQuAD file, else with the columns below.
        Not needed for ``.conll``.
      columns: its columns.

    Raises:
      file_io.InputError: a file is missing or of another form, or ids differ.
    """
    if path.endswith(".conll"):
        return dataclasses.replace(_words(path), data=path)
    if not labels:
        raise file_io.InputError(
            f"{path} has no run.json next to it: name the file of its right answers with --labels"
        )
    if not file_io.exists(labels):
        raise file_io.InputError(f"labels={labels}: there is no such file")
    digest = file_io.sha256(labels)
    if path.endswith(".json"):
        with damage_named(path):
            predictions = _answers_of(path, labels, None, is_part=False)
    else:
        truths = joined_predictions.read_truths(labels, "labels", columns)
        predictions = _table(path, truths, is_part=False)
    return dataclasses.replace(predictions, path=path, data=labels, sha256=digest)


def _how(run, how):
    if run.record["script"] != "run_classifier" or _task_name(run) == custom.NAME:
        return how
    return "--do_predict --predict_on=dev, as the test data of GLUE has no labels"


def _task_name(run):
    return (run.flag("task_name") or "").lower()


def _cut(text):
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_LENGTH else text[:_TEXT_LENGTH] + "…"


# --- metrics --------------------------------------------------------------------------------------


def _mean(means):
    return means[..., 0]


def _ratio(top, bottom):
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


def _f1(means):
    """Computes F1 from means [..., 3] of correct, predicted and true ones."""
    return _ratio(2 * means[..., 0], means[..., 1] + means[..., 2])


def _pearson(means):
    """Computes the correlation from means [..., 5] of x, y, xx, yy, xy."""
    x, y, xx, yy, xy = np.moveaxis(means, -1, 0)
    spread = np.maximum(0, xx - x * x) * np.maximum(0, yy - y * y)
    return _ratio(xy - x * y, np.sqrt(spread))


def _matthews(means):
    """Computes the Matthews correlation from frequencies [..., K, K] in one axis."""
    size = int(np.sqrt(means.shape[-1]))
    table = means.reshape(*means.shape[:-1], size, size)
    true, predicted = table.sum(axis=-1), table.sum(axis=-2)
    covariance = np.trace(table, axis1=-2, axis2=-1) - (true * predicted).sum(axis=-1)
    spread = (1 - (true**2).sum(axis=-1)) * (1 - (predicted**2).sum(axis=-1))
    return _ratio(covariance, np.sqrt(np.maximum(0, spread)))


def _metrics_of_classes(labels, predictions, names):
    """Returns the metrics of classes: accuracy, of two the F1 of one, correlation."""
    labels, predictions = np.array(labels, object), np.array(predictions, object)
    right = (labels == predictions).astype(float)[:, None]
    metrics = [Metric("eval_accuracy", right, _mean, is_right=True)]
    if len(names) == 2:
        positive = custom.find_positive(names)
        true, predicted = (values == positive for values in (labels, predictions))
        rows = np.stack([true & predicted, predicted, true], axis=1).astype(float)
        metrics.append(Metric("f1", rows, _f1))
    place = {name: i for i, name in enumerate(names)}
    cells = [place[a] * len(names) + place[b] for a, b in zip(labels, predictions, strict=True)]
    metrics.append(Metric("matthew_corr", np.eye(len(names) ** 2)[cells], _matthews))
    return {metric.name: metric for metric in metrics}


def _metrics_of_numbers(labels, predictions):
    x, y = (np.array(values, float) for values in (labels, predictions))
    errors = {"MSE": (x - y) ** 2, "MAE": np.abs(x - y)}
    # Moved to their mean, so that squares of large numbers lose no digits; x and y are labels and
    # predictions of the same unit, and labels are the same on all sides.
    x, y = x - x.mean(), y - x.mean()
    rows = np.stack([x, y, x * x, y * y, x * y], axis=1)
    metrics = {"pearson": Metric("pearson", rows, _pearson)}
    return metrics | {name: Metric(name, row[:, None], _mean) for name, row in errors.items()}


# --- the files of each kind of task ---------------------------------------------------------------


def _read_classes(run, path):
    examples = _glue_dev(run) or report_predictions.right_answers(run)
    if not examples:
        raise file_io.InputError(
            f"{run.folder}: {run.predicted['path']} has no labels or is gone: predict data with "
            f"labels, for GLUE with --do_predict --predict_on=dev, for one's own data with "
            "--do_predict --test_file"
        )
    return _table(path, examples, report_predictions.predicts_part(run))


def _glue_dev(run):
    """Returns {id: example} of the dev data of a GLUE task that was predicted."""
    if run.record["script"] != "run_classifier" or run.flag("predict_on") != "dev":
        return None
    name, path = _task_name(run), run.find(run.predicted["path"])
    if name == custom.NAME or not path:
        return None
    folder = os.path.dirname(os.path.dirname(path))
    return joined_predictions.by_id(
        (
            row.guid,
            Truth(
                f"{path}: example {row.guid}",
                " / ".join(filter(None, (row.text_a, row.text_b))),
                str(row.label),
            ),
        )
        for row in glue.get_task(name).iter_examples(folder, "dev", use_spm=False)
    )


def _table(path, truths, is_part):
    """Reads a table of predictions for examples, see `joined_predictions`."""
    table = joined_predictions.read_table(path)
    pairs = joined_predictions.join_table(truths, path, table, is_part)
    keys = list(pairs)
    texts, labels = (
        {key: getattr(truth, name) for key, (truth, _) in pairs.items()}
        for name in ("text", "label")
    )
    found = {key: guess.prediction for key, (_, guess) in pairs.items()}
    if not table.labels:
        number_of = joined_predictions.number_of
        numbers = [number_of(b.prediction, b.place) for _, b in pairs.values()]
        right = [number_of(a.label, a.place) for a, _ in pairs.values()]
        metrics = _metrics_of_numbers(right, numbers)
        return _made(keys, texts, labels, found, {}, metrics)
    metrics = _metrics_of_classes([labels[k] for k in keys], [found[k] for k in keys], table.labels)
    return _made(keys, texts, labels, found, {k: labels[k] == found[k] for k in keys}, metrics)


def _made(keys, texts, labels, predictions, right, metrics):
    """Returns `Predictions` in the order of keys, to which `read` adds where they come from."""
    columns = [
        {key: _cut(str(values.get(key, ""))) for key in keys}
        for values in (texts, labels, predictions)
    ]
    return Predictions("", "", None, *columns, right, metrics)


def _read_answers(run, path):
    data = run.find(run.predicted["path"])
    if not data:
        raise file_io.InputError(f"{run.folder}: {run.predicted['path']} is gone")
    is_v2 = run.record["script"] == "run_squad_v2"
    return _answers_of(path, data, is_v2, report_predictions.predicts_part(run))


def _answers_of(path, data, is_v2, is_part):
    """Reads answers by question; `is_v2` None: whether a question has no answer says so."""
    questions = report_predictions.read_questions(data)
    predictions = report_predictions.read_by_question(path, questions, str, is_part)
    gold = {key: questions[key].answers or () for key in predictions}
    is_v2 = is_v2 if is_v2 is not None else not all(gold.values())
    if not is_v2:  # its rules cannot score questions without an answer
        gold = {key: answers for key, answers in gold.items() if answers}
    if not any(gold.values()):
        raise file_io.InputError(f"{data} has no right answers")
    keys = list(gold)
    texts = {
        key: f"{questions[key].question_text} — {questions[key].paragraph_text}" for key in keys
    }
    if is_v2:
        exact, f1 = squad_metrics.raw_scores_v2(gold, predictions)
    else:
        exact, f1 = (
            {key: max(score(predictions[key], answer) for answer in gold[key]) for key in keys}
            for score in (
                squad_metrics.exact_match,
                functools.partial(squad_metrics.f1, empty_is_an_answer=False),
            )
        )
    name = "exact" if is_v2 else "exact_match"
    rows = [np.array([[100.0 * values[key]] for key in keys]) for values in (f1, exact)]
    metrics = {
        "f1": Metric("f1", rows[0], _mean, scale=100.0),
        name: Metric(name, rows[1], _mean, is_right=True, scale=100.0),
    }
    labels = {key: " | ".join(dict.fromkeys(gold[key])) or "(no answer)" for key in keys}
    answer_texts = {key: predictions[key] or "(no answer)" for key in keys}
    return _made(keys, texts, labels, answer_texts, {k: exact[k] == 1.0 for k in keys}, metrics)


def _read_words(run, path):
    return _words(path)


def _words(path):
    """Reads the words, labels and predicted labels of sentences."""
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
    keys = [sentence.guid for sentence in labels]
    truth, guesses = ([sentence.labels for sentence in rows] for rows in (labels, predictions))
    right = [(sum(map(str.__eq__, a, b)), len(a)) for a, b in zip(truth, guesses, strict=True)]
    accuracy = Metric("eval_accuracy", np.array(right, float), _accuracy_of_words)
    metrics = [accuracy]
    if entities.mark_entities(label for row in truth for label in row):
        counts = np.array(
            [_entity_counts(a, b) for a, b in zip(truth, guesses, strict=True)], float
        )
        metrics = [
            Metric("f1", counts, _f1),
            Metric("precision", counts[:, :2], _accuracy_of_words),
            Metric("recall", counts[:, ::2], _accuracy_of_words),
            accuracy,
        ]
    texts, names, predicted_names = (
        dict(zip(keys, map(" ".join, rows), strict=True))
        for rows in ([sentence.words for sentence in labels], truth, guesses)
    )
    whole = {key: names[key] == predicted_names[key] for key in keys}
    return _made(
        keys, texts, names, predicted_names, whole, {metric.name: metric for metric in metrics}
    )


def _accuracy_of_words(means):
    """Divides the first of two means [..., 2] by the second."""
    return _ratio(means[..., 0], means[..., 1])


def _entity_counts(labels: Sequence[str], predictions: Sequence[str]) -> tuple[int, int, int]:
    """Returns the numbers of correct, predicted and true entities of a sentence."""
    true, predicted = (collections.Counter(entities.find(row)) for row in (labels, predictions))
    return (true & predicted).total(), predicted.total(), true.total()


# {script: (files, flags that keep them, function that reads the first)}
_PREDICT = "--do_predict"
_SQUAD = (("predictions.json",), _PREDICT, _read_answers)
_READERS: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "run_classifier": ((prediction_files.PREDICTIONS,), f"{_PREDICT} --test_file", _read_classes),
    "run_race": ((prediction_files.PREDICTIONS,), _PREDICT, _read_classes),
    "run_squad_v1": _SQUAD,
    "run_squad_v2": _SQUAD,
    "run_token_classifier": (
        (token_classification.CONLL_NAME,), f"{_PREDICT} --test_file", _read_words
    ),
}  # fmt: skip
