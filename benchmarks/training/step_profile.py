"""Measures where the time of one training or inference step goes, and how fast its products are.

    python -m benchmarks.training.step_profile
    python -m benchmarks.training.step_profile --albert_config_files=configs/albert_small.json

A profile of TensorFlow lists every operation of the steps of `training_step`. Here the batch is one
part and everything runs on one core, one operation after the other: so their times add up to that
of the step, and what they leave is the overhead of starting them. The last columns are speeds in
GFLOP per second: of the whole step, and of the matrix products of a block alone.
"""

import collections
import glob
import os
import re
import tempfile
import time

import tensorflow as tf
from absl import flags

from albert.model import encoder, layers
from benchmarks import harness
from benchmarks.training import training_step

FLAGS = flags.FLAGS
_ROWS = 16 * 128
_STEPS = 5
_GROUPS = ("products", "attention", "normalization", "gelu and biases", "bias gradients",
           "optimizer", "embeddings", "casts and copies", "other operations")  # fmt: skip
# The first pattern that is found in "function or scope/name:Type" of an operation decides.
_PATTERNS = (
    ("bias gradients", "column_sums"),
    ("optimizer", "optimizer/|_assign"),
    ("attention", r"softmax|:\w*(BatchMatMul|Softmax|GatherV2|Transpose|Unpack|Pack)"),
    ("products", r"MatMul\w*$"),
    ("normalization", "residual_norm"),
    ("gelu and biases", "gelu|add_bias|BiasAdd"),
    ("embeddings", "UnsortedSegmentSum|ResourceGather"),
    (
        "casts and copies",
        ":(Cast|ConcatV2|Identity|Split|SplitV|StridedSlice|ReadVariableOp|AddN)$",
    ),
)


def define_flags():
    training_step.define_flags()
    flags.DEFINE_list("albert_config_files", [harness.config_file("base_v2")], "Sizes of models.")


def _group(name):
    return next((group for group, pattern in _PATTERNS if re.search(pattern, name)), _GROUPS[-1])


def _operations(line, plane):
    """Yields the name and the seconds of each operation of a thread in a profile."""
    names = {number: value.name for number, value in plane.event_metadata.items()}
    events = sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps))
    for number, event in enumerate(events):
        name, seconds = names[event.metadata_id], event.duration_ps / 1e12
        if re.fullmatch(r"[\w./-]+:\w+", name):
            yield name, seconds
        elif name == "ExecutorState::ProcessAsync::Start":  # a compiled function
            module = ""
            for inner in events[number:]:
                if inner.offset_ps > event.offset_ps + event.duration_ps:
                    break
                for stat in inner.stats:
                    if plane.stat_metadata[stat.metadata_id].name == "hlo_module":
                        module = stat.str_value or plane.stat_metadata[stat.ref_value].name
            yield module, seconds


def _profile(side):
    """Returns the seconds of a step, and {group of operations: seconds of a step}."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    side.run()
    side.run()
    started = time.perf_counter()
    for _ in range(_STEPS):
        side.run()
    step = (time.perf_counter() - started) / _STEPS
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        seconds = sum(side.run() for _ in range(_STEPS)) / _STEPS
        tf.profiler.experimental.stop()
        (path,) = glob.glob(os.path.join(folder, "plugins/profile/*/*.xplane.pb"))
        with open(path, "rb") as file:
            space = xplane_pb2.XSpace.FromString(file.read())
    shares = collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for name, duration in _operations(line, plane):
                shares[_group(name)] += duration / _STEPS / seconds
    return step, shares


def _shapes(config, mode):
    """Returns ``[rows, inner, columns, which of the factors are transposed]`` of a block."""
    hidden, inner = config.hidden_size, config.intermediate_size
    for inputs, outputs in (
        (hidden, 3 * hidden),
        (hidden, hidden),
        (hidden, inner),
        (inner, hidden),
    ):
        yield _ROWS, inputs, outputs, {}
        if mode == "train":
            yield _ROWS, outputs, inputs, {"transpose_b": True}
            yield inputs, _ROWS, outputs, {"transpose_a": True}


def _bare_speed(config, mode, dtype):
    """Returns the speed of a block's products alone, in GFLOP per second."""
    operations = seconds = 0
    for rows, inner, columns, transposed in _shapes(config, mode):
        shapes = [[rows, inner], [inner, columns]]
        if "transpose_a" in transposed:
            shapes[0].reverse()
        if "transpose_b" in transposed:
            shapes[1].reverse()
        left, right = (tf.cast(tf.random.normal(shape), dtype) for shape in shapes)
        times = []
        for _ in range(30):
            started = time.perf_counter()
            tf.matmul(left, right, **transposed)
            times.append(time.perf_counter() - started)
        operations += 2 * rows * inner * columns
        seconds += sorted(times)[len(times) // 2]
    return operations / seconds / 1e9


def _floating_operations(config, mode):
    """Returns the operations of a step's products of weights: the last layer reads one position."""
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = 4 * hidden**2 + 2 * hidden * inner
    blocks = (config.num_hidden_layers - 1) * layer + 2 * hidden**2
    return 2 * _ROWS * blocks * (3 if mode == "train" else 1)


def main():
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    whole = layers.Compute
    layers.Compute = lambda dtype, **settings: whole(dtype, **{**settings, "parts": 1})
    print(harness.machine(tf))
    print(
        "| model | step | precision | ms | " + " | ".join(_GROUPS) + " | overhead | step | bare |"
    )
    print("|" + "---|" * (len(_GROUPS) + 7))
    for path in FLAGS.albert_config_files:
        FLAGS.albert_config_file, FLAGS.batches = path, 1
        config = encoder.AlbertConfig.from_json_file(path)
        batches = list(training_step.full_batches())
        for mode in FLAGS.modes:
            for dtype in FLAGS.dtypes:
                step, shares = _profile(training_step.Ours(batches, mode, dtype))
                bare = _bare_speed(config, mode, dtype)
                reached = _floating_operations(config, mode) / step / 1e9
                cells = [f"{100 * shares[group]:.0f}%" for group in _GROUPS]
                cells.append(f"{100 * (1 - sum(shares.values())):.0f}%")
                name = os.path.basename(path).removesuffix(".json").removeprefix("albert_")
                row = [name, mode, dtype, f"{1e3 * step:.0f}", *cells, f"{reached:.0f}"]
                print("| " + " | ".join([*row, f"{bare:.0f}"]) + " |", flush=True)


if __name__ == "__main__":
    harness.run(main, define_flags)
