"""What the models of `heads` share: the encoder, the arithmetic of losses, an output layer.

A loss is a sum of terms, and a term is ``sum(weight * loss) / total weight``: with total weights
taken over all replicas and micro-batches both the losses and the gradients of the parts simply add
up.
"""

import abc

import tensorflow as tf

from albert import layers, modeling, products


class Model(tf.Module):
    """What all models share: the encoder under `albert` and the arithmetic of their losses."""

    def __init__(self, config, seed):
        super().__init__()
        self.config = config
        self.albert = modeling.AlbertModel(config, seed)

    @property
    def compute(self):
        """`layers.Compute` of the encoder; may be changed before the first call."""
        return self.albert.compute

    @compute.setter
    def compute(self, compute):
        self.albert.compute = compute

    @property
    def trained_variables(self):
        """The variables that the loss depends on; only they have optimizer slots."""
        return self.trainable_variables

    def _encode(self, features, training, seed):
        return self.albert(*inputs(features), training, seed)

    def _pooled(self, features, training, seed):
        """[B, H]; the last layer is computed at the first position alone."""
        return self.albert.pool(self.albert.at_positions(*inputs(features), training, seed)[:, 0])

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

    def loss(self, outputs, features, weights=None):
        """The sum of `losses`: a scalar."""
        return tf.add_n(list(self.losses(outputs, features, weights).values()))


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
        y = products.matmul(x, tf.cast(self.weights, x.dtype), transpose_b=True)
        return tf.nn.bias_add(tf.cast(y, tf.float32), self.bias)
