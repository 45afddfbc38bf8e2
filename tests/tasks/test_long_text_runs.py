"""Runs, predictions and servers of models that read long texts in windows."""

import csv
import json
import math

import numpy as np
import pytest

from albert import run_classifier
from albert.export import saved_model_export
from albert.io import file_io
from albert.serving import predictors
from albert.text import long_texts
from tests.support import builders

NUMBER = 24


def texts(seed):
    rng = np.random.default_rng(seed)
    for number in range(NUMBER):
        words = ["good", "soup"] if number % 2 else ["bad", "bread"]
        yield " ".join(rng.choice([*words, "the", "of"], rng.integers(2, 40))), "yn"[number % 2]


def own_flags(folder, output_dir, **changes):
    flags = builders.glue_flags(
        folder, output_dir, "custom", train_file=folder / "train.csv",
        validation_file=folder / "dev.csv", test_file=folder / "test.csv", max_seq_length=16,
        train_step=6, save_checkpoints_steps=3, train_batch_size=8, **changes,
    )  # fmt: skip
    del flags["data_dir"]
    return flags


STAGES = {"do_train": True, "from_scratch": True}
WINDOWS = {"long_texts": "windows"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    builders.write_glue(folder)
    for seed, split in enumerate(("train", "dev", "test")):
        with open(folder / f"{split}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *texts(seed)])
    return folder


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows") / "out"
    flags = own_flags(inputs, folder, do_eval=True, do_predict=True, **STAGES, **WINDOWS)
    builders.run(run_classifier, **flags)
    return folder


def predictions(folder):
    with open(folder / "predictions.tsv", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


@pytest.mark.slow
def test_each_text_is_one_prediction_and_predictors_find_the_same(inputs, trained):
    settings = json.loads((trained / "model.json").read_text())["settings"]
    assert settings["long_texts"] == {"mode": "windows", "doc_stride": 10}
    (_, *rows) = predictions(trained)
    assert [row[0] for row in rows] == [str(number) for number in range(NUMBER)]
    predictor = predictors.load(str(trained))
    found = list(predictor.predict([text for text, _ in texts(2)], batch_size=4, batches_ahead=2))
    for row, result in zip(rows, found, strict=True):
        assert row[1] == result.prediction and not result.truncated
        expected = [float(p) for p in row[2:]]
        assert [*result.probabilities.values()] == pytest.approx(expected, abs=1e-5)
    scores = dict(line.split(" = ") for line in (trained / "predict_results.txt").open())
    right = [row[1] == label for row, (_, label) in zip(rows, texts(2), strict=True)]
    assert float(scores["eval_accuracy"]) == pytest.approx(np.mean(right))
    own = [
        -math.log(float(row[2 + ["n", "y"].index(label)]))
        for row, (_, label) in zip(rows, texts(2), strict=True)
    ]
    assert float(scores["eval_loss"]) == pytest.approx(np.mean(own), abs=1e-5)
    assert predictor.form.is_split  # requests: nothing is cut
    with pytest.raises(file_io.InputError, match="this model has long_texts=windows"):
        saved_model_export.check_cut(long_texts.LongTexts.from_settings(settings))


@pytest.mark.slow
def test_later_runs_read_texts_as_the_training_did(inputs, trained, tmp_path, run_script, caplog):
    caplog.set_level("INFO", logger="absl")
    flags = own_flags(inputs, trained, do_eval=True)
    run_script(run_classifier, **flags)
    assert not list(trained.glob("*.earlier*"))  # nothing differs from the evaluations before
    assert "As in the training of" in caplog.text and "long_texts=windows" in caplog.text
    assert f"none of {NUMBER} texts was cut; " in caplog.text  # of records made earlier
    (step,) = {row["global_step"] for row in builders.read_results(trained)[-1:]}
    assert step == "6"
    record = json.loads((trained / "run.json").read_text())
    assert sum(row["labels"] for row in record["classes"]) == NUMBER
    assert record["sessions"][-1]["classes"] == record["classes"]
    assert "class  precision  recall     f1  support" in caplog.text

    half = own_flags(
        inputs, tmp_path / "half", do_eval=True, do_predict=True, predict_on="dev",
        init_checkpoint=trained / "model.ckpt-best", eval_fraction=0.5, **WINDOWS,
    )  # fmt: skip
    run_script(run_classifier, **half)
    ids = [int(row[0]) for row in predictions(tmp_path / "half")[1:]]
    assert ids == sorted(set(ids)) and len(ids) == NUMBER // 2
    outcomes = [json.loads(line) for line in (tmp_path / "half" / "examples.jsonl").open()]
    dev = list(texts(1))
    assert [(row["text"], row["label"]) for row in outcomes] == [dev[number] for number in ids]

    for mode in ("cut", "head_tail"):
        flags = own_flags(inputs, trained, **STAGES, long_texts=mode)
        with pytest.raises(file_io.InputError, match='of another model: .*"windows"'):
            run_script(run_classifier, **flags)


@pytest.mark.slow
def test_epochs_count_windows_and_the_log_what_is_cut(inputs, tmp_path, run_script, caplog):
    caplog.set_level("INFO", logger="absl")
    flags = own_flags(inputs, tmp_path / "out", **STAGES, long_texts="windows")
    del flags["train_step"]
    run_script(run_classifier, **flags, num_train_epochs=0.3)
    count = int(caplog.text.partition("epochs of ")[2].split()[0])
    assert count > NUMBER and f"Wrote {count} examples" in caplog.text
    caplog.clear()
    flags = own_flags(inputs, tmp_path / "cut", **STAGES)
    run_script(run_classifier, **flags)
    assert f" of {NUMBER} texts were cut to fit, which lost " in caplog.text
    assert "% of all tokens; long_texts=windows reads all of them" in caplog.text


@pytest.mark.slow
def test_windows_of_texts_with_several_labels_answer_as_one(inputs, tmp_path, run_script):
    files = {}
    for seed, split in enumerate(("train", "dev", "test")):
        files[split] = tmp_path / f"{split}.jsonl"
        rows = [
            (text, sorted({"soup", "bread", "good"} & {*text.split()})) for text, _ in texts(seed)
        ]
        lines = (json.dumps({"text": text, "label": labels}) for text, labels in rows)
        files[split].write_text("\n".join(lines))
    names = {"train_file": "train", "validation_file": "dev", "test_file": "test"}
    changes = {flag: files[split] for flag, split in names.items()}
    out = tmp_path / "out"
    flags = own_flags(inputs, out, **STAGES, **WINDOWS) | changes
    flags |= {"label_type": "multi_label", "do_eval": True, "do_predict": True}
    flags |= {"choose_thresholds": True, "calibrate": True, "class_weights": "balanced"}
    run_script(run_classifier, **flags)
    (head, *rows) = predictions(out)
    assert head[2:] == ["probability_bread", "probability_good", "probability_soup"]
    assert len(rows) == NUMBER
    predictor = predictors.load(str(out))
    thresholds = predictor.decision.thresholds
    assert len(thresholds) == 3 and predictor.form.is_split
    for row, result in zip(rows, predictor.predict([t for t, _ in texts(2)]), strict=True):
        expected = [float(p) for p in row[2:]]
        assert [*result.probabilities.values()] == pytest.approx(expected, abs=1e-5)
        assert row[1] == ",".join(result.prediction) and not result.truncated
    record = json.loads((out / "run.json").read_text())
    assert record["calibration"]["thresholds"]["examples"] == NUMBER


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"doc_stride": 8}, "--doc_stride: only for --long_texts=windows"),
        ({"long_texts": "windows", "doc_stride": 15}, "--doc_stride=15 must be at most 14"),
        (
            {"long_texts": "head_tail", "export_text": True, "export_dir": "x"},
            "--export_text writes a model that cuts long texts",
        ),
    ],
)
def test_mistakes_are_named(inputs, tmp_path, run_script, changes, message):
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **own_flags(inputs, tmp_path / "out", **STAGES | changes))
