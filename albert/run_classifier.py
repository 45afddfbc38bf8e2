"""Fine-tunes ALBERT on a GLUE task, evaluates it, predicts and exports."""

import dataclasses

from absl import flags

from albert import classifier_flags, common_flags, file_io


def define_flags(flag_values):
    common_flags.define_device_flags(flag_values)
    common_flags.define_run_flags(flag_values)
    common_flags.define_model_flags(flag_values)
    text, integer, number, switch = common_flags.definers(flag_values)
    text("data_dir", None, "Folder that holds the folders of the GLUE tasks.")
    text("task_name", None, "GLUE task, such as MNLI or SST-2, or custom; case does not matter.")
    classifier_flags.define_own_data_flags(flag_values)
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
    text("optimizer", "adamw", "Optimizer: adamw or lamb.")
    number("learning_rate", 5e-5, "Highest learning rate.")
    integer("train_step", 1000, "Steps in all.")
    integer("warmup_step", 0, "Steps over which the learning rate rises from 0.")
    integer("save_checkpoints_steps", 1000, "Steps between checkpoints.")
    integer("keep_checkpoint_max", 5, "Checkpoints kept, beside the best; 0 keeps all.")
    for name in ("task_name", "output_dir"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def check_flags(values, row):
    """Refuses contradictions before any work."""
    if not (values.do_train or values.do_eval or values.do_predict or values.export_dir):
        raise file_io.InputError(
            "nothing to do: none of --do_train, --do_eval, --do_predict, --export_dir is given"
        )
    common_flags.check_waiting(values)
    if values.export_text and not values.export_dir:
        raise file_io.InputError("--export_text needs --export_dir")
    if values.optimizer not in ("adamw", "lamb"):
        raise file_io.InputError(f"--optimizer={values.optimizer}: expected adamw or lamb")
    common_flags.require_positive(
        values,
        "train_batch_size",
        "eval_batch_size",
        "predict_batch_size",
        "max_seq_length",
        "train_step",
        "save_checkpoints_steps",
    )
    stages = {"train": values.do_train, "dev": values.do_eval, "test": values.do_predict}
    row.check_splits([split for split, wanted in stages.items() if wanted])


def make_job(values, row, source, config, tokenizer, strategy):
    """`fine_tuning.Job` of the flags."""
    from albert import classifier_utils, fine_tuning, optimization, text_predictor

    return fine_tuning.Job(
        task=classifier_utils.make_task(row, tokenizer, values.max_seq_length),
        model_config=config,
        run_config=common_flags.run_config(values, values.train_step, values.predict_batch_size),
        strategy=strategy,
        data_dir=values.data_dir,
        max_seq_length=values.max_seq_length,
        settings=common_flags.text_settings(values, source),
        fingerprint=lambda split: row.fingerprint(values.data_dir, split),
        cached_dir=values.cached_dir or values.output_dir,
        init_checkpoint=source.checkpoint,
        from_scratch=values.from_scratch,
        make_optimizer=lambda: optimization.create_optimizer(
            values.learning_rate,
            values.train_step,
            values.warmup_step,
            optimizer=values.optimizer,
        ),
        complete_folder=lambda write: text_predictor.save_description(
            write, values.output_dir, row, config, source, values.max_seq_length
        ),
    )


def export_models(values, row, tokenizer, runner, prefix):
    """Writes the SavedModels that were asked for, in float32 whatever the run computes in."""
    from albert import checkpoints, export, text_export

    # How low precision is computed depends on the machine; a model is to be served anywhere.
    compute = dataclasses.replace(runner.model.compute, dtype="float32", parts=1)
    model = runner.task.build_model(runner.model.config, compute, 0)
    checkpoints.restore(model, prefix, allow_new_heads=False)
    length = values.max_seq_length
    specs = runner.task.feature_specs(length)
    export.export_classifier(model, specs, values.export_dir, values.threshold_to_export)
    if values.export_text:
        text_export.export_text_classifier(
            model, tokenizer, length, row.labels, row.is_pair, values.export_dir
        )


def main(values):
    row = classifier_flags.find_row(values)
    check_flags(values, row)
    from albert import distribution, fine_tuning, model_folder, modeling, text_predictor

    strategy = common_flags.strategy(values)  # first: several workers must know of each other
    source = common_flags.source_of_run(values, text_predictor.KIND)
    config = modeling.AlbertConfig.from_json_file(source.config_file)
    common_flags.check_seq_length(values, config)
    common_flags.end_with_estimate(values, config, strategy)
    tokenizer = model_folder.load_tokenizer(source, config)
    if values.export_text:
        from albert import text_export

        text_export.check(tokenizer)
    job = make_job(values, row, source, config, tokenizer, strategy)
    stages = (values.do_train, values.do_eval, values.do_predict)
    runner = fine_tuning.run(job, *stages, values.checkpoint, values.eval_wait_secs)
    if values.export_dir:
        prefix = fine_tuning.load(runner, values.checkpoint)
        if distribution.is_chief(strategy):
            export_models(values, row, tokenizer, runner, prefix)
    fine_tuning.complete_folder(job, values.do_train, values.checkpoint)


if __name__ == "__main__":
    common_flags.run(main, define_flags)
