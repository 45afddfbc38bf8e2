"""Pre-trains ALBERT on records made by `create_pretraining_data`, and evaluates it."""

from absl import flags

from albert.cli import (
    app,
    blimp_flags,
    common_flags,
    distillation_flags,
    dropout_flags,
    optimizer_flags,
    options,
    pretraining,
    pretraining_flags,
    schedule_flags,
)
from albert.io import file_io


def define_flags(flag_values):
    common_flags.define_device_flags(flag_values)
    common_flags.define_run_flags(flag_values)
    text, integer, number, switch = common_flags.definers(flag_values)
    text("albert_config_file", None, "JSON file of the model's sizes.")
    text("input_file", None, "Records to train on: comma-separated globs, or globs with weights.")
    text("eval_input_file", None, "Records to evaluate on; by default --input_file.")
    text("output_dir", None, "Folder of checkpoints and results.")
    text("init_checkpoint", None, "Weights to start from, in any form; by default random ones.")
    text("albert_hub_module_handle", None, "Hub module to start from: a folder, .tar.gz or URL.")
    common_flags.define_hub_cache_flag(flag_values)
    switch("init_from_group0", False, "Give every group of layers the weights of group 0.")
    switch("do_train", True, "Train.")
    switch("do_eval", False, "Evaluate: each checkpoint as it is saved, or all that are there.")
    integer("max_seq_length", 512, "Tokens per example, as the records were made.")
    pretraining_flags.define_batch_flags(flag_values)
    integer("eval_batch_size", 64, "Examples per evaluation step, over all devices.")
    optimizer_flags.define_optimizer_flags(flag_values, "lamb", 0.00176)
    dropout_flags.define_dropout_flags(flag_values)
    pretraining_flags.define_sentence_task_flag(flag_values)
    number("poly_power", 1.0, "Power of the polynomial decay of the learning rate to 0.")
    integer("num_train_steps", 125000, "Steps in all.")
    integer("num_warmup_steps", 3125, "Steps over which the learning rate rises from 0.")
    integer("start_warmup_step", 0, "Step at which the warm-up starts.")
    integer("save_checkpoints_steps", 5000, "Steps between checkpoints.")
    integer("keep_checkpoint_max", 5, "Checkpoints kept, beside the best; 0 keeps all.")
    integer("max_eval_steps", 100, "Batches per evaluation, at most.")
    number(
        "masked_lm_budget",
        0.0,
        "Above 0: mask records that have masks anew at every step, this share of the tokens.",
    )
    text(
        "spm_model_file",
        None,
        "SentencePiece model of the records, to draw masks; kept in --output_dir.",
    )
    text("vocab_file", None, "WordPiece vocabulary of the records, likewise.")
    options.define(pretraining.Masks, flag_values)
    blimp_flags.define_flags(flag_values)
    distillation_flags.define_flags(flag_values)
    schedule_flags.define_flags(flag_values, fine_tuning=False)
    for name in ("input_file", "output_dir"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def check_flags(values):
    """Refuses contradictions before any work."""
    if not values.do_train and not values.do_eval:
        raise file_io.InputError("nothing to do: neither --do_train nor --do_eval")
    if values.do_train:
        common_flags.refuse_given(values, "--do_eval alone", "checkpoint")
    common_flags.check_waiting(values)
    optimizer_flags.check_optimizer(values)
    dropout_flags.check_dropout(values)
    blimp_flags.check(values)
    distillation_flags.check(values)
    schedule_flags.check(values)
    if values.init_from_group0 and not (values.init_checkpoint or values.albert_hub_module_handle):
        raise file_io.InputError("--init_from_group0 needs --init_checkpoint")
    if values.masked_lm_budget < 0 or values.masked_lm_budget >= 1:
        raise file_io.InputError(
            f"--masked_lm_budget={values.masked_lm_budget} must be a share, from 0 to below 1"
        )
    pretraining_flags.mask_config(values)
    common_flags.require_positive(
        values,
        "train_batch_size",
        "eval_batch_size",
        "max_seq_length",
        "num_train_steps",
        "save_checkpoints_steps",
        "max_eval_steps",
    )


def make_data(values, config, sentence_labels):
    """`contracts.Data` of the flags."""
    from albert.data import dynamic_masking, input_pipeline, tfrecord
    from albert.tasks import pretraining as pretraining_task

    sources = input_pipeline.parse_mixture(values.input_file, "--input_file")
    paths = [path for source in sources for path in source.paths]
    files = dict.fromkeys(("train", "dev"), dynamic_masking.look_at(paths))
    if values.eval_input_file:
        paths = tfrecord.named_files(values.eval_input_file, "--eval_input_file")
        files["dev"] = dynamic_masking.look_at(paths)
    return pretraining_task.make_data(
        files,
        (values.max_seq_length, values.max_predictions_per_seq),
        values.max_eval_steps * values.eval_batch_size,
        pretraining_flags.masker(values, files, config.vocab_size),
        anew=bool(values.masked_lm_budget),
        sentence_labels=sentence_labels,
        equal_tokens=values.train_batch_tokens > 0,
        mixture=sources if len(sources) > 1 else None,
        limits=pretraining_task.limits(config),
    )


def main(values):
    check_flags(values)
    from albert.tasks import pretraining as pretraining_task
    from albert.training import stages

    strategy = common_flags.strategy(values)  # first: several workers must know of each other
    pretraining_flags.set_batch_size(values, strategy)
    has_vocabulary = bool(values.spm_model_file or values.vocab_file)
    source = common_flags.source(values, needs_vocabulary=has_vocabulary)
    config = dropout_flags.read_config(values, source)
    common_flags.check_seq_length(values, config)
    slots = pretraining_flags.mask_config(values).num_slots
    common_flags.end_with_estimate(values, config, strategy, slots)
    teacher = distillation_flags.pretraining_teacher(values)
    lessons = distillation_flags.pretraining_lessons(values, teacher, source, config)
    tasks = pretraining_flags.sentence_tasks(values, strategy)
    data = make_data(values, config, sentence_labels=tasks[0] != "none")
    run = pretraining_flags.make_run(values, source, config, lessons, tasks[0], strategy)
    task = schedule_flags.with_metric(values, pretraining_task.make_task(*tasks))
    task = blimp_flags.measured(values, task, config)
    stages.run(lessons.task(task), data, run)


if __name__ == "__main__":
    app.run(main, define_flags)
