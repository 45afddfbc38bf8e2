"""Reads plain-text corpora, and trains the vocabulary of a model on them.

A corpus has one sentence a line and a blank line between documents. One of any size is handled as
blocks of whole documents, so that memory stays bounded.
A SentencePiece vocabulary is made as for the published English models: unigram pieces of
preprocessed text, the special pieces in their places, some marks always alone. Source: ALBERT (Lan
et al., 2020), section 4.1; SentencePiece (Kudo and Richardson, 2018). A WordPiece one is made as
for a BERT: the pieces that stand side by side most often are merged until there are enough.
"""

import codecs
import collections
import dataclasses
import io
import re

from albert.io import archives, file_io
from albert.text import line_sample, tokenization

BLOCK_BYTES = 16 << 20
# A document longer than this is handled as several, and a line longer than it is refused.
MAX_DOCUMENT_BYTES = 2 * BLOCK_BYTES
_BLANK_LINE = re.compile(rb"\n[ \t\r\f\v]*\n")
PIECE_BYTES = 1 << 20  # text decoded at a time
CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")  # ids 2, 3, 4, after <pad> 0 and <unk> 1
# Pieces by themselves wherever they occur.
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
# SentencePiece leaves longer lines out without a word; here they are counted.
MAX_SENTENCE_BYTES = 4192
# The first pieces of a WordPiece vocabulary, where BERT's programs look for them.
WORDPIECE_SYMBOLS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_NO_SENTENCE = "no sentence found in the input; expected one sentence a line"
_MIN_PIECE_COUNT = 2  # what stands in the text once is not worth a piece
_REPEATED_WORDS = 10_000  # at a time


# --- blocks and lines ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Segment:
    """A stretch of a file that begins and ends with a line: bytes `start` to `end` of `path`.

    Of a compressed file the bytes are those of its content.
    """

    path: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a corpus is divided.

    Attributes:
      blocks: tuples of `Segment`s; the end of a segment ends a document.
      num_bytes: length of the whole corpus.
      cut_documents: places where a document was too long and had to be cut.
    """

    blocks: tuple
    num_bytes: int
    cut_documents: int


def plan_blocks(paths, block_bytes=BLOCK_BYTES, max_document_bytes=MAX_DOCUMENT_BYTES):
    """Divides text files into blocks of whole documents of about `block_bytes`.

    Reads everything once, so that unreadable text is reported before hours of work.

    Raises:
      file_io.InputError: a file is not UTF-8 or has a line longer than `max_document_bytes`; the
        message names file and line.
    """
    blocks, current, filled, total, cuts = [], [], 0, 0, 0
    for path in paths:
        for start, end, cut in _scan_file(path, block_bytes, max_document_bytes):
            current.append(Segment(path, start, end))
            filled += end - start
            total += end - start
            cuts += cut
            if filled >= block_bytes:
                blocks.append(tuple(current))
                current, filled = [], 0
    if current:
        blocks.append(tuple(current))
    return Plan(tuple(blocks), total, cuts)


def _scan_file(path, block_bytes, max_document_bytes):
    """Yields (start, end, whether the end is inside a document) of a file's segments."""
    start, data, first_line = 0, b"", 1
    with archives.open_input(path, "input text") as file:
        while chunk := file.read(block_bytes):
            data += chunk
            end, cut = _last_document_end(data), False
            if not end and len(data) >= max_document_bytes:
                end, cut = data.rfind(b"\n") + 1, True
                if not end:
                    raise file_io.InputError(
                        f"{path}, line {first_line} has more than {max_document_bytes} bytes; "
                        "expected one sentence a line and a blank line between documents"
                    )
            if end:
                _check_utf8(data[:end], path, first_line)
                yield start, start + end, cut
                start += end
                first_line += data.count(b"\n", 0, end)
                data = data[end:]
    if data:
        _check_utf8(data, path, first_line)
        yield start, start + len(data), False


def _last_document_end(data):
    """Length of `data` up to and including its last blank line, 0 if it has none."""
    # Nearly always the last blank line is empty and near the end; only else search everything.
    end = data.rfind(b"\n\n")
    if end >= 0:
        return end + 2
    return max((match.end() for match in _BLANK_LINE.finditer(data)), default=0)


def _check_utf8(data, path, first_line):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise file_io.InputError(
            f"{path}, line {line}, byte {column}: not UTF-8 text ({error.reason}: "
            f"0x{data[error.start]:02x}); convert the file to UTF-8"
        ) from error


def read_lines(segment):
    """Yields the lines of a segment in lists of moderate length, without line ends.

    Only "\\n" ends a line. A byte order mark at the start of the file is dropped.
    """
    with archives.open_at(segment.path, "input text", segment.start) as file:
        left = segment.end - segment.start
        rest = b""
        while left:
            data = file.read(min(PIECE_BYTES, left))
            if not data:
                raise file_io.InputError(f"{segment.path} was cut off while it was being read")
            at_file_start = left == segment.end
            left -= len(data)
            if at_file_start:
                data = data.removeprefix(codecs.BOM_UTF8)
            complete, newline, rest = (rest + data).rpartition(b"\n")
            if newline:
                yield complete.decode("utf-8").split("\n")
    if rest:
        yield [rest.decode("utf-8")]


# --- vocabularies -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class VocabRecipe:
    """What the vocabulary depends on, beside the text.

    Attributes:
      vocab_size: V, all special pieces counted.
      do_lower_case: lower-case the text.
      character_coverage: share of the text's characters that get a piece of their own.
      input_sentence_size: most sentences to train on, drawn at random; bounds the memory.
      num_threads: of SentencePiece; the pieces depend on it, but not on the number of cores.
      random_seed: non-negative integer; decides which sentences are drawn.
    """

    vocab_size: int = 30000
    do_lower_case: bool = True
    character_coverage: float = 0.99995
    input_sentence_size: int = 10_000_000
    num_threads: int = 1
    random_seed: int = 12345


def _lines(segment):
    """Yields the lines that are not blank, in lists."""
    for lines in read_lines(segment):
        yield list(filter(str.strip, lines))


def count_lines(segments):
    """List of the numbers of lines that are not blank, of each segment of a block."""
    return [sum(map(len, _lines(segment))) for segment in segments]


def drawn_of_block(number, segments, below, seed):
    """Yields the drawn lines of a block.

    Args:
      number: of the block.
      segments: its `Segment`s.
      below: what `line_sample.limit` gave.
      seed: of the sample.
    """
    for place, segment in enumerate(segments):
        draw = line_sample.numbers(seed, number, place)
        for lines in _lines(segment):
            yield from line_sample.chosen(lines, below, draw)


def drawn_lines(plan, recipe, counts):
    """Yields lines; if there are too many, as many as wanted at random, in order.

    SentencePiece can draw them too, but not twice the same ones (0.2.3, whatever its seed).

    Args:
      plan: `Plan`.
      recipe: `VocabRecipe`.
      counts: Counter to which the numbers of lines and of those not drawn are added.
    """
    sizes = [count_lines(segments) for segments in plan.blocks]
    counts["lines"] = sum(map(sum, sizes))
    counts["not_drawn"] = max(0, counts["lines"] - recipe.input_sentence_size)
    below = line_sample.limit(sizes, recipe.input_sentence_size, recipe.random_seed)
    for number, segments in enumerate(plan.blocks):
        yield from drawn_of_block(number, segments, below, recipe.random_seed)


def train_vocab(input_paths, recipe, draw=drawn_lines):
    """Trains a vocabulary on text files, one sentence a line.

    Args:
      input_paths: UTF-8 text files.
      recipe: `VocabRecipe`.
      draw: draws the lines, as `drawn_lines` does.

    Returns:
      (serialized SentencePiece model, Counter of lines, sentences used and lines left out).

    Raises:
      file_io.InputError: unreadable text, or too little of it for so many pieces.
    """
    # Imported here: it is only needed when training really begins.
    import sentencepiece

    plan = plan_blocks(input_paths)
    counts = collections.Counter()
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


def sentences(lines, recipe, counts):
    """Yields lines, preprocessed; those that are left out are counted."""
    for line in lines:
        sentence = tokenization.preprocess_text(line, lower=recipe.do_lower_case)
        if not sentence:
            counts["empty"] += 1
        elif len(sentence.encode()) > MAX_SENTENCE_BYTES:
            counts["too_long"] += 1
        else:
            counts["sentences"] += 1
            yield sentence


def _explain(message, recipe, counts):
    """What SentencePiece's error means for the flags."""
    if not counts["sentences"]:
        return _NO_SENTENCE
    if largest := re.search(r"too high.*<= (\d+)", message):
        return _too_high(largest[1], recipe, counts)
    if smaller := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", message):
        return _too_low(smaller[2], recipe, counts)
    return f"SentencePiece cannot train on {_amount(counts)}: {message}"


def _amount(counts):
    return f"{counts['sentences']} sentence(s)"


def _too_high(most, recipe, counts):
    return (
        f"vocab_size={recipe.vocab_size} is too high for {_amount(counts)}: they yield at most "
        f"{most} pieces; give more text, or vocab_size={most}"
    )


def _too_low(least, recipe, counts):
    return (
        f"vocab_size={recipe.vocab_size} is too low for {_amount(counts)}: the special pieces and "
        f"the characters alone are {least}; give a larger vocab_size or a lower "
        f"character_coverage than {recipe.character_coverage:g}"
    )


def vocab_text(model):
    """Text of the `.vocab` file of a serialized model: a line "piece<TAB>score" for each id."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return "".join(
        f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n" for i in range(len(processor))
    )


def write_vocab(prefix, model):
    """Writes `<prefix>.model` and `<prefix>.vocab`; files there are replaced as a whole."""
    file_io.write_text(f"{prefix}.vocab", vocab_text(model))
    file_io.write_bytes(f"{prefix}.model", model)


# --- WordPiece ------------------------------------------------------------------------------------


def train_wordpiece(input_paths, recipe, draw=drawn_lines):
    """Trains a WordPiece vocabulary on text files, one sentence a line.

    Args:
      input_paths: UTF-8 text files.
      recipe: `VocabRecipe`.
      draw: draws the lines, as `drawn_lines` does.

    Returns:
      (list of pieces by id, Counter of lines, sentences used and lines left out).

    Raises:
      file_io.InputError: unreadable text, too little of it for so many pieces, or the package
        tokenizers is missing.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise file_io.InputError(
            "a WordPiece vocabulary needs the package tokenizers: "
            f"pip install '.[wordpiece]' ({error})"
        ) from error
    plan = plan_blocks(input_paths)
    counts = collections.Counter()
    words = _count_words(draw(plan, recipe, counts), recipe, counts)
    kept = _covering(words, recipe.character_coverage)
    # A word with another character is unknown to any such vocabulary.
    words = {word: count for word, count in words.items() if kept.issuperset(word)}
    inside = {character for word in words for character in word[1:]}
    first = [*WORDPIECE_SYMBOLS, *sorted(kept), *(f"##{c}" for c in sorted(inside))]
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
    tokenizer.train_from_iterator(_repeated(words), trainer)
    vocab = tokenizer.get_vocab()
    if len(vocab) < recipe.vocab_size:
        raise file_io.InputError(_too_high(len(vocab), recipe, counts))
    return sorted(vocab, key=vocab.get), counts


def _count_words(lines, recipe, counts):
    """Counter of the words that the tokenizer makes of lines."""
    split = tokenization.BasicTokenizer(recipe.do_lower_case).tokenize
    words = collections.Counter()
    for line in lines:
        found = split(line)
        counts["sentences" if found else "empty"] += 1
        words.update(found)
    return words


def _covering(words, coverage):
    """The most frequent characters of counted words, so many that they are `coverage` of all."""
    characters = collections.Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    kept, left = set(), coverage * characters.total()
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if left <= 0:
            break
        kept.add(character)
        left -= count
    return kept


def _repeated(words):
    """Yields texts in which each word stands as often as it was counted."""
    for word, count in words.items():
        for start in range(0, count, _REPEATED_WORDS):
            yield " ".join([word] * min(_REPEATED_WORDS, count - start))


def write_wordpiece(prefix, pieces):
    """Writes `<prefix>.txt`, a piece a line; a file there is replaced as a whole."""
    file_io.write_text(f"{prefix}.txt", "".join(f"{piece}\n" for piece in pieces))
