"""Trains the vocabulary of a model on a plain-text corpus.

A SentencePiece vocabulary is made as for the published English models: unigram pieces of
preprocessed text, the special pieces in their places, some marks always alone. A WordPiece
vocabulary is made as for BERT: the most frequent pairs of adjacent pieces are merged until there
are enough pieces.

The lines to train on are a random sample that depends on the seed alone. Each line has a random
number, which follows from the seed and the line's place; the lines with the smallest numbers are
the sample. Every set of lines of this size is equally likely, as for a reservoir, but any number of
workers may read the blocks of text in any order.

Sources: ALBERT (Lan et al., 2020), section 4.1; SentencePiece (Kudo and Richardson, 2018); Cohen
and Kaplan, "Summarizing data using bottom-k sketches" (2007).
"""

import collections
import dataclasses
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from albert.io import file_io, requirements
from albert.text import corpus, text_rules, tokenization, wordpiece

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")  # ids 2, 3, 4, after <pad> 0 and <unk> 1

# Always separate pieces.
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")

# SentencePiece silently ignores longer lines; here they are cut.
MAX_SENTENCE_BYTES = 4192

# The first pieces of a WordPiece vocabulary, where BERT's programs look for them.
WORDPIECE_SYMBOLS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_NO_SENTENCE = "no sentence found in the input; expected one sentence per line"

_MIN_PIECE_COUNT = 2  # in the text; rarer ones get no piece

_REPEATED_WORDS = 10_000  # at a time
_MAX_NUMBER = 1 << 64  # above each number
_NUMBERS_AT_A_TIME = 1 << 14


@dataclasses.dataclass(frozen=True)
class VocabRecipe:
    """Everything but the text that a vocabulary depends on.

    Attributes:
      vocab_size: V, all special pieces counted.
      keep_accents: keep the accents of its letters; None: only cased WordPiece does.
      character_coverage: fraction of the text's characters that get their own piece.
      input_sentence_size: maximum number of sentences to train on, a random sample; bounds memory.
      num_threads: of SentencePiece; the pieces depend on it, but not on the number of cores.
      random_seed: non-negative integer; decides which sentences are drawn.
    """

    vocab_size: int = 30000
    do_lower_case: bool = True
    keep_accents: bool | None = None
    character_coverage: float = 0.99995
    input_sentence_size: int = 10_000_000
    num_threads: int = 1
    random_seed: int = 12345


DrawLines = Callable[[corpus.Plan, VocabRecipe, collections.Counter[str]], Iterable[str]]


def line_numbers(seed: int, block: int, place: int) -> Callable[[int], np.ndarray]:
    """Returns a function, n -> uint64 numbers of the next n lines of the segment at a place."""
    return np.random.PCG64([seed, block, place]).random_raw


def sample_limit(sizes: Sequence[Sequence[int]], sample_size: int, seed: int) -> int:
    """Returns the limit that the numbers of all lines in the sample are below.

    Args:
      sizes: for each block a list with the number of lines of each of its segments.
      sample_size: maximum number of lines; takes memory for a few times as many numbers.
    """
    if sum(map(sum, sizes)) <= sample_size:
        return _MAX_NUMBER
    numbers, below = np.zeros(0, np.uint64), _MAX_NUMBER
    for chunk in _all_numbers(sizes, seed):
        if below < _MAX_NUMBER:
            chunk = chunk[chunk < np.uint64(below)]
        numbers = np.concatenate([numbers, chunk])
        if len(numbers) > 2 * sample_size:
            numbers, below = _smallest(numbers, sample_size)
    return _smallest(numbers, sample_size)[1] if len(numbers) > sample_size else below


def _all_numbers(sizes: Iterable[Sequence[int]], seed: int) -> Iterator[np.ndarray]:
    for block, counts in enumerate(sizes):
        for place, count in enumerate(counts):
            draw = line_numbers(seed, block, place)
            for start in range(0, count, _NUMBERS_AT_A_TIME):
                yield draw(min(_NUMBERS_AT_A_TIME, count - start))


def _smallest(numbers: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    """Returns (the `count` smallest numbers, the smallest of the others)."""
    numbers = np.partition(numbers, count)
    return numbers[:count], int(numbers[count])


def sampled_lines(lines: list[str], below: int, draw: Callable[[int], np.ndarray]) -> list[str]:
    """Returns the lines that belong to the sample.

    Args:
      below: what `sample_limit` returned.
      draw: what `line_numbers` returned for the segment; `lines` are its next lines.
    """
    numbers = draw(len(lines))
    if below == _MAX_NUMBER:
        return lines
    return list(itertools.compress(lines, (numbers < np.uint64(below)).tolist()))


def drawn_of_block(
    number: int, segments: Iterable[corpus.Segment], below: int, seed: int
) -> Iterator[str]:
    """Yields the lines of a block that are in the sample; `below`: result of `sample_limit`."""
    for place, segment in enumerate(segments):
        draw = line_numbers(seed, number, place)
        for lines in corpus.nonblank_lines(segment):
            yield from sampled_lines(lines, below, draw)


def drawn_lines(
    plan: corpus.Plan, recipe: VocabRecipe, counts: collections.Counter[str]
) -> Iterator[str]:
    """Yields all lines in order or, if there are too many, a random sample of them.

    SentencePiece can also draw them, but not the same ones twice (0.2.3, whatever its seed). Adds
    the numbers of lines and of those not drawn to `counts`.
    """
    sizes = [corpus.count_lines(segments) for segments in plan.blocks]
    counts["lines"] = sum(map(sum, sizes))
    counts["not_drawn"] = max(0, counts["lines"] - recipe.input_sentence_size)
    below = sample_limit(sizes, recipe.input_sentence_size, recipe.random_seed)
    for number, segments in enumerate(plan.blocks):
        yield from drawn_of_block(number, segments, below, recipe.random_seed)


def train_vocab(
    input_paths: Sequence[str],
    recipe: VocabRecipe,
    draw: DrawLines = drawn_lines,
) -> tuple[bytes, collections.Counter[str]]:
    """Trains a vocabulary on text files, one sentence per line.

    Returns:
      (serialized SentencePiece model, Counter of lines, sentences used and lines ignored).
    """
    # Imported here: only needed when training begins.
    import sentencepiece

    plan = corpus.plan_blocks(input_paths)
    counts: collections.Counter[str] = collections.Counter()
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(draw(plan, recipe, counts), recipe, counts),
            model_writer=model,
            model_type="unigram",
            vocab_size=recipe.vocab_size,
            character_coverage=recipe.character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(USER_DEFINED_SYMBOLS),
            shuffle_input_sentence=True,
            input_sentence_size=0,  # no limit: they have been drawn
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=recipe.num_threads,
            minloglevel=1,
        )
    except RuntimeError as error:
        raise file_io.InputError(_explain(str(error), recipe, counts)) from error
    return model.getvalue(), counts


def sentences(
    lines: Iterable[str], recipe: VocabRecipe, counts: collections.Counter[str]
) -> Iterator[str]:
    """Yields preprocessed lines, long ones in parts; counts these and those without text."""
    for line in lines:
        sentence = tokenization.preprocess_text(
            line, lower=recipe.do_lower_case, keep_accents=bool(recipe.keep_accents)
        )
        parts = list(_parts(sentence))
        counts["sentences" if parts else "empty"] += 1
        if len(parts) > 1:
            counts["cut"] += 1
        yield from parts


def _parts(sentence: str) -> Iterator[str]:
    """Yields the parts of a text that SentencePiece reads, cut at spaces if there are any."""
    content = sentence.encode()
    while len(content) > MAX_SENTENCE_BYTES:
        end = content.rfind(b" ", 1, MAX_SENTENCE_BYTES + 1)
        if end < 0:
            end = MAX_SENTENCE_BYTES
            while content[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
        yield content[:end].decode()
        content = content[end:].lstrip(b" ")
    if content:
        yield content.decode()


def _explain(message: str, recipe: VocabRecipe, counts: collections.Counter[str]) -> str:
    """Explains SentencePiece's error in terms of the recipe."""
    if not counts["sentences"]:
        return _NO_SENTENCE
    if largest := re.search(r"too high.*<= (\d+)", message):
        return _too_high(largest[1], recipe, counts)
    if smaller := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return _too_low(smaller[2], recipe, counts)
    return f"SentencePiece cannot train on {_amount(counts)}: {message}"


def _amount(counts: collections.Counter[str]) -> str:
    return f"{counts['sentences']} sentence(s)"


def _too_high(max_size: int | str, recipe: VocabRecipe, counts: collections.Counter[str]) -> str:
    return (
        f"vocab_size={recipe.vocab_size} is too high for {_amount(counts)}: they yield at most "
        f"{max_size} pieces; give more text, or vocab_size={max_size}"
    )


def _too_low(min_size: int | str, recipe: VocabRecipe, counts: collections.Counter[str]) -> str:
    return (
        f"vocab_size={recipe.vocab_size} is too low for {_amount(counts)}: the special pieces and "
        f"the characters alone are {min_size}; give a larger vocab_size or a lower "
        f"character_coverage than {recipe.character_coverage:g}"
    )


def vocab_text(model: bytes) -> str:
    """Returns the text of a model's `.vocab` file: a line "piece<TAB>score" per id."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return "".join(
        f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in range(len(processor))
    )


def write_vocab(prefix: str, model: bytes) -> None:
    """Writes `<prefix>.model` and `<prefix>.vocab`; files there are replaced as a whole."""
    file_io.write_text(f"{prefix}.vocab", vocab_text(model))
    file_io.write_bytes(f"{prefix}.model", model)


def train_wordpiece(
    input_paths: Sequence[str],
    recipe: VocabRecipe,
    draw: DrawLines = drawn_lines,
) -> tuple[list[str], collections.Counter[str]]:
    """Trains a WordPiece vocabulary on text files, one sentence per line.

    Returns:
      (list of pieces by id, Counter of lines, sentences used and lines ignored).
    """
    with requirements.needed(
        "a WordPiece vocabulary needs the package tokenizers: pip install tokenizers ({error})"
    ):
        import tokenizers
    plan = corpus.plan_blocks(input_paths)
    counts: collections.Counter[str] = collections.Counter()
    words = _count_words(draw(plan, recipe, counts), recipe, counts)
    alphabet = _most_frequent(words, recipe.character_coverage)
    # A word with another character is unknown to any such vocabulary.
    words = {word: count for word, count in words.items() if alphabet.issuperset(word)}
    inside = {character for word in words for character in word[1:]}
    first = [*WORDPIECE_SYMBOLS, *sorted(alphabet), *(f"##{c}" for c in sorted(inside))]
    if not words:
        raise file_io.InputError(_NO_SENTENCE)
    if len(first) > recipe.vocab_size:
        raise file_io.InputError(_too_low(len(first), recipe, counts))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=recipe.vocab_size,
        min_frequency=_MIN_PIECE_COUNT,
        # Single characters too: else the order of theirs, and of what is as frequent, is chance.
        special_tokens=first,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeat_words(words), trainer)
    vocab = tokenizer.get_vocab()
    if len(vocab) < recipe.vocab_size:
        raise file_io.InputError(_too_high(len(vocab), recipe, counts))
    return sorted(vocab, key=vocab.__getitem__), counts


def _count_words(
    lines: Iterable[str], recipe: VocabRecipe, counts: collections.Counter[str]
) -> Mapping[str, int]:
    """Counts the words that the tokenizer makes of lines."""
    rules = text_rules.TextRules(recipe.do_lower_case, recipe.keep_accents)
    strips_accents = rules.strips_accents(sentencepiece=False)
    split = tokenization.BasicTokenizer(rules.lower, strips_accents).tokenize
    words: collections.Counter[str] = collections.Counter()
    for line in lines:
        line_words = split(line)
        counts["sentences" if line_words else "empty"] += 1
        words.update(line_words)
    return words


def _most_frequent(words: Mapping[str, int], coverage: float) -> set[str]:
    """Returns the most frequent characters that together are the fraction `coverage` of all."""
    characters: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    alphabet, budget = set(), coverage * characters.total()
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if budget <= 0:
            break
        alphabet.add(character)
        budget -= count
    return alphabet


def _repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    """Yields texts in which each word occurs as often as it was counted."""
    for word, count in words.items():
        for start in range(0, count, _REPEATED_WORDS):
            yield " ".join([word] * min(_REPEATED_WORDS, count - start))


def write_wordpiece(prefix: str, pieces: Iterable[str]) -> None:
    """Writes `<prefix>.txt`; a file there is replaced as a whole."""
    file_io.write_text(f"{prefix}.txt", wordpiece.vocab_text(pieces))
