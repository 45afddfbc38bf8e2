"""Lines that commands print at their end: they can be pasted."""

import shlex

import pytest

from albert import create_pretraining_data
from albert.cli import next_steps, options
from albert.tasks import kinds
from tests.support import command_lines


def parsed(line):
    """The command of a line, and the values of its flags, which it takes."""
    python, option, module, *arguments = shlex.split(line)
    assert (python, option) == ("python", "-m")
    return module, command_lines.parse(module.removeprefix("albert."), *arguments)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_lines_after_fine_tuning(kind):
    folder = "my models/it's 1"
    use, serve, report = map(parsed, next_steps.after_fine_tuning(kind, folder))
    assert use[0] == ("albert.ask" if kind.startswith("squad") else "albert.predict")
    assert use[1].model_dir == serve[1].model_dir == folder and serve[0] == "albert.serve"
    assert report[1].runs == [folder]


def test_flags_of_texts_are_repeated():
    given = ("--keep_accents", "--nodo_lower_case", "--extra_pieces=A b,it's")
    needed = ("--input_file=a.txt", "--output_file=b", "--output_dir=out")
    first = command_lines.parse("create_pretraining_data", *needed[:2], *given)
    words = options.read(create_pretraining_data.Settings, first).given_text_flags()
    again = command_lines.parse("run_pretraining", *needed[::2], *shlex.split(words))
    assert (again.keep_accents, again.do_lower_case) == (True, False)
    assert [*again.extra_pieces] == ["A b", "it's"]


def test_lines_after_pretraining(capsys):
    lines = next_steps.after_pretraining("model")
    (module, values), (_, report) = map(parsed, lines)
    assert (module, values.init_checkpoint, report.runs) == (
        *("albert.run_classifier", "model", ["model"]),
    )
    next_steps.show(*lines)
    assert capsys.readouterr().out == "Next:\n" + "".join(f"  {line}\n" for line in lines)
