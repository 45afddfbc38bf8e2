r"""Asks a model fine-tuned on SQuAD about texts: one question, a file, or typed questions.

Example:

    albert ask --model_dir=out/squad --context_file=article.txt \
        --question="Who wrote it?"
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from albert.cli import app, model_settings, options, path_flags
from albert.io import file_io
from albert.serving import answer_text

if TYPE_CHECKING:
    from albert.serving.inference import FoundModel
    from albert.serving.question_predictor import Answerer, Question


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The model to ask, the questions, and the output."""

    model_dir: str = options.flag(
        None,
        "Folder of the model: --output_dir of run_squad_v1, run_squad_v2 or export_serving.",
        required=True,
        path=path_flags.MODEL,
    )
    context_file: str | None = options.flag(
        None, "UTF-8 text to look for answers in; it may be long.", path=path_flags.INPUT
    )
    question: str | None = options.flag(
        None, "Question to answer; without it questions are read from the keyboard."
    )
    input_file: str | None = options.flag(
        None,
        "Questions, .jsonl: objects with question, context (by default --context_file) and, if "
        "they have one, id.",
        path=path_flags.INPUT,
    )
    output_file: str | None = options.flag(
        None, "Answers to --input_file, .jsonl; by default standard output.", path=path_flags.OUTPUT
    )
    data_file: str | None = options.flag(
        None,
        "SQuAD file: ask the question --index of it, and show its answer from the file.",
        path=path_flags.INPUT,
    )
    index: int | None = options.flag(None, "Number of a question in --data_file, from 0.")
    num_answers: int = options.count(3, "Maximum number of answers to print for a question.")
    inference: model_settings.Inference = options.group(model_settings.Inference)


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def check_flags(settings: Settings) -> None:
    """Rejects contradictions before any work."""
    if (settings.data_file is None) != (settings.index is None):
        raise file_io.InputError("--data_file and --index belong together")
    texts = settings.context_file or settings.input_file
    if (texts is None) == (settings.data_file is None):
        raise file_io.InputError(
            "give --context_file, a text to ask about, or --input_file, questions with their "
            "texts, or --data_file with --index, a question of a SQuAD file"
        )
    if settings.data_file is not None:
        settings.refuse_given("--context_file", "question")
    file_io.check_folder_of(settings.output_file, "--output_file")
    if settings.input_file:
        settings.refuse_given("runs without --input_file", "question")
    else:
        settings.refuse_given("--input_file", "output_file")


def questions(settings: Settings) -> Iterator[str]:
    """Yields the question of the flag, or typed questions until an empty line or end of file."""
    if settings.question is not None:
        yield settings.question
        return
    while True:
        try:
            question = input("question: ").strip()
        except EOFError:
            return
        if not question:
            return
        yield question


def load(settings: Settings) -> "FoundModel":
    """Returns the model to ask."""
    from albert.tasks.squad import task as squad_task

    return model_settings.find_trained(settings.model_dir, settings.inference, *squad_task.KINDS)


def show_example(settings: Settings, data_file: str, index: int) -> None:
    """Prints a question of a SQuAD file, by its number from 0, with its answers."""
    from albert.serving.question_predictor import Answerer
    from albert.tasks.squad import answers as squad_answers

    examples = squad_answers.read_squad_examples(data_file, is_training=False)
    if not 0 <= index < len(examples):
        raise file_io.InputError(
            f"--index={index}: {data_file} has questions 0 to {len(examples) - 1}"
        )
    example = examples[index]
    explanation = Answerer(load(settings)).explain(example)
    for line in answer_text.describe_example(example, explanation, settings.num_answers):
        print(line, flush=True)


def read_context(settings: Settings) -> str | None:
    """Returns the text of --context_file; None without the flag."""
    if settings.context_file is None:
        return None
    context = file_io.read_text(settings.context_file, "--context_file")
    if not context.strip():
        raise file_io.InputError(f"--context_file: {settings.context_file} holds no text")
    return context


def answer_file(
    settings: Settings, input_file: str, answerer: "Answerer", context: str | None
) -> None:
    """Writes one object per question of --input_file, in order.

    `context` is the text of questions without one; None: each must have its own.
    """
    from albert.io import tables

    output = file_io.atomic_writer_or_stdout(settings.output_file)
    with file_io.open_input(input_file, "input_file", "rb") as lines, output as file:

        def read() -> "Iterator[Question]":
            return answerer.read_lines(
                lines, input_file, context=context, num_answers=settings.num_answers
            )

        questions = tables.read_checked(read, lines, answerer.check)
        answerer.write(file, "jsonl", answerer.predict(questions))


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    check_flags(settings)
    if settings.data_file is not None:
        show_example(settings, settings.data_file, settings.index or 0)
        return
    context = read_context(settings)
    from albert.serving.question_predictor import Answerer

    answerer = Answerer(load(settings))
    if settings.input_file:
        answer_file(settings, settings.input_file, answerer, context)
        return
    assert context is not None  # without --input_file there is a --context_file
    for question in questions(settings):
        answers = answerer.ask(question, context)
        for line in answer_text.describe(answers, context, settings.num_answers):
            print(line, flush=True)


if __name__ == "__main__":
    app.run(main, define_flags)
