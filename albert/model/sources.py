"""Finds the files of a model, given or next to its weights."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from albert.io import file_io, tables
from albert.model import configuration, hub_modules, huggingface, huggingface_tokenizer, published
from albert.text import text_rules, wordpiece

CONFIG_NAME = "albert_config.json"
BERT_CONFIG_NAME = "bert_config.json"  # in google-research/bert
_CONFIG_NAMES = (CONFIG_NAME, BERT_CONFIG_NAME, huggingface.CONFIG_NAME)
VOCAB_NAME = "vocab.txt"  # in WordPiece models
VOCAB_NAMES = (VOCAB_NAME, "vocab_chinese.txt")  # the second in published Chinese models
DESCRIPTION_NAME = "model.json"  # in fine-tuned models
THRESHOLD_NAME = "null_score_diff_threshold.json"  # in models of questions without an answer
LABELS_NAME = "labels.json"  # in fine-tuned models with labels
RECORDED_CONFIG = "config"  # entry of the description: the configuration at training
PRETRAINING_NAME = "pretraining.json"  # description of pre-trained models
RULES_NAME = text_rules.FILE_NAME  # in models without DESCRIPTION_NAME
# Settings that name files, for messages.
_CONFIG, _SPM, _VOCAB = "albert_config_file", "spm_model_file", "vocab_file"


@dataclasses.dataclass(frozen=True)
class Source:
    """The files of a model; None for a missing file.

    Attributes:
      checkpoint: prefix of the weights, or a file of Hugging Face weights.
      vocab_file: WordPiece vocabulary (next to a SentencePiece model: its list of pieces, unused).
    """

    config_file: str
    checkpoint: str | None
    spm_model_file: str | None
    vocab_file: str | None
    rules: text_rules.TextRules = text_rules.TextRules()

    @property
    def vocabulary(self) -> str | None:
        """Path of the vocabulary, of either kind."""
        return self.spm_model_file or self.vocab_file


@dataclasses.dataclass(frozen=True)
class Given:
    """The files and rules of a model that the user names; the model gives the others.

    A warning says where the files of a hub module or a Hugging Face folder, or the rules of any
    model, differ. With a hub module, "from_tf_hub" or a missing vocabulary means the module's own
    file, with a warning. A vocabulary may also be the folder or the published name of a model, see
    `published.vocabulary`.

    Attributes:
      rules: values of `text_rules.TextRules` by name.
    """

    config_file: str | None = None
    spm_model_file: str | None = None
    vocab_file: str | None = None
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)


NOTHING = Given()


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where files that are not given are looked for.

    Attributes:
      folder: None without a model.
      is_complete: whether the folder's files belong together, so that other files get a warning.
      hub_handle: the hub module that the folder is in.
    """

    folder: str | None = None
    is_complete: bool = False
    hub_handle: str | None = None

    def config(self, path: str | None) -> str | None:
        """Returns the configuration that is given, else the folder's."""
        explicit = self._existing(_CONFIG, path)
        config_file = self._choose(_CONFIG, explicit, _CONFIG_NAMES)
        if config_file and self.folder and not explicit:
            _check_recorded_config(self.folder, config_file)
        return config_file

    def vocabulary(self, given: Given) -> tuple[str | None, str | None]:
        """Returns both; the SentencePiece model comes first unless only the other is given."""
        spm_model_file, vocab_file = given.spm_model_file, given.vocab_file
        if not spm_model_file:
            vocab_file = self._existing(_VOCAB, vocab_file)
        if spm_model_file or not vocab_file:
            spm_model_file = self._choose(
                _SPM, self._existing(_SPM, spm_model_file), ending=".model"
            )
        if not spm_model_file:
            vocab_file = self._choose(_VOCAB, self._existing(_VOCAB, vocab_file), VOCAB_NAMES)
        if not (spm_model_file or vocab_file):
            fast = self._choose(_VOCAB, None, (huggingface_tokenizer.FAST_NAME,))
            if fast and huggingface_tokenizer.holds_wordpiece(fast):
                vocab_file = fast
            elif fast:
                spm_model_file = huggingface_tokenizer.sentencepiece_model(fast)
        return spm_model_file, vocab_file

    def _existing(self, setting: str, path: str | None) -> str | None:
        """Returns the file that is given; None if it stands for the hub module's file.

        Commands for hub modules were written for a program that never opens a separate vocabulary.
        """
        if setting != _CONFIG and path:
            pattern = published.SPM_PATTERN if setting == _SPM else published.VOCAB_PATTERN
            path = published.vocabulary(path, pattern)
        if not path or (path != wordpiece.HUB_WORD and file_io.exists(path)):
            return path
        if path != wordpiece.HUB_WORD and (not self.hub_handle or setting == _CONFIG):
            raise file_io.InputError(f"{setting}: the file {path} does not exist")
        logging.warning("%s=%s does not exist; using the hub module's file", setting, path)
        return None

    def _choose(
        self, setting: str, path: str | None, names: Sequence[str] = (), ending: str = ""
    ) -> str | None:
        """Returns the file that is given, else the matching file in the folder.

        Args:
          setting: that names the file, for messages.
          names: possible names of the file, in order of preference.
          ending: if no name matches, the only file with this ending is used.
        """
        folder = self.folder or ""
        there = file_io.listdir(folder) if folder and file_io.is_dir(folder) else []
        there = [name for name in there if not name.startswith(".")]  # Archives of macOS have such.
        matches = [name for name in names if name in there][:1]
        matches = matches or [name for name in there if ending and name.endswith(ending)]
        paths = [os.path.join(folder, name) for name in matches]
        if path:
            if self.is_complete and len(paths) == 1:
                _warn_of_difference(setting, path, paths[0])
            return path
        if len(matches) > 1:
            raise file_io.InputError(
                f"{folder} has several {ending} files {matches}; choose one with {setting}"
            )
        return paths[0] if paths else None

    def error_without(self, missing: list[str]) -> file_io.InputError:
        """Returns the error for settings that are neither given nor found; says where to look."""
        message = f"{' and '.join(missing)} must be given"
        if self.hub_handle:
            return file_io.InputError(
                f"{message}: the hub module {self.hub_handle} has none in its assets "
                f"({self.folder})"
            )
        if self.folder is None:
            return file_io.InputError(
                f"{message}: for a new model, take a file of configs/ and a vocabulary made by "
                "train_vocab; with init_checkpoint they come from its folder"
            )
        there = file_io.listdir(self.folder)
        if "tokenizer.json" in there and not any(name.endswith(".model") for name in there):
            return file_io.InputError(
                f"{message}: {self.folder} has a tokenizer.json, but no spiece.model or "
                "vocab.txt, and only WordPiece, Unigram and BPE are read from it. "
                "Look for it in the folder of the model that this model was fine-tuned from"
            )
        others = [name for name in there if name.endswith(".json") and "config" in name]
        hint = f", but {tables.name_list(others)}" if _CONFIG in missing and others else ""
        return file_io.InputError(
            f"{message}: there is none next to the weights in {self.folder}{hint}"
        )


def locate(
    given: Given = NOTHING,
    checkpoint: str | None = None,
    hub_handle: str | None = None,
    needs_vocabulary: bool = True,
) -> Source:
    """Finds a model's files; missing ones come from the hub module or the checkpoint's folder.

    Args:
      given: takes precedence.
      checkpoint: weights in any form that `checkpoints.resolve` accepts.
      hub_handle: hub module with the weights, see `hub_modules.resolve`.
    """
    rules = None
    if hub_handle:
        module = hub_modules.resolve(hub_handle)
        checkpoint = _resolve(module)
        place = _Place(os.path.join(module, "assets"), True, hub_handle)
        rules = _chosen_rules(text_rules.TextRules(hub_modules.lower_case(module)), given.rules)
    else:
        check_no_hub_word(given.config_file, given.spm_model_file, given.vocab_file)
        place = _Place()
        if checkpoint:
            checkpoint = find_checkpoint(checkpoint)
            folder = os.path.dirname(checkpoint) or "."
            place = _Place(folder, _has_description(folder, checkpoint))
    config_file = place.config(given.config_file)
    spm_model_file, vocab_file = place.vocabulary(given)
    vocabulary = spm_model_file or vocab_file
    missing = [] if config_file else [_CONFIG]
    if needs_vocabulary and not vocabulary:
        missing.append(f"{_SPM} or {_VOCAB}")
    if not config_file or missing:
        raise place.error_without(missing)
    rules = rules or rules_beside(checkpoint or vocabulary, given.rules)
    return Source(config_file, checkpoint, spm_model_file, vocab_file, rules)


def locate_model(path: str) -> Source:
    """Finds the files of a model by one path or name; see `locate`.

    Args:
      path: a complete folder, a checkpoint in such a folder, a hub module, or the name of a
        published model.
    """
    from albert.model import saved_model_files

    path = published.local_path(path)
    is_module = file_io.exists(saved_model_files.path_of(path))
    return locate(hub_handle=path) if is_module else locate(checkpoint=path)


def find_checkpoint(path: str) -> str:
    """Returns the weights at the path of init_checkpoint; see `checkpoints.resolve`."""
    if conversion := huggingface.conversion_of(path):
        raise file_io.InputError(f"init_checkpoint={path} cannot be read; {conversion}")
    return _resolve(path)


def _resolve(checkpoint: str) -> str:
    from albert.model import checkpoints  # imports TensorFlow, which only weights need

    return checkpoints.resolve(checkpoint)


def _has_description(folder: str, checkpoint: str) -> bool:
    """Returns whether the files of a folder belong together; rejects other architectures."""
    if huggingface.is_weights_file(checkpoint):
        huggingface.read_config(folder)
        return True
    return file_io.exists(os.path.join(folder, DESCRIPTION_NAME))


def rules_beside(path: str | None, rules: Mapping[str, Any] | None = None) -> text_rules.TextRules:
    """Reads how texts become pieces in the folder of a file, such as weights or a vocabulary.

    The folders of this package record it, and Hugging Face folders have files of the tokenizer. In
    others the name of the configuration says who numbers the lines of ``vocab.txt``. For `rules`
    see `Given`.
    """
    theirs = text_rules.TextRules()
    if path:
        theirs = _rules_in(os.path.dirname(path) or ".")
    return _chosen_rules(theirs, rules or {})


def _rules_in(folder: str) -> text_rules.TextRules:
    for name in (DESCRIPTION_NAME, RULES_NAME):
        path = os.path.join(folder, name)
        if file_io.exists(path):
            return text_rules.from_json(file_io.read_json(path, "model description", dict), path)
    names = file_io.listdir(folder) if file_io.is_dir(folder) else []
    config = next((name for name in _CONFIG_NAMES if name in names), CONFIG_NAME)
    rules = text_rules.TextRules(ids_by_line=config != CONFIG_NAME)
    if config == huggingface.CONFIG_NAME or not huggingface_tokenizer.FILES.isdisjoint(names):
        rules = rules.changed(huggingface_tokenizer.read_rules(folder))
        if rules.extra_pieces:
            huggingface_tokenizer.check_ids(folder, rules, vocabularies_in(folder))
    return rules


def _chosen_rules(theirs: text_rules.TextRules, ours: Mapping[str, Any]) -> text_rules.TextRules:
    """Returns the rules of a model with those that the user set; warns where they differ."""
    for name, value in ours.items():
        there = getattr(theirs, name)
        if name != "extra_pieces" and value is not None and there not in (value, None):
            logging.warning("using %s=%s, although the model has %s", name, value, there)
    return theirs.changed(ours)


def _check_recorded_config(folder: str, config_file: str) -> None:
    """Checks the configuration in a fine-tuned model's folder; other folders lack a description."""
    path = os.path.join(folder, DESCRIPTION_NAME)
    if file_io.exists(path):
        description = file_io.read_json(path, "model description", dict)
        config = configuration.AlbertConfig.from_json_file(config_file)
        check_config(config_file, config, description, path)


def check_config(
    config_file: str, config: configuration.AlbertConfig, description: dict[str, Any], path: str
) -> None:
    """Rejects a configuration that changed since training even if the weights still fit it.

    The numbers of layers and heads and the activation, for example, do not affect the shapes of the
    variables.

    `description` is that of a model folder, which messages call `path`.
    """
    if RECORDED_CONFIG not in description:  # an older one
        return
    theirs = description[RECORDED_CONFIG]
    if not isinstance(theirs, dict):
        raise file_io.InputError(f"{path}: {RECORDED_CONFIG} is {theirs!r}, not an object")
    theirs, ours = ({**configuration.OWN_KEYS, **values} for values in (theirs, config.to_dict()))
    differing = [
        f"{name} {ours.get(name)} (there {value})"
        for name, value in sorted(theirs.items())
        # Only training depends on the other values.
        if ours.get(name) != value
        and not name.endswith("dropout_prob")
        and name not in configuration.INITIAL_KEYS
    ]
    if differing:
        raise file_io.InputError(
            f"{config_file} is not the configuration that {path} recorded in training: "
            f"{', '.join(differing)}; put these values back"
        )


def check_no_hub_word(
    config_file: str | None, spm_model_file: str | None, vocab_file: str | None
) -> None:
    """Rejects "from_tf_hub" as the name of a file if there is no hub module."""
    wordpiece.check_no_hub_word(_CONFIG, config_file)
    wordpiece.check_no_hub_word(_SPM, spm_model_file)
    wordpiece.check_no_hub_word(_VOCAB, vocab_file)


def _warn_of_difference(setting: str, own_path: str, model_path: str) -> None:
    """Warns if a given file differs from the one that comes with the model."""
    if not model_path.endswith(".json"):
        if file_io.sha256(own_path) != file_io.sha256(model_path):
            logging.warning(
                "using %s=%s, although the model comes with another file, %s",
                setting,
                own_path,
                model_path,
            )
        return
    ours, theirs = (
        configuration.AlbertConfig.from_json_file(path).to_dict() for path in (own_path, model_path)
    )
    differing = [
        f"{key} {ours.get(key)} (there {theirs.get(key)})"
        for key in {**ours, **theirs}
        if ours.get(key) != theirs.get(key)
    ]
    if differing:
        logging.warning(
            "using %s=%s, which differs from the model's %s: %s",
            setting,
            own_path,
            model_path,
            ", ".join(differing),
        )


def files_beside(checkpoint: str) -> list[str]:
    """Lists the existing files of a model in a checkpoint's folder.

    These are its configuration, vocabulary and description, and the threshold of questions without
    an answer.
    """
    folder = os.path.dirname(checkpoint) or "."
    descriptions = (PRETRAINING_NAME, DESCRIPTION_NAME, LABELS_NAME, THRESHOLD_NAME)
    vocabularies = vocabularies_in(folder)
    names = {*_CONFIG_NAMES, *descriptions, *map(os.path.basename, vocabularies)}
    there = [
        os.path.join(folder, name)
        for name in file_io.listdir(folder)
        if name in names or name.endswith(".vocab")
    ]
    return list(dict.fromkeys([*there, *vocabularies]))


def vocabularies_in(folder: str) -> list[str]:
    """Lists the vocabularies in a model's folder: SentencePiece models, WordPiece files.

    Without any it may be the one in ``tokenizer.json``, or a SentencePiece model that is made of it
    in another folder.
    """
    names = file_io.listdir(folder)
    vocabularies = [name for name in names if name.endswith(".model") or name in VOCAB_NAMES]
    fast = os.path.join(folder, huggingface_tokenizer.FAST_NAME)
    if not vocabularies and file_io.exists(fast):
        if huggingface_tokenizer.holds_wordpiece(fast):
            return [fast]
        made = huggingface_tokenizer.sentencepiece_model(fast)
        return [made] if made else []
    return [os.path.join(folder, name) for name in vocabularies]


def check_weights(source: Source, from_scratch: bool) -> None:
    """Rejects a model without a checkpoint, unless random weights were requested."""
    if not (source.checkpoint or from_scratch):
        raise file_io.InputError(
            "no weights: give init_checkpoint or albert_hub_module_handle, or from_scratch for "
            "random weights"
        )
