"""Writes fine-tuned models as ONNX files, built from their variables.

Shared parameters are stored once. The scale of the queries is folded into their weights. If the
head reads only the first position, the last layer is computed only there, as in `encoder`.

Letters in shapes: B batch, S sequence, R positions of a block's output (S, or 1), E embedding,
H hidden, I intermediate, N heads, D head size, K labels or starts kept, M ends kept for each start.

In functions a tensor of the graph is a string, its name. `name` begins the names of variables, and
`depth` is the number of a block, from 0.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from albert.export import onnx_graph
from albert.io import file_io
from albert.model import (
    checkpoints,
    configuration,
    encoder,
    head_config,
    heads,
    model_folder,
    pooling,
    weight_names,
)
from albert.serving import serving_folder, trained_model
from albert.tasks import custom, kinds
from albert.tasks.squad import task as squad_task

_IMPOSSIBLE = 1e30  # subtracted at positions that cannot be part of an answer
_MASKED = -10000.0  # added to the attention scores of padding
# The products of a block that a runtime may compute in low precision.
PARTS = ("query_key_value", "attention_output", "intermediate", "output")


class Arithmetic:
    """How a graph stores its weights and computes with them: here in float32.

    With `half` the file stores matrices in float16, in half of the space.
    """

    def __init__(self, half: bool = False) -> None:
        self.half = half

    def product(
        self, graph: onnx_graph.Graph, x: str, weight: tuple[str, np.ndarray], depth: int, part: str
    ) -> str:
        """Adds a product of a block: [B, R, in] -> [B, R, out].

        Args:
          weight: name and kernel [in, out].
          depth: number of the block, from 0.
          part: one of `PARTS`.
        """
        return graph.node("MatMul", x, graph.matrix(*weight))

    def lookup(self, graph: onnx_graph.Graph, name: str, table: np.ndarray, ids: str) -> str:
        """Takes rows of the table of words [V, E]: [B, S] -> [B, S, E]."""
        return graph.lookup(name, table, ids)


FLOAT32 = Arithmetic()


class Model:
    """A fine-tuned model to write; its folder must have a checkpoint."""

    def __init__(self, folder: model_folder.ModelFolder) -> None:
        self.folder = folder
        self.kind = kinds.KINDS[folder.kind]
        model = trained_model.restored_model(folder)
        self._add_head = _HEADS[type(model)]
        variables = checkpoints.variables_by_name(model)
        weights = {name: variable.numpy() for name, variable in variables.items()}
        self.weights = weight_names.repeat_token_type(weights, folder.config.segment_limit)

    def graph(self, arithmetic: Arithmetic = FLOAT32) -> onnx_graph.Graph:
        """Builds the graph of the model."""
        graph = onnx_graph.Graph(self.kind.inputs, arithmetic.half)
        encoder = _Encoder(graph, self.folder.config, self.weights, arithmetic)
        self._add_head(self, graph, encoder)
        return graph

    @property
    def head(self) -> head_config.Head:
        return self.folder.settings_as(head_config.Head)

    @property
    def labels(self) -> tuple[str, ...]:
        return custom.labels_of(self.folder)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the file: {key: text}."""
        values = {"kind": self.folder.kind, **self.folder.settings}
        return {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}


def write(
    folder: serving_folder.ServingFolder, model: Model, arithmetic: Arithmetic = FLOAT32
) -> None:
    """Writes the model file of a serving folder."""
    content = model.graph(arithmetic).to_bytes(model.metadata)
    file_io.write_bytes(folder.model_file, content)


# --- the encoder ----------------------------------------------------------------------------------


class _Encoder:
    """Adds the encoder to a graph."""

    def __init__(
        self,
        graph: onnx_graph.Graph,
        config: encoder.AlbertConfig,
        weights: dict[str, np.ndarray],
        arithmetic: Arithmetic,
    ) -> None:
        self._graph = graph
        self._config = config
        self._weights = weights
        self._arithmetic = arithmetic
        self.mask = graph.cast("input_mask", np.float32)  # [B, S]

    def __call__(self, first_only: bool) -> str:
        """Adds all blocks; returns the last output [B, S, H], or [B, 1, H] with `first_only`."""
        config, inner = self._config, self._config.inner_group_num
        padding = self._graph.node("Sub", self._graph.number(1.0), self.mask)
        bias = self._graph.node("Mul", padding, self._graph.number(_MASKED))
        bias = self._graph.node("Unsqueeze", bias, self._graph.integers(1, 2))  # [B, 1, 1, S]
        hidden, blocks = self._embed(), config.num_hidden_layers * inner
        for depth in range(blocks):
            groups = config.groups_of(depth // inner)
            names = [
                f"bert/encoder/transformer/group_{group}/inner_group_{depth % inner}"
                for group in groups
            ]
            is_cut = first_only and depth == blocks - 1
            hidden = self._attend(hidden, bias, names[0], depth, is_cut)
            hidden = self._feed_forward(hidden, names[1], depth)
            if config.layer_scales and depth % inner == inner - 1:
                hidden = self._scale(hidden, depth // inner)
        return hidden

    def _scale(self, hidden: str, layer: int) -> str:
        """Adds the scale and the bias of a layer's output."""
        name, graph = f"bert/encoder/transformer/layer_{layer}/layer_norm", self._graph
        scale, bias = (self._constant(f"{name}/{part}") for part in ("scale", "bias"))
        return graph.node("Add", graph.node("Mul", hidden, scale), bias)

    def _constant(self, name: str) -> str:
        return self._graph.constant(name, self._weights[name])

    def _embed(self) -> str:
        """Adds embeddings and mapping: ids [B, S] -> [B, S, H]."""
        graph, name = self._graph, "bert/embeddings"

        def table(key: str) -> tuple[str, np.ndarray]:
            return f"{name}/{key}", self._weights[f"{name}/{key}"]

        length = graph.node("Shape", "input_ids", start=1, end=2)
        positions = graph.node(
            "Slice", graph.matrix(*table("position_embeddings")),
            graph.integers(0), length, graph.integers(0),
        )  # fmt: skip
        words = self._arithmetic.lookup(graph, *table("word_embeddings"), "input_ids")
        types = graph.lookup(*table("token_type_embeddings"), "segment_ids")
        total = graph.node("Add", graph.node("Add", words, types), positions)
        hidden = _layer_norm(self._weights, graph, total, f"{name}/LayerNorm")
        name = "bert/encoder/embedding_hidden_mapping_in"
        if f"{name}/kernel" not in self._weights:
            return hidden
        return _dense_layer(self._weights, graph, hidden, name)

    def _dense(self, x: str, name: str, depth: int, part: str) -> str:
        """Adds a product of a block, without its bias: [B, R, in] -> [B, R, out]."""
        weight = (name, self._weights[name])
        return self._arithmetic.product(self._graph, x, weight, depth, part)

    def _query_key_value(self, name: str) -> list[np.ndarray]:
        """Returns kernel [H, 3H] and bias [3H] of scaled queries, keys and values."""
        scale = np.float32((self._config.hidden_size // self._config.num_attention_heads) ** -0.5)
        joined = []
        for variable in ("kernel", "bias"):
            query, key, value = (
                self._weights[f"{name}/attention_1/self/{part}/{variable}"]
                for part in ("query", "key", "value")
            )
            joined.append(np.concatenate([query * scale, key, value], axis=-1))
        return joined

    def _attend(self, hidden: str, bias: str, name: str, depth: int, is_cut: bool) -> str:
        """Adds attention, residual and LayerNorm: [B, S, H] -> [B, R, H], R = 1 if `is_cut`."""
        graph, heads = self._graph, self._config.num_attention_heads
        size = self._config.hidden_size
        joined = f"{name}/attention_1/self/query_key_value"
        kernel, joined_bias = self._query_key_value(name)
        weight = (f"{joined}/kernel", kernel)
        x = self._arithmetic.product(graph, hidden, weight, depth, "query_key_value")
        x = graph.node("Add", x, graph.constant(f"{joined}/bias", joined_bias))
        query, key, value = graph.node("Split", x, outputs=3, axis=2, num_outputs=3)
        if is_cut:
            query, hidden = graph.first(query, axis=1), graph.first(hidden, axis=1)

        def by_head(x: str, order: list[int]) -> str:
            return graph.node("Transpose", graph.reshape(x, 0, 0, heads, size // heads), perm=order)

        query, value = by_head(query, [0, 2, 1, 3]), by_head(value, [0, 2, 1, 3])
        scores = graph.node("MatMul", query, by_head(key, [0, 2, 3, 1]))  # [B, N, R, S]
        probabilities = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
        context = graph.node("MatMul", probabilities, value)  # [B, N, R, D]
        context = graph.reshape(graph.node("Transpose", context, perm=[0, 2, 1, 3]), 0, 0, size)
        output = f"{name}/attention_1/output/dense"
        attended = self._dense(context, f"{output}/kernel", depth, "attention_output")
        return self._add(attended, f"{output}/bias", hidden, f"{name}/LayerNorm")

    def _feed_forward(self, hidden: str, name: str, depth: int) -> str:
        """Adds both dense layers, residual and LayerNorm: [B, R, H] -> [B, R, H]."""
        graph, layers = self._graph, f"{name}/ffn_1/intermediate"
        x = self._dense(hidden, f"{layers}/dense/kernel", depth, "intermediate")
        x = graph.node("Add", x, self._constant(f"{layers}/dense/bias"))
        x = graph.activation(x, self._config.hidden_act)
        x = self._dense(x, f"{layers}/output/dense/kernel", depth, "output")
        return self._add(x, f"{layers}/output/dense/bias", hidden, f"{name}/LayerNorm_1")

    def _add(self, x: str, bias: str, residual: str, norm: str) -> str:
        x = self._graph.node("Add", x, self._constant(bias))
        x = self._graph.node("Add", x, residual)
        return _layer_norm(self._weights, self._graph, x, norm)


def _dense_layer(
    weights: Mapping[str, np.ndarray], graph: onnx_graph.Graph, x: str, name: str
) -> str:
    kernel, bias = (weights[f"{name}/{part}"] for part in ("kernel", "bias"))
    return graph.dense(x, name, kernel, bias)


def _layer_norm(
    weights: Mapping[str, np.ndarray], graph: onnx_graph.Graph, x: str, name: str
) -> str:
    gamma, beta = (weights[f"{name}/{part}"] for part in ("gamma", "beta"))
    return graph.layer_norm(x, name, gamma, beta, configuration.LAYER_NORM_EPSILON)


# --- heads ----------------------------------------------------------------------------------------


def _hidden_layer(model: Model, graph: onnx_graph.Graph, x: str) -> str:
    """Adds `heads.HiddenLayer`: [..., H] -> [..., size]."""
    head = model.head
    if not head.head_hidden_size:
        return x
    x = graph.activation(x, head.head_input_activation)
    return graph.activation(
        _dense_layer(model.weights, graph, x, "head_hidden"), head.head_activation
    )


def _label_scores(model: Model, graph: onnx_graph.Graph, x: str, name: str) -> str:
    """Adds `heads.LabelWeights`: [..., size] -> [..., K]."""
    kernel = model.weights[f"{name}output_weights"].T
    return graph.dense(x, f"{name}output", kernel, model.weights[f"{name}output_bias"])


def _text_scores(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> str:
    """Adds the scores [B, K] of whole texts."""
    if model.head.pooling == pooling.MEAN:
        pooled = _mean_of_tokens(graph, encoder)
    else:
        first = graph.at(encoder(first_only=True), axis=1, index=0)  # [B, H]
        pooled = graph.node("Tanh", _dense_layer(model.weights, graph, first, "bert/pooler/dense"))
    return _label_scores(model, graph, _hidden_layer(model, graph, pooled), "")


def _mean_of_tokens(graph: onnx_graph.Graph, encoder: "_Encoder") -> str:
    """Adds `encoder.mean_of_tokens`: [B, H]."""
    weights = graph.node("Unsqueeze", encoder.mask, graph.integers(1))  # [B, 1, S]
    total = graph.at(graph.node("MatMul", weights, encoder(first_only=False)), 1, 0)  # [B, H]
    count = graph.node("ReduceSum", encoder.mask, graph.integers(1), keepdims=1)  # [B, 1]
    return graph.node("Div", total, graph.node("Max", count, graph.number(1.0)))


def _choose(
    graph: onnx_graph.Graph, logits: str, shape: Sequence[str | int], temperature: float = 1.0
) -> None:
    """Adds the outputs of a choice between labels with logits of the given shape."""
    best = graph.cast(graph.node("ArgMax", logits, axis=-1, keepdims=0), np.int32)
    graph.output("predictions", best, np.int32, shape[:-1])
    if temperature != 1:
        logits = graph.node("Div", logits, graph.number(temperature))
    graph.output("probabilities", graph.node("Softmax", logits, axis=-1), np.float32, shape)


def _classifier(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> None:
    scores = _text_scores(model, graph, encoder)
    shape = ("batch", len(model.labels))
    _choose(graph, scores, shape, model.folder.decision.temperature)


def _multi_label(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> None:
    """Adds the decisions on each label of a text, see `heads.MultiLabelModel`."""
    scores, decision = _text_scores(model, graph, encoder), model.folder.decision
    if decision.temperature != 1:
        scores = graph.node("Div", scores, graph.number(decision.temperature))
    probabilities, shape = graph.node("Sigmoid", scores), ("batch", len(model.labels))
    thresholds = graph.constant("thresholds", decision.thresholds_of(len(model.labels)))
    members = graph.node("GreaterOrEqual", probabilities, thresholds)
    graph.output("predictions", graph.cast(members, np.int32), np.int32, shape)
    graph.output("probabilities", probabilities, np.float32, shape)


def _regression(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> None:
    """Adds one number per text, under the output names of the kind of model."""
    scores = _text_scores(model, graph, encoder)
    scale = model.folder.scale
    if not scale.is_raw:
        scores = graph.node("Mul", scores, graph.number(scale.deviation))
        scores = graph.node("Add", scores, graph.number(scale.mean))
    score = graph.at(scores, 1, 0)
    if "logits" in model.kind.outputs:
        graph.output("logits", score, np.float32, ("batch",))
        return
    graph.output("predictions", score, np.float32, ("batch",))
    graph.output("probabilities", scores, np.float32, ("batch", 1))


def _token_classifier(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> None:
    sequence = _hidden_layer(model, graph, encoder(first_only=False))
    logits = _label_scores(model, graph, sequence, "cls/token/")  # [B, S, K]
    _choose(graph, logits, ("batch", "sequence", len(model.labels)))


def _squad_v1(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> None:
    sequence = _hidden_layer(model, graph, encoder(first_only=False))
    logits = _label_scores(model, graph, sequence, "cls/squad/")  # [B, S, 2]
    for place, name in enumerate(model.kind.outputs):
        score = graph.node(
            "Where", graph.cast("input_mask", bool), graph.at(logits, 2, place),
            graph.number(-_IMPOSSIBLE),
        )  # fmt: skip
        graph.output(name, score, np.float32, ("batch", "sequence"))


def _masked_log_softmax(graph: onnx_graph.Graph, logits: str, possible: str) -> str:
    """Adds the log-softmax over the last axis; `possible` is 1 at allowed positions, else 0."""
    impossible = graph.node("Sub", graph.number(1.0), possible)
    penalty = graph.node("Mul", impossible, graph.number(_IMPOSSIBLE))
    masked = graph.node("Sub", graph.node("Mul", logits, possible), penalty)
    return graph.node("LogSoftmax", masked, axis=-1)


def _squad_v2(model: Model, graph: onnx_graph.Graph, encoder: "_Encoder") -> None:
    """Adds the head of `heads.SquadV2Model`."""
    settings = model.folder.settings_as(squad_task.Settings)
    starts, ends = settings.beams
    sequence = _hidden_layer(model, graph, encoder(first_only=False))  # [B, S, H]
    p_mask = graph.cast("p_mask", np.float32)
    possible = graph.node("Sub", graph.number(1.0), p_mask)  # [B, S]
    score = _dense_layer(model.weights, graph, sequence, "start_logits/dense")  # [B, S, 1]
    start_scores = _masked_log_softmax(graph, graph.at(score, 2, 0), possible)  # [B, S]
    top = graph.node("TopK", start_scores, graph.integers(starts), outputs=2, axis=-1)
    graph.output("start_top_log_probs", top[0], np.float32, ("batch", starts))
    graph.output("start_top_index", graph.cast(top[1], np.int32), np.int32, ("batch", starts))
    scores = _end_scores(model, graph, sequence, top[1], possible)  # [B, K, S]
    top = graph.node("TopK", scores, graph.integers(ends), outputs=2, axis=-1)
    scores, index = (graph.reshape(x, 0, starts * ends) for x in top)
    shape = ("batch", starts * ends)
    graph.output("end_top_log_probs", scores, np.float32, shape)
    graph.output("end_top_index", graph.cast(index, np.int32), np.int32, shape)
    answerability = _answerability(model, graph, sequence, start_scores)
    graph.output("cls_logits", answerability, np.float32, ("batch",))


def _end_scores(
    model: Model, graph: onnx_graph.Graph, sequence: str, index: str, possible: str
) -> str:
    """Maps [B, S, H], starts [B, K] and [B, S] to log-probabilities of ends [B, K, S]."""
    name = "end_logits/dense_0"
    kernel, bias = (model.weights[f"{name}/{part}"] for part in ("kernel", "bias"))
    size = kernel.shape[1]
    tokens = graph.node("MatMul", sequence, graph.constant(f"{name}/of_tokens", kernel[:size]))
    # Multiplies all rows and then gathers K rows of the product, which are gathered as one pair.
    offsets = graph.dense(sequence, f"{name}/of_starts", kernel[size:], bias)  # [B, S, H]
    index = graph.node("Unsqueeze", index, graph.integers(2))  # [B, K, 1]
    offsets = graph.node("GatherND", offsets, index, batch_dims=1)  # [B, K, H]
    total = graph.node(
        "Add", graph.node("Unsqueeze", tokens, graph.integers(1)),
        graph.node("Unsqueeze", offsets, graph.integers(2)),
    )  # [B, K, S, H]  # fmt: skip
    tanh = graph.node("Tanh", total)
    hidden = _layer_norm(model.weights, graph, tanh, "end_logits/LayerNorm")
    logits = graph.at(_dense_layer(model.weights, graph, hidden, "end_logits/dense_1"), 3, 0)
    return _masked_log_softmax(graph, logits, graph.node("Unsqueeze", possible, graph.integers(1)))


def _answerability(model: Model, graph: onnx_graph.Graph, sequence: str, start_scores: str) -> str:
    """Adds the logits [B] of "no answer", from the expected start and the first token."""
    weights = graph.node("Exp", start_scores)  # [B, S]
    weights = graph.node("Unsqueeze", weights, graph.integers(1))
    expected = graph.at(graph.node("MatMul", weights, sequence), 1, 0)  # [B, H]
    both = graph.node("Concat", expected, graph.at(sequence, 1, 0), axis=-1)
    hidden = graph.node("Tanh", _dense_layer(model.weights, graph, both, "answer_class/dense_0"))
    name = "answer_class/dense_1/kernel"
    kernel = graph.constant(name, model.weights[name])
    return graph.at(graph.node("MatMul", hidden, kernel), 1, 0)


# Class of the model: function that adds its head.
_HEADS = {
    heads.ClassifierModel: _classifier,
    heads.MultiLabelModel: _multi_label,
    heads.RegressionModel: _regression,
    heads.TokenClassifierModel: _token_classifier,
    heads.SquadV1Model: _squad_v1,
    heads.SquadV2Model: _squad_v2,
}
