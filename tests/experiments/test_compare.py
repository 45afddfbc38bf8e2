"""The command that compares runs: its formats, and that it never fails for a verdict."""

import csv
import io
import json
import sys

import pytest
import scipy.stats
from absl import flags

from albert import compare
from albert.experiments import comparison_text, predictions
from albert.experiments.runs import read_run
from albert.io import file_io
from tests.support import command_lines, compared_runs, run_folders

LOW = {1: 0.70, 2: 0.72, 3: 0.71, 4: 0.69, 5: 0.73}
HIGH = {1: 0.80, 2: 0.81, 3: 0.82, 4: 0.78, 5: 0.83}


def call(capsys, *arguments):
    command_lines.run(compare, *arguments)
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two studies of five seeds that keep predictions; one of them has lost a run."""
    folder = tmp_path_factory.mktemp("compared")
    data = compared_runs.write_data(folder / "test.tsv")
    cost = {"steps": 10, "seconds": 1234.4, "flop": 4.5e12, "peak_memory": 2_000_000_000}
    for name, scores, count in (("low", {**LOW, 6: 0}, 15), ("high_x", HIGH, 3)):
        wrong = {seed: range(seed, seed + count) for seed in scores}
        compared_runs.make_seeds(folder / name, scores, data, wrong, {6: "failed"}, cost=cost)
    return f"--runs={folder}/low,{folder}/high_x"


def test_text_says_it_in_words(runs, capsys):
    text = call(capsys, runs, "--num_examples=1")
    lines = text.splitlines()
    assert lines[0] == "eval_accuracy; higher is better; intervals of 95%"
    low = next(line for line in lines if line.startswith("| low"))
    assert [cell.strip() for cell in low.split("|")[1:-1]] == [
        "low", "0.7100", "0.6904 to 0.7296", "5 of 6", "0.7000, 0.7200, 0.7100, 0.6900, 0.7300",
        "1 failed of 6 runs left out: the score is that of the others, and too good if runs that "
        "fail would score badly",
    ]  # fmt: skip
    assert "high_x against low" in lines
    assert "  over 5 and 5 seeds, paired by seed: high_x is better by 0.098" in lines
    assert "p below 0.001 (paired t" in text
    assert "examples of " in text and "    high_x loses 0 examples" in lines
    shown = next(line for line in lines if line.startswith("        right: "))
    assert shown.count("% of runs right") == 2
    cost = [cell.strip() for cell in lines[-1].split("|")[1:-1]]
    assert cost == ["high_x", "0.8080", "1,234", "4.50e+12", "2.00"]


def test_json_holds_what_scipy_computes(runs, capsys):
    found = json.loads(call(capsys, runs, "--format=json", "--level=0.9"))
    expected = scipy.stats.ttest_rel([*HIGH.values()], [*LOW.values()])
    (pair,) = found["pairs"]
    seeds = pair["seeds"]
    assert (found["metric"], found["minimize"], found["level"]) == ("eval_accuracy", False, 0.9)
    assert seeds["difference"] == pytest.approx(0.098) and seeds["better"] == "high_x"
    interval = expected.confidence_interval(0.9)
    assert (seeds["low"], seeds["high"]) == pytest.approx(tuple(interval))
    # Five pairs have 32 sign flips, the fewest that 0.1 needs: all differences are above 0.
    assert seeds["p"] == pytest.approx(max(expected.pvalue, 2 / 32)) == seeds["p_holm"]
    low = found["sides"][0]
    assert low["counts"] == {"finished": 5, "failed": 1} and low["restarts"] == 0
    assert low["scores"] == {str(seed): score for seed, score in LOW.items()}
    mean = scipy.stats.t.interval(0.9, 4, 0.71, scipy.stats.sem([*LOW.values()]))
    assert (low["mean"]["low"], low["mean"]["high"]) == pytest.approx(mean)
    assert low["cost"]["seconds"] == pytest.approx(1234.4)
    examples = pair["examples"]
    assert examples["count"] == 60 and examples["seeds"] == [[1, 2, 3, 4, 5]] * 2
    assert examples["difference"] == pytest.approx(12 / 60)
    row = next(row for row in examples["gained"] if row["key"] == "9")
    assert row == {
        "key": "9", "text": "text 9", "label": "no", "first": "yes", "second": "no",
        "first_right": 0.0, "second_right": 1.0,
    }  # fmt: skip


def test_csv_has_a_row_for_seeds_and_one_for_examples(runs, capsys):
    rows = list(csv.DictReader(io.StringIO(call(capsys, runs, "--format=csv"))))
    assert [row["over"] for row in rows] == ["seeds", "examples"]
    assert float(rows[0]["difference"]) == pytest.approx(0.098)
    assert rows[0]["verdict"] == "high_x is better by 0.098" and rows[0]["paired"] == "True"


def test_markdown_and_latex_are_tables(runs, capsys):
    tables = call(capsys, runs, "--format=markdown", "--num_examples=0")
    for table in tables.split("\n\n")[1:]:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    latex = call(capsys, runs, "--format=latex")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    assert r"high\_x minus low & seeds & +0.0980 & " in latex
    rows = [line for line in latex.splitlines() if line.endswith(r" \\")]
    assert {line.count(" & ") for line in rows} == {5, 6, 4}


def test_equal_runs_are_not_distinguishable_and_that_is_no_failure(tmp_path, capsys):
    for name, shift in (("a", 0), ("b", 1)):
        scores = {seed: 0.7 + 0.01 * ((seed + shift) % 3) for seed in range(6)}
        compared_runs.make_seeds(tmp_path / name, scores)
    text = call(capsys, f"--runs={tmp_path}/a,{tmp_path}/b")
    assert "paired by seed: not distinguishable" in text
    assert "over examples: not known: " in text


def test_a_sweep_of_equal_points_claims_nothing(tmp_path, capsys):
    sweep = run_folders.make_sweep(
        tmp_path / "sweep", {"learning_rate": [0.1, 0.2, 0.3]}, lambda p, s: 0.5, seeds=(1, 2, 3)
    )
    found = json.loads(call(capsys, f"--runs={sweep}", "--format=json"))
    assert len(found["pairs"]) == 3
    assert {pair["seeds"]["verdict"] for pair in found["pairs"]} == {"not distinguishable"}


# --- groups of examples, and equality -----------------------------------------------------------


def test_a_column_of_own_data_names_groups_of_examples(tmp_path, capsys):
    data = tmp_path / "data.tsv"
    rows = [f"text {i}\t{compared_runs.ANSWERS[bool(i % 3)]}\tbook {i // 2}" for i in range(60)]
    data.write_text("\n".join(["text\tlabel\tbook", *rows]) + "\n")
    for name, wrong in (("a", range(12)), ("b", (0, 1, 20))):
        compared_runs.make_run(tmp_path / name, 0.8, data=data, wrong=wrong)
    runs = f"--runs={tmp_path}/a,{tmp_path}/b"
    text = call(capsys, runs, "--cluster_column=book")
    assert "intervals allow for examples of one book being alike: 30 of them" in text
    assert "(paired bootstrap over books, quantiles of t)" in text
    for column, message in (
        ("chapter", "data.tsv line 2: there is no column 'chapter'"),
        ("text", "cluster_column=text: .*data.tsv has one group, or each row is a group"),
    ):
        with pytest.raises(file_io.InputError, match=message):
            call(capsys, runs, f"--cluster_column={column}")


def test_questions_about_one_paragraph_count_as_alike(tmp_path, capsys):
    questions = [
        [
            {"id": f"{i}.{j}", "question": "?", "answers": [{"text": "cook", "answer_start": 4}]}
            for j in range(3)
        ]
        for i in range(25)
    ]
    paragraphs = [{"context": "The cook waits.", "qas": qas} for qas in questions]
    run_folders.write_json(tmp_path / "dev.json", {"data": [{"paragraphs": paragraphs}]})
    for name, first in (("a", 3), ("b", 5)):
        answers = {
            question["id"]: "waits" if i < first else "cook"
            for i, qas in enumerate(questions)
            for question in qas
        }
        run_folders.write_json(tmp_path / f"{name}.json", answers)
    runs = (f"--runs={tmp_path}/a.json,{tmp_path}/b.json", f"--labels={tmp_path}/dev.json")
    text = call(capsys, *runs)
    assert "examples of one paragraph being alike: 25 of them" in text
    # 2 of 25 paragraphs differ: with 75 questions p is 0.04.
    assert "not distinguishable" in text


def test_equality_within_a_margin_is_shown_or_what_it_needs(runs, tmp_path, capsys):
    compared_runs.make_seeds(tmp_path / "a", LOW)
    scores = {seed: x + 0.0001 * (-1) ** seed for seed, x in LOW.items()}
    compared_runs.make_seeds(tmp_path / "b", scores)
    equal = f"--runs={tmp_path}/a,{tmp_path}/b"
    text = call(capsys, equal, "--equivalence_margin=0.01")
    assert "paired by seed: equal within 0.01" in text
    assert "for equality within 0.01 -0.0001 to 0.0001" in text
    found = json.loads(call(capsys, equal, "--equivalence_margin=0.0001", "--format=json"))
    seeds = found["pairs"][0]["seeds"]
    assert seeds["verdict"].startswith("cannot be decided: neither a difference nor equal within")
    assert seeds["equivalence"]["is_equal"] is False and seeds["equivalence"]["more"] > 0
    assert "high_x is better by 0.098\n" in call(capsys, runs, "--equivalence_margin=0.01")
    with pytest.raises(file_io.InputError, match="equivalence_margin=0: expected a number above"):
        call(capsys, equal, "--equivalence_margin=0")


# --- files of predictions -------------------------------------------------------------------------


def test_a_new_file_in_the_folder_of_a_run_does_not_stand_for_the_run(tmp_path, capsys):
    data = compared_runs.write_data(tmp_path / "data.tsv")
    for name in "ab":
        folder = compared_runs.make_run(tmp_path / name, 0.8, data=data, wrong=range(12))
        compared_runs.write_predictions(folder / "new.tsv", range(3))
    files = [f"{tmp_path}/{name}/new.tsv" for name in "ab"]
    with pytest.raises(file_io.InputError, match="a/new.tsv is not a file that a run itself"):
        call(capsys, f"--runs={','.join(files)}")
    kept = f"--runs={files[0].replace('new.tsv', 'predictions.tsv')},{tmp_path}/b"
    found = json.loads(call(capsys, kept, "--format=json"))
    assert [side["mean"]["estimate"] for side in found["sides"]] == [0.8, 0.8]


def test_examples_with_one_id_are_reported_but_not_compared(tmp_path, capsys):
    data = compared_runs.write_data(tmp_path / "data.tsv")
    row = {"id": "7", "text": "x", "label": "no", "prediction": "no", "right": True,
           "probabilities": {"no": 0.75, "yes": 0.25}}  # fmt: skip
    for name in "ab":
        folder = compared_runs.make_run(tmp_path / name, 0.8, data=data)
        (folder / "examples.jsonl").write_text(f"{json.dumps(row)}\n" * 2)
    run = read_run(str(tmp_path / "a"), "a")
    assert len(predictions.read_outcomes(run, predictions.find_file(run))) == 2
    with pytest.raises(file_io.InputError, match="2 examples have the id '7'.*id_column"):
        call(capsys, f"--runs={tmp_path}/a,{tmp_path}/b")


def test_files_of_predictions_with_their_answers(tmp_path, capsys):
    data = compared_runs.write_data(tmp_path / "data.tsv")
    for name, wrong in (("a", range(12)), ("b", (0, 1, 20))):
        compared_runs.write_predictions(tmp_path / f"{name}.tsv", wrong)
    arguments = [f"--runs={tmp_path}/a.tsv,{tmp_path}/b.tsv", f"--labels={data}", "--format=json"]
    found = json.loads(call(capsys, *arguments))
    assert found["pairs"][0]["examples"]["difference"] == pytest.approx(9 / 60)
    assert [side["mean"]["estimate"] for side in found["sides"]] == pytest.approx([0.8, 0.95])
    for given, message in (
        ([f"--runs={tmp_path}/a.tsv,{tmp_path}/a.tsv", arguments[1]], "a.tsv is named twice"),
        (arguments[:1], "a.tsv is not a file that a run itself writes: name .* with --labels"),
        ([*arguments, "--label_column=x"], "data.tsv line 2: there is no column 'x'"),
        ([*arguments, "--id_column=text"], "predictions of other examples .*--id_column"),
    ):
        with pytest.raises(file_io.InputError, match=message):
            call(capsys, *given)


def test_answers_to_questions_and_labels_of_words(tmp_path, capsys):
    questions = [
        {"id": str(i), "question": "who?", "answers": [{"text": "the cook", "answer_start": 0}]}
        for i in range(4)
    ]
    data = {"data": [{"paragraphs": [{"context": "The cook waits.", "qas": questions}]}]}
    run_folders.write_json(tmp_path / "dev.json", data)
    for name, answer in (("a", "waits"), ("b", "Cook")):
        run_folders.write_json(tmp_path / f"{name}.json", {str(i): answer for i in range(4)})
    runs = f"--runs={tmp_path}/a.json,{tmp_path}/b.json"
    text = call(capsys, runs, f"--labels={tmp_path}/dev.json", "--format=json")
    found = json.loads(text)["pairs"][0]["examples"]
    assert (found["metric"], found["difference"]) == ("f1", 100.0)
    assert found["gained"][0]["text"] == "who? — The cook waits."

    for name, last in (("a", "O"), ("b", "B-MAN")):
        rows = ["the\tO\tO", "cook\tB-MAN\tB-MAN", "", "a\tO\tO", f"baker\tB-MAN\t{last}", ""]
        (tmp_path / f"{name}.conll").write_text("\n".join(rows) + "\n")
    text = call(capsys, f"--runs={tmp_path}/a.conll,{tmp_path}/b.conll", "--format=json")
    found = json.loads(text)["pairs"][0]["examples"]
    assert found["metric"] == "f1" and found["difference"] == pytest.approx(1 - 2 / 3)
    assert found["gained"][0]["text"] == "a baker"


@pytest.mark.parametrize("level", ["0", "1", "95"])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises((file_io.InputError, flags.IllegalFlagValueError), match="level"):
        command_lines.run(compare, runs="a,b", level=level)


def test_without_scipy_it_says_what_to_install(runs, capsys, monkeypatch):
    for name in ("scipy", "scipy.stats"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(file_io.InputError, match="pip install 'scipy>="):
        call(capsys, runs)


def test_every_format_is_a_choice():
    assert set(comparison_text.FORMATS) == {"text", "markdown", "latex", "csv", "json"}
