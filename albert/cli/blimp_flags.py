"""Flags of `run_pretraining` that measure each checkpoint on BLiMP, and what is built from them."""

import dataclasses
import functools

from absl import flags

from albert.cli import common_flags
from albert.io import file_io


def define_flags(flag_values):
    """Where BLiMP is, how much of it is measured, and how its sentences are read."""
    text, _, _, switch = common_flags.definers(flag_values)
    text("blimp_data_dir", None, "With --do_eval: also measure on the files of BLiMP in here.")
    flags.DEFINE_integer(
        "blimp_limit",
        None,
        "Most pairs of each of BLiMP's paradigms, from the front; by default all.",
        lower_bound=1,
        flag_values=flag_values,
    )
    switch(
        "do_lower_case",
        True,
        "Lower-case the sentences of BLiMP, as the texts of the records were.",
    )


def check(values):
    """Refuses flags that would do nothing.

    Raises:
      file_io.InputError: names them.
    """
    if values.blimp_data_dir and not values.do_eval:
        raise file_io.InputError("--blimp_data_dir needs --do_eval")
    if not values.blimp_data_dir:
        common_flags.refuse_given(values, "--blimp_data_dir", "blimp_limit")


def measured(values, task, config):
    """The task, whose evaluations also measure BLiMP where that is asked for.

    Args:
      values: flag values.
      task: `contracts.Task` of pre-training.
      config: `encoder.AlbertConfig`.

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

    @functools.lru_cache(maxsize=1)  # Its function is traced once.
    def scorer(model):
        return sentence_scores.Scorer(model, tokenizer)

    def further_metrics(model):
        return blimp.measure(paradigms, scorer(model).score).metrics()

    return dataclasses.replace(task, further_metrics=further_metrics)
