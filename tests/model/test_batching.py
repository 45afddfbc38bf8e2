"""The rule of lengths, cutting by it, and the order of batches."""

import numpy as np
import pytest
import tensorflow as tf

from albert.model import batching, tensor_batching


def test_sizes_are_rounded_up_to_few():
    rounded = [batching.round_up(size) for size in range(1, 1025)]
    assert rounded[:128] == [-(-size // 8) * 8 for size in range(1, 129)]
    assert rounded[0] == batching.STEP
    for size, found in enumerate(rounded, 1):
        assert size <= found < size + max(8, size / 16 + 1)
    assert len(set(rounded[512:])) == 16 and rounded[511] == 512 and rounded[1023] == 1024


def test_numbers_and_tensors_are_rounded_alike():
    sizes = [*range(1, 1025), 4095, 4096, 4097, 100_000, 2**20 - 1, 2**20, 2**20 + 1]
    found = [int(tensor_batching.round_up(tf.constant(size))) for size in sizes]
    assert found == [batching.round_up(size) for size in sizes]


@pytest.mark.parametrize(
    ("lengths", "kept"), [((3, 9, 1), 16), ((0, 0, 0), 8), ((20, 4, 17), 20), ((8, 8, 8), 8)]
)
def test_shared_padding_is_cut(lengths, kept):
    mask = (np.arange(20) < np.array(lengths)[:, np.newaxis]).astype(np.int32)
    features = {"input_mask": mask, "input_ids": mask * 7, "scores": np.ones((3, 20))}
    names = ("input_mask", "input_ids", "absent")
    arrays = batching.trim_arrays(features, names)
    tensors = tensor_batching.trim({name: tf.constant(x) for name, x in features.items()}, names)
    for found in (arrays, tensors):
        assert set(found) == set(features)
        np.testing.assert_array_equal(found["input_mask"], mask[:, :kept])
        np.testing.assert_array_equal(found["input_ids"], mask[:, :kept] * 7)
        assert found["scores"].shape == (3, 20)


@pytest.mark.parametrize(
    ("filled", "kept"), [((3, 9), 16), ((0, 0), 8), ((2, 8), 8), ((20, 1), 20)]
)
def test_empty_slots_for_masked_tokens_are_cut(filled, kept):
    weights = (np.arange(20) < np.array(filled)[:, np.newaxis]).astype(np.float32)
    features = {
        "masked_lm_weights": tf.constant(weights),
        "masked_lm_ids": tf.constant(weights * 5),
    }
    cut = tensor_batching.trim_predictions(features | {"input_ids": tf.ones((2, 30))}, features)
    np.testing.assert_array_equal(cut["masked_lm_weights"], weights[:, :kept])
    np.testing.assert_array_equal(cut["masked_lm_ids"], weights[:, :kept] * 5)
    assert cut["input_ids"].shape == (2, 30)


def test_features_with_choices_are_cut_on_their_last_axis():
    mask = np.zeros((3, 2, 32), np.int32)
    mask[1, 1, :9] = 1
    cut = tensor_batching.trim({"input_mask": tf.constant(mask)}, ["input_mask"])
    assert cut["input_mask"].shape == (3, 2, 16)


def test_arrays_keep_the_length_that_is_needed():
    mask = np.ones((2, 3), np.int32)
    padded = {"input_mask": np.pad(mask, [[0, 0], [0, 37]])}
    assert batching.trim_arrays(padded, ["input_mask"], 17)["input_mask"].shape == (2, 24)
    assert batching.trim_arrays(padded, ["input_mask"], 50)["input_mask"].shape == (2, 40)


def test_batches_are_sorted_by_falling_length_and_put_back():
    lengths = np.array([3, 9, 3, 1, 9, 20, 4])
    batches = batching.batches_by_length(lengths, 3)
    assert [batch.tolist() for batch in batches] == [[5, 1, 4], [6, 0, 2], [3]]
    order = tensor_batching.sorted_by_length(tf.constant(lengths))
    np.testing.assert_array_equal(order, np.concatenate(batches))
    rows = np.concatenate([lengths[batch] for batch in batches])
    np.testing.assert_array_equal(rows[batching.places_in(batches)], lengths)
