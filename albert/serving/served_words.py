"""Serves a pre-trained model, which fills the masked words of texts."""

from collections.abc import Sequence
from typing import Any

from albert.model import batching, sources
from albert.serving import masked_words, requests, tensors

KIND = "masked_words"


class ServedWords:
    """A pre-trained model for a server; see `served_model.ServedModel`.

    Args:
      max_batch_tokens: maximum number of tokens that are computed at once; None: any.
    """

    def __init__(self, source: sources.Source, max_batch_tokens: int | None = None) -> None:
        self._words = masked_words.MaskedWords.load(source)
        self._max_tokens = max_batch_tokens
        self.kind, self.form = KIND, requests.MASKED
        self.max_seq_length = self._words.max_length
        self.labels: tuple[str, ...] = ()
        # Texts have any number of masks.
        self.outputs: tuple[tensors.Tensor, ...] = (tensors.RESULT,)
        self.ids: tensors.IdModel | None = None

    def abstention(self) -> dict[str, Any] | None:
        """Returns None: the model always answers."""
        return None

    def answer(self, examples: Sequence[requests.Example]) -> list[requests.Result]:
        """Returns the answers to the masks of each text."""
        fields = [example for example in examples if isinstance(example, dict)]
        texts = [self._words.encode(example["text"]) for example in fields]
        rows = len(texts)
        if self._max_tokens is not None:
            length = batching.round_up(max(len(text.ids) for text in texts))
            rows = max(self._max_tokens // length, 1)
        # One number of answers for all, as each number is compiled apart.
        fills = self._words.fill_all(texts, requests.MAX_ANSWERS, rows)
        return [
            {"masks": masked_words.to_json([row[: example["num_answers"]] for row in answers])}
            for example, answers in zip(fields, fills, strict=True)
        ]
