"""Finds a model to start from: weights, configuration and vocabulary, from flags or hub modules."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from albert.io import archives, file_io, tables
from albert.model import configuration, huggingface, huggingface_tokenizer, published
from albert.text import text_rules, wordpiece

CONFIG_NAME = "albert_config.json"
BERT_CONFIG_NAME = "bert_config.json"  # in google-research/bert
VOCAB_NAME = "vocab.txt"  # in WordPiece models
VOCAB_NAMES = (VOCAB_NAME, "vocab_chinese.txt")  # the second in published Chinese models
DESCRIPTION_NAME = "model.json"  # in fine-tuned models
LABELS_NAME = "labels.json"  # in fine-tuned models with labels
RECORDED_CONFIG = "config"  # entry of the description: the configuration at training
PRETRAINING_NAME = "pretraining.json"  # description of pre-trained models
RULES_NAME = "text_rules.json"  # how texts become pieces, in models without DESCRIPTION_NAME
CONFIG_FLAG, SPM_FLAG, VOCAB_FLAG = "albert_config_file", "spm_model_file", "vocab_file"


@dataclasses.dataclass(frozen=True)
class Source:
    """The files of a model; None for a missing file.

    Attributes:
      config_file: JSON of the model's sizes.
      checkpoint: prefix of the weights, or a file of Hugging Face weights.
      spm_model_file: SentencePiece model.
      vocab_file: WordPiece vocabulary (next to a SentencePiece model: its list of pieces, unused).
      rules: how its texts become pieces.
    """

    config_file: str
    checkpoint: str | None
    spm_model_file: str | None
    vocab_file: str | None
    rules: text_rules.TextRules = text_rules.TextRules()


def locate(
    config_file: str | None = None,
    checkpoint: str | None = None,
    hub_handle: str | None = None,
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    rules: Mapping[str, Any] | None = None,
    from_scratch: bool = False,
    needs_vocabulary: bool = True,
) -> Source:
    """Finds a model's files; missing ones come from the hub module or the checkpoint's folder.

    Args:
      config_file, spm_model_file, vocab_file: explicit paths. They take precedence, with a warning
        if a hub module or Hugging Face folder contains a different file. With a hub module,
        "from_tf_hub" or a missing vocabulary means the module's own file, with a warning. For a
        vocabulary also the folder or the published name of a model, see `published.vocabulary`.
      checkpoint: weights in any form that `checkpoints.resolve` accepts.
      hub_handle: hub module: local folder, ``.tar.gz`` file or URL.
      rules: values of `text_rules.TextRules` that the user set, by name; they take precedence over
        those of the model, with a warning.
      from_scratch: start without weights.
      needs_vocabulary: whether a missing vocabulary is an error.

    Returns:
      `Source`.

    Raises:
      file_io.InputError: sources contradict each other or are missing; names the flags.
    """
    _check_contradictions(checkpoint, hub_handle, from_scratch)
    if not hub_handle:
        check_no_hub_word(config_file, spm_model_file, vocab_file)
    folder, complete, hub_rules = None, False, text_rules.TextRules()
    if hub_handle:
        module = resolve_hub(hub_handle)
        checkpoint, folder, complete = _resolve(module), os.path.join(module, "assets"), True
        hub_rules = text_rules.TextRules(_hub_lower_case(module))
    elif checkpoint:
        checkpoint = find_checkpoint(checkpoint)
        folder = os.path.dirname(checkpoint) or "."
        complete = _has_description(folder, checkpoint)
    choose = functools.partial(_choose, folder, complete)
    names = (CONFIG_NAME, BERT_CONFIG_NAME, huggingface.CONFIG_NAME)
    explicit_file = _existing(CONFIG_FLAG, config_file, hub_handle)
    config_file = choose(CONFIG_FLAG, explicit_file, names)
    if config_file and not explicit_file:
        _check_recorded_config(folder, config_file)
    existing = functools.partial(_existing, hub_handle=hub_handle)
    spm_model_file, vocab_file = _vocabulary(choose, existing, spm_model_file, vocab_file)
    missing = [] if config_file else [CONFIG_FLAG]
    if needs_vocabulary and not (spm_model_file or vocab_file):
        missing.append(f"{SPM_FLAG} or {VOCAB_FLAG}")
    if missing:
        raise file_io.InputError(_missing_message(missing, folder, hub_handle))
    if hub_handle:
        chosen = _chosen_rules(hub_rules, rules or {})
    else:
        chosen = rules_beside(checkpoint or spm_model_file or vocab_file, rules)
    return Source(config_file, checkpoint, spm_model_file, vocab_file, chosen)


def find_checkpoint(path: str) -> str:
    """Returns the weights at the path of init_checkpoint; see `checkpoints.resolve`.

    Raises:
      file_io.InputError: there are none, or they have the format of another program.
    """
    if conversion := huggingface.conversion_of(path):
        raise file_io.InputError(f"init_checkpoint={path} cannot be read; {conversion}")
    return _resolve(path)


def _resolve(checkpoint):
    from albert.model import checkpoints  # imports TensorFlow, which only weights need

    return checkpoints.resolve(checkpoint)


def _vocabulary(choose, existing, spm_model_file, vocab_file):
    """Returns both files; the SentencePiece model comes first unless only `vocab_file` is given."""
    if not spm_model_file:
        vocab_file = existing(VOCAB_FLAG, vocab_file)
    if spm_model_file or not vocab_file:
        spm_model_file = choose(SPM_FLAG, existing(SPM_FLAG, spm_model_file), (), ".model")
    if not spm_model_file:
        vocab_file = choose(VOCAB_FLAG, existing(VOCAB_FLAG, vocab_file), VOCAB_NAMES)
    if not (spm_model_file or vocab_file):
        vocab_file = choose(VOCAB_FLAG, None, (huggingface_tokenizer.FAST_NAME,))
        if vocab_file and not huggingface_tokenizer.holds_wordpiece(vocab_file):
            vocab_file = None
    return spm_model_file, vocab_file


def _has_description(folder, checkpoint):
    """Returns whether the files of a folder belong together; rejects other architectures."""
    if huggingface.is_weights_file(checkpoint):
        huggingface.read_config(folder)
        return True
    return file_io.exists(os.path.join(folder, DESCRIPTION_NAME))


def rules_beside(path: str | None, rules: Mapping[str, Any] | None = None) -> text_rules.TextRules:
    """Reads how texts become pieces in the folder of a file, such as weights or a vocabulary.

    The folders of this package record it, and Hugging Face folders have files of the tokenizer. In
    others the name of the configuration says who numbers the lines of ``vocab.txt``.

    Args:
      path: the file; None if there is none.
      rules: see `locate`.

    Raises:
      file_io.InputError: a file is damaged, or asks for what this package does not do.
    """
    theirs = text_rules.TextRules()
    if path:
        theirs = _rules_in(os.path.dirname(path) or ".")
    return _chosen_rules(theirs, rules or {})


def _rules_in(folder):
    for name in (DESCRIPTION_NAME, RULES_NAME):
        path = os.path.join(folder, name)
        if file_io.exists(path):
            return text_rules.from_json(file_io.read_json(path, "model description", dict), path)
    names = file_io.listdir(folder) if file_io.is_dir(folder) else []
    configs = [CONFIG_NAME, BERT_CONFIG_NAME, huggingface.CONFIG_NAME]
    config = next((name for name in configs if name in names), CONFIG_NAME)
    rules = text_rules.TextRules(ids_by_line=config != CONFIG_NAME)
    if not huggingface_tokenizer.FILES.isdisjoint(names):
        rules = rules.changed(huggingface_tokenizer.read_rules(folder))
        if rules.extra_pieces:
            huggingface_tokenizer.check_ids(folder, rules, vocabularies_in(folder))
    return rules


def _chosen_rules(theirs, ours):
    """Returns the rules of a model with those that the user set; warns where they differ."""
    for name, value in ours.items():
        there = getattr(theirs, name)
        if name != "extra_pieces" and value is not None and there not in (value, None):
            logging.warning("using %s=%s, although the model has %s", name, value, there)
    return theirs.changed(ours)


def _check_recorded_config(folder, config_file):
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

    Args:
      config_file: its path.
      config: `configuration.AlbertConfig`.
      description: dict of the folder's description; older ones hold no configuration.
      path: path of the description.

    Raises:
      file_io.InputError: values differ; names them.
    """
    if RECORDED_CONFIG not in description:
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


def _check_contradictions(checkpoint, hub_handle, from_scratch):
    if checkpoint and hub_handle:
        raise file_io.InputError(
            "init_checkpoint and albert_hub_module_handle both give weights; give only one"
        )
    if from_scratch and (checkpoint or hub_handle):
        raise file_io.InputError(
            "from_scratch contradicts init_checkpoint and albert_hub_module_handle"
        )


def check_no_hub_word(
    config_file: str | None, spm_model_file: str | None, vocab_file: str | None
) -> None:
    """Rejects "from_tf_hub" as the name of a file if there is no hub module.

    Raises:
      file_io.InputError: names the flag.
    """
    wordpiece.check_no_hub_word(CONFIG_FLAG, config_file)
    wordpiece.check_no_hub_word(SPM_FLAG, spm_model_file)
    wordpiece.check_no_hub_word(VOCAB_FLAG, vocab_file)


def _existing(flag, path, hub_handle):
    """Returns the file given by a flag; None if the flag stands for the hub module's file.

    Commands for hub modules were written for a program that never opens a separate vocabulary.

    Raises:
      file_io.InputError: the file does not exist; names the flag.
    """
    if flag != CONFIG_FLAG and path:
        pattern = published.SPM_PATTERN if flag == SPM_FLAG else published.VOCAB_PATTERN
        path = published.vocabulary(path, pattern)
    if not path or (path != wordpiece.HUB_WORD and file_io.exists(path)):
        return path
    if path != wordpiece.HUB_WORD and (not hub_handle or flag == CONFIG_FLAG):
        raise file_io.InputError(f"{flag}: the file {path} does not exist")
    logging.warning("%s=%s does not exist; using the hub module's file", flag, path)
    return None


def _choose(folder, complete, flag, path, names, ending=None):
    """Returns a flag's path, else the matching file in the folder; None if there is neither.

    Args:
      folder: where to look, or None.
      complete: whether the folder's files belong together, so that a different file gets a warning.
      flag: name of the flag, for messages.
      path: the flag's value, or None.
      names: possible names of the file, in order of preference.
      ending: if no name matches, the only file with this ending is used.
    """
    there = file_io.listdir(folder) if folder and file_io.is_dir(folder) else []
    there = [name for name in there if not name.startswith(".")]  # Archives of macOS have such.
    matches = [name for name in names if name in there][:1]
    matches = matches or [name for name in there if ending and name.endswith(ending)]
    paths = [os.path.join(folder, name) for name in matches]
    if path:
        if complete and len(paths) == 1:
            _warn_of_difference(flag, path, paths[0])
        return path
    if len(matches) > 1:
        raise file_io.InputError(
            f"{folder} has several {ending} files {matches}; choose one with {flag}"
        )
    return paths[0] if paths else None


def _warn_of_difference(flag, own_path, model_path):
    """Warns if a flag's file differs from the one that comes with the model."""
    if not model_path.endswith(".json"):
        if file_io.sha256(own_path) != file_io.sha256(model_path):
            logging.warning(
                "using %s=%s, although the model comes with another file, %s",
                flag,
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
            flag,
            own_path,
            model_path,
            ", ".join(differing),
        )


def _missing_message(flags, folder, hub_handle):
    """Returns the error message for files that are neither given nor found."""
    message = f"{' and '.join(flags)} must be given"
    if hub_handle:
        return f"{message}: the hub module {hub_handle} has none in its assets ({folder})"
    if folder is None:
        return (
            f"{message}: for a new model, take a file of configs/ and a vocabulary made by "
            "train_vocab; with init_checkpoint they come from its folder"
        )
    there = file_io.listdir(folder)
    if "tokenizer.json" in there and not any(name.endswith(".model") for name in there):
        return (
            f"{message}: {folder} has a tokenizer.json, but no spiece.model or "
            "vocab.txt, and only WordPiece is read from it. "
            "Look for it in the folder of the model that this model was fine-tuned from"
        )
    others = [name for name in there if name.endswith(".json") and "config" in name]
    hint = f", but {tables.name_list(others)}" if CONFIG_FLAG in flags and others else ""
    return f"{message}: there is none next to the weights in {folder}{hint}"


def files_beside(checkpoint: str) -> list[str]:
    """Lists the existing files of a model in a checkpoint's folder.

    These are its configuration, vocabulary and description.
    """
    folder = os.path.dirname(checkpoint) or "."
    configs = (CONFIG_NAME, BERT_CONFIG_NAME, huggingface.CONFIG_NAME)
    descriptions = (PRETRAINING_NAME, DESCRIPTION_NAME, LABELS_NAME)
    names = {*configs, *descriptions, *map(os.path.basename, vocabularies_in(folder))}
    return [
        os.path.join(folder, name)
        for name in file_io.listdir(folder)
        if name in names or name.endswith(".vocab")
    ]


def vocabularies_in(folder: str) -> list[str]:
    """Lists the vocabularies in a model's folder: SentencePiece models, WordPiece files.

    Without any it may be the one in ``tokenizer.json``.
    """
    names = file_io.listdir(folder)
    found = [name for name in names if name.endswith(".model") or name in VOCAB_NAMES]
    fast = os.path.join(folder, huggingface_tokenizer.FAST_NAME)
    if not found and file_io.exists(fast) and huggingface_tokenizer.holds_wordpiece(fast):
        return [fast]
    return [os.path.join(folder, name) for name in found]


def resolve_hub(handle: str) -> str:
    """Returns the local folder of a hub module.

    Args:
      handle: local folder, local ``.tar.gz`` file (unpacked into `published.cache_dir`, once), or
        URL that `tensorflow_hub.resolve` can fetch.

    Raises:
      file_io.InputError: there is no module, the archive is damaged, or tensorflow-hub is not
        installed.
    """
    from albert.model import checkpoints

    if file_io.is_dir(handle):
        folder = handle
    elif "://" in handle:
        folder = _fetch(handle)
    elif archives.is_archive(handle) and file_io.exists(handle):
        folder = archives.unpack_archive(handle, published.cache_dir())
    else:
        raise file_io.InputError(
            f"albert_hub_module_handle: the folder or .tar.gz file {handle} does not exist"
        )
    if not checkpoints.prefix_exists(os.path.join(folder, "variables", "variables")):
        raise file_io.InputError(
            f"{handle} is not a hub module: {folder} has no variables/variables.index"
        )
    return folder


def _fetch(handle):
    """Downloads the module at a URL and returns its local folder."""
    try:
        import tensorflow_hub
    except ImportError as error:
        raise file_io.InputError(
            f"albert_hub_module_handle={handle} is a URL, which needs tensorflow-hub: "
            f"pip install tensorflow-hub 'setuptools<82' ({error}); a folder or a .tar.gz file "
            "does not need it"
        ) from error
    try:
        return tensorflow_hub.resolve(handle)
    except Exception as error:  # tensorflow_hub passes on any error of its downloader
        raise file_io.InputError(f"cannot fetch the hub module {handle}: {error}") from error


def _hub_lower_case(module):
    """Returns do_lower_case from the module's ``tokenization_info``; None if it is missing."""
    from albert.model import saved_model_files

    for graph in saved_model_files.read_graphs(module):
        tags = list(graph.meta_info_def.tags)
        if "tokenization_info" in graph.signature_def and "train" not in tags:
            output = graph.signature_def["tokenization_info"].outputs["do_lower_case"].name
            try:
                value = saved_model_files.constant(graph.graph_def, output)
                return None if value is None else bool(value)
            except (ValueError, TypeError) as error:  # not an array, or several values
                path = saved_model_files.path_of(module)
                raise file_io.InputError(f"{path} is damaged: do_lower_case: {error}") from error
    return None


def check_weights(source: Source, from_scratch: bool) -> None:
    """Rejects a model without weights.

    Raises:
      file_io.InputError: there is no checkpoint, and random weights were not requested.
    """
    if not (source.checkpoint or from_scratch):
        raise file_io.InputError(
            "no weights: give init_checkpoint or albert_hub_module_handle, or from_scratch for "
            "random weights"
        )
