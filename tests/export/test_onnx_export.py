"""ONNX files compute what Python computes, for every kind of model, batch and length."""

import numpy as np
import pytest

from albert.export import onnx_export
from albert.io import file_io
from albert.model import checkpoints, encoder, model_folder, sources
from albert.serving import runtimes, serving_folder, trained_model
from albert.text import text_rules
from tests.support import builders

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

_TEXT = {"max_seq_length": 24, "labels": ["a", "b", "c"], "columns": {"text": "text"}}
_SQUAD = {
    "max_seq_length": 24, "doc_stride": 8, "max_query_length": 8, "n_best_size": 3,
    "max_answer_length": 5,
}  # fmt: skip
_HEAD = {"head_hidden_size": 5, "head_activation": "gelu", "head_input_activation": "tanh"}
_MEAN = {"pooling": "mean"}
_BERT = {"embedding_size": 12, "num_hidden_groups": 4}
# Name: kind, settings, changes of the configuration `builders.GROUPED`.
MODELS = {
    "classifier": ("classifier", _TEXT, {"group_order": "cycle"}),
    "classifier of a BERT": (
        "classifier", _TEXT | _HEAD | _MEAN, _BERT | {"hidden_act": "gelu_erf"},
    ),
    "regression": (
        "classifier", _TEXT | _MEAN | {"labels": [], "label_mean": 30.0, "label_deviation": 14.5},
        {"share": "none", "num_hidden_groups": 1},
    ),
    "choices": ("multiple_choice", {}, {"inner_group_num": 2, "hidden_act": "tanh"}),
    "scales": ("classifier", _TEXT, {"inner_group_num": 2, "layer_scales": True}),
    "one token type": ("classifier", _TEXT, {"type_vocab_size": 1}),
    "words": ("token_classifier", _TEXT | _HEAD, {"hidden_act": "relu"}),
    "SQuAD 1.1": ("squad_v1", _SQUAD, {"share": "ffn", "num_hidden_groups": 1}),
    "SQuAD 2.0": (
        "squad_v2", _SQUAD | {"start_n_top": 3, "end_n_top": 2, "dropout_prob": 0.1}, {},
    ),
}  # fmt: skip


def trained_in(folder, kind, settings, changes):
    """A training's folder with random weights, biases and norms too."""
    sizes = builders.GROUPED | {"vocab_size": 400, "initializer_range": 0.5}  # as many as pieces
    config = encoder.AlbertConfig.from_dict(sizes | changes)
    source = sources.Source("", "", str(builders.SPM), None, text_rules.TextRules(True))
    made = model_folder.ModelFolder(folder, kind, config, source, settings)
    model_folder.write(folder, kind, config, source, settings)
    model = trained_model.make_model(made)
    rng = np.random.default_rng(5)
    for variable in model.variables:
        if variable.shape.rank == 1:
            variable.assign(variable + rng.normal(0.0, 0.3, variable.shape))
    checkpoints.save(f"{folder}/model.ckpt-1", model)
    return model_folder.read(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_files_compute_what_python_computes(name, tmp_path):
    trained = trained_in(str(tmp_path / "run"), *MODELS[name])
    with serving_folder.creating(str(tmp_path / "out"), trained, "onnx", "float32") as folder:
        onnx_export.write(folder, onnx_export.Model(trained))
    found = serving_folder.read(str(tmp_path / "out"))
    onnx.checker.check_model(found.model_file, full_check=True)
    expected, score = trained_model.from_training_folder(trained), runtimes.load(found, threads=1)
    # The scale of labels multiplies what the last digits of the model differ by.
    deviation = trained.settings.get("label_deviation")
    bound = 2e-6 * deviation if deviation else 1e-5
    for lengths, length in (((9, 24, 3, 17), 24), ((5,), 5), ((32, 31), 32)):
        features = {
            key: value.numpy()
            for key, value in builders.make_features("squad_v2", lengths, length).items()
        }
        wanted, outputs = expected(features), score(features)
        assert outputs.keys() == wanted.keys() == set(found.outputs)
        real = features["input_mask"].astype(bool)
        for key, value in wanted.items():
            assert outputs[key].shape == value.shape and outputs[key].dtype == value.dtype
            if value.shape[:2] == real.shape:  # at padding there may be anything
                value, outputs[key] = value[real], outputs[key][real]
            np.testing.assert_allclose(outputs[key], value, 1e-6, bound, err_msg=key)
    with pytest.raises(file_io.InputError, match="at most max_position_embeddings = 32 tokens"):
        score({key: np.zeros([1, 33], np.int32) for key in features})


def test_shared_weights_are_in_the_file_once(tmp_path):
    changes = {"num_hidden_groups": 1, "num_hidden_layers": 8}
    trained = trained_in(str(tmp_path / "run"), "classifier", _TEXT, changes)
    model = onnx_export.Model(trained)
    content = model.graph().to_bytes(model.metadata)
    parameters = sum(weight.size for weight in model.weights.values())
    constants = onnx.load_from_string(content).graph.initializer
    assert sum(np.prod(c.dims) for c in constants if c.data_type == 1) < parameters + 20
    properties = {p.key: p.value for p in onnx.load_from_string(content).metadata_props}
    assert properties["labels"] == '["a", "b", "c"]' and properties["max_seq_length"] == "24"
