"""The recipes: every file is complete, parses, and trains where its sizes are made tiny."""

import importlib
import pathlib
import re

import pytest
from absl import flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPES = sorted(path.stem for path in (ROOT / "recipes").iterdir())
SCRIPT = re.compile(r"^# python -m albert\.(\w+)$", re.M)
# Given beside the recipe, where a script cannot be parsed without.
REQUIRED = {
    "run_pretraining": ["--input_file=records", "--output_dir=out"],
    "run_classifier": ["--output_dir=out"],
    "run_race": ["--data_dir=data", "--output_dir=out"],
    "run_squad_v1": ["--output_dir=out"],
    "run_squad_v2": ["--output_dir=out"],
    "create_pretraining_data": [],
}


def script_of(recipe):
    (name,) = SCRIPT.findall((ROOT / "recipes" / f"{recipe}.flags").read_text())
    return importlib.import_module(f"albert.{name}"), name


def parse(recipe, *arguments):
    """Flag values of a recipe, from the folder in which the README's commands run."""
    script, name = script_of(recipe)
    values = flags.FlagValues()
    script.define_flags(values)
    values(["script", f"--flagfile=recipes/{recipe}.flags", *REQUIRED[name], *arguments])
    return values


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_read_by_its_script(recipe, monkeypatch):
    monkeypatch.chdir(ROOT)
    values = parse(recipe)
    if "albert_config_file" in values and values.albert_config_file:
        assert (ROOT / values.albert_config_file).exists()
    # What stands later on the command line wins.
    assert parse(recipe, "--max_seq_length=77").max_seq_length == 77


def test_there_is_a_recipe_for_each_task_and_size():
    glue = "SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC".split()
    sizes = [f"{size}_{v}" for size in ("base", "large", "xlarge", "xxlarge") for v in ("v1", "v2")]
    wanted = {f"glue_{task}" for task in glue} | {"squad_v1", "squad_v2", "race"}
    wanted |= {f"albert_{size}_pretraining" for size in sizes} | {"lambert_pretraining"}
    wanted |= {"lambert_mnli", "lambert_squad_v1", "lambert_squad_v2", "distilbert_pretraining"}
    assert wanted <= set(RECIPES)
