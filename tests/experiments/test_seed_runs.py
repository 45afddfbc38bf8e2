"""The same run with several seeds, on runs that only leave their files."""

import dataclasses
import json
import math
import os
import statistics
import sys

import pytest

from albert.experiments import seed_runs
from albert.io import file_io
from albert.training import results, run_facts, run_record, run_session

SCORES = {7: 0.5, 8: 0.75, 9: 0.7, 10: 0.9}


def start_run(made, failing=(), told=(), scores=SCORES, short=(), steps=(), test=None):
    """A `seed_runs.start` that writes what a run leaves, and notes the seeds that it made."""

    def start(study, seed, folder):
        made.append((seed, study.arguments(seed, folder)))
        file_io.make_dirs(folder)
        if seed in failing:
            return 1
        step = dict(steps).get(seed, 50)
        results.write_trial(folder, results.Trial(100, step, scores[seed]))
        judgements = [] if seed in short else [{"step": 5, "is_stuck": seed in told}]
        judged = {"told": {"step": 5} if seed in told else None, "judgements": judgements}
        file_io.write_json(f"{folder}/stuck.json", {**judged, "signs": {}})
        if test:
            record(folder, step, test[seed])
        return 0

    return start


def record(folder, step, score):
    """Leaves a ``run.json`` with four checkpoints, a baseline and a score on test data."""
    recorder = run_session.Recorder("run_x", ["x"], {}, {})
    with recorder.session(folder, ["train", "eval", "predict"], {}):
        run_record.set_model(folder, "x", "f1", 10, 10)
        run_record.set_result(folder, step, {"f1": 0.5})
        run_record.set_evaluated(folder, 4, {"f1": 0.6})
        run_record.set_test(folder, f"{folder}/model.ckpt-best", step, {"f1": score})


def study(folder, metric="f1"):
    return seed_runs.Study(str(folder), "run_x", metric, lambda seed, path: [f"{seed} {path}"])


def start_recorded(made, data, **flags):
    """A `seed_runs.start` whose runs record flags and the hashes of their data."""

    def start(study, seed, folder):
        made.append(seed)
        file_io.make_dirs(folder)
        values = {name: {"value": value, "source": "default"} for name, value in flags.items()}
        inputs = {r: (str(path), run_facts.checkpoint_files(str(path))) for r, path in data.items()}
        recorder = run_session.Recorder("run_x", ["x"], values, inputs)
        with recorder.session(folder, ["train", "eval"], {}):
            results.write_trial(folder, results.Trial(100, 50, SCORES[seed]))
        return 0

    return start


@pytest.fixture
def data(tmp_path):
    paths = {f"{name}_data": tmp_path / f"{name}.csv" for name in ("train", "eval")}
    for path in paths.values():
        path.write_text("text")
    return paths


def test_runs_with_other_settings_are_refused_by_name(tmp_path, data):
    made, folder = [], tmp_path / "runs"
    flags = {"learning_rate": 0.1, "log_every_steps": 20, "optimizer": "adamw", "labels": [1]}

    def run(count, **changes):
        changed = {**flags, **changes}
        several = dataclasses.replace(study(folder), flags=changed)
        return seed_runs.run(several, 7, count, start_recorded(made, data, **changed))

    run(2)
    with pytest.raises(file_io.InputError, match=r"seed_7 .* learning_rate=9 .* optimizer=la"):
        run(2, learning_rate=9, optimizer="lamb")
    run(3, log_every_steps=1)  # changes no result
    assert made == [7, 8, 9]


def test_scores_on_data_that_has_changed_are_measured_again(tmp_path, data, caplog):
    made, folder = [], tmp_path / "runs"
    seed_runs.run(study(folder), 7, 2, start_recorded(made, data))
    data["eval_data"].write_text("other text")
    with caplog.at_level("INFO", logger="absl"):
        seed_runs.run(study(folder), 7, 3, start_recorded(made, data))
    assert made == [7, 8, 7, 8, 9]
    assert "seed_7: eval_data has changed: it is evaluated again" in caplog.text
    data["train_data"].write_text("other text")
    with pytest.raises(file_io.InputError, match="seed_7 was trained on .*train.csv, "):
        seed_runs.run(study(folder), 7, 3, start_recorded(made, data))


def test_other_models_are_refused_by_name(tmp_path):
    model, files = tmp_path / "pre", ("index", "data-00000-of-00001")
    folder, made = tmp_path / "runs", []

    def write(step):
        for name in files:
            file_io.make_dirs(str(model))
            (model / f"model.ckpt-{step}.{name}").write_text(f"{step}")

    def run(count, **data):
        start = start_recorded(made, data, init_checkpoint=str(model))
        seed_runs.run(study(folder), 7, count, start)

    (tmp_path / "vocab.txt").write_text("text")
    given = {"init_checkpoint": model / "model.ckpt-5", "vocabulary": tmp_path / "vocab.txt"}
    write(5)
    run(2, **given)
    run(3, **given)
    write(6)
    message = "seed_7 was trained on .*ckpt-5, and this init_checkpoint has changed"
    with pytest.raises(file_io.InputError, match=message):
        run(4, **given)
    for name in files:
        (model / f"model.ckpt-6.{name}").unlink()
    (tmp_path / "vocab.txt").write_text("other text")
    with pytest.raises(file_io.InputError, match="vocab.txt, and this vocabulary has"):
        run(4, **given)
    assert made == [7, 8, 9]


def test_a_second_process_in_the_folder_is_refused(tmp_path):
    def start(given, seed, folder):
        with pytest.raises(file_io.InputError, match=f"process {os.getpid()} .* writes to"):
            seed_runs.run(given, 7, 1, start)
        return start_run([])(given, seed, folder)

    seed_runs.run(study(tmp_path), 7, 1, start)


def rows_of(text):
    """The cells of the rows of the table, by the first cell."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {first: rest for first, *rest in cells}


def read(folder):
    return json.loads((folder / "seeds.json").read_text())


def test_runs_are_made_once_and_summarized(tmp_path):
    made = []
    text = seed_runs.run(study(tmp_path), 7, 3, start_run(made))
    assert made == [(seed, [f"{seed} {tmp_path}/seed_{seed}"]) for seed in (7, 8, 9)]
    found = read(tmp_path)
    values = [SCORES[seed] for seed in (7, 8, 9)]
    assert found["metric"] == "f1" and found["failures"] == 0
    assert found["mean"] == pytest.approx(statistics.mean(values))
    assert found["deviation"] == pytest.approx(statistics.stdev(values))
    assert (found["best"], found["best_folder"]) == (0.75, "seed_8")
    assert found["runs"][0] == {
        "seed": 7, "folder": "seed_7", "status": "finished", "exit_status": 0, "restarts": 0,
        "result": 0.5, "step": 50, "judged": True, "evaluated": None, "baseline": None,
        "test": None,
    }  # fmt: skip
    assert rows_of(text)["8"] == ["0.7500", "50", "0", "finished"]
    assert "standard deviation 0.1323, best 0.7500 (seed_8), over 3 runs" in text
    assert "f1: mean 0.6500 (95% interval 0.3214 to 0.9786), " in text  # 2.4841 sd t(2) / sqrt(3)
    more = seed_runs.run(study(tmp_path), 7, 4, start_run(made))
    assert [seed for seed, _ in made] == [7, 8, 9, 10]
    assert "best 0.9000 (seed_10), over 4 runs" in more


def test_without_scipy_the_table_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    text = seed_runs.run(study(tmp_path), 7, 3, start_run([]))
    assert "f1: mean 0.6500, standard deviation 0.1323, best 0.7500 (seed_8), over 3 runs" in text
    assert text.endswith("\nIntervals and comparisons need SciPy: pip install 'scipy>=1.15'")


def test_restarts_are_counted_in_words():
    run = {"folder": "a", "status": "finished", "restarts": 2, "step": 5}
    runs = [{**run, "seed": seed, "result": 0.5 + seed / 10} for seed in (1, 2)]
    text = seed_runs.to_text(seed_runs.summarize("f1", runs))
    assert "4 restarts with other seeds: the scores are those of the attempts that" in text


def test_failures_and_stuck_runs_are_counted_and_left_out(tmp_path):
    made = []
    text = seed_runs.run(study(tmp_path), 7, 4, start_run(made, failing=(8,), told=(7,)))
    found = read(tmp_path)
    assert [run["status"] for run in found["runs"]] == ["stuck", "failed", "finished", "finished"]
    assert found["failures"] == 2 and found["mean"] == pytest.approx(0.8)
    assert found["runs"][1]["result"] is None and found["runs"][1]["exit_status"] == 1
    assert rows_of(text)["8"] == ["", "", "0", "failed"]
    assert "Left out of the mean: 1 stuck, 1 failed, of 4 runs." in text
    seed_runs.run(study(tmp_path), 7, 4, start_run(made))  # failed ones are tried again
    assert [seed for seed, _ in made] == [7, 8, 9, 10, 8]
    assert read(tmp_path)["failures"] == 1


def test_an_undefined_score_is_shown_and_its_run_not_repeated(tmp_path):
    made, undefined = [], dict.fromkeys((7, 8), math.nan)
    for scores in (undefined, {**SCORES, 7: math.nan}):
        folder = tmp_path / str(len(made))
        text = seed_runs.run(study(folder), 7, 2, start_run(made, scores=scores))
        assert rows_of(text)["7"] == ["", "", "0", "undefined"]
        seed_runs.run(study(folder), 7, 2, start_run(made, scores=scores))
    assert [seed for seed, _ in made] == [7, 8, 7, 8]
    assert "Left out of the mean: 1 undefined, of 2 runs." in text
    text = seed_runs.to_text(read(tmp_path / "0"))
    assert text.endswith("f1: no run has a score: 2 undefined")


def test_what_has_learned_nothing_does_not_win(tmp_path):
    start = start_run([], steps=[(10, 0)], short=(8,), test={7: 0.5, 8: 0.7, 9: 0.6, 10: 0.9})
    text = seed_runs.run(study(tmp_path), 7, 4, start)
    found = read(tmp_path)
    assert found["best_folder"] == "seed_8" and found["failures"] == 1
    assert found["test_mean"] == pytest.approx(0.6)
    assert found["test_deviation"] == pytest.approx(0.1)
    name, rows = "f1 (dev, best of 4 checkpoints)", rows_of(text)
    assert rows["seed"] == [name, "f1 (test)", "best step", "restarts", "state"]
    remark = "no better than a constant answer (0.6000)"
    assert rows["7"] == ["0.5000", "0.5000", "50", "0", f"finished; {remark}"]
    assert rows["8"][-1] == "finished; not judged" and rows["9"][-1] == "finished"
    assert rows["10"] == ["0.9000", "0.9000", "0", "0", "best at step 0"]
    assert f"{name}: mean 0.6500 (95% interval " in text and "mean: 1 best at step 0, of 4" in text
    assert "f1 (test): mean 0.6000 (95% interval 0.3516 to 0.8484), standard deviation" in text
    text = seed_runs.run(study(tmp_path / "stuck"), 7, 2, start_run([], told=(7, 8)))
    assert text.endswith("f1: no run has learned: 2 stuck")
    text = seed_runs.run(study(tmp_path / "bad"), 7, 1, start)
    assert read(tmp_path / "bad")["best"] is None and "none is better than a constant" in text


def test_the_lowest_loss_is_the_best(tmp_path):
    text = seed_runs.run(study(tmp_path, "eval_loss"), 7, 1, start_run([]))
    assert read(tmp_path)["best"] == 0.5 and "standard deviation unknown" in text
    seed_runs.run(study(tmp_path, "eval_loss"), 7, 3, start_run([]))
    assert read(tmp_path)["best_folder"] == "seed_7"


def test_restarts_are_counted(tmp_path):
    attempt = {"seed": 7, "step": 5, "share": 0.2, "message": "stuck", "folder": "attempt_1"}
    attempts = {"given_up": [attempt], "moving": False}
    (tmp_path / "seed_7").mkdir()
    file_io.write_json(str(tmp_path / "seed_7" / "attempts.json"), attempts)
    text = seed_runs.run(study(tmp_path), 7, 1, start_run([]))
    assert read(tmp_path)["runs"][0]["restarts"] == 1
    assert rows_of(text)["7"][:3] == ["0.5000", "50", "1"]


def test_what_an_interrupted_call_has_done_is_kept(tmp_path):
    made = []
    begin = start_run(made)

    def interrupted(study, seed, folder):
        if seed == 8:
            raise KeyboardInterrupt
        return begin(study, seed, folder)

    with pytest.raises(KeyboardInterrupt):
        seed_runs.run(study(tmp_path), 7, 3, interrupted)
    seed_runs.run(study(tmp_path), 7, 3, begin)
    assert [seed for seed, _ in made] == [7, 8, 9]


def test_runs_of_other_seeds_stay_in_the_study(tmp_path, data):
    made, start = [], start_recorded([], data)
    seed_runs.run(study(tmp_path), 8, 3, start)
    text = seed_runs.run(study(tmp_path), 7, 2, start_recorded(made, data))
    assert made == [7] and [run["seed"] for run in read(tmp_path)["runs"]] == [7, 8, 9, 10]
    assert read(tmp_path)["mean"] == pytest.approx(0.7125)
    assert rows_of(text)["10"][0] == "0.9000"
    assert text.endswith("\nWith the runs of earlier commands: seed 9, 10")
    data["eval_data"].write_text("other text")
    seed_runs.run(study(tmp_path), 7, 1, start_recorded(made, data))
    assert made == [7, 7, 8, 9, 10]


def test_stages_that_are_new_run_again_in_finished_runs(tmp_path, data):
    made = []

    def run(count, folder="runs", **flags):
        flags = {"do_train": True, "do_predict": False, "max_error": None, **flags}
        several = dataclasses.replace(study(tmp_path / folder), flags=flags)
        seed_runs.run(several, 7, count, start_recorded(made, data, **flags))

    run(2)
    run(1, do_predict=True)
    assert made == [7, 8, 7]
    run(3, do_predict=True)
    assert made == [7, 8, 7, 8, 9]
    run(3)
    run(3, max_error=0.05)
    run(3, max_error=0.05)
    assert made[5:] == [7, 8, 9]
    run(1, "best", keep_only_best=True)
    with pytest.raises(file_io.InputError, match="seed_7 must be .* but keep_only_best has"):
        run(1, "best", keep_only_best=True, do_predict=True)
    assert read(tmp_path / "best")["runs"][0]["status"] == "finished"


def test_a_run_that_is_interrupted_again_has_no_result(tmp_path, data):
    seed_runs.run(study(tmp_path), 7, 2, start_recorded([], data))
    data["eval_data"].write_text("other text")

    def interrupted(study, seed, folder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seed_runs.run(study(tmp_path), 7, 2, interrupted)
    assert [run["seed"] for run in read(tmp_path)["runs"]] == [8]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(file_io.InputError, match="all 2 runs failed; see"):
        seed_runs.run(study(tmp_path), 7, 2, start_run([], failing=(7, 8)))
    with pytest.raises(file_io.InputError, match="compares runs by f1, not by loss"):
        seed_runs.run(study(tmp_path, "loss"), 7, 1, start_run([]))
    (tmp_path / "seeds.json").write_text("[]")
    with pytest.raises(file_io.InputError, match="seeds.json: expected object, found list"):
        seed_runs.run(study(tmp_path), 7, 1, start_run([]))
