"""Writes ``tokenizer.json``, with which the library `tokenizers` gives the ids of `tokenization`.

It describes the steps. With SentencePiece: white space, decomposition, combining marks, lower
case, the vocabulary's own normalization, then the model: unigram, BPE, or characters, which are a
BPE without merges. With WordPiece: controls, white space, lower case, accents; then marks and
ideographs stand alone, and words are split greedily. Both end with ``[CLS] a [SEP] b [SEP]``. What
the file cannot say is refused, and the written file is compared with the tokenizer.

There are three differences: a number before a comma is sometimes split at another place, as pieces
such as "9," are dropped instead of split (see `tokenization.encode_pieces`); where two
segmentations have equal scores, the other one may be chosen; and a text that spells the piece of a
byte, such as "<0x41>", may be that piece.
"""

import base64
import functools
import json
import os
import unicodedata
from collections.abc import Iterator
from typing import Any

from absl import logging

from albert.io import file_io
from albert.text import library_ids, sentencepiece_proto, tokenization, wordpiece

NAME = "tokenizer.json"
# Score of pieces such as "9,", which are always split in two (see `tokenization.encode_pieces`):
# the unigram model never chooses a piece with this score.
_NEVER_CHOSEN = -1e4
# The model never sees a space, so that a piece with this before it is never found in a text.
_UNSEEN = " "


def write(
    folder: str, tokenizer: tokenization.FullTokenizer, with_special_pieces: bool = False
) -> None:
    """Writes ``tokenizer.json``, and rejects a tokenizer that it cannot describe.

    The ids that the file gives are compared with those of the tokenizer. `with_special_pieces`:
    ``[CLS]`` and the like in a text are the special pieces, as transformers expects; otherwise they
    are text, as they are here.
    """
    describe = _sentencepiece if tokenizer.sp_model else _wordpiece
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        **describe(tokenizer, with_special_pieces),
        "post_processor": _template(tokenizer),
    }
    special = [tokenizer.inv_vocab[i] for i in _special(tokenizer)] if with_special_pieces else []
    content["added_tokens"] = [
        {"id": tokenizer.vocab[piece], **added_token(tokenizer, piece)}
        for piece in (*special, *tokenizer.rules.extra_pieces)
    ]
    text = json.dumps(content, ensure_ascii=False)
    _compare(text, tokenizer)
    file_io.write_text(os.path.join(folder, NAME), text)


def _special(tokenizer: tokenization.FullTokenizer) -> list[int]:
    return sorted(
        (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    )


def added_token(tokenizer: tokenization.FullTokenizer, piece: str) -> dict[str, Any]:
    """Returns the description, without its id, of a piece that is found in texts as it is."""
    i = tokenizer.vocab[piece]
    return {
        "content": piece,
        "single_word": False,
        "lstrip": i == tokenizer.mask_id,
        "rstrip": False,
        "normalized": False,
        "special": i in _special(tokenizer),
    }


# --- comparison ---------------------------------------------------------------------------------


def _compare(text: str, tokenizer: tokenization.FullTokenizer) -> None:
    """Compares the ids that a file's text gives with the tokenizer's."""
    try:
        library_ids.compare(text, tokenizer)
    except ImportError as error:
        logging.warning(
            "%s was not compared with the tokenizer, which needs the package tokenizers (%s)",
            NAME,
            error,
        )
    except library_ids.Difference as error:
        raise file_io.InputError(
            f"the vocabulary {tokenizer.vocabulary_file} cannot be "
            f"written as {NAME}, which gives {error}"
        ) from error


# --- steps of both --------------------------------------------------------------------------------


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _split(pattern: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def _ends_in_final_sigma(text: str) -> bool:
    return text.lower().endswith("ς")


@functools.cache
def _final_sigma() -> str:
    """Returns the expression of a capital sigma that ends a word, which alone becomes "ς".

    By Unicode's rule (Final_Sigma) a letter with case is before it, and none behind; characters
    without importance for case, such as an apostrophe, may be between.
    """
    cased = tokenization.character_class(lambda c: _ends_in_final_sigma(f"{c}Σ"))
    ignorable = tokenization.character_class(
        lambda c: _ends_in_final_sigma(f"A{c}Σ") and not _ends_in_final_sigma(f"{c}Σ")
    )
    return rf"{cased}{ignorable}*\KΣ(?!{ignorable}*{cased})"


def _lower_case(alone: bool = False) -> Iterator[dict[str, Any]]:
    """Yields the steps of `str.lower`, of a whole text or of each letter alone."""
    if not alone:
        yield _replace(_final_sigma(), "ς")
    yield {"type": "Lowercase"}


def _template(tokenizer: tokenization.FullTokenizer) -> dict[str, Any]:
    """Builds the template of ``[CLS] a [SEP]`` and ``[CLS] a [SEP] b [SEP]`` with token types."""
    cls, sep = tokenizer.inv_vocab[tokenizer.cls_id], tokenizer.inv_vocab[tokenizer.sep_id]

    def piece(name: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name: str, kind: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [piece(cls, 0), text("A", 0), piece(sep, 0)]
    ids = {cls: tokenizer.cls_id, sep: tokenizer.sep_id}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), piece(sep, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()
        },
    }


# --- SentencePiece --------------------------------------------------------------------------------


def _sentencepiece(
    tokenizer: tokenization.FullTokenizer, with_special_pieces: bool
) -> dict[str, dict[str, Any]]:
    """Returns the steps and the model of a SentencePiece vocabulary."""
    assert tokenizer.sp_model
    model = sentencepiece_proto.model_class().FromString(
        tokenizer.sp_model.serialized_model_proto()
    )
    symbols = [
        piece.piece for piece in model.pieces if piece.type == sentencepiece_proto.USER_DEFINED
    ]
    _check(tokenizer, model, symbols)
    names = [piece.piece for piece in model.pieces]
    if not with_special_pieces:
        for i in _special(tokenizer):
            names[i] = _UNSEEN + names[i]
    for i, piece in enumerate(model.pieces):
        if piece.type == sentencepiece_proto.UNUSED:
            names[i] = _UNSEEN + names[i]
    metaspace = {
        "type": "Metaspace",
        "replacement": tokenization.WORD_START,
        "prepend_scheme": "always" if model.normalizer_spec.add_dummy_prefix else "never",
        # Pieces of models that were trained without a split at spaces may hold several words.
        "split": not any(tokenization.WORD_START in name[1:] for name in names),
    }
    steps: list[dict[str, Any]] = [metaspace]
    if tokenizer.rules.as_huggingface and model.normalizer_spec.add_dummy_prefix:
        steps.insert(0, {"type": "WhitespaceSplit"})
    if model.trainer_spec.model_type == sentencepiece_proto.UNIGRAM:
        kind = _unigram(tokenizer, model, names)
    else:
        kind = _bpe(tokenizer, model, names)
        if symbols:  # No merge goes across them.
            steps.append(_split(f"[{''.join(map(_escape, symbols))}]", "Isolated"))
    return {
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(tokenizer, model))},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}
        if len(steps) > 1
        else metaspace,
        "decoder": metaspace,
        "model": {**kind, "byte_fallback": model.trainer_spec.byte_fallback},
    }


def _escape(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _check(
    tokenizer: tokenization.FullTokenizer, model: sentencepiece_proto.Model, symbols: list[str]
) -> None:
    """Rejects a SentencePiece model of a kind that the library does not have; names it."""
    kind = model.trainer_spec.model_type
    reasons = {
        "model_type=word": kind
        not in (
            sentencepiece_proto.UNIGRAM,
            sentencepiece_proto.BPE,
            sentencepiece_proto.CHARACTERS,
        ),
        "treat_whitespace_as_suffix": model.trainer_spec.treat_whitespace_as_suffix,
        "escape_whitespaces=false": not model.normalizer_spec.escape_whitespaces,
        # A final sigma is lower-cased to another letter than it is folded to.
        "lower-casing before case folding": (
            tokenizer.do_lower_case and model.normalizer_spec.name.endswith("_cf")
        ),
        "user_defined_symbols of several characters, in a model that is not of unigrams": (
            kind != sentencepiece_proto.UNIGRAM and any(len(symbol) > 1 for symbol in symbols)
        ),
    }
    if problems := [reason for reason, holds in reasons.items() if holds]:
        raise file_io.InputError(
            f"{tokenizer.spm_model_file} cannot be written as {NAME}, which has no "
            f"{' and no '.join(problems)}"
        )


def _unigram(
    tokenizer: tokenization.FullTokenizer, model: sentencepiece_proto.Model, names: list[str]
) -> dict[str, Any]:
    """Returns the description of a unigram model; `names` are its pieces by id."""
    scores = _scores(tokenizer, model)
    return {
        "type": "Unigram",
        "unk_id": tokenizer.unk_id,
        "vocab": [[name, score] for name, score in zip(names, scores, strict=True)],
    }


def _bpe(
    tokenizer: tokenization.FullTokenizer, model: sentencepiece_proto.Model, names: list[str]
) -> dict[str, Any]:
    """Returns the description of a BPE: of two adjacent pieces the best known piece is made.

    A model of characters is one without merges. `names` are the pieces by id.
    """
    merges = []
    if model.trainer_spec.model_type == sentencepiece_proto.BPE:
        scores = {
            piece.piece: piece.score
            for piece in model.pieces
            if piece.type == sentencepiece_proto.NORMAL
            and (tokenizer.rules.as_huggingface or not tokenization.is_digit_comma(piece.piece))
        }
        # The sort is stable: of equal scores the first piece comes first.
        for whole in sorted(scores, key=scores.__getitem__, reverse=True):
            merges += [
                [whole[:end], whole[end:]]
                for end in range(1, len(whole))
                if whole[:end] in scores and whole[end:] in scores
            ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": names[tokenizer.unk_id],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "vocab": {name: i for i, name in enumerate(names)},
        "merges": merges,
    }


def _normalizers(
    tokenizer: tokenization.FullTokenizer, model: sentencepiece_proto.Model
) -> Iterator[dict[str, Any]]:
    """Yields the steps of `FullTokenizer.preprocess`, then those of the SentencePiece model."""
    if tokenizer.rules.quotes:
        for pair in ("``", "''"):
            yield {"type": "Replace", "pattern": {"String": pair}, "content": '"'}
    charsmap = model.normalizer_spec.precompiled_charsmap
    if tokenizer.rules.as_huggingface:
        if not tokenizer.keep_accents:
            yield from ({"type": "NFKD"}, {"type": "StripAccents"})
        if tokenizer.do_lower_case:
            yield {"type": "Lowercase"}
        if charsmap:
            yield _precompiled(charsmap)
        return
    yield _replace(tokenization.character_class(str.isspace) + "+", " ")
    yield {"type": "Strip", "strip_left": True, "strip_right": True}
    if not tokenizer.keep_accents:
        yield {"type": "NFKD"}
        yield _replace(tokenization.character_class(unicodedata.combining), "")
    if tokenizer.do_lower_case:
        yield from _lower_case()
    if charsmap:
        # The library looks up whole syllables of Korean, not the letters that make them.
        yield {"type": "NFC"}
        yield _precompiled(charsmap)
    if model.normalizer_spec.remove_extra_whitespaces:
        yield _replace(" {2,}", " ")
        yield {"type": "Strip", "strip_left": True, "strip_right": True}


def _precompiled(charsmap: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(charsmap).decode("ascii")
    return {"type": "Precompiled", "precompiled_charsmap": encoded}


def _scores(
    tokenizer: tokenization.FullTokenizer, model: sentencepiece_proto.Model
) -> Iterator[float]:
    """Yields the score of every piece that SentencePiece actually uses."""
    splits = not tokenizer.rules.as_huggingface
    highest = max(piece.score for piece in model.pieces if piece.type == sentencepiece_proto.NORMAL)
    for piece in model.pieces:
        if piece.type == sentencepiece_proto.USER_DEFINED:
            yield len(piece.piece.encode()) * highest - 0.1
        elif piece.type == sentencepiece_proto.BYTE or (
            splits and tokenization.is_digit_comma(piece.piece)
        ):
            yield _NEVER_CHOSEN
        else:
            yield piece.score


# --- WordPiece ------------------------------------------------------------------------------------


def _wordpiece(
    tokenizer: tokenization.FullTokenizer, with_special_pieces: bool
) -> dict[str, dict[str, Any]]:
    """Returns the steps and the model of a WordPiece vocabulary; see `wordpiece`."""
    is_dropped = wordpiece.choose_dropped(tokenizer.rules.drop_private)
    normalizers = [_replace(tokenization.character_class(is_dropped), "")]
    if tokenizer.do_lower_case:
        normalizers += _lower_case(tokenizer.rules.lower_alone)
    if not tokenizer.keep_accents:
        normalizers.append({"type": "NFD"})
        normalizers.append(_replace(tokenization.character_class(wordpiece.is_accent), ""))
    steps = [_split(tokenization.character_class(str.isspace) + "+", "Removed")]
    if tokenizer.rules.split_ideographs:
        steps.append(_split(tokenization.character_class(wordpiece.is_ideograph), "Isolated"))
    steps.append(_split(tokenization.character_class(wordpiece.is_punctuation), "Isolated"))
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.inv_vocab[tokenizer.unk_id],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": tokenizer.rules.longest_word,
            "vocab": dict(list(tokenizer.vocab.items())[: tokenizer.base_size]),
        },
    }
