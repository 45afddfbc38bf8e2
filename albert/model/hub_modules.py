"""Finds or fetches the folder of a TensorFlow Hub module, and reads its casing."""

import os

from albert.io import archives, file_io, requirements
from albert.model import published


def resolve(handle: str) -> str:
    """Returns the local folder of a hub module.

    Args:
      handle: local folder, local ``.tar.gz`` file (unpacked into `published.cache_dir`, once), or
        URL that `tensorflow_hub.resolve` can fetch.
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


def _fetch(handle: str) -> str:
    """Downloads the module at a URL and returns its local folder."""
    with requirements.needed(
        f"albert_hub_module_handle={handle} is a URL, which needs tensorflow-hub: "
        "pip install tensorflow-hub 'setuptools<82' ({error}); a folder or a .tar.gz file does not "
        "need it"
    ):
        import tensorflow_hub
    try:
        return tensorflow_hub.resolve(handle)
    except Exception as error:  # tensorflow_hub passes on any error of its downloader
        raise file_io.InputError(f"cannot fetch the hub module {handle}: {error}") from error


def lower_case(module: str) -> bool | None:
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
