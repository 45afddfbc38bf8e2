"""The studies of `experiments/`: their commands, one of them in earnest, and their report."""

import gzip
import hashlib
import importlib
import itertools
import json
import pathlib
import subprocess
import sys

import pytest

from albert.cli import options as cli_options
from albert.experiments import demo_data
from albert.io import file_io, locks
from tests.support import builders, command_lines, forked
from tests.support.sources import ROOT

sys.path.insert(0, str(ROOT))
study, report, real_weights = (
    importlib.import_module(f"experiments.{name}") for name in ("study", "report", "real_weights")
)
STUDIES = sorted((ROOT / "experiments").glob("*.json"))
TINY = {
    "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 128,
}  # fmt: skip


def printed(path, capsys, tmp_path, *arguments):
    folders = [f"--{name}={tmp_path / name}" for name in ("data", "work", "results")]
    assert study.main([str(path), *folders, "--dry_run", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow(5)
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_command_of_a_study_is_accepted(path, capsys, tmp_path):
    """All flags exist and fit each other, before anything is trained."""
    for line in printed(path, capsys, tmp_path):
        _, _, module, *arguments = line.split(" ")
        script = module.removeprefix("albert.")
        if script == "run_sweep":
            trial = line.partition("--trials=model: ")[2].partition(" --metric=")[0]
            script, arguments = "run_pretraining", [*trial.split(" "), "--output_dir=out"]
        command = importlib.import_module(f"albert.{script}")
        values = command_lines.define(command)
        assert values([script, *arguments]) == [script]
        if script in ("run_pretraining", "run_classifier", "run_race"):
            cli_options.read(command.Settings, values).check()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_records_have_the_flags_of_their_runs(path, tmp_path):
    """A changed recipe or study may not leave results of other flags under the same names."""
    results = ROOT / "experiments" / "results"
    content = study.read_study(path)
    runs = list(study.list_runs(content, options(tmp_path, results=results)))
    assert {file.stem for file in (results / path.stem).glob("*.json")} <= {r.name for r in runs}
    for run in runs:
        last = run.record.get("pretraining", {})
        stage = {**content, **content["runs"][run.name.rpartition("-")[0]]}.get("first_stage")
        for record, changes in ((last, {}), (last.get("first_stage", {}), stage)):
            if record:
                flags_of_run = {name: study._text(x) for name, x in run.flags(changes).items()}
                assert record["flags"] == flags_of_run, run.name


def options(tmp_path, **changes):
    folders = {name: tmp_path / name for name in ("data", "work", "results")}
    return study.Options(**{**folders, **changes})


def test_flags_that_are_null_are_removed(tmp_path):
    content = {
        "name": "x", "seeds": [1], "config": {}, "data": {"vocab_size": 10},
        "flags": {"flagfile": "recipes/two_hours.flags", "beta_1": 0.8},
        "runs": {"a": {"flags": {"ngram": None, "learning_rate": 3}}},
    }  # fmt: skip
    (run,) = study.list_runs(content, options(tmp_path))
    found = run.flags()
    assert found["learning_rate"] == 3 and found["sentence_task"] == "none"
    assert found["do_train"] == "true" and found["beta_1"] == 0.8 and "ngram" not in found
    short = study.Run(content, "a", 1, options(tmp_path, steps=40)).flags()
    assert (short["num_train_steps"], short["num_warmup_steps"]) == (40, 4)


def test_folders_are_in_the_commands_but_not_in_the_records(tmp_path, capsys):
    path = ROOT / "experiments/ablations.json"
    lines = printed(path, capsys, tmp_path, "--only=student_copy")
    teacher = tmp_path / "work" / "ablations" / "teacher-seed_1"
    assert any(f"--teacher={teacher}" in line for line in lines)
    run, *_ = study.list_runs(study.read_study(path), options(tmp_path, only=("student_copy",)))
    assert run.flags()["teacher"].startswith("{work}/ablations/teacher-seed_1")


def test_a_run_may_leave_out_tasks(tmp_path):
    content = {
        "name": "s", "tasks": {"SST-2": {}, "RTE": {}}, "seeds": [1],
        "runs": {"all": {}, "one": {"tasks": ["RTE"]}, "none": {"tasks": []},
                 "random": {"untrained": True}},
    }  # fmt: skip
    found = {run.name: run.parts() for run in study.list_runs(content, options(tmp_path))}
    before, tasks = ["pretraining", "heldout"], ["task SST-2", "task RTE"]
    assert found == {
        "all-seed_1": before + tasks, "one-seed_1": [*before, "task RTE"], "none-seed_1": before,
        "random-seed_1": tasks,
    }  # fmt: skip


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
def test_held_out_files_are_divided_by_documents(tmp_path, ending):
    path = tmp_path / f"heldout{ending}"
    opener = gzip.open if ending.endswith("gz") else open
    with opener(path, "wt") as file:
        file.write("\n\n".join(f"{i}.\nmore of {i}." for i in range(5)) + "\n")
    halves = [tmp_path / name / "a.txt" for name in ("choose", "report")]
    study.divide(path, *halves)
    assert [list(study.read_documents(half)) for half in halves] == [
        [f"{i}.\nmore of {i}.\n" for i in numbers] for numbers in ((0, 2, 4), (1, 3))
    ]


def test_recorded_runs_are_skipped_and_unknown_ones_refused(tmp_path, capsys):
    content = {
        "about": "x", "seeds": [1, 2], "config": {}, "data": {}, "runs": {"a": {}, "b": {}},
    }  # fmt: skip
    (tmp_path / "tiny.json").write_text(json.dumps(content))
    record = {"pretraining": {}, "heldout": {}}
    (tmp_path / "results" / "tiny").mkdir(parents=True)
    for name in ("a-seed_1", "a-seed_2"):
        (tmp_path / "results" / "tiny" / f"{name}.json").write_text(json.dumps(record))
    lines = printed(tmp_path / "tiny.json", capsys, tmp_path, "--only=a")
    assert lines == ["a-seed_1: recorded", "a-seed_2: recorded"]
    with pytest.raises(SystemExit, match="--only: no run c in tiny"):
        printed(tmp_path / "tiny.json", capsys, tmp_path, "--only=c")


def test_parts_that_need_missing_weights_are_not_made(tmp_path, capsys):
    content = {"name": "t", "seeds": [1], "config": {}, "data": {}, "runs": {"a": {}}}
    (tmp_path / "results/t").mkdir(parents=True)
    (tmp_path / "results/t/a-seed_1.json").write_text('{"pretraining": {}}')
    (run,) = study.list_runs(content, options(tmp_path))
    run.make()
    assert "a-seed_1: heldout: needs its weights" in capsys.readouterr().out
    assert run.missing() == ["heldout"]


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path, capsys):
    content = {"name": "t", "seeds": [1], "config": {}, "data": {}, "runs": {"a": {}}}
    (run,) = study.list_runs(content, options(tmp_path))
    (tmp_path / "work/t/a-seed_1").mkdir(parents=True)
    with locks.locked(str(tmp_path / "work/t/a-seed_1/run.lock")):
        run.make()
    assert capsys.readouterr().out == "a-seed_1: another process makes it\n"
    assert not (tmp_path / "results").exists()


def test_a_run_that_was_interrupted_is_not_finished(tmp_path):
    """Although it has results: those of its first evaluations."""
    commands = study.Commands(study.Options(tmp_path, tmp_path, tmp_path))
    record = tmp_path / "run.json"
    record.write_text('{"status": "done"}')
    commands.run("a", "no_such_script", {}, record)
    record.write_text('{"status": "interrupted"}')
    with pytest.raises(subprocess.CalledProcessError, match="no_such_script"):
        commands.run("a", "no_such_script", {}, record)


def test_held_out_texts_have_the_lengths_of_the_study(tmp_path, capsys):
    content = {
        "about": "x", "seeds": [1], "config": {}, "runs": {"a": {}},
        "data": {"vocab_size": 10, "max_seq_length": 32}, "flags": {"max_predictions_per_seq": 6},
        "heldout": {"max_seq_length": 32, "max_predictions_per_seq": 6},
    }  # fmt: skip
    (tmp_path / "tiny.json").write_text(json.dumps(content))
    lines = printed(tmp_path / "tiny.json", capsys, tmp_path)
    made = [line for line in lines if "create_pretraining_data" in line and "heldout" in line]
    assert made and all("--max_seq_length=32 --max_predictions_per_seq=6" in x for x in made)
    (trained,) = [line for line in lines if "run_sweep" in line]
    assert "choose-books-none-32.tf_record" in trained  # evaluated on these while training
    measured = [line for line in lines if "--do_eval=true" in line and "run_pretraining" in line]
    assert measured and all("--max_seq_length=32" in line for line in measured)


def test_scores_of_seeds_are_those_of_their_last_evaluations(tmp_path):
    runs = [{"seed": seed, "status": x, "exit_status": x == "failed"}
            for seed, x in ((1, "done"), (2, "stuck"), (3, "failed"))]  # fmt: skip
    (tmp_path / "seeds.json").write_text(json.dumps({"metric": "f1", "runs": runs}))
    for seed in (1, 2):
        rows = [{"kind": "eval", "step": step, "f1": seed / 4 + step} for step in (0, 10)]
        rows.append({"kind": "train", "step": 20})
        (tmp_path / f"seed_{seed}").mkdir()
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"seed_{seed}/metrics.jsonl").write_text(lines)
    assert study.read_seeds(tmp_path) == {
        "metric": "f1",
        "seeds": {
            "1": {"status": "done", "step": 10, "f1": 10.25},
            "2": {"status": "stuck", "step": 10, "f1": 10.5},
            "3": {"status": "failed"},
        },
    }


# --- the report ---------------------------------------------------------------------------------


def write_record(folder, name, seed, loss, **parts):
    part = {
        "steps": 10, "tokens": 2_000_000, "seconds": 5.0, "peak_memory": 2**30, "commit": "abc",
        "parameters": {"total": 1_500_000}, "machine": {"processor": "CPU", "cores": 2},
    }  # fmt: skip
    record = {"pretraining": part, "heldout": {"loss": loss}, **parts}
    (folder / "sharing").mkdir(parents=True, exist_ok=True)
    (folder / f"sharing/{name}-seed_{seed}.json").write_text(json.dumps(record))


def rows_of(folder):
    records = report.read_records(folder / "results")
    sections = report.content(records, map(study.read_study, STUDIES))
    lines = report.to_markdown(sections).splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]


def test_without_records_nothing_is_claimed(tmp_path):
    claims = [
        row for row in rows_of(tmp_path) if len(row) == 4 and row[1] in ("sharing", "ablations")
    ]
    assert len(claims) == len(report.CLAIMS)
    assert {row[2] for row in claims} == {row[3] for row in claims} == {"not run"}


@pytest.mark.parametrize(
    ("none", "verdict"),
    [
        ((4.0, 4.1, 4.05), "agrees"),
        ((6.0, 6.1, 6.05), "differs"),
        ((4.0, 6.0, 5.0), "cannot be decided at this size"),
        ((4.0,), "too few seeds"),
    ],
)
def test_a_verdict_is_that_of_a_test_over_seeds(tmp_path, none, verdict):
    for seed, (shared, own) in enumerate(itertools.zip_longest((5.0, 5.12, 5.05), none)):
        write_record(tmp_path / "results", "all-words", seed, shared)
        if own:
            write_record(tmp_path / "results", "none-words", seed, own)
    found, _ = [row for row in rows_of(tmp_path) if row[0].startswith("sharing nothing beats")]
    assert found[3] == verdict
    assert (
        found[2].startswith(f"{sum(none) / len(none) - 15.17 / 3:+.3f} ")
        and f"(n=3, {len(none)})" in found[2]
    )


def test_a_run_has_its_means_and_its_failures(tmp_path):
    overall = {"overall": {"accuracy": 0.5, "accuracy_ties_right": 0.75}}
    task = {"metric": "f1", "seeds": {"1": {"f1": 0.25}, "2": {"status": "failed"}}}
    write_record(tmp_path / "results", "all-time", 1, 4.0, blimp=overall, **{"task QNLI": task})
    write_record(tmp_path / "results", "all-time", 2, 5.0, failed={"part": "blimp", "message": "x"})
    (row,) = [row for row in rows_of(tmp_path) if row[0] == "all-time"]
    assert row[1:5] == ["1.5M", "2.0M", "0.500", "1.00"]
    assert row[5] == "CPU, 2 cores"
    assert row[6].startswith("4.500 [") and row[6].endswith("(n=2)")
    assert row[7:] == ["0.500 (n=1)", "0.750 (n=1)", "not run", "0.250 (n=1)", "1"]
    assert report.machines(report.read_records(tmp_path / "results")) == [
        "2 runs: CPU, 2 cores; commit abc"
    ]


def test_models_with_a_sentence_head_have_their_accuracy_on_each_task(tmp_path):
    folder = tmp_path / "results/ablations"
    folder.mkdir(parents=True)
    tasks = {  # named as run_pretraining does
        "sop": {"masked_lm_accuracy": 0.25, "sentence_order_accuracy": 0.75},
        "nsp": {"sentence_order_head_on_next_sentence_accuracy": 0.5},
    }
    for name, found in (("task_sop", tasks), ("base", {})):
        record = {"heldout": {"loss": 4.0, "sentence_tasks": found}}
        (folder / f"{name}-seed_1.json").write_text(json.dumps(record))
    rows = [row for row in rows_of(tmp_path) if len(row) == 3]
    assert rows[0] == ["run", "accuracy on sop data", "accuracy on nsp data"]
    assert [row for row in rows if row[0] != "---"][1:] == [
        ["task_sop", "0.750 (n=1)", "0.500 (n=1)"]
    ]


def test_scores_from_random_weights_are_beside_those_of_a_model(tmp_path):
    (tmp_path / "results/two_hours").mkdir(parents=True)
    scores = {"two_hours": (0.8, 0.82), "one_hour": (0.8, 0.82), "random_weights": (0.5, 0.6)}
    for run, (first, second) in scores.items():
        seeds = {"1": {"f1": first}, "2": {"f1": second}}
        record = {"task MRPC": {"metric": "f1", "seeds": seeds}}
        (tmp_path / f"results/two_hours/{run}-seed_1.json").write_text(json.dumps(record))
    found = [row for row in rows_of(tmp_path) if row[1] == "MRPC"]
    assert [row[0] for row in found] == ["two_hours", "one_hour"]
    for row in found:
        assert row[2] == "f1" and row[3].startswith("0.810 [") and row[4].startswith("0.550 [")
        assert row[5].startswith("+0.260") and row[5].endswith("(n=2, 2)")


def test_the_recorded_reports_are_those_of_the_records(tmp_path):
    pytest.importorskip("jinja2")
    paths = [ROOT / f"experiments/{name}.json" for name in ("two_hours", "sharing", "ablations")]
    report.write(ROOT / "experiments/results", paths, tmp_path)
    for name in ("REPORT.md", "report.html"):
        assert (tmp_path / name).read_text() == (ROOT / "experiments" / name).read_text()


# --- in earnest -----------------------------------------------------------------------------------


def write_data(folder):
    """Demo text in the layout of the research data, and twenty pairs of sentences."""
    corpus, text = folder / "corpus_large", demo_data.corpus(1)
    corpus.mkdir()
    documents = text["train"].split("\n\n")
    for name, part in (("books_00", documents[:60]), ("others_00", documents[60:120])):
        (corpus / f"{name}.txt").write_text("\n\n".join(part) + "\n")
    for name in ("books", "others"):
        heldout = text["heldout"].split("\n\n")[:12]
        (corpus / f"heldout_{name}.txt").write_text("\n\n".join(heldout) + "\n")
    builders.write_glue(folder)
    (folder / "blimp").mkdir()
    row = {
        "sentence_good": "the bread was fine .", "sentence_bad": "the bread fine was .",
        "field": "syntax", "linguistics_term": "order",
    }  # fmt: skip
    (folder / "blimp/order.jsonl").write_text((json.dumps(row) + "\n") * 4)


@pytest.mark.slow
def test_a_study_records_its_runs_and_continues(tmp_path, capsys, monkeypatch):
    pytest.importorskip("datasketch")  # prepare_corpus
    pytest.importorskip("sentencex")
    write_data(tmp_path)
    glue = {
        "task_name": "SST-2", "data_dir": "{data}/glue", "do_train": True, "do_eval": True,
        "max_seq_length": 32, "train_step": 4, "save_checkpoints_steps": 4, "train_batch_size": 8,
        "stuck_after": 0,
    }  # fmt: skip
    content = {
        "about": "A trial.", "config": TINY,
        "data": {
            "vocab_size": 120, "max_seq_length": 128, "sequence_format": "full_sentences",
            "sentence_task": "none", "mask_in_training": True,
        },
        "flags": {
            "do_train": True, "sentence_task": "none", "max_predictions_per_seq": 20,
            "train_batch_size": 8, "average_last": 0.5, "optimizer": "muon", "learning_rate": 1e-3,
            "budget_minutes": 99, "save_checkpoints_steps": 100,
        },
        "first_stage": {"data": {"max_seq_length": 32}, "flags": {"max_predictions_per_seq": 5}},
        "seeds": [1], "blimp": {"limit": 2}, "task_seeds": 1,
        "runs": {"cycle": {"config": {"layer_scales": True}}, "random": {"untrained": True}},
        "tasks": {"SST-2": {"script": "run_classifier", "flags": glue}},
    }  # fmt: skip
    (tmp_path / "trial.json").write_text(json.dumps(content))
    folders = {"data": tmp_path, "work": tmp_path / "work", "results": tmp_path / "results"}
    monkeypatch.setattr(sys, "executable", forked.python())
    monkeypatch.setenv(forked.CHILDREN_TOO, "1")
    arguments = [str(tmp_path / "trial.json"), "--steps=6"]
    arguments += [f"--{name}={path}" for name, path in folders.items()]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(study, "write_curve", interrupt)
        study.main(arguments)
    weights = tmp_path / "work/trial/cycle-seed_1/last_stage/model/model.ckpt-6.index"
    written = weights.stat().st_mtime_ns
    assert study.main(arguments) == 0, logs(tmp_path)
    assert weights.stat().st_mtime_ns == written
    record = json.loads((tmp_path / "results/trial/cycle-seed_1.json").read_text())
    assert record["pretraining"]["steps"] == 6 and record["pretraining"]["tokens"] > 0
    first = record["pretraining"]["first_stage"]
    assert (
        first["data"]["max_seq_length"] == 32 and first["flags"]["max_predictions_per_seq"] == "5"
    )
    started = json.loads((weights.parent / "load_report.json").read_text())
    assert not started["new"] and "first_stage/model/model.ckpt-6" in str(started)
    assert record["pretraining"]["machine"]["cores"] and "commit" in record["pretraining"]
    assert {*record["heldout"]["choose"]} == {"model.ckpt-6", "model.ckpt-average"}
    report = record["heldout"]["report"]
    assert record["heldout"]["loss"] == pytest.approx(
        (report["books"]["masked_lm_loss"] + report["others"]["masked_lm_loss"]) / 2
    )
    assert record["blimp"]["overall"]["pairs"] == 2
    untrained = json.loads((tmp_path / "results/trial/random-seed_1.json").read_text())
    assert "pretraining" not in untrained and untrained["run"] == "random-seed_1"
    for scores in (record["task SST-2"]["seeds"], untrained["task SST-2"]["seeds"]):
        assert list(scores) == ["1"] and "eval_accuracy" in scores["1"]
    for ending in ("-first_stage", ""):
        path = tmp_path / f"results/trial/cycle-seed_1{ending}.csv"
        curve = path.read_text().splitlines()
        assert curve[0].startswith("kind,step,tokens_seen,loss") and len(curve) >= 3
    capsys.readouterr()
    assert study.main(arguments) == 0
    assert capsys.readouterr().out == "cycle-seed_1: recorded\nrandom-seed_1: recorded\n"


def interrupt(*arguments):
    raise KeyboardInterrupt


def real_weights_of(tmp_path, *arguments):
    folders = {name: tmp_path / name for name in ("data", "work", "results", "weights")}
    flags = [f"--{name}={folder}" for name, folder in folders.items()]
    return real_weights.main([*flags, *arguments])


def test_commands_of_the_study_of_real_weights_are_accepted(tmp_path, capsys):
    """Three seeds with the best of three rates, here and with transformers."""
    real_weights_of(tmp_path, "--dry_run", "--peer=python3", "--only=MRPC,RTE")
    lines = capsys.readouterr().out.splitlines()
    ours = [line for line in lines if line.startswith("python -m albert.run_classifier ")]
    theirs = [json.loads(line.split("'")[1]) for line in lines if line.startswith("python3 ")]
    assert len(ours) == 2 * (3 + 3) and [request["seed"] for request in theirs] == [1, 2, 3]
    settings = [command_lines.read("run_classifier", *line.split(" ")[3:]) for line in ours]
    for each in settings:
        each.check()
    assert len({each.optimizer.learning_rate for each in settings}) == 3
    real_weights_of(tmp_path, "--dry_run", "--pooling=cls", "--only=RTE")
    assert "/RTE-cls-seed_3 " in capsys.readouterr().out
    for message, *wrong in (
        ("no task X", "--only=X"),
        ("reads the mean", "--pooling=cls", "--peer=python3"),
        ("no task SQuAD", "--pooling=cls", "--only=SQuAD"),
    ):
        with pytest.raises(SystemExit, match=message):
            real_weights_of(tmp_path, *wrong)


def test_questions_have_the_settings_of_the_two_hours(tmp_path, capsys):
    """But for the rate, the best of three after a short training."""
    real_weights_of(tmp_path, "--dry_run", "--only=SQuAD,RACE")
    lines = [line.split(" ")[2:] for line in capsys.readouterr().out.splitlines()]
    scripts = [script.removeprefix("albert.") for script, *_ in lines]
    assert scripts == ["run_squad_v1"] * 6 + ["run_race"] * 6
    found = [
        command_lines.read(script, *flags)
        for script, (_, *flags) in zip(scripts, lines, strict=True)
    ]
    for settings in found:
        settings.check()
    assert [settings.optimizer.learning_rate for settings in found[:3]] == [5e-5, 1e-4, 2e-4]
    work, data = tmp_path / "work", tmp_path / "data"
    for start, text in ((0, f"--train_file={work}/parts/SQuAD/squad/train-v1.1-small.json"),
                        (3, f"--train_file={data}/squad/train-v1.1-small.json"),
                        (6, f"--data_dir={work}/parts/RACE/race"), (9, f"--data_dir={data}/race"),
                        (0, f"--init_checkpoint={tmp_path / 'weights'}")):  # fmt: skip
        assert all(text in line for line in lines[start : start + 3])


def test_rates_are_chosen_on_a_part_of_the_training_data(tmp_path):
    """Every tenth row, passage, and every fifth article."""
    rows = [f"text {number}\t{number % 2}\n" for number in range(20)]
    passages = [json.dumps({"id": number}) + "\n" for number in range(11)]
    articles = [{"title": str(number)} for number in range(6)]
    for file, text in {
        "glue/SST-2/train.tsv": "".join(["sentence\tlabel\n", *rows]),
        "race/RACE/train/middle/all.txt": "".join(passages),
        "race/RACE/train/high/all.txt": "".join(passages[:3]),
        "squad/train-v1.1-small.json": json.dumps({"version": "1.1", "data": articles}),
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    for name in ("SST-2", "RACE", "SQuAD"):
        real_weights.write_part(tmp_path, name, tmp_path / "part" / name)
    parts = {path.relative_to(tmp_path / "part"): path.read_text()
             for path in (tmp_path / "part").rglob("*.*")}  # fmt: skip
    parts = {str(path): text for path, text in parts.items()}
    header = "sentence\tlabel\n"
    assert parts.pop("SST-2/glue/SST-2/dev.tsv") == header + rows[0] + rows[10]
    others = "".join(row for row in rows if row not in (rows[0], rows[10]))
    assert parts.pop("SST-2/glue/SST-2/train.tsv") == header + others
    race = {
        "dev/middle": [0, 10],
        "train/middle": [*range(1, 10)],
        "dev/high": [0],
        "train/high": [1, 2],
    }
    for folder, numbers in race.items():
        lines = "".join(passages[number] for number in numbers)
        assert parts.pop(f"RACE/race/RACE/{folder}/all.txt") == lines
    for split, numbers in (("dev", [0, 5]), ("train", [1, 2, 3, 4])):
        content = json.loads(parts.pop(f"SQuAD/squad/{split}-v1.1-small.json"))
        assert content == {"version": "1.1", "data": [articles[number] for number in numbers]}
    assert not parts


def write_runs_of_race(tmp_path, weights=b"weights", precision="float32"):
    """Runs that are done, in the folder of the work; the first one was killed once."""
    (tmp_path / "weights").mkdir(exist_ok=True)
    (tmp_path / "weights/model.safetensors").write_bytes(weights)
    for seed in real_weights.SEEDS:
        folder = tmp_path / "work" / "runs" / f"RACE-ours-seed_{seed}"
        folder.mkdir(parents=True)
        record = {
            "status": "done",
            "sessions": [{}],
            "cost": {"steps": 430 if seed == 1 else 250},
            "flags": {"learning_rate": {"value": 1e-4}, "precision": {"value": precision}},
            "inputs": {"init_checkpoint": {"sha256": hashlib.sha256(b"weights").hexdigest()}},
        }
        file_io.write_json(str(folder / "run.json"), record)
        row = {"kind": "eval", "step": 250, "checkpoint": "model.ckpt-250", "eval_accuracy": 0.5}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def test_the_steps_of_a_record_are_those_of_the_training(tmp_path):
    """Not those that were made, of which a run that was killed made some again."""
    write_runs_of_race(tmp_path)
    assert real_weights_of(tmp_path, "--rates=1e-4", "--only=RACE") == 0
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert [record["steps"] for record in records] == [250] * 3


def test_runs_with_other_weights_or_settings_are_not_taken_for_those_of_a_study(tmp_path):
    """Neither records nor trainings that are done."""
    flags = ("--rates=1e-4", "--only=RACE")
    with pytest.raises(SystemExit, match="no model.safetensors in "):
        real_weights_of(tmp_path, *flags)
    write_runs_of_race(tmp_path, weights=b"other weights")
    shown = [hashlib.sha256(weights).hexdigest() for weights in (b"weights", b"other weights")]
    named = "runs/RACE-ours-seed_1 has weights {}, and this run {}; give another".format(*shown)
    with pytest.raises(SystemExit, match=named):
        real_weights_of(tmp_path, *flags)
    assert not (tmp_path / "results").exists()

    (tmp_path / "weights/model.safetensors").write_bytes(b"weights")
    assert real_weights_of(tmp_path, *flags) == 0
    assert real_weights_of(tmp_path, *flags) == 0
    records = {path: path.read_bytes() for path in (tmp_path / "results").glob("*.json")}
    for message, *other in (
        ("seed_1.json has learning_rate 0.0001, and this run 0.0002", "--rates=2e-4"),
        ("seed_1.json has precision float32, and this run bfloat16", "--precision=bfloat16"),
    ):
        with pytest.raises(SystemExit, match=message):
            real_weights_of(tmp_path, *flags, *other)
    (tmp_path / "weights/model.safetensors").write_bytes(b"other weights")
    with pytest.raises(SystemExit, match="seed_1.json has weights"):
        real_weights_of(tmp_path, *flags)
    assert records == {path: path.read_bytes() for path in (tmp_path / "results").glob("*.json")}


def test_the_precision_of_a_training_has_two_names(tmp_path):
    """`run.json` has the longer one."""
    write_runs_of_race(tmp_path, precision="mixed_bfloat16")
    flags = ("--rates=1e-4", "--only=RACE", "--precision=bfloat16")
    assert real_weights_of(tmp_path, *flags) == 0
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")]
    assert [record["precision"] for record in records] == ["bfloat16"] * 3


def test_recorded_scores_name_their_weights():
    """One model in each folder, that of the package in its own."""
    shipped = file_io.sha256(str(ROOT / "albert/pretrained/albert_mini/model.safetensors"))
    for name, weights in (("real_weights", real_weights.SHA256), ("albert_mini", shipped)):
        for folder in (name, f"{name}_150"):
            paths = [*(ROOT / "experiments/results" / folder).glob("*.json")]
            assert paths and {json.loads(p.read_text())["weights"] for p in paths} == {weights}


def test_the_table_of_real_weights_has_means_and_differences(tmp_path):
    settings = {"learning_rate": 1e-4, "steps": 830, "precision": "float32"}
    for side, scores in (("ours", (0.8, 0.82, 0.84)), ("transformers", (0.79, 0.82, 0.85))):
        for seed, score in enumerate(scores, 1):
            record = {"eval_accuracy": score, **settings}
            file_io.write_json(str(tmp_path / f"SST-2-{side}-seed_{seed}.json"), record)
    lines = [line for line in real_weights.table(tmp_path) if line.startswith("| SST-2")]
    assert lines == [
        "| SST-2 | eval_accuracy | 0.820 [0.770, 0.870] | 3 | 0.0001, 830, float32 |",
        "| SST-2 | eval_accuracy | 0.820 [0.770, 0.870] | 0.820 [0.745, 0.895] | "
        "0.000 [-0.025, 0.025] |",
    ]


def logs(folder):
    return "\n".join(path.read_text()[-1500:] for path in (folder / "work/logs").glob("*"))


def test_the_folder_of_results_has_nothing_but_records():
    """No other files, and no folder of a machine in a record."""
    for path in (ROOT / "experiments/results").rglob("*"):
        assert path.is_dir() or path.suffix in (".json", ".csv", ".md"), path
        assert path.suffix != ".json" or '"/' not in path.read_text(), path
    assert pathlib.Path(study.__file__).parent == ROOT / "experiments"
