"""Exported models."""

import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

from albert import run_classifier
from albert.data import record_files
from albert.export import saved_model_export
from albert.io import file_io
from albert.model import checkpoints, encoder, heads, layers
from albert.model import decision as decisions
from albert.tasks import glue

CONFIG = encoder.AlbertConfig(
    vocab_size=300, embedding_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=8, max_position_embeddings=16, initializer_range=0.5,
)  # fmt: skip
LENGTH = 16
TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"


@pytest.fixture(scope="module")
def specs():
    return glue.feature_specs(LENGTH)


def _rows(specs, lengths):
    """Feature dicts of random ids, padded."""
    rng = np.random.default_rng(3)
    for length in lengths:
        real = np.arange(LENGTH) < length
        row = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
        yield {**row, "input_ids": rng.integers(5, 300, LENGTH) * real, "input_mask": real * 1}


def _examples(specs, rows):
    return tf.constant([record_files.encode(specs, row) for row in rows])


def _serve(folder):
    return tf.saved_model.load(folder).signatures["serving_default"]


@pytest.mark.slow
def test_batches_of_any_size_and_length(specs, tmp_path):
    model = heads.ClassifierModel(CONFIG, 2, seed=1)
    serve = _serve(saved_model_export.export_classifier(model, specs, str(tmp_path)))
    rows = list(_rows(specs, (3, 16, 7)))
    together = serve(input=_examples(specs, rows))
    batch = {key: tf.stack([row[key] for row in rows]) for key in rows[0]}
    expected = model(batch)
    assert set(together) == {"probabilities", "predictions"}
    for name, value in together.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6)
    for i, row in enumerate(rows):
        alone = serve(input=_examples(specs, [row]))
        np.testing.assert_allclose(
            alone["probabilities"], together["probabilities"][i : i + 1], atol=1e-6
        )


@pytest.mark.slow
def test_both_names_of_the_input_have_a_signature(specs, tmp_path):
    model = heads.ClassifierModel(CONFIG, 2, seed=1)
    folder = saved_model_export.export_classifier(model, specs, str(tmp_path), threshold=0.5)
    signatures = tf.saved_model.load(folder).signatures
    examples = _examples(specs, _rows(specs, (3, 16)))
    expected = signatures["serving_default"](input=examples)
    for key, name in (("serving_default", "input"), ("examples", "examples")):
        place = signatures[key].structured_input_signature[1][name]
        assert (place.dtype, place.shape.as_list()) == (tf.string, [None])
        answer = signatures[key](**{name: examples})
        assert set(answer) == {"probabilities", "predictions", "threshold"}
        for output, value in answer.items():
            np.testing.assert_array_equal(value, expected[output])


def test_every_export_is_a_new_version(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_model_export.time, "time", lambda: 1700000000.5)
    module = tf.Module()
    module.serve = tf.function(lambda: {"x": tf.constant(1)}, input_signature=[], autograph=False)
    folders = [saved_model_export.save_version(module, {}, str(tmp_path)) for _ in range(3)]
    assert [pathlib.Path(folder).name for folder in folders] == [
        "1700000000", "1700000001", "1700000002"
    ]  # fmt: skip
    assert all(tf.saved_model.contains_saved_model(folder) for folder in folders)


@pytest.mark.slow
def test_models_of_low_precision_runs_are_exported_in_float32(specs, tmp_path):
    def build(config, compute, seed):
        return heads.ClassifierModel(config, 2, compute, seed)

    low = build(CONFIG, layers.Compute("bfloat16", skip_padding=True, parts=2), 1)
    rows = list(_rows(specs, (3, 16, 7)))
    batch = {key: tf.stack([row[key] for row in rows]) for key in rows[0]}
    expected = build(CONFIG, layers.Compute(), 1)(batch)["probabilities"]
    assert np.abs(low(batch)["probabilities"] - expected).max() > 1e-5
    prefix = str(tmp_path / "run" / "model.ckpt-1")
    checkpoints.save(prefix, low)
    values = types.SimpleNamespace(
        threshold_to_export=None,
        export_text=False,
        max_seq_length=16,
    )
    command = run_classifier.Classifier(values, glue.get_task("SST-2"))
    task = glue.make_task(command.task)
    model = saved_model_export.model_to_serve(task, CONFIG, prefix)
    command.write_saved_models(str(tmp_path / "export"), model, None, specs, decisions.PLAIN)
    (folder,) = (tmp_path / "export").iterdir()
    found = _serve(str(folder))(input=_examples(specs, rows))["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_a_regression_returns_its_values(specs, tmp_path):
    model = heads.RegressionModel(CONFIG, seed=1)
    serve = _serve(saved_model_export.export_classifier(model, specs, str(tmp_path)))
    answer = serve(input=_examples(specs, _rows(specs, (5, 9))))
    np.testing.assert_allclose(answer["probabilities"][:, 0], answer["predictions"])


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "there"), [(0.25, True), (None, False), (np.nan, False)])
def test_the_threshold_is_a_constant_output(specs, tmp_path, threshold, there):
    model = heads.ClassifierModel(CONFIG, 2, seed=1)
    serve = _serve(saved_model_export.export_classifier(model, specs, str(tmp_path), threshold))
    answer = serve(input=_examples(specs, _rows(specs, (4,))))
    assert ("threshold" in answer) == there
    assert not there or float(answer["threshold"]) == 0.25


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (
            OSError(28, "No space left on device"),
            file_io.InputError,
            "cannot write {}/.*: No space left on device; it needs .* KiB",
        ),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
    ],
)
def test_a_failed_export_leaves_nothing(specs, tmp_path, monkeypatch, error, raised, message):
    def fail(module, folder, signatures):
        del module, signatures
        tf.io.gfile.makedirs(folder)
        raise error

    monkeypatch.setattr(saved_model_export.tf.saved_model, "save", fail)
    model = heads.ClassifierModel(CONFIG, 2, seed=1)
    with pytest.raises(raised, match=message.format(tmp_path)):
        saved_model_export.export_classifier(model, specs, str(tmp_path))
    assert not list(tmp_path.iterdir())
