"""Activations are watched where they flow, and parts that cost answers stay in float32."""

import numpy as np
import pytest

from albert.export import agreement, onnx_export, onnx_int8
from albert.serving import serving_folder, trained_model
from albert.tasks import glue
from albert.tasks.squad import task as squad_task
from tests.support import serving_samples

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def examples_of(kind, answers=None):
    """Three inputs, as examples whose answers are the predictions."""
    given = serving_samples.features(kind, 3, 12)
    answers = answers or (lambda found: list(found.load()(given)["cls_logits"]))
    return agreement.Examples("some", answers, None, None)


def test_rows_of_a_table_have_their_own_scale():
    table = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    table[3], table[4] = 0, table[4] * 1000
    rows, scales = onnx_int8.quantize_rows(table)
    assert rows.dtype == np.int8 and not rows[3].any()
    assert (np.abs(rows).max(axis=1)[np.arange(50) != 3] == 127).all()
    assert (np.abs(rows * scales - table) <= scales * 0.5001).all()


def test_real_tokens_alone_are_watched(tmp_path):
    trained = serving_samples.trained_in(tmp_path / "run", squad_task.V2)
    model = onnx_export.Model(trained)
    observed, answers = onnx_int8.observe(model, examples_of(squad_task.V2))
    expected = trained_model.from_training_folder(trained)(
        serving_samples.features(squad_task.V2, 3, 12)
    )
    np.testing.assert_allclose(answers, expected["cls_logits"], atol=1e-5)
    sites = {(depth, one.part): x for one in observed.values() for depth, x in one.inputs.items()}
    assert set(sites) == {(depth, part) for depth in (0, 1) for part in onnx_export.PARTS}
    tokens = 12 + 10 + 8  # rows are kept as long as there are few
    assert {one.rows.shape[0] for one in sites.values()} == {tokens}
    assert sites[0, "output"].rows.shape[1] == trained.config.intermediate_size


def test_parts_with_the_largest_errors_stay_in_float32_first(tmp_path):
    kind = glue.KIND
    trained = serving_samples.trained_in(tmp_path / "run", kind)
    given, asked = serving_samples.features(kind, 3, 12), []

    def answers(found):
        asked.append(found)
        # The first two attempts in int8 answer otherwise.
        return (found.load()(given)["predictions"] + (1 < len(asked) < 4)).tolist()

    with serving_folder.creating(str(tmp_path / "out"), trained, "onnx", "int8") as folder:
        found = onnx_int8.write(folder, trained, examples_of(kind, answers))["calibration"]
        operations = [node.op_type for node in onnx.load(folder.model_file).graph.node]
    assert len(asked) == 4 and found["agreement"] == 1.0 and found["answers"] == 3
    assert len(found["int8"]) == 3 and len(found["float32"]) == 2
    error = found["error"]
    assert max(error[part] for part in found["int8"]) <= min(error[p] for p in found["float32"])
    assert max(error.values()) < 0.01
    products = {*found["int8"]} - {onnx_int8.TABLE}
    assert operations.count("QuantizeLinear") == len(products) * trained.config.num_hidden_layers


@pytest.mark.parametrize("kind", serving_samples.MARKED_KINDS)
def test_too_few_equal_answers_are_warned_of(tmp_path, caplog, kind):
    trained = serving_samples.trained_in(tmp_path / "run", kind)
    given, asked = serving_samples.features(trained.kind, 3, 12), []

    def answers(found):
        asked.append(found.load()(given))
        return [1, 2, 3 if len(asked) == 1 else 4]

    with serving_folder.creating(str(tmp_path / "out"), trained, "onnx", "int8") as folder:
        found = onnx_int8.write(folder, trained, examples_of(trained.kind, answers))
        found = found["calibration"]
    assert len(found["int8"]) == 1 and found["agreement"] == pytest.approx(2 / 3, abs=1e-6)
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"with int8 only in {found['int8'][0]}, 66.67% of 3 answers to" in message
    assert "expected at least 99.5%" in message
