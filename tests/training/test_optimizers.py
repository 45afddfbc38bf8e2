"""Optimizers against recorded runs of the reference, and the schedule as a table."""

import ast

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import encoder, pretraining_heads
from albert.training import adam, learning_rates, optimizer_base, optimizers
from tests.support import forked, processes

# In the reference the counting of steps races with the reading of the count for the learning rate.
# In each recorded run the rate was read in time for this many steps, and one step late from then on
# (the recorded weights allow no other schedule); ours is always read in time.
STEPS_IN_TIME = {
    "adamw": 1,
    "adamw_no_warmup": 0,
    "adamw_poly2": 8,
    "lamb": 14,
    "lamb_start_warmup": 1,
}
# The same for the recorded training runs: there the rate was read late but for these steps.
TRAINING_STEPS_IN_TIME = {("shared", "lamb"): (3, 6)}
ROOT = "bert/encoder/transformer/group_0/inner_group_0"


@pytest.fixture(scope="module")
def recorded(golden):
    with np.load(golden / "optimizers.npz", allow_pickle=True) as file:
        return dict(file)


def entries(recorded, prefix):
    """The arrays under a prefix, by the rest of their names."""
    return {k[len(prefix) + 1 :]: v for k, v in recorded.items() if k.startswith(prefix + "/")}


def close(ours, theirs, name):
    scale = np.maximum(1, np.abs(theirs))
    np.testing.assert_array_less(np.abs(ours - theirs) / scale, 1e-6, err_msg=name)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", STEPS_IN_TIME)
def test_every_step_equals_the_reference(recorded, case, compiled):
    arguments = ast.literal_eval(recorded[f"{case}/args"].item())
    start = entries(recorded, f"{case}/param0")
    variables = {name: tf.Variable(value, name=name) for name, value in start.items()}
    optimizer = optimizers.create_optimizer(**arguments)
    optimizer.build(variables.values())

    def apply(gradients):
        return optimizer.apply_gradients(
            [(gradients[name], variable) for name, variable in variables.items()]
        )

    apply = tf.function(apply, autograph=False) if compiled else apply
    for step in range(1, 15):
        gradients = entries(recorded, f"{case}/grad{step}")
        optimizer.global_step.assign(step - (step <= STEPS_IN_TIME[case]))
        norm = apply({name: tf.constant(value) for name, value in gradients.items()})
        total = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients.values()))
        assert float(norm) == pytest.approx(total, rel=1e-5)
        for name, value in entries(recorded, f"{case}/param{step}").items():
            close(variables[name].numpy(), value, f"{name} after step {step}")
    ours = optimizer.variables_by_name()
    slots = entries(recorded, f"{case}/slot14")
    assert set(slots) == set(ours) - {"global_step"}
    for name, value in slots.items():
        close(ours[name].numpy(), value, name)
    assert ours["global_step"].numpy() == 14 + (STEPS_IN_TIME[case] < 14)


class RecordedTraining:
    """Replays the recorded pre-training of one configuration, one step at a time."""

    def __init__(self, golden, name, optimizer):
        self._folder = golden / "model" / name
        config = encoder.AlbertConfig.from_json_file(self._folder / "albert_config.json")
        self.model = pretraining_heads.PretrainingModel(config)
        self._assign(tf.train.load_checkpoint(str(self._folder / "model.ckpt-best")))
        self._folder = self._folder / optimizer
        self.recorded = np.load(self._folder / "trajectory.npz")
        self._in_time = TRAINING_STEPS_IN_TIME.get((name, optimizer), ())
        self._kind = optimizer

    def _assign(self, reader):
        for variable in self.model.variables:
            variable.assign(reader.get_tensor(variable.name.removesuffix(":0")))

    def make_optimizer(self, **settings):
        keys = ("learning_rate", "num_train_steps", "num_warmup_steps")
        rate, steps, warmup = (self.recorded[key].item() for key in keys)
        self.optimizer = optimizers.create_optimizer(
            rate, steps, warmup, optimizer=self._kind, **settings
        )
        self.optimizer.build(self.model.trained_variables)

    def run(self, prepare=lambda gradients: gradients, compiled=False, steps=8):
        """Losses before each of the steps, at most 8."""
        variables = self.model.trained_variables

        def step(features):
            with tf.GradientTape() as tape:
                loss = self.model.loss(self.model(features, training=True), features)
            gradients = prepare(tape.gradient(loss, variables))
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        step = tf.function(step, autograph=False) if compiled else step
        losses = []
        for index in range(steps):
            batch = entries(self.recorded, f"batch{index}")
            self.optimizer.global_step.assign(index + (index not in self._in_time))
            losses.append(float(step({key: tf.constant(value) for key, value in batch.items()})))
        return np.array(losses)

    def check_final_state(self, tolerance):
        reader = tf.train.load_checkpoint(str(self._folder / "model.ckpt-8"))
        ours = {v.name.removesuffix(":0"): v for v in self.model.variables}
        ours |= self.optimizer.variables_by_name()
        assert set(ours) == set(reader.get_variable_to_shape_map())
        for name in set(ours) - {"global_step"}:
            want = reader.get_tensor(name)
            np.testing.assert_allclose(ours[name], want, rtol=0, atol=tolerance, err_msg=name)


def clip_as_recorded(gradients):
    """Clips with the norm of the recorded runs, which leaves rows of the same token type apart."""
    return tf.clip_by_global_norm(gradients, 1.0)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "optimizer", "compiled"),
    [
        ("shared", "adamw", False),
        ("shared", "lamb", True),
        ("groups", "adamw", False),
        ("groups", "lamb", False),
        ("bert", "adamw", True),
        ("bert", "lamb", False),
    ],
)
def test_training_equals_the_reference(golden, name, optimizer, compiled):
    training = RecordedTraining(golden, name, optimizer)
    training.make_optimizer(clip_norm=None)
    # The relu of this run stands so near its kink that rounding decides about its later losses.
    steps = 2 if (name, optimizer) == ("groups", "adamw") else 8
    losses = training.run(clip_as_recorded, compiled, steps)
    np.testing.assert_allclose(losses, training.recorded["losses"][:steps], rtol=1e-5)
    if steps == 8:
        training.check_final_state(5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name, optimizer", [("shared", "adamw"), ("bert", "lamb")])
def test_adding_up_rows_before_clipping_changes_training_little(golden, name, optimizer):
    training = RecordedTraining(golden, name, optimizer)
    training.make_optimizer()
    want = training.recorded["losses"]
    losses = training.run()
    np.testing.assert_allclose(losses[:3], want[:3], rtol=1e-4)
    np.testing.assert_allclose(losses, want, rtol=0.01)


@pytest.mark.parametrize(
    ("arguments", "table"),
    [
        ((1.0, 10, 0), {0: 1.0, 1: 0.9, 9: 0.1, 10: 0.0, 11: 0.0}),
        ((1.0, 10, 4), {0: 0.0, 1: 0.25, 3: 0.75, 4: 0.6, 9: 0.1, 10: 0.0, 99: 0.0}),
        ((2.0, 10, 0, 2.0), {0: 2.0, 5: 0.5, 9: 0.02, 10: 0.0}),
        ((1.0, 10, 4, 1.0, 2), {2: 0.0, 3: 0.25, 5: 0.75, 6: 0.4, 10: 0.0}),
        ((1.0, 1, 0), {0: 1.0, 1: 0.0}),
        ((1.0, 4, 10), {0: 0.0, 4: 0.4, 9: 0.9, 10: 0.0}),
    ],
)
def test_the_schedule_as_a_table(arguments, table):
    for step, rate in table.items():
        found = learning_rates.learning_rate_at(tf.constant(step, tf.int64), *arguments)
        assert float(found) == pytest.approx(rate, abs=1e-7), step


def test_a_pace_moves_the_end_of_the_schedule():
    """The rate continues from where it is, also in a function that was compiled before."""
    pace = learning_rates.Pace()
    optimizer = optimizers.create_optimizer(1.0, 1, 0.2, pace=pace)
    rate = tf.function(optimizer.learning_rate, autograph=False)

    def rates(*steps):
        found = []
        for step in steps:
            optimizer.global_step.assign(step)
            found.append(float(rate()))
        return found

    assert rates(0, 3) == pytest.approx([0.0, 0.0], abs=1e-6)
    pace.set(4, 0.0, 24)
    assert rates(4, 6, 8, 14, 24, 30) == pytest.approx([0.0, 0.5, 0.8, 0.5, 0.0, 0.0], abs=1e-6)
    pace.set(14, 0.5, 19)
    assert rates(14, 15, 18, 19) == pytest.approx([0.5, 0.4, 0.1, 0.0], abs=1e-6)


def plain_step(weight, gradient, mean, square, rate, decays, is_lamb):
    """AdamW and LAMB in float64, written from the papers' algorithms."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    update = mean / (np.sqrt(square) + 1e-6) + (0.01 * weight if decays else 0)
    ratio = 1.0
    if is_lamb and decays:
        norms = np.linalg.norm(weight), np.linalg.norm(update)
        ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    return weight - rate * ratio * update, mean, square


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_steps_equal_a_plain_version(name):
    rng = np.random.default_rng(0)
    shapes = {"dense/kernel": (4, 3), "dense/bias": (3,), "x/LayerNorm/gamma": (3,), "zero": (2,)}
    shapes["wide"] = (260, 260)  # compiled
    weights = {key: rng.normal(size=shape) for key, shape in shapes.items()}
    weights["zero"][:] = 0
    variables = {k: tf.Variable(v, dtype=tf.float32, name=k) for k, v in weights.items()}
    optimizer = optimizers.create_optimizer(0.1, 20, 5, optimizer=name)
    state = {key: (value, 0 * value, 0 * value) for key, value in weights.items()}
    for step in range(12):
        gradients = {key: rng.normal(size=shape) for key, shape in shapes.items()}
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        rate = float(learning_rates.learning_rate_at(step, 0.1, 20, 5))
        pairs = [(tf.constant(gradients[k], tf.float32), v) for k, v in variables.items()]
        optimizer.apply_gradients(pairs)
        for key, (weight, mean, square) in state.items():
            clipped = gradients[key] / max(1.0, norm)
            decays = key in ("dense/kernel", "zero", "wide")
            state[key] = plain_step(weight, clipped, mean, square, rate, decays, name == "lamb")
            np.testing.assert_allclose(variables[key].numpy(), state[key][0], atol=2e-5)


@pytest.mark.parametrize("name", ["adamw", "lamb", "adam", "muon"])
def test_values_read_before_an_update_stay(name):
    """Compiled updates write to the memory of the variable, unless somebody still reads it."""
    weights = np.random.default_rng(0).normal(size=(260, 260)).astype(np.float32)
    variable = tf.Variable(weights, name="wide")
    optimizer = optimizers.create_optimizer(0.1, 20, 0, optimizer=name, clip_norm=None)
    optimizer.build([variable])

    @tf.function(autograph=False)
    def step():
        before = tf.convert_to_tensor(variable)
        optimizer.apply_gradients([(tf.ones_like(weights), variable)])
        return before

    for _ in range(2):
        expected, held = variable.numpy().copy(), tf.convert_to_tensor(variable)
        np.testing.assert_array_equal(step(), expected)
        np.testing.assert_array_equal(held, expected)
        assert np.abs(variable - expected).min() > 1e-3


def test_which_variables_decay():
    config = encoder.AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8,
    )  # fmt: skip
    model = pretraining_heads.PretrainingModel(config)
    excluded = optimizer_base.EXCLUDED_FROM_DECAY

    def names(expected):
        return {
            v.name.split(":")[0]
            for v in model.trainable_variables
            if optimizer_base.matches(excluded, v) is expected
        }

    kernels = {
        f"{ROOT}/attention_1/self/query", f"{ROOT}/attention_1/self/key",
        f"{ROOT}/attention_1/self/value", f"{ROOT}/attention_1/output/dense",
        f"{ROOT}/ffn_1/intermediate/dense", f"{ROOT}/ffn_1/intermediate/output/dense",
        "bert/encoder/embedding_hidden_mapping_in", "bert/pooler/dense",
        "cls/predictions/transform/dense",
    }  # fmt: skip
    norms = {
        "bert/embeddings/LayerNorm", f"{ROOT}/LayerNorm", f"{ROOT}/LayerNorm_1",
        "cls/predictions/transform/LayerNorm",
    }  # fmt: skip
    tables = {f"bert/embeddings/{x}_embeddings" for x in ("word", "token_type", "position")}
    assert names(False) == tables | {f"{k}/kernel" for k in kernels} | {
        "cls/seq_relationship/output_weights"
    }
    assert names(True) == {f"{k}/bias" for k in kernels} | {
        "cls/predictions/output_bias", "cls/seq_relationship/output_bias",
    } | {f"{n}/{x}" for n in norms for x in ("gamma", "beta")}  # fmt: skip


def test_sparse_gradients_are_added_up_before_they_are_clipped():
    table = tf.Variable(tf.zeros([4, 1]), name="table")
    slices = tf.IndexedSlices(tf.constant([[3.0], [1.0]]), tf.constant([2, 2]), tf.constant([4, 1]))
    norm = adam.AdamWeightDecayOptimizer(0.1).apply_gradients([(slices, table)])
    assert norm == 4.0
    assert np.flatnonzero(table.numpy()).tolist() == [2]


def test_variables_without_gradient_stay():
    used, unused = tf.Variable([1.0], name="used"), tf.Variable([1.0], name="unused")
    optimizer = adam.AdamWeightDecayOptimizer(0.1)
    optimizer.apply_gradients([(tf.constant([1.0]), used), (None, unused)])
    assert used.numpy() < 1 and unused.numpy() == 1
    assert set(optimizer.variables_by_name()) == {"used/adam_m", "used/adam_v", "global_step"}
    with pytest.raises(ValueError, match="none of the variables has a gradient"):
        optimizer.apply_gradients([(None, unused)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.1, 10, 0, "sgd"), "optimizer=sgd: expected adamw, lamb, adam or muon"),
        ((-0.1, 10, 0), "init_lr must be at least 0, got -0.1"),
        ((0.1, 0, 0), "num_train_steps must be at least 1, got 0"),
        ((0.1, 10, -1), "num_warmup_steps must be at least 0, got -1"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(file_io.InputError, match=message):
        optimizers.create_optimizer(*arguments)


def test_settings_are_checked():
    with pytest.raises(file_io.InputError, match="beta_1=1.5 must be a fraction"):
        optimizers.create_optimizer(0.1, 10, 0, beta_1=1.5)


def test_variables_of_the_same_name_are_refused():
    twins = [tf.Variable([1.0], name="twin"), tf.Variable([2.0], name="twin")]
    with pytest.raises(ValueError, match="different names; got .'twin', 'twin'."):
        adam.AdamWeightDecayOptimizer(0.1).build(twins)


def test_slots_are_made_once_and_found_by_name():
    variable = tf.Variable([[1.0, 2.0]], name="a/kernel")
    optimizer = adam.AdamWeightDecayOptimizer(0.1)
    optimizer.build(v for v in [variable])
    before = optimizer.variables_by_name()
    optimizer.build([variable])
    after = optimizer.variables_by_name()
    assert set(before) == {"a/kernel/adam_m", "a/kernel/adam_v", "global_step"}
    assert all(before[name] is after[name] for name in before)
    assert after["a/kernel/adam_m"].shape == [1, 2]
    assert after["global_step"].dtype == tf.int64
    assert not any(v.trainable for v in after.values())


def test_slots_may_be_made_by_the_first_compiled_step():
    variable = tf.Variable([1.0, -1.0], name="a")
    optimizer = adam.AdamWeightDecayOptimizer(0.1)
    step = tf.function(
        lambda gradient: optimizer.apply_gradients([(gradient, variable)]), autograph=False
    )
    for _ in range(2):
        step(tf.constant([2.0, 0.0]))
    assert optimizer.global_step.numpy() == 2
    assert set(optimizer.variables_by_name()) == {"a/adam_m", "a/adam_v", "global_step"}


def test_one_step_moves_against_the_gradient():
    variable = tf.Variable([1.0, 1.0, 1.0], name="bias")
    optimizer = adam.AdamWeightDecayOptimizer(0.1, clip_norm=None)
    optimizer.apply_gradients([(tf.constant([0.5, -2.0, 0.0]), variable)])
    # 0.1 g / (sqrt(0.001 g^2) + 1e-6) is the sign of g times sqrt(10).
    np.testing.assert_allclose(variable, [1 - 0.1 * 10**0.5, 1 + 0.1 * 10**0.5, 1.0], rtol=1e-4)


def test_weight_decay_shrinks_weights_without_gradient_and_spares_excluded_ones():
    weights = [tf.Variable([2.0, -2.0], name=name) for name in ("kernel", "bias", "other")]
    optimizer = adam.AdamWeightDecayOptimizer(
        0.5, weight_decay_rate=0.1, exclude_from_weight_decay=("bias", "^oth")
    )
    optimizer.apply_gradients([(tf.zeros([2]), weight) for weight in weights])
    np.testing.assert_allclose([w.numpy() for w in weights], [[1.9, -1.9], [2, -2], [2, -2]])


@pytest.mark.parametrize(
    "clip_norm, scale", [(1.0, 0.2), (2.5, 0.5), (5.0, 1.0), (None, 1.0), (0, 1.0)]
)
def test_clipping(clip_norm, scale):
    variables = [tf.Variable([0.0], name="a"), tf.Variable([0.0], name="b")]
    optimizer = adam.AdamWeightDecayOptimizer(0.1, clip_norm=clip_norm)
    gradients = [tf.constant([3.0]), tf.constant([-4.0])]
    norm = optimizer.apply_gradients(zip(gradients, variables, strict=True))
    assert float(norm) == pytest.approx(5.0)
    means = [float(optimizer.variables_by_name()[f"{name}/adam_m"][0]) for name in "ab"]
    assert means == pytest.approx([0.3 * scale, -0.4 * scale])


def test_settings_reach_the_optimizer():
    variable = tf.Variable([1.0], name="kernel")
    optimizer = optimizers.create_optimizer(
        0.1, 10, 0, beta_1=0.5, beta_2=0.75, epsilon=1.0, weight_decay_rate=0.0, clip_norm=None
    )
    optimizer.apply_gradients([(tf.constant([4.0]), variable)])
    # mean 2, square 4: the update is 2 / (2 + 1)
    np.testing.assert_allclose(variable, [1 - 0.1 * 2 / 3], rtol=1e-6)


def test_learning_rate_follows_the_step():
    optimizer = optimizers.create_optimizer(1.0, 10, 4)
    rates = []
    for step in (0, 1, 4, 10):
        optimizer.global_step.assign(step)
        rates.append(float(optimizer.learning_rate()))
    np.testing.assert_allclose(rates, [0.0, 0.25, 0.6, 0.0], rtol=1e-6)
    assert float(adam.AdamWeightDecayOptimizer(0.3).learning_rate()) == np.float32(0.3)


REPLICAS = """
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from albert import heads, modeling, optimization
from albert.training import optimizer_base

optimizer_base.COMPILED_SIZE = 1
config = modeling.AlbertConfig(
    vocab_size=30, embedding_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=8,
)
random = np.random.RandomState(0)
ids = random.randint(0, 30, (5, 8, 6)).astype(np.int32)  # [steps, batch, sequence]
labels = random.randint(0, 3, (5, 8)).astype(np.int32)


def train(strategy):
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        model = heads.ClassifierModel(config, 3, seed=1)
        optimizer = optimization.create_optimizer(0.05, 10, 2, optimizer="lamb")
        optimizer.build(model.trained_variables)
    variables = model.trained_variables

    def step(features):
        context = tf.distribute.get_replica_context()
        weights = context.all_reduce("SUM", model.loss_weights(features))
        with tf.GradientTape() as tape:
            loss = model.loss(model(features), features, weights)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        gradients = context.all_reduce("SUM", gradients)
        norm = optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"norm": norm, **optimizer.report()}

    run = lambda features: strategy.run(step, (features,))
    run = tf.function(run, autograph=False) if replicas > 1 else run
    for index in range(5):
        parts = np.split(ids[index], replicas), np.split(labels[index], replicas)
        told = run(strategy.experimental_distribute_values_from_function(
            lambda context: {
                key: tf.constant(value[context.replica_id_in_sync_group])
                for key, value in zip(("input_ids", "label_ids"), parts)
            }
        ))
    everything = {v.name: v for v in model.variables} | optimizer.variables_by_name()
    assert int(optimizer.global_step.numpy()) == 5
    assert "trust_ratio_median" in told, told
    for values in told.values():  # every replica makes the same update
        assert len({float(x) for x in strategy.experimental_local_results(values)}) == 1, told
    return {
        name: [copy.numpy() for copy in strategy.experimental_local_results(variable)]
        for name, variable in everything.items()
    }


one = train(tf.distribute.OneDeviceStrategy("CPU:0"))
two = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
assert set(one) == set(two)
for key, (first, second) in two.items():
    np.testing.assert_array_equal(first, second, err_msg=key)
    if "key/bias" not in key:  # its gradient is nothing but rounding
        np.testing.assert_allclose(first, one[key][0], rtol=0, atol=2e-5, err_msg=key)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    variable = tf.Variable([1.0], name="late")
    optimizer = optimization.AdamWeightDecayOptimizer(0.1)
try:
    strategy.run(lambda: optimizer.apply_gradients([(tf.constant([1.0]), variable)]))
except ValueError as error:
    assert "no slots for late: call build(variables) in the scope" in str(error), error
else:
    raise AssertionError("slots were made inside a replica")
"""


@pytest.mark.slow
def test_two_replicas_equal_one():
    done = processes.run([forked.python(), "-c", REPLICAS], timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
