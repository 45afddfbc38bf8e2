"""Where a run computes: one device, several GPUs, several workers or a TPU.

The engine only sees the `tf.distribute.Strategy` that `create_strategy` returns.
"""

import json
import os

import tensorflow as tf

from albert import file_io

STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")


def create_strategy(name, tpu_name=None, tpu_zone=None, gcp_project=None, master=None):
    """The strategy of that name.

    Args:
      name: one of `STRATEGIES`.
      tpu_name: name or address of the TPU; `master` is taken if it is not given.
      tpu_zone: Google Cloud zone of the TPU.
      gcp_project: Google Cloud project of the TPU.
      master: ``grpc://…`` address of the TPU.

    Raises:
      file_io.InputError: unknown name, or the devices are not there.
    """
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("GPU:0" if _gpus() else "CPU:0")
    if name == "mirrored":
        # Without a GPU the logical CPU devices serve, which is how this is tested.
        devices = _gpus() or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if name == "multi_worker":
        _check_tf_config()
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "tpu":
        return _tpu_strategy(tpu_name or master, tpu_zone, gcp_project)
    raise file_io.InputError(
        f"--distribution_strategy={name} is not known; known: {', '.join(STRATEGIES)}"
    )


def _gpus():
    return tf.config.list_logical_devices("GPU")


def _check_tf_config():
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        config["cluster"]["worker"], config["task"]["index"]  # noqa: B018 (are they there?)
    except (ValueError, KeyError, TypeError) as error:
        raise file_io.InputError(
            "--distribution_strategy=multi_worker needs the environment variable TF_CONFIG with "
            '"cluster": {"worker": [host:port, …]} and "task": {"type": "worker", "index": i}; '
            f"found {os.environ.get('TF_CONFIG')!r}"
        ) from error


def _tpu_strategy(address, zone, project):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address, zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError, OSError) as error:
        raise file_io.InputError(
            f"no TPU found under {address!r} (--tpu_name or --master): {error}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def is_chief(strategy):
    """True for the one process that writes files."""
    resolver = strategy.cluster_resolver
    return resolver is None or not resolver.task_type or resolver.task_id == 0


def needs_fixed_shapes(strategy):
    """True where a compiled step serves one shape only."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def per_replica_batch_size(strategy, global_batch_size, flag):
    """Examples per replica.

    Raises:
      file_io.InputError: the global batch does not divide by the number of replicas.
    """
    replicas = strategy.num_replicas_in_sync
    if global_batch_size % replicas:
        raise file_io.InputError(
            f"--{flag}={global_batch_size} must be a multiple of the {replicas} replicas"
        )
    return global_batch_size // replicas


def distribute(strategy, input_fn, global_batch_size, flag, **params):
    """Distributed dataset of an input function; see `records` for the params it is given."""
    batch_size = per_replica_batch_size(strategy, global_batch_size, flag)

    def dataset_fn(context):
        return input_fn(
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

    return strategy.distribute_datasets_from_function(dataset_fn)
