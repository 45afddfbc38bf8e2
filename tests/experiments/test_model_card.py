"""Model cards, from records that no run has written."""

import json
import re

import numpy as np
import pytest
import yaml

from albert import export_checkpoints
from albert.experiments import model_card, report, runs
from albert.io import file_io
from albert.model import checkpoints, huggingface, weight_names
from albert.training import run_record, run_session

HOST = {"name": "secret", "processor": "a processor", "cores": 2, "memory": 1}


# SHA-256 of the published files of RTE.
RTE = {
    "train_data": "41e3a9b063433392343fad9e962cf2f58b681c78d8f71592f4186f0837246c5c",
    "eval_data": "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb",
}


def write_run(
    folder, task="rte", script="run_classifier", data="glue/RTE/dev.tsv", digests=RTE, **inputs
):
    """A folder with the record of a run of 20 steps, evaluated at 10 and 20."""
    flags = {
        "learning_rate": {"value": 1e-5, "source": "command line"},
        "data_dir": {"value": "/home/somebody/glue", "source": "command line"},
        "seed": {"value": 12345, "source": "default"},
    }
    roles = {"train_data": data.replace("dev", "train"), "eval_data": data, **inputs}
    path = str(folder)
    recorder = run_session.Recorder(script, [], flags, {})
    with recorder.session(path, ["train", "eval"], {}):
        run_record.set_model(path, task, "eval_accuracy", 10, 5)
        run_record.start_training(path, 0)
        for step, score in ((10, 0.75), (20, 0.5)):
            scores = {"eval_accuracy": score, "f1": float("nan"), "loss": 0.5}
            run_record.append_evaluation(path, step, f"model.ckpt-{step}", scores)
        run_record.set_result(path, 10, {"eval_accuracy": 0.75, "loss": 0.5})
        run_record.set_steps(path, 20)

    def change(record):
        record["host"] = HOST
        record["inputs"] = {
            role: {
                "path": f"/home/somebody/{name}",
                "bytes": 7,
                "sha256": digests.get(role, "ab" * 32),
            }
            for role, name in roles.items()
        }

    run_record.update(path, change)
    return folder


def write(folder, run, form=export_checkpoints.FORM, step=10, **said):
    folder.mkdir(exist_ok=True)
    written = model_card.write(str(folder), str(run), form, step, model_card.CardFields(**said))
    return written and (folder / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


FRONT = """---
license: "apache-2.0"
language: "en"
library_name: "transformers"
pipeline_tag: "text-classification"
tags:
- "albert"
datasets:
- "nyu-mll/glue"
metrics:
- "accuracy"
base_model: "albert/albert-base-v2"
model-index:
- name: "card"
  results:
  - task:
      type: "text-classification"
    dataset:
      name: "GLUE RTE"
      type: "nyu-mll/glue"
      config: "rte"
      split: "validation"
    metrics:
    - type: "accuracy"
      value: 0.75
      name: "eval_accuracy, best of 2 checkpoints"
---

# card
"""


def test_the_card_of_a_published_task(run, tmp_path):
    write_run(run, init_checkpoint="albert_base_v2/model.ckpt-best")
    form = model_card.transformers_form("classification")
    text = write(tmp_path / "card", run, form, license="apache-2.0")
    assert text.startswith(FRONT)
    assert "AutoModelForSequenceClassification.from_pretrained(folder)" in text
    assert "| eval_accuracy | 0.75 |" in text and "| `learning_rate` | `1e-05` |" in text
    assert (
        "| `data_dir` | `glue` |" in text and "| processor | a processor |\n| cores | 2 |" in text
    )
    assert f"| eval_data | `dev.tsv` | 7 | `{RTE['eval_data']}` |" in text
    assert "\nAt step 10, best of 2 checkpoints by eval_accuracy:\n" in text
    for private in ("/home", "secret", "seed"):
        assert private not in text, private


def test_scores_of_a_later_evaluation_on_other_data_are_not_those_of_the_named_data(run, tmp_path):
    write_run(run)
    path = str(run)
    own, other = ({"sha256": x * 64, "path": f"{x}.tsv", "metric": None} for x in "ab")
    parts = {"examples": {}, "reading": {}}

    def measure(record):
        record["sessions"][0]["measured_on"], record["evaluated"] = {**own, **parts}, 2
        record["measured_on"] = {**other, **parts}

    run_record.update(path, measure)
    run_record.quarantine_evaluations(path)
    run_record.append_evaluation(path, 10, "model.ckpt-10", {"eval_accuracy": 0.25})
    text = write(tmp_path / "card", run)
    assert "| eval_accuracy | 0.75 |" in text and "0.25" not in text
    assert "At step 10, best of 2 checkpoints by eval_accuracy" in text
    pytest.importorskip("jinja2")
    page = report.run_page(runs.read_run(path, "run"))
    assert "not of the same: data a.tsv (SHA-256 aaaaaaaaaaaaaaaa…) and b.tsv (SHA-256 bbb" in page


def test_the_name_of_a_published_model_is_its_base(run, tmp_path):
    """Its files lie in a cache, whose folders have other names."""
    write_run(run, init_checkpoint=".cache/albert/ab12/albert_base/model.ckpt-best")
    name = run / "run.json"
    record = json.loads(name.read_text())
    record["flags"]["init_checkpoint"] = {"value": "albert_base_v1", "source": "command line"}
    name.write_text(json.dumps(record))
    text = write(tmp_path / "card", run)
    assert yaml.safe_load(text.split("---\n")[1])["base_model"] == "albert/albert-base-v1"


def test_the_front_matter_is_yaml(run, tmp_path):
    write_run(run)
    said = {"license": 'a: "b" # c', "language": "ä", "base_model": "- x"}
    text = write(tmp_path / "card", run, **said)
    front = yaml.safe_load(text.split("---\n")[1])
    assert {name: front[name] for name in said} == said
    nested = {"a": {"b": [1, "x: y"], "c": None}, "d": [{"e": True, "f": [{"g": 0.5}]}]}
    assert yaml.safe_load(model_card.to_yaml(nested)) == nested


def test_only_what_is_known_is_said(run, tmp_path):
    text = write(tmp_path / "card", run)
    assert text.startswith('---\nlibrary_name: "tensorflow"\ntags:\n- "albert"\n---\n\n# card\n')
    assert "How it was trained is not known" in text
    (run / "run.json").write_text("{")
    assert "How it was trained is not known" in write(tmp_path / "card", run)


def test_own_data_is_no_published_data(run, tmp_path):
    init = "ours/model.ckpt-20"
    write_run(run, "custom", data="reviews-dev.tsv", digests={}, init_checkpoint=init)
    text = write(tmp_path / "card", run)
    front = text.split("---\n")[1]
    assert 'name: "reviews-dev.tsv"\n      type: "own"\n' in front
    assert "datasets" not in front and "language" not in front and "base_model" not in front
    assert "It started from `model.ckpt-20` (SHA-256 of the weights `abab" in text
    assert 'language: "ro"\n' in write(tmp_path / "card", run, language="ro")


@pytest.mark.parametrize(
    ("script", "task", "data"),
    [
        ("run_classifier", "rte", "glue/RTE/dev.tsv"),
        ("run_race", "race", "RACE/dev"),
        ("run_squad_v1", "squad_v1", "dev-v1.1.json"),
        ("run_squad_v2", "squad_v2", "dev-v2.0.json"),
    ],
)
def test_own_data_under_the_names_of_published_data_are_no_published_data(
    script, task, data, run, tmp_path
):
    write_run(run, task, script, data, digests={})
    front = write(tmp_path / "card", run).split("---\n")[1]
    assert f'name: "{data.rpartition("/")[2]}"\n      type: "own"\n' in front
    assert "datasets" not in front and "language" not in front and "/" not in front


def test_data_that_were_only_evaluated_are_not_those_of_training(run, tmp_path):
    write_run(run, digests={"eval_data": RTE["eval_data"]})
    front = write(tmp_path / "card", run).split("---\n")[1]
    assert 'type: "nyu-mll/glue"\n' in front and "datasets" not in front


@pytest.mark.parametrize("task", ["CoLA", "QNLI", "RTE", "SST-2", "STS-B", "WNLI"])
def test_published_files_are_known_by_their_sums(task, run, tmp_path, shared):
    digest = file_io.sha256(str(shared / "data" / "glue" / task / "dev.tsv"))
    write_run(run, "custom", data="x.tsv", digests={"eval_data": digest})
    front = write(tmp_path / "card", run).split("---\n")[1]
    assert f'name: "GLUE {task}"\n' in front and 'split: "validation"' in front


HTML = "<img src=x onerror=alert(1)>"


def test_what_a_record_holds_is_neither_html_nor_markdown(run, tmp_path):
    """Whoever sends a folder decides what its run.json says."""
    write_run(run)
    evil = f"a`{HTML}` [b](http://c) **d**\n# e | f\\|{HTML}\\"

    def spoil(record):
        record.update(task=evil, script=evil, best_metric=evil, git_commit=evil, status=evil)
        record.update(started=evil, ended=evil, versions={evil: evil})
        record["host"] |= {"processor": evil}
        record["flags"] = {
            evil: {"value": evil, "source": evil},
            "x": {"value": [evil], "source": ""},
        }
        digests = {"bytes": 1, "sha256": evil}
        record["inputs"] = {
            role: {"path": f"a/{HTML}", **digests}
            for role in (evil, "init_checkpoint", "eval_data", "train_data")
        }
        record["parameters"] = {evil: 1}

    run_record.update(str(run), spoil)
    run_record.append_evaluation(str(run), 10, "x", {evil: 1.0, "f1": 0.5})
    text = write(tmp_path / HTML.replace("/", ""), run, base_model=evil)
    assert text.count("&lt;img") > 20 and "\\u003cimg" in text
    body, mark = text.split("---\n", 2)[2].rsplit("\n", 2)[:2]
    assert mark.startswith("<!-- written by albert")
    assert set(re.findall("<[^>]*>?", body)) == {"<code>", "</code>"}
    assert "\n# e" not in body and "](" not in body.replace("\\](", "")
    for row in re.findall(r"^\|.*", body, re.M):  # As GitHub's Markdown finds the cells.
        assert re.fullmatch(r"(\|([^|\\]|\\.)*)+\|", row), row
        cells = re.findall(r"\|(?:[^|\\]|\\.)*", row)[:-1]
        assert len(cells) in (2, 4), row
    # Nothing is left unescaped that begins code, emphasis or a link.
    plain = re.sub(r"\\.|`[^`\n]*`|^```.*?^```", "", body, flags=re.S | re.M)
    assert not re.search(r"[`*\[]", plain)


def test_the_scores_are_those_of_the_checkpoint(run, tmp_path):
    write_run(run)
    cases = ((10, 0.75, "10, best of 2"), (20, 0.5, "20, one of 2"), (None, 0.75, "10, best of 2"))
    for step, score, said in cases:
        text = write(tmp_path / "card", run, step=step)
        assert f"| eval_accuracy | {score} |" in text and f"At step {said} checkpoints by" in text
    text = write(tmp_path / "card", run, step=15)
    assert "This checkpoint of step 15 was not evaluated." in text and "model-index" not in text


def test_averaged_weights_have_their_own_scores(run, tmp_path):
    """Those of the numbered checkpoint of the same step are of other weights."""
    write_run(run)

    def card():
        prefix, form = str(run / checkpoints.AVERAGE), export_checkpoints.FORM
        checkpoints.write_tensors(prefix, {weight_names.STEP: np.int64(10)})
        (tmp_path / "card").mkdir(exist_ok=True)
        model_card.write_for_checkpoint(str(tmp_path / "card"), prefix, form)
        return (tmp_path / "card" / "README.md").read_text(encoding="utf-8")

    text = card()
    assert "This checkpoint of step 10 was not evaluated." in text and "0.75" not in text
    scores = {"eval_accuracy": 0.625}
    run_record.append_evaluation(str(run), 10, checkpoints.AVERAGE, scores, run_record.AVERAGE)
    text = card()
    assert "\nAt step 10:\n" in text and "| eval_accuracy | 0.625 |" in text
    assert "0.75" not in text and "of 2 checkpoints" not in text


def test_a_readme_of_the_user_is_kept(run, tmp_path, caplog):
    card = tmp_path / "card" / "README.md"
    assert write(tmp_path / "card", run)
    write_run(run)
    text = write(tmp_path / "card", run)  # our own is replaced
    assert "GLUE RTE" in text
    for mine in ("# Mine\n", text.replace("ALBERT", "My ALBERT"), ""):
        card.write_text(mine)
        assert not write(tmp_path / "card", run)
        assert card.read_text() == mine
        assert f"{card} is kept" in caplog.text


def test_every_head_has_its_class():
    for head, (name, _) in huggingface.HEADS.items():
        use = model_card.transformers_form(head).use
        assert f" = AutoModel{name.removeprefix('Model')}.from_pretrained(folder)" in use


@pytest.mark.parametrize(
    ("task", "names"), [("sst-2", ["negative", "positive"]), ("x", ["0", "1"])]
)
def test_labels_are_named_in_words(run, tmp_path, task, names):
    settings = {"task_name": task, "labels": ["0", "1"]}
    (run / "model.json").write_text(json.dumps({"kind": "classifier", "settings": settings}))
    text = write(tmp_path / "card", run)
    rows = "".join(f"| {number} | {name} |\n" for number, name in enumerate(names))
    assert f"## Labels\n\n| id | label |\n| --- | --- |\n{rows}" in text


def test_where_the_model_abstains_is_known_without_a_record(run, tmp_path):
    decision = {"min_probability": 0.625, "max_error": 0.05}
    settings = {"task_name": "x", "labels": ["a", "b"], "decision": decision}
    description = {"kind": "classifier", "settings": settings}
    (run / "model.json").write_text(json.dumps(description))
    expected = "The model abstains where its top probability is below 0.6250, so that at most 5.00%"
    assert expected in write(tmp_path / "card", run)
    decision["min_probability"] = 0.0
    (run / "model.json").write_text(json.dumps(description))
    assert "abstains" not in write(tmp_path / "card", run)
