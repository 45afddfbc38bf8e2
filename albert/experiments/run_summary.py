"""Says in sentences how good a run is, for the person who asks what the model is worth."""

import math
import os
from collections.abc import Iterator, Sequence

from albert.experiments import statistics
from albert.experiments.runs import Run
from albert.training import stuck_runs
from albert.training.results import ClassCount

_PERCENT = ("f1", "exact_match", "exact")  # of questions, in percent
_WORDS = {
    "eval_accuracy": "accuracy",
    "masked_lm_accuracy": "accuracy of masked words",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "samples_f1": "mean F1 of the texts",
    "matthew_corr": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "exact_match": "exact matches",
    "exact": "exact matches",
}
_SETS = "subset_accuracy"  # a score of several labels per text
_FURTHER = {
    "R2": "R²",
    "MAE": "mean absolute error",
    _SETS: "fraction of texts with exactly the right labels",
}


def sentences(run: Run) -> Iterator[str]:
    """Yields sentences on what the best checkpoint is worth; none without an evaluation."""
    if not run.result:
        return
    counts = [ClassCount(**row) for row in run.record.get("classes", ())]
    script = run.record["script"]
    # Entities are no examples, and a text may have several labels.
    is_one_each = script != "run_token_classifier" and _SETS not in run.result
    if counts and is_one_each:
        what = "questions" if script == "run_race" else "texts"
        yield _of_classes(counts, f"{what} of {_data_name(run)}")
    elif run.score is not None:
        yield _of_score(run)
    in_words = {stuck_runs.NOT_JUDGED: "the run was too short to tell whether its model learns"}
    for remark in run.remarks:
        text = in_words.get(remark, remark)
        yield f"{text[:1].upper()}{text[1:]}."


def _data_name(run: Run) -> str:
    """Returns the name of the data that the checkpoints were evaluated on."""
    entry = run.record["inputs"].get("eval_data") or {}
    return os.path.basename(entry.get("path", "")) or "the development data"


def _of_classes(counts: Sequence[ClassCount], examples: str) -> str:
    """Returns a sentence on how many examples (their noun) are right, and on a constant answer."""
    total, right = sum(row.labels for row in counts), sum(row.right for row in counts)
    most = max(counts, key=lambda row: row.labels)
    text = f"{right / total:.1%} of {total:,} {examples} right"
    if statistics.is_installed():
        test = statistics.scipy_stats().binomtest(right, total)
        low, high = test.proportion_ci(method="wilson")
        text += f" (95% interval {low:.1%} to {high:.1%})"
    return f"{text}; always answering {most.name} gives {most.labels / total:.1%}."


def _of_score(run: Run) -> str:
    """Returns a sentence on the best score of a run, further scores and the baseline."""
    name, score = run.best_metric or "", run.score
    scale = "%" if name in _PERCENT and "squad" in run.record["script"] else ""
    text = f"{_WORDS.get(name, name)} {score:.4g}{scale} on {_data_name(run)}"
    for other, word in _FURTHER.items():
        if other in run.result and other != name:
            text += f", {word} {run.result[other]:.4g}"
    baseline = (run.record.get("baseline") or {}).get(name)
    if baseline is not None and math.isfinite(baseline):
        text += f"; the best constant answer has {baseline:.4g}"
    return f"{text[:1].upper()}{text[1:]}."
