"""Reports: what they show, that they stand alone, and what they refuse."""

import html.parser
import json
import re
import sys

import pytest

from albert import report
from albert.experiments import (
    charts,
    glue_table,
    predictions,
    report_groups,
    runs,
    sweep_results,
)
from albert.experiments import report as report_page
from albert.io import file_io
from albert.tasks import race
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import null_threshold, outcomes
from albert.tasks.squad.features import SquadExample
from albert.tasks.squad.task import Answers
from albert.training import run_record, run_session
from tests.support import command_lines, run_folders
from tests.support.sources import ROOT

RATES, BATCHES = [1e-4, 1e-3, 1e-2], [16, 32]


def write_report(folder, *arguments):
    """The text of a report of the script."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    command_lines.run(report, f"--output={folder}/report.html", *arguments)
    text = (folder / "report.html").read_text(encoding="utf-8")
    check_stands_alone(text)
    return text


class Page(html.parser.HTMLParser):
    """Elements of a page; refuses what does not fit together."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.attributes = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.attributes.append((tag, attrs))
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def check_stands_alone(text):
    """Nothing from outside, a text for each figure, names once, small."""
    assert len(text.encode()) < 1_000_000
    assert not re.search(r"https?:|<script|<link|<img|@import|@font-face|url\((?!#)", text)
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    known = {f"#{name}" for name in page.ids}
    for tag, attrs in page.attributes:
        assert attrs.get("href", "#")[0] == "#" and attrs.get("href", "#")[1:] in ["", *page.ids]
        if tag == "svg" and attrs.get("aria-hidden") != "true":
            assert attrs["role"] == "img" and len(attrs["aria-label"]) > 20
    used = set(re.findall(r'url\((#[\w.-]+)\)|href="(#[\w.-]+)"', text))
    assert {name for pair in used for name in pair if name} <= known


def cells(text):
    """Rows of all tables, as texts."""
    rows = re.findall(r"<tr.*?</tr>", text, re.S)
    found = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows]
    return [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in found]


def test_a_run_with_its_curves_confusions_and_worst_examples(tmp_path):
    data = tmp_path / "test.tsv"
    lines = ["text\tlabel", "very <good>\tgood", "bad\tbad", "not bad\tgood", "awful\tbad"]
    data.write_text("\n".join(lines) + "\n")
    columns = {"text_column": "text", "label_column": "label"}
    run = run_folders.make_run(tmp_path / "run", data=data, **columns)
    (run / "predictions.tsv").write_text(
        "id\tprediction\tprobability_bad\tprobability_good\n"
        "0\tbad\t0.6\t0.4\n1\tbad\t0.9\t0.1\n2\tbad\t0.95\t0.05\n3\tbad\t0.8\t0.2\n"
    )
    text = write_report(tmp_path, f"--runs={run}")
    rows = cells(text)
    assert ["not bad", "good", "bad", "0.95"] in rows
    wrong = rows.index(["not bad", "good", "bad", "0.95"])
    assert rows[wrong + 1] == ["very &lt;good&gt;", "good", "bad", "0.6"]  # the less sure mistake
    assert "good was taken for bad 2" in text and "bad was taken for bad 2" in text
    assert ["learning_rate", "0.001", "command line"] in rows
    assert ["10", "0.76", "0.15"] in rows  # the best evaluation
    assert ["good", "100% 2", ""] in rows and ["bad", "100% 2", ""] in rows  # confusions
    assert text.count('title="good was taken for bad 2 of 2"') == 1
    for title in ("loss", "accuracy", "Learning rate", "Gradient norm", "Speed"):
        assert re.search(rf'aria-label="{title}: ', text), title
    assert "training from 1.01 to 0.11; evaluation from 0.3 to 0.15" in text
    assert "&#39;--text_column=a b&#39;" in text and "1,000, of which 500" in text
    assert f"predictions.tsv of this run next to {data}: 4 examples" in text
    assert "Worst examples of test.tsv" in text and "Best examples of test.tsv" in text
    best = [row for row in rows if row[:3] == ["bad", "bad", "bad"]]
    assert best == [["bad", "bad", "bad", "0.9"]]  # the surest right answer
    worst_first = [["good", "0", "0", "0", "2", "0", "never predicted"]]
    worst_first.append(["bad", "0.5", "1", "0.6667", "2", "4", ""])
    place = rows.index(["label", "precision", "recall", "F1", "support", "predicted", ""])
    assert rows[place + 1 : place + 3] == worst_first
    assert "Never predicted: good (0 of 2)." in text
    assert "has changed" not in text


@pytest.mark.slow
def test_data_that_changed_since_they_were_predicted_are_named(tmp_path):
    data = tmp_path / "test.tsv"
    data.write_text("text\tlabel\na\tgood\nb\tbad\n")
    run = run_folders.make_run(
        tmp_path / "run", data=data, text_column="text", label_column="label"
    )
    probabilities = "prediction\tprobability_bad\tprobability_good"
    (run / "predictions.tsv").write_text(
        f"id\t{probabilities}\n0\tbad\t0.6\t0.4\n1\tbad\t0.6\t0.4\n"
    )
    assert "has changed" not in write_report(tmp_path, f"--runs={run}")
    data.write_text("text\tlabel\nb\tbad\na\tgood\n")
    text = write_report(tmp_path, f"--runs={run}")
    assert f'<p class="warning">{data} has changed since it was predicted' in text
    record = json.loads((run / "run.json").read_text())
    record["inputs"]["predict_data"]["sha256"] = None
    run_folders.write_json(run / "run.json", record)
    text = write_report(tmp_path, f"--runs={run}")
    assert f"run.json has no SHA-256 of {data}" in text


@pytest.mark.slow
def test_predictions_of_a_later_session_are_paired_with_its_data(tmp_path):
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text(f"text\tlabel\nof {name}\tgood\n")
    columns = {"text_column": "text", "label_column": "label"}
    run = run_folders.make_run(tmp_path / "run", data=tmp_path / "a.tsv", **columns)
    path = str(tmp_path / "b.tsv")
    recorder = run_session.Recorder("run_classifier", [], {}, {"predict_data": (path, [path])})
    with recorder.session(str(run), ["predict"], {}):
        (run / "predictions.tsv").write_text(
            "id\tprediction\tprobability_bad\tprobability_good\n0\tbad\t0.6\t0.4\n"
        )
    text = write_report(tmp_path, f"--runs={run}")
    assert ["of b.tsv", "good", "bad", "0.6"] in cells(text) and "has changed" not in text
    assert f"predictions.tsv of this run next to {path}: 1 example" in text
    assert "are of the checkpoint" not in text

    def change(record):
        record["sessions"][-1]["predicted"] = {"checkpoint": "model.ckpt-5", "step": 5}

    run_record.update(str(run), change)
    text = write_report(tmp_path, f"--runs={run}")
    assert (
        "The predictions are of the checkpoint of step 5, but the result is that of step 1" in text
    )


def test_race_that_changed_since_it_was_predicted_is_named(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "RACE" / "test" / "high"
    folder.mkdir(parents=True)
    files = [folder / "1.txt", folder / "2.txt"]
    for path in files:
        question = {"id": path.name, "article": "x", "questions": ["Who?"], "answers": ["A"]}
        run_folders.write_json(path, {**question, "options": [["a", "b", "c", "d"]]})
    monkeypatch.chdir(tmp_path)
    found = race.files("data", "test", high_only=True)
    assert [tmp_path / path for path in found] == files
    recorder = run_session.Recorder(
        "run_race",
        [],
        {
            n: {"value": v, "source": "x"}
            for n, v in {"data_dir": "data", "high_only": True}.items()
        },
        {"predict_data": ("data/RACE", found)},
    )
    (tmp_path / "run").mkdir()
    with recorder.session(str(tmp_path / "run"), ["predict"], {}):
        pass
    lines = [f"{path.name}#1\tB\t0.1\t0.7\t0.1\t0.1\n" for path in files]
    names = "\t".join(f"probability_{letter}" for letter in "ABCD")
    (tmp_path / "run" / "predictions.tsv").write_text(f"id\tprediction\t{names}\n" + "".join(lines))
    monkeypatch.chdir(tmp_path / "run")  # reports are made anywhere
    for many in (False, True):
        record = json.loads((tmp_path / "run" / "run.json").read_text())
        if many:  # more files than are named
            del record["inputs"]["predict_data"]["files"]
            run_folders.write_json(tmp_path / "run" / "run.json", record)
        text = write_report(tmp_path, f"--runs={tmp_path}/run")
        assert "A was taken for B 2 of 2" in text and "has changed" not in text
    files[0].write_text(files[0].read_text().replace("Who?", "Why?"))
    assert "data/RACE has changed since" in write_report(tmp_path, f"--runs={tmp_path}/run")


@pytest.mark.slow
def test_scores_are_called_what_they_are(tmp_path):
    for seed in (1, 2):
        folder = tmp_path / "out" / f"r{seed}"
        run_folders.make_run(folder, seed=seed, baseline=0.77, test=0.625, data="test.tsv")
    text = write_report(tmp_path, f"--runs={tmp_path}/out/r1")
    name, remark = "eval_accuracy (dev, best of 2 checkpoints)", "no better than a constant answer"
    assert f"<dd>{name} 0.76 at step 10; {remark} (0.7700)</dd>" in text
    assert "<dd>eval_accuracy (test) 0.625 at step 10 of test.tsv</dd>" in text
    rows = cells(write_report(tmp_path, f"--runs={tmp_path}/out/r*"))
    place = rows.index(["run", name, "eval_accuracy (test)", "seed", "step", "status", "took"])
    assert rows[place + 1][:6] == ["r2", "0.77", "0.625", "2", "10", f"done; {remark} (0.7700)"]
    judged = {"told": {"step": 5}, "judgements": [], "signs": {}}
    run_folders.write_json(tmp_path / "out" / "r1" / "stuck.json", judged)
    assert runs.read_run(str(tmp_path / "out" / "r1"), "r1").remarks[0] == "stuck"


def test_a_run_that_failed_says_so_and_needs_no_curves(tmp_path):
    run = run_folders.make_run(tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record.update(status="failed", message="out of memory", result=None, parameters=None)
    run_folders.write_json(run / "run.json", record)
    (run / "metrics.jsonl").unlink()
    assert predictions.find_file(runs.read_run(str(run), "run")) is None
    text = write_report(tmp_path, f"--runs={run}")
    assert "This run is failed: out of memory" in text and "<svg" not in text


@pytest.mark.slow
def test_regression_shows_numbers_against_labels(tmp_path):
    data = tmp_path / "test.jsonl"
    data.write_text('{"text": "a", "label": 1.5}\n{"text": "b", "label": 4.0}\n')
    columns = {"text_column": "text", "label_column": "label"}
    run = run_folders.make_run(tmp_path / "run", data=data, metric="pearson", **columns)
    (run / "predictions.tsv").write_text("id\tprediction\n0\t1.0\n1\t0.5\n")
    text = write_report(tmp_path, f"--runs={run}")
    assert ["b", "4", "0.5", ""] in cells(text)
    assert "2 examples, label against prediction" in text


def write_squad(path, asked, context):
    """A SQuAD file of (id, question, right answers)."""
    questions = [
        {"id": key, "question": question, "answers": [{"text": t, "answer_start": 0} for t in gold]}
        for key, question, gold in asked
    ]
    content = {"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    return run_folders.write_json(path, content)


def write_answers(run, best, odds, threshold):
    """The files of answers of SQuAD 2.0; each best text has the probability 0.7."""
    nbest = {key: [{"text": text, "probability": 0.7}] for key, text in best.items()}
    final = {key: "" if odds[key] >= threshold else text for key, text in best.items()}
    run_folders.write_json(run / "nbest_predictions.json", nbest)
    run_folders.write_json(run / "predictions.json", final)
    run_folders.write_json(run / "null_odds.json", odds)
    content = {"null_score_diff_threshold": threshold, "step": 10, "predict_file": "dev.json"}
    run_folders.write_json(run / "null_score_diff_threshold.json", content)


@pytest.mark.slow
def test_squad_shows_the_threshold_and_the_worst_answers(tmp_path):
    asked = [("a", "Who?", ["Ann"]), ("b", "Where?", ["Rome"]), ("c", "Why?", [])]
    data = write_squad(tmp_path / "dev.json", asked, "Ann lived in Rome & Paris. " + "x" * 400)
    run = run_folders.make_run(tmp_path / "run", "run_squad_v2", "squad_v2", "f1", data=data)
    best = {"a": "Ann", "b": "Paris", "c": "Ann"}
    write_answers(run, best, {"a": -2.0, "b": -1.0, "c": 3.0}, 0.0)
    text = write_report(tmp_path, f"--runs={run}")
    # Unanswered: one of three is right. With the first answer two are, with the last one.
    assert "33.33 with nothing answered and 33.33 with everything; it is best, 66.67, just" in text
    assert "just above -2.000. Used: 0.000." in text
    (worst,) = [row for row in cells(text) if row[:1] == ["Where?"]]
    # The span has 0.7 if there is an answer, of which the null odds say 1 / (1 + exp(-1)).
    assert worst[2:] == ["Rome", "Paris", "0", "-1", "0.5117"] and "Rome &amp; Paris" in worst[1]
    assert not [row for row in cells(text) if row[:1] == ["Why?"]]
    assert f"predictions.json of this run next to {data}: 3 examples" in text
    assert "Worst answers to dev.json" in text
    other = {"null_score_diff_threshold": 0.0, "step": 10, "sha256": "0" * 64}
    run_folders.write_json(run / "null_score_diff_threshold.json", other)
    assert "Used:" not in write_report(tmp_path, f"--runs={run}")  # a threshold of other data


@pytest.mark.slow
def test_worst_answers_are_sorted_by_the_probability_of_what_was_predicted(tmp_path):
    asked = [(key, f"{key}?", ["Rome"]) for key in "abc"]
    data = write_squad(tmp_path / "dev.json", asked, "Ann lived in Rome.")
    run = run_folders.make_run(tmp_path / "run", "run_squad_v2", "squad_v2", "f1", data=data)
    write_answers(run, dict.fromkeys("abc", "Ann"), {"a": 0.5, "b": 4.0, "c": -2.0}, -1.0)
    rows = [row for row in cells(write_report(tmp_path, f"--runs={run}")) if row[0][1:] == "?"]
    assert [(row[0], *row[3:]) for row in rows] == [
        ("b?", "(no answer)", "0", "4", "0.982"),  # not 0.7, of a text that was discarded
        ("a?", "(no answer)", "0", "0.5", "0.6225"),
        ("c?", "Ann", "0", "-2", "0.6166"),
    ]


@pytest.mark.parametrize("threshold", [-7.0, 0.0, 9.0])
def test_the_threshold_curve_has_steps_and_both_ends_and_the_threshold_used(threshold, monkeypatch):
    gold = {"a": ["Rome"], "b": [], "c": ["Ann"], "d": ["x"]}
    texts = {"a": "Rome", "b": "Ann", "c": "Ann", "d": ""}
    odds = {"a": -3.0, "b": 2.0, "c": 2.0, "d": 1000000.0}  # the last has no text to look in
    asked = [SquadExample(key, "?", "Rome, Ann", answers=tuple(gold[key])) for key in gold]
    nbest = {key: [{"text": text, "probability": 1.0}] for key, text in texts.items()}
    rows = list(outcomes.question_outcomes(asked, Answers(texts, nbest, odds), texts))
    places, exact, f1 = predictions.threshold_curve(rows)
    assert places == [-3.0, 2.0]
    assert exact == f1 == [25.0, 50.0, 50.0]  # nothing is answered; a; all
    for at, expected in ((-4.0, 25.0), (-3.0, 25.0), (-2.9, 50.0), (2.0, 50.0), (3.0, 50.0)):
        final = null_threshold.apply(texts, odds, at)
        assert squad_metrics.scores_v2(gold, final)["f1"] == expected
        assert f1[sum(place < at for place in places)] == expected
    axes = pytest.importorskip("matplotlib.axes")
    drawn, plot = [], axes.Axes.plot

    def spied(self, xs, ys, *args, **settings):
        drawn.append((list(xs), list(ys), settings.get("drawstyle")))
        return plot(self, xs, ys, *args, **settings)

    monkeypatch.setattr(axes.Axes, "plot", spied)
    svg = charts.threshold_curve(places, exact, f1, threshold)
    assert "25.00 with nothing answered and 50.00 with everything" in svg
    for xs, ys, style in drawn:
        assert style == "steps-pre" and ys == [25.0, 25.0, 50.0, 50.0]
        assert xs[1:-1] == places and xs[0] < min(-3.0, threshold) and xs[-1] > max(2.0, threshold)


def give_up(run, *seeds):
    """Writes that attempts of a run were given up, with lines of training and evaluation."""
    given_up = []
    for number, seed in enumerate(seeds, 1):
        folder = run / f"attempt_{number}"
        folder.mkdir()
        lines = [
            {"kind": "train", "step": step, "loss": 0.7 + seed / step, "learning_rate": 0.5}
            for step in (1, 2, 3)
        ]
        lines.append({"kind": "eval", "step": 3, "eval_accuracy": 0.5 + seed / 100})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
        given_up.append(
            {
                "seed": seed, "step": 3, "share": 0.25, "folder": folder.name,
                "message": f"learns <nothing> at {seed}",
            }
        )  # fmt: skip
    run_folders.write_json(run / "attempts.json", {"given_up": given_up})


@pytest.mark.slow
def test_attempts_that_were_given_up_have_their_curves(tmp_path):
    run = run_folders.make_run(tmp_path / "run", seed=3)
    give_up(run, 1, 2)
    text = write_report(tmp_path, f"--runs={run}")
    said = "seed 2, at step 3 (25%): learns &lt;nothing&gt; at 2"
    assert f"<dt>attempt_2</dt><dd>{said}</dd>" in text
    assert (
        "Training loss: attempt_1, seed 1 from 1.7 to 1.033; attempt_2, seed 2 from 2.7 to 1.367; "
        "run from 1.03 to 0.13, over" in text
    )
    assert "Training loss of 3 runs" not in text and "Training loss of 3 attempts" in text
    assert re.search("accuracy: attempt_1, seed 1 from 0.51 to 0.51; .*; run from 0.6", text)


def test_a_run_whose_attempts_were_all_given_up_says_why_once(tmp_path):
    run = run_folders.make_run(tmp_path / "run", seed=3)
    give_up(run, 1, 2)
    (run / "metrics.jsonl").unlink()  # moved with the attempts
    record = json.loads((run / "run.json").read_text())
    message = "none of 2 attempts (seeds 1 to 2) learns: learns <nothing> at 2 Raise num_restarts"
    record.update(status="failed", message=message)
    run_folders.write_json(run / "run.json", record)
    text = write_report(tmp_path, f"--runs={run}")
    assert text.count("learns &lt;nothing&gt;") == 1
    assert "<dt>attempt_1</dt><dd>seed 1, at step 3 (25%)</dd>" in text
    # The result that was noted last is of an attempt, not of this run.
    assert "<dt>result</dt>" not in text and runs.read_run(str(run), "x").score is None
    assert "Training loss of 2 attempts" in text


@pytest.mark.slow
def test_every_type_of_entity_has_its_curve(tmp_path):
    run = run_folders.make_run(tmp_path / "run", "run_token_classifier", "token", "f1")
    kinds = [f"K_{number}" for number in range(10)]
    for step in (5, 10):
        scores = {
            "eval_accuracy": 0.9,
            "eval_loss": 0.1,
            "f1": 0.5,
            "recall": 0.5,
            "precision": 0.5,
        }
        for number, kind in enumerate(kinds):
            names = ("precision", "recall", "f1")
            scores |= {f"{name}_{kind}": (number + step) / 100 for name in names}
        run_record.append_evaluation(str(run), step, f"{run}/model.ckpt-{step}", scores)
    text = write_report(tmp_path, f"--runs={run}")
    for name in ("precision", "recall", "f1"):
        for number, kind in enumerate(kinds):
            part = f"{1 + number // 8 * 8} to {min(10, 8 + number // 8 * 8)} of 10"
            start, end = f"{(number + 5) / 100:.4g}", f"{(number + 10) / 100:.4g}"
            said = f'{name} by type of entity, {part}: [^"]*{kind} from {start} to {end}'
            assert re.search(f'aria-label="{said}', text), (name, kind)
    for title in ("loss", "accuracy", "f1", "recall", "precision"):
        assert f'aria-label="{title}: ' in text, title


@pytest.mark.slow
def test_curves_that_are_left_out_are_named(tmp_path):
    run = run_folders.make_run(tmp_path / "run", "run_squad_v2", "squad_v2", "f1")
    scores = {"f1": 0.5} | {f"score_{number}": 0.1 for number in range(9)}
    run_record.append_evaluation(str(run), 10, f"{run}/model.ckpt-10", scores)
    assert "Only in the table of evaluations: score_" in write_report(tmp_path, f"--runs={run}")


@pytest.mark.slow
def test_several_runs_show_what_differs(tmp_path):
    for seed, rate in ((1, 1e-3), (2, 1e-3), (3, 3e-3)):
        run_folders.make_run(tmp_path / "out" / f"r{seed}", seed=seed, learning_rate=rate)
    text = write_report(tmp_path, f"--runs={tmp_path}/out/r*")
    rows = cells(text)
    runs_below = rows[next(i for i, row in enumerate(rows) if row[0] == "run") :]
    assert [row[:5] for row in runs_below if row[0] in ("r1", "r2", "r3")] == [
        ["r3", "0.78", "0.003", "3", "10"],
        ["r2", "0.77", "0.001", "2", "10"],
        ["r1", "0.76", "0.001", "1", "10"],
    ]
    # Each run has its place in the page, with links to its neighbors.
    assert '<a href="#run-3">r3</a></td>' in text and '<summary id="run-3">r3</summary>' in text
    assert '<a href="#runs">table of runs</a> · <a href="#run-2">r2</a></p>' in text
    # The others differ only in their seed: 0.765 ± 12.7 · 0.005 at the end.
    assert (
        "r3 from 0.655 to 0.78; learning_rate=0.001 (2 seeds) from 0.64 to 0.765 (0.7015 to "
        "0.8285), over the steps" in text
    )


@pytest.mark.slow
def test_runs_over_seeds_are_taken_from_their_folder(tmp_path):
    folder = run_folders.make_seeds(tmp_path / "out", (1, 2))
    content = json.loads((folder / "seeds.json").read_text())
    lost = {"seed": 3, "folder": "seed_3", "status": "failed", "restarts": 0}
    content["runs"].append({**lost, "result": None, "step": None})
    run_folders.write_json(folder / "seeds.json", {**content, "failures": 1})
    give_up(folder / "seed_2", 2)
    text = write_report(tmp_path, f"--runs={folder}")
    assert "eval_accuracy: mean 0.7650, deviation 0.0071, best 0.7700; 1 of 3 runs failed" in text
    rows = cells(text)
    (side,) = [row for row in rows if row[0] == "out"]
    assert side[1:4] == ["0.7650", "0.7015\u00a0to\u00a00.8285", "2 of 3"]
    assert "1 failed of 3 runs left out" in side[4] and "1 restarts with other seeds" in side[4]
    place = next(place for place, row in enumerate(rows) if row[0] == "run")
    assert rows[place][-1] == "restarts" and rows[place + 1][0] == "seed_2"
    assert rows[place + 1][-1] == "1"
    (read,) = report_groups.read([str(folder)])
    found = runs.recorded([read])
    assert [attempt["message"] for attempt in found[1].given_up] == ["learns <nothing> at 2"]
    assert [run.name for run in found] == ["seed_1", "seed_2"]
    assert runs.differing_flags(found) == ["seed"]


@pytest.mark.slow
def test_a_sweep_with_seeds_and_failures(tmp_path):
    def score(point, seed):
        if point["learning_rate"] == 1e-2:
            return None
        return round(0.7 + point["learning_rate"] * 100 + 0.02 * seed - point["batch"] / 1000, 4)

    parameters = {"learning_rate": RATES, "batch": BATCHES, "name": ["<b>"]}
    sweep = run_folders.make_sweep(tmp_path / "sweep", parameters, score, seeds=(1, 2))
    text = write_report(tmp_path, f"--runs={sweep}/")
    rows = cells(text)
    (row,) = [row for row in rows if row[0] == "trial_0004 to 5"]
    assert row[1] == "0.8140" and row[3:8] == ["0.001", "16", "&lt;b&gt;", "0.0141", "2 of 2"]
    assert row[-2:] == ["best", "done"]
    assert "eval_accuracy 0.8140 ± 0.0141 over 2 seeds with learning_rate=0.001" in text
    assert 'title="learning_rate 0.0001, batch 32: 0.708">0.708' in text  # of the heat map
    # Two settings: their effects, the larger one first, and no parallel coordinates.
    assert ["learning_rate", "0.09", "0.001", "0.806", "0.0001", "0.716"] in rows
    place = rows.index(["learning_rate", "0.09", "0.001", "0.806", "0.0001", "0.716"])
    assert rows[place + 1][0] == "batch" and "Parallel coordinates" not in text
    assert "Mean eval_accuracy by learning_rate: 0.0001 0.716; 0.001 0.806." in text
    assert ["trial_0008", "error: &lt;out&gt; of memory"] in rows
    assert "8 done, 4 failed" in text
    found = sweep_results.read_sweep(str(sweep))
    assert sweep_results.grid_of(found, ["batch", "learning_rate"])[1][1] == pytest.approx(
        [0.814, 0.798]
    )
    with pytest.raises(file_io.InputError, match="heat_map: 'name' is not a parameter"):
        write_report(tmp_path, f"--runs={sweep}", "--heat_map=batch,name")
    with pytest.raises(file_io.InputError, match="is a whole sweep: report it alone"):
        write_report(tmp_path, f"--runs={sweep},{sweep}/trial_0000")


@pytest.mark.slow
def test_points_that_were_drawn_are_shown_one_by_one(tmp_path):
    pytest.importorskip("matplotlib")

    def score(point, seed):
        return point["a"]

    sweep = run_folders.make_sweep(tmp_path / "s", {"a": [1, 2], "b": [0.5]}, score)
    assert sweep_results.axes_of(sweep_results.read_sweep(str(sweep))) == ["a"]
    values = {"a": [1.5, 2.5, 300.5], "b": [0.01, 0.2, 3.0]}
    sweep = sweep_results.read_sweep(str(run_folders.make_sweep(tmp_path / "t", values, score)))
    sweep.summary.update(points=sweep.summary["points"][::4], best=2)  # as of a search
    assert sweep_results.grid_of(sweep, ["a", "b"]) is None
    text = report_page.sweep_page(sweep)
    check_stands_alone(text)
    assert "eval_accuracy by a and b of 3 points" in text


def test_a_glue_sweep_has_the_published_scores_beside_it(tmp_path):
    folder = run_folders.make_sweep(tmp_path / "glue", {"x": [1]}, lambda *_: 0.9)
    (folder / "trial_0000").rename(folder / "SST-2")
    text = (folder / "sweep.json").read_text().replace("trial_0000", "SST-2")
    (folder / "sweep.json").write_text(text)
    row = {"task": "SST-2", "metric": "eval_accuracy", "score": 0.9, "state": "done"}
    seeds = {"deviation": 0.01, "scores": {"1": 0.89, "2": 0.91}, "num_seeds": 3}
    other = {"task": "RTE", "metric": "eval_accuracy", "score": None, "state": "not run"}
    summary = {"tasks": [{**row, **seeds}, other], "average": 0.9, "num_averaged": 1}
    run_folders.write_json(folder / glue_table.NAME, summary)
    rows = cells(write_report(tmp_path, f"--runs={folder}"))
    assert rows[1][:7] == ["SST-2", "eval_accuracy", "90", "1", "2 of 3", "done", "92.9"]
    assert rows[2][:6] == ["RTE", "eval_accuracy", "", "", "", "not run"]
    guide = (ROOT / "docs" / "recipes.md").read_text()
    for name, scores in report_page.PUBLISHED.items():
        if name.endswith(" v2"):
            row = re.search(rf"^\| {name[:-3]} \|(.*)\|$", guide, re.M).group(1).split("|")
            assert [float(cell) for cell in row[2:4]] == [scores["MNLI"], scores["SST-2"]]


@pytest.mark.slow
def test_a_sweep_over_a_range_and_texts(tmp_path):
    pytest.importorskip("matplotlib")
    rates = [1e-5, 1e-4, 1e-3]
    values = {"rate": rates, "optimizer": ["adamw", "lamb"], "switch": [True, False]}
    folder = run_folders.make_sweep(tmp_path / "s", values, lambda point, _: point["rate"])
    sweep = sweep_results.read_sweep(str(folder))
    sweep.plan["parameters"]["rate"] = {"low": 1e-5, "high": 1e-3, "log": True}
    for axes in (["rate", "optimizer"], ["optimizer", "rate"], ["switch", "rate"]):
        text = report_page.sweep_page(sweep, axes)
        check_stands_alone(text)
        assert f"eval_accuracy by {axes[0]} and {axes[1]} of 12 points" in text
        assert "lamb" in text and "True" in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "is not the output folder of a run or a sweep: it has no run.json"),
        (lambda folder: (folder / "run.json").write_text("{"), "run.json is not valid JSON"),
        (lambda folder: (folder / "run.json").write_text("{}"), "is not the record of a run"),
        (lambda folder: (folder / "sweep.json").write_text("{}"), "not the journal of a sweep"),
        (
            lambda folder: (folder / "sweep.json").write_text(
                '{"format": 1, "plan": {}, "trials": []}'
            ),
            "sweep.json does not hold what was expected: KeyError",
        ),
        (
            lambda folder: (folder / "seeds.json").write_text("[]"),
            "seeds.json: expected object, found list",
        ),
        (lambda folder: run_folders.make_run(folder / "b", "run_race", "race"), "runs of one task"),
    ],
)
def test_folders_that_cannot_be_reported_are_named(make, message, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    make(folder)
    names = f"{folder}"
    if (folder / "b").exists():
        names = f"{run_folders.make_run(folder / 'a')},{folder}/b"
    with pytest.raises(file_io.InputError, match=message) as caught:
        write_report(tmp_path, f"--runs={names}")
    assert str(folder) in str(caught.value) and not (tmp_path / "report.html").exists()


# --- numbers of files ---------------------------------------------------------------------------


def numbers_below(rows, header):
    """{first cell: other cells by name of the column} of the table whose header begins so."""
    place = next(i for i, row in enumerate(rows) if row[: len(header)] == header)
    found = {}
    for row in rows[place + 1 :]:
        if len(row) != len(rows[place]) or row[0] in ("run", "step", "setting"):
            break
        found[row[0]] = dict(zip(rows[place], row, strict=True))
    return found


def test_numbers_of_a_run_are_those_of_its_files(tmp_path):
    run = run_folders.make_run(tmp_path / "run", cost=COST)
    counts = [
        {"name": "good", "labels": 40, "predictions": 30, "right": 27},
        {"name": "bad", "labels": 60, "predictions": 70, "right": 57},
    ]
    record = json.loads((run / "run.json").read_text()) | {"classes": counts}
    run_folders.write_json(run / "run.json", record)
    text = write_report(tmp_path, f"--runs={run}")
    rows = cells(text)
    shown = numbers_below(rows, ["label", "precision"])
    for row in counts:
        precision, recall = row["right"] / row["predictions"], row["right"] / row["labels"]
        f1 = 2 * precision * recall / (precision + recall)
        own = shown[row["name"]]
        assert [own[name] for name in ("precision", "recall", "F1", "support", "predicted")] == [
            *(f"{x:.4g}" for x in (precision, recall, f1)), str(row["labels"]),
            str(row["predictions"]),
        ]  # fmt: skip
    assert "84.0% of 100 texts" in text  # (27 + 57) / 100
    shown = numbers_below(rows, ["step", "eval_accuracy"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert len(evaluations) == len(shown) == 2
    for line in evaluations:
        own = shown[str(line["step"])]
        assert float(own["eval_accuracy"]) == pytest.approx(line["eval_accuracy"], rel=1e-3)
        assert float(own["eval_loss"]) == pytest.approx(line["eval_loss"], rel=1e-3)
    result = record["result"]
    assert f"{result['eval_accuracy']:.6g} at step {result['step']}" in text


def test_evaluations_are_shown_by_step(tmp_path):
    folder = run_folders.make_run(tmp_path / "run")
    rows = [row for row in run_record.read_metrics(str(folder)) if row["kind"] == "eval"]
    first = {name: x for name, x in rows[0].items() if name not in ("kind", "step", "checkpoint")}
    run_record.append_evaluation(str(folder), rows[0]["step"], "model.ckpt-best", first)
    assert [r["step"] for r in run_record.read_metrics(str(folder)) if r["kind"] == "eval"] == [
        10,
        5,
    ]
    page = write_report(tmp_path, f"--runs={folder}")
    table = page[page.index("Evaluations</h2>") :]
    assert re.findall(r"<tr[^>]*>\s*<td[^>]*>(\d+)</td>", table)[:2] == ["5", "10"]


def test_numbers_of_a_sweep_are_those_of_its_files(tmp_path):
    def score(point, seed):
        return 0.5 + point["rate"] + 0.013 * seed

    folder = run_folders.make_sweep(tmp_path / "s", {"rate": [0.1, 0.2]}, score, seeds=(1, 2, 3))
    summary = sweep_results.read_sweep(str(folder)).summary
    shown = numbers_below(cells(write_report(tmp_path, f"--runs={folder}")), ["trial"])
    assert list(shown) == [summary["points"][place]["name"] for place in (1, 0)]  # best first
    for place, point in enumerate(summary["points"]):
        own, about = shown[point["name"]], summary["comparison"]["points"][place]
        assert list(own)[1].startswith("eval_accuracy")  # the first number
        assert own["eval_accuracy"] == f"{point['mean']:.4f}"
        low, high = about["interval"]
        assert own["interval of 95%"] == f"{low:.4f}\u00a0to\u00a0{high:.4f}"
        assert own["deviation"] == f"{point['deviation']:.4f}"


# --- axes, seeds and costs ----------------------------------------------------------------------

COST = {
    "steps": 10, "examples": 320, "tokens": 5000, "flop": 10**9, "seconds": 30.0,
    "processor_seconds": 55.5, "peak_memory": 10**9,
}  # fmt: skip


@pytest.mark.slow
def test_curves_are_drawn_on_the_axis_that_is_asked_for(tmp_path):
    for seed in (1, 2, 3):
        run_folders.make_run(tmp_path / "out" / f"r{seed}", seed=seed, cost=COST)
    one = write_report(tmp_path, f"--runs={tmp_path}/out/r1", "--axis=flop")
    assert "over the FLOP." in one
    text = write_report(tmp_path, f"--runs={tmp_path}/out/r*", "--axis=minutes")
    assert "over the minutes of training." in text
    rows = cells(text)
    assert ["5,000" in row for row in rows if row[0] == "r1"] == [True]
    header = next(row for row in rows if row[0] == "run")
    assert header[3:7] == ["seconds", "processor seconds", "FLOP", "tokens"]
    assert header[1].startswith("eval_accuracy")
    said = "axis=words: no run has recorded its words; expected one of steps, examples, tokens"
    with pytest.raises(file_io.InputError, match=said):
        write_report(tmp_path, f"--runs={tmp_path}/out/r*", "--axis=words")


def test_runs_without_the_unit_of_the_axis_are_named(tmp_path):
    run_folders.make_run(tmp_path / "out" / "known", seed=1, cost=COST)
    run_folders.make_run(tmp_path / "out" / "old", seed=1, learning_rate=0.5)
    text = write_report(tmp_path, f"--runs={tmp_path}/out/*", "--axis=tokens")
    assert text.count("Not drawn: old, which has not recorded its tokens.") == 1
    assert "Not drawn against cost: old, without FLOP." in text


def _shares(first, first_right, second, second_right):
    return [f"{first} ({first_right}% of runs right)", f"{second} ({second_right}% of runs right)"]


@pytest.mark.slow
def test_a_side_against_another(tmp_path):
    data = tmp_path / "test.tsv"
    count = 60
    rows = [
        f"text number {number} is <b>\t{'good' if number % 2 else 'bad'}\n"
        for number in range(count)
    ]
    data.write_text("text\tlabel\n" + "".join(rows))
    columns = {"text_column": "text", "label_column": "label", "data": data}
    for name, wrong, scores in (("a", 20, (0.6, 0.62, 0.61)), ("b", 8, (0.7, 0.73, 0.71))):
        rate = 0.1 if name == "a" else 0.2
        folder = run_folders.make_seeds(
            tmp_path / name,
            scores=scores,
            learning_rate=rate,
            cost=COST | {"flop": 10**9 * wrong},
            **columns,
        )
        for seed in (1, 2, 3):
            lines = ["id\tprediction\tprobability_bad\tprobability_good\n"]
            for number in range(count):
                is_wrong = number < wrong and (name, number) != ("a", 5)
                right = "good" if number % 2 else "bad"
                guess = {"good": "bad", "bad": "good"}[right] if is_wrong else right
                lines.append(f"{number}\t{guess}\t0.5\t0.5\n")
            (folder / f"seed_{seed}" / "predictions.tsv").write_text("".join(lines))
    text = write_report(tmp_path, f"--compare={tmp_path}/a,{tmp_path}/b")
    found = cells(text)
    (over_seeds,) = [row for row in found if row[0] == "seeds"]
    assert over_seeds[1] == "+0.1033" and "Over seeds, b is better by 0.1033." in text
    assert "Over examples, b is better by" in text
    gained = ["8", "text number 8 is &lt;b&gt;", "bad", *_shares("good", 0, "bad", 100)]
    assert gained in found
    lost = ["5", "text number 5 is &lt;b&gt;", "good", *_shares("good", 100, "bad", 0)]
    assert lost in found
    assert "12 texts that most runs of b got right and most of a wrong" in text
    assert "1 text that most runs of a got right and most of b wrong" in text
    assert "eval_accuracy against cost in FLOP: b 0.7133 at 8e+09; a 0.61 at 2e+10." in text
    assert "a (3 seeds) from" in text and "<h1>b against a</h1>" in text


def test_what_cannot_be_a_comparison_is_named(tmp_path):
    run = run_folders.make_run(tmp_path / "run")
    for arguments, message in (
        ([], "--runs or --compare must be given"),
        (
            [f"--compare={run}", f"--runs={run}"],
            "give --compare or --runs and --heat_map, not both",
        ),
        ([f"--compare={run}"], "compare: expected two sides, found 1 "),
    ):
        with pytest.raises(file_io.InputError, match=message):
            write_report(tmp_path, *arguments)


def write_metrics(run, name, values):
    """Puts other values into lines of ``metrics.jsonl``."""
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for number, value in values.items():
        rows[number][name] = value
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_steps_of_many_digits_are_refused(tmp_path):
    run = run_folders.make_run(tmp_path / "run")
    write_metrics(run, "step", {9: 10**400})
    with pytest.raises(file_io.InputError, match=r"line 10\.step: the number has 401 digits"):
        write_report(tmp_path, f"--runs={run}")
    run = run_folders.make_run(tmp_path / "result")
    record = json.loads((run / "run.json").read_text())
    record["result"]["step"] = 10**400
    run_folders.write_json(run / "run.json", record)
    with pytest.raises(file_io.InputError, match=r"run\.json: result\.step: the number has 401"):
        write_report(tmp_path, f"--runs={run}")


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_numbers_at_the_end_of_their_range_are_drawn(tmp_path):
    run = run_folders.make_run(tmp_path / "run")
    for name in ("loss", "learning_rate"):
        write_metrics(run, name, {3: 1e308, 5: -1e308})
    write_metrics(run, "eval_accuracy", {-1: 1e308})
    assert "1e+308" in write_report(tmp_path, f"--runs={run}")
    data = tmp_path / "test.tsv"
    data.write_text("text\tlabel\na\t1e308\nb\t-1e308\n")
    columns = {"text_column": "text", "label_column": "label"}
    run = run_folders.make_run(tmp_path / "numbers", data=data, metric="pearson", **columns)
    (run / "predictions.tsv").write_text("id\tprediction\n0\t1.0\n1\t0.5\n")
    assert "2 examples, label against" in write_report(tmp_path, f"--runs={run}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\n0\tgood\n", "line 2: expected the columns id and prediction, found a, b"),
        ("prediction\ngood\n", "line 2: expected the columns id and prediction, found prediction"),
        ("id\tprediction\n0\tgood\n", "line 2: expected a number, found 'good'"),
        ("id\tprediction\tprobability_good\n0\tgood\tx\n", "line 2: expected a number, found 'x'"),
    ],
)
def test_other_files_of_predictions_are_named(tmp_path, text, message):
    data = tmp_path / "test.tsv"
    data.write_text("text\tlabel\nvery good\tgood\n")
    columns = {"text_column": "text", "label_column": "label"}
    run = run_folders.make_run(tmp_path / "run", data=data, **columns)
    (run / "predictions.tsv").write_text(text)
    with pytest.raises(file_io.InputError, match=r"run/predictions\.tsv.*" + re.escape(message)):
        write_report(tmp_path, f"--runs={run}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "final", "odds", "message"),
    [
        ([], {"a": "x"}, {}, "nbest_predictions.json: expected object, found list"),
        ({"a": [{"text": "x"}]}, {"a": "x"}, {}, "there is no 'probability'"),
        ({"a": [{"probability": 1}]}, {"a": "x"}, {}, "nbest_predictions.json.a[0]: there is no"),
        ({"a": []}, {"a": 5}, {}, "/predictions.json.a: expected text, found whole number"),
        ({"a": []}, {"a": "x"}, {"a": "z"}, "null_odds.json.a: expected whole number or number"),
    ],
)
def test_other_files_of_answers_are_named(tmp_path, best, final, odds, message):
    question = {"id": "a", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    content = {"data": [{"paragraphs": [{"context": "Ann lived", "qas": [question]}]}]}
    data = run_folders.write_json(tmp_path / "dev.json", content)
    run = run_folders.make_run(tmp_path / "run", "run_squad_v2", "squad_v2", "f1", data=data)
    run_folders.write_json(run / "nbest_predictions.json", best)
    run_folders.write_json(run / "predictions.json", final)
    run_folders.write_json(run / "null_odds.json", odds)
    with pytest.raises(file_io.InputError, match=re.escape(message)):
        write_report(tmp_path, f"--runs={run}")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(file_io.InputError, match="no folder matches '.*/none'"):
        write_report(tmp_path, f"--runs={tmp_path}/none")


def test_a_missing_folder_of_the_page_is_named_before_any_reading(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    with pytest.raises(file_io.InputError, match="^--output=.*: the folder .*/no does not exist"):
        command_lines.run(report, f"--output={tmp_path}/no/x.html", f"--runs={tmp_path}/none")


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_missing_library_is_named(library, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(file_io.InputError, match=f"pip install {library}"):
        command_lines.run(report, "--runs=x")
