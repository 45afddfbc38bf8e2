"""Runs Apache Beam pipelines: the package, options, mistakes in workers, workers that are lost.

The runners of clusters give the work of a lost worker to another one. Beam's DirectRunner does not:
it fails, or waits for ever (2.77). So here it has a process of its own, which ends when a worker is
lost, and the pipeline is run again; steps that keep what they have finished in files lose only what
was being made.
"""

import collections
import dataclasses
import functools
import importlib.util
import logging
import os
import re
import threading
import uuid

from albert.data import instance_files, instance_shards, shuffling
from albert.io import file_io, processes, progress
from albert.text import corpus, vocabulary

_ATTEMPTS = 4
# How Beam's messages end that tell of an exception in a step, and what is before that.
_IN_A_STEP = " [while running "
_WORKER_ENDED = "Worker subprocess exited"
# The last of the tracebacks says it.
_MISTAKE = re.compile(rf"InputError: ((?:(?!InputError: ).)*?){re.escape(_IN_A_STEP)}", re.DOTALL)


def _check_package():
    # Not imported here: that takes 100 MB, which only the process needs that runs the pipeline.
    if importlib.util.find_spec("apache_beam") is None:
        raise file_io.InputError("runner=beam needs the package apache-beam: pip install '.[beam]'")


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


def run(add_steps, arguments, num_workers=1):
    """Runs a pipeline to its end.

    Args:
      add_steps: ``(apache_beam, pipeline)``; what a step writes must be the same however often it
        is done. It must survive pickling where no `arguments` are given.
      arguments: list of options of the pipeline, as Beam's programs take them on a command line;
        by default it runs in processes of this machine, and again if one of them is lost.
      num_workers: how many of them.

    Raises:
      file_io.InputError: the package apache-beam is missing, a step raised it, or workers were lost
        time and again.
      RuntimeError: another exception in a step, with the traceback of the worker.
    """
    _check_package()
    if arguments:
        _run_here(add_steps, arguments, num_workers)
        return
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            shown = progress.Progress("pipeline", 1, "runs")
            tasks = [add_steps]
            for _ in processes.run(_Runner, num_workers, tasks, 1, shown, apart=True):
                pass
            return
        except processes.WorkerLost as error:
            logging.warning("Beam has lost a worker (attempt %d of %d)", attempt, _ATTEMPTS)
            if attempt == _ATTEMPTS:
                raise file_io.InputError(
                    f"Beam has lost a worker {_ATTEMPTS} times, most likely because memory ran "
                    f"out; try again with a smaller num_workers than {num_workers}"
                ) from error


class _Runner:
    """Runs pipelines in a process that ends when a worker of the DirectRunner does."""

    def __init__(self, num_workers, advance):
        del advance
        self._num_workers = num_workers
        # The runner itself does not look at what the threads raise that wait for the workers.
        threading.excepthook = self._note

    def run(self, add_steps):
        try:
            _run_here(add_steps, [], self._num_workers)
        except RuntimeError as error:
            if _IN_A_STEP in str(error):
                raise
            os._exit(1)  # A channel to a worker was closed.

    def _note(self, raised):
        if _WORKER_ENDED in str(raised.exc_value):
            os._exit(1)


def _run_here(add_steps, arguments, num_workers):
    import apache_beam as beam

    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    try:
        with beam.Pipeline(options=_options(arguments, num_workers)) as pipeline:
            add_steps(beam, pipeline)
    except file_io.InputError as error:  # of a step, where all is done in this process
        raise file_io.InputError(str(error).split(_IN_A_STEP)[0]) from error
    except RuntimeError as error:
        if mistake := _MISTAKE.search(str(error)):
            raise file_io.InputError(mistake[1].strip()) from error
        raise


def write(path, make):
    """Lets `make` write a file under a name that nobody else has, which then becomes `path`.

    So it does not matter if several workers, also of several machines, write the same file.

    Args:
      path: file.
      make: ``(name)``, writes the file of that name.
    """
    temporary = own_name(path)
    try:
        make(temporary)
        file_io.rename(temporary, path)
    finally:
        file_io.remove(temporary)


def own_name(path):
    """A name that begins with `path` and that nobody else has."""
    return f"{path}.{uuid.uuid4().hex}"


# --- Draws a vocabulary's lines as an Apache Beam pipeline: those that one process draws, too ----


def draw(plan, recipe, counts, *, folder, arguments, num_workers=1):
    """Returns an iterator over what `vocabulary.drawn_lines` yields, after the pipeline has ended.

    Args:
      plan, recipe, counts: see there.
      folder: new folder for the drawn lines that all workers see; it is removed in the end.
      arguments, num_workers: see `run`.

    Raises:
      file_io.InputError: as `run`, or there is no room in the folder.
    """
    file_io.make_dirs(folder)
    try:
        steps = functools.partial(_add_line_steps, plan=plan, recipe=recipe, folder=folder)
        run(steps, arguments, num_workers)
        for number in range(len(plan.blocks)):
            found = file_io.read_json(f"{_path(folder, number)}.json", "counts of a block")
            counts["lines"] += found["lines"]
            counts["not_drawn"] += found["lines"] - found["drawn"]
    except BaseException:
        file_io.remove(folder)
        raise
    return _read(folder, len(plan.blocks))


def _read(folder, num_blocks):
    try:
        for number in range(num_blocks):
            with file_io.open_file(_path(folder, number), "rb") as file:
                for line in file:
                    yield line.decode().removesuffix("\n")
    finally:
        file_io.remove(folder)


def _path(folder, number):
    return os.path.join(folder, f"lines-{number:06d}")


def _add_line_steps(beam, pipeline, *, plan, recipe, folder):
    blocks = (
        pipeline
        | "blocks" >> beam.Create(list(enumerate(plan.blocks)))
        | "spread" >> beam.Reshuffle()
    )
    limit = (
        blocks
        | "lines" >> beam.Map(_count)
        | "all" >> beam.combiners.ToList()
        | "limit" >> beam.Map(_limit, recipe)
    )
    _ = blocks | "draw" >> beam.Map(_draw, beam.pvalue.AsSingleton(limit), recipe, folder)


def _count(block):
    number, segments = block
    return number, corpus.count_lines(segments)


def _limit(found, recipe):
    sizes = [sizes for _, sizes in sorted(found)]
    return sizes, vocabulary.sample_limit(sizes, recipe.input_sentence_size, recipe.random_seed)


def _draw(block, sizes_and_limit, recipe, folder):
    """Writes the drawn lines of a block, and how many it has."""
    number, segments = block
    sizes, below = sizes_and_limit
    path, drawn = _path(folder, number), []

    def make(name):
        with file_io.writing(folder), file_io.open_file(name, "wb") as file:
            for line in vocabulary.drawn_of_block(number, segments, below, recipe.random_seed):
                file.write(f"{line}\n".encode())
                drawn.append(len(line))

    write(path, make)
    note = {"lines": sum(sizes[number]), "drawn": len(drawn)}
    write(f"{path}.json", lambda name: file_io.write_json(name, note))


# --- Makes shards of pre-training records as an Apache Beam pipeline, on any of its runners ------


_COUNTS = "counts.json"
BYTES_AT_A_TIME = 1 << 24


def make_shards(work, arguments, num_workers=1):
    """Makes all shards of a job, and their notes, in the folder of the work.

    Args:
      work: `instance_shards.Work`; all workers must see its folder and the text.
      arguments, num_workers: see `run`.

    Returns:
      Counter of what was made and left out.

    Raises:
      file_io.InputError: as `run`.
    """
    num_buckets = work.num_shards * work.buckets
    make = functools.partial(make_records, job=work.job, num_buckets=num_buckets)
    if keeps_records(work.folder):
        make = functools.partial(keep_records, make=make, folder=work.folder)
    steps = functools.partial(
        _add_record_steps, work=work, make=make, shuffle=shuffle_bucket, join=join_shard
    )
    run(steps, arguments, num_workers)
    return collections.Counter(
        file_io.read_json(os.path.join(work.folder, _COUNTS), "counts of the pipeline")
    )


def _add_record_steps(beam, pipeline, *, work, make, shuffle, join):
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
    return instance_files.InstanceMaker(job)


def make_records(unit, job, num_buckets):
    """Makes the records of a unit.

    Args:
      unit: `instance_files.Unit`.
      job: `instance_files.Job`.
      num_buckets: of the whole work.

    Yields:
      (bucket, ((block, pass, part), records)), and last (None, Counter of what the unit holds).
    """
    counts = collections.Counter()
    for pass_number, batches, rng in _maker(job).passes(unit):
        waiting, part = shuffling.Buckets(num_buckets), 0
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
      unit: `instance_files.Unit`.
      make: `make_records` with its other arguments.
      folder: of the work, on a disk that all workers see.

    Yields:
      As `make_records`, but instead of keys and records the fields of `shuffling.Segment`s.
    """
    name = f"unit-{unit.block:05d}-{unit.passes[0]}-{unit.passes[-1]}"
    note = os.path.join(folder, f"{name}.json")
    if not file_io.exists(note):
        path = own_name(os.path.join(folder, name))
        with file_io.writing(folder):
            found = {"file": os.path.basename(path), **_write_unit(path, make(unit))}
            # Last: an attempt that was ended before this line counts for nothing.
            write(note, lambda name: file_io.write_json(name, found))
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
                segment = shuffling.write_segment(file, path, *found)
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
    write(path, lambda name: file_io.write_json(name, dict(counts)))


def shuffle_bucket(group, job, folder, buckets):
    """Writes the records of a bucket in the order of a local run.

    Args:
      group: (bucket, iterable of what `make_records` or `keep_records` give for it).
      job: `instance_files.Job`.
      folder: of the work.
      buckets: how many a shard has.

    Returns:
      (shard, (bucket, path of the file, number of records)).
    """
    bucket, parts = group
    parts = sorted(parts)
    rng = instance_shards.shuffle_rng(job, bucket)
    if keeps_records(folder):
        segments = [shuffling.Segment(*part) for part in parts]
        records = shuffling.shuffled_segments(segments, rng)
    else:
        records = shuffling.shuffled([found for _, found in parts], rng)
    path, lengths = os.path.join(folder, f"shuffled-{bucket:05d}"), []

    def make(name):
        with file_io.writing(folder), file_io.open_file(name, "wb") as file:
            lengths.extend(map(file.write, records))

    write(path, make)
    return bucket // buckets, (bucket, path, len(lengths))


def join_shard(group, job, folder):
    """Writes a shard of its buckets.

    Args:
      group: (shard, iterable of what `shuffle_bucket` gives, and None).
      job: `instance_files.Job`.
      folder: of the work.
    """
    shard, found = group
    instance_shards.write_shard(folder, shard, _contents(sorted(filter(None, found))), job)


def _contents(buckets):
    for _, path, number in buckets:
        with file_io.open_file(path, "rb") as file:
            while content := file.read(BYTES_AT_A_TIME):
                yield number, content
                number = 0  # All are counted with the first part.
