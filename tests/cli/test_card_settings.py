"""Flags of exports for the model card."""

from albert.cli import card_settings
from albert.experiments import model_card
from tests.support import command_lines


def test_facts_are_fields_of_the_card():
    facts = command_lines.read(card_settings.Card, "--license=mit", "--language=de").facts()
    assert model_card.CardFields(**facts) == model_card.CardFields("mit", None, "de")
