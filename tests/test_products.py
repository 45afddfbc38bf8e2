"""Low precision products, with and without units for them."""

import numpy as np
import pytest
import tensorflow as tf

from albert import products
from tests.test_layers import optimized_nodes

LOW = ("bfloat16", "float16")


@pytest.fixture
def processor(monkeypatch, tmp_path):
    def describe(text):
        path = tmp_path / "cpuinfo"
        path.write_text(text)
        monkeypatch.setattr(products, "_PROCESSOR_FILE", str(path))
        products._processor_features.cache_clear()

    devices = [tf.config.LogicalDevice("/device:CPU:0", "CPU")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    yield describe
    products._processor_features.cache_clear()


@pytest.mark.parametrize(
    ("text", "bfloat16", "float16"),
    [
        ("flags\t\t: fpu avx512f avx512_vnni\nflags\t\t: fpu\n", False, False),
        ("model name\t: amx_bf16\nflags\t\t: fpu avx512_bf16\n", True, False),
        ("flags\t\t: amx_tile amx_bf16 avx512_fp16\n", True, True),
        ("Features\t: fp asimd asimdhp fphp bf16\n", True, True),
        ("", False, False),
    ],
)
def test_units_are_read_from_the_processors_features(processor, text, bfloat16, float16):
    processor(text)
    assert products.has_units(tf.float32)
    assert products.has_units(tf.bfloat16) is bfloat16
    assert products.has_units(tf.float16) is float16


def test_a_system_that_tells_nothing_has_no_units(monkeypatch, processor, tmp_path):
    processor("flags : amx_bf16")
    monkeypatch.setattr(products, "_PROCESSOR_FILE", str(tmp_path / "missing"))
    assert not products.has_units(tf.bfloat16)


def test_other_devices_than_processors_do_without_a_look(monkeypatch, processor):
    processor("")
    devices = [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    assert products.has_units(tf.bfloat16)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("outer", [(), (2, 3)])
def test_products_without_units_are_those_of_units(monkeypatch, dtype, transpose_b, outer):
    rng = np.random.default_rng(1)
    # Small integers: exact in every type and order of adding up.
    draw = lambda *shape: tf.constant(rng.integers(-4, 5, (*outer, *shape)), dtype)  # noqa: E731
    a, b = draw(4, 7), draw(*((5, 7) if transpose_b else (7, 5)))
    upstream = draw(4, 5)
    results = []
    for units in (True, False):
        monkeypatch.setattr(products, "has_units", lambda dtype, units=units: units)
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            product = products.matmul(a, b, transpose_b=transpose_b)
        results.append([product, *tape.gradient(product, [a, b], upstream)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype == tf.dtypes.as_dtype(dtype)
        np.testing.assert_array_equal(ours, theirs)


def test_sums_are_rounded_once(monkeypatch):
    monkeypatch.setattr(products, "has_units", lambda dtype: False)
    ones = tf.ones([1, 1024], tf.bfloat16)
    tiny = tf.fill([1024, 1], tf.constant(2.0**-9, tf.bfloat16))
    large = tf.concat([[[1.0]], tf.cast(tiny, tf.float32)[1:]], 0)
    product = products.matmul(ones, tf.cast(large, tf.bfloat16))
    # Added up in bfloat16 each of the small terms would be lost: 1 + 2^-9 is 1 there.
    assert float(product[0, 0]) == pytest.approx(1 + 1023 * 2**-9, rel=2**-8)


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("dtype", ["float32", *LOW])
def test_columns_are_summed_in_any_type(monkeypatch, dtype, units):
    monkeypatch.setattr(products, "has_units", lambda dtype: units)
    x = tf.constant(np.random.default_rng(1).integers(-4, 5, (9, 5)), dtype)
    sums = products.column_sums(x)
    np.testing.assert_array_equal(sums, x.numpy().sum(0))
    assert sums.dtype == x.dtype


def test_the_backward_pass_keeps_the_small_tensors(monkeypatch):
    monkeypatch.setattr(products, "has_units", lambda dtype: False)

    @tf.function
    def step(x, kernel):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            hidden = tf.tanh(products.matmul(x, kernel))
            output = products.matmul(hidden, kernel)
        return output, tape.gradient(output, [x, kernel])

    spec = tf.TensorSpec([None, 8], tf.bfloat16)
    nodes = optimized_nodes(step.get_concrete_function(spec, spec))
    by_name = {node.name: node for node in nodes}

    def ancestors(name, seen):
        """Names of the nodes that a node waits for."""
        for source in by_name[name].input:
            source = source.lstrip("^").split(":")[0]
            if source not in seen:
                seen.add(source)
                ancestors(source, seen)
        return seen

    forward = [n.name for n in nodes if n.op == "Tanh"]
    backward = [n.name for n in nodes if n.op == "TanhGrad"]
    products_after = [
        n for n in nodes if n.op == "MatMul" and set(backward) & ancestors(n.name, set())
    ]
    assert len(forward) == len(backward) == 1 and len(products_after) == 2
    # Each float32 copy that they take is made after the gradient has come back.
    for product in products_after:
        for source in product.input:
            source = source.split(":")[0]
            assert by_name[source].op == "Cast"
            assert set(backward) & ancestors(source, set())
