"""Computes the encoder's vectors for texts and writes them to files.

Letters in shapes: B batch, S sequence, T tokens of a text (with [CLS] and [SEP]), L requested
layers, H hidden, N texts.
"""

import array
import dataclasses
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert.io import file_io
from albert.model import (
    checkpoints,
    encoder,
    head_config,
    huggingface,
    model_folder,
    pooling,
    prepared_weights,
    sources,
    weight_names,
)
from albert.serving.predictor import Arrays, BatchedModel, stacked
from albert.tasks import kinds
from albert.text import model_inputs

KINDS = ("tokens", "mean", "first", "pooled")
# What a model says of the vectors of texts -> the kind.
_OF_POOLING = {pooling.CLS: "first", pooling.MEAN: "mean"}
_BATCHES_AHEAD = 16  # read at a time, to batch texts of similar length
_CHUNK = 1 << 20
_DECIMALS = 6  # of numbers in jsonl


@dataclasses.dataclass(frozen=True)
class Features:
    """The T tokens and the vectors of a text."""

    tokens: list
    token_ids: np.ndarray  # int32 [T]
    # float32, [T, L, H] for "tokens", [L, H] for "mean" and "first", [H] for "pooled".
    vectors: np.ndarray


def kind_of(pooled: str) -> str:
    """Returns the kind of vectors, one of `KINDS`, that a kind of `pooling` gives."""
    return _OF_POOLING[pooled]


def kind_for(source: sources.Source) -> str:
    """Returns the kind of vectors that a model is made for; "tokens" if it does not say it.

    Models of sentence-transformers say it, and those that were trained with pooling=mean.
    """
    if not source.checkpoint:
        return "tokens"
    folder = os.path.dirname(source.checkpoint)
    if said := pooling.read(folder):
        return kind_of(said)
    head = model_folder.described_head(folder)
    return kind_of(head.pooling) if head and head.pooling != pooling.CLS else "tokens"


def length_for(source: sources.Source, longest: int) -> int:
    """Returns the most tokens of a text that a model is made for, at most `longest`.

    Models of sentence-transformers say it, else the tokenizer of a Hugging Face folder does; the
    model's positions are a limit for all.
    """
    limits = [longest]
    if source.checkpoint:
        folder = os.path.dirname(source.checkpoint)
        said = pooling.read_max_length(folder) or huggingface.read_max_length(folder)
        limits += [said] if said else []
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    return min(*limits, config.max_position_embeddings)


def check_layers(layers: Sequence[int], config: encoder.AlbertConfig) -> None:
    """Rejects numbers of layers that the model does not have."""
    count = config.num_hidden_layers * config.inner_group_num
    wrong = [layer for layer in layers if not -count <= layer < count]
    if wrong:
        raise file_io.InputError(
            f"`layers`: the model has {count} layers, 0 to {count - 1} or -{count} to -1; got "
            f"{wrong}"
        )


class _Encoder(encoder.AlbertModel):
    """An encoder that needs its pooler only for vectors of the kind "pooled"."""

    def __init__(self, config: encoder.AlbertConfig, seed: int, kind: str) -> None:
        super().__init__(config, seed)
        self._uses_pooler = kind == "pooled"

    @property
    def used_variables(self) -> list[tf.Variable]:
        """The variables that the vectors depend on, see `heads.Model`."""
        used = [v for v in self.variables if not _is_of_pooler(v.name)]
        return list(self.variables) if self._uses_pooler else used


def _check_pooler(model: _Encoder, checkpoint: str) -> None:
    """Rejects a pooler that was random at the start of a run whose loss does not depend on it."""
    folder = os.path.dirname(checkpoints.resolve(checkpoint))
    names = [name for name in checkpoints.random_parts(folder, model) if _is_of_pooler(name)]
    if names and not _trains_pooler(folder):
        raise file_io.InputError(
            f"{checkpoint}: the pooler ({', '.join(names)}) began with random values and was not "
            "trained, as the model does not use it; take vectors=mean or first"
        )


def _is_of_pooler(name: str) -> bool:
    return name.startswith(weight_names.POOLER)


def _trains_pooler(folder: str) -> bool:
    """Returns whether the run of a folder trains the pooler; True if the folder is of no run."""
    if file_io.exists(os.path.join(folder, sources.DESCRIPTION_NAME)):
        read = model_folder.read(folder, with_weights=False)
        pooled = read.settings_as(head_config.Head).pooling
        return kinds.KINDS[read.kind].trains_pooler and pooled == pooling.CLS
    if file_io.exists(os.path.join(folder, sources.PRETRAINING_NAME)):
        return model_folder.sentence_tasks(folder) != ["none"]
    return True


class Extractor(BatchedModel[str, Arrays, Features]):
    """An encoder that returns vectors of some layers.

    Args:
      source: without a checkpoint the weights are random.
      layers: numbers of layers, 0 the first after the embeddings, -1 the last.
      kind: "tokens": one vector per token; "mean": their mean; "first": the vector of [CLS];
        "pooled": the pooler's output, of the last layer only, and `layers` is ignored; rejected if
        the pooler is missing or random.
      max_seq_length: S; longer texts are truncated.

    Attributes:
      cuts: counts the texts so far, and those that were cut.
    """

    def __init__(
        self,
        source: sources.Source,
        layers: Sequence[int],
        kind: str,
        max_seq_length: int,
        seed: int = 0,
    ) -> None:
        config = encoder.AlbertConfig.from_json_file(source.config_file)
        check_layers(layers, config)
        if not 3 < max_seq_length <= config.max_position_embeddings:
            raise file_io.InputError(
                f"max_seq_length={max_seq_length} must be from 4 to the model's "
                f"max_position_embeddings of {config.max_position_embeddings}"
            )
        self._tokenizer = model_folder.load_tokenizer(source, config)
        self._layers, self._kind, self._length = tuple(layers), kind, max_seq_length
        self.cuts = model_inputs.Cuts()
        self._model = _Encoder(config, seed, kind)
        if source.checkpoint:
            checkpoints.restore(self._model, source.checkpoint, allow_new_heads=False)
            _check_pooler(self._model, source.checkpoint)
            pooling.warn_of_prompts(os.path.dirname(source.checkpoint))
        self.infer = prepared_weights.CompiledModel(
            self._model,
            lambda features: {"vectors": self._vectors(features)},
            model_inputs.NAMES,
        )

    def _vectors(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        encoded = self._model(*(features[name] for name in model_inputs.NAMES))
        if self._kind == "pooled":
            return encoded.pooled_output
        layers = [encoded.all_encoder_layers[layer] for layer in self._layers]
        if self._kind == "mean":
            mask = features["input_mask"]
            return tf.stack([encoder.mean_of_tokens(x, mask) for x in layers], 1)  # [B, L, H]
        if self._kind == "first":
            return tf.stack([layer[:, 0] for layer in layers], 1)  # [B, L, H]
        return tf.stack(layers, 2)  # [B, S, L, H]

    def extract(self, texts: Iterable[str], batch_size: int) -> Iterator[Features]:
        """Yields the features of each text, in order; memory use does not depend on their number.

        A tab separates the two texts of a pair.
        """
        return self._predict(texts, batch_size, _BATCHES_AHEAD)

    def _encode(self, examples: Sequence[str]) -> tuple[Arrays, Arrays]:
        inputs = stacked([self._pack(text) for text in examples])
        return inputs, inputs

    def _decode(
        self, examples: Sequence[str], notes: Arrays, outputs: Sequence[Arrays]
    ) -> Iterator[Features]:
        lengths = notes["input_mask"].sum(axis=1)
        for row, length, output in zip(notes["input_ids"], lengths, outputs, strict=True):
            ids, vectors = row[:length], output["vectors"]
            vectors = vectors[:length] if self._kind == "tokens" else vectors
            yield Features(self._tokenizer.convert_ids_to_tokens(ids), ids, vectors)

    def _pack(self, text: str) -> Arrays:
        ids_a, *more = [self._tokenizer.encode(part) for part in text.split("\t", 1)]
        ids_b = more[0] if more else None
        count = len(ids_a) + len(ids_b or ())
        ids_a, ids_b = model_inputs.truncate_to_fit(ids_a, ids_b, self._length)
        self.cuts.add(count, len(ids_a) + len(ids_b or ()))
        tokenizer = self._tokenizer
        packed = model_inputs.pack(
            ids_a, ids_b, tokenizer.cls_id, tokenizer.sep_id, self._length, tokenizer.pad_id
        )
        return dict(zip(model_inputs.NAMES, packed, strict=True))


# --- files ------------------------------------------------------------------------------------


def write_jsonl(path: str | None, rows: Iterable[Features]) -> int:
    """Writes a JSON object per text: ``index``, ``tokens``, ``vectors``; returns their number.

    Without a path it writes to standard output.
    """
    count = 0
    with file_io.atomic_writer_or_stdout(path) as file:
        for row in rows:
            vectors = np.round(row.vectors.astype(np.float64), _DECIMALS).tolist()
            entry = {"index": count, "tokens": row.tokens, "vectors": vectors}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            count += 1
    return count


def write_npz(path: str, rows: Iterable[Features]) -> int:
    """Writes arrays that `numpy.load` reads; returns N, the number of texts.

    ``vectors`` float32 [N, …], for "tokens" the vectors of all texts concatenated; ``token_ids``
    int32, those of all texts; ``offsets`` int64 [N + 1]: text i has the entries offsets[i] to
    offsets[i + 1]. All rows are of one kind.
    """
    spool = file_io.temporary_name(f"{path}.vectors")
    offsets, token_ids, count = array.array("q", [0]), array.array("i"), 0
    shape: tuple[int, ...] = (0,)
    try:
        with file_io.room_for(path), file_io.open_file(spool, "wb") as file:
            for row in rows:
                file.write(np.ascontiguousarray(row.vectors, "<f4").tobytes())
                token_ids.extend(row.token_ids.tolist())
                offsets.append(len(token_ids))
                by_token = row.vectors.ndim == 3
                count += len(row.vectors) if by_token else 1
                shape = row.vectors.shape[1:] if by_token else row.vectors.shape
        with (
            file_io.atomic_writer(path, "wb") as file,
            zipfile.ZipFile(file, "w", allowZip64=True) as archive,
        ):
            # The header comes before the vectors, but their number is known only now.
            with (
                file_io.open_file(spool, "rb") as vectors,
                archive.open("vectors.npy", "w", force_zip64=True) as member,
            ):
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
                np.lib.format.write_array_header_1_0(member, header)
                while chunk := vectors.read(_CHUNK):
                    member.write(chunk)
            for name, values in (("token_ids", token_ids), ("offsets", offsets)):
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.asarray(values))
    finally:
        file_io.remove(spool)
    return len(offsets) - 1
