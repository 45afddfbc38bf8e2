"""SQuAD 1.1 and 2.0 as tasks of the engine: settings, models, answers and scores.

TensorFlow is imported only where a function builds a part of it.
"""

import dataclasses
import functools
import math

import numpy as np

from albert.model import head_config
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import records as squad_records
from albert.training import contracts, results

# What of the training each evaluation reports, too; see `contracts.Task.training_means`.
TRAINING_MEANS = ("loss", "start_accuracy", "end_accuracy")
_ROWS = ("start_is_right", "end_is_right", "per_example_loss", "place_is_known")


def targets(questions):
    """Places of the answers in the windows of questions to answer.

    Args:
      questions: `Questions`.

    Returns:
      Dict of int32 arrays [W]: start_positions and end_positions, 0 without a whole answer;
      is_impossible, 1 there; place_is_known, 0 where the file does not say where the answer is.
    """
    examples = {example.qas_id: example for example in questions.examples}
    rows = np.zeros([len(questions.features), 4], np.int32)
    for row, window in zip(rows, questions.features, strict=True):
        example = examples[window.qas_id]
        row[:] = 0, 0, 1, 1
        if example.is_impossible or not example.answers:
            continue
        if example.answer_starts is None or example.answer_starts[0] is None:
            row[3] = 0
            continue
        first = example.answer_starts[0]
        last = first + len(example.answers[0]) - 1
        # The piece that a character belongs to is the last one that starts at or before it.
        start, end = np.searchsorted(window.piece_start, [first, last], side="right") - 1
        if start >= 0 and window.piece_end[-1] >= last:
            row[:3] = window.text_begin + start, window.text_begin + end, 0
    names = ("start_positions", "end_positions", "is_impossible", "place_is_known")
    return dict(zip(names, rows.T, strict=True))


def _right(outputs, features, names):
    """Whether starts and ends are right: two float tensors [B].

    `names` are those of the scores [B, S] in the outputs.
    """
    import tensorflow as tf

    pairs = zip(names, ("start_positions", "end_positions"), strict=True)
    return [
        tf.cast(
            tf.argmax(outputs[name], -1, tf.int32)
            == tf.cast(tf.reshape(features[target], [-1]), tf.int32),
            tf.float32,
        )
        for name, target in pairs
    ]


def train_metrics(outputs, features, names):
    """`contracts.Task.train_metrics`: accuracy of both positions; for `names` see `eval_rows`."""
    import tensorflow as tf

    right = zip(("start_accuracy", "end_accuracy"), _right(outputs, features, names), strict=True)
    return {name: (tf.reduce_sum(x), tf.cast(tf.size(x), tf.float32)) for name, x in right}


def eval_rows(outputs, features, names):
    """What `Scores` needs of a batch: dict of tensors [B], empty where no answer is known.

    Args:
      outputs, features: of the model.
      names: of the scores of starts and ends [B, S] among the outputs.
    """
    if "start_positions" not in features:
        return {}
    rows = (*_right(outputs, features, names), outputs["per_example_loss"])
    return dict(zip(_ROWS, (*rows, features["place_is_known"]), strict=True))


class Scores:
    """Accuracy of both positions and the loss over all windows whose answer has a known place."""

    def __init__(self):
        self._batches = []

    def take(self, rows):
        """Adds a batch of rows, dict of arrays [B, …]; returns those that are not of `eval_rows`.

        A window must not be added twice.
        """
        if _ROWS[0] in rows:
            known = np.asarray(rows["place_is_known"]).astype(bool)
            self._batches.append(np.stack([rows[name] for name in _ROWS[:3]])[:, known])
        return {name: values for name, values in rows.items() if name not in _ROWS}

    def result(self):
        """start_accuracy, end_accuracy and eval_loss; nothing where no place is known."""
        columns = np.concatenate([np.zeros([3, 0]), *self._batches], axis=1)
        if not columns.shape[1]:
            return {}
        names = ("start_accuracy", "end_accuracy", "eval_loss")
        return dict(zip(names, map(float, columns.mean(axis=1)), strict=True))


# --- settings, questions and answers ------------------------------------------------------------

V1, V2 = squad_records.V1, squad_records.V2
_OVERALL = ("exact_match", "exact", "f1")  # scores over all questions
# Scores of positions [B, S] among the outputs of the models in training.
_LOGITS, _LOG_PROBS = ("start_logits", "end_logits"), ("start_log_probs", "end_log_probs")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What features and answers depend on beside the model and its vocabulary.

    Attributes:
      max_seq_length, doc_stride, max_query_length: see `squad_features.Featurizer`.
      n_best_size, max_answer_length: see `squad_utils.best_answers_v1`.
      start_n_top, end_n_top, dropout_prob: see `heads.SquadV2Model`; None for SQuAD 1.1.
      head_hidden_size and the like: see `head_config.Head`.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    start_n_top: int | None = None
    end_n_top: int | None = None
    dropout_prob: float | None = None
    head_hidden_size: int | None = None
    head_activation: str = "relu"
    head_input_activation: str = "linear"
    head_dropout_prob: float = 0.0

    @property
    def head(self):
        """`head_config.Head`."""
        return head_config.Head.of(dataclasses.asdict(self))

    def to_dict(self):
        """JSON-ready dict for a model's folder, from which it can be made again."""
        values = dataclasses.asdict(self).items()
        return {k: v for k, v in values if not k.startswith("head_")} | self.head.settings

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
        return squad_answers.answers_known(self.examples)

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
        self._positions = Scores()
        self.results = {}

    @functools.cached_property
    def questions(self):
        return self._get_questions()

    def update(self, rows):
        """Adds windows: dict of arrays [B, …], with ``unique_ids`` [B]."""
        rows = self._positions.take(rows)
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
        """Scores of `Answers` of these questions, and of the places: dict of numbers."""
        return {**self._score(self.questions.dataset, answers), **self._positions.result()}

    def result(self):
        """The scores of `answers`."""
        return self.score(self.answers())

    def baseline(self):
        """Exact match and F1 over all questions of giving no answer to any."""
        dataset = self.questions.dataset
        texts = dict.fromkeys(squad_metrics.gold_answers(dataset), "")
        scores = self._score(dataset, Answers(texts, {}, dict.fromkeys(texts, 0.0)))
        return {name: scores[name] for name in _OVERALL if name in scores}


# --- SQuAD 1.1 -----------------------------------------------------------------------------------


def _build_v1(config, compute, seed, settings):
    from albert.model import heads

    return heads.SquadV1Model(config, compute, seed, settings.head)


def _eval_outputs_v1(outputs, features, max_seq_length):
    """Logits [B, S] of the whole length, so that batches of all lengths fit together."""
    import tensorflow as tf

    is_real = features["input_mask"] > 0
    missing = max_seq_length - tf.shape(is_real)[1]

    def whole(logits):
        logits = tf.where(is_real, logits, squad_answers.NO_LOGIT)
        padded = tf.pad(logits, [[0, 0], [0, missing]], constant_values=squad_answers.NO_LOGIT)
        return tf.ensure_shape(padded, [None, max_seq_length])

    scores = {
        "start_log_prob": whole(outputs["start_logits"]),
        "end_log_prob": whole(outputs["end_logits"]),
    }
    places = eval_rows(outputs | scores, features, tuple(scores))
    return {"unique_ids": tf.reshape(features["unique_ids"], [-1]), **scores, **places}


def _decode_v1(questions, results, settings):
    texts, nbest = squad_answers.predictions_v1(
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
    from albert.training import learning_signals

    decode = functools.partial(_decode_v1, settings=settings)
    return contracts.Task(
        name=V1,
        build_model=functools.partial(_build_v1, settings=settings),
        eval_outputs=functools.partial(_eval_outputs_v1, max_seq_length=settings.max_seq_length),
        evaluator=functools.partial(Evaluator, questions, decode, _score_v1),
        train_metrics=functools.partial(train_metrics, names=_LOGITS),
        best_metric="f1",
        metrics=("exact_match", "f1"),
        signs=learning_signals.of_spans,
        training_means=TRAINING_MEANS,
        results_form=results.SQUAD,
    )


# --- SQuAD 2.0 -----------------------------------------------------------------------------------


def _build_v2(config, compute, seed, settings):
    from albert.model import heads

    beams = (settings.start_n_top, settings.end_n_top)
    return heads.SquadV2Model(config, *beams, settings.dropout_prob, compute, seed, settings.head)


def _eval_outputs_v2(outputs, features):
    import tensorflow as tf

    places = eval_rows(outputs, features, _LOG_PROBS)
    left_out = (*_LOG_PROBS, "per_example_loss")
    rows = {name: values for name, values in outputs.items() if name not in left_out}
    return {"unique_ids": tf.reshape(features["unique_ids"], [-1]), **rows, **places}


def _decode_v2(questions, results, settings):
    texts, nbest, null_odds = squad_answers.predictions_v2(
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
    from albert.training import learning_signals

    decode = functools.partial(_decode_v2, settings=settings)
    return contracts.Task(
        name=V2,
        build_model=functools.partial(_build_v2, settings=settings),
        eval_outputs=_eval_outputs_v2,
        evaluator=functools.partial(Evaluator, questions, decode, _score_v2),
        train_metrics=functools.partial(train_metrics, names=_LOG_PROBS),
        best_metric="f1",
        metrics=("exact", "f1", "best_exact", "best_f1"),
        signs=learning_signals.of_spans_or_none,
        training_means=TRAINING_MEANS,
        results_form=results.SQUAD,
    )


_BUILDERS = {V1: _make_v1, V2: _make_v2}
KINDS = tuple(_BUILDERS)


def make_task(kind, settings, questions=None):
    """The `contracts.Task` of SQuAD 1.1 (`V1`) or 2.0 (`V2`).

    Args:
      kind: `V1` or `V2`.
      settings: `Settings`.
      questions: function without arguments that returns the `Questions` that its evaluators work
        on; None where nothing is evaluated.
    """
    return _BUILDERS[kind](settings, questions)
