"""Thresholds of several labels per text: their choice, and runs that keep and use them."""

import importlib.util
import json
import random

import numpy as np
import pytest
from sklearn import metrics

from albert import run_classifier
from albert.experiments import report, runs
from albert.io import file_io
from albert.model import decision as decisions
from albert.model import model_folder
from albert.serving import predictors, served_model
from albert.tasks import label_thresholds
from albert.training import results, run_record
from tests.support import builders

WORDS = "the old harbour was bread cake soup fine bad good stale warm new".split()


def f1_at(threshold, probabilities, labels):
    found = probabilities >= np.float32(threshold)
    return metrics.f1_score(labels, found, zero_division=0.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_has_the_highest_f1_and_is_the_largest(seed):
    rng = np.random.default_rng(seed)
    labels = rng.random(60) < 0.3
    probabilities = np.round(rng.random(60) * 0.6 + 0.2 * labels, 2).astype(np.float32)
    found = label_thresholds.best_threshold(probabilities, labels)
    scores = {t: f1_at(t, probabilities, labels) for t in np.unique(probabilities)}
    best = max(t for t, score in scores.items() if score == max(scores.values()))
    assert f1_at(found, probabilities, labels) == max(scores.values())
    lower = max([t for t in scores if t < best], default=0)
    assert found == np.float32((np.float64(lower) + best) / 2)


def test_special_cases_of_a_threshold():
    best = label_thresholds.best_threshold
    assert best(np.array([0.1, 0.9], np.float32), np.array([False, False])) == 0.5
    assert best(np.array([0.3], np.float32), np.array([True])) == pytest.approx(0.15)
    # Two cuts with F1 2/3: the first text alone, or all.
    ties, labels = np.array([0.9, 0.4, 0.3, 0.2], np.float32), np.array([1, 0, 0, 1], bool)
    assert best(ties, labels) == pytest.approx(0.65)
    one = np.float32(0.5)
    between = best(np.array([one, np.nextafter(one, np.float32(0))]), np.array([True, False]))
    assert between == 0.5  # no number lies between: not the one that must be refused


def test_f1_is_of_texts_that_the_thresholds_do_not_know():
    rng = np.random.default_rng(0)
    labels = (rng.random((200, 3)) < [0.5, 0.1, 0]).astype(int)
    probabilities = (0.4 * rng.random((200, 3)) + 0.3 * labels).astype(np.float32)
    choice = label_thresholds.choose(("a", "b", "c"), probabilities, labels)
    columns = [*zip(probabilities.T, labels.T, strict=True)]
    parts = [label_thresholds.cross_fit(p, y > 0) for p, y in columns]
    for row, (column, truth), fitted in zip(choice.rows, columns, parts, strict=True):
        assert row.threshold == label_thresholds.best_threshold(column, truth > 0)
        assert row.f1 == pytest.approx(f1_at(0.5, column, truth))
        assert row.f1_cross_fitted == pytest.approx(
            metrics.f1_score(truth, fitted, zero_division=0.0)
        )
        assert row.support == truth.sum()
    assert choice.thresholds[2] == 0.5
    fitted = np.stack(parts, axis=1)
    micro = metrics.f1_score(labels, fitted, average="micro")
    assert choice.results()["cross_fitted_micro_f1"] == pytest.approx(micro)
    assert "Thresholds chosen by F1 on 200 examples: micro F1" in choice.describe()
    assert [line.split()[0] for line in choice.table().splitlines()] == ["label", "a", "b", "c"]
    # Noise has no good threshold, which only the cross-fitted F1 shows.
    draws = [(rng.random(30).astype(np.float32), rng.random(30) < 0.2) for _ in range(20)]
    best = [f1_at(label_thresholds.best_threshold(*draw), *draw) for draw in draws]
    fitted = [metrics.f1_score(draw[1], label_thresholds.cross_fit(*draw)) for draw in draws]
    assert np.mean(fitted) < np.mean(best) - 0.05


def test_a_new_temperature_moves_thresholds():
    decision = decisions.Decision(2.0, 0.7, 0.1, 0.9, thresholds=(0.5, 0.2, 0.0, 1.0, 1e-30))
    found = decision.with_temperature(0.5)
    logits = np.log(0.2 / 0.8) * 2 / 0.5
    expected = (0.5, 1 / (1 + np.exp(-logits)), 0.0, 1.0, 1e-120)
    assert found.temperature == 0.5 and not found.may_abstain and found.coverage is None
    assert found.thresholds == pytest.approx(expected)
    assert found.with_temperature(2.0).thresholds == pytest.approx(decision.thresholds)


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder, and dev texts whose labels need other thresholds than 0.5."""
    root = tmp_path_factory.mktemp("thresholds")
    folder = builders.write_multi_label(root / "run")
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(100)]
    rows = [row.probabilities for row in predictors.load(folder).predict(texts)]
    cuts = {name: np.quantile([row[name] for row in rows], 0.7) for name in builders.LABELS}
    with open(root / "dev.jsonl", "w") as file:
        for text, row in zip(texts, rows, strict=True):
            names = [name for name, x in row.items() if (x > cuts[name]) != (rng.random() < 0.1)]
            file.write(json.dumps({"text": text, "label": names}) + "\n")
    return root, texts, rows


def flags_of(root, **changes):
    return {
        "task_name": "custom", "validation_file": root / "dev.jsonl", "output_dir": root / "run",
        "do_eval": True, "eval_batch_size": 50, "predict_batch_size": 50, **changes,
    }  # fmt: skip


@pytest.mark.slow
def test_a_run_keeps_thresholds_that_answers_use(made, run_script, caplog):
    caplog.set_level("INFO", logger="absl")
    root, texts, before = made
    labels = [json.loads(line)["label"] for line in (root / "dev.jsonl").read_text().splitlines()]
    run_script(run_classifier, **flags_of(root, choose_thresholds=True))
    sides = (np.array([[*row.values()] for row in before], np.float32),
             np.array([[name in row for name in builders.LABELS] for row in labels]))  # fmt: skip
    choice = label_thresholds.choose(builders.LABELS, *sides)
    chosen = model_folder.described_decision(str(root / "run")).thresholds
    assert chosen == pytest.approx(choice.thresholds, rel=1e-4)
    assert min(abs(t - 0.5) for t in chosen) > 1e-3
    assert (
        "Thresholds chosen by F1 on 100 examples" in caplog.text and "cross-fitted" in caplog.text
    )
    found = [*predictors.load(str(root / "run")).predict(texts)]
    for row in found:
        pairs = zip(row.probabilities.items(), chosen, strict=True)
        assert list(row.prediction) == [name for (name, x), t in pairs if x >= t]
    lines = dict(
        line.split(" = ") for line in (root / "run" / "eval_results.txt").read_text().splitlines()
        if " = " in line
    )  # fmt: skip
    expected = choice.rows[0].f1_cross_fitted
    assert float(lines[f"cross_fitted_f1_{builders.LABELS[0]}"]) == pytest.approx(expected)
    assert float(lines[f"threshold_{builders.LABELS[0]}"]) == pytest.approx(chosen[0])
    if importlib.util.find_spec("jinja2"):
        assert "F1, cross-fitted" in report.run_page(runs.read_run(str(root / "run"), "run"))
    # A temperature changes the probabilities, and not which labels texts have.
    run_script(run_classifier, **flags_of(root, calibrate=True))
    calibrated = model_folder.described_decision(str(root / "run"))
    assert calibrated.temperature != 1
    plain = decisions.Decision(thresholds=chosen)
    moved = plain.with_temperature(calibrated.temperature).thresholds
    assert calibrated.thresholds == pytest.approx(moved)
    again = [*predictors.load(str(root / "run")).predict(texts)]
    assert [row.prediction for row in again] == [row.prediction for row in found]
    assert again[0].probabilities != found[0].probabilities
    (reply,) = served_model.load(str(root / "run")).answer([{"text": texts[0]}])
    assert [*reply["thresholds"].values()] == pytest.approx(calibrated.thresholds)
    record = run_record.read(str(root / "run"))["calibration"]
    assert "temperature" in record and "thresholds" not in record
    # Both at once: the record has the thresholds that are in use.
    run_script(run_classifier, **flags_of(root, choose_thresholds=True, calibrate=True))
    record = run_record.read(str(root / "run"))["calibration"]
    kept = model_folder.described_decision(str(root / "run")).thresholds
    assert [row["threshold"] for row in record["thresholds"]["rows"]] == [*kept]
    assert kept == pytest.approx(calibrated.thresholds, rel=1e-4)


@pytest.mark.slow
def test_scores_with_chosen_thresholds_do_not_compete_with_those_of_training(made, run_script):
    root, folder = made[0], made[0] / "again"
    builders.write_multi_label(folder)

    def run(**changes):
        run_script(run_classifier, **flags_of(root, output_dir=folder, **changes))
        return results.read_trial(str(folder)).best_value

    at_half = run(choose_thresholds=True)
    assert run() > at_half
    trains = {"do_train": True, "train_file": root / "dev.jsonl", "init_checkpoint": folder}
    trains |= {"learning_rate": 0, "train_step": 1, "warmup_step": 0, "max_seq_length": 32}
    trains["label_type"] = "multi_label"
    assert run(**trains) == at_half  # the weights are the same
    assert len([*folder.glob("eval_results.earlier*.txt")]) == 2


def test_mistakes_are_named(made, run_script):
    with pytest.raises(file_io.InputError, match="--max_error: only for one label per text"):
        run_script(run_classifier, **flags_of(made[0], max_error=0.1))
    with pytest.raises(file_io.InputError, match="--choose_thresholds needs the dev data"):
        run_script(
            run_classifier,
            **flags_of(made[0], choose_thresholds=True, do_eval=False, do_predict=True),
        )
