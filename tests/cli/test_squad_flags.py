"""What the flags of both SQuAD scripts make of a run."""

import types

import pytest
from absl import flags

from albert import run_squad_v1
from albert.cli import squad_flags
from albert.io import file_io
from albert.model import sources
from albert.tasks.squad import task as squad_task
from albert.training import optimizers


def values_of(**changes):
    values = flags.FlagValues()
    run_squad_v1.define_flags(values)
    values(["script", "--output_dir=x", *(f"--{name}={value}" for name, value in changes.items())])
    return values


@pytest.mark.parametrize(
    ("questions", "batch", "epochs", "steps"),
    [(87599, 48, 2.0, 3649), (100, 32, 3.0, 9), (10, 4, 0.5, 1)],
)
def test_steps_are_counted_in_questions(questions, batch, epochs, steps):
    values = values_of(train_batch_size=batch, num_train_epochs=epochs)
    assert squad_flags.num_train_steps(values, questions) == steps


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, optimizers.AdamWeightDecayOptimizer),
        ({"optimizer": "lamb"}, optimizers.LAMB),
    ],
)
def test_the_optimizer_is_that_of_the_flag(changes, kind):
    values = values_of(do_train=True, **changes)
    settings = squad_task.Settings(64, 16, 16, 5, 8)
    questions = types.SimpleNamespace(train_examples=[None] * 100)
    source = sources.Source(None, None, None, None, True)
    run = squad_flags.make_run(values, squad_task.V1, source, None, questions, settings, None)
    assert type(run.make_optimizer()) is kind


def test_no_step_at_all_is_an_error():
    with pytest.raises(file_io.InputError, match="31 questions, --train_batch_size=32 and .* no"):
        squad_flags.num_train_steps(values_of(num_train_epochs=1), 31)


def test_what_is_needed_for_what():
    squad_flags.check_flags(values_of(do_train=True, train_file="a"))
    squad_flags.check_flags(values_of(do_predict=True, predict_file="a", checkpoint="all"))
    squad_flags.check_flags(values_of(export_dir="a"))
    with pytest.raises(file_io.InputError, match="do_predict needs --predict_file"):
        squad_flags.check_flags(values_of(do_train=True, train_file="a", do_predict=True))
