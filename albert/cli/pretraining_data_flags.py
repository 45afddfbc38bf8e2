"""Flags of the making of pre-training records, and the job that they describe."""

from absl import flags, logging

from albert.cli import common_flags, pretraining_flags, runner_flags
from albert.data import instance_files, instances, masking, sequence_formats
from albert.io import file_io


def define_flags(flag_values):
    """What is read, what instances are like, and what is written."""
    text, integer, number, switch = common_flags.definers(flag_values)
    text("input_file", None, "Text files, also .gz, .bz2 or .zst: comma-separated globs.")
    text(
        "output_file",
        None,
        "Record files to write, comma-separated; filled in turn. With --num_shards: what their "
        "names begin with.",
    )
    integer(
        "num_shards",
        None,
        "Write so many files <output_file>-00000-of-…; a run that was killed goes on when the same "
        "command is given again.",
    )
    runner_flags.define_flags(
        flag_values,
        "Who makes the instances: processes of this machine, or Apache Beam (extra beam), also on "
        "many machines; needs --num_shards.",
    )
    switch(
        "overwrite_shards",
        False,
        "Make shards anew that are there from other text or other settings, instead of refusing.",
    )
    text("vocab_file", None, "WordPiece vocabulary; only read without --spm_model_file.")
    text("spm_model_file", None, "SentencePiece model.")
    text("input_file_mode", "r", 'Accepts "r" and "rb"; either way the text must be UTF-8.')
    switch("do_lower_case", True, "Lower-case the text.")
    switch(
        "random_next_sentence",
        False,
        "Make next-sentence instances, not sentence-order ones; same as --sentence_task=nsp.",
    )
    flags.DEFINE_enum(
        "sentence_task",
        "reference",
        sequence_formats.SENTENCE_TASKS,
        "Label 1 means: sop - B and A are swapped; a sentence left alone is passed over. nsp - B "
        "is from another document. none - never. reference - as sop, but a sentence left alone is "
        "joined with one from another document, label 1.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "sequence_format",
        "segment_pair",
        list(sequence_formats.FORMATS),
        "What an instance holds: segment_pair - two texts of one or more sentences. sentence_pair "
        "- two sentences. full_sentences - sentences up to the length, also of several documents. "
        "doc_sentences - the same, of one document.",
        flag_values=flag_values,
    )
    integer("max_seq_length", 512, "Tokens in an instance.")
    integer("random_seed", 12345, "Same seed, same files, for any --num_workers.")
    integer("dupe_factor", 40, "Passes over the text, each with other pairs and masks.")
    integer("num_workers", None, "Processes; all cores by default, 1 starts none.")
    number("short_seq_prob", 0.1, "Share of documents cut into instances of random length.")
    switch(
        "mask_in_training",
        False,
        "Write small records, without masks and in one pass; run_pretraining draws the masks.",
    )
    switch("compress", False, "Write gzip files, under the names given.")
    pretraining_flags.define_mask_flags(flag_values)


def _check_work(values):
    """Refuses contradictions of the flags that say who works and what files are written."""
    for name in ("num_workers", "num_shards"):
        if values[name].value is not None:
            common_flags.require_positive(values, name)
    if values.overwrite_shards and not values.num_shards:
        raise file_io.InputError("--overwrite_shards is for --num_shards")
    if values.runner == "beam" and not values.num_shards:
        raise file_io.InputError("--runner=beam writes shards: --num_shards must be given")
    runner_flags.check(values)


def job(values):
    """`instance_files.Job` of the flag values.

    Raises:
      file_io.InputError: a flag is out of range, or two contradict each other.
    """
    common_flags.require_given(values, "input_file", "output_file")
    if not values.spm_model_file and not values.vocab_file:
        raise file_io.InputError("--spm_model_file (or, for WordPiece, --vocab_file) must be given")
    common_flags.require_positive(values, "dupe_factor")
    _check_work(values)
    mask = pretraining_flags.mask_config(values)
    if not 0 <= values.short_seq_prob <= 1:
        raise file_io.InputError(
            f"--short_seq_prob={values.short_seq_prob} must be between 0 and 1"
        )
    if values["short_seq_prob"].present and values.sequence_format != "segment_pair":
        common_flags.refuse_given(values, "--sequence_format=segment_pair", "short_seq_prob")
    if values.input_file_mode not in ("r", "rb"):
        raise file_io.InputError(
            f'--input_file_mode={values.input_file_mode} must be "r" or "rb"; both read UTF-8'
        )
    task = values.sentence_task
    if values.random_next_sentence:
        if task not in ("reference", "nsp"):
            raise file_io.InputError(f"--random_next_sentence contradicts --sentence_task={task}")
        task = "nsp"
    elif not values["sentence_task"].present:
        task = task if sequence_formats.has_sentence_task(values.sequence_format) else "none"
    settings = instances.Settings(
        max_seq_length=values.max_seq_length,
        short_seq_prob=values.short_seq_prob,
        sequence_format=values.sequence_format,
        sentence_task=task,
        # Seeds below zero are allowed in the reference; numpy wants them above.
        random_seed=values.random_seed % (1 << 64),
        mask=None if values.mask_in_training else mask,
    )
    files = ("vocab_file", "spm_model_file", "do_lower_case", "compress")
    passes = 1 if values.mask_in_training else values.dupe_factor
    return instance_files.Job(settings, passes, **{name: values[name].value for name in files})


def warn(values, todo):
    """Warns of a share of masks that cannot be reached, or of flags that have no effect here."""
    mask = todo.settings.mask
    warning = mask and masking.share_warning(mask, values.max_seq_length)
    unused = pretraining_flags.given_mask_flags(values)
    if not mask and unused:
        warning = f"{', '.join(unused)}: not used here; masks are drawn by the flags of training"
    if warning:
        logging.warning("%s", warning)
