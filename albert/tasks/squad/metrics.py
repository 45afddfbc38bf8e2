"""Scores of SQuAD 1.1 and 2.0 by the rules of the official evaluation scripts.

Sources: Rajpurkar et al. 2016, section 6.1 (exact match and F1 of SQuAD 1.1); Rajpurkar et al.
2018, section 5 (unanswerable questions of SQuAD 2.0). All scores are percentages.
"""

import collections
import functools
import re
import string

from absl import logging

from albert.io.file_io import InputError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


# Every text is compared with several others; the cache spares most of an evaluation's time.
@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text):
    """Lower case, without ASCII punctuation and the words a, an, the; single spaces."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction, answer):
    """1.0 where both texts are equal after `normalize_answer`, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction, answer, empty_is_an_answer):
    """Harmonic mean of precision and recall over the words of the normalized texts, 0 to 1.

    Args:
      prediction: predicted text.
      answer: gold text.
      empty_is_an_answer: the rule of SQuAD 2.0: where one of the texts has no words, the score is
        1 if the other has none either. Under SQuAD 1.1 it is 0.
    """
    predicted = normalize_answer(prediction).split()
    gold = normalize_answer(answer).split()
    if empty_is_an_answer and not (predicted and gold):
        return float(predicted == gold)
    common = sum((collections.Counter(predicted) & collections.Counter(gold)).values())
    if common == 0:
        return 0.0
    # Written out as in the official scripts: the last bits of the sums agree too.
    precision = 1.0 * common / len(predicted)
    recall = 1.0 * common / len(gold)
    return (2 * precision * recall) / (precision + recall)


def _questions(dataset):
    """Yields the question dicts of a SQuAD file's content, or of its list of articles."""
    articles = dataset["data"] if isinstance(dataset, dict) else dataset
    for article in articles:
        for paragraph in article["paragraphs"]:
            yield from paragraph["qas"]


def gold_answers(dataset):
    """Gold texts of every question: ``{id: [text, …]}``, empty where there is no answer.

    Args:
      dataset: content of a SQuAD file, or its list under ``data``.
    """
    return {
        question["id"]: [answer["text"] for answer in question.get("answers", ())]
        for question in _questions(dataset)
    }


def evaluate_v1(dataset, predictions):
    """Scores of SQuAD 1.1.

    A question without a prediction counts as wrong and is reported in the log. Questions without
    a gold answer (of a SQuAD 2.0 file) cannot be scored under these rules and are left out.

    Args:
      dataset: content of a SQuAD file, or its list under ``data``.
      predictions: ``{id: text}``.

    Returns:
      ``{"exact_match": percent, "f1": percent}``.

    Raises:
      InputError: no question has a gold answer.
    """
    gold = {key: answers for key, answers in gold_answers(dataset).items() if answers}
    if not gold:
        raise InputError("evaluate_v1 needs gold answers; none of the questions has one")
    _report_missing(gold, predictions, "count as wrong")
    exact_sum = f1_sum = 0.0
    for key, answers in gold.items():
        if key in predictions:
            text = predictions[key]
            exact_sum += max(exact_match(text, answer) for answer in answers)
            f1_sum += max(f1(text, answer, empty_is_an_answer=False) for answer in answers)
    return {
        "exact_match": 100.0 * exact_sum / len(gold),
        "f1": 100.0 * f1_sum / len(gold),
    }


def _report_missing(gold, predictions, consequence):
    missing = [key for key in gold if key not in predictions]
    if missing:
        logging.warning(
            "%d of %d questions have no prediction and %s; the first is %s",
            len(missing),
            len(gold),
            consequence,
            missing[0],
        )


def raw_scores_v2(gold, predictions):
    """Exact match and F1 (0 to 1) of each predicted question under the rules of SQuAD 2.0.

    Args:
      gold: ``{id: [text, …]}``. An answer without any word after normalization is no answer, and
        without answers the right prediction is the empty text.
      predictions: ``{id: text}``; questions that are missing here are missing in the result.

    Returns:
      ``(exact, f1)``: two dicts ``{id: score}`` in the order of `gold`.
    """
    exact_scores, f1_scores = {}, {}
    for key, answers in gold.items():
        if key in predictions:
            text = predictions[key]
            answers = [answer for answer in answers if normalize_answer(answer)] or [""]
            exact_scores[key] = max(exact_match(text, answer) for answer in answers)
            f1_scores[key] = max(f1(text, answer, empty_is_an_answer=True) for answer in answers)
    return exact_scores, f1_scores


def apply_threshold(predictions, null_odds, threshold):
    """Final answers: the empty text where the null odds reach the threshold.

    Args:
      predictions: ``{id: text}``, the best text of each question.
      null_odds: ``{id: score}``; high means unanswerable.
      threshold: questions with ``null_odds >= threshold`` are answered with "".
    """
    return {key: "" if null_odds[key] >= threshold else text for key, text in predictions.items()}


def find_best_threshold(predictions, scores, null_odds, has_answer):
    """The null odds up to which answering pays, as the official script searches them.

    Starting from "never answer", questions are answered one after another by rising odds; the
    threshold is the odds of the question after which the sum of scores was highest. It is 0.0
    where answering never pays.

    Args:
      predictions: ``{id: text}``, the best text of each question.
      scores: ``{id: score}`` of these texts, from `raw_scores_v2`.
      null_odds: ``{id: score}``; high means unanswerable.
      has_answer: ``{id: bool}``.

    Returns:
      ``(best score in percent, threshold)``.
    """
    current = best = sum(not known for known in has_answer.values())
    threshold = 0.0
    for key in sorted(null_odds, key=null_odds.get):
        if key not in scores:
            continue
        if has_answer[key]:
            current += scores[key]
        elif predictions[key]:
            current -= 1
        if current > best:
            best = current
            threshold = null_odds[key]
    return 100.0 * best / len(scores), threshold


def _mean_scores(exact_scores, f1_scores, keys, names):
    """Percentages over `keys`; names are those of the exact, F1 and total entries."""
    total = len(keys)
    values = (
        100.0 * sum(exact_scores[key] for key in keys) / total,
        100.0 * sum(f1_scores[key] for key in keys) / total,
        total,
    )
    return dict(zip(names, values, strict=True))


def scores_v2(gold, predictions, suffix=""):
    """Overall, HasAns and NoAns scores of final predictions.

    Args:
      gold: ``{id: [text, …]}``, from `gold_answers`.
      predictions: ``{id: text}``, with "" for questions held to be unanswerable.
      suffix: end of each key of the result, to tell thresholds apart.

    Returns:
      ``exact, f1, total`` and the same with ``HasAns_`` and ``NoAns_`` in front, these only where
      such questions exist.
    """
    exact_scores, f1_scores = raw_scores_v2(gold, predictions)
    groups = {
        "": list(exact_scores),
        "HasAns_": [key for key in exact_scores if gold[key]],
        "NoAns_": [key for key in exact_scores if not gold[key]],
    }
    result = {}
    for prefix, keys in groups.items():
        if keys:
            names = [f"{prefix}{name}{suffix}" for name in ("exact", "f1", "total")]
            result.update(_mean_scores(exact_scores, f1_scores, keys, names))
    return result


def evaluate_v2(dataset, predictions, null_odds=None, null_score_diff_threshold=None):
    """Scores of SQuAD 2.0.

    A question without a prediction is left out of the scores, as in the official script, and
    reported in the log.

    Args:
      dataset: content of a SQuAD file, or its list under ``data``.
      predictions: ``{id: text}``: the best text of each question, whether or not the question is
        then held to be unanswerable.
      null_odds: ``{id: score}``, high means unanswerable. Without it the predictions are scored
        as they are, and the entries about thresholds are missing.
      null_score_diff_threshold: threshold to use; by default the one that maximises F1 on this
        very dataset, so that the score is somewhat flattering.

    Returns:
      At the threshold: ``exact, f1, total, HasAns_exact, HasAns_f1, HasAns_total, NoAns_exact,
      NoAns_f1, NoAns_total``. The threshold: ``null_score_diff_threshold``. The same scores at
      threshold 0, without the totals: ``exact_at_0, …``. The search of the official script:
      ``best_exact, best_exact_thresh, best_f1, best_f1_thresh``; there the question at the
      threshold itself is answered, so ``best_f1`` can be a little above ``f1``.

    Raises:
      InputError: no question has a prediction, or a predicted question has no null odds.
    """
    gold = gold_answers(dataset)
    _report_missing(gold, predictions, "are left out of the scores")
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
    best_exact, exact_threshold = find_best_threshold(
        predictions, exact_scores, null_odds, has_answer
    )
    best_f1, f1_threshold = find_best_threshold(predictions, f1_scores, null_odds, has_answer)
    threshold = f1_threshold if null_score_diff_threshold is None else null_score_diff_threshold
    at_zero = scores_v2(gold, apply_threshold(predictions, null_odds, 0.0), "_at_0")
    return {
        **scores_v2(gold, apply_threshold(predictions, null_odds, threshold)),
        "null_score_diff_threshold": threshold,
        **{key: value for key, value in at_zero.items() if "total" not in key},
        "best_exact": best_exact,
        "best_exact_thresh": exact_threshold,
        "best_f1": best_f1,
        "best_f1_thresh": f1_threshold,
    }
