"""Flags in the record of a run."""

import pytest
from absl import flags

from albert import run_classifier
from albert.cli import command_flags
from albert.training import run_record
from tests.support import command_lines


def parsed(*arguments):
    return command_lines.parse(run_classifier, *arguments)


def test_each_flag_says_where_it_comes_from(tmp_path):
    """The last word on a flag counts, also that of a file within a file."""
    inner, outer = tmp_path / "inner.flags", tmp_path / "outer.flags"
    inner.write_text("--train_step=7\n--warmup_step=2\n")
    outer.write_text(f"# settings\n--flagfile={inner}\n--seed=3\n--warmup_step=1\n--nouse_xla\n")
    words = [
        "--task_name", "sst-2", "--seed=1", f"--flagfile={outer}", "--train_step=9",
        "-output_dir=out", "--do_train", "--nodo_eval", "--recompute=true",
    ]  # fmt: skip
    values = parsed(*words)
    told = command_flags.find_sources(values, words)
    line, file = command_flags.COMMAND_LINE, f"flag file {outer}"
    assert told == {
        "task_name": line, "seed": file, "warmup_step": file, "use_xla": file, "train_step": line,
        "output_dir": line, "do_train": line, "do_eval": line, "recompute": line,
    }  # fmt: skip
    assert (values.seed, values.train_step, values.warmup_step) == (3, 9, 1)
    two_words = ["--flagfile", str(outer), *words[:2], "--output_dir=out"]
    parsed(*two_words)
    assert command_flags.find_sources(values, two_words)["seed"] == file


@pytest.mark.parametrize("name", "pretraining classifier race squad_v1 squad_v2".split())
def test_flags_that_are_not_given_are_defaults(name):
    """Also a second name of a flag, and a default that is not a number."""
    values = command_lines.define(f"run_{name}")
    required = ("input_file", "task_name", "data_dir", "output_dir")
    values(["script", *(f"--{flag}=x" for flag in required if flag in values)])
    found = command_flags.describe(values, f"run_{name}")
    set_ = {flag for flag in found if found[flag]["source"] != "default"}
    assert set_ == set(required) & set(found)
    record = {"script": f"run_{name}", "flags": run_record.plain(found)}
    assert command_flags.changed_defaults(record) == {}


def test_flags_that_a_program_has_set():
    values = parsed("--task_name=sst-2", "--output_dir=out", "--seed=12345")
    values.train_step = 5
    flags.DEFINE_integer("of_a_package", 1, "", flag_values=values)
    found = command_flags.describe(values, "run_classifier")
    assert found["train_step"] == {"value": 5, "source": "program"}
    assert found["seed"] == {"value": 12345, "source": "caller"}
    assert found["warmup_step"] == {"value": 0, "source": "default"}
    assert not {"flagfile", "helpfull", "v", "of_a_package"} & set(found)
