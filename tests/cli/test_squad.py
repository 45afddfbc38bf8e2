"""Effects of the flags of both SQuAD scripts on a run."""

import types

import pytest

from albert import run_squad_v1
from albert.cli import fine_tuning, squad
from albert.io import file_io
from albert.model import head_config, sources
from albert.tasks.squad import task as squad_task
from albert.text import text_rules
from albert.training import optimizers
from tests.support import command_lines


def settings_of(**changes):
    return command_lines.read(run_squad_v1, **{"output_dir": "x", **changes})


@pytest.mark.parametrize(
    ("questions", "batch", "epochs", "steps"),
    [(87599, 48, 2.0, 3649), (100, 32, 3.0, 9), (10, 4, 0.5, 1)],
)
def test_steps_are_counted_in_questions(questions, batch, epochs, steps):
    settings = settings_of(train_batch_size=batch, num_train_epochs=epochs)
    assert settings.num_train_steps(questions) == steps


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, optimizers.AdamWeightDecayOptimizer),
        ({"optimizer": "lamb"}, optimizers.LAMB),
    ],
)
def test_the_optimizer_is_that_of_the_flag(changes, kind):
    settings = settings_of(do_train=True, **changes)
    questions = types.SimpleNamespace(
        train_examples=[None] * 100,
        settings=squad_task.Settings(64, 16, 16, 5, 8),
        data=lambda: None,
    )
    source = sources.Source(None, None, None, None, text_rules.TextRules(True))
    command = squad.Squad(settings, squad_task.V1)
    inputs = fine_tuning.Inputs(None, source, None, None, head_config.NO_LAYER)
    run = fine_tuning.make_run(command, inputs, command.prepare_questions(questions))
    assert run.run_config.num_train_steps == 9
    assert type(optimizers.build(run.training.optimizer)) is kind


@pytest.mark.parametrize("epochs", [0, "inf", "nan"])
def test_epochs_are_a_number_above_zero(epochs):
    with pytest.raises(file_io.InputError, match="--num_train_epochs=.* must be (above 0|a fin)"):
        settings_of(num_train_epochs=epochs)


def test_no_step_at_all_is_an_error():
    with pytest.raises(file_io.InputError, match="31 questions, --train_batch_size=32 and .* no"):
        settings_of(num_train_epochs=1).num_train_steps(31)


def test_what_is_needed_for_what():
    settings_of(do_train=True, train_file="a").check()
    settings_of(do_predict=True, predict_file="a", checkpoint="all").check()
    settings_of(export_dir="a").check()
    with pytest.raises(file_io.InputError, match="do_predict needs --predict_file"):
        settings_of(do_train=True, train_file="a", do_predict=True).check()
