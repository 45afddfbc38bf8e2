"""N-gram masking for masked-language-model pre-training, a batch of sequences at a time.

Words are chosen for all sequences of a batch side by side, so that the cost per sequence is a few
microseconds of numpy; there is no second, slower path. Plain numpy: data workers and input
pipelines use the same functions.

Source: ALBERT (Lan et al., 2020), section 4.1, n-gram masking; BERT (Devlin et al., 2019),
section 3.1, the 80/10/10 replacement.
Shapes: B sequences in the batch, S positions, W words of the longest sequence, P predictions.
"""

import dataclasses
import string

import numpy as np

MASK_SHARE = 0.8  # of the chosen tokens become [MASK] …
KEEP_SHARE = 0.1  # … and as many stay as they are; the rest become random vocabulary entries

# Pieces that stand for themselves and so begin a word. An apostrophe begins one too, by the rule
# for characters that are neither in this set nor letters.
PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')
_WORD_CHARACTERS = PUNCTUATION | frozenset(string.ascii_letters)


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are predicted and how they are chosen.

    Attributes:
      max_predictions_per_seq: most tokens masked in one sequence.
      masked_lm_prob: share of a sequence's tokens ([CLS] and [SEP] counted) to mask, 0 to 1.
      ngram: longest run of words masked together.
      favor_shorter_ngram: a run of n words has probability proportional to 1/n; if false the same
        probabilities in reverse order.
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
    def num_slots(self):
        """P, the length of the prediction lists."""
        return self.max_predictions_per_seq * (2 if self.do_permutation else 1)


def share_warning(config, seq_length):
    """A warning where `max_predictions_per_seq` stands against `masked_lm_prob`, else None.

    Args:
      config: `MaskingConfig`.
      seq_length: S.
    """
    wanted = round(seq_length * config.masked_lm_prob)
    if config.max_predictions_per_seq >= 0.9 * wanted:
        return None
    return (
        f"max_predictions_per_seq={config.max_predictions_per_seq} allows only "
        f"{config.max_predictions_per_seq / seq_length:.1%} of {seq_length} tokens to be masked, "
        f"but masked_lm_prob={config.masked_lm_prob:g} asks for {wanted}; "
        f"max_predictions_per_seq={wanted} would allow that"
    )


@dataclasses.dataclass(frozen=True)
class MaskedBatch:
    """What `mask_batch` makes.

    Attributes:
      input_ids: [B, S], with the replacements.
      positions: [B, P] predicted positions in ascending order, padded with 0.
      labels: [B, P] the original ids there, padded with 0.
      num_predictions: [B] filled slots.
      num_masked: [B] of which masked (the others are permuted).
    """

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    num_predictions: np.ndarray
    num_masked: np.ndarray


def starts_word(piece, wordpiece=False):
    """True if a vocabulary entry begins a word.

    Args:
      piece: SentencePiece or WordPiece vocabulary entry.
      wordpiece: continuations are marked "##"; otherwise beginnings are marked "▁".
    """
    if wordpiece:
        return not piece.startswith("##")
    return (
        piece.startswith(("▁", "<"))
        or piece in PUNCTUATION
        or not _WORD_CHARACTERS.issuperset(piece)
    )


def word_start_table(pieces, wordpiece=False):
    """`starts_word` of each entry of a vocabulary, as [V] booleans to be indexed by ids."""
    return np.array([starts_word(piece, wordpiece) for piece in pieces], dtype=bool)


def ngram_probabilities(ngram, favor_shorter=True):
    """[ngram] probabilities of masking 1, 2, … words together."""
    weights = 1.0 / np.arange(1, ngram + 1)
    weights /= weights.sum()
    return weights if favor_shorter else weights[::-1]


def num_to_predict(lengths, config):
    """[B] tokens to mask in sequences of [B] tokens; halves are rounded to even."""
    wanted = np.rint(np.asarray(lengths) * config.masked_lm_prob).astype(np.int64)
    return np.minimum(config.max_predictions_per_seq, np.maximum(1, wanted))


def choose_words(word_lengths, budgets, probabilities, rng, taken=None):
    """Chooses runs of words until each sequence's budget of tokens is used up.

    Words are visited in random order. At each the length of a run that begins there is drawn; the
    run ends with the sequence, is cut word by word while it exceeds what is left of the budget,
    and is passed over if it still does or touches a word already taken.

    Args:
      word_lengths: [B, W] tokens in each word, padded with 0.
      budgets: [B] most tokens to choose.
      probabilities: probabilities of runs of 1, 2, … words.
      rng: numpy Generator.
      taken: [B, W] booleans, words that must not be chosen.

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
    if taken is not None:
        blocked[:, :num_words] = taken
    chosen = np.zeros_like(blocked)
    left = np.array(budgets)
    rows = np.flatnonzero((left > 0) & (counts > 0))
    for visit in range(num_words):
        if rows.size == 0:
            break
        first = order[rows, visit]
        length = np.minimum(lengths[rows, visit], counts[rows] - first)
        start, room = word_ends[rows, first], left[rows]
        tokens = word_ends[rows, first + length] - start
        for _ in range(ngram - 1):
            length -= (tokens > room) & (length > 1)
            tokens = word_ends[rows, first + length] - start
        fits = tokens <= room
        for step in range(ngram):
            fits &= ~(blocked[rows, first + step] & (step < length))
        for step in range(ngram):
            hit = fits & (step < length)
            blocked[rows[hit], first[hit] + step] = True
            chosen[rows[hit], first[hit] + step] = True
        left[rows] = room - tokens * fits
        rows = rows[(left[rows] > 0) & (visit + 1 < counts[rows])]
    return chosen[:, :num_words]


def _word_indices(word_starts, maskable, whole_words):
    """[B, S] index of the word that each maskable token belongs to.

    A piece that begins no word joins the word before it, across a [SEP] too; the first token of a
    sequence always begins one.
    """
    starts = (word_starts & maskable) if whole_words else maskable.copy()
    starts[np.arange(len(starts)), maskable.argmax(axis=1)] = True
    return np.cumsum(starts, axis=1) - 1


def _replace(input_ids, chosen, vocab_size, mask_id, rng):
    """Puts [MASK], the token itself or a random entry at the chosen places, in place."""
    labels = input_ids[chosen]
    draws = rng.random(labels.size)
    replaced = np.where(draws < MASK_SHARE, mask_id, labels)
    at_random = draws >= MASK_SHARE + KEEP_SHARE
    replaced[at_random] = rng.integers(vocab_size, size=np.count_nonzero(at_random))
    input_ids[chosen] = replaced


def _permute(input_ids, chosen, rng):
    """Permutes the tokens at the chosen places within each sequence, in place."""
    rows, columns = np.nonzero(chosen)
    order = np.lexsort((rng.random(rows.size), rows))
    input_ids[rows, columns] = input_ids[rows, columns[order]]


def mask_batch(input_ids, lengths, word_starts, maskable, config, vocab_size, mask_id, rng):
    """Chooses tokens to predict and replaces them.

    Args:
      input_ids: [B, S] integers.
      lengths: [B] tokens of each sequence, [CLS] and [SEP] counted.
      word_starts: [B, S] booleans, the token begins a word; see `starts_word`.
      maskable: [B, S] booleans, false at [CLS], [SEP] and padding.
      config: `MaskingConfig`.
      vocab_size: V; random replacements are drawn from all V entries.
      mask_id: id of [MASK].
      rng: numpy Generator, the only source of chance.

    Returns:
      `MaskedBatch`; `input_ids` itself is left as it is.
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
        moved_words = choose_words(word_lengths, budgets, probabilities, rng, taken=masked_words)
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
