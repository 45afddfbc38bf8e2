"""Compares a tokenizer with a ``tokenizer.json``, by the package `tokenizers`."""

import math
from collections.abc import Sequence

from albert.text import sample_lines, tokenization


class Difference(Exception):
    """Both give other ids on a text; says which."""


def compare(content: str, tokenizer: tokenization.FullTokenizer) -> None:
    """Compares ids on lines of many scripts and of the vocabulary's own pieces.

    Raises:
      ImportError: the package is not installed.
      Difference: the ids of a line differ.
    """
    import tokenizers

    try:
        theirs = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises no other class
        raise Difference(f"an error of the library: {error}") from error
    theirs.no_padding()  # these steps of a saved file are for batches
    theirs.no_truncation()
    for line in sample_lines.lines(tokenizer):
        ours, others = tokenizer.encode(line), theirs.encode(line, add_special_tokens=False).ids
        if others != ours and not _are_equally_likely(tokenizer, ours, others):
            raise Difference(f"other ids on the text {line!r}: {others} instead of {ours}")


def _are_equally_likely(
    tokenizer: tokenization.FullTokenizer, ids: Sequence[int], others: Sequence[int]
) -> bool:
    """Returns whether two segmentations have the same score in a unigram model."""
    if tokenizer.sp_model is None or tokenizer.unk_id in (*ids, *others):
        return False
    one, other = (sum(map(tokenizer.sp_model.get_score, row)) for row in (ids, others))
    return math.isclose(one, other, abs_tol=1e-3)
