"""The command line is a frozen interface: the reference's flags, each with a name that is kept."""

import importlib
import json
import math
import pathlib
import re
import shlex
import sys

import pytest
from absl import flags

from albert.cli import app, command_help, options
from albert.io import file_io
from tests.support import command_lines, processes
from tests.support.sources import COMMANDS

RECORDED = json.loads(
    (pathlib.Path(__file__).parent.parent / "testdata/golden/reference_flags.json").read_text(
        "utf-8"
    )
)
# Required in the reference; here other flags can bring what they bring.
RELAXED = {
    ("create_pretraining_data", "vocab_file"),
    ("run_classifier", "spm_model_file"),
    ("run_race", "spm_model_file"),
    ("run_race", "albert_config_file"),
    ("run_squad_v1", "spm_model_file"),
    ("run_squad_v1", "albert_config_file"),
    ("run_squad_v2", "spm_model_file"),
    ("run_squad_v2", "albert_config_file"),
}


def _module(script):
    return importlib.import_module(f"albert.{script}")


def _same(one, other):
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one + other)
    return both_nan or (one == other and type(one) is type(other))


@pytest.mark.parametrize("script", [script for script in COMMANDS if script in RECORDED])
def test_flag_is_as_in_the_reference(script):
    values = command_lines.define(script)
    for name, recorded in RECORDED[script].items():
        assert name in values, name
        assert values[name].flag_type() == recorded["type"], name
        assert _same(values[name].default, recorded["default"]), (name, values[name].default)


@pytest.mark.parametrize("script", COMMANDS)
def test_flags_keep_their_names_types_and_defaults(script):
    """Flags of every script, recorded before they became settings. New flags may be added."""
    path = pathlib.Path(__file__).parent.parent / "testdata" / "flags.json"
    values = command_lines.define(script)
    for name, (kind, default) in json.loads(path.read_text("utf-8")).get(script, {}).items():
        assert name in values, name
        assert values[name].flag_type() == kind, name
        assert _same(values[name].default, default), (name, values[name].default)


@pytest.mark.parametrize("script", [script for script in COMMANDS if script in RECORDED])
def test_required_flags_are_asked_for(script):
    recorded = RECORDED[script]
    required = {name for name, flag in recorded.items() if flag["required"]}
    required -= {name for other, name in RELAXED if other == script}
    given = dict.fromkeys(required, "missing-file")
    if "task_name" in given:
        given["task_name"] = "sst-2"
    for missing in required:
        values = command_lines.define(script)
        arguments = [f"--{name}={value}" for name, value in given.items() if name != missing]
        with pytest.raises((flags.IllegalFlagValueError, file_io.InputError), match=missing):
            values([script, *arguments])
            _module(script).main(values)


@pytest.mark.parametrize(("script", "name"), sorted(RELAXED))
def test_relaxed_flags_were_required_and_are_not(script, name):
    recorded = RECORDED[script][name]["required"]
    assert recorded
    if script in COMMANDS:
        assert not command_lines.define(script)[name].validators


@pytest.mark.parametrize("script", COMMANDS)
def test_help_says_something(script):
    values, texts = command_lines.define(script), {}
    for name in values:
        text = re.sub(r"^<[^>]*>: ", "", values[name].help)  # what absl puts before enums
        text = text.removesuffix(";\n    repeat this option to specify a list of values")
        assert re.fullmatch(r"[A-Z].{4,}\.", text, re.S), f"{script} --{name}: {text!r}"
        assert text.strip(" .").lower() != name.replace("_", " ")
        assert text not in texts, f"{script}: --{name} has the help of --{texts[text]}"
        texts[text] = name


@pytest.mark.parametrize("script", COMMANDS)
def test_help_shows_one_default_of_a_flag(script):
    """It is in its text, or behind it where absl shows the default."""
    values = command_lines.define(script)
    defaults = {name: values[name].default_as_str for name in values}
    says_it = re.compile("by default|the default|without the flag", re.I)
    shown = [name for name, text in defaults.items() if text and text != "''"]
    assert [name for name in shown if says_it.search(values[name].help)] == []
    if script == "export_to_huggingface":
        assert defaults["do_lower_case"] == "what the model says, else true"
        assert "(default: what the model says, else true)" in values.get_help()


@pytest.mark.parametrize("script", COMMANDS)
def test_help_shows_all_flags_of_a_script(script):
    """Also those of shared groups."""
    values = flags.FlagValues()
    app.define(_module(script).define_flags, values)
    shown = re.findall(r"^  (?:-\w,)?--(?:\[no\])?(\w+): ", values.main_module_help(), re.M)
    assert sorted(shown) == sorted(values) and shown


@pytest.mark.parametrize("script", COMMANDS)
def test_help_has_an_example_that_parses_and_every_flag_once(script):
    description = _module(script).__doc__
    example = description.partition("\n\nExample:\n\n")[2].replace("\\\n", "")
    program, name, *arguments = shlex.split(example)
    values = command_lines.define(script)
    assert (program, name, values([name, *arguments])) == ("albert", script, [script])
    text = command_help.text(description, values)
    assert text.startswith(description.strip())
    shown = re.findall(r"^  (?:-\w,)?--(?:\[no\])?(\w+): ", text, re.M)
    assert sorted(shown) == sorted(values)


@pytest.mark.parametrize(
    "script", [script for script in COMMANDS if "eval_every" in command_lines.define(script)]
)
def test_help_of_training_has_sections(script):
    values = command_lines.define(script)
    text = command_help.text("", values)
    sections = ["Run", "Data", "Model", "Training", "Evaluation", "Devices"]
    assert re.findall(r"^(\w+):$", text, re.M) == sections
    found = {name: values.find_module_defining_flag(name) for name in values}
    expected = {"output_dir": "Run", "max_seq_length": "Data", "init_checkpoint": "Model"}
    expected |= {"train_batch_size": "Training", "checkpoint": "Evaluation", "use_tpu": "Devices"}
    assert found | expected == found


def test_each_help_text_stands_alone():
    """In sections and in alphabetical order, a text has other neighbors than in the code."""
    elsewhere = (
        r"\b(likewise|in the same way|as above|(those|these|that) (mean|layer|output|start)s?)\b"
    )
    for script in COMMANDS:
        values = command_lines.define(script)
        found = [name for name in values if re.search(elsewhere, values[name].help)]
        assert not found, f"{script}: {found}"


def test_help_is_printed_by_the_command():
    result = processes.run(
        [sys.executable, "-m", "albert.verify", "--help"],
        cwd=pathlib.Path(__file__).parent.parent.parent,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(
        f"{_module('verify').__doc__.strip()}\n\nFlags:\n  --path: Files to"
    )


WITH_PRECISION = [script for script in COMMANDS if "precision" in command_lines.define(script)]


@pytest.mark.parametrize("script", WITH_PRECISION)
def test_both_names_of_a_precision_are_taken(script):
    found = []
    for name in ("bfloat16", "mixed_bfloat16"):
        values = command_lines.define(script)
        values["precision"].parse(name)
        found.append(values["precision"].value)
        assert name in values["precision"].help
    assert found[0] == found[1] in ("bfloat16", "mixed_bfloat16")
    with pytest.raises(flags.IllegalFlagValueError, match="--precision=mixed_int8: value should"):
        command_lines.define(script)([script, "--precision=mixed_int8"])


def test_scripts_that_compute_have_a_precision():
    assert {"run_classifier", "run_pretraining", "predict", "export_serving"} <= {*WITH_PRECISION}


def test_all_scripts_live_in_one_process():
    """Each on its own flag values; nothing is defined by importing."""
    before = set(flags.FLAGS)
    for script in COMMANDS:
        assert len(command_lines.define(script)) > 0
    assert set(flags.FLAGS) == before


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--no_such_flag=1"], 1, "Unknown command line flag 'no_such_flag'"),
        (["--output_dir=x", "stray"], 1, "error: not a flag: ['stray']"),
        ([], 1, "--output_dir"),
    ],
)
def test_mistakes_end_with_one_line(arguments, status, message, tmp_path):
    """The common frame of the scripts, on the one that starts fastest."""
    result = processes.run(
        [sys.executable, "-m", "albert.make_demo_data", *arguments],
        cwd=pathlib.Path(__file__).parent.parent.parent,
    )
    assert result.returncode == status
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("script", COMMANDS)
def test_flags_that_name_files_are_path_flags(script):
    """So `~` is expanded, and outputs are compared with inputs."""
    values = command_lines.define(script)
    named = r"(file|dir|path|directory|checkpoint|prefix|output|runs|teacher|spec)$"
    for name in values:
        if re.search(named, name) and "string" in values[name].flag_type():
            values[name].parse("~/x")
            assert f"{pathlib.Path.home()}/x" in values[name].value, name


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("predict", ["--model_dir=m", "--input_file=in.tsv", "--output_file=soft.tsv"]),
        ("ask", ["--model_dir=m", "--input_file=in.tsv", "--output_file=hard.tsv"]),
        ("ask", ["--model_dir=m", "--context_file=in.tsv", "--output_file=in.tsv"]),
        ("extract_features", ["--input_file=soft.tsv", "--output_file=in.tsv"]),
        ("train_vocab", ["--input_file=*.model", "--output_prefix=pieces"]),
        ("create_pretraining_data", ["--input_file=*.tsv", "--output_file=new, hard.tsv"]),
        ("create_pretraining_data", ["--spm_model_file=in.tsv", "--output_file=in.tsv"]),
        ("create_pretraining_data", ["--input_file=r-*", "--output_file=r", "--num_shards=2"]),
        ("prepare_corpus", ["--input_file=m/corpus-*", "--output_dir=m"]),
        ("report", ["--runs=m", "--output=m/run.json"]),
        ("export_to_huggingface", ["--model_dir=m", "--output_dir=m"]),
        ("export_to_huggingface", ["--spm_model_file=pieces.model", "--output_dir=."]),
        ("fill_mask", ["--model_dir=m", "--input_file=in.tsv", "--output_file=soft.tsv"]),
        ("export_runs", ["--runs=m", "--to=mlflow", "--output=m/run.json"]),
        ("run_squad_v1", ["--output_dir=m", "--predict_file=m/predictions.json"]),
        ("run_classifier", ["--output_dir=m", "--task_name=x", "--test_file=m/predictions.tsv"]),
        ("run_sweep", ["--spec=m/sweep.json", "--output_dir=m"]),
    ],
)  # fmt: skip
def test_no_command_replaces_what_it_reads(script, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    contents = ("in.tsv", "pieces.model", "r-00000-of-00002", "m/run.json", "m/corpus-00000.txt")
    contents += ("m/config.json", "m/model.safetensors")
    for name in (*contents, "m/predictions.json", "m/predictions.tsv", "m/sweep.json"):
        (tmp_path / name).write_text(name)
    (tmp_path / "soft.tsv").symlink_to("in.tsv")
    (tmp_path / "hard.tsv").hardlink_to("in.tsv")
    values = command_lines.define(script)
    values([script, *arguments])
    with pytest.raises(file_io.InputError, match="would replace .*, which this command reads"):
        _module(script).main(values)
    assert all((tmp_path / name).read_text() == name for name in contents)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("run_classifier", ["--task_name=x", "--init_checkpoint=m", "--output_dir=m"]),
        ("run_squad_v1", ["--init_checkpoint=m", "--output_dir=m", "--predict_file=m/dev.json"]),
        ("run_sweep", ["--spec=spec.json", "--output_dir=m", "--plan_from=m"]),
        ("report", ["--runs=m", "--output=m/report.html"]),
    ],
)
def test_outputs_may_lie_next_to_inputs(script, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    names = "predictions.tsv predictions.json labels.json eval_results.txt metrics.jsonl run.json"
    for name in (*names.split(), "model.json", "model.ckpt-best.index", "dev.json", "sweep.json"):
        (tmp_path / "m" / name).touch()
    (tmp_path / "m" / "report.html").touch()
    values = command_lines.define(script)
    values([script, *arguments])
    options.read(_module(script).Settings, values)
