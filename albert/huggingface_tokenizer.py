"""Writes the tokenizer of a model as the files of Hugging Face: same text, same ids.

``tokenizer.json`` spells out what `tokenization` does: white space, decomposition, combining marks,
lower case, the vocabulary's own normalisation, SentencePiece's unigram model, ``[CLS] a [SEP] b
[SEP]``. What differs there: ``[CLS]`` and the like in a text are the special pieces; a number
before a comma is now and then cut elsewhere, since pieces such as "9," are not split but left out.
The class AlbertTokenizer also takes two backticks or apostrophes for a quotation mark.
"""

import base64
import functools
import json
import os
import unicodedata

from albert import file_io, tokenization

SPM_NAME = "spiece.model"
VOCAB_NAME = "vocab.txt"
_USER_DEFINED = 4  # type of a piece that is always kept whole
_NORMAL = 1
# The fields read here of a SentencePiece model, as in sentencepiece_model.proto. The module that
# sentencepiece has for them loads only with the newest protobuf, which TensorFlow or apache-beam
# may rule out.
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
# Pieces such as "9," are always split in two (see `tokenization.encode_pieces`): this keeps the
# unigram model from ever choosing one.
_NEVER = -1e4


def write(folder, tokenizer, max_length):
    """Writes the tokenizer's files.

    Args:
      folder: folder that exists.
      tokenizer: `tokenization.FullTokenizer`.
      max_length: longest input that the model takes, in tokens.
    """
    special = {
        "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
        "cls_token": tokenizer.cls_id,
        "sep_token": tokenizer.sep_id,
        "mask_token": tokenizer.mask_id,
    }
    config = {name: tokenizer.inv_vocab[i] for name, i in special.items()}
    config |= {"do_lower_case": tokenizer.do_lower_case, "model_max_length": max_length}
    config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if tokenizer.sp_model is None:
        file_io.copy(tokenizer.vocab_file, os.path.join(folder, VOCAB_NAME))
        config["tokenizer_class"] = "BertTokenizer"
    else:
        file_io.copy(tokenizer.spm_model_file, os.path.join(folder, SPM_NAME))
        text = json.dumps(_describe(tokenizer), ensure_ascii=False)
        file_io.write_text(os.path.join(folder, "tokenizer.json"), text)
        # AlbertTokenizer would put steps of its own in the place of those of tokenizer.json.
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "keep_accents": False}
        config |= {"bos_token": config["cls_token"], "eos_token": config["sep_token"]}
    file_io.write_json(os.path.join(folder, "tokenizer_config.json"), config)


@functools.cache
def _model_class():
    """Message class of SentencePiece models."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("albert.Model"))


def _describe(tokenizer):
    """Content of ``tokenizer.json`` for a SentencePiece model."""
    model = _model_class().FromString(tokenizer.sp_model.serialized_model_proto())
    special = (
        tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id,
    )  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(tokenizer, i) for i in sorted(special)],
        "normalizer": {"type": "Sequence", "normalizers": list(_normalizers(tokenizer, model))},
        "pre_tokenizer": _metaspace(split=True),
        "post_processor": _template(tokenizer),
        "decoder": _metaspace(split=True),
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [[piece.piece, score] for piece, score in _scores(model)],
            "byte_fallback": False,
        },
    }


def _added(tokenizer, i):
    return {
        "id": i,
        "content": tokenizer.inv_vocab[i],
        "single_word": False,
        "lstrip": i == tokenizer.mask_id,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _replace(pattern, content):
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _normalizers(tokenizer, model):
    """The steps of `tokenization.preprocess_text`, then those of the SentencePiece model."""
    yield _replace(tokenization.character_class(str.isspace) + "+", " ")
    yield {"type": "Strip", "strip_left": True, "strip_right": True}
    yield {"type": "NFKD"}
    yield _replace(tokenization.character_class(unicodedata.combining), "")
    if tokenizer.do_lower_case:
        yield {"type": "Lowercase"}
    charsmap = model.normalizer_spec.precompiled_charsmap
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        yield {"type": "Precompiled", "precompiled_charsmap": encoded}
    if model.normalizer_spec.remove_extra_whitespaces:
        yield _replace(" {2,}", " ")
        yield {"type": "Strip", "strip_left": True, "strip_right": True}


def _metaspace(split):
    return {
        "type": "Metaspace",
        "replacement": tokenization.WORD_START,
        "prepend_scheme": "always",
        "split": split,
    }


def _scores(model):
    """(piece, score) of every piece, with the scores that SentencePiece effectively uses."""
    highest = max(piece.score for piece in model.pieces if piece.type == _NORMAL)
    for piece in model.pieces:
        if piece.type == _USER_DEFINED:
            yield piece, len(piece.piece.encode()) * highest - 0.1
        elif tokenization.is_digit_comma(piece.piece):
            yield piece, _NEVER
        else:
            yield piece, piece.score


def _template(tokenizer):
    """``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` with the token types of the model."""
    cls, sep = tokenizer.inv_vocab[tokenizer.cls_id], tokenizer.inv_vocab[tokenizer.sep_id]
    piece = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}  # noqa: E731
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}  # noqa: E731
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
