"""Weights of classes in the loss of training, and advice where classes are of unequal size.

Of several labels per text the weights are of texts that have the label, against 1 of the others.
Evaluation losses and scores are unweighted. Arguments: `data` is the file of the examples or texts,
for messages.
"""

import collections
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io, json_shapes, tables

SETTING = "class_weights"  # in the settings of a model's folder: {label: weight}
BALANCED = "balanced"
LARGEST = 100.0  # balanced weight of several labels per text; 1 / LARGEST is the smallest
_LEAST, _MOST = (float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max))
_RARE = 3  # a class is rare if another has more than this many times its examples


def count(labels: Sequence[str], examples: Iterable[str]) -> dict[str, int]:
    """Returns {label: number of examples} of all labels; `examples`: label of each example."""
    counts = collections.Counter(examples)
    return {label: counts[label] for label in labels}


def find(source: str, counts: Mapping[str, int], data: str) -> dict[str, float]:
    """Returns {label: weight}.

    Args:
      source: `BALANCED`, N / (K * examples of the label), or a JSON file {label: weight}.
      counts: {label: number of training examples} of all K labels; their sum is N.

    Raises:
      file_io.InputError: a label has no examples; the file lacks a label or has an unknown one, or
        a weight is not a number above 0 that float32 holds.
    """
    _check_counts(counts, data)
    if source != BALANCED:
        return _read(source, counts)
    total = sum(counts.values())
    return {label: total / (len(counts) * number) for label, number in counts.items()}


def find_of_sets(source: str, counts: Mapping[str, int], total: int, data: str) -> dict[str, float]:
    """Returns {label: weight of the texts that have it}, where texts have several.

    Args:
      source: `BALANCED`, the number of texts without the label over that of texts with it, at most
        `LARGEST` and at least 1 / `LARGEST`; or a JSON file {label: weight}.
      counts, total: number of training texts that have each label, and of all.
    """
    _check_counts(counts, data)
    if source != BALANCED:
        return _read(source, counts)
    ratios = {label: (total - number) / number for label, number in counts.items()}
    return {label: min(max(ratio, 1 / LARGEST), LARGEST) for label, ratio in ratios.items()}


def _check_counts(counts: Mapping[str, int], data: str) -> None:
    """Rejects labels without examples, from {label: number}; `data`: file, for messages."""
    if missing := [label for label, number in counts.items() if not number]:
        raise file_io.InputError(
            f"class_weights: no training example in {data} has the label "
            f"{tables.name_list(missing)}, so no weight fits it: add examples, or leave "
            "class_weights out"
        )


def of_examples(
    source: str, labels: Sequence[str], examples: Iterable[str], data: str
) -> dict[str, float]:
    """Returns and logs {label: weight} for `examples`, the label of each, see `find`."""
    counts = count(labels, examples)
    weights = find(source, counts, data)
    logging.info("%s", describe(weights, counts))
    return weights


def of_sets(
    source: str, labels: Sequence[str], texts: Iterable[Collection[str]], data: str
) -> dict[str, float]:
    """Returns and logs {label: weight} for `texts`, the labels of each, see `find_of_sets`."""
    sets = list(texts)
    counts = count(labels, (label for names in sets for label in names))
    weights = find_of_sets(source, counts, len(sets), data)
    logging.info("%s; balanced ones are at most %g", describe(weights, counts), LARGEST)
    return weights


def _read(path: str, labels: Iterable[str]) -> dict[str, float]:
    """Reads {label: weight} from a JSON file, in the order of `labels`, which it must all have."""
    labels = list(labels)
    weights = file_io.read_json(path, "class weights", dict)
    for problem, names in (
        ("no weight for the label", [label for label in labels if label not in weights]),
        ("weights for unknown labels:", [name for name in weights if name not in labels]),
    ):
        if names:
            raise file_io.InputError(
                f"{path}: {problem} {tables.name_list(names)}; expected an object with a "
                f"weight for each of {tables.name_list(labels)}"
            )
    for label, weight in weights.items():
        # A weight of a normal float32 keeps its precision.
        if not (json_shapes.is_number(weight) and _LEAST <= weight <= _MOST):
            raise file_io.InputError(
                f"{path}: the weight of {label!r} is {weight!r}, expected a number above 0 that "
                f"float32 holds, from {_LEAST:.2g} to {_MOST:.2g}"
            )
    return {label: float(weights[label]) for label in labels}


def describe(weights: Mapping[str, float], counts: Mapping[str, int]) -> str:
    """Returns a line for the log, from {label: weight} and {label: number of examples}."""
    texts = [f"{label} {weight:.4g} ({counts[label]})" for label, weight in weights.items()]
    return f"Class weights (training examples): {tables.text_list(texts)}"


def settings(weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns the JSON-ready settings of a model's folder for {label: weight}; empty for none."""
    return {SETTING: dict(weights)} if weights else {}


def described(folder_settings: Mapping[str, Any]) -> dict[str, float]:
    """Returns {label: weight} of the settings of a model's folder; empty without them."""
    weights = folder_settings.get(SETTING)
    return dict(weights) if isinstance(weights, dict) else {}


def advise(counts: Mapping[str, int]) -> str:
    """Returns advice on scores if a class is rare; "" if none is."""
    most, least = (choose(counts, key=counts.__getitem__) for choose in (max, min))
    if counts[most] <= _RARE * counts[least]:
        return ""
    return (
        f"{counts[most]} training examples are {most!r}, only {counts[least]} {least!r}: accuracy "
        "hides rare labels. metric_for_best=macro_f1 picks the checkpoint that finds all of "
        "them, and class_weights=balanced trains on them as much as on the others"
    )
