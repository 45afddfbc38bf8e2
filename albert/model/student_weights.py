"""The first weights of a student, made from those of its teacher, also of one with other sharing.

Where layers of the student share parameters that are several layers' own in the teacher, they begin
with the mean of these. Where the student's embeddings are smaller, they begin with the directions
in which those of the teacher vary the most.

Letters in shapes: E embedding size of the student, F that of the teacher; for the others see the
docstring of the package.
"""

import dataclasses
import functools
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from albert.io import file_io
from albert.model import configuration, weight_names

_LAYER = re.compile(r"(.*/transformer/group_)(\d+)(/.*)")
_LAYER_SCALE = re.compile(r"(.*/transformer/layer_)(\d+)(/.*)")
_ATTENTION_PARTS = ("/attention_1/", "/LayerNorm/")
# Sizes in which a student may differ from the teacher whose weights it takes.
_DEPTH = ("num_hidden_layers", "num_hidden_groups", "share", "group_order")
_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", *configuration.INITIAL_KEYS)
_EMBEDDINGS = f"{weight_names.ENCODER_PREFIX}embeddings/"
_TABLES = tuple(f"{_EMBEDDINGS}{part}_embeddings" for part in ("word", "position", "token_type"))
_NORM = tuple(f"{_EMBEDDINGS}LayerNorm/{part}" for part in ("gamma", "beta"))
_MAPPING = tuple(f"{weight_names.MAPPING}{part}" for part in ("kernel", "bias"))
# They have the embedding size, but the teacher's have no counterpart in fewer dimensions.
_WORD_SCORES = "cls/predictions/transform/"


def view(
    teacher: configuration.AlbertConfig, student: configuration.AlbertConfig
) -> weight_names.View:
    """Returns the view of a teacher's checkpoint as that of a student, for `checkpoints.restore`.

    A student with half the layers takes every second layer, or the mean of these where it shares
    parameters that are their own in the teacher. If the teacher's layers share parameters, it takes
    the shared ones and applies them fewer times. Smaller embeddings are the best approximation of
    the teacher's of their size; the head for masked words, without its bias, is then a new one.
    """
    fields = [field.name for field in dataclasses.fields(student)]
    free = {*_DEPTH, *_RATES}
    if student.embedding_size < teacher.embedding_size:
        free.add("embedding_size")
    check_equal(
        teacher,
        student,
        [name for name in fields if name not in free],
        "a student with its teacher's weights",
        "init_from_teacher",
    )
    if student.num_hidden_layers > teacher.num_hidden_layers:
        raise file_io.InputError(
            f"the student's num_hidden_layers={student.num_hidden_layers} must be at most the "
            f"teacher's, {teacher.num_hidden_layers}, as it takes the teacher's weights"
        )

    def read(
        checkpoint: weight_names.CheckpointReader, names: Collection[str]
    ) -> weight_names.CheckpointReader:
        sources = {name: _sources(name, teacher, student) for name in names}
        return _StudentReader(checkpoint, sources, student.embedding_size, teacher.embedding_size)

    return read


def check_equal(
    teacher: configuration.AlbertConfig,
    student: configuration.AlbertConfig,
    names: Sequence[str],
    purpose: str,
    hint: str,
) -> None:
    """Rejects a student whose sizes differ from the teacher's.

    Args:
      names: the sizes to compare.
      purpose: begins the message: what such a student would be.
      hint: the setting that the message refers to.
    """
    differing = [
        f"{name} {getattr(student, name)} (teacher: {getattr(teacher, name)})"
        for name in names
        if getattr(student, name) != getattr(teacher, name)
    ]
    if differing:
        reads_states = hint == "distill_weights" and differing[-1].startswith("hidden_size ")
        note = " (or set the weights of the hidden states to 0)" if reads_states else ""
        raise file_io.InputError(
            f"{purpose} must have the same sizes, but has {', '.join(differing)}{note}; see {hint}"
        )


def _sources(
    name: str, teacher: configuration.AlbertConfig, student: configuration.AlbertConfig
) -> tuple[str, ...]:
    """Returns the names of the teacher's variables whose mean a student's variable takes."""

    def layer_in_teacher(layer: int) -> int:
        return layer * teacher.num_hidden_layers // student.num_hidden_layers

    if match := _LAYER_SCALE.fullmatch(name):
        start, layer, end = match.groups()
        return (f"{start}{layer_in_teacher(int(layer))}{end}",)
    match = _LAYER.fullmatch(name)
    if not match:
        return (name,)
    start, group, end = match.groups()
    part = 0 if any(mark in end for mark in _ATTENTION_PARTS) else 1
    layers = range(student.num_hidden_layers)
    users = [layer for layer in layers if student.groups_of(layer)[part] == int(group)]
    groups = [teacher.groups_of(layer_in_teacher(layer))[part] for layer in users]
    return tuple(f"{start}{group}{end}" for group in dict.fromkeys(groups))


class _StudentReader:
    """Reads the variables of a student from its teacher's checkpoint.

    Args:
      sources: {name of a student's variable: see `_sources`}.
      size, teacher_size: E, F.
    """

    def __init__(
        self,
        checkpoint: weight_names.CheckpointReader,
        sources: Mapping[str, tuple[str, ...]],
        size: int,
        teacher_size: int,
    ) -> None:
        self._checkpoint, self._size = checkpoint, size
        self._is_smaller = size != teacher_size
        self._sources = {
            name: parts for name, parts in sources.items() if all(map(checkpoint.has_tensor, parts))
        }
        if self._is_smaller:
            names = {*_TABLES, *_NORM, *_MAPPING} & sources.keys()
            kept = (x for x in self._sources.items() if not x[0].startswith(_WORD_SCORES))
            self._sources = {**dict(kept), **dict.fromkeys(names, ())}

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        shapes = self._checkpoint.get_variable_to_shape_map()
        return {
            name: shapes[parts[0]] if parts else list(self._embeddings[name].shape)
            for name, parts in self._sources.items()
        }

    def has_tensor(self, name: str) -> bool:
        return name in self._sources

    def get_tensor(self, name: str) -> np.ndarray:
        parts = self._sources[name]
        if not parts:
            return self._embeddings[name]
        values = [self._checkpoint.get_tensor(part) for part in parts]
        return values[0] if len(values) == 1 else np.mean(values, axis=0)

    @functools.cached_property
    def _embeddings(self) -> dict[str, np.ndarray]:
        """The student's embeddings, their LayerNorm and their mapping to the hidden size."""

        def get(name: str) -> np.ndarray:
            return self._checkpoint.get_tensor(name).astype(np.float64)

        tables = [get(name) for name in _TABLES]
        gamma, beta = map(get, _NORM)
        if self._checkpoint.has_tensor(_MAPPING[0]):
            kernel, bias = map(get, _MAPPING)
        else:
            kernel, bias = np.eye(len(gamma)), np.zeros(len(gamma))
        smaller, back = project_embeddings(tables, self._size)
        ones = np.ones(self._size)
        values = [*smaller, ones, 0 * ones, back * gamma @ kernel, beta @ kernel + bias]
        names = (*_TABLES, *_NORM, *_MAPPING)
        return {name: value.astype(np.float32) for name, value in zip(names, values, strict=True)}


def project_embeddings(
    tables: Sequence[np.ndarray], size: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Approximates embeddings [rows, F], whose normalized sum a model reads, with fewer dimensions.

    They are projected on the E - 1 first eigenvectors of the second moment of their sum, without
    the mean over its F dimensions, for independent rows of each table (a truncated singular value
    decomposition). As vocabularies begin with the most frequent pieces, row r of the words has the
    weight 1 / (r + 1) of Zipf's law. The E coordinates add up to 0, so that a LayerNorm over them
    only divides by their norm, as it does in F dimensions.

    Args:
      tables: of words, positions and token types.
      size: E.

    Returns:
      The tables [rows, E], and a matrix [E, F] with which the LayerNorm of the sum of their rows,
      without gamma and beta, is mapped to that of the teacher's. It is exact if the tables span
      fewer than E dimensions.
    """
    tables = [table - table.mean(axis=1, keepdims=True) for table in tables]
    weights = [np.full(len(table), 1 / len(table)) for table in tables]
    frequencies = 1 / np.arange(1, len(tables[0]) + 1)
    weights[0] = frequencies / frequencies.sum()
    means = [weight @ table for weight, table in zip(weights, tables, strict=True)]
    moment = np.outer(sum(means), sum(means))
    for table, weight, mean in zip(tables, weights, means, strict=True):
        moment += ((table - mean) * weight[:, None]).T @ (table - mean)
    directions = np.linalg.eigh(moment)[1][:, ::-1][:, : size - 1]  # [F, E - 1]
    # An orthonormal basis of the coordinates that add up to 0.
    basis = np.linalg.qr(np.eye(size)[:, : size - 1] - 1 / size)[0]  # [E, E - 1]
    smaller = [table @ directions @ basis.T for table in tables]
    width = tables[0].shape[1]
    # The projection shortens the sums: as much as their direction is missing, for typical words.
    sums = tables[0] + sum(means[1:])
    norms = np.linalg.norm(sums, axis=1)
    kept = np.linalg.norm(sums @ directions, axis=1)
    rate = float(weights[0] @ (kept / np.maximum(norms, 1e-12)))
    return smaller, rate * np.sqrt(width / size) * (directions @ basis.T).T
