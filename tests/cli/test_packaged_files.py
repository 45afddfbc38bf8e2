"""Sizes and published settings of the package are found by name; files of the user come first."""

import sys

import pytest
from absl import flags

from albert.cli import command_flags, packaged_files
from albert.io import file_io
from tests.support import command_lines, processes
from tests.support.sources import PACKAGE, ROOT

TINY = str(PACKAGE / "configs" / "albert_tiny.json")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_names_are_found_from_any_folder(elsewhere):
    assert packaged_files.find("configs/albert_tiny.json") == TINY
    write(elsewhere / "configs" / "albert_tiny.json", "{}")
    assert packaged_files.find("configs/albert_tiny.json") == "configs/albert_tiny.json"


@pytest.mark.parametrize(
    "name", ["configs/nothing.json", "cli/app.py", "configs/../__init__.py", "configs/", "x", ""]
)
def test_other_names_stay(name):
    assert packaged_files.find(name) == name


def test_the_folders_of_the_clone_are_those_of_the_package():
    for folder in ("configs", "recipes"):
        assert (ROOT / folder).resolve() == PACKAGE / folder


def test_flag_files_are_replaced_by_their_flags_in_order(elsewhere):
    write(
        elsewhere / "own.flags",
        "# mine\n--a=1\n\n// more\n--flagfile=recipes/nested.flags\n--c=3\n",
    )
    write(elsewhere / "recipes" / "nested.flags", "--b=configs/albert_tiny.json\n")
    words = [
        "--x",
        "configs/albert_tiny.json",
        "--flagfile",
        "own.flags",
        "--y=2",
        "--",
        "configs/z",
    ]
    assert packaged_files.expand(words) == [
        *("--x", TINY, "--a=1", f"--b={TINY}", "--c=3", "--y=2", "--", "configs/z")
    ]


def test_the_same_flags_as_absl_reads(monkeypatch):
    monkeypatch.chdir(ROOT)
    for path in sorted((ROOT / "recipes").glob("*.flags")):
        words = [f"--flagfile=recipes/{path.name}", "--output_dir=out"]
        assert packaged_files.expand(words) == flags.FlagValues().read_flags_from_files(words)


def test_what_cannot_be_expanded_is_left_to_absl(elsewhere):
    write(elsewhere / "own.flags", "--a=1\n--flagfile=own.flags\n")
    found = packaged_files.expand(["--flagfile=missing.flags", "--flagfile=own.flags"])
    assert found == ["--flagfile=missing.flags", "--a=1", "--flagfile=own.flags"]


def test_files_that_include_others_twice_end_with_an_error(elsewhere):
    for number in range(40):
        write(elsewhere / f"{number}.flags", f"--flagfile={number + 1}.flags\n" * 2)
    write(elsewhere / "40.flags", "--a=1\n")
    with pytest.raises(file_io.InputError, match="more than 100 flag files are included; 0.flags"):
        packaged_files.expand(["--flagfile=0.flags"])
    assert packaged_files.expand(["--flagfile=35.flags"]) == ["--a=1"] * 32


def test_a_nested_recipe_of_the_package_reaches_the_settings():
    words = ["--flagfile=recipes/distilbert_SST-2.flags", "--data_dir=x", "--output_dir=y"]
    values = command_lines.parse("run_classifier", *packaged_files.expand(words))
    assert values.albert_config_file == str(PACKAGE / "configs" / "albert_base_v2_6_layers.json")
    assert values.task_name == "SST-2"
    said = command_flags.find_sources(values, words)
    assert said["task_name"] == "flag file recipes/distilbert_SST-2.flags"
    assert command_flags.read_trial_flags("run_classifier", words[:2])["task_name"] == "SST-2"


def test_commands_find_them(elsewhere):
    command = [sys.executable, "-m", "albert.run_sweep", "--spec=recipes/qa_study_sweep.json"]
    result = processes.run(
        [*command, "--output_dir=out", "--flagfile=recipes/nothing.flags"],
        env={"PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 1 and "recipes/nothing.flags" in result.stderr
    assert "Traceback" not in result.stderr
