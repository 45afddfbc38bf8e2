"""Turns raw text into ids: cleaning, vocabularies, tokenizers and packing. No TensorFlow."""

# Modules that other rooms and commands may import.
__all__ = (
    "corpus",
    "corpus_cleaning",
    "corpus_preparation",
    "packing",
    "tokenization",
    "vocabulary",
    "wordpiece",
)
