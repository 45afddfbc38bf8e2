"""Reads records in batches: mixtures of files, parsing, and input functions.

A `FeatureSpec` declares a feature once, for writing it (`record_files`) and for parsing it. Input
functions keep TPUEstimator's contract: ``input_fn(params) -> tf.data.Dataset`` with the batch size
in ``params["batch_size"]``.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert.data import record_files, tfrecord
from albert.data.input_options import EvalInput, Source, Tensors, TrainInput
from albert.io import file_io
from albert.model import tensor_batching

FeatureSpec = tfrecord.FeatureSpec
Params = Mapping[str, Any]  # see `train_input_fn`
InputFn = Callable[[Params], tf.data.Dataset]

BLOCK = 10_000  # records in which each source has exactly its fraction
# Memory of a shuffle buffer of serialized records; data that fits is shuffled as a whole.
SHUFFLE_BYTES = 512 << 20
# Examples sorted by length at a time: enough that batches hold equal lengths, with bounded memory.
SORT_WINDOW = 8192
REWRITE_BATCH = 1024  # records


def parse_mixture(patterns: str, what: str) -> list[Source]:
    """Parses comma-separated globs, each of which may have a weight after a colon.

    Without weights all files are one source.

    Args:
      patterns: such as ``books/*:0.3,wiki/*:0.7``; the name of an existing file is not parsed.
      what: name of the patterns in messages.
    """
    pairs = [
        _parse_weight(pattern.strip(), what) for pattern in patterns.split(",") if pattern.strip()
    ]
    if all(weight is None for _, weight in pairs):
        return [Source(tuple(tfrecord.named_files(patterns, what)))]
    sources: list[Source] = []
    source_of: dict[str, str] = {}
    for pattern, weight in pairs:
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
    for (pattern, weight), count in zip(pairs, counts_per_block(sources), strict=True):
        if not count:
            raise file_io.InputError(
                f"{what}: the weight of {pattern}:{weight:g} is less than 1 in {BLOCK} of all"
            )
    return sources


def _parse_weight(pattern: str, what: str) -> tuple[str, float | None]:
    """Returns (glob, weight or None)."""
    file_io.check_scheme(pattern, what)
    name, colon, weight = pattern.rpartition(":")
    if not colon or file_io.exists(pattern):
        return pattern, None
    try:
        return name, float(weight)
    except ValueError:  # The colon belongs to the name.
        return pattern, None


def counts_per_block(sources: Sequence[Source]) -> list[int]:
    """Returns the number of records of each source in a block; their sum is `BLOCK`."""
    total = sum(source.weight for source in sources)
    exact = [BLOCK * source.weight / total for source in sources]
    whole = [int(count) for count in exact]
    # The sources that lost most by rounding get the missing records.
    order = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in order[: BLOCK - sum(whole)]:
        whole[place] += 1
    return whole


def _column(spec: FeatureSpec) -> tf.io.FixedLenFeature | tf.io.FixedLenSequenceFeature:
    dtype = tf.dtypes.as_dtype(spec.dtype)
    if spec.size is not None:
        return tf.io.FixedLenFeature(spec.shape, dtype)
    return tf.io.FixedLenSequenceFeature((), dtype, allow_missing=True, default_value=-1)


def parse(
    specs: Sequence[FeatureSpec], serialized: tf.Tensor, narrow: bool = True
) -> dict[str, tf.Tensor]:
    """Parses a batch of serialized Examples, [B] strings.

    Returns:
      {name: [B, ...]}, int32 (or int64) or float32. Lists of any length are padded with -1 to the
      longest of the batch.

    Raises:
      tf.errors.InvalidArgumentError: a number does not fit in int32; `record_files.report_damage`
        finds its record.
    """
    features = tf.io.parse_example(serialized, {spec.name: _column(spec) for spec in specs})
    wide = {name: value for name, value in features.items() if value.dtype == tf.int64}
    return {**features, **{name: _to_int32(value) for name, value in wide.items() if narrow}}


def _to_int32(value: tf.Tensor) -> tf.Tensor:
    result = tf.cast(value, tf.int32)
    fits = tf.reduce_all(tf.equal(tf.cast(result, tf.int64), value))
    with tf.control_dependencies([tf.debugging.Assert(fits, [record_files.TOO_WIDE])]):
        return tf.identity(result)


def _trim(specs: Sequence[FeatureSpec], features: Tensors) -> dict[str, tf.Tensor]:
    """Cuts the padding that all examples of a batch share."""
    return tensor_batching.trim(features, [spec.name for spec in specs if spec.sequence])


def _trim_masked(specs: Sequence[FeatureSpec], features: Tensors) -> dict[str, tf.Tensor]:
    """Cuts the padding and the empty slots for masked tokens that all examples of a batch share."""
    predicted = [name for name in features if name.startswith("masked_lm_")]
    features = _trim(specs, features)
    return tensor_batching.trim_predictions(features, predicted) if predicted else features


def shuffle_buffer_size(paths: Sequence[str]) -> int:
    """Estimates how many records fit in `SHUFFLE_BYTES`, by the first record's size."""
    for serialized in record_files.serialized_examples(paths).take(1):
        # The buffer needs about a hundred bytes more for each record.
        return max(1, SHUFFLE_BYTES // (len(serialized.numpy()) + 100))
    return 1


def _epoch(
    files: tuple[Any, ...], seed: int, buffer_size: int, epoch: tf.Tensor
) -> tf.data.Dataset:
    """Reads all records, scalar strings, once, in an order that depends on (seed, epoch) alone."""
    epoch_seed = seed * 1_000_003 + epoch
    count = len(files[0])
    shuffled = tf.data.Dataset.from_tensor_slices(files)
    shuffled = shuffled.shuffle(count, seed=epoch_seed, reshuffle_each_iteration=False)
    records = shuffled.interleave(record_files.counted_records, cycle_length=min(count, 16))
    return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)


def _endless_records(
    paths: Sequence[str], seed: int, consumed: int, fraction: float = 1.0
) -> tf.data.Dataset:
    """Reads all epochs but the `consumed` records, with a fraction of `SHUFFLE_BYTES`."""
    files = record_files.with_counts(paths)
    count = int(sum(files[2]))
    # Every epoch allocates its own buffer. More places than records would not change the order.
    buffer_size = min(count, max(1, int(shuffle_buffer_size(paths) * fraction)))
    first_epoch, skip = divmod(consumed, count)
    dataset = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(
        lambda epoch: _epoch(files, seed, buffer_size, epoch)
    )
    return dataset.skip(skip)


def _mixed_records(sources: Sequence[Source], seed: int, consumed: int) -> tf.data.Dataset:
    """Reads `Source`s in random turns, otherwise as `_endless_records`."""
    counts = counts_per_block(sources)
    in_turn = tf.repeat(tf.range(len(sources), dtype=tf.int64), counts)

    def order(block: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(in_turn, tf.stack([seed, block]))

    blocks, rest = divmod(consumed, BLOCK)
    begun = order(tf.constant(blocks, tf.int64))[:rest]
    offsets = [
        blocks * count + int(tf.reduce_sum(tf.cast(begun == number, tf.int32)))
        for number, count in enumerate(counts)
    ]
    streams = [
        _endless_records(source.paths, seed + (number << 20), offsets[number], 1 / len(sources))
        for number, source in enumerate(sources)
    ]
    choices = tf.data.Dataset.range(blocks, tf.int64.max).flat_map(
        lambda block: tf.data.Dataset.from_tensor_slices(order(block))
    )
    return tf.data.Dataset.choose_from_datasets(streams, choices.skip(rest))


def _split_batches(dataset: tf.data.Dataset, params: Params) -> tf.data.Dataset:
    """Splits batches of all replicas among input pipelines, then among a pipeline's replicas."""
    pipelines = params.get("num_input_pipelines", 1)
    dataset = dataset.shard(pipelines, params.get("input_pipeline_id", 0))
    if params.get("replicas_per_pipeline", 1) > 1:
        dataset = dataset.unbatch().batch(params["batch_size"], drop_remainder=True)
    return dataset


def _num_replicas(params: Params) -> int:
    return params.get("num_input_pipelines", 1) * params.get("replicas_per_pipeline", 1)


def _pipeline_batch_size(params: Params) -> int:
    return params["batch_size"] * params.get("replicas_per_pipeline", 1)


def train_input_fn(
    paths: Iterable[str],
    specs: Sequence[FeatureSpec],
    seed: int,
    options: TrainInput = TrainInput(),
) -> InputFn:
    """Makes the input of endless shuffled batches, in an order that (seed, epoch, step) decide.

    Returns:
      ``input_fn(params)``, which returns a dataset of {name: [B, ...]}. In addition to
      ``batch_size`` (per replica), params may hold ``first_step``, the number of steps already
      taken, ``num_input_pipelines``, ``input_pipeline_id``, ``replicas_per_pipeline``, and
      ``fixed_shapes``, which turns off trimming.
    """
    paths = list(paths)

    @tf.autograph.experimental.do_not_convert
    def input_fn(params: Params) -> tf.data.Dataset:
        batch_size = _pipeline_batch_size(params)
        first_step, pipelines = params.get("first_step", 0), params.get("num_input_pipelines", 1)
        # Batches are cut in groups: a resumed run cuts a group again and skips its used batches.
        repeated = first_step % tensor_batching.CUT_TOGETHER if options.lengths else 0
        consumed = (first_step - repeated) * batch_size * pipelines
        if options.mixture:
            dataset = _mixed_records(options.mixture, seed, consumed)
        else:
            dataset = _endless_records(paths, seed, consumed)
        if options.lengths:
            group = first_step // tensor_batching.CUT_TOGETHER
            by_length = seed if options.group_by_length else None
            dataset = tensor_batching.equal_tokens(
                dataset, batch_size, options.lengths, group, by_length
            ).skip(repeated)
        else:
            dataset = _split_batches(dataset.batch(batch_size, drop_remainder=True), params)
        first_batch = first_step * params.get("replicas_per_pipeline", 1)

        def to_features(batch: tf.Tensor, serialized: tf.Tensor) -> Tensors:
            features = options.read(serialized) if options.read else parse(specs, serialized)
            if options.prepare:
                features = options.prepare(features)
            if options.transform:
                number = batch * pipelines + params.get("input_pipeline_id", 0)
                features = options.transform(number, features)
            return _trim_masked(specs, features) if trims else features

        trims = options.trim_batches and not params.get("fixed_shapes")
        dataset = dataset.enumerate(first_batch)
        return dataset.map(to_features, tf.data.AUTOTUNE, deterministic=True).prefetch(4)

    return input_fn


def _sorted_by_length(
    specs: Sequence[FeatureSpec], serialized: tf.Tensor, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns ([N] records, [N] places, [N] lengths), longest first."""
    features = parse([spec for spec in specs if spec.name == "input_mask"], serialized)
    lengths = tf.reduce_max(
        tf.reshape(tf.reduce_sum(features["input_mask"], -1), [tf.size(index), -1]), axis=1
    )
    order = tensor_batching.sorted_by_length(lengths)
    return tuple(tf.gather(x, order) for x in (serialized, index, lengths))


def _batches_of_tokens(
    serialized: tf.Tensor, index: tf.Tensor, lengths: tf.Tensor, tokens: int, min_tokens: int
) -> tf.data.Dataset:
    """Divides records into batches of nearly `tokens` tokens each: ([B] records, [B] places)."""
    lengths = tf.maximum(tf.cast(lengths, tf.int64), min_tokens)
    # A record belongs to the batch that it starts in, and must not end beyond the limit.
    starts = tf.maximum(tokens - lengths[0], tokens // 2)
    batch = tf.unique(tf.cumsum(lengths, exclusive=True) // starts, tf.int64).idx
    # Not validated: batch numbers rise by construction, and the checks would fill the graph.
    columns = tuple(
        tf.RaggedTensor.from_value_rowids(x, batch, validate=False) for x in (serialized, index)
    )
    return tf.data.Dataset.from_tensor_slices(columns)


def _pad_batch(
    serialized: tf.Tensor, index: tf.Tensor, batch_size: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Fills a short last batch with copies of its first record under index -1."""
    missing = batch_size - tf.size(index)
    serialized = tf.concat([serialized, tf.repeat(serialized[:1], missing)], 0)
    index = tf.pad(index, [[0, missing]], constant_values=-1)
    return tf.ensure_shape(serialized, [batch_size]), tf.ensure_shape(index, [batch_size])


def _equal_batches(
    dataset: tf.data.Dataset, sorted_blocks: bool, batch_size: int, params: Params
) -> tf.data.Dataset:
    """Makes batches of equal size, for several replicas or fixed shapes."""
    if sorted_blocks:
        dataset = dataset.map(lambda serialized, index, _: (serialized, index)).unbatch()
    pipelines = params.get("num_input_pipelines", 1)
    all_replicas = batch_size * pipelines
    dataset = dataset.batch(all_replicas).map(
        lambda rows, index: _pad_batch(rows, index, all_replicas)
    )
    if pipelines > 1:
        dataset = dataset.unbatch().batch(batch_size, drop_remainder=True)
    return _split_batches(dataset, params)


def eval_input_fn(
    paths: Iterable[str], specs: Sequence[FeatureSpec], options: EvalInput = EvalInput()
) -> InputFn:
    """Makes the input of every example exactly once, in batches of similar length.

    A single replica gets as many examples at a time as fit in the tokens of a full batch, so that
    short examples keep it as busy as long ones.

    Returns:
      ``input_fn(params)``; see `train_input_fn`. Features also hold ``example_index`` [B]: the
      place of the example in the input, -1 for rows that only fill the last batch.
    """
    paths = list(paths)

    @tf.autograph.experimental.do_not_convert
    def input_fn(params: Params) -> tf.data.Dataset:
        batch_size = _pipeline_batch_size(params)
        files = record_files.with_counts(paths)
        dataset = tf.data.Dataset.from_tensor_slices(files).flat_map(record_files.counted_records)
        if options.max_examples is not None:
            dataset = dataset.take(options.max_examples)
        if options.rewrite:
            blocks = dataset.batch(REWRITE_BATCH).enumerate()
            dataset = blocks.map(options.rewrite).unbatch()
        dataset = dataset.enumerate().map(lambda index, serialized: (serialized, index))
        trims = options.trim_batches and not params.get("fixed_shapes")
        if trims:
            dataset = dataset.batch(SORT_WINDOW)
            dataset = dataset.map(lambda rows, index: _sorted_by_length(specs, rows, index))
        if trims and _num_replicas(params) == 1:
            tokens = batch_size * max(spec.shape[-1] for spec in specs if spec.sequence)
            dataset = dataset.flat_map(
                lambda rows, index, lengths: _batches_of_tokens(
                    rows, index, lengths, tokens, options.min_tokens
                )
            )
        else:
            dataset = _equal_batches(dataset, trims, batch_size, params)

        def to_features(serialized: tf.Tensor, index: tf.Tensor) -> Tensors:
            features: Tensors = parse(specs, serialized)
            if options.prepare:
                features = options.prepare(features)
            features = {**features, "example_index": index}
            return _trim(specs, features) if trims else features

        return dataset.map(to_features, tf.data.AUTOTUNE, deterministic=True).prefetch(4)

    return input_fn
