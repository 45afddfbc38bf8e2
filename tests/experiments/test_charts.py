"""Figures of reports."""

import re

import pytest

from albert.experiments import charts


def test_long_lines_are_thinned_and_keep_their_ends():
    xs, ys = charts.thin(list(range(10_000)), list(range(10_000)))
    assert len(xs) <= 300 and xs[0] == 0 and xs[-1] == 9999 and xs == ys
    assert charts.thin([1, 2], [3, 4]) == ([1, 2], [3, 4])


def test_a_figure_says_in_words_what_it_shows_and_keeps_its_signs():
    pytest.importorskip("matplotlib")
    series = [('<a> & "b" $x$', [1, 2], [0.5, 0.25]), ("c_d", [1], [1.0])]
    svg = charts.lines("Loss", series, "loss", log=True)
    assert svg.startswith(
        '<svg role="img" aria-label="Loss: &lt;a&gt; &amp; &quot;b&quot; $x$ from'
    )
    assert "0.5 to 0.25; c_d from 1 to 1" in svg and "<title>Loss: &lt;a&gt;" in svg
    assert '&lt;a&gt; &amp; "b" $x$</text>' in svg and svg == charts.lines(
        "Loss", series, "loss", log=True
    )
    assert not re.search(r"xmlns|http|<metadata|data:", svg)
    other = charts.lines("Accuracy", series, "accuracy")
    names = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (svg, other)]
    assert names[0] and not names[0] & names[1]


def test_figures_of_one_value():
    pytest.importorskip("matplotlib")
    assert "1 examples, of which 1 are right" in charts.confusion(["a"], [[1]])
    assert "x, y: 0.5" in charts.heat_map("ab", [["x"], ["y"]], [[0.5]], "f1")
    svg = charts.parallel_coordinates(["a"], [[1], [1]], [0.5, 0.5], "f1")
    assert "the highest, 0.5, is at a 1" in svg


def test_many_labels_and_mixed_values():
    pytest.importorskip("matplotlib")
    labels = [f"label number {i}" for i in range(30)]
    svg = charts.confusion(labels, [[int(i == j) for j in range(30)] for i in range(30)])
    assert "30 examples, of which 30 are right" in svg and "label number 29" in svg
    rows = [[1e-5, "lamb", True], [1e-2, "adamw", False], [1e-3, "adam", True]]
    svg = charts.parallel_coordinates(["rate", "optimizer", "x"], rows, [1.0, 3.0, 2.0], "f1")
    assert "is at rate 0.01, optimizer adamw, x False" in svg


def test_points_of_numbers_and_texts():
    pytest.importorskip("matplotlib")
    svg = charts.points(["a", "b"], [1e-5, 1e-2, 1], ["x", 8, True], [1, 2, 3], "f1")
    assert ">x</text>" in svg and "f1 by a and b of 3 points" in svg
