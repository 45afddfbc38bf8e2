"""Checks all files of a folder: checkpoints, records, weights, exported models.

Nothing is executed: the graph of a SavedModel is only parsed.
"""

import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from albert.data import instance_shards, record_files
from albert.io import file_io, manifests
from albert.model import checkpoints, huggingface, saved_model_files

_RECORDS = re.compile(r"\.(tf_?records?)(-\d+-of-\d+)?(\.gz)?$")
_MANIFEST = checkpoints.ENDING
_VARIABLE_OPS = {"VarHandleOp", "VariableV2", "Variable"}


@dataclasses.dataclass(frozen=True)
class Item:
    """The result of a check."""

    path: str  # file, folder or prefix that was checked
    what: str  # description, such as its kind and its number of records
    damage: str | None
    is_unreadable: bool = False  # the system denied reading, so the item may be undamaged


def check(path: str) -> Iterator[Item]:
    """Checks a file, a checkpoint, or a folder with all folders below it; yields sorted by name.

    A checkpoint has its prefix or one of its files as path; files are of records, safetensors or
    TensorFlow Lite.
    """
    set_of_shard = instance_shards.prefix_of(path)
    prefix = set_of_shard or path.removesuffix(_MANIFEST)
    items: Iterable[Item]
    if file_io.is_dir(path):
        items = _check_folder(path)
    elif instance_shards.is_set(prefix):
        items = _check_shards(prefix, path if set_of_shard else None)
    elif checker := _checker_of(path):
        items = [checker(path)]
    else:
        prefix = re.sub(rf"({re.escape(_MANIFEST)}|\.(index|meta|data-\d+-of-\d+))$", "", path)
        has_manifest = file_io.exists(prefix + _MANIFEST)
        items = [_check_checkpoint(prefix if has_manifest else checkpoints.resolve(path))]
    count = 0
    for item in items:
        count += 1
        yield item
    if not count:
        raise file_io.InputError(
            f"{path} holds nothing that can be checked: no checkpoint, records or exported model"
        )


def _checker_of(path: str) -> Callable[[str], Item] | None:
    """Returns the function that checks a file; None if it is missing or its kind is unknown."""
    if not file_io.exists(path):
        return None
    if huggingface.is_weights_file(path):
        return _check_weights
    if path.endswith(".tflite"):
        return _check_lite
    if _RECORDS.search(path) or file_io.exists(record_files.manifest_path(path)):
        return _check_records
    return None


def _check_folder(folder: str) -> Iterator[Item]:
    names = [name for name in file_io.listdir(folder) if not file_io.is_temporary(name)]
    if saved_model_files.NAME in names:
        yield _check_saved_model(folder)
        return
    if manifests.NAME in names:
        yield _check_export(folder, "files of an exported model")
    bases = {name[: -len(_MANIFEST)] for name in names if name.endswith(_MANIFEST)}
    bases -= {manifests.NAME[: -len(_MANIFEST)]}
    indices = {name[: -len(".index")] for name in names if name.endswith(".index")}
    paths = (os.path.join(folder, base) for base in bases)
    sets = set(filter(instance_shards.is_set, paths))
    for name in sorted({*names, *bases, *indices}):
        path = os.path.join(folder, name)
        if path in sets:
            yield from _check_shards(path)
        elif instance_shards.prefix_of(path) in sets:
            continue  # checked with its set
        elif name in indices:
            yield _check_checkpoint(path)
        elif name in bases and name not in names:
            yield from _check_orphan_manifest(path)
        elif file_io.is_dir(path):
            yield from _check_folder(path)
        elif checker := _checker_of(path):
            yield checker(path)


def _failed(path: str, what: str, error: Exception) -> Item:
    """Returns the item of a check that ended with an error."""
    denied = isinstance(error, (file_io.UnreadableError, OSError))
    return Item(path, what, str(error), is_unreadable=denied)


def _check_export(folder: str, what: str) -> Item:
    try:
        return Item(folder, what, manifests.export_mismatch(folder))
    except file_io.UnreadableError as error:
        return _failed(folder, what, error)


def _check_shards(prefix: str, only: str | None = None) -> Iterator[Item]:
    """Yields an `Item` for each shard, or for one, and one for a damaged manifest."""
    try:
        for path, count, damage in instance_shards.check_sums(prefix, only):
            yield Item(path, "shard" if damage else f"shard of {count} records", damage)
    except file_io.InputError as error:
        yield _failed(instance_shards.manifest_path(prefix), "manifest of shards", error)


def _check_orphan_manifest(path: str) -> Iterator[Item]:
    """Checks a path that has a manifest although the file itself is missing.

    This happens if another program deletes or renames a checkpoint without its manifest.
    """
    if checkpoints.parts(path):
        yield _check_checkpoint(path)
    elif not path.rpartition("/")[2].startswith("model.ckpt-"):
        manifest = record_files.manifest_path(path)
        yield Item(path, "records", f"{manifest} exists, but {path} is missing")


def _check_checkpoint(prefix: str) -> Item:
    has_manifest = file_io.exists(prefix + _MANIFEST)
    what = "checkpoint"
    try:
        damage = checkpoints.damage_of(prefix)
    except file_io.UnreadableError as error:
        return _failed(prefix, what, error)
    if not damage:
        step = checkpoints.read_step(prefix)
        count = len(checkpoints.reader(prefix).get_variable_to_shape_map())
        what += f"{'' if step is None else f' of step {step}'}, {count} variables"
        what += "" if has_manifest else ", without a manifest"
        if checkpoints.manifest_mismatch(prefix):
            what += ", replaced by another program since its manifest"
    return Item(prefix, what, damage)


def _check_records(path: str) -> Item:
    """Reads every record, for which TensorFlow compares checksums, and checks their number."""
    has_manifest = file_io.exists(record_files.manifest_path(path))
    try:
        with record_files.report_damage([path]):
            count = 0
            for batch in record_files.serialized_examples([path]).batch(1024):
                count += len(batch)
        damage = record_files.mismatch(path, count)
    except (file_io.InputError, tf.errors.OpError) as error:
        return _failed(path, "records", error)
    what = f"{count} records{'' if has_manifest else ', without a manifest'}"
    return Item(path, "records" if damage else what, damage)


def _check_weights(path: str) -> Item:
    try:
        if huggingface.is_part(path):
            return Item(path, f"part of weights, {huggingface.count_tensors(path)} tensors", None)
        count = len(huggingface.Reader(path).get_variable_to_shape_map())
    except file_io.InputError as error:
        return _failed(path, "weights", error)
    return Item(path, f"weights, {count} variables", None)


def _check_lite(path: str) -> Item:
    try:
        with file_io.open_file(path, "rb") as file, warnings.catch_warnings(action="ignore"):
            tf.lite.Interpreter(model_content=file.read())
    except (ValueError, RuntimeError, OSError) as error:
        return _failed(path, "TensorFlow Lite model", error)
    return Item(path, "TensorFlow Lite model", None)


def _check_saved_model(folder: str) -> Item:
    has_manifest = file_io.exists(os.path.join(folder, manifests.NAME))
    what = f"SavedModel{'' if has_manifest else ', without a manifest'}"
    item = _check_export(folder, what)
    if not item.damage:
        item = dataclasses.replace(item, damage=_damage_of_saved_model(folder))
    return item


def _damage_of_saved_model(folder: str) -> str | None:
    """Describes damage of the graph, variables or assets of a SavedModel; None if undamaged."""
    try:
        graphs = saved_model_files.read_graphs(folder)
    except file_io.InputError as error:
        return str(error)
    if not graphs:
        return f"{saved_model_files.path_of(folder)} holds no graph"
    nodes = saved_model_files.all_nodes
    variables = os.path.join(folder, "variables", "variables")
    if checkpoints.prefix_exists(variables):
        if damage := checkpoints.damage_of(variables):
            return damage
    elif any(node.op in _VARIABLE_OPS for graph in graphs for node in nodes(graph.graph_def)):
        return f"{variables}.index is missing"
    for graph in graphs:
        for asset in graph.asset_file_def:
            name = os.path.join(folder, "assets", asset.filename)
            if not file_io.exists(name):
                return f"{name} is missing"
    return None
