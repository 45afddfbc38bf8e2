"""Writes ONNX files whose large matrix products are computed in int8.

A float product has QuantizeLinear and DequantizeLinear before it. Every runtime reads this form;
ONNX Runtime and OpenVINO compute it as one int8 product. The table of words is stored in int8 with
a scale for each row. The products between queries, keys and values, and the heads, are computed in
float32; their weights are stored in float16.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.export import agreement, onnx_export, onnx_graph
from albert.model import model_folder
from albert.serving import inference, runtimes, serving_folder

_MAX_ROWS = 128  # activation rows kept per site to choose its scale
_ALPHAS = (None, 0.25, 0.5, 0.75)  # strengths of smoothing to try; None: no smoothing
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # fractions of the range to map to 8 bits
_MAX_FACTOR = 100.0
TABLE = "word_embeddings"  # the part that is a table, not a product


class Observations:
    """The inputs of a product at one depth: the range of each channel, and some rows.

    Attributes:
      low, high: float32 [C].
      rows: float32 [R, C], a uniform sample of at most `_MAX_ROWS` rows of all examples.
    """

    def __init__(self) -> None:
        self.low = self.high = self.rows = np.empty(0, np.float32)
        self._marks = np.empty(0)
        self._random = np.random.default_rng(0)

    def add(self, x: np.ndarray) -> None:
        """Adds activations [rows, C]."""
        low, high = x.min(axis=0), x.max(axis=0)
        marks = self._random.random(len(x))  # each row has the same chance of being kept
        if len(self.rows):
            low, high = np.minimum(self.low, low), np.maximum(self.high, high)
            marks, x = np.append(self._marks, marks), np.concatenate([self.rows, x])
        self.low, self.high = low, high
        sample = np.argsort(marks)[:_MAX_ROWS]
        self._marks, self.rows = marks[sample], x[sample]

    @property
    def largest(self) -> np.ndarray:
        """The maximum absolute value of each channel, [C]."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


@dataclasses.dataclass(frozen=True)
class Observed:
    """A kernel [C, O] of a part of the blocks, and {depth: `Observations`} of its inputs."""

    kernel: np.ndarray
    part: str
    inputs: dict[int, Observations] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Scale:
    """The quantization of activations to uint8: ``round(x / scale) + zero_point``."""

    scale: float
    zero_point: int  # 0 to 255

    @classmethod
    def from_range(cls, low: float, high: float) -> "Scale":
        """Computes the scale for a range, which is extended to contain 0."""
        low, high = min(float(low), 0.0), max(float(high), 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(scale, int(np.clip(round(-low / scale), 0, 255)))

    def round(self, x: np.ndarray) -> np.ndarray:
        """Quantizes x and converts it back: the values that a product gets in place of x."""
        levels = np.clip(np.round(x / np.float32(self.scale)) + self.zero_point, 0, 255)
        return (levels - self.zero_point) * np.float32(self.scale)


@dataclasses.dataclass(frozen=True)
class Product:
    """A weight in int8 and the scales of its inputs at each depth."""

    alpha: float | None  # strength of the smoothing; None: no smoothing
    # float32 [C] by which inputs are divided and rows of the weight multiplied; None: no smoothing.
    factors: np.ndarray | None
    weight: np.ndarray  # int8 [C, O]
    weight_scales: np.ndarray  # float32 [O]
    scales: dict[int, Scale]  # by depth, of the inputs after the division
    # By depth: squared error as a fraction of the squared output, on the observed rows.
    errors: dict[int, float]

    @property
    def error(self) -> float:
        return float(np.mean(list(self.errors.values())))


def quantize_columns(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes a kernel [C, O]; returns int8 [C, O] and float32 scales [O].

    The absolute values of two neighbors in a column add up to at most 128. Processors without VNNI
    add the products of two neighbors in 16 bits, in which 255 * 128 still fits. Larger sums would
    saturate, and the same file would give other answers than on newer processors.
    """
    sizes = np.abs(kernel)
    largest = np.max(sizes[1:] + sizes[:-1], axis=0, initial=0.0)
    largest = np.maximum(largest, sizes.max(axis=0))  # a kernel with one row has no neighbors
    scales = np.maximum(largest, 1e-12).astype(np.float32) / 127
    return np.clip(np.round(kernel / scales), -127, 127).astype(np.int8), scales


def smoothing_factors(
    kernel: np.ndarray, observed: Sequence[Observations], alpha: float
) -> np.ndarray:
    """Computes the float32 factors [C] that inputs are divided by; their geometric mean is 1.

    Args:
      kernel: [C, O].
      alpha: strength of the smoothing: 0 considers only the weights, 1 gives all channels of the
        inputs the same range.
    """
    # Each depth has its own scale, so channels are compared with the largest one of their depth.
    relative = [
        observations.largest / max(observations.largest.max(), 1e-12) for observations in observed
    ]
    inputs = np.maximum(np.max(relative, axis=0), 1e-5)
    rows = np.maximum(np.abs(kernel).max(axis=1), 1e-5)
    factors = inputs**alpha / rows ** (1 - alpha)
    factors = factors / np.exp(np.mean(np.log(factors)))
    return np.clip(factors, 1 / _MAX_FACTOR, _MAX_FACTOR).astype(np.float32)


def quantize(kernel: np.ndarray, observed: dict[int, Observations]) -> Product:
    """Quantizes a kernel, float32 [C, O], with the strength of smoothing of the smallest error.

    `observed`: {depth: `Observations`} of its inputs.
    """
    return min((_product(kernel, observed, alpha) for alpha in _ALPHAS), key=lambda p: p.error)


def _product(kernel: np.ndarray, observed: dict[int, Observations], alpha: float | None) -> Product:
    factors = None
    if alpha is not None:
        factors = smoothing_factors(kernel, list(observed.values()), alpha)
    divisors = np.ones(len(kernel), np.float32) if factors is None else factors
    weight, weight_scales = quantize_columns(kernel * divisors[:, np.newaxis])
    rounded = weight * weight_scales
    scales, errors = {}, {}
    for depth, observations in observed.items():
        exact = observations.rows @ kernel
        energy = max(float(np.sum(exact**2)), 1e-12)
        inputs = observations.rows / divisors
        low, high = (observations.low / divisors).min(), (observations.high / divisors).max()
        candidates = []
        for clip in _CLIPS:
            scale = Scale.from_range(low * clip, high * clip)
            error = float(np.sum((scale.round(inputs) @ rounded - exact) ** 2)) / energy
            candidates.append((error, -clip, scale))
        errors[depth], _, scales[depth] = min(candidates, key=lambda entry: entry[:2])
    return Product(alpha, factors, weight, weight_scales, scales, errors)


# --- the file ------------------------------------------------------------------------------------


# Number of tokens whose activations, of all depths, are in memory at the same time.
_TOKENS = 512
# Fraction of equal answers to the calibration file at which no more parts go back to float32.
_MIN_AGREEMENT = 0.995


def write(
    folder: serving_folder.ServingFolder,
    trained: model_folder.ModelFolder,
    calibration: agreement.Examples,
) -> dict[str, Any]:
    """Writes the model file of a serving folder.

    Parts of the block go back to float32, those with the largest errors first, until the answers to
    the calibration file agree with those of the model in float32; its labels may be unknown.
    """
    model = onnx_export.Model(trained)
    observed, answers = observe(model, calibration)
    products = {name: quantize(weight.kernel, weight.inputs) for name, weight in observed.items()}
    errors = _errors(model, observed, products)
    parts = sorted(errors, key=errors.__getitem__)
    for count in range(len(parts), 0, -1):
        int8_parts = parts[:count]
        onnx_export.write(folder, model, QuantizedProducts(products, int8_parts))
        int8_answers = calibration.answers(inference.FoundModel(folder.model, folder))
        rate = agreement.agreement_rate(calibration, answers, int8_answers)
        logging.info("int8 in %s: %.2f%% equal answers", ", ".join(int8_parts), 100 * rate)
        if rate >= _MIN_AGREEMENT:
            break
    else:
        logging.warning(
            "int8 changes answers: with int8 only in %s, %.2f%% of %d answers to "
            "calibration_file=%s are those of float32; expected at least %g%%. Calibrate with more "
            "examples like those of production, or export in float32 or bfloat16",
            int8_parts[0], 100 * rate, len(answers), calibration.path, 100 * _MIN_AGREEMENT,
        )  # fmt: skip
    return {
        "calibration": {
            "answers": len(answers),
            "agreement": round(rate, 6),
            "int8": [part for part in errors if part in int8_parts],
            "float32": [part for part in errors if part not in int8_parts],
            "error": {part: round(error, 8) for part, error in errors.items()},
            "smoothing": {name: product.alpha for name, product in products.items()},
        }
    }


def _errors(
    model: onnx_export.Model, observed: dict[str, Observed], products: dict[str, Product]
) -> dict[str, float]:
    """Returns {part: mean error of its products at all depths, or of the table of words}.

    `observed` and `products` are by name of the kernel.
    """
    errors: dict[str, list[float]] = {part: [] for part in onnx_export.PARTS}
    for name, weight in observed.items():
        errors[weight.part] += products[name].errors.values()
    table = model.weights[f"bert/embeddings/{TABLE}"]
    rows, scales = quantize_rows(table)
    energy = max(float(np.sum(table**2)), 1e-12)
    errors[TABLE] = [float(np.sum((rows * scales - table) ** 2)) / energy]
    return {part: float(np.mean(values)) for part, values in errors.items()}


def observe(
    model: onnx_export.Model, examples: agreement.Examples
) -> tuple[dict[str, Observed], list]:
    """Answers examples in float32; returns {name of a kernel: `Observed`}, and the answers."""
    runtime = runtimes.module_of("onnxruntime")
    arithmetic = _WithOutputs()
    content = model.graph(arithmetic).to_bytes({})
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    inputs = [entry.name for entry in session.get_inputs()]
    names = [entry.name for entry in session.get_outputs()]

    def infer(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = session.run(names, {name: features[name] for name in inputs})
        outputs = dict(zip(names, results, strict=True))
        real = features["input_mask"].astype(bool)  # [B, S]
        for name, observations in arithmetic.observed.items():
            x = outputs.pop(name)  # [B, S, C], or [B, 1, C] if only the first position is computed
            observations.add(x[real[:, : x.shape[1]]])
        return outputs

    observer = inference.FoundModel(model.folder, function=infer, max_batch_tokens=_TOKENS)
    return arithmetic.weights, examples.answers(observer)


class _WithOutputs(onnx_export.Arithmetic):
    """Makes the input of each product an output of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, Observed] = {}  # by name of the kernel
        self.observed: dict[str, Observations] = {}  # by name of the output, to fill

    def product(
        self, graph: onnx_graph.Graph, x: str, weight: tuple[str, np.ndarray], depth: int, part: str
    ) -> str:
        output, (name, kernel) = f"input of {part} {depth}", weight
        graph.output(output, x, np.float32, ("batch", None, len(kernel)))
        self.observed[output] = Observations()
        used = self.weights.setdefault(name, Observed(kernel, part))
        used.inputs[depth] = self.observed[output]
        return super().product(graph, x, weight, depth, part)


def quantize_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes a table [V, E]; returns int8 [V, E] and float32 scales [V, 1]."""
    largest = np.abs(table).max(axis=1, keepdims=True)
    scales = np.maximum(largest, 1e-12).astype(np.float32) / 127
    return np.round(table / scales).astype(np.int8), scales


class QuantizedProducts(onnx_export.Arithmetic):
    """Computes products of a graph in int8, and looks words up in a table in int8.

    Args:
      products: {name of a weight: `Product`}.
      parts: the entries of `onnx_export.PARTS`, and perhaps `TABLE`, to have in int8.
    """

    def __init__(self, products: dict[str, Product], parts: Collection[str]) -> None:
        super().__init__(half=True)
        self._products = products
        self._parts = parts
        self._weights: dict[str, str] = {}

    def lookup(self, graph: onnx_graph.Graph, name: str, table: np.ndarray, ids: str) -> str:
        if TABLE not in self._parts:
            return super().lookup(graph, name, table, ids)
        rows, scales = quantize_rows(table)
        words = graph.node("Gather", graph.constant(f"{name}/int8", rows), ids)
        scale = graph.node("Gather", graph.constant(f"{name}/scales", scales), ids)
        return graph.node("Mul", graph.cast(words, np.float32), scale)

    def product(
        self, graph: onnx_graph.Graph, x: str, weight: tuple[str, np.ndarray], depth: int, part: str
    ) -> str:
        if part not in self._parts:
            return super().product(graph, x, weight, depth, part)
        name, product = weight[0], self._products[weight[0]]
        if product.factors is not None:
            inverse = graph.constant(f"{name}/inverse_factors", 1 / product.factors)
            x = graph.node("Mul", x, inverse)
        scale = product.scales[depth]
        parameters = (
            graph.constant(f"{name}/{depth}/scale", np.float32(scale.scale)),
            graph.constant(f"{name}/{depth}/zero_point", np.uint8(scale.zero_point)),
        )
        x = graph.node(
            "DequantizeLinear", graph.node("QuantizeLinear", x, *parameters), *parameters
        )
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
