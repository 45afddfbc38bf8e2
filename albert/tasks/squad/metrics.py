"""Scores of SQuAD 1.1 and 2.0 by the rules of the official evaluation scripts.

Sources: Rajpurkar et al. 2016, section 6.1 (exact match and F1 of SQuAD 1.1); Rajpurkar et al.
2018, section 5 (unanswerable questions of SQuAD 2.0). All scores are percentages.

Arguments: `dataset` is the content of a SQuAD file, or its list under ``data``; `gold` is
``{id: [text, …]}``, see `gold_answers`; `predictions` are ``{id: text}``.
"""

import collections
import functools
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert.io.file_io import InputError
from albert.tasks.squad import null_threshold

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


# Every text is compared with several others; the cache spares most of an evaluation's time.
@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Lower-cases a text; removes ASCII punctuation, the words a, an, the, and extra spaces."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answer: str) -> float:
    """Returns 1.0 if both texts are equal after `normalize_answer`, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str, empty_is_an_answer: bool) -> float:
    """Returns the F1 of the words of the normalized texts, 0 to 1.

    Args:
      empty_is_an_answer: whether two texts without words score 1, as in SQuAD 2.0; in SQuAD 1.1
        they score 0.
    """
    predicted = normalize_answer(prediction).split()
    gold = normalize_answer(answer).split()
    if empty_is_an_answer and not (predicted and gold):
        return float(predicted == gold)
    common = sum((collections.Counter(predicted) & collections.Counter(gold)).values())
    if common == 0:
        return 0.0
    # The same order of operations as in the official scripts, so that the last bits agree.
    precision = 1.0 * common / len(predicted)
    recall = 1.0 * common / len(gold)
    return (2 * precision * recall) / (precision + recall)


def gold_answers(dataset: Any) -> dict[str, list[str]]:
    """Returns the gold texts of every question: ``{id: [text, …]}``, [] without an answer."""
    articles = dataset["data"] if isinstance(dataset, dict) else dataset
    return {
        question["id"]: [answer["text"] for answer in question.get("answers", ())]
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }


def best_scores(
    prediction: str, answers: Sequence[str], empty_is_an_answer: bool
) -> tuple[float, float]:
    """Returns the highest `exact_match` and `f1` of a prediction with any of the answers."""
    return (
        max(exact_match(prediction, answer) for answer in answers),
        max(f1(prediction, answer, empty_is_an_answer) for answer in answers),
    )


def evaluate_v1(dataset: Any, predictions: Mapping[str, str]) -> dict[str, float]:
    """Scores predictions for SQuAD 1.1.

    Questions without a prediction count as wrong and are logged. Questions without a gold answer
    (from a SQuAD 2.0 file) cannot be scored under these rules and are omitted.

    Returns:
      ``{"exact_match": percent, "f1": percent}``.
    """
    gold = {key: answers for key, answers in gold_answers(dataset).items() if answers}
    if not gold:
        raise InputError("evaluate_v1 needs gold answers; none of the questions has one")
    _report_missing(gold, predictions, "count as wrong")
    exact_sum = f1_sum = 0.0
    for key, answers in gold.items():
        if key in predictions:
            scores = best_scores(predictions[key], answers, empty_is_an_answer=False)
            exact_sum, f1_sum = exact_sum + scores[0], f1_sum + scores[1]
    return {"exact_match": 100.0 * exact_sum / len(gold), "f1": 100.0 * f1_sum / len(gold)}


def _report_missing(
    gold: Mapping[str, Any], predictions: Mapping[str, str], consequence: str
) -> None:
    """Logs how many questions have no prediction; `consequence` ends a sentence."""
    missing = [key for key in gold if key not in predictions]
    if missing:
        logging.warning(
            "%d of %d questions have no prediction and %s; the first is %s",
            len(missing),
            len(gold),
            consequence,
            missing[0],
        )


def raw_scores_v2(
    gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Computes exact match and F1 (0 to 1) of each predicted question by the rules of SQuAD 2.0.

    Args:
      gold: ``{id: [text, …]}``. Answers without any word after normalization are ignored; without
        answers the correct prediction is the empty text.
      predictions: ``{id: text}``; the result omits questions without a prediction.

    Returns:
      ``(exact, f1)``: two dicts ``{id: score}`` in the order of `gold`.
    """
    exact_scores, f1_scores = {}, {}
    for key, answers in gold.items():
        if key in predictions:
            answers = [answer for answer in answers if normalize_answer(answer)] or [""]
            exact_scores[key], f1_scores[key] = best_scores(predictions[key], answers, True)
    return exact_scores, f1_scores


def scores_v2(
    gold: Mapping[str, Sequence[str]], predictions: Mapping[str, str], suffix: str = ""
) -> dict[str, float]:
    """Computes overall, HasAns and NoAns scores of final predictions.

    Args:
      predictions: ``{id: text}``, with "" for questions predicted to be unanswerable.
      suffix: suffix of the keys of the result, which distinguishes thresholds.

    Returns:
      ``exact, f1, total``; also with the prefixes ``HasAns_`` and ``NoAns_`` if such questions
      exist.
    """
    exact_scores, f1_scores = raw_scores_v2(gold, predictions)
    groups = {
        "": list(exact_scores),
        "HasAns_": [key for key in exact_scores if gold[key]],
        "NoAns_": [key for key in exact_scores if not gold[key]],
    }
    result: dict[str, float] = {}
    for prefix, keys in groups.items():
        if keys:
            for name, scores in (("exact", exact_scores), ("f1", f1_scores)):
                mean = 100.0 * sum(scores[key] for key in keys) / len(keys)
                result[f"{prefix}{name}{suffix}"] = mean
            result[f"{prefix}total{suffix}"] = len(keys)
    return result


def evaluate_v2(
    dataset: Any,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_score_diff_threshold: float | None = None,
) -> dict[str, float]:
    """Scores predictions for SQuAD 2.0.

    Questions without a prediction are omitted from the scores, as in the official script, and
    logged.

    Args:
      predictions: ``{id: text}``: the best text of each question, even if the null odds make it
        unanswerable.
      null_odds: ``{id: score}``, high means unanswerable. Without them the predictions are scored
        unchanged, and the result has no entries about thresholds.
      null_score_diff_threshold: threshold to use; by default the one that maximizes F1 on this
        dataset, so the score is optimistic.

    Returns:
      At the threshold: ``exact, f1, total, HasAns_exact, HasAns_f1, HasAns_total, NoAns_exact,
      NoAns_f1, NoAns_total``. The threshold: ``null_score_diff_threshold``. The same scores at
      threshold 0, without the totals: ``exact_at_0, …``. The search of the official script:
      ``best_exact, best_exact_thresh, best_f1, best_f1_thresh``; that search answers the question
      at the threshold, so ``best_f1`` can be slightly above ``f1``.
    """
    gold = gold_answers(dataset)
    _report_missing(gold, predictions, "are not scored")
    predictions = {key: predictions[key] for key in gold if key in predictions}
    if not predictions:
        raise InputError(f"none of the {len(gold)} questions has a prediction")
    if null_odds is None:
        return scores_v2(gold, predictions)
    without_odds = [key for key in predictions if key not in null_odds]
    if without_odds:
        raise InputError(
            f"{len(without_odds)} of {len(predictions)} predicted questions have no null odds; "
            f"the first is {without_odds[0]}"
        )
    exact_scores, f1_scores = raw_scores_v2(gold, predictions)
    has_answer = {key: bool(gold[key]) for key in predictions}
    best_exact, exact_threshold = null_threshold.find_best(
        predictions, exact_scores, null_odds, has_answer
    )
    best_f1, f1_threshold = null_threshold.find_best(predictions, f1_scores, null_odds, has_answer)
    threshold = f1_threshold if null_score_diff_threshold is None else null_score_diff_threshold
    at_zero = scores_v2(gold, null_threshold.apply(predictions, null_odds, 0.0), "_at_0")
    return {
        **scores_v2(gold, null_threshold.apply(predictions, null_odds, threshold)),
        "null_score_diff_threshold": threshold,
        **{key: value for key, value in at_zero.items() if "total" not in key},
        "best_exact": best_exact,
        "best_exact_thresh": exact_threshold,
        "best_f1": best_f1,
        "best_f1_thresh": f1_threshold,
    }
