"""Folders of tiny fine-tuned models of every kind, and inputs for them."""

import dataclasses

import numpy as np
import pytest

from albert.model import checkpoints, head_config, model_folder, sources
from albert.serving import trained_model
from albert.tasks import glue, race, token_classification, word_files
from albert.tasks.squad import null_threshold
from albert.tasks.squad import task as squad_task
from albert.text import text_rules
from tests.support.builders import SPM, tiny_config

LENGTH = 16  # max_seq_length
_LABELS = ["bad", "fine", "good"]
_WORD_COLUMNS = dataclasses.asdict(word_files.Columns())
_COLUMNS = {"text": "sentence", "text_pair": None, "label": "label", "guid": None}
_SIZES = {
    "num_hidden_layers": 2, "max_position_embeddings": LENGTH + 8, "initializer_range": 0.5,
}  # fmt: skip
_HEAD = head_config.Head(head_hidden_size=6, head_activation="gelu", head_input_activation="tanh")
_SQUAD = squad_task.Settings(LENGTH, 4, 8, 3, 10)
# Name: settings and changes of the configuration.
_SAMPLES = {
    glue.KIND: (
        {"labels": _LABELS, "task_name": "custom", "columns": _COLUMNS, **_HEAD.settings},
        {"hidden_act": "gelu_erf"},
    ),
    "regression": (
        {
            "labels": [], "task_name": "custom", "columns": _COLUMNS,
            "label_mean": 30.0, "label_deviation": 14.5, "pooling": "mean",
        },
        {"share": "none"},
    ),
    race.KIND: (
        {"max_qa_length": 8},
        {"inner_group_num": 2, "num_hidden_layers": 1, "hidden_act": "tanh"},
    ),
    token_classification.KIND: (
        {"labels": _LABELS, "columns": _WORD_COLUMNS}, {"hidden_act": "relu"},
    ),
    squad_task.V1: (_SQUAD.to_dict(), {}),
    squad_task.V2: (
        {**_SQUAD.to_dict(), "start_n_top": 2, "end_n_top": 3, "dropout_prob": 0.1}, {},
    ),
}  # fmt: skip
KINDS = tuple(_SAMPLES)
_QUICK = (glue.KIND, token_classification.KIND, squad_task.V2)
# As parameters; models that have most in common with another one are for slow tests.
MARKED_KINDS = [
    kind if kind in _QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS
]


def trained_in(folder, kind, **changes):
    """The `model_folder.ModelFolder` of a model of one of `KINDS`, written here.

    `changes` are those of its configuration.
    """
    settings, own_changes = _SAMPLES[kind]
    config = tiny_config(**_SIZES | own_changes | changes)
    source = sources.Source("", None, str(SPM), None, text_rules.TextRules(True))
    settings = {"max_seq_length": LENGTH, **settings}
    kind_of_folder = glue.KIND if kind == "regression" else kind
    made = model_folder.ModelFolder(str(folder), kind_of_folder, config, source, settings)
    model_folder.write(made.path, made.kind, config, source, settings)
    prefix = str(folder / "model.ckpt-3")
    model, rng = trained_model.make_model(made), np.random.default_rng(2)
    for variable in model.variables:  # Biases are 0 at the start, which hides much.
        variable.assign_add(rng.normal(size=variable.shape, scale=0.1))
    checkpoints.save(prefix, model)
    if kind == squad_task.V2:
        null_threshold.write(str(folder), -1.5, prefix, predict_file="dev.json")
    return model_folder.read(str(folder))


def features(kind, rows, length):
    """int32 arrays [rows, length] by name: each text but the first is shorter."""
    rng = np.random.default_rng(4)
    mask = np.arange(length) < length - 2 * np.arange(rows)[:, np.newaxis]
    segments = mask * (np.arange(length) >= length // 3)
    found = {
        "input_ids": rng.integers(5, 400, (rows, length)) * mask,
        "input_mask": mask,
        "segment_ids": segments,
    }
    if kind == squad_task.V2:
        found["p_mask"] = 1 - segments
    return {name: x.astype(np.int32) for name, x in found.items()}


def expected(trained, given):
    """Computes the outputs for features in Python."""
    return trained_model.from_training_folder(trained)(given)


def assert_close(found, wanted, given, tolerance):
    """Outputs are equal to a tolerance; at padding there may be anything."""
    assert found.keys() == wanted.keys()
    real = given["input_mask"] > 0
    for name, there in wanted.items():
        here = found[name]
        if there.shape[:2] == real.shape:
            here, there = here[real], there[real]
        assert here.dtype == there.dtype, name
        np.testing.assert_allclose(here, there, rtol=tolerance, atol=tolerance, err_msg=name)
