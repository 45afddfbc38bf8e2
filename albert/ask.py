"""Asks a model that was fine-tuned on SQuAD about a text: one question, or as many as you type."""

from absl import flags

from albert import command_line, common_flags, file_io


def define_flags(flag_values):
    text, integer, _, _ = common_flags.definers(flag_values)
    text("model_dir", None, "Folder of the model: --output_dir of run_squad_v1 or run_squad_v2.")
    text("context_file", None, "UTF-8 text to look for answers in; it may be long.")
    text("question", None, "Question to answer; without it questions are read from the keyboard.")
    text(
        "data_file", None, "SQuAD file, one of whose questions is asked and shown with its answer."
    )
    integer("index", None, "Number of that question in the file, from 0.")
    integer("num_answers", 3, "Most answers to print for a question.")
    flags.mark_flag_as_required("model_dir", flag_values=flag_values)


def check_flags(values):
    """Refuses contradictions before any work."""
    common_flags.require_positive(values, "num_answers")
    if (values.context_file is None) == (values.data_file is None):
        raise file_io.InputError(
            "give --context_file, a text to ask about, or --data_file with --index, a question of "
            "a SQuAD file"
        )
    if (values.data_file is None) != (values.index is None):
        raise file_io.InputError("--data_file and --index belong together")
    if values.data_file is not None:
        common_flags.refuse_given(values, "--context_file", "question")


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


def show_example(values):
    """Prints a question of a SQuAD file with its answers."""
    from albert import predictors, squad_utils

    examples = squad_utils.read_squad_examples(values.data_file, is_training=False)
    if not 0 <= values.index < len(examples):
        raise file_io.InputError(
            f"--index={values.index}: {values.data_file} has questions 0 to {len(examples) - 1}"
        )
    example = examples[values.index]
    found = predictors.Answerer(values.model_dir).explain(example)
    for line in describe_example(example, found, values.num_answers):
        print(line, flush=True)


def main(values):
    check_flags(values)
    if values.data_file is not None:
        show_example(values)
        return
    context = file_io.read_text(values.context_file, "--context_file")
    if not context.strip():
        raise file_io.InputError(f"--context_file: {values.context_file} holds no text")
    from albert import predictors

    answerer = predictors.Answerer(values.model_dir)
    for question in questions(values):
        for line in describe(answerer.ask(question, context), context, values.num_answers):
            print(line, flush=True)


if __name__ == "__main__":
    command_line.run(main, define_flags)
