"""Questions and options are put together in a graph as in Python."""

import tensorflow as tf

from albert.export import saved_model_export
from albert.tasks import race

QUESTIONS = [
    "What _ the cake?",
    "_",
    "a _ b _",
    "__",
    "a ____ b _",
    "no blank ?",
    "",
    "caf\u00e9 _\u2003",
]


def test_endings_are_those_of_python():
    pairs = [(question, option) for question in QUESTIONS for option in ("was", "", "a _ b")]
    found = saved_model_export.endings_of(*map(tf.constant, zip(*pairs, strict=True)))
    expected = [race.ending(race.single_blanks(question), option) for question, option in pairs]
    assert [x.decode() for x in found.numpy()] == expected
    assert race.ending(race.single_blanks("a ____ b _"), "was") == "a was b was"
