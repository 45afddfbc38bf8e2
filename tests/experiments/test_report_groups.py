"""Runs that differ only in their seed."""

import json

import pytest

from albert.experiments import report_groups
from albert.io import file_io
from albert.training import run_record
from tests.support import run_folders


def test_runs_that_differ_only_in_their_seed_are_one_side(tmp_path):
    for rate in (0.1, 0.2):
        for seed in (1, 2, 3):
            run_folders.make_run(tmp_path / f"r_{rate}_{seed}", seed=seed, learning_rate=rate)
    run_folders.make_run(tmp_path / "other", seed=1, learning_rate=0.3)
    sides = report_groups.read([str(path) for path in sorted(tmp_path.iterdir())])
    found = {side.name: [run.seed for run in side.runs] for side in sides}
    assert found == {
        "other": [1], "learning_rate=0.1": [1, 2, 3], "learning_rate=0.2": [1, 2, 3],
    }  # fmt: skip
    assert [run.name for run in sides[1].runs] == ["r_0.1_1", "r_0.1_2", "r_0.1_3"]


def test_other_inputs_and_the_same_seed_again_are_other_sides(tmp_path):
    for name in ("x", "y"):
        run = run_folders.make_run(tmp_path / "runs" / name, seed=ord(name))
        inputs = {"train_data": {"path": name, "bytes": 1, "sha256": name * 64}}
        run_record.update(str(run), lambda record, inputs=inputs: record.update(inputs=inputs))
    for name in ("first", "again"):
        run_folders.make_run(tmp_path / "runs" / name, seed=1)
    folders = [str(tmp_path / "runs" / name) for name in ("x", "y", "first", "again")]
    assert [side.name for side in report_groups.read(folders)] == ["x", "y", "first", "again"]


def test_a_classification_and_a_regression_are_not_in_one_report(tmp_path):
    for name, labels, metric in (("cls", ["a", "b"], "eval_accuracy"), ("score", [], "pearson")):
        run = run_folders.make_run(tmp_path / name, metric=metric)
        description = {"settings": {"labels": labels, "columns": {"label": name}}}
        (run / "model.json").write_text(json.dumps(description))
    with pytest.raises(
        file_io.InputError,
        match=r'cls and .*score were not evaluated .*: labels \["a", "b"\] and \[\]; label column '
        '"cls" and "score"; metric "eval_accuracy" and "pearson"',
    ):
        report_groups.read([str(tmp_path / name) for name in ("cls", "score")])


def test_sides_of_many_differences_are_named_after_their_runs(tmp_path):
    for kind in (1, 2):
        for seed in (1, 2):
            flags = dict.fromkeys("abc", kind)
            run_folders.make_run(tmp_path / f"k{kind}_{seed}", seed=seed, **flags)
    sides = report_groups.read([str(path) for path in sorted(tmp_path.iterdir())])
    assert [side.name for side in sides] == ["k1_1 to k1_2", "k2_1 to k2_2"]


def test_runs_that_do_not_learn_are_not_in_the_mean(tmp_path):
    for seed in (1, 2, 3):
        run = run_folders.make_run(tmp_path / f"r{seed}", seed=seed)
    state = {"told": {"step": 5}, "judgements": [], "signs": {}}
    (run / "stuck.json").write_text(json.dumps(state))
    (side,) = report_groups.read([str(path) for path in sorted(tmp_path.iterdir())])
    assert [run.name for run in side.averaged] == ["r1", "r2"]
    assert [(run.name, run.status) for run in side.not_averaged] == [("r3", "stuck")]


def test_points_of_a_sweep_are_sides(tmp_path):
    folder = run_folders.make_sweep(tmp_path / "s", {"rate": [1, 2]}, lambda *_: 0.5, seeds=(1, 2))
    sides = report_groups.read_sweep(str(folder))
    assert [(side.name, len(side.runs)) for side in sides] == [("rate=1", 2), ("rate=2", 2)]
    empty = run_folders.make_sweep(tmp_path / "e", {"rate": [1]}, lambda *_: None)
    assert report_groups.read_sweep(str(empty)) == []
    with pytest.raises(file_io.InputError, match="is a whole sweep: report it alone"):
        report_groups.read([str(folder), str(folder / "trial_0000")])
