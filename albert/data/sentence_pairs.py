"""Divides documents into pairs of texts and draws their labels: sentence order or next sentence.

Sources: ALBERT (Lan et al., 2020), section 3.1 (sentence order); BERT (Devlin et al., 2019),
section 3.1 (next sentence).
Shapes: B pairs.
"""

import bisect
import collections
import dataclasses
import itertools
import random

import numpy as np

SENTENCE_TASKS = ("reference", "sop", "nsp", "none")


@dataclasses.dataclass(frozen=True)
class Documents:
    """Tokenized documents of one block; none is empty, nor is any sentence.

    Attributes:
      tokens: int32 ids of all sentences, one after another.
      sentence_offsets: start of each sentence in `tokens`, and the end of the last.
      document_offsets: first sentence of each document, and the end of the last.
    """

    tokens: np.ndarray
    sentence_offsets: list[int]
    document_offsets: list[int]


def draw_pairs(
    documents: Documents,
    sentence_task: str,
    rng: random.Random,
    max_tokens: int | None = None,
    short_seq_prob: float = 0.0,
) -> tuple[np.ndarray, collections.Counter[str]]:
    """Divides documents into pairs A and B, and draws the label of each pair.

    For segment pairs, sentences are collected until the target length is reached or the document
    ends, and a random split of them gives A and B. For sentence pairs, A and B are one sentence
    each. The rest depends on the sentence task:

    * "reference": A and B are swapped (label 1) or not (label 0). A single sentence is followed by
      random text of another document, with label 1.
    * "nsp": B is random text of another document (label 1; then the sentences after A are used
      again) or not (label 0). A single sentence is always followed by random text.
    * "sop": A and B are swapped (label 1) or not (label 0). At least two sentences are collected,
      and a single sentence at the end of its document is skipped.
    * "none": never swapped, label 0. A single sentence is A without B.

    Args:
      max_tokens: target length of segment pairs, in tokens; None: sentence pairs.
      short_seq_prob: fraction of documents with a random, shorter target length.

    Returns:
      ([B, 5] integers: begin and end of A, begin and end of B as places in `documents.tokens`, and
      the label; Counter of special cases).
    """
    counts: collections.Counter[str] = collections.Counter()
    rows = []
    offsets, bounds = documents.sentence_offsets, documents.document_offsets
    min_sentences = 1 if max_tokens is not None and sentence_task != "sop" else 2
    for index, (start, last) in enumerate(itertools.pairwise(bounds)):
        target = _draw_length(max_tokens, short_seq_prob, rng)
        while start < last:
            end = bisect.bisect_left(offsets, offsets[start] + target, start + 1, last)
            end = min(max(end, start + min_sentences), last)
            is_single = end - start == 1
            split = start + 1 if is_single else rng.randint(start + 1, end - 1)
            first = offsets[start], offsets[split]
            second, label, start = (offsets[split], offsets[end]), 0, end
            if is_single and sentence_task == "sop":
                counts["single_sentences_skipped"] += 1
                continue
            if is_single and sentence_task == "none":
                counts["single_sentences_without_b"] += 1
            elif is_single or (sentence_task == "nsp" and rng.random() < 0.5):
                second, is_same = _random_text(documents, index, target - first[1] + first[0], rng)
                counts["random_next"] += 1
                counts["random_next_single_sentence"] += is_single
                counts["random_next_same_document"] += is_same
                label, start = 1, split
            elif sentence_task in ("reference", "sop") and rng.random() < 0.5:
                first, second, label = second, first, 1
            rows.append((*first, *second, label))
    return np.array(rows, np.int64).reshape(-1, 5), counts


def _draw_length(max_tokens: int | None, short_seq_prob: float, rng: random.Random) -> int:
    """Draws the target number of tokens for the pairs of a document."""
    if max_tokens is None:
        return 1  # which any one sentence reaches
    return rng.randint(2, max_tokens) if rng.random() < short_seq_prob else max_tokens


def _random_text(
    documents: Documents, index: int, count: int, rng: random.Random
) -> tuple[tuple[int, int], bool]:
    """Draws at least a sentence and `count` tokens from a document other than number `index`.

    Returns:
      ((begin, end) in `documents.tokens`, whether they are of the same document, as the only one).
    """
    offsets, bounds = documents.sentence_offsets, documents.document_offsets
    others = len(bounds) - 2
    other = index
    if others:
        other = rng.randrange(others)
        other += other >= index
    begin = rng.randrange(bounds[other], bounds[other + 1])
    end = bisect.bisect_left(offsets, offsets[begin] + count, begin + 1, bounds[other + 1])
    return (offsets[begin], offsets[end]), others == 0
