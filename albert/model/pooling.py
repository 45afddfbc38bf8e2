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
_LENGTH = "sentence_bert_config.json"
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
_HARMLESS = frozenset(("Transformer", "Pooling", "Normalize", "Dropout"))


def read(folder: str) -> str | None:
    """Returns the kind that the folder of a sentence-transformers model says, one of `KINDS`.

    None for other folders; and, with a warning, for a kind that this package does not compute.
    """
    modules = _modules(folder)
    if "Pooling" not in modules:
        return None
    if others := sorted(modules.keys() - _HARMLESS):
        path = os.path.join(folder, _MODULES)
        logging.warning("%s also has %s, which is not computed here", path, ", ".join(others))
    return _read_kind(os.path.join(folder, modules["Pooling"], _CONFIG))


def read_max_length(folder: str) -> int | None:
    """Returns the most tokens of a text that a sentence-transformers model reads.

    None if its folder does not say it, and for other folders.
    """
    path = os.path.join(folder, _LENGTH)
    if not file_io.exists(path):
        return None
    length = file_io.read_json(path, "configuration of sentences", dict).get("max_seq_length")
    if length is not None and not (type(length) is int and length >= 3):
        raise file_io.InputError(
            f"{path}: max_seq_length is {length!r}, expected a number of tokens from 3 on"
        )
    return length


def files(folder: str) -> list[str]:
    """Lists the files that `read` and `read_max_length` read, relative to the folder."""
    modules = _modules(folder)
    names = [_MODULES, os.path.join(modules["Pooling"], _CONFIG)] if "Pooling" in modules else []
    if file_io.exists(os.path.join(folder, _LENGTH)):
        names.append(_LENGTH)
    return names


def _modules(folder: str) -> dict[str, str]:
    """Returns {kind of module: its path in the folder}; {} for other folders."""
    path = os.path.join(folder, _MODULES)
    if not file_io.exists(path):
        return {}
    modules = file_io.read_json(path, "list of modules", list)
    return {
        _kind(module): str(module.get("path")) for module in modules if isinstance(module, dict)
    }


def write(folder: str, kind: str, hidden_size: int) -> None:
    """Writes into a model's folder what sentence-transformers, and `read`, read of its pooling.

    Args:
      kind: one of `KINDS`.
      hidden_size: of the model.
    """
    name, (entry,) = "1_Pooling", (entry for entry, mode in _MODES.items() if mode == kind)
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{module}"}
        for i, (path, module) in enumerate((("", "Transformer"), (name, "Pooling")))
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
    if len(found) == 1 and found[0] in KINDS:
        return found[0]
    logging.warning(
        "%s asks for %s, which is not computed here; only %s are",
        path,
        " and ".join(map(str, found)) or "no kind of pooling",
        " and ".join(KINDS),
    )
    return None
