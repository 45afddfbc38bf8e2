"""The folder of a model: the files that make a checkpoint usable without any flags.

Fine-tuning writes ``albert_config.json``, a copy of the vocabulary and ``model.json``: the kind of
model and the settings that inputs for it depend on. Programs that use the model need only the
folder's name. A run that evaluates or predicts completes a folder trained by another program.
"""

import dataclasses
import functools
import json
import os
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from absl import logging

from albert.io import file_io
from albert.model import (
    configuration,
    head_config,
    label_scale,
    pooling,
    published,
    sources,
    weight_names,
)
from albert.model import decision as decisions
from albert.text import long_texts, text_rules, tokenization, wordpiece

VERSION = 1
MIN_LENGTH = 3  # of inputs: one piece, [CLS] and [SEP]
_GROUPS = ("num_hidden_groups", "inner_group_num")  # sizes that partial sharing changes
# Settings that say what the outputs of a model are.
_MEANING = ("task_name", "labels", "label_mean", "label_deviation", long_texts.SETTING)
# Entries of the description and their types.
_ENTRIES: dict[str, Any] = {
    "kind": str,
    "spm_model_file": (str, type(None)),
    "vocab_file": (str, type(None)),
    "do_lower_case": bool,
    "settings": dict,
}


_Settings = TypeVar("_Settings")
_Made = TypeVar("_Made")
_Json = dict[str, Any]


def _is_of(kind: type, value: object) -> bool:
    """Returns whether a JSON value has a type, or one of a union's types; a bool is not an int."""
    kinds = typing.get_args(kind) or (kind,)
    return type(value) in kinds or (type(value) is int and float in kinds)  # 0 for 0.0


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A fine-tuned model.

    Attributes:
      kind: what the model does, such as "classifier" or "squad_v2".
      source: its files; `checkpoint` is the prefix of its best checkpoint, else of its last.
      settings: the JSON-ready dict given to `write`; see `setting`.
    """

    path: str
    kind: str
    config: configuration.AlbertConfig
    source: sources.Source
    settings: dict

    def settings_as(self, dataclass: type[_Settings]) -> _Settings:
        """Returns the settings as a dataclass whose annotations are classes or unions of classes.

        Missing settings get the dataclass's defaults.
        """
        values, types = {}, typing.get_type_hints(dataclass)
        for field in dataclasses.fields(dataclass):  # type: ignore[arg-type]
            if field.name in self.settings or field.default is dataclasses.MISSING:
                is_valid = functools.partial(_is_of, types[field.name])
                values[field.name] = self.setting(field.name, is_valid)
        return dataclass(**values)

    def setting(self, name: str, kind: type | Callable[[Any], bool]) -> Any:
        """Returns a setting after checking it.

        Args:
          kind: its type, or a function that returns whether a value is valid.
        """
        value = self.settings.get(name)
        if not (isinstance(value, kind) if isinstance(kind, type) else kind(value)):
            path = os.path.join(self.path, sources.DESCRIPTION_NAME)
            raise file_io.InputError(
                f"{path}: the setting {name} is {self.settings.get(name, 'missing')!r}, which "
                "training never writes: restore the file, or fine-tune again"
            )
        return value

    @property
    def long_text_rule(self) -> long_texts.LongTexts:
        """How the model reads texts that are longer than its input; cut without such a setting."""
        return read_long_text_rule(self.path, self.settings)

    @property
    def scale(self) -> label_scale.LabelScale:
        """Returns the unit of a regression; `label_scale.RAW` for other models."""
        return _checked(self.path, label_scale.LabelScale.from_settings, self.settings)

    @property
    def min_length(self) -> int:
        """Returns the least number of tokens of an input: a model of SQuAD 2.0 has beams."""
        return max(self.settings.get(name) or 1 for name in ("start_n_top", "end_n_top"))

    @property
    def decision(self) -> decisions.Decision:
        """Returns how scores become answers; `decisions.PLAIN` unless the model was calibrated."""
        return _checked(self.path, decisions.Decision.from_settings, self.settings)

    def length(self, name: str = "max_seq_length", minimum: int = MIN_LENGTH) -> int:
        """Returns the setting of a length of inputs, in tokens; `minimum` leaves space for text."""
        return self.setting(name, lambda value: self.config.is_length(value) and value >= minimum)


def load_tokenizer(
    source: sources.Source, config: configuration.AlbertConfig
) -> tokenization.FullTokenizer:
    """Loads the tokenizer of a `sources.Source` and checks it against the configuration."""
    tokenizer = tokenization.FullTokenizer(
        vocab_file=source.vocab_file, spm_model_file=source.spm_model_file, rules=source.rules
    )
    tokenization.warn_of_unreachable_pieces(tokenizer)
    tokenization.check_vocab_size(tokenizer, config.vocab_size)
    return tokenizer


def with_extra_rows(
    config: configuration.AlbertConfig, source: sources.Source
) -> configuration.AlbertConfig:
    """Returns a configuration whose `vocab_size` has a row for each extra piece of a source."""
    vocabulary = source.vocabulary
    if not (source.rules.extra_pieces and vocabulary):
        return config
    own = dataclasses.replace(source.rules, extra_pieces=())
    tokenization.check_vocab_size(tokenization.load(vocabulary, own), config.vocab_size)
    size = tokenization.load(vocabulary, source.rules).vocab_size
    return dataclasses.replace(config, vocab_size=max(size, config.vocab_size))


def write(
    path: str,
    kind: str,
    config: configuration.AlbertConfig,
    source: sources.Source,
    settings: dict[str, Any],
    replace: bool = True,
) -> bool:
    """Writes all files of a folder except checkpoints.

    Training writes them before its first checkpoint. A run that does not train completes the folder
    of a checkpoint, with `replace=False`: it never replaces an existing file, and if the folder's
    values differ from the run's, it changes nothing and a warning lists the differences.

    Args:
      path: output folder of the training; created if missing.
      kind: what the model does; `read` checks it.
      source: has the vocabulary to copy.
      settings: JSON-ready dict of the settings needed to use the model, such as the maximum input
        length and the names of the labels.

    Returns:
      Whether the files were written.
    """
    description = _description(kind, config, source, settings)
    if not replace and not _lacks_description(path, description, config, source):
        return False
    file_io.make_dirs(path)
    config_file = os.path.join(path, sources.CONFIG_NAME)
    if replace or not file_io.exists(config_file):
        file_io.write_text(config_file, config.to_json_string())
    copy_vocabulary(path, source)
    # Written last: a folder with a description is complete.
    file_io.write_json(os.path.join(path, sources.DESCRIPTION_NAME), description)
    if not replace:
        logging.info(
            "Added the files that make %s usable without flags (%s)", path, sources.DESCRIPTION_NAME
        )
    return True


def write_decision(path: str, decision: decisions.Decision) -> None:
    """Replaces the decision in the description of a folder."""
    name = os.path.join(path, sources.DESCRIPTION_NAME)
    description = _read_description(name)
    settings = {k: v for k, v in description["settings"].items() if k != decisions.SETTING}
    file_io.write_json(name, {**description, "settings": {**settings, **decision.settings}})


def check_same_model(
    path: str,
    kind: str,
    config: configuration.AlbertConfig,
    source: sources.Source,
    settings: dict[str, Any],
) -> None:
    """Checks that the checkpoints in a folder, which training would resume, are of the same model.

    The arguments are those of `write`.
    """
    ours = _description(kind, config, source, settings)
    if not _has_checkpoints(path):
        return
    name = os.path.join(path, sources.DESCRIPTION_NAME)
    if file_io.exists(name):
        description = _read_description(name)
        differing = _differing_entries(_meaning(description), _meaning(ours))
        differing += _differing_files(path, description, config, source)
        if differing:
            raise file_io.InputError(
                f"{path} holds checkpoints of another model: {'; '.join(differing)}; "
                "give another output_dir"
            )
    elif file_io.exists(os.path.join(path, sources.PRETRAINING_NAME)):
        raise file_io.InputError(
            f"{path} holds checkpoints of a pre-training run; give another output_dir"
        )


def _has_checkpoints(path: str) -> bool:
    # Imports TensorFlow, which folders without weights do not need.
    from albert.model import checkpoints

    return bool(checkpoints.numbered(path) or checkpoints.find_best(path))


def _meaning(description: _Json) -> _Json:
    """Returns what the outputs of a described model depend on."""
    settings = {name: description["settings"].get(name) for name in _MEANING}
    rules = text_rules.from_json(description, sources.DESCRIPTION_NAME).to_json()
    return {"kind": description["kind"], **rules, **settings}


def _lacks_description(
    path: str, ours: _Json, config: configuration.AlbertConfig, source: sources.Source
) -> bool:
    """Returns whether a folder has no description; warns if its files differ from the run's."""
    name = os.path.join(path, sources.DESCRIPTION_NAME)
    has_description = file_io.exists(name)
    description = _read_description(name) if has_description else ours
    differing = _differing_entries(_without_file_names(description), _without_file_names(ours))
    differing += _differing_files(path, description, config, source)
    if differing:
        logging.warning(
            "%s is not changed, though this run used other values: %s",
            name if has_description else path,
            "; ".join(differing),
        )
    return not has_description and not differing


def _description(
    kind: str, config: configuration.AlbertConfig, source: sources.Source, settings: _Json
) -> _Json:
    """Builds the content of ``model.json``."""
    model = source.spm_model_file
    return {
        "version": VERSION,
        "kind": kind,
        "spm_model_file": os.path.basename(model) if model else None,
        "vocab_file": None if model else sources.VOCAB_NAME,
        **source.rules.to_json(),
        sources.RECORDED_CONFIG: config.to_dict(),
        "settings": json.loads(json.dumps(settings)),  # tuples become lists, as in the file
    }


def _read_description(name: str) -> _Json:
    description = file_io.read_json(name, "model description")
    if not isinstance(description, dict) or description.get("version") != VERSION:
        raise file_io.InputError(f"{name} is not a model description of version {VERSION}")
    for entry, kinds in _ENTRIES.items():
        if not isinstance(description.get(entry), kinds):
            raise file_io.InputError(
                f"{name}: the entry {entry} is invalid: {description.get(entry, 'missing')!r}; "
                "move the file away and predict with the flags of the training, which writes it "
                "again"
            )
    names = [
        description[entry] for entry in ("spm_model_file", "vocab_file") if description.get(entry)
    ]
    if len(names) != 1 or names[0] != os.path.basename(names[0]):
        raise file_io.InputError(
            f"{name}: expected the name of one file in the folder as spm_model_file or vocab_file, "
            f"found {names}"
        )
    return description


def _without_file_names(description: _Json) -> _Json:
    """Returns a description without the entries for files, whose contents are compared instead."""
    file_entries = ("spm_model_file", "vocab_file", sources.RECORDED_CONFIG)
    rules = text_rules.from_json(description, sources.DESCRIPTION_NAME).to_json()
    return {k: v for k, v in (description | rules).items() if k not in file_entries}


def _differing_entries(there: object, ours: object, name: str = "") -> list[str]:
    """Lists the differences between two JSON values, in words."""
    if isinstance(there, dict) and isinstance(ours, dict):
        # Dropout only affects training, so a run that did not train ignores it.
        keys = sorted(k for k in there.keys() | ours.keys() if not k.endswith("dropout_prob"))
        parts = [_differing_entries(there.get(key), ours.get(key), key) for key in keys]
        return [words for part in parts for words in part]
    return [] if there == ours else [f"{name} {json.dumps(there)} (here {json.dumps(ours)})"]


def _differing_files(
    path: str, description: _Json, config: configuration.AlbertConfig, source: sources.Source
) -> list[str]:
    """Lists the differences between a folder's and a run's files, in words; skips missing files."""
    differing = []
    name = os.path.join(path, sources.CONFIG_NAME)
    if file_io.exists(name):
        recorded = configuration.AlbertConfig.from_json_file(name).to_dict()
        differing = _differing_entries(recorded, config.to_dict())
    ours = cast(str, source.vocabulary)
    there = os.path.join(path, description["spm_model_file"] or description["vocab_file"])
    if file_io.exists(there) and not are_same_vocabularies(ours, there):
        differing.append(f"the vocabulary {there} (here {ours})")
    return differing


def copy_vocabulary(path: str, source: sources.Source) -> None:
    """Copies the vocabulary of a `sources.Source` to a folder, with the name that `read` needs."""
    model = source.spm_model_file
    name = os.path.basename(model) if model else sources.VOCAB_NAME
    vocabulary, target = cast(str, source.vocabulary), os.path.join(path, name)
    if vocabulary.endswith(".json"):
        file_io.write_text(target, wordpiece.vocab_text(wordpiece.load_vocab(vocabulary)))
    elif not (file_io.exists(target) and file_io.sha256(vocabulary) == file_io.sha256(target)):
        file_io.copy(vocabulary, target)


def are_same_vocabularies(one: str, other: str) -> bool:
    """Returns whether two files of vocabularies have the same pieces and ids."""
    kinds = {os.path.splitext(path)[1] for path in (one, other)}
    if ".json" in kinds and ".model" not in kinds:
        return wordpiece.load_vocab(one) == wordpiece.load_vocab(other)
    return file_io.sha256(one) == file_io.sha256(other)


def write_rules(path: str, rules: text_rules.TextRules) -> None:
    """Records in a folder without a description how its texts become pieces."""
    file_io.write_json(os.path.join(path, sources.RULES_NAME), rules.to_json())


def checked_rules(checkpoint: str, rules: Mapping[str, Any]) -> text_rules.TextRules | None:
    """Reads how the texts of a checkpoint's folder become pieces, and tries it on its vocabulary.

    Args:
      checkpoint: prefix, or a file of weights.
      rules: see `sources.Given`.

    Returns:
      The rules; None if the folder has no vocabulary, or several.
    """
    vocabularies = sources.vocabularies_in(os.path.dirname(checkpoint) or ".")
    if len(vocabularies) != 1:
        return None
    own_rules = sources.rules_beside(checkpoint, rules)
    tokenization.load(vocabularies[0], own_rules)
    return own_rules


def described_head(path: str) -> head_config.Head | None:
    """Returns the head in the description of a folder; None without a description."""
    settings = described_settings(path)
    return None if settings is None else head_config.Head.from_settings(settings)


def described_pooling(path: str) -> str | None:
    """Returns what the head of a folder's model reads, or what sentence-transformers says."""
    head = described_head(path)
    return head.pooling if head else pooling.read(path)


def read_long_text_rule(path: str, settings: Mapping[str, Any]) -> long_texts.LongTexts:
    """Returns how a model reads long texts, from the settings of its folder; errors name it."""
    return _checked(path, long_texts.LongTexts.from_settings, dict(settings))


def described_scale(path: str) -> label_scale.LabelScale:
    """Returns the scale in the description of a folder; `label_scale.RAW` without one."""
    return _checked(path, label_scale.LabelScale.from_settings, described_settings(path) or {})


def described_decision(path: str) -> decisions.Decision:
    """Returns the decision in the description of a folder; `decisions.PLAIN` without one."""
    return _checked(path, decisions.Decision.from_settings, described_settings(path) or {})


def without_broken_promise(folder: ModelFolder) -> ModelFolder:
    """Returns a folder that promises no error rate which was found with another checkpoint."""
    decision = folder.decision
    if not warn_of_decision(decision, folder.source.checkpoint or ""):
        return folder
    decision = dataclasses.replace(decision, max_error=None, coverage=None)
    return dataclasses.replace(folder, settings={**folder.settings, **decision.settings})


def warn_of_decision(decision: decisions.Decision, prefix: str) -> bool:
    """Warns if a decision was found with the checkpoint of another step than that of `prefix`.

    Returns:
      Whether it warned.
    """
    from albert.model import checkpoints

    if checkpoints.may_be_of_step(prefix, decision.step):
        return False
    parts = ["temperature", *(["thresholds"] if decision.thresholds else [])]
    promise = ""
    if decision.may_abstain:
        parts.append("abstention")
        promise = f", so that more than {decision.max_error or 0:.2%} of its answers may be wrong"
    logging.warning(
        "%s: found with the checkpoint of step %d, not with %s of step %d: %s%s; find them again "
        "with do_eval and calibrate, choose_thresholds or max_error",
        os.path.join(os.path.dirname(prefix), sources.DESCRIPTION_NAME), decision.step,
        os.path.basename(prefix), checkpoints.read_step(prefix), " and ".join(parts), promise,
    )  # fmt: skip
    return True


def _checked(path: str, make: Callable[[_Json], _Made], settings: _Json) -> _Made:
    """Returns what a function makes of the settings of a folder; its errors name the file."""
    try:
        return make(settings)
    except file_io.InputError as error:
        name = os.path.join(path, sources.DESCRIPTION_NAME)
        raise file_io.InputError(
            f"{name}: {error}; restore the file, or fine-tune again"
        ) from error


def described_settings(path: str) -> dict[str, Any] | None:
    """Returns the settings in the description of a folder, unchecked; None without one."""
    name = os.path.join(path, sources.DESCRIPTION_NAME)
    if not file_io.exists(name):
        return None
    description = file_io.read_json(name, "model description")
    settings = description.get("settings") if isinstance(description, dict) else None
    return settings if isinstance(settings, dict) else None


def read(path: str, *kinds: str, with_weights: bool = True) -> ModelFolder:
    """Reads the folder of a fine-tuned model, as written by `write`.

    Args:
      kinds: the kinds that the caller can use; empty accepts any kind.
      with_weights: False accepts a folder without checkpoints; `source.checkpoint` is then None.
    """
    if not file_io.is_dir(path):
        hint = published.suggestion(path)
        raise file_io.InputError(f"there is no model folder {path}{hint and f'; {hint}'}")
    name = os.path.join(path, sources.DESCRIPTION_NAME)
    if not file_io.exists(name):
        raise file_io.InputError(
            f"{path} has no {sources.DESCRIPTION_NAME}: expected the output_dir of a fine-tuning "
            "run"
        )
    description = _read_description(name)
    if kinds and description["kind"] not in kinds:
        raise file_io.InputError(
            f"{path} holds a model of kind {description['kind']}; expected {' or '.join(kinds)}"
        )

    def inside(entry: str) -> str | None:
        return description.get(entry) and os.path.join(path, description[entry])

    checkpoint = None
    if with_weights:
        from albert.model import checkpoints

        checkpoint = checkpoints.resolve(path)
    config_file = os.path.join(path, sources.CONFIG_NAME)
    source = sources.Source(
        config_file=config_file,
        checkpoint=checkpoint,
        spm_model_file=inside("spm_model_file"),
        vocab_file=inside("vocab_file"),
        rules=text_rules.from_json(description, name),
    )
    config = configuration.AlbertConfig.from_json_file(config_file)
    if with_weights:
        _check_config(source, config)
    sources.check_config(config_file, config, description, name)
    return ModelFolder(path, description["kind"], config, source, description["settings"])


def _check_config(source: sources.Source, config: configuration.AlbertConfig) -> None:
    """Rejects a configuration whose sizes differ from the weights', before a model is built."""
    from albert.model import checkpoints

    shapes = checkpoints.reader(cast(str, source.checkpoint)).get_variable_to_shape_map()
    sizes = weight_names.sizes(shapes)
    differing = [
        f"{name} {value} ({getattr(config, name)})"
        for name, value in sizes.items()
        if value != getattr(config, name) and not (name in _GROUPS and config.share != "all")
    ]
    if differing:
        raise file_io.InputError(
            f"{source.config_file} is not the configuration of {source.checkpoint}, which "
            f"has {', '.join(differing)}; brackets have the values of the configuration"
        )


# --- folders of pre-training ----------------------------------------------------------------------


def write_pretrained(
    path: str,
    config: configuration.AlbertConfig,
    sentence_task: str,
    source: sources.Source | None = None,
) -> None:
    """Writes the configuration, vocabulary and description of a pre-training run.

    Args:
      config: includes the dropout rates of the run.
      sentence_task: key of `pretraining_heads.SENTENCE_TASKS`.
      source: its vocabulary is copied if it has one.
    """
    if source and source.vocabulary:
        copy_vocabulary(path, source)
        write_rules(path, source.rules)
    _write_pretrained_config(os.path.join(path, sources.CONFIG_NAME), config)
    description = {"version": VERSION, "sentence_task": sentence_task}
    file_io.write_json(os.path.join(path, sources.PRETRAINING_NAME), description)


def check_same_pretrained(path: str, source: sources.Source) -> None:
    """Checks that pre-training can resume the checkpoints in a folder.

    Raises:
      file_io.InputError: they are of a fine-tuned model, or of one with another vocabulary than
        that of `source`, if it has one, or with other rules.
    """
    if not _has_checkpoints(path):
        return
    if file_io.exists(os.path.join(path, sources.DESCRIPTION_NAME)):
        raise file_io.InputError(
            f"{path} holds checkpoints of a fine-tuned model; give another output_dir"
        )
    ours, theirs = source.vocabulary, sources.vocabularies_in(path)
    if ours and theirs and not any(are_same_vocabularies(ours, there) for there in theirs):
        raise file_io.InputError(
            f"{path} holds checkpoints of a model with another vocabulary: {', '.join(theirs)} "
            f"(here {ours}); give another output_dir"
        )
    name = os.path.join(path, sources.RULES_NAME)
    if ours and file_io.exists(name):
        recorded = text_rules.from_json(file_io.read_json(name, "rules of texts", dict), name)
        if differing := _differing_entries(recorded.to_json(), source.rules.to_json()):
            raise file_io.InputError(
                f"{path} holds checkpoints of a model whose texts become pieces by other rules: "
                f"{'; '.join(differing)}; give the same, or another output_dir"
            )


def _write_pretrained_config(name: str, config: configuration.AlbertConfig) -> None:
    if file_io.exists(name):
        there = dataclasses.asdict(configuration.AlbertConfig.from_json_file(name))
        differing = {k: v for k, v in dataclasses.asdict(config).items() if v != there[k]}
        if not differing:
            return
        text = ", ".join(f"{key} {value} (was {there[key]})" for key, value in differing.items())
        logging.info("%s now has the values of this run: %s", name, text)
    file_io.write_text(name, config.to_json_string())


def sentence_tasks(path: str, checkpoint: str | None = None) -> list[str]:
    """Lists the sentence tasks that the model of a folder may have been trained with.

    Args:
      checkpoint: prefix; None uses the folder's best checkpoint, else its last.

    Returns:
      List of keys of `pretraining_heads.SENTENCE_TASKS`: the one in the folder's description;
      without a description, all that fit the variables; without a checkpoint, all.
    """
    from albert.model import checkpoints, pretraining_heads

    checkpoint = checkpoint or checkpoints.find_best(path)
    checkpoint = checkpoint or next(reversed(checkpoints.numbered(path)), None)
    if checkpoint is None:
        return list(pretraining_heads.SENTENCE_TASKS)
    name = os.path.join(path, sources.PRETRAINING_NAME)
    if file_io.exists(name):
        description = file_io.read_json(name, "description of pre-training")
        task = description.get("sentence_task") if isinstance(description, dict) else None
        if (
            task not in list(pretraining_heads.SENTENCE_TASKS)
            or description.get("version") != VERSION
        ):
            raise file_io.InputError(
                f"{name} is not a description of pre-training of version {VERSION}"
            )
        return [task]
    head = f"{pretraining_heads.SENTENCE_HEAD}output_weights"
    has_head = head in checkpoints.reader(checkpoint).get_variable_to_shape_map()
    return [
        task for task, title in pretraining_heads.SENTENCE_TASKS.items() if has_head == bool(title)
    ]
