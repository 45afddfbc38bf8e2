"""Writes SVG drawings that follow the reader's light or dark setting.

Every number is written with at most one decimal, so that a drawing is the same file everywhere.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

Point = tuple[float, float]

# Colors by name: on light and on dark paper.
COLORS = {
    "paper": ("#ffffff", "#0f141b"),
    "ink": ("#1f2733", "#e4e9f0"),
    "soft": ("#566273", "#a3afbf"),
    "rule": ("#c3cad4", "#465263"),
    "plain": ("#f1f4f8", "#1d2633"),
    "blue": ("#1d63c4", "#7fb2ff"),
    "blue_area": ("#e0ecfc", "#17304f"),
    "orange": ("#b4500b", "#ffb067"),
    "orange_area": ("#fdecd9", "#472c12"),
    "green": ("#19703a", "#7ad39a"),
    "green_area": ("#ddf3e4", "#143a24"),
    "gray": ("#7a8594", "#8d99a8"),
}
SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _style() -> str:
    """Builds the rules for fills `f-NAME` and strokes `s-NAME`, light first."""
    rules = []
    for dark in (0, 1):
        colors = "".join(
            f".f-{name}{{fill:{pair[dark]}}}.s-{name}{{stroke:{pair[dark]}}}"
            for name, pair in COLORS.items()
        )
        rules.append(f"@media(prefers-color-scheme:dark){{{colors}}}" if dark else colors)
    fonts = f"text{{font-family:{SANS}}}.mono{{font-family:{MONO}}}.bold{{font-weight:600}}"
    fonts += ".halo{paint-order:stroke;stroke-width:7}"
    return "\n".join([fonts, *rules])


class Drawing:
    """A drawing of a fixed size, filled from back to front."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = (width, height)
        self.title = title
        self.parts: list[str] = []
        self.box(0, 0, width, height, fill="paper", stroke="", radius=10)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "plain",
        stroke: str = "rule",
        radius: float = 8,
        dashed: bool = False,
    ) -> None:
        """Adds a rectangle; an empty `stroke` draws no border."""
        numbers = zip(
            ("x", "y", "width", "height", "rx"), (x, y, width, height, radius), strict=True
        )
        shape = " ".join(f'{name}="{_number(value)}"' for name, value in numbers)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        classes = f"f-{fill}" + (f" s-{stroke}" if stroke else "")
        self.parts.append(f'<rect class="{classes}" {shape}{dashes}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 15,
        color: str = "ink",
        anchor: str = "middle",
        mono: bool = False,
        bold: bool = False,
        halo: bool = False,
    ) -> None:
        """Adds a line of text; `y` is its baseline. A halo covers lines behind it."""
        classes = f"f-{color}" + " mono" * mono + " bold" * bold + " halo s-paper" * halo
        self.parts.append(
            f'<text class="{classes}" x="{_number(x)}" y="{_number(y)}" '
            f'font-size="{_number(size)}" text-anchor="{anchor}" xml:space="preserve">'
            f"{escape(text)}</text>"
        )

    def line(
        self,
        points: Sequence[Point],
        *,
        color: str = "soft",
        width: float = 1.6,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        """Adds a line through the points, with an arrow head at the last if asked for."""
        path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline class="s-{color}" points="{path}" fill="none" '
            f'stroke-width="{_number(width)}" stroke-linejoin="round"{dashes}/>'
        )
        if arrow:
            self._arrow_head(points[-2], points[-1], color)

    def _arrow_head(self, start: Point, end: Point, color: str) -> None:
        """Adds a triangle at the end of a horizontal or vertical line."""
        length = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
        dx, dy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
        back = (end[0] - 9 * dx, end[1] - 9 * dy)
        corners = [end, (back[0] - 5 * dy, back[1] + 5 * dx), (back[0] + 5 * dy, back[1] - 5 * dx)]
        path = " ".join(f"{_number(x)},{_number(y)}" for x, y in corners)
        self.parts.append(f'<polygon class="f-{color}" points="{path}"/>')

    def dot(self, x: float, y: float, radius: float, *, fill: str, stroke: str = "") -> None:
        """Adds a filled circle."""
        classes = f"f-{fill}" + (f" s-{stroke}" if stroke else "")
        self.parts.append(
            f'<circle class="{classes}" cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"/>'
        )

    def svg(self) -> str:
        """Returns the file."""
        width, height = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{_style()}</style>",
                *self.parts,
                "</svg>\n",
            ]
        )
