"""SIGTERM saves and ends a run, SIGUSR1 saves and continues, whatever the run is doing."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from albert import run_pretraining
from albert.data import input_options, input_pipeline, record_files
from albert.io import file_io, signals
from albert.model import checkpoints
from albert.training import (
    contracts,
    distribution,
    engine,
    optimizer_table,
    train_step,
    training_log,
)
from tests.support import builders
from tests.support.forked import Process
from tests.support.processes import killed_at_the_end, wait_until
from tests.support.sources import ROOT

NUMBERS = (input_pipeline.FeatureSpec("x", "float32"),)


@pytest.fixture
def handled():
    """Signals are handled as in a script."""
    kinds = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)
    before = {kind: signal.getsignal(kind) for kind in kinds}
    signals.install()
    yield
    signals.REQUESTS.terminate = signals.REQUESTS.save = signals.REQUESTS.interrupt = False
    signals.REQUESTS.by, signals.REQUESTS.raised = "SIGTERM", None
    for kind, handler in before.items():
        signal.signal(kind, handler)


def test_sigterm_ends_at_once_what_has_nothing_to_save(handled):
    with pytest.raises(signals.Terminated):
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("continued")


def test_a_closed_terminal_ends_as_sigterm_does(handled):
    with pytest.raises(signals.Terminated):
        signal.raise_signal(signal.SIGHUP)
        pytest.fail("continued")
    assert signals.REQUESTS.by == "SIGHUP"


def test_a_closed_terminal_may_be_ignored(handled):
    """As `nohup` has it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals.install()
    signal.raise_signal(signal.SIGHUP)
    assert not signals.REQUESTS.terminate


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_was_started_ends_first(handled, tmp_path, kind):
    """It saves what it has; Ctrl-C reaches it by itself."""
    waits = "import signal, sys, time\n"
    waits += (
        "for number in (2, 15): signal.signal(number, lambda number, _: sys.exit(print(number)))\n"
    )
    waits += "print('ready', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE)
    with killed_at_the_end([process]):
        process.stdout.readline()

        def send():
            if kind == signal.SIGINT:
                process.send_signal(kind)
            os.kill(os.getpid(), kind)

        timer = threading.Timer(0.2, send)
        timer.start()
        with pytest.raises((signals.Terminated, KeyboardInterrupt)):
            signals.wait(process)
        timer.join()
        # Where Ctrl-C comes while Python takes the status, it is lost.
        assert process.poll() is not None and process.stdout.read() == b"%d\n" % kind


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_that_python_loses_is_raised_later(handled):
    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    signals.raise_interrupt()
    Finalized()  # What is raised in there goes nowhere.
    with pytest.raises(KeyboardInterrupt):
        signals.raise_interrupt()


def test_sigterm_that_python_would_lose_is_sent_again(handled):
    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(signals.Terminated):
        Finalized()
        time.sleep(10)


def test_where_there_is_something_to_save_sigterm_is_noted(handled):
    noted = []
    with pytest.raises(signals.Terminated), signals.deferred():
        signal.raise_signal(signal.SIGTERM)
        noted.append(signals.REQUESTS.terminate)
        signal.raise_signal(signal.SIGUSR1)
        noted.append(signals.REQUESTS.save)
    assert noted == [True, True]
    signals.REQUESTS.terminate = False
    with pytest.raises(signals.Terminated), signals.deferred(), signals.not_deferred():
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("continued")


def test_a_computation_is_told_of_a_signal_before_its_end(handled):
    arrived = []
    with signals.deferred(lambda: arrived.append(time.monotonic())):
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until(lambda: arrived, seconds=20)
    with signals.deferred():
        pass
    assert signal.set_wakeup_fd(-1) == -1


def test_an_outer_block_may_be_closed_first(handled):
    outer, inner = signals.ensure_end(), signals.ensure_end()
    for block in (outer, inner):
        block.__enter__()
    for block in (outer, inner):
        block.__exit__(None, None, None)
    assert signal.set_wakeup_fd(-1) == -1


SCRIPT = """
import os, signal, time
from albert.cli import app

def main(values):
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
    time.sleep(60)

app.run(main, lambda values: None)
"""


def test_a_script_that_is_terminated_has_a_status_of_its_own():
    """Its children end as usual; of two signals in a row none waits for the end of a call."""
    processes = [
        subprocess.Popen(
            # Python 3.12 and later warn of forks of processes with threads.
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(6)
    ]  # fmt: skip
    with killed_at_the_end(processes):
        for process in processes:
            assert process.stdout.readline() == f"{signal.SIGTERM:d}\n"
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGTERM)
        for process in processes:
            _, errors = process.communicate(timeout=30)
            assert process.returncode == signals.STATUS == 75
            assert errors == "ended by SIGTERM; the same command begins again\n"


STUCK = """
import ctypes, sys
from albert.cli import app
from albert.io import signals

def main(values):
    signals.REQUESTS.seconds = float(sys.stdin.readline())
    lock = ctypes.create_string_buffer(64)
    take = ctypes.CDLL(None).pthread_mutex_lock
    take(lock)
    print("waits", flush=True)
    with signals.deferred(lambda: None):
        take(lock)  # Nobody gives it back, and Python cannot interrupt this.

app.run(main, lambda values: None)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "kinds", "status"),
    [
        (0.3, [signal.SIGTERM], signals.STATUS),
        (0.3, [signal.SIGUSR1, signal.SIGINT], 130),
        (1000, [signal.SIGINT, signal.SIGINT], 130),
    ],
)
def test_signals_end_what_waits_for_ever(seconds, kinds, status):
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with killed_at_the_end([process]):
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "waits\n"
        for kind in kinds:
            process.send_signal(kind)
            time.sleep(1.2 if len(set(kinds)) < len(kinds) else 0)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == status
    assert errors.endswith("; the same command begins again\n"), errors


RECIPES = {
    "scontrol requeue": (
        {"srun": "exit 75", "scontrol": 'echo "$@" > asked'}, "requeue 12\n",
    ),
    "kill -TERM $run": (
        {
            "python": "trap 'exit 75' TERM; echo > ready; while true; do sleep 0.05; done",
            # The token at once, the notice when the run is under way.
            "curl": 'case "$*" in *PUT*) echo t;; *) test -e ready && cat ready;; esac',
            "sleep": f"exec {shutil.which('sleep')} 0.05",
        },
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_for_schedulers(tmp_path, recipe):
    """Their scripts as the page shows them, with stand-ins for the programs that are not here."""
    page = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    (script,) = [b for b in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if recipe in b]
    programs, asked = RECIPES[recipe]
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12"}
    result = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, timeout=60)
    assert result.returncode == signals.STATUS
    assert asked is None or (tmp_path / "asked").read_text() == asked


# --- training -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    rows = builders.pretraining_rows(70)
    record_files.write(str(folder / "part0.tfrecord"), builders.PRETRAINING_SPECS, rows, {})
    file_io.write_text(str(folder / "config.json"), builders.PRETRAINING_CONFIG.to_json_string())
    return folder


class Mean(builders.WithoutEncoder):
    """Learns the mean of numbers, by least squares."""

    def __init__(self):
        super().__init__()
        self.mean = tf.Variable([0.0], name="mean")
        self.trained_variables = (self.mean,)

    def __call__(self, features, training=False, seed=None):
        return {"error": self.mean - features["x"]}

    def loss_weights(self, features):
        return {"square": tf.cast(tf.size(features["x"]), tf.float32)}

    def losses(self, outputs, features, weights):
        return {"square": tf.reduce_sum(tf.square(outputs["error"])) / weights["square"]}

    def total(self, losses):
        return losses["square"]


MEAN = contracts.Task(
    "mean", lambda *_: Mean(), lambda outputs, _: outputs, None, lambda outputs, _: {}, "score"
)


def train_mean(folder, path, **changes):
    """Thirty steps in calls as long as they come; the mean, and the steps that were saved."""
    config = engine.RunConfig(
        output_dir=str(folder), num_train_steps=30, train_batch_size=4, eval_batch_size=4,
        predict_batch_size=4, save_checkpoints_steps=10, keep_checkpoint_max=0,
        iterations_per_loop=1000, log_every_steps=1000, seed=3, **changes,
    )  # fmt: skip
    runner = engine.Engine(
        MEAN, builders.tiny_config(), config, distribution.create_strategy("one_device")
    )
    runner.train(
        input_pipeline.train_input_fn(
            [str(path)], NUMBERS, 3, input_options.TrainInput(trim_batches=False)
        ),
        optimizer_table.Settings(0.1, 30, 0),
        lambda model: None,
    )
    return runner.model.mean.numpy(), steps_of(folder)


@pytest.mark.slow
def test_a_call_of_the_compiled_loop_ends_with_the_running_step(tmp_path, monkeypatch, handled):
    path, moments = tmp_path / "numbers", {3: signal.SIGUSR1, 14: signal.SIGTERM}
    record_files.write(str(path), NUMBERS, [{"x": i} for i in range(40)], {})
    mean, steps = train_mean(tmp_path / "whole", path)
    assert steps == [0, 10, 20, 30]

    def send(step):
        """In the computation of a step, as if from outside; its end waits for the thread."""
        if kind := moments.pop(int(step), None):
            os.kill(os.getpid(), kind)
            time.sleep(0.3)
        return step

    def run(*given, **settings):
        step = tf.numpy_function(send, [given[2].global_step + 1], tf.int64)
        with tf.control_dependencies([step]):
            return take_step(*given, **settings)

    take_step = train_step.run
    monkeypatch.setattr(train_step, "run", run)
    with pytest.raises(signals.Terminated, match="saved step 14"):
        train_mean(tmp_path / "out", path)
    assert steps_of(tmp_path / "out") == [0, 3, 10, 14]
    signals.REQUESTS.terminate = False
    np.testing.assert_array_equal(train_mean(tmp_path / "out", path)[0], mean)


def test_checkpoints_by_the_clock(tmp_path, monkeypatch):
    path = tmp_path / "numbers"
    record_files.write(str(path), NUMBERS, [{"x": i} for i in range(40)], {})
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr(engine.time, "monotonic", lambda: next(clock))
    steps = train_mean(tmp_path / "out", path, save_checkpoints_secs=3)[1]
    assert len(steps) > 4 and {0, 10, 20, 30} < set(steps)


def flags_of(inputs, folder, **changes):
    return builders.pretraining_flags(
        inputs, folder, optimizer="adamw", learning_rate=0.001,
        **{"keep_checkpoint_max": 100, "log_every_steps": 1, **changes},
    )  # fmt: skip


def steps_of(folder):
    return [checkpoints.step_of(prefix) for prefix in checkpoints.numbered(str(folder))]


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """Folder of a run that nothing has broken."""
    folder = tmp_path_factory.mktemp("whole")
    builders.run(run_pretraining, **flags_of(inputs, folder, do_eval=True))
    return folder


def assert_ends_as(folder, whole):
    builders.assert_same(
        *(builders.weights(path / "model.ckpt-30") for path in (folder, whole))
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_saves_on_request_and_ends_as_an_unbroken_one(
    inputs, whole, tmp_path, run_script, monkeypatch, handled
):
    """Also by the clock; what is saved between the steps of the run is not evaluated."""
    update, moments = training_log.TrainingLog.update, {3: "USR1", 10: "USR1", 17: "TERM"}

    def watch(log, step, *rest):
        update(log, step, *rest)
        if step in moments:
            signal.raise_signal(getattr(signal, f"SIG{moments.pop(step)}"))
        if step == 26:
            time.sleep(1)

    monkeypatch.setattr(training_log.TrainingLog, "update", watch)
    flags = flags_of(inputs, tmp_path, do_eval=True)
    with pytest.raises(signals.Terminated, match="saved step 17"):
        run_script(run_pretraining, **flags)
    assert steps_of(tmp_path) == [0, 3, 10, 17]
    signals.REQUESTS.terminate = False
    run_script(run_pretraining, **flags, save_checkpoints_secs=1)
    assert steps_of(tmp_path)[:6] == [0, 3, 10, 17, *steps_of(tmp_path)[4:6]]
    assert {20, 26, 30} <= set(steps_of(tmp_path))
    assert_ends_as(tmp_path, whole)
    for name in ("eval_results.txt", "best_trial.txt"):
        assert (tmp_path / name).read_text() == (whole / name).read_text()


BUILDING, STEPS = "Building the training", "First step after"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        (
            {"log_every_steps": 1000},
            [(signal.SIGTERM, BUILDING), (signal.SIGTERM, STEPS), (signal.SIGUSR1, STEPS)],
        ),
        ({"do_eval": True}, [(signal.SIGTERM, STEPS), (signal.SIGTERM, STEPS), (None, STEPS)]),
    ],
)
def test_signals_from_outside_lose_nothing(inputs, whole, tmp_path, changes, sent):
    """At the start and in long calls of the compiled loop; in evaluations."""
    flags = flags_of(inputs, tmp_path / "out", **changes)
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    rng, ends = random.Random(str(sent)), []
    for kind, last_words in sent:
        process = Process(["-m", "albert.run_pretraining", *arguments], stderr=subprocess.PIPE)
        with killed_at_the_end([process]):
            if kind:
                for line in process.stderr:
                    if last_words in line or "ended already" in line:
                        break
                time.sleep(rng.random())
                process.send_signal(kind)
            _, errors = process.communicate(timeout=120)
        assert "Traceback" not in errors
        ends.append((kind, process.returncode))
    allowed = {signal.SIGUSR1: {0}, signal.SIGTERM: {0, 75, -15}, None: {0}}
    assert all(status in allowed[kind] for kind, status in ends), ends
    assert_ends_as(tmp_path / "out", whole)
