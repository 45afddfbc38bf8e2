"""Distributes a run over its devices: one device, several GPUs, several workers or a TPU.

The engine only sees the `tf.distribute.Strategy` that `create_strategy` returns. Workers are
processes that run the same command. `TF_CONFIG` lists all workers and identifies this one. Each
batch is split among all their devices. One worker, the chief, writes the files.
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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from albert.io import file_io, processes, signals
from albert.model import kernels, layers

T = TypeVar("T")

# --- TPUs -----------------------------------------------------------------------------------------

SECONDS_TO_ANSWER = 90  # wait for a TPU, which may still be starting
SECONDS_BETWEEN_LINES = 30  # between log lines while the TPU does not answer
# The RPC that asks a server for its devices. TensorFlow also starts with it, but waits forever.
_STATUS = "/tensorflow.WorkerService/GetStatus"


def find(
    address: str | None,
    zone: str | None = None,
    project: str | None = None,
    seconds: float = SECONDS_TO_ANSWER,
) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Returns the resolver of a TPU once all its servers answer, within `seconds`.

    Args:
      address: ``grpc://host:port``, "local", or the name of a Google Cloud TPU; None for the TPU
        named in the environment.
      zone, project: Google Cloud zone and project of a named TPU; None: TensorFlow finds them.
    """
    end = time.monotonic() + seconds
    logging.info("Connecting to the TPU %s; it has %d seconds to answer", _place(address), seconds)
    # For a name the resolver asks Google Cloud, up to four times and without a time limit.
    with _tpu_errors(address), _limit_requests(seconds / 4):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=zone, project=project
        )
        cluster = resolver.cluster_spec()
    for job in cluster.jobs:
        for server in cluster.job_tasks(job):
            _wait_for(server, end, seconds)
    return resolver


def connect(
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver, address: str | None
) -> None:
    """Connects to a TPU found by `find` and initializes it; the address is for messages."""
    with _tpu_errors(address):
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)


def _place(address: str | None) -> str:
    """Returns where a TPU was looked for; `address`: its name or host:port, None: this machine."""
    return f"under {address!r}" if address else "on this machine"


@contextlib.contextmanager
def _tpu_errors(address: str | None) -> Iterator[None]:
    """Turns errors in the block into one that no TPU was found at an address; None: here."""
    try:
        yield
    except (ValueError, RuntimeError, ImportError, OSError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]  # lists of kernels may follow
        raise file_io.InputError(
            f"no TPU found {_place(address)}; give its address as tpu_name or `master`: {reason}"
        ) from error


@contextlib.contextmanager
def _limit_requests(seconds: float) -> Iterator[None]:
    """Limits the seconds that Python's network requests wait in the block."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _wait_for(server: str, end: float, seconds: float) -> None:
    """Waits until the TensorFlow server at host:port answers, and logs that it waits.

    Args:
      end: value of `time.monotonic()` at which the wait fails.
      seconds: length of the wait, for messages.
    """
    import grpc  # needed only for TPUs

    # Maximum pause before a connection is tried again.
    options = [("grpc.max_reconnect_backoff_ms", 1000)]
    with grpc.insecure_channel(server, options) as channel:
        ask = channel.unary_unary(_STATUS)
        while True:
            seconds_left = max(end - time.monotonic(), 0.1)
            try:
                ask(b"", timeout=min(seconds_left, SECONDS_BETWEEN_LINES), wait_for_ready=True)
                return
            except grpc.RpcError as error:
                code, details = error.code(), error.details()
            if code not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                raise file_io.InputError(
                    f"the server at {server} is not a TPU: {details} ({code.name}); give the "
                    "address of a TPU as tpu_name or `master`"
                )
            if time.monotonic() >= end:
                raise file_io.InputError(
                    f"the TPU at {server} has not answered within {seconds} seconds. Check that it "
                    "runs, that tpu_name or `master` has its address, and that no firewall blocks "
                    "this machine. On a TPU VM give tpu_name=local"
                )
            logging.info("Still waiting: no answer from the TPU at %s", server)
            if code is grpc.StatusCode.UNAVAILABLE:  # The connection broke.
                time.sleep(1)


# --- strategies -----------------------------------------------------------------------------------


STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
_MAX_VALUES = 3  # maximum number of values for `largest_of_workers`
_CHUNK, _LENGTH_DIGITS = 4096, 10  # sizes in bytes for messages from the chief
# Errors raised by operations that wait for a lost worker.
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
      index: position of this process in `addresses`.
    """

    addresses: tuple[str, ...]
    index: int

    def name(self, index: int) -> str:
        """Returns the name of the worker with this position in `addresses`, for messages."""
        return f"worker {index} ({self.addresses[index]})"


def cluster_of(tf_config: str | None) -> Cluster | None:
    """Parses the text of ``TF_CONFIG`` (None: unset); None if it lists fewer than two workers."""
    if not tf_config:
        return None
    try:
        config = file_io.parse_json(tf_config)
    except file_io.InputError as error:
        raise _tf_config_error(tf_config, f"is not JSON ({error})") from error
    try:
        return _parse_cluster(config)
    except file_io.InputError as error:
        raise _tf_config_error(tf_config, str(error)) from None


def _parse_cluster(config: object) -> Cluster | None:
    """Builds the `Cluster` from the content of ``TF_CONFIG``; None for fewer than two workers."""
    if not isinstance(config, dict):
        raise file_io.InputError("is not a JSON object")
    jobs, task = config.get("cluster", {}), config.get("task", {})
    if not isinstance(jobs, dict) or not isinstance(task, dict):
        raise file_io.InputError('must have objects as "cluster" and "task"')
    job, index = task.get("type", "worker"), str(task.get("index", ""))
    if job not in ("chief", "worker"):
        raise file_io.InputError(
            f'makes this process a task of type "{job}"; expected chief or worker. To evaluate '
            "while a run trains, unset TF_CONFIG and give nodo_train do_eval "
            "eval_wait_secs=3600"
        )
    for name in ("chief", "worker"):
        workers = jobs.get(name, [])
        if not isinstance(workers, list) or not all(map(_is_address, workers)):
            raise file_io.InputError(f'must have a list of "host:port" as "{name}"')
    addresses = [*jobs.get("chief", []), *jobs.get("worker", [])]
    if len(jobs.get("chief", [])) > 1:
        raise file_io.InputError("has more than one chief")
    if len(set(addresses)) < len(addresses):
        raise file_io.InputError("has the same address twice")
    if task and not addresses:
        raise file_io.InputError('has a "task" but no workers under "cluster"')
    if len(addresses) < 2:
        return None
    count = len(jobs.get(job, []))
    if not count:
        raise file_io.InputError(f'makes this process a {job}, but "cluster" has no {job}')
    if not index.isdecimal() or int(index) >= count:
        raise file_io.InputError(
            f'must have an "index" from 0 to {count - 1}, as there are {count} {job}s'
        )
    return Cluster(tuple(addresses), addresses.index(jobs[job][int(index)]))


def _is_address(value: object) -> bool:
    """Returns whether a value of JSON is a text like "host:port"."""
    return isinstance(value, str) and bool(re.fullmatch(r"\S+:\d+", value))


def _tf_config_error(value: str | None, what: str) -> file_io.InputError:
    """Returns the error of a ``TF_CONFIG`` with this value; `what` follows its name."""
    return file_io.InputError(
        f"the environment variable TF_CONFIG {what}. Expected something like "
        '{"cluster": {"worker": ["host1:12345", "host2:12345"]}, '
        '"task": {"type": "worker", "index": 0}}; found ' + repr(value)
    )


def create_strategy(
    name: str = "auto",
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    master: str | None = None,
    compute: layers.Compute = layers.Compute(),
) -> tf.distribute.Strategy:
    """Builds the strategy; call this before any other use of TensorFlow.

    Args:
      name: one of `STRATEGIES`. "auto" selects several workers if ``TF_CONFIG`` lists them, else
        several GPUs if the machine has them, else one device.
      tpu_name: name or address of the TPU; defaults to `master`.
      tpu_zone, gcp_project: Google Cloud zone and project of the TPU; None: TensorFlow finds them.
      master: ``grpc://…`` address of the TPU; both None: the TPU named in the environment.
      compute: how the model will compute, see `use_one_core_per_part`.
    """
    if name not in STRATEGIES:
        raise file_io.InputError(
            f"distribution_strategy={name}: expected one of {', '.join(STRATEGIES)}"
        )
    if name == "tpu":
        return _tpu_strategy(tpu_name or master, tpu_zone, gcp_project)
    tf_config = os.environ.get("TF_CONFIG")
    if name == "auto":
        has_several = len(tf.config.list_physical_devices("GPU")) > 1
        alone = "mirrored" if has_several else "one_device"
        name = "multi_worker" if cluster_of(tf_config) else alone
    if name == "multi_worker":
        cluster = cluster_of(tf_config)
        if not cluster:
            raise _tf_config_error(tf_config, "must list at least two workers")
        return _multi_worker_strategy(cluster)
    if name == "one_device":
        use_one_core_per_part(compute)
        return tf.distribute.OneDeviceStrategy("GPU:0" if _gpus() else "CPU:0")
    # Without a GPU the logical CPU devices are used, as in the tests.
    devices = _gpus() or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _multi_worker_strategy(cluster: Cluster) -> tf.distribute.Strategy:
    wait_for_workers(cluster)
    with _end_on_signals():
        return tf.distribute.MultiWorkerMirroredStrategy()


@contextlib.contextmanager
def _end_on_signals() -> Iterator[None]:
    """Lets signals end the process while TensorFlow connects and Python cannot handle them."""
    handlers = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, *signals.end_signals())}
    for kind in handlers:
        signal.signal(kind, signal.SIG_DFL)
    try:
        yield
    finally:
        # TensorFlow has now installed its own SIGTERM handler, which only sets a flag.
        for kind, handler in handlers.items():
            signal.signal(kind, handler)


def wait_for_workers(cluster: Cluster, seconds_between_lines: float = 30) -> None:
    """Waits until all workers have started, and logs which ones are missing.

    TensorFlow would also wait for them, but silently and without reacting to signals.
    """
    own = cluster.name(cluster.index)
    logging.info("This is %s of %d; waiting for the others", own, len(cluster.addresses))
    silent = set(range(len(cluster.addresses))) - {cluster.index}
    logged = time.monotonic()
    try:
        listener = _listen(int(cluster.addresses[cluster.index].rpartition(":")[2]))
    except OSError as error:
        raise file_io.InputError(
            f"{own} cannot use its port: {error.strerror}; give each worker its own address with a "
            "free port"
        ) from error
    with listener:
        while silent:
            silent = {index for index in silent if not _is_answering(cluster.addresses[index])}
            if silent and time.monotonic() > logged + seconds_between_lines:
                logged = time.monotonic()
                names = ", ".join(map(cluster.name, sorted(silent)))
                logging.info("Still waiting: no answer from %s", names)
            time.sleep(0.2)


def _listen(port: int) -> socket.socket:
    """Opens a port by which other workers see, until TensorFlow starts, that this one runs."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024
        )
    return socket.create_server(("", port), backlog=1024)


def _is_answering(address: str) -> bool:
    """Returns whether a process listens at host:port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except OSError:
        return False


def _gpus() -> list[tf.config.LogicalDevice]:
    return tf.config.list_logical_devices("GPU")


def _tpu_strategy(
    address: str | None, zone: str | None, project: str | None
) -> tf.distribute.Strategy:
    """Returns the strategy of a TPU; the arguments are those of `find`."""
    resolver = find(address, zone, project)
    with _end_on_signals():
        connect(resolver, address)
    return tf.distribute.TPUStrategy(resolver)


# --- workers ------------------------------------------------------------------------------------


def workers(strategy: tf.distribute.Strategy) -> Cluster | None:
    """Returns the `Cluster` of a strategy; None unless it has several workers."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    return cluster_of(os.environ.get("TF_CONFIG"))


def use_xla() -> None:
    """Enables XLA autoclustering in every graph; variables and shapes need no change."""
    if not _gpus():
        raise file_io.InputError(
            "use_xla needs a GPU, and there is none: on a CPU, XLA makes whole graphs slower, and "
            "the functions that gain from it are always compiled; leave it out"
        )
    tf.config.optimizer.set_jit("autoclustering")


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this is the process that writes files."""
    cluster = workers(strategy)
    return cluster is None or cluster.index == 0


def from_chief(strategy: tf.distribute.Strategy, make: Callable[[], T]) -> T:
    """Calls ``make()`` in the chief and returns its result in every worker.

    So the workers agree on the state of the files, even if each would read them at another time.
    All must call this function, and wait for the chief. The result must be JSON.
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
        chunk = _first_replica_values(strategy)(values)
        chunk = strategy.experimental_local_results(chunk)[0].numpy()
        received += bytes(chunk.astype(np.uint8))
        end = _LENGTH_DIGITS + int(received[:_LENGTH_DIGITS])
    return json.loads(received[_LENGTH_DIGITS:end])


def can_stop_alone(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a process may leave a compiled loop before its last step."""
    return workers(strategy) is None and not needs_fixed_shapes(strategy)


def largest_of_workers(strategy: tf.distribute.Strategy, value: int) -> int:
    """Returns the maximum of a number, 0 to 2, over the workers; all must call this function."""
    if workers(strategy) is None:
        return value
    sums = _replica_sums(strategy)(np.eye(_MAX_VALUES, dtype=np.float32)[value])
    return int(np.flatnonzero(strategy.experimental_local_results(sums)[0])[-1])


@functools.cache
def _replica_sums(strategy: tf.distribute.Strategy) -> Callable[[np.ndarray], tf.Tensor]:
    """Returns ``(array) -> its sum over all replicas``, of its shape, compiled once per run."""

    def replica_sum(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        # A copy, because the sum needs a device, which an argument does not have.
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

    return tf.function(lambda values: strategy.run(replica_sum, (values,)), autograph=False)


@functools.cache
def _first_replica_values(strategy: tf.distribute.Strategy) -> Callable[[np.ndarray], tf.Tensor]:
    """Returns ``(array) -> that of the first replica (chief)``, of its shape, compiled once."""

    def replica_values(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        counts = tf.cast(tf.equal(context.replica_id_in_sync_group, 0), tf.float32)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, counts * values)

    return tf.function(lambda values: strategy.run(replica_values, (values,)), autograph=False)


@contextlib.contextmanager
def chief_first(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Runs the block in the chief first, so that the other workers find the files it made."""
    if not is_chief(strategy):
        from_chief(strategy, lambda: None)
    yield
    if is_chief(strategy):
        from_chief(strategy, lambda: None)


def check_agreement(strategy: tf.distribute.Strategy, settings: dict[str, Any]) -> None:
    """Checks that all workers have the same {setting: JSON value}; else they could deadlock."""
    # Compared as text, because NaN does not equal itself.
    mine = {key: json.dumps(value) for key, value in settings.items()}
    chief_settings = from_chief(strategy, lambda: mine)
    different = [
        f"{key} is {mine.get(key)} here, {chief_settings.get(key)} in the chief"
        for key in sorted({*mine, *chief_settings})
        if mine.get(key) != chief_settings.get(key)
    ]
    if different:
        raise file_io.InputError(
            f"all workers must be started with the same flags and files; {'; '.join(different)}"
        )


def check_same_weights(strategy: tf.distribute.Strategy, variables: Iterable[tf.Variable]) -> None:
    """Checks that variables have the same values in all workers, which training would not align."""
    if workers(strategy) is None:
        return
    digest = hashlib.sha256()
    for variable in variables:
        digest.update(variable.numpy().tobytes())
    check_agreement(strategy, {"the checksum of the initial weights": digest.hexdigest()[:12]})


def lost_worker(error: BaseException) -> str | None:
    """Returns a message if an error was caused by the loss of another worker; else None.

    TensorFlow notices a broken connection immediately, and a silent worker when its heartbeat is
    missing. Both end the operation that waits for the worker.
    """
    if not isinstance(error, tf.errors.OpError):
        return None
    try:
        cluster = cluster_of(os.environ.get("TF_CONFIG"))
    except file_io.InputError:  # The run does not use TF_CONFIG.
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
        f"{who} ended or cannot be reached, so {cluster.name(cluster.index)} also ends; see the "
        "other worker's output for the reason. Rerun the same commands to resume from the last "
        "checkpoint"
    )


# --- batches ------------------------------------------------------------------------------------


def needs_fixed_shapes(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a compiled step supports only one shape."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def gains_from_parts(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether computing parts of a batch in parallel is faster: on a single CPU."""
    return strategy.num_replicas_in_sync == 1 and all(
        device.device_type == "CPU" for device in tf.config.list_logical_devices()
    )


def use_one_core_per_part(compute: layers.Compute) -> None:
    """Computes each part of a batch on its own core where that is faster; call before TensorFlow.

    TensorFlow otherwise divides every operation among all cores. With matrix units an operation is
    so short that the cores would mostly wait for each other.
    """
    is_faster = kernels.has_matrix_units(tf.as_dtype(compute.dtype))
    uses_all_cores = compute.parts == processes.num_cores()
    if tf.config.list_physical_devices("GPU") or not is_faster or not uses_all_cores:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:
        logging.info("TensorFlow has started: its operations are divided among all cores")


def per_replica_batch_size(
    strategy: tf.distribute.Strategy, global_batch_size: int, flag: str
) -> int:
    """Returns the number of examples per replica; `flag` names the batch size in messages."""
    replicas = strategy.num_replicas_in_sync
    if global_batch_size % replicas:
        raise file_io.InputError(
            f"{flag}={global_batch_size} must be a multiple of the {replicas} replicas"
        )
    return global_batch_size // replicas


def distribute(
    strategy: tf.distribute.Strategy,
    input_fn: Callable[[dict[str, Any]], tf.data.Dataset],
    global_batch_size: int,
    flag: str,
    endless: bool = False,
    **params: Any,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Builds the dataset of an input function, distributed over replicas or a TPU if needed.

    Args:
      input_fn: makes the dataset from {parameter: value}, see `input_pipeline.train_input_fn`.
      flag: name of the flag that sets the batch size, for messages.
      endless: whether the dataset never ends; then no step needs to check whether all replicas
        have a batch.
      **params: further parameters that `input_fn` gets.
    """
    batch_size = per_replica_batch_size(strategy, global_batch_size, flag)
    # The autotune thread may sleep past the end of the pipeline. Deleting the iterator then waits
    # for the thread, about as long as the iterator was in use (up to a minute).
    options = tf.data.Options()
    options.autotune.enabled = False

    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
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
            is_endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
            dataset = dataset.apply(is_endless)
        return dataset.with_options(options)

    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        # The strategy would wrap it in a pipeline that is always autotuned.
        return dataset_fn(tf.distribute.InputContext())
    return strategy.distribute_datasets_from_function(dataset_fn)
