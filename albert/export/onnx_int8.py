"""Writes ONNX files whose large products are computed in int8.

The form is that of QuantizeLinear and DequantizeLinear around a float product, which every runtime
reads, and which ONNX Runtime and OpenVINO compute as one product in int8. The products of attention
itself, the embeddings and the heads stay in float32.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.export import agreement, onnx_export, onnx_graph
from albert.model import model_folder
from albert.serving import inference, runtimes, serving_folder

_MOST_ROWS = 128  # activation rows kept per site to choose its scale
_ALPHAS = (None, 0.25, 0.5, 0.75)  # strengths of smoothing; None: as it is
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # fractions of a range that 8 bits are spent on
_LARGEST_FACTOR = 100.0


class Observations:
    """The inputs of a product at one depth: the range of each channel, and some rows.

    Attributes:
      low, high: float32 [C].
      rows: float32 [R, C], of `_MOST_ROWS` at most, from all over the examples.
    """

    def __init__(self) -> None:
        self.low = self.high = None
        self.rows, self._marks = None, None
        self._random = np.random.default_rng(0)

    def add(self, x: np.ndarray) -> None:
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
    def largest(self) -> np.ndarray:
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
    def of(cls, low: float, high: float) -> "Scale":
        """The scale of a range, which is widened to hold 0."""
        low, high = min(float(low), 0.0), max(float(high), 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(scale, int(np.clip(round(-low / scale), 0, 255)))

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """The numbers that stand for x."""
        levels = np.clip(np.round(x / np.float32(self.scale)) + self.zero_point, 0, 255)
        return (levels - self.zero_point) * np.float32(self.scale)


@dataclasses.dataclass(frozen=True)
class Product:
    """A weight in int8 and the scales of its inputs.

    Attributes:
      alpha: strength of the smoothing; None: no smoothing.
      factors: float32 [C] that inputs are divided by, whose inverse is in the weight; None: none.
      weight: int8 [C, O].
      weight_scales: float32 [O].
      scales: {depth: `Scale`} of inputs after the division.
      errors: {depth: fraction of the output's energy that is error}, on the rows observed.
    """

    alpha: float | None
    factors: np.ndarray | None
    weight: np.ndarray
    weight_scales: np.ndarray
    scales: dict
    errors: dict

    @property
    def error(self) -> float:
        """Mean of `errors`."""
        return float(np.mean(list(self.errors.values())))


def quantize_columns(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def smoothing_factors(
    kernel: np.ndarray, observed: Sequence[Observations], alpha: float
) -> np.ndarray:
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


def quantize(kernel: np.ndarray, observed: dict[int, Observations]) -> Product:
    """The `Product` of a kernel with the least error.

    Args:
      kernel: float32 [C, O].
      observed: {depth: `Observations`} of its inputs.
    """
    return min((_product(kernel, observed, alpha) for alpha in _ALPHAS), key=lambda p: p.error)


def _product(kernel: np.ndarray, observed: dict[int, Observations], alpha: float | None) -> Product:
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


# --- Writes ONNX files whose large products are computed in int8 ---------------------------------


# Tokens whose activations of all depths are in memory together.
_TOKENS = 512
# Fraction of equal answers to the calibration file with which no further part is left in float32.
_ENOUGH = 0.995


def write(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    calibration: agreement.Examples,
) -> dict[str, Any]:
    """Writes the file of a serving folder.

    Parts of the block are left in float32, those with the largest errors first, until the answers
    to the calibration file are those of the model in float32.

    Args:
      folder: `serving_folder.ServingFolder`.
      trained: `model_folder.ModelFolder` with a checkpoint.
      calibration: `agreement.Examples`, whose right answers need not be known.

    Returns:
      What was measured, JSON-ready.
    """
    model = onnx_export.Model(trained)
    observed, answers = observe(model, calibration)
    products = {
        name: quantize(kernel, {depth: observed[depth, part] for depth in depths})
        for name, (kernel, part, depths) in _uses(model).items()
    }
    errors = _errors(model, products)
    parts = sorted(onnx_export.PARTS, key=errors.get)
    for count in range(len(parts), 0, -1):
        chosen = parts[:count]
        onnx_export.write(folder, model, Quantized(products, chosen))
        found = calibration.answers(inference.FoundModel(folder.model, folder))
        share = agreement.agreement_rate(calibration, answers, found)
        logging.info("int8 in %s: %.2f%% equal answers", ", ".join(chosen), 100 * share)
        if share >= _ENOUGH:
            break
    else:
        logging.warning(
            "int8 changes answers: with int8 in %s alone, %.2f%% of %d answers to "
            "calibration_file=%s are those of float32; wanted were %g%%. Calibrate on more "
            "examples like those to come, or export in float32 or bfloat16",
            chosen[0], 100 * share, len(answers), calibration.path, 100 * _ENOUGH,
        )  # fmt: skip
    return {
        "calibration": {
            "answers": len(answers),
            "agreement": round(share, 6),
            "int8": [part for part in onnx_export.PARTS if part in chosen],
            "float32": [part for part in onnx_export.PARTS if part not in chosen],
            "error": {part: round(errors[part], 8) for part in onnx_export.PARTS},
            "smoothing": {name: product.alpha for name, product in products.items()},
        }
    }


def _uses(model: onnx_export.Model) -> dict[str, tuple[np.ndarray, str, list[int]]]:
    """{name of a weight: (kernel, part, depths)}."""
    found = {}
    for (depth, part), (name, kernel) in model.block_weights().items():
        found.setdefault(name, (kernel, part, []))[2].append(depth)
    return found


def _errors(model: onnx_export.Model, products: dict[str, Product]) -> dict[str, float]:
    """{part: mean error of its products at all depths}."""
    found = {part: [] for part in onnx_export.PARTS}
    for (depth, part), (name, _) in model.block_weights().items():
        found[part].append(products[name].errors[depth])
    return {part: float(np.mean(values)) for part, values in found.items()}


def observe(
    model: onnx_export.Model, examples: agreement.Examples
) -> tuple[dict[tuple[int, str], Observations], list]:
    """Answers examples in float32, and watches what flows into the products of the blocks.

    Args:
      model: `onnx_export.Model`.
      examples: `agreement.Examples`.

    Returns:
      {(depth, part): `Observations`}, and the answers.
    """
    runtime = runtimes.module_of("onnxruntime")
    sites = {}

    def watched(graph, x, weight, depth, part):
        name = f"input of {part} {depth}"
        graph.output(name, x, np.float32, ("batch", None, len(weight[1])))
        sites[name] = (depth, part)
        return onnx_export.product(graph, x, weight, depth, part)

    content = model.graph(watched).to_bytes({})
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    inputs = [entry.name for entry in session.get_inputs()]
    names = [entry.name for entry in session.get_outputs()]
    observed = {site: Observations() for site in sites.values()}

    def infer_rows(features):
        found = dict(zip(names, session.run(names, features), strict=True))
        real = features["input_mask"].astype(bool)  # [B, S]
        for name, site in sites.items():
            x = found.pop(name)  # [B, S, C], or of the first position alone [B, 1, C]
            observed[site].add(x[real[:, : x.shape[1]]])
        return found

    def infer(features):
        rows, length = features["input_ids"].shape
        step = max(1, _TOKENS // length)
        parts = [
            infer_rows({name: features[name][start : start + step] for name in inputs})
            for start in range(0, rows, step)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    found = inference.FoundModel(model.folder, function=infer)
    return observed, examples.answers(found)


class Quantized:
    """The products of a graph, in int8; see `onnx_export.Model.graph`.

    Args:
      products: {name of a weight: `Product`}.
      parts: those of `onnx_export.PARTS` that are in int8.
    """

    def __init__(self, products: dict[str, Product], parts: Collection[str]) -> None:
        self._products = products
        self._parts = parts
        self._weights = {}

    def __call__(
        self, graph: onnx_graph.Graph, x: str, weight: tuple[str, np.ndarray], depth: int, part: str
    ) -> str:
        if part not in self._parts:
            return onnx_export.product(graph, x, weight, depth, part)
        name, product = weight[0], self._products[weight[0]]
        if product.factors is not None:
            inverse = graph.constant(f"{name}/inverse_factors", 1 / product.factors)
            x = graph.node("Mul", x, inverse)
        scale = product.scales[depth]
        how = (
            graph.constant(f"{name}/{depth}/scale", np.float32(scale.scale)),
            graph.constant(f"{name}/{depth}/zero_point", np.uint8(scale.zero_point)),
        )
        x = graph.node("DequantizeLinear", graph.node("QuantizeLinear", x, *how), *how)
        return graph.node("MatMul", x, self._weight(graph, name, product))

    def _weight(self, graph: onnx_graph.Graph, name: str, product: Product) -> str:
        if name not in self._weights:
            self._weights[name] = graph.node(
                "DequantizeLinear",
                graph.constant(f"{name}/int8", product.weight),
                graph.constant(f"{name}/scales", product.weight_scales),
                axis=1,
            )
        return self._weights[name]
