"""Questions about sentences, with passages that mostly answer them, made without people.

From cloze translation, Lewis et al., 2019 (arXiv 1906.04980): a name, a number or another word of a
sentence is its answer, which a question word replaces. As in their noisy variant, the question is
not grammatical: words are left out, and its parts change places.
"""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from experiments import study

_WORDS = range(8, 46)  # of a sentence that is asked about
_PASSAGE = 95  # words at most
_LONGEST_ANSWER, _BESIDE = 4, range(3, 9)  # words; those kept on each side of the answer
_DROPPED, _FROM_ELSEWHERE = 0.15, 0.2  # fractions of words and of passages
_OF_NUMBERS = ("when", "what year", "how many", "how much")
_OF_NAMES = ("who", "what", "where", "which")
_OF_OTHERS = ("what", "what", "which", "why", "how")


def _is_name(word: str) -> bool:
    return word[:1].isupper() or word[:1].isdigit()


def ask(words: Sequence[str], rng: np.random.Generator) -> str:
    """Returns a question about one of the words of a sentence, or about several that follow."""
    names = [i for i in range(1, len(words)) if _is_name(words[i])]  # the first is a capital anyway
    start = int(rng.choice(names) if names else rng.integers(len(words)))
    end = start + 1
    while names and end < min(len(words), start + _LONGEST_ANSWER) and _is_name(words[end]):
        end += 1
    of_answer = _OF_NUMBERS if words[start][0].isdigit() else _OF_NAMES if names else _OF_OTHERS
    left, right = rng.choice(_BESIDE, 2)
    before, after = (
        [word.strip('.,;:"()') for word in part if rng.random() > _DROPPED]
        for part in (words[max(0, start - left) : start], words[end : end + right])
    )
    asked = [str(rng.choice(of_answer))]
    order = rng.choice(3, p=(0.3, 0.3, 0.4))
    parts = ((asked, after, before), (asked, before, after), (before, asked, after))[order]
    return " ".join([*parts[0], *parts[1], *parts[2], "?"])


def write(paths: Sequence[pathlib.Path], target: pathlib.Path, count: int = 120_000) -> None:
    """Writes documents of two lines: a question, and a passage of one to four sentences.

    Args:
      paths: files of text, a sentence in each line, blank lines between documents.
      count: documents at most.
    """
    rng = np.random.default_rng(1)
    made = [pair for path in paths for pair in _iter_pairs(path, rng)]
    chosen = rng.permutation(len(made))[:count]
    study.write_documents(target, ("\n".join(made[i]) for i in chosen))


def _iter_pairs(path: pathlib.Path, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    for document in study.read_documents(path):
        lines = document.rstrip("\n").split("\n")
        for i, line in enumerate(lines):
            words = line.split()
            if len(words) not in _WORDS:
                continue
            first, last = i - int(rng.integers(2)), i + int(rng.integers(3))
            if rng.random() < _FROM_ELSEWHERE:
                first = last = int(np.clip(i + rng.integers(-8, 9), 0, len(lines) - 1))
            passage = " ".join(lines[max(0, first) : last + 1]).split()[:_PASSAGE]
            yield ask(words, rng), " ".join(passage)
