"""Distillation: its formulas against numpy, what is trained and saved, and a student's start."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert.io import file_io
from albert.model import checkpoints, encoder, heads, layers, student_weights
from albert.tasks import glue, pretraining
from albert.training import distillation, optimizers, train_step

TEACHER = encoder.AlbertConfig(
    vocab_size=40,
    embedding_size=8,
    hidden_size=12,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
    hidden_dropout_prob=0.1,
)
STUDENT = dataclasses.replace(TEACHER, num_hidden_layers=2)
SKIPPING = layers.Compute(skip_padding=True)
CLASSIFIER = glue.make_task(glue.get_task("MNLI"))
TASKS = {
    "pretraining": (pretraining.make_task(), "masked_lm_loss", "masked_lm_logits"),
    "classifier": (CLASSIFIER, "classification_loss", "logits"),
}


def make_features(name, seed=0):
    rng = np.random.default_rng(seed)
    lengths = np.array([10, 4, 7])
    mask = (np.arange(10) < lengths[:, None]).astype(np.int32)
    features = {
        "input_ids": rng.integers(40, size=(3, 10)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros((3, 10), np.int32),
        "is_real_example": np.array([1, 1, 0], np.int32),
    }
    if name == "pretraining":
        features |= {
            "masked_lm_positions": np.array([[1, 3], [2, 0], [5, 1]], np.int32),
            "masked_lm_ids": np.array([[7, 8], [9, 0], [3, 4]], np.int32),
            "masked_lm_weights": np.array([[1, 1], [1, 0], [1, 1]], np.float32),
            "next_sentence_labels": np.array([[0], [1], [1]], np.int32),
        }
    else:
        features["label_ids"] = np.array([0, 2, 1], np.int32)
    return {key: tf.constant(value) for key, value in features.items()}


def save_teacher(folder, name, config=TEACHER, seed=5):
    model = TASKS[name][0].build_model(config, layers.Compute(), seed)
    for variable in model.variables:  # far from uniform, so that there is something to learn
        variable.assign(variable * 5)
    prefix = str(folder / "model.ckpt-1")
    checkpoints.save(prefix, model)
    return prefix, model


def make_settings(prefix, name, **settings):
    return distillation.DistillationConfig(TEACHER, prefix, *TASKS[name][1:], **settings)


def build(prefix, name, student=STUDENT, compute=SKIPPING, **settings):
    settings = make_settings(prefix, name, **settings)
    return distillation.with_teacher(TASKS[name][0], settings).build_model(student, compute, 1)


# Formulas


def log_softmax(x):
    x = np.float64(x)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(teacher, student, temperature):
    p, q = log_softmax(teacher / temperature), log_softmax(student / temperature)
    return (np.exp(p) * (p - q)).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
def test_the_divergence_is_that_of_numpy(temperature):
    rng = np.random.default_rng(1)
    teacher, student = rng.normal(0, 4, (2, 6, 30)).astype(np.float32)
    found = distillation.soft_divergence(teacher, student, temperature)
    np.testing.assert_allclose(found, divergence(teacher, student, temperature), rtol=1e-4)
    same = distillation.soft_divergence(teacher, teacher + 3.0, temperature)
    np.testing.assert_allclose(same, np.zeros(6), atol=1e-5)


def test_the_cosine_is_that_of_numpy_and_0_without_a_direction():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 2, 5, 7)).astype(np.float32)
    a[1, 3] = 0
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    expected = np.divide((a * b).sum(-1), norms, out=np.zeros((2, 5)), where=norms > 0)
    x = tf.constant(a)
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = distillation.cosine(x, b)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.isfinite(tape.gradient(found, x)).all()


@pytest.mark.parametrize("name", TASKS)
def test_losses_are_means_over_what_is_taught(tmp_path, name):
    prefix, teacher = save_teacher(tmp_path, name)
    model = build(prefix, name, weights=(5.0, 2.0, 1.0), temperature=3.0)
    features = make_features(name)
    outputs = model(features, training=True, seed=tf.constant([1, 2]))
    expected = teacher(features)
    logits = TASKS[name][2]
    np.testing.assert_allclose(outputs[f"teacher_{logits}"], expected[logits], atol=1e-4)

    terms = {key: float(value) for key, value in model.losses(outputs, features).items()}
    weights = np.array([1, 1, 1, 0, 0, 0]) if name == "pretraining" else np.array([1, 1, 0])
    each = divergence(expected[logits].numpy(), outputs[logits].numpy(), 3.0)
    expected = 9.0 * (each * weights).sum() / weights.sum()
    np.testing.assert_allclose(terms["distillation_loss"], expected, rtol=1e-3)

    ours = outputs["sequence_output"].numpy()
    theirs = outputs["teacher_sequence_output"].numpy()
    real = features["input_mask"].numpy().astype(bool) & np.array([[True], [True], [False]])
    cosines = (ours * theirs).sum(-1)[real]
    cosines /= (np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1))[real]
    np.testing.assert_allclose(terms["hidden_cosine_loss"], (1 - cosines).mean(), rtol=1e-3)
    assert not {"hidden_error_loss", "mean_cosine_loss"} & terms.keys()

    own = sum(v for k, v in terms.items() if k not in ("distillation_loss", "hidden_cosine_loss"))
    expected = 5 * terms["distillation_loss"] + 2 * own + terms["hidden_cosine_loss"]
    np.testing.assert_allclose(
        float(model.total(model.losses(outputs, features))), expected, rtol=1e-5
    )


@pytest.mark.parametrize("name", TASKS)
def test_a_student_learns_the_states_after_each_layer_and_the_mean_vectors(tmp_path, name):
    prefix, teacher = save_teacher(tmp_path, name)
    model = build(prefix, name, weights=(0.0, 2.0, 0.0, 3.0, 4.0))
    features = make_features(name)
    outputs = model(features, training=True, seed=tf.constant([1, 2]))
    terms = {key: float(value) for key, value in model.losses(outputs, features).items()}
    encode = (features["input_ids"], features["input_mask"], features["segment_ids"])
    theirs = [x.numpy() for x in teacher.albert(*encode).all_encoder_layers]
    ours = [outputs[f"layer_{layer}_output"].numpy() for layer in range(2)]
    mask = features["input_mask"].numpy()[:2]  # the third example only fills the batch
    errors = [  # layers 0 and 1 of two end where 1 and 3 of four do
        (((a - b) ** 2).sum(-1) / (b**2).sum(-1))[:2]
        for a, b in zip(ours, theirs[1::2], strict=True)
    ]
    expected = (sum(errors) / 2 * mask).sum() / mask.sum()
    np.testing.assert_allclose(terms["hidden_error_loss"], expected, rtol=1e-4)
    a, b = ((x[-1][:2] * mask[..., None]).sum(1) for x in (ours, theirs))
    cosines = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    np.testing.assert_allclose(terms["mean_cosine_loss"], (1 - cosines).mean(), rtol=1e-4)
    own = sum(v for k, v in terms.items() if k not in ("hidden_error_loss", "mean_cosine_loss"))
    expected = 2 * own + 3 * terms["hidden_error_loss"] + 4 * terms["mean_cosine_loss"]
    np.testing.assert_allclose(
        float(model.total(model.losses(outputs, features))), expected, rtol=1e-5
    )


@pytest.mark.parametrize("name", TASKS)
def test_what_has_no_weight_is_not_computed(tmp_path, name):
    prefix, _ = save_teacher(tmp_path, name)
    features = make_features(name)
    for weights, missing in (((1, 0, 0), "hidden_cosine_loss"), ((0, 0, 1), "distillation_loss")):
        model = build(prefix, name, weights=weights)
        outputs = model(features, training=True)
        terms = model.losses(outputs, features)
        assert missing not in terms and missing not in model.loss_weights(features)
        (left,) = {"distillation_loss", "hidden_cosine_loss"} & set(terms)
        np.testing.assert_allclose(model.total(terms), terms[left], rtol=1e-6)


# Training


def updated(model, name, count=1, compiled=False):
    task, features = TASKS[name][0], make_features(name)
    features = {key: tf.concat([value, value], 0) for key, value in features.items()}
    optimizer = optimizers.create_optimizer(1e-2, 100, 0)
    optimizer.build(model.trained_variables)

    def step():
        return train_step.run(task, model, optimizer, features, 7, count)

    step = tf.function(step, autograph=False) if compiled else step
    return [step() for _ in range(5)], optimizer


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_only_the_student_is_trained_and_saved(tmp_path, name):
    prefix, _ = save_teacher(tmp_path, name)
    model = build(prefix, name)
    student = TASKS[name][0].build_model(STUDENT, SKIPPING, 1)
    names = {v.name for v in student.variables}
    assert {v.name for v in model.variables} == names
    features = make_features(name)
    before = model(features, training=True)[f"teacher_{TASKS[name][2]}"]
    results, optimizer = updated(model, name)
    after = model(features, training=True)[f"teacher_{TASKS[name][2]}"]
    np.testing.assert_array_equal(after, before)
    assert {"distillation_loss", "hidden_cosine_loss"} < set(results[0])
    assert results[-1]["loss"][0] < results[0]["loss"][0]
    checkpoints.save(str(tmp_path / "student"), model, optimizer)
    stored = checkpoints.read_tensors(str(tmp_path / "student"))
    assert set(stored) == {n.removesuffix(":0") for n in names}
    # In evaluation the teacher has no part.
    outputs = model(features)
    assert not [key for key in outputs if key.startswith("teacher_")]
    checkpoints.restore(student, str(tmp_path / "student"))
    for key, value in student(features).items():
        np.testing.assert_allclose(outputs[key], value, atol=1e-6)


@pytest.mark.slow
def test_micro_batches_make_the_update_of_the_whole_batch(tmp_path):
    prefix, _ = save_teacher(tmp_path, "pretraining")
    steady = dataclasses.replace(STUDENT, hidden_dropout_prob=0.0)
    values = []
    for count in (1, 2):
        model = build(prefix, "pretraining", steady)
        updated(model, "pretraining", count, compiled=count > 1)
        values.append({v.name: v.numpy() for v in model.variables})
    for variable, value in values[0].items():
        # Adam moves by 1e-2 a step where a gradient is hardly more than rounding.
        np.testing.assert_allclose(values[1][variable], value, atol=2e-4, err_msg=variable)


# The start


def started(tmp_path, teacher, student):
    prefix, model = save_teacher(tmp_path, "pretraining", teacher)
    fresh = pretraining.make_task().build_model(student, layers.Compute(), 3)
    checkpoints.restore(fresh, prefix, view=student_weights.view(teacher, student))
    values = {v.name.removesuffix(":0"): v.numpy() for v in model.variables}
    return {v.name.removesuffix(":0"): v.numpy() for v in fresh.variables}, values


def test_a_student_that_shares_repeats_the_same_layers(tmp_path):
    student, teacher = started(tmp_path, TEACHER, STUDENT)
    assert student.keys() == teacher.keys()
    for name, value in student.items():
        np.testing.assert_array_equal(value, teacher[name])


@pytest.mark.parametrize(
    ("teacher", "student", "groups"),
    [  # (sharing, groups) of each; the teacher's groups of the student's attentions and ffns
        (("all", 4), ("all", 2), ((0, 2), (0, 2))),
        (("none", 1), ("none", 1), ((0, 2), (0, 2))),
        (("all", 2), ("all", 2), ((0, 1), (0, 1))),
        (("attention", 1), ("attention", 1), ((0,), (0, 2))),
        (("ffn", 1), ("all", 2), ((0, 2), (0, 0))),
    ],
)
def test_a_student_takes_every_other_layer(tmp_path, teacher, student, groups):
    teacher = dataclasses.replace(TEACHER, share=teacher[0], num_hidden_groups=teacher[1])
    student = dataclasses.replace(STUDENT, share=student[0], num_hidden_groups=student[1])
    found, values = started(tmp_path, teacher, student)
    name = "bert/encoder/transformer/group_{}/inner_group_0/{}".format
    for part, end in enumerate(("attention_1/self/key/kernel", "ffn_1/intermediate/dense/kernel")):
        for group, source in enumerate(groups[part]):
            np.testing.assert_array_equal(found[name(group, end)], values[name(source, end)])


def test_a_student_takes_the_scales_of_its_layers_and_the_groups_of_another_order(tmp_path):
    cycle = {"num_hidden_groups": 2, "group_order": "cycle", "layer_scales": True}
    teacher = dataclasses.replace(TEACHER, **cycle)
    student = dataclasses.replace(STUDENT, num_hidden_groups=2, layer_scales=True)
    found, values = started(tmp_path, teacher, student)
    scale = "bert/encoder/transformer/layer_{}/layer_norm/scale".format
    for layer, source in ((0, 0), (1, 2)):
        np.testing.assert_array_equal(found[scale(layer)], values[scale(source)])
    kernel = "bert/encoder/transformer/group_{}/inner_group_0/attention_1/self/key/kernel".format
    for group, source in ((0, 0), (1, 0)):  # layers 0 and 2 of the teacher are of one group
        np.testing.assert_array_equal(found[kernel(group)], values[kernel(source)])
    with pytest.raises(file_io.InputError, match=r"layer_scales False .teacher: True"):
        student_weights.view(teacher, dataclasses.replace(student, layer_scales=False))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 6}, "num_hidden_layers=6 must be at most the teacher's, 4"),
        ({"hidden_size": 6}, "hidden_size 6 .teacher: 12.*init_from_teacher"),
        ({"num_attention_heads": 4}, "num_attention_heads 4 .teacher: 3"),
    ],
)
def test_a_student_of_other_sizes_cannot_take_the_weights(changes, message):
    with pytest.raises(file_io.InputError, match=message):
        student_weights.view(TEACHER, dataclasses.replace(STUDENT, **changes))


# Wrong settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": (5.0, 2.0)}, r"distill_weights must be three to five .* Got 5.0,2.0"),
        ({"weights": (0.0, 2.0, 0.0, 0.0)}, "one besides the second must be above 0"),
        ({"weights": (1.0,) * 6}, "distill_weights must be three to five"),
        ({"weights": (1.0, -1.0, 1.0)}, "distill_weights must be three"),
        ({"weights": (1.0, float("nan"), 1.0)}, "distill_weights must be three"),
        ({"temperature": 0.0}, "distill_temperature must be above 0 and finite; got 0.0"),
        ({"temperature": float("inf")}, "distill_temperature .* got inf"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(file_io.InputError, match=message):
        make_settings("teacher", "classifier", **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 39}, "vocab_size 39 .teacher: 40"),
        ({"hidden_size": 6}, "hidden_size 6 .teacher: 12.* weights of the hidden states"),
        ({"max_position_embeddings": 32}, "max_position_embeddings=32 must be at most"),
    ],
)
def test_a_student_that_cannot_be_compared_is_refused(changes, message):
    student = dataclasses.replace(STUDENT, **changes)
    with pytest.raises(file_io.InputError, match=message):
        build("there is no teacher", "pretraining", student)


def test_hidden_sizes_may_differ_where_only_probabilities_are_taught(tmp_path):
    prefix, _ = save_teacher(tmp_path, "classifier")
    small = dataclasses.replace(STUDENT, hidden_size=6, intermediate_size=8)
    model = build(prefix, "classifier", small, weights=(1.0, 1.0, 0.0))
    features = make_features("classifier")
    assert np.isfinite(model.total(model.losses(model(features, training=True), features)))


def test_a_teacher_without_the_head_only_teaches_hidden_states(tmp_path):
    prefix, teacher = save_teacher(tmp_path, "pretraining")
    with pytest.raises(file_io.InputError, match="lacks .*output_bias.*no head for the task"):
        build(prefix, "classifier")
    features = make_features("classifier")
    outputs = build(prefix, "classifier", weights=(0, 1, 1))(features, training=True)
    expected = teacher(features | make_features("pretraining"))["sequence_output"].numpy()
    expected *= features["input_mask"].numpy()[..., None]
    np.testing.assert_allclose(outputs["teacher_sequence_output"], expected, atol=1e-5)
    assert "teacher_logits" not in outputs


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (lambda compute: heads.RegressionModel(STUDENT, compute, 1), [0.5, 2.0, 1.0]),
        (lambda compute: heads.MultiLabelModel(STUDENT, 2, compute, 1), [[0, 1], [1, 1], [0, 0]]),
    ],
    ids=["regression", "several labels"],
)
def test_other_heads_learn_hidden_states(tmp_path, make, labels):
    prefix, _ = save_teacher(tmp_path, "classifier")
    settings = make_settings(prefix, "classifier", weights=(0, 2, 1, 1, 1))
    student = make(layers.Compute(whole_sequence=True))
    teacher = distillation.HeadlessTeacher(TEACHER, student.albert.compute, 5)
    checkpoints.restore(teacher, prefix, allow_new_heads=False)
    model = distillation.DistilledModel(student, teacher, settings)
    features = make_features("classifier") | {"label_ids": tf.constant(labels)}
    losses = model.losses(model(features, training=True), features)
    (own,) = losses.keys() - settings.factors.keys()
    assert losses.keys() == {own, *settings.factors}
    assert own in ("regression_loss", "classification_loss")
    parts = [2 * losses[own], *(losses[name] for name in settings.factors)]
    np.testing.assert_allclose(model.total(losses), sum(parts), rtol=1e-6)
    assert all(float(losses[name]) > 0 for name in settings.factors)
