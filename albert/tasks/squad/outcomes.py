"""The outcomes of questions, for the file of `tasks.outcomes`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from albert.tasks.outcomes import Outcome, shortened
from albert.tasks.squad import metrics
from albert.tasks.squad.features import SquadExample
from albert.tasks.squad.task import Answers

NO_ANSWER = "(no answer)"
_AROUND_ANSWER = 160  # characters of the paragraph on each side


def question_outcomes(
    examples: Iterable[SquadExample], answers: Answers, texts: Mapping[str, str]
) -> Iterator[Outcome]:
    """Yields the outcomes of questions whose answers are known.

    Their numbers are the scores of the given text in percent, by the names of the results, the
    probability of the best text, and whether the question has an answer (0 or 1). SQuAD 2.0 also
    has the null odds, and, if there is any text to answer with, the scores of the best text without
    a threshold.

    Args:
      examples: the questions; those without an answer are omitted under the rules of SQuAD 1.1.
      texts: {id: text, "" for none} after the threshold.
    """
    for example in examples:
        key, gold = example.qas_id, list(dict.fromkeys(example.answers or ()))
        best, odds = answers.texts[key], answers.null_odds
        if odds is None and not gold:
            continue
        exact, f1 = _scores(gold, texts[key], odds is not None)
        numbers = {
            "exact_match" if odds is None else "exact": exact,
            "f1": f1,
            "probability": answers.nbest[key][0]["probability"],
            "has_answer": int(bool(gold)),
        }
        if odds is not None:
            numbers["null_odds"] = odds[key]
            if best:
                scores = _scores(gold, best, is_v2=True)
                numbers |= zip(("best_text_exact", "best_text_f1"), scores, strict=True)
        yield Outcome(
            key,
            example.question_text,
            shortened(" | ".join(gold)) or NO_ANSWER,
            shortened(texts[key]) or NO_ANSWER,
            exact == 100.0,
            numbers=numbers,
            context=_part_around((*gold, texts[key])[0], example.paragraph_text),
            groups={
                "article": str(example.article),
                "paragraph": f"{example.article}.{example.paragraph}",
            },
        )


def _scores(gold: Sequence[str], text: str, is_v2: bool) -> tuple[float, float]:
    """Returns exact match and F1 of a text in percent, by the rules of the version of SQuAD."""
    if not is_v2:
        exact, f1 = metrics.best_scores(text, gold, empty_is_an_answer=False)
        return 100.0 * exact, 100.0 * f1
    exact_scores, f1_scores = metrics.raw_scores_v2({"": gold}, {"": text})
    return 100.0 * exact_scores[""], 100.0 * f1_scores[""]


def _part_around(answer: str, paragraph: str) -> str:
    """Returns the part of a paragraph with an answer, its text, and the text on both sides."""
    start = max(0, paragraph.find(answer))
    first = max(0, start - _AROUND_ANSWER)
    end = min(len(paragraph), start + len(answer[: 2 * _AROUND_ANSWER]) + _AROUND_ANSWER)
    part = " ".join(paragraph[first:end].split())
    return ("…" if first else "") + part + ("…" if end < len(paragraph) else "")
