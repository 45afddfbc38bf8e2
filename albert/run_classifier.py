"""Fine-tunes ALBERT on a GLUE task, evaluates it, predicts and exports."""

import dataclasses
import functools
import os
from typing import Any

from absl import flags

from albert.cli import (
    app,
    command_flags,
    distillation,
    fine_tuning,
    model_settings,
    options,
    training,
)
from albert.io import file_io, tables
from albert.tasks import custom, glue
from albert.training import contracts

_WITH_RECIPE = ("SST-2", "MNLI", "CoLA", "QNLI", "QQP", "RTE", "STS-B", "MRPC")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning.ClassifierSettings):
    """Settings of the command."""

    data_dir: str | None = options.flag(None, "Folder that holds the folders of the GLUE tasks.")
    task_name: str = options.flag(
        None,
        "GLUE task, such as MNLI or SST-2, or custom; case does not matter.",
        required=True,
    )
    train_file: str | None = options.flag(
        None, "Your own data to train on (.csv, .tsv or .jsonl), for custom."
    )
    validation_file: str | None = options.flag(None, "Your own data to evaluate on, for custom.")
    test_file: str | None = options.flag(
        None, "Your own data to predict, with or without labels, for custom."
    )
    text_column: str = options.flag("text", "Column of the text in your own data.")
    text_pair_column: str | None = options.flag(
        None, "Column of the second text in your own data, if there is one."
    )
    label_column: str = options.flag("label", "Column of the label in your own data.")
    id_column: str | None = options.flag(
        None, "Column of the id in your own data; by default rows are numbered."
    )
    label_type: str | None = options.flag(
        None,
        "Type of the labels of your own data; by default regression if all are numbers and one "
        "has a decimal point.",
        choices=("classification", "regression"),
    )
    cached_dir: str | None = options.flag(
        None, "Folder of the records of features; by default --output_dir."
    )
    predict_on: str = options.flag(
        "test",
        "Data that --do_predict predicts; predictions of the dev data, which has labels, can be "
        "compared with those of other runs.",
        choices=("test", "dev"),
    )
    threshold_to_export: float = options.flag(
        float("nan"), "Constant `threshold` of the exported model."
    )
    optimizer: training.OptimizerByText = options.group(training.OptimizerByText)
    teacher: distillation.Teacher = options.group(distillation.Teacher)

    @property
    def record_dir(self) -> str:
        """Returns the folder of the records of features."""
        return self.cached_dir or self.output_dir

    def check(self) -> None:
        """Rejects contradictions before any work."""
        self.teacher.check(self)
        if self.teacher.init_from_teacher:
            self.model.refuse_given(distillation.WITHOUT_WEIGHTS, "from_scratch")
        super().check()
        fine_tuning.check_teacher(self, self.teacher)


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def find_row(settings: Settings) -> glue.GlueTask | custom.CustomTask:
    """Returns the task that a classifier is trained on.

    Raises:
      file_io.InputError: there is no such task, or flags of the other kind of task are given.
    """
    own = ("train_file", "validation_file", "test_file", "text_pair_column", "id_column")
    if settings.task_name.lower() != custom.NAME:
        settings.require("data_dir")
        settings.refuse_given("--task_name=custom", *own, "label_type")
        return glue.get_task(settings.task_name)
    settings.refuse_given("GLUE tasks", "data_dir")
    columns = tables.Columns(
        settings.text_column,
        settings.text_pair_column,
        settings.label_column,
        settings.id_column,
    )
    files = {
        "train": settings.train_file,
        "dev": settings.validation_file,
        "test": settings.test_file,
    }
    return custom.find_task(files, columns, settings.output_dir, settings.label_type)


def find_recipe(row: glue.GlueTask | custom.CustomTask) -> str:
    """Returns the flag file of a task in `recipes/`, or the page of recipes."""
    folder = getattr(row, "folder", None)  # None: the user's own data
    return f"recipes/glue_{folder}.flags" if folder in _WITH_RECIPE else "docs/recipes.md"


def find_teacher(settings: Settings, row: glue.GlueTask | custom.CustomTask) -> Any:
    """Returns the `sources.Source` of the teacher; None without one.

    Raises:
      file_io.InputError: the folder is missing or of another task; the message names what differs.
    """
    teacher = settings.teacher.teacher
    if not teacher:
        return None
    from albert.tasks import kinds

    if row.is_regression:
        raise file_io.InputError(
            f"--teacher: task {row.name} is a regression; only probabilities of classes are learned"
        )
    with settings.teacher.errors_named():
        folder = kinds.read_folder(teacher, glue.KIND)
        labels = custom.labels_of(folder)
    if labels != tuple(row.labels):
        raise file_io.InputError(
            f"--teacher={teacher} has the labels {', '.join(labels) or 'of a regression'}; "
            f"those of task {row.name} are {', '.join(row.labels)}"
        )
    return folder.source


def make_data(settings: Settings, row: Any, start: fine_tuning.Start) -> Any:
    """Returns the `contracts.Data` of a task."""
    folder = settings.record_dir
    paths = {
        "train": os.path.join(folder, f"{row.name}_train.tf_record"),
        "dev": os.path.join(folder, f"{row.name}_eval.tf_record"),
        "test": os.path.join(settings.output_dir, "predict.tf_record"),
    }
    length = settings.max_seq_length
    text = model_settings.text_settings(length, start.source)
    shared = ("train", "dev") if settings.cached_dir else ()
    cache = contracts.FeatureCache(paths, text, start.strategy, shared)
    return glue.make_data(
        row, start.tokenizer, length, settings.data_dir, cache, settings.predict_on
    )


def export_models(settings: Settings, row: Any, model: Any, tokenizer: Any, specs: Any) -> None:
    """Writes the SavedModels that the flags ask for."""
    from albert.export import saved_model_export

    export_dir = settings.export_dir
    saved_model_export.export_classifier(model, specs, export_dir, settings.threshold_to_export)
    if settings.export_text:
        saved_model_export.export_text_classifier(
            model, tokenizer, settings.max_seq_length, row.labels, row.is_pair, export_dir
        )


def prepare(settings: Settings, row: Any, start: fine_tuning.Start) -> fine_tuning.Work:
    """Returns the task, its data, and how its folder is described and exported."""
    fine_tuning.check_text_export(settings, start)
    data = make_data(settings, row, start)
    dropout_prob = settings.classifier_dropout_prob
    task = glue.make_task(row, dropout_prob, start.head)

    def export(runner):
        model = fine_tuning.model_to_export(settings, start, task, runner)
        if model:
            export_models(settings, row, model, start.tokenizer, data.specs("test"))

    description = custom.settings_of(row, settings.max_seq_length, dropout_prob, start.head)
    steps = (settings.train_step, settings.warmup_step)
    return fine_tuning.Work(task, data, description, *steps, settings.do_eval, export)


def make_script(settings: Settings, row: Any) -> fine_tuning.Script:
    """Returns the parts of the command that are specific to a task."""
    outputs = ("classification_loss", "logits")
    return fine_tuning.Script(
        kind=glue.KIND,
        best_metric=row.best_metric,
        recipe=find_recipe(row),
        prepare=functools.partial(prepare, settings, row),
        shared_data={"cached_dir": ""},
        teacher=settings.teacher.teacher,
        find_teacher=functools.partial(find_teacher, settings, row),
        distill=lambda *models: settings.teacher.distillation(*models, *outputs),
    )


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    row = find_row(settings)
    settings.check()
    stages = {"train": settings.do_train, "dev": settings.do_eval}
    splits = [split for split, is_run in stages.items() if is_run]
    row.check_splits([*splits, *([settings.predict_on] if settings.do_predict else [])])
    command = command_flags.Command.of(values, "run_classifier")
    fine_tuning.main(settings, make_script(settings, row), command)


if __name__ == "__main__":
    app.run(main, define_flags)
