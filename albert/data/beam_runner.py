"""Runs the work of data workers as Apache Beam pipelines: lines of a vocabulary, shards of records.

The runners of clusters give the work of a lost worker to another one. Beam's DirectRunner does not:
it fails, or waits forever (2.77). So it runs in its own process here, which ends when a worker is
lost, and then the pipeline is run again. Steps that store their finished results in files lose only
unfinished ones.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert.data import instance_files, instance_shards, shuffling
from albert.io import file_io, processes, progress
from albert.text import corpus, vocabulary

_ATTEMPTS = 4
# Beam's messages have this after the message of an exception in a step.
_IN_A_STEP = " [while running "
_WORKER_ENDED = "Worker subprocess exited"
# In the last of the tracebacks.
_MISTAKE = re.compile(rf"InputError: ((?:(?!InputError: ).)*?){re.escape(_IN_A_STEP)}", re.DOTALL)
_COUNTS = "counts.json"
BYTES_AT_A_TIME = 1 << 24

AddSteps = Callable[[Any, Any], None]  # (apache_beam, pipeline)
_Block = tuple[int, tuple[corpus.Segment, ...]]  # number, segments


def _check_package() -> None:
    # Not imported here: only the process that runs the pipeline needs its 100 MB.
    if importlib.util.find_spec("apache_beam") is None:
        raise file_io.InputError("runner=beam needs a package: pip install apache-beam")


def _options(arguments: Sequence[str], num_workers: int) -> Any:
    """Returns the options of a pipeline; by default it runs in processes of this machine."""
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
    # Workers import the package; they do not need a copy of this program's state.
    options.view_as(pipeline_options.SetupOptions).save_main_session = False
    return options


def run(add_steps: AddSteps, arguments: Sequence[str], num_workers: int = 1) -> None:
    """Runs a pipeline to its end.

    Args:
      add_steps: ``(apache_beam, pipeline)``. A step must write the same however often it runs.
        Without `arguments`, the function must survive pickling.
      arguments: options of the pipeline, in the form of a command line of Beam. If empty, it runs
        in processes of this machine, and again if one of them is lost.

    Raises:
      file_io.InputError: the package apache-beam is missing, a step raised it, or workers were lost
        repeatedly.
      RuntimeError: another exception in a step, with the traceback of the worker.
    """
    _check_package()
    if arguments:
        _run_here(add_steps, arguments, num_workers)
        return
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            bar = progress.Progress("pipeline", 1, "runs")
            tasks = [add_steps]
            for _ in processes.run(_Runner, num_workers, tasks, 1, bar, always_start=True):
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
    """Runs pipelines in a process that ends when a worker of the DirectRunner ends.

    `advance` is not used.
    """

    def __init__(self, num_workers: int, advance: Callable[[int], None]) -> None:
        del advance
        self._num_workers = num_workers
        # The runner ignores exceptions of the threads that wait for the workers.
        threading.excepthook = self._note

    def run(self, add_steps: AddSteps) -> None:
        try:
            _run_here(add_steps, [], self._num_workers)
        except RuntimeError as error:
            if _IN_A_STEP in str(error):
                raise
            os._exit(1)  # The channel to a worker is closed.

    def _note(self, raised: threading.ExceptHookArgs) -> None:
        if _WORKER_ENDED in str(raised.exc_value):
            os._exit(1)


def _run_here(add_steps: AddSteps, arguments: Sequence[str], num_workers: int) -> None:
    import apache_beam as beam

    # Else Beam would choose coders by annotations; that of integers has only 64 bits.
    beam.typehints.disable_type_annotations()
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    try:
        with beam.Pipeline(options=_options(arguments, num_workers)) as pipeline:
            add_steps(beam, pipeline)
    except file_io.InputError as error:  # raised by a step in this process
        raise file_io.InputError(str(error).split(_IN_A_STEP)[0]) from error
    except RuntimeError as error:
        if mistake := _MISTAKE.search(str(error)):
            raise file_io.InputError(mistake[1].strip()) from error
        raise


def write(path: str, make: Callable[[str], Any]) -> None:
    """Writes a file under a unique name, then renames it to `path`.

    So several workers, also on several machines, may write the same file.
    """
    temporary = unique_name(path)
    try:
        make(temporary)
        file_io.rename(temporary, path)
    finally:
        file_io.remove(temporary)


def unique_name(path: str) -> str:
    """Returns a unique name that begins with `path`."""
    return f"{path}.{uuid.uuid4().hex}"


def draw(
    plan: corpus.Plan,
    recipe: vocabulary.VocabRecipe,
    counts: collections.Counter[str],
    *,
    folder: str,
    arguments: Sequence[str],
    num_workers: int = 1,
) -> Iterator[str]:
    """Draws the lines of `vocabulary.drawn_lines`, with its arguments, in a pipeline of `run`.

    Args:
      folder: new folder for the drawn lines that all workers see; it is removed at the end.

    Returns:
      Iterator over the lines, after the pipeline has ended.
    """
    file_io.make_dirs(folder)
    try:
        steps = functools.partial(_add_line_steps, plan=plan, recipe=recipe, folder=folder)
        run(steps, arguments, num_workers)
        for number in range(len(plan.blocks)):
            block_counts = file_io.read_json(f"{_path(folder, number)}.json", "counts of a block")
            counts["lines"] += block_counts["lines"]
            counts["not_drawn"] += block_counts["lines"] - block_counts["drawn"]
    except BaseException:
        file_io.remove(folder)
        raise
    return _read(folder, len(plan.blocks))


def _read(folder: str, num_blocks: int) -> Iterator[str]:
    try:
        for number in range(num_blocks):
            with file_io.open_file(_path(folder, number), "rb") as file:
                for line in file:
                    yield line.decode().removesuffix("\n")
    finally:
        file_io.remove(folder)


def _path(folder: str, number: int) -> str:
    return os.path.join(folder, f"lines-{number:06d}")


def _add_line_steps(
    beam: Any, pipeline: Any, *, plan: corpus.Plan, recipe: vocabulary.VocabRecipe, folder: str
) -> None:
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


def _count(block: _Block) -> tuple[int, list[int]]:
    number, segments = block
    return number, corpus.count_lines(segments)


def _limit(
    block_sizes: list[tuple[int, list[int]]], recipe: vocabulary.VocabRecipe
) -> tuple[list[list[int]], int]:
    sizes = [sizes for _, sizes in sorted(block_sizes)]
    return sizes, vocabulary.sample_limit(sizes, recipe.input_sentence_size, recipe.random_seed)


def _draw(
    block: _Block,
    sizes_and_limit: tuple[list[list[int]], int],
    recipe: vocabulary.VocabRecipe,
    folder: str,
) -> None:
    """Writes the drawn lines of a block, and their number."""
    number, segments = block
    sizes, below = sizes_and_limit
    path = _path(folder, number)
    lengths: list[int] = []

    def make(name: str) -> None:
        with file_io.writing(folder), file_io.open_file(name, "wb") as file:
            for line in vocabulary.drawn_of_block(number, segments, below, recipe.random_seed):
                file.write(f"{line}\n".encode())
                lengths.append(len(line))

    write(path, make)
    note = {"lines": sum(sizes[number]), "drawn": len(lengths)}
    write(f"{path}.json", lambda name: file_io.write_json(name, note))


def make_shards(
    work: instance_shards.ShardPlan, arguments: Sequence[str], num_workers: int = 1
) -> collections.Counter[str]:
    """Makes all shards of a job, and their notes, in the folder of the work.

    All workers must see this folder and the text. For the other arguments see `run`.
    """
    make: Callable[..., Any]
    make = functools.partial(make_records, job=work.job, num_buckets=work.num_buckets)
    if uses_files(work.folder):
        make = functools.partial(store_records, make=make, folder=work.folder)
    steps = functools.partial(
        _add_record_steps, work=work, make=make, shuffle=shuffle_bucket, join=join_shard
    )
    run(steps, arguments, num_workers)
    return collections.Counter(
        file_io.read_json(os.path.join(work.folder, _COUNTS), "counts of the pipeline")
    )


def _add_record_steps(
    beam: Any,
    pipeline: Any,
    *,
    work: instance_shards.ShardPlan,
    make: Callable[[instance_files.Unit], Iterable[Any]],
    shuffle: Callable[..., Any],
    join: Callable[..., Any],
) -> None:
    """Adds the steps of the work to a pipeline; the last three are functions of this module."""
    outputs = (
        pipeline
        | "units" >> beam.Create(work.units)
        | "spread" >> beam.Reshuffle()
        | "instances" >> beam.FlatMap(make)
        | "apart" >> beam.Partition(lambda output, _: int(output[0] is None), 2)
    )
    buckets = (
        outputs[0]
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
        outputs[1]
        | "counts" >> beam.Values()
        | "total" >> beam.CombineGlobally(_add_counters)
        | "note" >> beam.Map(_write_counts, os.path.join(work.folder, _COUNTS))
    )


@functools.lru_cache(maxsize=1)
def _maker(job: instance_files.Job) -> instance_files.InstanceMaker:
    """Returns the maker of this process, which reads the vocabulary once."""
    return instance_files.InstanceMaker(job)


def make_records(
    unit: instance_files.Unit, job: instance_files.Job, num_buckets: int
) -> Iterator[tuple[int | None, Any]]:
    """Makes the records of a unit; `num_buckets` are those of all shards.

    Yields:
      (bucket, ((block, pass, part), records)), and last (None, Counter of the unit's content).
    """
    counts: collections.Counter[str] = collections.Counter()
    for pass_number, batches, rng in _maker(job).passes(unit):
        waiting, part = shuffling.Buckets(num_buckets), 0
        for records, batch_counts in batches:
            counts.update(batch_counts)
            if waiting.add(records, rng):
                for bucket, bucket_records in waiting.take():
                    yield bucket, ((unit.block, pass_number, part), bucket_records)
                part += 1
        for bucket, bucket_records in waiting.take():
            yield bucket, ((unit.block, pass_number, part), bucket_records)
    yield None, counts


def uses_files(folder: str) -> bool:
    """Returns whether `store_records` can store records in the folder of the work."""
    return not file_io.is_remote(folder)


def store_records(
    unit: instance_files.Unit, make: Callable[[instance_files.Unit], Iterable[Any]], folder: str
) -> Iterator[tuple[int | None, Any]]:
    """Writes the records of a unit to a file, unless an earlier attempt has done so.

    Args:
      folder: folder of the work, on a disk that all workers see.

    Yields:
      As `make_records`, but with the fields of `shuffling.Segment` instead of keys and records.
    """
    name = f"unit-{unit.block:05d}-{unit.passes[0]}-{unit.passes[-1]}"
    note = os.path.join(folder, f"{name}.json")
    if not file_io.exists(note):
        path = unique_name(os.path.join(folder, name))
        with file_io.writing(folder):
            content = {"file": os.path.basename(path), **_write_unit(path, make(unit))}
            # Last: an attempt that ended before this line is ignored.
            write(note, lambda name: file_io.write_json(name, content))
    content = file_io.read_json(note, "finished unit")
    path = os.path.join(folder, content["file"])
    for bucket, key, *places in content["segments"]:
        yield bucket, (tuple(key), path, *places)
    yield None, collections.Counter(content["counts"])


def _write_unit(path: str, outputs: Iterable[tuple[int | None, Any]]) -> dict[str, Any]:
    """Writes the records of a unit; returns the content of its note."""
    segments: list[tuple[Any, ...]] = []
    try:
        with file_io.open_file(path, "wb") as file:
            for bucket, value in outputs:
                if bucket is None:
                    return {"segments": segments, "counts": value}
                segment = shuffling.write_segment(file, path, *value)
                segments.append((bucket, segment.key, *dataclasses.astuple(segment)[2:]))
    except BaseException:
        file_io.remove(path)
        raise
    raise ValueError(f"{path}: the unit ended without its counts")


def _add_counters(counters: Iterable[collections.Counter[str]]) -> collections.Counter[str]:
    total: collections.Counter[str] = collections.Counter()
    for counter in counters:
        total.update(counter)
    return total


def _write_counts(counts: collections.Counter[str], path: str) -> None:
    write(path, lambda name: file_io.write_json(name, dict(counts)))


def shuffle_bucket(
    group: tuple[int, Iterable[Any]], job: instance_files.Job, folder: str, buckets: int
) -> tuple[int, tuple[int, str, int]]:
    """Writes the records of a bucket in the order of a local run.

    Args:
      group: (bucket, iterable of what `make_records` or `store_records` yield for it).
      buckets: number of buckets per shard.

    Returns:
      (shard, (bucket, path of the file, number of records)).
    """
    bucket, parts = group
    parts = sorted(parts)
    rng = instance_shards.shuffle_rng(job, bucket)
    if uses_files(folder):
        segments = [shuffling.Segment(*part) for part in parts]
        records = shuffling.shuffled_segments(segments, rng)
    else:
        records = shuffling.shuffled([segment for _, segment in parts], rng)
    path = os.path.join(folder, f"shuffled-{bucket:05d}")
    lengths: list[int] = []

    def make(name: str) -> None:
        with file_io.writing(folder), file_io.open_file(name, "wb") as file:
            lengths.extend(map(file.write, records))

    write(path, make)
    return bucket // buckets, (bucket, path, len(lengths))


def join_shard(
    group: tuple[int, Iterable[tuple[int, str, int] | None]], job: instance_files.Job, folder: str
) -> None:
    """Writes a shard from a group: its number, and results of `shuffle_bucket` and None."""
    shard, results = group
    instance_shards.write_shard(folder, shard, _read_contents(sorted(filter(None, results))), job)


def _read_contents(buckets: Iterable[tuple[int, str, int]]) -> Iterator[tuple[int, bytes]]:
    for _, path, number in buckets:
        with file_io.open_file(path, "rb") as file:
            while content := file.read(BYTES_AT_A_TIME):
                yield number, content
                number = 0  # The first part counts for all.
