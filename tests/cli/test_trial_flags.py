"""Arguments for another script are checked as that script would."""

import pytest

from albert.cli import command_flags
from albert.io import file_io
from tests.support.sources import ROOT


def test_flags_of_a_flag_file_and_of_arguments(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = command_flags.read_trial_flags(
        "run_classifier", ["--flagfile=recipes/glue_RTE.flags", "--train_step=5", "--use_xla"]
    )
    assert found["task_name"] == "RTE" and found["train_step"] == "5"
    assert found["use_xla"] == "True" and not {"flagfile", "output_dir"} & set(found)


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("run_classifier", ["--task_name=RTE", "--learning_rat=1"], "'learning_rat'. Did you mean"),
        ("run_classifier", ["--task_name=RTE", "stray"], "not a flag: .'stray'."),
        ("run_classifier", ["--flagfile=none"], "run_classifier: .*none"),
        ("run_classifier", [], "--task_name"),
        ("ask", [], "'ask' has no output folder"),
        ("no.such.module", [], "there is no script no.such.module"),
        ("..", [], "there is no script"),
    ],
)
def test_what_a_script_does_not_take_is_named(script, arguments, message):
    with pytest.raises(file_io.InputError, match=message):
        command_flags.read_trial_flags(script, arguments)
