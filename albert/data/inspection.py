"""Describes files of training records: counts, lengths, fractions, a few records as text."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert.data import tfrecord
from albert.io import file_io

# Features of one value whose distribution is reported.
LABELS = ("next_sentence_labels", "label_ids", "label_id", "labels")
_MAX_LABELS = 20  # different values; of more, no distribution is reported
_KINDS = {"i": "int64", "f": "float32", "O": "bytes"}

Example = Mapping[str, np.ndarray]  # a record: values by feature name


@dataclasses.dataclass
class Description:
    """Sums over records.

    Attributes:
      features: {name: Counter of (type, number of values)}.
      lengths: Counter of numbers of tokens, of records that have tokens.
      positions: sum of the lengths with padding.
      second: number of tokens of second texts.
      masked: Counter of numbers of masked tokens, of records with masks.
      masked_of: number of tokens of the records with masks.
      labels: {name: Counter of values}.
    """

    files: dict[str, int] = dataclasses.field(default_factory=dict)
    num_bytes: int = 0
    features: dict[str, collections.Counter[tuple[str, int]]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    lengths: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    positions: int = 0
    second: int = 0
    masked: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    masked_of: int = 0
    labels: dict[str, collections.Counter[float]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    examples: list[Example] = dataclasses.field(default_factory=list)

    def add(self, example: Example) -> None:
        for name, values in example.items():
            self.features[name][_KINDS[values.dtype.kind], len(values)] += 1
        length = num_tokens(example)
        if length is not None:
            self.lengths[length] += 1
            self.positions += len(example["input_ids"])
            self.second += _second_tokens(example, length)
        if "masked_lm_weights" in example:
            self.masked[int(np.count_nonzero(example["masked_lm_weights"]))] += 1
            self.masked_of += length or 0
        for name in LABELS:
            if name in example and len(example[name]) == 1:
                self.labels[name][example[name][0].item()] += 1


def num_tokens(example: Example) -> int | None:
    """Returns the number of tokens of a record without padding; None if it has no tokens."""
    if "input_ids" not in example:
        return None
    if "input_mask" in example:
        return int(np.count_nonzero(example["input_mask"]))
    return len(example["input_ids"]) if "segment_b_start" in example else None


def _second_tokens(example: Example, length: int) -> int:
    if "segment_b_start" in example and len(example["segment_b_start"]) == 1:
        return length - int(example["segment_b_start"][0])
    return int(np.count_nonzero(example.get("segment_ids", ())))


def describe(paths: Sequence[str], num_examples: int = 0) -> Description:
    """Describes TFRecord files, checks each record, and keeps the first `num_examples`."""
    result = Description()
    for path in paths:
        count = 0
        for serialized in itertools.chain.from_iterable(tfrecord.read_records(path)):
            try:
                example = tfrecord.parse_example(serialized)
            except ValueError as error:
                raise file_io.InputError(f"{path}: record {count + 1} is bad: {error}") from error
            result.add(example)
            if len(result.examples) < num_examples:
                result.examples.append(example)
            result.num_bytes += len(serialized)
            count += 1
        result.files[path] = count
    if not sum(result.files.values()):
        raise file_io.InputError(f"no records in {', '.join(paths)}")
    return result


def fraction(part: int, whole: int) -> str:
    """Returns the text of a number and its percentage of another one."""
    return f"{part} ({part / max(1, whole):.1%})"


def _summarize(lengths: collections.Counter[Any]) -> str:
    """Returns the text of mean, minimum, median and maximum of a Counter {value: how often}."""
    total = lengths.total()
    ordered = sorted(lengths.items())
    middle = np.searchsorted(np.cumsum([count for _, count in ordered]), total / 2)
    mean = sum(value * count for value, count in ordered) / total
    return (
        f"mean {mean:.1f}, minimum {ordered[0][0]}, median {ordered[middle][0]}, maximum "
        f"{ordered[-1][0]}"
    )


def _feature_line(name: str, counts: collections.Counter[tuple[str, int]], num_records: int) -> str:
    kinds = sorted({kind for kind, _ in counts})
    sizes = sorted({size for _, size in counts})
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    text = f"    {name}: {' or '.join(kinds)}, {size} value(s)"
    missing = num_records - counts.total()
    return text + (f"; not in {missing} records" if missing else "")


def _label_lines(labels: Mapping[str, collections.Counter[float]]) -> Iterator[str]:
    for name, counts in labels.items():
        total = counts.total()
        if len(counts) > _MAX_LABELS:
            yield f"  {name}: {len(counts)} different values, {_summarize(counts)}"
        else:
            fractions = ", ".join(f"{v}: {fraction(n, total)}" for v, n in sorted(counts.items()))
            yield f"  {name}: {fractions}"


def report(description: Description, pieces: Sequence[str] | None = None) -> str:
    """Returns the text of a `Description`, with its examples as `pieces` (by id); None: as ids."""
    num_records = sum(description.files.values())
    lines = [
        f"{num_records} records in {len(description.files)} file(s), {description.num_bytes} "
        "bytes; all checksums are right",
        *(f"    {path}: {count} records" for path, count in description.files.items()),
        "  features:",
        *(
            _feature_line(name, counts, num_records)
            for name, counts in sorted(description.features.items())
        ),
    ]
    if description.lengths:
        tokens = sum(length * count for length, count in description.lengths.items())
        lines += [
            f"  tokens: {fraction(tokens, description.positions)} of the positions; in a record: "
            f"{_summarize(description.lengths)}",
            f"  in the second text: {fraction(description.second, tokens)} of the tokens",
        ]
    if description.masked:
        masked = sum(number * count for number, count in description.masked.items())
        lines.append(
            f"  masked: {fraction(masked, description.masked_of)} of the tokens; in a record: "
            f"{_summarize(description.masked)}"
        )
    lines += _label_lines(description.labels)
    for number, example in enumerate(description.examples, 1):
        lines.append(f"  record {number}: {example_text(example, pieces)}")
    return "\n".join(lines)


def example_text(example: Example, pieces: Sequence[str] | None = None) -> str:
    """Returns a record as text: its tokens, masked ones as [piece=original piece], and labels."""
    length = num_tokens(example)
    if length is None:
        return ", ".join(f"{name}={values[:8].tolist()}" for name, values in example.items())

    def piece_text(token: int) -> str:
        token = int(token)
        if pieces is None:
            return str(token)
        return pieces[token] if 0 <= token < len(pieces) else f"<{token}: not in the vocabulary>"

    # In records of several choices, padding follows each.
    places = np.flatnonzero(example.get("input_mask", np.ones(length)))
    tokens = {place: piece_text(example["input_ids"][place]) for place in places.tolist()}
    if "masked_lm_weights" in example:
        for place, label, weight in zip(
            *(example[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")),
            strict=False,
        ):
            if weight and place in tokens:
                tokens[place] = f"[{tokens[place]}={piece_text(label)}]"
    labels = "".join(f" {name}={example[name].tolist()}" for name in LABELS if name in example)
    return " ".join(tokens.values()) + labels
