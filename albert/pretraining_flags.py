"""Flags of masks, which the scripts of pre-training share, and what is built from them."""

import dataclasses

from absl import logging

from albert import common_flags, file_io, masking


def define_mask_flags(flag_values, note=""):
    """How many tokens are masked and how they are chosen.

    Args:
      flag_values: flag values.
      note: sentence that is added to the help of those that only say how masks are drawn.
    """
    _, integer, number, switch = common_flags.definers(flag_values)
    integer(
        "max_predictions_per_seq",
        20,
        "Most masked tokens in an instance; records that hold masks fit only what they were made "
        "with.",
    )
    number("masked_lm_prob", 0.15, f"Share of the tokens to mask.{note}")
    integer("ngram", 3, f"Longest run of words masked together.{note}")
    switch(
        "favor_shorter_ngram",
        True,
        f"Runs of n words have probability ~ 1/n; if false in reverse order.{note}",
    )
    switch("do_whole_word_mask", True, f"Mask all pieces of a word or none.{note}")
    switch(
        "do_permutation",
        False,
        f"Choose as many tokens again beside the masked ones, permute and predict them.{note}",
    )


def given_mask_flags(flag_values):
    """Names, with dashes, of those flags on the command line that only say how masks are drawn."""
    names = ("masked_lm_prob", "ngram", "favor_shorter_ngram", "do_whole_word_mask")
    return [f"--{name}" for name in (*names, "do_permutation") if flag_values[name].present]


def mask_config(flag_values):
    """`masking.MaskingConfig` of the flags.

    Raises:
      file_io.InputError: a flag is out of range.
    """
    common_flags.require_positive(flag_values, "ngram", "max_predictions_per_seq")
    if not 0 <= flag_values.masked_lm_prob <= 1:
        raise file_io.InputError(
            f"--masked_lm_prob={flag_values.masked_lm_prob} must be between 0 and 1"
        )
    return masking.MaskingConfig(
        flag_values.max_predictions_per_seq,
        flag_values.masked_lm_prob,
        flag_values.ngram,
        flag_values.favor_shorter_ngram,
        flag_values.do_whole_word_mask,
        flag_values.do_permutation,
    )


def _refuse_without_effect(flag_values, files):
    """Refuses flags of masks that these records leave without effect.

    Raises:
      file_io.InputError: names the flags and what to do.
    """
    budget, given = flag_values.masked_lm_budget, given_mask_flags(flag_values)
    train = files["train"]
    if budget and train.without_masks:
        raise file_io.InputError(
            f"--masked_lm_budget={budget} draws new masks for records that have some; those of "
            f"{train.paths[0]} have none: give --masked_lm_prob={budget} instead"
        )
    if budget:
        given = [name for name in given if name in ("--masked_lm_prob", "--do_permutation")]
        if given:
            raise file_io.InputError(
                f"{', '.join(given)} cannot be combined with --masked_lm_budget={budget}, which "
                "says how much is masked and fills the places that the records have"
            )
    elif given and not any(found.without_masks for found in files.values()):
        raise file_io.InputError(
            f"{', '.join(given)}: {train.paths[0]} holds records with masks, which are used as "
            "they are; make them with --mask_in_training (create_pretraining_data), or give "
            "--masked_lm_budget"
        )


def masker(flag_values, files, vocab_size):
    """`pretraining_masks.Masker` of the flags; None if the masks of the records are kept.

    Args:
      flag_values: flag values.
      files: see `pretraining_task.make_data`.
      vocab_size: V of the model.

    Raises:
      file_io.InputError: a flag has no effect, or the vocabulary is missing or another one.
    """
    from albert import pretraining_data, pretraining_masks, tokenization

    _refuse_without_effect(flag_values, files)
    lacking = [path for found in files.values() for path in found.fingerprints]
    if not (flag_values.masked_lm_budget or lacking):
        return None
    config = mask_config(flag_values)
    if flag_values.masked_lm_budget:
        config = dataclasses.replace(config, masked_lm_prob=flag_values.masked_lm_budget)
    if warning := masking.share_warning(config, flag_values.max_seq_length):
        logging.warning("%s", warning)
    try:
        source = common_flags.source(flag_values)
    except file_io.InputError as error:
        what = "--masked_lm_budget"
        if lacking:
            what = f"{lacking[0]} holds records without masks; masking"
        raise file_io.InputError(f"{what} needs the vocabulary of the records: {error}") from error
    tokenizer = tokenization.FullTokenizer(source.vocab_file, True, source.spm_model_file)
    tokenization.check_vocab_size(tokenizer, vocab_size)
    vocabulary = pretraining_data.Vocabulary.of(tokenizer)
    for found in files.values():
        found.check_vocabulary(vocabulary.fingerprint, source.spm_model_file or source.vocab_file)
    return pretraining_masks.Masker(config, vocabulary, flag_values.seed)
