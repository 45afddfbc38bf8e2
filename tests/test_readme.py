"""The README's commands are commands, its flags exist, its map is complete."""

import importlib
import pathlib
import re
import shlex

import pytest
from absl import flags

from tests.test_sources import LAYERS, MODULES, SCRIPTS

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", TEXT, re.S | re.M)
COMMANDS = [
    line
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
# Options of other programs.
OTHER_OPTIONS = {"help", "quick", "logdir", "dir", "tag_set", "signature_def"}


def _values(script):
    values = flags.FlagValues()
    importlib.import_module(f"albert.{script}").define_flags(values)
    return values


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python -m albert.")])
def test_commands_are_accepted(command):
    """Names, types and required flags; what follows needs data and is run elsewhere."""
    script, *arguments = shlex.split(command)[2:]
    values = _values(script.removeprefix("albert."))
    assert values([script, *arguments]) == [script]


def test_other_commands_are_there():
    """Each line starts with a script of this repository or a program that comes with Python."""
    known = {"git", "pip", "cp", "python", "saved_model_cli"}
    for command in COMMANDS:
        words = [word for word in shlex.split(command, comments=True) if "=" not in word]
        if words[0].startswith("./"):
            assert (ROOT / words[0]).stat().st_mode & 0o100, f"{words[0]} cannot be run"
        else:
            assert words[0] in known, command
    assert sum(command.startswith("python -m albert.") for command in COMMANDS) >= 5


def test_files_named_in_commands_exist():
    for name in re.findall(r"configs/[\w.]+", "\n".join(COMMANDS)):
        assert (ROOT / name).exists(), name


def test_environment_of_the_sweep_is_documented_there():
    (command,) = [line for line in COMMANDS if line.endswith("./run_glue.sh")]
    script = (ROOT / "run_glue.sh").read_text(encoding="utf-8")
    for word in shlex.split(command)[:-1]:
        assert re.search(rf"^#   {word.split('=')[0]} ", script, re.M), word


def test_flags_named_in_the_text_exist():
    known = {name for script in SCRIPTS for name in _values(script)} | OTHER_OPTIONS
    known |= {f"no{name}" for name in known}
    named = set(re.findall(r"--(\w+)", TEXT))
    assert named <= known, named - known


def test_the_map_names_every_module():
    section = TEXT.split("## Where things are")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= set(MODULES), set(MODULES) - named
    known = {name for layer in LAYERS.values() for name in layer}
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert not set(re.findall(r"`(\w+)`", table)) - known


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
