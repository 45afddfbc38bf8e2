r"""Fine-tunes ALBERT on a GLUE task, evaluates it, predicts and exports.

Example:

    albert run_classifier --task_name=SST-2 --data_dir=glue --output_dir=out/sst2 \
        --init_checkpoint=albert_base_v2 --max_seq_length=128 --do_train --do_eval \
        --do_predict
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from albert.cli import (
    app,
    calibration,
    distillation,
    fine_tuning,
    fine_tuning_settings,
    model_settings,
    options,
    path_flags,
    training,
)
from albert.io import file_io, tables
from albert.model import configuration, label_scale, model_folder, sources
from albert.model import decision as decisions
from albert.tasks import (
    class_weights,
    custom,
    example_data,
    glue,
    label_sets,
    model_labels,
    multi_label,
)
from albert.text import long_texts as long_text_rules
from albert.text import tokenization
from albert.training import contracts, subsets

if TYPE_CHECKING:
    from albert.data.tfrecord import FeatureSpec
    from albert.model.checkpoints import LoadReport
    from albert.training.engine import Engine

_MULTI_LABEL_FLAGS = ("label_separator", "label_columns")
_WITH_RECIPE = ("SST-2", "MNLI", "CoLA", "QNLI", "QQP", "RTE", "STS-B", "MRPC")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning_settings.ClassifierSettings):
    """Settings of the command."""

    determined = (*fine_tuning_settings.ClassifierSettings.determined, "doc_stride")

    data_dir: str | None = options.flag(
        None, "Folder that holds the folders of the GLUE tasks.", path=path_flags.FOLDER
    )
    task_name: str = options.flag(
        None,
        "GLUE task, such as MNLI or SST-2, or custom for your own data; case does not matter.",
        required=True,
    )
    train_file: str | None = options.flag(
        None,
        "Your own data to train on (.csv, .tsv or .jsonl), for --task_name=custom.",
        path=path_flags.INPUT,
    )
    validation_file: str | None = options.flag(
        None, "Your own data to evaluate on, for --task_name=custom.", path=path_flags.INPUT
    )
    test_file: str | None = options.flag(
        None,
        "Your own data to predict, with or without labels, for --task_name=custom.",
        path=path_flags.INPUT,
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
        "Type of the labels of your own data: one class per text, a number, or any number of "
        "labels per text. By default regression if all are numbers and one is not whole, or they "
        "are many values with a decimal point, else classification.",
        choices=("classification", "regression", label_sets.LABEL_TYPE),
    )
    label_separator: str | None = options.flag(
        None,
        "Text between the labels in the column of labels of .csv and .tsv, for "
        "--label_type=multi_label; by default a comma. In .jsonl labels are lists.",
    )
    label_columns: tuple[str, ...] = options.flag(
        (),
        "Columns named like the labels, with 1 for texts that have the label and else 0, instead "
        "of --label_column, for --label_type=multi_label.",
    )
    cached_dir: str | None = options.flag(
        None, "Folder of the records of features; by default --output_dir.", path=path_flags.FOLDER
    )
    long_texts: str = options.flag(
        "cut",
        "What is read of texts longer than --max_seq_length: cut their end, head_tail (the first "
        "128 tokens and the last), or windows, of a pair of its second text, with one answer.",
        choices=long_text_rules.MODES,
    )
    doc_stride: int | None = options.flag(
        None,
        "With --long_texts=windows: tokens from the start of one window to that of the next; by "
        "default three quarters of a window.",
        minimum=1,
    )
    standardize_labels: bool = options.flag(
        True,
        "Train a regression on labels with mean 0 and deviation 1; answers and scores are in the "
        "unit of the labels.",
        shown_default="true for your own data, false for STS-B, as in the reference",
    )
    predict_on: str = options.flag(
        "test",
        "Data that --do_predict predicts; predictions of the dev data, which has labels, can be "
        "compared with those of other runs.",
        choices=("test", "dev"),
    )
    threshold_to_export: float = options.flag(
        float("nan"),
        "Constant `threshold` that an exported model returns for programs that read it; it "
        "changes no answer.",
    )
    trust: calibration.Calibration = options.group(calibration.Calibration)
    optimizer: training.OptimizerByText = options.group(training.OptimizerByText)
    head_layer: fine_tuning_settings.PooledHead = options.group(fine_tuning_settings.PooledHead)
    teacher: distillation.Teacher = options.group(distillation.Teacher)

    @property
    def record_dir(self) -> str:
        return self.cached_dir or self.output_dir

    @property
    def folder_to_follow(self) -> str | None:
        return self.teacher.teacher or super().folder_to_follow

    @property
    def rule(self) -> long_text_rules.LongTexts:
        """Returns how long texts are read."""
        if self.long_texts != long_text_rules.WINDOWS:
            return long_text_rules.LongTexts(self.long_texts)
        stride = self.doc_stride or long_text_rules.default_stride(self.max_seq_length)
        return long_text_rules.LongTexts(self.long_texts, stride)

    def described_values(self, description: Mapping[str, Any]) -> dict[str, Any]:
        values = super().described_values(description)
        rule = model_folder.read_long_text_rule(self.trained_folder, description)
        values["long_texts"] = rule.mode
        if rule.has_windows and ("long_texts" not in self.given or self.long_texts == rule.mode):
            values["doc_stride"] = rule.doc_stride
        columns = description.get("columns")
        is_own = self.task_name.lower() == custom.NAME
        if is_own and tables.are_columns(columns):
            names = {name for name in ("text", "text_pair", "label") if columns.get(name)}
            values |= {f"{name}_column": columns[name] for name in sorted(names)}
        if is_own and description.get("label_type") == label_sets.LABEL_TYPE:
            names = {"label_type", "label_separator", "label_columns"} & description.keys()
            values |= {name: description[name] for name in sorted(names)}
        return values

    def check(self) -> None:
        self.teacher.check(self)
        if self.teacher.init_from_teacher:
            self.model.refuse_given(distillation.WITHOUT_WEIGHTS, "from_scratch")
        super().check()
        self._check_long_texts()
        fine_tuning.check_teacher(self, self.teacher)

    def _check_long_texts(self) -> None:
        if self.long_texts != long_text_rules.WINDOWS:
            self.refuse_given("--long_texts=windows", "doc_stride")
        elif self.doc_stride and self.doc_stride > self.max_seq_length - 2:
            raise file_io.InputError(
                f"--doc_stride={self.doc_stride} must be at most {self.max_seq_length - 2}, the "
                "tokens of a window; otherwise tokens between windows would be lost"
            )
        if self.export_text and self.long_texts != long_text_rules.CUT:
            raise file_io.InputError(
                f"--export_text writes a model that cuts long texts, but --long_texts="
                f"{self.long_texts}: leave it out, and use the folder with predict and serve"
            )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def find_task(settings: Settings) -> glue.ClassifierTask:
    """Returns the task that a classifier is trained on.

    The model to start from gives the order of its labels, or else the teacher.
    """
    is_glue = settings.task_name.lower() != custom.NAME
    task = find_glue_task(settings) if is_glue else find_own_task(settings)
    teacher, is_started = settings.teacher.teacher, settings.model.init_checkpoint
    if not teacher or is_started or custom.read_labels(settings.described_folder):
        return task
    head = model_labels.read_folder(teacher)
    return task.in_order(head.labels) if head and {*head.labels} == {*task.labels} else task


def find_own_task(settings: Settings) -> custom.CustomTask:
    """Returns the task of the user's own files."""
    settings.refuse_given("GLUE tasks", "data_dir")
    columns = tables.Columns(
        settings.text_column, settings.text_pair_column, settings.label_column, settings.id_column
    )
    files = {
        "train": settings.train_file,
        "dev": settings.validation_file,
        "test": settings.test_file,
    }
    folder, head = settings.described_folder, find_described_head(settings)
    if settings.label_type != label_sets.LABEL_TYPE:
        settings.refuse_given("--label_type=multi_label", *_MULTI_LABEL_FLAGS)
        return custom.find_task(files, columns, folder, settings.label_type, head)
    if settings.label_columns and "label_column" in settings.given:
        raise file_io.InputError("give --label_columns or --label_column, not both")
    separator, is_given = settings.label_separator, settings.label_separator is not None
    form = label_sets.LabelFormat(
        label_sets.SEPARATOR if separator is None else separator, tuple(settings.label_columns)
    )
    return label_sets.find_task(files, columns, folder, form, is_given, head)


def find_glue_task(settings: Settings) -> glue.GlueTask:
    """Returns the task of GLUE with its labels in the order of the run or of its initial model."""
    own = ("train_file", "validation_file", "test_file", "text_pair_column", "id_column")
    settings.require("data_dir")
    settings.refuse_given("--task_name=custom", *own, "label_type", *_MULTI_LABEL_FLAGS)
    if columns := sorted({"text_column", "label_column"} & settings.given):
        raise file_io.InputError(f"--{columns[0]}: only for --task_name=custom")
    task = glue.get_task(settings.task_name)
    if task.is_regression:
        return task
    labels = custom.read_labels(settings.described_folder)
    head = None if labels else find_described_head(settings)
    if head and not (settings.do_train and head.is_of_other_task(task.name, task.labels)):
        labels = custom.in_order_of(head, task.labels, task.words, f"task {task.name}")
    if labels is None or set(labels) != set(task.labels):
        return task
    return task.in_order(labels)


def find_described_head(settings: Settings) -> model_labels.ModelHead | None:
    """Returns the head of the initial model; None if it is not known or must be new."""
    if settings.head_layer.new_head:
        return None
    return settings.model.find_described_head(settings.do_train, settings.described_folder)


def find_recipe(task: glue.ClassifierTask) -> str:
    """Returns the flag file of a task in `recipes/`, or the page of recipes."""
    folder = getattr(task, "folder", None)  # None: the user's own data
    return f"recipes/glue_{folder}.flags" if folder in _WITH_RECIPE else "docs/recipes.md"


def find_scale(settings: Settings, task: glue.ClassifierTask) -> label_scale.LabelScale:
    """Returns the unit in which a regression is trained: that of the folder, else of the labels."""
    is_given = "standardize_labels" in settings.given
    if not task.is_regression:
        if is_given:
            raise file_io.InputError("--standardize_labels: only for regressions")
        return label_scale.RAW
    folder = settings.trained_folder
    existing = model_folder.described_scale(folder)
    wanted = settings.standardize_labels if is_given else task.name == custom.NAME
    if settings.do_train:
        measured = glue.measure_labels(task, settings.data_dir)
        if not fine_tuning_settings.has_checkpoints(folder):
            return measured if wanted else label_scale.RAW
    if is_given and wanted == existing.is_raw:
        raise file_io.InputError(
            f"{folder} holds checkpoints of a model that was trained "
            f"{'without' if existing.is_raw else 'with'} --standardize_labels: give the same flag, "
            "or another --output_dir"
        )
    return existing


def find_decision(settings: Settings, task: glue.ClassifierTask) -> decisions.Decision:
    """Returns how scores become answers: as the description of the trained model says."""
    folder = settings.trained_folder
    if task.is_regression or not fine_tuning_settings.has_checkpoints(folder):
        return decisions.PLAIN
    found = model_folder.described_decision(folder)
    if settings.do_train and found != decisions.PLAIN:
        logging.warning(
            "Training changes the weights that %s was calibrated for: its calibration is dropped; "
            "give the same flags for a new one",
            folder,
        )
    return decisions.PLAIN if settings.do_train else found


def keep_answers(model: contracts.Model, report: "LoadReport") -> None:
    """Lets a regression that starts from another one begin with its answers."""
    from albert.model import heads
    from albert.training import distillation as teaching

    if isinstance(model, teaching.DistilledModel):
        model = model.student
    if isinstance(model, heads.RegressionModel) and label_scale.HEAD[0] in report.loaded:
        model.keep_answers(model_folder.described_scale(os.path.dirname(report.path)))


def read_labels(settings: Settings, task: glue.ClassifierTask) -> Iterator[Any]:
    """Yields the label of each training example that is used, or its labels."""
    fraction, seed = settings.fractions.train_fraction, settings.loop.seed
    examples = task.iter_examples(settings.data_dir or "", "train", use_spm=False)
    has_sets = isinstance(task, label_sets.LabelSetTask)
    labels = [example.label if has_sets else str(example.label) for example in examples]
    return (labels[i] for i in subsets.choose_indices(len(labels), fraction, seed))


def find_class_weights(settings: Settings, task: glue.ClassifierTask) -> dict[str, float]:
    """Returns the weights of the labels in the loss, and logs advice if labels are rare."""
    if task.is_regression:
        settings.refuse_given("classes, not numbers", "class_weights")
        return {}
    has_sets = isinstance(task, label_sets.LabelSetTask)
    is_own, is_chosen = task.name == custom.NAME, settings.schedule.metric_for_best
    if settings.do_train and is_own and not is_chosen and not has_sets:
        advice = class_weights.advise(class_weights.count(task.labels, read_labels(settings, task)))
        if advice:
            logging.warning("%s", advice)

    def find(source: str) -> dict[str, float]:
        weigh = class_weights.of_sets if has_sets else class_weights.of_examples
        data = task.path(settings.data_dir or "", "train")
        return weigh(source, task.labels, read_labels(settings, task), data)

    return fine_tuning.find_class_weights(settings, find)


def count_examples(settings: Settings, task: glue.ClassifierTask) -> int:
    """Returns the number of examples to train on, or of their windows."""
    examples = task.iter_examples(settings.data_dir or "", "train", use_spm=False)
    if not settings.rule.has_windows:
        return sum(1 for _ in examples)
    teacher = Classifier(settings, task).find_teacher()
    source = settings.model.find_for_run(True, settings.output_dir, glue.KIND, teacher)
    tokenizer = model_folder.load_tokenizer(source, training.read_config(settings, source))
    rule, length = settings.rule, settings.max_seq_length
    return sum(len(glue.encode_long(example, rule, length, tokenizer)) for example in examples)


@dataclasses.dataclass(frozen=True)
class Classifier(fine_tuning.Command):
    """The command for one task."""

    settings: Settings
    task: glue.ClassifierTask

    shared_data = {"cached_dir": ""}

    @property
    def kind(self) -> str:
        return label_sets.KIND if isinstance(self.task, label_sets.LabelSetTask) else glue.KIND

    @property
    def best_metric(self) -> str:
        return self.task.best_metric

    @property
    def recipe(self) -> str:
        return find_recipe(self.task)

    def find_teacher(self) -> sources.Source | None:
        settings, task = self.settings.teacher, self.task
        if not settings.teacher:
            return None
        from albert.tasks import kinds

        if not settings.weights[0]:  # any encoder can teach hidden states
            with settings.errors_named():
                return sources.locate(checkpoint=settings.teacher, needs_vocabulary=False)
        if task.is_regression or self.kind != glue.KIND:
            what = "a regression" if task.is_regression else "for several labels per text"
            raise file_io.InputError(
                f"--teacher: task {task.name} is {what}; only probabilities of classes are "
                "learned, or hidden states: --distill_weights=0,1,0,1,1"
            )
        with settings.errors_named():
            folder = kinds.read_folder(settings.teacher, glue.KIND)
            labels = custom.labels_of(folder)
        if labels != tuple(task.labels):
            raise file_io.InputError(
                f"--teacher={settings.teacher} has the labels "
                f"{tables.name_list(labels) or 'of a regression'}; those of task {task.name} are "
                f"{tables.name_list(task.labels)}"
            )
        return folder.source

    def distillation(
        self,
        teacher: sources.Source | None,
        source: sources.Source,
        config: configuration.AlbertConfig,
    ) -> distillation.Distillation:
        outputs = ("classification_loss", "logits")
        return self.settings.teacher.distillation(teacher, source, config, *outputs)

    def data(
        self,
        inputs: fine_tuning.Inputs,
        scale: label_scale.LabelScale,
        decision: decisions.Decision,
    ) -> glue.ClassifierData:
        settings, name = self.settings, self.task.name
        folder, length = settings.record_dir, settings.max_seq_length
        paths = {
            "train": os.path.join(folder, f"{name}_train.tf_record"),
            "dev": os.path.join(folder, f"{name}_eval.tf_record"),
            "test": os.path.join(settings.output_dir, "predict.tf_record"),
        }
        text = {
            **model_settings.text_settings(length, inputs.source), **settings.rule.settings
        }  # fmt: skip
        shared = ("train", "dev") if settings.cached_dir else ()
        cache = example_data.FeatureCache(paths, text, inputs.strategy, shared)
        rule, tokenizer = settings.rule, inputs.tokenizer
        if isinstance(self.task, label_sets.LabelSetTask):
            return multi_label.MultiLabelData(
                name=name,
                cache=cache,
                task=self.task,
                tokenizer=tokenizer,
                max_seq_length=length,
                predicted=settings.predict_on,
                rule=rule,
                decision=decision,
            )
        settings_of_data = (settings.data_dir, cache, settings.predict_on, rule, scale, decision)
        return glue.make_data(self.task, tokenizer, length, *settings_of_data)

    def prepare(self, inputs: fine_tuning.Inputs) -> fine_tuning.Prepared:
        fine_tuning.check_text_export(self.settings, inputs.tokenizer)
        weights = find_class_weights(self.settings, self.task)
        return self._prepare(inputs, weights, find_decision(self.settings, self.task))

    def _prepare(
        self, inputs: fine_tuning.Inputs, weights: dict[str, float], decision: decisions.Decision
    ) -> fine_tuning.Prepared:
        """Returns the task and its data.

        `weights`: {label: its weight in the training loss}; {} if all count the same.
        """
        settings = self.settings
        dropout_prob, head = settings.classifier_dropout_prob, inputs.head
        scale, length = find_scale(settings, self.task), settings.max_seq_length
        own, of_model = self.task, (dropout_prob, head, scale, decision)
        data = self.data(inputs, scale, decision)
        if isinstance(own, label_sets.LabelSetTask):
            task = multi_label.make_task(own, dropout_prob, head, decision, list(weights.values()))
            description = multi_label.settings_of(own, length, dropout_prob, head, decision)
        else:
            task = glue.make_task(own, *of_model, list(weights.values()))
            description = custom.settings_of(own, length, *of_model)

        def calibrate(rows: contracts.Rows, prefix: str) -> fine_tuning.Prepared:
            flags, labels = (settings.trust, settings.output_dir), own.labels
            texts = long_text_rules.join_rows(rows, data.answers)
            found = calibration.run(*flags, inputs.strategy, decision, labels, texts, prefix)
            return self._prepare(inputs, weights, found)

        return fine_tuning.Prepared(
            task,
            data,
            {**description, **class_weights.settings(weights), **settings.rule.settings},
            settings.train_step,
            settings.warmup_step,
            settings.do_eval,
            adapt=keep_answers,
            calibrate=calibrate if settings.trust.wanted else None,
        )

    def export(
        self,
        export_dir: str,
        inputs: fine_tuning.Inputs,
        prepared: fine_tuning.Prepared,
        engine: "Engine",
    ) -> None:
        model = fine_tuning.model_to_export(self.settings, inputs, prepared.task, engine)
        if model:
            specs = glue.feature_specs(self.settings.max_seq_length, self.task.is_regression)
            decision = decisions.Decision.from_settings(prepared.description)
            self.write_saved_models(export_dir, model, inputs.tokenizer, specs, decision)

    def write_saved_models(
        self,
        export_dir: str,
        model: contracts.Model,
        tokenizer: tokenization.FullTokenizer,
        specs: Sequence["FeatureSpec"],
        decision: decisions.Decision,
    ) -> None:
        """Writes a SavedModel that takes ids, and with --export_text one that takes texts."""
        from albert.export import saved_model_export

        settings, task = self.settings, self.task
        threshold = settings.threshold_to_export
        saved_model_export.export_classifier(model, specs, export_dir, threshold)
        if settings.export_text:
            length, labels = settings.max_seq_length, task.labels
            server = saved_model_export.TextServer(
                model, tokenizer, length, labels, task.is_pair, decision
            )
            saved_model_export.export_text(server, export_dir)


def main(values: flags.FlagValues) -> None:
    settings = fine_tuning_settings.read(Settings, values)
    task = find_task(settings)
    settings.check()
    has_label_sets = isinstance(task, label_sets.LabelSetTask)
    settings.trust.check(settings, task.labels, has_label_sets)
    stages = {"train": settings.do_train, "dev": settings.do_eval}
    splits = [split for split, is_run in stages.items() if is_run]
    task.check_splits([*splits, *([settings.predict_on] if settings.do_predict else [])])
    settings = settings.with_steps(
        lambda: count_examples(settings, task),
        is_own_data=settings.task_name.lower() == custom.NAME,
    )
    settings = dataclasses.replace(settings, doc_stride=settings.rule.doc_stride)
    fine_tuning.run(Classifier(settings, task), values, "run_classifier")


if __name__ == "__main__":
    app.run(main, define_flags)
