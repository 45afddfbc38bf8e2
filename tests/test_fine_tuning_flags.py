"""What all fine-tuning scripts have in common."""

import pytest
from absl import flags

from albert import file_io, fine_tuning_flags, run_classifier, run_race, run_squad_v1, run_squad_v2


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
