r"""Trains a SentencePiece or WordPiece vocabulary from plain text, one sentence per line.

Example:

    albert train_vocab --input_file='corpus/*.txt' --output_prefix=vocab/mine \
        --vocab_size=30000
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable
from typing import Any

from absl import flags, logging

from albert.cli import app, next_steps, options, path_flags, text_runner
from albert.data import beam_runner
from albert.io import file_io, processes, signals
from albert.model import sources
from albert.text import vocabulary, wordpiece

_NOTHING = "nothing was written"


def _check_coverage(name: str, value: float) -> None:
    """Checks that the value of flag `name` is a fraction of characters, at least 0.98."""
    if not 0.98 <= value <= 1:
        raise file_io.InputError(f"--{name}={value} must be between 0.98 and 1")


def _written_files(settings: "Settings") -> tuple[str, ...]:
    """Returns the endings of the files of --output_prefix."""
    return (".txt",) if settings.wordpiece else (".model", ".vocab")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The text, the kind and size of the vocabulary, and how it is trained."""

    input_file: str = options.flag(
        None, "UTF-8 text, also .gz, .bz2 or .zst: comma-separated globs.", path=path_flags.INPUTS
    )
    output_prefix: str = options.flag(
        None,
        "Path of the files to write, without .model and .vocab (or .txt).",
        path=path_flags.Path(True, _written_files),
    )
    wordpiece: bool = options.flag(
        False,
        "Write a WordPiece vocabulary, as BERT has, to <output_prefix>.txt (needs the extra "
        "wordpiece). Scripts find it next to a checkpoint as vocab.txt.",
    )
    vocab_size: int = options.count(30000, "Number of pieces, special ones included.")
    do_lower_case: bool = options.flag(True, "Lower-case the text.")
    keep_accents: bool = options.flag(
        False,
        "Keep the accents of letters; the texts of the model need the same flag.",
        shown_default="true for a cased --wordpiece, else false",
    )
    character_coverage: float = options.flag(
        0.99995,
        "Fraction of the text's characters that get a piece; about 0.9995 for Chinese or Japanese.",
        check=_check_coverage,
    )
    input_sentence_size: int = options.count(
        10_000_000,
        "Maximum number of sentences to train on, drawn at random from all. Ten million need tens "
        "of GB.",
    )
    num_threads: int = options.count(
        1, "Threads of SentencePiece; more are faster and give slightly other pieces."
    )
    random_seed: int = options.flag(
        12345, "Decides which sentences are drawn; same seed, same pieces."
    )
    drawing: text_runner.Runner = options.group(text_runner.Runner)
    num_workers: int | None = options.count(
        None,
        "Processes of --runner=beam, which draw the sentences; all cores by default. The training "
        "runs in this process.",
    )

    def check(self) -> None:
        """Rejects missing flags and flags of the other kind."""
        self.require("input_file", "output_prefix")
        if self.wordpiece and "num_threads" in self.given:
            raise file_io.InputError(
                "--num_threads is of SentencePiece; with --wordpiece the package tokenizers decides"
            )
        self.drawing.check()
        if self.num_workers is not None and not self.drawing.is_beam:
            raise file_io.InputError("--num_workers is for --runner=beam")


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def _draw(settings: Settings) -> Callable[..., Any]:
    """Returns the function that draws the lines, as `vocabulary.drawn_lines` does."""
    if not settings.drawing.is_beam:
        return vocabulary.drawn_lines
    return functools.partial(
        beam_runner.draw,
        folder=f"{file_io.temporary_name(settings.output_prefix)}.lines",
        arguments=settings.drawing.beam_arguments(),
        num_workers=settings.num_workers or processes.num_cores(),
    )


def _train(settings: Settings, paths: list[str]) -> tuple[Any, dict[str, int]]:
    """Returns the vocabulary, and the counts of the text."""
    recipe = vocabulary.VocabRecipe(
        vocab_size=settings.vocab_size,
        do_lower_case=settings.do_lower_case,
        keep_accents=settings.keep_accents if "keep_accents" in settings.given else None,
        character_coverage=settings.character_coverage,
        input_sentence_size=settings.input_sentence_size,
        num_threads=settings.num_threads,
        # As in create_pretraining_data, also negative ones.
        random_seed=settings.random_seed % (1 << 64),
    )
    train = vocabulary.train_wordpiece if settings.wordpiece else vocabulary.train_vocab
    signals.REQUESTS.remedy = _NOTHING
    result = processes.call(train, paths, recipe, _draw(settings))
    signals.REQUESTS.remedy = signals.BEGINS_AGAIN
    return result


def _check_unused(path: str, content: bytes) -> None:
    """Rejects replacing the vocabulary of a model at `path` by one with other content."""
    folder = os.path.dirname(path) or "."
    names = (sources.PRETRAINING_NAME, sources.DESCRIPTION_NAME)
    if not any(file_io.exists(os.path.join(folder, name)) for name in names):
        return
    if file_io.exists(path) and file_io.read_bytes(path, "vocabulary") != content:
        raise file_io.InputError(
            f"{path} is the vocabulary of the model in {folder}; {_NOTHING}: give another "
            "--output_prefix"
        )


def _report(settings: Settings, num_files: int, counts: dict[str, int], seconds: float) -> str:
    prefix, drawn = settings.output_prefix, counts["lines"] - counts["not_drawn"]
    files = f"{prefix}.txt" if settings.wordpiece else f"{prefix}.model and {prefix}.vocab"
    sample = (
        f"  sample: {drawn} lines, each of the {counts['lines']} equally likely "
        f"(--random_seed={settings.random_seed})\n"
    )
    cut = (
        f"  cut: {counts['cut']} lines of more than {vocabulary.MAX_SENTENCE_BYTES} bytes, which "
        "SentencePiece takes in parts; prepare_corpus finds sentences\n"
    )
    return (
        f"{settings.vocab_size} pieces in {files}, {seconds:.1f} s\n"
        f"  read: {counts['lines']} lines in {num_files} file(s), {counts['sentences']} used\n"
        f"{sample if counts['not_drawn'] else ''}"
        f"{cut if counts['cut'] else ''}"
        f"  skipped: {counts['not_drawn']} not drawn (--input_sentence_size="
        f"{settings.input_sentence_size}), {counts['empty']} empty after preprocessing"
    )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    paths = file_io.expand_globs(settings.input_file, "--input_file")
    file_io.make_dirs(os.path.dirname(settings.output_prefix) or ".")
    logging.info("Training %d pieces on %d file(s)", settings.vocab_size, len(paths))
    started = time.monotonic()
    trained, counts = _train(settings, paths)
    prefix = settings.output_prefix
    if settings.wordpiece:
        _check_unused(f"{prefix}.txt", wordpiece.vocab_text(trained).encode())
        vocabulary.write_wordpiece(prefix, trained)
    else:
        _check_unused(f"{prefix}.model", trained)
        vocabulary.write_vocab(prefix, trained)
    print(_report(settings, len(paths), counts, time.monotonic() - started))
    flags_of_next = {"input_file": settings.input_file, "output_file": "records.tf_record"}
    if settings.wordpiece:
        flags_of_next["vocab_file"] = f"{prefix}.txt"
    else:
        flags_of_next["spm_model_file"] = f"{prefix}.model"
    rest = ""
    if "keep_accents" in settings.given:
        rest = "--keep_accents" if settings.keep_accents else "--nokeep_accents"
    if not settings.do_lower_case:
        rest = f"--nodo_lower_case {rest}".rstrip()
    next_steps.show(next_steps.line("create_pretraining_data", rest, **flags_of_next))


if __name__ == "__main__":
    app.run(main, define_flags)
