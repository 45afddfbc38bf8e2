"""Fills masked words: the most probable pieces at each [MASK] of a text, by a pre-trained model.

Letters in shapes: B batch, P masks of a text (at most), V vocabulary, K answers to each mask.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert.io import file_io
from albert.model import (
    batching,
    checkpoints,
    encoder,
    layers,
    model_folder,
    prepared_weights,
    pretraining_heads,
    sources,
)
from albert.text import model_inputs, tokenization, wordpiece

MASK = "[MASK]"
_POSITIONS = "masked_lm_positions"
_CONTINUES = "##"  # begins a piece of WordPiece that continues a word


@dataclasses.dataclass(frozen=True)
class Answer:
    """A piece in the place of a mask."""

    word: str  # the piece as readers see it, without the sign that begins or continues a word
    piece: str  # as the vocabulary has it
    probability: float
    text: str  # the whole text with the piece in this place; other masks stay


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A text that the model can read."""

    parts: list[str]  # the texts around its masks
    ids: list[int]  # of its pieces, with [CLS] and [SEP]


def load_pretrained(
    source: sources.Source, seed: int = 0
) -> tuple[pretraining_heads.PretrainingModel, tokenization.FullTokenizer]:
    """Loads a model with its head for masked words, and its tokenizer.

    Without a checkpoint the weights are random.
    """
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    compute = layers.Compute(skip_padding=True)
    model = pretraining_heads.PretrainingModel(config, compute, seed, sentence_task="none")
    if source.checkpoint:
        checkpoints.restore(model, source.checkpoint, allow_new_heads=False)
    return model, tokenizer


class MaskedWords:
    """A masked language model that fills the masks of texts."""

    def __init__(
        self, model: pretraining_heads.PretrainingModel, tokenizer: tokenization.FullTokenizer
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        possible = np.zeros(model.config.vocab_size, bool)
        possible[tokenizer.text_ids()] = True
        self._num_possible = int(possible.sum())
        self._excluded = np.where(possible, 0.0, -np.inf).astype(np.float32)
        self._compiled = functools.cache(self._compile)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of a text, with [CLS] and [SEP]."""
        return self._model.config.max_position_embeddings

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | sources.Source) -> "MaskedWords":
        """Loads a pre-trained model of any form.

        `folder` is that of a pre-training run, published or Hugging Face model, the name of a
        published model, a checkpoint, a hub module; or the files of a model.
        """
        if not isinstance(folder, sources.Source):
            folder = sources.locate_model(os.fspath(folder))
        return cls(*load_pretrained(folder))

    def fill(self, text: str, top_k: int = 5) -> list[list[Answer]]:
        """Returns the K = `top_k` most probable answers to each `[MASK]` of a text, in order.

        Each is answered alone: the others stay masked.
        """
        (answers,) = self.fill_all([self.encode(text)], top_k)
        return answers

    def encode(self, text: str) -> Encoded:
        """Prepares a text, which must have a mask."""
        first, *others = text.split(MASK)
        if not others:
            raise file_io.InputError(
                f"expected a text with {MASK} in the place of a word, as in 'The capital of France "
                f"is {MASK}.'; found {text[:80]!r}"
            )
        tokenizer = self._tokenizer
        ids = [tokenizer.cls_id, *tokenizer.encode(first)]
        for part in others:
            ids += [tokenizer.mask_id, *self._encode_after_mask(part)]
        ids.append(tokenizer.sep_id)
        if len(ids) > self.max_length:
            raise file_io.InputError(
                f"the text has {len(ids)} tokens with [CLS] and [SEP], the model reads at most "
                f"{self.max_length}: keep the sentences around {MASK}; found {text[:40]!r}…"
            )
        return Encoded([first, *others], ids)

    def _encode_after_mask(self, part: str) -> list[int]:
        """Returns the ids of what follows a mask; without a space it begins no new word."""
        ids = self._tokenizer.encode(part)
        piece = self._tokenizer.inv_vocab[ids[0]] if ids else ""
        if self._tokenizer.sp_model is None or part[:1].isspace() or not _begins_word(piece, True):
            return ids
        rest = piece.removeprefix(tokenization.WORD_START)
        if not rest:
            return ids[1:]
        return [self._tokenizer.vocab.get(rest, ids[0]), *ids[1:]]

    def fill_all(
        self, texts: Sequence[Encoded], top_k: int = 5, batch_size: int = 32
    ) -> Iterator[list[list[Answer]]]:
        """Yields what `fill` returns for each text, in order; `top_k`: K."""
        if not 1 <= top_k <= self._num_possible:
            raise file_io.InputError(
                f"top_k={top_k}: expected 1 to {self._num_possible}, the number of pieces that "
                "texts may have"
            )
        if not texts:
            return
        compute = self._compiled(top_k)
        answers_of_row: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for rows, batch in batching.trimmed_batches(self._columns(texts), batch_size):
            probabilities, ids = compute(batch)
            answers_of_row.update(zip(rows, zip(probabilities, ids, strict=True), strict=True))
        for number, text in enumerate(texts):
            yield self._answers(text, *answers_of_row[number])

    def _compile(self, top_k: int) -> prepared_weights.CompiledModel:
        return prepared_weights.CompiledModel(
            self._model,
            functools.partial(self._most_probable, top_k=top_k),
            (*model_inputs.NAMES, _POSITIONS),
        )

    def _columns(self, texts: Sequence[Encoded]) -> dict[str, np.ndarray]:
        length = max(len(text.ids) for text in texts)
        masks = max(len(text.parts) for text in texts) - 1
        columns = {
            name: np.zeros([len(texts), length], np.int32) for name in model_inputs.NAMES
        } | {_POSITIONS: np.zeros([len(texts), masks], np.int32)}
        columns["input_ids"] += self._tokenizer.pad_id
        for row, text in enumerate(texts):
            columns["input_ids"][row, : len(text.ids)] = text.ids
            columns["input_mask"][row, : len(text.ids)] = 1
            places = np.flatnonzero(np.equal(text.ids, self._tokenizer.mask_id))
            columns[_POSITIONS][row, : len(places)] = places
        return columns

    def _most_probable(self, features: dict, top_k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns probabilities and ids, both [B, P, K], by decreasing probability.

        `features`: {name: array}, the inputs of the model.
        """
        log_probs = self._model(features, training=False)["masked_lm_log_probs"]  # [B * P, V]
        values, ids = tf.math.top_k(log_probs + self._excluded, top_k)
        shape = tf.concat([tf.shape(features[_POSITIONS]), [top_k]], 0)
        return tf.reshape(tf.exp(values), shape), tf.reshape(ids, shape)

    def _answers(
        self, text: Encoded, probabilities: np.ndarray, ids: np.ndarray
    ) -> list[list[Answer]]:
        answers = []
        for mask in range(len(text.parts) - 1):
            before, after = (
                MASK.join(part) for part in (text.parts[: mask + 1], text.parts[mask + 1 :])
            )
            pieces = self._tokenizer.convert_ids_to_tokens(ids[mask])
            answers.append(
                [
                    self._answer(before, piece, after, float(probability))
                    for piece, probability in zip(pieces, probabilities[mask], strict=True)
                ]
            )
        return answers

    def _answer(self, before: str, piece: str, after: str, probability: float) -> Answer:
        sentencepiece = self._tokenizer.sp_model is not None
        sign = tokenization.WORD_START if sentencepiece else _CONTINUES
        word = piece.removeprefix(sign) or piece
        if not _begins_word(piece, sentencepiece):
            before = before.rstrip()
        elif before and _is_of_word(before[-1]) and _is_of_word(word[0]):
            before += " "
        return Answer(word, piece, probability, before + word + after)


def _begins_word(piece: str, sentencepiece: bool) -> bool:
    if sentencepiece:
        return piece.startswith(tokenization.WORD_START)
    return not (piece.startswith(_CONTINUES) and len(piece) > len(_CONTINUES))


def _is_of_word(character: str) -> bool:
    """Returns whether a character is part of a word that spaces separate from others."""
    return character.isalnum() and not wordpiece.is_ideograph(character)


def to_dict(number: int, text: str, answers: list[list[Answer]]) -> dict[str, object]:
    """Returns a JSON-ready object of a text and the answers to its masks."""
    return {"index": number, "text": text, "masks": to_json(answers)}


def to_json(answers: list[list[Answer]]) -> list[list[dict[str, object]]]:
    """Returns JSON-ready answers to the masks of a text."""
    return [[dataclasses.asdict(answer) for answer in row] for row in answers]


def describe(text: str, answers: list[list[Answer]]) -> Iterator[str]:
    """Yields lines for a reader: the text, then each answer with its probability."""
    yield text
    for number, row in enumerate(answers, 1):
        if len(answers) > 1:
            yield f"  {MASK} {number}"
        width = max(len(answer.word) for answer in row)
        for answer in row:
            yield f"  {answer.probability:.3f}  {answer.word:<{width}}  {answer.text}"
