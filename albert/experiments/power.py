"""Power analysis: seeds or examples needed to detect a difference, and the smallest detectable one.

Each design has a method `power`: the probability that its two-sided test finds a true difference.
Needs SciPy (extra `stats`).
"""

import dataclasses
import math
from typing import Protocol

from albert.experiments import statistics
from albert.io import file_io

_MOST = 10**9  # runs or examples


class Design(Protocol):
    """An experiment.

    Attributes:
      smallest: smallest n that can be computed.
      largest: largest difference that can exist.
    """

    @property
    def smallest(self) -> int: ...

    @property
    def largest(self) -> float: ...

    def power(self, n: int, difference: float, level: float = 0.95) -> float:
        """Returns the probability that the test finds a true difference with n."""
        ...


@dataclasses.dataclass(frozen=True)
class Plan:
    """A size of an experiment.

    Attributes:
      n: pairs of seeds; seeds per side; examples; or examples per side, see the design.
      difference: smallest difference that is found with the power.
      power: probability that the test finds it; at least the one asked for.
      level: 1 minus the probability of a false claim.
      design: the experiment.
    """

    n: int
    difference: float
    power: float
    level: float
    design: Design


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Runs over seeds, compared by the t test; exact for normal scores (noncentral t).

    Attributes:
      deviation: standard deviation over seeds; if paired, that of the differences of pairs.
      paired: n are pairs; else n are seeds on each of two sides.
    """

    deviation: float
    paired: bool
    smallest = 2
    largest = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.deviation < math.inf:
            raise file_io.InputError(f"deviation must be above 0; got {self.deviation}")

    def power(self, n: int, difference: float, level: float = 0.95) -> float:
        """Returns the probability that the test finds a true difference with n."""
        stats = statistics.scipy_stats()
        freedom = n - 1 if self.paired else 2 * n - 2
        spread = self.deviation * math.sqrt((1 if self.paired else 2) / n)
        limit, shift = stats.t.ppf(0.5 + level / 2, freedom), abs(difference) / spread
        if shift > limit + 30:  # beyond what the noncentral t computes; the power is above 0.999
            return 1.0
        # The second is the lower tail, mirrored: `cdf` gives NaN where it is tiny.
        return float(stats.nct.sf(limit, freedom, shift) + stats.nct.sf(limit, freedom, -shift))


@dataclasses.dataclass(frozen=True)
class SameExamples:
    """Two models on the same n examples, compared by McNemar's test.

    Normal approximation of Connor, "Sample size for testing differences in proportions for the
    paired-sample design" (1987).

    Attributes:
      disagreement: fraction of examples on which exactly one of the two is correct.
    """

    disagreement: float
    smallest = 1

    def __post_init__(self) -> None:
        if not 0 < self.disagreement <= 1:
            raise file_io.InputError(
                f"disagreement must be above 0, at most 1; got {self.disagreement}"
            )

    @property
    def largest(self) -> float:
        """All disagreements favor one model."""
        return self.disagreement

    def power(self, n: int, difference: float, level: float = 0.95) -> float:
        """Returns the probability that the test finds a true difference of accuracies with n."""
        alone = math.sqrt(max(0.0, self.disagreement - difference**2))
        return _normal_power(n, difference, math.sqrt(self.disagreement), alone, level)


@dataclasses.dataclass(frozen=True)
class OtherExamples:
    """Two models on n different examples each, compared by the z test of two proportions.

    Normal approximation with the pooled variance under no difference (Fleiss, "Statistical Methods
    for Rates and Proportions", 1981, section 3.2).

    Attributes:
      accuracy: accuracy of the first model; the second is better by the difference.
    """

    accuracy: float
    smallest = 1

    def __post_init__(self) -> None:
        if not 0 <= self.accuracy < 1:
            raise file_io.InputError(f"accuracy must be at least 0, below 1; got {self.accuracy}")

    @property
    def largest(self) -> float:
        """The second model makes no mistake."""
        return 1 - self.accuracy

    def power(self, n: int, difference: float, level: float = 0.95) -> float:
        """Returns the probability that the test finds a true difference of accuracies with n."""
        first, second = self.accuracy, self.accuracy + difference
        middle = (first + second) / 2
        pooled = math.sqrt(2 * middle * (1 - middle))
        alone = math.sqrt(max(0.0, first * (1 - first) + second * (1 - second)))
        return _normal_power(n, difference, pooled, alone, level)


def _normal_power(n, difference, null_deviation, deviation, level):
    """Returns the power of a z test; deviations are those of one example, without and with it."""
    norm = statistics.scipy_stats().norm
    limit, shift = norm.ppf(0.5 + level / 2) * null_deviation, difference * math.sqrt(n)
    if deviation == 0:
        return float(shift > limit)
    return float(norm.sf((limit - shift) / deviation) + norm.cdf((-limit - shift) / deviation))


def _check(design, difference, power, level):
    statistics.check_level(level)
    if not 1 - level < power < 1:
        raise file_io.InputError(f"power must be between {1 - level:g} and 1; got {power}")
    if difference is not None and not 0 < difference <= design.largest:
        raise file_io.InputError(
            f"difference must be above 0, at most {design.largest:g}; got {difference}"
        )


def needed(design: Design, difference: float, *, power: float = 0.8, level: float = 0.95) -> Plan:
    """Returns the smallest n that shows a difference.

    Args:
      design: `Seeds`, `SameExamples` or `OtherExamples`.
      difference: true difference, above 0, in units of the score.
      power: wanted probability of finding it.
      level: 1 minus the probability of a false claim.

    Raises:
      file_io.InputError: an impossible difference, power or level, or n above 10^9.
    """
    _check(design, difference, power, level)
    low, high = design.smallest - 1, design.smallest
    while design.power(high, difference, level) < power:
        low, high = high, 2 * high
        if high > _MOST:
            raise file_io.InputError(f"a difference of {difference} needs more than {_MOST} of n")
    while high - low > 1:
        middle = (low + high) // 2
        if design.power(middle, difference, level) < power:
            low = middle
        else:
            high = middle
    return Plan(high, difference, design.power(high, difference, level), level, design)


def visible(design: Design, n: int, *, power: float = 0.8, level: float = 0.95) -> Plan:
    """Returns the smallest difference that n shows.

    Args:
      design: `Seeds`, `SameExamples` or `OtherExamples`.
      n: pairs of seeds; seeds per side; examples; or examples per side.
      power: wanted probability of finding it.
      level: 1 minus the probability of a false claim.

    Raises:
      file_io.InputError: an impossible n, power or level, or no difference can be shown by n.
    """
    _check(design, None, power, level)
    if n < design.smallest:
        raise file_io.InputError(f"n must be at least {design.smallest}; got {n}")
    high = 1e-9
    while design.power(n, high, level) < power:
        if high >= design.largest:
            raise file_io.InputError(f"n = {n} shows no difference with power {power}")
        high = min(2 * high, design.largest)
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if design.power(n, middle, level) < power:
            low = middle
        else:
            high = middle
    return Plan(n, high, design.power(n, high, level), level, design)
