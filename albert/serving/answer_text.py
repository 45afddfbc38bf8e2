"""Questions and answers as people and programs read them: lines of text, objects of JSON."""

from albert.io import file_io, tables


def describe(reply, context, num_answers):
    """Lines of text that tell a `predictors.Reply`."""
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


def _describe_place(place):
    text = f" ({place.text.strip()!r})" if place.text.strip() else ""
    return f"token {place.token}{text} of window {place.window}"


def describe_example(example, found, num_answers):
    """Lines of text that tell a `squad_utils.SquadExample` and its `predictors.Explanation`."""
    yield f"question:       {example.question_text}"
    yield f"text:           {' '.join(example.paragraph_text.split())}"
    gold = "not known" if example.answers is None else "none"
    if example.answers and not example.is_impossible:
        gold = " | ".join(dict.fromkeys(example.answers))
    yield f"gold answer:    {gold}"
    places = ("gold start", "gold end") if found.gold else ()
    pairs = zip(places, found.gold or (), strict=True)
    for name, place in (*pairs, ("highest start", found.start), ("highest end", found.end)):
        yield f"{name + ':':<16}{_describe_place(place)}"
    yield "predicted answer:"
    yield from describe(found.reply, example.paragraph_text, num_answers)


def read_questions(path, context):
    """Yields (id, place for messages, question, text) for each object of a jsonl file."""
    with file_io.open_input(path, "input_file", "rb") as lines:
        for number, (place, row) in enumerate(tables.read_rows(lines, path, "jsonl")):
            question = tables.text_of(row, "question", "question", place)
            text = context
            if text is None or "context" in row:
                text = tables.text_of(row, "context", "context_file", place)
            guid = tables.name_of(row, "id", "id", place) if "id" in row else str(number)
            yield guid, place, question, text


def to_dict(guid, question, reply, num_answers):
    """JSON-ready dict of a `predictors.Reply`: the best answer, and the best few with places."""
    found = [answer for answer in reply.answers if answer.start is not None][:num_answers]
    answers = [
        {"text": a.text, "probability": float(a.probability), "start": a.start, "end": a.end}
        for a in found
    ]
    best = answers[0]["text"] if reply.has_answer else ""
    row = {"id": guid, "question": question, "answer": best, "answers": answers}
    if reply.null_odds is not None:
        row |= {"null_odds": float(reply.null_odds), "threshold": float(reply.threshold)}
    return row
