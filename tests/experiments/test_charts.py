"""Figures of reports."""

import re

import numpy as np
import pytest

from albert.experiments import charts


def test_long_lines_are_thinned_and_keep_their_ends():
    xs, ys = charts.thin(list(range(10_000)), list(range(10_000)))
    assert len(xs) <= 300 and xs[0] == 0 and xs[-1] == 9999 and xs == ys
    assert charts.thin([1, 2], [3, 4]) == ([1, 2], [3, 4])


def test_a_figure_says_in_words_what_it_shows_and_keeps_its_signs():
    pytest.importorskip("matplotlib")
    series = [
        charts.Line('<a> & "b" $x$', [1, 2], [0.5, 0.25]),
        charts.Line("c_d", [1], [1.0]),
        charts.Line("faint", [1], [1.0], faint=True),
    ]
    svg = charts.lines("Loss", series, log=True)
    label = 'aria-label="Loss: &lt;a&gt; &amp; &quot;b&quot; $x$ from'
    assert svg.startswith(f'<svg role="img" style="width: 352px" {label}')
    assert "0.5 to 0.25; c_d from 1 to 1" in svg
    assert '&lt;a&gt; &amp; "b" $x$</text>' in svg and svg == charts.lines("Loss", series, log=True)
    assert not re.search(r"xmlns|http|<metadata|data:", svg)
    other = charts.lines("Accuracy", series)
    names = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (svg, other)]
    assert names[0] and not names[0] & names[1]


def test_names_that_begin_with_an_underscore_are_in_the_legend():
    pytest.importorskip("matplotlib")
    series = [charts.Line(label, [1, 2], [0.5, 0.25]) for label in ("_a", "__b", "")]
    svg = charts.lines("Loss", series, [(1, 0.5, "_best")])
    names = re.findall(r">\u200b(\w*)</text>", svg)
    assert sorted(names) == ["", "__b", "_a", "_best"]
    svg = charts.score_by_cost("f1", [charts.Bar("_a", 0.7, None, None, 1.0)], "FLOP")
    assert ">\u200b_a</text>" in svg and "FLOP: _a 0.7" in svg


def test_figures_have_the_colors_of_the_page():
    """All colors are variables, none of which is close to another or to the paper."""
    pytest.importorskip("matplotlib")
    svg = charts.lines("Loss", [charts.Line("a", [1, 2], [1, 2])] * 8, [(1, 1, "best")])
    assert not re.search(r"#[0-9a-f]{6}\b", svg)
    assert {*re.findall(r"var\(--(\w+)\)", svg)} <= {*charts.PALETTE}
    for place in (0, 1):
        assert len({colors[place] for colors in charts.PALETTE.values()}) == len(charts.PALETTE)


def test_figures_of_one_value():
    pytest.importorskip("matplotlib")
    svg = charts.parallel_coordinates(["a"], [[1], [1]], [0.5, 0.5], "f1")
    assert "the highest, 0.5, is at a 1" in svg
    svg = charts.effect("rate", {"1e-05": [0.5]}, "f1", (0.5, 0.5))
    assert "Mean f1 by rate: 1e-05 0.5." in svg
    assert "median 0; 90% are between 0 and 0" in charts.histogram("Residuals", [0.0], "x")


def test_mixed_values():
    pytest.importorskip("matplotlib")
    rows = [[1e-5, "lamb", True], [1e-2, "adamw", False], [1e-3, "adam", True]]
    svg = charts.parallel_coordinates(["rate", "optimizer", "x"], rows, [1.0, 3.0, 2.0], "f1")
    assert "is at rate 0.01, optimizer adamw, x False" in svg


def test_points_of_numbers_and_texts():
    pytest.importorskip("matplotlib")
    svg = charts.points(["a", "b"], [1e-5, 1e-2, 1], ["x", 8, True], [1, 2, 3], "f1")
    assert ">x</text>" in svg and "f1 by a and b of 3 points" in svg


def spied(monkeypatch, name):
    """Arguments of each call of a method of matplotlib's axes."""
    axes = pytest.importorskip("matplotlib.axes")
    calls, method = [], getattr(axes.Axes, name)

    def call(self, *args, **settings):
        calls.append((args, settings))
        return method(self, *args, **settings)

    monkeypatch.setattr(axes.Axes, name, call)
    return calls


def test_bands_are_drawn_up_to_twice_the_range_of_the_lines(monkeypatch):
    bands, limits = (spied(monkeypatch, name) for name in ("fill_between", "set_ylim"))
    narrow = charts.Line("a", [1, 2], [0.5, 0.6], [0.45, 0.58], [0.55, 0.62])
    wide = charts.Line("b", [1, 2], [0.5, 0.6], [-9.0, 0.5], [9.0, 0.7])
    svg = charts.lines("Score", [narrow, wide], xlabel="tokens")
    assert (
        "a from 0.5 to 0.6 (0.58 to 0.62); b from 0.5 to 0.6 (0.5 to 0.7), over the tokens" in svg
    )
    (_, low, high), _ = bands[0]
    assert low.tolist() == [0.45, 0.58] and high.tolist() == [0.55, 0.62]
    (_, low, high), _ = bands[1]
    assert low.tolist() == pytest.approx([0.4, 0.5]) and high.tolist() == pytest.approx([0.7, 0.7])
    ends = next(args for args, _ in limits if len(args) == 2)
    assert ends == pytest.approx((0.388, 0.712))
    low, high = charts.band_limits([charts.Line("a", [1], [1e-3], [-1], [1]), narrow], log=True)
    assert low == pytest.approx(1e-3 / 600) and high == pytest.approx(360)


def test_nothing_is_drawn_where_a_score_cannot_be(monkeypatch):
    bands, limits = (spied(monkeypatch, name) for name in ("fill_between", "set_ylim"))
    near = charts.Line("a", [1, 2], [0.9, 1.0], [0.7, 0.95], [1.1, 1.05])
    charts.lines("Accuracy", [near], bounds=(0, 1))
    (_, low, high), _ = bands[0]
    assert low.tolist() == pytest.approx([0.8, 0.95]) and high.tolist() == [1, 1]
    assert limits[-1][0] == pytest.approx((0.792, 1))
    charts.lines("Loss", [charts.Line("a", [1, 2], [0.0, 0.5])], bounds=(0, np.inf))
    assert limits[-1][0][0] == 0
    beyond = charts.Line("a", [1], [1.5])  # what a file says is drawn in any case
    assert charts.band_limits([beyond], bounds=(0, 1)) == pytest.approx((1.425, 1.5))


def test_costs_are_drawn(monkeypatch):
    drawn = spied(monkeypatch, "plot")
    bars = [
        charts.Bar("a", 0.7, 0.65, 0.75, 1e12),
        charts.Bar("b <c>", 0.6, None, None, 1e13),
    ]
    svg = charts.score_by_cost("f1", bars, "FLOP", (0, 0.74))
    assert "f1 against cost in FLOP: a 0.7 at 1e+12; b &lt;c&gt; 0.6 at 1e+13." in svg
    points = [(list(a[0]), list(a[1])) for a, _ in drawn]
    assert ([1e12, 1e12], [0.65, 0.74]) in points and ([1e13], [0.6]) in points


def test_many_lines_have_fewer_points_each():
    line = charts.Line("a", [1], [1])
    assert [charts.max_points([line] * count) for count in (1, 50, 1000)] == [300, 300, 40]
    band = charts.Line("a", [1], [1], [1], [1])
    assert charts.max_points([band] * 50) == 100


def test_coordinates_have_two_decimals():
    pytest.importorskip("matplotlib")
    svg = charts.lines("Loss", [charts.Line("a", [0.001, 1 / 3], [1e-5, 2 / 3])])
    paths = re.findall(r' d="([^"]*)"', svg)
    assert paths and not any(re.search(r"\.\d{3}| [ML]|\n", path) for path in paths)
    assert any(re.fullmatch(r"M[\d.]+ [\d.]+L[\d.]+ [\d.]+", path) for path in paths)
