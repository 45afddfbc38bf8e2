"""Folders of tiny fine-tuned models of every kind, and inputs for them."""

import dataclasses

import numpy as np

from albert import (
    checkpoints,
    classifier_utils,
    heads,
    layers,
    model_folder,
    pretrained,
    race_utils,
    squad_task,
    squad_threshold,
    token_classification,
    word_files,
)
from tests.builders import SPM, tiny_config

LENGTH = 16  # max_seq_length
_LABELS = ("bad", "fine", "good")
_WORD_COLUMNS = dataclasses.asdict(word_files.Columns())
_COLUMNS = {"text": "sentence", "text_pair": None, "label": "label", "guid": None}
_SIZES = {
    "num_hidden_layers": 2, "max_position_embeddings": LENGTH + 8, "initializer_range": 0.5,
}  # fmt: skip
_SQUAD = squad_task.Settings(LENGTH, 4, 8, 3, 10, 2, 3, 0.1)
# Kind: settings, and model of a configuration and `layers.Compute`.
_SAMPLES = {
    classifier_utils.KIND: (
        {"labels": _LABELS, "task_name": "custom", "columns": _COLUMNS},
        lambda *how: heads.ClassifierModel(how[0], 3, how[1], seed=1),
    ),
    "regression": (
        {"labels": (), "task_name": "custom", "columns": _COLUMNS},
        lambda *how: heads.RegressionModel(*how, seed=1),
    ),
    race_utils.KIND: ({"max_qa_length": 8}, lambda *how: heads.RegressionModel(*how, seed=1)),
    token_classification.KIND: (
        {"labels": _LABELS, "columns": _WORD_COLUMNS},
        lambda *how: heads.TokenClassifierModel(how[0], 3, how[1], seed=1),
    ),
    squad_task.V1: (_SQUAD.to_dict(), lambda *how: heads.SquadV1Model(*how, seed=1)),
    squad_task.V2: (
        _SQUAD.to_dict(),
        lambda *how: heads.SquadV2Model(how[0], 2, 3, 0.1, how[1], seed=1),
    ),
}
KINDS = tuple(_SAMPLES)


def trained_in(folder, kind, **changes):
    """The `model_folder.ModelFolder` of a model of one of `KINDS`, written here.

    `changes` are those of its configuration.
    """
    config = tiny_config(**_SIZES | changes)
    source = pretrained.Source("", None, str(SPM), None, do_lower_case=True)
    settings = {"max_seq_length": LENGTH, **_SAMPLES[kind][0]}
    kind_of_folder = classifier_utils.KIND if kind == "regression" else kind
    model_folder.write(str(folder), kind_of_folder, config, source, settings)
    prefix = str(folder / "model.ckpt-3")
    model, rng = _model(kind, config), np.random.default_rng(2)
    for variable in model.variables:  # Biases are 0 at the start, which hides much.
        variable.assign_add(rng.normal(size=variable.shape, scale=0.1))
    checkpoints.save(prefix, model)
    if kind == squad_task.V2:
        squad_threshold.write(str(folder), -1.5, prefix, predict_file="dev.json")
    return model_folder.read(str(folder))


def _model(kind, config):
    return _SAMPLES[kind][1](config, layers.Compute())


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


def expected(trained, kind, given):
    """What a model of `heads` returns for features."""
    model = _model(kind, trained.config)
    checkpoints.restore(model, trained.source.checkpoint, allow_new_heads=False)
    found = {name: x.numpy() for name, x in model(given, training=False).items()}
    if kind == squad_task.V1:
        found = {name: np.where(given["input_mask"], x, -1e30) for name, x in found.items()}
    return found


def assert_close(kind, found, wanted, given, tolerance):
    """Outputs are equal to a tolerance; those of tokens at real tokens alone."""
    for name, values in found.items():
        here, there = values, wanted[name]
        if kind == token_classification.KIND:
            real = given["input_mask"] > 0
            here, there = here[real], there[real]
        assert here.dtype == there.dtype, name
        np.testing.assert_allclose(here, there, rtol=tolerance, atol=tolerance, err_msg=name)
