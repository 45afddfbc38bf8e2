"""Compares the prediction files of a run with its data: confusions, thresholds, worst examples.

Each function returns None or nothing if the files or the correct answers are missing.
"""

import dataclasses
import math
import os
from collections.abc import Iterable
from typing import Any

from albert.experiments import joined_predictions
from albert.experiments.joined_predictions import Truth
from albert.experiments.runs import Run, damage_named
from albert.io import file_io, json_shapes, tables
from albert.tasks import custom, prediction_files, race
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import null_threshold
from albert.tasks.squad.features import SquadExample
from albert.training import run_facts, run_record

NUM_WORST = 10
_CONTEXT = 160  # characters shown on each side of an answer


@dataclasses.dataclass(frozen=True)
class Source:
    """The data of prediction files.

    Attributes:
      path: path as given to the run.
      warning: "" if the data has not changed since; else what is known about it.
    """

    path: str
    warning: str

    @property
    def name(self) -> str:
        """Returns the last part of the path."""
        return os.path.basename(self.path.rstrip("/"))


def read_source(run: Run) -> Source:
    """Returns the source of the predictions of a run."""
    path, before = run.predicted["path"], run.predicted["sha256"]
    if before is None:
        warning = (
            f"{run_record.RUN} has no SHA-256 of {path}: whether it is still what was predicted is "
            "not known."
        )
        return Source(path, warning)
    now = run_facts.describe_input(path, _files(run))["sha256"]
    if now == before:
        return Source(path, "")
    change = f"it is now {now[:16]}…" if now else "it cannot be read any more"
    old = before[:16]
    return Source(
        path,
        f"{path} has changed since it was predicted: its SHA-256 was {old}…, {change}. Texts "
        "and right answers below are from the current file, and may belong to other predictions.",
    )


def _files(run):
    """Returns the existing paths of the data that was predicted."""
    count = run.predicted.get("count", 1)
    names = run.predicted.get("files", [run.predicted["path"]])
    if count > len(names):  # Too many for the record to list.
        return race.files(_race_folder(run), "test", **_race_levels(run))
    return [run.find(name) or name for name in names]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions and correct labels.

    Attributes:
      labels: names of the classes that occur; empty for numbers.
      rows: (text, correct label or number, predicted one, probability or None) per example.
    """

    labels: list
    rows: list

    def counts(self) -> list[list[int]]:
        """Returns [K, K] counts; rows are the correct labels."""
        place = {label: i for i, label in enumerate(self.labels)}
        matrix = [[0] * len(self.labels) for _ in self.labels]
        for _, label, prediction, _ in self.rows:
            matrix[place[label]][place[prediction]] += 1
        return matrix

    def worst(self) -> list[list]:
        """Returns the wrong rows with the highest probabilities, or the farthest numbers."""
        if self.labels:
            wrong = [row for row in self.rows if row[1] != row[2]]
            wrong.sort(key=lambda row: -(row[3] or 0))
        else:
            wrong = sorted(self.rows, key=lambda row: -abs(row[1] - row[2]))
        return [list(row) for row in wrong[:NUM_WORST]]


def predicts_part(run: Run) -> bool:
    """Returns whether the flags of a run select a part of the data to predict."""
    by_length = run.flag("drop_longer_than") is not None
    return (
        by_length or bool(run.flag("answerable_only")) or run.flag("eval_fraction") not in (None, 1)
    )


def read_predictions(run: Run) -> Predictions | None:
    """Reads the predictions of a classifier or of RACE; None if there is nothing to compare."""
    path = os.path.join(run.folder, prediction_files.PREDICTIONS)
    if not file_io.exists(path):
        return None
    if not run.predicted:
        return None
    right = right_answers(run)
    if not right:
        return None
    table = joined_predictions.read_table(path)
    pairs = joined_predictions.join_table(right, path, table, predicts_part(run)).values()
    if not table.labels:
        number_of = joined_predictions.number_of
        found = [number_of(b.prediction, b.place) for _, b in pairs]
        numbers = [
            (a.text, number_of(a.label, a.place), value, None)
            for (a, _), value in zip(pairs, found, strict=True)
        ]
        return Predictions([], numbers)
    rows = [(a.text, a.label, b.prediction, b.probability) for a, b in pairs]
    return Predictions(sorted({name for row in rows for name in row[1:3]}), rows)


def right_answers(run: Run) -> dict[str, Truth] | None:
    """Reads {id: example} of the data that a run of one's own data or of RACE predicted.

    Returns:
      The dict, or None if the data is gone or has no labels.
    """
    readers = {"run_classifier": _own_examples, "run_race": _race_examples}
    reader = readers.get(run.record["script"])
    return reader(run) if reader else None


def _own_examples(run):
    """Returns the test data of the task custom; None without labels."""
    path = run.find(run.predicted["path"])
    if (run.flag("task_name") or "").lower() != custom.NAME or not path:
        return None  # GLUE's test data has no labels.
    names = ("text_column", "text_pair_column", "label_column", "id_column")
    columns = tables.Columns(*map(run.flag, names))
    if not custom.CustomTask({"test": path}, columns, ()).is_labeled("test"):
        return None
    return joined_predictions.read_truths(path, "test_file", columns)


def _race_examples(run):
    """Returns the test data of RACE: passages, questions and letters."""
    folder = _race_folder(run)
    if not folder:
        return None

    def rows():
        for example in race.iter_race_examples(
            folder, "test", do_lower_case=False, **_race_levels(run)
        ):
            endings = " | ".join(
                f"{letter}: {x}" for letter, x in zip("ABCD", example.endings, strict=True)
            )
            text = f"{_shortened(example.article, 0, 0)} — {endings}"
            place = f"{folder}: question {example.guid} of the level {example.level}"
            yield example.guid, Truth(place, text, chr(65 + example.label))

    return joined_predictions.by_id(rows())


def _race_folder(run):
    """Returns the folder of the RACE data; None if it is gone."""
    return run.find(run.flag("data_dir") or "")


def _race_levels(run):
    return {name: bool(run.flag(name)) for name in ("high_only", "middle_only")}


# --- SQuAD --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Answers:
    """Predicted and correct answers.

    Attributes:
      gold: {question id: texts}.
      texts: {question id: best text}.
      final: {question id: text, "" for none}.
      odds: {question id: null odds}; {} under SQuAD 1.1.
      probabilities: {question id: probability of the best text}.
      questions: {question id: (question, context)}.
      threshold: null odds at and above which no answer was given; None if unknown.
    """

    gold: dict
    texts: dict
    final: dict
    odds: dict
    probabilities: dict
    questions: dict
    threshold: float | None = None

    def probability(self, key: str) -> float | None:
        """Returns the probability of the final prediction.

        This is the probability of "no answer", or that of an answer times that of this text.
        Null odds are the logit of "no answer". None if they are needed but missing.
        """
        if key not in self.odds:
            return self.probabilities[key] if self.final[key] else None
        sign = 1.0 if self.final[key] else -1.0
        decided = 1.0 / (1.0 + math.exp(min(sign * self.odds[key], 700.0)))
        return decided * self.probabilities[key] if self.final[key] else decided


def read_answers(run: Run) -> Answers | None:
    """Reads the answers of a SQuAD run; None without files or correct answers."""
    names = [os.path.join(run.folder, f"{n}.json") for n in ("predictions", "nbest_predictions")]
    is_squad = run.record["script"].startswith("run_squad")
    if not is_squad or not run.predicted or not all(map(file_io.exists, names)):
        return None
    path = run.find(run.predicted["path"])
    if not path:
        return None
    questions = read_questions(path)
    if not any(question.answers for question in questions.values()):
        return None
    final, nbest = (
        read_by_question(name, questions, shape, predicts_part(run))
        for name, shape in zip(names, (str, _BEST), strict=True)
    )
    odds_path = os.path.join(run.folder, "null_odds.json")
    odds = {}
    if file_io.exists(odds_path):
        odds = read_by_question(odds_path, questions, json_shapes.NUMBER, predicts_part(run))
    with damage_named(names[1]):
        best = {key: answers[0] for key, answers in nbest.items()}
    return Answers(
        gold={key: questions[key].answers or () for key in best},
        texts={key: answer["text"] for key, answer in best.items()},
        final=final,
        odds=odds,
        probabilities={key: answer["probability"] for key, answer in best.items()},
        questions={key: (row.question_text, row.paragraph_text) for key, row in questions.items()},
        threshold=_threshold(run),
    )


def _threshold(run):
    """Returns the threshold used for the answers; earlier versions wrote no file with it."""
    result = null_threshold.read_file(run.folder) or run.record["result"] or {}
    return result.get(null_threshold.THRESHOLD)


_BEST = [{"text": str, "probability": json_shapes.NUMBER}]  # answers to a question, best first


def read_questions(path: str) -> dict[str, SquadExample]:
    """Returns {id: question} of a SQuAD file, which refuses repeated ids."""
    return {row.qas_id: row for row in squad_answers.read_squad_examples(path, is_training=False)}


def read_by_question(
    path: str, questions: Iterable[str], shape: Any, is_part: bool
) -> dict[str, Any]:
    """Reads {question id: value} from a file, in the order of the questions.

    Args:
      path: the file.
      questions: ids of the data.
      shape: shape of the values, see `json_shapes`.
      is_part: whether only a part of the questions was to be answered.

    Raises:
      file_io.InputError: a value has another shape, or the ids differ.
    """
    content = file_io.read_json(path, "answers", max_bytes=None)
    json_shapes.check(content, {"*": shape}, path)
    places = (dict.fromkeys(keys, "question") for keys in (questions, content))
    return {key: content[key] for key in joined_predictions.join(path, *places, is_part)}


def threshold_curve(answers: Answers) -> tuple[list, list, list] | None:
    """Returns scores by threshold: questions whose null odds are below it are answered.

    Questions without a text to answer with are never answered, and do not appear in the curve.

    Returns:
      (null odds, exact match, F1): the null odds where the scores change, ascending, and scores in
      percent: one up to and including the first of these places, where nothing is answered, one
      up to and including the second and so on, and one after the last, where everything is
      answered. None without null odds.
    """
    if len(answers.odds) < len(answers.texts):
        return None
    scores = squad_metrics.raw_scores_v2(answers.gold, answers.texts)
    nothing = current = [sum(not texts for texts in answers.gold.values())] * 2
    totals = {}  # Questions of the same null odds are answered together.
    for key in sorted(filter(answers.texts.get, answers.odds), key=answers.odds.get):
        current = [
            now + (score[key] if answers.gold[key] else -1)
            for now, score in zip(current, scores, strict=True)
        ]
        totals[answers.odds[key]] = current
    if not totals:
        return None
    exact, f1 = (
        [100.0 * total / len(answers.texts) for total in column]
        for column in zip(nothing, *totals.values(), strict=True)
    )
    return list(totals), exact, f1


def worst_answers(answers: Answers) -> tuple[list[str], list[list]]:
    """Returns a table of the answers with the lowest F1; ties are sorted by probability.

    Returns:
      (header, rows).
    """
    exact, f1 = squad_metrics.raw_scores_v2(answers.gold, answers.final)
    keys = sorted(f1, key=lambda key: (f1[key], -(answers.probability(key) or 0.0)))
    null_odds = ["null odds"] if answers.odds else []  # SQuAD 2.0 only
    header = ["question", "text", "right", "predicted", "F1", *null_odds, "probability"]
    rows = []
    for key in keys[:NUM_WORST]:
        if exact[key] == 1.0:
            break
        question, context = answers.questions[key]
        gold = list(dict.fromkeys(answers.gold[key]))
        start = max(0, context.find(gold[0] if gold else answers.final[key]))
        length = len(gold[0]) if gold else len(answers.final[key])
        rows.append(
            [
                question,
                _shortened(context, start, start + length),
                " | ".join(gold) or "(no answer)",
                answers.final[key] or "(no answer)",
                f1[key],
                *(answers.odds.get(key) for _ in null_odds),
                answers.probability(key),
            ]
        )
    return header, rows


def _shortened(text, start, end):
    """Returns the part of a text around the characters from `start` to `end`."""
    first, last = max(0, start - _CONTEXT), min(len(text), end + _CONTEXT)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
