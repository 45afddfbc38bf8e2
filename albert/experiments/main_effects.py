"""Which setting of a sweep mattered: the mean scores of the values of each."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert.experiments import sweep_plan

_MAX_VALUES = 8  # of a setting with more numbers, thirds are compared


class Effect(NamedTuple):
    """The scores of the points of a sweep, by the value of one setting.

    Attributes:
      groups: {value, or range of values: scores}, by ascending values.
    """

    name: str
    groups: Mapping[str, Sequence[float]]

    @property
    def means(self) -> dict[str, float]:
        """Returns {value: mean score}."""
        return {value: float(np.mean(scores)) for value, scores in self.groups.items()}

    @property
    def size(self) -> float:
        """Returns the difference of the highest and the lowest mean."""
        return max(self.means.values()) - min(self.means.values())


def find(points: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Effect]:
    """Returns the effects of settings on the scored points of a sweep, the largest first.

    Args:
      points: those of `sweep_results.summarize` that have a score.
      names: settings with several values.
    """
    scores = [point["mean"] for point in points]
    effects = [_effect(name, [p["parameters"][name] for p in points], scores) for name in names]
    return sorted((e for e in effects if len(e.groups) > 1), key=lambda e: -e.size)


def _effect(name: str, values: Sequence[Any], scores: Sequence[float]) -> Effect:
    """Returns the effect of the setting `name` from its value and the score of each point."""
    different = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    texts = {value: sweep_plan.text_of(value) for value in different}
    if len(different) > _MAX_VALUES and not any(isinstance(x, (str, bool)) for x in different):
        for places in np.array_split(range(len(different)), 3):
            third = [different[place] for place in places]
            texts |= dict.fromkeys(third, f"{texts[third[0]]} to {texts[third[-1]]}")
    groups: dict[str, list[float]] = {texts[value]: [] for value in different}
    for value, score in zip(values, scores, strict=True):
        groups[texts[value]].append(score)
    return Effect(name, groups)
