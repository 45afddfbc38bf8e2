"""Feature specifications, TFRecord files with a manifest, and input functions.

A feature is declared once, as a `FeatureSpec`, and that declaration writes and parses it. Input
functions keep TPUEstimator's contract: ``input_fn(params) -> tf.data.Dataset`` with the batch
size in ``params["batch_size"]``.
"""

import contextlib
import dataclasses

import numpy as np
import tensorflow as tf
from absl import logging

from albert import batching, file_io, tfrecord

FeatureSpec = tfrecord.FeatureSpec
MANIFEST_VERSION = 1
# Memory that a shuffle buffer of serialized records may take; data that fits is shuffled whole.
SHUFFLE_BYTES = 512 << 20
# Examples sorted by length at a time: enough that batches hold equal lengths, bounded memory.
SORT_WINDOW = 8192
REWRITTEN_AT_ONCE = 1024  # records


def encode(specs, features):
    """Serialized `tf.train.Example` of one feature dict.

    Raises:
      ValueError: a feature is missing, undeclared, or has another number of values than declared.
    """
    tfrecord.check_names(specs, features)
    entries = []
    for spec in specs:
        values = np.asarray(features[spec.name], dtype=spec.dtype)
        if spec.size is not None and values.size != spec.size:
            raise ValueError(f"feature {spec.name} has {values.size} values, expected {spec.size}")
        entries.append(tfrecord.feature_entry(spec.name, values))
    return tfrecord.example(entries)


def _column(spec):
    dtype = tf.dtypes.as_dtype(spec.dtype)
    if spec.size is not None:
        return tf.io.FixedLenFeature(spec.shape, dtype)
    return tf.io.FixedLenSequenceFeature((), dtype, allow_missing=True, default_value=-1)


def parse(specs, serialized):
    """Feature dict of a batch of serialized Examples, [B] strings -> {name: [B, ...]}.

    Lists of any length are padded with -1 to the longest of the batch.
    """
    features = tf.io.parse_example(serialized, {spec.name: _column(spec) for spec in specs})
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in features.items()
    }


def _trim(specs, features):
    """A batch without the padding that all its examples share."""
    return batching.trim(features, [spec.name for spec in specs if spec.sequence])


# --- files ------------------------------------------------------------------------------------


def manifest_path(path):
    return f"{path}.manifest.json"


def write(path, specs, rows, settings, ids=None):
    """Writes feature dicts to a TFRecord file and then, last, its manifest.

    Args:
      path: file to write; an existing one is replaced only when all rows have been written.
      specs: feature specifications.
      rows: iterable of feature dicts.
      settings: JSON-ready dict of everything that the content depends on.
      ids: list that holds the examples' ids once all rows are taken; kept in the manifest.

    Returns:
      Number of examples written.

    Raises:
      file_io.InputError: the file cannot be written.
    """
    return write_serialized(path, specs, (encode(specs, row) for row in rows), settings, ids)


def write_serialized(path, specs, serialized, settings, ids=None):
    """As `write`, from an iterable of serialized `tf.train.Example` that fit the specifications."""
    temporary = file_io.temporary_name(path)
    count = 0
    try:
        with tf.io.TFRecordWriter(temporary) as writer:
            for example in serialized:
                writer.write(example)
                count += 1
        num_bytes = file_io.size(temporary)
        # Without its manifest a record file is not trusted, so this order survives a kill.
        file_io.remove(manifest_path(path))
        file_io.rename(temporary, path)
    except tf.errors.OpError as error:
        file_io.remove(temporary)
        raise file_io.InputError(f"cannot write {path}: {error.message}") from error
    except BaseException:
        file_io.remove(temporary)
        raise
    manifest = {
        "version": MANIFEST_VERSION,
        "num_examples": count,
        "num_bytes": num_bytes,
        "specs": [dataclasses.asdict(spec) for spec in specs],
        "settings": settings,
    }
    if ids is not None:
        manifest["ids"] = ids
    file_io.write_json(manifest_path(path), manifest)
    return count


def _stale_reason(path, specs, settings):
    """Why the records at `path` cannot be used with these settings; None if they can."""
    if not file_io.exists(path):
        return "does not exist"
    if not file_io.exists(manifest_path(path)):
        return "has no manifest (it is not finished, or from another program)"
    try:
        manifest = file_io.read_json(manifest_path(path), "manifest")
    except file_io.InputError as error:
        return str(error)
    if manifest.get("version") != MANIFEST_VERSION:
        return f"has manifest version {manifest.get('version')}, expected {MANIFEST_VERSION}"
    if manifest["num_bytes"] != file_io.size(path):
        return f"has {file_io.size(path)} bytes, its manifest says {manifest['num_bytes']}"
    wanted = [{**dataclasses.asdict(spec), "shape": list(spec.shape)} for spec in specs]
    if manifest["specs"] != wanted:
        return "holds other features or lengths"
    for key in sorted(set(settings) | set(manifest["settings"])):
        found = manifest["settings"].get(key)
        if found != settings.get(key):
            return f"was made with {key} = {found!r}, now it is {settings.get(key)!r}"
    return None


def cached(path, specs, settings, make_rows, writer=write):
    """Makes a record file unless one made with the same settings is there already.

    Args:
      path: record file.
      specs: feature specifications.
      settings: JSON-ready dict of everything that the content depends on.
      make_rows: function without arguments that yields what `writer` takes.
      writer: `write` for feature dicts, `write_serialized` for records.

    Returns:
      Number of examples in the file.
    """
    reason = _stale_reason(path, specs, settings)
    if reason is None:
        return _use(path)
    _warn_of_remaking(path, reason)
    count = writer(path, specs, make_rows(), settings)
    logging.info("Wrote %d examples to %s", count, path)
    return count


def cached_with_ids(path, specs, settings, make_rows):
    """As `cached`, of ``(id, feature dict)`` pairs; `read_ids` gives the ids."""
    reason = _stale_reason(path, specs, settings)
    if reason is None and read_ids(path) is not None:
        return _use(path)
    _warn_of_remaking(path, reason or "has no ids of its examples")
    ids = []

    def rows():
        for guid, features in make_rows():
            ids.append(guid)
            yield features

    count = write(path, specs, rows(), settings, ids)
    logging.info("Wrote %d examples to %s", count, path)
    return count


def read_ids(path):
    """Ids of the examples of a record file, in order; None if its manifest has none."""
    return file_io.read_json(manifest_path(path), "manifest").get("ids")


def _use(path):
    count = file_io.read_json(manifest_path(path), "manifest")["num_examples"]
    logging.info("Using %s: %d examples made earlier", path, count)
    return count


def _warn_of_remaking(path, reason):
    if file_io.exists(path):
        logging.warning("Making %s again: it %s", path, reason)


def count_records(paths):
    """Number of records in TFRecord files, from their framing alone.

    Raises:
      file_io.InputError: a file is cut off, or is compressed and damaged; names file and place.
    """
    total = 0
    for path in paths:
        try:
            with file_io.open_file(path, "rb") as file:
                total += sum(1 for _ in tfrecord.read_record_lengths(file))
        except ValueError as error:
            raise file_io.InputError(f"{path} is damaged: {error}; make it again") from error
    return total


def check_files(paths, specs, hint):
    """Checks that no file is cut off, and that the first record fits the specifications.

    TensorFlow takes a file that ends within a record's header for a whole one.

    Raises:
      file_io.InputError: no records, a file that is cut off, or a feature is missing or has another
        type or length.
    """
    count_records(paths)
    for path in paths:
        if (example := first_example(path)) is not None:
            check_example(example, path, specs, hint)
            return
    raise file_io.InputError(f"no records in {', '.join(paths)}")


def first_example(path):
    """`tf.train.Example` of the first record of a file; None if it has none.

    Raises:
      file_io.InputError: the file is cut off, or damaged.
    """
    with damage_reported([path]):
        for serialized in serialized_examples([path]).take(1):
            return tf.train.Example.FromString(serialized.numpy())
    return None


def check_example(example, path, specs, hint):
    """Checks that a record has the features of the specifications; others do not matter.

    Raises:
      file_io.InputError: names file and feature; the hint says what to do.
    """
    for spec in specs:
        if spec.name not in example.features.feature:
            raise file_io.InputError(
                f"{path} has no feature {spec.name!r}; it has "
                f"{sorted(example.features.feature)}. {hint}"
            )
        feature = example.features.feature[spec.name]
        kind = feature.WhichOneof("kind")
        wanted = {"int64": "int64_list", "float32": "float_list"}[spec.dtype]
        if kind != wanted:
            raise file_io.InputError(
                f"{path}: {spec.name} is a {kind}, expected a {wanted}. {hint}"
            )
        found = len(getattr(feature, kind).value)
        if spec.size is not None and found != spec.size:
            raise file_io.InputError(
                f"{path}: {spec.name} has {found} values, expected {spec.size}. {hint}"
            )


@contextlib.contextmanager
def damage_reported(paths):
    """Turns a failed read inside the block into an error that names the file and the place.

    Raises:
      file_io.InputError: a record of one of `paths` is cut off or damaged.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        count_records(paths)  # names the file if it is cut off
        raise file_io.InputError(
            f"a record in {', '.join(paths)} is damaged; make the file again ({error.message})"
        ) from error


# --- input functions ---------------------------------------------------------------------------


def _with_compression(paths):
    """(Paths, what `tf.data.TFRecordDataset` is to be told of each)."""
    kinds = []
    for path in paths:
        with file_io.open_file(path, "rb") as file:
            kinds.append("GZIP" if tfrecord.is_compressed(file) else "")
    return list(paths), kinds


def serialized_examples(paths):
    """Dataset of the records of files, one file after the other; any may be compressed."""
    files = tf.data.Dataset.from_tensor_slices(_with_compression(paths))
    return files.flat_map(tf.data.TFRecordDataset)


def shuffle_buffer_size(paths):
    """Records that fit in `SHUFFLE_BYTES`, judged by the first record's size."""
    for serialized in serialized_examples(paths[:1]).take(1):
        # Each buffered record also costs about a hundred bytes of bookkeeping.
        return max(1, SHUFFLE_BYTES // (len(serialized.numpy()) + 100))
    return 1


def _epoch(files, seed, buffer_size, epoch):
    """All records once, in an order that depends on (seed, epoch) alone."""
    epoch_seed = seed * 1_000_003 + epoch
    count = len(files[0])
    files = tf.data.Dataset.from_tensor_slices(files)
    files = files.shuffle(count, seed=epoch_seed, reshuffle_each_iteration=False)
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=min(count, 16))
    return records.shuffle(buffer_size, seed=epoch_seed, reshuffle_each_iteration=False)


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
    paths, specs, seed, trim_batches=True, read=None, prepare=None, transform=None, lengths=None
):
    """Endless shuffled batches; the order is a function of (seed, epoch, step).

    Args:
      paths: TFRecord files.
      specs: feature specifications.
      seed: integer; the same seed gives the same batches.
      trim_batches: cut each batch to its real length.
      read: ``(serialized) -> features`` of a batch; by default by the specifications.
      prepare: ``(features) -> features`` on each batch as it was read.
      transform: ``(number, features) -> features`` on each batch; no two batches of a run have
        the same number, and it does not change when a run is resumed.
      lengths: as `batching.equal_tokens` takes it, to cut the batches of a single replica so.

    Returns:
      ``input_fn(params)``. Beside ``batch_size`` (per replica), params may hold ``first_step``,
      the number of steps already taken, ``num_input_pipelines``, ``input_pipeline_id``,
      ``replicas_per_pipeline``, and ``fixed_shapes``, which turns off the cutting.
    """
    paths = list(paths)

    @tf.autograph.experimental.do_not_convert
    def input_fn(params):
        batch_size = _pipeline_batch_size(params)
        buffer_size, files = shuffle_buffer_size(paths), _with_compression(paths)
        first_step, pipelines = params.get("first_step", 0), params.get("num_input_pipelines", 1)
        # Of batches that are cut together those that were used are left out.
        repeated = first_step % batching.CUT_TOGETHER if lengths else 0
        consumed = (first_step - repeated) * batch_size * pipelines
        first_epoch, skip = divmod(consumed, count_records(paths)) if consumed else (0, 0)
        dataset = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(
            lambda epoch: _epoch(files, seed, buffer_size, epoch)
        )
        if lengths:
            dataset = batching.equal_tokens(dataset.skip(skip), batch_size, lengths).skip(repeated)
        else:
            dataset = _deal(dataset.skip(skip).batch(batch_size, drop_remainder=True), params)
        first_batch = first_step * params.get("replicas_per_pipeline", 1)

        def to_features(batch, serialized):
            features = read(serialized) if read else parse(specs, serialized)
            if prepare:
                features = prepare(features)
            if transform:
                features = transform(
                    batch * pipelines + params.get("input_pipeline_id", 0), features
                )
            return _trim(specs, features) if trims else features

        trims = trim_batches and not params.get("fixed_shapes")
        dataset = dataset.enumerate(first_batch)
        return dataset.map(to_features, tf.data.AUTOTUNE, deterministic=True).prefetch(4)

    return input_fn


def _sorted_by_length(specs, serialized, index):
    """Records and their places by falling length, and these lengths."""
    features = parse([spec for spec in specs if spec.name == "input_mask"], serialized)
    lengths = tf.reduce_max(
        tf.reshape(tf.reduce_sum(features["input_mask"], -1), [tf.size(index), -1]), axis=1
    )
    order = batching.sorted_by_length(lengths)
    return tuple(tf.gather(x, order) for x in (serialized, index, lengths))


def _batches_of_tokens(serialized, index, lengths, tokens, least):
    """Dataset of batches, of records by falling length, that hold nearly so many tokens each.

    A record counts as `least` tokens at least.
    """
    lengths = tf.maximum(tf.cast(lengths, tf.int64), least)
    # A record belongs to the batch that it starts in; its end is not to pass the limit.
    starts = tf.maximum(tokens - lengths[0], tokens // 2)
    batch = tf.unique(tf.cumsum(lengths, exclusive=True) // starts, tf.int64).idx
    columns = (tf.RaggedTensor.from_value_rowids(x, batch) for x in (serialized, index))
    return tf.data.Dataset.from_tensor_slices(tuple(columns))


def _pad_batch(serialized, index, batch_size):
    """Fills a short last batch with copies of its first record under index -1."""
    missing = batch_size - tf.size(index)
    serialized = tf.concat([serialized, tf.repeat(serialized[:1], missing)], 0)
    index = tf.pad(index, [[0, missing]], constant_values=-1)
    return tf.ensure_shape(serialized, [batch_size]), tf.ensure_shape(index, [batch_size])


def _equal_batches(dataset, sorted_blocks, batch_size, params):
    """Batches of one size for each of several replicas, or of fixed shape."""
    if sorted_blocks:
        dataset = dataset.map(lambda serialized, index, _: (serialized, index)).unbatch()
    pipelines = params.get("num_input_pipelines", 1)
    all_replicas = batch_size * pipelines
    dataset = dataset.batch(all_replicas).map(lambda *rows: _pad_batch(*rows, all_replicas))
    if pipelines > 1:
        dataset = dataset.unbatch().batch(batch_size, drop_remainder=True)
    return _deal(dataset, params)


def eval_input_fn(
    paths, specs, max_examples=None, trim_batches=True, rewrite=None, prepare=None, least_tokens=1
):
    """Every example exactly once, in batches of similar length.

    A single replica gets as many examples at a time as fit in the tokens of a full batch, so that
    short ones keep it as busy as long ones.

    Args:
      paths: TFRecord files.
      specs: feature specifications.
      max_examples: use at most this many, from the front.
      trim_batches: cut each batch to its real length and sort by it.
      rewrite: ``(number, serialized) -> serialized`` of records that are not as the specifications
        say, in blocks that depend on nothing but their place: how they are batched does not matter.
      prepare: ``(features) -> features`` on each batch as it was read.
      least_tokens: what an example counts as at least, so that a batch holds at most S over this
        times its size.

    Returns:
      ``input_fn(params)``; see `train_input_fn`. Features also hold ``example_index`` [B]: the
      place of the example in the input, -1 for rows that only fill the last batch.
    """
    paths = list(paths)

    @tf.autograph.experimental.do_not_convert
    def input_fn(params):
        batch_size = _pipeline_batch_size(params)
        dataset = serialized_examples(paths)
        if max_examples is not None:
            dataset = dataset.take(max_examples)
        if rewrite:
            dataset = dataset.batch(REWRITTEN_AT_ONCE).enumerate().map(rewrite).unbatch()
        dataset = dataset.enumerate().map(lambda index, serialized: (serialized, index))
        trims = trim_batches and not params.get("fixed_shapes")
        if trims:
            dataset = dataset.batch(SORT_WINDOW)
            dataset = dataset.map(lambda *rows: _sorted_by_length(specs, *rows))
        if trims and _replicas(params) == 1:
            tokens = batch_size * max(spec.shape[-1] for spec in specs if spec.sequence)
            dataset = dataset.flat_map(
                lambda *rows: _batches_of_tokens(*rows, tokens, least_tokens)
            )
        else:
            dataset = _equal_batches(dataset, trims, batch_size, params)

        def to_features(serialized, index):
            features = parse(specs, serialized)
            if prepare:
                features = prepare(features)
            features = {**features, "example_index": index}
            return _trim(specs, features) if trims else features

        return dataset.map(to_features, tf.data.AUTOTUNE, deterministic=True).prefetch(4)

    return input_fn
