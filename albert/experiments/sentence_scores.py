"""Scores whole sentences with a masked language model: pseudo-log-likelihood.

Salazar et al., Masked Language Model Scoring, ACL 2020, section 2: the sum, over the tokens of a
sentence, of the log-probability of the token given the sentence with that token masked. [CLS],
[SEP] and padding do not count as tokens.

Letters in shapes: N sentences, C masked copies (one per token of a sentence), S sequence.
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from albert.data.input_options import Tensors
from albert.experiments import blimp
from albert.io import file_io, progress
from albert.model import kernels, prepared_weights, sources
from albert.serving import masked_words
from albert.text import model_inputs, tokenization
from albert.training import contracts

if TYPE_CHECKING:
    import tensorflow as tf


_INPUTS = (*model_inputs.NAMES, "masked_lm_positions", "masked_lm_ids")


class Scorer:
    """A masked language model that scores sentences.

    Args:
      batch_size: maximum number of masked copies in a batch. All copies of a sentence are in one
        batch, even if there are more.
    """

    def __init__(
        self, model: contracts.Model, tokenizer: tokenization.FullTokenizer, batch_size: int = 256
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._infer = prepared_weights.CompiledModel(model, self._log_probs, _INPUTS)

    def _log_probs(self, features: Tensors) -> "tf.Tensor":
        """Returns [C] log-probabilities of the tokens under the masks of features [C, S]."""
        ids = features["masked_lm_ids"]
        inputs = {name: x for name, x in features.items() if name != "masked_lm_ids"}
        logits = self._model(inputs, training=False)["masked_lm_logits"]  # [C, V]
        return -kernels.cross_entropy(ids, logits)

    def score(self, sentences: list[str]) -> np.ndarray:
        """Returns pseudo-log-likelihoods, float64 [N], in natural logarithms."""
        encoded = [self._encode(sentence) for sentence in sentences]
        scores = np.zeros(len(encoded))
        self._infer.refresh()  # the model may have been trained since
        lengths = [len(ids) for ids in encoded]
        total = sum(length * length for length in lengths)  # the work is proportional to this
        with progress.Progress("Scoring", total, "") as bar:
            for batch in _batches(lengths, self._batch_size):
                counts = [len(encoded[place]) for place in batch]
                log_probs = self._infer(self._copies([encoded[place] for place in batch]))
                sums = np.split(log_probs.astype(np.float64), np.cumsum(counts)[:-1])
                scores[batch] = [part.sum() for part in sums]
                bar.advance(sum(count * count for count in counts))
        return scores

    def _encode(self, sentence: str) -> np.ndarray:
        """Returns the ids of a sentence, int32 [S]."""
        ids = self._tokenizer.encode(sentence)
        limit = self._model.config.max_position_embeddings - 2
        if not 0 < len(ids) <= limit:
            raise file_io.InputError(
                f"expected a sentence of 1 to {limit} tokens, which the model reads in addition to "
                f"[CLS] and [SEP]; found {len(ids)} in {sentence!r}"
            )
        return np.array(ids, np.int32)

    def _copies(self, sentences: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Returns {input of the model: int32 [C, S]}: C copies of sentences, each masks one token.

        Args:
          sentences: int32 [tokens] each, ids without [CLS] and [SEP].
        """
        tokenizer, counts = self._tokenizer, [len(ids) for ids in sentences]
        width = max(counts) + 2
        rows = np.full([len(sentences), width], tokenizer.pad_id, np.int32)
        for row, ids in zip(rows, sentences, strict=True):
            row[: len(ids) + 2] = [tokenizer.cls_id, *ids, tokenizer.sep_id]
        copies = np.repeat(rows, counts, axis=0)
        positions = 1 + np.concatenate([np.arange(n, dtype=np.int32) for n in counts])
        each = np.arange(len(copies))
        labels = copies[each, positions]
        copies[each, positions] = tokenizer.mask_id
        mask = np.arange(width) < np.repeat(counts, counts)[:, np.newaxis] + 2
        return {
            "input_ids": copies,
            "input_mask": mask.astype(np.int32),
            "segment_ids": np.zeros_like(copies),
            "masked_lm_positions": positions[:, np.newaxis],
            "masked_lm_ids": labels[:, np.newaxis],
        }


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Lists places of sentences, longest first, whose lengths add up to at most `batch_size`.

    A longer sentence is a batch alone.
    """
    batch: list[int] = []
    total = 0
    for place in np.argsort(-np.asarray(lengths), kind="stable"):
        if batch and total + lengths[place] > batch_size:
            yield batch
            batch, total = [], 0
        batch.append(place)
        total += lengths[place]
    if batch:
        yield batch


def load(
    source: sources.Source | str | os.PathLike, batch_size: int = 256, seed: int = 0
) -> Scorer:
    """Loads a pre-trained model of any form as a scorer.

    Args:
      source: path of the model: a complete folder, such as that of a pre-training run,
        a checkpoint in such a folder, a hub module or a Hugging Face folder. Or the
        `sources.Source` of files elsewhere; without a checkpoint the weights are random.
      batch_size: maximum number of masked copies of sentences in a batch.
      seed: source of random weights.
    """
    if not isinstance(source, sources.Source):
        source = sources.locate_model(os.fspath(source))
    return Scorer(*masked_words.load_pretrained(source, seed), batch_size)


def with_blimp(
    task: contracts.Task, paradigms: list[blimp.Paradigm], tokenizer: tokenization.FullTokenizer
) -> contracts.Task:
    """Returns the task with evaluations that also measure BLiMP on these paradigms."""

    @functools.lru_cache(maxsize=1)  # The function of the scorer is traced once.
    def scorer(model: "tf.Module") -> Scorer:
        return Scorer(model, tokenizer)

    def extra_metrics(model: contracts.Model) -> dict[str, float]:
        return blimp.measure(paradigms, scorer(cast("tf.Module", model)).score).metrics()

    return dataclasses.replace(task, extra_metrics=extra_metrics)
