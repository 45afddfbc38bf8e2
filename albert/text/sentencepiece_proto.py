"""The messages of a SentencePiece model file, as far as this package reads or writes them.

The module of the package sentencepiece needs the newest protobuf, which TensorFlow or apache-beam
may not support, so that the fields are declared here, as in sentencepiece_model.proto.
"""

import functools
from collections.abc import Sequence
from typing import Any, Protocol

# Types of pieces: ordinary ones, the unknown one, those that no text gives, those that are never
# split, unused ones, and bytes.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE, CHARACTERS = 1, 2, 4  # types of models
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


class Piece(Protocol):
    """A piece of a vocabulary; `type` is one of the numbers above."""

    piece: str
    score: float
    type: int


class Trainer(Protocol):
    """How a model was trained; `model_type` is one of the numbers above."""

    model_type: int
    treat_whitespace_as_suffix: bool
    byte_fallback: bool


class Normalizer(Protocol):
    """How a model cleans texts; the charsmap is compiled by SentencePiece."""

    name: str
    precompiled_charsmap: bytes
    add_dummy_prefix: bool
    escape_whitespaces: bool
    remove_extra_whitespaces: bool


class Model(Protocol):
    """The content of a model file, as `model_class` reads it."""

    pieces: Sequence[Piece]
    trainer_spec: Trainer
    normalizer_spec: Normalizer


@functools.cache
def model_class() -> Any:
    """Returns the message class of SentencePiece models."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("albert.Model"))
