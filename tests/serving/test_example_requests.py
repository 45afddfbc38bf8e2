"""Examples that are kept with a model: which, and what a server says of them."""

import dataclasses
import json
import os

import pytest

from albert.io import file_io
from albert.serving import example_requests, requests, served_model
from tests.support import serving_samples


def kept(folder):
    return json.loads((folder / example_requests.NAME).read_text("utf-8"))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([str(i) for i in range(10)], ["0", "3", "6"]),
        (["a", " ", "b", "x" * 2001, "half \ud83d"], ["a", "b"]),
        (["x" * 2000, "é" * 2000], ["x" * 2000, "é" * 2000]),
    ],
)
def test_three_short_examples_of_all_parts_are_kept(tmp_path, texts, expected):
    example_requests.write(str(tmp_path), ({"text": text} for text in texts))
    assert [example["text"] for example in kept(tmp_path)] == expected
    found = example_requests.read(str(tmp_path), requests.ONE_TEXT)
    assert found == tuple(kept(tmp_path))


def test_no_examples_replace_those_that_are_there(tmp_path):
    example_requests.write(str(tmp_path), [{"text": "a"}])
    example_requests.write(str(tmp_path), [])
    assert not os.listdir(tmp_path)
    assert example_requests.read(str(tmp_path), requests.ONE_TEXT) == ()
    example_requests.copy(str(tmp_path), str(tmp_path / "other"))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("content", ['{"text": "a"}', '[{"text": ""}]', '[{"other": "a"}]'])
def test_other_content_is_named(tmp_path, content):
    (tmp_path / example_requests.NAME).write_text(content)
    with pytest.raises(file_io.InputError, match=example_requests.NAME):
        example_requests.read(str(tmp_path), requests.ONE_TEXT)


def test_a_served_model_describes_its_examples(tmp_path):
    serving_samples.trained_in(tmp_path, "classifier")
    plain = served_model.load(str(tmp_path)).form
    assert "examples" not in plain.schema and plain.example["text"].startswith("What a")
    own = [{"text": "one"}, {"text": "two"}]
    example_requests.write(str(tmp_path), own)
    form = served_model.load(str(tmp_path)).form
    assert form == dataclasses.replace(plain, own_examples=tuple(own))
    assert form.schema == plain.schema | {"examples": own} and form.example == own[0]
