"""Puts one or two texts into a model's input: cutting to length, special tokens, padding."""

import numpy as np


def _lengths_after_truncation(length_a, length_b, max_length):
    """Lengths when single tokens are dropped from the longer text, from B when they are equal."""
    excess = length_a + length_b - max_length
    if excess <= 0:
        return length_a, length_b
    until_equal = min(excess, abs(length_a - length_b))
    in_turns = excess - until_equal
    drop_a = in_turns // 2 + (until_equal if length_a > length_b else 0)
    return length_a - drop_a, length_b - (excess - drop_a)


def truncate_pair(tokens_a, tokens_b, max_length):
    """Cuts two texts at their ends to `max_length` tokens together.

    The outcome is that of dropping the last token of the longer text, of `tokens_b` when both are
    equally long, until the two fit.

    Args:
      tokens_a, tokens_b: lists (or other sequences that can be sliced); they are not changed.
      max_length: most tokens of both together.

    Returns:
      (tokens_a, tokens_b), cut.

    Raises:
      ValueError: `max_length` is negative.
    """
    if max_length < 0:
        raise ValueError(f"cannot cut a pair of texts to {max_length} tokens")
    keep_a, keep_b = _lengths_after_truncation(len(tokens_a), len(tokens_b), max_length)
    return tokens_a[:keep_a], tokens_b[:keep_b]


def pack(ids_a, ids_b, cls_id, sep_id, max_seq_length, pad_id=0):
    """Lays out ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` and pads it.

    Args:
      ids_a: ids of the first text.
      ids_b: ids of the second text, or None.
      cls_id, sep_id, pad_id: ids of the special pieces.
      max_seq_length: S, length of the result.

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
