"""Figures of a report as inline SVG, drawn by matplotlib, which is imported only here.

Text stays text, so that it can be read out and found, and colors also differ for the color-blind
(the palette of Okabe and Ito, 2008; cividis for numbers).
"""

import contextlib
import hashlib
import html
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert.io import file_io

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap

_COLORS = "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #000000 #999999".split()
_STYLES = ("-", "--", ":", "-.")
_SIZE = (4.7, 3.1)  # inches; at 400 pixels its text is about 10 pixels high
MAX_NAMED = len(_COLORS)  # lines per figure with their own color and name
MAX_POINTS = 300  # per line: more would exceed the pixels
_MIN_POINTS = 40  # per line, however many lines a figure has
_MAX_POINTS_OF_FIGURE = 15_000
MAX_BARS = 25  # sides per figure of intervals
MAX_DOTS = 2000  # examples in a scatter plot
_LARGEST = float(np.finfo(np.float32).max)  # number that is drawn
# The stubs of matplotlib take only names that are literals, and those of older versions any text.
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "text.parse_math": False,
}


def check_installed() -> None:
    """Checks that matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise file_io.InputError("reports need matplotlib: pip install matplotlib") from error


class Line(NamedTuple):
    """A line of a figure.

    Attributes:
      xs, ys: its points, in ascending order of xs.
      low, high: its band at each point; empty without a band.
      faint: whether it is thin, gray and not in the legend.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    faint: bool = False


class Bar(NamedTuple):
    """A mean score with its interval.

    Attributes:
      low, high: interval of the mean; None if unknown.
      values: score of each run.
      cost: mean cost of a run; None if unknown.
    """

    label: str
    mean: float
    low: float | None
    high: float | None
    values: Sequence[float]
    cost: float | None = None


class _Drawing:
    """Holds the SVG of a figure, once it is drawn."""

    svg = ""


@contextlib.contextmanager
def _figure(alt: str, size: tuple[float, float] = _SIZE) -> Iterator[tuple["Axes", "_Drawing"]]:
    """Yields axes and a drawing, which holds the SVG when the context ends.

    Args:
      alt: alternative text, for readers who do not see the figure.
      size: width and height in inches.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    drawing = _Drawing()
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.add_subplot(), drawing
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    drawing.svg = _inline(file.getvalue(), alt, size[0])


def _inline(svg: str, alt: str, inches: float) -> str:
    """Prepares SVG for a page: no namespace addresses, unique ids and an alternative text.

    A figure that is wider than the default keeps its size on narrow pages, to stay readable.

    Args:
      svg: text of a whole SVG file.
      inches: width of the figure.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r' d="[^"]*"', _short_path, svg)
    # Ids must be unique in the page; a hash of the figure is unique and reproducible.
    own = "f" + hashlib.sha256((alt + svg).encode()).hexdigest()[:8]
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{own}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{own}-", svg)
    label = html.escape(alt, quote=True)
    width = f'style="min-width: {80 * inches:.0f}px" ' if inches > _SIZE[0] else ""
    head = f'<svg role="img" {width}aria-label="{label}" '
    return re.sub(r"<svg ", lambda _: head, svg, count=1).replace(
        ">", f"><title>{html.escape(alt)}</title>", 1
    )


def _short_path(match: re.Match[str]) -> str:
    """Returns the attribute of a path with two decimals per coordinate and no needless spaces."""
    short = re.sub(r"(\.\d\d)\d+", r"\1", match[0])
    return re.sub(r"\s+(?=[A-Za-z\"])|(?<=[A-Za-z])\s+(?!d=)", "", short).replace("d=", " d=", 1)


def _drawable(values: Sequence[Any]) -> list[Any]:
    """Clips numbers to a drawable range; axis lengths overflow near the float64 limit."""
    return np.clip(np.array(values, float), -_LARGEST, _LARGEST).tolist()


def max_points(series: Sequence[Line]) -> int:
    """Returns how many points of a line a figure of these lines draws at most."""
    # A band has two more lines.
    count = sum(3 if line.low else 1 for line in series)
    return max(_MIN_POINTS, min(MAX_POINTS, _MAX_POINTS_OF_FIGURE // max(1, count)))


def thin(*columns: Sequence, limit: int = MAX_POINTS) -> tuple[list, ...]:
    """Returns columns of equal length with at most `limit` drawable points, including both ends."""
    drawable = [_drawable(column) for column in columns]
    length = len(drawable[0])
    if length <= limit:
        return tuple(drawable)
    places = np.linspace(0, length - 1, limit).round().astype(int)
    return tuple([column[i] for i in places] for column in drawable)


def _spread(values: Iterable[float | None]) -> bool:
    """Returns whether numbers are all positive and need a logarithmic axis."""
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= 30


def _log_scale(set_scale: Callable[[str], None], axis: "Axis") -> None:
    """Makes an axis logarithmic, with plain numbers as labels.

    Args:
      set_scale: sets the scale of the axis by its name.
    """
    set_scale("log")
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def band_limits(series: Sequence[Line], log: bool = False) -> tuple[float, float] | None:
    """Returns the lowest and highest value that bands are drawn to; None without bands.

    Wide bands, such as those of two runs, would leave no room for the lines.

    Args:
      log: whether the axis of values is logarithmic.
    """
    if not any(line.low for line in series):
        return None
    values = _drawable([y for line in series for y in line.ys])
    low, high = min(values), max(values)
    if log:
        ratio = max(high / low, 1.2)
        return low / ratio, high * ratio
    margin = (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def is_log(series: Sequence[Line], log: bool) -> bool:
    """Returns whether the axis of values is logarithmic: if `log` allows and values need it.

    Args:
      log: whether the scale may be logarithmic.
    """
    return log and _spread([y for line in series for y in line.ys])


def lines(
    title: str,
    series: Sequence[Line],
    ylabel: str,
    marks: Iterable[tuple[float, float, str]] = (),
    log: bool = False,
    xlabel: str = "step",
) -> str:
    """Draws lines with their bands.

    Args:
      title: the title; with the first and last values it becomes the alternative text.
      series: the lines; the first `MAX_NAMED` that are not faint are named, the others thin.
      marks: (x, y, label) of points to highlight.
      log: use a logarithmic axis if the values spread widely.
    """
    main_lines = [line for line in series if not line.faint]
    more = f", and {len(main_lines) - MAX_NAMED} more" if len(main_lines) > MAX_NAMED else ""
    ends = "; ".join(map(_ends, main_lines[:MAX_NAMED]))
    alt = f"{title}: {ends}{more}, over the {xlabel if xlabel != 'step' else 'steps'}."
    limits, log = band_limits(series, is_log(series, log)), is_log(series, log)
    limit = max_points(series)
    # A long legend must not take the space of the lines.
    height = _SIZE[1] + 0.2 * max(0, min(len(main_lines), MAX_NAMED) - 4)
    with _figure(alt, (_SIZE[0], height)) as (axes, drawing):
        for line in series:
            if line.faint or line in main_lines[MAX_NAMED:]:
                xs, ys = thin(line.xs, line.ys, limit=limit)
                axes.plot(xs, ys, color="#999999", linewidth=0.6, alpha=0.6, zorder=1)
        for place, line in enumerate(main_lines[:MAX_NAMED]):
            ends_of_axis = limits or (-_LARGEST, _LARGEST)
            _draw_line(axes, line, place if len(main_lines) > 1 else 0, limit, ends_of_axis)
        for x, y, label in marks:
            axes.plot(*thin([x], [y]), "*", color="#000000", ms=10, label=label, zorder=5)
        if log:
            _log_scale(axes.set_yscale, axes.yaxis)
        if limits:
            axes.set_ylim(*_drawn_limits(series, limits))
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
        if len(main_lines) > 1 or marks:
            _legend(axes)
    return drawing.svg


def _ends(line: Line) -> str:
    """Returns the first and last values of a line in words."""
    text = f"{line.label} from {line.ys[0]:.4g} to {line.ys[-1]:.4g}"
    return f"{text} ({line.low[-1]:.4g} to {line.high[-1]:.4g})" if line.low else text


def _draw_line(
    axes: "Axes", line: Line, place: int, limit: int, limits: tuple[float, float]
) -> None:
    """Draws a named line with its band.

    Args:
      place: number of the line, which chooses color and style.
      limit: maximum number of points to draw.
      limits: lowest and highest value that the band is drawn to.
    """
    color, style = _COLORS[place % len(_COLORS)], _STYLES[place % len(_STYLES)]
    xs, ys = thin(line.xs, line.ys, limit=limit)
    marker = "o" if len(xs) <= 25 else None
    axes.plot(xs, ys, style, color=color, label=line.label, marker=marker, ms=3)
    if line.low:
        xs, low, high = thin(line.xs, line.low, line.high, limit=limit)
        edges = (np.clip(side, *limits) for side in (low, high))
        axes.fill_between(xs, *edges, color=color, alpha=0.15, linewidth=0)


def _drawn_limits(series: Sequence[Line], limits: tuple[float, float]) -> tuple[float, float]:
    """Returns the ends of the axis of values: the bands, where they do not reach the limits.

    Args:
      limits: see `band_limits`.
    """
    lows = [y for line in series for y in (*line.ys, *line.low)]
    highs = [y for line in series for y in (*line.ys, *line.high)]
    low, high = max(min(_drawable(lows)), limits[0]), min(max(_drawable(highs)), limits[1])
    space = 0.04 * (high - low) if low <= 0 or high < 30 * low else 0.0
    return (low - space, high + space) if high > low else limits


def intervals(metric: str, bars: Sequence[Bar]) -> str:
    """Draws means with their intervals as horizontal bars, and the score of each run as a dot.

    Args:
      bars: from top to bottom, at most `MAX_BARS`.
    """
    descriptions = [
        f"{bar.label} {bar.mean:.4g}"
        + ("" if bar.low is None else f" ({bar.low:.4g} to {bar.high:.4g})")
        for bar in bars
    ]
    alt = f"{metric}, means with their 95% intervals: {'; '.join(descriptions)}."
    with _figure(alt, (_SIZE[0], 1.2 + 0.27 * len(bars))) as (axes, drawing):
        for place, bar in enumerate(bars):
            values = _drawable(bar.values)
            axes.plot(values, [place] * len(values), "o", color="#999999", ms=4, mew=0)
            if bar.low is not None:
                ends = _drawable([bar.low, bar.high])
                axes.plot(ends, [place] * 2, "-", color=_COLORS[0], linewidth=2)
            axes.plot(_drawable([bar.mean]), [place], "D", color=_COLORS[0], ms=5)
        axes.set_yticks(range(len(bars)), [_short(bar.label, 32) for bar in bars])
        # Wide intervals, such as those of two runs, would leave no room for the others.
        scores = _drawable([v for bar in bars for v in (bar.mean, *bar.values)])
        margin = (max(scores) - min(scores)) or 0.05 * abs(max(scores)) or 1.0
        ends = [v for bar in bars if bar.low is not None for v in _drawable([bar.low, bar.high])]
        low, high = min(scores) - margin, max(scores) + margin
        edges = max(low, min([*scores, *ends])), min(high, max([*scores, *ends]))
        space = 0.04 * (edges[1] - edges[0]) or margin
        axes.set_xlim(edges[0] - space, edges[1] + space)
        axes.set(ylim=(len(bars) - 0.4, -0.6), xlabel=metric)
        axes.grid(False, axis="y")
    return drawing.svg


def score_by_cost(metric: str, bars: Sequence[Bar], xlabel: str) -> str:
    """Draws mean scores with their intervals against the mean cost of a run.

    Args:
      bars: those with a cost; the first `MAX_NAMED` are named, the others gray.
      xlabel: unit of the costs.
    """
    descriptions = [f"{bar.label} {bar.mean:.4g} at {bar.cost:.4g}" for bar in bars[:MAX_NAMED]]
    more = f", and {len(bars) - MAX_NAMED} more" if len(bars) > MAX_NAMED else ""
    alt = f"{metric} against cost in {xlabel}: {'; '.join(descriptions)}{more}."
    height = _SIZE[1] + 0.2 * max(0, min(len(bars), MAX_NAMED) - 4)
    with _figure(alt, (_SIZE[0], height)) as (axes, drawing):
        for place, bar in enumerate(bars):
            (x,), (y,) = _drawable([bar.cost]), _drawable([bar.mean])
            is_named = place < MAX_NAMED
            color = _COLORS[place] if is_named else "#cccccc"
            if bar.low is not None:
                axes.plot([x, x], _drawable([bar.low, bar.high]), "-", color=color, linewidth=1)
            axes.plot([x], [y], "o", color=color, ms=5, label=bar.label if is_named else None)
        if _spread([bar.cost for bar in bars]):
            _log_scale(axes.set_xscale, axes.xaxis)
        axes.set(title=f"{metric} against cost", xlabel=xlabel, ylabel=metric)
        _legend(axes)
    return drawing.svg


def _legend(axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    short = [label if len(label) <= 44 else f"{label[:20]}…{label[-22:]}" for label in labels]
    columns = 1 if max(map(len, short)) > 22 else 2
    axes.figure.legend(handles, short, loc="outside lower center", ncols=columns)


def confusion(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Draws a confusion matrix.

    Args:
      labels: K names.
      counts: [K, K]; rows are the correct labels.
    """
    table = np.asarray(counts)
    right = np.trace(table)
    alt = f"Confusion matrix of {table.sum()} examples, of which {right} are right: " + "; ".join(
        f"{label} was taken for "
        + ", ".join(f"{other} {n}" for other, n in zip(labels, row, strict=True) if n)
        for label, row in zip(labels, table, strict=True)
        if row.sum() and len(labels) <= 6
    )
    side = max(3.1, 0.42 * len(labels) + 1.6)
    with _figure(alt, (max(_SIZE[0], side * 1.2), side)) as (axes, drawing):
        shares = table / np.maximum(table.sum(1, keepdims=True), 1)
        _cells(axes, shares, 0, 1)
        if len(labels) <= 20:
            for (row, column), count in np.ndenumerate(table):
                color = "black" if shares[row, column] > 0.5 else "white"
                axes.text(column, row, str(count), ha="center", va="center", color=color)
        names = [_short(label, 18) for label in labels]
        turn = 0 if max(map(len, names)) * len(names) <= 32 else 60
        axes.set_xticks(range(len(labels)), names, rotation=turn, ha="right" if turn else "center")
        axes.set_yticks(range(len(labels)), names)
        axes.grid(False)
        axes.set(title="Confusion matrix", xlabel="predicted", ylabel="label")
    return drawing.svg


def _cells(axes: "Axes", values: np.ndarray, low: float, high: float) -> "QuadMesh":
    """Draws colored cells as vector shapes, which scale with the page; an image would not.

    Args:
      values: [rows, columns]; NaN leaves a cell empty.
      low, high: values of the first and the last color.
    """
    edges = [np.arange(size + 1) - 0.5 for size in values.shape[::-1]]
    mesh = axes.pcolormesh(
        *edges, np.ma.masked_invalid(values), cmap=_colors(), vmin=low, vmax=high
    )
    axes.invert_yaxis()
    return mesh


def _colors() -> "Colormap":
    import matplotlib

    return matplotlib.colormaps["cividis"].resampled(32)


def scatter(title: str, xs: Sequence, ys: Sequence, xlabel: str, ylabel: str) -> str:
    """Draws points and the diagonal on which both values are equal.

    Args:
      xs, ys: coordinates of each point.
    """
    alt = f"{title}: {len(xs)} examples, {xlabel} against {ylabel}."
    xs, ys = _drawable(xs), _drawable(ys)
    keep = np.linspace(0, len(xs) - 1, min(len(xs), MAX_DOTS)).round().astype(int)
    with _figure(alt) as (axes, drawing):
        axes.plot([xs[i] for i in keep], [ys[i] for i in keep], ".", color=_COLORS[0], ms=3)
        ends = [min(*xs, *ys), max(*xs, *ys)]
        axes.plot(ends, ends, color="#999999", linewidth=1)
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return drawing.svg


def reliability(title: str, bins: Sequence[Mapping[str, float]]) -> str:
    """Draws how often the answers of each bin of probabilities are right.

    Args:
      bins: count, confidence, accuracy, low and high of each, see `tasks.calibration.Bin`.
    """
    names = ("confidence", "accuracy", "low", "high")
    xs, ys, low, high = (np.array([row[name] for row in bins]) for name in names)
    alt = f"{title}. Mean top probability and fraction of right answers: " + "; ".join(
        f"{x:.3f} and {y:.3f} ({row['count']} examples)"
        for x, y, row in zip(xs, ys, bins, strict=True)
    )
    with _figure(alt) as (axes, drawing):
        ends = [min(xs.min(), low.min()), 1]
        axes.plot(ends, ends, color="#999999", linewidth=1)
        bounds = [np.maximum(ys - low, 0), np.maximum(high - ys, 0)]
        axes.errorbar(xs, ys, bounds, fmt="o", color=_COLORS[0], ms=4, elinewidth=1)
        axes.set(title=title, xlabel="top probability", ylabel="right")
    return drawing.svg


def threshold_curve(
    places: Sequence[float], exact: Sequence[float], f1: Sequence[float], threshold: float | None
) -> str:
    """Draws scores in percent over the null-odds threshold below which questions are answered.

    Args:
      places: null odds where the scores change, in ascending order.
      exact, f1: a score up to and including each place, and one after the last.
      threshold: the threshold that was used; None: it is not known.
    """
    best = max(range(len(f1)), key=f1.__getitem__)
    alt = (
        f"Exact match and F1 by threshold of the null odds. F1 is {f1[0]:.2f} with nothing "
        f"answered and {f1[-1]:.2f} with everything; it is best, {f1[best]:.2f}, "
        + (f"just above {places[best - 1]:.3f}." if best else "with nothing answered.")
        + ("" if threshold is None else f" Used: {threshold:.3f}.")
    )
    places = _drawable(places)
    ends = places if threshold is None else [*places, *_drawable([threshold])]
    margin = 0.05 * (max(ends) - min(ends)) or 1.0
    edges = [min(ends) - margin, *places, max(ends) + margin]
    with _figure(alt) as (axes, drawing):
        for label, ys, style in (("F1", f1, "-"), ("exact match", exact, "--")):
            # A score holds up to and including its place.
            xs, ys = thin(edges, [ys[0], *ys])
            color = _COLORS[style == "--"]
            axes.plot(xs, ys, style, drawstyle="steps-pre", label=label, color=color)
        if threshold is not None:
            axes.axvline(ends[-1], color="#000000", linewidth=1, label=f"used: {threshold:.3f}")
        axes.set(title="Threshold of no answer", xlabel="threshold", ylabel="percent")
        _legend(axes)
    return drawing.svg


def heat_map(
    names: Sequence[str],
    values: Sequence[Sequence[str]],
    scores: Sequence[Sequence[float | None]],
    metric: str,
) -> str:
    """Draws a heat map of scores over two parameters.

    Args:
      names: the two parameters: columns, rows.
      values: their values, texts, for columns and rows.
      scores: [rows, columns]; None where a score is missing.
    """
    cells = [
        f"{values[0][c]}, {values[1][r]}: {score:.4g}"
        for r, row in enumerate(scores)
        for c, score in enumerate(row)
        if score is not None
    ]
    text = "; ".join(cells[:40]) + (f"; and {len(cells) - 40} more" if len(cells) > 40 else "")
    alt = f"Heat map of {metric} by {names[0]} and {names[1]}. {text}."
    grid = np.array(_drawable(scores), float)  # None becomes NaN
    low, high = np.nanmin(grid), np.nanmax(grid)
    size = (max(_SIZE[0], 0.62 * len(values[0]) + 1.7), max(2.2, 0.36 * len(values[1]) + 1.4))
    with _figure(alt, size) as (axes, drawing):
        image = _cells(axes, grid, low, high)
        for (row, column), score in np.ndenumerate(grid):
            if not math.isnan(score):
                light = high > low and (score - low) / (high - low) > 0.5
                color = "black" if light else "white"
                axes.text(
                    column, row, f"{score:.4g}", ha="center", va="center", color=color, fontsize=9
                )
        turn = 0 if sum(map(len, values[0])) <= 7 * size[0] else 40
        at: dict[str, Any] = {"rotation": turn, "ha": "right" if turn else "center"}
        axes.set_xticks(range(len(values[0])), [_short(v, 18) for v in values[0]], **at)
        axes.set_yticks(range(len(values[1])), [_short(v, 18) for v in values[1]])
        axes.grid(False)
        axes.set(title=metric, xlabel=names[0], ylabel=names[1])
        axes.figure.colorbar(image, ax=axes, fraction=0.05)
    return drawing.svg


def points(
    names: Sequence[str], xs: Sequence, ys: Sequence, scores: Sequence[float], metric: str
) -> str:
    """Draws scores at random points of two parameters, as colored dots.

    Args:
      names: the two parameters: of xs, of ys.
      xs, ys: their values at each point: numbers, or strings and booleans with one position each.
      scores: score of each point.
    """
    alt = f"{metric} by {names[0]} and {names[1]} of {len(scores)} points."
    scores = _drawable(scores)
    with _figure(alt) as (axes, drawing):
        sides = ((xs, axes.set_xscale, axes.xaxis), (ys, axes.set_yscale, axes.yaxis))
        places = []
        for values, scale, axis in sides:
            if any(isinstance(value, (str, bool)) for value in values):
                values, ticks = _axis(values)
                axis.set_ticks(*zip(*ticks, strict=True))
            elif _spread(values):
                _log_scale(scale, axis)
            places.append(values)
        dots = axes.scatter(
            places[0], places[1], c=scores, cmap=_colors(), s=36, edgecolors="#00000066"
        )
        axes.set(title=metric, xlabel=names[0], ylabel=names[1])
        axes.figure.colorbar(dots, ax=axes, fraction=0.05)
    return drawing.svg


def parallel_coordinates(
    names: Sequence[str], rows: Sequence[Sequence], scores: Sequence[float], metric: str
) -> str:
    """Draws a line for each point through the axes of its parameters to its score.

    Args:
      names: the parameters, in the order of their axes.
      rows: values of each point in that order: numbers, or strings with one position each.
      scores: score of each point.
    """
    best = max(range(len(scores)), key=scores.__getitem__)
    point = ", ".join(f"{n} {v}" for n, v in zip(names, rows[best], strict=True))
    alt = (
        f"Parallel coordinates of {len(rows)} points through {', '.join(names)} to {metric}; the "
        f"highest, {scores[best]:.4g}, is at {point}."
    )
    scores = _drawable(scores)
    axes_of = [_axis([row[i] for row in rows]) for i in range(len(names))] + [_axis(scores)]
    size = (max(_SIZE[0], len(axes_of) + 0.7), 3.3)
    with _figure(alt, size) as (axes, drawing):
        low, high = min(scores), max(scores)
        colors = _colors()
        for place in np.argsort(scores, kind="stable"):
            height_of_score = (scores[place] - low) / (high - low) if high > low else 1.0
            heights = [heights[place] for heights, _ in axes_of]
            axes.plot(
                range(len(heights)),
                heights,
                color=colors(height_of_score),
                linewidth=1 + height_of_score,
            )
        for x, (_, ticks) in enumerate(axes_of):
            axes.axvline(x, color="#57606a", linewidth=0.8)
            for height, label in ticks:
                box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1}
                at: dict[str, Any] = {"va": "center", "fontsize": 9, "bbox": box}
                axes.text(x + 0.03, height, _short(label, 12), **at)
        axes.set_xticks(range(len(axes_of)), [_wrapped(name) for name in (*names, metric)])
        axes.set(yticks=[], ylim=(-0.06, 1.06), xlim=(-0.15, len(axes_of) - 0.55))
        axes.grid(False)
        axes.spines[:].set_visible(False)
    return drawing.svg


def _axis(values: Sequence[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """Returns the heights (0 to 1) of values, and the ticks (height, label) of their axis."""
    different = sorted(set(values), key=lambda v: (isinstance(v, str), v))
    if any(isinstance(value, (str, bool)) for value in values) or len(different) <= 6:
        places = {value: i / max(1, len(different) - 1) for i, value in enumerate(different)}
        return [places[value] for value in values], [(places[v], _tick(v)) for v in different]
    scale = math.log if _spread(values) else float
    low, high = scale(different[0]), scale(different[-1])
    heights = [(scale(value) - low) / (high - low) for value in values]
    return heights, [(0.0, _tick(different[0])), (1.0, _tick(different[-1]))]


def _tick(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _short(label: str, length: int) -> str:
    """Returns a label with at most `length` characters; a longer one ends with "…"."""
    return label if len(label) <= length else f"{label[: length - 1]}…"


def _wrapped(name: str) -> str:
    """Breaks a name into lines that fit below an axis."""
    parts = [""]
    for word in re.findall(r"[^_ ]+_?| ", name):
        if parts[-1] and len(parts[-1]) + len(word) > 11:
            parts.append("")
        parts[-1] += word
    return "\n".join(line.strip() for line in parts)
