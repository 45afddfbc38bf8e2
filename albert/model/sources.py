"""Finds a model to start from: weights, configuration and vocabulary, from flags or hub modules."""

import dataclasses
import functools
import os

from absl import logging

from albert.io import archives, file_io
from albert.model import checkpoints, encoder, huggingface, saved_model_files
from albert.text import wordpiece

CONFIG_NAME = "albert_config.json"
BERT_CONFIG_NAME = "bert_config.json"  # of google-research/bert
VOCAB_NAME = "vocab.txt"  # of WordPiece models
DESCRIPTION_NAME = "model.json"  # of fine-tuned models
RECORDED_CONFIG = "config"  # entry of the description: what the model was trained with
PRETRAINING_NAME = "pretraining.json"  # description of pre-trained models
CONFIG_FLAG, SPM_FLAG, VOCAB_FLAG = "albert_config_file", "spm_model_file", "vocab_file"
# The environment variable with tensorflow-hub's folder for what it fetches.
_CACHE_VARIABLE = "TFHUB_CACHE_DIR"


@dataclasses.dataclass(frozen=True)
class Source:
    """Files of a model; None where there is none.

    Attributes:
      config_file: JSON of the model's sizes.
      checkpoint: prefix of the weights, or file of Hugging Face weights.
      spm_model_file: SentencePiece model.
      vocab_file: WordPiece vocabulary (or list of pieces, unused, beside a SentencePiece model).
      do_lower_case: whether the text is lower-cased.
    """

    config_file: str
    checkpoint: str | None
    spm_model_file: str | None
    vocab_file: str | None
    do_lower_case: bool


def locate(
    config_file=None,
    checkpoint=None,
    hub_handle=None,
    spm_model_file=None,
    vocab_file=None,
    do_lower_case=None,
    from_scratch=False,
    needs_vocabulary=True,
):
    """Fills what was not given from the hub module or the checkpoint's folder.

    Args:
      config_file, spm_model_file, vocab_file: explicit paths; they win, with a warning where a hub
        module or Hugging Face folder brings another file. With a hub module "from_tf_hub" means
        the module's own, and so does a vocabulary that is not there; a warning says so.
      checkpoint: weights in any form that `checkpoints.resolve` takes.
      hub_handle: hub module: local folder, ``.tar.gz`` file or URL.
      do_lower_case: True or False if the user said so; None takes what the module says, else True.
      from_scratch: no weights are wanted.
      needs_vocabulary: whether to look for a vocabulary.

    Returns:
      `Source`.

    Raises:
      file_io.InputError: contradictory or missing sources; names the flags.
    """
    _check_contradictions(checkpoint, hub_handle, from_scratch)
    if not hub_handle:
        refuse_hub_word(config_file, spm_model_file, vocab_file)
    folder, lower_case, complete = None, None, False
    if hub_handle:
        module = resolve_hub(hub_handle)
        checkpoint, folder = checkpoints.resolve(module), os.path.join(module, "assets")
        lower_case, complete = _hub_lower_case(module), True
    elif checkpoint:
        checkpoint = checkpoints.resolve(checkpoint)
        folder = os.path.dirname(checkpoint) or "."
        lower_case, complete = _read_folder_settings(folder, checkpoint)
    choose = functools.partial(_choose, folder, complete)
    names = (CONFIG_NAME, BERT_CONFIG_NAME, huggingface.CONFIG_NAME)
    given = _existing(CONFIG_FLAG, config_file, hub_handle)
    config_file = choose(CONFIG_FLAG, given, names)
    if config_file and not given:
        _check_config_beside(folder, config_file)
    if needs_vocabulary:
        existing = functools.partial(_existing, hub_handle=hub_handle)
        spm_model_file, vocab_file = _vocabulary(choose, existing, spm_model_file, vocab_file)
    missing = [] if config_file else [CONFIG_FLAG]
    if needs_vocabulary and not (spm_model_file or vocab_file):
        missing.append(f"{SPM_FLAG} or {VOCAB_FLAG}")
    if missing:
        raise file_io.InputError(_missing_message(missing, folder, hub_handle))
    if None not in (do_lower_case, lower_case) and do_lower_case != lower_case:
        logging.warning(
            "do_lower_case=%s is used, but the model says %s", do_lower_case, lower_case
        )
    stated = [value for value in (do_lower_case, lower_case, True) if value is not None]
    return Source(config_file, checkpoint, spm_model_file, vocab_file, stated[0])


def _vocabulary(choose, existing, spm_model_file, vocab_file):
    """Both files; a SentencePiece model comes first, unless only the other one is given."""
    if not spm_model_file:
        vocab_file = existing(VOCAB_FLAG, vocab_file)
    if spm_model_file or not vocab_file:
        spm_model_file = choose(SPM_FLAG, existing(SPM_FLAG, spm_model_file), (), ".model")
    if not spm_model_file:
        vocab_file = choose(VOCAB_FLAG, existing(VOCAB_FLAG, vocab_file), (VOCAB_NAME,))
    return spm_model_file, vocab_file


def _read_folder_settings(folder, checkpoint):
    """Whether its model's texts are lower-cased (None: unknown); whether its files are a set."""
    if huggingface.is_weights_file(checkpoint):
        huggingface.read_config(folder)  # refuses other architectures
        return huggingface.read_lower_case(folder), True
    path = os.path.join(folder, DESCRIPTION_NAME)
    if not file_io.exists(path):
        return None, False
    description = file_io.read_json(path, "model description")
    return (description.get("do_lower_case") if isinstance(description, dict) else None), True


def _check_config_beside(folder, config_file):
    """Checks the configuration in a fine-tuned model's folder; others have no description."""
    path = os.path.join(folder, DESCRIPTION_NAME)
    if file_io.exists(path):
        description = file_io.read_json(path, "model description", dict)
        config = encoder.AlbertConfig.from_json_file(config_file)
        check_config(config_file, config, description, path)


def check_config(config_file, config, description, path):
    """Refuses a configuration that was changed since training, though the weights still fit it.

    Layers, heads and the activation, for example, have no part in the shapes of the variables.

    Args:
      config_file: its path.
      config: `encoder.AlbertConfig`.
      description: dict of the folder's description; older ones hold no configuration.
      path: of the description.

    Raises:
      file_io.InputError: names what differs.
    """
    if RECORDED_CONFIG not in description:
        return
    recorded = description[RECORDED_CONFIG]
    if not isinstance(recorded, dict):
        raise file_io.InputError(f"{path}: {RECORDED_CONFIG} is {recorded!r}, not an object")
    recorded, found = ({"share": "all", **values} for values in (recorded, config.to_dict()))
    differing = [
        f"{name} {found.get(name)} (there {value})"
        for name, value in sorted(recorded.items())
        # Training alone depends on the others.
        if found.get(name) != value
        and not name.endswith("dropout_prob")
        and name != "initializer_range"
    ]
    if differing:
        raise file_io.InputError(
            f"{config_file} is not the configuration that {path} recorded in training: "
            f"{', '.join(differing)}; put these values back"
        )


def _check_contradictions(checkpoint, hub_handle, from_scratch):
    if checkpoint and hub_handle:
        raise file_io.InputError(
            "init_checkpoint and albert_hub_module_handle both name weights; give one"
        )
    if from_scratch and (checkpoint or hub_handle):
        raise file_io.InputError(
            "from_scratch contradicts init_checkpoint and albert_hub_module_handle"
        )


def refuse_hub_word(config_file, spm_model_file, vocab_file):
    """Refuses "from_tf_hub" as the name of a file, where there is no hub module.

    Raises:
      file_io.InputError: names the flag.
    """
    wordpiece.refuse_hub_word(CONFIG_FLAG, config_file)
    wordpiece.refuse_hub_word(SPM_FLAG, spm_model_file)
    wordpiece.refuse_hub_word(VOCAB_FLAG, vocab_file)


def _existing(flag, given, hub_handle):
    """The file that a flag gives; None where it stands for that of the hub module.

    Commands for hub modules were written for a program that opens no vocabulary beside them.

    Raises:
      file_io.InputError: the file is not there; names the flag.
    """
    if not given or (given != wordpiece.HUB_WORD and file_io.exists(given)):
        return given
    if given != wordpiece.HUB_WORD and (not hub_handle or flag == CONFIG_FLAG):
        raise file_io.InputError(f"{flag}: there is no file {given}")
    logging.warning("%s=%s does not exist; using the hub module's file", flag, given)
    return None


def _choose(folder, complete, flag, given, names, ending=None):
    """The path that a flag gives, else the file in the folder that has its place; None if neither.

    Args:
      folder: where to look, or None.
      complete: the folder's files belong together, so that other ones deserve a warning.
      flag: name of the flag, for messages.
      given: its value, or None.
      names: names that the file may have, in order of preference.
      ending: else the only file with this ending is taken.
    """
    there = file_io.listdir(folder) if folder and file_io.is_dir(folder) else []
    found = [name for name in names if name in there][:1]
    found = found or [name for name in there if ending and name.endswith(ending)]
    paths = [os.path.join(folder, name) for name in found]
    if given:
        if complete and len(paths) == 1:
            _warn_of_difference(flag, given, paths[0])
        return given
    if len(found) > 1:
        raise file_io.InputError(f"{folder} has several {ending} files {found}: name one, {flag}")
    return paths[0] if paths else None


def _warn_of_difference(flag, given, found):
    """Warns where the file of a flag says something else than the one that the model brings."""
    if not found.endswith(".json"):
        if file_io.sha256(given) != file_io.sha256(found):
            logging.warning("%s=%s is used; the model brings another one, %s", flag, given, found)
        return
    ours, theirs = (encoder.AlbertConfig.from_json_file(path).to_dict() for path in (given, found))
    differing = [
        f"{key} {ours.get(key)} (there {theirs.get(key)})"
        for key in {**ours, **theirs}
        if ours.get(key) != theirs.get(key)
    ]
    if differing:
        logging.warning(
            "%s=%s is used; it differs from the model's %s: %s",
            flag,
            given,
            found,
            ", ".join(differing),
        )


def _missing_message(flags, folder, hub_handle):
    """What to say when files are neither given nor found."""
    message = f"{' and '.join(flags)} must be given"
    if hub_handle:
        return f"{message}: the hub module {hub_handle} has none in its assets ({folder})"
    if folder is None:
        return message
    there = file_io.listdir(folder)
    if "tokenizer.json" in there and not any(name.endswith(".model") for name in there):
        return (
            f"{message}: {folder} has a tokenizer.json, but no spiece.model or "
            "vocab.txt. It is in the folder of the model that this one was made from"
        )
    return f"{message}: there is none beside the weights in {folder}"


def files_beside(checkpoint):
    """Paths of what belongs to a pre-trained model in a checkpoint's folder, as far as it is there.

    That is its configuration, vocabulary and description.
    """
    folder = os.path.dirname(checkpoint) or "."
    names = (CONFIG_NAME, BERT_CONFIG_NAME, huggingface.CONFIG_NAME, VOCAB_NAME, PRETRAINING_NAME)
    return [
        os.path.join(folder, name)
        for name in file_io.listdir(folder)
        if name in names or name.endswith((".model", ".vocab"))
    ]


def vocabularies_beside(checkpoint):
    """Paths of the vocabularies in a checkpoint's folder: SentencePiece models, WordPiece files."""
    found = files_beside(checkpoint)
    return [p for p in found if p.endswith(".model") or os.path.basename(p) == VOCAB_NAME]


def cache_dir():
    """Folder for what is unpacked: that of tensorflow-hub where it is set, else one of our own."""
    return os.environ.get(_CACHE_VARIABLE) or os.path.expanduser("~/.cache/albert")


def set_cache_dir(path):
    """Sets `cache_dir` for this process and those that it starts, and tensorflow-hub's own."""
    os.environ[_CACHE_VARIABLE] = path


def resolve_hub(handle):
    """Local folder of a hub module.

    Args:
      handle: local folder, local ``.tar.gz`` file (unpacked into `cache_dir`, once), or URL that
        `tensorflow_hub.resolve` can fetch.

    Raises:
      file_io.InputError: no module there, a damaged archive, or tensorflow-hub is not installed.
    """
    if file_io.is_dir(handle):
        folder = handle
    elif "://" in handle:
        folder = _fetch(handle)
    elif archives.is_archive(handle) and file_io.exists(handle):
        folder = archives.unpack_archive(handle, cache_dir())
    else:
        raise file_io.InputError(
            f"albert_hub_module_handle: there is no folder or .tar.gz file {handle}"
        )
    if not checkpoints.prefix_exists(os.path.join(folder, "variables", "variables")):
        raise file_io.InputError(
            f"{handle} is not a hub module: {folder} has no variables/variables.index"
        )
    return folder


def _fetch(handle):
    """Local folder of what a URL names."""
    try:
        import tensorflow_hub
    except ImportError as error:
        raise file_io.InputError(
            f"albert_hub_module_handle={handle} needs the package tensorflow-hub: {error}"
        ) from error
    try:
        return tensorflow_hub.resolve(handle)
    except Exception as error:  # tensorflow_hub lets through whatever its downloader raises
        raise file_io.InputError(f"cannot fetch the hub module {handle}: {error}") from error


def _hub_lower_case(module):
    """do_lower_case of the module's ``tokenization_info``; None if it does not say."""
    for graph in saved_model_files.read_graphs(module):
        tags = list(graph.meta_info_def.tags)
        if "tokenization_info" in graph.signature_def and "train" not in tags:
            output = graph.signature_def["tokenization_info"].outputs["do_lower_case"].name
            try:
                value = saved_model_files.constant(graph.graph_def, output)
                return None if value is None else bool(value)
            except (ValueError, TypeError) as error:  # no array, or of several values
                path = saved_model_files.path_of(module)
                raise file_io.InputError(f"{path} is damaged: do_lower_case: {error}") from error
    return None


def check_weights(source: Source, from_scratch: bool) -> None:
    """Rejects a model without weights.

    Raises:
      file_io.InputError: nothing names a checkpoint, and random weights were not asked for.
    """
    if not (source.checkpoint or from_scratch):
        raise file_io.InputError(
            "no weights: give init_checkpoint or albert_hub_module_handle, or from_scratch for "
            "random ones"
        )
