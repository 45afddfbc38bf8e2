"""Figures of a report as inline SVG, drawn by matplotlib, which is imported only here.

Text stays text, so that it can be read out and found. Colors are CSS variables, which the page
defines for light and dark; lines also differ in their style. A figure has no title: its caption
says what it shows.
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

from albert.io import requirements

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# {CSS variable: (color on light pages, color on dark pages)}; texts are `ink` or `soft`.
PALETTE = {
    "paper": ("#ffffff", "#0f141b"),
    "ink": ("#1f2733", "#e4e9f0"),
    "soft": ("#566273", "#a3afbf"),
    "rule": ("#c3cad4", "#465263"),
    "gray": ("#7a8594", "#8894a5"),
    "blue": ("#1d63c4", "#7fb2ff"),
    "orange": ("#b4500b", "#ffb067"),
    "green": ("#19703a", "#7ad39a"),
    "purple": ("#8a3ea8", "#d69cf0"),
    "gold": ("#8a6d00", "#e3c15a"),
    "teal": ("#0b7f8f", "#5cc8d7"),
}
_VARIABLES = {light: f"var(--{name})" for name, (light, _) in PALETTE.items()}
_PAPER, _INK, _SOFT, _RULE, _GRAY = (light for light, _ in list(PALETTE.values())[:5])
_COLORS = [light for light, _ in list(PALETTE.values())[5:]] + [_INK, _GRAY]
_STYLES = ("-", "--", ":", "-.")
_SIZE = (4.7, 2.9)  # inches
_PIXELS = 75  # per inch: a figure always has this size, so that all letters are of one size
MAX_NAMED = len(_COLORS)  # lines per figure with their own color and name
MAX_POINTS = 300  # per line: more would exceed the pixels
_MIN_POINTS = 40  # per line, however many lines a figure has
_MAX_POINTS_OF_FIGURE = 15_000
MAX_DOTS = 2000  # examples in a scatter plot
_LARGEST = float(np.finfo(np.float32).max)  # number that is drawn
_UNBOUNDED = (-math.inf, math.inf)
# The stubs of matplotlib take only names that are literals, and those of older versions any text.
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 11,
    "legend.fontsize": 11,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _GRAY,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.6,
    "grid.color": _RULE,
    "legend.frameon": False,
    "text.color": _INK,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "lines.linewidth": 1.5,
    "text.parse_math": False,
}


def check_installed() -> None:
    """Checks that matplotlib is installed."""
    with requirements.needed("reports need matplotlib: pip install matplotlib"):
        import matplotlib  # noqa: F401


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
    """A mean score with its interval and cost.

    Attributes:
      low, high: interval of the mean; None if unknown.
      cost: mean cost of a run in the unit of the axis; None if unknown.
    """

    label: str
    mean: float
    low: float | None
    high: float | None
    cost: float | None


class _Drawing:
    """Holds the SVG of a figure, once it is drawn."""

    svg = ""


@contextlib.contextmanager
def _figure(alt: str, size: tuple[float, float] = _SIZE) -> Iterator[tuple["Axes", "_Drawing"]]:
    """Yields axes of a size in inches, and a drawing, which holds the SVG when the context ends."""
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
    """Prepares SVG for a page: colors of the page, unique ids and an alternative text.

    A figure that is wider, in `inches`, than the default keeps its size on narrow pages, to stay
    readable.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r' d="[^"]*"', _short_path, svg)
    svg = re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda match: _VARIABLES.get(match[0], match[0]), svg)
    # Ids must be unique in the page; a hash of the figure is unique and reproducible.
    own = "f" + hashlib.sha256((alt + svg).encode()).hexdigest()[:8]
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{own}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{own}-", svg)
    label = html.escape(alt, quote=True)
    kind = "min-width" if inches > _SIZE[0] else "width"
    head = f'<svg role="img" style="{kind}: {_PIXELS * inches:.0f}px" aria-label="{label}" '
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg ", head, 1)


def _short_path(match: re.Match[str]) -> str:
    """Returns a matched path of SVG as text, with two decimals per coordinate."""
    short = re.sub(r"(\.\d\d)\d+", r"\1", match[0])
    return re.sub(r"\s+(?=[A-Za-z\"])|(?<=[A-Za-z])\s+(?!d=)", "", short).replace("d=", " d=", 1)


def _drawable(values: Sequence[Any]) -> list[Any]:
    """Clips values of numbers to a drawable range; axis lengths overflow near the float64 limit."""
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
    """Returns whether numbers (but None) are all positive and need a logarithmic axis."""
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= 30


def _log_scale(set_scale: Callable[[str], None], axis: "Axis") -> None:
    """Makes an axis logarithmic, with plain numbers as labels.

    `set_scale` sets the scale of the axis by its name.
    """
    set_scale("log")
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def band_limits(
    series: Sequence[Line], log: bool = False, bounds: tuple[float, float] = _UNBOUNDED
) -> tuple[float, float]:
    """Returns the lowest and highest value that bands are drawn to.

    Wide bands, such as those of two runs, would leave no room for the lines.

    Args:
      log: whether the axis of values is logarithmic.
      bounds: lowest and highest value that is possible.
    """
    values = _drawable([y for line in series for y in line.ys])
    low, high = min(values), max(values)
    if log:
        ratio = max(high / low, 1.2)
        return low / ratio, high * ratio
    margin = (high - low) or 0.05 * abs(high) or 1.0
    lowest, highest = _widened(bounds, values)
    return max(low - margin, lowest), min(high + margin, highest)


def _widened(bounds: tuple[float, float], values: Sequence[float]) -> tuple[float, float]:
    """Returns (lowest, highest) bounds, moved so that all values are between them."""
    return min(bounds[0], *values), max(bounds[1], *values)


def is_log(series: Sequence[Line], log: bool) -> bool:
    """Returns whether the axis of values is logarithmic: if `log` allows and values need it."""
    return log and _spread([y for line in series for y in line.ys])


def lines(
    title: str,
    series: Sequence[Line],
    marks: Iterable[tuple[float, float, str]] = (),
    log: bool = False,
    xlabel: str = "step",
    bounds: tuple[float, float] = _UNBOUNDED,
) -> str:
    """Returns the SVG of lines with their bands.

    Args:
      title: with the first and last values it becomes the alternative text.
      series: the lines; the first `MAX_NAMED` that are not faint are named, the others thin.
      marks: (x, y, label) of points to highlight.
      log: use a logarithmic axis if the values spread widely.
      bounds: lowest and highest value that is possible; the axis has no others.
    """
    main_lines = [line for line in series if not line.faint]
    more = f", and {len(main_lines) - MAX_NAMED} more" if len(main_lines) > MAX_NAMED else ""
    ends = "; ".join(map(_ends, main_lines[:MAX_NAMED]))
    alt = f"{title}: {ends}{more}, over the {xlabel if xlabel != 'step' else 'steps'}."
    log = is_log(series, log)
    limits = band_limits(series, log, bounds)
    limit = max_points(series)
    # A long legend must not take the space of the lines.
    height = _SIZE[1] + 0.22 * max(0, min(len(main_lines), MAX_NAMED) - 2)
    with _figure(alt, (_SIZE[0], height)) as (axes, drawing):
        for line in series:
            if line.faint or line in main_lines[MAX_NAMED:]:
                xs, ys = thin(line.xs, line.ys, limit=limit)
                axes.plot(xs, ys, color=_GRAY, linewidth=0.6, alpha=0.6, zorder=1)
        for place, line in enumerate(main_lines[:MAX_NAMED]):
            _draw_line(axes, line, place if len(main_lines) > 1 else 0, limit, limits)
        for x, y, label in marks:
            at: dict[str, Any] = {"label": _shown(label), "zorder": 5, "clip_on": False}
            axes.plot(*thin([x], [y]), "*", color=_INK, ms=10, **at)
        if log:
            _log_scale(axes.set_yscale, axes.yaxis)
        elif any(line.low for line in series):
            axes.set_ylim(*_drawn_limits(series, limits))
        if not log:
            (low, high), values = axes.get_ylim(), _drawable([y for x in series for y in x.ys])
            lowest, highest = _widened(bounds, values)
            axes.set_ylim(max(low, lowest), min(high, highest))
        axes.set(xlabel=xlabel)
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
    """Draws at most `limit` points of a named line, and its band between `limits`.

    The number of the line, `place`, chooses color and style.
    """
    color, style = _COLORS[place % len(_COLORS)], _STYLES[place % len(_STYLES)]
    xs, ys = thin(line.xs, line.ys, limit=limit)
    marker = "o" if len(xs) <= 25 else None
    at: dict[str, Any] = {"label": _shown(line.label), "marker": marker, "clip_on": False}
    axes.plot(xs, ys, style, color=color, ms=3, **at)
    if line.low:
        xs, low, high = thin(line.xs, line.low, line.high, limit=limit)
        edges = (np.clip(side, *limits) for side in (low, high))
        axes.fill_between(xs, *edges, color=color, alpha=0.15, linewidth=0)


def _drawn_limits(series: Sequence[Line], limits: tuple[float, float]) -> tuple[float, float]:
    """Returns the ends of the axis of values: those of the bands, but not beyond `limits`.

    These are the lowest and highest value that bands are drawn to.
    """
    lows = [y for line in series for y in (*line.ys, *line.low)]
    highs = [y for line in series for y in (*line.ys, *line.high)]
    low, high = max(min(_drawable(lows)), limits[0]), min(max(_drawable(highs)), limits[1])
    space = 0.04 * (high - low) if low <= 0 or high < 30 * low else 0.0
    return (low - space, high + space) if high > low else limits


def score_by_cost(
    metric: str, bars: Sequence[Bar], xlabel: str, bounds: tuple[float, float] = _UNBOUNDED
) -> str:
    """Returns the SVG of mean scores with their intervals against the mean cost of a run.

    Args:
      bars: those with a cost; the first `MAX_NAMED` are named, the others gray.
      bounds: lowest and highest score that is possible; intervals end there.
    """
    descriptions = [f"{bar.label} {bar.mean:.4g} at {bar.cost:.4g}" for bar in bars[:MAX_NAMED]]
    more = f", and {len(bars) - MAX_NAMED} more" if len(bars) > MAX_NAMED else ""
    alt = f"{metric} against cost in {xlabel}: {'; '.join(descriptions)}{more}."
    height = _SIZE[1] + 0.22 * max(0, min(len(bars), MAX_NAMED) - 2)
    with _figure(alt, (_SIZE[0], height)) as (axes, drawing):
        for place, bar in enumerate(bars):
            (x,), (y,) = _drawable([bar.cost]), _drawable([bar.mean])
            is_named = place < MAX_NAMED
            color = _COLORS[place] if is_named else _RULE
            if bar.low is not None:
                ends = np.clip(_drawable([bar.low, bar.high]), *bounds)
                axes.plot([x, x], ends, "-", color=color, linewidth=1)
            axes.plot(
                [x], [y], "o", color=color, ms=5, label=_shown(bar.label) if is_named else None
            )
        if _spread([bar.cost for bar in bars]):
            _log_scale(axes.set_xscale, axes.xaxis)
        axes.set(xlabel=xlabel, ylabel=metric)
        _legend(axes)
    return drawing.svg


def _shown(label: str) -> str:
    """Returns a label that is in the legend: matplotlib omits empty ones and those with "_" first.

    A space without width before them keeps them and is not seen.
    """
    return label if label and label[0] != "_" else f"\u200b{label}"


def _legend(axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    short = [label if len(label) <= 40 else f"{label[:18]}…{label[-20:]}" for label in labels]
    columns = 1 if max(map(len, short)) > 18 else 2
    axes.figure.legend(handles, short, loc="outside lower center", ncols=columns)


def scatter(title: str, xs: Sequence[float], ys: Sequence[float], xlabel: str, ylabel: str) -> str:
    """Returns the SVG of points and of the diagonal on which both values are equal."""
    alt = f"{title}: {len(xs)} examples, {xlabel} against {ylabel}."
    xs, ys = _drawable(xs), _drawable(ys)
    keep = np.linspace(0, len(xs) - 1, min(len(xs), MAX_DOTS)).round().astype(int)
    with _figure(alt) as (axes, drawing):
        axes.plot([xs[i] for i in keep], [ys[i] for i in keep], ".", color=_COLORS[0], ms=3)
        ends = [min(*xs, *ys), max(*xs, *ys)]
        axes.plot(ends, ends, color=_GRAY, linewidth=1)
        axes.set(xlabel=xlabel, ylabel=ylabel)
    return drawing.svg


def histogram(title: str, values: Sequence[float], xlabel: str) -> str:
    """Returns the SVG of how often numbers occur, in 20 bins."""
    values = _drawable(values)
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    alt = f"{title}: median {middle:.4g}; 90% are between {low:.4g} and {high:.4g}."
    with _figure(alt) as (axes, drawing):
        axes.hist(values, bins=20, color=_COLORS[0], alpha=0.7)
        axes.axvline(0, color=_INK, linewidth=1)
        axes.set(xlabel=xlabel, ylabel="examples")
    return drawing.svg


def effect(
    name: str, groups: Mapping[str, Sequence[float]], metric: str, limits: tuple[float, float]
) -> str:
    """Returns the SVG of the scores of a setting's values as dots, and their means as a line.

    Args:
      groups: {value: scores}.
      limits: ends of the axis of scores, the same for all settings.
    """
    means = {value: float(np.mean(scores)) for value, scores in groups.items()}
    parts = "; ".join(f"{value} {mean:.4g}" for value, mean in means.items())
    alt = f"Mean {metric} by {name}: {parts}."
    with _figure(alt) as (axes, drawing):
        for place, scores in enumerate(groups.values()):
            axes.plot([place] * len(scores), _drawable(scores), "o", color=_GRAY, ms=4, alpha=0.6)
        axes.plot(range(len(means)), _drawable([*means.values()]), "D-", color=_COLORS[0], ms=5)
        long = max(map(len, groups)) * len(groups) > 34
        at: dict[str, Any] = {"rotation": 30, "ha": "right"} if long else {}
        axes.set_xticks(range(len(groups)), [_short(value, 22) for value in groups], **at)
        space = 0.05 * (limits[1] - limits[0]) or 1.0
        axes.set(xlabel=name, ylabel=metric, xlim=(-0.4, len(groups) - 0.6))
        axes.set_ylim(limits[0] - space, limits[1] + space)
    return drawing.svg


def reliability(title: str, bins: Sequence[Mapping[str, float]]) -> str:
    """Returns the SVG of how often the answers of each bin of probabilities are right.

    Args:
      bins: "count", "confidence", "accuracy", and "low" and "high" ends of its interval, of each.
    """
    names = ("confidence", "accuracy", "low", "high")
    xs, ys, low, high = (np.array([row[name] for row in bins]) for name in names)
    alt = f"{title}. Mean top probability and fraction of right answers: " + "; ".join(
        f"{x:.3f} and {y:.3f} ({row['count']} examples)"
        for x, y, row in zip(xs, ys, bins, strict=True)
    )
    with _figure(alt) as (axes, drawing):
        ends = [min(xs.min(), low.min()), 1]
        axes.plot(ends, ends, color=_GRAY, linewidth=1)
        bounds = [np.maximum(ys - low, 0), np.maximum(high - ys, 0)]
        axes.errorbar(xs, ys, bounds, fmt="o", color=_COLORS[0], ms=4, elinewidth=1)
        axes.set(xlabel="top probability", ylabel="right")
    return drawing.svg


def threshold_curve(
    places: Sequence[float], exact: Sequence[float], f1: Sequence[float], threshold: float | None
) -> str:
    """Returns the SVG of scores in percent over the null odds below which questions are answered.

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
            axes.axvline(ends[-1], color=_INK, linewidth=1, label=f"used: {threshold:.3f}")
        axes.set(xlabel="threshold", ylabel="percent", ylim=(0, None))
        _legend(axes)
    return drawing.svg


def points(
    names: Sequence[str], xs: Sequence, ys: Sequence, scores: Sequence[float], metric: str
) -> str:
    """Returns the SVG of scores at points of two parameters: the higher, the stronger the color.

    Args:
      names: the two parameters: of xs, of ys.
      xs, ys: their values at each point: numbers, or strings and booleans with one position each.
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
        for x, y, strength in zip(*places, _strengths(scores), strict=True):
            axes.plot([x], [y], "o", color=_COLORS[0], alpha=strength, ms=8, mec=_INK, mew=0.5)
        axes.set(xlabel=names[0], ylabel=names[1])
    return drawing.svg


def _strengths(scores: Sequence[float]) -> list[float]:
    """Returns the opacity of each score: the higher the score, the stronger its color."""
    low, high = min(scores), max(scores)
    return [0.15 + 0.85 * (x - low) / (high - low) if high > low else 1.0 for x in scores]


def parallel_coordinates(
    names: Sequence[str], rows: Sequence[Sequence], scores: Sequence[float], metric: str
) -> str:
    """Returns the SVG of a line for each point through the axes of its parameters to its score.

    The higher its score, the stronger its color.

    Args:
      names: the parameters, in the order of their axes.
      rows: values of each point in that order: numbers, or strings with one position each.
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
        strengths = _strengths(scores)
        for place in np.argsort(scores, kind="stable"):
            heights, strength = [heights[place] for heights, _ in axes_of], strengths[place]
            at: dict[str, Any] = {"alpha": strength, "linewidth": 1 + strength}
            axes.plot(range(len(heights)), heights, color=_COLORS[0], **at)
        for x, (_, ticks) in enumerate(axes_of):
            axes.axvline(x, color=_GRAY, linewidth=0.8)
            for height, label in ticks:
                box = {"facecolor": _PAPER, "alpha": 0.8, "edgecolor": "none", "pad": 1}
                at = {"va": "center", "bbox": box}
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
    """Returns a value of a parameter as the text at an axis."""
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
