"""Draws a vocabulary's lines as an Apache Beam pipeline: those that one process draws, too.

blocks -> numbers of lines -> limit of the sample -> drawn lines, in a file for each block
"""

import functools
import os

from albert import beam_pipelines, corpus, file_io, line_sample, tfrecord


def draw(plan, recipe, counts, *, folder, arguments, num_workers=1):
    """Iterator over what `corpus.drawn_lines` yields; the pipeline has ended when it is returned.

    Args:
      plan, recipe, counts: see there.
      folder: new folder for the drawn lines that all workers see; it is removed in the end.
      arguments, num_workers: see `beam_pipelines.run`.

    Raises:
      file_io.InputError: as `beam_pipelines.run`, or there is no room in the folder.
    """
    file_io.make_dirs(folder)
    try:
        steps = functools.partial(_add_steps, plan=plan, recipe=recipe, folder=folder)
        beam_pipelines.run(steps, arguments, num_workers)
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


def _add_steps(beam, pipeline, *, plan, recipe, folder):
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
    return sizes, line_sample.limit(sizes, recipe.input_sentence_size, recipe.random_seed)


def _draw(block, sizes_and_limit, recipe, folder):
    """Writes the drawn lines of a block, and how many it has."""
    number, segments = block
    sizes, below = sizes_and_limit
    path, drawn = _path(folder, number), []

    def make(name):
        with tfrecord.writing(folder), file_io.open_file(name, "wb") as file:
            for line in corpus.drawn_of_block(number, segments, below, recipe.random_seed):
                file.write(f"{line}\n".encode())
                drawn.append(len(line))

    beam_pipelines.write(path, make)
    note = {"lines": sum(sizes[number]), "drawn": len(drawn)}
    beam_pipelines.write(f"{path}.json", lambda name: file_io.write_json(name, note))
