"""How much memory a training run needs, told from its shapes before it starts.

Letters: B batch of a device, S sequence, H hidden, I intermediate, N heads, V vocabulary,
P masked positions.
"""

import dataclasses
import os

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# What TensorFlow, its libraries and compiled functions take, as runs of small models show.
_PROGRAM = 1 << 30


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes on one device.

    Attributes:
      parameters, optimizer: in float32.
      gradients: in float32, twice where they are accumulated; and those of two layers that share
        their weights, for each part of the batch.
      activations: what the encoder keeps for the backward pass, and the work of one block in it.
      head: the logits of the masked LM and their gradient.
      checkpoint: values that are being written while training goes on; in main memory.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    head: int
    checkpoint: int

    @property
    def total(self):
        """All of it, and the program itself."""
        return sum(dataclasses.astuple(self)) + _PROGRAM


def count_parameters(config):
    """Parameters of the encoder and its pooler."""
    embedding, hidden = config.embedding_size, config.hidden_size
    tables = config.vocab_size + config.type_vocab_size + config.max_position_embeddings + 2
    mapping = (embedding + 1) * hidden if embedding != hidden else 0
    blocks = config.num_hidden_groups * config.inner_group_num * _count_block_parameters(config)
    return tables * embedding + mapping + blocks + (hidden + 1) * hidden


def _count_block_parameters(config):
    hidden, inner = config.hidden_size, config.intermediate_size
    return 4 * (hidden + 1) * hidden + (hidden + 1) * inner + (inner + 1) * hidden + 4 * hidden


def estimate(config, batch_size, length, compute, accumulation_steps=1, predictions=0):
    """Memory of a training step at full length; padding that is skipped makes it less.

    Args:
      config: `modeling.AlbertConfig`.
      batch_size: B, examples of one device in one update.
      length: S.
      compute: `layers.Compute`.
      accumulation_steps: micro-batches that B is computed in.
      predictions: P, masked positions per example; 0 for fine-tuning.
    """
    parameters = 4 * count_parameters(config)
    size = _BYTES[compute.dtype]
    rows = -(-batch_size // accumulation_steps) * length
    hidden, heads = config.hidden_size, config.num_attention_heads
    # A block keeps its input, queries, keys, values, context, two normalised sums, the first
    # block's output; twice the inner layer; and the attention probabilities, before and after
    # dropout.
    scores = rows * heads * length
    probabilities = scores * size * (2 if config.attention_probs_dropout_prob else 1)
    kept = rows * (8 * hidden + 2 * config.intermediate_size) * size + probabilities
    # In the backward pass of a block its gradients come on top.
    working = rows * (4 * hidden + 2 * config.intermediate_size) * size + 2 * scores * 4
    blocks = config.num_hidden_layers * config.inner_group_num
    if compute.recompute:
        activations = blocks * rows * hidden * size + kept + working
    else:
        activations = blocks * kept + working
    logits = rows // length * predictions * config.vocab_size * 4
    gradients = parameters * (2 if accumulation_steps > 1 else 1)
    return Estimate(
        parameters=parameters,
        gradients=gradients + 2 * compute.parts * size * _count_block_parameters(config),
        optimizer=2 * parameters,
        activations=activations,
        head=3 * logits,
        checkpoint=3 * parameters,
    )


def report(config, batch_size, length, compute, accumulation_steps=1, predictions=0, choices=1):
    """Text for people: the estimate, and what other settings with the same results would need.

    Args: see `estimate`, and
      choices: texts of which an example consists, as a question of RACE of its four answers.
    """
    arguments = (config, batch_size * choices, length)
    chosen = estimate(*arguments, compute, accumulation_steps, predictions)
    lines = [
        f"Training memory of one device, estimated for {batch_size * choices} x {length} tokens in "
        f"{compute.dtype}:"
    ]
    for name, value in dataclasses.asdict(chosen).items():
        lines.append(f"  {name:12s} {_gib(value)}")
    lines.append(f"  {'together':12s} {_gib(chosen.total)}, with {_gib(_PROGRAM)} for the program")
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines.append(f"This machine has {_gib(available)} of main memory. With the same results:")
    lines.append("  gradient_accumulation_steps  recompute   needs")
    steps = 1
    while steps <= batch_size:
        if batch_size % steps == 0:
            for recompute in (False, True):
                other = dataclasses.replace(compute, recompute=recompute)
                total = estimate(*arguments, other, steps, predictions).total
                fits = "fits" if total < 0.9 * available else "does not fit"
                lines.append(f"  {steps:29d}  {recompute!s:12s}  {_gib(total)}  {fits}")
        steps *= 2
    return "\n".join(lines)


def _gib(size):
    return f"{size / 2**30:7.2f} GiB"
