"""The contrast of colors by WCAG 2, and the colors of all texts of a page in a browser."""

import re

# [text, color, backgrounds from the text outwards], of each element that holds text itself.
_COLORS = """
[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('title') &&
    [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())).map(e => {
  const layers = [];
  for (let at = e; at; at = at.parentElement) {
    const style = getComputedStyle(at);
    // A bar behind a number; shadows at the ends of scrolling regions are behind nothing.
    if (at.matches('td.bar')) layers.push(style.backgroundImage);
    layers.push(style.backgroundColor);
  }
  const style = getComputedStyle(e);
  return [e.textContent.trim(), e.closest('svg') ? style.fill : style.color, layers];
})
"""


def parse(text):
    """The first CSS color in a text as (red, green, blue, opacity), each 0 to 1."""
    if found := re.search(r"#([0-9a-f]{6})", text):
        return (*(int(found[1][i : i + 2], 16) / 255 for i in (0, 2, 4)), 1.0)
    name, numbers = re.search(r"(rgba?|color)\(([^)]*)\)", text).groups()
    values = [float(x) for x in re.findall(r"(?<![a-z])[\d.]+(?:e-?\d+)?", numbers)]
    scale = 1 if name == "color" else 255
    return (*(x / scale for x in values[:3]), values[3] if len(values) > 3 else 1.0)


def over(front, back):
    """A color in front of an opaque one."""
    opacity = front[3]
    mixed = (opacity * f + (1 - opacity) * b for f, b in zip(front[:3], back[:3], strict=True))
    return (*mixed, 1.0)


def luminance(color):
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ratio(front, back):
    """The contrast of two opaque colors, 1 to 21."""
    dark, light = sorted(map(luminance, (front, back)))
    return (light + 0.05) / (dark + 0.05)


def of_texts(page):
    """[(contrast, text)] of all visible texts of a page, the lowest contrast first."""
    found = []
    for text, color, layers in page.evaluate(_COLORS):
        back = (1.0, 1.0, 1.0, 1.0)
        for layer in reversed(layers):
            if layer != "none":
                back = over(parse(layer), back)
        found.append((ratio(over(parse(color), back), back), text))
    return sorted(found)
