"""Groups of examples that are alike because they share something, such as a passage.

Questions about one passage are right or wrong together, so they tell less than as many independent
questions. Statistics draw whole groups: the cluster bootstrap, see Cameron and Miller, "A
Practitioner's Guide to Cluster-Robust Inference" (2015), section VI.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

# Intervals from fewer groups cover less than they promise.
MIN_GROUPS = 20


@dataclasses.dataclass(frozen=True)
class Clusters:
    """The groups of all examples.

    Attributes:
      name: what a group is, such as "article".
      index: [examples], the group of each example: 0 to `count` - 1.
    """

    name: str
    index: npt.NDArray[np.intp]

    @functools.cached_property
    def sizes(self) -> npt.NDArray[np.intp]:
        """Examples of each group, [count]."""
        return np.bincount(self.index)

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.sizes)

    @property
    def effective(self) -> float:
        """Number of groups of equal size that would tell as much (Kish, 1965)."""
        return float(self.sizes.sum() ** 2 / (self.sizes**2).sum())

    def sums(self, rows: npt.NDArray) -> npt.NDArray:
        """Sums rows [examples, k] within each group: [count, k]."""
        totals = np.zeros((self.count, rows.shape[1]))
        np.add.at(totals, self.index, rows)
        return totals

    def draw(self, resamples: int, rng: np.random.Generator) -> npt.NDArray:
        """Draws whole groups; returns the weight of each group's examples, [resamples, count].

        The weights of all examples of a row add up to 1.
        """
        picked = rng.multinomial(self.count, np.full(self.count, 1 / self.count), resamples)
        return picked / (picked @ self.sizes)[:, None]

    def describe(self) -> str:
        """Describes what intervals rest on."""
        text = f"intervals allow for examples of one {self.name} being alike: {self.count} of them"
        if self.effective < 0.95 * self.count:
            text += f", as many as {self.effective:.0f} of equal size"
        if self.count < MIN_GROUPS:
            text += f"; from {MIN_GROUPS} on the intervals are as wide as they should be"
        return text


def find_clusters(groups: Sequence[Mapping[str, str]]) -> Clusters | None:
    """Finds the groups of examples that their intervals allow for.

    Of the kinds that all examples have, this takes the widest one with at least `MIN_GROUPS`
    groups, as wide groups contain the likeness within narrow ones; else the one with most groups.

    Args:
      groups: for each example {what the group is: its name}, such as {"article": "Normans",
        "paragraph": "Normans 3"}, the widest first.

    Returns:
      None if there are no kinds, or only groups of one example.
    """
    kinds = [name for name in groups[0] if all(name in row for row in groups)] if groups else []
    candidates = []
    for kind in kinds:
        _, index = np.unique([row[kind] for row in groups], return_inverse=True)
        candidates.append(Clusters(kind, index.reshape(-1)))
    candidates = [one for one in candidates if 1 < one.count < len(groups)]
    if not candidates:
        return None
    enough = [one for one in candidates if one.count >= MIN_GROUPS]
    return enough[0] if enough else max(candidates, key=lambda one: one.count)
