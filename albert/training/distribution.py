"""Where a run computes: one device, several GPUs, several workers or a TPU.

The engine only sees the `tf.distribute.Strategy` that `create_strategy` returns. Workers are
processes that run the same command; `TF_CONFIG` names them all, and which one a process is. Each
batch is dealt among all their devices, and one of them, the chief, writes the files.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
import signal
import socket
import time

import numpy as np
import tensorflow as tf
from absl import logging

from albert.io import file_io, signals

# --- TPUs -----------------------------------------------------------------------------------------

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


# --- strategies -----------------------------------------------------------------------------------


STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
_MOST_VALUES = 3  # that `largest_of_workers` tells apart
_CHUNK, _LENGTH_DIGITS = 4096, 10  # bytes of what the chief sends to the others
# What operations raise that wait for a worker that is gone.
_CONNECTION_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a run.

    Attributes:
      addresses: host:port of each worker, the chief first.
      index: place of this process among them.
    """

    addresses: tuple
    index: int

    def name(self, index):
        """How messages call a worker."""
        return f"worker {index} ({self.addresses[index]})"


def cluster_of(tf_config):
    """`Cluster` of the text of a ``TF_CONFIG``; None if that names fewer than two workers.

    Raises:
      file_io.InputError: it is not of the expected form, or this process is no worker.
    """
    if not tf_config:
        return None
    try:
        config = json.loads(tf_config)
    except ValueError as error:
        raise _tf_config_error(tf_config, f"is not JSON ({error})") from error
    try:
        return _parse_cluster(config)
    except file_io.InputError as error:
        raise _tf_config_error(tf_config, str(error)) from None


def _parse_cluster(config):
    """`cluster_of` of parsed JSON; its errors say what is wrong without what was found."""
    if not isinstance(config, dict):
        raise file_io.InputError("is no JSON object")
    jobs, task = config.get("cluster", {}), config.get("task", {})
    if not isinstance(jobs, dict) or not isinstance(task, dict):
        raise file_io.InputError('must have objects as "cluster" and "task"')
    job, index = task.get("type", "worker"), str(task.get("index", ""))
    if job not in ("chief", "worker"):
        raise file_io.InputError(
            f'makes this process a task of type "{job}"; only chief and worker are known. To '
            "evaluate beside a training run, leave TF_CONFIG out and give nodo_train do_eval "
            "eval_wait_secs=3600"
        )
    for name in ("chief", "worker"):
        given = jobs.get(name, [])
        if not isinstance(given, list) or not all(_is_address(address) for address in given):
            raise file_io.InputError(f'must have a list of "host:port" as "{name}"')
    addresses = [*jobs.get("chief", []), *jobs.get("worker", [])]
    if len(jobs.get("chief", [])) > 1:
        raise file_io.InputError("names more than one chief")
    if len(set(addresses)) < len(addresses):
        raise file_io.InputError("names the same address twice")
    if task and not addresses:
        raise file_io.InputError('has a "task" but no workers under "cluster"')
    if len(addresses) < 2:
        return None
    count = len(jobs.get(job, []))
    if not index.isdecimal() or int(index) >= count:
        raise file_io.InputError(f'must have the number of one of the {count} {job}s as "index"')
    return Cluster(tuple(addresses), addresses.index(jobs[job][int(index)]))


def _is_address(value):
    return isinstance(value, str) and re.fullmatch(r"\S+:\d+", value)


def _tf_config_error(found, what):
    return file_io.InputError(
        f"the environment variable TF_CONFIG {what}. Workers are named as in "
        '{"cluster": {"worker": ["host1:12345", "host2:12345"]}, '
        '"task": {"type": "worker", "index": 0}}; found ' + repr(found)
    )


def create_strategy(name="auto", tpu_name=None, tpu_zone=None, gcp_project=None, master=None):
    """The strategy of that name. To be called before TensorFlow is used for anything else.

    Args:
      name: one of `STRATEGIES`. "auto" takes several workers if ``TF_CONFIG`` names them, else
        several GPUs if there are, else one device.
      tpu_name: name or address of the TPU; `master` is taken if it is not given.
      tpu_zone: Google Cloud zone of the TPU.
      gcp_project: Google Cloud project of the TPU.
      master: ``grpc://…`` address of the TPU.

    Raises:
      file_io.InputError: unknown name, or the devices are not there or do not answer.
    """
    if name not in STRATEGIES:
        raise file_io.InputError(
            f"distribution_strategy={name} is not known; known: {', '.join(STRATEGIES)}"
        )
    if name == "tpu":
        return _tpu_strategy(tpu_name or master, tpu_zone, gcp_project)
    tf_config = os.environ.get("TF_CONFIG")
    if name == "auto":
        several = len(tf.config.list_physical_devices("GPU")) > 1
        alone = "mirrored" if several else "one_device"
        name = "multi_worker" if cluster_of(tf_config) else alone
    if name == "multi_worker":
        cluster = cluster_of(tf_config)
        if not cluster:
            raise _tf_config_error(tf_config, "must name two workers or more")
        return _multi_worker_strategy(cluster)
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("GPU:0" if _gpus() else "CPU:0")
    # Without a GPU the logical CPU devices serve, which is how this is tested.
    devices = _gpus() or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _multi_worker_strategy(cluster):
    wait_for_workers(cluster)
    with _ended_by_signals():
        return tf.distribute.MultiWorkerMirroredStrategy()


@contextlib.contextmanager
def _ended_by_signals():
    """Lets signals end the process while TensorFlow connects: Python would not handle them."""
    handlers = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, *signals.ending())}
    for kind in handlers:
        signal.signal(kind, signal.SIG_DFL)
    try:
        yield
    finally:
        # For SIGTERM TensorFlow has a handler of its own by now, which only takes a note.
        for kind, handler in handlers.items():
            signal.signal(kind, handler)


def wait_for_workers(cluster, seconds_between_lines=30):
    """Returns once all workers are there, or connecting; says whom it waits for.

    TensorFlow would wait for them, too, but without a word, and deaf to signals.

    Args:
      cluster: `Cluster`.
      seconds_between_lines: of the log, which name the workers that are missing.

    Raises:
      file_io.InputError: the port of this worker cannot be used.
    """
    own = cluster.name(cluster.index)
    logging.info("This is %s of %d; waiting for the others", own, len(cluster.addresses))
    silent = set(range(len(cluster.addresses))) - {cluster.index}
    asked = time.monotonic()
    try:
        listener = _listen(int(cluster.addresses[cluster.index].rpartition(":")[2]))
    except OSError as error:
        raise file_io.InputError(
            f"{own} cannot use its port: {error.strerror}; give one that is free, and to each "
            "worker its own address"
        ) from error
    with listener:
        while silent:
            silent = {index for index in silent if not _answers(cluster.addresses[index])}
            if silent and time.monotonic() > asked + seconds_between_lines:
                asked = time.monotonic()
                names = ", ".join(map(cluster.name, sorted(silent)))
                logging.info("Still waiting: no answer from %s", names)
            time.sleep(0.2)


def _listen(port):
    """A socket that shows the others that this worker is there, until TensorFlow takes over."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
        )
    return socket.create_server(("", port), backlog=1024)


def _answers(address):
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except OSError:
        return False


def _gpus():
    return tf.config.list_logical_devices("GPU")


def _tpu_strategy(address, zone, project):
    resolver = find(address, zone, project)
    with _ended_by_signals():
        connect(resolver, address)
    return tf.distribute.TPUStrategy(resolver)


# --- workers ------------------------------------------------------------------------------------


def workers(strategy):
    """`Cluster` of a strategy; None unless it has several workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    return cluster_of(os.environ.get("TF_CONFIG"))


def use_xla():
    """Lets XLA compile clusters of every graph; variables and shapes may stay as they are.

    Raises:
      file_io.InputError: there is no GPU; on a CPU what XLA gains is compiled already.
    """
    if not _gpus():
        raise file_io.InputError(
            "use_xla is for GPUs and none is here: on a CPU whole graphs under XLA are slower, "
            "and the functions that gain from it are always compiled; leave it out"
        )
    tf.config.optimizer.set_jit("autoclustering")


def is_chief(strategy):
    """True for the one process that writes files."""
    cluster = workers(strategy)
    return cluster is None or cluster.index == 0


def from_chief(strategy, make):
    """What ``make()`` returns in the chief, in every worker; the others wait for it.

    So the workers agree on what only the files can tell, without looking at them at other times.

    Args:
      strategy: the strategy; all workers must come here.
      make: function without arguments that returns what JSON can hold.
    """
    if workers(strategy) is None:
        return make()
    message = b""
    if is_chief(strategy):
        text = json.dumps(make()).encode()
        message = b"%*d" % (_LENGTH_DIGITS, len(text)) + text
    received, end = b"", _LENGTH_DIGITS
    while len(received) < end:
        values = np.zeros(_CHUNK, np.float32)
        part = message[len(received) :][:_CHUNK]
        values[: len(part)] = list(part)
        found = _of_first_replica(strategy)(values)
        found = strategy.experimental_local_results(found)[0].numpy()
        received += bytes(found.astype(np.uint8))
        end = _LENGTH_DIGITS + int(received[:_LENGTH_DIGITS])
    return json.loads(received[_LENGTH_DIGITS:end])


def can_stop_alone(strategy):
    """True where a process may end a call of a compiled loop before its last step."""
    return workers(strategy) is None and not needs_fixed_shapes(strategy)


def largest_of_workers(strategy, value):
    """The largest of the small integers that the workers have; all must come here."""
    if workers(strategy) is None:
        return value
    found = _counts(strategy)(np.eye(_MOST_VALUES, dtype=np.float32)[value])
    return int(np.flatnonzero(strategy.experimental_local_results(found)[0])[-1])


@functools.cache
def _counts(strategy):
    """Compiled once a run: ``(vector) -> its sum over all replicas``."""

    def replica_sum(values):
        context = tf.distribute.get_replica_context()
        # A copy, as what comes from outside has no device, on which the sum relies.
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

    return tf.function(lambda values: strategy.run(replica_sum, (values,)), autograph=False)


@functools.cache
def _of_first_replica(strategy):
    """Compiled once a run: ``(values) -> those of the first replica``, which is the chief's."""

    def replica_values(values):
        context = tf.distribute.get_replica_context()
        counts = tf.cast(tf.equal(context.replica_id_in_sync_group, 0), tf.float32)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, counts * values)

    return tf.function(lambda values: strategy.run(replica_values, (values,)), autograph=False)


@contextlib.contextmanager
def chief_first(strategy):
    """Lets the chief through the block, and then the others, which find the files it made."""
    if not is_chief(strategy):
        from_chief(strategy, lambda: None)
    yield
    if is_chief(strategy):
        from_chief(strategy, lambda: None)


def check_agreement(strategy, settings):
    """Refuses to start workers with different settings, which would wait for each other for ever.

    Args:
      strategy: the strategy.
      settings: dict of what JSON can hold.

    Raises:
      file_io.InputError: a setting differs from the chief's; names it and both values.
    """
    # As texts, since a number that is none does not equal itself.
    mine = {key: json.dumps(value) for key, value in settings.items()}
    chosen = from_chief(strategy, lambda: mine)
    different = [
        f"{key} is {mine.get(key)} here, {chosen.get(key)} in the chief"
        for key in sorted({*mine, *chosen})
        if mine.get(key) != chosen.get(key)
    ]
    if different:
        raise file_io.InputError(
            f"all workers must be started with the same flags and files; {'; '.join(different)}"
        )


def check_same_weights(strategy, variables):
    """Refuses workers whose copies of a model differ, which training would never make one.

    Args:
      strategy: the strategy.
      variables: those of the model.

    Raises:
      file_io.InputError: the weights differ from the chief's.
    """
    if workers(strategy) is None:
        return
    digest = hashlib.sha256()
    for variable in variables:
        digest.update(variable.numpy().tobytes())
    check_agreement(strategy, {"the sum over the first weights": digest.hexdigest()[:12]})


def lost_worker(error):
    """What to tell the user if an error came from the end of another worker; else None.

    TensorFlow notices a broken connection at once, and a worker that has fallen silent when its
    heartbeat is missed; both end the operation that waits for the worker.

    Args:
      error: an exception.
    """
    if not isinstance(error, tf.errors.OpError):
        return None
    try:
        cluster = cluster_of(os.environ.get("TF_CONFIG"))
    except file_io.InputError:  # of a run that has no use for it
        return None
    if not cluster:
        return None
    names = re.findall(r"/job:(chief|worker)/(?:replica:\d+/)?task:(\d+)", error.message)
    jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
    lost = {cluster.addresses.index(jobs[job][int(index)]) for job, index in names}
    lost -= {cluster.index}
    if not lost or not isinstance(error, _CONNECTION_ERRORS):
        return None
    who = " and ".join(cluster.name(index) for index in sorted(lost))
    return (
        f"{who} ended or cannot be reached, so this one, {cluster.name(cluster.index)}, ends too; "
        "its own output may say why. The same commands go on from the last checkpoint"
    )


# --- batches ------------------------------------------------------------------------------------


def needs_fixed_shapes(strategy):
    """True where a compiled step serves one shape only."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def gains_from_parts(strategy):
    """True where a batch is computed sooner as parts side by side: on one device, the CPU."""
    return strategy.num_replicas_in_sync == 1 and all(
        device.device_type == "CPU" for device in tf.config.list_logical_devices()
    )


def per_replica_batch_size(strategy, global_batch_size, flag):
    """Examples per replica.

    Raises:
      file_io.InputError: the global batch does not divide by the number of replicas.
    """
    replicas = strategy.num_replicas_in_sync
    if global_batch_size % replicas:
        raise file_io.InputError(
            f"{flag}={global_batch_size} must be a multiple of the {replicas} replicas"
        )
    return global_batch_size // replicas


def distribute(strategy, input_fn, global_batch_size, flag, endless=False, **params):
    """Dataset of an input function, distributed if there are several replicas or a TPU.

    Args:
      strategy: the strategy.
      input_fn: see `records`.
      global_batch_size: examples per step over all replicas.
      flag: the flag that says so, for messages.
      endless: the dataset never ends, so that no step needs to ask all replicas whether they still
        have a batch.
      **params: further params for `input_fn`.

    Raises:
      file_io.InputError: see `per_replica_batch_size`.
    """
    batch_size = per_replica_batch_size(strategy, global_batch_size, flag)
    # The thread that tunes a pipeline may sleep through its end. Whoever lets go of the iterator
    # then waits for it, about as long as the iterator was in use (up to a minute).
    options = tf.data.Options()
    options.autotune.enabled = False

    def dataset_fn(context):
        dataset = input_fn(
            {
                "batch_size": batch_size,
                "fixed_shapes": needs_fixed_shapes(strategy),
                "num_input_pipelines": context.num_input_pipelines,
                "input_pipeline_id": context.input_pipeline_id,
                "replicas_per_pipeline": (
                    context.num_replicas_in_sync // context.num_input_pipelines
                ),
                **params,
            }
        )
        if endless:
            endlessly = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            dataset = dataset.apply(endlessly)
        return dataset.with_options(options)

    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        # What the strategy would put around it is tuned in any case.
        return dataset_fn(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(dataset_fn)
