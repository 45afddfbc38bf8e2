"""Trains a head on a frozen encoder, whose outputs may be computed once and cached in files.

The encoder computes as in inference: without dropout, and its variables get neither gradients nor
slots. Checkpoints still have the whole model. With `cached_data` the encoder computes each text
once, and the epochs train only the head.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
from absl import logging

from albert.data import input_pipeline, record_files
from albert.data.input_options import Tensors
from albert.data.tfrecord import FeatureSpec
from albert.io import file_io, locks, progress
from albert.model import batching, checkpoints, configuration, heads, layers, weight_names
from albert.text import model_inputs
from albert.training import contracts, distribution, engine, stages


def freeze(task: contracts.Task) -> contracts.Task:
    """Returns the task with an encoder that is not trained."""

    def build_model(
        config: configuration.AlbertConfig, compute: layers.Compute, seed: int
    ) -> heads.Model:
        model = cast(heads.Model, task.build_model(config, compute, seed))
        model.freeze_encoder()
        return model

    return dataclasses.replace(task, build_model=build_model)


def check_resume(output_dir: str, is_frozen: bool) -> None:
    """Checks that a resumed run trains or freezes the encoder as before."""
    last, names = _last_variables(output_dir)
    slots = weight_names.training_state(names) - {weight_names.STEP}
    was_frozen = not any(name.startswith(weight_names.ENCODER_PREFIX) for name in slots)
    if slots and was_frozen != is_frozen:
        how, here = ("frozen", "trained") if was_frozen else ("trained", "frozen")
        raise file_io.InputError(
            f"cannot resume from {last}: its encoder was {how}, but this run's encoder would "
            f"be {here} (freeze_encoder={is_frozen}). Use another output_dir and give this "
            "checkpoint as init_checkpoint"
        )


def _last_variables(output_dir: str) -> tuple[str, Collection[str]]:
    """Returns the prefix of the last readable checkpoint and its variables' names, or ("", ())."""
    for prefix in reversed(checkpoints.numbered(output_dir)):
        # A run resumes from the one before a damaged one, see `checkpoints.last_whole`.
        with contextlib.suppress(file_io.InputError):
            return prefix, checkpoints.reader(prefix).get_variable_to_shape_map()
    return "", ()


# --- the cache of outputs -------------------------------------------------------------------------


MANIFEST = "manifest.json"
_VERSION = 1
_LOCK = "lock"
_BLOCK = 2048  # number of records that are read at a time and sorted by length
Texts = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, mask and segments, int32 [N, S] each
# Encodes `Texts` as [N, S, H] or [N, H].
Encode = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# numpy has no bfloat16, so its bits are stored.
_STORED: dict[str, type[np.generic]] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
}


def text_keys(
    input_ids: np.ndarray, input_mask: np.ndarray, segment_ids: np.ndarray
) -> tuple[list[bytes], np.ndarray]:
    """Returns a key per text, a list of N bytes objects, and the numbers of real tokens, int [N].

    Args:
      input_ids, input_mask, segment_ids: int32 arrays [N, S]; real tokens come first.
    """
    lengths = input_mask.sum(axis=1)
    keys = []
    for ids, segments, length in zip(input_ids, segment_ids, lengths.tolist(), strict=True):
        content = ids[:length].tobytes() + segments[:length].tobytes()
        keys.append(hashlib.blake2b(content, digest_size=16).digest())
    return keys, lengths


class OutputCache:
    """A cache of the outputs of one encoder, in one folder.

    Args:
      parent: local folder in which the encoder gets its folder.
      settings: {name: JSON value} of everything that the outputs depend on, except the text.
      width: H.
      dtype: type of the outputs: "float32", "float16" or "bfloat16".
      is_sequence: whether there is one row per token, not per text.
      part_bytes: size in bytes after which a part is written; it is held in memory until then.
    """

    def __init__(
        self,
        parent: str,
        settings: dict[str, Any],
        width: int,
        dtype: str,
        is_sequence: bool,
        part_bytes: int = 128 << 20,
    ) -> None:
        name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = os.path.join(parent, name)
        self._settings = settings
        self._width, self._dtype, self._is_sequence = width, dtype, is_sequence
        self._row_bytes = width * np.dtype(_STORED[dtype]).itemsize
        self._part_bytes = part_bytes
        self._parts: dict[str, np.ndarray] = {}  # name -> array [rows, H]
        self._places: dict[
            bytes, tuple[str, int, int]
        ] = {}  # key -> name of the part, first row, number of rows

    # --- reading ----------------------------------------------------------------------------

    def prepare(self, features: Tensors) -> dict[str, tf.Tensor]:
        """Adds the outputs to the features of a batch.

        Features of texts [B, S] get [B, S', H], S' the longest of them, or [B, H]; those of choices
        [B, C, S] get [B, C, H].
        """
        texts = [features[name] for name in model_inputs.NAMES]
        outputs = tf.numpy_function(self._look_up, texts, _STORED[self._dtype])
        middle = [None] if self._is_sequence else []
        outputs.set_shape([*texts[0].shape[:-1], *middle, self._width])
        if self._dtype == "bfloat16":
            outputs = tf.bitcast(outputs, tf.bfloat16)
        return {**features, heads.ENCODER_OUTPUT: outputs}

    def _look_up(self, *texts: np.ndarray) -> np.ndarray:
        """Returns [N, S', H] or [N, H] of texts: ids, mask and segments, [N, S] each."""
        shape = texts[0].shape[:-1]
        keys, lengths = text_keys(*(x.reshape(-1, x.shape[-1]) for x in texts))
        rows = 1 if not self._is_sequence else lengths.max()
        outputs = np.zeros([len(keys), rows, self._width], _STORED[self._dtype])
        for target, key in zip(outputs, keys, strict=True):
            part, first, count = self._places[key]
            target[:count] = self._parts[part][first : first + count]
        return outputs if self._is_sequence else outputs.reshape(*shape, self._width)

    def _load(self, expected: Collection[str] = ()) -> bool:
        """Loads the existing parts; returns whether some were damaged or some expected are missing.

        Deletes damaged ones.
        """
        names = file_io.listdir(self.folder)
        whole = {name[: -len(".json")] for name in names if name.endswith(".json")} - {"manifest"}
        for name in names:
            if name not in (MANIFEST, _LOCK) and name.split(".")[0] not in whole:
                file_io.remove(os.path.join(self.folder, name))
        damaged = [name for name in sorted(whole - set(self._parts)) if not self._load_part(name)]
        for name in damaged:
            logging.warning("%s in %s is damaged: computing it again", name, self.folder)
            for ending in ("json", "bin"):
                file_io.remove(os.path.join(self.folder, f"{name}.{ending}"))
        missing = sorted(set(expected) - whole)
        for name in missing:
            logging.warning("%s in %s is missing: computing it again", name, self.folder)
        return bool(damaged or missing)

    def _load_part(self, name: str) -> bool:
        """Loads the part with this file name; returns whether it is valid."""
        path = os.path.join(self.folder, name)
        try:
            index = file_io.read_json(f"{path}.json", "index", max_bytes=None)
            keys, counts = list(map(bytes.fromhex, index["keys"])), index["rows"]
            if not all(isinstance(count, int) and count >= 0 for count in counts):
                return False
            if file_io.size(f"{path}.bin") != sum(counts) * self._row_bytes:
                return False
            values = np.frombuffer(file_io.map_bytes(f"{path}.bin"), _STORED[self._dtype])
            ends = np.cumsum(counts).tolist()
            places = [
                (key, (name, end - count, count))
                for key, end, count in zip(keys, ends, counts, strict=True)
            ]
        except (file_io.InputError, OSError, KeyError, TypeError, ValueError):
            return False
        self._parts[name] = values.reshape(-1, self._width)
        self._places.update(places)
        return True

    # --- filling ----------------------------------------------------------------------------

    def fill(
        self,
        paths: Sequence[str],
        specs: Sequence[FeatureSpec],
        encode: Encode,
        batch_size: int,
        check: Callable[[Tensors], Tensors] = lambda features: features,
    ) -> None:
        """Computes the missing outputs of all texts of record files.

        Args:
          batch_size: number of full-length texts that are encoded at a time.
          check: ``(features) -> features`` of a batch as read; rejects invalid values.
        """
        if file_io.is_remote(self.folder):
            raise file_io.InputError(
                f"encoder_cache_dir must be a local folder, which can be mapped; got {self.folder}"
            )
        file_io.make_dirs(self.folder)
        with locks.locked(os.path.join(self.folder, _LOCK)) as waited:
            if waited:
                logging.info("Another run was filling %s", self.folder)
            manifest_path = os.path.join(self.folder, MANIFEST)
            old_data, parts = self._read_manifest(manifest_path)
            if self._load(parts):
                old_data = {}
                file_io.remove(manifest_path)  # This run may end before it writes another.
            data = {_data_key(path): _describe_data(path) for path in paths}
            if data.keys() <= old_data.keys():
                logging.info("Using the encoder's outputs in %s", self.folder)
                return
            count, rows = self._count_missing(_blocks(paths, specs, check))
            self._check_disk_space(count, rows)
            if count:
                num_bytes = rows * self._row_bytes
                with file_io.room_for(self.folder, num_bytes):
                    self._encode_missing(_blocks(paths, specs, check), encode, batch_size, rows)
            self._load()
            manifest = {
                "version": _VERSION,
                "settings": self._settings,
                "data": {**old_data, **data},
                "parts": sorted(self._parts),
            }
            file_io.write_json(manifest_path, manifest)

    def _read_manifest(self, path: str) -> tuple[dict[str, Any], set[str]]:
        """Returns {`_data_key`: `_describe_data`} of complete files, and the names of the parts.

        Both are empty without a valid manifest, or if it does not name the parts (version 1.0.0).
        """
        if not file_io.exists(path):
            return {}, set()
        try:
            manifest = file_io.read_json(path, "manifest")
            data, parts = dict(manifest["data"]), manifest.get("parts")
            return ({}, set()) if parts is None else (data, set(map(str, parts)))
        except (file_io.InputError, KeyError, TypeError, ValueError) as error:
            logging.warning("Not used: %s (%s)", path, error)
            return {}, set()

    def _new_texts(
        self, blocks: Iterable[Texts]
    ) -> Iterator[tuple[Texts, list[bytes], np.ndarray, list[int]]]:
        """Yields (texts, keys, lengths [N], indices of missing texts) of each block of N texts."""
        seen: set[bytes] = set()
        for texts in blocks:
            keys, lengths = text_keys(*texts)
            new = []
            for number, key in enumerate(keys):
                if key not in self._places and key not in seen:
                    seen.add(key)
                    new.append(number)
            yield texts, keys, lengths, new

    def _count_missing(self, blocks: Iterable[Texts]) -> tuple[int, int]:
        """Counts the missing texts in these blocks, and the rows of their outputs."""
        count = rows = 0
        for _, _, lengths, new in self._new_texts(blocks):
            count += len(new)
            rows += int(lengths[new].sum()) if self._is_sequence else len(new)
        return count, rows

    def _check_disk_space(self, count: int, rows: int) -> None:
        """Logs the size of the missing outputs; rejects a disk with too little space.

        These are the outputs of `count` texts and they have `rows` rows.
        """
        num_bytes, free = rows * self._row_bytes, file_io.free_bytes(self.folder)
        sizes = [file_io.describe(count) for count in (num_bytes, free)]
        text = f"{sizes[0]} in {self.folder}, where {sizes[1]} are free"
        logging.info("The encoder's outputs of %d texts need %s", count, text)
        if num_bytes > free:
            raise file_io.InputError(
                f"cache_encoder_outputs needs {text}: give a folder on another disk "
                "(encoder_cache_dir), a smaller train_fraction, or leave it out"
            )

    def _encode_missing(
        self, blocks: Iterable[Texts], encode: Encode, batch_size: int, rows: int
    ) -> None:
        """Computes and writes the outputs of the texts that are not in the cache."""
        waiting: dict[bytes, np.ndarray] = {}  # outputs of the next part by key
        num_bytes = 0
        with progress.Progress("encoding", rows, "rows") as bar:
            for texts, keys, lengths, new in self._new_texts(blocks):
                for batch in _batches(lengths, new, batch_size * texts[0].shape[1]):
                    longest = batching.round_up(int(lengths[batch].max()))
                    outputs = encode(*(x[batch, :longest] for x in texts))
                    for place, output in zip(batch, outputs, strict=True):
                        real = output[: lengths[place]] if self._is_sequence else output[np.newaxis]
                        waiting[keys[place]] = real.copy()  # without the padding
                        num_bytes += real.nbytes
                        bar.advance(len(real))
                    if num_bytes >= self._part_bytes:
                        self._write_part(waiting)
                        waiting, num_bytes = {}, 0
        if waiting:
            self._write_part(waiting)

    def _write_part(self, outputs: Mapping[bytes, np.ndarray]) -> None:
        """Writes a part, {key of a text: its output}; the index, written last, completes it."""
        numbers = [int(n[5:10]) for n in file_io.listdir(self.folder) if n.startswith("part-")]
        path = os.path.join(self.folder, f"part-{max(numbers, default=-1) + 1:05d}")
        with file_io.atomic_writer(f"{path}.bin", "wb") as file:
            file.writelines(rows.tobytes() for rows in outputs.values())
        index = {"keys": [key.hex() for key in outputs], "rows": list(map(len, outputs.values()))}
        file_io.write_json(f"{path}.json", index)


def _data_key(path: str) -> str:
    """Returns the SHA-256 of the manifest of a record file."""
    return file_io.sha256(record_files.manifest_path(path))


def _describe_data(path: str) -> dict[str, Any]:
    """Returns {"file": name, "num_examples", "settings"} of a record file, from its manifest."""
    manifest = file_io.read_json(record_files.manifest_path(path), "manifest", max_bytes=None)
    names = ("num_examples", "settings")
    return {"file": os.path.basename(path), **{name: manifest[name] for name in names}}


def _blocks(
    paths: Sequence[str], specs: Sequence[FeatureSpec], check: Callable[[Tensors], Tensors]
) -> Iterator[Texts]:
    """Yields the texts of record files, some records at a time, whose features `check` returns."""
    specs = [spec for spec in specs if spec.name in model_inputs.NAMES]
    for serialized in record_files.serialized_examples(paths).batch(_BLOCK):
        features = check(input_pipeline.parse(specs, serialized))
        ids, mask, segments = (
            tf.reshape(features[n], [-1, features[n].shape[-1]]).numpy() for n in model_inputs.NAMES
        )
        yield ids, mask, segments


def _batches(lengths: np.ndarray, indices: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yields lists of indices by decreasing lengths [N], each of at most `tokens` padded tokens."""
    order = sorted(indices, key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        count = max(1, tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + count]
        start += count


# --- the cache of a run -------------------------------------------------------------------------


def cached_data(
    data: contracts.Data, task: contracts.Task, run: stages.Run, cache_dir: str
) -> contracts.Data:
    """Adds the encoder's outputs to the data of a run; they are computed before training.

    Args:
      task: a task with a frozen encoder and without a teacher.
      cache_dir: folder of the caches; may be shared by runs.
    """
    if distribution.needs_fixed_shapes(run.strategy) or distribution.workers(run.strategy):
        raise file_io.InputError(
            "cache_encoder_outputs supports only the devices of one machine, not a TPU or several "
            "workers; leave it out"
        )

    @functools.cache
    def encoder() -> _Encoder:
        return _Encoder(task, run, cache_dir)

    batch_size = run.run_config.eval_batch_size

    def fill(data: contracts.Data, split: str, paths: list[str]) -> None:
        with data.reading(paths):
            cache, encode = encoder().cache, encoder().encode
            cache.fill(paths, data.specs(split), encode, batch_size, data.check)

    return data.cached(fill, lambda features: encoder().cache.prepare(features))


class _Encoder:
    """The encoder of a run, and the cache of its outputs."""

    def __init__(self, task: contracts.Task, run: stages.Run, cache_dir: str) -> None:
        config, folder = run.run_config, run.run_config.output_dir
        compute = engine.compute_on(config.compute, run.strategy)
        self._model = cast(heads.Model, task.build_model(run.model_config, compute, config.seed))
        last = checkpoints.last_whole(folder) if file_io.is_dir(folder) else None
        if last:
            checkpoints.restore(self._model, last, allow_new_heads=False)
        elif run.init_checkpoint:
            checkpoints.restore(
                self._model, run.init_checkpoint, view=run.view, new_head=run.new_head
            )
        variables = checkpoints.variables_by_name(self._model)
        used_names = {variable.name for variable in self._model.used_variables}
        self._variables = {
            name: variable
            for name, variable in sorted(variables.items())
            if name.startswith(weight_names.ENCODER_PREFIX) and variable.name in used_names
        }
        self._check_best(folder)
        signature = [tf.TensorSpec([None, None], tf.int32)] * len(model_inputs.NAMES)
        self._encode = tf.function(self._outputs, input_signature=signature, autograph=False)
        is_sequence = self._encode.get_concrete_function().structured_outputs.shape.rank == 3
        self.cache = OutputCache(
            cache_dir,
            self._settings(run.model_config, compute.dtype, is_sequence),
            run.model_config.hidden_size,
            compute.dtype,
            is_sequence,
        )

    def _outputs(self, *texts: tf.Tensor) -> tf.Tensor:
        """Returns [N, S, H] or [N, H] of texts: ids, mask and segments, [N, S] each."""
        outputs = self._model.encoder_output(dict(zip(model_inputs.NAMES, texts, strict=True)))
        return tf.bitcast(outputs, tf.uint16) if outputs.dtype == tf.bfloat16 else outputs

    def encode(self, *texts: np.ndarray) -> np.ndarray:
        """Returns [N, S, H] or [N, H] of texts: ids, mask and segments, int32 [N, S] each."""
        return self._encode(*(tf.constant(x, tf.int32) for x in texts)).numpy()

    def _settings(
        self, config: configuration.AlbertConfig, dtype: str, is_sequence: bool
    ) -> dict[str, Any]:
        """Returns {name: JSON value} of what the outputs depend on, except the text.

        `is_sequence`: outputs have a row for each token, not one for the text.
        """
        digest = hashlib.sha256()
        for name, variable in self._variables.items():
            digest.update(name.encode() + variable.numpy().tobytes())
        rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
        unused = (*rates, *configuration.INITIAL_KEYS)
        sizes = {key: value for key, value in config.to_dict().items() if key not in unused}
        of_text = "pooled_output" if self._model.uses_pooler else "mean_output"
        return {
            "version": _VERSION,
            "output": "sequence_output" if is_sequence else of_text,
            "dtype": dtype,
            "config": sizes,
            "weights_sha256": digest.hexdigest(),
        }

    def _check_best(self, folder: str) -> None:
        """Rejects a folder whose best checkpoint has another encoder than the cache."""
        best = checkpoints.find_best(folder) if file_io.is_dir(folder) else None
        if not best:
            return
        reader = checkpoints.reader(best)
        for name, variable in self._variables.items():
            is_same = reader.has_tensor(name) and np.array_equal(
                reader.get_tensor(name), variable.numpy()
            )
            if not is_same:
                raise file_io.InputError(
                    f"cache_encoder_outputs: {best} has another encoder ({name} differs), so it "
                    "cannot be scored from the cache: use another output_dir"
                )
