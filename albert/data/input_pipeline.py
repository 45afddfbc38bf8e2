"""Reads records in batches: mixtures of files, parsing, and input functions.

A feature is declared once, as a `FeatureSpec`, and that declaration writes it (`record_files`) and
parses it. Input functions keep TPUEstimator's contract: ``input_fn(params) -> tf.data.Dataset``
with the batch size in ``params["batch_size"]``.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from albert.data import record_files, tfrecord
from albert.data.input_options import EvalInput, TrainInput
from albert.io import file_io
from albert.model import tensor_batching

FeatureSpec = tfrecord.FeatureSpec
InputFn = Callable[[dict], tf.data.Dataset]

# --- mixtures of files ---------------------------------------------------------------------------

BLOCK = 10_000  # records in which each source has exactly its fraction


@dataclasses.dataclass(frozen=True)
class Source:
    """Files that are read together.

    Attributes:
      paths: the files.
      weight: fraction of the records of a run, relative to the weights of the other sources.
    """

    paths: tuple[str, ...]
    weight: float = 1.0


def parse_mixture(patterns: str, what: str) -> list[Source]:
    """Parses comma-separated globs, each of which may have a weight after a colon.

    Without weights all files are one source.

    Args:
      patterns: such as ``books/*:0.3,wiki/*:0.7``; the name of an existing file counts as such.
      what: what messages call them.

    Raises:
      file_io.InputError: a pattern matches nothing or only some have weights, a weight is not above
        0 or too small next to the others, or a file belongs to two sources.
    """
    found = [_weighted(pattern.strip(), what) for pattern in patterns.split(",") if pattern.strip()]
    if all(weight is None for _, weight in found):
        return [Source(tuple(tfrecord.named_files(patterns, what)))]
    sources, source_of = [], {}
    for pattern, weight in found:
        if weight is None:
            raise file_io.InputError(
                f"{what}: {pattern} has no weight, others have: give all of them one, as in "
                "books/*:0.3,wiki/*:0.7, or none"
            )
        if not 0 < weight < math.inf:
            raise file_io.InputError(f"{what}: the weight of {pattern}:{weight:g} must be above 0")
        source = Source(tuple(tfrecord.named_files(pattern, what)), weight)
        for path in source.paths:
            if path in source_of:
                raise file_io.InputError(
                    f"{what}: {path} belongs to {source_of[path]} and to {pattern}"
                )
            source_of[path] = pattern
        sources.append(source)
    for (pattern, weight), count in zip(found, counts_per_block(sources), strict=True):
        if not count:
            raise file_io.InputError(
                f"{what}: the weight of {pattern}:{weight:g} is less than 1 in {BLOCK} of all"
            )
    return sources


def _weighted(pattern, what):
    """(glob, weight or None)."""
    file_io.check_scheme(pattern, what)
    name, colon, weight = pattern.rpartition(":")
    if not colon or file_io.exists(pattern):
        return pattern, None
    try:
        return name, float(weight)
    except ValueError:  # a colon of the name
        return pattern, None


def counts_per_block(sources: Sequence[Source]) -> list[int]:
    """Returns the records of each source in a block; together they are `BLOCK`."""
    total = sum(source.weight for source in sources)
    exact = [BLOCK * source.weight / total for source in sources]
    whole = [int(count) for count in exact]
    # What is missing goes to those that lost most by rounding.
    order = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in order[: BLOCK - sum(whole)]:
        whole[place] += 1
    return whole


# --- parsing -------------------------------------------------------------------------------------


def _column(spec):
    dtype = tf.dtypes.as_dtype(spec.dtype)
    if spec.size is not None:
        return tf.io.FixedLenFeature(spec.shape, dtype)
    return tf.io.FixedLenSequenceFeature((), dtype, allow_missing=True, default_value=-1)


def parse(specs: Sequence[FeatureSpec], serialized: Any, narrow: bool = True) -> dict:
    """Parses a batch of serialized Examples: [B] strings -> {name: [B, ...]}.

    Lists of any length are padded with -1 to the longest of the batch.

    Args:
      specs: feature specifications.
      serialized: [B] strings.
      narrow: make int32 of int64.

    Raises:
      tf.errors.InvalidArgumentError: a number does not fit in int32; `record_files.damage_reported`
        finds its record.
    """
    features = tf.io.parse_example(serialized, {spec.name: _column(spec) for spec in specs})
    wide = {name: value for name, value in features.items() if value.dtype == tf.int64}
    return {**features, **{name: _to_int32(value) for name, value in wide.items() if narrow}}


def _to_int32(value):
    result = tf.cast(value, tf.int32)
    fits = tf.reduce_all(tf.equal(tf.cast(result, tf.int64), value))
    with tf.control_dependencies([tf.debugging.Assert(fits, [record_files.TOO_WIDE])]):
        return tf.identity(result)


def _trim(specs, features):
    """Cuts the padding that all examples of a batch share."""
    return tensor_batching.trim(features, [spec.name for spec in specs if spec.sequence])


# --- input functions -----------------------------------------------------------------------------

# Memory that a shuffle buffer of serialized records may take; data that fits is shuffled whole.
SHUFFLE_BYTES = 512 << 20
# Examples sorted by length at a time: enough that batches hold equal lengths, bounded memory.
SORT_WINDOW = 8192
REWRITTEN_AT_ONCE = 1024  # records


def shuffle_buffer_size(paths: Sequence[str]) -> int:
    """Estimates by the first record's size how many records fit in `SHUFFLE_BYTES`."""
    for serialized in record_files.serialized_examples(paths).take(1):
        # Each buffered record also costs about a hundred bytes of bookkeeping.
        return max(1, SHUFFLE_BYTES // (len(serialized.numpy()) + 100))
    return 1


def _epoch(files, seed, buffer_size, epoch):
    """Reads all records once, in an order that depends on (seed, epoch) alone."""
    epoch_seed = seed * 1_000_003 + epoch
    count = len(files[0])
    files = tf.data.Dataset.from_tensor_slices(files)
    files = files.shuffle(count, seed=epoch_seed, reshuffle_each_iteration=False)
    records = files.interleave(record_files.counted_records, cycle_length=min(count, 16))
    return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)


def _endless(paths, seed, consumed, fraction=1.0):
    """Reads one epoch after the other, without the records that were consumed already.

    Args:
      paths: TFRecord files.
      seed: integer; the same seed gives the same order.
      consumed: number of records.
      fraction: of the memory for shuffling.
    """
    buffer_size = max(1, int(shuffle_buffer_size(paths) * fraction))
    files = record_files.with_counts(paths)
    first_epoch, skip = divmod(consumed, int(sum(files[2])))
    dataset = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(
        lambda epoch: _epoch(files, seed, buffer_size, epoch)
    )
    return dataset.skip(skip)


def _mixed(sources, seed, consumed):
    """Reads `Source`s in turn, otherwise as `_endless`."""
    counts = counts_per_block(sources)
    in_turn = tf.repeat(tf.range(len(sources), dtype=tf.int64), counts)

    def order(block):
        return tf.random.experimental.stateless_shuffle(in_turn, tf.stack([seed, block]))

    blocks, rest = divmod(consumed, BLOCK)
    begun = order(tf.constant(blocks, tf.int64))[:rest]
    used = [
        blocks * count + int(tf.reduce_sum(tf.cast(begun == number, tf.int32)))
        for number, count in enumerate(counts)
    ]
    streams = [
        _endless(source.paths, seed + (number << 20), used[number], 1 / len(sources))
        for number, source in enumerate(sources)
    ]
    choices = tf.data.Dataset.range(blocks, tf.int64.max).flat_map(
        lambda block: tf.data.Dataset.from_tensor_slices(order(block))
    )
    return tf.data.Dataset.choose_from_datasets(streams, choices.skip(rest))


def _deal(dataset, params):
    """Splits batches of all replicas among input pipelines, then among a pipeline's replicas."""
    pipelines = params.get("num_input_pipelines", 1)
    dataset = dataset.shard(pipelines, params.get("input_pipeline_id", 0))
    if params.get("replicas_per_pipeline", 1) > 1:
        dataset = dataset.unbatch().batch(params["batch_size"], drop_remainder=True)
    return dataset


def _replicas(params):
    return params.get("num_input_pipelines", 1) * params.get("replicas_per_pipeline", 1)


def _pipeline_batch_size(params):
    return params["batch_size"] * params.get("replicas_per_pipeline", 1)


def train_input_fn(
    paths: Iterable[str],
    specs: Sequence[FeatureSpec],
    seed: int,
    options: TrainInput = TrainInput(),
) -> InputFn:
    """Makes the input of endless shuffled batches; (seed, epoch, step) alone decide the order.

    Args:
      paths: TFRecord files.
      specs: feature specifications.
      seed: integer; the same seed gives the same batches.
      options: how records become batches.

    Returns:
      ``input_fn(params)``. In addition to ``batch_size`` (per replica), params may hold
      ``first_step``, the number of steps already taken, ``num_input_pipelines``,
      ``input_pipeline_id``, ``replicas_per_pipeline``, and ``fixed_shapes``, which turns off the
      cutting.
    """
    paths = list(paths)

    @tf.autograph.experimental.do_not_convert
    def input_fn(params):
        batch_size = _pipeline_batch_size(params)
        first_step, pipelines = params.get("first_step", 0), params.get("num_input_pipelines", 1)
        # Batches are cut together: a resumed run cuts them again and skips the used ones.
        repeated = first_step % tensor_batching.CUT_TOGETHER if options.lengths else 0
        consumed = (first_step - repeated) * batch_size * pipelines
        if options.mixture:
            dataset = _mixed(options.mixture, seed, consumed)
        else:
            dataset = _endless(paths, seed, consumed)
        if options.lengths:
            dataset = tensor_batching.equal_tokens(dataset, batch_size, options.lengths).skip(
                repeated
            )
        else:
            dataset = _deal(dataset.batch(batch_size, drop_remainder=True), params)
        first_batch = first_step * params.get("replicas_per_pipeline", 1)

        def to_features(batch, serialized):
            features = options.read(serialized) if options.read else parse(specs, serialized)
            if options.prepare:
                features = options.prepare(features)
            if options.transform:
                number = batch * pipelines + params.get("input_pipeline_id", 0)
                features = options.transform(number, features)
            return _trim(specs, features) if trims else features

        trims = options.trim_batches and not params.get("fixed_shapes")
        dataset = dataset.enumerate(first_batch)
        return dataset.map(to_features, tf.data.AUTOTUNE, deterministic=True).prefetch(4)

    return input_fn


def _sorted_by_length(specs, serialized, index):
    """Returns records and their places by falling length, and these lengths."""
    features = parse([spec for spec in specs if spec.name == "input_mask"], serialized)
    lengths = tf.reduce_max(
        tf.reshape(tf.reduce_sum(features["input_mask"], -1), [tf.size(index), -1]), axis=1
    )
    order = tensor_batching.sorted_by_length(lengths)
    return tuple(tf.gather(x, order) for x in (serialized, index, lengths))


def _batches_of_tokens(serialized, index, lengths, tokens, min_tokens):
    """Returns batches of records by falling length that hold nearly `tokens` tokens each.

    A record counts as at least `min_tokens` tokens.
    """
    lengths = tf.maximum(tf.cast(lengths, tf.int64), min_tokens)
    # A record belongs to the batch that it starts in; its end is not to pass the limit.
    starts = tf.maximum(tokens - lengths[0], tokens // 2)
    batch = tf.unique(tf.cumsum(lengths, exclusive=True) // starts, tf.int64).idx
    # Numbers of batches rise by construction; checks of that would be most of the graph.
    columns = tuple(
        tf.RaggedTensor.from_value_rowids(x, batch, validate=False) for x in (serialized, index)
    )
    return tf.data.Dataset.from_tensor_slices(columns)


def _pad_batch(serialized, index, batch_size):
    """Fills a short last batch with copies of its first record under index -1."""
    missing = batch_size - tf.size(index)
    serialized = tf.concat([serialized, tf.repeat(serialized[:1], missing)], 0)
    index = tf.pad(index, [[0, missing]], constant_values=-1)
    return tf.ensure_shape(serialized, [batch_size]), tf.ensure_shape(index, [batch_size])


def _equal_batches(dataset, sorted_blocks, batch_size, params):
    """Makes batches of one size for each of several replicas, or of fixed shape."""
    if sorted_blocks:
        dataset = dataset.map(lambda serialized, index, _: (serialized, index)).unbatch()
    pipelines = params.get("num_input_pipelines", 1)
    all_replicas = batch_size * pipelines
    dataset = dataset.batch(all_replicas).map(lambda *rows: _pad_batch(*rows, all_replicas))
    if pipelines > 1:
        dataset = dataset.unbatch().batch(batch_size, drop_remainder=True)
    return _deal(dataset, params)


def eval_input_fn(
    paths: Iterable[str], specs: Sequence[FeatureSpec], options: EvalInput = EvalInput()
) -> InputFn:
    """Makes the input of every example exactly once, in batches of similar length.

    A single replica gets as many examples at a time as fit in the tokens of a full batch, so that
    short ones keep it as busy as long ones.

    Args:
      paths: TFRecord files.
      specs: feature specifications.
      options: how records become batches.

    Returns:
      ``input_fn(params)``; see `train_input_fn`. Features also hold ``example_index`` [B]: the
      place of the example in the input, -1 for rows that only fill the last batch.
    """
    paths = list(paths)

    @tf.autograph.experimental.do_not_convert
    def input_fn(params):
        batch_size = _pipeline_batch_size(params)
        files = record_files.with_counts(paths)
        dataset = tf.data.Dataset.from_tensor_slices(files).flat_map(record_files.counted_records)
        if options.max_examples is not None:
            dataset = dataset.take(options.max_examples)
        if options.rewrite:
            blocks = dataset.batch(REWRITTEN_AT_ONCE).enumerate()
            dataset = blocks.map(options.rewrite).unbatch()
        dataset = dataset.enumerate().map(lambda index, serialized: (serialized, index))
        trims = options.trim_batches and not params.get("fixed_shapes")
        if trims:
            dataset = dataset.batch(SORT_WINDOW)
            dataset = dataset.map(lambda *rows: _sorted_by_length(specs, *rows))
        if trims and _replicas(params) == 1:
            tokens = batch_size * max(spec.shape[-1] for spec in specs if spec.sequence)
            dataset = dataset.flat_map(
                lambda *rows: _batches_of_tokens(*rows, tokens, options.min_tokens)
            )
        else:
            dataset = _equal_batches(dataset, trims, batch_size, params)

        def to_features(serialized, index):
            features = parse(specs, serialized)
            if options.prepare:
                features = options.prepare(features)
            features = {**features, "example_index": index}
            return _trim(specs, features) if trims else features

        return dataset.map(to_features, tf.data.AUTOTUNE, deterministic=True).prefetch(4)

    return input_fn
