"""Aligns characters with pieces, cuts pieces into windows, and decodes answers from scores.

Uses no files, tokenizers or TensorFlow. Letters in shapes: n characters of the text, m characters
of all pieces together, T pieces of a text, W windows, S sequence length, A start candidates of a
window, B end candidates of each start.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

# Stands for a character that cannot match. A lone surrogate is in no valid text.
NO_MATCH = "\udc00"
# Fraction of a text's characters that must match, or the alignment is rejected.
MIN_MATCHED = 0.8
# More unmatched characters are not tried: rounds take memory and time by the square of this.
_MAX_DISTANCE = 6000
_CHUNK = 64


class Symbols(dict):
    """Table for `str.translate` that gives each character the form that it has in pieces.

    Args:
      normalize: normalizes a one-character string. A character whose normal form is not exactly
        one character cannot be matched and becomes `NO_MATCH`.
    """

    def __init__(self, normalize: Callable[[str], str]) -> None:
        super().__init__()
        self._normalize = normalize

    def __missing__(self, code_point: int) -> str:
        """Returns the normalized symbol of a code point, and keeps it."""
        symbol = self._normalize(chr(code_point))
        symbol = symbol if len(symbol) == 1 else NO_MATCH
        self[code_point] = symbol
        return symbol


def single_spaces(text: str, forms: list[str]) -> tuple[int, int]:
    """Makes each run of white space one space, as pieces of SentencePiece have it.

    The first place of a run whose form is a space stands for the run, else its first place. The
    others, and all at the end of the text, become `NO_MATCH`.

    Args:
      forms: form of each character of the text; changed.

    Returns:
      The number of forms that became a space, and of those that became `NO_MATCH`.
    """
    spaces = omitted = 0
    for run in re.finditer(r"\s+", text):
        begin, end = run.span()
        kept = next((i for i in range(begin, end) if forms[i] == " "), begin)
        own = forms[kept]
        forms[begin:end] = [NO_MATCH] * (end - begin)
        omitted += end - begin
        if end < len(text):
            forms[kept] = " "
            omitted -= 1
            spaces += own != " "
    return spaces, omitted


def _slide(a: str, b: str, i: int, j: int) -> int:
    """Counts the equal characters at the start of a[i:] and b[j:]."""
    start = i
    limit = i + min(len(a) - i, len(b) - j)
    while i + _CHUNK <= limit and a[i : i + _CHUNK] == b[j : j + _CHUNK]:
        i += _CHUNK
        j += _CHUNK
    while i < limit and a[i] == b[j]:
        i += 1
        j += 1
    return i - start


def _codes(text: str, end: int) -> np.ndarray:
    """Returns the code points of a text, int32 [n + 1]; the last is `end`, which none equals."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32)
    return np.append(codes, np.int32(end))


def _furthest_points(a: str, b: str, max_distance: float) -> list[np.ndarray] | None:
    """Finds the furthest reach in `a` for each number of unmatched characters and diagonal.

    Myers 1986, "An O(ND) difference algorithm and its variations", section 3, all rounds kept.

    Returns:
      ``reach``: reach[d][(k + d) // 2] is the largest i such that at most d characters of a[:i]
      and b[:i - k] are in only one of them. The last round reached the end of both. None if that
      takes more than `max_distance` rounds, or more than `_MAX_DISTANCE`.
    """
    max_distance = min(max_distance, _MAX_DISTANCE)
    # The ends of the two sides differ, so that a place past the end never matches.
    a_codes, b_codes = _codes(a, -1), _codes(b, -2)
    goal = len(a) - len(b)
    reach = [np.array([_slide(a, b, 0, 0)], np.int32)]
    distance = 0
    while distance <= max_distance:
        goal_index, odd = divmod(goal + distance, 2)
        if not odd and 0 <= goal_index <= distance and reach[-1][goal_index] >= len(a):
            return reach
        distance += 1
        # Skip a character of b (the same i on the diagonal below) or one of a.
        new = np.append(reach[-1], np.int32(-1))
        np.maximum(new[1:], reach[-1] + 1, out=new[1:])
        in_b = new - np.arange(-distance, distance + 1, 2)
        equal = a_codes.take(new, mode="clip") == b_codes.take(in_b, mode="clip")
        for index in np.flatnonzero(equal).tolist():
            new[index] += _slide(a, b, int(new[index]), int(in_b[index]))
        reach.append(new)
    return None


def _matching_runs(a: str, b: str, max_distance: float) -> list[tuple[int, int, int]] | None:
    """Returns the runs of one longest common subsequence, from the end.

    Of all longest common subsequences it is the one found by walking back from both ends, skipping
    a character of `a` whenever that costs nothing, else one of `b` whenever that costs nothing:
    every match is as close to the start as possible.

    Returns:
      List of (start in a, start in b, length); None if more than `max_distance` characters would
      have no match.
    """
    reach = _furthest_points(a, b, max_distance)
    if reach is None:
        return None
    runs = []
    i, k = len(a), len(a) - len(b)
    for distance in range(len(reach) - 1, 0, -1):
        last = reach[distance - 1]
        index = (k + distance) // 2
        without_a = int(last[index - 1]) + 1 if index > 0 else -1
        without_b = int(last[index]) if index < distance else -1
        # Above this point skipping a character would cost a match: all of these are matched.
        turn = min(i, max(without_a, without_b))
        runs.append((turn, turn - k, i - turn))
        if turn <= without_a:
            i, k = turn - 1, k - 1
        else:
            i, k = turn, k + 1
    runs.append((0, 0, i))
    return runs


def match_characters(text: str, pieces_text: str, min_matched: float) -> np.ndarray | None:
    """Matches characters of a text with characters of its pieces.

    The matches are a longest common subsequence; see `_matching_runs` for which one. Time grows
    with the length plus the square of the number of differences.

    Args:
      text: the text with one symbol per character (see `Symbols`), n characters.
      pieces_text: the pieces' texts joined, m characters.

    Returns:
      int array [m]: place in `text` of each character of `pieces_text`, -1 if it has no match.
      None if there are fewer than `min_matched` matches, or thousands of differences.
    """
    matches = np.full(len(pieces_text), -1, np.int64)
    in_text, in_pieces = None, None
    alphabet, pieces_alphabet = set(text), set(pieces_text)
    a, b = text, pieces_text
    if not alphabet <= pieces_alphabet:
        # Characters that the other side lacks cannot change the rest of the matching.
        in_text = [i for i, symbol in enumerate(text) if symbol in pieces_alphabet]
        a = "".join([text[i] for i in in_text])
    if not pieces_alphabet <= alphabet:
        in_pieces = [j for j, symbol in enumerate(pieces_text) if symbol in alphabet]
        b = "".join([pieces_text[j] for j in in_pieces])
    if min(len(a), len(b)) < min_matched:
        return None
    # d unmatched characters leave (len(a) + len(b) - d) / 2 matches.
    runs = _matching_runs(a, b, len(a) + len(b) - 2 * min_matched)
    if runs is None:
        return None
    matched_a = _run_indices(runs, 0)
    matched_b = _run_indices(runs, 1)
    if in_text is not None:
        matched_a = np.asarray(in_text, np.int64)[matched_a]
    if in_pieces is not None:
        matched_b = np.asarray(in_pieces, np.int64)[matched_b]
    matches[matched_b] = matched_a
    return matches


def _run_indices(runs: list[tuple[int, int, int]], side: int) -> np.ndarray:
    """Returns the places of all characters of runs in one of the texts: `side` 0 is a, 1 is b."""
    return np.concatenate([np.arange(run[side], run[side] + run[2]) for run in runs])


def _spread_matches(matches: np.ndarray, other_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and last place in the other sequence that each element may cover.

    A matched element covers its match. An unmatched one begins right after the match before it and
    ends right before the match after it; before the first match it begins at 0, after the last one
    it ends with the other sequence.

    Args:
      matches: rising int array with -1 for no match.

    Returns:
      ``(first, last)``, int arrays like `matches`.
    """
    unmatched = matches < 0
    if not unmatched.any():
        return matches, matches
    before = np.maximum.accumulate(matches)
    after = np.where(unmatched, other_length, matches)
    after = np.minimum.accumulate(after[::-1])[::-1]
    first = np.where(unmatched, np.minimum(before + 1, other_length - 1), matches)
    last = np.where(unmatched, np.maximum(after - 1, 0), matches)
    return first, last


@dataclasses.dataclass(frozen=True)
class Alignment:
    """The positions of the pieces in their text.

    Attributes:
      piece_start: int array [T], first character of each piece in the text.
      piece_end: int array [T], last character of each piece (inclusive).
      start_piece: int array [n], first piece of an answer that begins at this character.
      end_piece: int array [n], last piece of an answer that ends with this character.
    """

    piece_start: np.ndarray
    piece_end: np.ndarray
    start_piece: np.ndarray
    end_piece: np.ndarray


def align(
    text: str, pieces_text: str, piece_lengths: Sequence[int], min_matched: float
) -> Alignment | None:
    """Aligns a text with its pieces.

    Args:
      text: the text with one symbol per character (see `Symbols`), n characters.
      pieces_text: text of all pieces, m characters.
      piece_lengths: number of these characters in each of the T pieces, all at least 1.

    Returns:
      The alignment; None if fewer characters match, or none.
    """
    matches = match_characters(text, pieces_text, min_matched)
    if matches is None or not (matches >= 0).any():
        return None
    first, last = _spread_matches(matches, len(text))
    lengths = np.asarray(piece_lengths, np.int64)
    ends = np.cumsum(lengths)
    inverse = np.full(len(text), -1, np.int64)
    matched = np.flatnonzero(matches >= 0)
    inverse[matches[matched]] = matched
    inverse_first, inverse_last = _spread_matches(inverse, len(pieces_text))
    piece_of = np.repeat(np.arange(len(lengths)), lengths)
    return Alignment(
        piece_start=first[ends - lengths],
        piece_end=last[ends - 1],
        start_piece=piece_of[inverse_first],
        end_piece=piece_of[inverse_last],
    )


def align_forms(
    forms: Sequence[str], piece_forms: Sequence[str], min_matched: float
) -> Alignment | None:
    """Aligns a text with its pieces by normal forms of any length.

    A character whose form is empty, such as a vowel sign that the vocabulary drops, belongs to the
    character before it.

    Args:
      forms: normal form of each of the n characters of the text.
      piece_forms: text of each of the T pieces in the same form; none is empty.

    Returns:
      The alignment with the n characters and T pieces; None if fewer characters match, or none.
    """
    alignment = align(
        "".join(forms), "".join(piece_forms), list(map(len, piece_forms)), min_matched
    )
    if alignment is None:
        return None
    lengths = np.array(list(map(len, forms)))
    ends = np.cumsum(lengths)
    bases = np.flatnonzero(lengths)
    base_ends = np.append(bases[1:], len(forms)) - 1
    base_of = np.repeat(np.arange(len(bases)), lengths[bases])
    return Alignment(
        piece_start=bases[base_of[alignment.piece_start]],
        piece_end=base_ends[base_of[alignment.piece_end]],
        start_piece=alignment.start_piece[np.minimum(ends - lengths, ends[-1] - 1)],
        end_piece=alignment.end_piece[np.maximum(ends - 1, 0)],
    )


def widen(alignment: Alignment, begins: npt.NDArray[np.bool_]) -> Alignment:
    """Returns an alignment whose pieces have whole graphemes: no letter loses a mark.

    Args:
      begins: bool [n], whether a grapheme begins at each character; see `graphemes`.
    """
    places = np.flatnonzero(begins)
    ends = np.append(places[1:], len(begins)) - 1
    of_grapheme = np.cumsum(begins) - 1
    return dataclasses.replace(
        alignment,
        piece_start=places[of_grapheme[alignment.piece_start]],
        piece_end=ends[of_grapheme[alignment.piece_end]],
    )


def windows(num_pieces: int, window_size: int, doc_stride: int) -> list[tuple[int, int]]:
    """Returns windows that cover all pieces: ``[(start, length), …]``, `doc_stride` apart."""
    if window_size < 1 or doc_stride < 1:
        raise ValueError(
            f"window size and stride must be positive; got {window_size} and {doc_stride}"
        )
    step = min(doc_stride, window_size)
    result = []
    start = 0
    while num_pieces > 0:
        result.append((start, min(num_pieces - start, window_size)))
        if start + window_size >= num_pieces:
            break
        start += step
    return result


def max_context_ranges(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns for each window the range of the pieces that have the most context in it.

    A piece belongs to the window with the largest score: the smaller of its left and right context
    plus a hundredth of the window's length; if equal, to the first. All windows of a text except
    the last have the same length, so the pieces of a window form a range.

    Args:
      spans: ``[(start, length), …]`` of `windows`.

    Returns:
      ``[(begin, end), …]``: places in the window, end exclusive.
    """
    if len(spans) == 1:
        return [(0, spans[0][1])]
    starts, lengths = np.array(spans).T[:, :, None]
    pieces = np.arange(starts[-1, 0] + lengths[-1, 0])
    context = np.minimum(pieces - starts, starts + lengths - 1 - pieces)
    score = np.where(context >= 0, context + 0.01 * lengths, -1.0)
    owner = np.argmax(score, axis=0)
    counts = np.bincount(owner, minlength=len(spans))
    ends = np.cumsum(counts)
    return [
        (int(end - count) - start, int(end) - start) if count else (0, 0)
        for (start, _), end, count in zip(spans, ends, counts, strict=True)
    ]


# Starts, start scores, ends and end scores of possible answers; see `best_spans`.
Candidates = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class WindowPlaces:
    """Positions in W windows that decoding needs, counted in the model's sequence.

    Attributes:
      question: int array [W], number of the window's question.
      begin: int array [W], first place where an answer may start (the token has max context here).
      end: int array [W], place after the last one where an answer may start.
      text_end: int array [W], place after the last piece of the text.
    """

    question: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    text_end: np.ndarray


def top_places(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the places [W, min(count, S)] of the largest scores of each row of float32 [W, S].

    The best are first, equal scores in the order of their places.
    """
    length = scores.shape[1]
    count = min(count, length)
    floats = np.ascontiguousarray(scores, np.float32) + np.float32(0)  # no negative zeros
    bits = floats.view(np.int32).astype(np.int64)
    # Floats sort like their bits, negative ones in reverse. One number then holds score and place,
    # and all numbers of a row differ.
    ordered = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    keys = ordered * length + np.arange(length - 1, -1, -1)
    best = np.partition(keys, length - count, axis=1)[:, length - count :]
    best = np.sort(best, axis=1)[:, ::-1]
    return length - 1 - best % length


def candidates_from_logits(
    start_logits: np.ndarray, end_logits: np.ndarray, n_best_size: int
) -> Candidates:
    """Pairs the best starts with the best ends of each window (SQuAD 1.1), from logits [W, S].

    Returns:
      starts [W, A, 1], start scores, ends [W, 1, B], end scores: the arguments of `best_spans`.
    """
    result = []
    for logits in (start_logits, end_logits):
        places = top_places(logits, n_best_size)
        result += [places, np.take_along_axis(logits, places, axis=1)]
    starts, start_scores, ends, end_scores = result
    return starts[:, :, None], start_scores[:, :, None], ends[:, None, :], end_scores[:, None, :]


def candidates_from_beams(
    start_scores: np.ndarray, starts: np.ndarray, end_scores: np.ndarray, ends: np.ndarray
) -> Candidates:
    """Pairs every start of a window's beam with each of its own ends (SQuAD 2.0).

    Args:
      start_scores, starts: arrays [W, A].
      end_scores, ends: arrays [W, A * B]; the ends of start a begin at a * B.

    Returns:
      starts [W, A, 1], start scores, ends [W, A, B], end scores: the arguments of `best_spans`.
    """
    shape = (*starts.shape, -1)
    return (
        starts[:, :, None],
        start_scores[:, :, None],
        ends.reshape(shape),
        end_scores.reshape(shape),
    )


def best_spans(
    candidates: Candidates, places: WindowPlaces, max_answer_length: int
) -> dict[str, np.ndarray]:
    """Returns the possible answers among the candidates, best first for each question.

    Omits spans that start at a token without max context or outside the text, end outside the text
    or before the start, or have more than `max_answer_length` pieces. Equal sums keep the order of
    windows, then starts, then ends.

    Returns:
      dict of arrays of equal length, sorted by question and then by falling sum of scores:
      ``question, window, start, end, start_score, end_score``. Scores are float64.
    """
    starts, start_scores, ends, end_scores = candidates
    begin, end, text_end = (
        column[:, None, None] for column in (places.begin, places.end, places.text_end)
    )
    possible = (starts >= begin) & (starts < end) & (ends < text_end) & (ends >= starts)
    possible &= ends - starts < max_answer_length
    window, rank, end_rank = np.nonzero(possible)
    start_of, end_of = (
        np.broadcast_to(array, possible.shape)[window, rank, end_rank] for array in (starts, ends)
    )
    start_score, end_score = (
        np.broadcast_to(array, possible.shape)[window, rank, end_rank].astype(np.float64)
        for array in (start_scores, end_scores)
    )
    question = places.question[window]
    order = np.lexsort((-(start_score + end_score), question))
    columns = {
        "question": question,
        "window": window,
        "start": start_of,
        "end": end_of,
        "start_score": start_score,
        "end_score": end_score,
    }
    return {name: column[order] for name, column in columns.items()}
