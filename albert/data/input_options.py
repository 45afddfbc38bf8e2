"""Settings of `input_pipeline`, in a module without TensorFlow."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

Tensors = dict[str, Any]  # features of a batch: `tf.Tensor` by name


@dataclasses.dataclass(frozen=True)
class TrainInput:
    """Options that turn records into training batches.

    Attributes:
      trim_batches: cut each batch to its real length.
      read: ``([B] strings) -> features`` of a batch; None: as the feature specifications say.
      prepare: ``(features) -> features`` on each batch after reading.
      transform: ``(number, features) -> features`` on each batch. Each batch of a run has its own
        number, which does not change when a run is resumed.
      lengths: ``([B] strings) -> [B]`` numbers of tokens, by which `tensor_batching.equal_tokens`
        cuts the batches of a single replica; None: batches of equal size.
      mixture: `input_pipeline.Source`s that the files are divided into; None: one source.
    """

    trim_batches: bool = True
    read: Callable[[Any], Tensors] | None = None
    prepare: Callable[[Tensors], Tensors] | None = None
    transform: Callable[[Any, Tensors], Tensors] | None = None
    lengths: Callable[[Any], Any] | None = None
    mixture: Sequence[Any] | None = None


@dataclasses.dataclass(frozen=True)
class EvalInput:
    """Options that turn records into batches for evaluation and prediction.

    Attributes:
      trim_batches: cut each batch to its real length and sort by it.
      prepare: ``(features) -> features`` on each batch after reading.
      rewrite: ``(number, [B] strings) -> [B] strings``, which makes records that fit the feature
        specifications, in blocks. A block and its number depend only on the place in the files,
        not on the batch size.
      max_examples: maximum number of examples, from the front; None: all.
      min_tokens: an example counts as at least this many tokens, so that a batch holds at most
        S / min_tokens times its size.
    """

    trim_batches: bool = True
    prepare: Callable[[Tensors], Tensors] | None = None
    rewrite: Callable[[Any, Any], Any] | None = None
    max_examples: int | None = None
    min_tokens: int = 1
