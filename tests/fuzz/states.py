"""Readers of what runs write for themselves: journals, notes, descriptions of what is exported."""

import contextlib
import os

import numpy as np

from albert.data import instance_files, instance_shards, instances, masking
from albert.experiments import seed_runs, sweep_journal, sweep_plan
from albert.io import file_io
from albert.model import checkpoints, heads, model_folder, sources
from albert.serving import requests, serving_folder, tensorflow_protocol
from albert.tasks import glue
from albert.tasks.squad import answer_features
from albert.tasks.squad import features as squad_features
from albert.text import text_rules
from albert.training import budget, stuck_runs
from tests.fuzz.reader import Reader, content_of, folder_of, to_json
from tests.support.builders import SPM, tiny_config


def _read_spec(path):
    plan = sweep_plan.make_plan(sweep_plan.read_spec(path), path=path)
    sweep_plan.count(plan)
    next(sweep_plan.points(plan), None)
    file_io.write_json(os.path.join(folder_of(path), "described"), plan.describe())


def _read_journal(path):
    journal = sweep_journal.Journal(folder_of(path), {}, _DESCRIPTION)
    for trial in journal.trials:
        if not trial.has_ended:
            trial.reset()
    journal.write()


_DESCRIPTION = sweep_plan.make_plan(
    {"script": "run_classifier", "parameters": {"learning_rate": [1e-4, 2e-4]}, "seeds": [1, 2]}
).describe()


def _sweeps(work):
    grid = {
        "script": "run_classifier", "flags": {"task_name": "SST-2", "do_train": True},
        "parameters": {"learning_rate": [1e-4, 2e-4], "train_batch_size": [16, 32]},
        "seeds": [1, 2], "metric": "eval_accuracy", "minimize": False,
    }  # fmt: skip
    ranges = {
        "script": "run_classifier", "parameters": {"learning_rate": {"low": 1e-5, "high": 1e-3,
        "log": True}}, "method": "random", "num_trials": 5, "seed": 3, "prune_after": 10,
    }  # fmt: skip
    given = {"script": "run_squad_v1", "trials": {"first": {"train_batch_size": 8}}}
    yield Reader("sweep_spec.json", to_json(grid, ranges, given), _read_spec)
    journal = sweep_journal.Journal(work, _DESCRIPTION)
    for number, state in enumerate((sweep_journal.DONE, sweep_journal.WAITING)):
        trial = sweep_journal.Trial(number, f"trial_{number}", ["--seed=1"], {"rate": 1e-4})
        trial.state, trial.seed = state, 1
        if trial.has_ended:
            trial.step, trial.value, trial.metrics = 5, 0.5, {"eval_accuracy": 0.5}
        journal.trials.append(trial)
    journal.write()
    yield Reader(sweep_journal.NAME, [content_of(work, sweep_journal.NAME)], _read_journal)


# --- notes of a run -----------------------------------------------------------------------------


def _read_attempts(path):
    next(stuck_runs.attempts(folder_of(path), 7, 0, lambda make: make()))


def _read_seeds(path):
    seed_runs.describe(folder_of(path))
    study = seed_runs.Study(folder_of(path), "run_classifier", "eval_accuracy", lambda *_: [])
    seed_runs.run(study, 7, 2, lambda study, seed, folder: 0)


def _read_stuck(path):
    folder = folder_of(path)
    stuck_runs.verdict(folder, 10)
    watch = stuck_runs.Watch(stuck_runs.Settings(0.2, 0.1, ""), folder, 1000, 32)
    watch.resume(300)
    watch.save(400)


def _notes():
    plan = {"step": 5, "share": 0.0, "num_train_steps": 90, "seconds": 1.5, "is_known": True}
    attempt = {"plans": [plan], "saved": {"50": 3.5}, "seconds": {"evaluation": 0, "saving": 0.5}}
    budget_of = {"budget_minutes": 10.0, "is_repeated": False, "attempts": [attempt]}
    yield Reader(budget.BUDGET, to_json(budget_of), lambda path: budget.read(folder_of(path), 10.0))
    attempt = {"seed": 7, "step": 5, "share": 0.25, "message": "stuck", "folder": "attempt_1"}
    attempts = {"given_up": [attempt], "moving": True}
    yield Reader(stuck_runs.ATTEMPTS, to_json(attempts), _read_attempts)
    run = {"seed": 7, "folder": "seed_7", "exit_status": 0, "restarts": 0, "step": 10}
    run |= {"judged": True, "evaluated": 5, "baseline": 0.25, "test": 0.5}
    runs = [
        {**run, "status": seed_runs.FINISHED, "result": 0.5},
        {**run, "seed": 8, "status": stuck_runs.STUCK, "result": 0.25},
    ]
    yield Reader(seed_runs.SEEDS, to_json(seed_runs.summarize("eval_accuracy", runs)), _read_seeds)
    signs = {"association": [1.0, 2.0, 3.0, 64.0], "labels": [30.0, 34.0], "correct": 32.0}
    judgement = {"step": 200, "share": 0.2, "effect": 0.1, "deviations": 3.0, "is_stuck": False}
    state = {"told": None, "judgements": [judgement], "signs": {"300": [signs, signs]}}
    yield Reader(stuck_runs.STATE, to_json(state), _read_stuck)


# --- what is made of text -----------------------------------------------------------------------


def _shards(work):
    text = os.path.join(work, "text.txt")
    file_io.write_text(text, "One line.\nTwo lines.\n\nAnother one.\nIts end.\n")
    settings = instances.Settings(max_seq_length=16, mask=masking.MaskingConfig(4))
    job = instance_files.Job(settings, 1, spm_model_file=str(SPM))

    def create(prefix):
        return instance_shards.create([text], prefix, 1, job)

    create(os.path.join(work, "records"))
    names = [os.path.basename(path) for path in instance_shards.shard_paths("records", 1)]
    files = {name: content_of(work, name) for name in names}
    name = os.path.basename(instance_shards.manifest_path("records"))
    yield Reader(name, [content_of(work, name)],
                 lambda path: create(os.path.join(folder_of(path), "records")), files)  # fmt: skip


def _features(work):
    path = os.path.join(work, "left.jsonl")
    settings = {"max_seq_length": 32, "doc_stride": 16}
    pieces = np.arange(3, dtype=np.int32)
    features = [
        squad_features.SquadFeatures(
            unique_id=number, qas_id=f"q{number}", example_index=number, doc_span_index=0,
            max_seq_length=32, real_ids=[0] * 9, text_begin=4, max_context=(0, 3),
            piece_start=pieces, piece_end=pieces + 1,
        )
        for number in range(2)
    ]  # fmt: skip
    answer_features.write(path, features, settings)
    yield Reader("left.jsonl", [content_of(work, "left.jsonl")],
                 lambda path: answer_features.read_if_current(path, settings))  # fmt: skip


# --- serving ------------------------------------------------------------------------------------


_FORMS = (
    requests.ONE_TEXT, requests.TWO_TEXTS, requests.WORDS,
    requests.CHOICE, requests.QUESTION,
)  # fmt: skip


def _read_request(path):
    with open(path, "rb") as file:
        body = file.read()
    for form in _FORMS:
        for read in (requests.read, tensorflow_protocol.read):
            with contextlib.suppress(file_io.InputError):  # which names the field, not a file
                read(body, form, requests.Limits())


def _serving(work):
    config = tiny_config(max_position_embeddings=32)
    source = sources.Source("", None, str(SPM), None, text_rules.TextRules(False))
    settings = {"max_seq_length": 32, "labels": ["good", "bad"]}
    trained, exported = os.path.join(work, "trained"), os.path.join(work, "exported")
    model_folder.write(trained, glue.KIND, config, source, settings)
    checkpoints.save(os.path.join(trained, "model.ckpt-3"), heads.ClassifierModel(config, 2))
    with serving_folder.creating(exported, model_folder.read(trained), "onnx", "float32") as folder:
        file_io.write_text(folder.model_file, "model")
    files = {name: content_of(exported, name) for name in file_io.listdir(exported)}
    name = serving_folder.NAME
    siblings = {other: content for other, content in files.items() if other != name}
    yield Reader(name, [files[name]],
                 lambda path: serving_folder.read(folder_of(path)), siblings)  # fmt: skip
    requests = [
        {"text": "A b."}, {"examples": [{"text": "A", "text_pair": "b"}]},
        {"instances": ["A b."], "signature_name": "serving_default"},
        {"inputs": {"question": ["Who?"], "context": ["A b."]}},
        {"article": "A b.", "question": "What?", "options": ["a", "b"]}, {"words": ["A", "b"]},
    ]  # fmt: skip
    yield Reader("request.json", to_json(*requests), _read_request)


def readers(work):
    """Yields each `Reader`; samples that are made by the toolkit itself are made in the folder."""
    file_io.make_dirs(work)
    yield from _sweeps(work)
    yield from _notes()
    yield from _shards(work)
    yield from _features(work)
    yield from _serving(work)
