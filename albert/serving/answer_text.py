"""Reads questions, and formats answers as text and JSON."""

from collections.abc import Iterable, Iterator
from typing import Any

from albert.io import tables


def describe(reply: Any, context: str, num_answers: int) -> Iterator[str]:
    """Yields lines of text that describe a `question_predictor.Reply`."""
    if reply.null_odds is not None:
        verdict = "there is an answer" if reply.has_answer else "no answer in the text"
        sign = "<" if reply.null_odds < reply.threshold else ">="
        yield f"{verdict} (null odds {reply.null_odds:.3f} {sign} {reply.threshold:.3f})"
    answers = [answer for answer in reply.answers if answer.start is not None][:num_answers]
    if not answers:
        yield "nothing found"
    for answer in answers:
        line = context.count("\n", 0, answer.start) + 1
        text = " ".join(answer.text.split())
        place = f"line {line}, characters {answer.start} to {answer.end}"
        yield f"{answer.probability:6.3f}  {text}  ({place})"


def _describe_place(place: Any) -> str:
    text = f" ({place.text.strip()!r})" if place.text.strip() else ""
    return f"token {place.token}{text} of window {place.window}"


def describe_example(example: Any, explanation: Any, num_answers: int) -> Iterator[str]:
    """Yields lines of text that describe an example and its `question_predictor.Explanation`."""
    yield f"question:       {example.question_text}"
    yield f"text:           {' '.join(example.paragraph_text.split())}"
    gold = "not known" if example.answers is None else "none"
    if example.answers and not example.is_impossible:
        gold = " | ".join(dict.fromkeys(example.answers))
    yield f"gold answer:    {gold}"
    places = ("gold start", "gold end") if explanation.gold else ()
    pairs = zip(places, explanation.gold or (), strict=True)
    for name, place in (
        *pairs,
        ("highest start", explanation.start),
        ("highest end", explanation.end),
    ):
        yield f"{name + ':':<16}{_describe_place(place)}"
    yield "predicted answer:"
    yield from describe(explanation.reply, example.paragraph_text, num_answers)


def read_questions(
    lines: Iterable[bytes], name: str, context: str | None
) -> Iterator[tuple[str, str, str, str]]:
    """Yields (id, place for messages, question, text) for each object of a jsonl file.

    Args:
      lines: iterable of bytes.
      name: name of the file, for messages.
      context: text for questions without one; None: each question must have its own.
    """
    for number, (place, row) in enumerate(tables.read_rows(lines, name, "jsonl")):
        question = tables.text_of(row, "question", "question", place)
        text = context
        if text is None or "context" in row:
            text = tables.text_of(row, "context", "context_file", place)
        guid = tables.name_of(row, "id", "id", place) if "id" in row else str(number)
        yield guid, place, question, text


def to_dict(reply: Any) -> dict[str, Any]:
    """Returns a JSON-ready dict of the best answers of a `question_predictor.Reply`."""
    question = reply.question
    spans = [answer for answer in reply.answers if answer.start is not None]
    answers = [
        {"text": a.text, "probability": float(a.probability), "start": a.start, "end": a.end}
        for a in spans[: question.num_answers]
    ]
    best = answers[0]["text"] if reply.has_answer else ""
    row = {"id": question.guid, "question": question.question, "answer": best, "answers": answers}
    if reply.null_odds is not None:
        row |= {"null_odds": float(reply.null_odds), "threshold": float(reply.threshold)}
    if reply.truncated:
        row["truncated"] = True
    return row
