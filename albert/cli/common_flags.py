"""Flags that scripts share and those of a classifier's data, and what is built from them."""

import functools
import sys

from absl import flags

from albert.io import file_io

PRECISIONS = {"float32": "float32", "mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}
# Least positions of a batch that gain from two parts: less is soon done, and more to compile.
_ROWS_OF_PARTS = 2048


def definers(flag_values):
    """Short forms for a script's table of flags.

    Returns:
      Functions ``(name, default, help)`` that define a text, an integer, a number and a switch.
    """
    kinds = (flags.DEFINE_string, flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_bool)
    return tuple(functools.partial(define, flag_values=flag_values) for define in kinds)


def define_device_flags(flag_values):
    """Where and how a script computes."""
    flags.DEFINE_bool("use_tpu", False, "Run on a TPU.", flag_values=flag_values)
    flags.DEFINE_string("tpu_name", None, "Name or address of the TPU.", flag_values=flag_values)
    flags.DEFINE_string(
        "tpu_zone",
        None,
        "Google Cloud zone of the TPU, if not the default.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "gcp_project",
        None,
        "Google Cloud project of the TPU, if not the default.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "master",
        None,
        "Address of the TPU (grpc://…), used when --tpu_name is not given.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_tpu_cores",
        8,
        "TPU cores that the run expects; only read with a TPU.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "iterations_per_loop",
        1000,
        "Most steps in one call of the compiled train function; fewer where a call would take "
        "long, as Ctrl-C waits for its end.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "distribution_strategy",
        "auto",
        ["auto", "one_device", "mirrored", "multi_worker", "tpu"],
        "Devices to compute on; auto: the TPU with --use_tpu, else all workers that TF_CONFIG "
        "names, else all GPUs of this machine, else its CPU.",
        flag_values=flag_values,
    )


def define_compute_flags(flag_values):
    """Precision, memory and speed; with `compute` and `engine` of training scripts."""
    flags.DEFINE_enum(
        "precision",
        "float32",
        list(PRECISIONS),
        "Type of products and activations; variables, normalisation, losses and the optimizer stay "
        "float32. mixed_float16 scales the loss.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "gradient_accumulation_steps",
        1,
        "Parts that each device computes its batch in, one after another: less memory, the same "
        "update.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "recompute",
        False,
        "Compute activations again in the backward pass instead of keeping them: much less memory, "
        "about a third more time, the same update.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "use_xla",
        False,
        "Let XLA compile clusters of the graph; for GPUs.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "estimate_memory",
        False,
        "Print what training with these flags needs and what would fit, and end.",
        flag_values=flag_values,
    )


def define_run_flags(flag_values):
    """How a training run proceeds and reports."""
    define_compute_flags(flag_values)
    flags.DEFINE_integer(
        "seed",
        12345,
        "Source of first weights, data order and dropout: same seed, same run.",
        lower_bound=0,
        upper_bound=2**31 - 1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "log_every_steps",
        20,
        "Steps between lines of the log.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "save_checkpoints_secs",
        0,
        "Save a checkpoint beside those of --save_checkpoints_steps whenever so many seconds have "
        "passed since the last one; it is not evaluated. 0: none.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "eval_wait_secs",
        0,
        "With --do_eval alone: go on waiting for checkpoints that a trainer beside this run writes "
        "until none has come for so many seconds. 0: evaluate what is there and end.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "checkpoint",
        None,
        'Checkpoint to evaluate or predict with: "best", "last" or a path; --do_eval alone also '
        'takes "all". By default --do_eval takes all and prediction the best, else the last.',
        flag_values=flag_values,
    )


def define_model_flags(flag_values):
    """Model, weights and tokenizer of the fine-tuning scripts."""
    flags.DEFINE_string(
        "albert_config_file",
        None,
        "JSON file of the model's sizes; by default the one beside --init_checkpoint or in the hub "
        "module.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Weights to start from: checkpoint prefix, its .index or .data file, a folder, a Hugging "
        "Face folder or its .safetensors file.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "albert_hub_module_handle",
        None,
        "Hub module to start from: a local folder, a .tar.gz file or a URL. Brings configuration "
        "and vocabulary.",
        flag_values=flag_values,
    )
    define_hub_cache_flag(flag_values)
    flags.DEFINE_bool(
        "from_scratch",
        False,
        "Start from random weights; without it fine-tuning needs a model.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "vocab_file",
        None,
        "WordPiece vocabulary, for models without SentencePiece; from_tf_hub: the hub module's.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "spm_model_file",
        None,
        "SentencePiece model; by default the one beside the checkpoint; from_tf_hub: that of the "
        "hub module.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Lower-case the text (the released English models do); by default what the hub module or "
        "Hugging Face folder says.",
        flag_values=flag_values,
    )


def define_hub_cache_flag(flag_values):
    """The flag that tensorflow_hub has for its cache, as the environment variable of that name."""
    flags.DEFINE_string(
        "tfhub_cache_dir",
        None,
        "Folder for hub modules that are fetched or unpacked; by default TFHUB_CACHE_DIR of the "
        "environment, else ~/.cache/albert (fetched ones: tensorflow_hub's own).",
        flag_values=flag_values,
        allow_override=True,  # tensorflow_hub defines it, too, once it is imported.
    )


def define_own_data_flags(flag_values):
    """Files and columns of one's own data, for a classifier."""
    text, *_ = definers(flag_values)
    text("train_file", None, "Own data to train on (.csv, .tsv or .jsonl), for custom.")
    text("validation_file", None, "Own data to evaluate on, for custom.")
    text("test_file", None, "Own data to predict, with or without labels, for custom.")
    text("text_column", "text", "Column of the text in one's own data.")
    text("text_pair_column", None, "Column of the second text in one's own data, if there is one.")
    text("label_column", "label", "Column of the label in one's own data.")
    text("id_column", None, "Column of the id in one's own data; by default rows are numbered.")
    flags.DEFINE_enum(
        "label_type",
        None,
        ["classification", "regression"],
        "What the labels of one's own data are; by default regression if all are numbers and one "
        "has a decimal point.",
        flag_values=flag_values,
    )


def strategy(flag_values):
    """`tf.distribute.Strategy` of the device flags.

    Raises:
      file_io.InputError: flags contradict each other or the devices are missing.
    """
    from albert.training import distribution

    name = flag_values.distribution_strategy
    if flag_values.use_tpu and name not in ("auto", "tpu"):
        raise file_io.InputError(f"--use_tpu contradicts --distribution_strategy={name}")
    name = "tpu" if flag_values.use_tpu else name
    chosen = distribution.create_strategy(
        name,
        tpu_name=flag_values.tpu_name,
        tpu_zone=flag_values.tpu_zone,
        gcp_project=flag_values.gcp_project,
        master=flag_values.master,
    )
    if name == "tpu" and chosen.num_replicas_in_sync != flag_values.num_tpu_cores:
        raise file_io.InputError(
            f"--num_tpu_cores={flag_values.num_tpu_cores}, but the TPU has "
            f"{chosen.num_replicas_in_sync}"
        )
    if flag_values.use_xla:
        distribution.use_xla()
    distribution.check_agreement(chosen, _settings(flag_values))
    return chosen


def _settings(flag_values):
    """{name: value} of the scripts' own flags."""
    return {
        flag.name: flag.value
        for module, defined in flag_values.flags_by_module_dict().items()
        for flag in defined
        if not module.startswith("absl.")
    }


def run_config(
    flag_values,
    num_train_steps,
    predict_batch_size,
    keep_checkpoint_max=None,
    eval_batch_size=None,
):
    """`engine.RunConfig` of the flags; scripts name those that differ among them."""
    from albert.training import engine

    if keep_checkpoint_max is None:
        keep_checkpoint_max = flag_values.keep_checkpoint_max
    if keep_checkpoint_max < 0:
        raise file_io.InputError(
            f"{keep_checkpoint_max} checkpoints cannot be kept: give a number, or 0 to keep all"
        )
    if eval_batch_size is None:
        eval_batch_size = flag_values.eval_batch_size
    return engine.RunConfig(
        output_dir=flag_values.output_dir,
        num_train_steps=num_train_steps,
        train_batch_size=flag_values.train_batch_size,
        eval_batch_size=eval_batch_size,
        predict_batch_size=predict_batch_size,
        save_checkpoints_steps=flag_values.save_checkpoints_steps,
        save_checkpoints_secs=flag_values.save_checkpoints_secs,
        keep_checkpoint_max=keep_checkpoint_max,
        iterations_per_loop=flag_values.iterations_per_loop,
        log_every_steps=flag_values.log_every_steps,
        seed=flag_values.seed,
        gradient_accumulation_steps=flag_values.gradient_accumulation_steps,
        compute=compute(flag_values),
        eval_every=flag_values.eval_every,
        early_stopping_patience=flag_values.early_stopping_patience,
    )


def compute(flag_values):
    """`layers.Compute` of the flags."""
    return _compute_with(
        flag_values, flag_values.gradient_accumulation_steps, flag_values.recompute
    )


def _compute_with(flag_values, accumulation_steps, recompute):
    """`compute` with other ways of saving memory."""
    from albert.model import layers

    # Each part has gradients of shared weights of its own, so not where memory is to be saved.
    saving = recompute or accumulation_steps > 1
    rows = flag_values.train_batch_size * flag_values.max_seq_length
    return layers.Compute(
        PRECISIONS[flag_values.precision],
        skip_padding=True,
        recompute=recompute,
        parts=1 if saving or rows < _ROWS_OF_PARTS else 2,
    )


def source(flag_values, needs_vocabulary=True, teacher=None):
    """`sources.Source` of the model flags.

    Args:
      flag_values: flag values.
      needs_vocabulary: whether to look for a vocabulary.
      teacher: `sources.Source` whose vocabulary is taken where neither flags nor a model to
        start from bring one, or None.
    """
    from albert.model import sources

    if flag_values.tfhub_cache_dir:
        sources.set_cache_dir(flag_values.tfhub_cache_dir)
    # What the user did not say, the model says.
    optional = [flag for flag in ("do_lower_case", "from_scratch") if flag in flag_values]
    given = {flag: flag_values[flag].value for flag in optional if flag_values[flag].present}
    vocabulary = {name: flag_values[name].value for name in ("spm_model_file", "vocab_file")}
    models = (flag_values.init_checkpoint, flag_values.albert_hub_module_handle)
    if teacher and not any((*models, *vocabulary.values())):
        vocabulary = {name: getattr(teacher, name) for name in vocabulary}
        given = {"do_lower_case": teacher.do_lower_case, **given}
    return sources.locate(
        config_file=flag_values.albert_config_file,
        checkpoint=flag_values.init_checkpoint,
        hub_handle=flag_values.albert_hub_module_handle,
        needs_vocabulary=needs_vocabulary,
        **vocabulary,
        **given,
    )


def source_of_run(flag_values, kind, teacher=None):
    """`source`, or without training and with no model named the files in the output folder.

    Args:
      flag_values: flags of a fine-tuning script.
      kind: what its models do, see `model_folder`.
      teacher: see `source`.
    """
    from albert.model import sources
    from albert.tasks import kinds

    names = ("albert_config_file", "init_checkpoint", "albert_hub_module_handle")
    if flag_values.do_train or any(flag_values[name].value for name in names):
        return source(flag_values, teacher=teacher)
    sources.refuse_hub_word(None, flag_values.spm_model_file, flag_values.vocab_file)
    return kinds.read_folder(flag_values.output_dir, kind).source


def classifier_row(flag_values):
    """The task that a classifier is trained on.

    Returns:
      `glue.GlueTask`, or `custom.CustomTask` on one's own files.

    Raises:
      file_io.InputError: no such task, or flags of the other kind are given.
    """
    from albert.io import tables
    from albert.tasks import custom, glue

    own = ("train_file", "validation_file", "test_file", "text_pair_column", "id_column")
    if flag_values.task_name.lower() != custom.NAME:
        require_given(flag_values, "data_dir")
        refuse_given(flag_values, "--task_name=custom", *own, "label_type")
        return glue.get_task(flag_values.task_name)
    refuse_given(flag_values, "GLUE tasks", "data_dir")
    columns = tables.Columns(
        flag_values.text_column,
        flag_values.text_pair_column,
        flag_values.label_column,
        flag_values.id_column,
    )
    files = {
        "train": flag_values.train_file,
        "dev": flag_values.validation_file,
        "test": flag_values.test_file,
    }
    return custom.find_task(files, columns, flag_values.output_dir, flag_values.label_type)


def text_settings(flag_values, source):
    """JSON-ready dict of what the features of a text depend on, for a `sources.Source`."""
    return {
        "max_seq_length": flag_values.max_seq_length,
        "do_lower_case": source.do_lower_case,
        "vocabulary_sha256": file_io.sha256(source.spm_model_file or source.vocab_file),
    }


def check_seq_length(flag_values, config):
    """Refuses sequences longer than the model's table of positions.

    Raises:
      file_io.InputError: names both values.
    """
    if flag_values.max_seq_length > config.max_position_embeddings:
        raise file_io.InputError(
            f"--max_seq_length={flag_values.max_seq_length} is above the model's "
            f"max_position_embeddings of {config.max_position_embeddings}"
        )


def end_with_estimate(flag_values, config, strategy, predictions=0, choices=1):
    """With --estimate_memory prints what training needs and ends the program.

    Args:
      flag_values: flag values.
      config: `encoder.AlbertConfig`.
      strategy: `tf.distribute.Strategy`.
      predictions: masked positions per example; 0 for fine-tuning.
      choices: texts per example.
    """
    if not flag_values.estimate_memory:
        return
    from albert.training import distribution, engine, memory

    engine.training_batch(flag_values, strategy)
    batch_size = flag_values.train_batch_size
    each = distribution.per_replica_batch_size(strategy, batch_size, "train_batch_size")
    report = memory.report(
        config,
        each,
        flag_values.max_seq_length,
        lambda *saving: engine.compute_on(_compute_with(flag_values, *saving), strategy),
        flag_values.gradient_accumulation_steps,
        flag_values.recompute,
        predictions,
        choices,
        flag_values.optimizer,
    )
    print(report)
    sys.exit(0)


def require_positive(flag_values, *names):
    """Refuses counts below one before any work.

    Raises:
      file_io.InputError: names the flag and its value.
    """
    for name in names:
        if flag_values[name].value < 1:
            raise file_io.InputError(f"--{name}={flag_values[name].value} must be at least 1")


def require_given(flag_values, *names):
    """Refuses a run without a needed flag.

    Raises:
      file_io.InputError: names the flags.
    """
    missing = [f"--{name}" for name in names if not flag_values[name].value]
    if missing:
        raise file_io.InputError(f"{', '.join(missing)} must be given")


def refuse_given(flag_values, purpose, *names):
    """Refuses flags that do nothing in this run.

    Raises:
      file_io.InputError: names the flags and what they are for.
    """
    given = [f"--{name}" for name in names if flag_values[name].value]
    if given:
        raise file_io.InputError(f"{', '.join(given)}: only for {purpose}")


def check_waiting(flag_values):
    """Refuses --eval_wait_secs where nothing would wait.

    Raises:
      file_io.InputError: names the flag and what it is for.
    """
    if flag_values.do_train or not flag_values.do_eval:
        refuse_given(flag_values, "--do_eval alone", "eval_wait_secs")
