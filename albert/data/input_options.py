"""Settings of `input_pipeline`, in a module without TensorFlow."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

Tensors = Mapping[str, "tf.Tensor"]  # features or outputs of a batch by name


@dataclasses.dataclass(frozen=True)
class Source:
    """Files that are read together.

    Attributes:
      weight: fraction of the records of a run, relative to the weights of the other sources.
    """

    paths: tuple[str, ...]
    weight: float = 1.0


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
      group_by_length: whether such a batch holds examples of similar length.
      mixture: what the files are divided into; None: one source.
    """

    trim_batches: bool = True
    read: Callable[["tf.Tensor"], Tensors] | None = None
    prepare: Callable[[Tensors], Tensors] | None = None
    transform: Callable[["tf.Tensor", Tensors], Tensors] | None = None
    lengths: Callable[["tf.Tensor"], "tf.Tensor"] | None = None
    group_by_length: bool = False
    mixture: Sequence[Source] | None = None


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
    rewrite: Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"] | None = None
    max_examples: int | None = None
    min_tokens: int = 1
