"""Tokenizers under the name users import; the work is done in `albert.text.tokenization`.

Examples:
    >>> from albert import tokenization
    >>> tokenizer = tokenization.FullTokenizer("albert/pretrained/albert_mini/vocab.txt")
    >>> tokenizer.tokenize("A charming journey.")
    ['a', 'charming', 'journey', '.']
"""

from albert.text.tokenization import (
    WORD_START,
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    character_class,
    check_vocab_size,
    convert_by_vocab,
    convert_ids_to_tokens,
    convert_to_unicode,
    convert_tokens_to_ids,
    encode_ids,
    encode_pieces,
    is_digit_comma,
    load_vocab,
    preprocess_text,
    printable_text,
    resplit,
    whitespace_tokenize,
)

__all__ = [
    "BasicTokenizer",
    "FullTokenizer",
    "WORD_START",
    "WordpieceTokenizer",
    "character_class",
    "check_vocab_size",
    "convert_by_vocab",
    "convert_ids_to_tokens",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "encode_ids",
    "encode_pieces",
    "is_digit_comma",
    "load_vocab",
    "preprocess_text",
    "printable_text",
    "resplit",
    "whitespace_tokenize",
]
