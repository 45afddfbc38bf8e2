"""Which runs are taken to learn, and when this is reported."""

import dataclasses
import json
import re

import numpy as np
import pytest

from albert.io import file_io
from albert.training import stuck_runs


def association(scores, kernel):
    """As `learning_signals` computes it for a batch, in numpy."""
    centered = [m - m.mean(0) - m.mean(1, keepdims=True) + m.mean() for m in (scores, kernel)]
    count = len(scores)
    variance = np.sum(centered[0] ** 2) / max(count - 1, 1)
    return np.array([np.trace(centered[0]), variance, np.trace(centered[1]), count])


def signs(rng, skill, batches=64, positives=0.5, noise=0.1, batch=32):
    """Sums over batches of a model whose probabilities follow the labels by `skill`."""
    totals = {"association": np.zeros(4), "correct": np.zeros(())}
    totals |= {"labels": np.zeros(2), "predictions": np.zeros(2)}
    for _ in range(batches):
        labels = (rng.random(batch) < positives).astype(int)
        odds = np.clip(positives + skill * (labels - 0.5) + noise * rng.normal(size=batch), 0, 1)
        probabilities = np.stack([1 - odds, odds], axis=1)
        scores = probabilities[:, labels]
        totals["association"] += association(scores, (labels[:, None] == labels).astype(float))
        totals["correct"] += np.sum((odds > 0.5) == labels)
        totals["labels"] += np.bincount(labels, minlength=2)
        totals["predictions"] += np.bincount((odds > 0.5).astype(int), minlength=2)
    return totals


@pytest.mark.parametrize("positives", [0.5, 0.7])
def test_a_model_that_knows_nothing_is_stuck_and_a_beginner_is_not(positives):
    rng = np.random.default_rng(1)
    found = [stuck_runs.judge(signs(rng, 0, positives=positives), 8, 10) for _ in range(40)]
    # One in 44 is above two standard deviations by chance.
    assert sum(judgement.is_stuck for judgement in found) >= 36
    assert np.std([judgement.deviations for judgement in found]) == pytest.approx(1, abs=0.3)
    beginner = [stuck_runs.judge(signs(rng, 0.03, positives=positives), 8, 10) for _ in range(40)]
    assert not any(judgement.is_stuck for judgement in beginner)
    assert min(judgement.majority for judgement in beginner) >= 0.5


def test_naming_one_class_is_not_being_stuck():
    rng = np.random.default_rng(2)
    found = stuck_runs.judge(signs(rng, 0.05, positives=0.75, noise=0.02), 8, 10)
    assert found.most_predicted == 1.0 and not found.is_stuck


def test_traces_of_the_labels_in_outputs_that_hardly_differ_are_no_learning():
    rng = np.random.default_rng(3)
    found = stuck_runs.judge(signs(rng, 1e-5, noise=1e-6), 8, 10)
    assert found.deviations > 10 and found.effect < 1e-4 and found.is_stuck


@pytest.mark.parametrize("changes", [{"positives": 0.0}, {"positives": 0.01}, {"batch": 1}])
def test_what_cannot_be_told_is_not_said(changes):
    rng = np.random.default_rng(4)
    found = stuck_runs.judge(signs(rng, 0, **changes), 8, 10)
    assert not found.is_stuck and not found.can_tell


def test_numbers_are_judged_without_classes():
    rng = np.random.default_rng(5)
    labels = rng.normal(size=400)
    for predictions, is_stuck in ((rng.normal(size=400), True), (labels + 1, False)):
        found = association(np.outer(predictions, labels), np.outer(labels, labels))
        judgement = stuck_runs.judge({"association": found}, 8, 10)
        assert judgement.is_stuck == is_stuck
        assert judgement.majority is None and "class" not in str(judgement)


# --- the watch ----------------------------------------------------------------------------------

SETTINGS = stuck_runs.Settings(0.2, 0.1, "Try another rate", min_examples=64)


def watch(folder, **changes):
    return stuck_runs.Watch(dataclasses.replace(SETTINGS, **changes), str(folder), 1000, 16)


def steps_of(watch, until, start=0, most=13):
    """The steps at which a run with calls of a limited number of steps calls the watch."""
    step = start
    while step < until:
        step += min(most, until - step, watch.steps_to_stop(step))
        yield step


def run(watch, until, skill_at, start=0, saves=(), most=13):
    for step in steps_of(watch, until, start, most):
        rng = np.random.default_rng(step)
        watch.observe(step, signs(rng, skill_at(step), batches=4))
        if step in saves:
            watch.save(step)


@pytest.mark.parametrize(("warmup", "first"), [(0.1, 200), (0.19, 270), (0.5, 580), (0.97, None)])
def test_the_first_judgement_comes_after_the_warm_up_and_the_share(tmp_path, warmup, first):
    watched = watch(tmp_path, warmup_fraction=warmup)
    run(watched, 1000, lambda step: 0)
    watched.save(1000)
    told = json.loads((tmp_path / "stuck.json").read_text())["warning"]
    assert (told and told["step"]) == first


def test_what_came_before_a_window_does_not_count(tmp_path, caplog):
    """A run that learned at low rates of the warm-up and then collapsed."""
    with caplog.at_level("WARNING", logger="absl"):
        run(watch(tmp_path), 1000, lambda step: 0.5 if step <= 205 else 0)
    assert len(caplog.messages) == 1
    told = "At 28% of the steps: this run does not learn: in the last 80 of 280 steps"
    assert told in caplog.messages[0]
    assert re.search(r"accuracy is 0\.[45]\d\d, .* label gives 0\.5\d\d", caplog.messages[0])
    assert "Try another rate" in caplog.messages[0]


def test_a_run_that_learns_is_left_alone(tmp_path, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        run(watch(tmp_path), 1000, lambda step: 0.1)
    assert not caplog.messages


@pytest.mark.slow
def test_a_resumed_run_is_judged_like_an_unbroken_one(tmp_path, caplog):
    for name in ("unbroken", "broken"):
        (tmp_path / name).mkdir()
    unbroken = watch(tmp_path / "unbroken")
    run(unbroken, 300, lambda step: 0, saves=range(301), most=1)
    expected = json.loads((tmp_path / "unbroken" / "stuck.json").read_text())
    first = watch(tmp_path / "broken")
    run(first, 185, lambda step: 0, saves=(185,), most=1)
    run(first, 195, lambda step: 0, start=185, most=1)  # lost
    caplog.clear()
    with caplog.at_level("WARNING", logger="absl"):
        for start, end in ((185, 210), (210, 300)):
            second = watch(tmp_path / "broken")
            second.resume(start)
            run(second, end, lambda step: 0, start=start, saves=range(start, end + 1), most=1)
    found = json.loads((tmp_path / "broken" / "stuck.json").read_text())
    assert len(caplog.messages) == 1
    assert found == expected and found["warning"]["step"] == 200
    assert [judgement["step"] for judgement in found["judgements"]] == [200, 240, 280]
    assert len(found["signs"]) == 20


def test_the_verdict_is_that_of_the_end(tmp_path):
    def verdict(skill_at, until=1000, best_step=500):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        watched = watch(folder)
        run(watched, until, skill_at)
        watched.save(until)
        return stuck_runs.verdict(str(folder), best_step)

    assert verdict(lambda step: 0) == stuck_runs.STUCK
    assert verdict(lambda step: 0.1) == ""
    assert verdict(lambda step: 0.1 if step > 500 else 0) == ""  # a warning, and then it learned
    assert verdict(lambda step: 0.1, best_step=0) == stuck_runs.UNTRAINED
    assert verdict(lambda step: 0, until=150) == stuck_runs.NOT_JUDGED
    assert verdict(lambda step: 0, until=150, best_step=0) == stuck_runs.UNTRAINED
    assert stuck_runs.verdict(str(tmp_path), 10) == ""  # not watched


def test_with_restarts_the_run_ends(tmp_path):
    with pytest.raises(stuck_runs.StuckError, match=r"200 steps.*Try another rate") as raised:
        run(watch(tmp_path, num_restarts=1), 1000, lambda step: 0)
    assert raised.value.judgement.fraction == 0.2


def test_nothing_is_judged_where_windows_do_not_fit(tmp_path):
    watched = stuck_runs.Watch(stuck_runs.Settings(0.2, 0.1, ""), str(tmp_path), 100, 16)
    run(watched, 100, lambda step: 0)
    assert not (tmp_path / "stuck.json").exists()


@pytest.mark.parametrize(("known_at", "first"), [(50, 200), (185, 265)])
def test_a_run_is_judged_once_its_length_is_known(tmp_path, known_at, first):
    watched = stuck_runs.Watch(SETTINGS, str(tmp_path), None, 16)
    run(watched, known_at, lambda step: 0, most=known_at)
    watched.expect(1000, known_at)
    run(watched, 300, lambda step: 0, start=known_at)
    watched.save(300)
    judgements = json.loads((tmp_path / "stuck.json").read_text())["judgements"]
    assert judgements[0]["step"] == first and judgements[0]["fraction"] == first / 1000
    watched.expect(4000, 300)  # more steps fit: the same windows
    run(watched, 400, lambda step: 0, start=300)
    watched.save(400)
    judgements = json.loads((tmp_path / "stuck.json").read_text())["judgements"]
    last = judgements[-1]["step"]
    assert last > 300 and (last - first) % 20 == 0 and judgements[-1]["fraction"] == last / 4000


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "stuck.json").write_text('{"told": null}')
    with pytest.raises(file_io.InputError, match=r"stuck.json: there is no 'judgements'"):
        watch(tmp_path).resume(10)


def test_only_one_worker_writes(tmp_path):
    stuck_runs.Watch(SETTINGS, str(tmp_path), 1000, 16, writes=False).save(10)
    assert not list(tmp_path.iterdir())
