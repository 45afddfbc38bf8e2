"""Two worker processes compute what two devices and one compute, and end together."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
import tensorflow as tf

from albert.data import record_files
from albert.io import file_io
from albert.model import checkpoints
from albert.training import run_record
from tests.support import builders
from tests.support.forked import Process
from tests.support.processes import killed_at_the_end, wait_until

pytestmark = pytest.mark.slow

STEPS = 20
# Each task and each kind of devices has a run whose batches are computed in parts.
PARTS = {"gradient_accumulation_steps": 2}


def free_addresses(count):
    """localhost addresses with unused ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [f"localhost:{one.getsockname()[1]}" for one in sockets]


def start(arguments, log, cluster=None, index=0):
    """A process of this interpreter; its output goes to a file."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("TF_CONFIG", None)
    if cluster:
        task = {"type": "worker", "index": index}
        environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": cluster}, "task": task})
    with open(log, "w") as file:
        words = ["-m", *arguments]
        return Process(words, env=environment, stdout=file, stderr=subprocess.STDOUT)


def start_workers(arguments, folder):
    cluster = free_addresses(2)
    return [start(arguments, folder / f"worker{i}.log", cluster, i) for i in range(2)]


def ends_of(logs):
    return lambda: [log.read_text()[-3000:] for log in logs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Inputs: 70 and 21 examples, which no batch size used here divides."""
    folder = tmp_path_factory.mktemp("workers")
    rows = builders.pretraining_rows(70)
    record_files.write(str(folder / "part0.tfrecord"), builders.PRETRAINING_SPECS, rows, {})
    file_io.write_text(str(folder / "config.json"), builders.PRETRAINING_CONFIG.to_json_string())
    builders.write_glue(folder)
    return folder


def pretraining_run(folder, name, after=None, **changes):
    changes = {"do_eval": True, **changes}
    flags = builders.pretraining_flags(
        folder, folder / name, num_train_steps=STEPS, log_every_steps=1, learning_rate=0.001,
        optimizer="adamw", average_last=0.5, **changes,
    )  # fmt: skip
    flags = {key: str(value) for key, value in flags.items()}
    return {"script": "run_pretraining", "flags": flags, "after": after and str(folder / after)}


def small_run(folder, name, **changes):
    """Flags of a training that takes little to build, and as long as one lets it."""
    changes = {"num_train_steps": 1000000, "log_every_steps": 100000, **changes}
    run = pretraining_run(folder, name, do_eval=False)
    return run["flags"] | {key: str(value) for key, value in changes.items()}


def classifier_run(folder, name, **changes):
    export_dir = folder / name / "export"
    changes = {"do_eval": True, "do_predict": True, "export_dir": export_dir, **changes}
    flags = builders.glue_flags(
        folder, folder / name, do_train=True, from_scratch=True, log_every_steps=1,
        train_step=STEPS,
        classifier_dropout_prob=0,  # replicas drop different values, as they should
        **changes,
    )  # fmt: skip
    return {"script": "run_classifier", "flags": {key: str(value) for key, value in flags.items()}}


def evaluation_run(folder, name):
    run = classifier_run(folder, name, cached_dir=folder / name)
    for stage in ("do_train", "do_predict", "from_scratch"):
        run["flags"][stage] = "false"
    return {**run, "flags": {**run["flags"], "output_dir": str(folder / name), "export_dir": ""}}


@pytest.fixture(scope="module")
def done(folder):
    """Runs everything that is compared: two workers, and one process with two devices."""
    one, two = {"distribution_strategy": "one_device"}, {"distribution_strategy": "mirrored"}
    alone = {
        "logical_cpus": 2,
        "runs": [
            pretraining_run(folder, "pretraining_one", **one),
            classifier_run(folder, "classifier_one", **one),
            pretraining_run(folder, "pretraining_mirrored", **two, **PARTS),
            classifier_run(folder, "classifier_mirrored", **two),
            pretraining_run(folder, "workers_to_one", "pretraining_workers/model.ckpt-15", **one),
        ],
    }
    workers = {
        "logical_cpus": 1,
        "agreement": str(folder / "agreement"),
        "runs": [
            classifier_run(folder, "classifier_workers", **PARTS),
            pretraining_run(
                folder,
                "pretraining_workers",
                "pretraining_one/model.ckpt-10",
                save_checkpoints_steps=5,
            ),
            evaluation_run(folder, "classifier_workers"),
        ],
    }
    for name, plan in (("alone", alone), ("workers", workers)):
        file_io.write_json(str(folder / f"{name}.json"), plan)
    processes = start_workers(["tests.support.worker", str(folder / "workers.json")], folder)
    processes.append(
        start(["tests.support.worker", str(folder / "alone.json")], folder / "alone.log")
    )
    logs = [folder / name for name in ("worker0.log", "worker1.log", "alone.log")]
    with killed_at_the_end(processes):
        status = [process.wait(timeout=850) for process in processes]
    texts = [log.read_text() for log in logs]
    assert status == [0, 0, 0], "\n\n".join(text[-3000:] for text in texts)
    return folder, texts


def series(path):
    """{tag: {step: value}} of the only event file of a folder."""
    (name,) = [name for name in os.listdir(path) if "tfevents" in name]
    found = {}
    for event in tf.compat.v1.train.summary_iterator(str(path / name)):
        for value in event.summary.value:
            number = tf.make_ndarray(value.tensor).item()
            found.setdefault(value.tag, {})[event.step] = number
    return found


def assert_same_training(path, expected, steps=range(1, STEPS + 1)):
    """The same loss at each step, the same weights at the end."""
    found, wanted = series(path)["loss"], series(expected)["loss"]
    assert sorted(found) == list(steps)
    for step in steps:
        assert found[step] == pytest.approx(wanted[step], rel=5e-6), step
    names = [f"model.ckpt-{STEPS}"]
    if (expected / "model.ckpt-average.index").exists():
        names.append("model.ckpt-average")
    for checkpoint in names:
        assert_same_weights(path / checkpoint, expected / checkpoint)


def assert_same_weights(path, expected):
    weights = [builders.weights(prefix) for prefix in (path, expected)]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[1].items():
        # Keys' biases change no attention: their gradients are rounding, which Adam blows up.
        atol = 1e-5 if name.endswith("self/key/bias") else 1e-6
        np.testing.assert_allclose(weights[0][name], value, rtol=1e-5, atol=atol, err_msg=name)


def assert_same_results(path, expected):
    for block, other in zip(*map(builders.read_results, (path, expected)), strict=True):
        assert_same_block(block, other)


def assert_same_block(block, other):
    assert block.keys() == other.keys()
    for key, value in other.items():
        assert float(block[key]) == pytest.approx(float(value), rel=1e-5), key


@pytest.mark.parametrize(
    ("kind", "devices"),
    [("pretraining", "mirrored"), ("classifier", "mirrored"), ("classifier", "workers")],
)
def test_two_devices_train_and_evaluate_as_one(done, kind, devices):
    folder, _ = done
    assert_same_training(folder / f"{kind}_{devices}", folder / f"{kind}_one")
    assert_same_results(folder / f"{kind}_{devices}", folder / f"{kind}_one")
    costs = [run_record.read_cost(str(folder / f"{kind}_{name}")) for name in (devices, "one")]
    found, expected = ([cost.steps, cost.examples, cost.tokens] for cost in costs)
    assert found == expected and expected[0] == STEPS
    # Lengths and numbers of rows are rounded up in each device.
    assert costs[0].flop == pytest.approx(costs[1].flop, rel=0.3)


@pytest.mark.parametrize("devices", ["mirrored", "workers"])
def test_two_devices_predict_and_export_as_one(done, devices):
    folder, _ = done
    paths = [folder / f"classifier_{name}" / "test_results.tsv" for name in (devices, "one")]
    found, expected = (np.loadtxt(path, delimiter="\t") for path in paths)
    assert len(expected) == 21
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    (exported,) = (folder / f"classifier_{devices}" / "export").iterdir()
    assert "serving_default" in tf.saved_model.load(str(exported)).signatures


@pytest.mark.parametrize(("name", "step"), [("pretraining_workers", 10), ("workers_to_one", 15)])
def test_a_run_goes_on_with_other_devices(done, name, step):
    """From one process to two workers, and from these to one."""
    folder, _ = done
    assert_same_training(folder / name, folder / "pretraining_one", range(step + 1, STEPS + 1))
    found, expected = (builders.read_results(folder / x)[-1] for x in (name, "pretraining_one"))
    assert_same_block(found, expected)


def test_only_the_chief_writes_and_reports(done):
    folder, (chief, worker, alone) = done
    names = {re.sub(r"\d+", "0", name) for name in os.listdir(folder / "classifier_workers")}
    expected = {re.sub(r"\d+", "0", name) for name in os.listdir(folder / "classifier_one")}
    assert names == expected
    record = run_record.read(str(folder / "classifier_workers"))
    assert [s["stages"] for s in record["sessions"]] == [["train", "eval", "predict"], ["eval"]]
    rows = run_record.read_metrics(str(folder / "classifier_workers"))
    keys = [(row["kind"], row["step"]) for row in rows]
    assert len(keys) == len(set(keys)) and {("train", step + 1) for step in range(STEPS)} < set(
        keys
    )
    assert len([n for n in os.listdir(folder / "classifier_workers/eval") if "tfevents" in n]) == 2
    assert f"step 1/{STEPS}" in chief and f"step 1/{STEPS}" not in worker
    assert "Wrote 600 examples to" in chief and "Wrote 600 examples to" not in worker
    assert re.search(r"This is worker 1 \(localhost:\d+\) of 2", worker)
    for text in (chief, worker, alone):
        assert "batch: 2 replicas x 8 = 16" in text


def test_workers_agree(done):
    folder, _ = done
    chief, worker = (
        json.loads((folder / f"agreement-{index}.json").read_text()) for index in range(2)
    )
    assert chief["told"] == worker["told"] == {"text": "ä", "index": 0}
    assert chief["refused"] == ""
    assert re.search(
        r"started with the same flags and files; train_batch_size is 8 here, 0 in the chief$",
        worker["refused"],
    )
    assert chief["other_weights"] == ""
    assert re.search(
        r'; the checksum of the initial weights is "\w{12}" here, "\w{12}" in the chief$',
        worker["other_weights"],
    )


@pytest.mark.slow
def test_workers_with_other_flags_are_refused(folder, tmp_path):
    cluster = free_addresses(2)
    logs = [tmp_path / f"worker{i}.log" for i in range(2)]
    with killed_at_the_end([]) as processes:
        for index in range(2):
            run = pretraining_run(folder, "differ", do_eval=False)["flags"]
            run.update({"learning_rate": "0.1", "do_eval": "true"} if index else {})
            arguments = [f"--{name}={value}" for name, value in run.items()]
            processes.append(
                start(["albert.run_pretraining", *arguments], logs[index], cluster, index)
            )
        status = [process.wait(timeout=120) for process in processes]
    chief, worker = (log.read_text() for log in logs)
    assert status == [1, 1], chief[-3000:] + worker[-3000:]
    assert re.search(
        "^error: all workers must be started with the same flags and files; --do_eval is true "
        "here, false in the chief; --learning_rate is 0.1 here, 0.001 in the chief$",
        worker,
        re.M,
    ), worker
    assert re.search(r"^error: worker 1 .* ended or cannot be reached", chief, re.M), chief


@pytest.mark.slow
@pytest.mark.parametrize("started", [1, 2])
def test_workers_can_be_stopped(folder, tmp_path, started):
    """While one waits for the other, and while they train."""
    run = small_run(folder, f"stopped{started}")
    arguments = [f"--{name}={value}" for name, value in run.items()]
    cluster = free_addresses(2)
    logs = [tmp_path / f"worker{i}.log" for i in range(started)]
    processes = [
        start(["albert.run_pretraining", *arguments], log, cluster, index)
        for index, log in enumerate(logs)
    ]
    last_words = "waiting for the others" if started == 1 else "First step after"
    with killed_at_the_end(processes):
        wait_until(lambda: last_words in logs[0].read_text(), *processes, say=ends_of(logs))
        time.sleep(1)
        for process in processes:
            process.send_signal(signal.SIGINT)
        ends = {process.wait(timeout=30) for process in processes}
    # One of two may see the end of the other first.
    assert 130 in ends and ends <= {130, 1}
    assert not any("Traceback" in log.read_text() for log in logs)
    output = run["output_dir"]
    left = file_io.listdir(output) if file_io.is_dir(output) else []
    assert not [name for name in left if ".tmp-" in name or name.startswith(".")]
    saved = checkpoints.numbered(output)
    assert bool(saved) == (started == 2)
    assert not any(map(checkpoints.damage_of, saved))


@pytest.mark.slow
def test_a_signal_to_one_worker_lets_all_save_the_same_step(folder, tmp_path):
    run = small_run(folder, "asked", log_every_steps=100, save_checkpoints_steps=1000000)
    arguments = ["albert.run_pretraining", *(f"--{name}={value}" for name, value in run.items())]

    def steps():
        return [checkpoints.step_of(p) for p in checkpoints.numbered(str(folder / "asked"))]

    processes = start_workers(arguments, tmp_path)
    logs = [tmp_path / f"worker{i}.log" for i in range(2)]
    with killed_at_the_end(processes):
        wait_until(lambda: "step 100/" in logs[0].read_text(), *processes, say=ends_of(logs))
        processes[1].send_signal(signal.SIGUSR1)
        wait_until(lambda: len(steps()) == 2, *processes, say=ends_of(logs))
        processes[1].send_signal(signal.SIGTERM)
        status = [process.wait(timeout=60) for process in processes]
    texts = [log.read_text() for log in logs]
    assert status == [75, 75], "\n\n".join(text[-3000:] for text in texts)
    assert len(steps()) == 3 and not any("Traceback" in text for text in texts)


@pytest.mark.slow
def test_a_killed_worker_ends_the_other_and_both_go_on(folder, tmp_path):
    """First the second of two workers is killed, and, when both have resumed, the chief."""
    logs = [tmp_path / f"worker{i}.log" for i in range(2)]
    last = -1
    for victim in (1, 0):
        run = small_run(folder, "killed", keep_checkpoint_max=2, log_every_steps=1000)
        arguments = [f"--{name}={value}" for name, value in run.items()]
        cluster = free_addresses(2)
        processes = [
            start(["albert.run_pretraining", *arguments], logs[i], cluster, i) for i in range(2)
        ]

        def steps():
            return [checkpoints.step_of(p) for p in checkpoints.numbered(str(folder / "killed"))]

        with killed_at_the_end(processes):

            def reached(last=last):
                return max(steps(), default=-1) >= last + 20

            wait_until(reached, *processes, say=ends_of(logs))
            processes[victim].send_signal(signal.SIGKILL)
            status = processes[1 - victim].wait(timeout=60)
        text = logs[1 - victim].read_text()
        assert status == 1, text[-3000:]
        assert re.search(
            rf"^error: worker {victim} \({cluster[victim]}\) .*to resume from the last", text, re.M
        ), text[-3000:]
        assert "Traceback" not in text
        if victim == 0:
            assert f"Resuming from {folder}/killed/model.ckpt-{last} at step {last}" in text
        last = steps()[-1]
