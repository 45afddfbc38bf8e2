"""Whether two sides are equal enough: two one-sided tests of a margin.

Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for assessing
the equivalence of average bioavailability" (1987): sides are equal within a margin if the interval
at level 1 - 2 alpha lies between minus the margin and the margin. The probability of a false claim
of equality is then at most alpha.
"""

import dataclasses
import math
from typing import Protocol

from albert.experiments import statistics
from albert.io import file_io

_MAX_TIMES = 1000  # more runs or examples than this many times those there are: not named


class Test(Protocol):
    """Compares two sides at a level."""

    def __call__(self, *, level: float) -> statistics.Comparison: ...


@dataclasses.dataclass(frozen=True)
class Equivalence:
    """The result for two sides.

    Attributes:
      margin: largest difference that does not matter, in the unit of the score.
      low, high: interval of the difference at level 1 - 2 alpha; None if it is unknown.
      is_equal: whether it lies within the margin.
      more: number of further runs of each side, or of further examples, that would probably decide
        if the difference stayed the same; None if it is unknown or very large.
      unit: what `more` counts.
    """

    margin: float
    low: float | None
    high: float | None
    is_equal: bool
    more: int | None
    unit: str

    def verdict(self, better: str | None, verdict: str) -> str:
        """Adds what is known of equality to a verdict, which names the better side, or None."""
        equal = f"equal within {self.margin:g}"
        if better:
            return f"{verdict}, yet {equal}" if self.is_equal else verdict
        if self.is_equal:
            return equal
        if self.low is None:
            return verdict
        count = f"about {self.more:,} more {self.unit}" if self.more else f"many more {self.unit}"
        return f"cannot be decided: neither a difference nor {equal}; {count} would"


def check_margin(name: str, margin: float) -> None:
    """Rejects margins that are not above 0; `name` is that of the flag or argument."""
    if not (math.isfinite(margin) and margin > 0):
        raise file_io.InputError(
            f"{name}={margin:g}: expected a number above 0, in the unit of the score"
        )


def test_margin(
    compare: Test, margin: float, level: float, pairs: int, count: int, unit: str
) -> Equivalence:
    """Tests whether two sides are equal within a margin.

    Args:
      compare: ``(level=…)`` compares the two sides at a level.
      level: 1 minus the probability of a false claim of equality among all pairs.
      pairs: number of pairs that are tested (Bonferroni).
      count: runs of the smaller side, or examples.
      unit: what is counted, in the plural.
      margin: largest difference that does not matter, in the unit of the score.
    """
    alpha = statistics.check_level(level)
    comparison = compare(level=1 - 2 * alpha / pairs)
    low, high = comparison.low, comparison.high
    if low is None or high is None:
        return Equivalence(margin, None, None, False, None, unit)
    is_equal = -margin < low and high < margin
    half, gap = (high - low) / 2, abs(low + high) / 2
    # The interval shrinks with the root of the number; either claim decides.
    times = min((half / room) ** 2 if room > 0 else math.inf for room in (margin - gap, gap))
    more = math.ceil(count * (times - 1)) if 1 < times < _MAX_TIMES else None
    return Equivalence(margin, low, high, is_equal, more, unit)
