"""When a run saves, evaluates and reports."""

import dataclasses

import pytest

from albert.training import engine

CONFIG = engine.RunConfig(
    output_dir="out", num_train_steps=25, train_batch_size=8, eval_batch_size=8,
    predict_batch_size=8, save_checkpoints_steps=10, keep_checkpoint_max=5, iterations_per_loop=1,
    log_every_steps=4, seed=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("eval_every", "saved", "evaluated"),
    [(0, [10, 20, 25], [10, 20, 25]), (6, [6, 10, 12, 18, 20, 24, 25], [6, 12, 18, 24, 25])],
)
def test_each_evaluation_has_a_checkpoint(eval_every, saved, evaluated):
    config = dataclasses.replace(CONFIG, eval_every=eval_every)
    assert [step for step in range(1, 26) if config.is_saved(step)] == saved
    assert [step for step in saved if config.is_evaluated(step)] == evaluated


@pytest.mark.parametrize(
    ("eval_every", "last", "after", "count"),
    [(0, 25, 0, 3), (0, 25, 10, 2), (0, 30, 0, 3), (6, 25, -1, 8), (6, 25, 24, 1), (0, 25, 25, 0)],
)
def test_checkpoints_to_come_are_counted(eval_every, last, after, count):
    config = dataclasses.replace(CONFIG, eval_every=eval_every, num_train_steps=last)
    assert config.num_saved_after(after) == count
    assert sum(config.is_saved(step) for step in range(after + 1, last + 1)) == count


def test_a_call_ends_where_there_is_something_to_do():
    steps, step = [], 0
    while step < CONFIG.num_train_steps:
        step += CONFIG.steps_to_stop(step)
        steps.append(step)
    assert steps == [4, 8, 10, 12, 16, 20, 24, 25]
