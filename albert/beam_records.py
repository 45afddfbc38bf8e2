"""Makes shards of pre-training records as an Apache Beam pipeline, on any of its runners.

    units of text -> instances -> buckets (grouped, shuffled, files) -> shards (grouped, files)

The parts are those of a local run, and so are the files, byte for byte: what a record is and which
bucket it goes to depends on its block and pass, and a bucket is put in the order of these before it
is shuffled. Files are written under names of their own and then renamed, so work that a runner does
twice, after a worker was lost or to be faster, leaves one of two equal files.

A group is a bucket of about 64 MB, whose number is drawn: none is larger than others.
Source: Akidau et al., "The Dataflow Model" (2015), for pipelines of this kind.
"""

import collections
import functools
import logging
import os
import uuid

from albert import bucket_shuffle, file_io, pretraining_files, pretraining_shards, tfrecord

_COUNTS = "counts.json"


def _beam():
    try:
        import apache_beam
    except ImportError as error:
        raise file_io.InputError(
            f"runner=beam needs the package apache-beam: pip install '.[beam]' ({error})"
        ) from error
    return apache_beam


def _options(arguments, num_workers):
    """Options of the pipeline; without any, a run in processes of this machine."""
    from apache_beam.options import pipeline_options

    options = pipeline_options.PipelineOptions(arguments)
    if not arguments:
        options = pipeline_options.PipelineOptions(
            [],
            runner="DirectRunner",
            direct_num_workers=num_workers,
            direct_running_mode="multi_processing",
            default_sdk_harness_log_level="WARNING",
        )
    # Workers import the package; they need no copy of this program's state.
    options.view_as(pipeline_options.SetupOptions).save_main_session = False
    return options


def make_shards(work, arguments, num_workers=1):
    """Makes all shards of a job, and their notes, in the folder of the work.

    Args:
      work: `pretraining_shards.Work`; all workers must see its folder and the text.
      arguments: list of options of the pipeline, as Beam's programs take them on a command line;
        by default it runs in processes of this machine.
      num_workers: how many.

    Returns:
      Counter of what was made and left out.

    Raises:
      file_io.InputError: the package apache-beam is missing.
    """
    beam = _beam()
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    shards = [(shard, None) for shard in range(work.num_shards)]
    with beam.Pipeline(options=_options(arguments, num_workers)) as pipeline:
        made = (
            pipeline
            | "units" >> beam.Create(work.units)
            | "spread" >> beam.Reshuffle()
            | "instances"
            >> beam.FlatMap(_make, work.job, work.num_shards * work.buckets).with_outputs(
                "counts", main="segments"
            )
        )
        buckets = (
            made.segments
            | "buckets" >> beam.GroupByKey()
            | "shuffle" >> beam.Map(shuffle_bucket, work.job, work.folder, work.buckets)
        )
        empty = pipeline | "shards" >> beam.Create(shards)
        _ = (
            (buckets, empty)
            | "all" >> beam.Flatten()
            | "of each" >> beam.GroupByKey()
            | "join" >> beam.Map(join_shard, work.job, work.folder)
        )
        _ = (
            made.counts
            | "total" >> beam.CombineGlobally(_total)
            | "note" >> beam.Map(_write_counts, os.path.join(work.folder, _COUNTS))
        )
    return collections.Counter(
        file_io.read_json(os.path.join(work.folder, _COUNTS), "counts of the pipeline")
    )


# --- what the workers do --------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _maker(job):
    """Of a process: the vocabulary is read once."""
    return pretraining_files.InstanceMaker(job)


def _make(unit, job, num_buckets):
    """Yields (bucket, ((block, pass, part), records)) of a unit, and its counts."""
    from apache_beam import pvalue

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
    yield pvalue.TaggedOutput("counts", counts)


def _total(counters):
    total = collections.Counter()
    for counter in counters:
        total.update(counter)
    return total


def _write_counts(counts, path):
    _write(path, lambda name: file_io.write_json(name, dict(counts)))


def _write(path, write):
    """Lets `write` make a file under a name that nobody else has, which then becomes `path`."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        write(temporary)
        file_io.rename(temporary, path)
    finally:
        file_io.remove(temporary)


def shuffle_bucket(group, job, folder, buckets):
    """Writes the records of a bucket in the order of a local run.

    Args:
      group: (bucket, iterable of ((block, pass, part), records)).
      job: `pretraining_files.Job`.
      folder: of the work.
      buckets: how many a shard has.

    Returns:
      (shard, (bucket, path of the file, number of records)).
    """
    bucket, parts = group
    segments = [records for _, records in sorted(parts)]
    rng = pretraining_shards.shuffle_rng(job, bucket)
    path = os.path.join(folder, f"shuffled-{bucket:05d}")

    def write(name):
        with tfrecord.writing(folder), file_io.open_file(name, "wb") as file:
            file.writelines(bucket_shuffle.shuffled(segments, rng))

    _write(path, write)
    return bucket // buckets, (bucket, path, sum(map(len, segments)))


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
            yield number, file.read()
