"""The encoder with the heads of the fine-tuning tasks, and the losses of these tasks.

Every model maps a dict of features to a dict of outputs.

Letters in shapes: see the docstring of the package.
"""

import abc
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert.io import file_io
from albert.model import decision as decisions
from albert.model import (
    encoder,
    head_config,
    kernels,
    label_scale,
    layers,
    pooling,
    weight_names,
)
from albert.text import model_inputs

# --- what all models share ------------------------------------------------------------------------

# Feature that holds the encoder's output for the other features, see `frozen_encoder`.
ENCODER_OUTPUT = "encoder_output"

Tensors = Mapping[str, tf.Tensor]  # features or outputs by name


class Model(tf.Module):
    """The base class of all models: the encoder, as `albert`, and the computation of the losses.

    A loss is a sum of terms, and a term is ``sum(weight * loss) / total weight``. If the total
    weights are sums over all replicas and micro-batches, the losses and the gradients of the parts
    add up.

    Args:
      seed: integer from which the initial weights are drawn, or None.
    """

    def __init__(
        self,
        config: encoder.AlbertConfig,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.is_frozen = False  # see `freeze_encoder`
        self.config = config
        self.albert = encoder.AlbertModel(config, seed, compute)

    @property
    def uses_pooler(self) -> bool:
        """Tells whether the loss depends on the pooler; every model has one for its checkpoints."""
        return True

    @property
    def used_variables(self) -> list[tf.Variable]:
        """The variables that the loss depends on."""
        variables = self.trainable_variables
        return [v for v in variables if self.uses_pooler or not v.name.startswith("bert/pooler/")]

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """The `used_variables` that training changes; only they have optimizer slots."""
        if not self.is_frozen:
            return self.used_variables
        prefix = weight_names.ENCODER_PREFIX
        return [v for v in self.used_variables if not v.name.startswith(prefix)]

    def prepare_weights(self) -> list:
        """Prepares the weights of the encoder, see `encoder.AlbertModel.prepare_weights`."""
        return self.albert.prepare_weights()

    def use_weights(self, weights: list) -> contextlib.AbstractContextManager:
        """Uses prepared weights in place of variables, see `encoder.AlbertModel.use_weights`."""
        return self.albert.use_weights(weights)

    def freeze_encoder(self) -> None:
        """Excludes the encoder from training: its weights stay fixed and its dropout is off."""
        self.is_frozen = True

    def _uses_dropout(self, training: bool) -> bool:
        """Returns whether the encoder applies dropout."""
        return training and not self.is_frozen

    def _encode(
        self, features: Tensors, training: bool, seed: tf.Tensor | None
    ) -> encoder.AlbertOutput:
        return self.albert(*encoder_inputs(features), self._uses_dropout(training), seed)

    @abc.abstractmethod
    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns each term's weights of the examples (or masked positions): dict of tensors."""

    @abc.abstractmethod
    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns each term's losses of the examples, shaped like `example_weights`."""

    def loss_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns the total weight of a batch in each loss term, from inputs only: scalars."""
        return {
            term: tf.reduce_sum(weights) for term, weights in self.example_weights(features).items()
        }

    def losses(
        self, outputs: Tensors, features: Tensors, weights: Tensors | None = None
    ) -> dict[str, tf.Tensor]:
        """Computes the loss terms of a batch with labels: scalars, whose sum is the loss.

        Args:
          weights: scalars that the terms' sums are divided by; None means
            `loss_weights(features)`. A term with weight 0 is 0.
        """
        weights = self.loss_weights(features) if weights is None else weights
        examples = self.example_weights(features)
        return {
            term: tf.math.divide_no_nan(tf.reduce_sum(losses * examples[term]), weights[term])
            for term, losses in self.example_losses(outputs, features).items()
        }

    def total(self, losses: Tensors) -> tf.Tensor:
        """Adds up a dict of loss terms: the scalar that training minimizes."""
        return tf.add_n(list(losses.values()))

    def loss(
        self, outputs: Tensors, features: Tensors, weights: Tensors | None = None
    ) -> tf.Tensor:
        """Returns the `total` of `losses`: a scalar."""
        return self.total(self.losses(outputs, features, weights))


def encoder_inputs(features: Tensors) -> tuple[Any, Any, Any]:
    """Returns ids, mask and token types, each [B, S]; the last two are None if missing."""
    return features["input_ids"], features.get("input_mask"), features.get("segment_ids")


def layer_outputs(encoded: encoder.AlbertOutput, layers: int) -> dict[str, tf.Tensor]:
    """Returns the hidden states after each layer, ``layer_0_output`` and so on: [B, S, H]."""
    blocks = encoded.all_encoder_layers
    ends = blocks[len(blocks) // layers - 1 :: len(blocks) // layers]
    return {f"layer_{layer}_output": output for layer, output in enumerate(ends)}


def real_examples(features: Tensors) -> tf.Tensor:
    """Returns float [B]: 0 for examples that only pad the batch, else 1."""
    if "is_real_example" in features:
        return tf.cast(tf.reshape(features["is_real_example"], [-1]), tf.float32)
    return tf.ones(tf.shape(features["input_ids"])[:1])


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Computes [B] losses from integer labels, any shape of B elements, and logits [B, classes]."""
    labels = tf.reshape(labels, [-1])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def weights_of_labels(class_weights: Sequence[float], label_ids: tf.Tensor) -> tf.Tensor | float:
    """Returns the weight of each label in the loss, shaped like `label_ids`; 1 without weights.

    `class_weights` are by label id.
    """
    if not class_weights:
        return 1.0
    return tf.gather(tf.constant(class_weights, tf.float32), label_ids)


def check_rate(dropout_prob: float) -> None:
    """Raises file_io.InputError unless a dropout rate is at least 0 and below 1."""
    if not 0 <= dropout_prob < 1:
        raise file_io.InputError(f"dropout_prob must be at least 0 and below 1; got {dropout_prob}")


def check_labels(num_labels: int) -> None:
    """Raises file_io.InputError for a classifier with fewer than two labels."""
    if num_labels < 2:
        raise file_io.InputError(f"a classifier needs at least 2 labels; got {num_labels}")


class HiddenLayer(tf.Module):
    """The dense layer, if any, that a `head_config.Head` puts before the output layer of a head.

    Its variables are ``head_hidden/kernel`` [H, head_hidden_size] and ``head_hidden/bias``.
    """

    def __init__(
        self, head: head_config.Head, config: encoder.AlbertConfig, seed: int | None
    ) -> None:
        super().__init__(name="hidden_layer")
        self._head = head
        self.size = head.head_hidden_size or config.hidden_size  # of its output
        self.has_layer = bool(head.head_hidden_size)
        self._dense = None
        if self.has_layer:
            for name in ("head_activation", "head_input_activation"):
                if getattr(head, name) not in layers.ACTIVATIONS:
                    choices = ", ".join(layers.ACTIVATIONS)
                    raise file_io.InputError(
                        f"{name}={getattr(head, name)!r}: expected one of {choices}"
                    )
            self._dense = layers.Dense("head_hidden", config.hidden_size, self.size, config, seed)

    def __call__(self, x: tf.Tensor, dropout: layers.Dropout) -> tf.Tensor:
        """Maps [..., H] to [..., size]."""
        if self._dense is None:
            return x
        head = self._head
        rows = layers.ACTIVATIONS[head.head_input_activation](tf.reshape(x, [-1, x.shape[-1]]))
        rows = layers.ACTIVATIONS[head.head_activation](self._dense(rows))
        rows = dropout(rows, head.head_dropout_prob, "head_hidden")
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [self.size]], 0))


class LabelWeights(tf.Module):
    """A dense layer stored transposed: `output_weights` [labels, H], `output_bias` [labels].

    `size` is H if it differs from the configuration's hidden size.
    """

    def __init__(
        self,
        name: str,
        labels: int,
        config: encoder.AlbertConfig,
        seed: int | None,
        size: int | None = None,
    ) -> None:
        super().__init__(name="label_weights")
        self.weights = layers.normal_variable(
            f"{name}output_weights", [labels, size or config.hidden_size], config, seed
        )
        self.bias = tf.Variable(tf.zeros([labels]), name=f"{name}output_bias")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Maps [rows, H] to float32 [rows, labels]."""
        y = kernels.matmul(x, tf.cast(self.weights, x.dtype), transpose_b=True)
        return tf.nn.bias_add(tf.cast(y, tf.float32), self.bias)


# --- heads of fine-tuning -------------------------------------------------------------------------


# Subtracted from the logits of positions that cannot be part of an answer.
_IMPOSSIBLE = 1e30


class _LabelModel(Model):
    """A model that reads one vector of a text and has one loss per example, against `label_ids`.

    `dropout_prob` is the dropout of this vector in training, independent of the configuration.
    """

    _term: str  # name of the loss term

    def __init__(
        self,
        config: encoder.AlbertConfig,
        compute: layers.Compute,
        seed: int | None,
        dropout_prob: float,
        head: head_config.Head,
        num_outputs: int,
    ) -> None:
        check_rate(dropout_prob)
        super().__init__(config, compute, seed)
        self._dropout_prob = dropout_prob
        self._pooling = head.pooling
        self.hidden = HiddenLayer(head, config, seed)
        self.output = LabelWeights("", num_outputs, config, seed, self.hidden.size)

    @property
    def uses_pooler(self) -> bool:
        """Tells whether the head reads the first token through the pooler, not the mean."""
        return self._pooling == pooling.CLS

    def encoder_output(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Computes the head's input for each text, as its pooling says: [B, H]."""
        if not self.uses_pooler:
            return self._pool(self._encode(features, training, seed), features)
        # The last layer is computed at the first position only.
        inputs = encoder_inputs(features)
        return self.albert.pool(
            self.albert.at_positions(*inputs, self._uses_dropout(training), seed)[:, 0]
        )

    def _pool(self, encoded: encoder.AlbertOutput, features: Tensors) -> tf.Tensor:
        """Returns the head's input [B, H] from the outputs of the encoder at all positions."""
        if self.uses_pooler:
            return encoded.pooled_output
        return encoder.mean_of_tokens(encoded.sequence_output, features.get("input_mask"))

    def _scores(
        self, features: Tensors, training: bool, seed: tf.Tensor | None, site: str
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the output layer's scores, float32 [B, labels], and a dict.

        The dict holds sequence_output [B, S, H] and `layer_outputs` with `Compute.whole_sequence`;
        otherwise it is empty.
        """
        extra = {}
        if ENCODER_OUTPUT in features:
            pooled = features[ENCODER_OUTPUT]
        elif self.albert.compute.whole_sequence:
            encoded = self._encode(features, training, seed)
            pooled = self._pool(encoded, features)
            extra["sequence_output"] = encoded.sequence_output
            extra |= layer_outputs(encoded, self.config.num_hidden_layers)
        else:
            pooled = self.encoder_output(features, training, seed)
        dropout = layers.Dropout(training, seed)
        return self.output(self.hidden(dropout(pooled, self._dropout_prob, site), dropout)), extra

    def _label_loss(self, label_ids: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Computes [B] losses."""
        return cross_entropy(label_ids, logits)

    def _with_losses(
        self, outputs: dict[str, tf.Tensor], features: Tensors
    ) -> dict[str, tf.Tensor]:
        """Adds per_example_loss [B] if the features hold labels."""
        if "label_ids" in features:
            outputs["per_example_loss"] = self._label_loss(features["label_ids"], outputs["logits"])
        return outputs

    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        return {self._term: real_examples(features)}

    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        return {self._term: self._label_loss(features["label_ids"], outputs["logits"])}


def _choice(logits: tf.Tensor, temperature: float = 1.0) -> dict[str, tf.Tensor]:
    """Returns the outputs of a choice between labels with logits [..., labels]."""
    return {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits if temperature == 1 else logits / temperature),
        "predictions": tf.argmax(logits, -1, tf.int32),
    }


class ClassifierModel(_LabelModel):
    """A classifier of a text or of a pair of texts.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids integers [B].

    Args:
      decision: the temperature of the probabilities; the loss is that of the logits.
      class_weights: see `weights_of_labels`.
    """

    _term = "classification_loss"

    def __init__(
        self,
        config: encoder.AlbertConfig,
        num_labels: int,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        dropout_prob: float = 0.1,
        head: head_config.Head = head_config.NO_LAYER,
        decision: decisions.Decision = decisions.PLAIN,
        class_weights: Sequence[float] = (),
    ) -> None:
        check_labels(num_labels)
        super().__init__(config, compute, seed, dropout_prob, head, num_labels)
        self.decision = decision
        self._class_weights = tuple(class_weights)

    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        labels = tf.reshape(features["label_ids"], [-1])
        weights = weights_of_labels(self._class_weights, labels)
        return {self._term: real_examples(features) * weights}

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict: logits, probabilities [B, labels], predictions int32 [B]."""
        logits, extra = self._scores(features, training, seed, "classifier")
        return self._with_losses(_choice(logits, self.decision.temperature) | extra, features)


class MultiLabelModel(_LabelModel):
    """A classifier of texts that have any number of labels: each label is decided alone.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids integers [B, K],
    1 for the labels of the text.

    Args:
      decision: the temperature of the probabilities, and the threshold of each label; the loss is
        that of the logits.
      positive_weights: by label id, weights in the loss of training of texts that have the label;
        empty: 1. Means of losses are over all texts and labels alike.
    """

    _term = "classification_loss"

    def __init__(
        self,
        config: encoder.AlbertConfig,
        num_labels: int,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        dropout_prob: float = 0.1,
        head: head_config.Head = head_config.NO_LAYER,
        decision: decisions.Decision = decisions.PLAIN,
        positive_weights: Sequence[float] = (),
    ) -> None:
        check_labels(num_labels)
        super().__init__(config, compute, seed, dropout_prob, head, num_labels)
        self.decision = decision
        self._thresholds = decision.thresholds_of(num_labels)
        self._positive_weights = tuple(positive_weights)

    def _label_loss(self, label_ids: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Computes [B] means over the labels of the binary cross-entropy."""
        labels = tf.cast(label_ids, tf.float32)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits), axis=-1)

    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        if not self._positive_weights:
            return super().example_losses(outputs, features)
        labels = tf.cast(features["label_ids"], tf.float32)
        weights = tf.constant(self._positive_weights, tf.float32)
        losses = tf.nn.weighted_cross_entropy_with_logits(labels, outputs["logits"], weights)
        return {self._term: tf.reduce_mean(losses, axis=-1)}

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict: logits, probabilities and int32 predictions [B, K]."""
        logits, further = self._scores(features, training, seed, "classifier")
        temperature = self.decision.temperature
        probabilities = tf.nn.sigmoid(logits if temperature == 1 else logits / temperature)
        outputs = {
            "logits": logits,
            "probabilities": probabilities,
            "predictions": tf.cast(probabilities >= self._thresholds, tf.int32),
        }
        return self._with_losses(outputs | further, features)


class RegressionModel(_LabelModel):
    """A model that scores a text or a pair of texts, trained by least squares.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids floats [B].

    Args:
      scale: the unit of labels and answers; the output layer and the loss are in deviations.
    """

    _term = "regression_loss"

    def __init__(
        self,
        config: encoder.AlbertConfig,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        dropout_prob: float = 0.1,
        head: head_config.Head = head_config.NO_LAYER,
        scale: label_scale.LabelScale = label_scale.RAW,
    ) -> None:
        super().__init__(config, compute, seed, dropout_prob, head, 1)
        self.scale = scale

    def keep_answers(self, source: label_scale.LabelScale) -> None:
        """Converts an output layer that was trained in another scale to that of this model."""
        variables = dict(
            zip(label_scale.HEAD, (self.output.weights, self.output.bias), strict=True)
        )
        tensors = {name: variable.numpy() for name, variable in variables.items()}
        for name, value in label_scale.convert_head(tensors, source, self.scale).items():
            variables[name].assign(value)

    def _label_loss(self, label_ids: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        difference = logits - tf.cast(tf.reshape(label_ids, [-1]), tf.float32)
        return tf.square(difference if self.scale.is_raw else difference / self.scale.deviation)

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict: logits and predictions [B], probabilities [B, 1]; all hold the scores."""
        scores, further = self._scores(features, training, seed, "classifier")
        if not self.scale.is_raw:
            scores = self.scale.mean + self.scale.deviation * scores
        logits = scores[:, 0]
        outputs = {"logits": logits, "probabilities": scores, "predictions": logits}
        return self._with_losses(outputs | further, features)


class _SequenceModel(Model):
    """A model whose head reads only the sequence output, all parts through the layer of `head`."""

    uses_pooler = False

    def __init__(
        self,
        config: encoder.AlbertConfig,
        compute: layers.Compute,
        seed: int | None,
        head: head_config.Head,
    ) -> None:
        super().__init__(config, compute, seed)
        self.hidden = HiddenLayer(head, config, seed)

    def encoder_output(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Computes the head's input for each text: the sequence output [B, S, H]."""
        return self._encode(features, training, seed).sequence_output

    def _encoded(self, features: Tensors, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
        """Returns [B, S, H], computed by the encoder or stored in the features."""
        sequence = features.get(ENCODER_OUTPUT)
        if sequence is None:
            sequence = self.encoder_output(features, training, seed)
        else:  # The stored length is that of the longest text; S is rounded up.
            missing = tf.shape(features["input_ids"])[1] - tf.shape(sequence)[1]
            sequence = tf.pad(sequence, [[0, 0], [0, missing], [0, 0]])
        return sequence

    def _sequence(self, features: Tensors, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
        """Returns the output of the head's hidden layer, or the sequence without one: [B, S, H]."""
        sequence = self._encoded(features, training, seed)
        return self.hidden(sequence, layers.Dropout(training, seed))


class TokenClassifierModel(_SequenceModel):
    """A model that labels each word of a text, at the word's first piece.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids and first_pieces
    [B, S]. first_pieces is 1 at the first piece of each word, else 0.

    Args:
      class_weights: see `weights_of_labels`.
    """

    def __init__(
        self,
        config: encoder.AlbertConfig,
        num_labels: int,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        dropout_prob: float = 0.1,
        head: head_config.Head = head_config.NO_LAYER,
        class_weights: Sequence[float] = (),
    ) -> None:
        check_labels(num_labels)
        check_rate(dropout_prob)
        super().__init__(config, compute, seed, head)
        self._class_weights = tuple(class_weights)
        self._dropout_prob = dropout_prob
        size = self.hidden.size
        self.output = LabelWeights("cls/token/", num_labels, config, seed, size)

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict: logits, probabilities [B, S, labels], predictions int32 [B, S]."""
        dropout = layers.Dropout(training, seed)
        sequence = self._encoded(features, training, seed)  # [B, S, H]
        rows = dropout(
            tf.reshape(sequence, [-1, sequence.shape[-1]]), self._dropout_prob, "classifier"
        )
        logits = self.output(self.hidden(rows, dropout))  # [B * S, labels]
        shape = tf.concat([tf.shape(sequence)[:2], [logits.shape[-1]]], 0)
        return _choice(tf.reshape(logits, shape))

    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        words = tf.cast(features["first_pieces"], tf.float32) * weights_of_labels(
            self._class_weights, features["label_ids"]
        )
        return {"token_loss": words * real_examples(features)[:, tf.newaxis]}  # [B, S]

    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        logits, labels = outputs["logits"], features["label_ids"]
        losses = cross_entropy(labels, tf.reshape(logits, [-1, logits.shape[-1]]))
        return {"token_loss": tf.reshape(losses, tf.shape(labels))}


class MultipleChoiceModel(_LabelModel):
    """A model that picks one of C texts, each scored independently (RACE).

    Features: input_ids, input_mask, segment_ids, each [B, C, S] or [B, C * S]; for the loss
    label_ids integers [B].
    """

    _term = "choice_loss"

    def __init__(
        self,
        config: encoder.AlbertConfig,
        num_choices: int,
        dropout_prob: float = 0.1,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        head: head_config.Head = head_config.NO_LAYER,
    ) -> None:
        if num_choices < 2:
            raise file_io.InputError(f"multiple choice needs at least 2 choices; got {num_choices}")
        super().__init__(config, compute, seed, dropout_prob, head, 1)
        self.choices = num_choices  # C

    def _fold(self, name: str, x: tf.Tensor) -> tf.Tensor:
        """Maps [B, C, S] or [B, C * S] to [B * C, S]."""
        x = tf.convert_to_tensor(x)
        choices, by_text, last = self.choices, x.shape.rank == 3, x.shape[-1]
        fits = x.shape[1] in (choices, None) if by_text else last is None or last % choices == 0
        if not fits:
            raise file_io.InputError(
                f"{name} must be [batch, {choices}, length] or [batch, {choices} * length]; "
                f"got {x.shape}"
            )
        last = tf.shape(x)[-1] if last is None else last
        return tf.reshape(x, [-1, last if by_text else last // choices])

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict: logits, probabilities [B, C], predictions int32 [B]."""
        folded = {
            name: self._fold(name, features[name])
            for name in model_inputs.NAMES
            if name in features
        }
        if ENCODER_OUTPUT in features:  # [B, C, H]
            pooled = features[ENCODER_OUTPUT]
            folded[ENCODER_OUTPUT] = tf.reshape(pooled, [-1, pooled.shape[-1]])
        scores, _ = self._scores(folded, training, seed, "choice")  # [B * C, 1]
        return self._with_losses(_choice(tf.reshape(scores, [-1, self.choices])), features)


class _SquadModel(_SequenceModel):
    """A model that answers a question from a text."""

    def _with_loss(
        self, outputs: dict[str, tf.Tensor], features: Tensors, training: bool
    ) -> dict[str, tf.Tensor]:
        """Adds per_example_loss [B] in prediction if the features hold positions."""
        if not training and "start_positions" in features:
            losses = self.example_losses(outputs, features)
            outputs["per_example_loss"] = tf.add_n(list(losses.values()))
        return outputs


class SquadV1Model(_SquadModel):
    """A model that finds the start and end of an answer, which is always in the text.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss start_positions and
    end_positions [B].
    """

    def __init__(
        self,
        config: encoder.AlbertConfig,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        head: head_config.Head = head_config.NO_LAYER,
    ) -> None:
        super().__init__(config, compute, seed, head)
        self.output = LabelWeights("cls/squad/", 2, config, seed, self.hidden.size)

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict: start_logits and end_logits [B, S].

        They also cover padding; if the encoder skips padding, they are -1e30 there. In
        prediction the dict also holds per_example_loss [B] if the features hold positions.
        """
        sequence = self._sequence(features, training, seed)
        logits = self.output(tf.reshape(sequence, [-1, sequence.shape[-1]]))  # [B * S, 2]
        logits = tf.reshape(logits, tf.concat([tf.shape(sequence)[:2], [2]], 0))
        if self.albert.compute.skip_padding:
            # Padding is not computed; unmasked, its constant value would count in the loss.
            real = tf.cast(features["input_mask"], tf.bool)[:, :, tf.newaxis]
            logits = tf.where(real, logits, -_IMPOSSIBLE)
        start, end = tf.unstack(logits, 2, axis=-1)
        return self._with_loss({"start_logits": start, "end_logits": end}, features, training)

    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        return {"span_loss": real_examples(features)}

    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        start = cross_entropy(features["start_positions"], outputs["start_logits"])
        end = cross_entropy(features["end_positions"], outputs["end_logits"])
        return {"span_loss": 0.5 * (start + end)}


class SquadV2Model(_SquadModel):
    """A model that finds the start and end of an answer, by beam search, and whether there is one.

    Features: input_ids, input_mask, segment_ids, p_mask [B, S] (p_mask is 1 at positions that
    cannot be part of an answer); for training start_positions, end_positions, is_impossible [B].
    """

    def __init__(
        self,
        config: encoder.AlbertConfig,
        start_n_top: int,
        end_n_top: int,
        dropout_prob: float = 0.1,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        head: head_config.Head = head_config.NO_LAYER,
    ) -> None:
        if min(start_n_top, end_n_top) < 1:
            raise file_io.InputError(
                f"start_n_top and end_n_top must be at least 1; got {start_n_top} and {end_n_top}"
            )
        check_rate(dropout_prob)
        super().__init__(config, compute, seed, head)
        size = self.hidden.size
        self._start_n_top = start_n_top
        self._end_n_top = end_n_top
        self._dropout_rate = dropout_prob
        self.start = layers.Dense("start_logits/dense", size, 1, config, seed)
        self.end_hidden = layers.Dense("end_logits/dense_0", 2 * size, size, config, seed)
        self.end_norm = layers.LayerNorm("end_logits/LayerNorm", size)
        self.end = layers.Dense("end_logits/dense_1", size, 1, config, seed)
        self.answer_hidden = layers.Dense("answer_class/dense_0", 2 * size, size, config, seed)
        self.answer = layers.Dense("answer_class/dense_1", size, 1, config, seed, use_bias=False)

    def __call__(
        self, features: Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Runs the graph of training or of prediction.

        Training returns a dict: start_log_probs and end_log_probs [B, S] (the end given the true
        start), cls_logits [B]. Prediction: start_top_log_probs and start_top_index [B, K];
        end_top_log_probs and end_top_index [B, K * M], where the ends of start k begin at k * M;
        cls_logits [B], high if there is no answer. If the features hold start_positions, also
        start_log_probs, end_log_probs and per_example_loss [B].
        """
        sequence = self._sequence(features, training, seed)
        possible = 1.0 - tf.cast(features["p_mask"], tf.float32)  # [B, S]
        rows = tf.reshape(sequence, [-1, sequence.shape[-1]])  # [B * S, H]
        start_logits = tf.cast(tf.reshape(self.start(rows), tf.shape(possible)), tf.float32)
        start_log_probs = _masked_log_softmax(start_logits, possible)  # [B, S]
        dropout = layers.Dropout(training, seed)
        outputs = {"cls_logits": self._answerability(sequence, start_log_probs, dropout)}
        if training or "start_positions" in features:
            starts = tf.reshape(features["start_positions"], [-1, 1])  # [B, 1]
            ends = self._end_log_probs(sequence, starts, possible)  # [B, 1, S]
            outputs |= {"start_log_probs": start_log_probs, "end_log_probs": ends[:, 0]}
        if training:
            return outputs
        self._check_beam(sequence)
        start_top, start_index = tf.math.top_k(start_log_probs, self._start_n_top)  # [B, K]
        ends = self._end_log_probs(sequence, start_index, possible)  # [B, K, S]
        end_top, end_index = tf.math.top_k(ends, self._end_n_top)  # [B, K, M]
        flat = [-1, self._start_n_top * self._end_n_top]
        outputs |= {
            "start_top_log_probs": start_top,
            "start_top_index": start_index,
            "end_top_log_probs": tf.reshape(end_top, flat),
            "end_top_index": tf.reshape(end_index, flat),
        }
        return self._with_loss(outputs, features, training)

    def _check_beam(self, sequence: tf.Tensor) -> None:
        length, widest = sequence.shape[1], max(self._start_n_top, self._end_n_top)
        if length is not None and length < widest:
            raise file_io.InputError(
                f"sequences must have at least start_n_top and end_n_top = {self._start_n_top} and "
                f"{self._end_n_top} positions; got {length}"
            )

    def _end_log_probs(
        self, sequence: tf.Tensor, starts: tf.Tensor, possible: tf.Tensor
    ) -> tf.Tensor:
        """Maps [B, S, H], starts [B, K] and [B, S] to log-probabilities of ends [B, K, S]."""
        size = self.hidden.size
        kernel = tf.cast(self.end_hidden.kernel, sequence.dtype)
        bias = tf.cast(self.end_hidden.bias, sequence.dtype)
        start_states = tf.gather(sequence, starts, batch_dims=1)  # [B, K, H]
        # The layer sees concat(token, start). Its product is the sum of one over the tokens and
        # one over the starts, which saves the [B, K, S, 2H] input and nearly all the work.
        tokens = kernels.matmul(tf.reshape(sequence, [-1, size]), kernel[:size])  # [B * S, H]
        # [B * K, H]
        offsets = kernels.matmul(tf.reshape(start_states, [-1, size]), kernel[size:]) + bias
        tokens = tf.reshape(tokens, tf.shape(sequence))[:, tf.newaxis]  # [B, 1, S, H]
        offsets = tf.reshape(offsets, tf.shape(start_states))[:, :, tf.newaxis]  # [B, K, 1, H]
        hidden = self.end_norm(tf.tanh(tokens + offsets))  # [B, K, S, H]
        logits = self.end(tf.reshape(hidden, [-1, size]))  # [B * K * S, 1]
        logits = tf.cast(tf.reshape(logits, tf.shape(hidden)[:3]), tf.float32)
        return _masked_log_softmax(logits, possible[:, tf.newaxis])

    def _answerability(
        self, sequence: tf.Tensor, start_log_probs: tf.Tensor, dropout: layers.Dropout
    ) -> tf.Tensor:
        """Returns [B] logits of "no answer", from the expected start and the first token."""
        weights = tf.cast(tf.exp(start_log_probs), sequence.dtype)  # [B, S]
        expected = tf.linalg.matvec(sequence, weights, transpose_a=True)  # [B, H]
        hidden = tf.tanh(self.answer_hidden(tf.concat([expected, sequence[:, 0]], -1)))  # [B, H]
        logits = self.answer(dropout(hidden, self._dropout_rate, "answer_class"))  # [B, 1]
        return tf.cast(logits[:, 0], tf.float32)

    def example_weights(self, features: Tensors) -> dict[str, tf.Tensor]:
        real = real_examples(features)
        return {"span_loss": real, "answerability_loss": real}

    def example_losses(self, outputs: Tensors, features: Tensors) -> dict[str, tf.Tensor]:
        """Returns the losses of the examples; each term includes its factor of one half."""
        if "end_log_probs" not in outputs:
            raise ValueError("the loss of SquadV2Model needs the outputs of training=True")
        start = _at_positions(outputs["start_log_probs"], features["start_positions"])
        end = _at_positions(outputs["end_log_probs"], features["end_positions"])
        impossible = tf.cast(tf.reshape(features["is_impossible"], [-1]), tf.float32)
        answerability = tf.nn.sigmoid_cross_entropy_with_logits(impossible, outputs["cls_logits"])
        return {"span_loss": -0.5 * (start + end), "answerability_loss": 0.5 * answerability}


def _masked_log_softmax(logits: tf.Tensor, possible: tf.Tensor) -> tf.Tensor:
    """Returns the log-softmax over the last axis; `possible` is 1 at allowed positions, else 0."""
    return tf.nn.log_softmax(logits * possible - _IMPOSSIBLE * (1.0 - possible))


def _at_positions(log_probs: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Returns the values [B] of [B, S] at B positions."""
    return tf.gather(log_probs, tf.reshape(positions, [-1]), batch_dims=1)
