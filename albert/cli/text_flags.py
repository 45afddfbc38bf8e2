"""Flags that say how texts become pieces; what they do not say the model does."""

import dataclasses
import shlex
from typing import Any

from albert.cli import options
from albert.io import file_io


def _check_pieces(name: str, pieces: tuple[str, ...]) -> None:
    for piece in pieces:
        if not piece or piece != piece.strip():
            raise file_io.InputError(
                f"--{name}: {piece!r} is not a piece; expected text without blanks around"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags(options.Group):
    """Flags for the casing and the accents of texts."""

    do_lower_case: bool = options.flag(
        True,
        "Lower-case the text. A vocabulary with capitals needs this flag, or --nodo_lower_case, if "
        "the model does not say it.",
        shown_default="what the model says, else true",
    )
    keep_accents: bool = options.flag(
        False,
        "Keep the accents of letters.",
        shown_default="what the model says, else true for a cased WordPiece vocabulary only",
    )
    extra_pieces: tuple[str, ...] = options.flag(
        (),
        "Words or symbols that become pieces after those of the vocabulary, found in texts exactly "
        "as written, also with capitals: comma-separated. Training gives them rows of their own.",
        check=_check_pieces,
    )

    def text_rules(self) -> dict[str, Any]:
        """Returns the values of `text_rules.TextRules` that the user gave, by name."""
        values: dict[str, Any] = {
            "do_lower_case": self.do_lower_case,
            "keep_accents": self.keep_accents,
            "extra_pieces": self.extra_pieces,
        }
        return {name: value for name, value in values.items() if name in self.given}

    def given_text_flags(self) -> str:
        """Returns the flags of this group that the user gave, to paste into a shell."""
        words = []
        for name, value in self.text_rules().items():
            if isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no{name}")
            else:
                words.append(f"--{name}={shlex.quote(','.join(value))}")
        return " ".join(words)
