"""Waiting for TPUs that are not there."""

import concurrent.futures
import os
import signal
import socket
import threading

import grpc
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.training import distribution


@pytest.fixture
def silent():
    """Address of a socket that accepts connections and never says anything."""
    with socket.create_server(("localhost", 0)) as listener:
        yield f"localhost:{listener.getsockname()[1]}"


def test_an_address_that_accepts_and_is_silent(silent, monkeypatch, caplog):
    monkeypatch.setattr(distribution, "SECONDS_BETWEEN_LINES", 0.3)
    message = (
        f"^the TPU at {silent} has not answered within 1 seconds. Check that it runs, .*=local$"
    )
    caplog.set_level("INFO", logger="absl")
    with pytest.raises(file_io.InputError, match=message):
        distribution.find(f"grpc://{silent}", seconds=1)
    assert f"Connecting to the TPU under 'grpc://{silent}'; it has 1 seconds to " in caplog.text
    assert f"Still waiting: no answer from the TPU at {silent}\n" in caplog.text


def test_an_address_where_nothing_listens():
    with socket.socket() as absent:
        absent.bind(("localhost", 0))
        address = f"localhost:{absent.getsockname()[1]}"
        with pytest.raises(file_io.InputError, match=f"the TPU at {address} has not answered"):
            distribution.find(f"grpc://{address}", seconds=1)


def test_a_host_without_address():
    with pytest.raises(file_io.InputError, match="the TPU at nowhere.invalid:8470 has not ans"):
        distribution.find("grpc://nowhere.invalid", seconds=1)


@pytest.mark.parametrize("flag", ["tpu_name", "master"])
def test_a_run_takes_the_address_of_either_flag(silent, monkeypatch, flag):
    find = distribution.find
    monkeypatch.setattr(distribution, "find", lambda *where: find(*where, seconds=0.5))
    with pytest.raises(file_io.InputError, match=f"the TPU at {silent} has not answered"):
        distribution.create_strategy("tpu", **{flag: f"grpc://{silent}"})


def test_a_server_of_tensorflow_answers():
    server = tf.distribute.Server.create_local_server()
    assert distribution.find(server.target).master() == server.target


def test_a_server_of_something_else_is_refused():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("localhost:0")
    server.start()
    with pytest.raises(file_io.InputError, match=f"^the server at localhost:{port} .*UNIMPLEM"):
        distribution.find(f"grpc://localhost:{port}")
    server.stop(None).wait()


def test_a_name_that_google_cloud_does_not_answer_for(silent, monkeypatch):
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setenv("GCE_METADATA_IP", silent)
    with pytest.raises(file_io.InputError, match="^no TPU found under 'mine'; .*: timed out$"):
        distribution.find("mine", seconds=1)
    assert socket.getdefaulttimeout() is None


def test_ctrl_c_ends_the_waiting(silent):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        distribution.find(f"grpc://{silent}")


def test_the_waiting_ends_within_two_minutes():
    assert distribution.SECONDS_BETWEEN_LINES <= 30
    assert distribution.SECONDS_TO_ANSWER < 120
