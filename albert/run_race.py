"""Fine-tunes ALBERT on RACE (multiple choice), evaluates it and predicts."""

import os

from absl import flags

from albert.cli import (
    app,
    common_flags,
    dropout_flags,
    fine_tuning_flags,
    record_flags,
    schedule_flags,
    study_flags,
)
from albert.io import file_io

_DATA = {
    "train_file": "race_train.tf_record",
    "eval_file": "race_eval.tf_record",
    "predict_file": "predict.tf_record",
}


def define_flags(flag_values):
    text, integer, number, switch = common_flags.definers(flag_values)
    text("data_dir", None, "Folder that holds the folder RACE.")
    text("task_name", "race", "Name of the task; there is only race.")
    text("output_dir", None, "Folder of checkpoints and results.")
    text("train_file", None, "Records of the training data; by default in --output_dir.")
    text("eval_file", None, "Records of the dev data; by default in --output_dir.")
    text("predict_file", None, "Records of the test data; by default in --output_dir.")
    switch("do_train", True, "Train.")
    switch("do_eval", True, "Evaluate: each checkpoint as it is saved, or all that are there.")
    switch("do_predict", False, "Score the test data and write its predictions.")
    switch("high_only", False, "Only the questions for high schools.")
    switch("middle_only", False, "Only the questions for middle schools.")
    integer("max_seq_length", 512, "Longest input in tokens; articles are cut at their end to fit.")
    integer("max_qa_length", 128, "Most tokens of question and option; the last are kept.")
    integer("train_batch_size", 32, "Questions per step, over all devices; each has 4 inputs.")
    integer("eval_batch_size", 8, "Questions per evaluation step, over all devices.")
    integer("predict_batch_size", 8, "Questions per prediction step, over all devices.")
    number("dropout_prob", 0.1, "Dropout of the pooled output in training.")
    flags.DEFINE_alias("classifier_dropout_prob", "dropout_prob", flag_values=flag_values)
    fine_tuning_flags.define_flags(flag_values, 1e-5)
    integer("train_step", 12000, "Steps in all.")
    integer("warmup_step", 1000, "Steps over which the learning rate rises from 0.")
    integer("save_checkpoints_steps", 100, "Steps between checkpoints.")
    fine_tuning_flags.define_keep_flag(flag_values, "num_keep_checkpoint")
    flags.mark_flags_as_required(("data_dir", "output_dir"), flag_values)


def check_flags(values):
    """Refuses contradictions before any work."""
    if not (values.do_train or values.do_eval or values.do_predict):
        raise file_io.InputError("nothing to do: none of --do_train, --do_eval, --do_predict")
    common_flags.check_waiting(values)
    fine_tuning_flags.check(values)
    if values.task_name.lower() != "race":
        raise file_io.InputError(f"--task_name={values.task_name}: expected race")
    names = ("train_file", "eval_file", "predict_file")
    given = [values[name].value for name in names if values[name].value]
    if len(set(given)) < len(given):
        raise file_io.InputError(
            "--train_file, --eval_file and --predict_file are the records of different data: give "
            f"each a name of its own, not {', '.join(given)}"
        )
    common_flags.require_positive(values, *fine_tuning_flags.COUNTS)


def make_data(values, settings, tokenizer, strategy):
    """`contracts.Data` of the flags."""
    from albert.tasks import race

    paths = [
        values[flag].value or os.path.join(values.output_dir, name) for flag, name in _DATA.items()
    ]
    return race.make_data(
        tokenizer,
        values.max_seq_length,
        values.max_qa_length,
        values.data_dir,
        settings,
        dict(zip(("train", "dev", "test"), paths, strict=True)),
        strategy,
        high_only=values.high_only,
        middle_only=values.middle_only,
    )


def make_run(values, settings, head, source, config, strategy):
    """`stages.Run` of the flags."""
    from albert.tasks import race
    from albert.training import stages

    return stages.Run(
        model_config=config,
        run_config=common_flags.run_config(
            values,
            num_train_steps=values.train_step,
            predict_batch_size=values.predict_batch_size,
            keep_checkpoint_max=fine_tuning_flags.num_kept(values, values.do_eval),
        ),
        strategy=strategy,
        init_checkpoint=source.checkpoint,
        from_scratch=values.from_scratch,
        complete_folder=lambda write: write(
            values.output_dir,
            race.KIND,
            config,
            source,
            {**settings, "dropout_prob": values.dropout_prob, **head.settings},
        ),
        record=record_flags.recorder(values, "run_race", source),
        **schedule_flags.of_run(
            values, values.train_step, values.warmup_step, "recipes/race.flags"
        ),
    )


def main(values):
    check_flags(values)
    if schedule_flags.runs_seeds(values, "run_race", "eval_accuracy", _DATA):
        return
    from albert.model import model_folder
    from albert.tasks import race
    from albert.training import stages

    strategy = common_flags.strategy(values)  # first: several workers must know of each other
    source = common_flags.source_of_run(values, race.KIND)
    config = dropout_flags.read_config(values, source)
    common_flags.check_seq_length(values, config)
    common_flags.end_with_estimate(values, config, strategy, choices=race.NUM_CHOICES)
    tokenizer = model_folder.load_tokenizer(source, config)
    settings = common_flags.text_settings(values, source) | {"max_qa_length": values.max_qa_length}
    data = make_data(values, settings, tokenizer, strategy)
    head = study_flags.head(values)
    run = make_run(values, settings, head, source, config, strategy)
    task = race.make_task(values.dropout_prob, head)
    stages.run(*fine_tuning_flags.prepared(values, task, data, run), run)
    stages.complete_folder(run)


if __name__ == "__main__":
    app.run(main, define_flags)
