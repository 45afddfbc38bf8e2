"""The encoder with the heads of pre-training.

Letters in shapes: see the docstring of the package.
"""

import tensorflow as tf

from albert.io import file_io
from albert.model import encoder, heads, kernels, layers

# Task on two pieces of text -> the name of its loss and outputs. The label
# (`next_sentence_labels`) is 0 if the pieces are in their original order.
SENTENCE_TASKS = {"sop": "sentence_order", "nsp": "next_sentence", "none": None}
SENTENCE_HEAD = "cls/seq_relationship/"  # prefix of its variables
_MASKED_LM_EPSILON = 1e-5  # keeps the masked LM's denominator above 0


class MaskedLmHead(tf.Module):
    """The head that scores every word of the vocabulary at the masked positions (BERT, 3.1).

    The table [V, E] of the word embeddings also has the output weights.
    """

    def __init__(
        self, config: encoder.AlbertConfig, embedding_table: tf.Variable, seed: int | None = None
    ) -> None:
        super().__init__()
        name = "cls/predictions"
        self._embedding_table = embedding_table
        self._activation = layers.ACTIVATIONS[config.hidden_act]
        self.dense = layers.Dense(
            f"{name}/transform/dense", config.hidden_size, config.embedding_size, config, seed
        )
        self.layer_norm = layers.LayerNorm(f"{name}/transform/LayerNorm", config.embedding_size)
        self.bias = tf.Variable(tf.zeros([config.vocab_size]), name=f"{name}/output_bias")

    def __call__(self, hidden: tf.Tensor) -> tf.Tensor:
        """Maps outputs at masked positions [B, P, H] to float32 logits [B * P, V]."""
        hidden = tf.reshape(hidden, [-1, hidden.shape[-1]])  # [B * P, H]
        words = self.layer_norm(self._activation(self.dense(hidden)))  # [B * P, E]
        table = tf.cast(self._embedding_table, words.dtype)
        logits = kernels.matmul(words, table, transpose_b=True)
        return tf.nn.bias_add(tf.cast(logits, tf.float32), self.bias)


class PretrainingModel(heads.Model):
    """A masked LM with a task on two pieces of text.

    The task is to predict whether the pieces are in order or swapped (sop, the default; ALBERT,
    section 3.1), or whether the second piece follows the first or is from another place (nsp; BERT,
    section 3.1). With "none" there is no such task.

    Features: input_ids, input_mask, segment_ids [B, S]; masked_lm_positions [B, P]; for the loss
    masked_lm_ids, masked_lm_weights [B, P] and, with a sentence task, next_sentence_labels [B, 1].

    Attributes:
      sentence_name: value of `SENTENCE_TASKS`.
      sentence_head: `heads.LabelWeights` with two labels; None without a sentence task.
    """

    def __init__(
        self,
        config: encoder.AlbertConfig,
        compute: layers.Compute = layers.Compute(),
        seed: int | None = None,
        sentence_task: str = "sop",
    ) -> None:
        if sentence_task not in SENTENCE_TASKS:
            raise file_io.InputError(
                f"sentence_task={sentence_task}: expected one of {', '.join(SENTENCE_TASKS)}"
            )
        super().__init__(config, compute, seed)
        self.masked_lm = MaskedLmHead(config, self.albert.embedding_table, seed)
        self.sentence_name = SENTENCE_TASKS[sentence_task]
        self.sentence_head: heads.LabelWeights | None = None
        if self.sentence_name:
            self.sentence_head = heads.LabelWeights(SENTENCE_HEAD, 2, config, seed)

    @property
    def uses_pooler(self) -> bool:
        return self.sentence_head is not None

    def __call__(
        self, features: heads.Tensors, training: bool = False, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns a dict of outputs.

        sequence_output [B, S, H] and `heads.layer_outputs`, in training only with
        `Compute.whole_sequence`; pooled_output [B, H], in training only then or with a sentence
        task; masked_lm_logits and masked_lm_log_probs [B * P, V]; sentence_order_logits and
        sentence_order_log_probs [B, 2], where "sentence_order" is the name of the sentence task;
        masked_lm_example_loss [B * P] if the features hold labels.
        """
        if training and not self.albert.compute.whole_sequence:
            hidden, outputs = self._encode_chosen(features, seed)
        else:
            encoded = self._encode(features, training, seed)
            positions = features["masked_lm_positions"]  # [B, P]
            hidden = tf.gather(encoded.sequence_output, positions, batch_dims=1)  # [B, P, H]
            outputs = {
                name: getattr(encoded, name) for name in ("sequence_output", "pooled_output")
            }
            outputs |= heads.layer_outputs(encoded, self.config.num_hidden_layers)
        words = self.masked_lm(hidden)
        logits = {"masked_lm": words}
        if self.sentence_name and self.sentence_head:
            logits[self.sentence_name] = self.sentence_head(outputs["pooled_output"])
        for name, values in logits.items():
            outputs[f"{name}_logits"] = values
            # The losses come from the logits, so a compiled step drops these if unused.
            outputs[f"{name}_log_probs"] = tf.nn.log_softmax(values)
        if "masked_lm_ids" in features:
            ids = features["masked_lm_ids"]
            outputs["masked_lm_example_loss"] = kernels.cross_entropy(ids, words)
        return outputs

    def _encode_chosen(
        self, features: heads.Tensors, seed: tf.Tensor | None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns [B, P, H] at the masked positions, and a dict of pooled_output; for training."""
        inputs = heads.encoder_inputs(features)
        positions = tf.cast(features["masked_lm_positions"], tf.int32)
        if not self.sentence_head:
            return self.albert.at_positions(*inputs, True, seed, positions), {}
        positions = tf.pad(positions, [[0, 0], [1, 0]])  # also the first position, for the pooler
        hidden = self.albert.at_positions(*inputs, True, seed, positions)
        return hidden[:, 1:], {"pooled_output": self.albert.pool(hidden[:, 0])}

    def example_weights(self, features: heads.Tensors) -> dict[str, tf.Tensor]:
        real = heads.real_examples(features)
        masked = tf.cast(features["masked_lm_weights"], tf.float32) * real[:, tf.newaxis]
        weights = {"masked_lm_loss": tf.reshape(masked, [-1])}
        if self.sentence_head:
            weights[f"{self.sentence_name}_loss"] = real
        return weights

    def example_losses(
        self, outputs: heads.Tensors, features: heads.Tensors
    ) -> dict[str, tf.Tensor]:
        losses = {"masked_lm_loss": outputs["masked_lm_example_loss"]}
        if self.sentence_head:
            losses[f"{self.sentence_name}_loss"] = heads.cross_entropy(
                features["next_sentence_labels"], outputs[f"{self.sentence_name}_logits"]
            )
        return losses

    def losses(
        self, outputs: heads.Tensors, features: heads.Tensors, weights: heads.Tensors | None = None
    ) -> dict[str, tf.Tensor]:
        weights = dict(self.loss_weights(features) if weights is None else weights)
        weights["masked_lm_loss"] += _MASKED_LM_EPSILON
        return super().losses(outputs, features, weights)
