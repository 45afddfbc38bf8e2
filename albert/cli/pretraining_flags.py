"""Flags of pre-training and of the making of its records, and what is built from them."""

import dataclasses
import os

from absl import flags, logging

from albert.cli import common_flags, options, pretraining, record_flags, schedule_flags
from albert.data import masking
from albert.io import file_io

# --- masks ---------------------------------------------------------------------------------------


def mask_config(flag_values):
    """Returns the `masking.MaskingConfig` of the flags; raises file_io.InputError."""
    return options.read(pretraining.Masks, flag_values).config()


def _refuse_without_effect(flag_values, files):
    """Refuses flags of masks that these records leave without effect.

    Raises:
      file_io.InputError: names the flags and what to do.
    """
    budget = flag_values.masked_lm_budget
    given = options.read(pretraining.Masks, flag_values).given_rules()
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
    """`dynamic_masking.Masker` of the flags; None if the masks of the records are kept.

    Args:
      flag_values: flag values.
      files: see `pretraining.make_data`.
      vocab_size: V of the model.

    Raises:
      file_io.InputError: a flag has no effect, or the vocabulary is missing or another one.
    """
    from albert.data import dynamic_masking

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
    vocabulary = {name: getattr(source, name) for name in ("vocab_file", "spm_model_file")}
    return dynamic_masking.make_masker(config, files, vocabulary, vocab_size, flag_values.seed)


# --- the sentence task ---------------------------------------------------------------------------


def define_sentence_task_flag(flag_values):
    """What the model learns of two pieces of text."""
    flags.DEFINE_enum(
        "sentence_task",
        "sop",
        ["sop", "nsp", "none"],
        "What the model learns of two texts beside masked words: their order, whether one follows "
        "the other, or nothing. --do_eval alone: by default what it has learnt.",
        flag_values=flag_values,
    )


def sentence_tasks(values, strategy):
    """What is learnt or measured of two texts, and what the model was trained for.

    Args:
      values: flag values.
      strategy: `tf.distribute.Strategy`; all workers must come here.

    Returns:
      Two keys of `pretraining_heads.SENTENCE_TASKS`, which differ only in evaluations.

    Raises:
      file_io.InputError: the output folder holds checkpoints of another task, or the model to
        evaluate has no head for one.
    """
    from albert.model import checkpoints, model_folder
    from albert.training import distribution

    path, checkpoint = values.output_dir, None
    if values.checkpoint not in (None, "all", "best", "last"):
        checkpoint = checkpoints.resolve(values.checkpoint)
        path = os.path.dirname(checkpoint)
    possible = distribution.from_chief(
        strategy, lambda: model_folder.sentence_tasks(path, checkpoint)
    )
    wanted = values.sentence_task
    if not values.do_train and not values["sentence_task"].present:
        wanted = possible[0]
    if wanted in possible:
        return wanted, wanted
    trained = f"{path} holds a model trained with --sentence_task={' or '.join(possible)}"
    if values.do_train:
        raise file_io.InputError(
            f"{trained}: it cannot go on with --sentence_task={wanted}. To start anew from its "
            "weights, name it as --init_checkpoint and use another --output_dir"
        )
    if possible == ["none"]:
        raise file_io.InputError(
            f"{trained}: it has no head whose answers --sentence_task={wanted} could measure"
        )
    _log_what_is_measured(trained, wanted, possible[0])
    return wanted, possible[0]


def _log_what_is_measured(trained, wanted, task):
    from albert.model import pretraining_heads

    head, labels = (pretraining_heads.SENTENCE_TASKS[name] for name in (task, wanted))
    if labels is None:
        logging.info("%s: the answers of its %s head are not measured", trained, head)
        return
    logging.warning(
        "%s: %s_head_on_%s_accuracy and …_loss are those of its %s head on %s labels",
        trained,
        head,
        labels,
        head.replace("_", " "),
        labels.replace("_", " "),
    )


# --- batches of equally many tokens --------------------------------------------------------------


def define_batch_flags(flag_values):
    """How large a batch is: in examples or in tokens."""
    _, integer, _, _ = common_flags.definers(flag_values)
    integer("train_batch_size", 4096, "Examples per step, over all devices.")
    integer(
        "train_batch_tokens",
        0,
        "Above 0: real tokens per step, in place of --train_batch_size; batches of shorter "
        "examples hold more of them. For one device.",
    )


def set_batch_size(values, strategy):
    """Gives --train_batch_size the mean number of examples in --train_batch_tokens, if given.

    Raises:
      file_io.InputError: the flag cannot be combined with others, or holds less than two of the
        longest examples.
    """
    tokens = values.train_batch_tokens
    if not tokens:
        return
    from albert.data import dynamic_masking, input_pipeline
    from albert.training import distribution

    flag = f"--train_batch_tokens={tokens}"
    if values["train_batch_size"].present:
        raise file_io.InputError(f"{flag} cannot be combined with --train_batch_size: give one")
    several = values.gradient_accumulation_steps > 1 or strategy.num_replicas_in_sync > 1
    if several or distribution.needs_fixed_shapes(strategy):
        raise file_io.InputError(
            f"{flag} makes batches of different numbers of examples, which cannot be dealt equally "
            "among devices or --gradient_accumulation_steps, nor run on TPUs: give "
            "--train_batch_size instead"
        )
    if tokens < 2 * values.max_seq_length:
        raise file_io.InputError(
            f"{flag} must be at least twice --max_seq_length={values.max_seq_length}"
        )
    sources = input_pipeline.parse_mixture(values.input_file, "--input_file")
    length = dynamic_masking.mean_length(sources)
    values.train_batch_size = max(1, round(tokens / length))
    logging.info(
        "%s: %d examples on average, of %.1f tokens each", flag, values.train_batch_size, length
    )


# --- the run -------------------------------------------------------------------------------------


def make_run(values, source, config, lessons, sentence_task, strategy):
    """`stages.Run` of the flags.

    Args:
      values: flag values.
      source: `sources.Source` of what to start from.
      config: `encoder.AlbertConfig`.
      lessons: `distillation_flags.Lessons`.
      sentence_task: the one that is learnt.
      strategy: `tf.distribute.Strategy`.
    """
    from albert.model import checkpoints, model_folder
    from albert.training import stages

    if source.spm_model_file or source.vocab_file:
        model_folder.load_tokenizer(source, config)  # refuses one that does not fit
    return stages.Run(
        model_config=config,
        run_config=common_flags.run_config(values, values.num_train_steps, values.eval_batch_size),
        strategy=strategy,
        init_checkpoint=lessons.checkpoint or source.checkpoint,
        from_scratch=True,
        rename=checkpoints.group_zero_name if values.init_from_group0 else lessons.rename,
        complete_folder=lambda _: model_folder.write_pretrained(
            values.output_dir, config, sentence_task, source
        ),
        record=record_flags.recorder(values, "run_pretraining", source),
        **schedule_flags.of_run(
            values,
            values.num_train_steps,
            values.num_warmup_steps,
            poly_power=values.poly_power,
            start_warmup_step=values.start_warmup_step,
        ),
    )
