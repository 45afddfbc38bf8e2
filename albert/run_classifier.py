"""Fine-tunes ALBERT on a GLUE task, evaluates it, predicts and exports."""

from absl import flags

from albert import common_flags, file_io


def define_flags(flag_values):
    common_flags.define_device_flags(flag_values)
    common_flags.define_run_flags(flag_values)
    common_flags.define_model_flags(flag_values)
    text, integer, number, switch = common_flags.definers(flag_values)
    text("data_dir", None, "Folder that holds the folders of the GLUE tasks.")
    text("task_name", None, "GLUE task, such as MNLI or SST-2; case does not matter.")
    text("output_dir", None, "Folder of checkpoints and results.")
    text("cached_dir", None, "Folder of the records of features; by default --output_dir.")
    text("export_dir", None, "Write a SavedModel of the best checkpoint to a new folder in here.")
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
    for name in ("data_dir", "task_name", "output_dir"):
        flags.mark_flag_as_required(name, flag_values=flag_values)


def check_flags(values, row):
    """Refuses contradictions before any work."""
    if not (values.do_train or values.do_eval or values.do_predict or values.export_dir):
        raise file_io.InputError(
            "nothing to do: none of --do_train, --do_eval, --do_predict, --export_dir is given"
        )
    if values.optimizer not in ("adamw", "lamb"):
        raise file_io.InputError(f"--optimizer={values.optimizer}: expected adamw or lamb")
    common_flags.require_positive(
        *(values, "train_batch_size", "eval_batch_size", "predict_batch_size"),
        *("max_seq_length", "train_step", "save_checkpoints_steps"),
    )
    row.check_splits(
        [split for split, wanted in (("train", values.do_train), ("dev", values.do_eval)) if wanted]
    )


def make_job(values, row, source):
    """`fine_tuning.Job` of the flags; checks everything that needs no data."""
    from albert import classifier_utils, fine_tuning, modeling, optimization, tokenization

    config = modeling.AlbertConfig.from_json_file(source.config_file)
    common_flags.check_seq_length(values, config)
    tokenizer = tokenization.FullTokenizer(
        vocab_file=source.vocab_file,
        do_lower_case=source.do_lower_case,
        spm_model_file=source.spm_model_file,
    )
    tokenization.check_vocab_size(tokenizer, config.vocab_size)
    vocabulary = source.spm_model_file or source.vocab_file
    return fine_tuning.Job(
        task=classifier_utils.make_task(row, tokenizer, values.max_seq_length),
        model_config=config,
        run_config=common_flags.run_config(
            values,
            num_train_steps=values.train_step,
            predict_batch_size=values.predict_batch_size,
        ),
        strategy=common_flags.strategy(values),
        data_dir=values.data_dir,
        max_seq_length=values.max_seq_length,
        settings={
            "max_seq_length": values.max_seq_length,
            "do_lower_case": source.do_lower_case,
            "vocabulary_sha256": file_io.sha256(vocabulary),
        },
        fingerprint=lambda split: {"data_sha256": file_io.sha256(row.path(values.data_dir, split))},
        cached_dir=values.cached_dir or values.output_dir,
        init_checkpoint=source.checkpoint,
        from_scratch=values.from_scratch,
        make_optimizer=lambda: optimization.create_optimizer(
            values.learning_rate,
            values.train_step,
            values.warmup_step,
            optimizer=values.optimizer,
        ),
    )


def main(values):
    from albert import classifier_utils

    row = classifier_utils.get_task(values.task_name)
    check_flags(values, row)
    from albert import export, fine_tuning

    job = make_job(values, row, common_flags.source(values))
    runner = fine_tuning.run(
        job,
        values.do_train,
        values.do_eval,
        values.do_predict,
        values.checkpoint,
        values.eval_wait_secs,
    )
    if values.export_dir:
        fine_tuning.load(runner, values.checkpoint)
        export.export_classifier(
            runner.model, job.specs, values.export_dir, values.threshold_to_export
        )


if __name__ == "__main__":
    common_flags.run(main, define_flags)
