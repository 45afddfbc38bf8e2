"""Sentences about a run: what its model is worth."""

import json

import pytest

from albert.experiments import run_summary, runs
from albert.training import run_record
from tests.support import run_folders


def describe(folder, **changes):
    script = changes.pop("script", "run_classifier")
    run_folders.make_run(folder, script, metric=changes.pop("metric", "eval_accuracy"))

    def change(record):
        record.update(changes)
        record["inputs"]["eval_data"] = {"path": "my/dev.csv", "bytes": 9, "sha256": None}

    run_record.update(str(folder), change)
    return list(run_summary.sentences(runs.read_run(str(folder), "run")))


def test_a_classifier_is_compared_with_its_best_constant_answer(tmp_path):
    classes = [
        {"name": "ask", "labels": 144, "predictions": 170, "right": 140},
        {"name": "praise", "labels": 33, "predictions": 30, "right": 19},
        {"name": "complaint, urgent", "labels": 23, "predictions": 0, "right": 0},
    ]
    result = {"step": 40, "eval_accuracy": 0.795, "macro_f1": 0.5}
    first, remark = describe(tmp_path / "a", result=result, classes=classes)
    # By statsmodels 0.14, proportion_confint(159, 200, method="wilson").
    assert first == (
        "79.5% of 200 texts of dev.csv right (95% interval 73.4% to 84.5%); always answering ask "
        "gives 72.0%."
    )
    assert remark == "Never predicted: complaint, urgent (0 of 23)."


def test_a_verdict_is_a_sentence(tmp_path):
    result = {"step": 40, "eval_accuracy": 0.795}
    state = {"judgements": [], "warning": None, "signs": {}}
    describe(tmp_path / "a", result=result)
    (tmp_path / "a" / "stuck.json").write_text(json.dumps(state))
    *_, last = run_summary.sentences(runs.read_run(str(tmp_path / "a"), "run"))
    assert last == "The run was too short to tell whether its model learns."


@pytest.mark.parametrize(
    ("metric", "script", "result", "baseline", "sentence"),
    [
        (
            "pearson", "run_classifier", {"pearson": 0.81, "R2": 0.62, "MAE": 3.2},
            {"pearson": float("nan")},
            "Pearson correlation 0.81 on dev.csv, R² 0.62, mean absolute error 3.2.",
        ),
        (
            "f1", "run_squad_v1", {"f1": 71.25}, {"f1": 8.5},
            "F1 71.25% on dev.csv; the best constant answer has 8.5.",
        ),
        ("own", "run_classifier", {"own": 0.5}, {}, "Own 0.5 on dev.csv."),
        (
            "micro_f1", "run_classifier", {"micro_f1": 0.75, "subset_accuracy": 0.5},
            {"micro_f1": 0.4},
            "Micro F1 0.75 on dev.csv, fraction of texts with exactly the right labels 0.5; the "
            "best constant answer has 0.4.",
        ),
    ],
)  # fmt: skip
def test_other_scores_are_named_in_words(tmp_path, metric, script, result, baseline, sentence):
    result = {"step": 40, **result}
    changes = {"result": result, "baseline": baseline}
    if metric == "micro_f1":  # a text may have both labels
        rows = [("a", 6, 5, 4), ("b", 9, 9, 7)]
        names = ("name", "labels", "predictions", "right")
        changes["classes"] = [dict(zip(names, row, strict=True)) for row in rows]
    found = describe(tmp_path / "a", metric=metric, script=script, **changes)
    assert found == [sentence]


def test_a_run_without_an_evaluation_has_no_sentence(tmp_path):
    assert describe(tmp_path / "a", result=None) == []
