"""Choosing devices; what several of them compute is in workers/test_multi_worker.py."""

import json
import os
import pathlib
import re
import socket
import types

import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import layers
from albert.training import distribution
from tests.support import processes


def test_an_unknown_strategy_is_named():
    with pytest.raises(file_io.InputError, match="=horovod: expected .* auto, one_device, mirr"):
        distribution.create_strategy("horovod")


def test_a_missing_tpu_is_named(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(file_io.InputError, match="^no TPU found .*; give its address"):
        distribution.create_strategy("tpu")

    def resolver(tpu, zone, project):
        raise ValueError(f"{tpu} {zone} {project}\nmore")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    with pytest.raises(file_io.InputError, match="^no TPU found under 'a'; .*: a b c$"):
        distribution.create_strategy("tpu", tpu_name="a", tpu_zone="b", gcp_project="c")


def tf_config(job, index, **jobs):
    return json.dumps({"cluster": jobs, "task": {"type": job, "index": index}})


TWO = ["a:1", "b:1"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not JSON .*line 1, column 2"),
        ("[]", "is not a JSON object"),
        (json.dumps({"cluster": TWO}), 'must have objects as "cluster" and "task"'),
        (json.dumps({"clusters": {}, "task": {"index": 1}}), 'has a "task" but no workers'),
        (
            json.dumps({"cluster": {"worker": TWO}}),
            'an "index" from 0 to 1, as there are 2 workers',
        ),
        (tf_config("worker", 2, worker=TWO), 'an "index" from 0 to 1, as there are 2 workers'),
        (tf_config("worker", -1, worker=TWO), 'an "index" from 0 to 1, as there are 2 workers'),
        (tf_config("worker", "?", worker=TWO), 'an "index" from 0 to 1, as there are 2 workers'),
        (tf_config("chief", 0, worker=TWO), 'a chief, but "cluster" has no chief'),
        (tf_config("worker", 0, worker="a:1,b:1"), 'a list of "host:port" as "worker"'),
        (tf_config("worker", 0, worker=["a", "b:1"]), 'a list of "host:port" as "worker"'),
        (tf_config("worker", 0, worker=["a:1", None]), 'a list of "host:port" as "worker"'),
        (tf_config("chief", 0, chief=TWO, worker=["c:1"]), "more than one chief"),
        (tf_config("worker", 1, worker=["a:1", "a:1"]), "the same address twice"),
        (tf_config("evaluator", 0, chief=["a:1"]), 'of type "evaluator"; .* give nodo_train'),
        (tf_config("ps", 0, ps=["p:1"], worker=TWO), 'of type "ps"; expected chief or worker'),
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "multi_worker"])
def test_a_wrong_tf_config_is_explained(monkeypatch, config, message, strategy):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(file_io.InputError) as caught:
        distribution.create_strategy(strategy)
    assert re.match(rf"the environment variable TF_CONFIG .*{message}", str(caught.value))
    assert str(caught.value).endswith(f"found {config!r}")
    assert distribution.create_strategy("one_device").num_replicas_in_sync == 1
    # Nor does it stand in the way of other messages.
    assert distribution.lost_worker(tf.errors.UnavailableError(None, None, "other")) is None


@pytest.mark.parametrize("config", ["", "{}", tf_config("worker", 0, worker=["a:1"])])
def test_several_workers_must_be_named(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(file_io.InputError, match="TF_CONFIG must list at least two workers"):
        distribution.create_strategy("multi_worker")


@pytest.mark.parametrize(
    ("config", "addresses", "index"),
    [
        (tf_config("worker", 1, worker=["a:1", "b:1"]), ("a:1", "b:1"), 1),
        (tf_config("chief", 0, chief=["c:1"], worker=["a:1"]), ("c:1", "a:1"), 0),
        (tf_config("worker", 0, chief=["c:1"], worker=["a:1"]), ("c:1", "a:1"), 1),
        (tf_config("worker", "1", ps=["p:1"], worker=["a:1", "b:1"]), ("a:1", "b:1"), 1),
    ],
)
def test_the_chief_is_the_first_worker(config, addresses, index):
    cluster = distribution.cluster_of(config)
    assert (cluster.addresses, cluster.index) == (addresses, index)
    assert cluster.name(1) == f"worker 1 ({addresses[1]})"


@pytest.mark.parametrize("config", ["", "{}", tf_config("worker", 0, worker=["a:1"])])
def test_fewer_than_two_workers_are_no_cluster(monkeypatch, config):
    assert distribution.cluster_of(config) is None
    monkeypatch.setenv("TF_CONFIG", config)
    assert isinstance(distribution.create_strategy("auto"), tf.distribute.OneDeviceStrategy)


@pytest.mark.parametrize(
    ("gpus", "config", "chosen"),
    [
        (0, "", "one_device"),
        (1, "", "one_device"),
        (2, "", "mirrored"),
        (2, tf_config("worker", 0, worker=["a:1", "b:1"]), "multi_worker"),
    ],
)
def test_auto_takes_what_is_there(monkeypatch, gpus, config, chosen):
    monkeypatch.setenv("TF_CONFIG", config)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU"] * gpus)
    monkeypatch.setattr(distribution, "wait_for_workers", lambda cluster: None)
    made = []
    for kind, name in (
        ("OneDeviceStrategy", "one_device"),
        ("MirroredStrategy", "mirrored"),
        ("MultiWorkerMirroredStrategy", "multi_worker"),
    ):
        monkeypatch.setattr(tf.distribute, kind, lambda *_, name=name, **more: made.append(name))
    distribution.create_strategy()
    assert made == [chosen]


def test_the_slurm_script_of_the_documents(tmp_path):
    """With stand-ins for SLURM's programs; the second of three tasks."""
    root = pathlib.Path(__file__).parent.parent.parent
    text = (root / "docs" / "devices.md").read_text("utf-8")
    (script,) = re.findall(r"^```sh\n(#!/bin/bash\n.*?)^```$", text, re.S | re.M)
    programs = {
        "srun": 'exec "$@"',
        "scontrol": r'printf "a1\na2\na3\n"',
        "python": 'echo "$TF_CONFIG"',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_PROCID": "1"}
    result = processes.run(["bash", "-c", script], env=environment, check=True)
    cluster = distribution.cluster_of(result.stdout)
    assert cluster == distribution.Cluster(("a1:12345", "a2:12345", "a3:12345"), 1)


def test_one_process_is_its_own_chief():
    strategy = distribution.create_strategy("one_device")
    assert distribution.workers(strategy) is None
    assert distribution.from_chief(strategy, lambda: {"a": [1]}) == {"a": [1]}
    distribution.check_agreement(strategy, {"seed": 1, "threshold": float("nan"), "sizes": (1, 2)})
    distribution.check_same_weights(strategy, [tf.Variable(1.0)])
    with distribution.chief_first(strategy):
        pass


def test_one_device_is_not_a_fixed_shape_device():
    strategy = distribution.create_strategy("one_device")
    assert strategy.num_replicas_in_sync == 1
    assert distribution.is_chief(strategy)
    assert not distribution.needs_fixed_shapes(strategy)
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert os.environ.get("TF_CONFIG") is None


@pytest.mark.parametrize("endless", [False, True])
def test_tuning_of_the_input_of_one_device_is_not_waited_for(endless):
    strategy = distribution.create_strategy("one_device")
    seen = []

    def input_fn(params):
        seen.append(params)
        return tf.data.Dataset.range(3).batch(params["batch_size"])

    dataset = distribution.distribute(strategy, input_fn, 2, "a_flag", endless, first_step=7)
    assert isinstance(dataset, tf.data.Dataset)  # none of the strategy's, which tune themselves
    assert dataset.options().autotune.enabled is False
    assert [batch.numpy().tolist() for batch in dataset.take(2)] == [[0, 1], [2]]
    assert seen == [
        {
            "batch_size": 2,
            "fixed_shapes": False,
            "num_input_pipelines": 1,
            "input_pipeline_id": 0,
            "replicas_per_pipeline": 1,
            "first_step": 7,
        }
    ]


@pytest.mark.parametrize(
    ("replicas", "devices", "gains"),
    [(1, ["CPU"], True), (1, ["CPU", "CPU"], True), (2, ["CPU", "CPU"], False),
     (1, ["CPU", "GPU"], False)],
)  # fmt: skip
def test_parts_are_for_one_cpu(monkeypatch, replicas, devices, gains):
    found = [types.SimpleNamespace(device_type=device) for device in devices]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: found)
    strategy = types.SimpleNamespace(num_replicas_in_sync=replicas)
    assert distribution.gains_from_parts(strategy) == gains


@pytest.mark.parametrize(
    ("units", "parts", "gpus", "threads"),
    [(True, 2, [], [1]), (False, 2, [], []), (True, 1, [], []), (True, 2, ["GPU"], [])],
)
def test_each_part_has_one_core_where_there_are_matrix_units(
    monkeypatch, units, parts, gpus, threads
):
    found = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(distribution.kernels, "has_matrix_units", lambda dtype: units)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", found.append)
    distribution.use_one_core_per_part(layers.Compute("bfloat16", parts=parts))
    assert found == threads


def test_a_worker_says_for_whom_it_waits(monkeypatch):
    """The one that is missing appears when it is named."""
    lines = []
    with socket.create_server(("localhost", 0)) as there, socket.socket() as absent:
        absent.bind(("localhost", 0))
        ports = [there.getsockname()[1], absent.getsockname()[1]]

        def info(text, *values):
            lines.append(text % values)
            if text.startswith("Still waiting"):
                absent.listen()

        monkeypatch.setattr(distribution.logging, "info", info)
        cluster = distribution.Cluster(("localhost:0", *(f"localhost:{port}" for port in ports)), 0)
        distribution.wait_for_workers(cluster, seconds_between_lines=0)
    assert lines[1:] == [f"Still waiting: no answer from worker 2 (localhost:{ports[1]})"]


def test_a_port_in_use_is_refused():
    with socket.create_server(("", 0)) as other:
        address = f"localhost:{other.getsockname()[1]}"
        with pytest.raises(file_io.InputError, match=rf"worker 0 \({address}\) .*in use"):
            distribution.wait_for_workers(distribution.Cluster((address, "localhost:1"), 0))
