"""The alignment of a text with its pieces by the full table, to compare with."""


def plain_matches(a, b):
    """Longest common subsequence by the full table: for each place of b one of a, or -1.

    Walking back, a character of a is skipped where that costs nothing, else one of b, else both
    are matched.
    """
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            both = best[i - 1][j - 1] + (a[i - 1] == b[j - 1])
            best[i][j] = max(best[i - 1][j], best[i][j - 1], both)
    matches = [-1] * len(b)
    i, j = len(a), len(b)
    while i and j:
        if best[i - 1][j] == best[i][j]:
            i -= 1
        elif best[i][j - 1] == best[i][j]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            matches[j] = i
    return matches


def plain_place(matches, at, length, is_start):
    """Place in the other sequence of the element `at`, by its nearest matched neighbors."""
    if matches[at] >= 0:
        return matches[at]
    before = [m for m in matches[:at] if m >= 0]
    after = [m for m in matches[at:] if m >= 0]
    if is_start:
        if not before:
            return 0
        return before[-1] + 1 if before[-1] + 1 < length else before[-1]
    if not after:
        return length - 1
    return after[0] - 1 if after[0] > 0 else 0


def plain_align(text, pieces_text, lengths):
    """The four arrays of `Alignment` as lists."""
    matches = plain_matches(text, pieces_text)
    inverse = [matches.index(i) if i in matches else -1 for i in range(len(text))]
    piece_of = [piece for piece, length in enumerate(lengths) for _ in range(length)]
    firsts = [piece_of.index(piece) for piece in range(len(lengths))]
    lasts = [first + length - 1 for first, length in zip(firsts, lengths, strict=True)]
    n, m = len(text), len(pieces_text)
    return (
        [plain_place(matches, at, n, True) for at in firsts],
        [plain_place(matches, at, n, False) for at in lasts],
        [piece_of[plain_place(inverse, at, m, True)] for at in range(n)],
        [piece_of[plain_place(inverse, at, m, False)] for at in range(n)],
    )
