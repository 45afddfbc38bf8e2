"""Loads a model for a server and warms it up before the first request.

Letters in shapes: S sequence.
"""

import dataclasses
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from absl import logging

from albert.io import file_io
from albert.model import batching, model_folder
from albert.serving import example_requests, inference, predictors, requests, tensors
from albert.tasks import custom, kinds

_WORD = "a"  # a token in most vocabularies


class ServedModel(Protocol):
    """A loaded model."""

    kind: str  # see `model_folder.ModelFolder`
    form: requests.RequestSchema
    max_seq_length: int  # S of the training, or the longest of a pre-trained model
    labels: tuple[str, ...]  # by id; empty for regression and for kinds without labels
    outputs: tuple[tensors.Tensor, ...]  # for texts; each [B, ...]
    ids: tensors.IdModel | None  # None if it takes texts only

    def abstention(self) -> dict[str, Any] | None:
        """Returns a JSON-ready dict of when the model abstains; None if it always answers."""

    def answer(self, examples: Sequence[requests.Example]) -> list[requests.Result]:
        """Returns the results of examples, computed together; `requests.Ids` are computed apart."""


class LoadedModel:
    """The model of a folder, which a predictor computes; for max_batch_size see `load`."""

    def __init__(
        self,
        folder: model_folder.ModelFolder,
        predictor: predictors.Predictor,
        max_batch_size: int | None = None,
    ) -> None:
        self._predictor, self._max_batch_size = predictor, max_batch_size
        self.kind = folder.kind
        own = example_requests.read(folder.path, predictor.form)
        self.form = dataclasses.replace(predictor.form, own_examples=own)
        self.max_seq_length = predictor.max_seq_length
        has_labels = kinds.KINDS[folder.kind].has_labels
        self.labels = custom.names_of(folder) if has_labels else ()
        self.outputs = (*predictor.tensors(), tensors.RESULT)
        self.ids: tensors.IdModel | None = _id_model(folder, self.labels)
        self._decision = folder.decision

    def abstention(self) -> dict[str, Any] | None:
        """See `ServedModel`; coverage is that of the dev data."""
        if not self._decision.may_abstain:
            return None
        names = ("max_error", "min_probability", "coverage")
        return {name: getattr(self._decision, name) for name in names}

    def answer(self, examples: Sequence[requests.Example]) -> list[requests.Result]:
        texts = [example for example in examples if not isinstance(example, requests.Ids)]
        answers = iter(self._answer_texts(texts) if texts else ())
        return [
            self._answer_ids(one) if isinstance(one, requests.Ids) else next(answers)
            for one in examples
        ]

    def _answer_ids(self, ids: requests.Ids) -> batching.Arrays:
        outputs = self._predictor.infer(ids.features)
        batching.check_finite(outputs)
        return outputs

    def _answer_texts(self, texts: Sequence[dict[str, Any]]) -> list[requests.Result]:
        predictor = self._predictor
        examples = [predictor.read_request(fields) for fields in texts]
        size = predictor.batch_size(examples)
        results = predictor.predict(examples, min(size, self._max_batch_size or size))
        rows = [*map(predictor.to_json, results)]
        return [{name: value for name, value in row.items() if name != "id"} for row in rows]


def load(
    model_dir: str,
    runtime: str = "auto",
    threads: int | None = None,
    max_batch_tokens: int | None = None,
    max_batch_size: int | None = None,
) -> ServedModel:
    """Loads the model of the folder of a fine-tuning run, a serving folder or a pre-trained model.

    Args:
      runtime: of a serving folder: key of `runtimes.RUNTIMES`, or "auto".
      threads: number of threads that compute; None: one for each core.
      max_batch_tokens: maximum number of tokens that are computed at once, with padding; a longer
        sequence is computed alone. None: any.
      max_batch_size: maximum number of sequences of texts that are computed at once, also of the
        windows or options of one text. None: any.
    """
    pretrained = kinds.find_pretrained(model_dir)
    model = None if pretrained else inference.find(model_dir)
    if threads is not None and not (model and model.serving):
        from albert.serving import trained_model

        trained_model.set_threads(threads)
    if pretrained:
        from albert.serving import runtimes, served_words

        runtimes.check_tensorflow(runtime, model_dir)
        return served_words.ServedWords(pretrained, max_batch_tokens)
    assert model is not None
    model = dataclasses.replace(model, max_batch_tokens=max_batch_tokens)
    return LoadedModel(model.folder, predictors.load(model, runtime, threads), max_batch_size)


def _id_model(folder: model_folder.ModelFolder, labels: tuple[str, ...]) -> tensors.IdModel:
    config = folder.config
    limits = {"input_ids": config.vocab_size, "segment_ids": config.segment_limit}
    inputs = tensors.id_inputs(folder.kind)
    return tensors.IdModel(
        inputs,
        tensors.id_outputs(folder.kind, labels),
        {tensor.name: limits.get(tensor.name, 2) for tensor in inputs},  # masks are 0 or 1
        config.max_position_embeddings,
        folder.min_length,
    )


# --- warm-up ------------------------------------------------------------------------------------


def _sample(form: requests.RequestSchema, tokens: int) -> dict[str, Any]:
    """Returns an example of about `tokens` tokens."""
    words = [_WORD] * max(tokens - 3 * len(form.required), 1)
    sample = dict(form.optional)
    for field in form.required:
        words = [field.needs or _WORD, *words[1:]]
        count = len(field.example) if isinstance(field.example, list) else None
        value = words if field.is_long else [_WORD] * (count or 1)
        sample[field.name] = value if count else " ".join(value)
    return sample


def shapes(max_seq_length: int, max_rows: int) -> list[tuple[int, int]]:
    """Returns the (rows, tokens) that `warm` tries: one row of each length that batches can have,
    and powers of two of rows of the longest."""
    lengths = {min(batching.round_up(n), max_seq_length) for n in range(1, max_seq_length + 1)}
    rows = [2**k for k in range(1, max_rows.bit_length())]
    return [(1, n) for n in sorted(lengths)] + [(n, max_seq_length) for n in rows]


def warm(
    model: ServedModel,
    max_batch_size: int,
    should_continue: Callable[[], bool] = lambda: True,
    max_batch_tokens: int | None = None,
) -> None:
    """Runs a model with inputs of all lengths, which traces its graph.

    In float32 nothing is compiled for a shape (see `kernels.for_block`), but the first use of a
    shape allocates memory and makes oneDNN choose its products. Objects that exist afterwards stay,
    so the garbage collector ignores them: scanning them takes longer than a short text.

    Args:
      max_batch_size: maximum number of sequences of a batch; a row may have several.
      should_continue: called before each input; False stops the warm-up.
      max_batch_tokens: see `load`.
    """
    started, length = time.monotonic(), model.max_seq_length
    if max_batch_tokens is not None:
        max_batch_size = min(max_batch_size, max_batch_tokens // length)
    sample = requests.measured(model.form, _sample(model.form, length), length)
    tried = shapes(length, max_batch_size // sample.weight)
    for rows, tokens in tried:
        if not should_continue():
            return
        try:
            model.answer([_sample(model.form, tokens)] * rows)
        except file_io.InputError as error:  # where a word of the sample is several tokens
            logging.debug("not tried with %d tokens: %s", tokens, error)
    gc.collect()
    gc.freeze()
    logging.info("Tried %d shapes in %.1f s", len(tried), time.monotonic() - started)
