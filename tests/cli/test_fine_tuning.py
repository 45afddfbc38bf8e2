"""The part that all fine-tuning scripts share."""

import pytest
from absl import flags

from albert import run_classifier, run_race, run_squad_v1, run_squad_v2, run_token_classifier
from albert.cli import fine_tuning, options, squad
from albert.io import file_io
from albert.model import head_config, sources
from tests.support import builders


@pytest.mark.parametrize(
    "script", [run_classifier, run_token_classifier, run_race, run_squad_v1, run_squad_v2]
)
def test_every_script_has_them(script):
    assert issubclass(script.Settings, fine_tuning.Settings)
    assert set(options.names(fine_tuning.Settings)) <= set(options.names(script.Settings))


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
    given = ["--output_dir=out", "--predict_file=x", "--do_predict"]
    values(["script", *given, argument, *more])
    with pytest.raises(file_io.InputError, match=message):
        options.read(run_squad_v1.Settings, values).check()


# --- how many checkpoints are kept ---------------------------------------------------------------

RUNS = {
    "classifier": (run_classifier, "keep_checkpoint_max", "do_eval"),
    "token classifier": (run_token_classifier, "keep_checkpoint_max", "do_eval"),
    "race": (run_race, "num_keep_checkpoint", "do_eval"),
    "squad 1.1": (run_squad_v1, "keep_checkpoint_max", "do_predict"),
    "squad 2.0": (run_squad_v2, "keep_checkpoint_max", "do_predict"),
}
REQUIRED = {run_classifier: {"task_name": "SST-2"}, run_race: {"data_dir": "data"}}


@pytest.mark.parametrize("kind", RUNS)
def test_training_without_evaluation_keeps_all_checkpoints_by_default(kind, tmp_path):
    """A later command is to evaluate them, as with the reference."""
    script, keep, evaluate = RUNS[kind]
    source = sources.Source(None, None, None, None, True)
    inputs = fine_tuning.Inputs(None, source, None, None, head_config.NO_LAYER)

    def kept(**given):
        stages = {"do_train": True, evaluate: False} | REQUIRED.get(script, {})
        values = builders.flag_values(script, output_dir=tmp_path, **{**stages, **given})
        settings = options.read(script.Settings, values)
        prepared = fine_tuning.Prepared(None, None, None, 100, 10, settings.evaluates)
        command = squad.Squad(settings, kind)  # stands for the command of any settings
        return fine_tuning.make_run(command, inputs, prepared).run_config.keep_checkpoint_max

    assert kept() == 0
    assert kept(**{keep: 3}) == 3
    assert kept(**{evaluate: True}) == 5
    assert kept(**{"do_train": False, evaluate: True}) == 5
