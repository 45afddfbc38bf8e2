"""Models that choose answers to questions about texts, as functions of strings in a graph.

Letters in shapes: B batch, C choices.
"""

import tensorflow as tf

from albert import export

_BLANK = "_"  # in questions, see `race_utils.ending`


class ChoiceServer(export.TextPacker):
    """Answers questions with a model that was fine-tuned on RACE.

    Args:
      model: `heads.RegressionModel`, which scores a text with a question and an option.
      tokenizer: `tokenization.FullTokenizer`.
      max_seq_length: S; longer texts are cut as `race_utils.convert_example` does.
      max_qa_length: most tokens of question and option.

    Attributes:
      serve: the function of its signature: strings ``article`` [B], ``question`` [B] and
        ``options`` [B, C] to ``prediction`` int32 [B], the number of the option from 0, and
        ``probabilities`` [B, C].
    """

    def __init__(self, model, tokenizer, max_seq_length, max_qa_length):
        super().__init__(tokenizer, max_seq_length)
        self._model = model
        self._room, self._max_qa_length = max_seq_length - 3, max_qa_length
        shapes = {"article": [None], "question": [None], "options": [None, None]}
        signature = [tf.TensorSpec(shape, tf.string, name) for name, shape in shapes.items()]
        self.serve = tf.function(self._answer, input_signature=signature, autograph=False)

    def _answer(self, article, question, options):
        shape = tf.shape(options)
        endings = endings_of(tf.repeat(question, shape[1]), tf.reshape(options, [-1]))
        first = self.tokenizer.encode(tf.repeat(article, shape[1]))
        second = self.tokenizer.encode(endings)[:, -self._max_qa_length :]
        room = self._room - tf.cast(second.row_lengths(), tf.int32)
        kept = tf.minimum(tf.cast(first.row_lengths(), tf.int32), room)
        first = tf.RaggedTensor.from_tensor(first.to_tensor(), lengths=kept)
        scores = self._model(self.pack(first, second), training=False)["logits"]
        scores = tf.reshape(scores, shape)
        return {
            "prediction": tf.argmax(scores, -1, tf.int32),
            "probabilities": tf.nn.softmax(scores),
        }


def endings_of(questions, options):
    """`race_utils.ending` of strings [B] and [B]."""
    parts = tf.strings.split(questions, _BLANK)  # [B, (parts)]
    ends = tf.repeat(parts.row_splits[1:], parts.row_lengths())
    is_last = tf.range(tf.size(parts.flat_values, ends.dtype)) == ends - 1
    filled = parts.flat_values + tf.repeat(options, parts.row_lengths())
    filled = parts.with_flat_values(tf.where(is_last, parts.flat_values, filled))
    return tf.where(
        parts.row_lengths() > 1,
        tf.strings.reduce_join(filled, axis=-1),
        tf.strings.join([questions, options], " "),
    )
