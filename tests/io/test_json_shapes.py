"""Rejected values, by name."""

import pytest

from albert.io import file_io, json_shapes

SHAPE = {
    "name": str, "sizes": [int], "rate?": json_shapes.NUMBER, "more?": {"*": {"x": bool}},
    "any?": json_shapes.ANY, "none?": (str, json_shapes.NoneType),
}  # fmt: skip
VALUE = {"name": "a", "sizes": [1], "rate": 1, "more": {"k": {"x": True}}, "any": True}


def test_values_of_the_shape_are_taken():
    json_shapes.check(VALUE | {"other": 1, "none": None}, SHAPE, "file")
    json_shapes.check({"name": "", "sizes": []}, SHAPE, "file")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 1}, "file.name: expected text, found whole number"),
        ({"sizes": [1, 2.5]}, r"file.sizes\[1\]: expected whole number, found number"),
        ({"sizes": [True]}, r"file.sizes\[0\]: expected whole number, found true or false"),
        ({"sizes": {}}, "file.sizes: expected list, found object"),
        ({"rate": None}, "file.rate: expected whole number or number, found null"),
        ({"more": {"k": {}}}, "file.more.k: there is no 'x'"),
        ({"more": {"k": {"x": 1}}}, "file.more.k.x: expected true or false, found whole number"),
        ({"none": []}, "file.none: expected text or null, found list"),
    ],
)
def test_others_are_named(changes, message):
    with pytest.raises(file_io.InputError, match=message):
        json_shapes.check(VALUE | changes, SHAPE, "file")
    with pytest.raises(file_io.InputError, match="file: expected object, found list"):
        json_shapes.check([], SHAPE, "file")


def test_text_that_no_file_can_hold():
    json_shapes.check_text({"ä": ["ö"]}, "file")
    for value in ("\ud800", {"\ud800": 1}, [["\ud800"]]):
        with pytest.raises(file_io.InputError, match="file holds invalid text"):
            json_shapes.check_text(value, "file")
