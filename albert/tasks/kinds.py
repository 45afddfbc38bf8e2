"""The kinds of fine-tuned models: one row of a table for each.

Letters in shapes: B batch, S sequence, K labels, N starts kept, M ends kept for each start.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from albert.io import file_io, tables
from albert.model import configuration, head_config, huggingface, model_folder, sources
from albert.tasks import (
    custom,
    glue,
    label_sets,
    model_labels,
    race,
    token_classification,
    word_files,
)
from albert.tasks.squad import task as squad_task
from albert.text import model_inputs

if TYPE_CHECKING:
    from albert.model import heads
    from albert.model.layers import Compute
    from albert.training import contracts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fine-tuned model.

    Attributes:
      name: the kind in descriptions of folders, such as "classifier".
      outputs: names of the outputs.
      build: ``(model_folder.ModelFolder, layers.Compute, head_config.Head) -> model of heads``.
      command: the command that trains such a model and, with --do_predict, describes its folder.
      head_variable: prefix of the names of variables that only its head has; None: those of a
        classifier.
      one_output: whether that head has a single output; False: any number.
      inputs: names of the inputs, all int32 [B, S].
      trains_pooler: whether its loss depends on the pooler.
      skip_padding: whether the model computes only the real tokens.
      has_labels: whether the description of its folder names labels.
      huggingface_head: key of `huggingface.HEADS`; None if transformers has no such model.
      pipeline_tag: what the Hub calls its task, for cards.
      settings: ``(labels, maximum tokens of an input) -> {name: value}`` of a folder that does not
        describe its settings: the defaults of the command's flags; None: there is no such folder.
    """

    name: str
    outputs: tuple[str, ...]
    build: Callable[[model_folder.ModelFolder, Any, head_config.Head], Any]
    command: str
    head_variable: str | None
    one_output: bool = False
    inputs: tuple[str, ...] = model_inputs.NAMES
    trains_pooler: bool = False
    skip_padding: bool = False
    has_labels: bool = False
    huggingface_head: str | None = None
    pipeline_tag: str
    settings: Callable[[Sequence[str], int], dict[str, Any]] | None = None


# --- how a model is made from its folder ----------------------------------------------------------
# These import the network, and TensorFlow with it, which a server of ONNX models does not need.


def _build_classifier(
    folder: model_folder.ModelFolder, compute: "Compute", head: head_config.Head
) -> "heads.ClassifierModel | heads.RegressionModel":
    """Builds a classifier, or for a folder without labels a regression, without weights."""
    from albert.model import heads

    labels = custom.labels_of(folder)
    if not labels:
        return heads.RegressionModel(folder.config, compute, 0, head=head, scale=folder.scale)
    return heads.ClassifierModel(
        folder.config, len(labels), compute, 0, head=head, decision=folder.decision
    )


def _build_multi_label(
    folder: model_folder.ModelFolder, compute: "Compute", head: head_config.Head
) -> "heads.MultiLabelModel":
    """Builds a classifier of texts with several labels, without weights."""
    from albert.model import heads

    labels = custom.labels_of(folder)
    return heads.MultiLabelModel(
        folder.config, len(labels), compute, 0, head=head, decision=folder.decision
    )


def _build_choice_scorer(
    folder: model_folder.ModelFolder, compute: "Compute", head: head_config.Head
) -> "heads.RegressionModel":
    """Builds a model that scores one choice of a question at a time, without weights."""
    from albert.model import heads

    # Each choice is scored alone, so a single output allows any number of choices.
    return heads.RegressionModel(folder.config, compute, 0, head=head)


def _build_token_classifier(
    folder: model_folder.ModelFolder, compute: "Compute", head: head_config.Head
) -> "heads.TokenClassifierModel":
    """Builds a classifier of words, without weights."""
    from albert.model import heads

    labels = custom.labels_of(folder)
    return heads.TokenClassifierModel(folder.config, len(labels), compute, 0, head=head)


def _build_squad(
    folder: model_folder.ModelFolder, compute: "Compute", head: head_config.Head
) -> "contracts.Model":
    """Builds a model of SQuAD 1.1 or 2.0, whichever the folder is of, without weights."""
    settings = dataclasses.replace(folder.settings_as(squad_task.Settings), head=head)
    return squad_task.make_task(folder.kind, settings).build_model(folder.config, compute, 0)


# --- settings of folders of Hugging Face ----------------------------------------------------------


def _classifier_settings(labels: Sequence[str], max_seq_length: int) -> dict[str, Any]:
    """Returns {name: usual value} of a classifier's settings for label names by id."""
    columns = dataclasses.asdict(tables.Columns())
    return {
        "task_name": custom.NAME,
        "labels": list(labels),
        "max_seq_length": max_seq_length,
        "columns": columns,
    }


def _multi_label_settings(labels: Sequence[str], max_seq_length: int) -> dict[str, Any]:
    """Returns {name: usual value} of settings for label names by id; a text has several labels."""
    settings = _classifier_settings(labels, max_seq_length)
    return settings | {"label_type": label_sets.LABEL_TYPE} | label_sets.LabelFormat().settings


def _token_settings(labels: Sequence[str], max_seq_length: int) -> dict[str, Any]:
    """Returns {name: usual value} of settings of a classifier of words for label names by id."""
    columns = dataclasses.asdict(word_files.Columns())
    return {"labels": list(labels), "max_seq_length": max_seq_length, "columns": columns}


def _choice_settings(labels: Sequence[str], max_seq_length: int) -> dict[str, Any]:
    """Returns {name: usual value} of the settings of multiple choice; `labels` is empty."""
    max_qa_length = min(race.MAX_QA_LENGTH, max_seq_length // 2)
    return {"max_seq_length": max_seq_length, "max_qa_length": max_qa_length}


def _squad_settings(labels: Sequence[str], longest: int) -> dict[str, Any]:
    """Returns {name: usual value} of SQuAD 1.1's settings, up to `longest` tokens; no labels."""
    return squad_task.Settings.default(longest).to_dict()


# --- the table ------------------------------------------------------------------------------------

_ROWS = (
    Kind(
        name=glue.KIND,  # also of regression, whose models have no labels
        # int32 [B] and float32 [B, K]; of a regression float32 [B] and [B, 1], both the score.
        outputs=("predictions", "probabilities"),
        trains_pooler=True,
        build=_build_classifier,
        command="run_classifier --task_name=… --data_dir=…",
        head_variable="output_bias",
        has_labels=True,
        huggingface_head="classification",
        pipeline_tag="text-classification",
        settings=_classifier_settings,
    ),
    Kind(
        name=label_sets.KIND,
        outputs=("predictions", "probabilities"),  # int32 and float32 [B, K]
        trains_pooler=True,
        build=_build_multi_label,
        command="run_classifier --task_name=custom --label_type=multi_label --test_file=…",
        head_variable=None,
        has_labels=True,
        huggingface_head="multi_label",
        pipeline_tag="text-classification",
        settings=_multi_label_settings,
    ),
    Kind(
        name=token_classification.KIND,
        outputs=("predictions", "probabilities"),  # int32 [B, S], float32 [B, S, K]
        build=_build_token_classifier,
        command="run_token_classifier --test_file=…",
        head_variable="cls/token/",
        skip_padding=True,
        has_labels=True,
        huggingface_head="token_classification",
        pipeline_tag="token-classification",
        settings=_token_settings,
    ),
    Kind(
        name=race.KIND,
        outputs=("logits",),  # float32 [B]: an input is a text with one of the options
        trains_pooler=True,
        build=_build_choice_scorer,
        command="run_race --nodo_train --nodo_eval --data_dir=…",
        head_variable="output_bias",
        one_output=True,
        skip_padding=True,
        huggingface_head="multiple_choice",
        pipeline_tag="multiple-choice",
        settings=_choice_settings,
    ),
    Kind(
        name=squad_task.V1,
        outputs=("start_logits", "end_logits"),  # float32 [B, S], -1e30 at padding
        build=_build_squad,
        command="run_squad_v1 --predict_file=…",
        head_variable="cls/squad/",
        huggingface_head="squad_v1",
        pipeline_tag="question-answering",
        settings=_squad_settings,
    ),
    Kind(
        name=squad_task.V2,
        inputs=(*model_inputs.NAMES, "p_mask"),
        outputs=(
            *("start_top_log_probs", "start_top_index"),  # float32 and int32 [B, N]
            *("end_top_log_probs", "end_top_index"),  # [B, N * M], the ends of start n at n * M...
            "cls_logits",  # float32 [B], high if there is no answer
        ),
        build=_build_squad,
        command="run_squad_v2 --predict_file=…",
        head_variable="start_logits/",
        pipeline_tag="question-answering",
    ),
)
KINDS = {row.name: row for row in _ROWS}


# --- folders of models ----------------------------------------------------------------------------


def read_folder(path: str, *names: str) -> model_folder.ModelFolder:
    """Reads the folder of a fine-tuned model.

    Args:
      path: output folder of a training, or a folder of Hugging Face, whose settings are those that
        `Kind.settings` gives.
      *names: keys of `KINDS` that the caller can use; none means any.
    """
    names = names or tuple(KINDS)
    if not file_io.exists(os.path.join(path, sources.DESCRIPTION_NAME)):
        if folder := _read_huggingface(path, names):
            return folder
        _check_undescribed(path, names)
    return model_folder.read(path, *names)


def find_pretrained(path: str) -> sources.Source | None:
    """Finds the files of the pre-trained model in a folder; None for another model or none."""
    names = file_io.listdir(path) if file_io.is_dir(path) else []
    if sources.DESCRIPTION_NAME in names:
        return None
    if huggingface.CONFIG_NAME in names:
        is_pretrained = model_labels.read_folder(path) is None
    else:
        prefix = _checkpoint_in(path) if names else None
        is_pretrained = prefix is not None and not _find_by_variables(prefix)
    return sources.locate_model(path) if is_pretrained else None


def _checkpoint_in(path: str) -> str | None:
    """Returns the prefix of the best checkpoint in a folder, else of the last, else None."""
    from albert.model import checkpoints

    best, numbered = os.path.join(path, checkpoints.BEST), checkpoints.numbered(path)
    return best if checkpoints.prefix_exists(best) else numbered[-1] if numbered else None


def _read_huggingface(path: str, names: Sequence[str]) -> model_folder.ModelFolder | None:
    """Reads a folder with the ``config.json`` of a fine-tuned model; None for other folders."""
    head = model_labels.read_folder(path) if file_io.is_dir(path) else None
    if head is None:
        return None
    row = KINDS.get(head.kind)
    if row is None or row.settings is None or row.name not in names:
        raise file_io.InputError(
            f"{path} holds a model of kind {head.kind} ({head.path}); expected {' or '.join(names)}"
        )
    if len(head.labels) == 1:
        raise file_io.InputError(
            f"{head.path}: the model has one label, {head.labels[0]!r}; a model of kind "
            f"{head.kind} has at least 2 here: train it again with a second label, for what the "
            "first is not"
        )
    source = sources.locate(checkpoint=path)
    config = configuration.AlbertConfig.from_json_file(source.config_file)
    longest = huggingface.read_max_length(path) or config.max_position_embeddings
    settings = row.settings(head.labels, min(longest, config.max_position_embeddings))
    return model_folder.ModelFolder(path, row.name, config, source, settings)


def write_folder(
    path: str,
    kind: str,
    config: configuration.AlbertConfig,
    source: sources.Source,
    settings: dict[str, Any],
    replace: bool = True,
) -> None:
    """Writes the files that make a model usable without flags.

    `kind` is a key of `KINDS`; `settings` are JSON-ready and those of the kind, such as its labels.
    """
    is_written = model_folder.write(path, kind, config, source, settings, replace)
    if is_written and KINDS[kind].has_labels:
        custom.save_labels(path, settings["labels"])


def _check_undescribed(path: str, names: Sequence[str]) -> None:
    """Raises InputError if a folder without description holds a checkpoint; says what to run."""
    prefix = _checkpoint_in(path)
    if prefix is None:
        return
    message = f"{path} has no {sources.DESCRIPTION_NAME}: "
    rows = _find_by_variables(prefix)
    matching = [row for row in rows if row.name in names]
    if not matching:
        kinds = " or ".join(row.name for row in rows) or "pre-trained"
        raise file_io.InputError(
            f"{message}by its weights it is a model of kind {kinds}; expected {' or '.join(names)}"
        )
    commands = " or ".join(
        f"python -m albert.{row.command} --do_predict --output_dir={path}" for row in matching
    )
    raise file_io.InputError(
        f"{message}another program or an older version has trained it. A prediction with the flags "
        f"of the training adds the file: {commands} --max_seq_length=… --albert_config_file=… "
        "--spm_model_file=… (or --vocab_file=…; or --albert_hub_module_handle=… for all files)"
    )


def _find_by_variables(prefix: str) -> list[Kind]:
    """Returns the rows of the kinds that match the variables of the checkpoint `prefix`."""
    from albert.model import checkpoints

    shapes = checkpoints.reader(prefix).get_variable_to_shape_map()
    return [
        row
        for row in _ROWS
        if any(
            row.head_variable
            and name.startswith(row.head_variable)
            and (shape == [1] or not row.one_output)
            for name, shape in shapes.items()
        )
    ]
