"""Estimates of memory: exact where they can be, and in the order that they must be."""

import dataclasses
import itertools

import pytest

from albert.model import encoder, heads, layers
from albert.training import memory, optimizers
from tests.support import builders

BASE = encoder.AlbertConfig(
    vocab_size=30000, hidden_size=768, num_attention_heads=12, intermediate_size=3072
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_size": 16},
        {"num_hidden_groups": 2, "inner_group_num": 3},
        {"share": "attention", "inner_group_num": 2},
        {"share": "ffn"},
        {"share": "none"},
        {"num_hidden_groups": 2, "group_order": "cycle"},
        {"layer_scales": True, "inner_group_num": 2},
    ],
)
def test_parameters_are_counted_as_they_are(changes):
    config = builders.tiny_config(num_hidden_layers=4, intermediate_size=24, **changes)
    counted = sum(v.shape.num_elements() for v in encoder.AlbertModel(config).variables)
    assert memory.count_parameters(config) == counted


@pytest.mark.parametrize(
    ("share", "millions"), [("all", 12), ("attention", 64), ("ffn", 38), ("none", 89)]
)
def test_the_published_sizes_of_sharing(share, millions):
    """ALBERT, table 3."""
    count = memory.count_parameters(dataclasses.replace(BASE, share=share))
    # The paper's figure without any sharing, 89M, is cut off where the others are rounded.
    assert millions in (round(count / 1e6), int(count / 1e6))


def test_the_published_size_of_base():
    assert memory.count_parameters(BASE) == 11_683_584
    assert heads.ClassifierModel(BASE, 2).albert.config is BASE


def total(batch=32, steps=1, predictions=0, **compute):
    return memory.estimate(
        memory.Shapes(BASE, batch, 512, predictions), layers.Compute(**compute), steps
    ).total


def whole(steps, recompute):
    return layers.Compute(recompute=recompute)


def test_each_way_of_saving_saves():
    plain = total()
    assert total(recompute=True) < 0.4 * plain
    assert total(steps=4) < 0.4 * plain
    assert total(dtype="bfloat16") < 0.8 * plain
    assert total(batch=16) < 0.6 * plain
    assert total(predictions=20) > plain


def test_the_report_names_what_would_fit(monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (8 << 30) // 4096}
    monkeypatch.setattr("os.sysconf", pages.get)
    text = memory.report(memory.Shapes(BASE, 32, 512), whole)
    rows = [line.split() for line in text.splitlines() if "fit" in line]
    assert len(rows) == 6 * 2
    fitting = {(int(r[0]), r[1] == "True"): "does" not in r for r in rows}
    assert not fitting[1, False] and fitting[1, True] and fitting[32, False]
    for steps, recompute in itertools.product((1, 2, 4, 8, 16), (False, True)):
        assert fitting[2 * steps, recompute] >= fitting[steps, recompute]
    assert "8.00 GiB of main memory" in text


def test_an_estimate_adds_up():
    found = memory.estimate(memory.Shapes(BASE, 8, 128), layers.Compute())
    assert found.total > sum(dataclasses.astuple(found)) > found.activations > 0


def test_an_example_of_several_texts_needs_the_memory_of_all():
    questions = memory.report(memory.Shapes(BASE, 8, 512, choices=4), whole).splitlines()
    texts = memory.report(memory.Shapes(BASE, 32, 512), whole).splitlines()
    assert "32 x 512 tokens" in questions[0]
    # Questions are not split: at most 8 parts instead of 32.
    assert len(texts) == len(questions) + 4 and texts[: len(questions)] == questions


@pytest.mark.parametrize("inner", [1, 3])
def test_each_part_of_a_batch_adds_up_gradients_of_its_own(inner):
    """Parts keep the activations of one batch, but each the sums of a group and the next ones."""
    config = encoder.AlbertConfig.from_dict({**BASE.to_dict(), "inner_group_num": inner})
    one, two = (
        memory.estimate(memory.Shapes(config, 32, 512), layers.Compute("bfloat16", parts=parts))
        for parts in (1, 2)
    )
    dense = 4 * (768 + 1) * 768 + (768 + 1) * 3072 + (3072 + 1) * 768
    block = 2 * (dense + 4 * 768)
    assert two.gradients - one.gradients == (inner + 1) * block
    assert dataclasses.replace(two, gradients=one.gradients) == one


def test_the_report_asks_how_each_setting_computes():
    parts = {}

    def make_compute(steps, recompute):
        parts[steps, recompute] = 2 if steps == 1 and not recompute else 1
        return layers.Compute(recompute=recompute, parts=parts[steps, recompute])

    text = memory.report(memory.Shapes(BASE, 4, 512), make_compute, 2, recompute=True)
    assert set(parts) == set(itertools.product((1, 2, 4), (False, True)))
    chosen = memory.estimate(memory.Shapes(BASE, 4, 512), layers.Compute(recompute=True), 2)
    assert f"together     {chosen.total / 2**30:7.2f} GiB" in text


def test_slots_are_counted_as_the_optimizer_has_them(monkeypatch):
    usual = memory.estimate(memory.Shapes(BASE, 8, 128, optimizer="lamb"), layers.Compute())
    assert usual.optimizer == 2 * usual.parameters and usual.checkpoint == 3 * usual.parameters
    averaged = memory.estimate(memory.Shapes(BASE, 8, 128, averages=True), layers.Compute())
    assert averaged.optimizer == 3 * usual.parameters
    monkeypatch.setattr(optimizers.LAMB, "SLOTS", ("mean",))
    lean = memory.estimate(memory.Shapes(BASE, 8, 128, optimizer="lamb"), layers.Compute())
    assert lean.optimizer == lean.parameters and lean.checkpoint == 2 * lean.parameters
    assert memory.estimate(memory.Shapes(BASE, 8, 128), layers.Compute()) == usual
