"""Reads the files of SQuAD 1.1 and 2.0, finds answers in the scores of a model, and writes them.

Arguments: `features` are the windows of the questions, not made for training; `results` is
{unique_id: scores of the window}; `n_best_size` is the maximum number of answers of a question,
`max_answer_length` the maximum number of pieces in an answer; `place` names a part of a file, for
messages.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
import operator
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert.io import file_io
from albert.io.file_io import InputError
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import null_threshold
from albert.tasks.squad import spans as squad_spans
from albert.tasks.squad.features import SquadExample, SquadFeatures

TRAINING_SHUFFLE_SEED = 12345
# Null odds of questions without any window, which are never answered.
NO_WINDOW_NULL_ODDS = 1000000.0
# Logit of padding: never among the best, so that answers do not depend on the length of the batch.
NO_LOGIT = -1e30
WINDOWS_AT_A_TIME = 4096

WindowScores = Mapping[str, Any]  # arrays or lists by the name of a model's output


def read_squad_examples(
    path: str, is_training: bool, answerable_only: bool = False
) -> list[SquadExample]:
    """Reads a file in the format of SQuAD.

    Args:
      path: JSON file of version 1.1 or 2.0, with or without answers.
      is_training: whether each question must have exactly one answer or be impossible.
      answerable_only: whether those without an answer are omitted later, so that training allows
        them.

    Returns:
      The questions in the order of the file.

    Raises:
      InputError: the file is not JSON or has another structure; two questions have the same id; a
        training question has no or several different answers, or its answer is not at the given
        position.
        The message names the file and the place or the id.
    """
    content = file_io.read_json(path, "SQuAD file", max_bytes=None)
    examples: list[SquadExample] = []
    places: dict[str, str] = {}
    oddities: _Oddities = collections.defaultdict(list)
    for article_number, paragraph_number, paragraph in _paragraphs(path, content):
        place = f"data[{article_number}].paragraphs[{paragraph_number}]"
        text = _field(path, place, paragraph, "context", str)
        for number, question in enumerate(_field(path, place, paragraph, "qas", list)):
            question_place = f"{place}.qas[{number}]"
            example, pairs = _read_question(
                path, question_place, question, text, is_training, oddities
            )
            if is_training:
                example.orig_answer_text, example.start_position = "", -1
                if not example.is_impossible and (pairs or not answerable_only):
                    _set_training_answer(path, example, pairs)
            first = places.setdefault(example.qas_id, question_place)
            if not is_training and first != question_place:
                raise InputError(
                    f"SQuAD file: {path}: two questions have the id {example.qas_id!r}, {first} "
                    f"and {question_place}; their answers could not be distinguished"
                )
            example.article, example.paragraph = article_number, paragraph_number
            examples.append(example)
    if not examples:
        raise InputError(f"SQuAD file: {path} holds no questions")
    _log_oddities(path, oddities, answers_known(examples))
    return examples


# {what is odd about questions and how they are read: their ids}
_Oddities = dict[str, list[str]]
_ANSWERED = "are is_impossible and have answers: they count as unanswerable"
_UNANSWERED = "have no answers and are not is_impossible: they count as unanswerable"
_MISPLACED = "have an answer that is not at its answer_start: only its text counts"


def _log_oddities(path: str, oddities: _Oddities, answers_known: bool) -> None:
    """Logs the numbers of odd questions; those without answers only if `answers_known`."""
    for what, keys in oddities.items():
        if answers_known or what != _UNANSWERED:
            logging.warning(
                "SQuAD file: %s: %d questions %s; such as %s",
                path,
                len(keys),
                what,
                ", ".join(keys[:3]),
            )


_KINDS = {
    str: "text", int: "number", bool: "true or false", list: "list", dict: "object",
    type(None): "null",
}  # fmt: skip


def _field(path: str, place: str, value: object, name: str, kind: type) -> Any:
    """Returns what `value`, an object of JSON, has under a key, after a check of both types."""
    # For Python, booleans are also integers.
    if not isinstance(value, dict) or type(value.get(name)) is not kind:
        actual = "none"
        if isinstance(value, dict) and name in value:
            actual = _KINDS.get(type(value[name]), type(value[name]).__name__)
        raise InputError(
            f"SQuAD file: {path}: expected {name!r} ({_KINDS[kind]}) in {place}, found {actual}"
        )
    if kind is str:
        try:
            value[name].encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"SQuAD file: {path}: {name!r} in {place} is not valid text: {error}"
            ) from error
    return value[name]


def _paragraphs(path: str, content: object) -> Iterator[tuple[int, int, Any]]:
    """Yields (number of the article, number of the paragraph in it, JSON of the paragraph)."""
    for i, article in enumerate(_field(path, "the file", content, "data", list)):
        for j, paragraph in enumerate(_field(path, f"data[{i}]", article, "paragraphs", list)):
            yield i, j, paragraph


def _read_question(
    path: str, place: str, question: Any, text: str, is_training: bool, oddities: _Oddities
) -> tuple[SquadExample, list[tuple[str, int | None]]]:
    """Returns the question in an object of JSON, and its answers, after a check of its parts.

    Each answer is (text, place of its first character or None).
    `text` is that of the paragraph. In training a question must have exactly one answer or be
    impossible.
    """
    is_number = isinstance(question, dict) and type(question.get("id")) is int
    example = SquadExample(
        qas_id=str(question["id"]) if is_number else _field(path, place, question, "id", str),
        question_text=_field(path, place, question, "question", str),
        paragraph_text=text,
    )
    place = f"question {example.qas_id!r} ({place})"
    if "is_impossible" in question:
        example.is_impossible = _field(path, place, question, "is_impossible", bool)
    pairs: list[tuple[str, int | None]] = []
    if "answers" in question:
        for answer in _field(path, place, question, "answers", list):
            start = None
            if is_training or (isinstance(answer, dict) and "answer_start" in answer):
                start = _field(path, place, answer, "answer_start", int)
            pairs.append((_field(path, place, answer, "text", str), start))
        _set_answers(example, pairs, is_training, "is_impossible" in question, oddities)
    return example, pairs


def _set_answers(
    example: SquadExample,
    pairs: list[tuple[str, int | None]],
    is_training: bool,
    is_stated: bool,
    oddities: _Oddities,
) -> None:
    """Sets the answers of a question from pairs (text, place of its first character or None).

    `is_stated`: whether the file says if the question is impossible.
    """
    if example.is_impossible and pairs:
        oddities[_ANSWERED].append(example.qas_id)
        pairs = []
    elif is_stated and not (pairs or example.is_impossible):
        oddities[_UNANSWERED].append(example.qas_id)
    starts = [start if _is_at(text, start, example) else None for text, start in pairs]
    given = [start for _, start in pairs if start is not None]
    if not is_training and len(given) > len(starts) - starts.count(None):
        oddities[_MISPLACED].append(example.qas_id)
    example.answers, example.answer_starts = tuple(text for text, _ in pairs), tuple(starts)


def _is_at(text: str, start: int | None, example: SquadExample) -> bool:
    """Returns whether a text is in the paragraph at character `start`, from 0; None: it is not."""
    is_inside = start is not None and start >= 0
    return bool(text) and is_inside and example.paragraph_text.startswith(text, start)


def _set_training_answer(
    path: str, example: SquadExample, pairs: list[tuple[str, int | None]]
) -> None:
    """Sets the only answer of a training question, which must be at its place in the paragraph."""
    pairs = list(dict.fromkeys(pairs))  # several people may have given the same answer
    if len(pairs) != 1:
        raise InputError(
            f"SQuAD file: {path}: question {example.qas_id!r} has {len(pairs)} different answers; "
            "for training each question must have exactly one, or is_impossible"
        )
    ((text, start),) = pairs
    if not _is_at(text, start, example):
        start = -1 if start is None else start
        span = example.paragraph_text[start : start + len(text)] if start >= 0 else ""
        raise InputError(
            f"SQuAD file: {path}: the answer of question {example.qas_id!r} is {text!r}, but at "
            f"character {start} the context has {span!r}; {_where(text, example.paragraph_text)}"
        )
    example.orig_answer_text, example.start_position = text, start


def _where(text: str, context: str) -> str:
    """Returns where a text is in its context, in words."""
    starts = [str(match.start()) for match in re.finditer(re.escape(text), context)]
    if not text or not starts:
        return "give a text that is in the context" if not text else "it is nowhere in the context"
    shown = ", ".join(starts[:5]) + (", …" if len(starts) > 5 else "")
    return f"it is at character {shown} (counted from 0, in characters of Unicode)"


def answers_known(examples: Sequence[SquadExample]) -> bool:
    """Returns whether gold answers of the questions are known, so that predictions are scored.

    Empty lists of answers alone do not count as known, since files without gold answers also have
    them: unanswerable questions need ``is_impossible``.
    """
    return all(example.answers is not None for example in examples) and any(
        example.answers or example.is_impossible for example in examples
    )


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions to answer, and their windows in the order of the records."""

    examples: list[SquadExample]
    features: list[SquadFeatures]

    @functools.cached_property
    def answers_known(self) -> bool:
        """Returns whether the questions come with their answers."""
        return answers_known(self.examples)

    @functools.cached_property
    def dataset(self) -> list[dict[str, Any]]:
        """Returns the gold answers as the list of articles of a SQuAD file."""
        questions = [
            {"id": example.qas_id, "answers": [{"text": text} for text in example.answers or ()]}
            for example in self.examples
        ]
        return [{"paragraphs": [{"qas": questions}]}]


def no_questions() -> Questions:
    """Returns the questions of a task that evaluates nothing."""
    return Questions([], [])


def shuffle_examples(examples: Iterable[SquadExample]) -> list[SquadExample]:
    """Returns the examples in the shuffled order of training records."""
    examples = list(examples)
    random.Random(TRAINING_SHUFFLE_SEED).shuffle(examples)
    return examples


@dataclasses.dataclass(slots=True)
class Answer:
    """One answer of a question.

    Attributes:
      text: the answer, without white space around it.
      probability: softmax of the sums of scores over the answers kept for the question.
      start_log_prob, end_log_prob: scores of its two ends.
      start, end: first character of `text` in the paragraph and the one after the last; None if
        no answer was found.
    """

    text: str
    probability: float
    start_log_prob: float
    end_log_prob: float
    start: int | None = None
    end: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns text, probability and both scores by name: an entry of nbest_predictions.json."""
        return {
            "text": self.text,
            "probability": self.probability,
            "start_log_prob": self.start_log_prob,
            "end_log_prob": self.end_log_prob,
        }


def scores_of(outputs: Mapping[str, np.ndarray], input_mask: np.ndarray) -> dict[str, np.ndarray]:
    """Returns {name: [B, …]}, windows' scores for `best_answers_v1` and `best_answers_v2`.

    Args:
      outputs: arrays [B, ...] by name that a SQuAD model returns.
      input_mask: [B, S], 0 at padding, which holds no answer.
    """
    names = {"start_logits": "start_log_prob", "end_logits": "end_log_prob"}
    return {
        names.get(name, name): np.where(input_mask, x, NO_LOGIT) if name in names else x
        for name, x in outputs.items()
    }


def best_answers_v1(
    examples: Sequence[SquadExample],
    features: Sequence[SquadFeatures],
    results: Mapping[int, WindowScores],
    n_best_size: int,
    max_answer_length: int,
) -> list[list[Answer]]:
    """Finds the best answers of each question by start and end logits.

    Args:
      features: the windows of the questions, not made for training.
      results: ``{unique_id: {"start_log_prob": [S], "end_log_prob": [S]}}`` float arrays; S may
        differ between windows.
      n_best_size: number of starts and ends of a window, and of answers of a question.

    Returns:
      For each example a list of `Answer`, best first; the text is "empty" if there is none.
    """

    def candidates(rows: Sequence[WindowScores]) -> squad_spans.Candidates:
        """Pairs starts and ends in each window of rows, the scores of windows."""
        starts, ends = (_stack(rows, key) for key in ("start_log_prob", "end_log_prob"))
        return squad_spans.candidates_from_logits(starts, ends, n_best_size)

    none = Answer("empty", 1.0, 0.0, 0.0)
    return _best_answers(
        examples, features, results, candidates, n_best_size, max_answer_length, none
    )


def best_answers_v2(
    examples: Sequence[SquadExample],
    features: Sequence[SquadFeatures],
    results: Mapping[int, WindowScores],
    n_best_size: int,
    max_answer_length: int,
    start_n_top: int,
    end_n_top: int,
) -> list[list[Answer]]:
    """Finds the best answers of each question by beams of starts and ends.

    Args:
      results: ``{unique_id: {"start_top_log_probs": [K], "start_top_index": [K],
        "end_top_log_probs": [K*M], "end_top_index": [K*M], "cls_logits": scalar}}``.
      start_n_top, end_n_top: K and M.

    Returns:
      For each example a list of `Answer`, best first; the text is "" if there is none.
    """
    names = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")

    def candidates(rows: Sequence[WindowScores]) -> squad_spans.Candidates:
        """Pairs starts and ends in each window of rows, the scores of windows."""
        columns = []
        for name in names:
            expected = start_n_top * (end_n_top if name.startswith("end") else 1)
            for row in rows:
                if len(row[name]) != expected:
                    raise InputError(
                        f"a window has {len(row[name])} {name}; expected {expected} with "
                        f"start_n_top {start_n_top} and end_n_top {end_n_top}"
                    )
            columns.append(np.concatenate([row[name] for row in rows]).reshape(len(rows), -1))
        return squad_spans.candidates_from_beams(*columns)

    none = Answer("", 1.0, -1e6, -1e6)
    return _best_answers(
        examples, features, results, candidates, n_best_size, max_answer_length, none
    )


def _stack(rows: Sequence[WindowScores], key: str) -> np.ndarray:
    """Stacks rows of scores into one array; pads shorter rows with -inf."""
    lengths = [len(row[key]) for row in rows]
    flat = np.concatenate([row[key] for row in rows]).astype(np.float32, copy=False)
    if min(lengths) == max(lengths):
        return flat.reshape(len(rows), -1)
    stacked = np.full((len(rows), max(lengths)), -np.inf, np.float32)
    stacked[np.arange(max(lengths)) < np.array(lengths)[:, None]] = flat
    return stacked


def _best_answers(
    examples: Sequence[SquadExample],
    features: Sequence[SquadFeatures],
    results: Mapping[int, WindowScores],
    candidates: Callable[[Sequence[WindowScores]], squad_spans.Candidates],
    n_best_size: int,
    max_answer_length: int,
    none: Answer,
) -> list[list[Answer]]:
    """Finds the best answers of each question among candidates, best first.

    Args:
      candidates: pairs starts and ends of some windows, from their scores.
      none: answer of questions for which no span is possible.
    """
    number_of = {example.qas_id: number for number, example in enumerate(examples)}
    _check_results(features, number_of, results)
    by_question: list[list[SquadFeatures]] = [[] for _ in examples]
    for window in features:
        by_question[number_of[window.question]].append(window)
    answers = [[none] for _ in examples]
    for windows in _groups(by_question):
        places = squad_spans.WindowPlaces(
            question=np.array([number_of[window.question] for window in windows]),
            begin=np.array([window.max_context[0] for window in windows]),
            end=np.array([window.max_context[1] for window in windows]),
            text_end=np.array([window.text_end for window in windows]),
        )
        rows = [results[window.unique_id] for window in windows]
        spans = squad_spans.best_spans(candidates(rows), places, max_answer_length)
        for number, nbest in _distinct_texts(examples, windows, spans, n_best_size):
            answers[number] = nbest
    return answers


def _check_results(
    features: Sequence[SquadFeatures],
    number_of: Mapping[str, int],
    results: Mapping[int, WindowScores],
) -> None:
    """Rejects windows without scores, and those of other questions."""
    missing = [window.unique_id for window in features if window.unique_id not in results]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(features)} windows have no scores; the first is window "
            f"{missing[0]}. The scores must come from the same features"
        )
    for window in features:
        if window.qas_id not in number_of:
            raise InputError(
                f"window {window.unique_id} belongs to question {window.qas_id!r}, which is not "
                "among the examples; features must come from the same file, and not be made for "
                "training"
            )


def _groups(by_question: Iterable[list[SquadFeatures]]) -> Iterator[list[SquadFeatures]]:
    """Joins lists of one question's windows to lists of about `WINDOWS_AT_A_TIME` windows."""
    group = []
    for windows in by_question:
        group += windows
        if len(group) >= WINDOWS_AT_A_TIME:
            yield group
            group = []
    if group:
        yield group


def _distinct_texts(
    examples: Sequence[SquadExample],
    windows: Sequence[SquadFeatures],
    spans: dict[str, np.ndarray],
    n_best_size: int,
) -> Iterator[tuple[int, list[Answer]]]:
    """Yields (question number, answers): of spans with the same text only the best."""
    names = ("question", "window", "start", "end", "start_score", "end_score")
    rows = zip(*(spans[name].tolist() for name in names), strict=True)
    for number, group in itertools.groupby(rows, key=operator.itemgetter(0)):
        paragraph = examples[number].paragraph_text
        answers = {}
        for _, window, start, end, start_score, end_score in group:
            window = windows[window]
            begin = int(window.piece_start[start - window.text_begin])
            raw = paragraph[begin : int(window.piece_end[end - window.text_begin]) + 1]
            text = raw.strip()
            if text not in answers:
                begin += len(raw) - len(raw.lstrip())
                answers[text] = Answer(text, 0.0, start_score, end_score, begin, begin + len(text))
                if len(answers) == n_best_size:
                    break
        yield number, with_probabilities(list(answers.values()))


def with_probabilities(answers: list[Answer]) -> list[Answer]:
    """Sets the probabilities of the answers of a question, best first; returns them."""
    scores = [answer.start_log_prob + answer.end_log_prob for answer in answers]
    weights = [math.exp(score - scores[0]) for score in scores]  # the first is the largest
    total = sum(weights)
    for answer, weight in zip(answers, weights, strict=True):
        answer.probability = weight / total
    return answers


def _to_nbest(
    examples: Sequence[SquadExample], answers: list[list[Answer]]
) -> dict[str, list[dict]]:
    """Returns {qas_id: entries of nbest_predictions.json}, see `Answer.to_json`."""
    return {
        example.qas_id: [answer.to_json() for answer in nbest]
        for example, nbest in zip(examples, answers, strict=True)
    }


def predictions_v1(
    examples: Sequence[SquadExample],
    features: Sequence[SquadFeatures],
    results: Mapping[int, WindowScores],
    n_best_size: int,
    max_answer_length: int,
) -> tuple[dict[str, str], dict[str, list[dict]]]:
    """Answers questions under the rules of SQuAD 1.1.

    Args:
      features: the windows of the questions, not made for training.
      results: ``{unique_id: {"start_log_prob": [S], "end_log_prob": [S]}}`` float arrays.
      n_best_size: number of starts and ends of a window, and of answers of a question.

    Returns:
      ``(predictions, nbest)``: ``{qas_id: text}`` and ``{qas_id: [{"text", "probability",
      "start_log_prob", "end_log_prob"}, …]}``.
    """
    answers = best_answers_v1(examples, features, results, n_best_size, max_answer_length)
    nbest = _to_nbest(examples, answers)
    return {key: entries[0]["text"] for key, entries in nbest.items()}, nbest


def predictions_v2(
    examples: Sequence[SquadExample],
    features: Sequence[SquadFeatures],
    results: Mapping[int, WindowScores],
    n_best_size: int,
    max_answer_length: int,
    start_n_top: int,
    end_n_top: int,
    null_score_diff_threshold: float | None = None,
) -> tuple[dict[str, str], dict[str, list[dict]], dict[str, float]]:
    """Answers questions under the rules of SQuAD 2.0, with "" if predicted to be unanswerable.

    Args:
      results: {unique_id: scores of the window}, see `best_answers_v2`.
      null_score_diff_threshold: null odds from which a question is not answered; by default those
        that maximize F1 on these examples, or 0 if their answers are not known.

    Returns:
      ``(predictions, nbest, null_odds)``: for the first two see `predictions_v1`; for the last see
      `find_null_odds`. The best text of a question, whatever its null odds, is in its first n-best
      entry.
    """
    answers = best_answers_v2(
        examples, features, results, n_best_size, max_answer_length, start_n_top, end_n_top
    )
    nbest = _to_nbest(examples, answers)
    texts = {key: entries[0]["text"] for key, entries in nbest.items()}
    null_odds = find_null_odds(examples, features, results)
    if null_score_diff_threshold is None:
        null_score_diff_threshold = _best_threshold(examples, texts, null_odds)
    predictions = null_threshold.apply(texts, null_odds, null_score_diff_threshold)
    return predictions, nbest, null_odds


def find_null_odds(
    examples: Sequence[SquadExample],
    features: Sequence[SquadFeatures],
    results: Mapping[int, WindowScores],
) -> dict[str, float]:
    """Returns ``{qas_id: score}``, the minimum ``cls_logits`` of each question's windows."""
    null_odds = {example.qas_id: NO_WINDOW_NULL_ODDS for example in examples}
    for window in features:
        score = float(np.ravel(results[window.unique_id]["cls_logits"])[0])
        null_odds[window.question] = min(null_odds[window.question], score)
    return null_odds


def _best_threshold(
    examples: Sequence[SquadExample], texts: dict[str, str], null_odds: dict[str, float]
) -> float:
    """Returns the null odds that maximize F1; 0 if the questions' answers are not known."""
    if not answers_known(examples):
        logging.info("The questions' answers are not known; using the threshold 0")
        return 0.0
    gold = {example.qas_id: example.answers or () for example in examples}
    _, f1_scores = squad_metrics.raw_scores_v2(gold, texts)
    has_answer = {key: bool(answers) for key, answers in gold.items()}
    return null_threshold.find_best(texts, f1_scores, null_odds, has_answer)[1]


def write_predictions(
    output_dir: str,
    predictions: Mapping[str, str],
    nbest: Mapping[str, list[dict]],
    null_odds: Mapping[str, float] | None = None,
) -> None:
    """Writes predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json.

    Args:
      nbest: {qas_id: [{"text": …, "probability": …, …}, …]}, see `Answer.to_json`.
      null_odds: {qas_id: score}; None for SQuAD 1.1.
    """
    contents = {"predictions": predictions, "nbest_predictions": nbest, "null_odds": null_odds}
    for name, content in contents.items():
        if content is not None:
            text = json.dumps(content, indent=4) + "\n"
            file_io.write_text(f"{output_dir}/{name}.json", text)
