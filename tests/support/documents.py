"""Commands in the pages of the project."""

import functools
import re

from tests.support.sources import ROOT


@functools.cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Returns the page's code blocks in a language; "" for blocks without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.S | re.M)
    return [text for name, text in found if name == language]


def lines_of(block: str) -> list[str]:
    """Returns the lines of a shell program, those that end in a backslash joined to the next."""
    return [
        line.strip()
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip() and not line.startswith("#")
    ]


def commands(page: str) -> list[str]:
    """Returns the lines of all shell programs of a page."""
    return [line for block in blocks(page, "bash") for line in lines_of(block)]
