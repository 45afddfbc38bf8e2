"""`--calibrate` and `--max_error`: from the flags to every place that answers."""

import csv
import json
import random
import re
import shutil

import numpy as np
import pytest

from albert import predict, run_classifier
from albert.experiments import model_card, report, runs
from albert.export import serving_export
from albert.io import file_io
from albert.model import checkpoints, heads, model_folder
from albert.model import decision as decisions
from albert.serving import batcher, hosted_models, inference, served_model, text_predictor
from albert.tasks import calibration
from albert.training import results, run_record
from tests.support import builders

WORDS = "the old harbour was bread cake soup fine bad good stale warm new".split()
NAMES = ("bad", "good")


def texts(count, seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(count)]


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A classifier with random weights, and dev data of which it gets the most certain half right.

    The others are right as often as not.
    """
    root = tmp_path_factory.mktemp("calibration")
    config = builders.tiny_config(initializer_range=0.5)  # so that texts differ
    folder = builders.write_classifier(root / "run", labels=NAMES, config=config)
    model = heads.ClassifierModel(config, 2, seed=1)
    checkpoints.save(f"{folder}/model.ckpt-best", model)
    found = [*text_predictor.TextPredictor(folder).predict(texts(200, 0))]
    logits = calibration.to_logits(np.array([list(row.probabilities.values()) for row in found]))
    margins = logits[:, 0] - logits[:, 1]
    # Both labels are about as frequent, and some texts are certain.
    scale = 3 / margins.std()
    model.output.weights.assign(scale * model.output.weights)
    model.output.bias.assign([0.0, scale * np.median(margins)])
    checkpoints.save(f"{folder}/model.ckpt-best", model)
    rows = [*text_predictor.TextPredictor(folder).predict(texts(200, 0))]
    middle = np.median([max(row.probabilities.values()) for row in rows])
    rng, labeled = random.Random(2), []
    for text, row in zip(texts(200, 0), rows, strict=True):
        is_certain = max(row.probabilities.values()) > middle
        right = row.prediction if is_certain or rng.random() < 0.5 else ""
        other = NAMES[1 - NAMES.index(row.prediction)]
        labeled.append((text, right or other))
    write_csv(root / "dev.csv", labeled)
    write_csv(root / "train.csv", labeled[:20])
    return root


def flags(made, folder, **changes):
    return {
        "task_name": "custom", "validation_file": made / "dev.csv", "output_dir": folder,
        "do_eval": True, "eval_batch_size": 50, "predict_batch_size": 50, **changes,
    }  # fmt: skip


@pytest.fixture(scope="module")
def plain(made, tmp_path_factory, run_script):
    """The folder after an evaluation without the flags."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    shutil.copytree(made / "run", folder)
    run_script(run_classifier, **flags(made, folder))
    return folder


@pytest.fixture(scope="module")
def calibrated(made, tmp_path_factory, run_script):
    """The folder after an evaluation with both flags."""
    folder = tmp_path_factory.mktemp("calibrated") / "run"
    shutil.copytree(made / "run", folder)
    both = {"calibrate": True, "max_error": 0.1}
    test = {"do_predict": True, "test_file": made / "dev.csv"}
    run_script(run_classifier, **flags(made, folder, **both, **test))
    return folder


def probabilities(folder, **given):
    found = text_predictor.TextPredictor(str(folder), **given).predict(texts(200, 0))
    return [*found]


@pytest.mark.slow
def test_the_temperature_and_threshold_are_kept_and_used(made, plain, calibrated):
    before, after = probabilities(plain), probabilities(calibrated)
    logits = calibration.to_logits(np.array([list(row.probabilities.values()) for row in before]))
    lines = (made / "dev.csv").read_text().splitlines()[1:]
    labels = [NAMES.index(line.split(",")[1]) for line in lines]
    decision = model_folder.described_decision(str(calibrated))
    expected = calibration.fit_temperature(logits, np.array(labels))
    assert decision.temperature == pytest.approx(expected, rel=1e-3)
    scaled = calibration.softmax(logits / expected)
    np.testing.assert_allclose(
        [list(row.probabilities.values()) for row in after], scaled, rtol=1e-3
    )
    promise = calibration.find_abstention(scaled, np.array(labels), 0.1, expected)
    assert 0 < promise.coverage < 1
    assert decision.min_probability == pytest.approx(promise.threshold, rel=1e-3)
    assert (decision.max_error, decision.coverage) == (0.1, promise.coverage)
    for one, other, row in zip(before, after, scaled, strict=True):
        abstains = row.max() < promise.threshold
        assert other.prediction == ("abstains" if abstains else one.prediction)


def test_the_figures_are_added_to_results_and_record(plain, calibrated):
    before, after = ((f / "eval_results.txt").read_text() for f in (plain, calibrated))
    block, added = before.partition("=====")[0], after.partition("=====")[0]
    assert added.startswith(block)  # the earlier lines stay as they are
    values = dict(line.split(" = ") for line in added.removeprefix(block).splitlines())
    found = run_record.read(str(calibrated))["calibration"]
    assert float(values["temperature"]) == np.float32(found["temperature"]["temperature"])
    names = {f"{when}_{name}" for when in ("calibrated", "uncalibrated") for name in
             ("log_loss", "brier", "ece", "ece_low", "ece_high", "ece_by_chance")}  # fmt: skip
    promise = {"max_error", "coverage", "threshold", "error", "error_bound"}
    assert {*values} == {"temperature", *names, *(f"abstention_{name}" for name in promise)}
    loss = dict(line.split(" = ") for line in block.splitlines())["eval_loss"]
    assert float(values["uncalibrated_log_loss"]) == pytest.approx(float(loss), rel=1e-5)
    assert found["abstention"]["coverage"] == pytest.approx(float(values["abstention_coverage"]))
    assert sum(row["count"] for row in found["temperature"]["after"]["bins"]) == 200


@pytest.mark.slow
def test_reports_and_cards_show_them(plain, calibrated, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    page = report.run_page(runs.read_run(str(calibrated), "run"))
    for text in ("Calibration on 200 examples: temperature", "At most 10.00% errors",
                 "After, cross-fitted calibration", "Examples of each bin"):  # fmt: skip
        assert text in page
    assert "Probabilities" not in report.run_page(runs.read_run(str(plain), "run"))
    step = run_record.read(str(calibrated))["calibration"]["step"]
    form = model_card.transformers_form("classification")
    model_card.write(str(tmp_path), str(calibrated), form, step, model_card.CardFields())
    card = (tmp_path / "README.md").read_text()
    assert "## Probabilities\n\nCalibration on 200 examples" in card


def test_predictions_of_the_same_run_have_the_temperature(calibrated):
    rows = [line.split("\t") for line in (calibrated / "test_results.tsv").read_text().splitlines()]
    expected = [list(row.probabilities.values()) for row in probabilities(calibrated)]
    np.testing.assert_allclose(np.float32(rows), expected, rtol=1e-4)
    # The files of the reference have an answer for each example.
    assert "abstains" not in (calibrated / "submit_results.tsv").read_text()


def test_scores_of_the_test_data_end_with_what_is_answered(calibrated, tmp_path, run_script):
    lines = (calibrated / "predict_results.txt").read_text().splitlines()
    scores = [line.split(" = ") for line in lines]
    (dev,) = builders.read_results(calibrated)
    names = ["abstention_coverage", "abstention_error"]
    assert scores[-2:] == [[name, dev[name]] for name in names]  # the same texts
    assert [name for name, _ in scores[:-2]] == sorted(name for name, _ in scores[:-2])
    shutil.copytree(calibrated, tmp_path / "run")
    (tmp_path / "new.csv").write_text("\n".join(["text", *texts(200, 0)]))
    new = {"test_file": tmp_path / "new.csv", "output_dir": tmp_path / "run"}
    run_script(run_classifier, task_name="custom", do_predict=True, **new)
    text = (tmp_path / "run" / "predict_results.txt").read_text()
    assert text == f"abstention_coverage = {dev['abstention_coverage']}\n"  # no labels: no scores


def test_predict_reports_coverage(calibrated, tmp_path, caplog, run_script):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts(200, 0)))
    with caplog.at_level("INFO", "absl"):
        run_script(
            predict, model_dir=calibrated, input_file=tmp_path / "in.txt",
            output_file=tmp_path / "out.tsv",
        )  # fmt: skip
    answers = [line.split("\t")[1] for line in (tmp_path / "out.tsv").read_text().splitlines()[1:]]
    answered = sum(answer != "abstains" for answer in answers)
    assert 0 < answered < 200
    assert f"Answered {answered} of 200 texts" in caplog.text


def test_servers_and_exported_folders_abstain_alike(calibrated, tmp_path):
    hosted = hosted_models.HostedModel(
        "a", True, lambda rows, seconds: None, max_batch_size=32, delay=0.0, capacity=200
    )
    model = served_model.load(str(calibrated))
    served_model.warm(model, 4)
    hosted.start(model)
    expected = probabilities(calibrated)
    rows = [batcher.Row({"text": text}, length=9, weight=1) for text in texts(200, 0)]
    found = hosted.submit(rows).result()
    hosted.close()
    assert [row["prediction"] for row in found] == [row.prediction for row in expected]
    facts = hosted.described()["abstention"]
    assert (facts["max_error"], facts["texts"]) == (0.1, 200)
    assert facts["answered"] == sum(row.prediction != "abstains" for row in expected)
    assert facts["coverage"] == model_folder.described_decision(str(calibrated)).coverage
    pytest.importorskip("onnxruntime")
    serving_export.export(str(calibrated), str(tmp_path / "onnx"), "onnx")
    assert [row.prediction for row in probabilities(tmp_path / "onnx")] == [
        row.prediction for row in expected
    ]


@pytest.mark.slow
def test_a_new_temperature_drops_the_promise(made, calibrated, tmp_path, caplog, run_script):
    shutil.copytree(calibrated, tmp_path / "run")
    before = model_folder.described_decision(str(calibrated))
    with caplog.at_level("WARNING", "absl"):
        run_script(run_classifier, **flags(made, tmp_path / "run", calibrate=True))
    assert "its threshold is dropped" in caplog.text
    found = model_folder.described_decision(str(tmp_path / "run"))
    assert not found.may_abstain
    assert found.temperature == pytest.approx(before.temperature, rel=1e-3)  # not scaled twice
    assert "abstention" not in (tmp_path / "run" / "eval_results.txt").read_text()
    assert "abstention" not in run_record.read(str(tmp_path / "run"))["calibration"]
    # A threshold alone keeps the temperature.
    run_script(run_classifier, **flags(made, tmp_path / "run", max_error=0.1))
    again = model_folder.described_decision(str(tmp_path / "run"))
    assert again.temperature == found.temperature
    assert again.coverage == before.coverage
    assert "temperature" in run_record.read(str(tmp_path / "run"))["calibration"]


def test_a_promise_that_cannot_be_kept_is_a_remark(made, tmp_path, caplog, run_script):
    shutil.copytree(made / "run", tmp_path / "run")
    with caplog.at_level("WARNING", "absl"):
        run_script(run_classifier, **flags(made, tmp_path / "run", max_error=0.001))
    assert "At most 0.10% errors (confidence 95%) cannot be promised" in caplog.text
    # 2,995 without an error, and about half of the texts are answered without one.
    needed = int(re.search(r"about (\d+) dev examples would be needed", caplog.text)[1])
    assert 2995 * 1.9 < needed < 2995 * 2.2
    assert not model_folder.described_decision(str(tmp_path / "run")).may_abstain
    remarks = runs.read_run(str(tmp_path / "run"), "run").remarks
    assert "no threshold keeps its errors within 0.10%" in remarks


@pytest.mark.slow
def test_a_later_evaluation_keeps_the_lines_of_what_is_in_use(
    made, plain, calibrated, tmp_path, run_script
):
    folder = shutil.copytree(calibrated, tmp_path / "run")
    run_script(run_classifier, **flags(made, folder))
    before = (calibrated / "eval_results.txt").read_text()
    assert (folder / "eval_results.txt").read_text() == before
    model_folder.write_decision(str(folder), decisions.PLAIN)
    run_script(run_classifier, **flags(made, folder))
    assert (folder / "eval_results.txt").read_text() == (plain / "eval_results.txt").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calibrate": True, "do_eval": False, "do_predict": True}, "--calibrate needs the dev"),
        ({"max_error": 0.1, "checkpoint": "last"}, "--max_error is for the best checkpoint"),
        ({"max_error": 0}, "--max_error=0.0 must be above 0 and below 1"),
        ({"max_error": 5}, "--max_error=5.0 must be above 0"),
        ({"choose_thresholds": True}, "--choose_thresholds: only for --label_type=multi_label"),
        ({"calibrate": True, "output_dir": "elsewhere"}, "elsewhere has none: train"),
    ],
)
def test_mistakes_are_named(made, changes, message, run_script):
    given = {**flags(made, made / "run"), "train_file": made / "train.csv", **changes}
    with pytest.raises(file_io.InputError, match=message):
        run_script(run_classifier, **given)


def test_numbers_and_a_label_of_that_name_are_refused(made, tmp_path, run_script):
    rows = [("a", 1.5), ("b", 2.5)]
    with pytest.raises(file_io.InputError, match="--calibrate: only for classes"):
        train = write_csv(tmp_path / "numbers.csv", rows)
        run_script(
            run_classifier, **flags(made, tmp_path / "run", train_file=train, calibrate=True)
        )
    with pytest.raises(file_io.InputError, match="the label 'abstains' would be taken"):
        train = write_csv(tmp_path / "names.csv", [("a", "abstains"), ("b", "no")])
        run_script(run_classifier, **flags(made, tmp_path / "run", train_file=train, max_error=0.1))


@pytest.mark.slow
def test_predictions_and_exports_of_another_checkpoint_are_warned_of(
    made, tmp_path, caplog, run_script
):
    folder = shutil.copytree(made / "run", tmp_path / "run")
    checkpoints.copy(f"{folder}/model.ckpt-best", f"{folder}/model.ckpt-4")
    model_folder.write_decision(str(folder), decisions.Decision(2.0, step=2))
    given = {"do_eval": False, "do_predict": True, "test_file": made / "dev.csv"}
    with caplog.at_level("WARNING", "absl"):
        run_script(
            run_classifier,
            **flags(made, folder, checkpoint="last", export_dir=tmp_path / "export", **given),
        )
    texts = [text for text in caplog.messages if "checkpoint of step 2, not with" in text]
    assert len(texts) == 2  # of the predictions and of the export


@pytest.mark.slow
def test_training_calibrates_its_best_checkpoint(made, tmp_path, caplog, run_script):
    given = flags(
        made, tmp_path / "run", train_file=made / "dev.csv", test_file=made / "dev.csv",
        do_train=True, do_predict=True, max_seq_length=32, train_step=4, warmup_step=0,
        save_checkpoints_steps=4,
        init_checkpoint=made / "run", export_dir=tmp_path / "exported",
    )  # fmt: skip
    run_script(run_classifier, **given, calibrate=True)
    found = model_folder.described_decision(str(tmp_path / "run"))
    record = run_record.read(str(tmp_path / "run"))
    assert found.temperature != 1 and found.step == record["result"]["step"]
    assert record["calibration"]["step"] == record["result"]["step"]
    assert len(record["sessions"]) == 1
    rows = [
        line.split("\t")
        for line in (tmp_path / "run" / "test_results.tsv").read_text().splitlines()
    ]
    expected = [list(row.probabilities.values()) for row in probabilities(tmp_path / "run")]
    np.testing.assert_allclose(np.float32(rows), expected, rtol=1e-4)
    # More training is of other weights.
    with caplog.at_level("WARNING", "absl"):
        run_script(run_classifier, **{**given, "train_step": 5})
    assert "its calibration is dropped" in caplog.text
    assert "decision" not in json.loads((tmp_path / "run" / "model.json").read_text())["settings"]
    assert "calibration" not in run_record.read(str(tmp_path / "run"))


@pytest.mark.slow
def test_evaluations_without_training_keep_the_metric_of_the_best(
    made, tmp_path, caplog, run_script
):
    folder = tmp_path / "run"
    given = flags(
        made, folder, train_file=made / "dev.csv", do_train=True, max_seq_length=32, train_step=3,
        warmup_step=0, save_checkpoints_steps=1, init_checkpoint=made / "run", learning_rate=0.01,
    )  # fmt: skip
    run_script(run_classifier, **given, metric_for_best="recall_bad")
    blocks = builders.read_results(folder)
    rows = {int(row["global_step"]): row for row in blocks}
    best = {key: max(rows, key=lambda step: float(rows[step][key]))
            for key in ("recall_bad", "recall_good")}  # fmt: skip
    assert best["recall_bad"] != best["recall_good"]
    before = results.read_trial(str(folder))
    assert before.best_step == best["recall_bad"]
    with caplog.at_level("INFO", "absl"):
        run_script(run_classifier, **flags(made, folder, calibrate=True))
    assert results.read_trial(str(folder)) == before
    line = re.search("^temperature = .*$", (folder / "eval_results.txt").read_text(), re.M)
    assert line[0] in caplog.text  # the results that are printed are those of the file
    assert run_record.read(str(folder))["calibration"]["step"] == before.best_step
    with pytest.raises(file_io.InputError, match="--metric_for_best=recall_good: .*by recall_bad"):
        run_script(run_classifier, **flags(made, folder, metric_for_best="recall_good"))
    assert results.read_trial(str(folder)) == before


def test_an_error_rate_of_another_checkpoint_is_not_promised(made, tmp_path, caplog):
    folder = shutil.copytree(made / "run", tmp_path / "run")
    decision = decisions.Decision(2.0, 0.6, max_error=0.1, coverage=0.5, step=2)
    model_folder.write_decision(str(folder), decision)
    best = f"{folder}/model.ckpt-best"
    assert "at most 10.00% of the answers" in find_described(folder)
    checkpoints.copy(best, f"{folder}/model.ckpt-4")
    checkpoints.delete(best)
    with caplog.at_level("WARNING", "absl"):
        text = find_described(folder)
    assert "more than 10.00% of its answers may be wrong" in caplog.text
    assert text == "Answered 1 of 2 texts (50.0%); the model abstains below a probability of 0.6000"


def find_described(folder):
    return inference.find(str(folder)).folder.decision.describe(1, 2)


@pytest.mark.slow
def test_scores_of_earlier_predictions_go_with_them(made, tmp_path, run_script):
    folder = shutil.copytree(made / "run", tmp_path / "run")
    given = {"do_eval": False, "do_predict": True}
    run_script(run_classifier, **flags(made, folder, test_file=made / "dev.csv", **given))
    assert (folder / "predict_results.txt").exists()
    (tmp_path / "new.csv").write_text("text\na good cake\n")
    run_script(run_classifier, **flags(made, folder, test_file=tmp_path / "new.csv", **given))
    assert not (folder / "predict_results.txt").exists()
    assert runs.read_run(str(folder), "run").tested_on["path"] == str(made / "dev.csv")
