"""Checkpoints without optimizer state."""

import numpy as np
import pytest

from albert import export_checkpoints
from albert.io import file_io
from albert.model import (
    checkpoints,
    decision,
    encoder,
    huggingface,
    model_folder,
    pooling,
    pretraining_heads,
    sources,
)
from tests.support import builders, huggingface_samples
from tests.support.builders import weights


def test_slots_and_step_are_left_out(golden, tmp_path, run_script):
    source = golden / "model" / "shared" / "lamb"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoint").write_text("of a run")
    run_script(
        export_checkpoints, albert_directory=source, checkpoint_name="model.ckpt-8",
        export_path=tmp_path / "out" / "albert",
    )  # fmt: skip
    before, after = weights(source / "model.ckpt-8"), weights(tmp_path / "out" / "albert")
    assert set(before) - set(after) == {n for n in before if "adam_" in n} | {"global_step"}
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name])
    others = [p.name for p in (tmp_path / "out").iterdir() if "albert." not in p.name]
    assert sorted(others) == ["README.md", "checkpoint"]
    assert (tmp_path / "out" / "checkpoint").read_text() == "of a run"


def test_configuration_and_vocabulary_come_along(golden, tmp_path, run_script):
    folder = tmp_path / "model"
    config = encoder.AlbertConfig(
        400, embedding_size=4, hidden_size=8, num_attention_heads=2, intermediate_size=8
    )
    builders.write_model(folder, pretraining_heads.PretrainingModel(config, seed=1), config)
    (folder / "eval_results.txt").write_text("")
    (folder / "pretraining.json").write_text("{}")
    (folder / sources.THRESHOLD_NAME).write_text("{}")
    pooling.write(str(folder), "mean", 8)
    run_script(export_checkpoints, albert_directory=folder, export_path=f"{tmp_path}/out/")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert pooling.read(str(tmp_path / "out")) == "mean"
    assert names == [
        "1_Pooling",
        "30k-clean.model",
        "README.md",
        "albert_config.json",
        "model.ckpt-best.data-00000-of-00001",
        "model.ckpt-best.index",
        "model.ckpt-best.manifest.json",
        "modules.json",
        "null_score_diff_threshold.json",
        "pretraining.json",
        "text_rules.json",
    ]
    source = sources.locate(checkpoint=str(tmp_path / "out"))
    assert source.spm_model_file.endswith("out/30k-clean.model")
    report = checkpoints.restore(
        pretraining_heads.PretrainingModel(config, seed=2), source.checkpoint
    )
    assert report.new == report.unused == []


@pytest.mark.parametrize("name", ["", "weights"])
def test_weights_of_hugging_face_become_a_checkpoint(tmp_path, run_script, name):
    model, folder = huggingface_samples.exported(tmp_path, "encoder", huggingface_samples.BERT)
    length = huggingface.read_max_length(str(folder))
    flags = {"albert_directory": folder, "checkpoint_name": "model.safetensors"}
    run_script(export_checkpoints, **flags, export_path=f"{tmp_path}/out/{name}")
    found = sources.locate(checkpoint=str(tmp_path / "out"))
    assert found.checkpoint == str(tmp_path / "out" / (name or "model.ckpt-best"))
    other = encoder.AlbertModel(huggingface_samples.BERT, seed=2)
    assert checkpoints.restore(other, found.checkpoint).new == []
    np.testing.assert_array_equal(other.embedding_table, model.embedding_table)
    assert length and huggingface.read_max_length(str(tmp_path / "out")) == length
    target = tmp_path / "new" / "model.safetensors"
    with pytest.raises(file_io.InputError, match="must not have the name of Hugging Face weights"):
        run_script(export_checkpoints, **flags, export_path=target)
    assert not target.parent.exists()
    advice = r"model.ckpt-best .* holds \['model.safetensors'\]; name .* \(--checkpoint_name\)$"
    with pytest.raises(file_io.InputError, match=advice):
        run_script(export_checkpoints, albert_directory=folder, export_path=f"{tmp_path}/b/")


def test_files_of_another_model_stay(tmp_path, run_script):
    config = builders.tiny_config()
    for seed, name in enumerate(("one", "other")):
        model = pretraining_heads.PretrainingModel(config, seed=seed)
        builders.write_model(tmp_path / name, model, config)
    before = {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    flags = {"albert_directory": tmp_path / "one", "export_path": f"{tmp_path}/other/"}
    names = "model.ckpt-best.data-.*, model.ckpt-best.index, model.ckpt-best.manifest.json"
    with pytest.raises(file_io.InputError, match=f"already has .*{names}, .*name a new folder"):
        run_script(export_checkpoints, **flags)
    (tmp_path / "other" / "albert_config.json").write_text("{}")
    with pytest.raises(file_io.InputError, match="already has .* albert_config.json, which"):
        run_script(export_checkpoints, **{**flags, "export_path": tmp_path / "other" / "new"})
    before["albert_config.json"] = b"{}"
    assert {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()} == before


def test_mistakes_are_named(golden, tmp_path, run_script):
    with pytest.raises(file_io.InputError, match="there is no checkpoint .*model.ckpt-best"):
        run_script(export_checkpoints, albert_directory=tmp_path, export_path=tmp_path / "x")
    folder = golden / "model" / "shared"
    with pytest.raises(file_io.InputError, match="export_path would replace .*model.ckpt-best"):
        run_script(
            export_checkpoints, albert_directory=folder, export_path=folder / "model.ckpt-best"
        )


def test_a_decision_of_another_checkpoint_is_a_warning(tmp_path, run_script, caplog):
    found = decision.Decision(2.5, min_probability=0.75, max_error=0.05, step=10)
    folder = builders.write_classifier(tmp_path / "run", step=10, decision=found)
    checkpoints.copy(f"{folder}/model.ckpt-10", f"{folder}/model.ckpt-20")
    for step, count in ((10, 0), (20, 1)):
        target, name = tmp_path / f"of_{step}", f"model.ckpt-{step}"
        run_script(
            export_checkpoints, albert_directory=folder, checkpoint_name=name,
            export_path=f"{target}/",
        )  # fmt: skip
        warning = f"{folder}/model.json: found with the checkpoint of step 10, not with {name}"
        assert sum(text.startswith(warning) for text in caplog.messages) == count
        assert model_folder.described_decision(str(target)) == found
