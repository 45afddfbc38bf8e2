"""Puts one or two texts into a model's input: cutting to length, special tokens, padding."""

import dataclasses
from typing import Any

import numpy as np

NAMES = ("input_ids", "input_mask", "segment_ids")  # of what `pack` returns


@dataclasses.dataclass
class Cuts:
    """Counts inputs that lost tokens because their texts were longer than the model's input.

    Attributes:
      tokens: of all inputs, before the cuts.
      split: inputs that are read in several windows.
      windows: of these inputs.
    """

    inputs: int = 0
    cut: int = 0
    tokens: int = 0
    lost: int = 0
    split: int = 0
    windows: int = 0

    def add(self, tokens: int, kept: int, windows: int = 1) -> None:
        """Counts an input that keeps `kept` of its tokens, in this many windows."""
        self.inputs += 1
        self.cut += kept < tokens
        self.tokens += tokens
        self.lost += tokens - kept
        if windows > 1:
            self.split += 1
            self.windows += windows

    def describe(self) -> str:
        """Returns a sentence for the log."""
        texts = [f"none of {self.inputs} texts was cut"]
        if self.cut:
            texts = [
                f"{self.cut} of {self.inputs} texts were cut to fit, which lost "
                f"{self.lost / self.tokens:.1%} of all tokens"
            ]
        if self.split:
            texts.append(f"{self.split} are read in {self.windows} windows")
        return "; ".join(texts)


def _kept_lengths(lengths_a: Any, lengths_b: Any, max_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lengths after dropping single tokens from the longer text, from B if equal.

    Works on integers or arrays; `saved_model_export.kept_lengths` is the TensorFlow version.
    """
    excess = np.maximum(lengths_a + lengths_b - max_length, 0)
    until_equal = np.minimum(excess, np.abs(lengths_a - lengths_b))
    in_turns = excess - until_equal
    drop_a = in_turns // 2 + np.where(lengths_a > lengths_b, until_equal, 0)
    return lengths_a - drop_a, lengths_b - (excess - drop_a)


def truncate_pair(
    tokens_a: list[Any], tokens_b: list[Any], max_length: int
) -> tuple[list[Any], list[Any]]:
    """Cuts two texts at their ends to `max_length` tokens together.

    The result is that of dropping the last token of the longer text, of `tokens_b` if both are
    equally long, until the two fit. The arguments are not changed.
    """
    if max_length < 0:
        raise ValueError(f"cannot cut a pair of texts to {max_length} tokens")
    if len(tokens_a) + len(tokens_b) <= max_length:
        return tokens_a, tokens_b
    keep_a, keep_b = _kept_lengths(len(tokens_a), len(tokens_b), max_length)
    return tokens_a[:keep_a], tokens_b[:keep_b]


def truncate_to_fit(
    ids_a: list[Any], ids_b: list[Any] | None, max_seq_length: int
) -> tuple[list[Any], list[Any] | None]:
    """Cuts one or two texts at their ends so that `pack` takes them; two by `truncate_pair`."""
    if ids_b is None:
        return ids_a[: max_seq_length - 2], None
    return truncate_pair(ids_a, ids_b, max_seq_length - 3)


def truncate_front_and_first(
    ids_a: list[Any], ids_b: list[Any], max_length_b: int, max_seq_length: int
) -> tuple[list[Any], list[Any]]:
    """Cuts the second text at its front, then the first at its end, so that `pack` takes them.

    `max_length_b` is at least 1.
    """
    ids_b = ids_b[-max_length_b:]
    return ids_a[: max_seq_length - 3 - len(ids_b)], ids_b


def truncate_spans_at_both_ends(
    pairs: np.ndarray, max_tokens: int, rng: "np.random.Generator"
) -> None:
    """Cuts many pairs of spans to `max_tokens` each, at their fronts and their ends.

    Equal in distribution to dropping one token at a time from the longer span (from B if equal),
    from its front or its end with equal probability: how many tokens each loses is fixed, as in
    `truncate_pair`, and the number lost at the front is binomial.

    Args:
      pairs: integers [B, 4 or more], begin and end of A, begin and end of B; changed in place.
      max_tokens: of A and B together.
    """
    lengths = pairs[:, 1] - pairs[:, 0], pairs[:, 3] - pairs[:, 2]
    new_lengths = _kept_lengths(*lengths, max_tokens)
    for column, length, new_length in zip((0, 2), lengths, new_lengths, strict=True):
        front = rng.binomial(length - new_length, 0.5)
        pairs[:, column] += front
        pairs[:, column + 1] = pairs[:, column] + new_length


def pack(
    ids_a: list[Any],
    ids_b: list[Any] | None,
    cls_id: int,
    sep_id: int,
    max_seq_length: int,
    pad_id: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lays out ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` and pads it to S, `max_seq_length`.

    Returns:
      (input_ids, input_mask, segment_ids), int64 [S] each: the mask is 1 on tokens and 0 on
      padding, the segment is 0 for ``[CLS] a [SEP]`` and padding and 1 for ``b [SEP]``.

    Raises:
      ValueError: the texts and special pieces are longer than S; see `truncate_pair`.
    """
    ids = [cls_id, *ids_a, sep_id]
    boundary = len(ids)
    if ids_b is not None:
        ids += [*ids_b, sep_id]
    if len(ids) > max_seq_length:
        raise ValueError(
            f"{len(ids)} tokens with [CLS] and [SEP] do not fit in a length of {max_seq_length}; "
            "cut the texts first"
        )
    input_ids = np.full(max_seq_length, pad_id, np.int64)
    input_mask = np.zeros(max_seq_length, np.int64)
    segment_ids = np.zeros(max_seq_length, np.int64)
    input_ids[: len(ids)] = ids
    input_mask[: len(ids)] = 1
    segment_ids[boundary : len(ids)] = 1
    return input_ids, input_mask, segment_ids
