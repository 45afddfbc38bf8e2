"""Which variables of a model a checkpoint has, without any model."""

import pytest

from albert.io import file_io
from albert.model import weight_matching

HERE = {"bert/a": [2, 3], "bert/pooler/b": [3], "cls/squad/c": [2, 3]}
THERE = {
    "bert/a": [2, 3],
    "bert/a/adam_m": [2, 3],
    "cls/squad/c": [4, 3],
    "d": [1],
    "global_step": [],
}


def test_names_of_a_match():
    match = weight_matching.Match.between("x", HERE, THERE)
    assert match.loaded == ["bert/a", "cls/squad/c"] and match.new == ["bert/pooler/b"]
    assert match.unused == ["d"] and match.has_other_head()
    with pytest.raises(file_io.InputError, match=r"x does not fit .*squad/c is \[4, 3\] in"):
        match.check_shapes()
    encoder = match.encoder_only()
    encoder.check_shapes()
    assert encoder.loaded == ["bert/a"] and encoder.unused == ["cls/squad/c", "d"]
    assert not encoder.has_other_head()


def test_variables_that_may_be_missing():
    match = weight_matching.Match.between("x", HERE, {"bert/a": [2, 3]})
    match.check_missing(["bert/a"], [], None)  # what the model does not use
    match.check_missing(HERE, HERE, ("bert/pooler/",))
    for trained, optional in ((HERE, None), ([], ("bert/pooler/",)), (HERE, ())):
        with pytest.raises(file_io.InputError, match="x lacks .*pooler/b"):
            match.check_missing(HERE, trained, optional)
