"""The display of a long job while it runs."""

import io
import sys

import pytest

from albert.io import progress


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (61.9, "0:01:01"), (3600 * 30 + 59, "30:00:59")]
)
def test_durations(seconds, text):
    assert progress.duration(seconds) == text


def test_no_bar_without_a_terminal(capsys):
    with progress.bar("evaluating", 3) as show:
        show(3)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.bar("evaluating", 3) as show:
        show(3)
    assert "evaluating" in capsys.readouterr().err


def test_progress_lines_give_the_time_left(caplog, monkeypatch):
    clock = iter([0.0, 5.0, 12.0, 13.0, 30.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with (
        caplog.at_level("INFO", logger="absl"),
        progress.Progress("making", 100, "B") as shown,
    ):
        shown.advance(10)  # 5 s: too early for a line
        shown.advance(10)  # 12 s: 10 in 7 s since then
        shown.show(21)  # 13 s
        shown.show(50)  # 30 s: 40 in 25 s
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["making: 20%, 0:00:56 left", "making: 50%, 0:00:31 left"]


def test_a_slow_start_says_nothing_about_the_time_left(caplog, monkeypatch):
    """A job of 16 seconds, 9 of which processes take to start, is not one of days."""
    clock = iter([0.0, 3.0, 9.0, 10.5, 21.0, 22.0, 40.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with (
        caplog.at_level("INFO", logger="absl"),
        progress.Progress("making", 20_000, "B") as shown,
    ):
        for done in (0, 1, 2, 8_000, 9_000, 9_000):
            shown.show(done)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["making: 0%", "making: 40%, 0:00:18 left", "making: 45%, 0:00:37 left"]


def test_progress_is_a_bar_on_a_terminal(monkeypatch, caplog):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with (
        caplog.at_level("INFO", logger="absl"),
        progress.Progress("making", 100, "B") as shown,
    ):
        shown.advance(40)
        shown.show(100)
    assert "making: 100%" in terminal.getvalue() or "making:   0%" in terminal.getvalue()
    assert shown._bar.n == 100
    assert not caplog.records
