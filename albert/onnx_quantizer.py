"""Writes ONNX files whose large products are computed in int8.

The form is that of QuantizeLinear and DequantizeLinear around a float product, which every runtime
reads, and which ONNX Runtime and OpenVINO compute as one product in int8. The products of attention
itself, the embeddings and the heads stay in float32.
"""

import numpy as np
from absl import logging

from albert import agreement, inference, onnx_exporter, quantization, serving_runtimes

# Tokens whose activations of all depths are in memory together.
_TOKENS = 512
# Share of equal answers to the calibration file with which no further part is left in float32.
_ENOUGH = 0.995


def write(folder, trained, calibration):
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
    model = onnx_exporter.Model(trained)
    observed, answers = observe(model, calibration)
    products = {
        name: quantization.quantize(kernel, {depth: observed[depth, part] for depth in depths})
        for name, (kernel, part, depths) in _uses(model).items()
    }
    errors = _errors(model, products)
    parts = sorted(onnx_exporter.PARTS, key=errors.get)
    for count in range(len(parts), 0, -1):
        chosen = parts[:count]
        onnx_exporter.write(folder, model, Quantized(products, chosen))
        found = calibration.answers(inference.FoundModel(folder.model, folder))
        share = agreement.share(calibration, answers, found)
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
            "int8": [part for part in onnx_exporter.PARTS if part in chosen],
            "float32": [part for part in onnx_exporter.PARTS if part not in chosen],
            "error": {part: round(errors[part], 8) for part in onnx_exporter.PARTS},
            "smoothing": {name: product.alpha for name, product in products.items()},
        }
    }


def _uses(model):
    """{name of a weight: (kernel, part, depths)}."""
    found = {}
    for (depth, part), (name, kernel) in model.block_weights().items():
        found.setdefault(name, (kernel, part, []))[2].append(depth)
    return found


def _errors(model, products):
    """{part: mean error of its products at all depths}."""
    found = {part: [] for part in onnx_exporter.PARTS}
    for (depth, part), (name, _) in model.block_weights().items():
        found[part].append(products[name].errors[depth])
    return {part: float(np.mean(values)) for part, values in found.items()}


def observe(model, examples):
    """Answers examples in float32, and watches what flows into the products of the blocks.

    Args:
      model: `onnx_exporter.Model`.
      examples: `agreement.Examples`.

    Returns:
      {(depth, part): `quantization.Observations`}, and the answers.
    """
    runtime = serving_runtimes.module_of("onnxruntime")
    sites = {}

    def watched(graph, x, weight, depth, part):
        name = f"input of {part} {depth}"
        graph.output(name, x, np.float32, ("batch", None, len(weight[1])))
        sites[name] = (depth, part)
        return onnx_exporter.product(graph, x, weight, depth, part)

    content = model.graph(watched).to_bytes({})
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    inputs = [entry.name for entry in session.get_inputs()]
    names = [entry.name for entry in session.get_outputs()]
    observed = {site: quantization.Observations() for site in sites.values()}

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
    """The products of a graph, in int8; see `onnx_exporter.Model.graph`.

    Args:
      products: {name of a weight: `quantization.Product`}.
      parts: those of `onnx_exporter.PARTS` that are in int8.
    """

    def __init__(self, products, parts):
        self._products = products
        self._parts = parts
        self._weights = {}

    def __call__(self, graph, x, weight, depth, part):
        if part not in self._parts:
            return onnx_exporter.product(graph, x, weight, depth, part)
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

    def _weight(self, graph, name, product):
        if name not in self._weights:
            self._weights[name] = graph.node(
                "DequantizeLinear",
                graph.constant(f"{name}/int8", product.weight),
                graph.constant(f"{name}/scales", product.weight_scales),
                axis=1,
            )
        return self._weights[name]
