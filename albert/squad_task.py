"""SQuAD 1.1 and 2.0 as tasks of the engine: models, answers and their scores."""

import dataclasses
import functools
import math

from albert import squad_metrics, squad_utils, task

V1, V2 = "squad_v1", "squad_v2"
# Logit of padding: never among the best, so that answers do not depend on how long a batch is.
_NO_LOGIT = -1e30


@dataclasses.dataclass(frozen=True)
class Settings:
    """What features and answers depend on beside the model and its vocabulary.

    Attributes:
      max_seq_length, doc_stride, max_query_length: see `squad_features.Featurizer`.
      n_best_size, max_answer_length: see `squad_utils.best_answers_v1`.
      start_n_top, end_n_top, dropout_prob: see `heads.SquadV2Model`; None for SQuAD 1.1.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    start_n_top: int | None = None
    end_n_top: int | None = None
    dropout_prob: float | None = None

    @property
    def window(self):
        """The lengths that features depend on, as keyword arguments of what makes them."""
        names = ("max_seq_length", "doc_stride", "max_query_length")
        return {name: getattr(self, name) for name in names}

    @property
    def widest_beam(self):
        """Places that an input must have at least; 0 without beams."""
        return max(self.start_n_top or 0, self.end_n_top or 0)


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions to answer and their windows.

    Attributes:
      examples: list of `squad_utils.SquadExample`.
      features: list of `squad_utils.SquadFeatures`, in the order of the records.
    """

    examples: list
    features: list

    @functools.cached_property
    def answers_known(self):
        return squad_utils.answers_known(self.examples)

    @functools.cached_property
    def dataset(self):
        """The gold answers in the layout of SQuAD files."""
        questions = [
            {"id": example.qas_id, "answers": [{"text": text} for text in example.answers or ()]}
            for example in self.examples
        ]
        return [{"paragraphs": [{"qas": questions}]}]


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers of all questions.

    Attributes:
      texts: ``{qas_id: text}``, the best text of each, whether or not it has an answer.
      nbest: ``{qas_id: [entry of nbest_predictions.json, …]}``.
      null_odds: ``{qas_id: score}``, high where there is no answer; None under SQuAD 1.1.
    """

    texts: dict
    nbest: dict
    null_odds: dict | None


# --- evaluation ---------------------------------------------------------------------------------


class Evaluator:
    """Collects the scores of windows, and makes answers of them.

    Args:
      questions: function without arguments that returns `Questions`; called by the first answer.
      decode: ``(questions, results) -> Answers``; results as for `squad_utils.best_answers_v1`.
      score: ``(dataset, Answers) -> dict[str, float]``.

    Attributes:
      results: ``{unique id: {name: array}}``, what was collected.
    """

    def __init__(self, questions, decode, score):
        self._get_questions = questions
        self._decode = decode
        self._score = score
        self.results = {}

    @functools.cached_property
    def questions(self):
        return self._get_questions()

    def update(self, rows):
        """Adds windows: dict of arrays [B, …], with ``unique_ids`` [B]."""
        names = [name for name in rows if name != "unique_ids"]
        columns = [rows[name] for name in names]
        for number, *values in zip(rows["unique_ids"].tolist(), *columns, strict=True):
            self.results[number] = dict(zip(names, values, strict=True))

    def answers(self):
        """`Answers` of the questions whose windows all have been added.

        Raises:
          file_io.InputError: windows are missing.
        """
        return self._decode(self.questions, self.results)

    def score(self, answers):
        """Scores of `Answers` of these questions: dict of numbers."""
        return self._score(self.questions.dataset, answers)

    def result(self):
        """The scores of `answers`."""
        return self.score(self.answers())


# --- SQuAD 1.1 -----------------------------------------------------------------------------------


def _build_v1(config, compute, seed):
    from albert import heads

    return heads.SquadV1Model(config, compute, seed)


def _eval_outputs_v1(outputs, features, max_seq_length):
    """Logits [B, S] of the whole length, so that batches of all lengths fit together."""
    import tensorflow as tf

    is_real = features["input_mask"] > 0
    missing = max_seq_length - tf.shape(is_real)[1]

    def whole(logits):
        logits = tf.where(is_real, logits, _NO_LOGIT)
        padded = tf.pad(logits, [[0, 0], [0, missing]], constant_values=_NO_LOGIT)
        return tf.ensure_shape(padded, [None, max_seq_length])

    return {
        "unique_ids": tf.reshape(features["unique_ids"], [-1]),
        "start_log_prob": whole(outputs["start_logits"]),
        "end_log_prob": whole(outputs["end_logits"]),
    }


def _decode_v1(questions, results, settings):
    texts, nbest = squad_utils.predictions_v1(
        questions.examples,
        questions.features,
        results,
        settings.n_best_size,
        settings.max_answer_length,
    )
    return Answers(texts, nbest, None)


def _score_v1(dataset, answers):
    return squad_metrics.evaluate_v1(dataset, answers.texts)


def _make_v1(settings, questions):
    decode = functools.partial(_decode_v1, settings=settings)
    return task.Task(
        name=V1,
        build_model=_build_v1,
        eval_outputs=functools.partial(_eval_outputs_v1, max_seq_length=settings.max_seq_length),
        evaluator=functools.partial(Evaluator, questions, decode, _score_v1),
        train_metrics=task.no_metrics,
        best_metric="f1",
    )


# --- SQuAD 2.0 -----------------------------------------------------------------------------------


def _build_v2(config, compute, seed, settings):
    from albert import heads

    beams = (settings.start_n_top, settings.end_n_top)
    return heads.SquadV2Model(config, *beams, settings.dropout_prob, compute, seed)


def _eval_outputs_v2(outputs, features):
    import tensorflow as tf

    return {"unique_ids": tf.reshape(features["unique_ids"], [-1]), **outputs}


def _decode_v2(questions, results, settings):
    texts, nbest, null_odds = squad_utils.predictions_v2(
        questions.examples,
        questions.features,
        results,
        settings.n_best_size,
        settings.max_answer_length,
        settings.start_n_top,
        settings.end_n_top,
        null_score_diff_threshold=math.inf,  # the best text of each question
    )
    return Answers(texts, nbest, null_odds)


def _score_v2(dataset, answers):
    return squad_metrics.evaluate_v2(dataset, answers.texts, answers.null_odds)


def _make_v2(settings, questions):
    decode = functools.partial(_decode_v2, settings=settings)
    return task.Task(
        name=V2,
        build_model=functools.partial(_build_v2, settings=settings),
        eval_outputs=_eval_outputs_v2,
        evaluator=functools.partial(Evaluator, questions, decode, _score_v2),
        train_metrics=task.no_metrics,
        best_metric="f1",
    )


_BUILDERS = {V1: _make_v1, V2: _make_v2}
KINDS = tuple(_BUILDERS)


def make_task(kind, settings, questions=None):
    """The `task.Task` of SQuAD 1.1 (`V1`) or 2.0 (`V2`).

    Args:
      kind: `V1` or `V2`.
      settings: `Settings`.
      questions: function without arguments that returns the `Questions` that its evaluators work
        on; None where nothing is evaluated.
    """
    return _BUILDERS[kind](settings, questions)
