"""Flags of exports for the model card: facts that only the user knows."""

import dataclasses

from albert.cli import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card(options.Group):
    """Facts that the user adds to the card of an exported model."""

    section = "Model card"

    license: str | None = options.flag(
        None, "License of the model, for its card: a name of the Hub, such as apache-2.0."
    )
    base_model: str | None = options.flag(
        None, "For the card: name on the Hub of the model that this one was made from."
    )
    language: str | None = options.flag(
        None, "Code of the model's language, for its card; en with published data."
    )

    def facts(self) -> dict[str, str | None]:
        """Returns {flag: value, None if not given}, for `model_card.CardFields`."""
        return {"license": self.license, "base_model": self.base_model, "language": self.language}
