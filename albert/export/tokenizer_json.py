"""Writes ``tokenizer.json``, with which the library `tokenizers` gives the ids of `tokenization`.

It describes the steps. With SentencePiece: white space, decomposition, combining marks, lower
case, the vocabulary's own normalization, the unigram model. With WordPiece: controls, white space,
lower case, accents; then marks and ideographs stand alone, and words are split greedily. Both end
with ``[CLS] a [SEP] b [SEP]``.

There are two differences: a number before a comma is sometimes split at another place, as pieces
such as "9," are dropped instead of split (see `tokenization.encode_pieces`); and where two
segmentations have equal scores, the other one may be chosen.
"""

import base64
import functools
import json
import os
import unicodedata
from collections.abc import Iterator
from typing import Any

from albert.io import file_io
from albert.text import tokenization, wordpiece

NAME = "tokenizer.json"
_USER_DEFINED = 4  # type of SentencePiece pieces that are never split
_NORMAL = 1  # type of ordinary pieces
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
      name: "Normalizer"
      field { name: "precompiled_charsmap" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES }
      field { name: "remove_extra_whitespaces" number: 4 label: LABEL_OPTIONAL type: TYPE_BOOL
              default_value: "true" }
    }
    message_type {
      name: "Model"
      field { name: "pieces" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
              type_name: ".albert.Piece" }
      field { name: "normalizer_spec" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
              type_name: ".albert.Normalizer" }
    }
"""
# Score of pieces such as "9,", which are always split in two (see `tokenization.encode_pieces`):
# the unigram model never chooses a piece with this score.
_NEVER_CHOSEN = -1e4
_METASPACE = {
    "type": "Metaspace",
    "replacement": tokenization.WORD_START,
    "prepend_scheme": "always",
    "split": True,
}
# The model never sees a space, so that a piece with this before it is never found in a text.
_UNSEEN = " "


def write(
    folder: str, tokenizer: tokenization.FullTokenizer, with_special_pieces: bool = False
) -> None:
    """Writes ``tokenizer.json``.

    Args:
      folder: folder that exists.
      tokenizer: `tokenization.FullTokenizer`.
      with_special_pieces: whether ``[CLS]`` and the like in a text are the special pieces, as
        transformers expects; otherwise they are text, as they are here.
    """
    describe = _unigram if tokenizer.sp_model else _wordpiece
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        **describe(tokenizer, with_special_pieces),
        "post_processor": _template(tokenizer),
    }
    if with_special_pieces:
        content["added_tokens"] = [_added_token(tokenizer, i) for i in _special(tokenizer)]
    text = json.dumps(content, ensure_ascii=False)
    file_io.write_text(os.path.join(folder, NAME), text)


def _special(tokenizer: tokenization.FullTokenizer) -> list[int]:
    return sorted(
        (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    )


def _added_token(tokenizer: tokenization.FullTokenizer, i: int) -> dict[str, Any]:
    return {
        "id": i,
        "content": tokenizer.inv_vocab[i],
        "single_word": False,
        "lstrip": i == tokenizer.mask_id,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


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

    def piece(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def text(name, kind):
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


def _unigram(
    tokenizer: tokenization.FullTokenizer, with_special_pieces: bool
) -> dict[str, dict[str, Any]]:
    """Returns the steps and the model of a SentencePiece vocabulary."""
    model = _spm_class().FromString(tokenizer.sp_model.serialized_model_proto())
    vocab = [[piece.piece, score] for piece, score in _scores(model)]
    if not with_special_pieces:
        for i in _special(tokenizer):
            vocab[i][0] = _UNSEEN + vocab[i][0]
    return {
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(tokenizer, model))},
        "pre_tokenizer": _METASPACE,
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": vocab,
            "byte_fallback": False,
        },
    }


def _normalizers(tokenizer: tokenization.FullTokenizer, model: Any) -> Iterator[dict[str, Any]]:
    """Yields the steps of `tokenization.preprocess_text`, then those of the SentencePiece model."""
    yield _replace(tokenization.character_class(str.isspace) + "+", " ")
    yield {"type": "Strip", "strip_left": True, "strip_right": True}
    yield {"type": "NFKD"}
    yield _replace(tokenization.character_class(unicodedata.combining), "")
    if tokenizer.do_lower_case:
        yield from _lower_case()
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        yield {"type": "Precompiled", "precompiled_charsmap": encoded}
    if model.normalizer_spec.remove_extra_whitespaces:
        yield _replace(" {2,}", " ")
        yield {"type": "Strip", "strip_left": True, "strip_right": True}


def _scores(model: Any) -> Iterator[tuple[Any, float]]:
    """Yields (piece, score) of every piece, with the score that SentencePiece actually uses."""
    highest = max(piece.score for piece in model.pieces if piece.type == _NORMAL)
    for piece in model.pieces:
        if piece.type == _USER_DEFINED:
            yield piece, len(piece.piece.encode()) * highest - 0.1
        elif tokenization.is_digit_comma(piece.piece):
            yield piece, _NEVER_CHOSEN
        else:
            yield piece, piece.score


# --- WordPiece ------------------------------------------------------------------------------------


def _wordpiece(
    tokenizer: tokenization.FullTokenizer, with_special_pieces: bool
) -> dict[str, dict[str, Any]]:
    """Returns the steps and the model of a WordPiece vocabulary; see `wordpiece`."""

    def alone(belongs):
        pattern = {"Regex": tokenization.character_class(belongs)}
        return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}

    normalizers = [_replace(tokenization.character_class(wordpiece.is_dropped), "")]
    if tokenizer.do_lower_case:
        normalizers += [*_lower_case(), {"type": "NFD"}]
        normalizers.append(_replace(tokenization.character_class(wordpiece.is_accent), ""))
    pattern = {"Regex": tokenization.character_class(str.isspace) + "+"}
    spaces = {"type": "Split", "pattern": pattern, "behavior": "Removed"}
    steps = [{**spaces, "invert": False}]
    steps += [alone(wordpiece.is_ideograph), alone(wordpiece.is_punctuation)]
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.inv_vocab[tokenizer.unk_id],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": wordpiece.MAX_WORD_CHARACTERS,
            "vocab": tokenizer.vocab,
        },
    }
