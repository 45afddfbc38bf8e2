"""Compares the prediction files of a run with its data: confusions, thresholds, worst examples.

Each function returns None or nothing if the files or the correct answers are missing.
"""

import dataclasses
import math
import os

from albert.experiments import report_data
from albert.io import file_io, json_shapes, tables
from albert.tasks import race
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import null_threshold
from albert.training import run_record

NUM_WORST = 10
_COLUMNS = ("id", "prediction")
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


def read_source(run: report_data.Run) -> Source:
    """Returns the source of the predictions of a run."""
    path, before = run.predicted["path"], run.predicted["sha256"]
    if before is None:
        warning = (
            f"{run_record.RUN} has no SHA-256 of {path}: whether it is still what was predicted is "
            "not known."
        )
        return Source(path, warning)
    now = run_record.describe_input(path, _files(run))["sha256"]
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


def read_predictions(run: report_data.Run) -> Predictions | None:
    """Reads the predictions of a classifier or of RACE; None if there is nothing to compare."""
    path = os.path.join(run.folder, tables.PREDICTIONS)
    if not file_io.exists(path):
        return None
    if not run.predicted:
        return None
    right = right_answers(run)
    if not right:
        return None
    rows = []
    for place, row in tables.read_file(path, "predictions"):
        if not row.keys() >= set(_COLUMNS):
            raise file_io.InputError(
                f"{place}: expected the columns {' and '.join(_COLUMNS)}, found {', '.join(row)}; "
                "predict again, or move the file away"
            )
        if row["id"] in right:
            text, label = right[row["id"]]
            prediction = row["prediction"]
            probability = row.get(f"probability_{prediction}")
            with report_data.damage_named(place):
                rows.append((text, label, prediction, probability and float(probability)))
    if not rows:
        return None
    # The predictions are numbers if no label has a probability.
    if all(row[3] is None for row in rows):
        with report_data.damage_named(path):
            return Predictions([], [(text, float(a), float(b), None) for text, a, b, _ in rows])
    labels = dict.fromkeys(name for row in rows for name in row[1:3])
    return Predictions(sorted(labels), rows)


def right_answers(run: report_data.Run) -> dict | None:
    """Reads {id: (text, label)} of the data that a run of one's own data or of RACE predicted.

    Returns:
      The dict, or None if the data is gone or has no labels.
    """
    readers = {"run_classifier": _own_examples, "run_race": _race_examples}
    reader = readers.get(run.record["script"])
    return reader(run) if reader else None


def _own_examples(run):
    """Returns {id: (text, label)} of the test data of the task custom; None without labels."""
    path = run.find(run.predicted["path"])
    if (run.flag("task_name") or "").lower() != "custom" or not path:
        return None  # GLUE's test data has no labels.
    examples = {}
    text, pair, label, guid = (
        run.flag(name) for name in ("text_column", "text_pair_column", "label_column", "id_column")
    )
    for number, (_, row) in enumerate(tables.read_file(path, "test_file")):
        if label not in row:
            return None
        example_text = " / ".join(str(row[name]) for name in (text, pair) if name)
        key = str(number) if guid is None else str(row[guid])
        value = row[label]
        examples[key] = (example_text, value.strip() if isinstance(value, str) else str(value))
    return examples


def _race_examples(run):
    """Returns {id: (passage and question, letter)} of the test data of RACE."""
    folder = _race_folder(run)
    if not folder:
        return None
    examples = {}
    for example in race.read_race_examples(
        folder, "test", do_lower_case=False, **_race_levels(run)
    ):
        endings = " | ".join(f"{chr(65 + i)}: {ending}" for i, ending in enumerate(example.endings))
        text = f"{_shortened(example.article, 0, 0)} — {endings}"
        examples[example.guid] = (text, chr(65 + example.label))
    return examples


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


def read_answers(run: report_data.Run) -> Answers | None:
    """Reads the answers of a SQuAD run; None without files or correct answers."""
    names = [os.path.join(run.folder, f"{n}.json") for n in ("predictions", "nbest_predictions")]
    is_squad = run.record["script"].startswith("run_squad")
    if not is_squad or not run.predicted or not all(map(file_io.exists, names)):
        return None
    path = run.find(run.predicted["path"])
    if not path:
        return None
    dataset = file_io.read_json(path, "SQuAD file", max_bytes=None)
    with report_data.damage_named(path):
        gold, questions = squad_metrics.gold_answers(dataset), _questions(dataset)
    final, nbest = map(_read_by_question, names, (str, _BEST))
    odds_path = os.path.join(run.folder, "null_odds.json")
    odds = _read_by_question(odds_path, json_shapes.NUMBER) if file_io.exists(odds_path) else {}
    keys = [key for key in gold if nbest.get(key) and key in final]
    if not keys or not any(gold[key] for key in keys):
        return None
    return Answers(
        gold={key: gold[key] for key in keys},
        texts={key: nbest[key][0]["text"] for key in keys},
        final={key: final[key] for key in keys},
        odds={key: odds[key] for key in keys if key in odds},
        probabilities={key: nbest[key][0]["probability"] for key in keys},
        questions=questions,
        threshold=_threshold(run),
    )


def _threshold(run):
    """Returns the threshold used for the answers; earlier versions wrote no file with it."""
    result = null_threshold.read_file(run.folder) or run.record["result"] or {}
    return result.get(null_threshold.THRESHOLD)


_BEST = [{"text": str, "probability": json_shapes.NUMBER}]  # answers to a question, best first


def _read_by_question(path, shape):
    """Reads {question id: value} from a file and checks the shape of the values."""
    content = file_io.read_json(path, "answers", max_bytes=None)
    json_shapes.check(content, {"*": shape}, path)
    return content


def _questions(dataset):
    questions = {}
    for article in dataset["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                questions[question["id"]] = (question["question"], paragraph["context"])
    return questions


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
