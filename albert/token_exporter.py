"""Writes fine-tuned token classifiers as SavedModels: for ids, and for texts or words.

In the latter the tokenizer is part of the graph, see `graph_tokenizer`; programs that load it must
import ``tensorflow_text`` first.

Letters in shapes: B batch, S sequence, W words, K labels.
"""

import os

import tensorflow as tf

from albert import export, graph_tokenizer, tokenization


def export_ids(model, export_dir):
    """Writes a SavedModel of int32 ``input_ids``, ``input_mask`` and ``segment_ids`` [B, S].

    It returns ``predictions`` [B, S] and ``probabilities`` [B, S, K]; a word has those of its first
    piece.

    Args:
      model: `heads.TokenClassifierModel`.
      export_dir: the model goes to a new folder here, see `export.save_version`.

    Returns:
      The new folder.
    """
    module = tf.Module()
    module.model = model
    specs = [tf.TensorSpec([None, None], tf.int32, name=name) for name in export.MODEL_INPUTS]

    def serve(*inputs):
        features = dict(zip(export.MODEL_INPUTS, inputs, strict=True))
        outputs = model(features, training=False)
        return {name: outputs[name] for name in ("predictions", "probabilities")}

    module.serve = tf.function(serve, input_signature=specs, autograph=False)
    return export.save_version(module, {"serving_default": module.serve}, export_dir)


class WordServer(tf.Module):
    """Answers texts and words with a token classifier.

    Args:
      model: `heads.TokenClassifierModel`.
      tokenizer: `tokenization.FullTokenizer`.
      max_seq_length: S; words that are not among so many pieces, with [CLS] and [SEP], get the
        label "" and the probability 0.
      labels: K label names by id.

    Attributes:
      serve: the function of strings ``text`` [B], which are split at white space, to ``words``,
        ``labels`` and ``probabilities`` [B, W], with "" and 0 behind the last word.
      serve_words: the same of strings ``words`` [B, W], with "" behind the last word.
    """

    def __init__(self, model, tokenizer, max_seq_length, labels):
        super().__init__()
        self._model = model
        self._tokenizer = graph_tokenizer.make(tokenizer)
        self._cls_id, self._sep_id = tokenizer.cls_id, tokenizer.sep_id
        self._pad_id, self._unk_id = tokenizer.pad_id, tokenizer.unk_id
        self._room = max_seq_length - 2
        self._labels = tuple(labels)
        self._space = tokenization.character_class(str.isspace) + "+"
        text = tf.TensorSpec([None], tf.string, name="text")
        words = tf.TensorSpec([None, None], tf.string, name="words")
        self.serve = tf.function(self._of_text, input_signature=[text], autograph=False)
        self.serve_words = tf.function(self._of_words, input_signature=[words], autograph=False)

    def _of_text(self, text):
        return self._answer(tf.strings.split(tf.strings.regex_replace(text, self._space, " ")))

    def _of_words(self, words):
        return self._answer(tf.RaggedTensor.from_tensor(words, padding=""))

    def _answer(self, words):
        """Outputs for a ragged tensor of words [B, (W)]."""
        pieces = self._pieces(words.flat_values)
        ids = words.with_values(pieces).merge_dims(1, 2)  # [B, (pieces)]
        row = words.value_rowids()
        place = pieces.row_starts() - tf.gather(ids.row_starts(), row)  # of the first piece
        outputs = self._model(self._features(ids), training=False)
        fits = place < self._room
        index = tf.stack([row, tf.where(fits, place + 1, 0)], axis=1)
        found = {name: tf.gather_nd(outputs[name], index) for name in outputs}
        labels = tf.gather(tf.constant(self._labels), found["predictions"])
        best = tf.reduce_max(found["probabilities"], axis=-1)
        return {
            "words": words.to_tensor(""),
            "labels": words.with_values(tf.where(fits, labels, "")).to_tensor(""),
            "probabilities": words.with_values(tf.where(fits, best, 0.0)).to_tensor(0.0),
        }

    def _pieces(self, words):
        """Ids of strings [N]: ragged [N, (pieces)], one at least and as many as there is room."""
        pieces = self._tokenizer.encode(words).with_row_splits_dtype(tf.int64)
        empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(empty)], self._unk_id)
        unknown = tf.RaggedTensor.from_row_lengths(unknown, empty)
        return tf.concat([pieces, unknown], axis=1)[:, : self._room]

    def _features(self, ids):
        def mark(piece):
            return tf.fill([ids.nrows(tf.int32), 1], piece)

        whole = tf.concat([mark(self._cls_id), ids[:, : self._room], mark(self._sep_id)], axis=1)
        input_ids = whole.to_tensor(self._pad_id)
        return {
            "input_ids": input_ids,
            "input_mask": tf.sequence_mask(whole.row_lengths(), dtype=tf.int32),
            "segment_ids": tf.zeros_like(input_ids),
        }


def export_text(model, tokenizer, max_seq_length, labels, export_dir):
    """Writes a SavedModel with the signatures of `WordServer`: serving_default and words.

    Args: as of `WordServer`; the model goes to a new folder of ``<export_dir>/text``.

    Returns:
      The new folder.

    Raises:
      file_io.InputError: see `graph_tokenizer.make`, or the folder cannot be written.
    """
    server = WordServer(model, tokenizer, max_seq_length, labels)
    signatures = {"serving_default": server.serve, "words": server.serve_words}
    return export.save_version(server, signatures, os.path.join(export_dir, "text"))
