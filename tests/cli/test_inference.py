"""Flags for the computation of a fine-tuned model."""

import re
import types

import pytest

from albert.cli import model_settings, options
from albert.io import file_io
from albert.serving import inference
from tests.support import command_lines


def values_of(*given):
    return command_lines.parse(model_settings.Inference, *given)


@pytest.mark.parametrize(
    ("exported", "given", "expected"),
    [
        (None, [], "float32"),
        (None, ["--precision=bfloat16"], "bfloat16"),
        ("bfloat16", ["--precision=bfloat16"], "bfloat16"),
        ("int8", ["--precision=bfloat16"], None),
    ],
)
def test_precision_is_that_of_the_flag(monkeypatch, exported, given, expected):
    serving = exported and types.SimpleNamespace(precision=exported, path="exported")
    asked = []

    def find(path, *kinds):
        asked.append((path, kinds))
        return inference.FoundModel("folder", serving)

    monkeypatch.setattr(inference, "find", find)

    def load():
        settings = options.read(model_settings.Inference, values_of(*given))
        return model_settings.find_trained("run", settings, "a", "b")

    if expected is None:
        message = "precision=bfloat16: exported was exported in int8 and computes in nothing else"
        with pytest.raises(file_io.InputError, match=re.escape(message)):
            load()
    else:
        assert load().precision == expected
    assert asked == [("run", ("a", "b"))]
