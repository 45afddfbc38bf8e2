"""Arguments for another script are checked as that script would."""

import pytest

from albert.cli import script_flags
from albert.experiments import sweep_plan
from albert.io import file_io
from tests.support.sources import ROOT


def test_flags_of_a_flag_file_and_of_arguments(monkeypatch):
    monkeypatch.chdir(ROOT)
    found = script_flags.check(
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
        script_flags.check(script, arguments)


def test_every_value_is_checked_once_and_the_parameters_are_no_settings():
    spec = {
        "script": "tests.support.fake_trial",
        "flags": {"steps": 3},
        "parameters": {"rate": [0.1, 0.2], "batch": [16, 32, 64]},
    }
    assert script_flags.check_trials(sweep_plan.make_plan(spec)) == {"steps": "3"}
    spec["parameters"]["batch"].append("many")
    with pytest.raises(file_io.InputError, match="flag --batch=many"):
        script_flags.check_trials(sweep_plan.make_plan(spec))
    spec["parameters"] = {"batch": {"low": 1.5, "high": 2.5}}
    with pytest.raises(file_io.InputError, match="flag --batch=1.5"):
        script_flags.check_trials(
            sweep_plan.make_plan({**spec, "method": "random", "num_trials": 1})
        )


@pytest.mark.parametrize(
    ("arguments", "spec", "message"),
    [
        (["--rate=0.3"], {}, "parameter 'rate' also stands .*: '--rate=0.3'; leave it out of"),
        (["-rate", "0.3"], {}, "parameter 'rate' also stands"),
        (["--seed=3"], {"seeds": [1, 2]}, "seeds: the flag 'seed' also stands"),
        ([], {"flags": {"rate": 0.3}}, "parameter 'rate' also stands"),
    ],
)
def test_a_parameter_is_given_once(arguments, spec, message):
    spec = {"script": "tests.support.fake_trial", "parameters": {"rate": [0.1]}, **spec}
    with pytest.raises(file_io.InputError, match=message):
        script_flags.check_trials(sweep_plan.make_plan(spec, arguments))


def test_parameters_win_over_a_flag_file(tmp_path):
    (tmp_path / "recipe.flags").write_text("--rate=0.5\n--steps=2\n--seed=7\n")
    spec = {"script": "tests.support.fake_trial", "parameters": {"rate": [0.1]}, "seeds": [1]}
    plan = sweep_plan.make_plan(spec, [f"--flagfile={tmp_path}/recipe.flags"])
    assert script_flags.check_trials(plan)["steps"] == "2"
