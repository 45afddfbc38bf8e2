"""Trains a SentencePiece or WordPiece vocabulary from plain text, one sentence a line."""

import functools
import os
import time

from absl import flags, logging

from albert.cli import app, common_flags, runner_flags
from albert.data import beam_runner
from albert.io import file_io, processes, signals
from albert.text import vocabulary

_NOTHING = "nothing was written"


def define_flags(flag_values=flags.FLAGS):
    """Flags of this script."""
    kwargs = {"flag_values": flag_values}
    text, *_ = common_flags.definers(flag_values)
    text("input_file", None, "UTF-8 text, also .gz, .bz2 or .zst: comma-separated globs.")
    text("output_prefix", None, "Path of the files to write, without .model and .vocab (or .txt).")
    flags.DEFINE_bool(
        "wordpiece",
        False,
        "Write a WordPiece vocabulary, as BERT has, to <output_prefix>.txt (needs the extra "
        "wordpiece). Scripts find it beside a checkpoint by the name vocab.txt.",
        **kwargs,
    )
    flags.DEFINE_integer("vocab_size", 30000, "Number of pieces, special ones counted.", **kwargs)
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text.", **kwargs)
    flags.DEFINE_float(
        "character_coverage",
        0.99995,
        "Share of the text's characters that get a piece; about 0.9995 for Chinese or Japanese.",
        **kwargs,
    )
    flags.DEFINE_integer(
        "input_sentence_size",
        10_000_000,
        "Most sentences to train on, drawn at random from all. Ten million need tens of GB.",
        **kwargs,
    )
    flags.DEFINE_integer(
        "num_threads",
        1,
        "Threads of SentencePiece; more are faster and give slightly other pieces.",
        **kwargs,
    )
    flags.DEFINE_integer(
        "random_seed", 12345, "Decides which sentences are drawn; same seed, same pieces.", **kwargs
    )
    runner_flags.define_flags(
        flag_values,
        "Who draws the sentences: this process, or Apache Beam (extra beam), also on many "
        "machines; the same ones. The training is done here.",
    )
    flags.DEFINE_integer(
        "num_workers", None, "Processes of --runner=beam; all cores by default.", **kwargs
    )


def recipe(values):
    """`vocabulary.VocabRecipe` of the flag values.

    Raises:
      file_io.InputError: a flag is out of range, or of the other kind of vocabulary.
    """
    common_flags.require_given(values, "input_file", "output_prefix")
    names = ("vocab_size", "input_sentence_size", "num_threads")
    common_flags.require_positive(values, *names)
    if not 0.98 <= values.character_coverage <= 1:
        raise file_io.InputError(
            f"--character_coverage={values.character_coverage} must be between 0.98 and 1"
        )
    if values.wordpiece and values["num_threads"].present:
        raise file_io.InputError(
            "--num_threads is of SentencePiece; with --wordpiece the package tokenizers decides"
        )
    runner_flags.check(values)
    if values.num_workers is not None:
        common_flags.require_positive(values, "num_workers")
        if values.runner != "beam":
            raise file_io.InputError("--num_workers is for --runner=beam")
    names += ("do_lower_case", "character_coverage", "random_seed")
    return vocabulary.VocabRecipe(**{name: values[name].value for name in names})


def _draw(values):
    """Function that draws the lines, as `vocabulary.drawn_lines` does."""
    if values.runner == "local":
        return vocabulary.drawn_lines
    folder = f"{file_io.temporary_name(values.output_prefix)}.lines"
    return functools.partial(
        beam_runner.draw,
        folder=folder,
        arguments=runner_flags.beam_arguments(values),
        num_workers=values.num_workers or processes.num_cores(),
    )


def main(values):
    """Runs the script with parsed flag values."""
    chosen = recipe(values)
    paths = file_io.expand_globs(values.input_file, "--input_file")
    prefix = values.output_prefix
    file_io.make_dirs(os.path.dirname(prefix) or ".")
    logging.info("Training %d pieces on %d file(s)", chosen.vocab_size, len(paths))
    train, write = vocabulary.train_vocab, vocabulary.write_vocab
    if values.wordpiece:
        train, write = vocabulary.train_wordpiece, vocabulary.write_wordpiece
    started = time.monotonic()
    try:
        trained, counts = processes.call(train, paths, chosen, _draw(values))
    except signals.Terminated:
        raise signals.Terminated(_NOTHING) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {_NOTHING}") from None
    write(prefix, trained)
    files = f"{prefix}.txt" if values.wordpiece else f"{prefix}.model and {prefix}.vocab"
    sample = ""
    if counts["not_drawn"]:
        drawn = counts["lines"] - counts["not_drawn"]
        sample = (
            f"  sample: {drawn} lines, each of the {counts['lines']} with the same chance "
            f"(--random_seed={chosen.random_seed})\n"
        )
    print(
        f"{chosen.vocab_size} pieces in {files}, {time.monotonic() - started:.1f} s\n"
        f"  read: {counts['lines']} lines in {len(paths)} file(s), {counts['sentences']} used\n"
        f"{sample}"
        f"  skipped: {counts['not_drawn']} not drawn (--input_sentence_size="
        f"{chosen.input_sentence_size}), {counts['too_long']} of more than "
        f"{vocabulary.MAX_SENTENCE_BYTES} bytes, {counts['empty']} empty after preprocessing"
    )


if __name__ == "__main__":
    app.run(main, define_flags)
