"""Reports of a training run."""

import itertools
import os
import re
import types

import pytest
import tensorflow as tf

from albert.io import file_io
from albert.training import run_record, training_log
from tests.support import forked, processes
from tests.support.sources import ROOT


def totals(steps, loss, waited=0.0, tokens=None):
    """The engine's report on a number of steps: sums and weights."""
    found = {"loss": (loss * steps, steps), training_log.INPUT_SECONDS: (waited, steps)}
    return found | ({training_log.TOKENS: (tokens, steps)} if tokens is not None else {})


def scalars(folder):
    """{(step, name)} of the numbers for TensorBoard in a folder."""
    (events,) = [name for name in os.listdir(folder) if "tfevents" in name]
    return {
        (event.step, value.tag)
        for event in tf.compat.v1.train.summary_iterator(str(folder / events))
        for value in event.summary.value
    }


def set_clock(monkeypatch, seconds):
    """Time passes only when the log reads it; only for this module, as logging also reads it."""
    clock = itertools.count(0, seconds)
    monkeypatch.setattr(
        training_log, "time", types.SimpleNamespace(time=lambda: float(next(clock)))
    )


def test_means_over_the_steps_since_the_last_report(tmp_path, caplog, monkeypatch):
    set_clock(monkeypatch, 2)
    with (
        caplog.at_level("INFO", logger="absl"),
        training_log.TrainingLog(str(tmp_path), 0, 100, batch_size=8, created=-10.5) as log,
    ):
        log.update(1, totals(1, 8.0, 5.0), 0.5, report=False)
        log.update(4, totals(3, 4.0, 1.0), 0.25, report=True)
        log.update(6, totals(2, 1.0), 0.125, report=True)
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first == "First step after 10.5 s"
    # Steps 2 to 4 took one turn of the clock, 2 seconds; half of it they waited for input.
    assert "step 4/100  loss 5  learning_rate 0.25" in second
    assert "  12.0 examples/s  input 50%  0:01:04 left" in second
    assert "step 6/100  loss 1  learning_rate 0.125" in third
    tags = scalars(tmp_path)
    assert {(4, "loss"), (6, "loss"), (6, "learning_rate"), (6, "input_share")} <= tags


def test_workers_without_a_folder_report_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        caplog.at_level("INFO", logger="absl"),
        training_log.TrainingLog(None, 0, 2, batch_size=8, created=0.0) as log,
    ):
        log.update(1, totals(1, 8.0), 0.5, report=True)
        log.update(2, totals(1, 4.0), 0.25, report=True)
    assert not caplog.records
    assert not os.listdir(tmp_path)


def test_slow_training_has_a_speed_too(tmp_path, caplog, monkeypatch):
    set_clock(monkeypatch, 400)
    with (
        caplog.at_level("INFO", logger="absl"),
        training_log.TrainingLog(str(tmp_path), 0, 3, batch_size=8, created=0.0) as log,
    ):
        log.update(1, totals(1, 8.0), 0.5, report=False)
        log.update(2, totals(1, 4.0), 0.25, report=True)
    assert "  0.0200 examples/s" in caplog.records[-1].getMessage()


def log_tokens(folder, first_step, *counts, reported=()):
    """Takes a step with each number of tokens, and saves after the last; the rows of the run."""
    with training_log.TrainingLog(folder, first_step, 9, batch_size=4, created=-2.0) as log:
        for step, tokens in enumerate(counts, first_step + 1):
            log.update(step, totals(1, 1.0, tokens=tokens), 0.5, report=step in reported)
        log.before_checkpoint()
    return [
        (row["kind"], row["step"], row.get("tokens_seen"), row.get("tokens_per_second"))
        for row in run_record.read_metrics(folder)
    ]


def test_tokens_are_counted_also_by_a_run_that_goes_on(tmp_path, caplog, monkeypatch):
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(
        training_log, "time", types.SimpleNamespace(time=lambda: float(next(clock)))
    )
    folder = str(tmp_path)
    with caplog.at_level("INFO", logger="absl"):
        rows = log_tokens(folder, 0, 30, 20, 10, reported=(2,))
    # The first step is not timed; the two have 25 tokens each, and a step takes 2 seconds.
    assert rows == [("train", 2, 50, 12.5), ("save", 3, 60, None)]
    assert "examples/s  12 tokens/s  input" in caplog.text and "left  50 tokens" in caplog.text
    rows = log_tokens(folder, 3, 5, 7, reported=(5,))
    assert rows[1:] == [("save", 3, 60, None), ("train", 5, 72, 3.0)]
    # Nothing is reported where the count of earlier steps is not known.
    assert log_tokens(folder, 2, 5, reported=(3,))[1:] == [("train", 3, 55, None)]
    file_io.remove(os.path.join(folder, run_record.METRICS))
    assert log_tokens(folder, 2, 5, 5, reported=(4,)) == [("train", 4, None, 2.5)]


def test_scalars_have_the_names_that_parity_gives_them(tmp_path):
    with training_log.TrainingLog(str(tmp_path), 0, 3, batch_size=8, created=0.0) as log:
        log.update(1, totals(1, 8.0, tokens=5), 0.5, report=False)
        log.update(3, totals(2, 4.0, tokens=6) | {"gradient_norm": (2.0, 2)}, 0.25, report=True)
    found = {name for _, name in scalars(tmp_path)}
    (row,) = [
        line
        for line in (ROOT / "PARITY.md").read_text(encoding="utf-8").splitlines()
        if "scalars for TensorBoard" in line
    ]
    assert found == set(re.findall(r"`(\w+)`", row.split("|")[3]))


def test_means_since_they_were_last_asked_for():
    means = training_log.RunningMeans(("loss", "accuracy"))
    assert means.take() == {}
    means.add({"loss": (4.0, 1), "accuracy": (0.0, 1), "other": (1.0, 1)})
    means.add({"loss": (2.0, 2), "accuracy": (1.0, 2), "other": (2.0, 2)})
    assert means.take() == pytest.approx({"loss": 2.0, "accuracy": 1 / 3})
    assert means.take() == {}
    means.add({"loss": (35.0, 5), "accuracy": (0.0, 0.0)})
    assert means.take() == {"loss": 7.0, "accuracy": 0.0}
    none = training_log.RunningMeans(())
    none.add({"loss": (1.0, 1)})
    assert none.take() == {}


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_reports_take_no_memory(tmp_path):
    with tf.summary.create_file_writer(str(tmp_path)).as_default(step=1):
        for number in range(8000):
            training_log.write_scalar("loss", number / 7)
            if number == 2000:
                before = resident()
    assert resident() - before < 3 << 19  # 3 MiB if TensorFlow kept the numbers


@pytest.mark.slow
def test_the_memory_of_a_run_stays_flat():
    command = [forked.python(), "-m", "benchmarks.robustness.memory_growth"]
    command += ["--steps=400", "--evaluations=20"]
    output = processes.run(command, cwd=ROOT, check=True).stdout
    found = re.search(r"growth: (\S+) MiB, (\S+) files, (\S+) threads", output)
    growth, files, threads = map(float, found.groups())
    # What has to be bound is what each evaluation and each step adds; half of this is chance.
    assert growth < 20 and files <= 2 and threads <= 2, output


VALUES = {
    "classification_loss": 0.6584321, "loss": 0.6584321, "gradient_norm": 1.16, "accuracy": 0.71094,
    "learning_rate": 1.66667e-05, "examples_per_second": 1537.71, "tokens_per_second": 30344.2,
    "input_share": 0.012, "tokens_seen": 63143,
}  # fmt: skip


def test_the_short_line_has_each_loss_once_and_four_digits():
    assert training_log.describe_shortly(80, 100, VALUES, 61.9) == (
        "step 80/100  loss 0.6584  accuracy 0.7109  learning_rate 1.667e-05  1537.7 examples/s"
        "  0:01:01 left"
    )
    losses = {"masked_lm_loss": 2.5, "sentence_order_loss": 0.25, "loss": 2.75}
    assert training_log.describe_shortly(20, None, losses, None) == (
        "step 20  masked_lm_loss 2.5  sentence_order_loss 0.25  loss 2.75"
    )
    slow = VALUES | {"input_share": 0.4}
    assert "examples/s  input 40%  0:00:05 left" in training_log.describe_shortly(8, 9, slow, 5.0)


def test_the_full_line_has_all_values():
    assert training_log.describe_fully(80, 100, VALUES, 61.9) == (
        "step 80/100  classification_loss 0.65843  loss 0.65843  gradient_norm 1.16"
        "  accuracy 0.71094  learning_rate 1.6667e-05  1537.7 examples/s  30344 tokens/s  input 1%"
        "  0:01:01 left  63143 tokens"
    )
