"""Equal and similar documents, found through files."""

import random
import sys

import numpy as np
import pytest

from albert.io import file_io
from albert.text import duplicates, words


def test_repeated_keys_in_chunks_and_parts():
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 40, 500).astype(np.uint64)

    def chunks():
        return iter(np.split(keys, [7, 7, 300]))

    for rows in (1000, 60):
        found = {int(key): places for key, places in duplicates.repeated(chunks, rows)}
        assert set(found) == {int(key) for key in np.unique(keys) if (keys == key).sum() > 1}
        for key, places in found.items():
            assert np.array_equal(places, np.flatnonzero(keys == key))
    repeats = duplicates.exact_duplicates(chunks, len(keys))
    assert (~repeats).sum() == len(np.unique(keys))
    assert not repeats[np.unique(keys, return_index=True)[1]].any()
    assert not list(duplicates.repeated(lambda: iter([])))


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(file_io.InputError, match="datasketch: pip install datasketch"):
        duplicates.Signer()


def documents(rng, count, length=150):
    return [[f"w{rng.randrange(5000)}" for _ in range(length)] for _ in range(count)]


def similarity(one, other):
    runs = [set(zip(*(words[i:] for i in range(5)), strict=False)) for words in (one, other)]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def write_signatures(tmp_path, texts):
    signer = duplicates.Signer()
    signatures = [signer.sign(words.word_hashes(text)).tobytes() for text in texts]
    (tmp_path / "signatures").write_bytes(b"".join(signatures))
    return duplicates.Signatures(str(tmp_path / "signatures"))


def test_similar_documents_are_found(tmp_path):
    pytest.importorskip("datasketch")
    rng = random.Random(3)
    texts = documents(rng, 60)
    for number in range(30):  # 30 with one word in a hundred changed, 30 with every fourth
        near, far = list(texts[number]), list(texts[number])
        for place in rng.sample(range(150), 2):
            near[place] = "other"
        far[::4] = ["other"] * len(far[::4])
        assert similarity(near, texts[number]) > 0.85 and similarity(far, texts[number]) < 0.3
        texts += [near, far]
    signatures = write_signatures(tmp_path, texts)
    assert len(signatures) == 120
    estimated = signatures.similarities(np.arange(30), np.arange(60, 120, 2))
    true = [similarity(texts[i], texts[60 + 2 * i]) for i in range(30)]
    assert np.abs(estimated - true).max() < 0.15
    gone = duplicates.near_duplicates(signatures, 0.7, np.zeros(120, bool))
    assert np.flatnonzero(gone).tolist() == list(range(60, 120, 2))
    # What does not stay for another reason takes nothing with it.
    removed = np.arange(120) < 10
    gone = duplicates.near_duplicates(signatures, 0.7, removed)
    assert np.flatnonzero(gone).tolist() == list(range(80, 120, 2))


def test_of_a_large_group_one_stays(tmp_path):
    pytest.importorskip("datasketch")
    rng = random.Random(4)
    (text,) = documents(rng, 1, 300)
    texts = [[*text[:299], f"end{number}"] for number in range(200)]
    texts += documents(rng, 3)
    signatures = write_signatures(tmp_path, texts)
    gone = duplicates.near_duplicates(signatures, 0.8, np.zeros(203, bool))
    assert np.flatnonzero(~gone).tolist() == [0, 200, 201, 202]


def test_texts_of_a_few_words(tmp_path):
    pytest.importorskip("datasketch")
    texts = [["a", "b"], ["a", "b"], ["a"], ["b", "a"], [], []]
    signatures = write_signatures(tmp_path, texts)
    gone = duplicates.near_duplicates(signatures, 0.9, np.zeros(6, bool))
    assert gone.tolist() == [False, True, False, False, False, False]
    nothing = write_signatures(tmp_path, [])
    assert not len(duplicates.near_duplicates(nothing, 0.9, np.zeros(0, bool)))


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8, 0.99, 1.0])
def test_bands_find_what_is_more_alike_than_the_threshold(threshold):
    pytest.importorskip("datasketch")
    bands, width = duplicates.best_bands(threshold)
    assert bands > 1 and bands * width <= duplicates.NUM_HASHES
    alike = (1 + threshold) / 2
    assert 1 - (1 - alike**width) ** bands > 0.9
