"""Reads what a run predicted for each example, next to the right answers, as outcomes.

A run keeps them in ``examples.jsonl``, see `tasks.outcomes`; for folders of earlier versions see
`older_predictions`.

Metrics of predictions are functions of means over examples, so that a bootstrap only weighs the
examples: accuracy is the mean of 0 and 1, F1 follows from the means of three counts. Where a metric
is undefined, its value is NaN, as `tasks.metrics` defines it for training.
"""

import collections
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from albert.experiments import older_predictions
from albert.experiments.clusters import Clusters, find_clusters
from albert.experiments.runs import Run, damage_named
from albert.io import file_io, json_shapes, tables
from albert.tasks import custom, entities, label_set_scores, metrics, outcomes, prediction_files
from albert.tasks.outcomes import Outcome
from albert.tasks.squad import null_threshold
from albert.tasks.squad.outcomes import NO_ANSWER
from albert.tasks.token_classification import CONLL_NAME
from albert.training import results

NUM_WORST, NUM_BEST = 10, 5  # examples that are shown
_NO_LABEL = "no label"
_ANSWERS = older_predictions.ANSWERS
FILES = (outcomes.EXAMPLES, _ANSWERS, CONLL_NAME, prediction_files.PREDICTIONS)  # of a run
# {script: (file of predictions, flags that keep it)}
_KEPT_BY = {
    "run_classifier": (prediction_files.PREDICTIONS, "--do_predict --test_file"),
    "run_race": (prediction_files.PREDICTIONS, "--do_predict"),
    "run_squad_v1": (_ANSWERS, "--do_predict"),
    "run_squad_v2": (_ANSWERS, "--do_predict"),
    "run_token_classifier": (CONLL_NAME, "--do_predict --test_file"),
}
_ANSWER = (str, list, *json_shapes.NUMBER)
_OUTCOME = {
    "id": str, "text": str, "context?": str, "label": _ANSWER, "prediction": _ANSWER,
    "right?": bool,
    "probabilities?": {"*": json_shapes.NUMBER}, "numbers?": {"*": json_shapes.NUMBER},
    "groups?": {"*": str},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric as a function of means over examples.

    Attributes:
      rows: [examples, k] numbers of each example.
      of_means: function of means over examples [..., k]; returns the metric [...], NaN where it
        is undefined.
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
      path, data: the file of the predictions; the file or folder of the right answers.
      sha256: its hash when it was predicted; None if unknown.
      texts: {id: text}, in the order of the data.
      labels: {id: right answer as text}.
      answers: {id: prediction as text}.
      right: {id: whether the prediction is right}; empty for numbers.
      metrics: {name: `Metric`}, the usual one first; rows in the order of the data.
      clusters: groups of examples that intervals allow for; None: there are none.
    """

    path: str
    data: str
    sha256: str | None
    texts: Mapping[str, str]
    labels: Mapping[str, str]
    answers: Mapping[str, str]
    right: Mapping[str, bool]
    metrics: Mapping[str, Metric]
    clusters: Clusters | None = None


# --- reading --------------------------------------------------------------------------------------


def find_file(run: Run) -> str | None:
    """Finds the file with the predictions of a run; None if it keeps none."""
    if not run.predicted:
        return None
    paths = (os.path.join(run.folder, name) for name in FILES)
    return next(filter(file_io.exists, paths), None)


def read_outcomes(run: Run, path: str) -> list[Outcome]:
    """Reads the label and the prediction of each example in a file from `find_file`.

    The outcomes are in the order of the data; [] if this is gone or has no labels.
    """
    name = os.path.basename(path)
    if name == outcomes.EXAMPLES:
        return _read_examples(path)
    with damage_named(path):
        if name == CONLL_NAME:
            return older_predictions.read_words(path)
        if name == _ANSWERS:
            return older_predictions.read_answers_of_run(run, path)
        return older_predictions.read_table_of_run(run, path)


def find_warning(run: Run, path: str) -> str:
    """Returns why the outcomes in a file may not be those of the result of a run; "" if they are.

    Changes of the data do not matter to ``examples.jsonl``.
    """
    is_kept = os.path.basename(path) == outcomes.EXAMPLES
    texts = [find_other_step(run), "" if is_kept else older_predictions.find_change(run)]
    return " ".join(filter(None, texts))


def find_other_step(run: Run) -> str:
    """Returns which checkpoint made the predictions of a run; "" if it is that of the result."""
    step, best = run.predicted_step, run.result.get("step")
    if step == best or None in (step, best):
        return ""
    return (
        f"The predictions are of the checkpoint of step {step}, but the result is that of step "
        f"{best}: predict again."
    )


def read(run: Run) -> Predictions:
    """Reads the predictions of a run.

    Raises:
      file_io.InputError: none are kept, their data has no labels or has changed since; the message
        says what is needed.
    """
    if run.record["script"] not in _KEPT_BY:
        raise file_io.InputError(f"{run.folder}: {run.record['script']} makes no predictions")
    path, entry = find_file(run), run.predicted
    if path is None or entry is None:
        name, how = _KEPT_BY[run.record["script"]]
        if (
            run.record["script"] == "run_classifier"
            and (run.flag("task_name") or "").lower() != custom.NAME
        ):
            how = "--do_predict --predict_on=dev, as the test data of GLUE has no labels"
        raise file_io.InputError(f"{run.folder} keeps no predictions ({name}): run it with {how}")
    if warning := find_other_step(run):
        raise file_io.InputError(f"{run.folder}: {warning}")
    if (warning := find_warning(run, path)) and entry["sha256"] is not None:
        raise file_io.InputError(f"{run.folder}: {warning}")
    rows = read_outcomes(run, path)
    if not rows:
        raise file_io.InputError(
            f"{run.folder}: {entry['path']} has no labels or is gone: predict data with labels, "
            "for GLUE with --do_predict --predict_on=dev, for one's own data with --do_predict "
            "--test_file"
        )
    return _predictions(rows, path, entry["path"], entry["sha256"])


def read_file(path: str, labels: str | None, columns: tables.Columns) -> Predictions:
    """Reads a file of predictions that is not in the folder of its run.

    Args:
      path: ``.tsv``, ``.csv`` or ``.jsonl`` with columns id and prediction, ``.json`` with answers
        by question, or ``.conll`` with words, labels and predicted labels.
      labels: file of the right answers; for ``.json`` a SQuAD file, else with `columns`. None
        suffices for ``.conll``.
    """
    if path.endswith(".conll"):
        return _predictions(older_predictions.read_words(path), path, path, None)
    if not labels:
        is_kept = os.path.basename(path) in FILES
        why = "has no run.json next to it" if is_kept else "is not a file that a run itself writes"
        raise file_io.InputError(f"{path} {why}: name the file of its right answers with --labels")
    if not file_io.exists(labels):
        raise file_io.InputError(f"labels={labels}: there is no such file")
    digest = file_io.sha256(labels)
    if path.endswith(".json"):
        with damage_named(path):
            rows = older_predictions.read_answers(path, labels, None, is_part=False)
        if not rows:
            raise file_io.InputError(f"{labels} has no right answers")
    else:
        truths = older_predictions.read_truths(labels, "labels", columns)
        rows = older_predictions.read_table(path, truths, is_part=False)
    return _predictions(rows, path, labels, digest)


def read_clusters(run: Run, own: Predictions, column: str, id_column: str | None) -> Clusters:
    """Reads the groups of predicted examples from a column of their data.

    Args:
      column: column that names the group of each row.
      id_column: column of the ids; None: that of the run, or rows are numbered.
    """
    name = f"cluster_column={column}"
    path = run.find(own.data) if run.record else own.data
    if path is None:
        raise file_io.InputError(f"{name}: the data of {run.folder} is gone: {own.data}")
    if own.sha256 not in (None, file_io.sha256(path)):
        raise file_io.InputError(f"{name}: {path} has changed since {run.folder} predicted it")
    if run.record:
        id_column = run.flag("id_column")
    groups = {}
    for number, (place, row) in enumerate(tables.read_file(path, name)):
        key = tables.name_of(row, id_column, "id_column", place) if id_column else str(number)
        groups[key] = {column: tables.name_of(row, column, "cluster_column", place)}
    missing = next((key for key in own.labels if key not in groups), None)
    if missing is not None:
        raise file_io.InputError(
            f"{name}: {path} has no row with the id {missing!r}, which was predicted"
        )
    clusters = find_clusters([groups[key] for key in own.labels])
    if clusters is None:
        raise file_io.InputError(
            f"{name}: {path} has one group, or each row is a group of its own; name a column that "
            "several rows share, and not all"
        )
    return clusters


def _predictions(rows: Sequence[Outcome], path: str, data: str, sha256: str | None) -> Predictions:
    """Returns what a file of outcomes holds, by the ids of the examples.

    `path` is that file, `data` the predicted file and `sha256` its hash, None if unknown.
    """
    ids = collections.Counter(row.guid for row in rows)
    if repeated := [item for item in ids.most_common(1) if item[1] > 1]:
        guid, count = repeated[0]
        raise file_io.InputError(
            f"{path}: {count} examples have the id {guid!r}, so runs cannot be "
            "compared by example; predict with another id_column, or without it"
        )
    with damage_named(path):
        texts = {x.guid: " — ".join(filter(None, (x.text, x.context))) for x in rows}
        return Predictions(
            path, data, sha256,
            {guid: outcomes.shortened(text) for guid, text in texts.items()},
            {x.guid: outcomes.shortened(_answer_text(x.label)) for x in rows},
            {x.guid: outcomes.shortened(_answer_text(x.prediction)) for x in rows},
            {x.guid: x.right for x in rows if x.right is not None},
            _metrics_of(rows),
            find_clusters([row.groups for row in rows]),
        )  # fmt: skip


def _answer_text(value: str | float | Sequence[str]) -> str:
    """Returns an answer, a label, number or list of labels, as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return tables.name_list(value, None) or _NO_LABEL
    return str(np.float32(value))


def _read_examples(path: str) -> list[Outcome]:
    """Reads ``examples.jsonl``."""
    rows = []
    for place, row in tables.read_file(path, "predictions"):
        json_shapes.check(row, _OUTCOME, place)
        for key in ("label", "prediction"):
            if isinstance(row[key], list):
                json_shapes.check(row[key], [str], f"{place}.{key}")
        rows.append(Outcome(guid=row.pop("id"), **row))
    return rows


# --- metrics --------------------------------------------------------------------------------------


def _metrics_of(rows: Sequence[Outcome]) -> dict[str, Metric]:
    """Returns {name: metric} of outcomes, the usual one first, by what their rows hold."""
    first = rows[0]
    if has_label_sets(rows):
        return _metrics_of_sets(rows, tuple(first.probabilities))
    if first.probabilities:
        return _metrics_of_classes(rows, tuple(first.probabilities))
    if first.right is None:
        return _metrics_of_numbers(rows)
    if is_of_words(rows):
        return _metrics_of_words(rows)
    exact = next(name for name in ("exact", "exact_match") if name in first.numbers)
    f1, right = (_columns(rows, name) for name in ("f1", exact))
    return {
        "f1": Metric("f1", f1, _mean, scale=100.0),
        exact: Metric(exact, right, _mean, is_right=True, scale=100.0),
    }


def is_of_words(rows: Sequence[Outcome]) -> bool:
    """Returns whether outcomes are those of the words of sentences."""
    return "words" in rows[0].numbers


def has_label_sets(rows: Sequence[Outcome]) -> bool:
    """Returns whether outcomes are those of texts with several labels."""
    return not isinstance(rows[0].label, (str, float, int))


def _members(rows: Sequence[Outcome], names: Sequence[str], side: str) -> npt.NDArray:
    """Returns the labels in an attribute (`side`) of outcomes as booleans [examples, names]."""
    sets = [{*getattr(row, side)} for row in rows]
    return np.array([[name in members for name in names] for members in sets])


def _metrics_of_sets(rows: Sequence[Outcome], names: tuple[str, ...]) -> dict[str, Metric]:
    """Returns {name: metric} of texts with several labels; `names`: all label names."""
    true, found = (_members(rows, names, side) for side in ("label", "prediction"))
    counts = np.stack([true & found, found, true], axis=-1).astype(float)
    sizes = true.sum(axis=1) + found.sum(axis=1)
    by_text = 2 * (true & found).sum(axis=1) / np.maximum(sizes, 1)
    right, wrong = (true == found).all(axis=1), (true != found).mean(axis=1)
    found_scores = (
        Metric("micro_f1", counts.sum(axis=1), _f1_of_labels),
        Metric("macro_f1", counts.reshape(len(rows), -1), _f1_of_labels),
        Metric("samples_f1", by_text[:, None], _mean),
        Metric("subset_accuracy", right.astype(float)[:, None], _mean, is_right=True),
        Metric("hamming_loss", wrong[:, None], _mean),
    )
    return {metric.name: metric for metric in found_scores}


def _f1_of_labels(means: npt.NDArray) -> npt.NDArray:
    """Computes the mean F1 from means [..., 3 K] of right, predicted and true ones by label."""
    right, predicted, true = _parts(means.reshape(*means.shape[:-1], -1, 3))
    return metrics.divide(2 * right, predicted + true).mean(axis=-1)


def _columns(rows: Sequence[Outcome], *names: str) -> npt.NDArray:
    """Returns numbers [examples, names] of outcomes: the fields `names` of their numbers."""
    return np.array([[row.numbers[name] for name in names] for row in rows], float)


def _metrics_of_words(rows: Sequence[Outcome]) -> dict[str, Metric]:
    """Returns {name: metric}: accuracy of words and, if labels mark entities, their scores."""
    right = _columns(rows, "right_words", "words")
    accuracy = Metric("eval_accuracy", right, lambda means: metrics.divide(*_parts(means)))
    if "true_entities" not in rows[0].numbers:
        return {accuracy.name: accuracy}
    counts = _columns(rows, "right_entities", "predicted_entities", "true_entities")
    names = ("f1", *(name for name in entities.SCORES if name != "f1"))
    scores = {name: Metric(name, counts, _entity_score(name)) for name in names}
    return {**scores, accuracy.name: accuracy}


def _entity_score(name: str) -> Callable[[npt.NDArray], npt.NDArray]:
    """Returns the function from means of counts [..., 3] to the score `name` of entities, [...]."""
    return lambda means: entities.score_counts(*_parts(means))[name]


def _mean(means: npt.NDArray) -> npt.NDArray:
    """Returns means [...] of means [..., 1]."""
    return means[..., 0]


def _parts(means: npt.NDArray) -> npt.NDArray:
    """Returns means [k, ...] of means [..., k]."""
    return np.moveaxis(means, -1, 0)


def _macro_f1(means: npt.NDArray) -> npt.NDArray:
    """Computes the mean F1 [...] of the classes that occur from frequencies [..., K * K]."""
    table = _square(means)
    both = table.sum(axis=-1) + table.sum(axis=-2)
    f1 = metrics.divide(2 * np.diagonal(table, axis1=-2, axis2=-1), both)
    return f1.sum(axis=-1) / np.maximum(np.count_nonzero(both, axis=-1), 1)


def _balanced_accuracy(means: npt.NDArray) -> npt.NDArray:
    """Computes the mean recall [...] of the labels that occur from frequencies [..., K * K]."""
    table = _square(means)
    true = table.sum(axis=-1)
    recall = metrics.divide(np.diagonal(table, axis1=-2, axis2=-1), true)
    return recall.sum(axis=-1) / np.maximum(np.count_nonzero(true, axis=-1), 1)


def _square(means: npt.NDArray) -> npt.NDArray:
    """Returns frequencies [..., K, K] from [..., K * K]."""
    size = int(np.sqrt(means.shape[-1]))
    return means.reshape(*means.shape[:-1], size, size)


def _metrics_of_classes(rows: Sequence[Outcome], names: tuple[str, ...]) -> dict[str, Metric]:
    """Returns {name: metric} of classes: accuracy, of two the F1 of one, correlation, means."""
    labels = np.array([row.label for row in rows], object)
    predictions = np.array([row.prediction for row in rows], object)
    right = (labels == predictions).astype(float)[:, None]
    known = [Metric("eval_accuracy", right, _mean, is_right=True)]
    if len(names) == 2:
        positive = custom.find_positive(names)
        true, predicted = (values == positive for values in (labels, predictions))
        counts = np.stack([true & predicted, predicted, true], axis=1).astype(float)
        known.append(Metric("f1", counts, lambda means: metrics.f1_of_counts(*_parts(means))))
    place = {name: i for i, name in enumerate(names)}
    cells = [place[a] * len(names) + place[b] for a, b in zip(labels, predictions, strict=True)]
    table = np.eye(len(names) ** 2)[cells]
    functions = {
        "matthew_corr": lambda means: metrics.matthews_of_counts(_square(means)),
        results.MACRO_F1: _macro_f1,
        "balanced_accuracy": _balanced_accuracy,
    }
    known += [Metric(name, table, of_means) for name, of_means in functions.items()]
    return {metric.name: metric for metric in known}


def _metrics_of_numbers(rows: Sequence[Outcome]) -> dict[str, Metric]:
    """Returns {name: metric} of the outcomes of a regression."""
    x = np.array([row.label for row in rows], float)
    y = np.array([row.prediction for row in rows], float)
    errors = {"MSE": (x - y) ** 2, "MAE": np.abs(x - y)}
    # Moved to their mean, so that squares of large numbers lose no digits; the mean of constant
    # numbers is rounded, but must leave 0.
    x, y = (side - side.mean() if np.ptp(side) else 0 * side for side in (x, y))
    moments = np.stack([x, y, x * x, y * y, x * y], axis=1)
    pearson = Metric("pearson", moments, metrics.pearson_of_moments)
    known = [pearson, *(Metric(name, row[:, None], _mean) for name, row in errors.items())]
    return {metric.name: metric for metric in known}


# --- for people -----------------------------------------------------------------------------------


def count_classes(rows: Sequence[Outcome]) -> list[results.ClassCount]:
    """Counts labels and predictions of each class."""
    if has_label_sets(rows):
        names = tuple(rows[0].probabilities)
        sides = (_members(rows, names, side) for side in ("label", "prediction"))
        return list(label_set_scores.count(names, *sides))
    labels, matrix = count_labels(rows)
    table = np.array(matrix)
    columns = (table.sum(axis=1), table.sum(axis=0), np.diagonal(table))
    counts = (column.tolist() for column in columns)
    return [results.ClassCount(*row) for row in zip(labels, *counts, strict=True)]


def count_labels(rows: Sequence[Outcome]) -> tuple[list[str], list[list[int]]]:
    """Returns the K labels that occur, and [K, K] counts of predictions by the correct label."""
    labels = sorted({str(name) for row in rows for name in (row.label, row.prediction)})
    place = {label: i for i, label in enumerate(labels)}
    matrix = [[0] * len(labels) for _ in labels]
    for row in rows:
        matrix[place[str(row.label)]][place[str(row.prediction)]] += 1
    return labels, matrix


def worst_and_best_examples(
    rows: Sequence[Outcome],
) -> tuple[list[list[object]], list[list[object]]]:
    """Returns [text, label, prediction, probability] of mistakes, and of right predictions.

    These are the rows with the highest probabilities, or the farthest and the nearest numbers. Of
    several labels, the probability is that of the most certain wrong decision, else that of the
    least certain decision.
    """
    ranked = sorted(rows, key=_certainty, reverse=True)
    if rows[0].right is None:
        wrong, right = ranked, sorted(rows, key=_certainty)
    else:
        wrong = [row for row in ranked if not row.right]
        right = [row for row in ranked if row.right]
    return list(map(_example, wrong[:NUM_WORST])), list(map(_example, right[:NUM_BEST]))


def _example(row: Outcome) -> list[object]:
    """Returns text, label, prediction and, if there is any, the probability of an outcome."""
    if row.right is None:
        return [row.text, row.label, row.prediction, None]
    sides = (_answer_text(row.label), _answer_text(row.prediction))
    return [row.text, *sides, _certainty(row)]


def _certainty(row: Outcome) -> float:
    """Returns the probability of a prediction, or the distance of a number from the label."""
    if row.right is None:
        assert isinstance(row.label, (int, float)) and isinstance(row.prediction, (int, float))
        return abs(row.label - row.prediction)
    if isinstance(row.prediction, str):
        return row.probabilities[row.prediction]
    true, found = (set(getattr(row, side)) for side in ("label", "prediction"))
    decisions = {name: x if name in found else 1 - x for name, x in row.probabilities.items()}
    wrong = [decisions[name] for name in true ^ found]
    return max(wrong) if wrong else min(decisions.values())


def worst_and_best_sentences(rows: Sequence[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """Returns the sentences with the most wrong words, and the longest that are right."""

    def wrong_words(row: Outcome) -> float:
        return row.numbers["words"] - row.numbers["right_words"]

    wrong = sorted((row for row in rows if not row.right), key=wrong_words, reverse=True)
    right = [row for row in rows if row.right]
    # Sentences with entities say more than those without.
    right.sort(key=lambda row: (-row.numbers.get("true_entities", 0), -row.numbers["words"]))
    return wrong[:NUM_WORST], right[:NUM_BEST]


def find_threshold(run: Run) -> float | None:
    """Finds the null odds at and above which no answer was given; None if unknown."""
    # Earlier versions wrote no file with it.
    result = null_threshold.read_file(run.folder) or run.record["result"] or {}
    data = run.predicted
    if data and "sha256" in result and result["sha256"] != data["sha256"]:
        return None  # it was kept when this data was predicted
    return result.get(null_threshold.THRESHOLD)


def threshold_curve(rows: Sequence[Outcome]) -> tuple[list[float], list[float], list[float]] | None:
    """Returns scores by threshold: questions whose null odds are below it are answered.

    Questions without a text to answer with are never answered, and do not appear in the curve.

    Returns:
      (null odds, exact match, F1): the null odds where the scores change, ascending, and scores in
      percent: one up to and including the first of these places, where nothing is answered, one
      up to and including the second and so on, and one after the last, where everything is
      answered. None without null odds.
    """
    if not all("null_odds" in row.numbers for row in rows):
        return None
    nothing = 100.0 * sum(not row.numbers["has_answer"] for row in rows)
    current = [nothing, nothing]
    totals: dict[float, list[float]] = {}  # Questions of the same null odds are answered together.
    with_text = (row for row in rows if "best_text_f1" in row.numbers)
    for row in sorted(with_text, key=lambda row: row.numbers["null_odds"]):
        scores = [row.numbers[f"best_text_{name}"] for name in ("exact", "f1")]
        if not row.numbers["has_answer"]:
            scores = [-100.0, -100.0]
        current = [now + score for now, score in zip(current, scores, strict=True)]
        totals[row.numbers["null_odds"]] = current
    if not totals:
        return None
    exact, f1 = (
        [total / len(rows) for total in column]
        for column in zip([nothing, nothing], *totals.values(), strict=True)
    )
    return list(totals), exact, f1


def _probability_of_answer(row: Outcome) -> float | None:
    """Returns the probability of what was answered to a question.

    This is the probability of "no answer", or that of an answer times that of this text. Null odds
    are the logit of "no answer". None if they are needed but missing.
    """
    best, odds = row.numbers.get("probability"), row.numbers.get("null_odds")
    answered = row.prediction != NO_ANSWER
    if odds is None:
        return best if answered else None
    decided = 1.0 / (1.0 + math.exp(min(odds if answered else -odds, 700.0)))
    if not answered:
        return decided
    return None if best is None else decided * best


def worst_and_best_answers(
    rows: Sequence[Outcome],
) -> tuple[list[str], list[list[object]], list[list[object]]]:
    """Returns names of columns, and rows of the worst and of the best answers.

    The worst have the lowest F1, then the highest probability; the best are the most probable right
    answers in words.
    """
    has_odds = "null_odds" in rows[0].numbers  # SQuAD 2.0 only
    header = ["question", "text", "right", "predicted", "F1"]
    header += ["null odds", "probability"] if has_odds else ["probability"]
    wrong = [row for row in rows if not row.right]
    wrong.sort(key=lambda row: (row.numbers["f1"], -(_probability_of_answer(row) or 0.0)))
    right = [row for row in rows if row.right and row.prediction != NO_ANSWER]
    right.sort(key=lambda row: -(_probability_of_answer(row) or 0.0))

    def cells(row: Outcome) -> list[object]:
        odds = [row.numbers["null_odds"]] if has_odds else []
        line = [row.text, row.context, row.label, row.prediction, row.numbers["f1"] / 100]
        return [*line, *odds, _probability_of_answer(row)]

    return header, list(map(cells, wrong[:NUM_WORST])), list(map(cells, right[:NUM_BEST]))
