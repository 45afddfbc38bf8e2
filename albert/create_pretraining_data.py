r"""Makes masked-language-model pre-training data (TFRecord files) from plain text.

Input: UTF-8 text, one sentence per line, a blank line between documents.

Example:

    albert create_pretraining_data --input_file='corpus/*.txt' \
        --output_file=records/train.tf_record --spm_model_file=albert_base_v2
"""

import collections
import dataclasses
import functools
import time

from absl import flags, logging

from albert.cli import app, next_steps, options, path_flags, pretraining, text_flags, text_runner
from albert.data import (
    beam_runner,
    instance_files,
    instance_shards,
    instances,
    masking,
    sentence_pairs,
    sequence_formats,
)
from albert.io import file_io, processes, signals


def _written_files(settings: "Settings") -> tuple[str, ...]:
    """Returns the endings of the files of --output_file."""
    return ("-[0-9]*-of-[0-9]*",) if settings.num_shards else ("",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(text_flags.TextFlags):
    """Settings for the text, its instances, and the output files."""

    section = options.DATA

    input_file: str = options.flag(
        None, "Text files, also .gz, .bz2 or .zst: comma-separated globs.", path=path_flags.INPUTS
    )
    output_file: str = options.flag(
        None,
        "Record files to write, comma-separated; filled in turn. With --num_shards: the prefix of "
        "the shard names.",
        path=path_flags.Path(True, _written_files, has_globs=True),
    )
    num_shards: int | None = options.count(
        None,
        "Write this number of files <output_file>-00000-of-…; the same command resumes a run that "
        "was killed.",
    )
    work: text_runner.Runner = options.group(text_runner.Runner)
    overwrite_shards: bool = options.flag(
        False,
        "Replace existing shards that were made of other text or with other settings, instead of "
        "rejecting them.",
    )
    vocab_file: str | None = options.flag(
        None,
        "WordPiece vocabulary, or a published model that has one, such as albert_base_zh; only "
        "read without --spm_model_file.",
        path=path_flags.MODEL,
    )
    spm_model_file: str | None = options.flag(
        None,
        "SentencePiece model, or a model that has one: a folder or a name, such as albert_base_v2.",
        path=path_flags.MODEL,
    )
    input_file_mode: str = options.flag(
        "r", 'Accepts "r" and "rb"; either way the text must be UTF-8.'
    )
    random_next_sentence: bool = options.flag(
        False, "Make next-sentence instances, not sentence-order ones; same as --sentence_task=nsp."
    )
    sentence_task: str = options.flag(
        "reference",
        "Label 1 means: sop - B and A are swapped; a single sentence is skipped. nsp - B is from "
        "another document. none - never. reference - as sop, but a single sentence is joined with "
        "one from another document, label 1.",
        choices=tuple(sentence_pairs.SENTENCE_TASKS),
    )
    sequence_format: str = options.flag(
        "segment_pair",
        "Text of an instance: segment_pair - two texts of one or more sentences. sentence_pair "
        "- two sentences. full_sentences - sentences up to the length, also of several documents. "
        "doc_sentences - the same, of one document.",
        choices=tuple(sequence_formats.FORMATS),
    )
    max_seq_length: int = options.flag(512, "Tokens in an instance.")
    random_seed: int = options.flag(12345, "Same seed, same files, for any --num_workers.")
    dupe_factor: int = options.count(40, "Passes over the text, each with other pairs and masks.")
    num_workers: int | None = options.count(None, "Processes; all cores by default, 1 starts none.")
    short_seq_prob: float = options.flag(
        0.1,
        "Fraction of documents cut into instances of random length.",
        check=options.unit_interval,
    )
    mask_in_training: bool = options.flag(
        False,
        "Write small records, without masks and in one pass; run_pretraining draws the masks.",
    )
    compress: bool = options.flag(False, "Write gzip files, under the names given.")
    masks: pretraining.Masks = options.group(pretraining.Masks)

    def check(self) -> None:
        """Rejects flags that are missing or contradict each other."""
        self.require("input_file", "output_file")
        if not self.spm_model_file and not self.vocab_file:
            raise file_io.InputError(
                "--spm_model_file (or, for WordPiece, --vocab_file) must be given"
            )
        if self.overwrite_shards and not self.num_shards:
            raise file_io.InputError("--overwrite_shards is for --num_shards")
        if self.work.is_beam and not self.num_shards:
            raise file_io.InputError("--runner=beam writes shards: --num_shards must be given")
        self.work.check()
        if self.num_shards and len(self.outputs()) != 1:
            raise file_io.InputError(
                f"--output_file={self.output_file}: --num_shards expects a single --output_file, "
                "the prefix of the shard names"
            )
        if "short_seq_prob" in self.given and self.sequence_format != "segment_pair":
            self.refuse_given("--sequence_format=segment_pair", "short_seq_prob")
        if self.input_file_mode not in ("r", "rb"):
            raise file_io.InputError(
                f'--input_file_mode={self.input_file_mode} must be "r" or "rb"; both read UTF-8'
            )
        if self.random_next_sentence and self.sentence_task not in ("reference", "nsp"):
            raise file_io.InputError(
                f"--random_next_sentence contradicts --sentence_task={self.sentence_task}"
            )

    def outputs(self) -> list[str]:
        """Returns the names in --output_file."""
        return [path.strip() for path in self.output_file.split(",") if path.strip()]

    def task(self) -> str:
        """Returns the sentence task; single-text formats have none unless one is given."""
        if self.random_next_sentence:
            return "nsp"
        if "sentence_task" in self.given:
            return self.sentence_task
        has_task = sequence_formats.has_sentence_task(self.sequence_format)
        return self.sentence_task if has_task else "none"


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def make_job(settings: Settings) -> instance_files.Job:
    """Returns the work that the settings describe."""
    from albert.model import published, sources

    spm_model_file, vocab_file = published.vocabularies(
        settings.spm_model_file, settings.vocab_file
    )
    return instance_files.Job(
        instances.Settings(
            max_seq_length=settings.max_seq_length,
            short_seq_prob=settings.short_seq_prob,
            sequence_format=settings.sequence_format,
            sentence_task=settings.task(),
            # The reference allows negative seeds; numpy does not.
            random_seed=settings.random_seed % (1 << 64),
            mask=None if settings.mask_in_training else settings.masks.config(),
        ),
        1 if settings.mask_in_training else settings.dupe_factor,
        vocab_file=vocab_file,
        spm_model_file=spm_model_file,
        rules=sources.rules_beside(spm_model_file or vocab_file, settings.text_rules()),
        compress=settings.compress,
    )


def warn(settings: Settings) -> None:
    """Warns about a mask fraction that cannot be reached, or flags without effect."""
    unused = settings.masks.given_rules()
    if not settings.mask_in_training:
        warning = masking.limit_warning(settings.masks.config(), settings.max_seq_length)
        if warning:
            logging.warning("%s", warning)
    elif unused:
        names = ", ".join(unused)
        logging.warning("%s: not used here; masks are drawn by the flags of training", names)


def create(
    settings: Settings, job: instance_files.Job, inputs: list[str]
) -> tuple[collections.Counter[str], list[str]]:
    """Makes files of `inputs`, paths of texts; returns counts of the work, and the files' names."""
    outputs, num_shards = settings.outputs(), settings.num_shards
    num_workers = settings.num_workers or processes.num_cores()
    if not num_shards:
        return instance_files.create(inputs, outputs, job, num_workers), outputs
    make_shards = None
    if settings.work.is_beam:
        make_shards = functools.partial(
            beam_runner.make_shards,
            arguments=settings.work.beam_arguments(),
            num_workers=num_workers,
        )
    (prefix,) = outputs
    overwrite = settings.overwrite_shards
    counts = instance_shards.create(
        inputs, prefix, num_shards, job, num_workers, overwrite, make_shards
    )
    return counts, instance_shards.shard_paths(prefix, num_shards)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    job = make_job(settings)
    warn(settings)
    inputs = file_io.expand_globs(settings.input_file, "--input_file")
    started = time.monotonic()
    signals.REQUESTS.remedy = "the output files are unchanged"
    if settings.num_shards:
        signals.REQUESTS.remedy = "the same command resumes the work"
    counts, outputs = create(settings, job, inputs)
    signals.REQUESTS.remedy = signals.BEGINS_AGAIN
    print(instance_files.report(counts, job, outputs, time.monotonic() - started))
    records = f"{settings.output_file}-*" if settings.num_shards else settings.output_file
    flag = "spm_model_file" if job.spm_model_file else "vocab_file"
    given = {"input_file": records, flag: job.spm_model_file or job.vocab_file or ""}
    masks = settings.masks.config()
    slots = masks.max_predictions_per_seq if settings.mask_in_training else masks.num_slots
    task = {"reference": "sop"}.get(settings.task(), settings.task())
    rest = (
        f"--albert_config_file=albert_config.json --max_seq_length={settings.max_seq_length} "
        f"--max_predictions_per_seq={slots} {'' if task == 'sop' else f'--sentence_task={task} '}"
        f"--output_dir=model {settings.given_text_flags()}"
    )
    next_steps.show(next_steps.line("run_pretraining", rest.rstrip(), **given))


if __name__ == "__main__":
    app.run(main, define_flags)
