"""How the texts of a model become pieces: everything besides its vocabulary.

One value goes with a vocabulary everywhere: it is read from a model's folder or the flags, recorded
in the folders that this package writes, and given to the tokenizer. No TensorFlow here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert.io import file_io
from albert.text import wordpiece

FILE_NAME = "text_rules.json"  # in folders of models without another description
# Not recorded with their defaults.
_OPTIONAL = ("as_huggingface", "quotes", "longest_word", "drop_private", "lower_alone")


@dataclasses.dataclass(frozen=True)
class TextRules:
    """How texts become pieces.

    Attributes:
      do_lower_case: whether texts are lower-cased; None if neither a flag nor the model says so:
        they are, unless the vocabulary has pieces with capitals (see `tokenization`).
      keep_accents: whether letters keep their accents; None for the custom of each kind: with
        SentencePiece they lose them, with WordPiece where texts are lower-cased.
      split_ideographs: whether WordPiece makes each Chinese ideograph a word.
      ids_by_line: whether the ids of ``vocab.txt`` are numbers of lines, as google-research/bert
        and Hugging Face count, where the last of equal lines counts; otherwise ids count distinct
        pieces, as google-research/albert does.
      extra_pieces: pieces after those of the vocabulary, each found in a text as it is written.
      as_huggingface: whether a SentencePiece vocabulary is used by the rules of transformers:
        numbers before a comma are not split again, all marks count as accents, and the lower case
        of a letter does not depend on its place.
      quotes: whether two backticks or apostrophes become a quotation mark, before SentencePiece.
      longest_word: characters of the longest word that WordPiece splits; longer words are [UNK].
        In transformers these are 100.
      drop_private: whether WordPiece drops characters for private use, such as bullets of PDF
        files, as transformers does; google-research/bert reads them as [UNK].
      lower_alone: whether WordPiece lower-cases each letter alone, as transformers does: a capital
        sigma that ends a word, too, becomes the usual one.
    """

    do_lower_case: bool | None = None
    keep_accents: bool | None = None
    split_ideographs: bool = True
    ids_by_line: bool = False
    extra_pieces: tuple[str, ...] = ()
    as_huggingface: bool = False
    quotes: bool = False
    longest_word: int = wordpiece.MAX_WORD_CHARACTERS
    drop_private: bool = False
    lower_alone: bool = False

    @property
    def lower(self) -> bool:
        """Returns whether texts are lower-cased, by default too."""
        return self.do_lower_case is not False

    def strips_accents(self, sentencepiece: bool) -> bool:
        """Returns whether letters lose their accents with a vocabulary of the given kind."""
        if self.keep_accents is not None:
            return not self.keep_accents
        return sentencepiece or self.lower

    def changed(self, other: Mapping[str, Any]) -> "TextRules":
        """Returns the rules with the values of `other` that are not None; adds its extra pieces."""
        values = {name: value for name, value in other.items() if value is not None}
        extra = dict.fromkeys((*self.extra_pieces, *values.get("extra_pieces", ())))
        return dataclasses.replace(self, **{**values, "extra_pieces": tuple(extra)})

    def differences(self, other: "TextRules", sentencepiece: bool) -> str:
        """Lists the rules that give other pieces of the same vocabulary, with both values."""
        sides = [
            {
                "do_lower_case": rules.lower,
                "keep_accents": not rules.strips_accents(sentencepiece),
                "split_ideographs": sentencepiece or rules.split_ideographs,
                "extra_pieces": list(rules.extra_pieces),
                "as_huggingface": sentencepiece and rules.as_huggingface,
                "quotes": sentencepiece and rules.quotes,
                "longest_word": sentencepiece or rules.longest_word,
                "drop_private": not sentencepiece and rules.drop_private,
                "lower_alone": not sentencepiece and rules.lower and rules.lower_alone,
            }
            for rules in (self, other)
        ]
        return ", ".join(
            f"{name} is {value} (there {sides[1][name]})"
            for name, value in sides[0].items()
            if value != sides[1][name]
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON-ready entries of a description; `do_lower_case` is true or false.

        Those that older versions did not know are left out where they have their defaults.
        """
        values = dataclasses.asdict(self)
        for name in _OPTIONAL:
            if values[name] == getattr(TextRules, name):
                del values[name]
        return values | {"do_lower_case": self.lower, "extra_pieces": list(self.extra_pieces)}


# What transformers has for each WordPiece vocabulary, unless ``tokenizer.json`` has another number.
OF_TRANSFORMERS: dict[str, Any] = {"longest_word": 100, "drop_private": True, "lower_alone": True}
NAMES = tuple(field.name for field in dataclasses.fields(TextRules))


def from_json(description: Mapping[str, Any], path: str) -> TextRules:
    """Reads the rules from the entries of a description, which may have others, or not have all."""
    values = {name: description[name] for name in NAMES if name in description}
    for name, value in values.items():
        if name == "extra_pieces":
            valid = isinstance(value, list) and all(isinstance(p, str) and p for p in value)
        elif name == "longest_word":
            valid = type(value) is int and value > 0
        else:
            valid = isinstance(value, bool) or (value is None and name == "keep_accents")
        if not valid:
            raise file_io.InputError(
                f"{path}: the entry {name} is invalid: {value!r}; restore the file"
            )
    extra = tuple(values.pop("extra_pieces", ()))
    return TextRules(**values, extra_pieces=extra)
