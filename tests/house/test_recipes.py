"""The recipes: every file is complete, parses, and trains where its sizes are made tiny."""

import dataclasses
import importlib
import json
import re

import pytest

from albert import create_pretraining_data, run_sweep
from albert.data import record_files
from albert.experiments import sweep_plan
from albert.io import file_io
from albert.model import pretraining_heads
from albert.training import optimizers, stages
from tests.support import builders, command_lines, squad_samples, token_samples
from tests.support.sources import ROOT

RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("*.flags"))
SWEEPS = sorted(path.name for path in (ROOT / "recipes").glob("*.json"))
SCRIPT = re.compile(r"^# python -m albert\.(\w+)$", re.M)
# Given with the recipe, where a script cannot be parsed without.
REQUIRED = {
    "run_pretraining": ["--input_file=records", "--output_dir=out"],
    "run_classifier": ["--output_dir=out"],
    "run_race": ["--data_dir=data", "--output_dir=out"],
    "run_token_classifier": ["--output_dir=out"],
    "run_squad_v1": ["--output_dir=out"],
    "run_squad_v2": ["--output_dir=out"],
    "create_pretraining_data": [],
}
# task: columns, places of the texts, place of the label, labels
GLUE = {
    "SST-2": (2, (0,), 1, "01"),
    "CoLA": (4, (3,), 1, "01"),
    "MRPC": (5, (3, 4), 0, "01"),
    "QQP": (6, (3, 4), 5, "01"),
    "STS-B": (10, (7, 8), 9, ("1.0", "4.5")),
    "MNLI": (12, (8, 9), 11, ("neutral", "entailment", "contradiction")),
    "QNLI": (4, (1, 2), 3, ("entailment", "not_entailment")),
    "RTE": (4, (1, 2), 3, ("entailment", "not_entailment")),
}


def script_of(recipe):
    (name,) = SCRIPT.findall((ROOT / "recipes" / f"{recipe}.flags").read_text())
    return importlib.import_module(f"albert.{name}"), name


def parse(recipe, *arguments):
    """Flag values of a recipe, from the folder in which the README's commands run."""
    script, name = script_of(recipe)
    words = [f"--flagfile=recipes/{recipe}.flags", *REQUIRED[name], *arguments]
    return command_lines.parse(script, *words)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_read_by_its_script(recipe, monkeypatch):
    monkeypatch.chdir(ROOT)
    values = parse(recipe)
    if "albert_config_file" in values and values.albert_config_file:
        assert (ROOT / values.albert_config_file).exists()
    # What stands later on the command line wins.
    assert parse(recipe, "--max_seq_length=77").max_seq_length == 77


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_is_taken_by_its_script(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = sweep_plan.make_plan(sweep_plan.read_spec(f"recipes/{name}"))
    assert run_sweep.check_trials(plan) and sweep_plan.count(plan) > 1


def test_there_is_a_recipe_for_each_task_and_size():
    glue = "SST-2 MNLI CoLA QNLI QQP RTE STS-B MRPC".split()
    sizes = [f"{size}_{v}" for size in ("base", "large", "xlarge", "xxlarge") for v in ("v1", "v2")]
    expected = {f"glue_{task}" for task in glue} | {"squad_v1", "squad_v2", "race"}
    expected |= {f"albert_{size}_pretraining" for size in sizes} | {"lambert_pretraining"}
    expected |= {"lambert_mnli", "lambert_squad_v1", "lambert_squad_v2", "distilbert_pretraining"}
    expected |= {"lambert_data", "roberta_albert_data", "roberta_albert_pretraining", "two_hours"}
    expected |= {"distilbert_SST-2", "qa_study", "token_classification", "own_data"}
    expected |= {"albert_mini"}
    assert expected <= set(RECIPES) and "qa_study_sweep.json" in SWEEPS


# Only texts and numbers differ from the tasks that are trained: one text, two, a regression, and
# three labels.
AS_OTHERS = {"SST-2", "QQP", "QNLI", "RTE"}


def write_glue(folder):
    """Eight rows for training and four for evaluation of each task."""
    for task, (columns, texts, label, labels) in GLUE.items():
        (folder / task).mkdir(parents=True)
        for split, count in (("train", 8), ("dev_matched" if task == "MNLI" else "dev", 4)):
            rows = [] if task == "CoLA" else [[f"column{i}" for i in range(columns)]]
            for number in range(count):
                row = [f"the soup was good {number}" if i in texts else "0" for i in range(columns)]
                row[label] = labels[number % len(labels)]
                rows.append(row)
            text = "".join("\t".join(row) + "\n" for row in rows)
            (folder / task / f"{split}.tsv").write_text(text)


def write_race(folder):
    for split in ("train", "dev"):
        for level in ("middle", "high"):
            place = folder / "RACE" / split / level
            place.mkdir(parents=True)
            texts = [json.dumps(passage) for passage in builders.passages(level, split, 2)]
            (place / "all.txt").write_text("\n".join(texts))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Function of a script's name: the flags that make it tiny."""
    folder = tmp_path_factory.mktemp("recipes")
    write_glue(folder / "glue")
    write_race(folder)
    squad_samples.write_inputs(folder, version=2)
    token_samples.write(folder / "words.conll", token_samples.sentences(9))
    rows = [
        f"the soup was {word},{label}\n" for word, label in zip("abcdef", "xyxyxx", strict=True)
    ]
    (folder / "own.csv").write_text("".join(["text,label\n", *rows]))
    config = builders.tiny_config()
    (folder / "student.json").write_text(config.to_json_string())
    (folder / "text").write_text("the boats leave.\nthe sun is up.\n\nthe soup was good.\n" * 9)
    rows = builders.pretraining_rows(32)
    record_files.write(str(folder / "records"), builders.PRETRAINING_SPECS, rows, {})
    builders.run(
        create_pretraining_data, input_file=folder / "text", output_file=folder / "unmasked",
        spm_model_file=builders.SPM, max_seq_length=builders.PRETRAINING_LENGTH,
        mask_in_training=True, sentence_task="none",
    )  # fmt: skip
    teacher = dataclasses.replace(config, num_hidden_layers=2)
    made = pretraining_heads.PretrainingModel(teacher, seed=5)
    builders.write_model(folder / "pretrained", made, teacher)
    model = {"albert_config_file": folder / "student.json", "spm_model_file": builders.SPM}
    steps = {"train_step": 2, "warmup_step": 1, "save_checkpoints_steps": 2, "max_seq_length": 24}
    batches = {"train_batch_size": 4, "eval_batch_size": 4}
    glue = {**model, **steps, **batches, "data_dir": folder / "glue"}
    squad = {
        **model, "train_file": folder / "train.json", "predict_file": folder / "dev.json",
        "train_batch_size": 4, "num_train_epochs": 0.05, "save_checkpoints_steps": 100,
        "from_scratch": True, "max_seq_length": 48, "doc_stride": 24, "max_query_length": 12,
        "train_fraction": 1, "eval_fraction": 1,
    }  # fmt: skip
    return {
        "run_pretraining": {
            **model, **batches, "input_file": folder / "records", "num_train_steps": 2,
            "num_warmup_steps": 1, "save_checkpoints_steps": 2,
            "max_seq_length": builders.PRETRAINING_LENGTH,
            "max_predictions_per_seq": builders.PREDICTIONS,
        },
        "run_classifier": {**glue, "from_scratch": True},
        "run_race": {
            **model, **steps, **batches, "data_dir": folder, "max_qa_length": 12,
            "from_scratch": True,
        },
        "run_token_classifier": {
            **model, **steps, **batches, "from_scratch": True,
            "train_file": folder / "words.conll", "validation_file": folder / "words.conll",
        },
        "run_squad_v1": squad,
        "run_squad_v2": {**squad, "start_n_top": 3, "end_n_top": 3},
        "create_pretraining_data": {
            "input_file": folder / "text", "spm_model_file": builders.SPM, "max_seq_length": 24,
        },
        "teachers": {"run_pretraining": folder / "pretrained"},
        "unmasked": folder / "unmasked",
        "done": {},
    }  # fmt: skip


def teacher_of(name, tiny, tmp_path):
    """Flags of a run with a teacher, which is trained where there is none yet."""
    if name not in tiny["teachers"]:
        tiny["teachers"][name] = tmp_path / "teacher"
        flags = {**tiny[name], "task_name": "SST-2", "output_dir": tmp_path / "teacher"}
        builders.run(importlib.import_module(f"albert.{name}"), **flags, do_train=True)
    return {"teacher": tiny["teachers"][name], "from_scratch": None}


def everything_but_training(task, data, run):
    """In place of `stages.run`."""
    file_io.make_dirs(run.run_config.output_dir)
    stages.check_start(run)
    optimizers.build(run.training.optimizer)
    for split in ("train", "dev"):
        data.records(split)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs(recipe, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    script, name = script_of(recipe)
    small = dict(tiny[name])
    if recipe == "own_data":
        small |= {"data_dir": None, "train_file": small["data_dir"].parent / "own.csv"}
        small["validation_file"] = small["train_file"]
    if name == "run_pretraining" and parse(recipe)["masked_lm_prob"].present:
        small["input_file"] = tiny["unmasked"]  # The recipe draws masks.
    if parse(recipe).flag_values_dict().get("init_from_teacher"):
        small |= teacher_of(name, tiny, tmp_path)
    small = [f"--{key}={value}" for key, value in small.items() if value is not None]
    # Recipes that differ only in what is tiny here, or in rates, are one run.
    values = parse(recipe, *small).flag_values_dict()
    for key in ("flagfile", "learning_rate", "beta_2"):
        values.pop(key, None)
    settings = json.dumps(values, default=str)
    if (name, settings) in tiny["done"]:
        return
    tiny["done"][name, settings] = recipe
    if recipe.removeprefix("glue_") in AS_OTHERS:
        monkeypatch.setattr(stages, "run", everything_but_training)
    place = "output_file" if name == "create_pretraining_data" else "output_dir"
    script.main(parse(recipe, *small, f"--{place}={tmp_path / 'out'}"))
    made = tmp_path / "out"
    if recipe.removeprefix("glue_") in AS_OTHERS:
        made /= f"{recipe.removeprefix('glue_').lower()}_train.tf_record"
    elif place == "output_dir":
        made /= "checkpoint"
    assert made.stat().st_size > 0
