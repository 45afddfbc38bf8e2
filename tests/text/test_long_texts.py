"""Texts that are longer than the input: which tokens are read, and the answer of all windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.io import file_io
from albert.text import long_texts, model_inputs
from albert.text.long_texts import Classes, LabelSets, LongTexts, Numbers

WINDOWS = LongTexts("windows", 4)
IDS = st.lists(st.integers(5, 99), max_size=40)


def test_settings_of_a_folder_hold_what_is_not_the_default():
    assert LongTexts().settings == {} and LongTexts.from_settings({}) == long_texts.ALL_CUT
    for rule in (LongTexts("head_tail"), WINDOWS):
        assert LongTexts.from_settings(rule.settings) == rule
    assert WINDOWS.settings == {"long_texts": {"mode": "windows", "doc_stride": 4}}
    assert long_texts.default_stride(512) == 382


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("windows", "long_texts='windows' must be an object"),
        ({"mode": "middle"}, "long_texts='middle': expected cut, head_tail, windows"),
        ({"mode": "windows"}, "doc_stride=None: expected a number above 0"),
        ({"mode": "windows", "doc_stride": 0}, "doc_stride=0: expected a number above 0"),
        ({"mode": "windows", "doc_stride": True}, "doc_stride=True"),
        ({"mode": "cut", "doc_stride": 3}, "doc_stride=3: expected none without windows"),
        ({"mode": "cut", "stride": 3}, "with the keys mode, doc_stride"),
    ],
)
def test_invalid_settings_are_named(value, message):
    with pytest.raises(file_io.InputError, match=message):
        LongTexts.from_settings({"long_texts": value})


def test_windows_of_one_text():
    cuts, ids = model_inputs.Cuts(), list(range(11))
    found = WINDOWS.read(ids, None, 8, cuts)  # six tokens fit
    assert [window.ids_a for window in found] == [ids[:6], ids[4:10], ids[8:]]
    assert [window.tokens for window in found] == [6, 6, 3] and not any(w.ids_b for w in found)
    assert len(WINDOWS.read(ids[:6], None, 8, cuts)) == 1
    assert cuts.describe() == "none of 2 texts was cut; 1 are read in 3 windows"


def test_windows_of_the_second_text_of_a_pair():
    cuts, a, b = model_inputs.Cuts(), [50, 51], list(range(12))
    found = WINDOWS.read(a, b, 10, cuts)
    assert all(window.ids_a == a for window in found)
    assert [window.ids_b for window in found] == [b[:5], b[4:9], b[8:]]
    # A long first text leaves a quarter of the input to the second one.
    found = WINDOWS.read(list(range(20)), b, 10, cuts)
    assert [len(window.ids_a) for window in found] == [5] * 6
    assert [window.ids_b for window in found] == [b[i : i + 2] for i in range(0, 12, 2)]
    assert (cuts.cut, cuts.lost, cuts.split, cuts.windows) == (1, 15, 2, 9)


def test_head_and_tail():
    rule, ids, cuts = LongTexts("head_tail"), list(range(700)), model_inputs.Cuts()
    (window,) = rule.read(ids, None, 512, cuts)
    assert window.ids_a == ids[:128] + ids[-382:]  # Sun et al., 2019
    assert (cuts.cut, cuts.lost) == (1, 190)
    (window,) = rule.read(ids[:40], ids[:10], 23)
    assert window.ids_a == ids[:3] + ids[33:40] and window.ids_b == ids[:10]
    assert rule.read(ids[:9], None, 12) == LongTexts().read(ids[:9], None, 12)


@given(IDS, st.none() | IDS, st.integers(5, 30), st.integers(1, 30))
def test_windows_fit_and_lose_nothing_of_the_long_text(a, b, length, stride):
    cuts = model_inputs.Cuts()
    found = LongTexts("windows", stride).read(a, b, length, cuts)
    read = {}
    for window in found:
        model_inputs.pack(window.ids_a, window.ids_b, 2, 3, length)
    if b is None:
        assert len({len(w.ids_a) for w in found[:-1]}) <= 1 and not cuts.lost
    elif len(a) + len(b) <= length - 3:
        assert found == [(a, b, len(b))]
    parts = [w.ids_a if b is None else w.ids_b for w in found]
    step = min(stride, len(parts[0])) or 1
    for number, part in enumerate(parts):
        read |= dict(enumerate(part, number * step))
    assert [read[i] for i in range(len(read))] == (a if b is None else b)


def test_the_logits_of_a_text_are_the_weighted_mean_of_its_windows():
    logits = np.array([[1.0, -2.0, 0.5], [0.3, 3.0, -1.0], [2.0, 2.0, 0.0], [9.0, 0.0, 1.0]])
    texts, tokens = np.array([4, 4, 7, 9]), np.array([6, 2, 5, 3])

    def softmax(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    probabilities = softmax(logits).astype(np.float32)
    found, firsts = long_texts.join(probabilities, texts, tokens, Classes())
    assert firsts.tolist() == [0, 2, 3]
    np.testing.assert_allclose(found[0], softmax(logits[:2].T @ [0.75, 0.25]), rtol=1e-6)
    np.testing.assert_array_equal(found[1:], probabilities[2:])  # bit for bit
    numbers, _ = long_texts.join([[1.0], [5.0], [2.0]], [0, 0, 1], [3, 1, 1], Numbers())
    assert numbers.tolist() == [[2.0], [2.0]]
    sure, _ = long_texts.join([[1.0, 0.0], [0.0, 1.0]], [0, 0], [1, 2], Classes())
    assert np.isfinite(sure).all() and sure.argmax() == 1


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_rows_of_texts_are_in_their_order_with_their_losses(temperature):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(6, 2))
    powers = np.exp(logits / temperature)
    own = -np.log(np.exp(logits) / np.exp(logits).sum(1, keepdims=True))
    rows = {
        "probabilities": (powers / powers.sum(1, keepdims=True)).astype(np.float32),
        "predictions": logits.argmax(1).astype(np.int32), "label_ids": np.array([0, 1, 0, 1, 1, 0]),
        "is_real_example": np.array([1, 1, 1, 1, 1, 0]), "per_example_loss": own[:, 0],
        "text_number": np.array([8, 3, 8, 5, 3, 3]), "window_tokens": np.array([2, 1, 2, 4, 1, 9]),
    }  # fmt: skip
    found = long_texts.join_rows(rows, Classes(temperature))
    assert found["label_ids"].tolist() == [1, 1, 0] and "text_number" not in found
    means = (logits[[1, 3, 0]] + logits[[4, 3, 2]]) / 2
    np.testing.assert_array_equal(found["predictions"], means.argmax(1))
    expected = np.log(np.exp(means).sum(1)) - means[[0, 1, 2], found["label_ids"]]
    expected[1] = own[3, 0]  # of one window: as the model computed it
    np.testing.assert_allclose(found["per_example_loss"], expected, rtol=1e-5)
    plain = {"predictions": rows["predictions"]}
    assert long_texts.join_rows(plain, Classes()) == plain


def test_rows_of_numbers_have_their_mean_and_its_loss():
    rows = {
        "probabilities": np.array([[1.0], [4.0]], np.float32),
        "predictions": np.array([1.0, 4.0], np.float32),
        "label_ids": np.array([4.0, 4.0], np.float32), "is_real_example": np.ones(2, int),
        "per_example_loss": np.zeros(2, np.float32), "text_number": np.zeros(2, int),
        "window_tokens": np.array([2, 1]),
    }  # fmt: skip
    found = long_texts.join_rows(rows, Numbers(2.0))
    assert found["predictions"] == [2.0] and found["per_example_loss"] == [1.0]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_each_label_of_several_has_the_mean_of_its_logits(temperature):
    logits = np.array([[1.0, -2.0], [0.3, 3.0], [-4.0, 0.5]])
    labels = np.array([[1, 0], [1, 0], [0, 1]])
    rows = {
        "probabilities": (1 / (1 + np.exp(-logits / temperature))).astype(np.float32),
        "predictions": np.zeros([3, 2], np.int32), "label_ids": labels,
        "is_real_example": np.ones(3, int), "per_example_loss": np.full(3, 9.0),
        "text_number": np.array([0, 0, 1]), "window_tokens": np.array([6, 2, 5]),
    }  # fmt: skip
    means = logits[:2].T @ [0.75, 0.25]  # 0.825, -0.75
    expected = 1 / (1 + np.exp(-means / temperature))
    form = LabelSets(np.array([0.2, expected[1] - 1e-6], np.float32), temperature)
    found = long_texts.join_rows(rows, form)
    np.testing.assert_allclose(found["probabilities"][0], expected, rtol=1e-6)
    np.testing.assert_array_equal(found["probabilities"][1], rows["probabilities"][2])
    assert found["predictions"].tolist() == [[1, 1], [0, 0]]  # one window: as the model says
    losses = np.log1p(np.exp(np.where(labels[0], -means, means)))
    np.testing.assert_allclose(found["per_example_loss"], [losses.mean(), 9.0], rtol=1e-5)
    sure, _ = long_texts.join([[1.0, 0.0], [0.0, 1.0]], [0, 0], [1, 1], form)
    np.testing.assert_allclose(sure, [[0.5, 0.5]])
