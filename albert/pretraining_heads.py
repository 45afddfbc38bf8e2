"""The encoder with the heads of pre-training.

Letters in shapes: B batch, S sequence, V vocabulary, E embedding, H hidden, P masked positions.
"""

import tensorflow as tf

from albert import head_parts, kernels, layers

_MASKED_LM_EPSILON = 1e-5  # keeps the masked LM's denominator above 0


class MaskedLmHead(tf.Module):
    """Scores every word of the vocabulary at the masked positions (BERT, section 3.1).

    Args:
      config: AlbertConfig.
      embedding_table: variable [V, E] of the word embeddings, used again as output weights.
      seed: integer from which the initial weights are drawn, or None.
    """

    def __init__(self, config, embedding_table, seed=None):
        super().__init__()
        name = "cls/predictions"
        self._embedding_table = embedding_table
        self._activation = layers.ACTIVATIONS[config.hidden_act]
        self.dense = layers.Dense(
            f"{name}/transform/dense", config.hidden_size, config.embedding_size, config, seed
        )
        self.layer_norm = layers.LayerNorm(f"{name}/transform/LayerNorm", config.embedding_size)
        self.bias = tf.Variable(tf.zeros([config.vocab_size]), name=f"{name}/output_bias")

    def __call__(self, chosen):
        """The encoder's outputs at masked positions [B, P, H] -> float32 logits [B * P, V]."""
        chosen = tf.reshape(chosen, [-1, chosen.shape[-1]])  # [B * P, H]
        words = self.layer_norm(self._activation(self.dense(chosen)))  # [B * P, E]
        table = tf.cast(self._embedding_table, words.dtype)
        logits = kernels.matmul(words, table, transpose_b=True)
        return tf.nn.bias_add(tf.cast(logits, tf.float32), self.bias)


class PretrainingModel(head_parts.Model):
    """Masked LM, and whether two pieces of text are in order or swapped (ALBERT, section 3.1).

    Features: input_ids, input_mask, segment_ids [B, S]; masked_lm_positions [B, P]; for the loss
    masked_lm_ids, masked_lm_weights [B, P] and next_sentence_labels [B, 1] (0 in order).
    """

    def __init__(self, config, compute=layers.Compute(), seed=None):
        super().__init__(config, compute, seed)
        self.masked_lm = MaskedLmHead(config, self.albert.embedding_table, seed)
        self.sentence_order = head_parts.LabelWeights("cls/seq_relationship/", 2, config, seed)

    def __call__(self, features, training=False, seed=None):
        """Returns a dict.

        sequence_output [B, S, H], not while training; pooled_output [B, H]; masked_lm_logits and
        masked_lm_log_probs [B * P, V]; sentence_order_logits and sentence_order_log_probs [B, 2];
        where the features hold labels also masked_lm_example_loss [B * P].
        """
        positions = features["masked_lm_positions"]  # [B, P]
        outputs = {}
        if training:
            asked = tf.pad(tf.cast(positions, tf.int32), [[0, 0], [1, 0]])  # the first one too
            chosen = self.albert.at_positions(*head_parts.inputs(features), training, seed, asked)
            pooled, chosen = self.albert.pool(chosen[:, 0]), chosen[:, 1:]
        else:
            encoded = self._encode(features, training, seed)
            pooled = encoded.pooled_output
            chosen = tf.gather(encoded.sequence_output, positions, batch_dims=1)  # [B, P, H]
            outputs["sequence_output"] = encoded.sequence_output
        words = self.masked_lm(chosen)
        order = self.sentence_order(pooled)
        outputs |= {
            "pooled_output": pooled,
            "masked_lm_logits": words,
            # The losses come from the logits, so that a compiled step drops these when unused.
            "masked_lm_log_probs": tf.nn.log_softmax(words),
            "sentence_order_logits": order,
            "sentence_order_log_probs": tf.nn.log_softmax(order),
        }
        if "masked_lm_ids" in features:
            ids = features["masked_lm_ids"]
            outputs["masked_lm_example_loss"] = kernels.cross_entropy(ids, words)
        return outputs

    def example_weights(self, features):
        real = head_parts.real_examples(features)
        masked = tf.cast(features["masked_lm_weights"], tf.float32) * real[:, tf.newaxis]
        return {"masked_lm_loss": tf.reshape(masked, [-1]), "sentence_order_loss": real}

    def example_losses(self, outputs, features):
        return {
            "masked_lm_loss": outputs["masked_lm_example_loss"],
            "sentence_order_loss": head_parts.cross_entropy(
                features["next_sentence_labels"], outputs["sentence_order_logits"]
            ),
        }

    def losses(self, outputs, features, weights=None):
        weights = dict(self.loss_weights(features) if weights is None else weights)
        weights["masked_lm_loss"] += _MASKED_LM_EPSILON
        return super().losses(outputs, features, weights)
