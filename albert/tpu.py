"""Finding a TPU and connecting to it, so that a wrong address ends with a message."""

import contextlib
import socket
import time

import tensorflow as tf
from absl import logging

from albert import file_io

SECONDS_TO_ANSWER = 90  # that a TPU has, which may be starting
SECONDS_BETWEEN_LINES = 30  # of the log, while it has not answered
# What asks a server for its devices. TensorFlow begins with it, too, but waits without an end.
_STATUS = "/tensorflow.WorkerService/GetStatus"


def find(address, zone=None, project=None, seconds=SECONDS_TO_ANSWER):
    """Resolver of a TPU whose servers answer.

    Args:
      address: ``grpc://host:port``, "local", or a name that Google Cloud knows; None for what the
        environment names.
      zone: Google Cloud zone of a name.
      project: Google Cloud project of a name.
      seconds: how long to wait at most.

    Raises:
      file_io.InputError: there is no such TPU, or it does not answer.
    """
    end = time.monotonic() + seconds
    logging.info("Connecting to the TPU %s; it has %d seconds to answer", _place(address), seconds)
    # For a name the resolver asks Google Cloud, up to four times and with no limit of its own.
    with _reported(address), _limited_requests(seconds / 4):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=zone, project=project
        )
        cluster = resolver.cluster_spec()
    for job in cluster.jobs:
        for server in cluster.job_tasks(job):
            _wait_for(server, end, seconds)
    return resolver


def connect(resolver, address):
    """Connects to a TPU that `find` has found, and makes it ready.

    Raises:
      file_io.InputError: what answers is no TPU.
    """
    with _reported(address):
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)


def _place(address):
    return f"under {address!r}" if address else "on this machine"


@contextlib.contextmanager
def _reported(address):
    try:
        yield
    except (ValueError, RuntimeError, ImportError, OSError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]  # lists of kernels may follow
        raise file_io.InputError(
            f"no TPU found {_place(address)}; tpu_name or `master` says where it is: {reason}"
        ) from error


@contextlib.contextmanager
def _limited_requests(seconds):
    """Lets Python's requests over the network wait so long at most."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _wait_for(server, end, seconds):
    """Returns once the TensorFlow server at host:port answers; says that it waits.

    Raises:
      file_io.InputError: there was no answer at the time `end`, or something else answers.
    """
    import grpc  # needed for TPUs alone

    # As often as this, a connection is tried anew.
    options = [("grpc.max_reconnect_backoff_ms", 1000)]
    with grpc.insecure_channel(server, options) as channel:
        ask = channel.unary_unary(_STATUS)
        while True:
            left = max(end - time.monotonic(), 0.1)
            try:
                ask(b"", timeout=min(left, SECONDS_BETWEEN_LINES), wait_for_ready=True)
                return
            except grpc.RpcError as error:
                code, details = error.code(), error.details()
            if code not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                raise file_io.InputError(
                    f"what answers at {server} is no TPU: {details} ({code.name}); tpu_name or "
                    "`master` says where it is"
                )
            if time.monotonic() >= end:
                raise file_io.InputError(
                    f"the TPU at {server} has not answered within {seconds} seconds: is it "
                    "running, is the address that of tpu_name or `master`, and does a firewall "
                    "let this machine through? On a TPU VM give tpu_name=local"
                )
            logging.info("Still waiting: no answer from the TPU at %s", server)
            if code is grpc.StatusCode.UNAVAILABLE:  # The connection broke.
                time.sleep(1)
