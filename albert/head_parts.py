"""What models with heads share: the arithmetic of losses, and an output layer.

Letters in shapes: B batch, S sequence, H hidden.
"""

import abc

import tensorflow as tf

from albert import checkpoints, file_io, kernels, layers, modeling

# Feature that holds what the encoder would compute of the others, see `encoder_cache`.
ENCODER_OUTPUT = "encoder_output"


class Model(tf.Module):
    """What all models share: the encoder under `albert` and the arithmetic of their losses.

    A loss is a sum of terms, and a term is ``sum(weight * loss) / total weight``: with total
    weights taken over all replicas and micro-batches both the losses and the gradients of the parts
    simply add up.

    Args:
      config: AlbertConfig.
      compute: `layers.Compute`, how the encoder computes.
      seed: integer from which the initial weights are drawn, or None.
    """

    def __init__(self, config, compute=layers.Compute(), seed=None):
        super().__init__()
        self._is_frozen = False
        self.config = config
        self.albert = modeling.AlbertModel(config, seed, compute)

    @property
    def uses_pooler(self):
        """Whether the loss depends on the pooler, which is there for checkpoints in any case."""
        return True

    @property
    def used_variables(self):
        """The variables that the loss depends on."""
        found = self.trainable_variables
        return [v for v in found if self.uses_pooler or not v.name.startswith("bert/pooler/")]

    @property
    def trained_variables(self):
        """Those of `used_variables` that training changes; only they have optimizer slots."""
        if not self._is_frozen:
            return self.used_variables
        prefix = checkpoints.ENCODER_PREFIX  # the pooler's, too
        return [v for v in self.used_variables if not v.name.startswith(prefix)]

    def ready_weights(self):
        """Those of the encoder, see `modeling.AlbertModel.ready_weights`."""
        return self.albert.ready_weights()

    def using(self, weights):
        """See `modeling.AlbertModel.using`."""
        return self.albert.using(weights)

    def freeze_encoder(self):
        """Takes the encoder out of the training: its weights stay, and it drops nothing."""
        self._is_frozen = True

    def _drops(self, training):
        """Whether the encoder drops anything."""
        return training and not self._is_frozen

    def _encode(self, features, training, seed):
        return self.albert(*inputs(features), self._drops(training), seed)

    @abc.abstractmethod
    def example_weights(self, features):
        """Weight of every example (or masked position) in each loss term: dict of tensors."""

    @abc.abstractmethod
    def example_losses(self, outputs, features):
        """Loss of every example (or masked position) in each term, shaped like its weights."""

    def loss_weights(self, features):
        """Total weight of this batch in each loss term, from inputs only: dict of scalars."""
        return {
            term: tf.reduce_sum(weights) for term, weights in self.example_weights(features).items()
        }

    def losses(self, outputs, features, weights=None):
        """Loss terms of this batch.

        Args:
          outputs: what the model returned for `features`.
          features: dict of features with labels.
          weights: dict of scalars by which each term's sum is divided; None means
            `loss_weights(features)`. A term whose weight is 0 is 0.

        Returns:
          Dict of scalars; their sum is the loss.
        """
        weights = self.loss_weights(features) if weights is None else weights
        examples = self.example_weights(features)
        return {
            term: tf.math.divide_no_nan(tf.reduce_sum(losses * examples[term]), weights[term])
            for term, losses in self.example_losses(outputs, features).items()
        }

    def total(self, losses):
        """What is minimised, of a dict of loss terms: their sum, a scalar."""
        return tf.add_n(list(losses.values()))

    def loss(self, outputs, features, weights=None):
        """The `total` of `losses`: a scalar."""
        return self.total(self.losses(outputs, features, weights))


def inputs(features):
    """Ids, mask and token types, each [B, S]; None where they are not given."""
    return features["input_ids"], features.get("input_mask"), features.get("segment_ids")


def real_examples(features):
    """[B] float: 0 for the examples that only fill up a batch, else 1."""
    if "is_real_example" in features:
        return tf.cast(tf.reshape(features["is_real_example"], [-1]), tf.float32)
    return tf.ones(tf.shape(features["input_ids"])[:1])


def cross_entropy(labels, logits):
    """[B] from integer labels of any shape with B elements and logits [B, classes]."""
    labels = tf.reshape(labels, [-1])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def check_rate(dropout_prob):
    """Refuses what is no share, from 0 to below 1."""
    if not 0 <= dropout_prob < 1:
        raise file_io.InputError(f"dropout_prob must be at least 0 and below 1; got {dropout_prob}")


def check_labels(num_labels):
    """Refuses a classifier with nothing to choose from."""
    if num_labels < 2:
        raise file_io.InputError(f"a classifier needs at least 2 labels; got {num_labels}")


class HiddenLayer(tf.Module):
    """What a `task.Head` puts before the output layer of a head: nothing, or a dense layer.

    Its variables are ``head_hidden/kernel`` [H, head_hidden_size] and ``head_hidden/bias``.

    Args:
      head: `task.Head`.
      config: AlbertConfig.
      seed: see `Model`.

    Attributes:
      size: width of its output.

    Raises:
      file_io.InputError: unknown activations.
    """

    def __init__(self, head, config, seed):
        super().__init__(name="hidden_layer")
        self._head = head
        self.size = head.head_hidden_size or config.hidden_size
        self._dense = None
        if head.head_hidden_size:
            for name in ("head_activation", "head_input_activation"):
                if getattr(head, name) not in layers.ACTIVATIONS:
                    known = ", ".join(layers.ACTIVATIONS)
                    raise file_io.InputError(f"{name}={getattr(head, name)!r}: known are {known}")
            self._dense = layers.Dense("head_hidden", config.hidden_size, self.size, config, seed)

    def __call__(self, x, dropout):
        """[..., H] -> [..., size], by `layers.Dropout`."""
        if self._dense is None:
            return x
        head = self._head
        rows = layers.ACTIVATIONS[head.head_input_activation](tf.reshape(x, [-1, x.shape[-1]]))
        rows = layers.ACTIVATIONS[head.head_activation](self._dense(rows))
        rows = dropout(rows, head.head_dropout_prob, "head_hidden")
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [self.size]], 0))


class LabelWeights(tf.Module):
    """`output_weights` [labels, H] and `output_bias` [labels]: a dense layer stored transposed.

    `size` is its H where that is not the configuration's.
    """

    def __init__(self, name, labels, config, seed, size=None):
        super().__init__(name="label_weights")
        self.weights = layers.normal_variable(
            f"{name}output_weights", [labels, size or config.hidden_size], config, seed
        )
        self.bias = tf.Variable(tf.zeros([labels]), name=f"{name}output_bias")

    def __call__(self, x):
        """[rows, H] -> [rows, labels] float32."""
        y = kernels.matmul(x, tf.cast(self.weights, x.dtype), transpose_b=True)
        return tf.nn.bias_add(tf.cast(y, tf.float32), self.bias)
