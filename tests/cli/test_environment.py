"""Flags from environment variables: their precedence, bad values, and misspelled names."""

import re
import sys

import pytest

from albert.cli import environment, options
from albert.io import file_io
from albert.serve import Settings
from tests.support import command_lines, processes
from tests.support.sources import ROOT

NAMES = options.names(Settings)


def parsed(variables, *arguments):
    """Settings of a command line in an environment."""
    values = command_lines.define(Settings)
    environment.set_defaults(values, NAMES, variables)
    values(["serve", *arguments])
    return options.read(Settings, values)


def test_the_command_line_comes_before_the_environment_and_that_before_the_default(tmp_path):
    variables = {"ALBERT_PORT": "80", "ALBERT_THREADS": "2", "ALBERT_HOST": "", "PORT": "7"}
    found = parsed(variables, "--port=81")
    assert (found.port, found.threads, found.host) == (81, 2, "127.0.0.1")
    (tmp_path / "flags").write_text("--threads=3\n")
    found = parsed(variables, f"--flagfile={tmp_path / 'flags'}")
    assert (found.port, found.threads) == (80, 3)


def test_every_flag_has_a_variable():
    values = command_lines.define(Settings)
    texts = {str: "some", int: "7", float: "7.5", bool: "true"}
    kinds = {"string": str, "int": int, "float": float, "bool": bool, "multi string": str}
    for name in NAMES:
        flag = values[name]
        text = getattr(flag.parser, "enum_values", [texts[kinds.get(flag.flag_type(), str)]])[-1]
        found = getattr(parsed({environment.variable_of(name): text}), name)
        assert str(found).lower() in (text, f"('{text}',)"), name


def test_models_are_separated_by_commas():
    assert parsed({"ALBERT_MODEL": "a:x,b:y"}).model == ("a:x", "b:y")
    assert parsed({"ALBERT_MODEL": "a:x"}, "--model=c:z", "--model=d:w").model == ("c:z", "d:w")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ALBERT_PORT": "many"}, "ALBERT_PORT=many in the environment: --port=many: invalid"),
        ({"ALBERT_PORT": "70000"}, "ALBERT_PORT=70000 in the environment: --port=70000: 70000 is"),
        ({"ALBERT_PORT": "tcp://10.0.0.1:80"}, "Kubernetes sets such values for a Service"),
        ({"ALBERT_LOG_FORMAT": "xml"}, "ALBERT_LOG_FORMAT=xml in the environment: --log_format=x"),
    ],
)
def test_bad_values_name_their_variable(variables, message):
    with pytest.raises(file_io.InputError, match=re.escape(message)) as raised:
        parsed(variables)
    assert "\n" not in str(raised.value)


def test_misspelled_names_are_found():
    variables = ["ALBERT_PROT", "ALBERT_MAX_WAITNG", "ALBERT_PORT", "PROT", "ALBERT_SHARED",
                 "ALBERT_TRANSFORMERS_PYTHON", "ALBERT_SERVICE_HOST"]  # fmt: skip
    assert list(environment.misspelled(NAMES, variables)) == [
        ("ALBERT_MAX_WAITNG", "ALBERT_MAX_WAITING"), ("ALBERT_PROT", "ALBERT_PORT")
    ]  # fmt: skip


def test_the_server_ends_with_a_line_for_a_bad_value():
    found = processes.run(
        [sys.executable, "-m", "albert.serve", "--model_dir=x"],
        cwd=ROOT,
        env={"ALBERT_PORT": "many", "PATH": ""},
    )
    assert found.returncode == 1
    assert found.stderr.startswith("error: ALBERT_PORT=many in the environment: ")
    assert found.stderr.count("\n") == 1
