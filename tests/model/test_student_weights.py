"""The first weights of a student that shares more, or has smaller embeddings, than its teacher."""

import dataclasses

import numpy as np
import pytest

from albert.io import file_io
from albert.model import checkpoints, encoder, pretraining_heads, student_weights

TEACHER = encoder.AlbertConfig(
    vocab_size=40,
    embedding_size=12,
    hidden_size=12,
    num_hidden_layers=4,
    share="none",
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)
NAME = "bert/encoder/transformer/group_{}/inner_group_0/{}".format
IDS = np.random.default_rng(1).integers(40, size=(3, 10))
TYPES = np.repeat([[0] * 6 + [1] * 4], 3, 0)


def save_teacher(folder, config=TEACHER, rank=None):
    """Saves random weights far from 0, the embeddings of a rank; returns prefix and model."""
    model = pretraining_heads.PretrainingModel(config, seed=5)
    rng = np.random.default_rng(2)
    basis = rng.normal(size=(rank or 1, config.embedding_size))
    for variable in model.variables:
        value = variable.numpy() + rng.normal(0, 0.2, variable.shape)
        if rank and variable.name.endswith("_embeddings:0"):
            value = rng.normal(size=(len(value), rank)) @ basis
        variable.assign(value.astype(np.float32))
    prefix = str(folder / "model.ckpt-1")
    checkpoints.save(prefix, model)
    return prefix, model


def start(prefix, teacher=TEACHER, **changes):
    config = dataclasses.replace(teacher, **changes)
    model = pretraining_heads.PretrainingModel(config, seed=3)
    view = student_weights.view(teacher, config)
    return model, checkpoints.restore(model, prefix, view=view)


def values(model):
    return {name: v.numpy() for name, v in checkpoints.variables_by_name(model).items()}


@pytest.mark.parametrize(
    ("changes", "sources"),
    [  # for each group, the layers of the teacher whose mean it takes
        ({"share": "all"}, [(0, 1, 2, 3)]),
        ({"share": "all", "num_hidden_groups": 2}, [(0, 1), (2, 3)]),
        ({"share": "all", "num_hidden_groups": 2, "group_order": "cycle"}, [(0, 2), (1, 3)]),
        ({"share": "all", "num_hidden_layers": 2}, [(0, 2)]),
    ],
)
def test_shared_layers_begin_with_the_mean_of_the_teachers(tmp_path, changes, sources):
    prefix, teacher = save_teacher(tmp_path)
    student, _ = start(prefix, **changes)
    ours, theirs = values(student), values(teacher)
    for group, layers in enumerate(sources):
        for part in ("attention_1/self/key/kernel", "ffn_1/intermediate/dense/bias"):
            expected = np.mean([theirs[NAME(layer, part)] for layer in layers], axis=0)
            np.testing.assert_allclose(ours[NAME(group, part)], expected, rtol=1e-6)


def test_only_the_shared_part_begins_with_a_mean(tmp_path):
    prefix, teacher = save_teacher(tmp_path)
    student, _ = start(prefix, share="attention")
    ours, theirs = values(student), values(teacher)
    part = "attention_1/output/dense/kernel"
    mean = np.mean([theirs[NAME(layer, part)] for layer in range(4)], axis=0)
    np.testing.assert_allclose(ours[NAME(0, part)], mean, rtol=1e-6)
    part = "ffn_1/intermediate/output/dense/kernel"
    np.testing.assert_array_equal(ours[NAME(3, part)], theirs[NAME(3, part)])


@pytest.mark.parametrize("size", [8, 9])
def test_smaller_embeddings_are_exact_where_the_teachers_span_fewer_dimensions(tmp_path, size):
    prefix, teacher = save_teacher(tmp_path, rank=7)
    student, report = start(prefix, embedding_size=size)
    expected = teacher.albert(IDS, token_type_ids=TYPES).all_encoder_layers
    found = student.albert(IDS, token_type_ids=TYPES).all_encoder_layers
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)
    head = "cls/predictions/transform"
    assert report.new == [
        *(f"{head}/LayerNorm/{x}" for x in ("beta", "gamma")),
        *(f"{head}/dense/{x}" for x in ("bias", "kernel")),
    ]


def test_smaller_embeddings_also_come_from_those_of_an_albert(tmp_path):
    config = dataclasses.replace(TEACHER, embedding_size=10, share="all")
    prefix, teacher = save_teacher(tmp_path, config, rank=5)
    student, _ = start(prefix, config, embedding_size=6)
    expected = teacher.albert(IDS, token_type_ids=TYPES).sequence_output
    found = student.albert(IDS, token_type_ids=TYPES).sequence_output
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_frequent_words_keep_more_than_rare_ones():
    """Rows are in the order of frequency, so the directions of the first ones are kept."""
    rng = np.random.default_rng(3)
    frequent, rare = np.zeros((20, 32)), np.zeros((20, 32))
    frequent[:, :6], rare[:, 16:22] = rng.normal(size=(20, 6)), rng.normal(size=(20, 6))
    words, others = np.concatenate([frequent, rare]), np.zeros((2, 32))
    (smaller, *_), _ = student_weights.project_embeddings([words, others, others], 9)
    kept = np.linalg.norm(smaller, axis=1)
    kept /= np.linalg.norm(words - words.mean(axis=1, keepdims=True), axis=1)
    assert kept[:20].mean() > 0.95 > 0.9 > kept[20:].mean()
    np.testing.assert_allclose(smaller.sum(axis=1), np.zeros(40), atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding_size": 16}, "embedding_size 16 .teacher: 12.*init_from_teacher"),
        ({"intermediate_size": 24}, "intermediate_size 24 .teacher: 20"),
        ({"num_hidden_layers": 5}, "num_hidden_layers=5 must be at most the teacher's, 4"),
    ],
)
def test_a_student_of_other_sizes_cannot_take_the_weights(changes, message):
    with pytest.raises(file_io.InputError, match=message):
        student_weights.view(TEACHER, dataclasses.replace(TEACHER, **changes))
