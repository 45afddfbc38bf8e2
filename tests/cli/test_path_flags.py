"""Flags that name files: `~` is expanded, and an output that is an input is refused."""

import dataclasses
import os

import pytest

from albert.cli import options, path_flags
from albert.io import file_io
from tests.support import command_lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """Settings of a command with paths of every kind."""

    input_file: str | None = options.flag(None, "Texts.", path=path_flags.INPUTS)
    words: str | None = options.flag(None, "Words.", path=path_flags.INPUT_OR_STDIN)
    model_dir: str | None = options.flag(None, "A model.", path=path_flags.MODEL)
    runs: tuple[str, ...] | None = options.flag(None, "Runs.", path=path_flags.RUNS)
    model: tuple[str, ...] = options.flag(
        (), "Models.", path=path_flags.Path(files=(), has_name=True), repeated=True
    )
    output_file: str | None = options.flag(None, "Answers.", path=path_flags.OUTPUT)
    prefix: str | None = options.flag(
        None, "Pieces.", path=path_flags.Path(True, lambda settings: (f".{settings.form}",))
    )
    form: str = options.flag("model", "Form of the pieces.")


def read(*arguments):
    return command_lines.read(Settings, *arguments)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Two texts, a model and a run in the current folder, which is also the home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a.txt", "b.txt", "m/model.json", "m/model.ckpt-best.index", "m/old.tsv"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        (tmp_path / name).write_text(name)
    os.symlink("a.txt", "soft.txt")
    os.link("b.txt", "hard.txt")
    os.symlink("m", "other")


def test_home_is_expanded_in_every_form():
    found = read(
        "--input_file=~/a.txt, ~/x*.txt,b.txt", "--runs=~/m,n", "--model=one:~/m", "--model_dir=~"
    )
    home = os.environ["HOME"]
    assert found.input_file == f"{home}/a.txt,{home}/x*.txt,b.txt"
    assert (found.runs, found.model) == ((f"{home}/m", "n"), (f"one:{home}/m",))
    assert found.model_dir == home and found.given >= {"input_file", "runs", "model"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--input_file=a.txt", "--output_file=a.txt"),
        ("--input_file=a.txt", "--output_file=./other/../a.txt"),
        ("--input_file=a.txt", "--output_file=~/a.txt"),
        ("--input_file=a.txt", "--output_file=soft.txt"),
        ("--input_file=soft.txt", "--output_file=a.txt"),
        ("--input_file=a.txt,h*.txt", "--output_file=b.txt"),
        ("--input_file=*.txt", "--prefix=b", "--form=txt"),
        ("--words=b.txt", "--output_file=hard.txt"),
        ("--model_dir=m", "--output_file=other/model.json"),
        ("--model_dir=m/model.ckpt-best", "--output_file=m/model.ckpt-best.index"),
        ("--runs=n,o*", "--output_file=m/model.json"),
        ("--input_file=gs://b/x", "--output_file=gs://b/x"),
    ],
)
def test_output_that_is_an_input_is_refused(arguments):
    name, output = arguments[1].split("=")
    with pytest.raises(file_io.InputError) as error:
        read(*arguments)
    assert f"{name} would replace" in str(error.value)
    assert arguments[0].replace("~", os.environ["HOME"]) in str(error.value)


def test_other_outputs_are_taken():
    read("--input_file=a.txt", "--words=b.txt", "--output_file=new.txt", "--prefix=a")
    read("--model_dir=m", "--output_file=m/old.tsv")
    read("--input_file=a.txt", "--output_file=/dev/null")
    read("--input_file=gs://b/x", "--output_file=gs://b/y")


def test_standard_input_is_an_input():
    before = os.dup(0)
    with open("b.txt") as file:
        os.dup2(file.fileno(), 0)
    try:
        with pytest.raises(file_io.InputError, match=r"hard.txt, which .*\(standard input\)"):
            read("--output_file=hard.txt")
        read("--words=a.txt", "--output_file=hard.txt")
    finally:
        os.dup2(before, 0)
        os.close(before)
