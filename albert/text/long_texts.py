"""Texts that are longer than a model's input: what the model reads, and how windows answer as one.

Letters in shapes: N windows of all texts, B texts, K labels.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from albert.io import file_io
from albert.text import model_inputs

SETTING = "long_texts"  # of a model's folder: an object with `mode` and, for windows, `doc_stride`
CUT, HEAD_TAIL, WINDOWS = "cut", "head_tail", "windows"
MODES = (CUT, HEAD_TAIL, WINDOWS)
_HEAD = 128  # tokens of the beginning that `HEAD_TAIL` keeps (Sun et al., 2019, arXiv 1905.05583)
_FRACTION = 4  # `HEAD_TAIL` keeps at most 1/4 at the head; a pair leaves 1/4 for the second text
# Features of a window: number of its text in the split, and its tokens of the text in windows.
TEXT_NUMBER, TOKENS = "text_number", "window_tokens"
FEATURES = (TEXT_NUMBER, TOKENS)
_LEAST = float(np.finfo(np.float32).tiny)  # in place of a probability of 0, whose log is infinite
_GAP = float(np.finfo(np.float32).epsneg)  # from 1 to the next smaller number

Floats = npt.NDArray[np.floating[Any]]
Rows = Mapping[str, np.ndarray]


class Window(NamedTuple):
    """An input of a text: ids of the first and the second text, and the tokens that weigh it."""

    ids_a: list[int]
    ids_b: list[int] | None
    tokens: int


@dataclasses.dataclass(frozen=True)
class LongTexts:
    """How a model reads long texts.

    Attributes:
      mode: `CUT` at the end; `HEAD_TAIL`: the first and the last tokens; or `WINDOWS`, of a pair of
        the second text, each with the first text.
      doc_stride: tokens from the start of one window to that of the next; None for other modes.

    Raises file_io.InputError if a value is invalid.
    """

    mode: str = CUT
    doc_stride: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise file_io.InputError(f"long_texts={self.mode!r}: expected {', '.join(MODES)}")
        stride = self.doc_stride
        if self.has_windows != (type(stride) is int and stride > 0):
            expected = "a number above 0" if self.has_windows else "none without windows"
            raise file_io.InputError(f"doc_stride={stride!r}: expected {expected}")

    @property
    def has_windows(self) -> bool:
        """Whether a text may become several inputs."""
        return self.mode == WINDOWS

    @property
    def settings(self) -> dict[str, Any]:
        """JSON-ready dict for a model's folder; empty if long texts are cut."""
        values = {name: x for name, x in dataclasses.asdict(self).items() if x is not None}
        return {} if self == ALL_CUT else {SETTING: values}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "LongTexts":
        """Builds the rule in the settings of a model's folder; without one, `ALL_CUT`."""
        values = settings.get(SETTING, {})
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(values, dict) or not {*values} <= {*names}:
            raise file_io.InputError(
                f"{SETTING}={values!r} must be an object with the keys {', '.join(names)}"
            )
        return cls(**values)

    def read(
        self,
        ids_a: list[int],
        ids_b: list[int] | None,
        max_seq_length: int,
        cuts: model_inputs.Cuts | None = None,
    ) -> list[Window]:
        """Returns the inputs of one or two texts, at least one, which `model_inputs.pack` takes.

        Adds them to `cuts`.
        """
        if self.has_windows:
            windows = self._windows(ids_a, ids_b, max_seq_length)
            kept = len(windows[0].ids_a) + len(ids_b) if ids_b is not None else len(ids_a)
        else:
            a, b = model_inputs.truncate_to_fit(ids_a, ids_b, max_seq_length)
            if self.mode == HEAD_TAIL:
                a = _head_and_tail(ids_a, len(a))
                b = None if ids_b is None or b is None else _head_and_tail(ids_b, len(b))
            kept = len(a) + len(b or ())
            windows = [Window(a, b, kept)]
        if cuts is not None:
            cuts.add(len(ids_a) + len(ids_b or ()), kept, len(windows))
        return windows

    def _windows(
        self, ids_a: list[int], ids_b: list[int] | None, max_seq_length: int
    ) -> list[Window]:
        """Returns windows of the only or the second text; the first is cut for a quarter of it."""
        if ids_b is None:
            return [
                Window(ids_a[start:end], None, end - start)
                for start, end in self._spans(len(ids_a), max_seq_length - 2)
            ]
        room = max_seq_length - 3
        ids_a = ids_a[: room - min(len(ids_b), -(-room // _FRACTION))]
        return [
            Window(ids_a, ids_b[start:end], end - start)
            for start, end in self._spans(len(ids_b), room - len(ids_a))
        ]

    def _spans(self, length: int, room: int) -> list[tuple[int, int]]:
        """Returns (start, end) of the windows of a text, each of at most `room` tokens."""
        if length <= room or self.doc_stride is None:
            return [(0, length)]
        stride = min(self.doc_stride, room)
        starts = range(0, length - room + stride, stride)
        return [(start, min(start + room, length)) for start in starts]


ALL_CUT = LongTexts()


def _head_and_tail(ids: list[int], length: int) -> list[int]:
    """Returns the first and the last ids of a text, `length` together."""
    if len(ids) <= length:
        return ids
    head = min(_HEAD, -(-length // _FRACTION))
    return [*ids[:head], *ids[len(ids) - (length - head) :]]


def default_stride(max_seq_length: int) -> int:
    """Returns the stride of windows that overlap by a quarter."""
    return max(1, (max_seq_length - 2) * 3 // 4)


# --- the answer of all windows of a text ----------------------------------------------------------


class Answers(abc.ABC):
    """The kind of answers of a model, which decides how those of windows become one.

    The answers of windows are mapped to scores, whose mean is mapped back.
    """

    @abc.abstractmethod
    def to_scores(self, answers: Floats) -> Floats:
        """Returns the scores [N, K] of answers."""

    @abc.abstractmethod
    def from_scores(self, scores: Floats) -> Floats:
        """Returns the answers [B, K] of mean scores."""

    @abc.abstractmethod
    def choose(self, answers: npt.NDArray) -> npt.NDArray:
        """Returns the predictions [B, …] of answers [B, K]."""

    @abc.abstractmethod
    def losses(self, answers: Floats, labels: npt.NDArray) -> Floats:
        """Returns the losses [B] of answers."""


@dataclasses.dataclass(frozen=True)
class Numbers(Answers):
    """Answers of a regression, K = 1: a text has the mean of its windows.

    Attributes:
      deviation: unit of the losses, see `label_scale`.
    """

    deviation: float = 1.0

    def to_scores(self, answers: Floats) -> Floats:
        return answers

    def from_scores(self, scores: Floats) -> Floats:
        return scores

    def choose(self, answers: npt.NDArray) -> npt.NDArray:
        return answers[:, 0]

    def losses(self, answers: Floats, labels: npt.NDArray) -> Floats:
        return np.square((answers[:, 0] - labels) / self.deviation)


@dataclasses.dataclass(frozen=True)
class Classes(Answers):
    """Probabilities of K classes, of which a text has one; their logits have a mean.

    The logarithms of probabilities are logits without a constant.

    Attributes:
      temperature: that of the probabilities; losses are those of the logits.
    """

    temperature: float = 1.0

    def to_scores(self, answers: Floats) -> Floats:
        return np.log(np.maximum(answers, _LEAST))

    def from_scores(self, scores: Floats) -> Floats:
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def choose(self, answers: npt.NDArray) -> npt.NDArray:
        return answers.argmax(axis=1)

    def losses(self, answers: Floats, labels: npt.NDArray) -> Floats:
        logits = self.to_scores(answers) * self.temperature
        logits -= logits.max(axis=1, keepdims=True)
        own = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
        return np.log(np.exp(logits).sum(axis=1)) - own


@dataclasses.dataclass(frozen=True)
class LabelSets(Answers):
    """Probabilities of K labels, of which a text has any number; their logits have a mean.

    Attributes:
      thresholds: [K], the lowest probability with which a text has each label.
      temperature: that of the probabilities; losses are those of the logits.
    """

    thresholds: npt.NDArray[np.float32]
    temperature: float = 1.0

    def to_scores(self, answers: Floats) -> Floats:
        clipped = np.clip(answers, _GAP, 1 - _GAP)  # float32 tells no larger ones from 1
        return np.log(clipped) - np.log1p(-clipped)

    def from_scores(self, scores: Floats) -> Floats:
        return 1 / (1 + np.exp(-scores))

    def choose(self, answers: npt.NDArray) -> npt.NDArray:
        return answers >= self.thresholds

    def losses(self, answers: Floats, labels: npt.NDArray) -> Floats:
        logits = self.to_scores(answers) * self.temperature
        return (np.logaddexp(0, logits) - labels * logits).mean(axis=1)


def join(
    answers: npt.ArrayLike, texts: npt.ArrayLike, tokens: npt.ArrayLike, form: Answers
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the answers of texts from those of their windows, which are next to each other.

    The mean over the windows of a text is weighted by their tokens. A text of one window keeps its
    answer.

    Args:
      answers: [N, K].
      texts, tokens: integers [N], the number of the text of a window and its tokens.

    Returns:
      (float32 [B, K], integers [B]: the first window of each text).
    """
    answers, texts = np.asarray(answers, np.float32), np.asarray(texts)
    firsts = np.flatnonzero(np.append(True, texts[1:] != texts[:-1]))
    joined = answers[firsts]
    counts = np.diff(np.append(firsts, len(texts)))
    if len(firsts) == len(texts):
        return joined, firsts
    weights = np.maximum(np.asarray(tokens, np.float64), 1)[:, None]
    scores = form.to_scores(answers.astype(np.float64))
    means = np.add.reduceat(scores * weights, firsts) / np.add.reduceat(weights, firsts)
    joined[counts > 1] = form.from_scores(means)[counts > 1]
    return joined, firsts


def join_rows(rows: Rows, form: Answers) -> dict[str, np.ndarray]:
    """Returns the outputs of texts from those of their windows, in the order of the texts.

    Args:
      rows: arrays [N, …] of `glue.eval_outputs` with `FEATURES`, in any order; those whose
        is_real_example is 0 are left out. Without `FEATURES` they are returned as they are.
    """
    if TEXT_NUMBER not in rows:
        return dict(rows)
    real = np.flatnonzero(rows["is_real_example"])
    order = real[np.argsort(rows[TEXT_NUMBER][real], kind="stable")]
    sorted_rows = {name: np.asarray(values)[order] for name, values in rows.items()}
    texts, tokens = (sorted_rows.pop(name) for name in FEATURES)
    answers, firsts = join(sorted_rows["probabilities"], texts, tokens, form)
    joined = {name: values[firsts] for name, values in sorted_rows.items()}
    several = np.diff(np.append(firsts, len(texts))) > 1
    joined["probabilities"] = answers
    joined["predictions"][several] = form.choose(answers)[several]
    losses = form.losses(answers.astype(np.float64), joined["label_ids"])
    joined["per_example_loss"] = np.where(several, losses, joined["per_example_loss"])
    return joined
