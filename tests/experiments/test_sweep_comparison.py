"""Differences in the table of a sweep."""

import sys

import numpy as np
import pytest
import scipy.stats

from albert.experiments import statistics, sweep_comparison, sweep_journal, sweep_plan
from albert.experiments import sweep_results as results
from albert.experiments.sweep_journal import DONE, FAILED, PRUNED, Trial
from albert.training import stuck_runs
from tests.support import run_folders


def summarize(scores, seeds=(1, 2, 3, 4), **changes):
    """Returns the summary of points of rates; a score is a number or a state."""
    plan = sweep_plan.make_plan(
        {"script": "x", "parameters": {"rate": list(scores)}, "seeds": list(seeds), "metric": "m"}
    ).describe()
    trials = [
        Trial(
            place * len(seeds) + i, f"trial_{place * len(seeds) + i:04d}", [], {"rate": rate}, seed,
            state=DONE if isinstance(score, float) else score,
            value=score if isinstance(score, float) else None, metrics={"m": 0.0}, **changes,
        )
        for place, (rate, values) in enumerate(scores.items())
        for i, (seed, score) in enumerate(zip(seeds, values, strict=True))
    ]  # fmt: skip
    return results.summarize(plan, trials)


def cells(summary):
    """{first cell: {column: cell}} of the table."""
    header, rows = results.rows(summary)
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


EQUAL = {0.1: [0.50, 0.53, 0.51, 0.52], 0.2: [0.52, 0.50, 0.53, 0.51]}
WORSE = {0.3: [0.10, 0.12, 0.11, 0.13]}


def test_equal_points_are_not_distinguishable_and_a_bad_one_is_worse():
    summary = sweep_comparison.add(summarize(EQUAL | WORSE))
    rows = cells(summary)
    other, bad = rows["trial_0004 to 7"], rows["trial_0008 to 11"]
    assert rows["trial_0000 to 3"]["verdict"] == "best"
    assert other["verdict"] == "not distinguishable" and bad["verdict"].startswith("worse by 0.4")
    assert bad["minus trial_0000 to 3"] == "-0.4000" and float(bad["p (adjusted)"]) <= 0.05
    low, high = scipy.stats.t.interval(0.95, 3, 0.115, scipy.stats.sem(WORSE[0.3]))
    assert bad["interval of 95%"] == f"{low:.4f} to {high:.4f}"
    text = results.to_markdown(summary)
    assert "trial_0000 to 3: 1 are worse, 0 better, 1 of 2 not distinguishable." in text


def test_points_are_equal_within_a_margin_or_need_more_seeds():
    scores = {0.1: [0.50, 0.53, 0.51, 0.52], 0.2: [0.502, 0.529, 0.511, 0.519]} | WORSE
    found = sweep_comparison.add(summarize(scores), equivalence_margin=0.01)
    rows = cells(found)
    verdicts = [row["verdict"] for row in rows.values()]
    assert verdicts[:2] == ["best", "equal within 0.01"] and verdicts[2].startswith("worse by 0.4")
    best = [point["probability_best"] for point in found["comparison"]["points"]]
    assert sum(best) == pytest.approx(1) and best[2] == 0 and min(best[:2]) > 0.1
    assert rows["trial_0008 to 11"]["probability best"] == "0.00"
    strict = cells(sweep_comparison.add(summarize(scores), equivalence_margin=0.0001))
    verdict = [*strict.values()][1]["verdict"]
    assert verdict.startswith("cannot be decided: neither") and "more seeds would" in verdict


def test_a_sweep_of_twenty_equal_points_claims_no_winner():
    rng = np.random.default_rng(3)
    scores = {i / 100: rng.normal(0.7, 0.01, 4).tolist() for i in range(20)}
    summary = sweep_comparison.add(summarize(scores))
    verdicts = [row["verdict"] for row in cells(summary).values()]
    assert verdicts[0] == "best" and set(verdicts[1:]) == {"not distinguishable"}


def test_the_price_of_picking_the_best_is_told():
    rng = np.random.default_rng(3)
    scores = {i / 100: rng.normal(70, 10, 40).tolist() for i in range(20)}
    notes = sweep_comparison.add(summarize(scores, seeds=range(40)))["comparison"]["notes"]
    note = next(note for note in notes if note.startswith("Picking the best of 20 points"))
    # The best of 20 normal numbers lies 1.867 deviations above their mean.
    expected = 1.867 * 10 / 40**0.5
    assert float(note.split("about ")[1].split()[0]) == pytest.approx(expected, rel=0.1)


def test_a_baseline_is_compared_with_all_by_paired_tests_after_holm():
    scores = EQUAL | WORSE
    summary = sweep_comparison.add(summarize(scores), baseline=1)
    raw = [scipy.stats.ttest_rel(scores[rate], scores[0.2]).pvalue for rate in (0.1, 0.3)]
    expected = statistics.holm(raw)
    found = summary["comparison"]["points"]
    assert [found[0]["p"], found[2]["p"]] == pytest.approx(expected)
    assert found[1]["verdict"] == "baseline" and found[2]["verdict"].startswith("worse by")
    assert "adjusted by Holm" in summary["comparison"]["method"]


def test_a_baseline_without_scores_is_told_and_intervals_stay():
    summary = sweep_comparison.add(summarize(EQUAL | {0.4: [FAILED] * 4}), baseline=2)
    comparison = summary["comparison"]
    notes = " ".join(comparison["notes"])
    assert "Nothing is compared: no run of the baseline trial_0008 to 11 has a score." in notes
    assert comparison["reference"] is None and comparison["points"][0]["interval"]
    assert "trial_0008 to 11" in results.to_markdown(summary)


def test_failed_pruned_and_stuck_trials_are_told():
    scores = EQUAL | {0.4: [0.5, FAILED, 0.51, PRUNED]}
    summary = summarize(scores)
    summary["trials"][0]["verdict"] = stuck_runs.STUCK
    text = sweep_comparison.sentences(sweep_comparison.add(summary))
    assert "1 of 12 trials failed: they have no score, and their points are not compared." in text
    assert "1 of 12 trials pruned: " in text
    assert "1 of 12 trials did not learn: means are those of the runs that learn" in text
    rows = cells(sweep_comparison.add(summarize(scores)))
    assert rows["trial_0008 to 11"]["verdict"] == "not compared"


def test_points_that_were_evaluated_on_other_data_are_not_compared(tmp_path):
    plan = sweep_plan.make_plan({"script": "x", "trials": {"a": {}, "b": {}}, "metric": "m"})
    trials = []
    for number, name in enumerate("ab"):
        run_folders.make_run(tmp_path / name, eval_fraction=1 - number / 2)
        trials.append(Trial(number, name, [], state=DONE, value=0.5 + number / 4))
    difference = results.find_difference(str(tmp_path), trials)
    summary = results.summarize(plan.describe(), trials)
    (note,) = sweep_comparison.add(summary, difference=difference)["comparison"]["notes"]
    assert note.startswith(f"Nothing is compared: {tmp_path}/a and {tmp_path}/b were not evaluated")
    assert note.endswith("eval_fraction 1.0 and 0.5.")
    assert not results.find_difference(str(tmp_path), trials[:1])


@pytest.mark.parametrize("baseline", [None, 1])
def test_points_that_are_no_better_than_a_constant_answer_are_told(baseline):
    scores = {0.1: [0.9, 0.8, 0.7, 0.6], 0.2: [0.4, 0.5, 0.4, 0.5]}
    summary = sweep_comparison.add(summarize(scores, baseline=0.5), baseline)
    notes = summary["comparison"]["notes"]
    alone = "Nothing is compared: only trial_0000 to 3 could be."
    if baseline is None:
        assert notes[:2] == ["1 of 2 points not compared: no better than a constant answer.", alone]
    else:  # a baseline is compared whatever its score
        assert summary["comparison"]["reference"] == 1 and alone not in notes


def test_one_seed_for_each_point_asks_for_more():
    scores = {rate: [value] for rate, value in ((0.1, 0.5), (0.2, 0.6), (0.3, 0.9))}
    summary = sweep_comparison.add(summarize(scores, seeds=(1,)))
    header, _ = results.rows(summary)
    assert "verdict" not in header
    text = sweep_comparison.sentences(summary)
    assert "One seed for each point: differences may be those of seeds" in text
    # Of two drawn of three: 0.6 once, 0.9 twice of three times.
    assert "Expected best score if k of these points are tried: 1: 0.6667, 2: 0.8000, 3: " in text


def test_without_scipy_the_table_is_there_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    summary = sweep_comparison.add(summarize(EQUAL | {0.4: [FAILED] * 4}))
    text = results.to_markdown(summary)
    assert "| trial_0000 to 3" in text and "0.5150" in text
    assert "Intervals and comparisons need SciPy: pip install 'scipy>=1.15'." in text
    assert "4 of 12 trials failed" in text and "interval of" not in text.partition("\n\n")[0]


def test_a_table_that_was_not_compared_stays_as_it_was():
    assert sweep_journal.NAME and "\n\n" not in results.to_markdown(summarize(EQUAL))
