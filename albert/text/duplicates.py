"""Finds equal and nearly equal documents among any number of them.

Two documents are nearly equal if, of the runs of five words in either, at least a given fraction is
in both (their Jaccard similarity). The fraction is estimated from signatures: the minima of many
random hashes of the runs. Documents are compared if they agree in one band of their signatures.
The package datasketch makes the signatures and finds the best number of bands. Bands are sorted
through files, so that memory holds a few bytes per document and not its signature.

Sources: Broder, "On the resemblance and containment of documents" (1997); Leskovec, Rajaraman and
Ullman, "Mining of Massive Datasets", section 3.4.
Shapes: D documents, K hashes of a signature.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from albert.io import file_io, requirements
from albert.text import words

RUN_WORDS = 5
NUM_HASHES = 128  # K; the standard error of an estimated similarity is at most 0.5 / sqrt(K)
# Documents of one band that are all compared with each other; of more, each with this many.
_COMPARED = 64
_PARTITION_ROWS = 4 << 20  # rows of a band that are sorted at a time
_PAIRS_AT_A_TIME = 1 << 14
_ROWS_AT_A_TIME = 1 << 16  # of signatures
_HALF, _LOW_HALF = 32, 2**32 - 1  # of a pair of places in 64 bits; two billion are enough
_SEED = 1  # of the signatures' hashes
_NO_MINIMUM = 2**32 - 1  # each hash of a document without words


def _datasketch() -> Any:
    message = "near duplicates need the package datasketch: pip install datasketch ({error})"
    with requirements.needed(message):
        import datasketch
    return datasketch


class Signer:
    """Makes signatures."""

    def __init__(self) -> None:
        # The runs are numbers already.
        self._empty = _datasketch().MinHash(NUM_HASHES, _SEED, hashfunc=int)

    def sign(self, hashes: np.ndarray) -> np.ndarray:
        """Returns the [K] uint32 signature of a document with these `words.word_hashes`."""
        run_hashes = words.runs(hashes, min(RUN_WORDS, max(1, len(hashes))))
        signature = self._empty.copy()
        signature.update_batch(np.unique(run_hashes >> np.uint64(32)).tolist())
        return signature.hashvalues.astype(np.uint32)


def best_bands(threshold: float) -> tuple[int, int]:
    """Returns (bands, hashes in each) to find documents with a similarity of at least `threshold`.

    Missing some is worse than finding too many, which are compared afterwards.
    """
    # Above this, one band would be best, which the package does not allow.
    threshold = min(threshold, 0.99)
    index = _datasketch().MinHashLSH(threshold, NUM_HASHES, weights=(0.1, 0.9))
    return index.b, index.r


def repeated(
    keys: Callable[[], Iterable[np.ndarray]], chunk_rows: int = _PARTITION_ROWS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (key, its places in ascending order) of each key that occurs several times.

    Args:
      keys: ``()``, yields [N] uint64 arrays, which follow each other.
      chunk_rows: approximate number of keys in memory.
    """
    total = sum(map(len, keys()))
    parts = 1 + total // chunk_rows
    for part in range(parts):
        key_chunks, place_chunks, start = [], [], 0
        for chunk in keys():
            places = np.flatnonzero(chunk % np.uint64(parts) == part)
            key_chunks.append(chunk[places])
            place_chunks.append(places + start)
            start += len(chunk)
        if not sum(map(len, key_chunks)):
            continue
        part_keys, places = np.concatenate(key_chunks), np.concatenate(place_chunks)
        order = np.argsort(part_keys, kind="stable")
        part_keys, places = part_keys[order], places[order]
        starts = np.flatnonzero(np.diff(part_keys, prepend=~part_keys[:1]))
        ends = np.append(starts[1:], len(part_keys))
        for group in np.flatnonzero(ends - starts > 1):
            yield part_keys[starts[group]], places[starts[group] : ends[group]]


def exact_duplicates(keys: Callable[[], Iterable[np.ndarray]], total: int) -> np.ndarray:
    """Returns [D] booleans: an earlier document has the same key, see `repeated`."""
    repeats = np.zeros(total, bool)
    for _, places in repeated(keys):
        repeats[places[1:]] = True
    return repeats


class Signatures:
    """Signatures of all documents, in a file: uint32 [D, K]."""

    def __init__(self, path: str) -> None:
        content = file_io.map_bytes(path) if file_io.size(path) else b""
        self._table = np.frombuffer(content, np.uint32).reshape(-1, NUM_HASHES)

    def __len__(self) -> int:
        return len(self._table)

    def band_keys(self, band: int, width: int) -> Iterator[np.ndarray]:
        """Yields [*] uint64, a hash of each document's band of `width` hashes."""
        columns = self._table[:, band * width : (band + 1) * width]
        for start in range(0, len(columns), _ROWS_AT_A_TIME):
            yield words.row_hashes(columns[start : start + _ROWS_AT_A_TIME].astype(np.uint64))

    def without_words(self) -> np.ndarray:
        """Returns [D] booleans: the document has no word."""
        # That another document has this hash twice is less probable than that two runs are alike.
        return (self._table[:, :2] == _NO_MINIMUM).all(axis=1)

    def similarities(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Estimates the [*] similarity of documents at places `first` with those at `second`."""
        result = np.zeros(len(first))
        for start in range(0, len(first), _PAIRS_AT_A_TIME):
            part = slice(start, start + _PAIRS_AT_A_TIME)
            result[part] = (self._table[first[part]] == self._table[second[part]]).mean(axis=1)
        return result


def near_duplicates(signatures: Signatures, threshold: float, removed: np.ndarray) -> np.ndarray:
    """Returns [D] booleans: an earlier document that stays is nearly equal; not without words.

    Args:
      threshold: minimum similarity, from 0 to 1.
      removed: [D] booleans, documents that do not stay and are not compared.
    """
    pairs = _candidates(signatures, threshold, removed | signatures.without_words())
    alike = signatures.similarities(pairs >> _HALF, pairs & _LOW_HALF) >= threshold
    pairs = pairs[alike]
    # Sorted by the later document, so that it is already known whether the earlier one stays.
    pairs = (pairs & _LOW_HALF) << _HALF | pairs >> _HALF
    pairs.sort()
    gone = np.zeros(len(signatures), bool)
    for start in range(0, len(pairs), _PAIRS_AT_A_TIME):
        part = pairs[start : start + _PAIRS_AT_A_TIME]
        place_pairs = zip((part >> _HALF).tolist(), (part & _LOW_HALF).tolist(), strict=True)
        for later, earlier in place_pairs:
            gone[later] |= not gone[earlier]
    return gone


def _candidates(signatures: Signatures, threshold: float, removed: np.ndarray) -> np.ndarray:
    """Returns [*] int64 pairs of places of documents that agree in a band, each once.

    The half of higher bits is the earlier place, to save memory.
    """
    bands, width = best_bands(threshold)
    pairs = np.zeros(0, np.int64)
    for band in range(bands):
        new = []
        for _, places in repeated(functools.partial(signatures.band_keys, band, width)):
            places = places[~removed[places]]
            for distance in range(1, min(len(places), _COMPARED + 1)):
                new.append(places[:-distance] << _HALF | places[distance:])
            if len(places) > _COMPARED + 1:
                # The first most probably stays, so all others are compared with it.
                new.append(places[0] << _HALF | places[_COMPARED + 1 :])
        if new:
            pairs = np.unique(np.concatenate([pairs, *new]))
    return pairs
