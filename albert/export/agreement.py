"""Do two forms of a fine-tuned model answer the same, and how well does each answer?

What an answer is depends on the kind of model: a label for each text (for regression a number,
equal within a hundredth of the range of the first model's answers), a label for each word, an
option for each question of RACE, a text for each question of SQuAD.
"""

import dataclasses
import os
import string
from collections.abc import Callable

import numpy as np

from albert.io import file_io, tables
from albert.serving import choice_predictor, predictors, token_predictor
from albert.tasks import custom, glue, race, token_classification, word_files
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import task as squad_task

_TOLERANCE = 0.01  # of the range of the expected numbers


def _equal(expected, found):
    """Which of two lists of answers are equal: bool array."""
    return np.array([one == other for one, other in zip(expected, found, strict=True)])


def _near(expected, found):
    """The same for numbers, by the range of float32's: there may be no right ones."""
    expected, found = np.array(expected), np.array(found)
    return np.abs(expected - found) <= _TOLERANCE * np.ptp(expected)


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples of a file that models can answer.

    Attributes:
      path: the file.
      answers: ``(inference.FoundModel) -> list``: an answer for each example, or for each word.
      metric: name of the score; None where the right answers are not known.
      score: ``(answers) -> points``, from 0 to 100.
      same: ``(expected, found) -> bools``: which of two lists of answers are equal.
    """

    path: str
    answers: Callable
    metric: str | None
    score: Callable
    same: Callable = _equal


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How two models answer a file.

    Attributes:
      count: number of answers.
      share: share of them that are equal.
      metric: name of the score.
      expected, found: points, from 0 to 100, of the first and of the second model.
    """

    count: int
    share: float
    metric: str
    expected: float
    found: float

    def to_dict(self):
        """JSON-ready."""
        return {
            "answers": self.count,
            "agreement": round(self.share, 6),
            "metric": self.metric,
            "points_of_float32": round(self.expected, 4),
            "points": round(self.found, 4),
        }


def _some(items, most):
    """`most` of a list, from all over it; all if there are no more."""
    if most is None or len(items) <= most:
        return items
    return [items[place * len(items) // most] for place in range(most)]


def read(folder, path, flag, labelled=True, most=None):
    """The `Examples` of a file.

    Args:
      folder: `model_folder.ModelFolder` of the model that is to answer them.
      path: a file with the columns of the training or a task's own ``dev.tsv`` (classifiers), of
        words with labels, of passages in RACE's form or of questions as `predict` takes them, or of
        SQuAD.
      flag: the parameter that names it, for messages.
      labelled: whether the right answers must be there.
      most: how many examples are taken at most, from all over the file; None: all.

    Raises:
      file_io.InputError: there is no such file, it is of another task, or has no right answers.
    """
    if not file_io.exists(path):
        raise file_io.InputError(f"{flag}: there is no file {path}")
    examples = _READERS[folder.kind](folder, path, labelled, most)
    if labelled and examples.metric is None:
        raise file_io.InputError(f"{flag}: {path} does not say what the right answers are")
    return examples


def measure(examples, expected, found):
    """The `Agreement` of two models.

    Args:
      examples: `Examples` whose right answers are known.
      expected, found: `inference.FoundModel`s.
    """
    answers = examples.answers(expected), examples.answers(found)
    points = map(examples.score, answers)
    return Agreement(len(answers[0]), share(examples, *answers), examples.metric, *points)


def share(examples, expected, found):
    """Share of the `Examples` with the same answer in two lists of answers."""
    return float(np.mean(examples.same(expected, found)))


# --- texts ----------------------------------------------------------------------------------------


def _texts(folder, path, labelled, most):
    columns = tables.Columns(**folder.setting("columns", tables.are_columns))
    task = _task_of(folder, columns, path, labelled)
    split = "dev" if labelled else "test"
    examples = _some(list(task.iter_examples(os.path.dirname(path), split, False, False)), most)
    gold = [example.label for example in examples]
    names = [name for name in (columns.text, columns.text_pair) if name]
    plain = dataclasses.replace(columns, guid=None)

    def answers(found):
        rows = (
            (f"{path}: {e.guid}", dict(zip(names, (e.text_a, e.text_b), strict=False)))
            for e in examples
        )
        predictor = predictors.TextPredictor(found)
        return [prediction.prediction for prediction in predictor.predict_rows(rows, plain)]

    if not task.is_regression:

        def score(found):
            return 100 * float(np.mean([a == b for a, b in zip(gold, found)]))  # noqa: B905

        return Examples(path, answers, "accuracy", score)
    metric, correlation = glue.REGRESSION_SCORES[0]
    return Examples(
        path,
        answers,
        metric,
        score=lambda found: 100 * correlation(np.array(gold), np.array(found)),
        same=_near,
    )


def _task_of(folder, columns, path, labelled):
    """What reads a file of texts as its split "dev", or without labels as "test"."""
    name = folder.setting("task_name", str)
    known = [row for row in glue.TASKS if row.name == name.lower()]
    if known and path.endswith(".tsv"):
        row, name = known[0], os.path.basename(path)
        changes = {"folder": "", "dev_file": name, "test_file": name}
        if name != row.test_file:  # a file with labels, which are not read as "test"
            changes["test_columns"] = (row.id_column or 0, *row.text_columns)
            changes["headerless"] = ("dev", "test") if "dev" in row.headerless else ()
        return dataclasses.replace(row, **changes)
    return custom.CustomTask(
        {"dev" if labelled else "test": path}, columns, custom.labels_of(folder)
    )


# --- words ----------------------------------------------------------------------------------------


def _words(folder, path, labelled, most):
    columns = word_files.Columns(**folder.setting("columns", word_files.are_columns))
    labels = custom.labels_of(folder)
    sentences = list(word_files.read(path, "check_file", columns, labelled or None))
    if not sentences:
        raise file_io.InputError(f"{path}: there is no sentence")
    unknown = {name for s in sentences for name in s.labels or ()} - set(labels)
    if labelled and unknown:
        raise file_io.InputError(
            f"{path} has the label {min(unknown)!r}; this model has {', '.join(labels)}"
        )
    sentences = _some(sentences, most)
    ends = np.cumsum([len(sentence.words) for sentence in sentences])[:-1]

    def answers(found):
        predictor = token_predictor.TokenPredictor(found)
        every = predictor.predict_sentences(map(word_files.without_labels, sentences))
        return [label for prediction in every for label in prediction.labels]

    def score(found):
        gold = [sentence.labels for sentence in sentences]
        found = [list(row) for row in np.split(np.array(found), ends)]
        if metric == "f1":
            return 100 * word_files.scores(gold, found)["f1"]
        return 100 * word_files.accuracy(gold, found)

    metric = "f1" if word_files.mark_entities(labels) else "accuracy"
    return Examples(path, answers, metric if labelled else None, score)


# --- choices --------------------------------------------------------------------------------------


def _choices(folder, path, labelled, most):
    if path.endswith(".jsonl"):
        with file_io.open_input(path, "check_file", "rb") as lines:
            questions, gold = list(choice_predictor.read_questions(lines, path)), None
    else:
        questions, gold = [], []
        for passage in race.read_passages(path):
            rows = zip(passage["questions"], passage["options"], passage["answers"], strict=True)
            for number, (question, options, answer) in enumerate(rows, 1):
                guid = f"{passage['id']}#{number}"
                questions.append(
                    choice_predictor.Question(guid, passage["article"], question, tuple(options))
                )
                gold.append(string.ascii_uppercase.index(answer))
    if not questions:
        raise file_io.InputError(f"{path}: there is no question")
    questions, gold = _some(questions, most), gold and _some(gold, most)

    def answers(found):
        predictor = choice_predictor.ChoicePredictor(found)
        return [choice.number for choice in predictor.predict(questions)]

    def score(found):
        return 100 * float(np.mean(np.array(found) == gold))

    return Examples(path, answers, None if gold is None else "accuracy", score)


# --- questions ------------------------------------------------------------------------------------


def _questions(folder, path, labelled, most):
    examples = _some(squad_answers.read_squad_examples(path, is_training=False), most)
    keys = [example.qas_id for example in examples]
    rows = [(f"{path}: {e.qas_id}", e.question_text, e.paragraph_text) for e in examples]
    gold = {example.qas_id: list(example.answers or ()) for example in examples}

    def answers(found):
        replies = predictors.Answerer(found).ask_all(rows)
        return [reply.answers[0].text if reply.has_answer else "" for reply in replies]

    def score(found):
        _, f1 = squad_metrics.raw_scores_v2(gold, dict(zip(keys, found, strict=True)))
        return 100 * float(np.mean(list(f1.values())))

    is_known = squad_answers.answers_known(examples)
    return Examples(path, answers, "f1" if is_known else None, score)


_READERS = {
    glue.KIND: _texts,
    token_classification.KIND: _words,
    race.KIND: _choices,
    squad_task.V1: _questions,
    squad_task.V2: _questions,
}
