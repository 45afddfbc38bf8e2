"""WordPiece, as in BERT: splits a text into words and words into pieces; reads vocabularies.

No TensorFlow here. Use these names through `tokenization`.
"""

import functools
import itertools
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import six

from albert.io import file_io

WORD_START = "▁"  # SentencePiece's stand-in for a space
MAX_WORD_CHARACTERS = 200  # longer words are [UNK]
_WORD_CACHE_SIZE = 1 << 17
# Characters that are decomposed together, and marks after them that may belong to the last.
_PART, _MAX_MARKS = 256, 32
# Name of a file in commands that stands for the file of the hub module.
HUB_WORD = "from_tf_hub"


def convert_to_unicode(text: str | bytes) -> str:
    """Returns the `str` of str or UTF-8 bytes; drops bytes that are not UTF-8."""
    return six.ensure_text(text, "utf-8", "ignore")


def printable_text(text: str | bytes) -> str:
    """Returns the `str` to print of str or UTF-8 bytes; see `convert_to_unicode`."""
    return six.ensure_str(text, "utf-8", "ignore")


def check_no_hub_word(flag: str, path: str | None) -> None:
    """Checks that the value of a flag is not `HUB_WORD`, if there is no hub module."""
    if path == HUB_WORD:
        raise file_io.InputError(
            f"{flag}={HUB_WORD} stands for the file of a hub module, but no hub module is given: "
            "name a file, or, where the script takes it, albert_hub_module_handle"
        )


def is_text(content: bytes) -> bool:
    """Returns whether bytes are UTF-8 text."""
    try:
        return "\0" not in content.decode("utf-8")
    except UnicodeDecodeError:
        return False


def is_sentencepiece_list(pieces: Iterable[str]) -> bool:
    """Returns whether pieces are those of a SentencePiece model, as its .vocab file lists them."""
    pieces = list(pieces)
    begins = any(piece.startswith(WORD_START) for piece in pieces)
    return begins and not any(piece.startswith("##") for piece in pieces)


def load_vocab(path: str, ids_by_line: bool = False) -> dict[str, int]:
    """Reads a WordPiece vocabulary: one piece per line, or the one in a ``tokenizer.json``.

    As google-research/albert counts, ids count distinct pieces from 0; a piece is the first
    white-space-separated field of its line. A line of white space alone holds the piece " "; a
    repeated piece keeps its first id.

    Args:
      ids_by_line: ids are numbers of lines, as google-research/bert and Hugging Face count; a
        repeated piece has its last id. The other lines of it, and blank ones, get the names of
        pieces that no text gives.

    Returns:
      Pieces with their ids, in the order of the ids.
    """
    check_no_hub_word("vocab_file", path)
    if path.endswith(".json"):
        return _vocab_of_library(path)
    content = file_io.read_bytes(path, "vocab_file")
    if not is_text(content):
        raise file_io.InputError(
            f"vocab_file: {path} is not a text file with one piece per line; if it is a "
            "SentencePiece model, give it as spm_model_file"
        )
    lines = content.decode("utf-8-sig").rstrip().split("\n")
    vocab = _ids_by_line(lines) if ids_by_line else _ids_by_piece(lines)
    if len(vocab) == 1:
        raise file_io.InputError(f"vocab_file: {path} must be a list of pieces, one per line")
    if is_sentencepiece_list(vocab):
        raise file_io.InputError(
            f"vocab_file: {path} lists the pieces of a SentencePiece model; such a model is read "
            "from its .model file, give that as spm_model_file"
        )
    return vocab


def tokenizer_model_type(content: Mapping[str, Any]) -> object:
    """Returns the type of the model in a ``tokenizer.json``; None without a model.

    Older files do not name it: the library `tokenizers` then tells it by the entries.
    """
    model = content.get("model")
    if not isinstance(model, dict) or not model:
        return None
    if "type" in model:
        return model["type"]
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    is_wordpiece = {"continuing_subword_prefix", "max_input_chars_per_word"} <= model.keys()
    return "WordPiece" if is_wordpiece else "WordLevel"


def _vocab_of_library(path: str) -> dict[str, int]:
    """Reads the vocabulary in a ``tokenizer.json`` of the library `tokenizers`."""
    content = file_io.read_json(path, "vocab_file", dict)
    kind = tokenizer_model_type(content)
    if kind != "WordPiece":
        raise file_io.InputError(
            f"vocab_file: {path} holds a model of the type {kind!r}; only WordPiece is read from "
            "such a file: give spm_model_file or vocab_file"
        )
    model = content["model"]
    ids = model.get("vocab")
    if not isinstance(ids, dict) or not all(type(i) is int and i >= 0 for i in ids.values()):
        raise file_io.InputError(f"vocab_file: {path} has no vocabulary of pieces and their ids")
    pieces = {i: piece for piece, i in ids.items()}
    size = max(pieces, default=-1) + 1
    if len(pieces) < len(ids) or size > 2 * len(pieces):
        raise file_io.InputError(f"vocab_file: the ids of {path} repeat, or most are missing")
    if model.get("continuing_subword_prefix", "##") != "##":
        raise file_io.InputError(
            f"vocab_file: {path} has another continuing_subword_prefix than ##"
        )
    return {pieces.get(i, f"[unused_line_{i + 1}]"): i for i in range(size)}


def vocab_text(pieces: Iterable[str]) -> str:
    """Returns the content of a vocabulary that all programs number equally, of unequal pieces."""
    return "".join(f"{piece}\n" for piece in pieces)


def _ids_by_piece(lines: Iterable[str]) -> dict[str, int]:
    vocab: dict[str, int] = {}
    for line in lines:
        vocab.setdefault((line.split() or [" "])[0], len(vocab))
    return vocab


def _ids_by_line(lines: Iterable[str]) -> dict[str, int]:
    lines = [line.rstrip() for line in lines]
    last = {line: number for number, line in enumerate(lines)}
    # Such a piece is never found, as marks are words of their own.
    return {
        line if line and last[line] == number else f"[unused_line_{number + 1}]": number
        for number, line in enumerate(lines)
    }


class CharacterTable(dict):
    """Table for `str.translate` that computes a character's replacement when it first occurs."""

    def __init__(self, replacement: Callable[[str], str]) -> None:
        super().__init__()
        self._replacement = replacement

    def __missing__(self, code: int) -> str:
        value = self[code] = self._replacement(chr(code))
        return value


def is_dropped(character: str) -> bool:
    """Returns whether a character is dropped: controls, and replacements of undecodable bytes."""
    control = unicodedata.category(character) in ("Cc", "Cf") and character not in "\t\n\r"
    return control or character == "\ufffd"


def is_dropped_or_private(character: str) -> bool:
    """Returns whether a character is for private use, or dropped by `is_dropped`."""
    return unicodedata.category(character) == "Co" or is_dropped(character)


def choose_dropped(drop_private: bool) -> Callable[[str], bool]:
    """Returns which characters are dropped under this rule of `text_rules.TextRules`."""
    return is_dropped_or_private if drop_private else is_dropped


def is_ideograph(character: str) -> bool:
    """Returns whether a character is a Chinese ideograph, by Unicode block: a word of its own."""
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2CEAF
        or 0x2F800 <= code <= 0x2FA1F
    )


def is_punctuation(character: str) -> bool:
    """Returns whether a character is a mark or symbol that is a word of its own."""
    # All ASCII symbols count, also those that Unicode does not call punctuation ("$", "^").
    symbol = character.isascii() and character.isprintable() and not character.isalnum()
    return (symbol and character != " ") or unicodedata.category(character).startswith("P")


def is_accent(character: str) -> bool:
    """Returns whether a character is a mark that lower-cased text loses."""
    return unicodedata.category(character) == "Mn"


def _clean(character: str, split_ideographs: bool, drop_private: bool) -> str:
    if split_ideographs and is_ideograph(character):
        return f" {character} "
    if unicodedata.category(character) == "Zs" or character in "\t\n\r":
        return " "
    return "" if choose_dropped(drop_private)(character) else character


def _space_punctuation(character: str) -> str:
    return f" {character} " if is_punctuation(character) else character


def _strip_accent_and_space_punctuation(character: str) -> str:
    return "" if is_accent(character) else _space_punctuation(character)


_CLEAN = {
    rules: CharacterTable(
        functools.partial(_clean, split_ideographs=rules[0], drop_private=rules[1])
    )
    for rules in itertools.product((False, True), repeat=2)
}
_WITH_ACCENTS = CharacterTable(_space_punctuation)
_WITHOUT_ACCENTS = CharacterTable(_strip_accent_and_space_punctuation)


def decompose(form: Literal["NFD", "NFKD"], text: str) -> str:
    """Applies `unicodedata.normalize` (NFD or NFKD) in time linear in the length.

    Sorting the marks after a character takes the square of their number, so long texts are split
    into parts. A part begins with a character that is not a mark, unless more than `_MAX_MARKS`
    follow each other: then marks on both sides of its begin are not sorted together.
    """
    if len(text) <= _PART or text.isascii():
        return unicodedata.normalize(form, text)
    parts, start = [], 0
    while start < len(text):
        end = start + _PART
        limit = end + _MAX_MARKS
        while end < min(len(text), limit) and unicodedata.combining(text[end]):
            end += 1
        parts.append(unicodedata.normalize(form, text[start:end]))
        start = end
    return "".join(parts)


def whitespace_tokenize(text: str | bytes) -> list[str]:
    """Returns the words of a text (str or UTF-8 bytes) that white space separates."""
    return convert_to_unicode(text).split()


class BasicTokenizer:
    """Splits text into words, by the rules of `text_rules.TextRules` with these names.

    Args:
      strip_accents: None: if it is lower-cased.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        split_ideographs: bool = True,
        drop_private: bool = False,
        lower_alone: bool = False,
    ) -> None:
        self.do_lower_case = do_lower_case
        self._strip_accents = do_lower_case if strip_accents is None else strip_accents
        self._clean = _CLEAN[bool(split_ideographs), bool(drop_private)]
        self._lower_alone = lower_alone

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words of str or UTF-8 bytes; ideographs and marks are single words."""
        if not isinstance(text, str):
            text = convert_to_unicode(text)
        text = text.translate(self._clean)
        if self.do_lower_case:
            # Of all letters this one alone depends on its place.
            text = (text.replace("\u03a3", "\u03c3") if self._lower_alone else text).lower()
        if self._strip_accents:
            text = decompose("NFD", text).translate(_WITHOUT_ACCENTS)
        else:
            text = text.translate(_WITH_ACCENTS)
        return text.split()


class WordpieceTokenizer:
    """Greedy longest-match-first WordPiece on words such as those of `BasicTokenizer`.

    Args:
      vocab: dict piece -> id; pieces inside a word begin with "##".
      unk_token: replaces longer words, and words that the vocabulary cannot spell.
    """

    def __init__(
        self,
        vocab: Collection[str],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = MAX_WORD_CHARACTERS,
    ) -> None:
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self._longest = max(map(len, vocab), default=0)
        self._cache: dict[str, Sequence[str]] = {}

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of the words of str or UTF-8 bytes that white space separates."""
        return [piece for word in whitespace_tokenize(text) for piece in self.tokenize_word(word)]

    def tokenize_word(self, word: str) -> Sequence[str]:
        """Returns a tuple of the pieces of one word."""
        pieces = self._cache.get(word)
        if pieces is None:
            if len(self._cache) >= _WORD_CACHE_SIZE:
                self._cache.clear()
            pieces = self._cache[word] = self._split(word)
        return pieces

    def _split(self, word: str) -> tuple[str, ...]:
        if len(word) > self.max_input_chars_per_word:
            return (self.unk_token,)
        pieces, start, prefix = [], 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if prefix + word[start:end] in self.vocab:
                    break
            else:
                return (self.unk_token,)
            pieces.append(prefix + word[start:end])
            start, prefix = end, "##"
        return tuple(pieces)
