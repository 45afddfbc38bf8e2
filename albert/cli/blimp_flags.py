"""Flags of `run_pretraining` that measure each checkpoint on BLiMP, and what is built from them."""

from typing import Any

from absl import flags

from albert.cli import common_flags, options, pretraining
from albert.io import file_io


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of `pretraining.Blimp`, and how the sentences are read."""
    options.define(pretraining.Blimp, flag_values)
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Lower-case the sentences of BLiMP, as the texts of the records were.",
        flag_values=flag_values,
    )


def check(values: flags.FlagValues) -> None:
    """Rejects flags without effect; raises `file_io.InputError`."""
    options.read(pretraining.Blimp, values).check(values.do_eval)


def measured(values: flags.FlagValues, task: Any, config: Any) -> Any:
    """Returns the `contracts.Task` of pre-training, which also measures BLiMP if flags ask for it.

    Raises:
      file_io.InputError: the data or the vocabulary cannot be read.
    """
    if not values.blimp_data_dir:
        return task
    from albert.experiments import blimp, sentence_scores
    from albert.model import model_folder

    paradigms = blimp.read(values.blimp_data_dir, values.blimp_limit)
    try:
        source = common_flags.source(values)
    except file_io.InputError as error:
        raise file_io.InputError(
            f"--blimp_data_dir needs the vocabulary of the records: {error}"
        ) from error
    tokenizer = model_folder.load_tokenizer(source, config)
    return sentence_scores.with_blimp(task, paradigms, tokenizer)
