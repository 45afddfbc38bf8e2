"""Reads and writes checkpoints in one format: TensorFlow V2 files with plain variable names.

Names are those of TF1 ALBERT checkpoints (no object graph), so released models, runs of older
toolkits and hub modules are all read the same way. SavedModels of TensorFlow 2, BERT's checkpoints
and Hugging Face folders are read as if they had these names. A manifest, written last, lists the
files and values of a complete checkpoint.
"""

import contextlib
import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import trackable_object_graph_pb2

from albert.io import file_io, json_shapes, manifests
from albert.model import huggingface, published, weight_matching, weight_names

# --- manifests ------------------------------------------------------------------------------------

VERSION = 1
ENDING = ".manifest.json"
# Files without which a checkpoint cannot be read.
_PART = re.compile(r"\.(index|data-\d+-of-\d+)$")
_MAX_LISTED = 5  # maximum number of names that a message lists
_FILE_OF_CHECKPOINT = re.compile(r"\.(index|meta|manifest\.json|data-\d+-of-\d+)$")
# Suffix for the files of a damaged checkpoint, so that no search finds them.
QUARANTINE = ".damaged"


def path_of(prefix: str) -> str:
    """Returns the name of the manifest of the checkpoint at `prefix`."""
    return prefix + ENDING


def parts(prefix: str) -> list[str]:
    """Lists the endings of the files with a checkpoint's values, sorted: data, then index."""
    folder, name = os.path.split(prefix)
    names = file_io.listdir(folder or ".")
    endings = [file_name[len(name) :] for file_name in names if file_name.startswith(f"{name}.")]
    return sorted(filter(_PART.fullmatch, endings))


def write(prefix: str, step: int | None, names: Iterable[str]) -> None:
    """Writes the manifest of a complete checkpoint, whose step may be unknown.

    Raises:
      OSError: a file cannot be read or written.
    """
    files = manifests.describe_files(prefix, parts(prefix))
    manifest = {"version": VERSION, "step": step, "variables": sorted(names), "files": files}
    file_io.write_json(path_of(prefix), manifest)


def manifest_mismatch(prefix: str) -> str | None:
    """Describes how a checkpoint differs from its manifest; None if it does not, or has none.

    Raises:
      file_io.UnreadableError: a file cannot be read, so this is unknown.
    """
    path = path_of(prefix)
    if not file_io.exists(path):
        return None
    try:
        files = manifests.read(path, VERSION)
    except file_io.UnreadableError:
        raise
    except file_io.InputError as error:
        return str(error)
    if ".index" not in files or not all(map(_PART.fullmatch, files)):
        return f"{path} is not the manifest of a checkpoint"
    if problem := manifests.mismatch(prefix, files):
        return f"{problem} (delete {path} if another program has replaced the files)"
    surplus = sorted({*parts(prefix)} - {*files})
    return f"{path} does not list {prefix}{surplus[0]}" if surplus else None


def quarantine(prefix: str) -> None:
    """Renames the files of a damaged checkpoint, so that it is no longer found.

    The index is renamed first, so that a partial checkpoint is never taken for a whole one.
    """
    for part in [".index", *filter(".index".__ne__, parts(prefix)), ENDING]:
        if file_io.exists(prefix + part):
            file_io.rename(prefix + part, prefix + part + QUARANTINE)


# --- checkpoints ----------------------------------------------------------------------------------


BEST = "model.ckpt-best"
# The mean of the weights over the last steps; never the best or the last checkpoint of its folder.
AVERAGE = "model.ckpt-average"
LOAD_REPORT = "load_report.json"
# A whole copy of the checkpoint that is about to replace the best one.
NEW_BEST = "new-model.ckpt-best"
# Steps have 64 bits; a longer number is the name of something else.
_NUMBERED = re.compile(r"model\.ckpt-(\d{1,18})$")
# What TensorFlow's reader raises for damaged files, depending on where the damage is.
READ_ERRORS = (tf.errors.OpError, RuntimeError, ValueError, IndexError)
# The tensor in which SavedModels of TensorFlow 2 describe their objects.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of a restore; every list holds variable names, sorted.

    Attributes:
      new: variables of the model that the checkpoint does not have (heads, freshly initialized).
      unused: variables of the checkpoint that the model does not have, without optimizer state.
    """

    path: str
    loaded: list[str]
    new: list[str]
    unused: list[str]

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        text = f"{self.path}: loaded {len(self.loaded)} variables"
        if self.new:
            text += f"; new, with random values: {', '.join(self.new)}"
        if self.unused:
            text += f"; not used: {', '.join(self.unused)}"
        return text


class TrainingState(Protocol):
    """The part of an optimizer that checkpoints store: slots, step and average of weights."""

    global_step: tf.Variable
    average: tf.Module | None

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Returns {checkpoint name: variable}."""


def variables_by_name(model: tf.Module) -> dict[str, tf.Variable]:
    """Returns {checkpoint name: variable} of a model."""
    return {variable.name.split(":")[0]: variable for variable in model.variables}


# --- finding ------------------------------------------------------------------------------------


def prefix_exists(prefix: str) -> bool:
    """Returns whether a whole checkpoint is at `prefix` (the index is always written last)."""
    return file_io.exists(f"{prefix}.index")


def step_of(prefix: str) -> int | None:
    """Returns the step in a name like ``model.ckpt-300``; None for other names."""
    match = _NUMBERED.search(prefix)
    return int(match.group(1)) if match else None


def _step(prefix: str) -> int:
    return step_of(prefix) or 0


def numbered(folder: str, ending: str = ".index") -> list[str]:
    """Lists the prefixes of numbered checkpoints that have a file of that ending, by step."""
    if not file_io.is_dir(folder):
        return []
    names = [name[: -len(ending)] for name in file_io.listdir(folder) if name.endswith(ending)]
    matches = [name for name in names if _NUMBERED.search(name)]
    return [os.path.join(folder, name) for name in sorted(matches, key=_step)]


def without_index(folder: str) -> list[str]:
    """Lists the prefixes of numbered checkpoints with a manifest but no index, by step.

    Their deletion was interrupted, or the index was lost.
    """
    prefixes = numbered(folder, ENDING)
    return [prefix for prefix in prefixes if not prefix_exists(prefix)]


def find_best(folder: str) -> str | None:
    """Returns the prefix of the best checkpoint of a folder; None without one.

    While the best is being replaced, and after a kill at that time, this is the new copy.
    """
    candidates = [os.path.join(folder, name) for name in (BEST, NEW_BEST)]
    return next(filter(prefix_exists, candidates), None)


def resolve(path: str) -> str:
    """Returns the prefix for a user's path; for Hugging Face weights, their file.

    Args:
      path: prefix, ``.index`` or ``.data-…`` file, folder (its best checkpoint, else its last),
        hub module folder, Hugging Face folder or ``.safetensors`` file; or a published name, URL or
        archive, see `published.local_path`.
    """
    path = published.local_path(path)
    prefix = _FILE_OF_CHECKPOINT.sub("", path.rstrip("/"))
    if prefix_exists(prefix) or (huggingface.is_weights_file(prefix) and file_io.exists(prefix)):
        return prefix
    folder, name = os.path.split(prefix)
    if name == BEST and (best := find_best(folder)):
        return best
    if file_io.is_dir(prefix):
        variables = os.path.join(prefix, "variables", "variables")
        if best := find_best(prefix):
            return best
        candidates = [*reversed(numbered(prefix)), variables]
        candidates += [
            os.path.join(prefix, name[: -len(".index")])
            for name in file_io.listdir(prefix)
            if name.endswith(".index") and not file_io.is_temporary(name)
        ]
        for candidate in candidates:
            if prefix_exists(candidate):
                return candidate
        if weights := huggingface.find_weights(prefix):
            return weights
    hint = published.suggestion(path)
    raise file_io.InputError(
        f"there is no checkpoint {path} ({prefix}.index); {_describe_place(prefix)}"
        f"{hint and f'; {hint}'}"
    )


def _describe_place(prefix: str) -> str:
    """Returns what is in the place of a missing checkpoint: at first what was probably meant."""
    is_folder = file_io.is_dir(prefix)
    folder = prefix if is_folder else os.path.dirname(prefix) or "."
    if not file_io.is_dir(folder):
        return f"the folder {folder} does not exist"
    names = file_io.listdir(folder)
    there = list(dict.fromkeys(_FILE_OF_CHECKPOINT.sub("", name) for name in names))
    if not is_folder:
        near = difflib.get_close_matches(os.path.basename(prefix), there)
        there = near or [
            name for name in there if f"{name}.index" in names or huggingface.is_weights_file(name)
        ]
    folder = "the current folder" if folder == "." else folder
    if not there:
        return f"{folder} {'is empty' if is_folder else 'holds nothing of a similar name'}"
    more = f" and {len(there) - _MAX_LISTED} more" if len(there) > _MAX_LISTED else ""
    is_weights = not is_folder and huggingface.is_weights_file(there[0])
    advice = "; name one of them as the checkpoint (checkpoint_name)" if is_weights else ""
    return f"{folder} holds {there[:_MAX_LISTED]}{more}{advice}"


def _keys(checkpoint: weight_names.CheckpointReader) -> dict[str, str]:
    """Returns {name of a variable: its key}; keys may be object paths or BERT's names."""
    if not checkpoint.has_tensor(_OBJECT_GRAPH):
        names = checkpoint.get_variable_to_shape_map()
        return {weight_names.from_google(name): name for name in names}
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        checkpoint.get_tensor(_OBJECT_GRAPH)
    )
    attributes = [attribute for node in graph.nodes for attribute in node.attributes]
    skipped = ("", "save_counter")  # which TensorFlow adds
    return {x.full_name: x.checkpoint_key for x in attributes if x.full_name not in skipped}


def reader(path: str) -> weight_names.CheckpointReader:
    """Opens the checkpoint that `path` names for reading by the names of variables."""
    prefix = resolve(path)
    if huggingface.is_weights_file(prefix):
        return huggingface.Reader(prefix)
    check_path(prefix)
    for part in file_io.glob(f"{prefix}.index") + file_io.glob(f"{prefix}.data-*"):
        file_io.check_regular(part)
    try:
        checkpoint = tf.train.load_checkpoint(prefix)
        return weight_names.RenamingReader(checkpoint, _keys(checkpoint))
    except (*READ_ERRORS, MemoryError) as error:  # A damaged index may ask for all memory.
        raise _damaged(prefix, error) from error


# --- reading ------------------------------------------------------------------------------------


def restore(
    model: tf.Module,
    path: str,
    strict: bool = True,
    allow_new_heads: bool = True,
    rename: Callable[[str], str] | None = None,
    new_head: bool | None = False,
    new_rows: int = 0,
    view: weight_names.View | None = None,
) -> LoadReport:
    """Loads a model's weights.

    Args:
      path: see `resolve`.
      strict: raise if a variable that the model uses is missing.
      allow_new_heads: the model is trained afterwards, so that trained variables outside the
        encoder may be missing, and the pooler, which some Hugging Face models lack; they keep their
        values. Without training, these would be random: give False.
      rename: returns the checkpoint's name for a model's variable.
      new_head: load the encoder only; None: if the head has other sizes, with a warning.
      new_rows: number of pieces at the end of the vocabulary that the checkpoint may lack; their
        rows keep their values.
      view: reads the checkpoint as one of the model, in place of `rename`.

    Raises:
      file_io.InputError: nothing matches, shapes differ, an encoder variable is missing or (when
        strict) unused, or the checkpoint is of another network; names the variables. The model is
        not changed.
    """
    prefix = resolve(path)
    _check_manifest(prefix)
    checkpoint, variables = reader(prefix), variables_by_name(model)
    optional = getattr(checkpoint, "optional", ()) if allow_new_heads else None
    unknown = getattr(checkpoint, "unknown", ())
    if rename:
        view = weight_names.renamed(rename)
    if view:
        checkpoint = view(checkpoint, variables.keys())
    there = checkpoint.get_variable_to_shape_map()
    match = weight_matching.Match.between(prefix, _shapes(variables), there)
    if new_head or (new_head is None and match.has_other_head()):
        match = match.encoder_only()
    match.check_shapes(new_rows)
    if strict:
        match.check_surplus()
        trained = _names_in(model, "trained_variables")
        match.check_missing(_names_in(model, "used_variables"), trained, optional)
    _assign(checkpoint, {name: variables[name] for name in match.loaded}, prefix)
    has_head = any(not name.startswith(weight_names.ENCODER_PREFIX) for name in match.loaded)
    weight_matching.warn_of_unknown(prefix, unknown, has_head)
    return LoadReport(prefix, match.loaded, match.new, match.unused)


def _shapes(variables: Mapping[str, tf.Variable]) -> dict[str, list[int]]:
    return {name: variable.shape.as_list() for name, variable in variables.items()}


def _names_in(model: tf.Module, attribute: str) -> list[str]:
    """Returns the names of the variables in an attribute of a model; of all if it has none."""
    names = {variable.name for variable in getattr(model, attribute, model.variables)}
    return [name for name, variable in variables_by_name(model).items() if variable.name in names]


def write_report(folder: str, report: LoadReport | None) -> None:
    """Writes which variables of a new run were loaded; None: all began with random values."""
    path = os.path.join(folder, LOAD_REPORT)
    if report is None:
        file_io.remove(path)
    else:
        file_io.write_json(path, report.to_dict())


def random_parts(folder: str, model: tf.Module) -> list[str]:
    """Returns the used variables of a model that began with random values in a folder's run.

    These are all variables if the folder does not say which were loaded.
    """
    used, path = _names_in(model, "used_variables"), os.path.join(folder, LOAD_REPORT)
    if not file_io.exists(path):
        return used
    try:
        report = file_io.read_json(path, "report of the loaded variables")
        json_shapes.check(report, {"new": [str]}, path)
    except file_io.InputError as error:
        logging.warning("Which variables were loaded is unknown: %s", error)
        return used
    return [name for name in used if name in report["new"]]


def group_zero_name(name: str) -> str:
    """Returns the name of the variable of group 0 that corresponds to a variable of any group."""
    return re.sub(r"/group_\d+/", "/group_0/", name)


def check_path(path: str) -> None:
    """Rejects a path with a backslash: TensorFlow writes checkpoints there but cannot find them."""
    if "\\" in path:
        raise file_io.InputError(
            f"TensorFlow cannot read checkpoints whose path has a backslash: {path}; use another "
            "folder"
        )


def check_readable(prefix: str) -> None:
    """Raises file_io.UnreadableError for a checkpoint that cannot be read, rather than damaged."""
    for part in parts(prefix):
        try:
            file_io.sha256(prefix + part)
        except (OSError, tf.errors.OpError) as error:
            reason = getattr(error, "strerror", None) or error
            raise file_io.UnreadableError(
                f"the checkpoint {prefix} cannot be read: {prefix}{part}: {reason}; check its "
                "permissions and the disk. Nothing was changed"
            ) from error


def damage_of_values(prefix: str) -> str | None:
    """Describes values of a checkpoint that differ from their checksums; None if none differs.

    Raises:
      file_io.UnreadableError: a file cannot be read, so this is unknown.
    """
    try:
        checkpoint = reader(prefix)
        for name in checkpoint.get_variable_to_shape_map():
            checkpoint.get_tensor(name)
    except file_io.UnreadableError:
        raise
    except file_io.InputError as error:
        return str(error)
    except READ_ERRORS as error:
        check_readable(prefix)
        return f"{name}: {error}"
    return None


def _damaged(prefix: str, error: BaseException | str) -> file_io.InputError:
    check_readable(prefix)
    others = [*filter(prefix_exists, [os.path.join(os.path.dirname(prefix), BEST)])]
    others += reversed(numbered(os.path.dirname(prefix)))
    other = next((candidate for candidate in others if candidate != prefix), None)
    advice = f"use another, such as {other}" if other else "download or train it again"
    return file_io.InputError(f"the checkpoint {prefix} is damaged: {error}; {advice}")


def _check_manifest(prefix: str) -> None:
    problem = manifest_mismatch(prefix)
    if problem and not is_replaced(prefix):
        raise _damaged(prefix, problem)
    if problem:
        renew_manifest(prefix)


def is_replaced(prefix: str) -> bool:
    """Returns whether another program has replaced the files of a checkpoint by undamaged ones.

    Each is then newer than the manifest and differs from it; damage affects one of them.
    """
    path, endings = path_of(prefix), parts(prefix)
    try:
        files = manifests.read(path, VERSION)
    except file_io.InputError:  # no manifest, or a damaged one
        return False
    if sorted(files) != endings or not all(
        manifests.mismatch(prefix, {x: files[x]}) for x in endings
    ):
        return False
    if min(file_io.changed(prefix + part) for part in endings) <= file_io.changed(path):
        return False
    return damage_of_values(prefix) is None


def renew_manifest(prefix: str) -> None:
    """Writes a new manifest for a checkpoint that `is_replaced`, with a warning."""
    logging.warning(
        "%s is older than the files of %s: another program has replaced them. Their checksums are "
        "correct, so a new manifest is written",
        path_of(prefix),
        prefix,
    )
    try:
        names = reader(prefix).get_variable_to_shape_map()
        write(prefix, read_step(prefix), names)
    except (OSError, file_io.InputError) as error:  # a read-only folder
        logging.warning("%s", error)


def _assign(
    checkpoint: weight_names.CheckpointReader,
    variables: Mapping[str, tf.Variable],
    prefix: str,
) -> None:
    """Gives the variables, by their names in the checkpoint, their values."""
    try:
        # All values are read before the first is assigned: a damaged file changes nothing.
        values = [checkpoint.get_tensor(name) for name in variables]
    except READ_ERRORS as error:
        raise _damaged(prefix, error) from error
    for name, value in zip(variables, values, strict=True):
        if not np.isfinite(value).all():
            raise _damaged(prefix, f"{name} holds values that are not finite")
    for variable, value in zip(variables.values(), values, strict=True):
        if len(variable.shape) and len(value) < variable.shape[0]:
            value = np.concatenate([value, variable.numpy()[len(value) :]])
        variable.assign(value)


def restore_training_state(prefix: str, model: tf.Module, optimizer: TrainingState) -> None:
    """Loads weights, optimizer slots and step of an interrupted run.

    The loss scale is loaded if it is stored: a run may resume in another precision.
    """
    checkpoint = reader(prefix)
    shapes = checkpoint.get_variable_to_shape_map()
    variables = {
        name: variable
        for name, variable in {**variables_by_name(model), **optimizer.variables_by_name()}.items()
        if name in shapes or not name.startswith(weight_names.LOSS_SCALE)
    }
    missing = sorted(set(variables) - set(shapes))
    if missing:
        raise file_io.InputError(
            f"cannot resume from {prefix}: it lacks {missing[:5]} ({len(missing)} in total). To "
            "start a run from its weights, give it as init_checkpoint with another output_dir"
        )
    weight_matching.check_shapes(prefix, {x: shapes[x] for x in variables}, _shapes(variables))
    _assign(checkpoint, variables, prefix)


def read_tensors(path: str) -> dict[str, Any]:
    """Reads {name: array} of the checkpoint that `path` names, without optimizer state and step."""
    prefix = resolve(path)
    _check_manifest(prefix)
    checkpoint = reader(prefix)
    weight_matching.warn_of_unknown(prefix, getattr(checkpoint, "unknown", ()), has_head=True)
    every = checkpoint.get_variable_to_shape_map()
    names = sorted(set(every) - weight_names.training_state(every))
    try:
        return {name: checkpoint.get_tensor(name) for name in names}
    except READ_ERRORS as error:
        raise _damaged(prefix, error) from error


def read_step(path: str) -> int | None:
    """Returns the step that a checkpoint stores or its name gives; None if neither does."""
    checkpoint = reader(path)
    if not checkpoint.has_tensor(weight_names.STEP):
        return step_of(resolve(path))
    try:
        return int(checkpoint.get_tensor(weight_names.STEP))
    except READ_ERRORS as error:
        raise _damaged(resolve(path), error) from error


def may_be_of_step(path: str, step: int | None) -> bool:
    """Returns whether a checkpoint can be that of a step; exports, for example, have no step."""
    return step is None or read_step(path) in (None, step)


# --- writing ------------------------------------------------------------------------------------


def save(prefix: str, model: tf.Module, optimizer: TrainingState | None = None) -> None:
    """Writes a checkpoint that appears whole or not at all.

    Args:
      prefix: path without ending, such as ``folder/model.ckpt-300``.
      optimizer: its slots and ``global_step`` are also stored.
    """
    write_tensors(prefix, values_of(model, optimizer), with_meta=True)


def save_average(prefix: str, model: tf.Module, optimizer: TrainingState) -> None:
    """Writes a checkpoint with the averaged weights of an optimizer, see `save`.

    It has the names of the model's variables and the step, but no slots.
    """
    values = values_of(model)
    averages = values_of(optimizer.average)
    for name in values:
        values[name] = averages.get(f"{name}/{weight_names.AVERAGE}", values[name])
    step = tf.convert_to_tensor(optimizer.global_step)
    write_tensors(prefix, {**values, weight_names.STEP: step}, with_meta=True)


def values_of(model: tf.Module, optimizer: TrainingState | None = None) -> dict[str, tf.Tensor]:
    """Copies the variables to main memory: {name: tensor}."""
    variables = variables_by_name(model)
    if optimizer is not None:
        variables.update(optimizer.variables_by_name())
    with tf.device("CPU:0"):
        # On a CPU a variable and the value read from it share memory until the next assignment.
        return {name: tf.identity(variable.read_value()) for name, variable in variables.items()}


def write_tensors(prefix: str, tensors: dict, with_meta: bool = False) -> None:
    """Writes {name: tensor} as a checkpoint and then its manifest; see `save`.

    `with_meta` adds an empty ``.meta`` file: the reference implementation requires one to evaluate.
    """
    check_path(prefix)
    names = sorted(tensors)
    values = [tf.convert_to_tensor(tensors[name]) for name in names]
    try:
        with file_io.room_for(prefix, sum(x.dtype.size * x.shape.num_elements() for x in values)):
            _write_files(prefix, names, values, with_meta)
            step = tensors.get(weight_names.STEP)
            step = step_of(prefix) if step is None else int(step)
            write(prefix, step, names)
    except (tf.errors.OpError, OSError) as error:
        raise file_io.InputError(f"cannot write the checkpoint {prefix}: {error}") from error


def _write_files(prefix: str, names: list[str], values: list[tf.Tensor], with_meta: bool) -> None:
    temporary = file_io.temporary_name(prefix)
    data, index = f"{temporary}.data-00000-of-00001", f"{temporary}.index"
    try:
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=values,
        )
        # Without an index there is no checkpoint: a kill never leaves new data with an old index.
        file_io.remove(f"{prefix}.index")
        file_io.remove(path_of(prefix))
        file_io.rename(data, f"{prefix}.data-00000-of-00001")
        if with_meta:
            file_io.write_text(f"{prefix}.meta", "")
        file_io.rename(index, f"{prefix}.index")
    finally:
        for path in (data, index):
            with contextlib.suppress(OSError):
                file_io.remove(path)


def copy(source: str, target: str, copy_file: Callable = file_io.copy) -> None:
    """Copies a checkpoint over another, which is complete or missing if the process is killed.

    Both are prefixes; `copy_file` takes the paths of a file and of its copy.
    """
    delete(target)
    data = [part for part in parts(source) if part != ".index"]
    for part in (".meta", *data, ".index", ENDING):
        if part not in (".meta", ENDING) or file_io.exists(source + part):
            copy_file(source + part, target + part)


def replace_best(folder: str, source: str) -> None:
    """Makes a checkpoint the best of its folder.

    If the process is killed, either the old or the new best is complete and `find_best` finds it.
    """
    new = os.path.join(folder, NEW_BEST)
    try:
        copy(source, new)
    except BaseException:
        delete(new)  # a partial copy would waste space
        raise
    complete_best(folder)


def complete_best(folder: str) -> None:
    """Completes an interrupted `replace_best`, which no other process may be running."""
    best, new = os.path.join(folder, BEST), os.path.join(folder, NEW_BEST)
    if prefix_exists(new):
        copy(new, best, file_io.link)  # A second copy of large files would take time and space.
    delete(new)


def delete(prefix: str) -> None:
    """Deletes a checkpoint, its index first, so that a partial checkpoint is never loaded."""
    folder, name = os.path.dirname(prefix), os.path.basename(prefix)
    file_io.remove(f"{prefix}.index")
    endings = (".data-", ".index", ".meta", ENDING)
    for part in file_io.listdir(folder):
        if part.startswith(tuple(name + ending for ending in endings)):
            file_io.remove(os.path.join(folder, part))


def update_pointer(folder: str) -> None:
    """Writes the ``checkpoint`` text file, which lists the numbered checkpoints of a folder."""
    names = [os.path.basename(prefix) for prefix in numbered(folder)]
    if names:
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        file_io.write_text(os.path.join(folder, "checkpoint"), "\n".join(lines) + "\n")


def prune(folder: str, keep: int) -> None:
    """Deletes all but the last `keep` numbered checkpoints (0 keeps all); never the best.

    Before and after, the pointer file lists the existing checkpoints. Interrupted deletions of a
    killed run are also completed.
    """
    update_pointer(folder)
    if keep > 0:
        for prefix in [*without_index(folder), *numbered(folder)[:-keep]]:
            delete(prefix)
    update_pointer(folder)


def size_in(folder: str) -> int:
    """Returns the number of bytes of all checkpoints in a folder; 0 without the folder."""
    if not file_io.is_dir(folder):
        return 0
    names = [name for name in file_io.listdir(folder) if name.startswith("model.ckpt-")]
    return sum(file_io.size(os.path.join(folder, name)) for name in names)


def keep_only_best(folder: str) -> None:
    """Leaves the weights and the step of the best checkpoint of a folder, and no other checkpoint.

    If the process is killed, the best checkpoint is complete, with or without the state of its
    optimizer. An average of weights stays.
    """
    complete_best(folder)
    best = os.path.join(folder, BEST)
    tensors, step = read_tensors(best), read_step(best)
    if step is not None:
        tensors[weight_names.STEP] = np.int64(step)
    new = os.path.join(folder, NEW_BEST)
    write_tensors(new, tensors, with_meta=file_io.exists(f"{best}.meta"))
    complete_best(folder)
    for prefix in [*without_index(folder), *numbered(folder)]:
        delete(prefix)
    file_io.remove(os.path.join(folder, "checkpoint"))


def clean_up(folder: str) -> None:
    """Deletes the incomplete files of a killed run from its output folder."""
    for name in file_io.listdir(folder):
        if name.startswith("model.ckpt-") and file_io.is_temporary(name):
            logging.info("Deleting %s, an incomplete file of an earlier run", name)
            file_io.remove(os.path.join(folder, name))


# --- damage, and the checkpoint to resume from ----------------------------------------------------


def damage_of(prefix: str, renew: bool = False) -> str | None:
    """Describes the damage of a checkpoint; None if all bytes and values are as they were saved.

    Its files are compared with its manifest, if it has one, and each value with its checksum. For
    files that another program has replaced, only the checksums count; `renew` writes a new manifest
    for these.

    Raises:
      file_io.UnreadableError: a file cannot be read, so this is unknown.
    """
    problem = manifest_mismatch(prefix)
    if not problem:
        return damage_of_values(prefix)
    if not is_replaced(prefix):
        return problem
    if renew:
        renew_manifest(prefix)
    return None


def last_whole(folder: str) -> str | None:
    """Returns the last whole numbered checkpoint of a folder, to resume from; None without any.

    Later, damaged checkpoints are renamed; an error is logged with the damage and the steps that
    must be repeated.

    Raises:
      file_io.InputError: there are checkpoints but none is whole, or one cannot be read, which does
        not mean that it is damaged.
    """
    damaged: dict[str, str] = {}
    # If the data is also missing, the checkpoint was deleted or moved on purpose.
    lost = filter(parts, without_index(folder))
    prefixes = [*numbered(folder), *lost]
    for prefix in sorted(prefixes, key=_step, reverse=True):
        damage = damage_of(prefix, renew=True)
        if damage is None:
            _quarantine_all(damaged, prefix)
            return prefix
        damaged[prefix] = damage
    if damaged:
        raise file_io.InputError(
            f"{folder} has no undamaged checkpoint to resume from: "
            f"{'; '.join(damaged.values())}. To start again, move them away or use another "
            "output_dir"
        )
    return None


def _quarantine_all(damaged: Mapping[str, str], whole: str) -> None:
    for prefix, damage in damaged.items():
        first, last = _step(whole) + 1, _step(prefix)
        quarantine(prefix)
        logging.error(
            "The checkpoint %s is damaged: %s. Its files were renamed to %s.*%s. Resuming from "
            "%s: steps %d to %d are repeated",
            prefix,
            damage,
            prefix,
            QUARANTINE,
            whole,
            first,
            last,
        )
    if damaged:
        update_pointer(os.path.dirname(whole))


def is_foreign(prefix: str, folder: str) -> bool:
    """Returns whether a checkpoint is of another folder than this, which has ones of its own.

    What is measured with it does not belong among the results of the folder.
    """
    if os.path.abspath(os.path.dirname(prefix)) == os.path.abspath(folder):
        return False
    return bool(numbered(folder) or find_best(folder))


def choose(folder: str, which: str | None) -> str:
    """Returns the prefix of the checkpoint chosen by the setting ``checkpoint``.

    It is "best", "last", a path, or None for the best, else the last.
    """
    if which == "best" or (which is None and find_best(folder)):
        return resolve(os.path.join(folder, BEST))
    last = numbered(folder)[-1:]
    if which in ("last", None):
        if not last:
            raise file_io.InputError(f"there is no checkpoint in {folder}; train first")
        return last[0]
    return resolve(which)
