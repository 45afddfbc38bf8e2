"""Texts of the site: pages from outside docs/, anchors, a notebook as a page, what pages load."""

import html
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOK = "tutorials/fine_tuning.ipynb"
# Pages by their files in the repository; those of docs/ keep their names.
PAGES = {
    "README.md": "index.md",
    "PARITY.md": "parity.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
    NOTEBOOK: "tutorial.md",
}
DOORS = """
    modeling heads checkpoints optimization tokenization classifier_utils squad_utils race_utils
""".split()
# What makes a browser load something.
LOADED = re.compile(
    r"<(?:script|img|source|iframe|video|audio|embed|use)\b[^>]*\b(?:src|srcset|href)=[\"']?"
    r"(?:https?:)?//[^\"'\s>]*|<link\b(?![^>]*rel=[\"']?canonical)[^>]*href=[\"']?(?:https?:)?//"
    r"[^\"'\s>]*|(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')\s]*"
)
# The width from which the theme shows the navigation, and the one before, with ours: 1,000 pixels.
BREAKPOINTS = {"76.25em": "62.5em", "76.234375em": "62.484375em"}
_CODE = re.compile(r"<pre\b.*?</pre>|<code>([^<]*)</code>", re.S)
_LONGEST_NAME = 48  # characters; longer ones may break where browsers break them


def slug(heading: str, separator: str = "-") -> str:
    """Returns the anchor of a heading as GitHub makes it, so that links work there and here."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def notebook_page(path: pathlib.Path) -> str:
    """Returns a notebook as Markdown, with what its cells printed and drew."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if "data" in output:
                lines = (line.strip() for line in output["data"]["image/svg+xml"])
                parts.append(f"<div>{' '.join(lines)}</div>")  # one block without blank lines
            else:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def keep_names_whole(page: str) -> str:
    """Returns HTML in which the words of code in a text do not break, as at hyphens and slashes."""

    def whole(word: str) -> str:
        text = html.unescape(word)
        is_name = re.search(r"\W", text) and len(text) <= _LONGEST_NAME
        return f'<span class="name">{word}</span>' if is_name else word

    def replaced(match: re.Match) -> str:
        text = match[1]
        return match[0] if text is None else f"<code>{' '.join(map(whole, text.split(' ')))}</code>"

    return _CODE.sub(replaced, page)


def show_navigation(text: str) -> str:
    """Returns a style sheet or script of the theme that shows the navigation from 1,000 pixels."""
    for theirs, ours in BREAKPOINTS.items():
        text = text.replace(theirs, ours)
    return text


def loaded_from_elsewhere(text: str) -> list[str]:
    """Returns what a page, a style sheet or a drawing loads from other hosts."""
    return LOADED.findall(text)
