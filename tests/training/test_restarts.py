"""Attempts that are given up, however often they are interrupted."""

import json

import pytest

from albert.io import file_io
from albert.training import stuck_runs

OF_AN_ATTEMPT = (
    "checkpoint", "best_trial.txt", "eval_results.txt", "events.out.tfevents.1.host",
    "load_report.json", "metrics.jsonl", "model.ckpt-0.index", "model.ckpt-best.index",
    "new-model.ckpt-best.index", "stuck.json",
)  # fmt: skip
OF_ALL = ("albert_config.json", "budget.json", "model.json", "run.json", "sst-2_train.tf_record")


def fill(folder, text):
    (folder / "eval").mkdir(exist_ok=True)
    for path in (*OF_AN_ATTEMPT, "eval/events.out.tfevents.2.host"):
        (folder / path).write_text(text)


def stuck_error(step=20):
    judgement = stuck_runs.Judgement(step, step / 100, 0.0, 0.5, True)
    return stuck_runs.StuckError("this run does not learn: so it is.", judgement)


def here(make):
    """There is one worker."""
    return make()


SECOND, THIRD = (stuck_runs.seed_of(5, count) for count in (1, 2))


def train(folder, num_restarts, learns_with, seen):
    """Makes attempts that leave files and learn with one seed alone."""
    for seed, count in stuck_runs.attempts(str(folder), 5, num_restarts, here):
        seen.append((seed, count))
        if not (folder / "checkpoint").exists():
            fill(folder, f"of {seed}")
        if seed == learns_with:
            return f"trained {seed}"
        stuck_runs.give_up(str(folder), seed, stuck_error(), here)


def test_another_seed_starts_in_a_clean_folder_and_what_was_is_kept(tmp_path):
    for path in OF_ALL:
        (tmp_path / path).write_text("kept")
    seen = []
    assert train(tmp_path, 2, THIRD, seen) == f"trained {THIRD}"
    assert seen == [(5, 0), (SECOND, 1), (THIRD, 2)]
    for number, seed in enumerate((5, SECOND), 1):
        moved = tmp_path / f"attempt_{number}"
        names = {path.name for path in moved.iterdir()}
        assert names == {*OF_AN_ATTEMPT, "eval"}
        assert (moved / "model.ckpt-0.index").read_text() == f"of {seed}"
    assert (tmp_path / "eval_results.txt").read_text() == f"of {THIRD}"
    assert all((tmp_path / path).read_text() == "kept" for path in OF_ALL)
    found = stuck_runs.read(str(tmp_path))
    assert [(a["seed"], a["step"], a["share"], a["folder"]) for a in found] == [
        (5, 20, 0.2, "attempt_1"),
        (SECOND, 20, 0.2, "attempt_2"),
    ]


def test_seeds_of_restarts_are_those_of_no_other_run():
    runs = [0, 1, 2, 3, 12345, 12346, 42, 2**20]
    seeds = [stuck_runs.seed_of(seed, count) for seed in runs for count in range(6)]
    assert len(set(seeds)) == len(seeds) and max(seeds) < 2**31
    assert [seed for seed in seeds if seed < 2**30] == runs


def test_a_run_that_goes_on_is_in_the_attempt_that_it_was_in(tmp_path):
    seen = []
    train(tmp_path, 1, SECOND, seen)
    assert train(tmp_path, 1, SECOND, seen) == f"trained {SECOND}"
    assert (
        train(tmp_path, 0, SECOND, seen) == f"trained {SECOND}"
    )  # no restart is asked for any more
    assert seen == [(5, 0), *[(SECOND, 1)] * 3]


@pytest.mark.parametrize("moves", [0, 1, 4, 10])
def test_a_kill_while_files_are_moved_loses_nothing(tmp_path, monkeypatch, moves):
    rename, count, seen = file_io.rename, [0], []

    def killed(source, target):
        if "attempt_1" in target and count[0] == moves:
            raise KeyboardInterrupt
        count[0] += "attempt_1" in target
        rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(file_io, "rename", killed)
        train(tmp_path, 1, SECOND, seen)
    assert train(tmp_path, 1, SECOND, seen) == f"trained {SECOND}"
    assert seen == [(5, 0), (SECOND, 1)]
    assert {path.name for path in (tmp_path / "attempt_1").iterdir()} == {*OF_AN_ATTEMPT, "eval"}
    assert (tmp_path / "checkpoint").read_text() == f"of {SECOND}"
    assert not json.loads((tmp_path / "attempts.json").read_text())["moving"]


def test_all_attempts_may_be_stuck_and_more_may_follow(tmp_path):
    seen = []
    for _ in range(2):  # the second time at once
        with pytest.raises(
            file_io.InputError, match=rf"of 2 attempts \(seeds 5, {SECOND}\) .*num_restarts"
        ):
            train(tmp_path, 1, THIRD, seen)
    assert seen == [(5, 0), (SECOND, 1)]
    assert train(tmp_path, 2, THIRD, seen) == f"trained {THIRD}"


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "attempts.json").write_text("[]")
    with pytest.raises(file_io.InputError, match="attempts.json: expected object, found list"):
        stuck_runs.read(str(tmp_path))
