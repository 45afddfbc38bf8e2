"""Makes a clean corpus from raw texts: one sentence per line, no duplicates, no evaluation sets.

Example:

    albert prepare_corpus --input_file='raw/*.txt' --output_dir=corpus
"""

import dataclasses
import os
import time
from collections.abc import Sequence

from absl import flags

from albert.cli import app, next_steps, options, path_flags
from albert.io import file_io, processes, signals
from albert.text import corpus_cleaning, corpus_preparation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The texts, and the rules for keeping documents and lines."""

    input_file: str = options.flag(
        None,
        "Text, .jsonl or .ndjson files, also .gz, .bz2 or .zst: comma-separated globs. In text a "
        "blank line separates documents.",
        path=path_flags.INPUTS,
    )
    output_dir: str = options.flag(
        None,
        "Empty or new folder for the corpus and its report.",
        path=path_flags.outputs("/corpus-*.txt", "/*.json", "/*.jsonl"),
    )
    text_field: str = options.flag("text", "Name of the text in .jsonl files.")
    encoding: str = options.flag(
        "utf-8", "Encoding of the files, such as latin-1; the corpus is UTF-8."
    )
    skip_bad_files: bool = options.flag(
        False,
        "Skip files that are damaged, of another encoding or not JSON; the report names them.",
    )
    whole_files: bool = options.flag(
        False, "A text file is one document; blank lines separate its paragraphs."
    )
    text_lines: str = options.flag(
        "paragraphs",
        "What a line of the texts is: paragraphs - one or more sentences. sentences - one. wrapped "
        "- a part; the lines between blank lines belong together.",
        choices=tuple(corpus_cleaning.LINES),
    )
    language: str = options.flag(
        "en", "Code of the language, such as de, which decides how ends of sentences are found."
    )
    min_letter_share: float = options.flag(
        0.5, "Lines with a smaller fraction of letters are skipped.", check=options.unit_interval
    )
    min_document_words: int = options.flag(
        20, "Documents with fewer words are skipped.", check=options.not_negative
    )
    near_duplicate_threshold: float = options.flag(
        0.8,
        "Drop documents that share this fraction of their runs of five words with an earlier one; "
        "0: drop only equal ones.",
        check=options.unit_interval,
    )
    max_line_repeats: int = options.flag(
        50,
        "Lines that occur in more documents are skipped; 0: no limit.",
        check=options.not_negative,
    )
    contamination: str | None = options.flag(
        None,
        "Evaluation sets, comma-separated: glue, squad, race. Sentences that have 13 words in a "
        "row in common with one of their texts are skipped.",
    )
    only_report_contamination: bool = options.flag(
        False, "Report the sentences that --contamination finds, but keep them."
    )
    data_dir: str | None = options.flag(
        None, "Folder with the evaluation sets: glue/, squad/, race/.", path=path_flags.FOLDER
    )
    num_workers: int | None = options.count(
        None, "Processes, each with one file at a time; all cores by default."
    )

    def evaluation_sets(self) -> tuple[str, ...]:
        """Returns the names of --contamination."""
        names = (name.strip() for name in (self.contamination or "").split(","))
        return tuple(filter(None, names))

    def check(self) -> None:
        """Rejects flags that are missing or have no effect."""
        self.require("input_file", "output_dir")
        corpus_cleaning.check_encoding(self.encoding)
        if self.text_lines == "sentences":
            self._refuse("language", "--text_lines=paragraphs and wrapped")
        else:
            corpus_cleaning.check_language(self.language)
        if self.evaluation_sets():
            self.require("data_dir")
        elif self.only_report_contamination or self.data_dir:
            raise file_io.InputError(
                "--only_report_contamination and --data_dir are for --contamination, which is not "
                "given"
            )

    def check_files(self, paths: Sequence[str]) -> None:
        """Rejects files of another form, and flags that have no effect on the form of all."""
        are_json = [corpus_cleaning.is_json_lines(path) for path in paths]
        if not any(are_json):
            self._refuse("text_field", f".jsonl and .ndjson files, {paths[0]} is text")
        if all(are_json):
            self._refuse("whole_files", f"text, {paths[0]} has a document per line")

    def _refuse(self, name: str, purpose: str) -> None:
        """Rejects flag `name` if it is given: it is only for `purpose`."""
        if name in self.given:
            raise file_io.InputError(f"--{name}={getattr(self, name)}: only for {purpose}")


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def preparation(settings: Settings) -> corpus_preparation.Preparation:
    """Returns the work that the settings describe."""
    return corpus_preparation.Preparation(
        corpus_cleaning.Cleaning(
            text_field=settings.text_field,
            whole_files=settings.whole_files,
            lines=settings.text_lines,
            language=settings.language,
            min_letter_share=settings.min_letter_share,
            min_words=settings.min_document_words,
            encoding=settings.encoding,
        ),
        near_duplicate_threshold=settings.near_duplicate_threshold,
        max_line_repeats=settings.max_line_repeats,
        contamination=settings.evaluation_sets(),
        data_dir=settings.data_dir,
        only_report_contamination=settings.only_report_contamination,
        skip_bad_files=settings.skip_bad_files,
    )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    rules, output_dir = preparation(settings), settings.output_dir
    paths = file_io.expand_globs(settings.input_file, "--input_file")
    settings.check_files(paths)
    started = time.monotonic()
    num_workers = settings.num_workers or processes.num_cores()
    signals.REQUESTS.remedy = "the same command resumes from here"
    report = corpus_preparation.prepare(paths, output_dir, rules, num_workers)
    print(f"{corpus_preparation.report_text(report)}\n  {time.monotonic() - started:.1f} s")
    texts = os.path.join(output_dir, "corpus-*.txt")
    next_steps.show(next_steps.line("train_vocab", input_file=texts, output_prefix="vocabulary"))


if __name__ == "__main__":
    app.run(main, define_flags)
