"""Estimates the memory of a training run from its shapes, before it starts.

Letters: B batch per device, S sequence, H hidden, I intermediate, N heads, V vocabulary,
P masked positions.
"""

import dataclasses
import os
from collections.abc import Callable

from albert.model import configuration, layers
from albert.training import optimizers

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Memory of TensorFlow, its libraries and compiled functions, measured with small models.
_PROGRAM = 1 << 30


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimated bytes on one device.

    Attributes:
      parameters, optimizer: weights, and optimizer slots with the averaged weights, in float32.
      gradients: gradients in float32, twice if they are accumulated. Each part of the batch also
        has, in the type of the run, the gradient sums of layers that share weights and the next
        gradients to add.
      activations: activations that the encoder keeps for the backward pass, and the working memory
        of one block.
      head: the logits of the masked LM and their gradient.
      checkpoint: copies in main memory, written while training continues.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    head: int
    checkpoint: int

    @property
    def total(self) -> int:
        """The sum of all parts and of the program itself."""
        return sum(dataclasses.astuple(self)) + _PROGRAM


def count_parameters(config: configuration.AlbertConfig) -> int:
    """Returns the number of parameters of the encoder and its pooler."""
    embedding, hidden = config.embedding_size, config.hidden_size
    tables = config.vocab_size + config.type_vocab_size + config.max_position_embeddings + 2
    mapping = (embedding + 1) * hidden if embedding != hidden else 0
    groups = config.num_attention_groups, config.num_ffn_groups
    parts = zip(groups, _count_block_parameters(config), strict=True)
    blocks = config.inner_group_num * sum(count * size for count, size in parts)
    scales = 2 * hidden * config.num_hidden_layers if config.layer_scales else 0
    return tables * embedding + mapping + blocks + scales + (hidden + 1) * hidden


def _count_block_parameters(config: configuration.AlbertConfig) -> tuple[int, int]:
    """Counts the parameters of an attention and a feed-forward part, each with LayerNorm."""
    hidden, inner = config.hidden_size, config.intermediate_size
    attention = 4 * (hidden + 1) * hidden
    feed_forward = (hidden + 1) * inner + (inner + 1) * hidden
    return attention + 2 * hidden, feed_forward + 2 * hidden


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The sizes of a training step on one device.

    Attributes:
      batch_size: examples per device and update.
      length: S.
      predictions: P, masked positions per example; 0 for fine-tuning.
      choices: number of texts per example, such as the four answers of a RACE question; B is
        `batch_size` times this number.
      optimizer: name in `optimizer_table.OPTIMIZERS`.
      averages: whether the weights are averaged.
    """

    config: configuration.AlbertConfig
    batch_size: int
    length: int
    predictions: int = 0
    choices: int = 1
    optimizer: str = "adamw"
    averages: bool = False


def estimate(shapes: Shapes, compute: layers.Compute, accumulation_steps: int = 1) -> Estimate:
    """Estimates the memory of a training step at full length; skipped padding reduces it.

    The parts of a batch together keep as many activations as the whole batch.
    """
    config, length = shapes.config, shapes.length
    count = count_parameters(config)
    parameters = 4 * count
    slots = count * optimizers.optimizer_class(shapes.optimizer).bytes_per_parameter()
    slots += parameters * shapes.averages
    size = _BYTES[compute.dtype]
    rows = -(-shapes.batch_size * shapes.choices // accumulation_steps) * length
    hidden, heads = config.hidden_size, config.num_attention_heads
    # A block keeps its input, queries, keys, values, context, two normalized sums, the first
    # block's output; twice the inner layer; and the attention probabilities, before and after
    # dropout.
    scores = rows * heads * length
    probabilities = scores * size * (2 if config.attention_probs_dropout_prob else 1)
    block_bytes = rows * (8 * hidden + 2 * config.intermediate_size) * size + probabilities
    # The backward pass of a block also needs its gradients.
    working = rows * (4 * hidden + 2 * config.intermediate_size) * size + 2 * scores * 4
    blocks = config.num_hidden_layers * config.inner_group_num
    if compute.recompute:
        activations = blocks * rows * hidden * size + block_bytes + working
    else:
        activations = blocks * block_bytes + working
    logits = rows // length * shapes.predictions * config.vocab_size * 4
    gradients = parameters * (2 if accumulation_steps > 1 else 1)
    # Parts run independently: each sums its own gradients, for the blocks of one group at a time.
    sums = (
        compute.parts * (config.inner_group_num + 1) * size * sum(_count_block_parameters(config))
    )
    return Estimate(
        parameters=parameters,
        gradients=gradients + sums,
        optimizer=slots,
        activations=activations,
        head=3 * logits,
        checkpoint=parameters + slots,
    )


def report(
    shapes: Shapes,
    make_compute: Callable[[int, bool], layers.Compute],
    accumulation_steps: int = 1,
    recompute: bool = False,
) -> str:
    """Formats the estimate, and those of other settings that give the same results.

    Args:
      make_compute: ``(accumulation_steps, recompute)`` -> how the model computes with these
        settings.
    """

    def estimate_of(steps: int, recompute: bool) -> Estimate:
        return estimate(shapes, make_compute(steps, recompute), steps)

    usage = estimate_of(accumulation_steps, recompute)
    dtype = make_compute(accumulation_steps, recompute).dtype
    rows = shapes.batch_size * shapes.choices
    lines = [
        f"Training memory of one device, estimated for {rows} x {shapes.length} tokens in {dtype}:"
    ]
    for name, value in dataclasses.asdict(usage).items():
        lines.append(f"  {name:12s} {_gib(value)}")
    lines.append(f"  {'together':12s} {_gib(usage.total)}, with {_gib(_PROGRAM)} for the program")
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines.append(f"This machine has {_gib(available)} of main memory. With the same results:")
    lines.append("  gradient_accumulation_steps  recompute   needs")
    steps = 1
    while steps <= shapes.batch_size:
        if shapes.batch_size % steps == 0:
            for is_recomputed in (False, True):
                total = estimate_of(steps, is_recomputed).total
                fits = "fits" if total < 0.9 * available else "does not fit"
                lines.append(f"  {steps:29d}  {is_recomputed!s:12s}  {_gib(total)}  {fits}")
        steps *= 2
    return "\n".join(lines)


def _gib(size: int) -> str:
    return f"{size / 2**30:7.2f} GiB"
