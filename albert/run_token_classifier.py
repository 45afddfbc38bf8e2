"""Fine-tunes ALBERT to label words (named entities), evaluates it, predicts and exports."""

import dataclasses
import functools
import os
from typing import Any

from absl import flags

from albert.cli import app, command_flags, fine_tuning, model_settings, options
from albert.tasks import custom, token_classification, word_files
from albert.training import contracts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning.ClassifierSettings):
    """Settings of the command."""

    train_file: str | None = options.flag(
        None, "Sentences to train on: .jsonl, else CoNLL's columns."
    )
    validation_file: str | None = options.flag(None, "Sentences to evaluate on.")
    test_file: str | None = options.flag(None, "Sentences to predict, with or without labels.")
    words_column: str | None = options.flag(
        None, "Column of the words: 1 is the first; for jsonl a key, words."
    )
    label_column: str | None = options.flag(
        None, "Column of the labels: -1 is the last; for jsonl a key, labels."
    )
    do_predict: bool = options.flag(False, "Predict the labels of --test_file.")
    max_seq_length: int = options.count(
        512, "Longest input in tokens; longer sentences are cut into parts."
    )
    train_batch_size: int = options.count(32, "Sentences per step, over all devices.")
    eval_batch_size: int = options.count(8, "Sentences per evaluation step, over all devices.")
    predict_batch_size: int = options.count(8, "Sentences per prediction step, over all devices.")
    classifier_dropout_prob: float = options.flag(
        0.1, "Dropout of the encoder's output.", check=options.fraction
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def find_files(settings: Settings, checkpoint: str | None) -> token_classification.Files:
    """Returns the files of the flags and their labels; `checkpoint` is the one to start from."""
    paths = {
        "train": settings.train_file,
        "dev": settings.validation_file,
        "test": settings.test_file,
    }
    stages = {"train": settings.do_train, "dev": settings.do_eval, "test": settings.do_predict}
    token_classification.check_files(paths, [split for split, do in stages.items() if do])
    files = {split: path for split, path in paths.items() if path}
    columns = word_files.Columns(settings.words_column, settings.label_column)
    folder = settings.output_dir
    labels = token_classification.find_labels(folder, files, columns, checkpoint)
    return token_classification.Files(files, columns, labels)


def make_data(settings: Settings, files: Any, start: fine_tuning.Start) -> Any:
    """Returns the `contracts.Data` of `token_classification.Files`."""
    names = {"train": "tokens_train", "dev": "tokens_eval", "test": "predict"}
    folder, length = settings.output_dir, settings.max_seq_length
    paths = {split: os.path.join(folder, f"{name}.tf_record") for split, name in names.items()}
    text = model_settings.text_settings(length, start.source)
    cache = contracts.FeatureCache(paths, text, start.strategy)
    return token_classification.make_data(files, start.tokenizer, length, cache)


def export_models(settings: Settings, model: Any, labels: Any, tokenizer: Any) -> None:
    """Writes the SavedModels that the flags ask for."""
    from albert.export import saved_model_export

    saved_model_export.export_ids(model, settings.export_dir)
    if settings.export_text:
        saved_model_export.export_text(
            model, tokenizer, settings.max_seq_length, labels, settings.export_dir
        )


def prepare(settings: Settings, start: fine_tuning.Start) -> fine_tuning.Work:
    """Returns the task, its data, and how its folder is described and exported."""
    fine_tuning.check_text_export(settings, start)
    files = find_files(settings, start.source.checkpoint)
    length, dropout_prob = settings.max_seq_length, settings.classifier_dropout_prob
    task = token_classification.make_task(files.labels, length, dropout_prob, start.head)

    def export(runner):
        model = fine_tuning.model_to_export(settings, start, task, runner)
        if model:
            export_models(settings, model, files.labels, start.tokenizer)

    description = custom.label_settings(
        files.labels, files.columns, length, dropout_prob, start.head
    )
    steps = (settings.train_step, settings.warmup_step)
    data = make_data(settings, files, start)
    return fine_tuning.Work(task, data, description, *steps, settings.do_eval, export)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    settings.check()
    script = fine_tuning.Script(
        kind=token_classification.KIND,
        best_metric="f1",
        recipe="recipes/token_classification.flags",
        prepare=functools.partial(prepare, settings),
    )
    fine_tuning.main(settings, script, command_flags.Command.of(values, "run_token_classifier"))


if __name__ == "__main__":
    app.run(main, define_flags)
