"""Turns fine-tuned models, and tokenizers, into TensorFlow graphs for serving folders.

Letters in shapes: B batch, S sequence.
"""

import sys
import unicodedata
from collections.abc import Callable, Sequence

import tensorflow as tf

from albert.io import file_io
from albert.model import layers, model_folder
from albert.serving import trained_model
from albert.tasks import custom, kinds
from albert.text import tokenization, wordpiece


class ExportedModel(tf.Module):
    """A fine-tuned model as a function from the inputs of a serving folder to its outputs.

    It gets the weights of the checkpoint of a folder.

    Attributes:
      kind: name of the model's kind, see `kinds`.
      labels: label names by id; empty for models without labels.
      max_seq_length: S of the training.
    """

    def __init__(
        self, trained: model_folder.ModelFolder, compute: layers.Compute = layers.Compute()
    ) -> None:
        super().__init__()
        self.kind = trained.kind
        row = kinds.KINDS[self.kind]
        self.inputs, self.outputs = row.inputs, row.outputs
        self.labels = custom.labels_of(trained) if row.has_labels else ()
        self.max_seq_length = trained.length()
        self.model = trained_model.restored_model(trained, compute)

    def __call__(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps int32 tensors [B, S], in the order of `inputs`, to {name: tensor} of `outputs`."""
        features = dict(zip(self.inputs, inputs, strict=True))
        return trained_model.compute_outputs(self.model, self.kind, features)

    def function(
        self, batch_size: int | None = None, seq_length: int | None = None
    ) -> tf.types.experimental.PolymorphicFunction:
        """Makes a `tf.function` with named inputs; see `function_of_ids`."""
        return function_of_ids(self.__call__, self.inputs, batch_size, seq_length)


def function_of_ids(
    function: Callable,
    names: Sequence[str | None],
    batch_size: int | None = None,
    seq_length: int | None = None,
) -> tf.types.experimental.PolymorphicFunction:
    """Makes a `tf.function` with int32 inputs [batch_size, seq_length]; None accepts any size."""
    shape = [batch_size, seq_length]
    specs = [tf.TensorSpec(shape, tf.int32, name=name) for name in names]
    return tf.function(function, input_signature=specs, autograph=False)


# --- The tokenizers as TensorFlow operations, for exported models that take strings --------------


_ALL_CHARACTERS = range(sys.maxunicode + 1)
# Stands for U+0000, at which `tf.strings.lower` ends a text. Both are unknown to vocabularies.
_NUL = "\ue000"
_NO_TEXT = ("Cs", "Cn", "Co")  # Unicode categories: surrogates, unassigned, private
_MAX_BYTES_PER_CHARACTER = 4  # in UTF-8


def check_text(tokenizer: tokenization.FullTokenizer, flag: str = "export_text") -> None:
    """Rejects a tokenizer that `make` cannot convert; `flag` is the requesting flag, for messages.

    If a SentencePiece vocabulary has no comma, splitting at commas depends on more than the piece.
    """
    if tokenizer.rules.extra_pieces:
        raise file_io.InputError(
            f"{flag}: a TensorFlow graph cannot find the model's extra pieces in texts "
            f"({', '.join(tokenizer.rules.extra_pieces[:3])})"
        )
    if tokenizer.rules.as_huggingface:
        raise file_io.InputError(
            f"{flag}: the model's texts become pieces by the rules of transformers "
            "(as_huggingface), which no TensorFlow graph computes"
        )
    if tokenizer.sp_model is not None and "," not in tokenizer.vocab:
        raise file_io.InputError(
            f"{flag} needs a SentencePiece vocabulary that contains the comma; that of this model, "
            f"{tokenizer.spm_model_file}, does not"
        )
    try:
        import tensorflow_text  # noqa: F401
    except (ImportError, tf.errors.NotFoundError) as error:
        version = ".".join(tf.__version__.split(".")[:2])
        raise file_io.InputError(
            f"{flag} needs tensorflow-text, in the same version as TensorFlow: pip install "
            f"'tensorflow-text=={version}.*' ({error})"
        ) from error


def make(tokenizer: tokenization.FullTokenizer) -> "SentencePiece | WordPiece":
    """Makes the `SentencePiece` or `WordPiece` of a tokenizer; see also `check_text`."""
    check_text(tokenizer)
    kind = WordPiece if tokenizer.sp_model is None else SentencePiece
    graph_tokenizer = kind(tokenizer)
    graph_tokenizer.check_characters(tokenizer)
    return graph_tokenizer


class _GraphTokenizer(tf.Module):
    """`tokenization.FullTokenizer.encode` as TensorFlow operations; see `make`."""

    def __init__(self, tokenizer: tokenization.FullTokenizer) -> None:
        super().__init__()
        import tensorflow_text

        self._text = tensorflow_text
        self._lower, self._keeps_accents = tokenizer.do_lower_case, tokenizer.keep_accents
        self._space = tokenization.character_class(str.isspace) + "+"

    def check_characters(self, tokenizer: tokenization.FullTokenizer) -> None:
        """Checks that TensorFlow and Python treat texts alike; their Unicode versions may vary."""
        characters = [
            chr(c) for c in _ALL_CHARACTERS if unicodedata.category(chr(c)) not in _NO_TEXT
        ]
        texts = [f"a{character}b" for character in characters]
        expected = [self.expected_text(tokenizer, text) for text in texts]
        actual = self.preprocess(tf.constant(texts)).numpy()
        different = {
            character
            for ours, theirs in zip(expected, actual, strict=True)
            if ours.encode() != theirs
            for character in {*ours, *theirs.decode()}
        }
        vocabulary = {character for piece in tokenizer.vocab for character in piece}
        affected = sorted((different & vocabulary) - set("ab"))
        if affected:
            raise file_io.InputError(
                f"export_text: the vocabulary has characters {' '.join(affected)} that TensorFlow "
                f"{tf.__version__} does not treat as Python does"
            )


class SentencePiece(_GraphTokenizer):
    """A tokenizer for SentencePiece vocabularies."""

    def __init__(self, tokenizer: tokenization.FullTokenizer) -> None:
        super().__init__(tokenizer)
        sp_model = tokenizer.sp_model
        assert sp_model
        # If segmentations have equal scores ("w ww", "ww w"), this class chooses the same one as
        # SentencePiece; tensorflow-text's SentencepieceTokenizer does not always.
        self._encoder = self._text.FastSentencepieceTokenizer(
            model=sp_model.serialized_model_proto()
        )
        self._combining = tokenization.character_class(unicodedata.combining) + "+"
        replacements = [[i] for i in range(tokenizer.vocab_size)]
        for piece, i in tokenizer.vocab.items():
            pieces = tokenization.resplit(sp_model, piece)
            replacements[i] = sp_model.piece_to_id(pieces)
        self._replacements = tf.ragged.constant(replacements, dtype=tf.int32)

    def expected_text(self, tokenizer: tokenization.FullTokenizer, text: str) -> str:
        """Returns the expected result of `preprocess` for a text."""
        return tokenizer.preprocess(text).replace("\0", _NUL)

    def preprocess(self, texts: tf.Tensor) -> tf.Tensor:
        """Computes `tokenization.preprocess_text` of strings [B]."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        texts = tf.strings.regex_replace(texts, r"\x00", _NUL)
        texts = tf.strings.strip(tf.strings.regex_replace(texts, self._space, " "))
        if not self._keeps_accents:
            texts = self._text.normalize_utf8(texts, "NFKD")
            texts = tf.strings.regex_replace(texts, self._combining, "")
        return tf.strings.lower(texts, encoding="utf-8") if self._lower else texts

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of strings [B]: a ragged tensor [B, (tokens)]."""
        ids = self._encoder.tokenize(self.preprocess(texts)).with_row_splits_dtype(tf.int64)
        return tf.gather(self._replacements, ids).merge_dims(1, 2)


class WordPiece(_GraphTokenizer):
    """A tokenizer for WordPiece vocabularies."""

    def __init__(self, tokenizer: tokenization.FullTokenizer) -> None:
        super().__init__(tokenizer)
        self._lower_alone = tokenizer.rules.lower_alone
        self._splits_ideographs = tokenizer.rules.split_ideographs
        self._longest_word = tokenizer.rules.longest_word
        is_dropped = wordpiece.choose_dropped(tokenizer.rules.drop_private)
        self._dropped = tokenization.character_class(is_dropped) + "+"
        self._ideograph = f"({tokenization.character_class(wordpiece.is_ideograph)})"
        self._accent = tokenization.character_class(wordpiece.is_accent) + "+"
        self._punctuation = f"({tokenization.character_class(wordpiece.is_punctuation)})"
        self._unknown = tokenizer.inv_vocab[tokenizer.unk_id]
        self._encoder = self._text.FastWordpieceTokenizer(
            vocab=list(tokenizer.vocab),  # in the order of their ids
            unknown_token=self._unknown,
            max_bytes_per_word=_MAX_BYTES_PER_CHARACTER * self._longest_word,
            token_out_type=tf.int32,
            no_pretokenization=True,
        )

    def expected_text(self, tokenizer: tokenization.FullTokenizer, text: str) -> str:
        return " ".join(tokenizer.basic_tokenizer.tokenize(text))

    def preprocess(self, texts: tf.Tensor) -> tf.Tensor:
        """Splits strings [B] like `wordpiece.BasicTokenizer`; joins the words with one space."""
        replace = tf.strings.regex_replace
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        texts = replace(texts, self._dropped, "")
        if self._splits_ideographs:
            texts = replace(texts, self._ideograph, r" \1 ")
        if self._lower:
            texts = replace(texts, "\u03a3", "\u03c3") if self._lower_alone else texts
            texts = tf.strings.lower(texts, encoding="utf-8")
        if not self._keeps_accents:
            texts = replace(self._text.normalize_utf8(texts, "NFD"), self._accent, "")
        texts = replace(texts, self._punctuation, r" \1 ")
        return tf.strings.strip(replace(texts, self._space, " "))

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = tf.strings.split(self.preprocess(texts))  # [B, (words)]
        lengths = tf.strings.length(words.flat_values, unit="UTF8_CHAR")
        too_long = lengths > self._longest_word
        words = words.with_flat_values(tf.where(too_long, self._unknown, words.flat_values))
        return self._encoder.tokenize(words).merge_dims(1, 2)
