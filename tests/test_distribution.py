"""Strategies: several replicas compute what one computes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert import distribution, file_io, records
from tests import test_run_pretraining as pretraining

TWO_CPUS = """
import sys
import tensorflow as tf
from absl import flags
from albert import run_pretraining
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
values = flags.FlagValues()
run_pretraining.define_flags(values)
values(sys.argv)
run_pretraining.main(values)
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirrored")
    rows = pretraining.make_rows(70)
    records.write(str(folder / "part0.tfrecord"), pretraining.SPECS, rows, {})
    file_io.write_text(str(folder / "config.json"), pretraining.CONFIG.to_json_string())
    return folder


def test_two_mirrored_devices_equal_one(inputs, tmp_path, run_script):
    flags = pretraining.flags_for(inputs, tmp_path / "one", num_train_steps=20, do_eval=True)
    run_script(pretraining.run_pretraining, **flags)
    flags = {**flags, "output_dir": tmp_path / "two", "distribution_strategy": "mirrored"}
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    subprocess.run([sys.executable, "-c", TWO_CPUS, *arguments], check=True, timeout=300)
    one, two = (pretraining.weights(str(tmp_path / x / "model.ckpt-20")) for x in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=2e-4, err_msg=name)
    results = [pretraining.read_results(tmp_path / x) for x in ("one", "two")]
    for block, other in zip(*results, strict=True):
        for key, value in block.items():
            assert float(other[key]) == pytest.approx(float(value), rel=1e-3), key


def test_an_unknown_strategy_is_named():
    with pytest.raises(file_io.InputError, match="=horovod is not known; known: one_device, mirr"):
        distribution.create_strategy("horovod")


@pytest.mark.parametrize("config", [None, "{", json.dumps({"cluster": {"ps": []}})])
def test_workers_need_tf_config(monkeypatch, config):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(file_io.InputError, match="needs the environment variable TF_CONFIG"):
        distribution.create_strategy("multi_worker")


def test_one_device_is_not_a_fixed_shape_device():
    strategy = distribution.create_strategy("one_device")
    assert strategy.num_replicas_in_sync == 1
    assert distribution.is_chief(strategy)
    assert not distribution.needs_fixed_shapes(strategy)
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert os.environ.get("TF_CONFIG") is None
