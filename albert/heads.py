"""The encoder with the heads of the fine-tuning tasks and of pre-training, and their losses.

Every model maps a dict of features to a dict of outputs.

Letters in shapes: B batch, S sequence, H hidden, C choices, K starts kept, M ends kept for each
start.
"""

import tensorflow as tf

from albert import file_io, head_parts, kernels, layers, pretraining_heads, task

# All models have their name in this module.
PretrainingModel = pretraining_heads.PretrainingModel

# Subtracted from the logits of positions where an answer cannot be.
_IMPOSSIBLE = 1e30


class _LabelModel(head_parts.Model):
    """A model with one loss per example, against `label_ids`, of the pooled output.

    Args:
      dropout_prob: dropout of the pooled output in training, whatever the configuration says.
      head: `task.Head`.
      num_outputs: of the output layer.
      For the rest see `head_parts.Model`.
    """

    _term = None  # name of the loss term

    def __init__(self, config, compute, seed, dropout_prob, head, num_outputs):
        head_parts.check_rate(dropout_prob)
        super().__init__(config, compute, seed)
        self._dropout_prob = dropout_prob
        self.hidden = head_parts.HiddenLayer(head, config, seed)
        self.output = head_parts.LabelWeights("", num_outputs, config, seed, self.hidden.size)

    def encoder_output(self, features, training=False, seed=None):
        """What the head reads of each text: the pooled output [B, H]."""
        # The last layer is computed at the first position alone.
        inputs = head_parts.inputs(features)
        return self.albert.pool(
            self.albert.at_positions(*inputs, self._drops(training), seed)[:, 0]
        )

    def _scores(self, features, training, seed, site):
        """[B, H] after dropout through the output layer: float32 [B, labels]; a dict.

        The dict holds sequence_output [B, S, H] with `Compute.whole_sequence`, else nothing.
        """
        further = {}
        if head_parts.ENCODER_OUTPUT in features:
            pooled = features[head_parts.ENCODER_OUTPUT]
        elif self.albert.compute.whole_sequence:
            encoded = self._encode(features, training, seed)
            pooled, further["sequence_output"] = encoded.pooled_output, encoded.sequence_output
        else:
            pooled = self.encoder_output(features, training, seed)
        dropout = layers.Dropout(training, seed)
        return self.output(self.hidden(dropout(pooled, self._dropout_prob, site), dropout)), further

    def _label_loss(self, label_ids, logits):
        """[B] losses."""
        return head_parts.cross_entropy(label_ids, logits)

    def _with_losses(self, outputs, features):
        """Adds per_example_loss [B] where the features hold labels."""
        if "label_ids" in features:
            outputs["per_example_loss"] = self._label_loss(features["label_ids"], outputs["logits"])
        return outputs

    def example_weights(self, features):
        return {self._term: head_parts.real_examples(features)}

    def example_losses(self, outputs, features):
        return {self._term: self._label_loss(features["label_ids"], outputs["logits"])}


def _choice(logits):
    """Outputs of a choice between labels with logits [..., labels]."""
    return {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),
        "predictions": tf.argmax(logits, -1, tf.int32),
    }


class ClassifierModel(_LabelModel):
    """Classification of a text or of a pair of texts.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids integers [B].
    """

    _term = "classification_loss"

    def __init__(
        self,
        config,
        num_labels,
        compute=layers.Compute(),
        seed=None,
        dropout_prob=0.1,
        head=task.NO_LAYER,
    ):
        head_parts.check_labels(num_labels)
        super().__init__(config, compute, seed, dropout_prob, head, num_labels)

    def __call__(self, features, training=False, seed=None):
        """Returns a dict: logits, probabilities [B, labels], predictions int32 [B]."""
        logits, further = self._scores(features, training, seed, "classifier")
        return self._with_losses(_choice(logits) | further, features)


class RegressionModel(_LabelModel):
    """A score for a text or for a pair of texts, by least squares.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids floats [B].
    """

    _term = "regression_loss"

    def __init__(
        self, config, compute=layers.Compute(), seed=None, dropout_prob=0.1, head=task.NO_LAYER
    ):
        super().__init__(config, compute, seed, dropout_prob, head, 1)

    def _label_loss(self, label_ids, logits):
        return tf.square(logits - tf.cast(tf.reshape(label_ids, [-1]), tf.float32))

    def __call__(self, features, training=False, seed=None):
        """Returns a dict: logits and predictions [B], probabilities [B, 1], all the score."""
        scores, _ = self._scores(features, training, seed, "classifier")
        logits = scores[:, 0]
        outputs = {"logits": logits, "probabilities": scores, "predictions": logits}
        return self._with_losses(outputs, features)


class _SequenceModel(head_parts.Model):
    """Works on the sequence alone.

    Args:
      head: `task.Head`; all parts of the model's head read what its layer makes of the sequence.
      For the rest see `head_parts.Model`.
    """

    uses_pooler = False

    def __init__(self, config, compute, seed, head):
        super().__init__(config, compute, seed)
        self.hidden = head_parts.HiddenLayer(head, config, seed)

    def encoder_output(self, features, training=False, seed=None):
        """What the head reads of each text: the sequence output [B, S, H]."""
        return self._encode(features, training, seed).sequence_output

    def _encoded(self, features, training, seed):
        """[B, S, H], of the encoder or of what is kept of it."""
        sequence = features.get(head_parts.ENCODER_OUTPUT)
        if sequence is None:
            sequence = self.encoder_output(features, training, seed)
        else:  # It ends with the longest text; S is a round number.
            missing = tf.shape(features["input_ids"])[1] - tf.shape(sequence)[1]
            sequence = tf.pad(sequence, [[0, 0], [0, missing], [0, 0]])
        return sequence

    def _sequence(self, features, training, seed):
        """[B, S, H], where the head has a layer of its own that layer's output."""
        sequence = self._encoded(features, training, seed)
        return self.hidden(sequence, layers.Dropout(training, seed))


class TokenClassifierModel(_SequenceModel):
    """A label for each word of a text, from the first of its pieces.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss label_ids and first_pieces
    [B, S], which is 1 at the first piece of each word and else 0.
    """

    def __init__(
        self,
        config,
        num_labels,
        compute=layers.Compute(),
        seed=None,
        dropout_prob=0.1,
        head=task.NO_LAYER,
    ):
        head_parts.check_labels(num_labels)
        head_parts.check_rate(dropout_prob)
        super().__init__(config, compute, seed, head)
        self._dropout_prob = dropout_prob
        size = self.hidden.size
        self.output = head_parts.LabelWeights("cls/token/", num_labels, config, seed, size)

    def __call__(self, features, training=False, seed=None):
        """Returns a dict: logits, probabilities [B, S, labels], predictions int32 [B, S]."""
        dropout = layers.Dropout(training, seed)
        sequence = self._encoded(features, training, seed)  # [B, S, H]
        rows = dropout(
            tf.reshape(sequence, [-1, sequence.shape[-1]]), self._dropout_prob, "classifier"
        )
        logits = self.output(self.hidden(rows, dropout))  # [B * S, labels]
        shape = tf.concat([tf.shape(sequence)[:2], [logits.shape[-1]]], 0)
        return _choice(tf.reshape(logits, shape))

    def example_weights(self, features):
        real = head_parts.real_examples(features)[:, tf.newaxis]
        return {"token_loss": tf.cast(features["first_pieces"], tf.float32) * real}  # [B, S]

    def example_losses(self, outputs, features):
        logits, labels = outputs["logits"], features["label_ids"]
        losses = head_parts.cross_entropy(labels, tf.reshape(logits, [-1, logits.shape[-1]]))
        return {"token_loss": tf.reshape(losses, tf.shape(labels))}


class MultipleChoiceModel(_LabelModel):
    """Picks one of C texts, each scored by itself (RACE).

    Features: input_ids, input_mask, segment_ids, each [B, C, S] or [B, C * S]; for the loss
    label_ids integers [B].
    """

    _term = "choice_loss"

    def __init__(
        self,
        config,
        num_choices,
        dropout_prob=0.1,
        compute=layers.Compute(),
        seed=None,
        head=task.NO_LAYER,
    ):
        if num_choices < 2:
            raise file_io.InputError(f"multiple choice needs at least 2 choices; got {num_choices}")
        super().__init__(config, compute, seed, dropout_prob, head, 1)
        self._choices = num_choices

    def _fold(self, name, x):
        """[B, C, S] or [B, C * S] -> [B * C, S]."""
        x = tf.convert_to_tensor(x)
        choices, by_text, last = self._choices, x.shape.rank == 3, x.shape[-1]
        fits = x.shape[1] in (choices, None) if by_text else last is None or last % choices == 0
        if not fits:
            raise file_io.InputError(
                f"{name} must be [batch, {choices}, length] or [batch, {choices} * length]; "
                f"got {x.shape}"
            )
        last = tf.shape(x)[-1] if last is None else last
        return tf.reshape(x, [-1, last if by_text else last // choices])

    def __call__(self, features, training=False, seed=None):
        """Returns a dict: logits, probabilities [B, C], predictions int32 [B]."""
        inputs = ("input_ids", "input_mask", "segment_ids")
        folded = {name: self._fold(name, features[name]) for name in inputs if name in features}
        if head_parts.ENCODER_OUTPUT in features:  # [B, C, H]
            pooled = features[head_parts.ENCODER_OUTPUT]
            folded[head_parts.ENCODER_OUTPUT] = tf.reshape(pooled, [-1, pooled.shape[-1]])
        scores, _ = self._scores(folded, training, seed, "choice")  # [B * C, 1]
        return self._with_losses(_choice(tf.reshape(scores, [-1, self._choices])), features)


class _SquadModel(_SequenceModel):
    """Works on questions with a text."""

    def _with_loss(self, outputs, features, training):
        """Adds per_example_loss [B] in prediction where the features hold positions."""
        if not training and "start_positions" in features:
            losses = self.example_losses(outputs, features)
            outputs["per_example_loss"] = tf.add_n(list(losses.values()))
        return outputs


class SquadV1Model(_SquadModel):
    """Start and end of an answer in the text; the answer always exists.

    Features: input_ids, input_mask, segment_ids [B, S]; for the loss start_positions and
    end_positions [B].
    """

    def __init__(self, config, compute=layers.Compute(), seed=None, head=task.NO_LAYER):
        super().__init__(config, compute, seed, head)
        self.output = head_parts.LabelWeights("cls/squad/", 2, config, seed, self.hidden.size)

    def __call__(self, features, training=False, seed=None):
        """Returns a dict: start_logits and end_logits [B, S].

        They are over padding too, unless the encoder skips it: then -1e30 stands there. In
        prediction also per_example_loss [B] where the features hold positions.
        """
        sequence = self._sequence(features, training, seed)
        logits = self.output(tf.reshape(sequence, [-1, sequence.shape[-1]]))  # [B * S, 2]
        logits = tf.reshape(logits, tf.concat([tf.shape(sequence)[:2], [2]], 0))
        if self.albert.compute.skip_padding:
            # Padding has not been computed; without this its constant would count in the loss.
            real = tf.cast(features["input_mask"], tf.bool)[:, :, tf.newaxis]
            logits = tf.where(real, logits, -_IMPOSSIBLE)
        start, end = tf.unstack(logits, 2, axis=-1)
        return self._with_loss({"start_logits": start, "end_logits": end}, features, training)

    def example_weights(self, features):
        return {"span_loss": head_parts.real_examples(features)}

    def example_losses(self, outputs, features):
        start = head_parts.cross_entropy(features["start_positions"], outputs["start_logits"])
        end = head_parts.cross_entropy(features["end_positions"], outputs["end_logits"])
        return {"span_loss": 0.5 * (start + end)}


class SquadV2Model(_SquadModel):
    """Start and end of an answer, and whether there is one, with a beam over the starts.

    Features: input_ids, input_mask, segment_ids, p_mask [B, S] (p_mask is 1 where an answer cannot
    be); for training start_positions, end_positions, is_impossible [B].
    """

    def __init__(
        self,
        config,
        start_n_top,
        end_n_top,
        dropout_prob=0.1,
        compute=layers.Compute(),
        seed=None,
        head=task.NO_LAYER,
    ):
        if min(start_n_top, end_n_top) < 1:
            raise file_io.InputError(
                f"start_n_top and end_n_top must be at least 1; got {start_n_top} and {end_n_top}"
            )
        head_parts.check_rate(dropout_prob)
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

    def __call__(self, features, training=False, seed=None):
        """Runs the graph of training or of prediction.

        Returns:
          Training: dict of start_log_probs and end_log_probs [B, S] (the end given the true
          start), cls_logits [B]. Otherwise: start_top_log_probs and start_top_index [B, K];
          end_top_log_probs and end_top_index [B, K * M], the ends of start k at k * M...;
          cls_logits [B], high where there is no answer.

        Where the features hold start_positions, prediction returns start_log_probs and
        end_log_probs, too, and per_example_loss [B].

        Raises:
          InputError: the sequence is shorter than `start_n_top` or `end_n_top`.
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

    def _check_beam(self, sequence):
        length, widest = sequence.shape[1], max(self._start_n_top, self._end_n_top)
        if length is not None and length < widest:
            raise file_io.InputError(
                f"sequences must have at least start_n_top and end_n_top = {self._start_n_top} and "
                f"{self._end_n_top} positions; got {length}"
            )

    def _end_log_probs(self, sequence, starts, possible):
        """[B, S, H], starts [B, K], [B, S] -> log-probabilities of ends [B, K, S]."""
        size = self.hidden.size
        kernel = tf.cast(self.end_hidden.kernel, sequence.dtype)
        bias = tf.cast(self.end_hidden.bias, sequence.dtype)
        chosen = tf.gather(sequence, starts, batch_dims=1)  # [B, K, H]
        # The layer sees concat(token, start). Its product is the sum of one over the tokens and
        # one over the starts, which saves the [B, K, S, 2H] input and nearly all the work.
        tokens = kernels.matmul(tf.reshape(sequence, [-1, size]), kernel[:size])  # [B * S, H]
        # [B * K, H]
        offsets = kernels.matmul(tf.reshape(chosen, [-1, size]), kernel[size:]) + bias
        tokens = tf.reshape(tokens, tf.shape(sequence))[:, tf.newaxis]  # [B, 1, S, H]
        offsets = tf.reshape(offsets, tf.shape(chosen))[:, :, tf.newaxis]  # [B, K, 1, H]
        hidden = self.end_norm(tf.tanh(tokens + offsets))  # [B, K, S, H]
        logits = self.end(tf.reshape(hidden, [-1, size]))  # [B * K * S, 1]
        logits = tf.cast(tf.reshape(logits, tf.shape(hidden)[:3]), tf.float32)
        return _masked_log_softmax(logits, possible[:, tf.newaxis])

    def _answerability(self, sequence, start_log_probs, dropout):
        """[B]: the logit of "no answer", from the expected start and the first token."""
        weights = tf.cast(tf.exp(start_log_probs), sequence.dtype)  # [B, S]
        expected = tf.linalg.matvec(sequence, weights, transpose_a=True)  # [B, H]
        hidden = tf.tanh(self.answer_hidden(tf.concat([expected, sequence[:, 0]], -1)))  # [B, H]
        logits = self.answer(dropout(hidden, self._dropout_rate, "answer_class"))  # [B, 1]
        return tf.cast(logits[:, 0], tf.float32)

    def example_weights(self, features):
        real = head_parts.real_examples(features)
        return {"span_loss": real, "answerability_loss": real}

    def example_losses(self, outputs, features):
        """Each term carries its factor of one half.

        Raises:
          ValueError: the outputs are those of prediction without positions.
        """
        if "end_log_probs" not in outputs:
            raise ValueError("the loss of SquadV2Model needs the outputs of training=True")
        start = _picked(outputs["start_log_probs"], features["start_positions"])
        end = _picked(outputs["end_log_probs"], features["end_positions"])
        impossible = tf.cast(tf.reshape(features["is_impossible"], [-1]), tf.float32)
        answerability = tf.nn.sigmoid_cross_entropy_with_logits(impossible, outputs["cls_logits"])
        return {"span_loss": -0.5 * (start + end), "answerability_loss": 0.5 * answerability}


def _masked_log_softmax(logits, possible):
    """Log-softmax over the last axis; `possible` is 1 where an answer may be and else 0."""
    return tf.nn.log_softmax(logits * possible - _IMPOSSIBLE * (1.0 - possible))


def _picked(log_probs, positions):
    """[B, S], integers of B elements -> [B]."""
    return tf.gather(log_probs, tf.reshape(positions, [-1]), batch_dims=1)
