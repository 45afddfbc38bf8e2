"""Pairs of sentences from alike to unlike, as a teacher of single sentences sees them.

Pairs are mined with the teacher's mean vectors, as random ones are almost all unlike; from
Augmented SBERT, Thakur et al., 2021, section 3.1. No labels of people are used.
"""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from experiments import study

_WORDS = range(5, 29)  # of a sentence that is used
_IN_SEQUENCE = 200  # sentences of a document at most
# Ranks of the neighbors of which one each is drawn: nearly the same, alike, of the same topic.
_RANKS = ((0, 4), (4, 40), (40, 300))
_NEAR = 30  # sentences before and after, one of which is drawn too
_CHANGED = (0.05, 0.1, 0.2, 0.3, 0.4)  # fractions of words that altered copies lack or exchange
_BLOCK, _BATCH, _LENGTH = 1000, 64, 48


def choose_sentences(
    paths: Sequence[pathlib.Path], count: int, rng: np.random.Generator
) -> list[str]:
    """Returns sentences of documents in random order, without repetition."""
    documents = [document.split("\n") for path in paths for document in study.read_documents(path)]
    chosen: dict[str, None] = {}
    for i in rng.permutation(len(documents)):
        lines = [line for line in documents[i] if len(line.split()) in _WORDS]
        start = rng.integers(max(1, len(lines) - _IN_SEQUENCE + 1))
        chosen |= dict.fromkeys(lines[start : start + _IN_SEQUENCE])
        if len(chosen) >= count:
            break
    return list(chosen)


def unit_vectors(model: pathlib.Path, texts: Sequence[str]) -> np.ndarray:
    """Returns the mean vectors of texts, of length 1: float32 [texts, H]."""
    from albert.model import sources
    from albert.serving import embeddings

    extractor = embeddings.Extractor(sources.locate_model(str(model)), (-1,), "mean", _LENGTH)
    vectors = np.stack([x.vectors[0] for x in extractor.extract(texts, _BATCH)])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def mine(vectors: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[int, int, float]]:
    """Yields the numbers of two sentences and the cosine of their vectors [texts, H].

    Each sentence gets neighbors of `_RANKS`, one from nearby in the text, and half of the time a
    random one.
    """
    count, most = len(vectors), min(_RANKS[-1][1], len(vectors) - 1)
    for start in range(0, count, _BLOCK):
        cosines = vectors[start : start + _BLOCK] @ vectors.T
        for row, own in zip(cosines, range(start, count), strict=False):
            row[own] = -1
            nearest = np.argpartition(-row, most - 1)[:most]
            nearest = nearest[np.argsort(-row[nearest])]
            ranks = [rng.integers(low, min(high, most)) for low, high in _RANKS if low < most]
            others = [*nearest[ranks], rng.integers(max(0, own - _NEAR), min(count, own + _NEAR))]
            others += [rng.integers(count)] * int(rng.integers(2))
            yield from ((own, int(i), float(row[i])) for i in others if i != own)


def flatten(
    pairs: Sequence[tuple[int, int, float]], rng: np.random.Generator
) -> list[tuple[int, int, float]]:
    """Returns pairs in random order; frequent tenths of the cosine lose the surplus at random."""
    tenths = np.clip((10 * np.array([cosine for *_, cosine in pairs])).astype(int), 0, 9)
    counts = np.bincount(tenths, minlength=10)
    kept = rng.random(len(pairs)) < 1.2 * np.median(counts[counts > 0]) / counts[tenths]
    return [pairs[i] for i in rng.permutation(np.flatnonzero(kept))]


def alter(text: str, other: str, rng: np.random.Generator) -> str:
    """Returns a text without some of its words, or with words of another one; some turned round."""
    words, others = text.split(), other.split()
    share, leaves_out = rng.choice(_CHANGED), rng.random() < 0.4
    new = []
    for word in words:
        is_kept = rng.random() >= share
        new += [word] if is_kept else [] if leaves_out else [str(rng.choice(others))]
    if rng.random() < 0.2 and len(new) > 6:
        place = rng.integers(2, len(new) - 2)
        new = new[place:] + new[:place]
    return " ".join(new) or text


def write(
    paths: Sequence[pathlib.Path], teacher: pathlib.Path, target: pathlib.Path, count: int = 60_000
) -> None:
    """Writes documents of two lines: pairs of sentences, in random order.

    Args:
      paths: files of text, a sentence in each line, blank lines between documents.
      teacher: folder of the model whose mean vectors tell which sentences are alike.
      count: sentences; more than half as many are paired with altered copies, too.
    """
    rng = np.random.default_rng(0)
    texts = choose_sentences(paths, count, rng)
    pairs = flatten(list(mine(unit_vectors(teacher, texts), rng)), rng)
    found = [(texts[i], texts[j]) for i, j, _ in pairs]
    altered = rng.permutation(len(texts))[: int(0.6 * len(texts))]
    found += [(texts[i], alter(texts[i], texts[rng.integers(len(texts))], rng)) for i in altered]
    turned = rng.random(len(found)) < 0.5
    order = rng.permutation(len(found))
    study.write_documents(target, ("\n".join(found[i][:: -1 if turned[i] else 1]) for i in order))
