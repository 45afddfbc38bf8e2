"""The loop that all predictors have."""

import numpy as np
import pytest

from albert.model import batching
from albert.serving import predictor
from albert.text import model_inputs


class Sums(predictor.BatchedModel[list[int], int, int]):
    """Each example has as many inputs as ids; the result is the sum of all."""

    min_length = 4

    def __init__(self):
        self.shapes = []

    def infer(self, inputs):
        self.shapes.append(inputs["input_ids"].shape)
        return {"ids": inputs["input_ids"]}

    def _encode(self, examples):
        rows = np.zeros([sum(map(len, examples)), 32], np.int64)
        for row, length in zip(rows, [n for ids in examples for n in ids], strict=True):
            row[:length] = 1
        return predictor.stacked([dict.fromkeys(model_inputs.NAMES, row) for row in rows]), len(
            rows
        )

    def _decode(self, examples, notes, outputs):
        assert len(outputs) == notes
        sums = iter([int(output["ids"].sum()) for output in outputs])
        return [sum(next(sums) for _ in ids) for ids in examples]


def test_results_are_in_order_and_batches_have_similar_lengths():
    model, examples = Sums(), [[3], [30, 2, 17], [9], [1], [25]]
    assert list(model._predict(iter(examples), 2, 2)) == [3, 49, 9, 1, 25]
    assert model.shapes == [(2, 32), (2, 8), (2, 32), (1, 8)]


def test_no_more_is_read_than_so_many_batches_ahead():
    numbers, read = [[n + 1] for n in range(10)], []
    results = Sums()._predict((read.append(n) or n for n in numbers), 2, 2)
    assert next(results) == 1 and len(read) == 4
    windows, read = [[3] * 9 for _ in range(10)], []  # each example has nine inputs
    results = Sums()._predict((read.append(n) or n for n in windows), 2, 8)
    assert next(results) == 27 and len(read) == 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_not_finite_are_no_answers(value):
    class Broken(Sums):
        def infer(self, inputs):
            scores = np.ones(len(inputs["input_ids"]), np.float32)
            scores[-1] = value
            return {**super().infer(inputs), "logits": scores}

    message = "the model has computed logits that are not finite: .* another checkpoint"
    with pytest.raises(batching.NonFiniteError, match=message):
        list(Broken()._predict([[3], [4]], 2, 2))
