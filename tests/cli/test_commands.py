"""The program `albert` and the help of commands."""

import os
import subprocess
import sys

import pytest

import albert
from albert.cli import commands
from tests.support import processes
from tests.support.sources import COMMANDS, ROOT

PROGRAM = "import sys; from albert.cli import commands; sys.exit(commands.main())"


def run(*arguments):
    return processes.run([sys.executable, *arguments], cwd=ROOT)


def test_every_command_is_listed():
    assert sorted(commands.summaries()) == COMMANDS
    result = run("-c", PROGRAM)
    assert result.returncode == 0 and not result.stderr
    assert all(f"\n  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("arguments", [("albert",), ("albert.verify", "--path=x")])
def test_version(arguments):
    """The program, also as a module, and its commands print it."""
    result = run("-m", *arguments, "--version")
    assert (result.returncode, result.stdout) == (0, f"albert {albert.__version__}\n")


def test_a_command_runs_with_its_flags_and_status(tmp_path):
    needed = ("--output_file=out", "--spm_model_file=m")
    result = run(
        "-c", PROGRAM, "create_pretraining_data", f"--input_file={tmp_path / 'missing'}", *needed
    )
    assert result.returncode == 1 and "missing" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_misspelled_command_is_named():
    result = run("-m", "albert", "run_classifer", "--task_name=RTE")
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        result.stderr == "error: there is no command run_classifer; did you mean run_classifier?\n"
    )


@pytest.mark.parametrize("flag", ["--help", "--helpshort", "--helpfull"])
def test_help_ends_well(flag):
    result = run("-m", "albert.verify", flag)
    assert result.returncode == 0 and "--path" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("albert",),
        ("albert.verify", "--help"),
        pytest.param(("albert.verify", "--path=."), marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_ends_is_no_error(arguments):
    """As in `albert --help | head -n 1`."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def test_a_mistake_in_flags_ends_with_1():
    result = run("-m", "albert.verify", "--nothing=1")
    assert result.returncode == 1
    assert "FATAL Flags parsing error: Unknown command line flag 'nothing'" in result.stderr
