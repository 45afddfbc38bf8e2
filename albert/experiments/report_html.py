"""Parts of a report as HTML: one page that needs nothing from outside, down to 400 pixels wide."""

import html

_STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 12px; max-width: 1200px; color: #1b1f24; background: #fff;
  font: 16px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.5rem; margin: .4em 0 .2em; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 1.6em 0 .5em; border-bottom: 1px solid #d0d7de; }
h3 { font-size: 1rem; margin: 1.2em 0 .4em; }
p { margin: .5em 0; overflow-wrap: anywhere; max-width: 75ch; }
.note { color: #57606a; font-size: .9rem; }
.warning { border-left: 4px solid #bf8700; background: #fff8c5; padding: 6px 10px; }
code { font: .85em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f8fa; padding: 8px;
  font-size: .85rem; border-radius: 6px; }
.figures { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 340px), 1fr)); align-items: start; }
figure { margin: 0; padding: 6px; border: 1px solid #d0d7de; border-radius: 6px; }
.figures.wide { grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); }
.figures.wide figure { max-width: 640px; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .85rem; color: #57606a; padding: 2px 4px; overflow-wrap: anywhere; }
/* A shadow at each side where more is hidden: what moves along with the content covers it there. */
.scroll, figure { overflow-x: auto; background:
  linear-gradient(to right, #fff 16px, #fff0) 0 / 40px 100% no-repeat local,
  linear-gradient(to left, #fff 16px, #fff0) 100% / 40px 100% no-repeat local,
  linear-gradient(to right, #0006, #0000) 0 / 14px 100% no-repeat scroll,
  linear-gradient(to left, #0006, #0000) 100% / 14px 100% no-repeat scroll, #fff; }
.scroll { margin: .5em 0; border: 1px solid #d0d7de; border-radius: 6px; }
/* A bar that stays, where the system would show one only while it scrolls. */
.scroll::-webkit-scrollbar, figure::-webkit-scrollbar { height: 8px; }
.scroll::-webkit-scrollbar-thumb, figure::-webkit-scrollbar-thumb { background: #8c959f;
  border-radius: 4px; }
table { border-collapse: collapse; font-size: .875rem; width: 100%;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 4px 8px;
  border-bottom: 1px solid #eaeef2; max-width: 45ch; overflow-wrap: break-word; }
td:first-child:not(.long) { white-space: nowrap; }
td.long { min-width: 22ch; }
th { background: #d0d7de33; white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
tr.best td { background: #4ac26b33; }
details { margin: .5em 0; }
summary { cursor: pointer; color: #0550ae; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 12px; margin: .5em 0;
  font-size: .9rem; }
dt { color: #57606a; }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { details { display: block; } .scroll { overflow: visible; } }
"""


def text(value):
    """A value as text that is safe in HTML."""
    return html.escape(str(value))


def page(title, parts):
    """A whole document.

    Args:
      title: text.
      parts: list of HTML.
    """
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{text(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def section(title, *parts):
    """A heading and what is below it; "" where that is nothing."""
    found = [part for part in parts if part]
    return "\n".join([f"<h2>{text(title)}</h2>", *found]) if found else ""


def heading(title):
    """A heading inside of a section."""
    return f"<h3>{text(title)}</h3>"


def paragraph(words, kind=""):
    """A paragraph of text; `kind` is "note" or "warning"."""
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def program(words):
    """Text as it was typed or printed."""
    return f"<pre>{text(words)}</pre>"


def pairs(found):
    """A list of names and their values, texts; those without a value are left out."""
    lines = [f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in found if v not in (None, "")]
    return f"<dl>{''.join(lines)}</dl>" if lines else ""


def folded(summary, content):
    """What is shown on a click."""
    return f"<details><summary>{text(summary)}</summary>\n{content}\n</details>"


def figures(found, wide=False):
    """Figures, (caption, SVG) each, beside each other where there is room; fewer if `wide`."""
    if not found:
        return ""
    lines = [
        f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>" for caption, svg in found
    ]
    kind = "figures wide" if wide else "figures"
    return f'<div class="{kind}">\n{chr(10).join(lines)}\n</div>'


def table(header, rows, best=None):
    """A table that scrolls by itself where it is too wide; "" without rows.

    Args:
      header: names of the columns.
      rows: lists of texts and numbers.
      best: place of the row that stands out.
    """
    if not rows:
        return ""
    kinds = [_kind(column) for column in zip(*rows, strict=True)]
    head = "".join(
        f'<th scope="col"{kind if "number" in kind else ""}>{text(name)}</th>'
        for name, kind in zip(header, kinds, strict=True)
    )
    lines = []
    for place, row in enumerate(rows):
        cells = (f"<td{k}>{_cell(value)}</td>" for value, k in zip(row, kinds, strict=True))
        lines.append(f"<tr{' class=best' if place == best else ''}>{''.join(cells)}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(", ".join(header))}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _kind(column):
    """What the cells of a column are, as an attribute: numbers, long texts or short ones."""
    known = [value for value in column if value not in (None, "")]
    if known and all(map(_is_number, known)):
        return ' class="number"'
    return ' class="long"' if any(len(str(value)) > 40 for value in known) else ""


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value):
    if _is_number(value):
        return text(number(value))
    return text("" if value is None else value)


def number(value):
    """A number in few digits."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"
