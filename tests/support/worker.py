"""One process of a run on several devices, for the tests that start such processes.

``python -m tests.support.worker PLAN`` runs scripts one after another as the JSON file PLAN says,
so that TensorFlow is imported and the workers are connected only once. A plan holds

- logical_cpus: how many devices the processor is divided into;
- runs: each with the name of a `script`, its `flags`, and perhaps `after`, a checkpoint to wait
  for and to start from;
- agreement: where to write what the workers told each other, if anywhere.
"""

import gc
import importlib
import os
import sys
import time

import tensorflow as tf
from absl import logging

from albert.cli import command_flags, options, training
from albert.io import file_io
from albert.model import checkpoints
from albert.training import distribution
from tests.support import command_lines

MAKE_STRATEGY = training.make_strategy


def wait_for(prefix):
    """Waits until a checkpoint that another process writes is there."""
    deadline = time.time() + 300
    while not checkpoints.prefix_exists(prefix):
        if time.time() > deadline:
            raise TimeoutError(f"no {prefix}")
        time.sleep(0.1)


def run(script, arguments, strategies, after=None):
    """Runs a script's main; processes with one cluster keep their strategy."""
    module = importlib.import_module(f"albert.{script}")
    values = command_lines.parse(module, **arguments)
    name = values.distribution_strategy
    if name not in strategies:
        command = command_flags.CommandLine.from_values(values, script)
        strategies[name] = MAKE_STRATEGY(options.read(module.Settings, values), command)
    training.make_strategy = lambda *_: strategies[name]
    if after:
        copy = os.path.join(values.output_dir, os.path.basename(after))
        if distribution.is_chief(strategies[name]):
            wait_for(after)
            file_io.make_dirs(values.output_dir)
            checkpoints.copy(after, copy)
        wait_for(copy)
    module.main(values)


def agreement(strategy):
    """Checks each worker's messages, values from the chief and reaction to other settings."""
    workers = distribution.workers(strategy)
    told = distribution.from_chief(strategy, lambda: {"text": "ä", "index": workers.index})
    with strategy.scope():
        same, other = tf.Variable([1.0, 2.0]), tf.Variable(0.0)
    distribution.check_same_weights(strategy, [same])
    other.assign(workers.index)
    settings = {"seed": 1, "train_batch_size": 8 * workers.index}
    return {
        "told": told,
        "index": workers.index,
        "refused": refusal(lambda: distribution.check_agreement(strategy, settings)),
        "other_weights": refusal(lambda: distribution.check_same_weights(strategy, [same, other])),
    }


def refusal(check):
    """The message of the error that a check raises, empty if it raises none."""
    try:
        check()
    except file_io.InputError as error:
        return str(error)
    return ""


def main(path):
    """Runs a plan."""
    plan = file_io.read_json(path, "plan")
    logging.set_verbosity(logging.INFO)
    cpus = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * plan["logical_cpus"]
    tf.config.set_logical_device_configuration(cpus[0], parts)
    strategies = {}
    gc.freeze()  # as in conftest.py
    for step in plan["runs"]:
        run(step["script"], step["flags"], strategies, step.get("after"))
    if plan.get("agreement"):
        (strategy,) = strategies.values()
        found = agreement(strategy)
        file_io.write_json(f"{plan['agreement']}-{found['index']}.json", found)


if __name__ == "__main__":
    main(sys.argv[1])
