"""Asks a model that was fine-tuned on SQuAD about texts: one question, a file, or as you type."""

import contextlib
import sys

from absl import flags

from albert import command_line, common_flags, file_io


def define_flags(flag_values):
    text, integer, _, _ = common_flags.definers(flag_values)
    text("model_dir", None, "Folder of the model: --output_dir of run_squad_v1 or run_squad_v2.")
    text("context_file", None, "UTF-8 text to look for answers in; it may be long.")
    text("question", None, "Question to answer; without it questions are read from the keyboard.")
    text(
        *("input_file", None),
        "Questions, .jsonl: objects with question, context (by default --context_file) and, if "
        "they have one, id.",
    )
    text("output_file", None, "Answers to --input_file, .jsonl; by default standard output.")
    integer("num_answers", 3, "Most answers to print for a question.")
    flags.mark_flag_as_required("model_dir", flag_values=flag_values)


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


def questions(values):
    """The question of the flag, or those that are typed until an empty line or the end of input."""
    if values.question is not None:
        yield values.question
        return
    while True:
        try:
            question = input("question: ").strip()
        except EOFError:
            return
        if not question:
            return
        yield question


def read_context(values):
    """The text of --context_file; None where there is none."""
    if values.context_file is None:
        return None
    context = file_io.read_text(values.context_file, "--context_file")
    if not context.strip():
        raise file_io.InputError(f"--context_file: {values.context_file} holds no text")
    return context


def read_questions(path, context):
    """Yields (id, place for messages, question, text) for each object of a jsonl file."""
    from albert import tables

    with file_io.open_input(path, "--input_file", "rb") as lines:
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


def answer_file(values, answerer, context):
    """Writes an object for each question of --input_file, in their order."""
    from albert import tables

    kept = []  # of the questions that are not answered yet

    def rows():
        for guid, *row in read_questions(values.input_file, context):
            kept.append((guid, row[1]))
            yield row

    output = contextlib.nullcontext(sys.stdout)
    if values.output_file:
        output = file_io.atomic_writer(values.output_file)
    with output as file:
        for reply in answerer.ask_all(rows()):
            row = to_dict(*kept.pop(0), reply, values.num_answers)
            file.write(tables.json_line(row))


def main(values):
    common_flags.require_positive(values, "num_answers")
    if values.input_file:
        common_flags.refuse_given(values, "runs without --input_file", "question")
    else:
        common_flags.require_given(values, "context_file")
        common_flags.refuse_given(values, "--input_file", "output_file")
    context = read_context(values)
    from albert import predictors

    answerer = predictors.Answerer(values.model_dir)
    if values.input_file:
        answer_file(values, answerer, context)
        return
    for question in questions(values):
        for line in describe(answerer.ask(question, context), context, values.num_answers):
            print(line, flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
