"""Divides tokenized documents into inputs of pre-training, in several formats.

Sources: ALBERT (Lan et al., 2020), section 4.1 (lengths); RoBERTa (Liu et al., 2019), section 4.2
(the formats). `sentence_pairs` draws the pairs of the first two formats and their labels.
Shapes: B inputs, N spans of all inputs, S positions, D documents, K sentences or pieces of them.
"""

import collections
import dataclasses
import functools
import random
from collections.abc import Callable

import numpy as np

from albert.data import sentence_pairs
from albert.io import file_io
from albert.text import model_inputs

_ONE_TEXT = ("full_sentences", "doc_sentences")  # formats without a second text
NUM_SPECIALS = 3  # [CLS] A [SEP] B [SEP]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Format and lengths of inputs.

    Attributes:
      short_seq_prob: fraction of documents (per pass) whose target length is random, 2..S-3
        tokens; only of segment pairs.
      sentence_task: "reference", "sop", "nsp" or "none"; see `sentence_pairs.draw_pairs`.
      sequence_format: a name in `FORMATS`; see `draw_inputs`.
    """

    max_seq_length: int = 512
    short_seq_prob: float = 0.1
    sentence_task: str = "reference"
    sequence_format: str = dataclasses.field(default="segment_pair", kw_only=True)

    def __post_init__(self) -> None:
        name, task = self.sequence_format, self.sentence_task
        if self.max_seq_length < 5:
            raise file_io.InputError(
                f"max_seq_length={self.max_seq_length} must be at least 5: [CLS] A [SEP] B [SEP]"
            )
        if name not in FORMATS:
            raise file_io.InputError(f"sequence_format={name} must be one of {', '.join(FORMATS)}")
        if task != "none" and not has_sentence_task(name):
            raise file_io.InputError(
                f"sentence_task={task} (or random_next_sentence) contradicts "
                f"sequence_format={name}, whose inputs have no second text; omit it or choose "
                f"{' or '.join(filter(has_sentence_task, FORMATS))}"
            )

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of A and B together."""
        return self.max_seq_length - NUM_SPECIALS


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Inputs as spans of the text, each [CLS] span [SEP] span [SEP] …; no span is empty.

    Attributes:
      spans: [N, 2] begin and end of each span as places in `sentence_pairs.Documents.tokens`.
      segment_ids: [N] segment of each span and of the [SEP] after it; [CLS] has that of the first.
      offsets: [B + 1] first span of each input, and the end of the last.
      labels: [B] labels of the sentence task.
    """

    spans: np.ndarray
    segment_ids: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> "Inputs":
        """Returns the inputs from number `start` to before `stop`."""
        offsets = self.offsets[start : stop + 1]
        first, last = offsets[0], offsets[-1]
        return Inputs(
            self.spans[first:last],
            self.segment_ids[first:last],
            offsets - first,
            self.labels[start:stop],
        )


Drawn = tuple[Inputs, collections.Counter[str]]  # inputs, counts of special cases


def has_sentence_task(sequence_format: str) -> bool:
    """Returns whether inputs of the format have a second text, as a sentence task needs."""
    return sequence_format not in _ONE_TEXT


def longest_sentence(settings: Settings) -> int:
    """Returns the maximum tokens of a sentence in formats that cut longer ones into pieces."""
    if settings.sequence_format == "sentence_pair":
        return settings.max_tokens // 2  # so that any two fit
    return settings.max_seq_length - 2


def typical_tokens(settings: Settings) -> int:
    """Estimates the number of tokens of text in an input."""
    # Two sentences of English prose have about 50.
    usual = 50 if settings.sequence_format == "sentence_pair" else settings.max_tokens
    return min(usual, settings.max_tokens)


def draw_inputs(
    documents: sentence_pairs.Documents, settings: Settings, rng: np.random.Generator
) -> Drawn:
    """Divides documents into inputs, in the format of the settings.

    * "segment_pair": A and B of one or more sentences each, see `sentence_pairs.draw_pairs`;
      tokens that do not fit are cut off.
    * "sentence_pair": A and B of one sentence each, see `sentence_pairs.draw_pairs`.
    * "full_sentences": sentences one after another until the next does not fit, with an extra [SEP]
      between documents. No sentence task.
    * "doc_sentences": the same, but an input ends with its document.

    In the last two, documents are in random order and every token is in exactly one input. In all
    but the first, a sentence of more than `longest_sentence` tokens is cut into pieces of that
    length, which then count as sentences.
    """
    return FORMATS[settings.sequence_format](documents, settings, rng)


def pairs_as_inputs(pairs: np.ndarray) -> Inputs:
    """Returns the `Inputs` of the pairs of `sentence_pairs.draw_pairs`; an empty B is no span."""
    spans = pairs[:, :4].reshape(-1, 2)
    filled = spans[:, 0] < spans[:, 1]
    offsets = np.concatenate([[0], np.cumsum(filled.reshape(-1, 2).sum(axis=1))])
    return Inputs(spans[filled], np.tile([0, 1], len(pairs))[filled], offsets, pairs[:, 4])


def _segment_pairs(
    documents: sentence_pairs.Documents, settings: Settings, rng: np.random.Generator
) -> Drawn:
    pairs, counts = sentence_pairs.draw_pairs(
        documents,
        settings.sentence_task,
        random.Random(int(rng.integers(1 << 62))),
        settings.max_tokens,
        settings.short_seq_prob,
    )
    model_inputs.truncate_spans_at_both_ends(pairs, settings.max_tokens, rng)
    return pairs_as_inputs(pairs), counts


def _sentence_pairs(
    documents: sentence_pairs.Documents, settings: Settings, rng: np.random.Generator
) -> Drawn:
    offsets, bounds, counts = _cut_sentences(documents, longest_sentence(settings))
    pieces = dataclasses.replace(
        documents, sentence_offsets=offsets.tolist(), document_offsets=bounds.tolist()
    )
    pairs, special = sentence_pairs.draw_pairs(
        pieces, settings.sentence_task, random.Random(int(rng.integers(1 << 62)))
    )
    return pairs_as_inputs(pairs), counts + special


def _cut_sentences(
    documents: sentence_pairs.Documents, longest: int
) -> tuple[np.ndarray, np.ndarray, collections.Counter[str]]:
    """Cuts long sentences into pieces of `longest` tokens; the last piece may be shorter.

    Returns:
      (sentence offsets [K + 1], document offsets [D + 1], Counter); the offsets are as in
      `sentence_pairs.Documents`.
    """
    begins = np.array(documents.sentence_offsets)
    num_pieces = -(-np.diff(begins) // longest)
    first_piece = np.concatenate([[0], np.cumsum(num_pieces)])
    earlier = np.arange(first_piece[-1]) - np.repeat(first_piece[:-1], num_pieces)
    offsets = np.append(np.repeat(begins[:-1], num_pieces) + longest * earlier, begins[-1])
    cut = num_pieces[num_pieces > 1]
    counts = collections.Counter(long_sentences=len(cut), pieces=int(cut.sum()))
    return offsets, first_piece[documents.document_offsets], counts


def _reorder(
    offsets: np.ndarray, bounds: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Puts documents of sentence offsets [K + 1] and bounds [D + 1] into an order of numbers [D].

    Returns:
      (begins [K], sizes [K] in tokens, bounds [D + 1]) of the sentences in that order.
    """
    num_sentences = np.diff(bounds)[order]
    new_bounds = np.concatenate([[0], np.cumsum(num_sentences)])
    sentences = np.arange(len(offsets) - 1)
    sentences += np.repeat(bounds[:-1][order] - new_bounds[:-1], num_sentences)
    return offsets[sentences], np.diff(offsets)[sentences], new_bounds


def _full_sentences(
    documents: sentence_pairs.Documents,
    settings: Settings,
    rng: np.random.Generator,
    across_documents: bool = True,
) -> Drawn:
    room = longest_sentence(settings)
    offsets, bounds, counts = _cut_sentences(documents, room)
    order = rng.permutation(len(bounds) - 1)
    begins, sizes, bounds = _reorder(offsets, bounds, order)

    # Positions used before each sentence, with a [SEP] before every document. An input that begins
    # with a document does not need that one.
    separators = np.zeros(len(sizes), np.int64)
    separators[bounds[:-1]] = 1
    positions = np.concatenate([[0], np.cumsum(sizes + separators)])
    ends = np.searchsorted(positions, positions[:-1] + separators + room, side="right") - 1
    if not across_documents:
        ends = np.minimum(ends, np.repeat(bounds[1:], np.diff(bounds)))
    firsts, place, next_first = [], 0, ends.tolist()
    while place < len(sizes):
        firsts.append(place)
        place = next_first[place]

    starts = np.union1d(np.array(firsts, np.int64), bounds[:-1])  # of spans
    tokens_before = np.concatenate([[0], np.cumsum(sizes)])
    lengths = np.diff(tokens_before[np.append(starts, len(sizes))])
    spans = np.stack([begins[starts], begins[starts] + lengths], axis=1)
    input_offsets = np.append(np.searchsorted(starts, firsts), len(starts))
    zeros = np.zeros(len(starts), np.int64)
    return Inputs(spans, zeros, input_offsets, zeros[: len(firsts)]), counts


FORMATS: dict[str, Callable[..., Drawn]] = {
    "segment_pair": _segment_pairs,
    "sentence_pair": _sentence_pairs,
    "full_sentences": _full_sentences,
    "doc_sentences": functools.partial(_full_sentences, across_documents=False),
}
