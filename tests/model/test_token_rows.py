"""Rows of real tokens, and batches that are cut in parts."""

import numpy as np
import pytest
import tensorflow as tf

from albert.model import token_rows

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
IDS = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize("skip_padding", [False, True])
def test_rows_are_put_back_and_found(skip_padding):
    mask = np.repeat(MASK, 4, axis=1)  # [3, 16]: a few rows fewer, as T is a round number
    ids = np.arange(48).reshape(3, 16)
    rows = token_rows.make_rows(ids, mask, 2, skip_padding)
    flat = rows.flatten(ids)[:, tf.newaxis]  # [T, 1]
    assert len(flat) == (40 if skip_padding else 48)
    expected = ids * mask if skip_padding else ids
    np.testing.assert_array_equal(rows.unflatten(flat)[..., 0], expected)
    positions = np.array([[0, 2], [0, 3], [15, 1]])
    found = tf.gather(flat, rows.rows_at(positions))[:, 0]
    np.testing.assert_array_equal(found, np.take_along_axis(ids, positions, 1).ravel())


def test_heads_of_tokens_are_those_of_all_positions():
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    padded, tokens = (token_rows.make_rows(IDS, MASK, 2, skip) for skip in (False, True))
    real = MASK.ravel().astype(bool)
    expected = padded.split_heads(tf.constant(x), 1)[0]
    found = tokens.split_heads(tf.gather(x, tokens.flatten(IDS)), 1)[0]
    np.testing.assert_array_equal(
        np.moveaxis(found, 1, 2)[MASK > 0], np.moveaxis(expected, 1, 2)[MASK > 0]
    )
    np.testing.assert_array_equal(padded.merge_heads(expected).numpy()[real], x[real])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_of_a_batch_are_joined_again(count):
    parts = token_rows.cut_batch((tf.constant(IDS), None, tf.constant(MASK)), count)
    assert len(parts) == count and all(mask is None for _, mask, _ in parts)
    for number, whole in ((0, IDS), (2, MASK)):
        joined = token_rows.join_batch([part[number] for part in parts])
        np.testing.assert_array_equal(joined, whole)
