"""Selects the questions of a SQuAD file that a run works on."""

import dataclasses

from absl import logging

from albert.io import file_io
from albert.training import subsets

_SPECIAL_PIECES = 3  # [CLS] and two [SEP]


@dataclasses.dataclass(frozen=True)
class Selection:
    """What is kept of the questions; the default keeps all.

    Attributes:
      answerable_only: only those with an answer.
      drop_longer_than: most tokens of question (cut as for the model) and text with [CLS] and both
        [SEP]; None for any number.
      share: share of what then is left, see `subsets.chosen`.
      share_name: what messages and settings call it.
      seed: see `subsets.chosen`.
    """

    answerable_only: bool = False
    drop_longer_than: int | None = None
    share: float = 1.0
    share_name: str = "train_fraction"
    seed: int = 0

    def __post_init__(self):
        subsets.check_share(self.share_name, self.share)

    @property
    def settings(self):
        """JSON-ready dict of what differs from keeping all, for the manifest of a record file."""
        settings = {}
        if self.answerable_only:
            settings["answerable_only"] = True
        if self.drop_longer_than is not None:
            settings["drop_longer_than"] = self.drop_longer_than
        if self.share < 1:
            settings |= {self.share_name: self.share, "seed": self.seed}
        return settings

    def choose(self, examples, tokenizer, max_query_length, path):
        """The questions that are kept, in order; says in the log how many.

        Args:
          examples: list of `squad_utils.SquadExample`.
          tokenizer: `tokenization.FullTokenizer`.
          max_query_length: most tokens of a question, more are cut off.
          path: their file, for messages.

        Raises:
          file_io.InputError: none is left, or it is not known which have an answer.
        """
        left = examples
        if self.answerable_only:
            left = [example for example in left if _is_answerable(example, path)]
            logging.info("%s: %d of %d questions have an answer", path, len(left), len(examples))
        if self.drop_longer_than is not None:
            fitting = self._fitting(left, tokenizer, max_query_length)
            logging.info(
                "%s: %d of %d questions fit in %d tokens with their text",
                path,
                len(fitting),
                len(left),
                self.drop_longer_than,
            )
            left = fitting
        if not left:
            raise file_io.InputError(
                f"{path}: none of the {len(examples)} questions is left by {self.settings}"
            )
        if self.share < 1:
            left = [left[place] for place in subsets.chosen(len(left), self.share, self.seed)]
            logging.info("%s: %d questions, %s=%g", path, len(left), self.share_name, self.share)
        return left

    def _fitting(self, examples, tokenizer, max_query_length):
        texts = list(dict.fromkeys(example.paragraph_text for example in examples))
        tokens = dict(zip(texts, map(len, tokenizer.encode_batch(texts)), strict=True))
        questions = tokenizer.encode_batch([example.question_text for example in examples])
        room = self.drop_longer_than - _SPECIAL_PIECES
        return [
            example
            for example, question in zip(examples, questions, strict=True)
            if min(len(question), max_query_length) + tokens[example.paragraph_text] <= room
        ]


ALL = Selection()


def _is_answerable(example, path):
    if example.answers is None and not example.is_impossible:
        raise file_io.InputError(
            f"answerable_only: {path} does not say whether question {example.qas_id!r} has answers"
        )
    return bool(example.answers) and not example.is_impossible
