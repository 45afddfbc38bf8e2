"""Metrics of kept predictions as functions of means, and files that are damaged."""

import numpy as np
import pytest

from albert.experiments import predictions, runs
from albert.io import file_io, tables
from albert.tasks import class_scores, custom, entities, metrics, outcomes
from albert.training import results
from tests.support import compared_runs, run_folders


def write_table(folder, labels, found, names=()):
    """Writes labels and predictions; names are the labels in the order of their ids."""
    rows = [f"text {i}\t{label}" for i, label in enumerate(labels)]
    (folder / "labels.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    header = ["id", "prediction", *(f"probability_{name}" for name in names)]
    rows = ["\t".join([str(i), str(x), *["0.5"] * len(names)]) for i, x in enumerate(found)]
    (folder / "found.tsv").write_text("\n".join(["\t".join(header), *rows]) + "\n")
    paths = (str(folder / name) for name in ("found.tsv", "labels.tsv"))
    return predictions.read_file(*paths, tables.Columns())


def test_texts_can_be_written(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"text": "half \\ud800", "label": "no"}\n')
    (tmp_path / "found.jsonl").write_text('{"id": "0", "prediction": "no", "probability_no": 1}\n')
    paths = (str(tmp_path / name) for name in ("found.jsonl", "labels.jsonl"))
    assert predictions.read_file(*paths, tables.Columns()).texts == {"0": "half \ufffd"}


@pytest.mark.parametrize("names", [("no", "yes"), ("a", "b", "c")])
def test_metrics_of_classes_are_those_of_the_evaluation(names, tmp_path):
    rng = np.random.default_rng(1)
    ids = rng.integers(len(names), size=(2, 80))
    ids[1, :50] = ids[0, :50]
    found = write_table(tmp_path, *([names[i] for i in row] for row in ids), names)
    expected = {
        "eval_accuracy": metrics.accuracy(*ids),
        "matthew_corr": metrics.matthews_correlation(*ids),
    }
    means = class_scores.measure(results.count_classes(names, *ids))
    expected |= {name: means[name] for name in ("macro_f1", "balanced_accuracy")}
    if len(names) == 2:
        expected["f1"] = metrics.f1(*ids)
    assert {name: m.value for name, m in found.metrics.items()} == pytest.approx(expected)
    assert [*found.right.values()] == (ids[0] == ids[1]).tolist()
    # Drawn examples have the metric of these examples.
    rows = rng.integers(80, size=80)
    drawn = found.metrics["matthew_corr"]
    assert drawn.of_means(drawn.rows[rows].mean(axis=0)) == pytest.approx(
        metrics.matthews_correlation(*ids[:, rows])
    )


@pytest.mark.parametrize(
    ("names", "positive", "gold"),
    [
        (("yes", "no"), "yes", None),
        (("1", "0"), "1", None),
        (("equivalent", "not_equivalent"), "equivalent", None),
        (("equivalent", "not_equivalent"), "equivalent", {"equivalent": "1", "not_equivalent": 0}),
    ],
)
def test_f1_is_that_of_the_same_label_in_any_order(names, positive, gold, tmp_path):
    """A model keeps the order of the one that it started from; gold labels may be numbers."""
    labels, found = [names[0]] * 3 + [names[1]] * 2, [names[0]] * 4 + [names[1]]
    kept = write_table(tmp_path, [(gold or {}).get(label, label) for label in labels], found, names)
    ids = ([name == positive for name in row] for row in (labels, found))
    assert kept.metrics["f1"].value == pytest.approx(metrics.f1(*ids))
    task = custom.CustomTask({}, tables.Columns(), names)
    score = dict(task.scores)["f1"]
    assert score(*([names.index(name) for name in row] for row in (labels, found))) == (
        pytest.approx(kept.metrics["f1"].value)
    )


def test_metrics_of_numbers_are_those_of_the_evaluation(tmp_path):
    rng = np.random.default_rng(1)
    labels = rng.normal(1000, 1, 50)
    found = labels + rng.normal(0, 1, 50)
    kept = write_table(tmp_path, labels, found)
    assert kept.metrics["pearson"].value == pytest.approx(metrics.pearson(labels, found))
    assert kept.metrics["MSE"].value == pytest.approx(metrics.mean_squared_error(labels, found))
    assert not kept.right


@pytest.mark.parametrize("size", [3, 50])
@pytest.mark.parametrize("is_constant", [(True, True), (True, False), (False, True)])
def test_scores_are_undefined_where_those_of_the_evaluation_are(is_constant, size, tmp_path):
    """A score is NaN where all labels are equal, and 0 where all predictions are."""
    cycle = np.arange(size) % 2
    for value in (0, 1):
        ids = [np.full(size, value) if constant else cycle for constant in is_constant]
        kept = write_table(tmp_path, *(np.array(["no", "yes"])[x] for x in ids), ("no", "yes"))
        expected = [metrics.f1(*ids), metrics.matthews_correlation(*ids)]
        np.testing.assert_equal([kept.metrics[x].value for x in ("f1", "matthew_corr")], expected)
        assert np.isnan(expected).any() == is_constant[0]
    for number in (0.1, 1e9):
        rows = [np.full(size, number) if x else number + np.arange(size) for x in is_constant]
        kept = write_table(tmp_path, *rows)
        np.testing.assert_equal(kept.metrics["pearson"].value, metrics.pearson(*rows))


def test_means_of_classes_are_over_those_that_occur(tmp_path):
    kept = write_table(tmp_path, ["no", "yes", "no"], ["no"] * 3, ("no", "yes"))
    assert kept.metrics["macro_f1"].value == pytest.approx(0.4)
    kept = write_table(tmp_path, ["no", "no"], ["no", "no"], ("no", "yes"))
    assert kept.metrics["macro_f1"].value == kept.metrics["balanced_accuracy"].value == 1


@pytest.mark.parametrize("labels", ["O O", "O B-X"])
def test_scores_of_entities_are_undefined_without_any(labels, tmp_path):
    file = tmp_path / "found.conll"
    file.write_text("".join(f"w {label} B-X\n" for label in labels.split()))
    kept = predictions.read_file(str(file), None, tables.Columns()).metrics
    found = {name: kept[name].value for name in entities.SCORES}
    expected = entities.scores([labels.split()], [["B-X", "B-X"]])
    assert found == pytest.approx({name: expected[name] for name in found}, nan_ok=True)
    assert np.isnan(found["f1"]) == ("B" not in labels)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "other examples"),
        ("id\tx\n0\ta\n", "line 2: expected the columns id and prediction, found id, x"),
        ("id\tprediction\n0\n", "line 2: expected 2 columns"),
        ("id\tprediction\n0\tyes\n", "line 2: expected a number, found 'yes'"),
        ("\0\xff", "other examples"),
    ],
)
def test_damaged_tables_are_named(text, message, tmp_path):
    data = compared_runs.write_data(tmp_path / "data.tsv", count=1)
    run = compared_runs.make_run(tmp_path / "run", 0.8, data=data, wrong=())
    (run / "predictions.tsv").write_text(text)
    with pytest.raises(file_io.InputError, match=message) as caught:
        predictions.read(runs.read_run(str(run), "run"))
    assert "predictions.tsv" in str(caught.value)


@pytest.mark.parametrize("content", [[], {"1": 5}, {"1": None}, "text", {"2": "x"}, 3])
def test_damaged_answers_are_named(content, tmp_path):
    for answers in ([{"text": "cook", "answer_start": 0}], []):
        questions = [
            {"id": "0", "question": "who?", "answers": [{"text": "he", "answer_start": 0}]},
            {"id": "1", "question": "who?", "answers": answers},
        ]
        paragraphs = [{"paragraphs": [{"context": "The cook waits.", "qas": questions}]}]
        run_folders.write_json(tmp_path / "dev.json", {"data": paragraphs})
        if isinstance(content, dict):
            content = {"0": "he", **content}
        run_folders.write_json(tmp_path / "found.json", content)
        paths = [str(tmp_path / name) for name in ("found.json", "dev.json")]
        with pytest.raises(file_io.InputError, match="found.json"):
            predictions.read_file(*paths, tables.Columns())


def test_words_without_labels_are_refused(tmp_path):
    (tmp_path / "found.conll").write_text("the\tO\n\n")
    with pytest.raises(file_io.InputError, match="found.conll: expected words, their labels and"):
        predictions.read_file(str(tmp_path / "found.conll"), None, tables.Columns())


@pytest.mark.parametrize(
    ("script", "task", "names", "flags"),
    [
        ("run_classifier", "rte", "predictions.tsv", "--do_predict --predict_on=dev"),
        ("run_classifier", "custom", "predictions.tsv", "--do_predict --test_file"),
        ("run_race", "race", "predictions.tsv", "--do_predict"),
        ("run_squad_v1", "squad_v1", "predictions.json", "--do_predict"),
        ("run_token_classifier", "tokens", "predictions.conll", "--do_predict --test_file"),
    ],
)
def test_what_keeps_predictions_is_told(script, task, names, flags, tmp_path):
    run = run_folders.make_run(tmp_path / "run", script=script, task=task)
    with pytest.raises(file_io.InputError) as caught:
        predictions.read(runs.read_run(str(run), "run"))
    assert f"run keeps no predictions ({names}): run it with {flags}" in str(caught.value)


def test_pretraining_makes_no_predictions(tmp_path):
    run = run_folders.make_run(tmp_path / "run", script="run_pretraining", task="pretraining")
    with pytest.raises(file_io.InputError, match="run_pretraining makes no predictions"):
        predictions.read(runs.read_run(str(run), "run"))


# --- examples.jsonl, and folders of earlier versions without it -----------------------------------


def table_run(folder):
    data = compared_runs.write_data(folder / "data.tsv")
    return compared_runs.make_run(folder / "run", 0.8, data=data, wrong=(1,))


def answers_run(folder):
    questions = [
        {"id": key, "question": "who?", "answers": [{"text": t, "answer_start": 0} for t in gold]}
        for key, gold in (("a", ["The cook"]), ("b", []), ("c", ["cook", "The cook"]))
    ]
    paragraphs = [{"paragraphs": [{"context": "The cook waits.", "qas": questions}]}]
    run_folders.write_json(folder / "dev.json", {"data": paragraphs})
    run = run_folders.make_run(
        folder / "run", "run_squad_v2", "squad_v2", "f1", data=folder / "dev.json"
    )
    best = {"a": "cook", "b": "waits", "c": "waits"}
    run_folders.write_json(run / "predictions.json", {**best, "b": ""})
    nbest = {key: [{"text": text, "probability": 0.5}] for key, text in best.items()}
    run_folders.write_json(run / "nbest_predictions.json", nbest)
    run_folders.write_json(run / "null_odds.json", {"a": -1.0, "b": 2.0, "c": -2.0})
    return run


def words_run(folder):
    (folder / "test.conll").write_text("Ann B-PER\nsings O\n\nRome B-LOC\n\n")
    run = run_folders.make_run(
        folder / "run", "run_token_classifier", "tokens", "f1", data=folder / "test.conll"
    )
    lines = ["Ann B-PER B-PER", "sings O O", "", "Rome B-LOC O", "", ""]
    (run / "predictions.conll").write_text("\n".join(lines))
    return run


@pytest.mark.parametrize("make", [table_run, answers_run, words_run])
def test_folders_of_earlier_versions_have_the_outcomes_of_later_ones(make, tmp_path):
    run = runs.read_run(str(make(tmp_path)), "run")
    older = predictions.read(run)
    outcomes.write(run.folder, predictions.read_outcomes(run, predictions.find_file(run)))
    assert predictions.find_file(run).endswith("examples.jsonl")
    kept = predictions.read(run)
    for name in ("sha256", "data", "texts", "labels", "answers", "right"):
        assert getattr(kept, name) == getattr(older, name)
    values = [{name: m.value for name, m in x.metrics.items()} for x in (kept, older)]
    assert values[0] == pytest.approx(values[1]) and min(values[0].values()) > 0


def test_kept_outcomes_hold_when_their_data_changes(tmp_path):
    folder = table_run(tmp_path)
    run = runs.read_run(str(folder), "run")
    outcomes.write(run.folder, predictions.read_outcomes(run, predictions.find_file(run)))
    (tmp_path / "data.tsv").write_text("gone")
    assert len(predictions.read(run).right) == 60
    (folder / "examples.jsonl").unlink()
    with pytest.raises(file_io.InputError, match=r"data\.tsv has changed since it was predicted"):
        predictions.read(run)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "examples.jsonl line 2"),
        ('{"id": "1", "text": "x", "label": "no"}', "line 2.*prediction"),
        ('{"id": "0", "text": "", "label": 1, "prediction": 2}', "2 examples have the id .0."),
        (
            '{"id": "1", "text": "", "label": "no", "prediction": "x", "probabilities": {"x": 1}}',
            "examples.jsonl does not hold what was expected",
        ),
    ],
)
def test_damaged_outcomes_are_named(line, message, tmp_path):
    folder = table_run(tmp_path)
    first = '{"id": "0", "text": "", "label": "no", "prediction": "no", "right": true, '
    path = folder / "examples.jsonl"
    path.write_text(first + '"probabilities": {"no": 1, "yes": 0}}\n' + line + "\n")
    with pytest.raises(file_io.InputError, match=message):
        predictions.read(runs.read_run(str(folder), "run"))
