"""What models with heads share: the arithmetic of losses, and an output layer.

Letters in shapes: B batch, S sequence, H hidden.
"""

import abc

import tensorflow as tf

from albert import file_io, kernels, layers, modeling


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
        self.config = config
        self.albert = modeling.AlbertModel(config, seed, compute)

    @property
    def uses_pooler(self):
        """Whether the loss depends on the pooler, which is there for checkpoints in any case."""
        return True

    @property
    def trained_variables(self):
        """The variables that the loss depends on; only they have optimizer slots."""
        found = self.trainable_variables
        return [v for v in found if self.uses_pooler or not v.name.startswith("bert/pooler/")]

    def _encode(self, features, training, seed):
        return self.albert(*inputs(features), training, seed)

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


class LabelWeights(tf.Module):
    """`output_weights` [labels, H] and `output_bias` [labels]: a dense layer stored transposed."""

    def __init__(self, name, labels, config, seed):
        super().__init__(name="label_weights")
        self.weights = layers.normal_variable(
            f"{name}output_weights", [labels, config.hidden_size], config, seed
        )
        self.bias = tf.Variable(tf.zeros([labels]), name=f"{name}output_bias")

    def __call__(self, x):
        """[rows, H] -> [rows, labels] float32."""
        y = kernels.matmul(x, tf.cast(self.weights, x.dtype), transpose_b=True)
        return tf.nn.bias_add(tf.cast(y, tf.float32), self.bias)
