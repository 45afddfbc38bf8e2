"""Finds a model to start from: weights, configuration and vocabulary, from flags or hub modules."""

import dataclasses
import os

from absl import logging

from albert import checkpoints, file_io

CONFIG_NAME = "albert_config.json"


@dataclasses.dataclass(frozen=True)
class Source:
    """Files of a model; None where there is none.

    Attributes:
      config_file: JSON of the model's sizes.
      checkpoint: prefix of the weights.
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
    do_lower_case=True,
    from_scratch=False,
):
    """Fills what was not given from the hub module or the checkpoint's folder.

    Args:
      config_file, spm_model_file, vocab_file: explicit paths; they win.
      checkpoint: weights in any form that `checkpoints.resolve` takes.
      hub_handle: local folder or URL of a hub module.
      do_lower_case: used unless the hub module says otherwise.
      from_scratch: no weights are wanted.

    Returns:
      `Source`.

    Raises:
      file_io.InputError: contradictory or missing sources; names the flags.
    """
    if checkpoint and hub_handle:
        raise file_io.InputError(
            "--init_checkpoint and --albert_hub_module_handle both name weights; give one"
        )
    if from_scratch and (checkpoint or hub_handle):
        raise file_io.InputError(
            "--from_scratch contradicts --init_checkpoint and --albert_hub_module_handle"
        )
    folder = None
    if hub_handle:
        module = resolve_hub(hub_handle)
        checkpoint = checkpoints.resolve(module)
        folder = os.path.join(module, "assets")
        do_lower_case = _hub_lower_case(module, do_lower_case)
    elif checkpoint:
        checkpoint = checkpoints.resolve(checkpoint)
        folder = os.path.dirname(checkpoint) or "."
    config_file = config_file or _only(folder, ("albert_config.json", "config.json"), "")
    if not config_file:
        raise file_io.InputError(
            "--albert_config_file must be given: there is none beside the weights"
            + (f" in {folder}" if folder else "")
        )
    if not spm_model_file and not vocab_file:
        spm_model_file = _only(folder, (), ".model")
        vocab_file = None if spm_model_file else _only(folder, ("vocab.txt",), "")
    return Source(config_file, checkpoint, spm_model_file, vocab_file, do_lower_case)


def _only(folder, names, ending):
    """The file of a folder with one of these names, or the only one with that ending."""
    if folder is None or not file_io.is_dir(folder):
        return None
    there = file_io.listdir(folder)
    found = [name for name in names if name in there]
    if not found and ending:
        found = [name for name in there if name.endswith(ending)]
        if len(found) > 1:
            raise file_io.InputError(f"{folder} has several {ending} files {found}: name one")
    return os.path.join(folder, found[0]) if found else None


def resolve_hub(handle):
    """Local folder of a hub module.

    Args:
      handle: local folder, or URL that `tensorflow_hub.resolve` can fetch.

    Raises:
      file_io.InputError: no module there, or tensorflow-hub is not installed.
    """
    if file_io.is_dir(handle):
        folder = handle
    elif "://" not in handle:
        raise file_io.InputError(f"--albert_hub_module_handle: there is no folder {handle}")
    else:
        try:
            import tensorflow_hub
        except ImportError as error:
            raise file_io.InputError(
                f"--albert_hub_module_handle={handle} needs the package tensorflow-hub: {error}"
            ) from error
        try:
            folder = tensorflow_hub.resolve(handle)
        except Exception as error:  # tensorflow_hub lets through whatever its downloader raises
            raise file_io.InputError(f"cannot fetch the hub module {handle}: {error}") from error
    if not checkpoints.prefix_exists(os.path.join(folder, "variables", "variables")):
        raise file_io.InputError(
            f"{handle} is not a hub module: {folder} has no variables/variables.index"
        )
    return folder


def _hub_lower_case(module, flag):
    """do_lower_case of the module's ``tokenization_info``; `flag` if it does not say."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    with file_io.open_file(os.path.join(module, "saved_model.pb"), "rb") as file:
        saved_model = saved_model_pb2.SavedModel.FromString(file.read())
    for graph in saved_model.meta_graphs:
        tags = list(graph.meta_info_def.tags)
        if "tokenization_info" in graph.signature_def and "train" not in tags:
            loaded = tf.saved_model.load(module, tags=tags)
            stated = bool(loaded.signatures["tokenization_info"]()["do_lower_case"])
            if stated != flag:
                logging.warning(
                    "The hub module says do_lower_case=%s; --do_lower_case=%s is not used",
                    stated,
                    flag,
                )
            return stated
    return flag
