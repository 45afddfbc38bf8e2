"""A folder that another program has fine-tuned is complete after one run here."""

import json

import pytest

from albert import predict, run_classifier, run_race, run_squad_v1
from albert.io import file_io, locks
from albert.model import checkpoints, heads, model_folder
from albert.serving import predictors
from tests.support import builders, squad_samples

CONFIG = builders.tiny_config(max_position_embeddings=64)


def foreign(folder, model):
    """A folder with a checkpoint and, in a folder next to it, the configuration."""
    folder.mkdir()
    checkpoints.save(str(folder / "model.ckpt-best"), model)
    file_io.write_text(f"{folder}.json", CONFIG.to_json_string())
    return folder


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """One task in GLUE's layout."""
    folder = tmp_path_factory.mktemp("data") / "SST-2"
    folder.mkdir()
    for split, text in builders.reviews().items():
        lines = text.splitlines(keepends=True)[:21]
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder.parent


def flags_for(reviews, folder, **changes):
    return {
        "data_dir": reviews, "task_name": "SST-2", "output_dir": folder, "max_seq_length": 32,
        "albert_config_file": f"{folder}.json", "spm_model_file": builders.SPM,
        **changes,
    }  # fmt: skip


@pytest.mark.slow
def test_a_classifier_can_be_used_alone_after_one_run(reviews, tmp_path, run_script):
    folder = foreign(tmp_path / "out", heads.ClassifierModel(CONFIG, 2, seed=1))
    texts = tmp_path / "texts.txt"
    texts.write_text("the bread was fine .\n")
    asked = {"model_dir": folder, "input_file": texts, "output_file": tmp_path / "found.tsv"}
    with pytest.raises(file_io.InputError, match="another program .* albert.run_classifier --task"):
        run_script(predict, **asked)
    bare = {"data_dir": reviews, "task_name": "SST-2", "output_dir": folder, "do_predict": True}
    with pytest.raises(file_io.InputError, match="another program .* albert.run_classifier --task"):
        run_script(run_classifier, **bare)
    run_script(run_classifier, **flags_for(reviews, folder, do_predict=True))
    assert model_folder.read(str(folder), "classifier").settings["max_seq_length"] == 32
    expected = (folder / "test_results.tsv").read_text()
    run_script(run_classifier, **bare, max_seq_length=32)
    assert (folder / "test_results.tsv").read_text() == expected
    run_script(predict, **asked)
    assert len((tmp_path / "found.tsv").read_text().splitlines()) == 2


@pytest.mark.slow
def test_only_a_run_that_succeeds_with_this_model_completes_it(
    reviews, tmp_path, run_script, monkeypatch, caplog
):
    folder = foreign(tmp_path / "out", heads.ClassifierModel(CONFIG, 2, seed=1))
    other = foreign(tmp_path / "other", heads.ClassifierModel(CONFIG, 2, seed=2))
    flags = flags_for(reviews, folder, do_predict=True)
    missing = {**flags, "data_dir": tmp_path}
    with pytest.raises(file_io.InputError, match="the file .* does not exist"):
        run_script(run_classifier, **missing)
    run_script(run_classifier, **flags, checkpoint=other / "model.ckpt-best")
    assert not (folder / "model.json").exists()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level("WARNING", logger="absl"):
        patch.setattr(model_folder, "write", full)
        run_script(run_classifier, **flags)
    assert "could not be made usable without flags: [Errno 28] No space left" in caplog.text
    assert not (folder / "model.json").exists()
    run_script(run_classifier, **flags, checkpoint="best")
    assert (folder / "model.json").exists()


def test_a_folder_that_tensorflow_cannot_read_is_refused_before_any_work(
    reviews, tmp_path, run_script
):
    folder = foreign(tmp_path / "out", heads.ClassifierModel(CONFIG, 2, seed=1))
    flags = flags_for(reviews, folder, do_train=True, from_scratch=True)
    with pytest.raises(file_io.InputError, match=r"path has a backslash: .*a.b; use another"):
        run_script(run_classifier, **{**flags, "output_dir": tmp_path / "a\\b"})
    assert not list((tmp_path / "a\\b").iterdir())


def test_one_trains_and_others_predict(reviews, tmp_path, run_script, monkeypatch):
    folder = foreign(tmp_path / "out", heads.ClassifierModel(CONFIG, 2, seed=1))
    flags = flags_for(reviews, folder)
    training = {**flags, "do_train": True, "from_scratch": True, "train_step": 1, "warmup_step": 0}
    with locks.written_by_one(str(folder)):
        with pytest.raises(file_io.InputError, match="writes to .* use another --output_dir"):
            run_script(run_classifier, **training)
        assert not list(folder.glob("*record*"))
        run_script(run_classifier, **flags, do_predict=True)
    assert not list(tmp_path.rglob("*.lock"))

    def lost(lock):
        raise file_io.InputError("another process has taken over")

    monkeypatch.setattr(locks.Lock, "check", lost)
    with pytest.raises(file_io.InputError, match="another process has taken over"):
        run_script(run_classifier, **training)
    assert not list(folder.glob("model.ckpt-0*")) and not list(tmp_path.rglob("*.lock"))


@pytest.mark.slow
def test_a_multiple_choice_model(tmp_path, run_script):
    place = tmp_path / "RACE" / "test" / "high"
    place.mkdir(parents=True)
    for number, passage in enumerate(builders.passages("high", "test", 2)):
        (place / f"{number}.txt").write_text(json.dumps(passage))
    folder = foreign(tmp_path / "out", heads.MultipleChoiceModel(CONFIG, 4, 0.1, seed=1))
    flags = {
        "data_dir": tmp_path, "output_dir": folder, "do_train": False, "do_eval": False,
        "do_predict": True, "high_only": True, "max_seq_length": 40, "max_qa_length": 20,
    }  # fmt: skip
    with pytest.raises(file_io.InputError, match="albert.run_race --nodo_train --nodo_eval --data"):
        run_script(run_race, **flags)
    model = {"albert_config_file": f"{folder}.json", "spm_model_file": builders.SPM}
    run_script(run_race, **flags, **model)
    answers = (folder / "predictions.tsv").read_text()
    run_script(run_race, **flags)
    assert (folder / "predictions.tsv").read_text() == answers


@pytest.mark.slow
def test_a_model_that_answers_questions(tmp_path, run_script):
    squad_samples.write_inputs(tmp_path, version=1)
    folder = foreign(tmp_path / "out", heads.SquadV1Model(CONFIG, seed=1))
    with pytest.raises(file_io.InputError, match="albert.run_squad_v1 --predict_file=… --do_pred"):
        predictors.Answerer(str(folder))
    flags = squad_samples.flags_for(
        tmp_path, folder, do_predict=True, albert_config_file=f"{folder}.json",
        predict_file=tmp_path / "test.json",
    )  # fmt: skip
    run_script(run_squad_v1, **flags)
    reply = predictors.Answerer(str(folder)).ask("What was fine?", "The bread was fine.")
    assert reply.answers
