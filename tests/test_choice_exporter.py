"""Questions and options are put together in a graph as in Python."""

import tensorflow as tf

from albert import choice_exporter, race_utils

QUESTIONS = ["What _ the cake?", "_", "a _ b _", "__", "no blank ?", "", "caf\u00e9 _\u2003"]


def test_endings_are_those_of_python():
    pairs = [(question, option) for question in QUESTIONS for option in ("was", "", "a _ b")]
    found = choice_exporter.endings_of(*map(tf.constant, zip(*pairs, strict=True)))
    assert [x.decode() for x in found.numpy()] == [race_utils.ending(*pair) for pair in pairs]
