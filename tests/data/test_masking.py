"""Masking: invariants on arbitrary batches, and the stated probabilities."""

import collections
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from albert.data import masking

VOCAB_SIZE, MASK_ID, CLS_ID, SEP_ID = 50, 4, 2, 3
P_THRESHOLD = 1e-3  # seeds are fixed, so a test that passes once passes always


@pytest.mark.parametrize(
    "piece, expected",
    [
        ("▁word", True),
        ("<unk>", True),
        ("<", True),
        (",", True),
        ("'", True),
        ("€", True),
        ("…", True),
        ("7", True),
        ("ab7", True),
        ("ab.c", False),
        ("..", False),  # two marks: neither a single mark nor a foreign character
        ("é", False),
        ("ing", False),
        ("ING", False),
    ],
)
def test_sentencepiece_word_starts(piece, expected):
    assert masking.starts_word(piece) is expected


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ("▁Вс е ▁люд и ▁рожда ют ся", 3),
        ("▁γεν ν ιού νται ▁ίσο ι", 2),
        ("▁يولد ▁ج ميع", 2),
        ("▁मनुष्य ों ▁को", 2),
        ("▁W ü rde ▁und – £ 5", 5),
        ("▁모 든 ▁인간 은", 2),
        ("▁人人 生 而 自由 。", 5),  # every piece is a word in scripts without blanks
        ("▁すべて の 人間", 3),
        ("▁มนุษย์ ทั้งหลาย", 2),
    ],
)
def test_words_outside_ascii_begin_at_their_blanks(pieces, words):
    assert masking.word_start_table(pieces.split()).sum() == words


def test_wordpiece_word_starts():
    assert not masking.starts_word("##ing", wordpiece=True)
    assert masking.starts_word("ing", wordpiece=True)
    assert masking.word_start_table(["a", "##b"], wordpiece=True).tolist() == [True, False]


def test_ngram_probabilities():
    np.testing.assert_allclose(masking.ngram_probabilities(3), np.array([6, 3, 2]) / 11)
    np.testing.assert_allclose(masking.ngram_probabilities(3, False), np.array([2, 3, 6]) / 11)
    assert masking.ngram_probabilities(1).tolist() == [1.0]


@pytest.mark.parametrize(
    "length, expected", [(3, 1), (10, 2), (30, 4), (50, 8), (128, 19), (134, 20), (512, 20)]
)
def test_number_to_predict_rounds_halves_to_even_and_is_capped(length, expected):
    config = masking.MaskingConfig(max_predictions_per_seq=20, masked_lm_prob=0.15)
    # 10 * 0.15 = 1.5 -> 2; 30 * 0.15 = 4.5 -> 4; 50 * 0.15 = 7.5 -> 8
    assert masking.num_to_predict([length], config).tolist() == [expected]


def one_row(word_lengths):
    return np.array([word_lengths])


def test_a_run_that_exceeds_the_budget_is_cut_and_else_passed_over():
    rng = np.random.default_rng(0)
    always_three = np.array([0.0, 0.0, 1.0])
    # A budget of 2 cuts every run of three one-token words to two (or to one at the very end).
    for _ in range(50):
        chosen = masking.choose_words(one_row([1, 1, 1, 1]), [2], always_three, rng)
        assert chosen.sum() == 2
    # Words of three tokens never fit in a budget of two.
    assert not masking.choose_words(one_row([3, 3, 3]), [2], always_three, rng).any()


def test_runs_do_not_touch_taken_words():
    rng = np.random.default_rng(1)
    taken = np.array([[False, True, False, False]])
    outcomes = set()
    for _ in range(100):
        chosen = masking.choose_words(
            one_row([1, 1, 1, 1]), [4], masking.ngram_probabilities(3), rng, taken
        )
        outcomes.add(tuple(np.flatnonzero(chosen).tolist()))
    # A run of two or three from word 2 is skipped, not cut, when word 3 is chosen already;
    # from word 0 it always meets the taken word.
    assert outcomes == {(0, 2, 3), (0, 3), (2, 3), (3,)}


def test_every_word_is_equally_likely_to_be_first():
    rng = np.random.default_rng(2)
    chosen = masking.choose_words(
        np.ones((20000, 8), int), np.full(20000, 1), masking.ngram_probabilities(3), rng
    )
    assert (chosen.sum(axis=1) == 1).all()
    assert stats.chisquare(chosen.sum(axis=0)).pvalue > P_THRESHOLD


def test_at_the_end_the_length_is_drawn_from_all_lengths_and_then_cut():
    rng = np.random.default_rng(3)
    num_rows = 20000
    probabilities = masking.ngram_probabilities(3, favor_shorter=False)
    # The last word alone is chosen if it is visited before the one in front of it and that one's
    # run is longer than one word. (Drawn among the lengths that fit, that would be 3/5, not 9/11.)
    chosen = masking.choose_words(
        np.tile([5, 1, 1], (num_rows, 1)), np.full(num_rows, 3), probabilities, rng
    )
    assert not chosen[:, 0].any() and chosen[:, 2].all()
    only_last = np.count_nonzero(~chosen[:, 1])
    assert stats.binomtest(only_last, num_rows, 9 / 22).pvalue > P_THRESHOLD


def run_lengths(row):
    """Lengths of the runs of True in a sequence of booleans."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(row, int), [0]])))
    return edges[1::2] - edges[::2]


@pytest.mark.parametrize("favor_shorter", [True, False])
def test_run_lengths_follow_the_probabilities(favor_shorter):
    rng = np.random.default_rng(4)
    num_rows, num_words = 6000, 1000  # so long that runs hardly ever touch
    probabilities = masking.ngram_probabilities(3, favor_shorter)
    kinds = collections.Counter()
    for _ in range(num_rows // 500):
        chosen = masking.choose_words(
            np.ones((500, num_words), int), np.full(500, 3), probabilities, rng
        )
        kinds.update(tuple(sorted(run_lengths(row).tolist())) for row in chosen)
    p1, p2, p3 = probabilities
    # First a run of 3; or 2, then anything cut to 1; or 1, then 1 and anything, or more cut to 2.
    expected = {(3,): p3, (1, 2): p2 + p1 * (p2 + p3), (1, 1, 1): p1 * p1}
    shares = [kinds[kind] / num_rows for kind in expected]
    np.testing.assert_allclose(shares, list(expected.values()), atol=0.02)


# --- mask_batch -------------------------------------------------------------------------------


@st.composite
def batches(draw):
    """(input_ids, lengths, word_starts, maskable) of a few sequences [CLS] A [SEP] B [SEP]."""
    shapes = draw(
        st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=5)
    )
    seq_length = max(a + b + 3 for a, b in shapes) + draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    input_ids = np.zeros((len(shapes), seq_length), int)
    maskable = np.zeros_like(input_ids, bool)
    lengths = []
    for row, (a, b) in enumerate(shapes):
        length = a + 2 + (b + 1 if b else 0)
        input_ids[row, :length] = rng.integers(5, VOCAB_SIZE, length)
        maskable[row, 1 : length - 1] = True
        for place, token in ((0, CLS_ID), (a + 1, SEP_ID), (length - 1, SEP_ID)):
            input_ids[row, place], maskable[row, place] = token, False
        lengths.append(length)
    word_starts = rng.random(input_ids.shape) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    return input_ids, np.array(lengths), word_starts, maskable


configs = st.builds(
    masking.MaskingConfig,
    max_predictions_per_seq=st.integers(1, 12),
    masked_lm_prob=st.floats(0, 1),
    ngram=st.integers(1, 5),
    favor_shorter_ngram=st.booleans(),
    do_whole_word_mask=st.booleans(),
    do_permutation=st.booleans(),
)


def words_of(word_starts, maskable):
    """Lists of positions of each word: a piece that begins none joins the one before."""
    words = []
    for position in np.flatnonzero(maskable):
        if words and not word_starts[position]:
            words[-1].append(position)
        else:
            words.append([position])
    return words


@hypothesis.given(batches(), configs, st.integers(0, 10**6))
@hypothesis.settings(deadline=None, max_examples=150)
def test_invariants(batch, config, seed):
    input_ids, lengths, word_starts, maskable = batch
    before = input_ids.copy()
    masked = masking.mask_batch(*batch, config, VOCAB_SIZE, MASK_ID, np.random.default_rng(seed))
    np.testing.assert_array_equal(input_ids, before)
    budgets = masking.num_to_predict(lengths, config)
    for row in range(len(input_ids)):
        count = masked.num_predictions[row]
        positions, labels = masked.positions[row, :count], masked.labels[row, :count]
        # Nothing twice, in order, never a special token, nothing else changed, text restored.
        assert (np.diff(positions) > 0).all()
        assert maskable[row, positions].all()
        np.testing.assert_array_equal(labels, input_ids[row, positions])
        restored = masked.input_ids[row].copy()
        restored[positions] = labels
        np.testing.assert_array_equal(restored, input_ids[row])
        # Padding, budgets.
        assert not masked.positions[row, count:].any()
        assert not masked.labels[row, count:].any()
        assert masked.num_masked[row] <= budgets[row]
        assert count - masked.num_masked[row] <= budgets[row] * config.do_permutation
        if config.do_whole_word_mask:
            for word in words_of(word_starts[row], maskable[row]):
                assert len(np.intersect1d(word, positions)) in (0, len(word))


@hypothesis.given(batches(), st.integers(0, 10**6))
@hypothesis.settings(deadline=None, max_examples=50)
def test_budget_is_used_up_when_single_tokens_may_be_chosen(batch, seed):
    config = masking.MaskingConfig(do_whole_word_mask=False, masked_lm_prob=0.3, ngram=1)
    rng = np.random.default_rng(seed)
    masked = masking.mask_batch(*batch, config, VOCAB_SIZE, MASK_ID, rng)
    expected = np.minimum(masking.num_to_predict(batch[1], config), batch[3].sum(axis=1))
    np.testing.assert_array_equal(masked.num_masked, expected)


@hypothesis.given(batches(), st.integers(0, 10**6))
@hypothesis.settings(deadline=None, max_examples=50)
def test_permutation_keeps_the_tokens_outside_the_masked_ones(batch, seed):
    config = masking.MaskingConfig(do_permutation=True, masked_lm_prob=0.3, ngram=2)
    # No replacement: what differs between input and output was permuted.
    masked = masking.mask_batch(*batch, config, VOCAB_SIZE, MASK_ID, np.random.default_rng(seed))
    plain = masking.mask_batch(
        *batch,
        masking.MaskingConfig(masked_lm_prob=0.3, ngram=2),
        VOCAB_SIZE,
        MASK_ID,
        np.random.default_rng(seed),
    )
    for row, ids in enumerate(batch[0]):
        first = plain.positions[row, : plain.num_predictions[row]]
        every = masked.positions[row, : masked.num_predictions[row]]
        assert set(first) <= set(every)  # the same draws choose the masked tokens
        moved = np.setdiff1d(every, first)
        np.testing.assert_array_equal(np.sort(masked.input_ids[row, moved]), np.sort(ids[moved]))


def test_a_word_reaches_across_the_separator():
    # B begins inside a word (its front was cut off): its first piece goes with A's last word.
    input_ids = np.array([[CLS_ID, 10, 11, SEP_ID, 12, 13, SEP_ID]])
    word_starts = np.array([[True, True, True, True, False, True, True]])
    maskable = np.array([[False, True, True, False, True, True, False]])
    config = masking.MaskingConfig(max_predictions_per_seq=2, masked_lm_prob=1.0, ngram=1)
    seen = set()
    for seed in range(40):
        masked = masking.mask_batch(
            input_ids,
            np.array([7]),
            word_starts,
            maskable,
            config,
            VOCAB_SIZE,
            MASK_ID,
            np.random.default_rng(seed),
        )
        seen.add(tuple(masked.positions[0, : masked.num_predictions[0]].tolist()))
    assert seen == {(2, 4), (1, 5)}


def test_replacements_are_80_10_10_over_the_whole_vocabulary():
    rng = np.random.default_rng(5)
    input_ids = np.full((2000, 64), 7)
    everywhere = np.ones_like(input_ids, bool)
    config = masking.MaskingConfig(max_predictions_per_seq=64, masked_lm_prob=0.5)
    masked = masking.mask_batch(
        input_ids, np.full(2000, 64), everywhere, everywhere, config, VOCAB_SIZE, MASK_ID, rng
    )
    assert (masked.num_masked == 32).all()
    counts = np.bincount(
        masked.input_ids[np.arange(2000)[:, None], masked.positions[:, :32]].ravel(),
        minlength=VOCAB_SIZE,
    )
    expected = np.full(VOCAB_SIZE, 0.1 / VOCAB_SIZE)
    expected[MASK_ID] += 0.8
    expected[7] += 0.1
    assert stats.chisquare(counts, expected * counts.sum()).pvalue > P_THRESHOLD


def test_the_generator_is_the_only_source_of_chance():
    ids = np.arange(5, 45).reshape(1, 40)
    everywhere = np.ones_like(ids, bool)
    arguments = (ids, np.array([40]), everywhere, everywhere, masking.MaskingConfig(), 50, 4)
    first, second, other = (
        masking.mask_batch(*arguments, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.input_ids, second.input_ids)
    assert (first.input_ids != other.input_ids).any()


def test_an_empty_batch_and_a_sequence_without_text():
    config = masking.MaskingConfig()
    for rows in (0, 2):
        ids = np.full((rows, 5), SEP_ID)
        nowhere = np.zeros_like(ids, bool)
        masked = masking.mask_batch(
            ids, np.full(rows, 2), nowhere, nowhere, config, 50, 4, np.random.default_rng(0)
        )
        assert masked.num_predictions.tolist() == [0] * rows
        np.testing.assert_array_equal(masked.input_ids, ids)


@pytest.mark.parametrize(
    "max_predictions, length, expected",
    [(20, 128, None), (20, 512, "only 3.9% of 512 tokens .* asks for 77"), (17, 128, "13.3%")],
)
def test_warning_where_max_predictions_cuts_the_masked_share(max_predictions, length, expected):
    warning = masking.limit_warning(masking.MaskingConfig(max_predictions), length)
    if expected is None:
        assert warning is None
    else:
        assert re.search(expected, warning)
