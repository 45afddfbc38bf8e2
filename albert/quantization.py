"""Scales of products in int8: weights for each column, activations for each place in the network.

ALBERT's layers share one weight, whose inputs differ by depth: a scale for all depths, or one that
is taken from each input by itself with its outliers, ruins its answers. Here a weight is quantized
once, and each depth has a scale of its own, found beforehand on examples. Channels with outliers
are made smaller and the rows of the weight larger, as in SmoothQuant (Xiao et al., ICML 2023,
https://arxiv.org/abs/2211.10438, equation 4), by one factor a channel for all depths.

Letters in shapes: C channels (inputs of a product), O outputs, R rows of activations.
"""

import dataclasses

import numpy as np

_MOST_ROWS = 128  # of each place, by which its scale is chosen
_ALPHAS = (None, 0.25, 0.5, 0.75)  # strengths of smoothing; None: as it is
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # shares of a range that 8 bits are spent on
_LARGEST_FACTOR = 100.0


class Observations:
    """What flows into a product at one depth: the range of each channel, and some rows.

    Attributes:
      low, high: float32 [C].
      rows: float32 [R, C], of `_MOST_ROWS` at most, from all over the examples.
    """

    def __init__(self):
        self.low = self.high = None
        self.rows, self._marks = None, None
        self._random = np.random.default_rng(0)

    def add(self, x):
        """Activations [rows, C]."""
        low, high = x.min(axis=0), x.max(axis=0)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)
        marks = self._random.random(len(x))  # each row has the same chance to stay
        if self.rows is not None:
            marks, x = np.append(self._marks, marks), np.concatenate([self.rows, x])
        kept = np.argsort(marks)[:_MOST_ROWS]
        self._marks, self.rows = marks[kept], x[kept]

    @property
    def largest(self):
        """[C]: largest absolute values."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


@dataclasses.dataclass(frozen=True)
class Scale:
    """How activations become uint8: ``round(x / scale) + zero_point``.

    Attributes:
      scale: positive number.
      zero_point: integer, 0 to 255.
    """

    scale: float
    zero_point: int

    @classmethod
    def of(cls, low, high):
        """The scale of a range, which is widened to hold 0."""
        low, high = min(float(low), 0.0), max(float(high), 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(scale, int(np.clip(round(-low / scale), 0, 255)))

    def rounded(self, x):
        """The numbers that stand for x."""
        levels = np.clip(np.round(x / np.float32(self.scale)) + self.zero_point, 0, 255)
        return (levels - self.zero_point) * np.float32(self.scale)


@dataclasses.dataclass(frozen=True)
class Product:
    """A weight in int8 and the scales of its inputs.

    Attributes:
      alpha: strength of the smoothing; None: there is none.
      factors: float32 [C] that inputs are divided by, whose inverse is in the weight; None: none.
      weight: int8 [C, O].
      weight_scales: float32 [O].
      scales: {depth: `Scale`} of inputs after the division.
      errors: {depth: share of the output's energy that is error}, on the rows observed.
    """

    alpha: float | None
    factors: np.ndarray | None
    weight: np.ndarray
    weight_scales: np.ndarray
    scales: dict
    errors: dict

    @property
    def error(self):
        """Mean of `errors`."""
        return float(np.mean(list(self.errors.values())))


def quantize_columns(kernel):
    """int8 [C, O] and float32 scales [O] of a kernel [C, O].

    Two neighbours in a column are together 128 at most. Processors without VNNI add the products of
    two neighbours in 16 bits, and 255 * 128 is what still fits: with more, sums are cut off there,
    and the same file answers otherwise than on newer processors.
    """
    sizes = np.abs(kernel)
    most = np.max(sizes[1:] + sizes[:-1], axis=0, initial=0.0)
    most = np.maximum(most, sizes.max(axis=0))  # of one row alone
    scales = np.maximum(most, 1e-12).astype(np.float32) / 127
    return np.clip(np.round(kernel / scales), -127, 127).astype(np.int8), scales


def smoothing_factors(kernel, observed, alpha):
    """float32 [C] that inputs are divided by; their geometric mean is 1.

    Args:
      kernel: [C, O].
      observed: list of `Observations`, one for each depth.
      alpha: 0 leaves inputs as they are, 1 gives all channels one range.
    """
    # Each depth has its scale: what counts is how far a channel stands out among the others there.
    shares = [one.largest / max(one.largest.max(), 1e-12) for one in observed]
    inputs = np.maximum(np.max(shares, axis=0), 1e-5)
    rows = np.maximum(np.abs(kernel).max(axis=1), 1e-5)
    factors = inputs**alpha / rows ** (1 - alpha)
    factors = factors / np.exp(np.mean(np.log(factors)))
    return np.clip(factors, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR).astype(np.float32)


def quantize(kernel, observed):
    """The `Product` of a kernel with the least error.

    Args:
      kernel: float32 [C, O].
      observed: {depth: `Observations`} of its inputs.
    """
    return min((_product(kernel, observed, alpha) for alpha in _ALPHAS), key=lambda p: p.error)


def _product(kernel, observed, alpha):
    factors = None
    if alpha is not None:
        factors = smoothing_factors(kernel, list(observed.values()), alpha)
    by = np.ones(len(kernel), np.float32) if factors is None else factors
    weight, weight_scales = quantize_columns(kernel * by[:, np.newaxis])
    rounded = weight * weight_scales
    scales, errors = {}, {}
    for depth, one in observed.items():
        exact = one.rows @ kernel
        energy = max(float(np.sum(exact**2)), 1e-12)
        inputs, low, high = one.rows / by, (one.low / by).min(), (one.high / by).max()
        found = []
        for clip in _CLIPS:
            scale = Scale.of(low * clip, high * clip)
            error = float(np.sum((scale.rounded(inputs) @ rounded - exact) ** 2)) / energy
            found.append((error, -clip, scale))
        errors[depth], _, scales[depth] = min(found, key=lambda entry: entry[:2])
    return Product(alpha, factors, weight, weight_scales, scales, errors)
