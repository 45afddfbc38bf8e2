"""Turns raw text into ids: cleaning, vocabularies, tokenizers and model inputs. No TensorFlow."""

# Modules that other rooms and commands may import.
__all__ = (
    "corpus",
    "corpus_cleaning",
    "corpus_preparation",
    "graphemes",
    "library_ids",
    "long_texts",
    "model_inputs",
    "sample_lines",
    "sentencepiece_json",
    "sentencepiece_proto",
    "text_rules",
    "tokenization",
    "vocabulary",
    "wordpiece",
)
