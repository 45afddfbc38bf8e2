"""Flags of studies: a frozen encoder and its cache, a layer before the output, shares of the data.

All fine-tuning scripts have them; `define_squad_flags` adds those of SQuAD.
"""

import dataclasses
import os

from absl import flags

from albert.cli import common_flags, distillation_flags
from albert.io import file_io
from albert.model import head_config

ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")  # those of `layers.ACTIVATIONS`
CACHE_FOLDER = "encoder_cache"
_OF_LAYER = ("head_activation", "head_input_activation", "head_dropout_prob")
_OF_ENCODER = ("recompute", "hidden_dropout_prob", "attention_probs_dropout_prob")


def define_flags(flag_values):
    """The flags that all fine-tuning scripts have."""
    text, integer, number, switch = common_flags.definers(flag_values)
    switch(
        "freeze_encoder",
        False,
        "Train the head alone, on an encoder that stays as it is and drops nothing.",
    )
    switch(
        "cache_encoder_outputs",
        False,
        "With --freeze_encoder: run the encoder over the data once and keep what it computes in "
        "files; steps then read these.",
    )
    text(
        "encoder_cache_dir",
        None,
        "Folder of these files, which runs can share; by default encoder_cache beside the records "
        "of features.",
    )
    integer(
        "head_hidden_size",
        None,
        "Outputs of a dense layer between the encoder and the output layer; by default, and with "
        "0, there is none. A later run in the same folder takes it from there.",
    )
    for name, default, of in (
        ("head_activation", "relu", "of that layer's output"),
        ("head_input_activation", "linear", "of what the encoder computes, before that layer"),
    ):
        flags.DEFINE_enum(name, default, ACTIVATIONS, f"Activation {of}.", flag_values=flag_values)
    number("head_dropout_prob", 0.0, "Dropout of that layer's output in training.")
    number(
        "train_fraction",
        1.0,
        "Share of the training examples to train on, drawn by --seed; a smaller share is part of a "
        "larger one.",
    )
    number("eval_fraction", 1.0, "Share of the examples to evaluate on, drawn in the same way.")


def define_squad_flags(flag_values):
    """Which questions of a file are taken."""
    flags.DEFINE_bool(
        "answerable_only",
        False,
        "Leave out questions without an answer, in training and evaluation.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "drop_longer_than",
        None,
        "Leave out questions that have more tokens than this together with their text, [CLS] and "
        "[SEP]s, in training and evaluation.",
        lower_bound=4,
        flag_values=flag_values,
    )


def check_study(values):
    """Refuses contradictions before any work.

    Raises:
      file_io.InputError: names the flags.
    """
    from albert.training import subsets

    for name in ("train_fraction", "eval_fraction"):
        subsets.check_share(name, values[name].value)
    if not values.head_hidden_size:
        given = [name for name in _OF_LAYER if values[name].present]
        common_flags.refuse_given(values, "a layer of --head_hidden_size", *given)
    if "teacher" in values and values.teacher:
        _check_teacher(values)
    if values.freeze_encoder:
        _check_frozen(values)
    else:
        names = ("cache_encoder_outputs",)
        common_flags.refuse_given(values, "--freeze_encoder", *names)
    if not values.cache_encoder_outputs:
        common_flags.refuse_given(values, "--cache_encoder_outputs", "encoder_cache_dir")
    elif values.checkpoint not in (None, "best", "last"):
        raise file_io.InputError(
            f"--cache_encoder_outputs: --checkpoint={values.checkpoint} may have another encoder "
            "than the cache is of; give best or last"
        )
    elif values.from_scratch and "num_restarts" in values and values["num_restarts"].value:
        raise file_io.InputError(
            "--cache_encoder_outputs: with --from_scratch another seed means another encoder; "
            "leave out --num_restarts"
        )


def _check_frozen(values):
    if not values.do_train:
        raise file_io.InputError("--freeze_encoder is for --do_train: nothing else changes weights")
    given = [name for name in _OF_ENCODER if values[name].value]
    common_flags.refuse_given(values, "an encoder that is trained (--freeze_encoder)", *given)
    if values.estimate_memory:
        raise file_io.InputError(
            "--estimate_memory counts the training of the whole model; leave out --freeze_encoder"
        )


def _check_teacher(values):
    ours, theirs = head(values), _described_head(values.teacher)
    if theirs is not None and not _same(theirs, ours):
        raise file_io.InputError(
            f"--teacher={values.teacher} has {_describe(theirs)}, this run {_describe(ours)}: both "
            "must have the same head"
        )
    if values.cache_encoder_outputs:
        raise file_io.InputError(
            "--cache_encoder_outputs: the --teacher reads each text at every step, so no time is "
            "saved; leave it out"
        )
    if values.freeze_encoder and any(distillation_flags.weights(values.distill_weights)[2:]):
        raise file_io.InputError(
            f"--distill_weights={values.distill_weights}: with --freeze_encoder the hidden states "
            "do not change, so the third weight must be 0"
        )


def head(values):
    """`head_config.Head` of the flags; a run without training takes what they leave out from its
    folder.

    Raises:
      file_io.InputError: a value out of range; or the run goes on with another head.
    """
    from albert.model import checkpoints

    names = ("head_hidden_size", "head_activation", "head_input_activation", "head_dropout_prob")
    given = {name: values[name].value for name in names}
    ours = head_config.Head(**{**given, "head_hidden_size": values.head_hidden_size or None})
    ours = ours if ours.head_hidden_size else head_config.NO_LAYER
    there = _described_head(values.output_dir)
    if there is None or _same(there, ours):
        return ours
    if not values.do_train:
        return ours if values["head_hidden_size"].present else there
    if checkpoints.numbered(values.output_dir):
        raise file_io.InputError(
            f"{values.output_dir} holds a run with {_describe(there)}, this one is to have "
            f"{_describe(ours)}: give the same flags, or another --output_dir"
        )
    return ours


def _same(one, other):
    """Whether two heads compute the same, whatever training drops."""
    return dataclasses.replace(one, head_dropout_prob=other.head_dropout_prob) == other


def _describe(found):
    if not found.head_hidden_size:
        return "no --head_hidden_size"
    return ", ".join(f"--{name}={value}" for name, value in dataclasses.asdict(found).items())


def _described_head(output_dir):
    """`head_config.Head` that a model's folder describes; None without a description."""
    from albert.model import sources

    path = os.path.join(output_dir, sources.DESCRIPTION_NAME)
    if not file_io.exists(path):
        return None
    description = file_io.read_json(path, "model description")
    settings = description.get("settings") if isinstance(description, dict) else None
    return head_config.Head.of(settings) if isinstance(settings, dict) else None


def frozen(values, task):
    """The `contracts.Task`, with --freeze_encoder that of a frozen encoder.

    Raises:
      file_io.InputError: the run goes on with one whose encoder was trained, or the other way.
    """
    from albert.training import frozen_encoder

    if values.do_train:
        frozen_encoder.check_resume(values.output_dir, values.freeze_encoder)
    return frozen_encoder.frozen(task) if values.freeze_encoder else task


def studied(values, data, task, run, shares=True):
    """The `contracts.Data` of shares of the examples, and with the encoder's outputs, as flags say.

    Args:
      values: flag values.
      data: `contracts.Data`.
      task: `contracts.Task` of `frozen`, without a teacher.
      run: `stages.Run`.
      shares: take the shares here; else the data is of them already.
    """
    if shares:
        from albert.training import subsets

        names = {"train": "train_fraction", "dev": "eval_fraction"}
        found = {split: (name, values[name].value) for split, name in names.items()}
        data = subsets.subset(data, found, values.seed, run.strategy)
    if not values.cache_encoder_outputs:
        return data
    from albert.training import frozen_encoder

    beside = values.cached_dir if "cached_dir" in values else None
    folder = values.encoder_cache_dir
    folder = folder or os.path.join(beside or values.output_dir, CACHE_FOLDER)
    return frozen_encoder.cached_data(data, task, run, folder)


def selections(values):
    """`squad_records.Selection` of the training file and of the file to answer."""
    from albert.tasks.squad import records as squad_records

    return tuple(
        squad_records.Selection(
            values.answerable_only,
            values.drop_longer_than,
            values[name].value,
            name,
            seed=values.seed,
        )
        for name in ("train_fraction", "eval_fraction")
    )
