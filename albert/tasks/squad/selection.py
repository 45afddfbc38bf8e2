"""Selects the questions of a SQuAD file that a run works on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import logging

from albert.io import file_io
from albert.tasks.squad.features import SquadExample
from albert.text import tokenization
from albert.training import subsets

_SPECIAL_PIECES = 3  # [CLS] and two [SEP]


@dataclasses.dataclass(frozen=True)
class Selection:
    """Criteria for the questions to keep; the default keeps all.

    Attributes:
      answerable_only: whether to keep only questions with an answer.
      drop_longer_than: maximum tokens of the question (cut as for the model) and the text with
        [CLS] and both [SEP]; None: no maximum.
      fraction: fraction of the remaining questions to keep, above 0, at most 1.
      fraction_name: name of that fraction in messages and settings.
      seed: decides which questions are that fraction.
    """

    answerable_only: bool = False
    drop_longer_than: int | None = None
    fraction: float = 1.0
    fraction_name: str = "train_fraction"
    seed: int = 0

    def __post_init__(self) -> None:
        subsets.check_fraction(self.fraction_name, self.fraction)

    @property
    def settings(self) -> dict[str, Any]:
        """Returns {criterion: JSON value} of those that are not the default, for manifests."""
        settings: dict[str, Any] = {}
        if self.answerable_only:
            settings["answerable_only"] = True
        if self.drop_longer_than is not None:
            settings["drop_longer_than"] = self.drop_longer_than
        if self.fraction < 1:
            settings |= {self.fraction_name: self.fraction, "seed": self.seed}
        return settings

    def choose(
        self,
        examples: Sequence[SquadExample],
        tokenizer: tokenization.FullTokenizer,
        max_query_length: int,
        path: str,
    ) -> list[SquadExample]:
        """Returns the questions to keep, in order, and logs their number.

        Args:
          max_query_length: maximum tokens of a question; the rest is cut off.
          path: file of the questions, for messages.
        """
        questions = list(examples)
        if self.answerable_only:
            questions = [example for example in questions if _is_answerable(example, path)]
            logging.info(
                "%s: %d of %d questions have an answer", path, len(questions), len(examples)
            )
        if self.drop_longer_than is not None:
            fitting = self._select_fitting(questions, tokenizer, max_query_length)
            logging.info(
                "%s: %d of %d questions fit in %d tokens with their text",
                path,
                len(fitting),
                len(questions),
                self.drop_longer_than,
            )
            questions = fitting
        if not questions:
            raise file_io.InputError(
                f"{path}: none of the {len(examples)} questions remains after {self.settings}"
            )
        if self.fraction < 1:
            questions = [
                questions[place]
                for place in subsets.choose_indices(len(questions), self.fraction, self.seed)
            ]
            logging.info(
                "%s: %d questions, %s=%g", path, len(questions), self.fraction_name, self.fraction
            )
        return questions

    def _select_fitting(
        self,
        examples: Sequence[SquadExample],
        tokenizer: tokenization.FullTokenizer,
        max_query_length: int,
    ) -> list[SquadExample]:
        """Returns the questions that fit with their paragraph into `drop_longer_than` tokens."""
        texts = list(dict.fromkeys(example.paragraph_text for example in examples))
        tokens = dict(zip(texts, map(len, tokenizer.encode_batch(texts)), strict=True))
        questions = tokenizer.encode_batch([example.question_text for example in examples])
        room = (self.drop_longer_than or 0) - _SPECIAL_PIECES
        return [
            example
            for example, question in zip(examples, questions, strict=True)
            if min(len(question), max_query_length) + tokens[example.paragraph_text] <= room
        ]


ALL = Selection()


def _is_answerable(example: SquadExample, path: str) -> bool:
    """Returns whether a question has an answer; raises InputError if its file does not say so."""
    if example.answers is None and not example.is_impossible:
        raise file_io.InputError(
            f"answerable_only: {path} does not say whether question {example.qas_id!r} has answers"
        )
    return bool(example.answers) and not example.is_impossible
