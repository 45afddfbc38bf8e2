"""How tokenized documents become the inputs of pre-training.

Source: ALBERT (Lan et al., 2020), sections 3.1 (sentence order) and 4.1 (lengths).
Shapes: B pairs.
"""

import bisect
import collections
import itertools

import numpy as np

SENTENCE_TASKS = ("reference", "sop", "nsp", "none")


def draw_pairs(documents, settings, rng):
    """Divides documents into pairs of segments A and B.

    Sentences are collected until the target length is reached or the document ends; a random
    split of them gives A and B. What follows depends on the sentence task:

    * "reference": A and B are swapped (label 1) or not (label 0). One sentence alone is followed
      by random text of another document, label 1.
    * "nsp": B is random text of another document (label 1; then the sentences after A are used
      again) or not (label 0). One sentence alone is always followed by random text.
    * "sop": swapped or not, and nothing else: at least two sentences are collected, and one that
      is left alone at the end of its document is passed over.
    * "none": never swapped, label 0. One sentence alone is A without B.

    Args:
      documents: `pretraining_data.Documents`.
      settings: `pretraining_data.Settings`.
      rng: `random.Random`.

    Returns:
      ([B, 5] integers: begin and end of A, begin and end of B as places in `documents.tokens`, and
      the label; Counter of special cases).
    """
    counts = collections.Counter()
    rows = []
    offsets, bounds = documents.sentence_offsets, documents.document_offsets
    task = settings.sentence_task
    for index, (start, last) in enumerate(itertools.pairwise(bounds)):
        target = settings.max_tokens
        if rng.random() < settings.short_seq_prob:
            target = rng.randint(2, target)
        while start < last:
            end = bisect.bisect_left(offsets, offsets[start] + target, start + 1, last)
            if task == "sop":
                end = min(max(end, start + 2), last)
            alone = end - start == 1
            split = start + 1 if alone else rng.randint(start + 1, end - 1)
            first = offsets[start], offsets[split]
            second, label, start = (offsets[split], offsets[end]), 0, end
            if alone and task in ("sop", "none"):
                counts[f"single_sentences_{'skipped' if task == 'sop' else 'without_b'}"] += 1
                if task == "sop":
                    continue
            elif alone or (task == "nsp" and rng.random() < 0.5):
                wanted = target - (first[1] - first[0])
                second, same = _random_text(documents, index, wanted, rng)
                counts["random_next"] += 1
                counts["random_next_single_sentence"] += alone
                counts["random_next_same_document"] += same
                label, start = 1, split
            elif task in ("reference", "sop") and rng.random() < 0.5:
                first, second, label = second, first, 1
            rows.append((*first, *second, label))
    return np.array(rows, np.int64).reshape(-1, 5), counts


def _random_text(documents, index, wanted, rng):
    """Sentences of another document than number `index`, from a random one to `wanted` tokens.

    Returns:
      ((begin, end) in `documents.tokens`, whether there was no other document to take).
    """
    offsets, bounds = documents.sentence_offsets, documents.document_offsets
    others = len(bounds) - 2
    other = index
    if others:
        other = rng.randrange(others)
        other += other >= index
    begin = rng.randrange(bounds[other], bounds[other + 1])
    end = bisect.bisect_left(offsets, offsets[begin] + wanted, begin + 1, bounds[other + 1])
    return (offsets[begin], offsets[end]), others == 0
