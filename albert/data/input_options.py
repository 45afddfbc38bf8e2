"""How the records of a task become batches: what `input_pipeline` needs to know beyond the files.

These settings are apart from `input_pipeline`, as descriptions of tasks need no TensorFlow.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class TrainInput:
    """How records become training batches.

    Attributes:
      trim_batches: cut each batch to its real length.
      read: ``(serialized) -> features`` of a batch; None: by the feature specifications.
      prepare: ``(features) -> features`` on each batch after reading.
      transform: ``(number, features) -> features`` on each batch; no two batches of a run have
        the same number, and it does not change when a run is resumed.
      lengths: as `tensor_batching.equal_tokens` takes it, to cut the batches of a single replica by
        it.
      mixture: `input_pipeline.Source`s that the files are divided into; None: all are one.
    """

    trim_batches: bool = True
    read: Callable[[Any], dict] | None = None
    prepare: Callable[[dict], dict] | None = None
    transform: Callable[[Any, dict], dict] | None = None
    lengths: Callable[[Any], Any] | None = None
    mixture: Sequence[Any] | None = None


@dataclasses.dataclass(frozen=True)
class EvalInput:
    """How records become batches of evaluation and prediction.

    Attributes:
      trim_batches: cut each batch to its real length and sort by it.
      prepare: ``(features) -> features`` on each batch after reading.
      rewrite: ``(number, serialized) -> serialized`` of records that differ from the feature
        specifications, in blocks that depend only on their place: how they are batched does not
        matter.
      max_examples: use at most this many, from the front; None: all.
      min_tokens: an example counts as at least this many tokens, so that a batch holds at most S
        over this times its size.
    """

    trim_batches: bool = True
    prepare: Callable[[dict], dict] | None = None
    rewrite: Callable[[Any, Any], Any] | None = None
    max_examples: int | None = None
    min_tokens: int = 1
