"""Defines SQuAD 1.1 and 2.0 as tasks of the engine: models, settings and evaluation."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from albert.data.input_options import Tensors
from albert.model import head_config
from albert.model.configuration import AlbertConfig
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import positions
from albert.tasks.squad import records as squad_records
from albert.training import contracts, results

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.layers import Compute

# --- settings, questions and answers ------------------------------------------------------------

V1, V2 = squad_records.V1, squad_records.V2
_OVERALL = ("exact_match", "exact", "f1")  # scores over all questions
# Scores of positions [B, S] among the outputs of the models in training.
_LOGITS, _LOG_PROBS = ("start_logits", "end_logits"), ("start_log_probs", "end_log_probs")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of features and answers, in addition to the model and its vocabulary.

    Attributes:
      max_seq_length, max_query_length: maximum tokens of an input, and of a question.
      doc_stride: tokens from the start of one window to that of the next.
      n_best_size, max_answer_length: maximum answers of a question, maximum pieces of an answer.
      start_n_top, end_n_top: starts kept per window, and ends per start; None for SQuAD 1.1.
      dropout_prob: dropout before the outputs in training; None for SQuAD 1.1.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    start_n_top: int | None = None
    end_n_top: int | None = None
    dropout_prob: float | None = None
    head: head_config.Head = head_config.NO_LAYER

    @classmethod
    def default(cls, longest: int) -> "Settings":
        """Returns usual settings for SQuAD 1.1; `longest` limits the inputs, in tokens."""
        length = min(longest, 384)
        query = min(64, length // 4)
        return cls(length, min(128, length // 3), query, n_best_size=20, max_answer_length=30)

    def to_dict(self) -> dict[str, Any]:
        """Returns {attribute: value}, JSON-ready for the model's folder, with those of the head."""
        values = dataclasses.asdict(self)
        del values["head"]
        return values | self.head.settings

    @property
    def window(self) -> dict[str, int]:
        """Returns {name: value} of `lengths`."""
        names = ("max_seq_length", "doc_stride", "max_query_length")
        return dict(zip(names, self.lengths, strict=True))

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Returns max_seq_length, doc_stride and max_query_length, on which features depend."""
        return self.max_seq_length, self.doc_stride, self.max_query_length

    @property
    def beams(self) -> tuple[int, int]:
        """Returns the numbers of starts and of ends that a model of SQuAD 2.0 keeps."""
        assert self.start_n_top and self.end_n_top
        return self.start_n_top, self.end_n_top

    @property
    def widest_beam(self) -> int:
        """Returns the minimum length of inputs; 0 without beams."""
        return max(self.start_n_top or 0, self.end_n_top or 0)


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers of all questions.

    Attributes:
      texts: ``{qas_id: text}``, the best text of each question, even if it is unanswerable.
      nbest: ``{qas_id: [{"text", "probability", "start_log_prob", "end_log_prob": value}, …]}``.
      null_odds: ``{qas_id: score}``, high for unanswerable questions; None for SQuAD 1.1.
    """

    texts: dict[str, str]
    nbest: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float] | None


class Evaluator:
    """Collects the scores of windows and finds the answers in them.

    Args:
      kind: `V1` or `V2`.
      questions: returns the questions; called when they are first needed.

    Attributes:
      results: ``{unique id: {output of the model: array}}``, the collected scores of windows.
    """

    def __init__(
        self, kind: str, settings: Settings, questions: Callable[[], squad_answers.Questions]
    ) -> None:
        self._kind, self._settings, self._get_questions = kind, settings, questions
        self._positions = positions.Scores()
        self.results: dict[int, dict[str, np.ndarray]] = {}

    @functools.cached_property
    def questions(self) -> squad_answers.Questions:
        """Returns the questions."""
        return self._get_questions()

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds {name: array [B, …]} of windows: outputs of `contracts.Task.eval_outputs`."""
        rows = self._positions.take(rows)
        names = [name for name in rows if name != "unique_ids"]
        columns = [rows[name] for name in names]
        for number, *values in zip(rows["unique_ids"].tolist(), *columns, strict=True):
            self.results[number] = dict(zip(names, values, strict=True))

    def answers(self) -> Answers:
        """Finds the best text of each question, whether or not it is answerable."""
        settings = self._settings
        arguments = (
            self.questions.examples,
            self.questions.features,
            self.results,
            settings.n_best_size,
            settings.max_answer_length,
        )
        if self._kind == V1:
            return Answers(*squad_answers.predictions_v1(*arguments), null_odds=None)
        # No null odds reach this threshold.
        return Answers(*squad_answers.predictions_v2(*arguments, *settings.beams, math.inf))

    def score(self, answers: Answers) -> dict[str, float]:
        """Returns the scores of the answers and of the predicted positions, by name."""
        scores = self._score(answers.texts, answers.null_odds)
        return {**scores, **self._positions.result()}

    def _score(
        self, texts: dict[str, str], null_odds: dict[str, float] | None = None
    ) -> dict[str, float]:
        """Returns the scores of texts by name, in percent, by the rules of the kind."""
        if self._kind == V1:
            return squad_metrics.evaluate_v1(self.questions.dataset, texts)
        return squad_metrics.evaluate_v2(self.questions.dataset, texts, null_odds)

    def result(self) -> dict[str, float]:
        """Returns the scores of `answers` by name."""
        return self.score(self.answers())

    def classes(self) -> tuple[results.ClassCount, ...]:
        """Returns (): the answers are no classes."""
        return ()

    def baseline(self) -> dict[str, float]:
        """Returns exact match and F1 over all questions, by name, if none is answered."""
        texts = dict.fromkeys(squad_metrics.gold_answers(self.questions.dataset), "")
        scores = self._score(texts)
        return {name: scores[name] for name in _OVERALL if name in scores}


def _eval_outputs_v1(
    outputs: Tensors, features: Tensors, max_seq_length: int
) -> dict[str, "tf.Tensor"]:
    """Returns unique_ids [B], start_log_prob and end_log_prob [B, S], and `positions.eval_rows`.

    Logits are padded to S, so that all batches have the same length.
    """
    import tensorflow as tf

    is_real = features["input_mask"] > 0
    missing = max_seq_length - tf.shape(is_real)[1]

    def whole(logits: "tf.Tensor") -> "tf.Tensor":
        """Pads logits [B, S'] to [B, S], without places that no answer can have."""
        logits = tf.where(is_real, logits, squad_answers.NO_LOGIT)
        padded = tf.pad(logits, [[0, 0], [0, missing]], constant_values=squad_answers.NO_LOGIT)
        return tf.ensure_shape(padded, [None, max_seq_length])

    scores = {
        "start_log_prob": whole(outputs["start_logits"]),
        "end_log_prob": whole(outputs["end_logits"]),
    }
    places = positions.eval_rows({**outputs, **scores}, features, tuple(scores))
    return {"unique_ids": tf.reshape(features["unique_ids"], [-1]), **scores, **places}


def _eval_outputs_v2(outputs: Tensors, features: Tensors) -> dict[str, "tf.Tensor"]:
    """Returns unique_ids [B], the scores of windows' beams, and `positions.eval_rows` by name."""
    import tensorflow as tf

    places = positions.eval_rows(outputs, features, _LOG_PROBS)
    left_out = (*_LOG_PROBS, "per_example_loss")
    rows = {name: values for name, values in outputs.items() if name not in left_out}
    return {"unique_ids": tf.reshape(features["unique_ids"], [-1]), **rows, **places}


KINDS = (V1, V2)


def make_task(
    kind: str,
    settings: Settings,
    questions: Callable[[], squad_answers.Questions] = squad_answers.no_questions,
) -> contracts.Task:
    """Returns the `contracts.Task` of SQuAD 1.1 (`V1`) or 2.0 (`V2`).

    Args:
      questions: returns the questions of its evaluators; called when they are first needed.
    """
    from albert.model import heads
    from albert.training import learning_signals

    def build_model(config: AlbertConfig, compute: "Compute", seed: int) -> heads.Model:
        """Builds the model; `seed` is that of the new variables."""
        if kind == V1:
            return heads.SquadV1Model(config, compute, seed, settings.head)
        rate = settings.dropout_prob or 0.0
        return heads.SquadV2Model(config, *settings.beams, rate, compute, seed, settings.head)

    partial = functools.partial
    of_kind: dict[str, Any] = {
        V1: {
            "eval_outputs": partial(_eval_outputs_v1, max_seq_length=settings.max_seq_length),
            "train_metrics": partial(positions.train_metrics, names=_LOGITS),
            "metrics": ("exact_match", "f1"),
            "learning_signals": learning_signals.span_signals,
        },
        V2: {
            "eval_outputs": _eval_outputs_v2,
            "train_metrics": partial(positions.train_metrics, names=_LOG_PROBS),
            "metrics": ("exact", "f1", "best_exact", "best_f1"),
            "learning_signals": learning_signals.span_or_none_signals,
        },
    }
    return contracts.Task(
        name=kind,
        build_model=build_model,
        evaluator=partial(Evaluator, kind, settings, questions),
        best_metric="f1",
        training_means=positions.TRAINING_MEANS,
        results_form=results.SQUAD,
        **of_kind[kind],
    )
