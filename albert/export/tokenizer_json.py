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
import math
import os
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from albert.io import file_io
from albert.text import sample_lines, tokenization, wordpiece

NAME = "tokenizer.json"
# Types of SentencePiece pieces: ordinary ones, those that are never split, unused, and bytes.
_NORMAL, _USER_DEFINED, _UNUSED, _BYTE = 1, 4, 5, 6
_UNIGRAM, _BPE, _CHARACTERS = 1, 2, 4  # types of SentencePiece models
# The required fields of a SentencePiece model, as in sentencepiece_model.proto. The module of the
# package sentencepiece needs the newest protobuf, which TensorFlow or apache-beam may not support.
_SCHEMA = """
    name: "albert/sentencepiece_model.proto" package: "albert" syntax: "proto2"
    message_type {
      name: "Piece"
      field { name: "piece" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: "score" number: 2 label: LABEL_OPTIONAL type: TYPE_FLOAT }
      field { name: "type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
    }
    message_type {
      name: "Trainer"
      field { name: "model_type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32
              default_value: "1" }
      field { name: "treat_whitespace_as_suffix" number: 24 label: LABEL_OPTIONAL type: TYPE_BOOL }
      field { name: "byte_fallback" number: 35 label: LABEL_OPTIONAL type: TYPE_BOOL }
    }
    message_type {
      name: "Normalizer"
      field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: "precompiled_charsmap" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES }
      field { name: "add_dummy_prefix" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL
              default_value: "true" }
      field { name: "escape_whitespaces" number: 5 label: LABEL_OPTIONAL type: TYPE_BOOL
              default_value: "true" }
      field { name: "remove_extra_whitespaces" number: 4 label: LABEL_OPTIONAL type: TYPE_BOOL
              default_value: "true" }
    }
    message_type {
      name: "Model"
      field { name: "pieces" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
              type_name: ".albert.Piece" }
      field { name: "trainer_spec" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".albert.Trainer" }
      field { name: "normalizer_spec" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".albert.Normalizer" }
    }
"""
# Score of pieces such as "9,", which are always split in two (see `tokenization.encode_pieces`):
# the unigram model never chooses a piece with this score.
_NEVER_CHOSEN = -1e4
# The model never sees a space, so that a piece with this before it is never found in a text.
_UNSEEN = " "


def write(
    folder: str, tokenizer: tokenization.FullTokenizer, with_special_pieces: bool = False
) -> None:
    """Writes ``tokenizer.json``, and rejects a tokenizer that it cannot describe.

    The ids that the file gives are compared with those of the tokenizer.

    Args:
      with_special_pieces: whether ``[CLS]`` and the like in a text are the special pieces, as
        transformers expects; otherwise they are text, as they are here.
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
    """Compares the ids that a file's text gives on lines of many scripts with the tokenizer's."""
    try:
        import tokenizers
    except ImportError as error:
        logging.warning(
            "%s was not compared with the tokenizer, which needs the package tokenizers (%s)",
            NAME,
            error,
        )
        return
    theirs = tokenizers.Tokenizer.from_str(text)
    for line in sample_lines.lines(tokenizer):
        expected, found = tokenizer.encode(line), theirs.encode(line, add_special_tokens=False).ids
        if found != expected and not _are_equally_likely(tokenizer, expected, found):
            raise file_io.InputError(
                f"the vocabulary {tokenizer.vocabulary_file} cannot be "
                f"written as {NAME}, which gives other ids on the text {line!r}: {found} instead "
                f"of {expected}"
            )


def _are_equally_likely(
    tokenizer: tokenization.FullTokenizer, ids: list[int], others: list[int]
) -> bool:
    """Returns whether two segmentations have the same score in a unigram model."""
    if tokenizer.sp_model is None or tokenizer.unk_id in (*ids, *others):
        return False
    scores = [sum(map(tokenizer.sp_model.get_score, row)) for row in (ids, others)]
    return math.isclose(*scores, abs_tol=1e-3)


# --- steps of both --------------------------------------------------------------------------------


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


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


def _lower_case() -> Iterator[dict[str, Any]]:
    """Yields the steps of `str.lower`."""
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


@functools.cache
def _spm_class() -> Any:
    """Returns the message class of SentencePiece models."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("albert.Model"))


def _sentencepiece(
    tokenizer: tokenization.FullTokenizer, with_special_pieces: bool
) -> dict[str, dict[str, Any]]:
    """Returns the steps and the model of a SentencePiece vocabulary."""
    assert tokenizer.sp_model
    model = _spm_class().FromString(tokenizer.sp_model.serialized_model_proto())
    symbols = [piece.piece for piece in model.pieces if piece.type == _USER_DEFINED]
    _check(tokenizer, model, symbols)
    names = [piece.piece for piece in model.pieces]
    if not with_special_pieces:
        for i in _special(tokenizer):
            names[i] = _UNSEEN + names[i]
    for i, piece in enumerate(model.pieces):
        if piece.type == _UNUSED:
            names[i] = _UNSEEN + names[i]
    metaspace = {
        "type": "Metaspace",
        "replacement": tokenization.WORD_START,
        "prepend_scheme": "always" if model.normalizer_spec.add_dummy_prefix else "never",
        # Pieces of models that were trained without a split at spaces may hold several words.
        "split": not any(tokenization.WORD_START in name[1:] for name in names),
    }
    steps: list[dict[str, Any]] = [metaspace]
    if model.trainer_spec.model_type == _UNIGRAM:
        kind = _unigram(tokenizer, model, names)
    else:
        kind = _bpe(tokenizer, model, names)
        if symbols:  # No merge goes across them.
            pattern = {"Regex": f"[{''.join(map(_escape, symbols))}]"}
            steps.append({"type": "Split", "pattern": pattern, "behavior": "Isolated"})
            steps[-1]["invert"] = False
    return {
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(tokenizer, model))},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if symbols else metaspace,
        "decoder": metaspace,
        "model": {**kind, "byte_fallback": model.trainer_spec.byte_fallback},
    }


def _escape(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _check(tokenizer: tokenization.FullTokenizer, model: Any, symbols: list[str]) -> None:
    """Rejects a SentencePiece model of a kind that the library does not have; names it."""
    kind = model.trainer_spec.model_type
    reasons = {
        "model_type=word": kind not in (_UNIGRAM, _BPE, _CHARACTERS),
        "treat_whitespace_as_suffix": model.trainer_spec.treat_whitespace_as_suffix,
        "escape_whitespaces=false": not model.normalizer_spec.escape_whitespaces,
        # A final sigma is lower-cased to another letter than it is folded to.
        "lower-casing before case folding": (
            tokenizer.do_lower_case and model.normalizer_spec.name.endswith("_cf")
        ),
        "user_defined_symbols of several characters, in a model that is not of unigrams": (
            kind != _UNIGRAM and any(len(symbol) > 1 for symbol in symbols)
        ),
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise file_io.InputError(
            f"{tokenizer.spm_model_file} cannot be written as {NAME}, which has no "
            f"{' and no '.join(found)}"
        )


def _unigram(tokenizer: tokenization.FullTokenizer, model: Any, names: list[str]) -> dict[str, Any]:
    """Returns the description of a unigram model."""
    scores = _scores(model)
    return {
        "type": "Unigram",
        "unk_id": tokenizer.unk_id,
        "vocab": [[name, score] for name, score in zip(names, scores, strict=True)],
    }


def _bpe(tokenizer: tokenization.FullTokenizer, model: Any, names: list[str]) -> dict[str, Any]:
    """Returns the description of a BPE: of two adjacent pieces the best known piece is made.

    A model of characters is one without merges.
    """
    merges = []
    if model.trainer_spec.model_type == _BPE:
        scores = {
            piece.piece: piece.score
            for piece in model.pieces
            if piece.type == _NORMAL and not tokenization.is_digit_comma(piece.piece)
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


def _normalizers(tokenizer: tokenization.FullTokenizer, model: Any) -> Iterator[dict[str, Any]]:
    """Yields the steps of `tokenization.preprocess_text`, then those of the SentencePiece model."""
    yield _replace(tokenization.character_class(str.isspace) + "+", " ")
    yield {"type": "Strip", "strip_left": True, "strip_right": True}
    if not tokenizer.keep_accents:
        yield {"type": "NFKD"}
        yield _replace(tokenization.character_class(unicodedata.combining), "")
    if tokenizer.do_lower_case:
        yield from _lower_case()
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        # The library looks up whole syllables of Korean, not the letters that make them.
        yield {"type": "NFC"}
        encoded = base64.b64encode(charsmap).decode("ascii")
        yield {"type": "Precompiled", "precompiled_charsmap": encoded}
    if model.normalizer_spec.remove_extra_whitespaces:
        yield _replace(" {2,}", " ")
        yield {"type": "Strip", "strip_left": True, "strip_right": True}


def _scores(model: Any) -> Iterator[float]:
    """Yields the score of every piece that SentencePiece actually uses."""
    highest = max(piece.score for piece in model.pieces if piece.type == _NORMAL)
    for piece in model.pieces:
        if piece.type == _USER_DEFINED:
            yield len(piece.piece.encode()) * highest - 0.1
        elif piece.type == _BYTE or tokenization.is_digit_comma(piece.piece):
            yield _NEVER_CHOSEN
        else:
            yield piece.score


# --- WordPiece ------------------------------------------------------------------------------------


def _wordpiece(
    tokenizer: tokenization.FullTokenizer, with_special_pieces: bool
) -> dict[str, dict[str, Any]]:
    """Returns the steps and the model of a WordPiece vocabulary; see `wordpiece`."""

    def alone(belongs: Callable[[str], bool]) -> dict[str, Any]:
        pattern = {"Regex": tokenization.character_class(belongs)}
        return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}

    normalizers = [_replace(tokenization.character_class(wordpiece.is_dropped), "")]
    if tokenizer.do_lower_case:
        normalizers += _lower_case()
    if not tokenizer.keep_accents:
        normalizers.append({"type": "NFD"})
        normalizers.append(_replace(tokenization.character_class(wordpiece.is_accent), ""))
    pattern = {"Regex": tokenization.character_class(str.isspace) + "+"}
    spaces = {"type": "Split", "pattern": pattern, "behavior": "Removed"}
    steps = [{**spaces, "invert": False}]
    if tokenizer.rules.split_ideographs:
        steps.append(alone(wordpiece.is_ideograph))
    steps.append(alone(wordpiece.is_punctuation))
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.inv_vocab[tokenizer.unk_id],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": wordpiece.MAX_WORD_CHARACTERS,
            "vocab": dict(list(tokenizer.vocab.items())[: tokenizer.base_size]),
        },
    }
