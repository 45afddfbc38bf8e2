"""Measures how far the probabilities of a classifier can be trusted, and mends them.

`measure` fits a temperature and scores probabilities on examples that it was not fitted on;
`find_abstention` finds the probability below which a model must not answer, so that the answers
keep a promised error. Own code in place of SciPy's, which training does not need otherwise.

Several labels per text are as many examples, one after another. Resamples and parts then hold
whole texts, as the labels of a text depend on each other.

Letters in shapes: N examples, K labels, R resamples, G thresholds. If not stated otherwise,
probabilities are [N, K] and labels ids [N]; each text is `per_text` consecutive examples.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging

from albert.model import decision as decisions

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

ABSTENTION = "abstention_"  # prefix of its results
BINS = 15  # of equal mass
CONFIDENCE = 0.95  # of intervals and of the promise of `find_abstention`
_PARTS = 5  # of the cross-fitting
RESAMPLES = 1000
_LARGEST = 20.0  # a temperature is between 1 / _LARGEST and _LARGEST
_SMALLEST = float(np.finfo(np.float32).tiny)  # a probability in logarithms
_CHUNK = 4_000_000  # numbers held at a time


# --- the temperature ------------------------------------------------------------------------------


def to_logits(probabilities: Floats, temperature: float = 1.0) -> Floats:
    """Returns logits [N, K], but for a constant of each row, from probabilities [N, K]."""
    clipped = np.maximum(np.asarray(probabilities, np.float64), _SMALLEST)
    return np.log(clipped) * temperature


def as_choices(probabilities: Floats, labels: Integers) -> tuple[Floats, Integers]:
    """Returns several labels per text as choices between two: whether a text has a label.

    Args:
      probabilities, labels: [N, K]; a label is 1 if the text has it, else 0.

    Returns:
      Probabilities [N * K, 2], of which none is so close to 0 that float32 cannot tell, and labels
      [N * K].
    """
    limit = np.finfo(np.float32).epsneg
    yes = np.clip(np.asarray(probabilities, np.float64).reshape(-1), limit, 1 - limit)
    return np.stack([1 - yes, yes], axis=1), labels.reshape(-1)


def softmax(logits: Floats) -> Floats:
    """Computes the probabilities [N, K] of logits [N, K]."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def fit_temperature(logits: Floats, labels: Integers) -> float | None:
    """Finds the temperature of logits [N, K] with the highest likelihood of the label ids [N].

    The log likelihood is concave in 1 / temperature, so its slope has at most one root.

    Returns:
      The temperature; None if the slope has no root between the limits: because every prediction
      is right, or because the predictions are worse than chance.
    """
    if not len(labels):
        return None
    logits = logits - logits.max(axis=1, keepdims=True)
    mean_of_labels = logits[np.arange(len(labels)), labels].mean()

    def slope(inverse: float) -> float:
        """Returns the derivative of the mean log likelihood at `inverse`, 1 / temperature."""
        expected = np.sum(softmax(inverse * logits) * logits, axis=1)
        return float(mean_of_labels - expected.mean())

    low, high = -math.log(_LARGEST), math.log(_LARGEST)
    if not slope(math.exp(low)) > 0 > slope(math.exp(high)):
        return None
    for _ in range(40):  # to 1e-11 of the logarithm
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) > 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def split_in_parts(labels: Integers) -> Iterator[npt.NDArray[np.bool_]]:
    """Yields bool [N], whether an example is in a part, with equal fractions of label ids [N]."""
    order = np.random.default_rng(0).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    parts = np.empty(len(labels), np.int64)
    parts[order] = np.arange(len(labels)) % _PARTS
    for part in range(_PARTS):
        yield parts == part


def cross_fit(logits: Floats, labels: Integers, per_text: int = 1) -> Floats:
    """Computes probabilities of logits [N, K] with temperatures fitted to labels of other texts."""
    found = np.empty(logits.shape)
    for part in split_in_parts(labels.reshape(-1, per_text).sum(axis=1)):
        held_out = np.repeat(part, per_text)
        temperature = fit_temperature(logits[~held_out], labels[~held_out]) or 1.0
        found[held_out] = softmax(logits[held_out] / temperature)
    return found


# --- scores of probabilities ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bin:
    """The examples of one bin of a reliability diagram.

    Attributes:
      confidence: mean of their top probabilities.
      accuracy: fraction of them that are right; low and high are its interval of 95%.
    """

    count: int
    confidence: float
    accuracy: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of probabilities against labels.

    Attributes:
      log_loss: mean negative log likelihood.
      brier: mean over examples of the sum over labels of (p - y)².
      ece: expected calibration error over bins of equal mass; low and high are its interval of 95%.
      ece_by_chance, ece_by_chance_high: mean of it, and the value that it exceeds with a
        probability of 5%, for perfectly calibrated probabilities of as many examples.
    """

    log_loss: float
    brier: float
    ece: float
    ece_low: float
    ece_high: float
    ece_by_chance: float
    ece_by_chance_high: float
    bins: tuple[Bin, ...] = dataclasses.field(repr=False)


def log_losses(probabilities: Floats, labels: Integers) -> Floats:
    """Computes the negative log likelihoods [N] of label ids [N] from probabilities [N, K]."""
    chosen = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(chosen, _SMALLEST))


def brier_score(probabilities: Floats, labels: Integers) -> float:
    """Computes the Brier score, from 0 to 2, of probabilities [N, K] for label ids [N]."""
    one_hot = np.arange(probabilities.shape[1]) == labels[:, np.newaxis]
    return float(np.mean(np.sum(np.square(probabilities - one_hot), axis=1)))


def _edges(count: int) -> Integers:
    """Returns the places where bins of `count` sorted examples begin, and the end of the last."""
    bins = min(BINS, count)
    return np.arange(bins + 1) * count // bins


def _errors(confidences: Floats, is_right: npt.NDArray[Any]) -> Floats:
    """Computes calibration errors [R] of sorted top probabilities [R, N], right or not [R, N]."""
    gaps = np.asarray(is_right, np.float64) - confidences
    sums = np.add.reduceat(gaps, _edges(gaps.shape[1])[:-1], axis=1)
    return np.abs(sums).sum(axis=1) / gaps.shape[1]


def calibration_error(confidences: Floats, is_right: npt.NDArray[np.bool_]) -> float:
    """Computes the expected calibration error of top probabilities [N] that are right or not."""
    order = np.argsort(confidences, kind="stable")
    return float(_errors(confidences[order][np.newaxis], is_right[order])[0])


def _in_chunks(size: int, draw: Callable[[int], Floats]) -> Floats:
    """Returns `RESAMPLES` numbers of ``draw(count)``, which holds rows [count, size] of numbers."""
    step = max(1, _CHUNK // size)
    counts = [min(step, RESAMPLES - done) for done in range(0, RESAMPLES, step)]
    return np.concatenate([draw(count) for count in counts])


def _errors_of_resamples(
    confidences: Floats, is_right: npt.NDArray[np.bool_], places: Integers
) -> Floats:
    """Computes errors [R] of bootstrap samples of sorted top probabilities, right or not [N].

    `places` [texts, examples of each] are the places of the examples of a text among the sorted.
    """
    rng, size = np.random.default_rng(1), len(confidences)

    def draw(count: int) -> Floats:
        """Returns the errors of `count` bootstrap samples."""
        texts = rng.integers(len(places), size=(count, len(places)))
        picked = np.sort(places[texts].reshape(count, size), axis=1)
        return _errors(confidences[picked], is_right[picked])

    return _in_chunks(size, draw)


def _errors_by_chance(confidences: Floats) -> Floats:
    """Computes errors [R] of sorted top probabilities [N] that are as often right as they say."""
    rng, size = np.random.default_rng(2), len(confidences)
    return _in_chunks(
        size, lambda count: _errors(confidences, rng.random((count, size)) < confidences)
    )


def score(probabilities: Floats, labels: Integers, per_text: int = 1) -> Scores:
    """Scores probabilities [N, K] against label ids [N].

    The level of chance and the intervals of bins are those of independent examples.
    """
    confidences = probabilities.max(axis=1)
    order = np.argsort(confidences, kind="stable")
    places = np.argsort(order).reshape(-1, per_text)
    places = places[np.argsort(places[:, 0])]
    confidences = confidences[order]
    is_right = (probabilities.argmax(axis=1) == labels)[order]
    ece = calibration_error(confidences, is_right)
    tails = (0.5 + CONFIDENCE / 2, 0.5 - CONFIDENCE / 2)
    by_chance = _errors_by_chance(confidences)
    chance = float(np.quantile(by_chance, CONFIDENCE))
    # Resampling adds to the error what chance has added already. The basic bootstrap takes it off,
    # but not all of it where the true error is small: then the low end is what chance leaves.
    errors = _errors_of_resamples(confidences, is_right, places)
    low, high = 2 * ece - np.quantile(errors, tails)
    low = min(float(low), ece - chance)
    return Scores(
        float(np.mean(log_losses(probabilities, labels))),
        brier_score(probabilities, labels),
        ece,
        max(0.0, low),
        max(ece, float(high)),
        float(by_chance.mean()),
        chance,
        tuple(_bins(confidences, is_right)),
    )


def _bins(confidences: Floats, is_right: npt.NDArray[np.bool_]) -> Iterator[Bin]:
    """Yields the bins of sorted top probabilities, right or not [N]."""
    edges = _edges(len(confidences))
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        right, count = int(is_right[begin:end].sum()), int(end - begin)
        tail = (1 - CONFIDENCE) / 2
        low = 1 - upper_bound(count - right, count, tail)
        high = upper_bound(right, count, tail)
        yield Bin(count, float(confidences[begin:end].mean()), right / count, low, high)


# --- calibration ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A temperature and what it changes.

    Attributes:
      temperature: fitted on all examples; 1 if `is_fitted` is false.
      is_fitted: whether there is a best temperature, see `fit_temperature`.
      examples: number of texts.
      per_text: number of labels that a text has or not; 1: it has one label.
      before, after: scores without temperature, and of the temperature, cross-fitted.
      gain, gain_low, gain_high: how much lower the log loss is after than before, with interval.
    """

    temperature: float
    is_fitted: bool
    examples: int
    before: Scores
    after: Scores
    gain: float
    gain_low: float
    gain_high: float
    per_text: int = 1

    @property
    def has_fault(self) -> bool:
        """Tells whether there was something to mend: more than chance explains."""
        return self.before.ece > self.before.ece_by_chance_high or self.gain_low > 0

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dict of the attributes, ``has_fault`` and ``text``."""
        return {**dataclasses.asdict(self), "has_fault": self.has_fault, "text": self.describe()}

    def results(self) -> dict[str, float]:
        """Returns ``temperature``, ``uncalibrated_ece``, ``calibrated_ece`` and so on by name."""
        found = {"temperature": self.temperature}
        for prefix, scores in (("uncalibrated", self.before), ("calibrated", self.after)):
            values = dataclasses.asdict(scores)
            names = ("log_loss", "brier", "ece", "ece_low", "ece_high", "ece_by_chance")
            found |= {f"{prefix}_{name}": values[name] for name in names}
        return found

    def describe(self) -> str:
        """Says in a few sentences what the temperature changes."""
        before, after = self.before, self.after
        examples, condition = f"{self.examples} examples", ""
        if self.per_text > 1:
            examples += f" with {self.per_text} labels each"
            condition = ", if the labels of a text are independent"
        if not self.is_fitted:
            return (
                f"Calibration on {examples}: no temperature fits best, because every "
                "prediction is right or they are no better than chance; it stays 1"
            )
        text = (
            f"Calibration on {examples}: temperature {self.temperature:.3f}; "
            f"log loss {before.log_loss:.4f} before, {after.log_loss:.4f} after (cross-fitted); "
            f"ECE {before.ece:.4f} before, {after.ece:.4f} after, where a perfectly calibrated "
            f"model shows {before.ece_by_chance:.4f} by chance{condition}"
        )
        if self.has_fault:
            return text if self.gain > 0 else f"{text}. No temperature mends this"
        return f"{text}. There was nothing to mend: chance alone explains the difference"


def measure(logits: Floats, labels: Integers, per_text: int = 1) -> Calibration:
    """Fits a temperature to logits [N, K] and label ids [N], and scores it, cross-fitted."""
    temperature = fit_temperature(logits, labels)
    before, after = softmax(logits), cross_fit(logits, labels, per_text)
    gains = log_losses(before, labels) - log_losses(after, labels)
    gains = gains.reshape(-1, per_text).mean(axis=1)
    rng, size = np.random.default_rng(3), len(gains)
    means = _in_chunks(
        size, lambda count: gains[rng.integers(size, size=(count, size))].mean(axis=1)
    )
    low, high = np.quantile(means, (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2))
    return Calibration(
        temperature or 1.0,
        temperature is not None,
        size,
        score(before, labels, per_text),
        score(after, labels, per_text),
        float(gains.mean()),
        float(low),
        float(high),
        per_text,
    )


# --- abstention -----------------------------------------------------------------------------------


def tail(errors: int, count: int, rate: float) -> float:
    """Computes the probability of `errors` or fewer errors among `count` examples.

    Args:
      rate: probability of an error in each example, above 0 and below 1.
    """
    if errors >= count:
        return 1.0
    numbers = np.arange(1, errors + 1)
    ways = np.append(0, np.cumsum(np.log((count - numbers + 1) / numbers)))
    numbers = np.arange(errors + 1)
    logs = ways + numbers * math.log(rate) + (count - numbers) * math.log1p(-rate)
    return min(1.0, float(np.exp(logs).sum()))


def upper_bound(errors: int, count: int, risk: float) -> float:
    """Returns the error rate that is exceeded with a probability of at most `risk`: the exact
    bound of Clopper and Pearson (1934) for `errors` among `count` examples.
    """
    if errors >= count:
        return 1.0
    low, high = errors / count, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(errors, count, middle) > risk else (low, middle)
    return high


def thresholds(temperature: float = 1.0) -> Floats:
    """Returns the probabilities [G] to try as threshold, from strict to loose; the last is 0.

    They are even in the logit before the temperature. So for two labels it does not depend on the
    temperature, and thereby on labels, which examples are above a threshold.
    """
    return np.append(1 / (1 + np.exp(-np.arange(16, -8, -0.05) / temperature)), 0.0)


def first_count(max_error: float, examples: int) -> int:
    """Returns how many examples above a threshold the first one to be tested needs.

    So many that three quarters of the promised rate would pass, so that a few wrong labels among
    the most certain examples do not end the search; a quarter of the examples, if that can pass.
    """
    risk, count = 1 - CONFIDENCE, math.ceil(_least(max_error))
    enough = examples // 4
    while count < enough and tail(int(count * max_error * 3 / 4), count, max_error) > risk:
        count += 1
    return count


def _least(max_error: float) -> float:
    """Returns how many examples without an error are enough to promise the rate `max_error`."""
    return math.log(1 - CONFIDENCE) / math.log1p(-max_error)


@dataclasses.dataclass(frozen=True)
class Abstention:
    """A threshold of the top probability below which a model does not answer.

    Attributes:
      max_error: the promised error rate of answers.
      threshold: None if no threshold keeps the promise.
      examples, answered, errors: number of dev examples, of those above the threshold (None: of
        the strictest threshold that was tested), and of wrong ones among these.
      bound: upper bound of their error rate; the promise is that it is at most `max_error`.
      needed: about how many examples would be enough; None if there is a threshold, or if the
        model is not right often enough at any.
    """

    max_error: float
    threshold: float | None
    examples: int
    answered: int
    errors: int
    bound: float
    needed: int | None = None

    @property
    def coverage(self) -> float:
        """The fraction of the examples that are answered."""
        return self.answered / self.examples

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dict of attributes, ``coverage``, ``confidence`` and ``text``."""
        more = {"coverage": self.coverage, "confidence": CONFIDENCE, "text": self.describe()}
        return {**dataclasses.asdict(self), **more}

    def results(self) -> dict[str, float]:
        """Returns ``abstention_coverage``, ``abstention_threshold`` and so on by name."""
        found = {"max_error": self.max_error, "coverage": 0.0}
        if self.threshold is not None:
            found |= {"coverage": self.coverage, "threshold": self.threshold}
            found |= {"error": self.errors / self.answered, "error_bound": self.bound}
        return {f"{ABSTENTION}{name}": value for name, value in found.items()}

    def describe(self) -> str:
        """Says in a sentence what is promised, or why nothing is."""
        promise = f"At most {self.max_error:.2%} errors (confidence {CONFIDENCE:.0%})"
        found = f"{self.errors} of the {self.answered} most certain dev examples are wrong"
        if self.threshold is not None:
            return (
                f"{promise}: the model answers where its top probability is at least "
                f"{self.threshold:.4f}, {self.coverage:.1%} of {self.examples} dev examples, of "
                f"which {self.errors} are wrong (rate at most {self.bound:.2%}); else it abstains"
            )
        if self.needed is None:
            return (
                f"{promise} cannot be promised: {found}, and no threshold leaves fewer errors than "
                "that; a better model is needed, or a larger max_error"
            )
        return (
            f"{promise} cannot be promised: {found}, so the rate may be up to {self.bound:.2%}; "
            f"about {self.needed} dev examples would be needed"
        )


def score_answers(
    decision: decisions.Decision, probabilities: Floats, labels: Integers | None
) -> dict[str, float]:
    """Scores what a model that may abstain answers, and logs how much that is.

    Args:
      labels: ids [N]; None: they are not known.

    Returns:
      ``abstention_coverage`` and, with labels, ``abstention_error``, the error rate of the answers.
    """
    limits = np.array([decision.min_probability])
    no_labels = np.zeros(len(probabilities), np.int64)
    known = no_labels if labels is None else labels
    answered, errors = (int(x[0]) for x in count_above(limits, probabilities, known))
    logging.info("%s", decision.describe(answered, len(known)))
    found = {"coverage": answered / len(known)}
    if labels is not None and answered:
        found["error"] = errors / answered
    return {f"{ABSTENTION}{name}": value for name, value in found.items()}


def last_to_pass(errors: Integers, answered: Integers, max_error: float, examples: int) -> Integers:
    """Tests thresholds from strict to loose until one whose error bound is above `max_error`.

    Args:
      errors, answered: [R, G] counts of examples above each threshold.

    Returns:
      [R] places of the last thresholds to pass; -1 where the first to be tested fails.
    """
    pairs, places = np.unique(errors * (examples + 1) + answered, return_inverse=True)
    risk, size = 1 - CONFIDENCE, examples + 1
    passes = np.array([tail(int(p // size), int(p % size), max_error) <= risk for p in pairs])
    is_tested = answered >= first_count(max_error, examples)
    has_failed = is_tested & ~passes[places.reshape(errors.shape)]
    ends = np.where(has_failed.any(axis=1), has_failed.argmax(axis=1), errors.shape[1])
    return np.where(is_tested[np.arange(len(ends)), ends - 1], ends - 1, -1)


def find_abstention(
    probabilities: Floats, labels: Integers, max_error: float, temperature: float = 1.0
) -> Abstention:
    """Finds the smallest threshold of the top probability with a promised error rate.

    The exact bounds of the error rate above each of `thresholds` are tested as in fixed sequence
    testing (Angelopoulos et al., 2021, Learn then Test, arXiv 2110.01052).

    Args:
      max_error: the error rate, above 0 and below 1.
      temperature: the one that gave the probabilities.
    """
    tried = thresholds(temperature)
    answered, errors = count_above(tried, probabilities, labels)
    size = len(labels)
    found = int(last_to_pass(errors[np.newaxis], answered[np.newaxis], max_error, size)[0])
    # What fails is the first threshold to be tested; without enough examples it is the last.
    first = int(np.searchsorted(answered, first_count(max_error, size)))
    place = min(first, len(tried) - 1) if found < 0 else found
    wrong, count = int(errors[place]), int(answered[place])
    return Abstention(
        max_error,
        None if found < 0 else float(tried[place]),
        size,
        count,
        wrong,
        upper_bound(wrong, count, 1 - CONFIDENCE),
        _needed(errors, answered, size, max_error) if found < 0 else None,
    )


def count_above(
    tried: Floats, probabilities: Floats, labels: Integers
) -> tuple[Integers, Integers]:
    """Counts the examples [G] whose top probability is at least a threshold, and the errors [G]."""
    confidences, is_wrong = probabilities.max(axis=1), probabilities.argmax(axis=1) != labels
    order = np.argsort(-confidences, kind="stable")
    answered = np.searchsorted(-confidences[order], -tried, side="right")
    return answered, np.append(0, np.cumsum(is_wrong[order]))[answered]


def _needed(errors: Integers, answered: Integers, size: int, max_error: float) -> int | None:
    """Estimates how many examples would be enough at these error rates; None if none would be.

    `errors` and `answered` [G] are counts of examples above each threshold, `size` of all.
    """
    deviation = 1.645 * math.sqrt(max_error * (1 - max_error))  # one-sided, for 95%
    least, counts = _least(max_error), []
    for wrong, count in zip(errors, answered, strict=True):
        # Few examples say little of the rate.
        if count >= min(20, size) and (gap := max_error - wrong / count) > 0:
            counts.append(max(least, (deviation / gap) ** 2) * size / count)
    return math.ceil(min(counts)) if counts else None
