"""Alignment, windows and decoding against plain versions of the same rules."""

import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert.tasks.squad import spans as squad_spans
from albert.text import tokenization
from tests.support.plain_alignment import plain_align, plain_matches

# Few letters, so that there are many longest common subsequences; some that one side lacks.
LEFT, RIGHT = st.text("ab cx", max_size=30), st.text("ab cy", max_size=30)


@st.composite
def edited(draw):
    """A text and a copy with some characters omitted, doubled or changed."""
    text = draw(st.text("ab c", min_size=1, max_size=200))
    copy = list(text)
    for place in draw(st.lists(st.integers(0, len(text) - 1), max_size=8)):
        copy[place] = draw(st.sampled_from(["", " ", "a", "bb", "\udc00"]))
    return text, "".join(copy)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.tuples(LEFT, RIGHT), edited()))
@example(("", ""))
@example(("", "a"))
@example(("a", ""))
@example(("aa", "a"))
@example(("a", "aa"))
@example(("ab", "ba"))
@example(("  a", " a"))
def test_matches_are_those_of_the_full_table(texts):
    a, b = texts
    expected = plain_matches(a, b)
    assert squad_spans.match_characters(a, b, 0).tolist() == expected
    count = sum(match >= 0 for match in expected)
    assert squad_spans.match_characters(a, b, count).tolist() == expected
    assert squad_spans.match_characters(a, b, count + 0.5) is None


@settings(max_examples=200, deadline=None)
@given(LEFT, st.lists(st.text("ab cy", min_size=1, max_size=5), max_size=8))
@example("xab", ["b", "y"])
@example("x", ["x", "y"])
def test_alignment_follows_the_neighbor_rule(text, pieces):
    lengths = list(map(len, pieces))
    alignment = squad_spans.align(text, "".join(pieces), lengths, 0)
    if alignment is None:
        assert not set(text) & set("".join(pieces))
        return
    starts, ends, start_pieces, end_pieces = plain_align(text, "".join(pieces), lengths)
    assert alignment.piece_start.tolist() == starts
    assert alignment.piece_end.tolist() == ends
    assert alignment.start_piece.tolist() == start_pieces
    assert alignment.end_piece.tolist() == end_pieces


def test_alignment_of_a_worked_example():
    # "ﬁ" is spelled by two characters, the double space by one; the first piece adds a space.
    text = "oﬁ  co".replace("ﬁ", squad_spans.NO_MATCH)
    alignment = squad_spans.align(text, " ofi co", [4, 3], 4)
    assert alignment.piece_start.tolist() == [0, 2]
    assert alignment.piece_end.tolist() == [1, 5]
    assert alignment.start_piece.tolist() == [0, 0, 1, 1, 1, 1]
    assert alignment.end_piece.tolist() == [0, 0, 1, 1, 1, 1]
    assert squad_spans.align(text, " ofi co", [4, 3], 4.5) is None


@pytest.mark.slow
def test_alignment_of_long_texts_with_many_differences_is_quick():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("etaoins"), rng.integers(1, 8))) for _ in range(3000)]
    text, pieces = "  ".join(words), " " + " ".join(words)
    begin = time.process_time()
    matches = squad_spans.match_characters(text, pieces, 0.7 * len(text))
    assert time.process_time() - begin < 20
    assert matches[0] == -1 and (matches[1:] >= 0).all()
    # Of two spaces the front one is matched.
    places = np.flatnonzero(np.array(list(text)) == " ")[::2]
    assert matches[1:][np.array(list(pieces[1:])) == " "].tolist() == places.tolist()


def test_texts_with_thousands_of_differences_do_not_match():
    count = 3001  # differences on each side
    a, b = "ab" + "xy" * count, "ab" + "yx" * count
    assert squad_spans.match_characters(a[:5000], b[:5000], 0) is not None
    begin = time.process_time()
    a, b = "x" * count + "a" * 10**6 + "y", "y" + "a" * 10**6 + "x" * count
    assert squad_spans.match_characters(a, b, 0) is None
    assert time.process_time() - begin < 20


def test_symbols_put_characters_in_the_form_of_pieces():
    symbols = squad_spans.Symbols(
        lambda c: tokenization.preprocess_text(c, remove_space=False, lower=True)
    )
    text = "Éﬁ\u0301\t\xa0Ａ½漢😀İ"
    no = squad_spans.NO_MATCH
    assert text.translate(symbols) == f"e{no}{no}\t a{no}漢😀i"
    assert len(text.translate(symbols)) == len(text)


# --- windows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_pieces", "size", "stride", "expected"),
    [
        (0, 4, 2, []),
        (4, 4, 2, [(0, 4)]),
        (5, 4, 2, [(0, 4), (2, 3)]),
        (9, 4, 2, [(0, 4), (2, 4), (4, 4), (6, 3)]),
        (9, 4, 9, [(0, 4), (4, 4), (8, 1)]),  # no piece is jumped over
        (3, 1, 1, [(0, 1), (1, 1), (2, 1)]),
    ],
)
def test_windows(num_pieces, size, stride, expected):
    assert squad_spans.windows(num_pieces, size, stride) == expected


@pytest.mark.parametrize(("size", "stride"), [(0, 2), (4, 0), (-1, 1)])
def test_windows_refuse_sizes_that_never_end(size, stride):
    with pytest.raises(ValueError, match=f"must be positive; got {size} and {stride}"):
        squad_spans.windows(5, size, stride)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(1, 900), st.integers(1, 400), st.integers(1, 300))
@example(9, 4, 2)
@example(700, 321, 128)
def test_max_context_ranges(num_pieces, size, stride):
    spans = squad_spans.windows(num_pieces, size, max(stride, size // 8))
    ranges = squad_spans.max_context_ranges(spans)
    owners = [set() for _ in spans]
    for piece in range(num_pieces):
        best = None
        for number, (start, length) in enumerate(spans):
            if start <= piece < start + length:
                score = min(piece - start, start + length - 1 - piece) + 0.01 * length
                if best is None or score > best[0]:
                    best = score, number
        owners[best[1]].add(piece)
    for (start, length), (begin, end), owned in zip(spans, ranges, owners, strict=True):
        assert 0 <= begin <= end <= length
        assert set(range(start + begin, start + end)) == owned


# --- decoding ----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, -0.0, 1.5, -1.5, 3.0, -1e-40, 1e-40, -np.inf, 1e30, -1e30]),
            min_size=7,
            max_size=7,
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 9),
)
def test_top_places(rows, count):
    scores = np.array(rows, np.float32)
    expected = [
        [at for at, _ in sorted(enumerate(row), key=lambda item: -item[1])][:count]
        for row in scores.tolist()
    ]
    assert squad_spans.top_places(scores, count).tolist() == expected


def plain_spans(candidates, places, max_answer_length):
    """Rows (question, window, start, end) in the order of `best_spans`, by loops."""
    starts, start_scores, ends, end_scores = candidates
    rows = []
    for window in range(len(starts)):
        for i in range(starts.shape[1]):
            for j in range(ends.shape[2]):
                start, end = starts[window, i, 0], ends[window, i % ends.shape[1], j]
                length = end - start + 1
                in_text = start < places.text_end[window] and end < places.text_end[window]
                max_context = places.begin[window] <= start < places.end[window]
                if in_text and max_context and 0 < length <= max_answer_length:
                    score = float(start_scores[window, i, 0])
                    score += float(end_scores[window, i % ends.shape[1], j])
                    rows.append((int(places.question[window]), -score, window, start, end))
    rows.sort(key=lambda row: row[:2])
    return [(row[0], *row[2:]) for row in rows]


@st.composite
def window_places(draw, num_windows, length):
    text_begin = draw(st.integers(2, 4))
    bounds = [
        sorted(draw(st.tuples(*[st.integers(text_begin, length - 1)] * 3))) for _ in num_windows
    ]
    begin, end, text_end = np.array(bounds).T
    question = np.sort(
        draw(st.lists(st.integers(0, 2), min_size=len(bounds), max_size=len(bounds)))
    )
    return squad_spans.WindowPlaces(question, begin, end, text_end)


def _rows_of(spans):
    return [
        tuple(int(spans[name][i]) for name in ("question", "window", "start", "end"))
        for i in range(len(spans["question"]))
    ]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_best_spans_from_logits(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    # Whole numbers give many equal sums.
    logits = rng.integers(-3, 3, (2, 4, 12)).astype(np.float32)
    places = data.draw(window_places(range(4), 12))
    candidates = squad_spans.candidates_from_logits(*logits, n_best_size=5)
    spans = squad_spans.best_spans(candidates, places, 4)
    assert _rows_of(spans) == plain_spans(candidates, places, 4)
    for window, start, end, start_score, end_score in zip(
        *(spans[name] for name in ("window", "start", "end", "start_score", "end_score")),
        strict=True,
    ):
        assert start_score == logits[0, window, start]
        assert end_score == logits[1, window, end]
        assert start in squad_spans.top_places(logits[0], 5)[window]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_best_spans_from_beams(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    starts, ends = rng.integers(0, 12, (4, 3)), rng.integers(0, 12, (4, 6))
    start_scores = rng.integers(-3, 3, (4, 3)).astype(np.float32)
    end_scores = rng.integers(-3, 3, (4, 6)).astype(np.float32)
    places = data.draw(window_places(range(4), 12))
    candidates = squad_spans.candidates_from_beams(start_scores, starts, end_scores, ends)
    spans = squad_spans.best_spans(candidates, places, 5)
    assert _rows_of(spans) == plain_spans(candidates, places, 5)
    for window, start, end in zip(
        *(spans[name].tolist() for name in ("window", "start", "end")), strict=True
    ):
        pairs = [(starts[window, k // 2], ends[window, k]) for k in range(6)]
        assert (start, end) in pairs


def test_scores_are_added_in_double_precision():
    # In float32 both sums would be equal, and the first span would win.
    starts = np.array([[2, 3]])[:, :, None]
    start_scores = np.array([[1e8, 1e8]], np.float32)[:, :, None]
    ends = np.array([[[4, 4], [4, 4]]])
    end_scores = np.array([[[0.25, 0.25], [0.5, 0.5]]], np.float32)
    places = squad_spans.WindowPlaces(*np.array([[0], [2], [5], [6]]))
    spans = squad_spans.best_spans((starts, start_scores, ends, end_scores), places, 9)
    assert spans["start"].tolist() == [3, 3, 2, 2]
