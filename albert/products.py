"""Matrix products in the types that a model computes in.

A processor without units for a low precision type emulates its products, several times slower than
those of float32. There the product is taken in float32 and rounded, which is what the units do:
they, too, add up in float32. Activations stay small in memory either way.
"""

import functools

import tensorflow as tf

from albert import file_io

# Signs of such units among the features that Linux tells of a processor.
_UNITS = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"avx512_fp16", "fphp"}}
_PROCESSOR_FILE = "/proc/cpuinfo"


@functools.cache
def _processor_features():
    if not file_io.exists(_PROCESSOR_FILE):
        return frozenset()
    with file_io.open_file(_PROCESSOR_FILE) as file:
        lines = (line.partition(":") for line in file)
        return frozenset(
            word for name, _, words in lines if name.strip() in ("flags", "Features")
            for word in words.split()
        )  # fmt: skip


def has_units(dtype):
    """Whether the devices multiply matrices of this type at least as fast as float32 ones."""
    if dtype == tf.float32:
        return True
    if any(device.device_type != "CPU" for device in tf.config.list_logical_devices()):
        return True
    return not _UNITS[dtype.name].isdisjoint(_processor_features())


def _rounded(a, b, **transposed):
    product = tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), **transposed)
    return tf.cast(product, a.dtype)


def matmul(a, b, transpose_b=False):
    """``a @ b``, or ``a @ b^T``, of tensors [..., rows, inner] of one type, in that type."""
    if has_units(a.dtype):
        return tf.matmul(a, b, transpose_b=transpose_b)

    @tf.custom_gradient
    def product(a, b):
        # By hand, as the derived gradient would keep the float32 copies until then.
        def gradient(upstream):
            # Else the copies would be made, or the forward ones kept, long before they are needed.
            with tf.control_dependencies([upstream]):
                left, right = tf.identity(a), tf.identity(b)
            if transpose_b:
                return _rounded(upstream, right), _rounded(upstream, left, transpose_a=True)
            by_left = _rounded(upstream, right, transpose_b=True)
            return by_left, _rounded(left, upstream, transpose_a=True)

        return _rounded(a, b, transpose_b=transpose_b), gradient

    return product(a, b)


def column_sums(x):
    """[rows, width] -> [width], in the type of x.

    Taken as a product with ones: on a CPU in half the time of a sum, and added up in float32 in any
    type.
    """
    return matmul(tf.ones([1, tf.shape(x)[0]], x.dtype), x)[0]
