"""Which setting of a sweep mattered."""

import pytest

from albert.experiments import main_effects


def points(*rows):
    return [{"mean": mean, "parameters": parameters} for mean, parameters in rows]


def test_the_largest_difference_of_means_is_first():
    found = main_effects.find(
        points(
            (0.5, {"rate": 1e-5, "batch": 16}), (0.8, {"rate": 1e-3, "batch": 16}),
            (0.6, {"rate": 1e-5, "batch": 32}), (0.9, {"rate": 1e-3, "batch": 32}),
        ),
        ["batch", "rate"],
    )  # fmt: skip
    assert [effect.name for effect in found] == ["rate", "batch"]
    assert found[0].means == pytest.approx({"1e-05": 0.55, "0.001": 0.85})
    assert found[0].size == pytest.approx(0.3) and found[1].size == pytest.approx(0.1)


def test_drawn_numbers_are_compared_by_thirds_and_texts_one_by_one():
    rows = [(i / 10, {"rate": i, "optimizer": "lamb" if i % 2 else "adamw"}) for i in range(9)]
    rate, optimizer = main_effects.find(points(*rows), ["rate", "optimizer"])
    assert rate.groups == {
        "0 to 2": [0.0, 0.1, 0.2], "3 to 5": [0.3, 0.4, 0.5], "6 to 8": [0.6, 0.7, 0.8]
    }  # fmt: skip
    assert {*optimizer.groups} == {"adamw", "lamb"}
    assert not main_effects.find(points((1.0, {"rate": 1})), ["rate"])


def test_thirds_of_numbers_with_the_same_first_digits_stay_apart():
    steps = (10001, 10004, 10007, 10010, 10013, 10016, 10019, 10022, 10025, 10028, 10031, 10034)
    rows = [(place / 10, {"train_step": step}) for place, step in enumerate(steps)]
    (effect,) = main_effects.find(points(*rows), ["train_step"])
    assert [*effect.groups] == ["10001 to 10010", "10013 to 10022", "10025 to 10034"]
    assert [len(scores) for scores in effect.groups.values()] == [4, 4, 4]
