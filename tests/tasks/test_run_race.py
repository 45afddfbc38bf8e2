"""RACE end to end on made-up passages: the right option is the only good one."""

import json
import os

import pytest

from albert import run_race
from albert.experiments import runs
from albert.experiments.predictions import read as read_predictions
from albert.io import file_io
from albert.model import checkpoints, encoder, model_folder
from albert.serving import example_requests, requests
from albert.tasks import race
from albert.training import optimizers, stages
from tests.support import recorded_runs, reference_folder
from tests.support.builders import (
    SPM,
    passages,
    read_examples,
    read_results,
    tiny_config,
    weights,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Passages in both layouts, and a configuration."""
    folder = tmp_path_factory.mktemp("race")
    for level in race.LEVELS:
        for split, count in (("train", 150), ("dev", 16), ("test", 7)):
            place = folder / "RACE" / split / level
            place.mkdir(parents=True)
            texts = [json.dumps(passage) for passage in passages(level, split, count)]
            if split == "test":
                for number, text in enumerate(texts):
                    (place / f"{number}.txt").write_text(text)
            else:
                (place / "all.txt").write_text("\n".join(texts))
    config = tiny_config(
        embedding_size=16, hidden_size=32, intermediate_size=32, max_position_embeddings=40,
        initializer_range=0.2,
    )  # fmt: skip
    file_io.write_text(str(folder / "albert_config.json"), config.to_json_string())
    return folder


def flags_for(inputs, output_dir, **changes):
    return {
        "data_dir": inputs, "output_dir": output_dir, "spm_model_file": SPM,
        "albert_config_file": inputs / "albert_config.json", "max_seq_length": 40,
        "max_qa_length": 20, "train_step": 4, "save_checkpoints_steps": 2, "warmup_step": 0,
        "train_batch_size": 8, "learning_rate": 2e-3, "from_scratch": True, **changes,
    }  # fmt: skip


def test_estimated_memory_counts_all_choices(inputs, tmp_path, run_script, capsys):
    with pytest.raises(SystemExit):
        run_script(run_race, **flags_for(inputs, tmp_path, do_train=True, estimate_memory=True))
    assert "estimated for 32 x 40 tokens" in capsys.readouterr().out


def test_the_optimizer_is_that_of_the_flag(inputs, tmp_path, run_script, monkeypatch):
    made = []
    monkeypatch.setattr(stages, "run", lambda task, data, run: made.append(run.training.optimizer))
    for changes in ({}, {"optimizer": "lamb"}):
        run_script(run_race, **flags_for(inputs, tmp_path, do_train=True, **changes))
    kinds = [optimizers.AdamWeightDecayOptimizer, optimizers.LAMB]
    assert [type(optimizers.build(settings)) for settings in made] == kinds


@pytest.mark.slow
def test_train_evaluate_and_predict(inputs, tmp_path, run_script, golden):
    flags = flags_for(
        inputs, tmp_path, do_predict=True, train_step=120, save_checkpoints_steps=40,
        num_keep_checkpoint=1,
    )  # fmt: skip
    run_script(run_race, **flags)
    _check_that_results_have_the_names_of_the_reference(tmp_path, golden)
    results = read_results(tmp_path)
    assert [int(block["global_step"]) for block in results] == [0, 40, 80, 120]
    accuracies = [float(block["eval_accuracy"]) for block in results]
    assert accuracies[0] < 0.6 and max(accuracies) > 0.9
    last = results[-1]
    by_level = [float(last[f"eval_accuracy_{level}"]) for level in race.LEVELS]
    assert sum(by_level) / 2 == pytest.approx(accuracies[-1], abs=1e-6)
    # The best is kept in addition to the one that the flag asks for.
    assert [os.path.basename(p) for p in checkpoints.numbered(str(tmp_path))] == ["model.ckpt-120"]
    best = results[accuracies.index(max(accuracies))]
    assert weights(tmp_path / "model.ckpt-best")["global_step"] == int(best["global_step"])
    names = {"race_train.tf_record", "race_eval.tf_record", "predict.tf_record"}
    assert names <= set(os.listdir(tmp_path))
    kept = example_requests.read(str(tmp_path), requests.CHOICE)
    first = next(passages("middle", "dev", 1))
    assert len(kept) == 3 and kept[0] == {
        "article": first["article"],
        "question": first["questions"][0],
        "options": first["options"][0],
    }
    scores = dict(
        line.split(" = ") for line in (tmp_path / "predict_results.txt").read_text().splitlines()
    )
    assert list(scores) == [
        *("eval_accuracy", "eval_accuracy_high", "eval_accuracy_middle", "eval_loss", "loss"),
    ]
    rows = [line.split("\t") for line in (tmp_path / "predictions.tsv").read_text().splitlines()]
    answers = {
        f"{passage['id']}#{number}": answer
        for level in race.LEVELS
        for passage in passages(level, "test", 7)
        for number, answer in enumerate(passage["answers"], 1)
    }
    assert [row[0] for row in rows[1:]] == list(answers)
    right = sum(answers[row[0]] == row[1] for row in rows[1:])
    assert right / len(answers) == pytest.approx(float(scores["eval_accuracy"]))
    kept = read_predictions(runs.read_run(str(tmp_path), "run"))
    assert kept.metrics["eval_accuracy"].value == pytest.approx(right / len(answers))
    examples = read_examples(tmp_path)
    assert {row["id"]: row["label"] for row in examples} == answers
    assert {row["id"]: row["right"] for row in examples} == kept.right
    assert examples[0]["text"].startswith(kept.texts[rows[1][0]][:40])
    assert dict(kept.labels) == answers and "the bread was fine ." in kept.texts[rows[1][0]]
    assert float(scores["eval_accuracy"]) > 0.8
    assert model_folder.read(str(tmp_path), "multiple_choice").settings["max_qa_length"] == 20
    data = ("train_data", "eval_data", "predict_data")
    record = recorded_runs.check_record(tmp_path, "run_race", "configuration", "vocabulary", *data)
    # The score on test data stands next to that of the best checkpoint.
    test = record["test"]
    assert test["step"] == record["result"]["step"] == int(best["global_step"])
    assert test["eval_accuracy"] == pytest.approx(float(scores["eval_accuracy"]))
    assert 0.25 <= record["baseline"]["eval_accuracy"] < 0.6
    assert record["inputs"]["train_data"]["count"] == 2  # a file for each level
    _check_that_a_best_of_the_reference_is_not_lost(inputs, tmp_path, run_script)


def _check_that_a_best_of_the_reference_is_not_lost(inputs, trained, run_script):
    flags = flags_for(inputs, trained / "reference", train_step=1)

    def run(do_train):
        return run_script(run_race, **flags, do_train=do_train)

    reference_folder.check_best_survives(trained, trained / "reference", run)


def _check_that_results_have_the_names_of_the_reference(folder, golden):
    theirs = (golden / "runs" / "race" / "eval_results.txt").read_text().split("=" * 50)
    keys = {line.split(" = ")[0] for line in theirs[1].splitlines() if " = " in line}
    added = {"eval_accuracy_high", "eval_accuracy_middle"}
    assert set(read_results(folder)[1]) == keys | added


@pytest.mark.slow
def test_prediction_alone_and_one_level_alone(inputs, tmp_path, run_script):
    run_script(run_race, **flags_for(inputs, tmp_path, middle_only=True))
    assert "eval_accuracy_high" not in read_results(tmp_path)[-1]
    alone = flags_for(inputs, tmp_path, do_train=False, do_eval=False, do_predict=True)
    run_script(run_race, **alone, high_only=True)
    lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert len(lines) == 15 and all(line.startswith("high") for line in lines[1:])


def test_named_record_files_are_used(inputs, tmp_path, run_script, monkeypatch):
    def make_records(task, data, run):
        paths = [path for split in ("train", "dev", "test") for path in data.records(split)]
        assert paths == [str(path) for path in named.values()]

    monkeypatch.setattr(stages, "run", make_records)
    named = {
        f"{name}_file": tmp_path / "records" / f"{name}.tf_record"
        for name in ("train", "eval", "predict")
    }
    flags = flags_for(inputs, tmp_path / "out", do_predict=True, **named)
    run_script(run_race, **flags)
    made = {path: os.stat(path).st_mtime_ns for path in named.values()}
    run_script(run_race, **{**flags, "output_dir": tmp_path / "other"})
    assert {path: os.stat(path).st_mtime_ns for path in named.values()} == made
    run_script(run_race, **{**flags, "output_dir": tmp_path / "third", "max_qa_length": 10})
    assert all(os.stat(path).st_mtime_ns > made[path] for path in named.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_train": False, "do_eval": False}, "nothing to do: none of --do_train"),
        ({"task_name": "squad"}, "--task_name=squad: expected race"),
        ({"high_only": True, "middle_only": True}, "--high_only and --middle_only contradict"),
        ({"max_qa_length": 37}, "--max_qa_length=37 must be .* below --max_seq_length=40"),
        ({"max_seq_length": 41}, "max_position_embeddings of 40"),
        ({"dropout_prob": 1.0}, "--dropout_prob=1.0 must be a fraction"),
        ({"train_file": "x", "predict_file": "x"}, "give each its own name, not x, x"),
        ({"from_scratch": False}, "no weights to start from"),
        (
            {"data_dir": "nowhere"},
            "folder nowhere/RACE/train/middle does not exist; expected --data_dir",
        ),
        ({"train_batch_size": 0}, "--train_batch_size=0 must be at least 1"),
        ({"do_train": False}, "there is no checkpoint to evaluate in"),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_race, **flags_for(inputs, tmp_path / "out", **changes))


@pytest.mark.slow
def test_a_small_model_runs_through_the_real_dev_set(shared, tmp_path, run_script):
    """From records of 2,060 questions to scores by level, with random weights."""
    config = encoder.AlbertConfig(
        vocab_size=30000, embedding_size=4, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=1, intermediate_size=8, max_position_embeddings=64,
    )  # fmt: skip
    file_io.write_text(str(tmp_path / "config.json"), config.to_json_string())
    flags = flags_for(
        shared / "data" / "race", tmp_path / "out", train_step=1, max_seq_length=64,
        albert_config_file=tmp_path / "config.json", eval_batch_size=64,
        spm_model_file=shared / "data" / "spm" / "30k-clean.model",
    )  # fmt: skip
    run_script(run_race, **flags)
    last = read_results(tmp_path / "out")[-1]
    middle, high = (float(last[f"eval_accuracy_{level}"]) for level in race.LEVELS)
    overall = (1001 * middle + 1059 * high) / 2060
    assert float(last["eval_accuracy"]) == pytest.approx(overall, abs=1e-6)
    assert 0.2 < overall < 0.3
