"""Flags that say how texts become pieces; what they do not say the model does."""

import dataclasses
from typing import Any

from albert.cli import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags(options.Group):
    """Flags for the casing and the accents of texts."""

    do_lower_case: bool = options.flag(
        True,
        "Lower-case the text; by default what the model says. A vocabulary with capitals needs "
        "this flag, or --nodo_lower_case, if the model does not say it.",
    )
    keep_accents: bool = options.flag(
        False,
        "Keep the accents of letters; by default what the model says, else only the texts of a "
        "cased WordPiece model keep them.",
    )

    def text_rules(self) -> dict[str, Any]:
        """Returns the values of `text_rules.TextRules` that the user gave, by name."""
        values = {"do_lower_case": self.do_lower_case, "keep_accents": self.keep_accents}
        return {name: value for name, value in values.items() if name in self.given}
