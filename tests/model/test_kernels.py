"""Products in low precision, and compiled functions against their plain definitions."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from albert.model import kernels
from tests.support.builders import optimized_nodes

LOW = ("bfloat16", "float16")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_are_rounded_as_a_cast_does(dtype, compiled):
    bits = np.arange(0, 2**32, 32749, np.int64)  # of all exponents and signs
    halfway = (np.arange(2**16, dtype=np.int64) << 16) | 0x8000  # between two bfloat16 each
    patterns = np.concatenate([bits, halfway, halfway - 1, halfway + 1, halfway ^ 0x8000])
    x = tf.constant(patterns.astype(np.uint32).view(np.float32))
    narrowed = tf.function(
        lambda x: kernels.round_to(x, tf.dtypes.as_dtype(dtype)), autograph=False
    )
    if compiled:
        narrowed = tf.function(narrowed, jit_compile=True, autograph=False)
        # What is compiled takes the smallest numbers for 0, as the processor then does.
        x = tf.where(tf.abs(x) < np.finfo(np.float32).tiny, 0.0, x)
    found, expected = (tf.cast(y, tf.float32).numpy() for y in (narrowed(x), tf.cast(x, dtype)))
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


def outputs_and_gradients(function, inputs, upstream):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return y, *tape.gradient(y, inputs, upstream)


def plain_gelu(x, bias):
    return tf.nn.gelu(x + bias, approximate=True)


def plain_gelu_erf(x, bias):
    return tf.nn.gelu(x + bias, approximate=False)


def plain_norm(x, bias, residual, gamma, beta):
    return kernels.normalize(x + bias + residual, gamma, beta)


@pytest.mark.parametrize("width", [8, 256])  # narrow ones are not compiled
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("function", "plain", "shapes"),
    [
        (kernels.COMPILED.add_bias, lambda x, bias: x + bias, "mv"),
        (kernels.COMPILED.gelu, plain_gelu, "mv"),
        (kernels.COMPILED.gelu_erf, plain_gelu_erf, "mv"),
        (kernels.COMPILED.residual_norm, plain_norm, "mvmVV"),
        (kernels.PLAIN.add_bias, lambda x, bias: x + bias, "mv"),
        (kernels.PLAIN.gelu, plain_gelu, "mv"),
        (kernels.PLAIN.gelu_erf, plain_gelu_erf, "mv"),
        (kernels.PLAIN.residual_norm, plain_norm, "mvmVV"),
        (kernels.FUSED.gelu, plain_gelu, "mv"),
    ],
)
def test_functions_and_their_gradients_equal_the_plain_ones(function, plain, shapes, dtype, width):
    rng = np.random.default_rng(0)

    def draw(kind):
        return rng.normal(size=(5, width) if kind == "m" else width)

    # A capital stands for a vector that is float32 in any type.
    inputs = [tf.constant(draw(x), tf.float32 if x.isupper() else dtype) for x in shapes]
    upstream = tf.constant(draw("m"), dtype)
    found = outputs_and_gradients(function, inputs, upstream)
    wide = [tf.cast(x, tf.float32) for x in inputs]
    expected = outputs_and_gradients(plain, wide, tf.cast(upstream, tf.float32))
    tolerance = {"float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    for ours, exact, kind in zip(found, expected, "m" + shapes, strict=True):
        assert ours.dtype == (tf.float32 if kind.isupper() else dtype)
        np.testing.assert_allclose(
            tf.cast(ours, tf.float32), exact, rtol=10 * tolerance, atol=tolerance
        )


@pytest.mark.parametrize(
    ("function", "gelu"),
    [
        (
            kernels.gelu,
            lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        ),
        (kernels.gelu_erf, lambda x: x * stats.norm.cdf(x)),
    ],
    ids=["tanh", "erf"],
)
def test_the_gradient_of_gelu_is_its_slope(function, gelu):
    x = np.linspace(-4, 4, 33)
    step = 1e-3
    slope = (gelu(x + step) - gelu(x - step)) / (2 * step)
    inputs = [tf.constant(x[:, np.newaxis] - 0.5, tf.float32), tf.constant([0.5])]
    y, by_x, by_bias = outputs_and_gradients(function, inputs, None)
    np.testing.assert_allclose(y[:, 0], gelu(x), atol=1e-6)
    np.testing.assert_allclose(by_x[:, 0], slope, atol=1e-5)
    np.testing.assert_allclose(by_bias, [slope.sum()], atol=1e-4)


@pytest.mark.parametrize("classes", [2, 1000])
def test_cross_entropy_and_its_gradient_equal_the_plain_one(classes):
    rng = np.random.default_rng(0)
    logits = tf.constant(rng.normal(scale=5, size=(6, classes)), tf.float32)
    labels = tf.constant(rng.integers(classes, size=6), tf.int32)
    upstream = tf.constant(rng.normal(size=6), tf.float32)
    found = []
    for function in (kernels.cross_entropy, tf.nn.sparse_softmax_cross_entropy_with_logits):
        of_logits = functools.partial(function, labels)
        found.append(outputs_and_gradients(of_logits, [logits], upstream))
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 4, 13, 24, 200])  # the last is compiled
def test_masked_softmax_and_its_gradient_equal_the_plain_ones(masked, length):
    rng = np.random.default_rng(0)
    shape = (2, 3, length, length)
    scores, upstream = (tf.constant(rng.normal(size=shape), tf.float32) for _ in range(2))
    bias = tf.constant(rng.choice([0, -10000], (2, 1, 1, length)), tf.float32) if masked else None

    def plain(scores, bias):
        return tf.nn.softmax(scores if bias is None else scores + bias)

    found = []
    for function in (kernels.masked_softmax, plain):
        of_scores = functools.partial(function, bias=bias)
        found.append(outputs_and_gradients(of_scores, [scores], upstream))
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-7)
    assert kernels.masked_softmax(tf.cast(scores, tf.bfloat16), bias).dtype == tf.bfloat16


def test_what_is_kept_apart_has_all_gradients():
    x = tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = kernels.graph_barrier(kernels.graph_barrier(x) ** 3)
        first = inner.gradient(y, x)
    assert float(first) == 27 and float(outer.gradient(first, x)) == 18


# Products


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
def test_units_are_read_from_the_processors_features(
    monkeypatch, tmp_path, text, bfloat16, float16
):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices("CPU"))
    (tmp_path / "cpuinfo").write_text(text)
    found = [kernels.has_units(t, str(tmp_path / "cpuinfo")) for t in (tf.bfloat16, tf.float16)]
    assert found == [bfloat16, float16]
    assert kernels.has_units(tf.float32)


def test_a_system_that_tells_nothing_has_no_units(monkeypatch, tmp_path):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices("CPU"))
    assert not kernels.has_units(tf.bfloat16, str(tmp_path / "missing"))


def test_other_devices_than_processors_do_without_a_look(monkeypatch, tmp_path):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices("CPU", "GPU"))
    assert kernels.has_units(tf.bfloat16, str(tmp_path / "missing"))


def test_matrix_units_are_read_from_the_processors_features(tmp_path):
    path = tmp_path / "cpuinfo"
    for text, found in (("flags : amx_tile amx_bf16\n", True), ("flags : avx512_bf16\n", False)):
        path.write_text(text)
        kernels._processor_features.cache_clear()
        assert kernels.has_matrix_units(tf.bfloat16, str(path)) == found
        assert not kernels.has_matrix_units(tf.float32, str(path))


@pytest.mark.parametrize("matrix_units", [False, True])
def test_transposed_kernels_give_plain_products(monkeypatch, matrix_units):
    monkeypatch.setattr(kernels, "has_matrix_units", lambda dtype: matrix_units)
    rng = np.random.default_rng(1)
    x, kernel = (tf.constant(rng.integers(-4, 5, shape), "float32") for shape in ((4, 7), (7, 5)))
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        prepared = kernels.transposed_for_matmul(kernel)
        found = [kernels.product(x, part) for part in kernels.split_outputs(prepared, [2, 3])]
        found = tf.concat(found, 1)
    assert prepared.shape == ([5, 7] if matrix_units else [7, 5])
    np.testing.assert_array_equal(found, x.numpy() @ kernel.numpy())
    upstream = tf.constant(rng.integers(-4, 5, (4, 5)), "float32")
    gradient = tape.gradient(found, kernel, upstream)
    np.testing.assert_array_equal(gradient, x.numpy().T @ upstream.numpy())


@pytest.mark.parametrize("width", [4, 192])
@pytest.mark.parametrize("dtype", ["float32", *LOW])
def test_gradients_of_a_fork_are_added_up(dtype, width):
    rng = np.random.default_rng(1)
    x, one, other = (tf.constant(rng.normal(size=(3, width)), dtype) for _ in range(3))
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = kernels.fork(x)
    gradient = tape.gradient(outputs, x, [one, other])
    for output in outputs:
        np.testing.assert_array_equal(output, x)
    assert gradient.dtype == x.dtype
    np.testing.assert_array_equal(gradient, one + other)


def devices(*kinds):
    return [tf.config.LogicalDevice(f"/device:{kind}:0", kind) for kind in kinds]


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("outer", [(), (2, 3)])
def test_products_without_units_are_those_of_units(monkeypatch, dtype, transpose_b, outer):
    rng = np.random.default_rng(1)

    # Small integers: exact in every type and order of adding up.
    def draw(*shape):
        return tf.constant(rng.integers(-4, 5, (*outer, *shape)), dtype)

    a, b = draw(4, 7), draw(*((5, 7) if transpose_b else (7, 5)))
    upstream = draw(4, 5)
    results = []
    for units in (True, False):
        monkeypatch.setattr(kernels, "has_units", lambda dtype, units=units: units)
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            product = kernels.matmul(a, b, transpose_b=transpose_b)
        results.append([product, *tape.gradient(product, [a, b], upstream)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype == tf.dtypes.as_dtype(dtype)
        np.testing.assert_array_equal(ours, theirs)


def test_sums_are_rounded_once(monkeypatch):
    monkeypatch.setattr(kernels, "has_units", lambda dtype: False)
    ones = tf.ones([1, 1024], tf.bfloat16)
    tiny = tf.fill([1024, 1], tf.constant(2.0**-9, tf.bfloat16))
    large = tf.concat([[[1.0]], tf.cast(tiny, tf.float32)[1:]], 0)
    product = kernels.matmul(ones, tf.cast(large, tf.bfloat16))
    # Added up in bfloat16 each of the small terms would be lost: 1 + 2^-9 is 1 there.
    assert float(product[0, 0]) == pytest.approx(1 + 1023 * 2**-9, rel=2**-8)


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("dtype", ["float32", *LOW])
def test_columns_are_summed_in_any_type(monkeypatch, dtype, units):
    monkeypatch.setattr(kernels, "has_units", lambda dtype: units)
    x = tf.constant(np.random.default_rng(1).integers(-4, 5, (9, 5)), dtype)
    sums = kernels.column_sums(x)
    np.testing.assert_array_equal(sums, x.numpy().sum(0))
    assert sums.dtype == x.dtype


def test_the_backward_pass_keeps_the_small_tensors(monkeypatch):
    monkeypatch.setattr(kernels, "has_units", lambda dtype: False)

    @tf.function(autograph=False)
    def step(x, kernel):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            hidden = tf.tanh(kernels.matmul(x, kernel))
            output = kernels.matmul(hidden, kernel)
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


def test_inference_is_compiled_for_no_shape_where_products_are_fused(monkeypatch):
    """A request of a new length would wait for the compiler."""
    for has_units in (True, False):
        monkeypatch.setattr(kernels, "has_units", lambda dtype: has_units)  # noqa: B023
        fused = kernels.FUSED if has_units else kernels.COMPILED
        assert kernels.for_block(False, tf.bfloat16) is fused
        assert kernels.for_block(False, tf.float32) is kernels.FUSED
        assert kernels.for_block(False, tf.float16) is kernels.COMPILED
        assert kernels.for_block(True, tf.bfloat16) is kernels.COMPILED
        assert kernels.for_block(True, tf.bfloat16, few_rows=True) is kernels.PLAIN


@pytest.mark.parametrize("matrix_units", [False, True])
def test_large_batches_on_matrix_units_take_compiled_functions(monkeypatch, matrix_units):
    monkeypatch.setattr(kernels, "has_units", lambda dtype: True)
    monkeypatch.setattr(
        kernels, "has_matrix_units", lambda dtype: matrix_units and dtype == tf.bfloat16
    )
    expected = kernels.COMPILED if matrix_units else kernels.FUSED
    assert kernels.for_block(False, tf.bfloat16, large_batches=True) is expected
    assert kernels.for_block(False, tf.float32, large_batches=True) is kernels.FUSED
