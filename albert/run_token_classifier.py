"""Fine-tunes ALBERT to label words (named entities), evaluates it, predicts and exports."""

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


def define_flags(flag_values):
    text, integer, number, switch = common_flags.definers(flag_values)
    text("train_file", None, "Sentences to train on: .jsonl, else CoNLL's columns.")
    text("validation_file", None, "Sentences to evaluate on.")
    text("test_file", None, "Sentences to predict, with or without labels.")
    text("words_column", None, "Column of the words: 1 is the first; for jsonl a key, words.")
    text("label_column", None, "Column of the labels: -1 is the last; for jsonl a key, labels.")
    text("output_dir", None, "Folder of checkpoints and results.")
    text("export_dir", None, "Write a SavedModel of the best checkpoint to a new folder in here.")
    switch("export_text", False, "With --export_dir: also one that takes texts, or words.")
    switch("do_train", False, "Train.")
    switch("do_eval", False, "Evaluate: each checkpoint as it is saved, or all that are there.")
    switch("do_predict", False, "Predict the labels of --test_file.")
    integer("max_seq_length", 512, "Longest input in tokens; longer sentences are cut into parts.")
    integer("train_batch_size", 32, "Sentences per step, over all devices.")
    integer("eval_batch_size", 8, "Sentences per evaluation step, over all devices.")
    integer("predict_batch_size", 8, "Sentences per prediction step, over all devices.")
    fine_tuning_flags.define_flags(flag_values, 5e-5)
    number("classifier_dropout_prob", 0.1, "Dropout of the encoder's output.")
    integer("train_step", 1000, "Steps in all.")
    integer("warmup_step", 0, "Steps over which the learning rate rises from 0.")
    integer("save_checkpoints_steps", 1000, "Steps between checkpoints.")
    fine_tuning_flags.define_keep_flag(flag_values, "keep_checkpoint_max")
    flags.mark_flag_as_required("output_dir", flag_values=flag_values)


def check_flags(values):
    """Refuses contradictions before any work."""
    names = ("do_train", "do_eval", "do_predict", "export_dir")
    if not any(values[name].value for name in names):
        raise file_io.InputError("nothing to do: none of --" + ", --".join(names) + " is given")
    common_flags.check_waiting(values)
    if values.export_text and not values.export_dir:
        raise file_io.InputError("--export_text needs --export_dir")
    fine_tuning_flags.check(values)
    common_flags.require_positive(values, *fine_tuning_flags.COUNTS)


def find_files(values, source):
    """`token_classification.Files` of the flags."""
    from albert.tasks import token_classification, word_files

    given = {"train": values.train_file, "dev": values.validation_file, "test": values.test_file}
    stages = {"train": values.do_train, "dev": values.do_eval, "test": values.do_predict}
    token_classification.check_files(given, [split for split, do in stages.items() if do])
    files = {split: path for split, path in given.items() if path}
    columns = word_files.Columns(values.words_column, values.label_column)
    labels = token_classification.find_labels(values.output_dir, files, columns, source.checkpoint)
    return token_classification.Files(files, columns, labels)


def make_data(values, files, source, tokenizer, strategy):
    """`contracts.Data` of the flags."""
    from albert.tasks import token_classification

    names = {"train": "tokens_train", "dev": "tokens_eval", "test": "predict"}
    folder, settings = values.output_dir, common_flags.text_settings(values, source)
    paths = {split: os.path.join(folder, f"{name}.tf_record") for split, name in names.items()}
    return token_classification.make_data(
        files, tokenizer, values.max_seq_length, settings, paths, strategy
    )


def make_run(values, files, source, config, strategy):
    """`stages.Run` of the flags."""
    from albert.tasks import token_classification
    from albert.training import stages

    def complete_folder(write):
        token_classification.save_description(
            write, values.output_dir, files, config, source, values.max_seq_length,
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
        init_checkpoint=source.checkpoint,
        from_scratch=values.from_scratch,
        complete_folder=complete_folder,
        record=record_flags.recorder(values, "run_token_classifier", source),
        **schedule_flags.of_run(
            values, values.train_step, values.warmup_step, "recipes/token_classification.flags"
        ),
    )


def export_models(values, task, labels, tokenizer, config, prefix):
    """Writes the SavedModels that were asked for."""
    from albert.export import saved_model_export

    model = saved_model_export.model_to_serve(task, config, prefix)
    saved_model_export.export_ids(model, values.export_dir)
    if values.export_text:
        saved_model_export.export_text(
            model, tokenizer, values.max_seq_length, labels, values.export_dir
        )


def main(values):
    check_flags(values)
    if schedule_flags.runs_seeds(values, "run_token_classifier", "f1"):
        return
    from albert.export import graphs
    from albert.model import model_folder
    from albert.tasks import token_classification
    from albert.training import distribution, stages

    strategy = common_flags.strategy(values)  # first: several workers must know of each other
    source = common_flags.source_of_run(values, token_classification.KIND)
    config = dropout_flags.read_config(values, source)
    common_flags.check_seq_length(values, config)
    common_flags.end_with_estimate(values, config, strategy)
    tokenizer = model_folder.load_tokenizer(source, config)
    if values.export_text:
        graphs.check_text(tokenizer)
    files = find_files(values, source)
    data = make_data(values, files, source, tokenizer, strategy)
    run = make_run(values, files, source, config, strategy)
    task = token_classification.make_task(
        files.labels,
        values.max_seq_length,
        values.classifier_dropout_prob,
        study_flags.head(values),
    )
    runner = stages.run(*fine_tuning_flags.prepared(values, task, data, run), run)
    if values.export_dir:
        prefix = stages.load(runner, values.checkpoint)
        if distribution.is_chief(strategy):
            export_models(values, task, files.labels, tokenizer, config, prefix)
    stages.complete_folder(run)


if __name__ == "__main__":
    app.run(main, define_flags)
