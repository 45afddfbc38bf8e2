"""Asks a model that was fine-tuned on SQuAD about texts: one question, a file, or as you type."""

import contextlib
import sys

from absl import flags

from albert.cli import app, common_flags, inference_flags
from albert.io import file_io
from albert.serving import answer_text


def define_flags(flag_values):
    text, integer, _, _ = common_flags.definers(flag_values)
    text(
        "model_dir",
        None,
        "Folder of the model: --output_dir of run_squad_v1, run_squad_v2 or export_serving.",
    )
    text("context_file", None, "UTF-8 text to look for answers in; it may be long.")
    text("question", None, "Question to answer; without it questions are read from the keyboard.")
    text(
        "input_file",
        None,
        "Questions, .jsonl: objects with question, context (by default --context_file) and, if "
        "they have one, id.",
    )
    text("output_file", None, "Answers to --input_file, .jsonl; by default standard output.")
    text(
        "data_file", None, "SQuAD file, one of whose questions is asked and shown with its answer."
    )
    integer("index", None, "Number of that question in the file, from 0.")
    integer("num_answers", 3, "Most answers to print for a question.")
    inference_flags.define(flag_values)
    flags.mark_flag_as_required("model_dir", flag_values=flag_values)


def check_flags(values):
    """Refuses contradictions before any work."""
    common_flags.require_positive(values, "num_answers")
    if (values.data_file is None) != (values.index is None):
        raise file_io.InputError("--data_file and --index belong together")
    texts = values.context_file or values.input_file
    if (texts is None) == (values.data_file is None):
        raise file_io.InputError(
            "give --context_file, a text to ask about, or --input_file, questions with their "
            "texts, or --data_file with --index, a question of a SQuAD file"
        )
    if values.data_file is not None:
        common_flags.refuse_given(values, "--context_file", "question")
    if values.input_file:
        common_flags.refuse_given(values, "runs without --input_file", "question")
    else:
        common_flags.refuse_given(values, "--input_file", "output_file")


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


def load(values):
    """The `inference.FoundModel` to ask."""
    from albert.tasks.squad import task as squad_task

    return inference_flags.found_model(values, *squad_task.KINDS)


def show_example(values):
    """Prints a question of a SQuAD file with its answers."""
    from albert.serving import predictors
    from albert.tasks.squad import answers as squad_answers

    examples = squad_answers.read_squad_examples(values.data_file, is_training=False)
    if not 0 <= values.index < len(examples):
        raise file_io.InputError(
            f"--index={values.index}: {values.data_file} has questions 0 to {len(examples) - 1}"
        )
    example = examples[values.index]
    found = predictors.Answerer(load(values)).explain(example)
    for line in answer_text.describe_example(example, found, values.num_answers):
        print(line, flush=True)


def read_context(values):
    """The text of --context_file; None where there is none."""
    if values.context_file is None:
        return None
    context = file_io.read_text(values.context_file, "--context_file")
    if not context.strip():
        raise file_io.InputError(f"--context_file: {values.context_file} holds no text")
    return context


def answer_file(values, answerer, context):
    """Writes an object for each question of --input_file, in their order."""
    output = contextlib.nullcontext(sys.stdout)
    if values.output_file:
        output = file_io.atomic_writer(values.output_file)
    with file_io.open_input(values.input_file, "input_file", "rb") as lines, output as file:
        questions = answerer.read_lines(
            lines, values.input_file, context=context, num_answers=values.num_answers
        )
        answerer.write(file, "jsonl", answerer.predict(questions))


def main(values):
    check_flags(values)
    if values.data_file is not None:
        show_example(values)
        return
    context = read_context(values)
    from albert.serving import predictors

    answerer = predictors.Answerer(load(values))
    if values.input_file:
        answer_file(values, answerer, context)
        return
    for question in questions(values):
        for line in answer_text.describe(
            answerer.ask(question, context), context, values.num_answers
        ):
            print(line, flush=True)


if __name__ == "__main__":
    app.run(main, define_flags)
