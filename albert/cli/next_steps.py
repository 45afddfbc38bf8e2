"""Prints what a user may do with the result of a command, as lines to paste into a shell."""

import shlex

# Kind of a fine-tuned model -> command that uses it and its further flags.
_USES = {
    "classifier": ("predict", "--input_file=texts.txt --output_file=answers.tsv"),
    "multi_label_classifier": ("predict", "--input_file=texts.txt --output_file=answers.tsv"),
    "token_classifier": ("predict", "--input_file=texts.txt --output_file=labels.conll"),
    "multiple_choice": ("predict", "--input_file=questions.jsonl --output_file=choices.jsonl"),
    "squad_v1": ("ask", "--context_file=text.txt"),
    "squad_v2": ("ask", "--context_file=text.txt"),
}


def line(name: str, rest: str = "", **paths: str) -> str:
    """Returns a line to paste into a shell, which runs the command `name`.

    Args:
      rest: further flags.
      **paths: values of flags, by name.
    """
    given = [f"--{flag}={shlex.quote(path)}" for flag, path in paths.items()]
    return " ".join(filter(None, [f"python -m albert.{name}", *given, rest]))


def show(*lines: str) -> None:
    """Prints lines of a shell as what may come next."""
    print("Next:", *(f"  {text}" for text in lines), sep="\n")


def after_fine_tuning(kind: str, folder: str) -> list[str]:
    """Returns lines for a shell that use the model of a fine-tuning run in a folder.

    `kind`: that of the model, such as "classifier".
    """
    name, rest = _USES[kind]
    return [
        line(name, rest, model_dir=folder),
        line("serve", model_dir=folder),
        line("report", runs=folder),
    ]


def after_pretraining(folder: str) -> list[str]:
    """Returns lines for a shell that use the model of a pre-training run in a folder."""
    task = "--task_name=RTE --data_dir=data/glue --output_dir=rte --do_train --do_eval"
    return [line("run_classifier", task, init_checkpoint=folder), line("report", runs=folder)]
