"""How the vectors of a text's tokens become one vector of the text.

Folders of sentence-transformers say it in ``modules.json`` and the file of their pooling module.
No TensorFlow here.
"""

import os
from typing import Any

from absl import logging

from albert.io import file_io

CLS, MEAN = "cls", "mean"  # the first token's (in heads through the pooler); the mean of all tokens
KINDS = (CLS, MEAN)
_MODULES, _CONFIG = "modules.json", "config.json"
_PROMPTS = "config_sentence_transformers.json"
_MODEL = "Transformer"
# Files of the module with the model, in the order in which the first is read.
_KINDS_OF_MODELS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_OF_MODEL = tuple(f"sentence_{kind}_config.json" for kind in _KINDS_OF_MODELS)
_NORMALIZE = "Normalize"
_NO_NAMES = frozenset(("", ".", ".."))  # parts of a path that are no names of folders
# Entries of the configuration that turn one kind on; the names that newer versions write.
_MODES = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Modules that change nothing else about a vector than its length.
_HARMLESS = frozenset((_MODEL, "Pooling", _NORMALIZE, "Dropout"))


def read(folder: str) -> str | None:
    """Returns the kind that the folder of a sentence-transformers model says, one of `KINDS`.

    None for other folders; and, with a warning, for a kind that this package does not compute.
    """
    folder = _top(folder)
    modules = _modules(folder)
    if "Pooling" not in modules:
        return None
    if others := sorted(modules.keys() - _HARMLESS):
        path = os.path.join(folder, _MODULES)
        logging.warning("%s also has %s, which is not computed here", path, ", ".join(others))
    return _read_kind(os.path.join(folder, modules["Pooling"], _CONFIG))


def warn_of_prompts(folder: str) -> None:
    """Warns of text that sentence-transformers puts before each text, which is not done here.

    Also of prompts whose tokens it leaves out of the mean.
    """
    folder = _top(folder)
    path = os.path.join(folder, _PROMPTS)
    config = file_io.read_json(path, "configuration", dict) if file_io.exists(path) else {}
    name, prompts = config.get("default_prompt_name"), config.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if prompt:
        logging.warning(
            "%s has default_prompt_name %r: sentence-transformers puts %r before each text, which "
            "is not done here; write it there yourself",
            path,
            name,
            prompt,
        )
    modules = _modules(folder)
    path = os.path.join(folder, modules.get("Pooling", ""), _CONFIG)
    if "Pooling" not in modules or not file_io.exists(path):
        return
    if file_io.read_json(path, "configuration of pooling", dict).get("include_prompt") is False:
        logging.warning(
            "%s: include_prompt is false: sentence-transformers leaves the tokens of a prompt out "
            "of the vector; here they count as all others",
            path,
        )


def model_place(folder: str) -> str | None:
    """Returns the path of the folder inside a folder that holds its model; None without one.

    Older versions of sentence-transformers write the model into ``0_Transformer``.
    """
    place = _modules(folder).get(_MODEL, "").strip("/")
    return os.path.join(folder, place) if place else None


def _top(folder: str) -> str:
    """Returns the folder with the list of modules, if a folder is that of their model."""
    outer, name = os.path.split(os.path.abspath(folder))
    try:
        is_inside = _modules(outer).get(_MODEL, "").strip("/") == name
    except file_io.InputError:  # a list of something else
        return folder
    return outer if is_inside and not file_io.exists(os.path.join(folder, _MODULES)) else folder


def read_max_length(folder: str) -> int | None:
    """Returns the most tokens of a text that a sentence-transformers model reads.

    None if its folder does not say it, and for other folders.
    """
    path, config = _read_model_module(folder)
    length = config.get("max_seq_length")
    if length is not None and not (type(length) is int and length >= 3):
        raise file_io.InputError(
            f"{path}: max_seq_length is {length!r}, expected a number of tokens from 3 on"
        )
    return length


def check_lower_case(folder: str, do_lower_case: bool | None) -> None:
    """Rejects texts that sentence-transformers lower-cases before a tokenizer that does not.

    `do_lower_case` is what the tokenizer says; None if it says nothing.
    """
    path, config = _read_model_module(folder)
    if config.get("do_lower_case") is True and do_lower_case is False:
        raise file_io.InputError(
            f"{path}: do_lower_case is true, but the tokenizer of the folder reads capitals; set "
            "it to true (and strip_accents to false) in tokenizer_config.json, or to false here"
        )


def _read_model_module(folder: str) -> tuple[str, dict[str, Any]]:
    """Returns the path of the file of the module with the model, and its content or {}."""
    paths = [os.path.join(folder, name) for name in _OF_MODEL]
    path = next(filter(file_io.exists, paths), None)
    if path is None:
        return paths[0], {}
    return path, file_io.read_json(path, "configuration of sentences", dict)


def normalizes(folder: str) -> bool:
    """Returns whether sentence-transformers gives vectors of a folder's model the length 1."""
    return _NORMALIZE in _modules(_top(folder))


def files(folder: str) -> dict[str, str]:
    """Returns the files that the functions above read: {path in a copy of the folder: path}."""
    top = _top(folder)
    modules = _modules(top)
    names = [_MODULES, os.path.join(modules["Pooling"], _CONFIG)] if "Pooling" in modules else []
    names += [_PROMPTS] if names and file_io.exists(os.path.join(top, _PROMPTS)) else []
    of_model = [name for name in _OF_MODEL if file_io.exists(os.path.join(folder, name))][:1]
    return {name: os.path.join(top, name) for name in names} | {
        name: os.path.join(folder, name) for name in of_model
    }


def _modules(folder: str) -> dict[str, str]:
    """Returns {kind of module: its path in the folder}; {} for other folders."""
    path = os.path.join(folder, _MODULES)
    if not file_io.exists(path):
        return {}
    modules = file_io.read_json(path, "list of modules", list)
    found = {}
    for module in modules:
        place = module.get("path", "") if isinstance(module, dict) else None
        parts = place.strip("/").split("/") if isinstance(place, str) and place else []
        if not isinstance(place, str) or place[:1] == "/" or not set(parts).isdisjoint(_NO_NAMES):
            raise file_io.InputError(
                f"{path}: expected modules whose path is a folder inside {folder}, found {module!r}"
            )
        found[_kind(module)] = place
    return found


def write(folder: str, kind: str, hidden_size: int, normalized: bool = False) -> None:
    """Writes into a model's folder what sentence-transformers, and `read`, read of its pooling.

    Args:
      kind: one of `KINDS`.
      normalized: whether sentence-transformers gives the vectors the length 1.
    """
    name, (entry,) = "1_Pooling", (entry for entry, mode in _MODES.items() if mode == kind)
    parts = [("", _MODEL), (name, "Pooling")]
    parts += [(f"2_{_NORMALIZE}", _NORMALIZE)] if normalized else []
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{module}"}
        for i, (path, module) in enumerate(parts)
    ]
    config = {"word_embedding_dimension": hidden_size, entry: True}
    file_io.make_dirs(os.path.join(folder, name))
    file_io.write_json(os.path.join(folder, name, _CONFIG), config)
    file_io.write_json(os.path.join(folder, _MODULES), modules)


def _kind(module: dict[str, Any]) -> str:
    return str(module.get("type")).rpartition(".")[2]


def _read_kind(path: str) -> str | None:
    config = file_io.read_json(path, "configuration of pooling", dict)
    found = [kind for entry, kind in _MODES.items() if config.get(entry) is True]
    mode = config.get("pooling_mode")
    found += [mode] if isinstance(mode, str) else mode if isinstance(mode, list) else []
    found = list(dict.fromkeys(found))
    if len(found) == 1 and found[0] in KINDS:
        return found[0]
    logging.warning(
        "%s asks for %s, which is not computed here; only %s are",
        path,
        " and ".join(map(str, found)) or "no kind of pooling",
        " and ".join(KINDS),
    )
    return None
