"""Describes the answers to questions for people."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albert.serving.question_predictor import Explanation, Place, Reply
    from albert.tasks.squad.features import SquadExample


def describe(reply: "Reply", context: str, num_answers: int) -> Iterator[str]:
    """Yields lines of text that describe a reply."""
    if reply.null_odds is not None and reply.threshold is not None:
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


def _describe_place(place: "Place") -> str:
    text = f" ({place.text.strip()!r})" if place.text.strip() else ""
    return f"token {place.token}{text} of window {place.window}"


def describe_example(
    example: "SquadExample", explanation: "Explanation", num_answers: int
) -> Iterator[str]:
    """Yields lines of text that describe an example and its explanation."""
    yield f"question:       {example.question_text}"
    yield f"text:           {' '.join(example.paragraph_text.split())}"
    gold = "not known" if example.answers is None else "none"
    if example.answers and not example.is_impossible:
        gold = " | ".join(dict.fromkeys(example.answers))
    yield f"gold answer:    {gold}"
    places = [*(explanation.gold or ()), explanation.start, explanation.end]
    names = ("gold start", "gold end", "highest start", "highest end")[-len(places) :]
    for name, place in zip(names, places, strict=True):
        yield f"{name + ':':<16}{_describe_place(place)}"
    yield "predicted answer:"
    yield from describe(explanation.reply, example.paragraph_text, num_answers)
