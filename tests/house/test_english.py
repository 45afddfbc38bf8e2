"""American spelling in pages, comments, docstrings and messages."""

import re

import pytest

from tests.support.sources import ROOT

BRITISH = {
    r"\w*(ali|ecogni|ptimi|itiali|ummari|rgani|okeni|tandardi|inimi|aximi|eriali)s(e|ed|es|ing|ation)",
    r"\w*(label|model|travel|signal)l(ed|ing)",
    r"\w*(behaviour|colour|favour|neighbour|honour|flavour)\w*",
    r"centred|grey|learnt|spelt|misspelt|whilst|artefact",
}
SUFFIXES = (".py", ".md", ".sh", ".flags", ".ipynb", ".j2", ".html", ".js")
FOLDERS = ("albert", "benchmarks", "docs", "light", "tests", "tutorials", ".ci")
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in SUFFIXES and "testdata" not in path.parts
)
FILES += [path for path in sorted(ROOT.iterdir()) if path.suffix in (".md", ".sh", ".py")]


def _found(pattern):
    """Yields `file:line: text` of all files but this one."""
    expression = re.compile(pattern, re.I)
    for path in FILES:
        if path.name != "test_english.py":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if expression.search(line):
                    yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


@pytest.mark.parametrize("word", sorted(BRITISH))
def test_spelling_is_american(word):
    found = list(_found(rf"(?<![a-z])(?:{word})(?![a-z])"))
    assert not found, "\n".join(found)


def test_docstrings_do_not_begin_with_what():
    found = list(_found(r'"""(what|of the|of a) '))
    assert not found, "\n".join(found)
