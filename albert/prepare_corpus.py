"""Makes a clean corpus of raw texts: a sentence a line, no duplicates, no evaluation sets."""

import time

from absl import flags

from albert.cli import app, common_flags
from albert.io import file_io, processes, signals
from albert.text import corpus_cleaning, corpus_preparation


def define_flags(flag_values=flags.FLAGS):
    """Flags of this script."""
    text, integer, number, switch = common_flags.definers(flag_values)
    text(
        "input_file",
        None,
        "Text or .jsonl files, also .gz, .bz2 or .zst: comma-separated globs. In text a blank line "
        "is between documents.",
    )
    text("output_dir", None, "Empty or new folder for the corpus and its report.")
    text("text_field", "text", "Name of the text in .jsonl files.")
    text("encoding", "utf-8", "Encoding of the files, such as latin-1; the corpus is UTF-8.")
    switch(
        "skip_bad_files",
        False,
        "Leave out files that are damaged, of another encoding or no JSON; the report names them.",
    )
    switch("whole_files", False, "A text file is one document; blank lines are inside of it.")
    flags.DEFINE_enum(
        "text_lines",
        "paragraphs",
        corpus_cleaning.LINES,
        "What a line of the texts is: paragraphs - one or more sentences. sentences - one. wrapped "
        "- a part; what is between blank lines belongs together.",
        flag_values=flag_values,
    )
    text("language", "en", "Code of the language, by which ends of sentences are found.")
    number("min_letter_share", 0.5, "Lines with a smaller share of letters are left out.")
    integer("min_document_words", 20, "Documents with fewer words are left out.")
    number(
        "near_duplicate_threshold",
        0.8,
        "Of documents that share so much of their runs of five words only the first stays; 0: only "
        "equal ones count.",
    )
    integer(
        "max_line_repeats", 50, "Lines that more documents have are left out; 0: none for that."
    )
    text(
        "contamination",
        None,
        "Evaluation sets, comma-separated: glue, squad, race. Sentences that have 13 words in a "
        "row with one of their texts in common are left out.",
    )
    switch("only_report_contamination", False, "Leave these sentences where they are.")
    text("data_dir", None, "Folder with the evaluation sets: glue/, squad/, race/.")
    integer("num_workers", None, "Processes, a file each at a time; all cores by default.")


def preparation(values):
    """`corpus_preparation.Preparation` of the flag values.

    Raises:
      file_io.InputError: a flag is missing, out of range, or without effect.
    """
    common_flags.require_given(values, "input_file", "output_dir")
    if values.num_workers is not None:
        common_flags.require_positive(values, "num_workers")
    for name in ("min_letter_share", "near_duplicate_threshold"):
        if not 0 <= values[name].value <= 1:
            raise file_io.InputError(f"--{name}={values[name].value} must be between 0 and 1")
    for name in ("min_document_words", "max_line_repeats"):
        if values[name].value < 0:
            raise file_io.InputError(f"--{name}={values[name].value} must be at least 0")
    corpus_cleaning.check_encoding(values.encoding)
    sets = tuple(name.strip() for name in (values.contamination or "").split(",") if name.strip())
    if sets:
        common_flags.require_given(values, "data_dir")
    elif values.only_report_contamination or values.data_dir:
        raise file_io.InputError(
            "--only_report_contamination and --data_dir are for --contamination, which is not given"
        )
    return corpus_preparation.Preparation(
        corpus_cleaning.Cleaning(
            text_field=values.text_field,
            whole_files=values.whole_files,
            lines=values.text_lines,
            language=values.language,
            min_letter_share=values.min_letter_share,
            min_words=values.min_document_words,
            encoding=values.encoding,
        ),
        near_duplicate_threshold=values.near_duplicate_threshold,
        max_line_repeats=values.max_line_repeats,
        contamination=sets,
        data_dir=values.data_dir,
        only_report_contamination=values.only_report_contamination,
        skip_bad_files=values.skip_bad_files,
    )


def main(values):
    """Runs the script with parsed flag values."""
    chosen = preparation(values)
    paths = file_io.expand_globs(values.input_file, "--input_file")
    started = time.monotonic()
    num_workers = values.num_workers or processes.num_cores()
    left = "the same command resumes from here"
    try:
        report = corpus_preparation.prepare(paths, values.output_dir, chosen, num_workers)
    except signals.Terminated:
        raise signals.Terminated(left) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {left}") from None
    print(f"{corpus_preparation.report_text(report)}\n  {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    app.run(main, define_flags)
