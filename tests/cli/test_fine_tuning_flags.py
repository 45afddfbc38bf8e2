"""What all fine-tuning scripts have in common."""

import types

import pytest
from absl import flags

from albert import run_classifier, run_race, run_squad_v1, run_squad_v2, run_token_classifier
from albert.cli import distillation_flags, fine_tuning_flags, squad_flags
from albert.io import file_io
from albert.model import head_config, sources
from albert.tasks.squad import task as squad_task
from tests.support import builders


def own_flags():
    values = flags.FlagValues()
    fine_tuning_flags.define_flags(values, 1e-5)
    return set(values)


@pytest.mark.parametrize("script", [run_classifier, run_race, run_squad_v1, run_squad_v2])
def test_every_script_has_them(script):
    values = flags.FlagValues()
    script.define_flags(values)
    assert own_flags() <= set(values)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--optimizer=adam", "weight_decay_rate"),
        ("--hidden_dropout_prob=2", "--hidden_dropout_prob=2"),
        ("--stuck_after=2", "--stuck_after=2"),
        ("--train_fraction=0", "train_fraction"),
    ],
)
def test_each_group_is_checked(argument, message):
    values = flags.FlagValues()
    run_squad_v1.define_flags(values)
    more = ["--weight_decay_rate=0.1"] if "adam" in argument else []
    values(["script", "--output_dir=out", "--predict_file=x", argument, *more])
    with pytest.raises(file_io.InputError, match=message):
        fine_tuning_flags.check(values)


# --- how many checkpoints are kept ---------------------------------------------------------------

SOURCE = sources.Source(None, None, None, None, True)


def classifier_run(values):
    row = types.SimpleNamespace(name="sst-2", folder="SST-2")
    return run_classifier.make_run(values, row, SOURCE, None, distillation_flags.Lessons(), None)


def token_run(values):
    return run_token_classifier.make_run(values, None, SOURCE, None, None)


def race_run(values):
    return run_race.make_run(values, {}, head_config.NO_LAYER, SOURCE, None, None)


def squad_run(kind):
    def make(values):
        questions = types.SimpleNamespace(train_examples=[None] * 100, answers_known=True)
        settings = squad_task.Settings(64, 16, 16, 5, 8)
        return squad_flags.make_run(values, kind, SOURCE, None, questions, settings, None)

    return make


RUNS = {
    "classifier": (run_classifier, classifier_run, "keep_checkpoint_max", "do_eval"),
    "token classifier": (run_token_classifier, token_run, "keep_checkpoint_max", "do_eval"),
    "race": (run_race, race_run, "num_keep_checkpoint", "do_eval"),
    "squad 1.1": (run_squad_v1, squad_run("squad_v1"), "keep_checkpoint_max", "do_predict"),
    "squad 2.0": (run_squad_v2, squad_run("squad_v2"), "keep_checkpoint_max", "do_predict"),
}
REQUIRED = {run_classifier: {"task_name": "SST-2"}, run_race: {"data_dir": "data"}}


@pytest.mark.parametrize("kind", RUNS)
def test_training_without_evaluation_keeps_all_checkpoints_by_default(kind, tmp_path):
    """A later command is to evaluate them, as with the reference."""
    script, make_run, keep, evaluate = RUNS[kind]

    def kept(**given):
        stages = {"do_train": True, evaluate: False} | REQUIRED.get(script, {})
        values = builders.flag_values(script, output_dir=tmp_path, **{**stages, **given})
        return make_run(values).run_config.keep_checkpoint_max

    assert kept() == 0
    assert kept(**{keep: 3}) == 3
    assert kept(**{evaluate: True}) == 5
    assert kept(**{"do_train": False, evaluate: True}) == 5
