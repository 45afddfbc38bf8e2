"""Serving folders appear whole, say what is in them, and are refused where they do not."""

import json

import pytest

from albert.export import verification
from albert.io import file_io
from albert.model import checkpoints, heads, model_folder, sources
from albert.serving import inference, serving_folder
from albert.tasks import glue
from albert.tasks.squad import null_threshold
from albert.tasks.squad import task as squad_task
from albert.text import text_rules
from albert.training import run_record, run_session
from tests.support.builders import SPM, tiny_config

CONFIG = tiny_config(max_position_embeddings=32)
SETTINGS = {"max_seq_length": 32, "labels": ["good", "bad"]}


def trained_in(folder, kind=glue.KIND):
    """A training's folder."""
    source = sources.Source("", None, str(SPM), None, text_rules.TextRules(False))
    model_folder.write(str(folder), kind, CONFIG, source, SETTINGS)
    checkpoints.save(str(folder / "model.ckpt-3"), heads.ClassifierModel(CONFIG, 2, seed=1))
    return model_folder.read(str(folder))


def write(path, trained, measured=()):
    with serving_folder.creating(str(path), trained, "onnx", "int8") as folder:
        file_io.write_text(folder.model_file, "model")
        if measured:
            serving_folder.describe(serving_folder.measured(folder, measured))


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "out", trained_in(tmp_path / "run"), {"agreement": 1.0})
    path = str(tmp_path / "out")
    assert serving_folder.is_serving_folder(path) and not serving_folder.is_serving_folder(
        str(tmp_path / "run")
    )
    found = serving_folder.read(path, glue.KIND)
    assert (found.kind, found.format, found.precision) == ("classifier", "onnx", "int8")
    assert found.inputs == ("input_ids", "input_mask", "segment_ids")
    assert found.outputs == ("predictions", "probabilities")
    assert (found.measured, found.null_odds_threshold) == ({"agreement": 1.0}, None)
    assert (found.model.config, found.model.settings) == (CONFIG, SETTINGS)
    assert not found.model.source.rules.do_lower_case
    assert found.special_ids == {"cls": 2, "sep": 3, "pad": 0, "unk": 1}
    assert model_folder.load_tokenizer(found.model.source, CONFIG).sp_model is not None
    assert [item.damage for item in verification.check(path)] == [None]
    (tmp_path / "out" / "model.onnx").write_text("other")
    (item,) = verification.check(path)
    assert "model.onnx" in item.damage
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "run"]


def test_remarks_on_the_score_of_the_model_come_along(tmp_path, caplog):
    trained, path = trained_in(tmp_path / "run"), str(tmp_path / "run")
    with run_session.Recorder("run_classifier", [], {}, {}).session(path, ["train"], {}):
        run_record.set_model(path, "custom", "eval_accuracy", 10, 5)
        run_record.set_result(path, 3, {"eval_accuracy": 0.5})
        run_record.set_evaluated(path, 2, {"eval_accuracy": 0.5})
    write(tmp_path / "out", trained)
    remark = "no better than a constant answer (0.5000)"
    assert serving_folder.read(str(tmp_path / "out")).remarks == (remark,)
    for name in ("run", "out"):
        inference.find(str(tmp_path / name))
        assert f"The model of {tmp_path / name}: {remark}" in caplog.text


def test_the_threshold_of_squad_is_inside(tmp_path):
    trained = trained_in(tmp_path / "run", squad_task.V2)
    null_threshold.write(
        str(tmp_path / "run"), -1.5, trained.source.checkpoint, predict_file="dev.json"
    )
    write(tmp_path / "out", trained)
    found = serving_folder.read(str(tmp_path / "out"))
    assert found.null_odds_threshold == -1.5
    assert found.inputs[-1] == "p_mask"


def test_a_refusal_leaves_nothing(tmp_path):
    trained = trained_in(tmp_path / "run")
    creating = serving_folder.creating(str(tmp_path / "out"), trained, "onnx", "int8")
    with pytest.raises(file_io.InputError, match="no good"), creating:
        raise file_io.InputError("no good")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    write(tmp_path / "out", trained)
    with pytest.raises(file_io.InputError, match=r"output_dir=.*out exists already"):
        write(tmp_path / "out", trained)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "serving.json: expected version 1, found 7"),
        ({"format": "pickle"}, "format is 'pickle'; expected one of saved_model, litert, onnx"),
        ({"precision": "int4"}, "precision is 'int4'; expected one of float32"),
        ({"format": "litert"}, "model is 'model.onnx'; for this model expected 'model.tflite'"),
        ({"kind": "squad_v1"}, "kind is 'squad_v1'; for this model expected 'classifier'"),
        ({"outputs": ["logits"]}, r"outputs is \['logits'\]"),
        ({"measured": None}, "serving.json.measured: expected object, found null"),
    ],
)
def test_descriptions_of_other_things_are_refused(tmp_path, change, message):
    write(tmp_path / "out", trained_in(tmp_path / "run"))
    path = tmp_path / "out" / "serving.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(file_io.InputError, match=message):
        serving_folder.read(str(tmp_path / "out"))


def test_what_is_missing_is_named(tmp_path):
    write(tmp_path / "out", trained_in(tmp_path / "run"))
    with pytest.raises(file_io.InputError, match="of kind classifier; expected squad"):
        serving_folder.read(str(tmp_path / "out"), "squad_v1")
    (tmp_path / "out" / "model.onnx").unlink()
    with pytest.raises(file_io.InputError, match=r"model\.onnx is missing"):
        serving_folder.read(str(tmp_path / "out"))
