r"""Pre-trains ALBERT on records made by `create_pretraining_data`, and evaluates it.

Example:

    albert run_pretraining --input_file='records/train*' \
        --eval_input_file=records/heldout --output_dir=out/pretraining \
        --albert_config_file=configs/albert_base_v2.json --do_train --do_eval
"""

import dataclasses
from typing import TYPE_CHECKING

from absl import flags

from albert.cli import (
    app,
    command_flags,
    distillation,
    model_settings,
    next_steps,
    options,
    pretraining,
    training,
)
from albert.cli.pretraining import Settings
from albert.model import configuration, model_folder, sources, weight_names
from albert.training import contracts, run_session

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.training import stages


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def make_data(
    settings: Settings, config: configuration.AlbertConfig, sentence_labels: bool
) -> contracts.Data:
    """Returns the data of the records; `sentence_labels`: with labels of a sentence task."""
    from albert.data import dynamic_masking, input_pipeline, instance_shards, tfrecord
    from albert.tasks import pretraining as pretraining_task

    sources = input_pipeline.parse_mixture(settings.input_file, "--input_file")
    paths = [path for source in sources for path in source.paths]
    files = dict.fromkeys(("train", "dev"), dynamic_masking.inspect(paths))
    if settings.eval_input_file:
        held_out = tfrecord.named_files(settings.eval_input_file, "--eval_input_file")
        if settings.do_train:
            pretraining.check_held_out(paths, held_out)
        files["dev"] = dynamic_masking.inspect(held_out)
    if settings.do_train:
        pretraining.warn_of_untrained_types(files, config, sentence_labels)
    reading = pretraining_task.Reading(
        lengths=(settings.max_seq_length, settings.masks.max_predictions_per_seq),
        masker=pretraining.find_masker(settings, files, config.vocab_size),
        remask=bool(settings.masked_lm_budget),
        sentence_labels=sentence_labels,
        limits=pretraining_task.limits(config),
    )
    return pretraining_task.make_data(
        files,
        reading,
        settings.max_eval_steps * settings.eval_batch_size,
        equal_tokens=settings.train_batch_tokens > 0,
        group_by_length=settings.group_by_length,
        mixture=sources if len(sources) > 1 else None,
        words_per_token=instance_shards.words_per_token(sources),
    )


def find_teacher(settings: Settings) -> sources.Source | None:
    """Returns the model of --teacher."""
    if not settings.teacher.teacher:
        return None
    with settings.teacher.errors_named():
        return sources.locate(checkpoint=settings.teacher.teacher, needs_vocabulary=False)


def make_run(
    settings: Settings,
    source: sources.Source,
    config: configuration.AlbertConfig,
    distilled: distillation.Distillation,
    sentence_task: str,
    strategy: "tf.distribute.Strategy",
    recorder: run_session.Recorder,
) -> "stages.Run":
    """Returns the run that trains for a sentence task, a key of `SENTENCE_TASKS`."""
    from albert.model import checkpoints
    from albert.training import stages

    steps, batch_size = settings.num_train_steps, settings.eval_batch_size
    return stages.Run(
        model_config=config,
        run_config=training.run_config(
            settings, steps, batch_size, batch_size, settings.keep_checkpoint_max
        ),
        strategy=strategy,
        init_checkpoint=distilled.checkpoint or source.checkpoint,
        from_scratch=True,
        view=weight_names.renamed(checkpoints.group_zero_name)
        if settings.init_from_group0
        else distilled.view,
        new_rows=training.new_rows(settings, config, source),
        check_folder=lambda: model_folder.check_same_pretrained(settings.output_dir, source),
        complete_folder=lambda _: model_folder.write_pretrained(
            settings.output_dir, config, sentence_task, source
        ),
        training=training.make_training(
            settings,
            steps,
            settings.num_warmup_steps,
            poly_power=settings.poly_power,
            start_warmup_step=settings.start_warmup_step,
            average_last=settings.average_last,
        ),
        do_eval=settings.do_eval,
        checkpoint=settings.loop.checkpoint,
        eval_wait_secs=settings.loop.eval_wait_secs,
        record=recorder,
    )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    from albert.tasks import pretraining as pretraining_task
    from albert.training import distribution, stages

    command_line = command_flags.CommandLine.from_values(values, "run_pretraining")
    # First: workers must know of each other.
    strategy = training.make_strategy(settings, command_line)
    batch_size = pretraining.find_batch_size(settings, strategy)
    settings = dataclasses.replace(settings, train_batch_size=batch_size)
    command_line = command_line.with_value("train_batch_size", batch_size)
    source = pretraining.find_source(settings)
    config = training.read_config(settings, source)
    model_settings.check_seq_length(settings.max_seq_length, config)
    slots = settings.masks.config().num_slots
    averages = settings.average_last > 0
    training.end_with_estimate(settings, config, strategy, slots, averages=averages)
    outputs = ("masked_lm_loss", "masked_lm_logits")
    teacher = find_teacher(settings)
    distilled = settings.teacher.distillation(teacher, source, config, *outputs)
    tasks = pretraining.find_sentence_tasks(settings, strategy)
    data = make_data(settings, config, sentence_labels=tasks[0] != "none")
    pretraining.check_records(data, source, config, tasks[0])
    recorder = command_line.recorder(source, settings.teacher.teacher)
    run = make_run(settings, source, config, distilled, tasks[0], strategy, recorder)
    task = settings.schedule.with_metric(pretraining_task.make_task(*tasks))
    task = pretraining.with_blimp(settings, task, config)
    stages.run(distilled.with_teacher(task), data, run)
    stages.leave_checkpoints(run, settings.schedule.keep_only_best)
    if distribution.is_chief(strategy):
        next_steps.show(*next_steps.after_pretraining(settings.output_dir))


if __name__ == "__main__":
    app.run(main, define_flags)
