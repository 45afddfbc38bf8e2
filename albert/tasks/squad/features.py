"""Converts SQuAD questions to model inputs: windows over their paragraphs.

Imports no TensorFlow, so that worker processes start quickly. Each paragraph is tokenized and
aligned once for all its questions.
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.io.file_io import InputError
from albert.tasks.squad import spans as squad_spans
from albert.text import graphemes, tokenization

FIRST_UNIQUE_ID = 1000000000
ALIGNMENT = 3  # version of the rules by which pieces get their characters; old features are stale
# Training stops if more than this fraction of the questions cannot be used.
MAX_DROPPED = 0.05
# The training set of SQuAD 2.0 has 19,000 paragraphs; each takes about 8 KB here.
_PARAGRAPHS = 1 << 15
_BATCH = 64  # questions tokenized at a time


@dataclasses.dataclass(slots=True)
class SquadExample:
    """One question.

    Attributes:
      qas_id: id of the question in the file.
      paragraph_text: the text that the answer is in.
      orig_answer_text: gold answer for training, "" if there is none, None outside of training.
      start_position: its first character, -1 if there is none, None outside of training.
      is_impossible: whether the file says that the question has no answer.
      answers: all gold answers, () for an unanswerable question, None if they are not known.
      answer_starts: the first character of each; None if the file does not give it, or if another
        text is there.
      article, paragraph: numbers of both in the file.
    """

    qas_id: str
    question_text: str
    paragraph_text: str
    orig_answer_text: str | None = None
    start_position: int | None = None
    is_impossible: bool = False
    answers: tuple | None = None
    answer_starts: tuple | None = None
    article: int = 0
    paragraph: int = 0


@dataclasses.dataclass(slots=True)
class SquadFeatures:
    """One window of one question: ``[CLS] question [SEP] window [SEP] padding``, S places.

    Attributes:
      unique_id: number of the window, counted from 1000000000.
      qas_id: id of the question; None in training.
      example_index: number of the question in the input; None in training.
      doc_span_index: number of the window among those of the question.
      max_seq_length: S.
      real_ids: the ids without padding.
      text_begin: place of the window's first piece.
      max_context: places (begin, end) between which this window is the one with most context.
      piece_start: int array, first character of each piece of the window in the paragraph.
      piece_end: int array, last character of each piece (inclusive).
      start_position, end_position: places of the answer, 0 without one; None outside of training.
      is_impossible: whether the window holds no whole answer; False outside of training.
      answer: places (first, last) of the answer, outside of training too; None without a whole one.
    """

    unique_id: int
    qas_id: str | None
    example_index: int | None
    doc_span_index: int
    max_seq_length: int
    real_ids: list[int]
    text_begin: int
    max_context: tuple
    piece_start: np.ndarray
    piece_end: np.ndarray
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    answer: tuple[int, int] | None = None

    @property
    def question(self) -> str:
        """Returns the id of the question of a window to predict."""
        assert self.qas_id is not None
        return self.qas_id

    @property
    def paragraph_len(self) -> int:
        """Returns the number of places before the padding."""
        return len(self.real_ids)

    @property
    def text_end(self) -> int:
        """Returns the place after the window's last piece."""
        return self.text_begin + len(self.piece_start)

    @property
    def tok_start_to_orig_index(self) -> list[int]:
        """Returns `piece_start` as a list."""
        return self.piece_start.tolist()

    @property
    def tok_end_to_orig_index(self) -> list[int]:
        """Returns `piece_end` as a list."""
        return self.piece_end.tolist()

    @property
    def input_ids(self) -> list[int]:
        """Returns the ids [S], 0 at padding."""
        return self.real_ids + [0] * (self.max_seq_length - len(self.real_ids))

    @property
    def input_mask(self) -> list[int]:
        """Returns [S]: 1, at padding 0."""
        return list(self.input_mask_bytes)

    @property
    def segment_ids(self) -> list[int]:
        """Returns [S]: 1 in the window and at its [SEP], else 0."""
        return list(self.segment_ids_bytes)

    @property
    def p_mask(self) -> list[int]:
        """Returns 0 where an answer may be ([CLS] and the window's pieces), 1 elsewhere."""
        return list(self.p_mask_bytes)

    @property
    def token_is_max_context(self) -> dict[int, bool]:
        """Returns {place of a piece: whether no other window gives it more context}."""
        begin, end = self.max_context
        return {place: begin <= place < end for place in range(self.text_begin, self.text_end)}

    @property
    def input_mask_bytes(self) -> bytes:
        """Returns `input_mask`, a byte each."""
        return (b"\1" * len(self.real_ids)).ljust(self.max_seq_length, b"\0")

    @property
    def segment_ids_bytes(self) -> bytes:
        """Returns `segment_ids`, a byte each."""
        ones = b"\1" * (len(self.real_ids) - self.text_begin)
        return (b"\0" * self.text_begin + ones).ljust(self.max_seq_length, b"\0")

    @property
    def p_mask_bytes(self) -> bytes:
        """Returns `p_mask`, a byte each."""
        start = b"\0" + b"\1" * (self.text_begin - 1) + b"\0" * (self.text_end - self.text_begin)
        return start.ljust(self.max_seq_length, b"\1")


@dataclasses.dataclass
class FeatureReport:
    """Counts of converted and dropped questions.

    Attributes:
      num_questions: converted and dropped questions.
      num_windows: windows of the converted questions.
      dropped: {reason: ids of questions without any window}.
    """

    num_questions: int = 0
    num_windows: int = 0
    dropped: dict = dataclasses.field(default_factory=dict)

    def add(self, qas_id: str, windows: Sequence[Any] | str) -> None:
        """Counts the windows of a question, which may be a string: the reason why it has none."""
        self.num_questions += 1
        if isinstance(windows, str):
            self.dropped.setdefault(windows, []).append(qas_id)
        else:
            self.num_windows += len(windows)

    def finish(self, is_training: bool) -> None:
        """Logs the counts; raises InputError if training would drop more than `MAX_DROPPED`."""
        logging.info("%d questions gave %d windows", self.num_questions, self.num_windows)
        total = sum(map(len, self.dropped.values()))
        if not total:
            return
        reasons = "; ".join(
            f"{len(ids)} because {reason}, such as {', '.join(ids[:3])}"
            for reason, ids in self.dropped.items()
        )
        message = f"{total} of {self.num_questions} questions cannot be used: {reasons}"
        if is_training and total > MAX_DROPPED * self.num_questions:
            raise InputError(
                f"{message}. At most {MAX_DROPPED:.0%} may be skipped in training; is this the "
                "vocabulary of the text's language?"
            )
        logging.warning("%s", message)


@dataclasses.dataclass(frozen=True)
class _Paragraph(squad_spans.Alignment):
    """The ids of the T pieces of a paragraph, and its alignment in int32."""

    ids: list[int]


MISMATCH = "the paragraph's pieces do not match its text"
NO_TEXT = "the paragraph has no text"


def check_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Checks that windows of these lengths and strides, in tokens, hold text."""
    if max_query_length < 1 or doc_stride < 1:
        raise InputError(
            f"max_query_length and doc_stride must be at least 1; got {max_query_length} and "
            f"{doc_stride}"
        )
    if max_seq_length <= max_query_length + 3:
        raise InputError(
            f"max_seq_length must be greater than max_query_length + 3, or the longest "
            f"questions leave no room for the text; got {max_seq_length} and "
            f"{max_query_length}"
        )


class Featurizer:
    """Makes the windows of questions.

    Args:
      max_seq_length: S, places of the model's sequence.
      doc_stride: pieces from the start of one window to the next.
      max_query_length: maximum pieces of a question; the rest is cut off at the end.
      is_training: whether to find the places of the answers.
      paragraphs_kept: number of recent paragraphs in the cache.
    """

    def __init__(
        self,
        tokenizer: tokenization.FullTokenizer,
        max_seq_length: int,
        doc_stride: int,
        max_query_length: int,
        is_training: bool,
        paragraphs_kept: int = _PARAGRAPHS,
    ) -> None:
        check_lengths(max_seq_length, doc_stride, max_query_length)
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._doc_stride = doc_stride
        self._max_query_length = max_query_length
        self._is_training = is_training
        self._has_spaces = tokenizer.sp_model is not None  # WordPiece has none
        self._form = functools.cache(self._normalize_character)
        self._symbols = squad_spans.Symbols(self._form)
        self._paragraph = functools.lru_cache(paragraphs_kept)(self._read_paragraph)

    def _normalize_character(self, character: str) -> str:
        """Returns the text that the tokenizer makes of a character."""
        if not self._has_spaces:
            form = "".join(self._tokenizer.basic_tokenizer.tokenize(character))
            return form or " " * character.isspace()  # no space belongs to a piece
        lower = self._tokenizer.do_lower_case
        keeps = self._tokenizer.keep_accents
        return tokenization.preprocess_text(character, False, lower, keeps)

    def _decomposed(self, character: str) -> str:
        """Returns the normalized character with accents as characters of their own."""
        return unicodedata.normalize("NFKD", self._form(character))

    def _split(self, text: str) -> tuple[list[str], list[str]]:
        """Returns the pieces of a text, and the text of each: of an unknown word the word."""
        if self._has_spaces:
            pieces = self._tokenizer.tokenize(text)
            return pieces, [piece.replace(tokenization.WORD_START, " ") for piece in pieces]
        unknown = self._tokenizer.inv_vocab[self._tokenizer.unk_id]
        pieces, texts = [], []
        for word, parts in self._tokenizer.words(text):
            pieces += parts
            # A lone "#" never continues a word: punctuation marks stand alone.
            texts += [
                word if part == unknown else part.removeprefix("##") or part for part in parts
            ]
        return pieces, texts

    def _align(self, text: str, texts: list[str]) -> squad_spans.Alignment | None:
        """Aligns a paragraph's text with those of its pieces; None if too few characters match."""
        if self._has_spaces:
            # Like the reference, which has no WordPiece: one symbol per character.
            symbols = list(text.translate(self._symbols))
            spaces, _ = squad_spans.single_spaces(text, symbols)
            alignment = squad_spans.align(
                "".join(symbols),
                "".join(texts),
                list(map(len, texts)),
                squad_spans.MIN_MATCHED * len(text) + spaces,  # spaces matter below only
            )
            if alignment is not None:
                return alignment
            # This fails for Korean, whose syllables are decomposed (and composed again by some
            # vocabularies), for texts with many vowel signs, which are dropped, and for decomposed
            # texts whose marks are kept. So both sides are decomposed.
            texts = ["".join(self._decomposed(c) or c for c in piece) for piece in texts]
        forms = list(map(self._decomposed if self._has_spaces else self._form, text))
        _, omitted = squad_spans.single_spaces(text, forms) if self._has_spaces else (0, 0)
        countable = sum(map(len, forms if self._has_spaces else texts)) - omitted
        return squad_spans.align_forms(forms, texts, squad_spans.MIN_MATCHED * countable)

    def _read_paragraph(self, text: str) -> _Paragraph | str:
        """Returns the `_Paragraph` of a text, or a string: the reason why it has none."""
        pieces, texts = self._split(text)
        if not pieces:
            return NO_TEXT
        alignment = self._align(text, texts)
        if alignment is None:
            return MISMATCH
        alignment = squad_spans.widen(alignment, graphemes.begins(text))
        return _Paragraph(
            ids=self._tokenizer.convert_tokens_to_ids(pieces),
            **{key: value.astype(np.int32) for key, value in vars(alignment).items()},
        )

    def batch(
        self, examples: Sequence[SquadExample], indices: Iterable[int]
    ) -> list[list[SquadFeatures] | str]:
        """Returns the windows of each question, with unique_id 0, or the reason why it has none.

        `indices` are the numbers of the questions in the input.
        """
        questions = self._tokenizer.encode_batch([example.question_text for example in examples])
        return [
            self._windows(example, question[: self._max_query_length], index)
            for example, question, index in zip(examples, questions, indices, strict=True)
        ]

    def _windows(
        self, example: SquadExample, question: list[int], example_index: int
    ) -> list[SquadFeatures] | str:
        """Makes the windows of a question, given as ids of pieces, or returns why it has none."""
        paragraph = self._paragraph(example.paragraph_text)
        if isinstance(paragraph, str):
            return paragraph
        prefix = [self._tokenizer.cls_id, *question, self._tokenizer.sep_id]
        text_begin = len(prefix)
        room = self._max_seq_length - text_begin - 1
        spans = squad_spans.windows(len(paragraph.ids), room, self._doc_stride)
        ranges = squad_spans.max_context_ranges(spans)
        result = []
        for index, ((start, length), (begin, end)) in enumerate(zip(spans, ranges, strict=True)):
            stop = start + length
            features = SquadFeatures(
                unique_id=0,
                qas_id=None if self._is_training else example.qas_id,
                example_index=None if self._is_training else example_index,
                doc_span_index=index,
                max_seq_length=self._max_seq_length,
                real_ids=[*prefix, *paragraph.ids[start:stop], self._tokenizer.sep_id],
                text_begin=text_begin,
                max_context=(text_begin + begin, text_begin + end),
                piece_start=paragraph.piece_start[start:stop],
                piece_end=paragraph.piece_end[start:stop],
            )
            result.append(features)
        _place_answer(result, spans, self._answer_pieces(example, paragraph))
        if self._is_training:
            for features in result:
                features.start_position, features.end_position = features.answer or (0, 0)
                features.is_impossible = features.answer is None
        return result

    def _answer_pieces(
        self, example: SquadExample, paragraph: _Paragraph
    ) -> tuple[int, int] | None:
        """Returns first and last piece of the answer in the paragraph; None without a place."""
        first, text = example.start_position, example.orig_answer_text
        if not self._is_training:
            first, text = (example.answer_starts or [None])[0], (example.answers or [""])[0]
        if example.is_impossible or first is None or not text:
            return None
        last = first + len(text) - 1
        if last >= len(paragraph.end_piece):
            return None  # The file to predict names a place after the text.
        return int(paragraph.start_piece[first]), int(paragraph.end_piece[last])


def _place_answer(
    windows: Sequence[SquadFeatures],
    spans: Sequence[tuple[int, int]],
    answer: tuple[int, int] | None,
) -> None:
    """Sets the answer's places in the windows that have the whole answer.

    Args:
      spans: (first piece in the paragraph, number of pieces) of each window.
      answer: first and last piece in the paragraph; None: no answer is known.
    """
    for features, (start, length) in zip(windows, spans, strict=True):
        if answer is not None and start <= answer[0] and answer[1] < start + length:
            shift = features.text_begin - start
            features.answer = answer[0] + shift, answer[1] + shift


# Questions with what was made of their windows, or the reason why there are none.
Batch = list[tuple[SquadExample, list | str]]


def convert_examples_to_features(
    examples: Iterable[SquadExample],
    tokenizer: tokenization.FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    do_lower_case: bool,
    report: FeatureReport | None = None,
) -> Iterator[SquadFeatures]:
    """Yields the windows of questions, in order; for the other arguments see `Featurizer`.

    Args:
      do_lower_case: must agree with the tokenizer.
      report: questions without windows are counted there and logged.

    Raises:
      InputError: contradictory lengths, or too many questions dropped in training (at the end).
    """
    if bool(do_lower_case) != bool(tokenizer.do_lower_case):
        raise InputError(
            f"do_lower_case is {do_lower_case} but the tokenizer was made with "
            f"{tokenizer.do_lower_case}"
        )
    featurizer = Featurizer(tokenizer, max_seq_length, doc_stride, max_query_length, is_training)
    report = FeatureReport() if report is None else report
    example_batches = batches(enumerate(examples), featurizer, convert=list)
    return map(_with_unique_id, numbered(example_batches, report, is_training))


def batches(
    numbered_examples: Iterable[tuple[int, SquadExample]],
    featurizer: Featurizer,
    convert: Callable[[list[SquadFeatures]], list],
) -> Iterator[Batch]:
    """Yields batches of examples with their converted windows, or the reason why they have none.

    Args:
      numbered_examples: (number in the input, question) pairs.
      convert: ``(windows of a question) -> items``, one for each window.
    """
    numbered_examples = iter(numbered_examples)
    while batch := list(itertools.islice(numbered_examples, _BATCH)):
        indices, examples = zip(*batch, strict=True)
        results = featurizer.batch(examples, indices)
        yield [
            (example, windows if isinstance(windows, str) else convert(windows))
            for example, windows in zip(examples, results, strict=True)
        ]


def numbered(
    example_batches: Iterable[Batch], report: FeatureReport, is_training: bool
) -> Iterator[tuple[int, Any]]:
    """Yields (unique id, item) for each item of `batches`, and counts them in the report.

    In training, too many questions without windows are an error.
    """
    number = FIRST_UNIQUE_ID
    for batch in example_batches:
        for example, items in batch:
            report.add(example.qas_id, items)
            if not isinstance(items, str):
                yield from enumerate(items, number)
                number += len(items)
    report.finish(is_training)


def _with_unique_id(item: tuple[int, SquadFeatures]) -> SquadFeatures:
    """Returns the window of (unique id, window) with this id."""
    number, features = item
    features.unique_id = number
    return features
