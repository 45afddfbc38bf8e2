"""Documents become inputs: nothing lost, nothing twice, the right [SEP]s, pieces, lengths."""

import collections
import random

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from albert.data import instances, sentence_pairs, sequence_formats
from albert.io import file_io
from tests.support.builders import make_documents

P_THRESHOLD = 1e-3  # seeds are fixed, so a test that passes once passes always


def draw(documents, seed=0, **settings):
    settings = instances.Settings(**{"short_seq_prob": 0.0, **settings})
    return sentence_pairs.draw_pairs(
        documents,
        settings.sentence_task,
        random.Random(seed),
        settings.max_tokens,
        settings.short_seq_prob,
    )


# --- pairs ------------------------------------------------------------------------------------


def test_sentences_are_collected_until_the_target_is_reached():
    # Target 10: sentences of 4 are collected in threes.
    pairs, counts = draw(make_documents([4] * 7), max_seq_length=13, sentence_task="none")
    assert len(pairs) == 3
    assert pairs[:2, 0].tolist() == [0, 12]
    assert pairs[:2, 3].tolist() == [12, 24]
    assert (pairs[:2, 1] == pairs[:2, 2]).all()
    # The last sentence is alone: A without B.
    assert pairs[2].tolist() == [24, 28, 28, 28, 0]
    assert counts == {"single_sentences_without_b": 1}


def test_split_point_is_uniform():
    documents = make_documents([1] * 4000)
    pairs, _ = draw(documents, max_seq_length=13, sentence_task="none")
    lengths = np.bincount(pairs[:, 1] - pairs[:, 0], minlength=10)
    assert lengths[0] == 0 and len(lengths) == 10
    assert stats.chisquare(lengths[1:]).pvalue > P_THRESHOLD


@pytest.mark.parametrize("task", ["reference", "sop"])
def test_sentence_order_swaps_half_of_the_pairs(task):
    pairs, counts = draw(make_documents([5] * 4000), max_seq_length=13, sentence_task=task)
    assert len(pairs) == 2000 and not counts
    swapped = pairs[:, 2] < pairs[:, 0]
    np.testing.assert_array_equal(pairs[:, 4], swapped)
    assert stats.binomtest(int(swapped.sum()), 2000).pvalue > P_THRESHOLD


def test_reference_gives_a_sentence_alone_a_random_next_text_with_label_1():
    documents = make_documents([30], [2, 2, 2, 2, 2], [1])
    pairs, counts = draw(documents, max_seq_length=13, sentence_task="reference")
    by_start = {pair[0]: pair for pair in pairs.tolist()}
    assert by_start[0][1] == 30 and by_start[0][2] >= 30 and by_start[0][4] == 1
    assert by_start[40][1] == 41 and by_start[40][3] <= 40 and by_start[40][4] == 1
    assert counts["random_next"] == counts["random_next_single_sentence"] == 2
    assert counts["random_next_same_document"] == 0


def test_random_text_fills_what_a_left():
    """From a random sentence of another document on, to the target or the document's end."""
    documents = make_documents([4], [3] * 5)
    seen = collections.Counter()
    for seed in range(300):
        pairs, _ = draw(documents, seed, max_seq_length=13)
        (pair,) = [pair for pair in pairs.tolist() if pair[0] == 0]
        seen[tuple(pair[2:4])] += 1
    # A has 4 of 10 tokens, so B wants 6: two sentences.
    assert set(seen) == {(4, 10), (7, 13), (10, 16), (13, 19), (16, 19)}


def test_random_text_of_an_only_document_is_its_own_and_counted():
    pairs, counts = draw(make_documents([30]), max_seq_length=13)
    assert pairs.tolist() == [[0, 30, 0, 30, 1]]
    assert counts["random_next_same_document"] == 1


def test_sop_labels_only_what_was_swapped():
    documents = make_documents([30, 2, 3], [7], [20, 20, 1])
    for seed in range(20):
        pairs, counts = draw(documents, seed, max_seq_length=13, sentence_task="sop")
        # A long sentence waits for a second one; single ones at the end are skipped.
        assert counts == {"single_sentences_skipped": 3}
        spans = [sorted([tuple(pair[:2]), tuple(pair[2:4])]) for pair in pairs.tolist()]
        assert spans == [[(0, 30), (30, 32)], [(42, 62), (62, 82)]]
        for pair in pairs.tolist():
            assert pair[4] == (pair[2] < pair[0])


def test_nsp_puts_unused_sentences_back():
    documents = make_documents([2] * 300, [2] * 300)
    pairs, counts = draw(documents, max_seq_length=13, sentence_task="nsp")
    labels = pairs[:, 4]
    assert counts["random_next"] == labels.sum()
    assert stats.binomtest(int(labels.sum()), len(labels)).pvalue > P_THRESHOLD
    for bounds in ((0, 600), (600, 1200)):
        used = pairs[(pairs[:, 0] >= bounds[0]) & (pairs[:, 0] < bounds[1])]
        # Every A begins where the text used before it ends: nothing is lost or used twice.
        ends = np.where(used[:, 4] == 1, used[:, 1], used[:, 3])
        assert used[0, 0] == bounds[0] and ends[-1] == bounds[1]
        np.testing.assert_array_equal(used[1:, 0], ends[:-1])
        random_next = used[used[:, 4] == 1]
        assert not ((random_next[:, 2] >= bounds[0]) & (random_next[:, 2] < bounds[1])).any()


def test_none_never_labels():
    pairs, counts = draw(make_documents([2] * 300), max_seq_length=13, sentence_task="none")
    assert not pairs[:, 4].any() and not counts
    np.testing.assert_array_equal(pairs[:, 1], pairs[:, 2])


def test_short_targets_are_uniform_and_per_document():
    documents = make_documents(*[[1] * 60] * 2000)
    pairs, _ = draw(documents, max_seq_length=13, short_seq_prob=0.5, sentence_task="none")
    firsts = pairs[pairs[:, 0] % 60 == 0]
    lengths = firsts[:, 3] - firsts[:, 0]
    # Half of the documents aim at 10 tokens, the others at 2..10 alike.
    expected = np.array([0.5 / 9] * 8 + [0.5 + 0.5 / 9]) * 2000
    assert stats.chisquare(np.bincount(lengths, minlength=11)[2:], expected).pvalue > P_THRESHOLD
    for document in range(2000):
        of_document = pairs[pairs[:, 0] // 60 == document]
        assert len(set((of_document[:, 3] - of_document[:, 0])[:-1].tolist())) <= 1


@hypothesis.given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=6),
    st.sampled_from(sentence_pairs.SENTENCE_TASKS),
    st.integers(5, 40),
    st.integers(0, 100),
)
@hypothesis.settings(deadline=None)
def test_pairs_are_sentences_of_one_document_each(lengths, task, max_seq_length, seed):
    documents = make_documents(*lengths)
    settings = instances.Settings(
        max_seq_length=max_seq_length, short_seq_prob=0.3, sentence_task=task
    )
    pairs, counts = sentence_pairs.draw_pairs(
        documents, task, random.Random(seed), settings.max_tokens, settings.short_seq_prob
    )
    bounds = {documents.sentence_offsets[i] for i in range(len(documents.sentence_offsets))}
    document_ends = [documents.sentence_offsets[i] for i in documents.document_offsets]
    for a, a_end, b, b_end, _ in pairs.tolist():
        assert {a, a_end, b, b_end} <= bounds
        assert a < a_end and (b < b_end or task == "none")
        for begin, end in ((a, a_end), (b, b_end)):
            owner = np.searchsorted(document_ends, begin, side="right")
            assert begin == end or end <= document_ends[owner]
    # Without random texts every sentence is used exactly once, or counted as skipped.
    if task in ("sop", "none"):
        used = sum(
            int(np.searchsorted(sorted(bounds), x)) * s
            for p in pairs.tolist()
            for x, s in ((p[1], 1), (p[0], -1), (p[3], 1), (p[2], -1))
        )
        assert used + counts["single_sentences_skipped"] == len(bounds) - 1


# --- other formats ------------------------------------------------------------------------------

ONE_TEXT = pytest.mark.parametrize("name", ["full_sentences", "doc_sentences"])
SIZES = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=6)


def inputs_of(documents, name, max_seq_length, seed=0, sentence_task="none"):
    """(list of the spans of each input, labels, counts without those that are 0)."""
    settings = instances.Settings(
        max_seq_length=max_seq_length, sentence_task=sentence_task, sequence_format=name
    )
    rng = np.random.default_rng(seed)
    inputs, counts = sequence_formats.draw_inputs(documents, settings, rng)
    bounds = inputs.offsets.tolist()
    spans = [tuple(span) for span in inputs.spans.tolist()]
    rows = [spans[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    assert len(rows) == len(inputs) and all(rows)
    segments = [index for row in rows for index in range(len(row))]
    if name in ("full_sentences", "doc_sentences"):
        segments = [0] * len(spans)
        assert not inputs.labels.any()
    assert inputs.segment_ids.tolist() == segments
    return rows, inputs.labels.tolist(), +counts


def pieces_of(documents, longest):
    """(Spans of the sentences of each document, long ones cut; how many were long; into what)."""
    found, long, num_pieces = [], 0, 0
    offsets, bounds = documents.sentence_offsets, documents.document_offsets
    for first, last in zip(bounds, bounds[1:], strict=False):
        found.append([])
        for begin, end in zip(offsets[first:last], offsets[first + 1 :], strict=False):
            cut = [(at, min(at + longest, end)) for at in range(begin, end, longest)]
            found[-1] += cut
            long += len(cut) > 1
            num_pieces += len(cut) * (len(cut) > 1)
    return found, +collections.Counter(long_sentences=long, pieces=num_pieces)


def one_by_one(documents, max_seq_length, across):
    """Inputs of documents in this order, sentence by sentence."""
    rows, length = [], 0  # of the last row, with [CLS] and a [SEP] after each span
    for pieces in documents:
        new_document = True
        for begin, end in pieces:
            more = end - begin + new_document
            if not rows or length + more > max_seq_length or (new_document and not across):
                rows.append([])
                length, more, new_document = 1, end - begin + 1, True
            if new_document:
                rows[-1].append((begin, end))
            else:
                rows[-1][-1] = (rows[-1][-1][0], end)
            length += more
            new_document = False
    return rows


@ONE_TEXT
@hypothesis.given(sizes=SIZES, max_seq_length=st.integers(5, 40), seed=st.integers(0, 100))
@hypothesis.settings(deadline=None)
def test_sentences_fill_inputs_and_no_token_is_lost_or_repeated(name, sizes, max_seq_length, seed):
    documents = make_documents(*sizes)
    rows, _, counts = inputs_of(documents, name, max_seq_length, seed)
    ends = [documents.sentence_offsets[place] for place in documents.document_offsets[1:]]
    spans = [span for row in rows for span in row]
    owners = [int(np.searchsorted(ends, begin, side="right")) for begin, _ in spans]
    # The inputs without [CLS] and [SEP] are the documents, each whole, in the order of the pass.
    order = list(dict.fromkeys(owners))
    assert sorted(order) == list(range(len(sizes)))
    begins = [0, *ends]
    places = [place for span in spans for place in range(*span)]
    assert places == [p for owner in order for p in range(begins[owner], ends[owner])]
    # A [SEP] between spans is a meeting of two documents.
    for row in rows:
        documents_of_row = [np.searchsorted(ends, begin, side="right") for begin, _ in row]
        assert len(set(documents_of_row)) == len(row) == 1 or name == "full_sentences"
        assert len(set(documents_of_row)) == len(row)
        assert 1 + sum(end - begin + 1 for begin, end in row) <= max_seq_length
    # And an input ends only where the next sentence would not fit, or with its document.
    pieces, expected_counts = pieces_of(documents, max_seq_length - 2)
    assert counts == expected_counts
    across = name == "full_sentences"
    assert rows == one_by_one([pieces[owner] for owner in order], max_seq_length, across)


@ONE_TEXT
@pytest.mark.parametrize(
    ("sizes", "max_seq_length", "expected"),
    [
        ([3, 3, 3], 8, [[(0, 6)], [(6, 9)]]),
        ([3, 3, 3], 10, [[(0, 6)], [(6, 9)]]),
        ([3, 3, 3], 11, [[(0, 9)]]),
        ([7, 1, 1], 5, [[(0, 3)], [(3, 6)], [(6, 9)]]),
        ([1, 7], 5, [[(0, 1)], [(1, 4)], [(4, 7)], [(7, 8)]]),
    ],
)
def test_inputs_of_one_document(name, sizes, max_seq_length, expected):
    rows, _, _ = inputs_of(make_documents(sizes), name, max_seq_length)
    assert rows == expected


def test_the_separator_of_two_documents_needs_a_place():
    documents = make_documents([2], [2])
    for seed in range(4):
        (row,), _, _ = inputs_of(documents, "full_sentences", 7, seed)  # [CLS] a b [SEP] c d [SEP]
        assert sorted(row) == [(0, 2), (2, 4)]
        for name, length in (("full_sentences", 6), ("doc_sentences", 7)):
            rows, _, _ = inputs_of(documents, name, length, seed)
            assert sorted(rows) == [[(0, 2)], [(2, 4)]]


def test_long_sentences_are_counted():
    documents = make_documents([100, 98, 300], [99])
    for name in ("full_sentences", "doc_sentences"):
        _, _, counts = inputs_of(documents, name, 100)
        assert counts == {"long_sentences": 3, "pieces": 2 + 4 + 2}
    # Of pairs, any two must fit.
    _, _, counts = inputs_of(make_documents([48, 49, 97]), "sentence_pair", 100)
    assert counts["long_sentences"] == 2 and counts["pieces"] == 2 + 3


@ONE_TEXT
def test_each_pass_has_its_own_order_of_documents(name):
    documents = make_documents(*[[9] * 3] * 20)
    first, again, other = (inputs_of(documents, name, 31, seed)[0] for seed in (0, 0, 1))
    assert first == again and first != other
    assert sum(len(row) for row in first) == 20
    starts = np.array([[row[0][0] for row in rows] for rows in (first, other)])
    assert (np.diff(starts) < 0).any(axis=1).all()


@hypothesis.given(
    SIZES,
    st.sampled_from(sentence_pairs.SENTENCE_TASKS),
    st.integers(5, 90),
    st.integers(0, 100),
)
@hypothesis.settings(deadline=None)
def test_sentence_pairs_are_two_sentences_that_fit(sizes, task, max_seq_length, seed):
    documents = make_documents(*sizes)
    rows, labels, counts = inputs_of(documents, "sentence_pair", max_seq_length, seed, task)
    pieces, expected_counts = pieces_of(documents, (max_seq_length - 3) // 2)
    assert {key: counts[key] for key in expected_counts} == dict(expected_counts)
    place_of = {
        span: (number, place)
        for number, document in enumerate(pieces)
        for place, span in enumerate(document)
    }
    used = collections.Counter()
    for row, label in zip(rows, labels, strict=True):
        assert len(row) == 2 or (task == "none" and len(row) == 1)
        assert sum(end - begin for begin, end in row) + len(row) + 1 <= max_seq_length
        (document, place), (other, next_place) = (place_of[span] for span in (row[0], row[-1]))
        used.update(row)
        if len(row) == 1:
            assert place == len(pieces[document]) - 1 and place % 2 == 0
        elif task == "none" or label == 0:
            assert (other, next_place) == (document, place + 1) and label == 0
        elif task == "sop":
            assert (other, next_place) == (document, place - 1)
        elif task == "nsp":
            assert other != document or len(sizes) == 1
    if task in ("none", "sop"):
        assert set(used.values()) <= {1}
        assert len(used) + counts["single_sentences_skipped"] == len(place_of)


def test_half_of_the_sentence_pairs_have_label_1():
    documents = make_documents(*[[5] * 400] * 10)
    for task in ("reference", "sop", "nsp"):
        rows, labels, _ = inputs_of(documents, "sentence_pair", 40, sentence_task=task)
        assert len(rows) >= 2000
        assert stats.binomtest(sum(labels), len(labels)).pvalue > P_THRESHOLD
        assert {end - begin for row in rows for begin, end in row} == {5}


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_seq_length": 4}, "max_seq_length=4 must be at least 5"),
        (
            {"sequence_format": "sentences"},
            "sequence_format=sentences must be one of segment_pair, sentence_pair, full_s",
        ),
        (
            {"sequence_format": "full_sentences"},
            "sentence_task=reference .* contradicts sequence_format=full_sentences, .* omit it "
            "or choose segment_pair or sentence_pair",
        ),
        (
            {"sequence_format": "doc_sentences", "sentence_task": "sop"},
            "sentence_task=sop .* contradicts sequence_format=doc_sentences",
        ),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(file_io.InputError, match=message):
        instances.Settings(**settings)


def test_no_documents_give_no_inputs():
    for name in sequence_formats.FORMATS:
        assert inputs_of(make_documents(), name, 20) == ([], [], {})
