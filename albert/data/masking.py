"""Masks n-grams of words for masked-language-model pre-training, one batch at a time.

Words are chosen for all sequences of a batch at once, so that the cost per sequence is a few
microseconds. Data workers and input pipelines use the same functions, in plain numpy.

Source: ALBERT (Lan et al., 2020), section 4.1, n-gram masking; BERT (Devlin et al., 2019),
section 3.1, the 80/10/10 replacement.
Shapes: B sequences in the batch, S positions, W words of the longest sequence, P predictions.
"""

import dataclasses
import string
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

MASK_FRACTION = 0.8  # of the chosen tokens become [MASK]
KEEP_FRACTION = 0.1  # of the chosen tokens stay; the rest become random vocabulary entries

# Pieces that are single characters and begin a word. An apostrophe also begins one, by the rule for
# characters that are neither in this set nor letters.
PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')
_WORD_CHARACTERS = PUNCTUATION | frozenset(string.ascii_letters)
# First and last characters of scripts that are written without blanks between words: Thai, Lao,
# Tibetan, Burmese, Khmer, kana, Bopomofo, and ideographs.
_WITHOUT_BLANKS = (
    ("\u0e00", "\u109f"),
    ("\u1780", "\u17ff"),
    ("\u2e80", "\u312f"),
    ("\u31a0", "\ua4cf"),
    ("\uf900", "\ufaff"),
    ("\uff66", "\uff9f"),
    ("\U00016fe0", "\U0003ffff"),
)


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """The number of predicted tokens and how they are chosen.

    Attributes:
      masked_lm_prob: fraction of a sequence's tokens to mask, 0 to 1; [CLS] and [SEP] count.
      ngram: longest run of words masked together.
      favor_shorter_ngram: a run of n words has a probability proportional to 1/n; if false, the
        probabilities are reversed.
      do_whole_word_mask: mask all pieces of a word or none; if false every piece is a word.
      do_permutation: choose as many tokens again, outside the masked ones, and permute them.
    """

    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    do_permutation: bool = False

    @property
    def num_slots(self) -> int:
        """P, the length of the prediction lists."""
        return self.max_predictions_per_seq * (2 if self.do_permutation else 1)


def limit_warning(config: MaskingConfig, seq_length: int) -> str | None:
    """Returns a warning if `max_predictions_per_seq` does not allow `masked_lm_prob`, else None."""
    requested = round(seq_length * config.masked_lm_prob)
    if config.max_predictions_per_seq >= 0.9 * requested:
        return None
    return (
        f"max_predictions_per_seq={config.max_predictions_per_seq} allows only "
        f"{config.max_predictions_per_seq / seq_length:.1%} of {seq_length} tokens to be masked, "
        f"but masked_lm_prob={config.masked_lm_prob:g} asks for {requested}; "
        f"max_predictions_per_seq={requested} would allow that"
    )


@dataclasses.dataclass(frozen=True)
class MaskedBatch:
    """A batch with masks.

    Attributes:
      input_ids: [B, S] ids with the replacements.
      positions: [B, P] predicted positions in ascending order, padded with 0.
      labels: [B, P] original ids at these positions, padded with 0.
      num_predictions: [B] number of filled slots.
      num_masked: [B] number of masked tokens among them; the others are permuted.
    """

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    num_predictions: np.ndarray
    num_masked: np.ndarray


def starts_word(piece: str, wordpiece: bool = False) -> bool:
    """Returns whether a vocabulary entry begins a word.

    A SentencePiece entry of letters continues one without "▁", also of letters outside ASCII, which
    all begin words in the reference. In scripts without blanks every entry is a word, as "▁" begins
    sentences there.

    Args:
      wordpiece: continuations are marked "##"; otherwise beginnings are marked "▁".
    """
    if wordpiece:
        return not piece.startswith("##")
    return (
        piece.startswith(("▁", "<"))
        or piece in PUNCTUATION
        or not all(c in _WORD_CHARACTERS or _is_letter_of_words(c) for c in piece)
    )


def _is_letter_of_words(character: str) -> bool:
    """Returns whether a character outside ASCII is a letter, or mark, of a script with blanks."""
    return (
        not character.isascii()
        and unicodedata.category(character)[0] in "LM"
        and not any(first <= character <= last for first, last in _WITHOUT_BLANKS)
    )


def word_start_table(pieces: Iterable[str], wordpiece: bool = False) -> np.ndarray:
    """Returns `starts_word` of each entry of a vocabulary: [V] booleans, by id."""
    return np.array([starts_word(piece, wordpiece) for piece in pieces], dtype=bool)


def ngram_probabilities(ngram: int, favor_shorter: bool = True) -> np.ndarray:
    """Returns the [ngram] probabilities of masking 1, 2, … words together."""
    weights = 1.0 / np.arange(1, ngram + 1)
    weights /= weights.sum()
    return weights if favor_shorter else weights[::-1]


def num_to_predict(lengths: npt.ArrayLike, config: MaskingConfig) -> np.ndarray:
    """Returns how many of [B] tokens to mask, as [B] integers; halves are rounded to even."""
    counts = np.rint(np.asarray(lengths) * config.masked_lm_prob).astype(np.int64)
    return np.minimum(config.max_predictions_per_seq, np.maximum(1, counts))


def choose_words(
    word_lengths: np.ndarray,
    budgets: np.ndarray,
    probabilities: Sequence[float] | np.ndarray,
    rng: np.random.Generator,
    excluded: np.ndarray | None = None,
) -> np.ndarray:
    """Chooses runs of words until each sequence's budget of tokens is used up.

    Words are visited in random order. At each word the length of a run that begins there is drawn.
    The run ends with the sequence, and is cut word by word while it exceeds the rest of the budget.
    It is skipped if it still exceeds the budget or touches an excluded or chosen word.

    Args:
      word_lengths: [B, W] tokens in each word, padded with 0.
      budgets: [B] maximum number of tokens to choose.
      probabilities: probabilities of runs of 1, 2, … words.
      excluded: [B, W] booleans, words that must not be chosen.

    Returns:
      [B, W] booleans, the chosen words.
    """
    num_rows, num_words = word_lengths.shape
    ngram = len(probabilities)
    counts = np.count_nonzero(word_lengths, axis=1)
    word_ends = np.zeros((num_rows, num_words + 1), np.int64)
    np.cumsum(word_lengths, axis=1, out=word_ends[:, 1:])
    keys = rng.random((num_rows, num_words))
    keys[word_lengths == 0] = 2.0
    order = np.argsort(keys, axis=1)
    draws = rng.random((num_rows, num_words), np.float32)
    lengths = 1 + np.searchsorted(np.cumsum(probabilities)[:-1], draws, side="right")

    # Extra columns let a run be looked up beyond the last word without bounds checks.
    blocked = np.zeros((num_rows, num_words + ngram), bool)
    if excluded is not None:
        blocked[:, :num_words] = excluded
    remaining = np.array(budgets)
    rows = np.flatnonzero((remaining > 0) & (counts > 0))
    for visit in range(num_words):
        if rows.size == 0:
            break
        first = order[rows, visit]
        length = np.minimum(lengths[rows, visit], counts[rows] - first)
        start, limit = word_ends[rows, first], remaining[rows]
        tokens = word_ends[rows, first + length] - start
        for _ in range(ngram - 1):
            length -= (tokens > limit) & (length > 1)
            tokens = word_ends[rows, first + length] - start
        fits = tokens <= limit
        for step in range(ngram):
            fits &= ~(blocked[rows, first + step] & (step < length))
        for step in range(ngram):
            hit = fits & (step < length)
            blocked[rows[hit], first[hit] + step] = True
        remaining[rows] = limit - tokens * fits
        rows = rows[(remaining[rows] > 0) & (visit + 1 < counts[rows])]
    selection = blocked[:, :num_words]
    return selection if excluded is None else selection & ~excluded


def _word_indices(word_starts: np.ndarray, maskable: np.ndarray, whole_words: bool) -> np.ndarray:
    """Returns the [B, S] index of the word that each maskable token belongs to.

    A piece that begins no word joins the previous word, also across a [SEP]. The first token of a
    sequence always begins a word.
    """
    starts = (word_starts & maskable) if whole_words else maskable.copy()
    starts[np.arange(len(starts)), maskable.argmax(axis=1)] = True
    return np.cumsum(starts, axis=1) - 1


def _replace(
    input_ids: np.ndarray,
    selection: np.ndarray,
    vocab_size: int,
    mask_id: int,
    rng: np.random.Generator,
) -> None:
    """Replaces the chosen tokens in place by [MASK], themselves or random entries."""
    labels = input_ids[selection]
    draws = rng.random(labels.size)
    replaced = np.where(draws < MASK_FRACTION, mask_id, labels)
    at_random = draws >= MASK_FRACTION + KEEP_FRACTION
    replaced[at_random] = rng.integers(vocab_size, size=np.count_nonzero(at_random))
    input_ids[selection] = replaced


def _permute(input_ids: np.ndarray, selection: np.ndarray, rng: np.random.Generator) -> None:
    """Permutes the chosen tokens [B, S], true in `selection`, of each sequence in place."""
    rows, columns = np.nonzero(selection)
    order = np.lexsort((rng.random(rows.size), rows))
    input_ids[rows, columns] = input_ids[rows, columns[order]]


def mask_batch(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    word_starts: np.ndarray,
    maskable: np.ndarray,
    config: MaskingConfig,
    vocab_size: int,
    mask_id: int,
    rng: np.random.Generator,
) -> MaskedBatch:
    """Chooses tokens to predict and replaces them.

    Args:
      input_ids: [B, S] integers.
      lengths: [B] number of tokens of each sequence, with [CLS] and [SEP].
      word_starts: [B, S] booleans, whether a token begins a word; see `starts_word`.
      maskable: [B, S] booleans, false at [CLS], [SEP] and padding.
      vocab_size: V; random replacements are drawn from all V entries.

    Returns:
      `MaskedBatch`; `input_ids` itself does not change.
    """
    num_rows = len(input_ids)
    words = _word_indices(word_starts, maskable, config.do_whole_word_mask)
    num_words = int(words.max(initial=0)) + 1
    flat = (words + num_words * np.arange(num_rows)[:, None])[maskable]
    word_lengths = np.bincount(flat, minlength=num_rows * num_words).reshape(-1, num_words)

    budgets = num_to_predict(lengths, config)
    probabilities = ngram_probabilities(config.ngram, config.favor_shorter_ngram)
    masked_words = choose_words(word_lengths, budgets, probabilities, rng)
    masked = np.take_along_axis(masked_words, words, axis=1) & maskable
    output = input_ids.copy()
    _replace(output, masked, vocab_size, mask_id, rng)
    predicted = masked
    if config.do_permutation:
        moved_words = choose_words(word_lengths, budgets, probabilities, rng, excluded=masked_words)
        moved = np.take_along_axis(moved_words, words, axis=1) & maskable
        _permute(output, moved, rng)
        predicted = masked | moved

    rows, columns = np.nonzero(predicted)
    num_predictions = np.count_nonzero(predicted, axis=1)
    slots = np.arange(rows.size) - np.repeat(
        np.cumsum(num_predictions) - num_predictions, num_predictions
    )
    positions = np.zeros((num_rows, config.num_slots), np.int64)
    labels = np.zeros((num_rows, config.num_slots), np.int64)
    positions[rows, slots] = columns
    labels[rows, slots] = input_ids[rows, columns]
    return MaskedBatch(output, positions, labels, num_predictions, np.count_nonzero(masked, axis=1))
