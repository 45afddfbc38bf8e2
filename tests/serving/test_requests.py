"""JSON of clients: our own form and TensorFlow Serving's, and what is refused with which words."""

import base64
import json

import pytest

from albert.io import file_io
from albert.serving import requests, tensorflow_protocol
from albert.serving.requests import CHOICE, ONE_TEXT, QUESTION, TWO_TEXTS, WORDS, Limits

RACE = {"article": "a long text", "question": "why _ ?", "options": ["so", "thus"]}


LIMITS = Limits(3, 50)


def read(value, form=ONE_TEXT, limits=LIMITS, reader=requests.read):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return reader(body, form, limits)


def read_tensorflow(value, form=ONE_TEXT):
    return read(value, form, reader=tensorflow_protocol.read)


def reply_of(request, results):
    return json.loads(request.encode(results).body)


@pytest.mark.parametrize(
    ("form", "example", "expected"),
    [
        (ONE_TEXT, {"text": "é 🙂 \ud800"}, {"text": "é 🙂 \ud800"}),
        (TWO_TEXTS, {"text_pair": "b", "text": "a"}, {"text": "a", "text_pair": "b"}),
        (WORDS, {"words": ["New", "York"]}, {"words": ["New", "York"]}),
        (WORDS, {"text": " New  York\n"}, {"words": ["New", "York"]}),
        (WORDS, {"words": [{"b64": "TmV3"}, "York"]}, {"words": ["New", "York"]}),
        (CHOICE, RACE, RACE),
        (QUESTION, {"question": "q", "context": "c"},
         {"question": "q", "context": "c", "num_answers": 3}),
        (QUESTION, {"question": "q", "context": "c", "num_answers": 1},
         {"question": "q", "context": "c", "num_answers": 1}),
    ],
)  # fmt: skip
def test_examples(form, example, expected):
    one = read(example, form)
    assert one.examples == [expected] and reply_of(one, [{"x": 1}]) == {"x": 1}
    several = read({"examples": [example, example]}, form)
    assert several.examples == [expected] * 2
    assert reply_of(several, [{"x": 1}, {"x": 2}]) == {"results": [{"x": 1}, {"x": 2}]}
    rows = read_tensorflow({"instances": [example], "signature_name": "serving_default"}, form)
    columns = read_tensorflow({"inputs": {key: [part] for key, part in example.items()}}, form)
    assert rows.examples == columns.examples == [expected]


def test_results_in_the_form_of_tensorflow_serving():
    results = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    rows, columns = read_tensorflow({"instances": ["x"]}), read_tensorflow({"inputs": ["x"]})
    assert reply_of(rows, results) == {"predictions": results}
    assert reply_of(columns, results) == {"outputs": {"a": [1, 3], "b": [2, 4]}}
    numbers = [{"prediction": 1.5}, {"prediction": 2.5}]
    assert reply_of(rows, numbers) == {"predictions": [1.5, 2.5]}
    assert reply_of(columns, numbers) == {"outputs": [1.5, 2.5]}
    numbers[1]["truncated"] = True  # an output that the metadata of the model does not have
    assert reply_of(rows, numbers) == {"predictions": [1.5, 2.5]}
    assert reply_of(columns, numbers[::-1]) == {"outputs": [2.5, 1.5]}


def test_values_of_a_single_field_need_no_name():
    encoded = {"b64": base64.b64encode("grün".encode()).decode()}
    for value in ({"instances": ["a", encoded]}, {"inputs": ["a", encoded]},
                  {"inputs": {"text": ["a", encoded]}}):  # fmt: skip
        assert read_tensorflow(value).examples == [{"text": "a"}, {"text": "grün"}]
    words = read_tensorflow({"instances": [["New", "York"], "a b"]}, WORDS).examples
    assert words == [{"words": ["New", "York"]}, {"words": ["a", "b"]}]


REFUSED = [
    (ONE_TEXT, b"\xff", "the request: expected JSON in UTF-8, found 'utf-8' codec"),
    (ONE_TEXT, b"{", "the request: not valid JSON: Expecting property name"),
    (ONE_TEXT, b"[" * 100_000, "the request: not valid JSON: maximum recursion"),
    (ONE_TEXT, b"1" * 10_000, "the request: not valid JSON: Exceeds the limit"),
    (ONE_TEXT, b"", "the request: not valid JSON: Expecting value"),
    (ONE_TEXT, [], "the request: expected object, found list"),
    (ONE_TEXT, {}, "text: expected the field text, found only nothing"),
    (ONE_TEXT, {"txt": "a"}, "txt: expected the field text, found 'txt'"),
    (ONE_TEXT, {"text": 3}, "text: expected text, found whole number"),
    (ONE_TEXT, {"text": None}, "text: expected text, found null"),
    (ONE_TEXT, {"text": "\n"}, "text: expected a text, found an empty one"),
    (ONE_TEXT, {"text": "a" * 51}, "the request: expected at most 50 characters, found 51"),
    (ONE_TEXT, {"text": {"b64": "é"}},
     "text.b64: expected UTF-8 text in base64, found 'é' (string"),
    (ONE_TEXT, {"text": {"b64": "/w=="}},
     "text.b64: expected UTF-8 text in base64, found '/w==' ('utf-8' codec"),
    (ONE_TEXT, {"text": "a", "text_pair": "b"}, "text_pair: expected the field text, found"),
    (TWO_TEXTS, {"text": "a"}, "text_pair: expected the fields text, text_pair, found only text"),
    (ONE_TEXT, {"examples": {}}, "examples: expected list, found object"),
    (ONE_TEXT, {"examples": []}, "examples: expected 1 to 3 examples, found 0"),
    (ONE_TEXT, {"examples": [{}] * 4}, "examples: expected 1 to 3 examples, found 4"),
    (ONE_TEXT, {"examples": ["a"]}, "examples[0]: expected object, found text"),
    (ONE_TEXT, {"examples": [{"text": "a"}, {"text": ""}]}, "examples[1].text: expected a text"),
    (ONE_TEXT, {"examples": [], "text": "a"}, "the request: expected only examples, found"),
    (WORDS, {"words": []}, "words: expected at least one word, found none"),
    (WORDS, {"words": ["a", 1]}, "words[1]: expected text, found whole number"),
    (WORDS, {"words": ["a\tb"]}, "words[0]: expected a word without tabs"),
    (WORDS, {"words": ["a"], "text": "b"}, "text: expected the field words (or text), found"),
    (CHOICE, RACE | {"options": ["one"]}, "options: expected 2 to 26 texts, found 1"),
    (CHOICE, RACE | {"options": "ab"}, "options: expected list, found text"),
    (CHOICE, RACE | {"options": ["a", ""]}, "options[1]: expected a text, found an empty one"),
    (QUESTION, {"question": "q"}, "context: expected the fields question, context, perhaps num_"),
    (QUESTION, {"question": "q", "context": "c", "num_answers": 0},
     "num_answers: expected 1 to 20, found 0"),
]  # fmt: skip
REFUSED_TENSORFLOW = [
    (ONE_TEXT, {}, "the request: expected instances or inputs and perhaps signature_name, found"),
    (ONE_TEXT, {"instances": [], "inputs": []}, "the request: expected instances or inputs"),
    (ONE_TEXT, {"instances": ["a"], "x": 1}, "the request: expected instances or inputs"),
    (ONE_TEXT, {"instances": "a"}, "instances: expected list, found text"),
    (ONE_TEXT, {"instances": [1]}, "instances[0].text: expected text, found whole number"),
    (ONE_TEXT, {"instances": ["a"] * 4}, "instances: expected 1 to 3 examples, found 4"),
    (TWO_TEXTS, {"instances": ["a"]}, "instances[0]: expected object, found text"),
    (TWO_TEXTS, {"inputs": ["a"]}, "inputs: expected object, found list"),
    (TWO_TEXTS, {"inputs": {"text": ["a"], "text_pair": []}},
     "inputs: expected fields with the same number of values, found text 1, text_pair 0"),
    (ONE_TEXT, {"inputs": {}},
     "inputs: expected fields with the same number of values, found nothing"),
    (ONE_TEXT, {"inputs": {"text": "a"}}, "inputs.text: expected list, found text"),
    (ONE_TEXT, {"inputs": {"text": []}}, "inputs: expected 1 to 3 examples, found 0"),
    (ONE_TEXT, {"inputs": {"text": ["a", None]}}, "inputs.text[1]: expected text, found null"),
    (ONE_TEXT, {"inputs": {"text": [{"b64": "!!"}]}},
     "inputs.text[0].b64: expected UTF-8 text in base64, found '!!' (Only base64"),
    (ONE_TEXT, {"inputs": ["a", None]}, "inputs[1].text: expected text, found null"),
    (ONE_TEXT, {"instances": ["a"], "signature_name": "x"},
     "signature_name: expected 'serving_default', found 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "value", "message"), REFUSED)
def test_refusals(form, value, message):
    with pytest.raises(file_io.InputError) as error:
        read(value, form)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(("form", "value", "message"), REFUSED_TENSORFLOW)
def test_refusals_of_tensorflow_serving(form, value, message):
    with pytest.raises(file_io.InputError) as error:
        read_tensorflow(value, form)
    assert str(error.value).startswith(message)


def test_lengths_and_sequences():
    def measured(form, example):
        return requests.measured(form, example, 64)

    found = measured(ONE_TEXT, {"text": "a" * 100})
    assert (found.length, found.weight, found.value) == (100, 1, {"text": "a" * 100})
    assert measured(ONE_TEXT, {"text": "a" * 1000}).length == 5 * 64  # more is cut off
    assert measured(CHOICE, RACE).weight == 2
    long = measured(QUESTION, {"question": "q", "context": "a" * 1000, "num_answers": 3})
    assert (long.length, long.weight) == (5 * 64, 4)  # more becomes further windows
    assert measured(ONE_TEXT, {"text": "a"}).length == measured(ONE_TEXT, {"text": "ab"}).length


def test_replies_are_json():
    assert requests.to_json({"a": 0.1}) == '{"a": 0.1}\n'
    with pytest.raises(ValueError):
        requests.to_json({"a": float("nan")})


def test_texts_that_take_long_to_normalize_are_cut_before():
    """A model also cuts them; where all of a text is answered it is refused."""
    long, korean = "\ufdfa" * 50, "\uac01" * 50  # 18 and 3 characters each
    assert read({"text": korean}).examples == [{"text": korean}]
    assert read({"text": long}).examples == [{"text": long[:11]}]
    choice = {"article": "a", "question": "b", "options": ["c", long[:47]]}
    assert read(choice, CHOICE).examples[0] == {**choice, "options": ["c", long[:2]]}
    question = {"question": long[:20], "context": long[:20]}
    for form, example in ((WORDS, {"words": ["\ufdfa"] * 12}), (QUESTION, question)):
        with pytest.raises(file_io.InputError, match="at most 200 characters after normalization"):
            read(example, form)
