"""Makes shards of pre-training records as an Apache Beam pipeline, on any of its runners.

    units of text -> instances -> buckets (grouped, shuffled, files) -> shards (grouped, files)

The parts are those of a local run, and so are the files, byte for byte: what a record is and which
bucket it goes to depends on its block and pass, and a bucket is put in the order of these before it
is shuffled. Files are written under names of their own and then renamed, so work that a runner does
twice, after a worker was lost or to be faster, leaves one of two equal files.

In a folder of a disk that all workers see, records wait in a file for each unit, and only their
places go through Beam, which would hold all in the memory of one process on its DirectRunner. In
remote folders, where reading many small parts is slow, the records themselves do.

A group is a bucket of about 64 MB, whose number is drawn: none is larger than others.
Source: Akidau et al., "The Dataflow Model" (2015), for pipelines of this kind.
"""

import collections
import dataclasses
import functools
import os

from albert import (
    beam_pipelines,
    bucket_shuffle,
    file_io,
    pretraining_files,
    pretraining_shards,
    tfrecord,
)

_COUNTS = "counts.json"
BYTES_AT_A_TIME = 1 << 24


def make_shards(work, arguments, num_workers=1):
    """Makes all shards of a job, and their notes, in the folder of the work.

    Args:
      work: `pretraining_shards.Work`; all workers must see its folder and the text.
      arguments, num_workers: see `beam_pipelines.run`.

    Returns:
      Counter of what was made and left out.

    Raises:
      file_io.InputError: as `beam_pipelines.run`.
    """
    num_buckets = work.num_shards * work.buckets
    make = functools.partial(make_records, job=work.job, num_buckets=num_buckets)
    if keeps_records(work.folder):
        make = functools.partial(keep_records, make=make, folder=work.folder)
    steps = functools.partial(
        _add_steps, work=work, make=make, shuffle=shuffle_bucket, join=join_shard
    )
    beam_pipelines.run(steps, arguments, num_workers)
    return collections.Counter(
        file_io.read_json(os.path.join(work.folder, _COUNTS), "counts of the pipeline")
    )


def _add_steps(beam, pipeline, *, work, make, shuffle, join):
    """Adds the steps of the work to a pipeline; the last three are functions of this module."""
    made = (
        pipeline
        | "units" >> beam.Create(work.units)
        | "spread" >> beam.Reshuffle()
        | "instances" >> beam.FlatMap(make)
        | "apart" >> beam.Partition(lambda found, _: int(found[0] is None), 2)
    )
    buckets = (
        made[0]
        | "buckets" >> beam.GroupByKey()
        | "shuffle" >> beam.Map(shuffle, work.job, work.folder, work.buckets)
    )
    shards = pipeline | "shards" >> beam.Create([(n, None) for n in range(work.num_shards)])
    _ = (
        (buckets, shards)
        | "all" >> beam.Flatten()
        | "of each" >> beam.GroupByKey()
        | "join" >> beam.Map(join, work.job, work.folder)
    )
    _ = (
        made[1]
        | "counts" >> beam.Values()
        | "total" >> beam.CombineGlobally(_total)
        | "note" >> beam.Map(_write_counts, os.path.join(work.folder, _COUNTS))
    )


# --- what the workers do --------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _maker(job):
    """Of a process: the vocabulary is read once."""
    return pretraining_files.InstanceMaker(job)


def make_records(unit, job, num_buckets):
    """Makes the records of a unit.

    Args:
      unit: `pretraining_files.Unit`.
      job: `pretraining_files.Job`.
      num_buckets: of the whole work.

    Yields:
      (bucket, ((block, pass, part), records)), and last (None, Counter of what the unit holds).
    """
    counts = collections.Counter()
    for pass_number, batches, rng in _maker(job).passes(unit):
        waiting, part = bucket_shuffle.Buckets(num_buckets), 0
        for records, batch_counts in batches:
            counts.update(batch_counts)
            if waiting.add(records, rng):
                for bucket, found in waiting.take():
                    yield bucket, ((unit.block, pass_number, part), found)
                part += 1
        for bucket, found in waiting.take():
            yield bucket, ((unit.block, pass_number, part), found)
    yield None, counts


def keeps_records(folder):
    """Whether records wait in files of the folder of the work, see above."""
    return not file_io.is_remote(folder)


def keep_records(unit, make, folder):
    """Writes the records of a unit to a file, unless an earlier attempt has done so.

    Args:
      unit: `pretraining_files.Unit`.
      make: `make_records` with its other arguments.
      folder: of the work, on a disk that all workers see.

    Yields:
      As `make_records`, but instead of keys and records the fields of `bucket_shuffle.Segment`s.
    """
    name = f"unit-{unit.block:05d}-{unit.passes[0]}-{unit.passes[-1]}"
    note = os.path.join(folder, f"{name}.json")
    if not file_io.exists(note):
        path = beam_pipelines.own_name(os.path.join(folder, name))
        with tfrecord.writing(folder):
            found = {"file": os.path.basename(path), **_write_unit(path, make(unit))}
            # Last: an attempt that was ended before this line counts for nothing.
            beam_pipelines.write(note, lambda name: file_io.write_json(name, found))
    found = file_io.read_json(note, "finished unit")
    path = os.path.join(folder, found["file"])
    for bucket, key, *places in found["segments"]:
        yield bucket, (tuple(key), path, *places)
    yield None, collections.Counter(found["counts"])


def _write_unit(path, made):
    """Writes the records of a unit; what its note says."""
    segments = []
    try:
        with file_io.open_file(path, "wb") as file:
            for bucket, found in made:
                if bucket is None:
                    return {"segments": segments, "counts": found}
                segment = bucket_shuffle.write_segment(file, path, *found)
                segments.append((bucket, segment.key, *dataclasses.astuple(segment)[2:]))
    except BaseException:
        file_io.remove(path)
        raise
    raise ValueError(f"{path}: the unit ended without its counts")


def _total(counters):
    total = collections.Counter()
    for counter in counters:
        total.update(counter)
    return total


def _write_counts(counts, path):
    beam_pipelines.write(path, lambda name: file_io.write_json(name, dict(counts)))


def shuffle_bucket(group, job, folder, buckets):
    """Writes the records of a bucket in the order of a local run.

    Args:
      group: (bucket, iterable of what `make_records` or `keep_records` give for it).
      job: `pretraining_files.Job`.
      folder: of the work.
      buckets: how many a shard has.

    Returns:
      (shard, (bucket, path of the file, number of records)).
    """
    bucket, parts = group
    parts = sorted(parts)
    rng = pretraining_shards.shuffle_rng(job, bucket)
    if keeps_records(folder):
        segments = [bucket_shuffle.Segment(*part) for part in parts]
        records = bucket_shuffle.shuffled_segments(segments, rng)
    else:
        records = bucket_shuffle.shuffled([found for _, found in parts], rng)
    path, lengths = os.path.join(folder, f"shuffled-{bucket:05d}"), []

    def make(name):
        with tfrecord.writing(folder), file_io.open_file(name, "wb") as file:
            lengths.extend(map(file.write, records))

    beam_pipelines.write(path, make)
    return bucket // buckets, (bucket, path, len(lengths))


def join_shard(group, job, folder):
    """Writes a shard of its buckets.

    Args:
      group: (shard, iterable of what `shuffle_bucket` gives, and None).
      job: `pretraining_files.Job`.
      folder: of the work.
    """
    shard, found = group
    pretraining_shards.write_shard(folder, shard, _contents(sorted(filter(None, found))), job)


def _contents(buckets):
    for _, path, number in buckets:
        with file_io.open_file(path, "rb") as file:
            while content := file.read(BYTES_AT_A_TIME):
                yield number, content
                number = 0  # All are counted with the first part.
