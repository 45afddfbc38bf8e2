"""Fine-tunes ALBERT on a GLUE task, evaluates it, predicts and exports."""

import os

from absl import flags

from albert.cli import (
    app,
    common_flags,
    distillation_flags,
    dropout_flags,
    fine_tuning_flags,
    record_flags,
    schedule_flags,
    study_flags,
)
from albert.io import file_io


def define_flags(flag_values):
    text, integer, number, switch = common_flags.definers(flag_values)
    text("data_dir", None, "Folder that holds the folders of the GLUE tasks.")
    text("task_name", None, "GLUE task, such as MNLI or SST-2, or custom; case does not matter.")
    common_flags.define_own_data_flags(flag_values)
    text("output_dir", None, "Folder of checkpoints and results.")
    text("cached_dir", None, "Folder of the records of features; by default --output_dir.")
    text("export_dir", None, "Write a SavedModel of the best checkpoint to a new folder in here.")
    switch("export_text", False, "With --export_dir: also write a SavedModel that takes strings.")
    number("threshold_to_export", float("nan"), "Constant `threshold` of the exported model.")
    switch("do_train", False, "Train.")
    switch("do_eval", False, "Evaluate: each checkpoint as it is saved, or all that are there.")
    switch("do_predict", False, "Predict the test data.")
    integer("max_seq_length", 512, "Longest input in tokens; longer ones are cut.")
    integer("train_batch_size", 32, "Examples per step, over all devices.")
    integer("eval_batch_size", 8, "Examples per evaluation step, over all devices.")
    integer("predict_batch_size", 8, "Examples per prediction step, over all devices.")
    fine_tuning_flags.define_flags(flag_values, 5e-5, as_text=True)
    number("classifier_dropout_prob", 0.1, "Dropout of the pooled output.")
    integer("train_step", 1000, "Steps in all.")
    integer("warmup_step", 0, "Steps over which the learning rate rises from 0.")
    integer("save_checkpoints_steps", 1000, "Steps between checkpoints.")
    fine_tuning_flags.define_keep_flag(flag_values, "keep_checkpoint_max")
    distillation_flags.define_flags(flag_values)
    flags.mark_flags_as_required(("task_name", "output_dir"), flag_values)


def check_flags(values, row):
    """Refuses contradictions before any work."""
    if not (values.do_train or values.do_eval or values.do_predict or values.export_dir):
        raise file_io.InputError(
            "nothing to do: none of --do_train, --do_eval, --do_predict, --export_dir is given"
        )
    common_flags.check_waiting(values)
    if values.export_text and not values.export_dir:
        raise file_io.InputError("--export_text needs --export_dir")
    distillation_flags.check(values)
    fine_tuning_flags.check(values)
    common_flags.require_positive(values, *fine_tuning_flags.COUNTS)
    stages = {"train": values.do_train, "dev": values.do_eval, "test": values.do_predict}
    row.check_splits([split for split, wanted in stages.items() if wanted])


def make_data(values, row, source, tokenizer, strategy):
    """`contracts.Data` of the flags."""
    from albert.tasks import glue

    cached_dir = values.cached_dir or values.output_dir
    paths = {
        "train": os.path.join(cached_dir, f"{row.name}_train.tf_record"),
        "dev": os.path.join(cached_dir, f"{row.name}_eval.tf_record"),
        "test": os.path.join(values.output_dir, "predict.tf_record"),
    }
    about = (row, tokenizer, values.max_seq_length, values.data_dir)
    settings = common_flags.text_settings(values, source)
    shared = ("train", "dev") if values.cached_dir else ()
    return glue.make_data(*about, settings, paths, strategy, shared)


def make_run(values, row, source, config, lessons, strategy):
    """`stages.Run` of the flags."""
    from albert.tasks import custom
    from albert.training import stages

    def complete_folder(write):
        custom.save_description(
            write, values.output_dir, row, config, source, values.max_seq_length,
            values.classifier_dropout_prob, study_flags.head(values),
        )  # fmt: skip

    return stages.Run(
        model_config=config,
        run_config=common_flags.run_config(
            values,
            values.train_step,
            values.predict_batch_size,
            fine_tuning_flags.num_kept(values, values.do_eval),
        ),
        strategy=strategy,
        init_checkpoint=lessons.checkpoint or source.checkpoint,
        from_scratch=values.from_scratch,
        rename=lessons.rename,
        complete_folder=complete_folder,
        record=record_flags.recorder(values, "run_classifier", source),
        **schedule_flags.of_run(
            values, values.train_step, values.warmup_step, schedule_flags.glue_recipe(row)
        ),
    )


def export_models(values, row, task, tokenizer, config, prefix, specs):
    """Writes the SavedModels that were asked for."""
    from albert.export import saved_model_export

    model = saved_model_export.model_to_serve(task, config, prefix)
    saved_model_export.export_classifier(
        model, specs, values.export_dir, values.threshold_to_export
    )
    if values.export_text:
        saved_model_export.export_text_classifier(
            model, tokenizer, values.max_seq_length, row.labels, row.is_pair, values.export_dir
        )


def main(values):
    row = common_flags.classifier_row(values)
    check_flags(values, row)
    if schedule_flags.runs_seeds(values, "run_classifier", row.best_metric, {"cached_dir": ""}):
        return
    from albert.export import graphs
    from albert.model import model_folder
    from albert.tasks import glue
    from albert.training import distribution, stages

    strategy = common_flags.strategy(values)  # first: several workers must know of each other
    teacher = distillation_flags.classifier_teacher(values, row)
    source = common_flags.source_of_run(values, glue.KIND, teacher)
    config = dropout_flags.read_config(values, source)
    lessons = distillation_flags.classifier_lessons(values, teacher, source, config)
    common_flags.check_seq_length(values, config)
    common_flags.end_with_estimate(values, config, strategy)
    tokenizer = model_folder.load_tokenizer(source, config)
    if values.export_text:
        graphs.check_text(tokenizer)
    data = make_data(values, row, source, tokenizer, strategy)
    run = make_run(values, row, source, config, lessons, strategy)
    task = glue.make_task(row, values.classifier_dropout_prob, study_flags.head(values))
    runner = stages.run(*fine_tuning_flags.prepared(values, task, data, run, lessons.task), run)
    if values.export_dir:
        prefix = stages.load(runner, values.checkpoint)
        if distribution.is_chief(strategy):
            export_models(values, row, task, tokenizer, config, prefix, data.specs("test"))
    stages.complete_folder(run)


if __name__ == "__main__":
    app.run(main, define_flags)
