"""A SavedModel that answers raw strings with label names and probabilities.

The tokenizer becomes part of the graph: clean-up by regular expressions, normalization and
SentencePiece by tensorflow-text, and the comma rule of `tokenization.encode_pieces` as a table. The
rule looks at one piece at a time, so what it makes of each piece of the vocabulary is known
beforehand. Programs that load the model must import ``tensorflow_text`` first.

Letters in shapes: B batch, K labels, S sequence.
"""

import os
import sys
import unicodedata

import tensorflow as tf

from albert import export, file_io, tokenization

_EVERY_CHARACTER = range(1, sys.maxunicode + 1)
_NO_TEXT = ("Cs", "Cn", "Co")  # Unicode categories: surrogates, unassigned, private


def check(tokenizer, flag="export_text"):
    """Refuses what `GraphTokenizer` cannot do; `flag` is what the user asked for it with.

    Raises:
      file_io.InputError: tensorflow-text is missing, or the tokenizer is a WordPiece one or its
        vocabulary has no comma, so that the comma rule would depend on more than the piece.
    """
    if tokenizer.sp_model is None or "," not in tokenizer.vocab:
        raise file_io.InputError(
            f"{flag} needs a SentencePiece vocabulary that holds the comma; this model has "
            f"{tokenizer.spm_model_file or tokenizer.vocab_file}"
        )
    try:
        import tensorflow_text  # noqa: F401
    except (ImportError, tf.errors.NotFoundError) as error:
        version = ".".join(tf.__version__.split(".")[:2])
        raise file_io.InputError(
            f"{flag} needs tensorflow-text, of the version of TensorFlow: pip install "
            f"'tensorflow-text=={version}.*' ({error})"
        ) from error


class GraphTokenizer(tf.Module):
    """`tokenization.FullTokenizer.encode` with a SentencePiece model, as TensorFlow operations.

    Args:
      tokenizer: `tokenization.FullTokenizer`.

    Raises:
      file_io.InputError: see `check`; or TensorFlow cleans up a character of the vocabulary in
        another way than Python, being of another Unicode version.
    """

    def __init__(self, tokenizer):
        super().__init__()
        check(tokenizer)
        import tensorflow_text

        self._text = tensorflow_text
        self._lower = tokenizer.do_lower_case
        # Of segmentations with equal scores ("w ww", "ww w") this class takes the one that
        # SentencePiece itself takes; tensorflow-text's SentencepieceTokenizer does not always.
        self._encoder = self._text.FastSentencepieceTokenizer(
            model=tokenizer.sp_model.serialized_model_proto()
        )
        self._space = tokenization.character_class(str.isspace) + "+"
        self._combining = tokenization.character_class(unicodedata.combining) + "+"
        replacements = [[i] for i in range(tokenizer.vocab_size)]
        for piece, i in tokenizer.vocab.items():
            pieces = tokenization.resplit(tokenizer.sp_model, piece)
            replacements[i] = tokenizer.sp_model.piece_to_id(pieces)
        self._replacements = tf.ragged.constant(replacements, dtype=tf.int32)
        self._check_characters(tokenizer)

    def _check_characters(self, tokenizer):
        """TensorFlow and Python may know different versions of Unicode: does it matter here?"""
        known = [chr(c) for c in _EVERY_CHARACTER if unicodedata.category(chr(c)) not in _NO_TEXT]
        texts = [f"a{character}b" for character in known]
        here = [tokenizer.preprocess(text) for text in texts]
        there = self.preprocess(tf.constant(texts)).numpy()
        different = {
            character
            for one, other in zip(here, there, strict=True)
            if one.encode() != other
            for character in {*one, *other.decode()}
        }
        spelled = {character for piece in tokenizer.vocab for character in piece}
        shared = sorted((different & spelled) - set("ab"))
        if shared:
            raise file_io.InputError(
                f"export_text: the vocabulary has characters {' '.join(shared)} that TensorFlow "
                f"{tf.__version__} does not treat as Python does"
            )

    def preprocess(self, texts):
        """`tokenization.preprocess_text` of strings [B]."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        texts = tf.strings.strip(tf.strings.regex_replace(texts, self._space, " "))
        texts = self._text.normalize_utf8(texts, "NFKD")
        texts = tf.strings.regex_replace(texts, self._combining, "")
        return tf.strings.lower(texts, encoding="utf-8") if self._lower else texts

    def encode(self, texts):
        """Ids of strings [B]: a ragged tensor [B, (tokens)]."""
        ids = self._encoder.tokenize(self.preprocess(texts)).with_row_splits_dtype(tf.int64)
        return tf.gather(self._replacements, ids).merge_dims(1, 2)


def kept_lengths(lengths_a, lengths_b, max_length):
    """Lengths [B] of two texts after `packing.truncate_pair`, whose rule this is in a graph."""
    excess = tf.maximum(lengths_a + lengths_b - max_length, 0)
    until_equal = tf.minimum(excess, tf.abs(lengths_a - lengths_b))
    in_turns = excess - until_equal
    drop_a = in_turns // 2 + tf.where(lengths_a > lengths_b, until_equal, 0)
    return lengths_a - drop_a, lengths_b - (excess - drop_a)


def _cut(ids, lengths):
    """The first `lengths` [B] ids of each row of a ragged tensor."""
    return tf.RaggedTensor.from_tensor(ids.to_tensor(), lengths=lengths)


class TextPacker(tf.Module):
    """Makes a model's inputs of strings.

    Args:
      tokenizer: `tokenization.FullTokenizer`.
      max_seq_length: S; longer texts are cut as `classifier_utils.convert_example` does.

    Attributes:
      tokenizer: `GraphTokenizer`.
    """

    def __init__(self, tokenizer, max_seq_length):
        super().__init__()
        self.tokenizer = GraphTokenizer(tokenizer)
        self._max_seq_length = max_seq_length
        self._cls_id, self._sep_id = tokenizer.cls_id, tokenizer.sep_id
        self._pad_id = tokenizer.pad_id

    def features(self, text, text_pair=None):
        """`packing.pack` of strings [B]: dict of int32 tensors [B, S'], S' the longest of them."""
        first = self.tokenizer.encode(text)
        rows = tf.shape(text)[0]
        mark = lambda piece: tf.fill([rows, 1], piece)  # noqa: E731
        if text_pair is None:
            first = first[:, : self._max_seq_length - 2]
            second = []
        else:
            second = self.tokenizer.encode(text_pair)
            lengths = kept_lengths(
                *(tf.cast(ids.row_lengths(), tf.int32) for ids in (first, second)),
                self._max_seq_length - 3,
            )
            first, second = (_cut(*pair) for pair in zip((first, second), lengths, strict=True))
            second = [second, mark(self._sep_id)]
        whole = tf.concat([mark(self._cls_id), first, mark(self._sep_id), *second], axis=1)
        boundary = tf.cast(first.row_lengths(), tf.int32)[:, tf.newaxis] + 2
        input_ids = whole.to_tensor(self._pad_id)
        input_mask = tf.sequence_mask(whole.row_lengths(), dtype=tf.int32)
        place = tf.range(tf.shape(input_ids)[1])[tf.newaxis, :]
        segment_ids = input_mask * tf.cast(place >= boundary, tf.int32)
        return {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}


class TextServer(TextPacker):
    """Answers strings with a classifier or regression model.

    Args:
      model: model of `heads`.
      tokenizer: `tokenization.FullTokenizer`.
      max_seq_length: S; longer texts are cut as `classifier_utils.convert_example` does.
      labels: K label names by id; empty for regression.
      is_pair: the model takes two texts.

    Attributes:
      serve: the function of its signature: text [B], and text_pair [B] if `is_pair`, to prediction
        [B] (label names; for regression numbers) and, for labels, probabilities and labels [B, K].
    """

    def __init__(self, model, tokenizer, max_seq_length, labels, is_pair):
        super().__init__(tokenizer, max_seq_length)
        self._model = model
        self._labels = tuple(labels)
        names = ("text", "text_pair") if is_pair else ("text",)
        signature = [tf.TensorSpec([None], tf.string, name=name) for name in names]
        self.serve = tf.function(self._answer, input_signature=signature, autograph=False)

    def _answer(self, text, text_pair=None):
        outputs = self._model(self.features(text, text_pair), training=False)
        if not self._labels:
            return {"prediction": outputs["predictions"]}
        labels = tf.constant(self._labels)
        return {
            "prediction": tf.gather(labels, outputs["predictions"]),
            "probabilities": outputs["probabilities"],
            "labels": tf.tile(labels[tf.newaxis], [tf.shape(text)[0], 1]),
        }


def export_text_classifier(model, tokenizer, max_seq_length, labels, is_pair, export_dir):
    """Writes a SavedModel with the signature of `TextServer.serve`.

    Args: as `TextServer`; the model goes to a new folder of ``<export_dir>/text``, see
      `export.save_version`.

    Returns:
      The new folder.

    Raises:
      file_io.InputError: see `check`, or the folder cannot be written.
    """
    server = TextServer(model, tokenizer, max_seq_length, labels, is_pair)
    parent = os.path.join(export_dir, "text")
    return export.save_version(server, {"serving_default": server.serve}, parent)
