"""The files of scores: what is written is read, also what the reference wrote."""

import math

import numpy
import pytest

from albert.io import file_io
from albert.training import results


def test_blocks_are_read_as_they_were_written(tmp_path):
    blocks = [
        results.make_block({"f1": 0.1, "total": 7}, 0),
        results.make_block({"f1": 1 / 3, "total": 7}, 10, 0.5),
    ]
    results.write_blocks(str(tmp_path), blocks)
    rule = "=" * 50
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"f1 = 0.1\nglobal_step = 0\ntotal = 7\n{rule}\n"
        f"f1 = 0.33333334\nglobal_step = 10\ntotal = 7\nbest = 0.5\n{rule}\n"
    )
    found = results.read_blocks(str(tmp_path))
    assert [(block.step, block.text) for block in found] == [(b.step, b.text) for b in blocks]
    assert found[1].values == {"f1": 0.33333334, "total": 7, "global_step": 10, "best": 0.5}
    assert results.read_blocks(str(tmp_path / "none")) == []


@pytest.mark.parametrize("metric", ["eval_accuracy", "loss"])
@pytest.mark.parametrize("value", [2 / 3, 1 / 3])
def test_an_equal_start_is_not_better(tmp_path, metric, value):
    results.write_blocks(str(tmp_path), [results.make_block({metric: value}, 0)])
    blocks = results.read_blocks(str(tmp_path))
    assert results.find_better_start(blocks, value, metric) is None
    worse = value + (1e-6 if metric == "loss" else -1e-6)
    assert results.find_better_start(blocks, worse, metric) == pytest.approx(value)


def test_a_name_may_have_any_character_but_a_line_feed(tmp_path):
    names = [f"f1_a{odd}b" for odd in ("\x0b", "\x1c", "\x85", "\u2028", " = ", "\U0001f600")]
    form = results.SHORT._replace(by_class=tuple(names))
    block = results.make_block(dict.fromkeys(names, 0.5), 3, form=form)
    results.write_blocks(str(tmp_path), [block])
    results.add_lines(str(tmp_path), 3, {"temperature": 2.0}, "abstention_")
    (found,) = results.read_blocks(str(tmp_path))
    assert found.values == {**dict.fromkeys(names, 0.5), "global_step": 3, "temperature": 2.0}


@pytest.mark.parametrize(
    ("name", "steps", "last"),
    [
        ("classifier", [0, 10, 20], {"eval_accuracy": 0.43661973}),
        ("race", [0, 4, 8], {"eval_accuracy": 0.26666668}),
        ("squad_v1", [None] * 4, {"f1": 3.6363636363636362}),
        ("squad_v2", [None] * 4, {"exact": 50.0}),
        ("pretraining", [20], {"masked_lm_accuracy": 0.015503876}),
    ],
)
def test_files_of_the_reference_are_read(golden, tmp_path, name, steps, last):
    blocks = results.read_blocks(str(golden / "runs" / name))
    assert [block.step for block in blocks] == steps
    assert last.items() <= blocks[-1].values.items()
    blocks = results.put(blocks, results.make_block({"f1": 0.5}, 30))
    results.write_blocks(str(tmp_path), blocks)
    again = results.read_blocks(str(tmp_path))
    assert [block.text for block in again] == [block.text for block in blocks]
    own = again[-2 if name.startswith("squad") else -1]  # before the summary
    assert own.values == {"f1": 0.5, "global_step": 30}


def test_a_line_for_a_terminal_has_each_loss_once_and_no_further_scores():
    form = results.SHORT._replace(added=("macro_f1", "roc_auc"), by_class=("f1_a",))
    scores = {"eval_accuracy": 2 / 3, "eval_loss": 0.123456, "loss": 0.123456, "total": 10570}
    scores |= {"macro_f1": 0.5, "roc_auc": 0.25, "f1_a": 1.0}
    line = "eval_accuracy 0.6667  loss 0.1235  total 10570"
    assert results.short_line(scores, form) == line
    assert results.short_line(scores, form, "roc_auc") == (
        "eval_accuracy 0.6667  loss 0.1235  roc_auc 0.25  total 10570"
    )
    chosen = results.short_line({**scores, "eval_accuracy": math.nan}, form, "eval_loss")
    assert chosen == "eval_accuracy undefined  eval_loss 0.1235  total 10570"


def test_results_of_sts_b_of_the_reference_are_read(tmp_path):
    """It prints arrays as values, over many lines."""
    arrays = {n: numpy.array2string(numpy.linspace(0, 5, n).astype("f4")) for n in (3, 999, 1500)}
    text = "".join(
        f"eval_loss = 2.25\nglobal_step = {step}\nlabel_ids = {arrays[n]}\nloss = 2.5\n"
        f"pearson = -0.0101\npred = {arrays[n]}\nbest = -1\n{'=' * 50}\n"
        for step, n in enumerate(arrays)
    )
    assert text.count("\n") > 300 and "..." in text
    (tmp_path / "eval_results.txt").write_text(text)
    blocks = results.read_blocks(str(tmp_path))
    assert [block.step for block in blocks] == [0, 1, 2]
    for block in blocks:
        assert block.metrics == {"eval_loss": 2.25, "loss": 2.5, "pearson": -0.0101}
    results.write_blocks(str(tmp_path), blocks)
    assert (tmp_path / "eval_results.txt").read_text() == text


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2"])
def test_the_summary_of_the_reference_stays_until_ours_takes_its_place(golden, tmp_path, name):
    theirs = (golden / "runs" / name / "eval_results.txt").read_text()
    (tmp_path / "eval_results.txt").write_text(theirs)
    blocks = results.read_blocks(str(tmp_path))
    assert [block.is_summary for block in blocks] == [False] * 3 + [True]
    results.write_blocks(str(tmp_path), blocks)
    assert (tmp_path / "eval_results.txt").read_text() == theirs + "\n"
    block = results.make_block({"f1": 200 / 3}, 30, 200 / 3, results.SQUAD, "f1")
    blocks = results.put(blocks, block)
    rule = "=" * 50
    results.write_blocks(str(tmp_path), blocks)
    text = (tmp_path / "eval_results.txt").read_text()
    assert [part.strip() for part in text.split(rule)] == [
        *(part.strip() for part in theirs.split(rule)[:3]),
        block.text,
        theirs.split(rule)[3].strip(),
    ]
    results.write_blocks(str(tmp_path), blocks, best_step=30)
    assert (
        (tmp_path / "eval_results.txt")
        .read_text()
        .endswith(
            f"f1 = 66.66666666666667\nglobal_step = 30\nbest f1 = 66.66666666666667\n{rule}\n"
            "f1 = 66.66666666666667\nbest perf happened at step: 30\n"
        )
    )
    assert results.read_blocks(str(tmp_path))[-1].step == 30


def test_a_block_is_shown_as_the_reference_ends_an_evaluation():
    block = results.make_block({"loss": 0.5, "best_f1": 60.0}, 20, 0.75)
    assert results.display(block) == (
        "***** Eval results *****\n  best_f1 = 60.0\n  global_step = 20\n  loss = 0.5"
    )


def test_a_block_takes_its_place_by_step():
    def make(step, value):
        return results.make_block({"f1": value}, step)

    blocks = []
    for step in (10, 30, 20, 0):
        blocks = results.put(blocks, make(step, 0.5))
    assert [block.step for block in blocks] == [0, 10, 20, 30]
    blocks = results.put([results.Block(None, {}, "of another tool"), *blocks], make(20, 0.75))
    assert [block.step for block in blocks] == [None, 0, 10, 20, 30]
    assert blocks[3].values == {"f1": 0.75}


def test_values_that_are_no_numbers_are_named(tmp_path):
    (tmp_path / "eval_results.txt").write_text("loss = high\n")
    with pytest.raises(file_io.InputError, match="eval_results.txt: expected lines .*'high'.*move"):
        results.read_blocks(str(tmp_path))


def test_the_trial_is_read_as_it_was_written(golden, tmp_path):
    results.write_trial(str(tmp_path), results.Trial(20, 10, 0.75))
    assert (tmp_path / "best_trial.txt").read_text() == "20:10:0.75"
    assert results.read_trial(str(tmp_path)) == (20, 10, 0.75)
    results.remove_trial(str(tmp_path))
    assert results.read_trial(str(tmp_path)) is None
    theirs = results.read_trial(str(golden / "runs" / "classifier"))
    assert theirs == (20, 0, 0.5633803009986877)


@pytest.mark.parametrize("text", ["", "hello", "20:10", "20:x:0.5", "1:2:3:4", "1.5:1:0.5"])
def test_a_damaged_trial_is_named(tmp_path, text):
    (tmp_path / "best_trial.txt").write_text(text)
    with pytest.raises(file_io.InputError, match=f"best_trial.txt: expected step:.*{text!r}"):
        results.read_trial(str(tmp_path))


def test_a_score_is_called_what_it_is():
    assert results.best_of("f1", [None]) == results.best_of("f1", []) == "f1"
    assert results.best_of("f1", [1, None]) == "f1 (dev, one checkpoint)"
    assert results.best_of("f1", [5, 5]) == "f1 (dev, best of 5 checkpoints)"
    assert results.best_of("f1", [5, 3]) == "f1 (dev, best of 3 to 5 checkpoints)"


@pytest.mark.parametrize(
    ("value", "baseline", "minimize", "is_marked"),
    [
        (0.53, 0.53, False, True),
        (0.5299999713897705, 0.53, False, True),  # as float32
        (0.54, 0.53, False, False),
        (0.69, 0.68, True, True),
        (0.67, 0.68, True, False),
        (0.0, 0.0, False, True),  # a correlation
        (0.53, None, False, False),
        (None, 0.53, False, False),
    ],
)
def test_a_score_that_a_constant_answer_gets_is_marked(value, baseline, minimize, is_marked):
    remark = results.remark_on_baseline(value, baseline, minimize)
    assert remark == (f"no better than a constant answer ({baseline:.4f})" if is_marked else "")


def _form_with_classes(writes_added=True):
    return results.SHORT._replace(
        added=("macro_f1", "balanced_accuracy"), by_class=("f1_a = b",), writes_added=writes_added
    )


def test_scores_of_classes_follow_the_lines_of_the_reference(tmp_path):
    scores = {"f1_a = b": 0.25, "macro_f1": 0.5, "eval_accuracy": 0.75, "balanced_accuracy": 0.6}
    block = results.make_block(scores, 10, 0.75, _form_with_classes())
    assert block.text == (
        "eval_accuracy = 0.75\nglobal_step = 10\nbest = 0.75\nbalanced_accuracy = 0.6\n"
        "macro_f1 = 0.5\nf1_a = b = 0.25"
    )
    results.write_blocks(str(tmp_path), [block])
    assert results.read_blocks(str(tmp_path))[0].metrics == scores
    assert "f1_a" not in results.display(block, _form_with_classes())
    shown = results.display(block, _form_with_classes()).splitlines()
    assert shown[-1] == "  macro_f1 = 0.5"


def test_files_of_the_reference_have_only_the_chosen_score_of_classes():
    scores = {"f1_a = b": 0.25, "macro_f1": 0.5, "eval_accuracy": 0.75}
    lines = ["eval_accuracy = 0.75", "global_step = 10", "best = 0.5"]
    form = _form_with_classes(writes_added=False)
    assert results.make_block(scores, 10, 0.5, form).text.splitlines() == lines
    block = results.make_block(scores, 10, 0.5, form, "macro_f1")
    assert block.text.splitlines() == [*lines, "macro_f1 = 0.5"]
    assert "macro_f1 = 0.5" in results.lines(scores, 10, form)


def test_the_table_of_classes_begins_with_the_worst():
    rows = [("good", 4, 4, 4), ("missed", 3, 0, 0), ("absent", 0, 0, 0), ("extra", 0, 1, 0)]
    table = results.class_table(results.ClassCount(*row) for row in rows)
    assert table.splitlines() == [
        "  class   precision  recall     f1  support",
        "  missed      0.000   0.000  0.000        3  never predicted",
        "  extra       0.000   0.000  0.000        0  never occurs",
        "  good        1.000   1.000  1.000        4",
    ]
    assert results.class_table([]) == ""
    many = [results.ClassCount("x" * 40, 1, 1, 1)] * 22
    assert (
        results.class_table(many).splitlines()[-1].endswith("… and 2 more classes with a higher F1")
    )
