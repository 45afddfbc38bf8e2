"""Text to pieces to ids: SentencePiece (English models) and WordPiece (Chinese models).

No TensorFlow here, so that data workers start quickly. Pieces are `str` everywhere.
"""

import functools
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from albert.io import file_io
from albert.text import text_rules, wordpiece

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

WORD_START = wordpiece.WORD_START
# Names of the reference's module, which users import from here.
convert_to_unicode = wordpiece.convert_to_unicode
printable_text = wordpiece.printable_text
load_vocab = wordpiece.load_vocab
whitespace_tokenize = wordpiece.whitespace_tokenize
BasicTokenizer = wordpiece.BasicTokenizer
WordpieceTokenizer = wordpiece.WordpieceTokenizer
_FEW_CAPITALS = 0.01  # fraction of pieces with capitals in vocabularies of lower-cased text
# How SentencePiece draws a segmentation: from this many of the best, with this smoothing.
_SAMPLING: dict[str, Any] = {"enable_sampling": True, "nbest_size": 64, "alpha": 0.1}


@functools.cache
def character_class(belongs: Callable[[str], bool]) -> str:
    """Returns a regular expression (RE2, Rust) of a character for which `belongs` holds."""
    ranges: list[Any] = []
    for code in filter(lambda code: belongs(chr(code)), range(sys.maxunicode + 1)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    inside = "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ranges)
    return f"[{inside}]"


def preprocess_text(
    text: str | bytes, remove_space: bool = True, lower: bool = False, keep_accents: bool = False
) -> str:
    """Brings text into the form that the SentencePiece vocabularies were trained on.

    White space runs become one space and are stripped at the ends, characters are decomposed
    (NFKD) and lose their combining marks.

    Args:
      remove_space: whether to normalize white space; not for the alignment of single characters.
      keep_accents: whether characters stay as they are, for SentencePiece to normalize.
    """
    if not isinstance(text, str):
        text = convert_to_unicode(text)
    if remove_space:
        text = " ".join(text.split())
    # ASCII is its own decomposition; skipping the rest makes most lines ten times faster.
    if not text.isascii():
        text = text if keep_accents else wordpiece.decompose("NFKD", text)
        for character in set(text):
            if not keep_accents and unicodedata.combining(character):
                text = text.replace(character, "")
            elif "\ud800" <= character <= "\udfff":
                # Half of a pair, from text that was cut badly; it has no UTF-8 form.
                text = text.replace(character, "\ufffd")
    return text.lower() if lower else text


def preprocess_as_huggingface(text: str | bytes, lower: bool, keep_accents: bool) -> str:
    """Brings text into the form that transformers gives to SentencePiece models of ALBERT.

    As `preprocess_text`, but all marks count as accents, also those that are vowels, and each
    letter alone is lower-cased: a capital sigma that ends a word, too, becomes the usual one.
    """
    text = " ".join(convert_to_unicode(text).split())
    if not (text.isascii() or keep_accents):
        decomposed = wordpiece.decompose("NFKD", text)
        text = "".join(c for c in decomposed if not unicodedata.category(c).startswith("M"))
    text = preprocess_text(text, keep_accents=True)
    return text.replace("\u03a3", "\u03c3").lower() if lower else text


def is_digit_comma(piece: str) -> bool:
    """Returns whether a piece ends in a digit and a comma."""
    return piece[-1:] == "," and piece[-2:-1].isdigit()


def resplit(sp_model: "SentencePieceProcessor", piece: str) -> list[str]:
    """Splits a piece that ends in a digit and a comma; returns others as they are.

    "…9," becomes the number, encoded again without an added "▁", and the comma.
    """
    if not is_digit_comma(piece):
        return [piece]
    number = sp_model.encode(piece[:-1].replace(WORD_START, ""), out_type=str)
    if number and not piece.startswith(WORD_START) and number[0].startswith(WORD_START):
        number[0] = number[0][1:]
        if not number[0]:
            del number[0]
    return [*number, ","]


def encode_pieces(
    sp_model: "SentencePieceProcessor",
    text: str,
    return_unicode: bool = True,
    sample: bool = False,
) -> list[str]:
    """Returns the pieces of preprocessed text; splits those that end in a digit and a comma again.

    So "2000," is not one piece (the rule that the published vocabularies were used with). A leading
    "▁" that only the second encoding adds is removed.

    Args:
      text: output of `preprocess_text`, or its UTF-8 bytes.
      return_unicode: without effect: pieces are always `str`, as in Python 3.
      sample: draw a random segmentation instead of the most probable one.
    """
    if not isinstance(text, str):
        text = convert_to_unicode(text)
    pieces = []
    for piece in sp_model.encode(text, out_type=str, **(_SAMPLING if sample else {})):
        pieces.extend(resplit(sp_model, piece))
    return pieces


def encode_ids(sp_model: "SentencePieceProcessor", text: str, sample: bool = False) -> list[int]:
    """Returns the ids of `encode_pieces(sp_model, text, sample=sample)`."""
    return sp_model.piece_to_id(encode_pieces(sp_model, text, sample=sample))


def _load_sentencepiece(path: str) -> "SentencePieceProcessor":
    # Imported here: workers of a Chinese model do not need it.
    import sentencepiece

    wordpiece.check_no_hub_word("spm_model_file", path)
    content = file_io.read_bytes(path, "spm_model_file")
    sp_model = sentencepiece.SentencePieceProcessor()
    try:
        if content:
            sp_model.LoadFromSerializedProto(content)
            return sp_model
        problem = "it is empty"
    except RuntimeError:
        problem = _problem_with(content)
    raise file_io.InputError(f"spm_model_file: {path} is not a SentencePiece model; {problem}")


def _problem_with(content: bytes) -> str:
    """Returns what a file is in place of a SentencePiece model, and what to give."""
    if not wordpiece.is_text(content):
        return "expected a file such as 30k-clean.model"
    if wordpiece.is_sentencepiece_list(content.decode().splitlines()):
        return "it lists the pieces of such a model: give the .model file that it belongs to"
    return "a text file: give a WordPiece vocabulary as vocab_file"


def _sentencepiece_pieces(sp_model: "SentencePieceProcessor", path: str) -> list[str]:
    try:
        return sp_model.id_to_piece(list(range(len(sp_model))))
    except UnicodeDecodeError as error:
        raise file_io.InputError(
            f"spm_model_file: {path} is damaged, a piece is not valid UTF-8: {error}"
        ) from error


def convert_by_vocab(vocab: Mapping[Any, Any], items: Iterable[Any]) -> list[Any]:
    """Returns the values of items in a dict: ids of pieces, or pieces of ids."""
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the ids of pieces by a dict piece -> id; see `convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the pieces of ids by a dict id -> piece; see `convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def _any_of(pieces: Sequence[str]) -> re.Pattern[str] | None:
    """Returns the compiled expression, with one group, of any of some pieces; None without any."""
    longest_first = sorted(pieces, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if pieces else None


class FullTokenizer:
    """Text -> pieces -> ids, with SentencePiece if a model is given, else with WordPiece.

    Args:
      vocab_file: WordPiece vocabulary; not read when `spm_model_file` is given.
      do_lower_case: whether text is lower-cased (and, for WordPiece, loses its accents).
      rules: all about how texts become pieces, `do_lower_case` too, which is then not used.

    Attributes:
      vocab, inv_vocab: ids by piece, pieces by id.
      vocab_size: number of pieces, V.
      base_size: number of pieces in the vocabulary's file; extra pieces may follow.
      cls_id, sep_id, mask_id, pad_id, unk_id: ids of the special pieces.
      sp_model: None for WordPiece.
      basic_tokenizer, wordpiece_tokenizer: only for WordPiece.
      do_lower_case: never None, unlike that of `rules`.

    Raises:
      file_io.InputError: no file is given, or it is missing, unsuitable or without special pieces;
        or nobody says the casing of a vocabulary with capitals.
    """

    def __init__(
        self,
        vocab_file: str | None = None,
        do_lower_case: bool = True,
        spm_model_file: str | None = None,
        rules: text_rules.TextRules | None = None,
    ) -> None:
        self.rules = text_rules.TextRules(do_lower_case) if rules is None else rules
        self.do_lower_case = self.rules.lower
        self.keep_accents = not self.rules.strips_accents(bool(spm_model_file))
        self.vocab_file = vocab_file
        self.spm_model_file = spm_model_file
        self.vocabulary_file = spm_model_file or vocab_file or ""
        self.sp_model: SentencePieceProcessor | None = None
        if spm_model_file:
            self.sp_model = _load_sentencepiece(spm_model_file)
            pieces = _sentencepiece_pieces(self.sp_model, spm_model_file)
            self.vocab = {piece: i for i, piece in enumerate(pieces)}
        elif vocab_file:
            self.vocab = load_vocab(vocab_file, self.rules.ids_by_line)
        else:
            raise file_io.InputError(
                "a tokenizer needs spm_model_file (SentencePiece) or vocab_file (WordPiece); "
                "neither was given"
            )
        self.base_size = len(self.vocab)
        for piece in self.rules.extra_pieces:
            self.vocab.setdefault(piece, len(self.vocab))
        self._extra = _any_of(self.rules.extra_pieces)
        self.inv_vocab = {i: piece for piece, i in self.vocab.items()}
        self.vocab_size = len(self.vocab)
        self.cls_id, self.sep_id, self.mask_id, self.pad_id, self.unk_id = self._special_ids()
        self._check_casing()
        if self.sp_model:
            self._resplit_ids = self._find_resplit_ids()
        else:
            self.basic_tokenizer = BasicTokenizer(
                self.do_lower_case,
                not self.keep_accents,
                self.rules.split_ideographs,
                self.rules.drop_private,
                self.rules.lower_alone,
            )
            self.wordpiece_tokenizer = WordpieceTokenizer(
                self.vocab, self.inv_vocab[self.unk_id], self.rules.longest_word
            )

    @classmethod
    def from_scratch(
        cls, vocab_file: str | None, do_lower_case: bool, spm_model_file: str | None
    ) -> "FullTokenizer":
        """Makes the tokenizer of a vocabulary given by flags."""
        return cls(vocab_file, do_lower_case, spm_model_file)

    @classmethod
    def from_hub_module(cls, hub_module: str, do_lower_case: bool = True) -> "FullTokenizer":
        """Makes the tokenizer in the assets of a hub module, a local folder.

        Args:
          do_lower_case: value in the module's `tokenization_info`.
        """
        assets = os.path.join(hub_module, "assets")
        names = file_io.listdir(assets) if file_io.is_dir(assets) else []
        models = [name for name in names if name.endswith(".model")]
        if models:
            path = os.path.join(assets, models[0])
            return cls(do_lower_case=do_lower_case, spm_model_file=path)
        if "vocab.txt" in names:
            path = os.path.join(assets, "vocab.txt")
            return cls(vocab_file=path, do_lower_case=do_lower_case)
        raise file_io.InputError(
            f"hub module {hub_module}: expected a *.model file or vocab.txt in {assets}; give "
            "spm_model_file or vocab_file"
        )

    def _special_ids(self) -> list[int]:
        # A WordPiece list may also hold "<unk>" as an ordinary entry, and the reverse.
        order = slice(None) if self.sp_model else slice(None, None, -1)
        pad, unk = ("<pad>", "[PAD]")[order], ("<unk>", "[UNK]")[order]
        ids, missing = [], []
        for names in (("[CLS]",), ("[SEP]",), ("[MASK]",), pad, unk):
            candidates = [self.vocab[name] for name in names if name in self.vocab]
            ids.extend(candidates[:1])
            if not candidates:
                missing.append(" or ".join(names))
        if missing:
            remedy = "is it a WordPiece vocabulary, one piece per line?"
            if self.sp_model:
                remedy = "train it with pad_id 0, unk_id 1 and control symbols [CLS], [SEP], [MASK]"
            raise file_io.InputError(
                f"{self.vocabulary_file} lacks special pieces: expected "
                f"{', '.join(missing)} among its {len(self.vocab)} pieces; {remedy}"
            )
        return ids

    def _find_resplit_ids(self) -> frozenset[int]:
        """Returns the ids of pieces that may end in a digit and a comma, and are split then."""
        if self.rules.as_huggingface:
            return frozenset()
        ids = {i for piece, i in self.vocab.items() if is_digit_comma(piece)}
        # Adjacent unknown characters make one piece, so an unknown comma can follow a digit.
        return frozenset(ids if "," in self.vocab else ids | {self.unk_id})

    def unreachable_pieces(self) -> list[str]:
        """Lists the pieces that no text can give, as texts lose capitals or accents before.

        Special and extra pieces do not count.
        """
        is_mark = unicodedata.combining if self.sp_model else wordpiece.is_accent
        pieces = list(self._text_pieces())
        lost = {
            c for c in set().union(*pieces)
            if (self.do_lower_case and c.lower() != c)
            or (not self.keep_accents and any(map(is_mark, unicodedata.normalize("NFD", c))))
        }  # fmt: skip
        return [piece for piece in pieces if not lost.isdisjoint(piece)]

    def _text_pieces(self) -> Iterator[str]:
        """Yields the pieces that texts may give, by their names."""
        extra = set(self.rules.extra_pieces)
        for piece in self.vocab:
            if not (piece in extra or (piece[:1] + piece[-1:] in ("[]", "<>") and len(piece) > 2)):
                yield piece

    def text_ids(self) -> list[int]:
        """Lists the ids of pieces that texts may give, with extra pieces; no special ones."""
        return [self.vocab[piece] for piece in (*self._text_pieces(), *self.rules.extra_pieces)]

    def _check_casing(self) -> None:
        """Rejects a vocabulary with capitals, of which nobody says whether texts keep theirs."""
        if self.rules.do_lower_case is not None:
            return
        capitals = [piece for piece in self._text_pieces() if piece.lower() != piece]
        if len(capitals) > _FEW_CAPITALS * self.vocab_size:
            examples = ", ".join(map(repr, capitals[:3]))
            raise file_io.InputError(
                f"{self.vocabulary_file}: {len(capitals)} of its "
                f"{self.vocab_size} pieces have capitals ({examples}), which lower-cased text "
                "never gives, and nothing says whether the model's text was lower-cased: give "
                "nodo_lower_case for a cased model, or do_lower_case"
            )

    def preprocess(self, text: str | bytes) -> str:
        """Applies `preprocess_text` for SentencePiece; WordPiece takes text as it is."""
        if self.sp_model is None:
            return convert_to_unicode(text)
        if self.rules.quotes:
            text = convert_to_unicode(text).replace("``", '"').replace("''", '"')
        clean = preprocess_as_huggingface if self.rules.as_huggingface else preprocess_text
        return clean(text, lower=self.do_lower_case, keep_accents=self.keep_accents)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text, with or without `preprocess`."""
        if self._extra is None:
            return self._tokenize(text)
        parts = self._extra.split(convert_to_unicode(text))  # every second one is an extra piece
        return [
            piece
            for number, part in enumerate(parts)
            for piece in ([part] if number % 2 else self._tokenize(part))
        ]

    def _tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text without extra pieces."""
        if self.sp_model is None:
            split = self.wordpiece_tokenizer.tokenize_word
            return [p for word in self.basic_tokenizer.tokenize(text) for p in split(word)]
        text = self.preprocess(text)
        ids = self.sp_model.encode(text)
        if self.rules.as_huggingface:
            return self.sp_model.encode(text, out_type=str)
        if self.unk_id in ids or not self._resplit_ids.isdisjoint(ids):
            return encode_pieces(self.sp_model, text)
        # Looking pieces up is cheaper than having SentencePiece make the strings.
        return [self.inv_vocab[i] for i in ids]

    def words(self, text: str) -> list[tuple[str, Sequence[str]]]:
        """Returns the words of a text with the pieces of each; only for WordPiece."""
        split, words = self.wordpiece_tokenizer.tokenize_word, self.basic_tokenizer.tokenize
        parts = self._extra.split(text) if self._extra else [text]
        words_with_pieces: list[tuple[str, Sequence[str]]] = []
        for number, part in enumerate(parts):
            if number % 2:
                words_with_pieces.append((part, (part,)))
            else:
                words_with_pieces += [(word, split(word)) for word in words(part)]
        return words_with_pieces

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text: those of `tokenize`, but faster.

        Characters that the vocabulary lacks are always `unk_id`, even where they spell "[CLS]".
        """
        if self._extra is None:
            return self._encode(text)
        parts = self._extra.split(convert_to_unicode(text))
        return [
            i
            for number, part in enumerate(parts)
            for i in ([self.vocab[part]] if number % 2 else self._encode(part))
        ]

    def _encode(self, text: str) -> list[int]:
        """Returns the ids of a text without extra pieces."""
        if self.sp_model is None:
            return self.convert_tokens_to_ids(self._tokenize(text))
        # Not a batch of one: SentencePiece starts a thread for each batch.
        text = self.preprocess(text)
        ids = self.sp_model.encode(text)
        return ids if self._resplit_ids.isdisjoint(ids) else encode_ids(self.sp_model, text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of several texts, as `encode` computes them."""
        if self.sp_model is None or self._extra is not None:
            return [self.encode(text) for text in texts]
        texts = [self.preprocess(text) for text in texts]
        # One thread: the caller may be one of several workers.
        batch = self.sp_model.encode(texts, num_threads=1)
        resplit = self._resplit_ids
        return [
            ids if resplit.isdisjoint(ids) else encode_ids(self.sp_model, text)
            for text, ids in zip(texts, batch, strict=True)
        ]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the ids of pieces; `unk_id` for a piece that is not in the vocabulary."""
        vocab, unk_id = self.vocab, self.unk_id
        return [vocab.get(token, unk_id) for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces of ids; raises ValueError for an id that is not in 0..V-1."""
        try:
            return [self.inv_vocab[int(i)] for i in ids]
        except KeyError as error:
            raise ValueError(
                f"id {error} is outside the vocabulary, expected 0..{self.vocab_size - 1}"
            ) from None


def load(path: str, rules: text_rules.TextRules) -> FullTokenizer:
    """Loads the tokenizer of a vocabulary, of a kind that its name says."""
    if path.endswith(".model"):
        return FullTokenizer(spm_model_file=path, rules=rules)
    return FullTokenizer(vocab_file=path, rules=rules)


def check_vocab_size(tokenizer: FullTokenizer, config_vocab_size: int) -> None:
    """Rejects a tokenizer with ids that the table of a model lacks.

    A model with more entries than the tokenizer has pieces works (some pad the table), so that
    is only a warning.
    """
    source = tokenizer.vocabulary_file
    message = f"{source} has {tokenizer.vocab_size} pieces, the config's vocab_size is"
    if tokenizer.vocab_size > config_vocab_size:
        raise file_io.InputError(
            f"{message} only {config_vocab_size}: they belong to different models; give the "
            "vocabulary that the model was trained with"
        )
    if tokenizer.vocab_size < config_vocab_size:
        logging.warning(
            "%s %d; give the vocabulary that the model was trained with, or for a new model set "
            "vocab_size to %d",
            message,
            config_vocab_size,
            tokenizer.vocab_size,
        )


def warn_of_unreachable_pieces(tokenizer: FullTokenizer) -> None:
    """Warns if the vocabulary has pieces that no text can give, and says what helps."""
    pieces = tokenizer.unreachable_pieces()
    if not pieces:
        return
    remedies = ["nodo_lower_case"] if tokenizer.do_lower_case else []
    if not tokenizer.keep_accents:
        remedies.append("keep_accents")
    logging.warning(
        "%s: %d of %d pieces (%s) can never be found, as texts lose their %s; if the vocabulary "
        "was made with them, give %s",
        tokenizer.vocabulary_file,
        len(pieces),
        tokenizer.vocab_size,
        ", ".join(pieces[:3]),
        " and ".join(
            ["capitals"] * tokenizer.do_lower_case + ["accents"] * (not tokenizer.keep_accents)
        ),
        " or ".join(remedies),
    )
