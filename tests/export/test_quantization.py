"""int8 products are close to those in float32, whatever the depths and channels are like."""

import numpy as np
import pytest

from albert.export import onnx_int8


def observations(*arrays):
    found = []
    for array in arrays:
        one = onnx_int8.Observations()
        for part in np.array_split(array, 3):
            one.add(part)
        found.append(one)
    return found


def test_observations_hold_ranges_and_a_sample():
    x = np.random.default_rng(1).normal(size=[1000, 4]).astype(np.float32)
    (one,) = observations(x)
    np.testing.assert_array_equal(one.low, x.min(axis=0))
    np.testing.assert_array_equal(one.largest, np.abs(x).max(axis=0))
    assert one.rows.shape == (128, 4)
    places = [int(np.flatnonzero((x == row).all(axis=1))[0]) for row in one.rows]
    assert len(set(places)) == 128 and 300 < np.mean(places) < 700
    (again,) = observations(x)
    np.testing.assert_array_equal(one.rows, again.rows)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.5, 2.0), (-4.0, -1.0), (0.0, 0.0)])
def test_scales_hold_zero_exactly(low, high):
    scale = onnx_int8.Scale.from_range(low, high)
    assert 0 <= scale.zero_point <= 255
    assert scale.round(np.float32(0.0)) == 0.0
    x = np.linspace(low, high, 50, dtype=np.float32)
    np.testing.assert_allclose(scale.round(x), x, atol=0.51 * scale.scale)


def test_columns_have_their_own_scales():
    kernel = np.float32([[0.1, 100.0], [-0.05, 50.0]])
    weight, scales = onnx_int8.quantize_columns(kernel)
    assert weight.dtype == np.int8 and np.abs(weight).sum(axis=0).tolist() == [127, 127]
    np.testing.assert_allclose(weight * scales, kernel, rtol=0.02)


def test_neighbors_in_a_column_never_overflow_sixteen_bits():
    kernel = np.random.default_rng(4).normal(size=[64, 500]).astype(np.float32)
    weight, scales = onnx_int8.quantize_columns(kernel)
    both = np.abs(weight[1:].astype(int)) + np.abs(weight[:-1])
    assert both.max() * 255 < 2**15
    assert np.all(both.max(axis=0) >= 126)  # and no more is given away than must be
    np.testing.assert_allclose(weight * scales, kernel, atol=0.51 * scales.max())
    one, _ = onnx_int8.quantize_columns(kernel[:1])
    assert np.all(np.abs(one) == 127)


def test_depths_of_other_ranges_share_a_weight_without_harm():
    rng = np.random.default_rng(2)
    kernel = rng.normal(size=[32, 24]).astype(np.float32)
    inputs = [scale * rng.normal(size=[400, 32]).astype(np.float32) for scale in (0.01, 1, 50)]
    product = onnx_int8.quantize(kernel, dict(enumerate(observations(*inputs))))
    scales = [product.scales[depth].scale for depth in range(3)]
    assert scales[0] < scales[1] / 50 < scales[2] / 1000
    assert max(product.errors.values()) < 1e-3


def test_outlying_channels_are_smoothed_away():
    rng = np.random.default_rng(3)
    kernel = rng.normal(size=[32, 24]).astype(np.float32)
    x = rng.normal(size=[400, 32]).astype(np.float32)
    x[:, 5] *= 60
    x[:, 9] += 40
    observed = dict(enumerate(observations(x, 0.1 * x)))
    product = onnx_int8.quantize(kernel, observed)
    assert product.alpha and product.factors.argmax() in (5, 9)
    inputs = product.scales[0].round(x / product.factors)
    found = inputs @ (product.weight * product.weight_scales)
    plain = onnx_int8.Scale.from_range(x.min(), x.max()).round(x) @ kernel

    def error(y):
        return np.mean((y - x @ kernel) ** 2)

    assert error(found) < error(plain) / 4
    np.testing.assert_allclose(np.mean(np.log(product.factors)), 0, atol=0.3)
