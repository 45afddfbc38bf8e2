"""Sides and pairs of a comparison, read from folders as the commands leave them."""

import json
import math

import pytest
import scipy.stats

from albert.experiments import (
    comparison,
    comparison_sides,
    comparison_text,
    example_statistics,
)
from albert.io import file_io
from albert.training import run_record
from tests.support import compared_runs, run_folders

LOW = {1: 0.70, 2: 0.72, 3: 0.71, 4: 0.69, 5: 0.73}
HIGH = {1: 0.80, 2: 0.81, 3: 0.82, 4: 0.78, 5: 0.83}


def compare(*folders, **settings):
    return comparison.compare(comparison_sides.read(map(str, folders)), **settings)


def test_seeds_are_compared_in_pairs_if_they_agree(tmp_path):
    a = compared_runs.make_seeds(tmp_path / "a", LOW)
    b = compared_runs.make_seeds(tmp_path / "b", HIGH)
    found = compare(a, b)
    assert [side.side.name for side in found.sides] == ["a", "b"]
    (pair,) = found.pairs
    one = pair.seeds.comparison
    expected = scipy.stats.ttest_rel([*HIGH.values()], [*LOW.values()])
    assert one.paired and one.p == pytest.approx(expected.pvalue)
    assert (one.low, one.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert pair.seeds.better == "b" and pair.seeds.verdict == "b is better by 0.098"
    assert pair.examples is None and "a/seed_1 keeps no predictions" in pair.why_not_examples
    assert "--do_predict --test_file" in pair.why_not_examples
    mean = found.sides[0].mean
    assert mean.estimate == pytest.approx(0.71) and mean.low < 0.71 < mean.high


def test_other_seeds_are_not_paired_and_a_loss_is_better_if_it_is_low(tmp_path):
    a = compared_runs.make_seeds(tmp_path / "a", LOW)
    b = compared_runs.make_seeds(tmp_path / "b", {seed + 9: s for seed, s in HIGH.items()})
    found = compare(a, b, metric="eval_loss")
    one = found.pairs[0].seeds.comparison
    losses = [[1 - s for s in scores.values()] for scores in (HIGH, LOW)]
    expected = scipy.stats.ttest_ind(*losses, equal_var=False)
    assert found.minimize and not one.paired
    assert (one.low, one.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert one.difference == pytest.approx(-0.098) and found.pairs[0].seeds.better == "b"


def test_runs_without_a_score_are_counted_and_told(tmp_path):
    lost = {4: "failed", 5: "stuck"}
    a = compared_runs.make_seeds(tmp_path / "a", {**LOW, 5: 0.3}, lost=lost)
    b = compared_runs.make_seeds(tmp_path / "b", HIGH)
    found = compare(a, b)
    side = found.sides[0]
    assert side.side.counts == {"finished": 3, "failed": 1, "stuck": 1}
    assert side.scores == {1: 0.70, 2: 0.72, 3: 0.71}
    assert side.remark.startswith("1 failed, 1 stuck of 5 runs left out: the score is that of the")
    (pair,) = found.pairs
    assert "failed runs are not compared: 2 of a" in pair.seeds.comparison.note
    assert pair.with_stuck.n_a == 4
    assert pair.with_stuck.difference == pytest.approx(0.808 - (0.7 + 0.72 + 0.71 + 0.3) / 4)


def test_restarts_are_told(tmp_path):
    a = compared_runs.make_seeds(tmp_path / "a", LOW)
    b = compared_runs.make_seeds(tmp_path / "b", HIGH)
    attempts = [
        {"seed": seed, "step": 5, "share": 0.5, "message": "x", "folder": f"attempt_{number}"}
        for number, seed in ((1, 2), (2, 3))
    ]
    run_folders.write_json(b / "seed_2" / "attempts.json", {"given_up": attempts})
    sides = compare(a, b).sides
    assert sides[0].remark == "" and sides[1].side.restarts == 2
    assert sides[1].remark.startswith("2 restarts with other seeds after runs that did not learn")


def test_scores_of_other_test_data_are_not_compared(tmp_path):
    sides = []
    for name, word in (("a", "one"), ("b", "other")):
        (tmp_path / f"{name}.tsv").write_text(word)
        data = {"data": tmp_path / f"{name}.tsv", "test": 0.5}
        sides.append(run_folders.make_seeds(tmp_path / name, **data))
    with pytest.raises(file_io.InputError, match=r"not evaluated on the same.*a\.tsv .*b\.tsv"):
        compare(*sides, metric="test/eval_accuracy")


def test_one_run_of_each_is_compared_over_examples(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    a = compared_runs.make_run(tmp_path / "a", 0.8, data=data, wrong=range(12))
    b = compared_runs.make_run(tmp_path / "b", 0.9, data=data, wrong=(0, 1, 20))
    (pair,) = compare(a, b).pairs
    assert pair.seeds is None and "a has 1, b has 1" in pair.why_not_seeds
    found = pair.examples
    right = [[i not in wrong for i in range(60)] for wrong in (range(12), (0, 1, 20))]
    expected = example_statistics.mcnemar(*right)
    assert found.finding.comparison.p == expected.p
    assert found.finding.comparison.difference == pytest.approx(9 / 60)
    assert [row.key for row in found.gained] == [str(i) for i in range(2, 12)]
    (lost,) = found.lost
    assert (lost.key, lost.text, lost.label) == ("20", "text 20", "yes")
    assert (lost.first, lost.second, lost.first_right) == ("yes", "no", 1.0)
    assert found.count == 60 and found.data == str(data)
    assert "says nothing about other seeds" in found.note


def test_an_undefined_score_is_shown_and_not_compared(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    folders = [
        compared_runs.make_run(tmp_path / name, score, data=data, wrong=range(12))
        for name, score in (("a", math.nan), ("b", math.nan))
    ]
    found = compare(*folders)
    assert "eval_accuracy is undefined for a and b" in found.pairs[0].why_not_seeds
    text = comparison_text.to_text(found)
    assert [line.split()[3] for line in text.splitlines()[4:6]] == ["undefined"] * 2


def test_another_metric_of_the_same_predictions(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    wrongs = (range(12), (0, 1, 20))
    folders = [
        compared_runs.make_run(tmp_path / name, 0.8, data=data, wrong=wrong)
        for name, wrong in zip("ab", wrongs, strict=True)
    ]
    sides = comparison_sides.read(map(str, folders))
    for side, wrong in zip(sides, wrongs, strict=True):
        # 40 rows are "yes"; a wrong "no" row is a false one.
        missed = sum(i % 3 > 0 for i in wrong)
        false = len(list(wrong)) - missed
        metrics = comparison_sides.predictions_of(side.runs[0]).metrics
        right = 40 - missed
        assert metrics["f1"].value == pytest.approx(2 * right / (40 + right + false))
        side.runs[0].scores["f1"] = metrics["f1"].value
    found = comparison.compare(sides, metric="f1").pairs[0].examples
    expected = [side.runs[0].scores["f1"] for side in sides]
    one = found.finding.comparison
    assert found.metric == "f1" and one.method == "paired bootstrap, quantiles of t"
    assert one.difference == pytest.approx(expected[1] - expected[0])
    assert one.low < one.difference < one.high and one.p < 0.05


def test_several_runs_are_compared_over_seeds_and_examples(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    many = {seed: range(seed, seed + 15) for seed in LOW}
    few = {seed: range(seed, seed + 3) for seed in LOW}
    a = compared_runs.make_seeds(tmp_path / "a", LOW, data, many)
    b = compared_runs.make_seeds(tmp_path / "b", HIGH, data, few)
    found = compare(a, b).pairs[0].examples
    assert found.seeds == ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5))
    one = found.finding.comparison
    assert one.method.startswith("multi-bootstrap over seeds") and one.paired
    assert one.difference == pytest.approx(12 / 60) and found.finding.better == "b"
    # Row 5 is wrong in all runs of a, and in seeds 3 to 5 of b: it does not change sides.
    assert "5" not in [row.key for row in found.gained]
    row = next(row for row in found.gained if row.key == "9")
    assert (row.first_right, row.second_right) == (0.0, 1.0) and not found.lost


def test_one_run_against_several_takes_the_same_seed(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    a = compared_runs.make_seeds(tmp_path / "a", LOW, data, dict.fromkeys(LOW, (0,)))
    b = compared_runs.make_run(tmp_path / "b", 0.9, seed=3, data=data, wrong=())
    found = compare(a, b).pairs[0].examples
    assert found.seeds == ((3,), (3,)) and "seed 3 of a is compared with seed 3 of b" in found.note


def test_pairs_are_adjusted_by_holm_and_all_or_with_a_baseline(tmp_path):
    shifts = {"a": 0, "b": 0.018, "c": 0.1}
    folders = [
        compared_runs.make_seeds(
            tmp_path / name, {s: v + shift + 0.01 * ((s * len(name + "x") + i) % 3)
                              for s, v in LOW.items()}
        )
        for i, (name, shift) in enumerate(shifts.items())
    ]  # fmt: skip
    found = compare(*folders)
    assert [(pair.first, pair.second) for pair in found.pairs] == [
        ("a", "b"), ("a", "c"), ("b", "c"),
    ]  # fmt: skip
    raw = [pair.seeds.comparison.p for pair in found.pairs]
    assert [pair.seeds.p_holm for pair in found.pairs] == pytest.approx(
        scipy_holm(raw)
    ) and "p is adjusted by Holm for 3 pairs." in found.notes
    only = compare(*folders, baseline="c")
    assert [(pair.first, pair.second) for pair in only.pairs] == [("c", "a"), ("c", "b")]
    with pytest.raises(file_io.InputError, match="baseline=d: expected one of a, b, c"):
        compare(*folders, baseline="d")


def scipy_holm(values):
    """The definition: step down through the sorted values."""
    order, found, highest = sorted(range(len(values)), key=values.__getitem__), {}, 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, values[index] * (len(values) - place)))
        found[index] = highest
    return [found[i] for i in range(len(values))]


def test_a_sweep_stands_for_its_points(tmp_path):
    sweep = run_folders.make_sweep(
        tmp_path / "sweep", {"learning_rate": [0.1, 0.2]}, lambda p, s: 0.5, seeds=(1, 2, 3)
    )
    names = ["learning_rate=0.1", "learning_rate=0.2"]
    sides = comparison_sides.read([str(sweep)])
    assert [side.name for side in sides] == names
    assert [[run.seed for run in side.runs] for side in sides] == [[1, 2, 3]] * 2
    assert comparison.compare(sides).pairs[0].seeds.verdict == "not distinguishable"
    (side,) = comparison_sides.read([f"{sweep}/learning_rate=.20"])
    assert side.name == names[1]
    with pytest.raises(file_io.InputError, match="no point of the sweep: 'learning_rate=0.3'"):
        comparison_sides.read([f"{sweep}/learning_rate=0.3"])


def test_trials_that_failed_or_were_pruned_are_counted(tmp_path):
    sweep = run_folders.make_sweep(
        tmp_path / "sweep", {"learning_rate": [0.1, 0.2]},
        lambda p, s: None if (p["learning_rate"], s) == (0.1, 2) else 0.5, seeds=(1, 2, 3),
    )  # fmt: skip
    journal = file_io.read_json(str(sweep / "sweep.json"), "journal")
    journal["trials"][5]["state"] = "pruned"
    run_folders.write_json(sweep / "sweep.json", journal)
    sides = comparison_sides.read([str(sweep)])
    assert [side.counts for side in sides] == [
        {"finished": 2, "failed": 1}, {"finished": 2, "pruned": 1},
    ]  # fmt: skip
    assert [run.seed for run in sides[0].runs if not run.has_learned] == [2]


def test_costs_stand_beside_the_scores(tmp_path):
    a = compared_runs.make_seeds(tmp_path / "a", LOW, cost={"steps": 10, "seconds": 4.0})
    b = compared_runs.make_seeds(tmp_path / "b", HIGH)
    assert [side.cost for side in compare(a, b).sides] == [{"steps": 10.0, "seconds": 4.0}, {}]


# --- refusals -------------------------------------------------------------------------------------


def test_one_side_is_not_enough(tmp_path):
    a = compared_runs.make_run(tmp_path / "a", 0.8)
    with pytest.raises(file_io.InputError, match="needs two sides or more; found only a"):
        compare(a)
    with pytest.raises(file_io.InputError, match="/a is named twice"):
        compare(a, a)


def test_runs_of_another_task_are_refused(tmp_path):
    a = compared_runs.make_run(tmp_path / "a", 0.8)
    b = compared_runs.make_run(tmp_path / "b", 0.8, script="run_race", task="race")
    with pytest.raises(file_io.InputError, match="run_classifier .* custom, .* run_race .* race"):
        compare(a, b)


def test_scores_on_other_data_are_refused_by_name_and_hash(tmp_path):
    for name, count in (("one", 60), ("two", 61)):
        data = compared_runs.write_data(tmp_path / f"{name}.tsv", count)
        compared_runs.make_seeds(tmp_path / name, LOW, data)
    with pytest.raises(
        file_io.InputError,
        match=r"one and two .* be compared: data .*one.tsv \(SHA-256 \w{16}…\) and .*two.tsv",
    ):
        compare(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"eval_fraction": 0.1}, "eval_fraction 1.0 and 0.1"),
        ({"label": "mood"}, 'label column "label" and "mood"'),
        ({"labels": ["a", "b"]}, r'labels \["no", "yes"\] and \["a", "b"\]'),
        ({"high_only": True}, "high_only false and true"),
        ({"max_seq_length": 64}, None),  # of how a model reads
    ],
)
def test_scores_of_another_evaluation_of_the_same_file_are_refused(tmp_path, changes, difference):
    data = compared_runs.write_data(tmp_path / "dev.tsv")
    given = {"eval_fraction": 1.0, "label": "label", "labels": ["no", "yes"], "high_only": False}
    for name, own in (("one", given), ("two", {**given, **changes})):
        label, labels = own.pop("label"), own.pop("labels")
        compared_runs.make_seeds(tmp_path / name, LOW, data, **own)
        description = {"labels": labels, "columns": {"text": "text", "label": label}}
        for seed in LOW:
            path = tmp_path / name / f"seed_{seed}" / "model.json"
            path.write_text(json.dumps({"settings": description}))
    if difference is None:
        compare(tmp_path / "one", tmp_path / "two")
    else:
        with pytest.raises(file_io.InputError, match=f"cannot be compared: {difference}"):
            compare(tmp_path / "one", tmp_path / "two")


def test_one_run_each_without_predictions_says_what_is_needed(tmp_path):
    a = compared_runs.make_run(tmp_path / "a", 0.8)
    b = compared_runs.make_run(tmp_path / "b", 0.9)
    with pytest.raises(
        file_io.InputError,
        match="a and b cannot be compared: each side needs two runs with scores, but a has 1, "
        "b has 1; .*/a keeps no predictions .*: run it with --do_predict",
    ):
        compare(a, b)


def test_an_unknown_metric_lists_the_scores(tmp_path):
    a, b = (compared_runs.make_seeds(tmp_path / name, LOW) for name in "ab")
    with pytest.raises(file_io.InputError, match="metric=f1: a .* eval_accuracy, eval_loss"):
        compare(a, b, metric="f1")


def test_sides_with_different_best_metrics_need_a_choice(tmp_path):
    a = compared_runs.make_seeds(tmp_path / "a", LOW)
    b = compared_runs.make_seeds(tmp_path / "b", LOW, metric="eval_loss")
    with pytest.raises(file_io.InputError, match="a by eval_accuracy.*`metric`: eval_accuracy, "):
        compare(a, b)
    assert compare(a, b, metric="eval_loss").minimize


def test_predictions_of_other_examples_are_refused(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    a, b = (
        compared_runs.make_run(tmp_path / name, 0.8, data=data, wrong=range(9)) for name in "ab"
    )
    compared_runs.write_predictions(b / "predictions.tsv", (), count=59)
    with pytest.raises(file_io.InputError, match="predictions of other examples than the data"):
        compare(a, b)
    compared_runs.write_predictions(b / "predictions.tsv", ())
    compared_runs.write_data(data, 61)
    with pytest.raises(file_io.InputError, match="has changed since it was predicted"):
        compare(a, b)


def test_predictions_of_another_checkpoint_than_that_of_the_score_are_refused(tmp_path):
    data = compared_runs.write_data(tmp_path / "test.tsv")
    a, b = (
        compared_runs.make_run(tmp_path / name, 0.8, data=data, wrong=range(9)) for name in "ab"
    )

    def predicted(step):
        """Lets the predictions of b be of a step; a later session fails before it predicts."""

        def change(record):
            session = record["sessions"][0]
            session["predicted"] = {"checkpoint": "model.ckpt-best", "step": step}
            failed = {**session, "inputs": {}}
            del failed["predicted"]
            record["sessions"] = [session, failed]

        run_record.update(str(b), change)

    predicted(10)
    assert compare(a, b).pairs[0].examples
    predicted(5)
    with pytest.raises(file_io.InputError, match="b: .*of step 5, but .*of step 10: predict again"):
        compare(a, b)


def test_a_point_that_several_match_is_refused(tmp_path):
    sweep = run_folders.make_sweep(
        tmp_path / "sweep", {"learning_rate": [0.1, 0.2], "train_batch_size": [8, 16]},
        lambda p, s: 0.5,
    )  # fmt: skip
    with pytest.raises(file_io.InputError, match="several points of the sweep"):
        comparison_sides.read([f"{sweep}/learning_rate=0.1"])
    text = "train_batch_size=8;learning_rate=0.1"
    assert len(comparison_sides.read([f"{sweep}/{text}"])[0].runs) == 1
