"""Flags of exports for the model card."""

from absl import flags

from albert.cli import card_settings, options
from albert.experiments import model_card


def test_facts_are_fields_of_the_card():
    values = flags.FlagValues()
    options.define(card_settings.Card, values)
    values(["script", "--license=mit", "--language=de"])
    facts = options.read(card_settings.Card, values).facts()
    assert model_card.CardFields(**facts) == model_card.CardFields("mit", None, "de")
