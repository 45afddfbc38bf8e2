"""Runs Apache Beam pipelines: the package, options, mistakes in workers, workers that are lost.

The runners of clusters give the work of a lost worker to another one. Beam's DirectRunner does not:
it fails, or waits for ever (2.77). So here it has a process of its own, which ends when a worker is
lost, and the pipeline is run again; steps that keep what they have finished in files lose only what
was being made.
"""

import importlib.util
import logging
import os
import re
import threading
import uuid

from albert import file_io, progress, worker_processes

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
            for _ in worker_processes.run(_Runner, num_workers, tasks, 1, shown, apart=True):
                pass
            return
        except worker_processes.WorkerLost as error:
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
