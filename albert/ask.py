"""Asks a model that was fine-tuned on SQuAD about a text: one question, or as many as you type."""

from absl import flags

from albert import command_line, common_flags, file_io


def define_flags(flag_values):
    text, integer, _, _ = common_flags.definers(flag_values)
    text("model_dir", None, "Folder of the model: --output_dir of run_squad_v1 or run_squad_v2.")
    text("context_file", None, "UTF-8 text to look for answers in; it may be long.")
    text("question", None, "Question to answer; without it questions are read from the keyboard.")
    integer("num_answers", 3, "Most answers to print for a question.")
    for name in ("model_dir", "context_file"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


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


def main(values):
    common_flags.require_positive(values, "num_answers")
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
