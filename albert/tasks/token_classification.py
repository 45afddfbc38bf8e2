"""Token classification (named entities, parts of speech): a label for each word of a sentence.

A word has the label that the model predicts for its first piece (Devlin et al., 2019, section 5.3).
Sentences longer than the model's input are cut between words into parts, so that every word has a
label and is scored.

Letters in shapes: B batch, S sequence, K labels. Only functions that build graphs import
TensorFlow, so that readers start quickly.
"""

import collections
import dataclasses
import functools
import itertools
import operator
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from albert.data import tfrecord
from albert.data.input_options import Tensors
from albert.io import file_io, tables
from albert.model import head_config
from albert.model.configuration import AlbertConfig
from albert.tasks import (
    custom,
    entities,
    example_data,
    metrics,
    model_labels,
    outcomes,
    prediction_files,
    word_files,
)
from albert.text import model_inputs, tokenization
from albert.training import contracts, results, subsets

if TYPE_CHECKING:
    import tensorflow as tf

    from albert.model.layers import Compute

KIND = "token_classifier"  # kind of model folders
NAME = "tokens"
CONLL_NAME, JSONL_NAME = "predictions.conll", "predictions.jsonl"


# --- labels -------------------------------------------------------------------------------------


def label_order(names: Iterable[str]) -> tuple[str, ...]:
    """Sorts label names by id: O first, the others alphabetically."""
    return tuple(sorted(names, key=lambda name: (name != entities.OUTSIDE, name)))


def find_labels(
    output_dir: str,
    files: Mapping[str, str],
    columns: word_files.Columns,
    checkpoint: str | None = None,
) -> tuple[str, ...]:
    """Finds the label names: those saved in the output folder, else those of the data.

    Args:
      files: {split: path}.
      checkpoint: initial weights of the run, or None. If they are those of a token classifier with
        these labels, it gives their order, and also labels that the data lacks.
    """
    run_labels = custom.read_labels(output_dir)
    if run_labels is not None:
        return run_labels
    head = model_labels.read(checkpoint) if checkpoint else None
    if "train" not in files:
        if head and head.kind == KIND:
            return head.labels
        raise custom.no_labels(output_dir)
    flag = custom.SPLIT_FLAGS["train"]
    sentences = word_files.read(files["train"], flag, columns, labeled=True)
    counts = collections.Counter(label for row in sentences for label in row.labels or ())
    if len(counts) < 2:
        raise file_io.InputError(
            f"{files['train']}: expected two labels or more, found "
            f"{tables.name_list(counts) or 'none'}: add sentences with others, or name another "
            "column"
        )
    labels = label_order(counts)
    if head:
        labels = custom.in_order_of(head, labels, data=files["train"], kind=KIND)
    texts = [f"{label} ({counts[label]})" for label in labels]
    logging.info("%d labels: %s", len(labels), tables.text_list(texts))
    return labels


# --- features -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A sentence, or consecutive words of a long sentence that fit into an input.

    Attributes:
      sentence: its number in the file.
      part: number of the part in the sentence.
      ids: ids of the pieces.
      starts: int array, places in `ids` of the first pieces of the words.
      label_ids: ids of the labels of the words.
      num_lost: number of pieces of words that are longer than an input, which were cut.
    """

    guid: str
    sentence: int
    part: int
    ids: list[int]
    starts: np.ndarray
    label_ids: list[int]
    num_lost: int = 0


def parts_of(
    sentence: word_files.Sentence,
    number: int,
    labels: Sequence[str],
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
) -> Iterator[Part]:
    """Yields the parts of a sentence; words without labels get the first label.

    Args:
      number: number of the sentence in its file.
      max_seq_length: S; a longer word is cut at its end.
    """
    label_ids, room = _label_ids(sentence, labels), max_seq_length - 2
    # Words without any piece, such as a lone accent, also have a label.
    words = [tokenizer.encode(word) or [tokenizer.unk_id] for word in sentence.words]
    lost = [max(len(pieces) - room, 0) for pieces in words]
    words = [pieces[:room] for pieces in words]
    lengths = [len(pieces) for pieces in words]
    for place, (first, end) in enumerate(_cuts(lengths, room)):
        ids = [i for pieces in words[first:end] for i in pieces]
        starts = np.cumsum([0, *lengths[first : end - 1]])
        num_lost = sum(lost[first:end])
        yield Part(sentence.guid, number, place, ids, starts, label_ids[first:end], num_lost)


def _cuts(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Yields (first, end) of non-empty runs of words with a total length of at most `room`."""
    first, total = 0, 0
    for place, length in enumerate(lengths):
        if total + length > room:
            yield first, place
            first, total = place, 0
        total += length
    yield first, len(lengths)


def _label_ids(sentence: word_files.Sentence, labels: Sequence[str]) -> list[int]:
    """Returns the id of the label of each word; 0 for words without labels."""
    if sentence.labels is None:
        return [0] * len(sentence.words)
    places = {label: i for i, label in enumerate(labels)}
    for word, label in zip(sentence.words, sentence.labels, strict=True):
        if label not in places:
            raise file_io.InputError(
                f"{sentence.place}: label {label!r} of {word!r}, expected one of "
                f"{tables.name_list(labels)} ({custom.LABELS_NAME}); correct it, or train with "
                "examples of this label"
            )
    return [places[label] for label in sentence.labels]


def convert_part(
    part: Part,
    max_seq_length: int,
    tokenizer: tokenization.FullTokenizer,
    cuts: model_inputs.Cuts | None = None,
) -> dict[str, np.ndarray]:
    """Converts a part to features.

    Args:
      cuts: counts parts whose words were cut; None: they are not counted.

    Returns:
      Dict of int64 arrays: input_ids, input_mask, segment_ids [S]; label_ids and first_pieces [S],
      which are 0 except at the first piece of a word; sentence and part [].
    """
    if cuts is not None:
        cuts.add(len(part.ids) + part.num_lost, len(part.ids))
    arrays = model_inputs.pack(
        part.ids, None, tokenizer.cls_id, tokenizer.sep_id, max_seq_length, tokenizer.pad_id
    )
    label_ids, first_pieces = np.zeros([2, max_seq_length], np.int64)
    places = 1 + part.starts
    label_ids[places], first_pieces[places] = part.label_ids, 1
    return {
        **dict(zip(model_inputs.NAMES, arrays, strict=True)),
        "label_ids": label_ids,
        "first_pieces": first_pieces,
        subsets.SENTENCE: np.int64(part.sentence),
        "part": np.int64(part.part),
    }


def feature_specs(seq_length: int) -> tuple[tfrecord.FeatureSpec, ...]:
    """Returns the specification of each feature of `convert_part` for the length S."""
    spec = tfrecord.FeatureSpec
    sequences = (*model_inputs.NAMES, "label_ids", "first_pieces")
    return (
        *(spec(name, "int64", (seq_length,), sequence=True) for name in sequences),
        spec(subsets.SENTENCE, "int64"),
        spec("part", "int64"),
    )


# --- evaluation and prediction --------------------------------------------------------------------


def eval_outputs(
    outputs: dict[str, Any], features: dict[str, Any], max_seq_length: int
) -> dict[str, Any]:
    """Returns the rows for `Evaluator` and `predictions`.

    Returns:
      Dict of tensors: predictions, probabilities (of the predictions), label_ids, first_pieces
      [B, S], padded to the full length; token_loss, sentence, part [B].
    """
    import tensorflow as tf

    missing = max_seq_length - tf.shape(features["label_ids"])[1]

    def whole(x: "tf.Tensor") -> "tf.Tensor":
        """Pads [B, S'] to [B, S]."""
        return tf.ensure_shape(tf.pad(x, [[0, 0], [0, missing]]), [None, max_seq_length])

    rows = {
        "predictions": outputs["predictions"],
        "probabilities": tf.reduce_max(outputs["probabilities"], -1),
        "label_ids": features["label_ids"],
        "first_pieces": features["first_pieces"],
    }
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        features["label_ids"], outputs["logits"]
    )
    starts = tf.cast(features["first_pieces"], tf.float32)
    return {
        **{name: whole(values) for name, values in rows.items()},
        "token_loss": tf.reduce_sum(losses * starts, axis=1),
        subsets.SENTENCE: features[subsets.SENTENCE],
        "part": features["part"],
    }


def by_sentence(rows: contracts.Rows, *names: str) -> Iterator[tuple[list, ...]]:
    """Yields the values of the words of each sentence, joined from its parts, in order.

    Args:
      rows: {name: array}, outputs of `eval_outputs`.

    Yields:
      For each sentence a tuple of lists, one for each name.
    """
    order = np.lexsort([rows["part"], rows[subsets.SENTENCE]])
    for _, group in itertools.groupby(order, lambda place: rows[subsets.SENTENCE][place]):
        places = list(group)
        starts = [rows["first_pieces"][place] == 1 for place in places]
        yield tuple(
            np.concatenate([rows[n][p][at] for p, at in zip(places, starts, strict=True)]).tolist()
            for n in names
        )


class Evaluator:
    """Accuracy and loss over all words; if labels mark entities, also the scores of entities."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._rows: list[dict[str, np.ndarray]] = []

    def update(self, rows: dict[str, np.ndarray]) -> None:
        """Adds a batch, {name: array [B, …]}: the `eval_outputs`."""
        self._rows.append(rows)

    def result(self) -> dict[str, float]:
        """Returns ``eval_accuracy``, ``eval_loss``, ``loss``; of entities ``f1``, ``f1_<type>``…"""
        rows = self._join()
        true, predicted = self._names(rows)
        loss = float(rows["token_loss"].sum(dtype=np.float64) / rows["first_pieces"].sum())
        return {**self._scores(true, predicted), "eval_loss": loss, "loss": loss}

    def classes(self) -> tuple[results.ClassCount, ...]:
        """Counts the entities of each type; if labels mark no entities, the words of each label."""
        rows = self._join()
        if not entities.mark_entities(self._labels):
            words = rows["first_pieces"] == 1
            sides = (rows[name][words] for name in ("label_ids", "predictions"))
            return results.count_classes(self._labels, *sides)
        by_kind, _ = entities.count(*self._names(rows))
        return by_kind

    def _names(self, rows: contracts.Rows) -> Iterator[list[list[str]]]:
        """Yields two lists from outputs of all parts: labels, predictions [W] of each sentence."""
        pairs = by_sentence(rows, "label_ids", "predictions")
        return (
            [[self._labels[i] for i in row] for row in column]
            for column in zip(*pairs, strict=True)
        )

    def baseline(self) -> dict[str, float]:
        """Returns the scores of `result` if every word gets the most frequent label."""
        labels = np.concatenate([r["label_ids"][r["first_pieces"] == 1] for r in self._rows])
        frequent = self._labels[int(np.argmax(np.bincount(labels)))]
        pairs = by_sentence(self._join(), "label_ids")
        true = [[self._labels[i] for i in row] for (row,) in pairs]
        loss = metrics.baseline_loss(labels)
        constant = [[frequent] * len(row) for row in true]
        return {**self._scores(true, constant), "eval_loss": loss, "loss": loss}

    def _join(self) -> dict[str, np.ndarray]:
        """Returns the outputs of all batches, {name: array [N, …]}."""
        return {name: np.concatenate([r[name] for r in self._rows]) for name in self._rows[0]}

    def _scores(
        self, true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Returns the accuracy, and if labels mark entities their scores, by name."""
        marked = entities.mark_entities(self._labels)
        return {
            "eval_accuracy": entities.accuracy(true, predicted),
            **(entities.scores(true, predicted) if marked else {}),
        }


def _train_metrics(
    outputs: Tensors, features: Tensors
) -> dict[str, tuple["tf.Tensor", "tf.Tensor"]]:
    """Returns {"accuracy": (number of correct, number of all words)} of a batch."""
    import tensorflow as tf

    words = tf.cast(features["first_pieces"], tf.float32)
    correct = tf.cast(outputs["predictions"] == features["label_ids"], tf.float32)
    return {"accuracy": (tf.reduce_sum(correct * words), tf.reduce_sum(words))}


def make_task(
    labels: Sequence[str],
    max_seq_length: int,
    dropout_prob: float = 0.1,
    head: head_config.Head = head_config.NO_LAYER,
    class_weights: Sequence[float] = (),
) -> contracts.Task:
    """Returns the `contracts.Task` of token classification.

    Args:
      labels: label names by id. If they mark entities, the best checkpoint has the best F1, else
        the best accuracy.
      class_weights: weights of the labels in the loss by id; empty: all count the same.
    """
    from albert.model import heads
    from albert.training import learning_signals

    partial, marked = functools.partial, entities.mark_entities(labels)

    def build_model(config: AlbertConfig, compute: "Compute", seed: int) -> heads.Model:
        """Builds the model; `seed` is that of the new variables."""
        settings = (compute, seed, dropout_prob, head, class_weights)
        return heads.TokenClassifierModel(config, len(labels), *settings)

    return contracts.Task(
        name=NAME,
        build_model=build_model,
        eval_outputs=partial(eval_outputs, max_seq_length=max_seq_length),
        evaluator=partial(Evaluator, labels),
        train_metrics=_train_metrics,
        best_metric="f1" if marked else "eval_accuracy",
        metrics=("eval_accuracy", "eval_loss", *(("f1", "precision", "recall") if marked else ())),
        learning_signals=learning_signals.word_signals,
    )


# --- data -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Files:
    """The user's files of sentences: {split: path} of the given splits, and their labels by id."""

    files: dict[str, str]
    columns: word_files.Columns
    labels: tuple[str, ...]

    def sentences(self, split: str) -> Iterator[word_files.Sentence]:
        """Yields the sentences of the split "train", "dev" or "test"."""
        labeled = None if split == "test" else True
        flag = custom.SPLIT_FLAGS[split]
        yield from word_files.read(self.files[split], flag, self.columns, labeled)

    def parts(
        self, split: str, max_seq_length: int, tokenizer: tokenization.FullTokenizer
    ) -> Iterator[Part]:
        """Yields the parts of the sentences of a split."""
        for number, sentence in enumerate(self.sentences(split)):
            yield from parts_of(sentence, number, self.labels, max_seq_length, tokenizer)


def predictions(
    sentences: Iterable[word_files.Sentence],
    labels: Sequence[str],
    rows: contracts.Rows,
    cut: Container[int] = (),
) -> Iterator[word_files.Prediction]:
    """Yields the prediction for each sentence.

    Args:
      rows: {name: array}, outputs of `eval_outputs` for all their parts.
      cut: numbers of the sentences of which words were cut.
    """
    pairs = by_sentence(rows, "predictions", "probabilities")
    for number, (sentence, pair) in enumerate(zip(sentences, pairs, strict=True)):
        names = [labels[i] for i in pair[0]]
        yield word_files.Prediction(sentence, names, pair[1], number in cut)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenData(example_data.ExampleData[Part]):
    """The data of token classification: parts of sentences with at most `max_seq_length` tokens."""

    name: str = NAME
    sentence_files: Files
    tokenizer: tokenization.FullTokenizer
    max_seq_length: int

    def __post_init__(self) -> None:
        check_length(self.max_seq_length)

    @property
    def limits(self) -> dict[str, int]:
        """Returns {feature: number below which its integers must be}."""
        return {"label_ids": len(self.sentence_files.labels), "first_pieces": 2}

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        return feature_specs(self.max_seq_length)

    def files(self, split: str) -> list[str]:
        """Returns the paths of the source files of the split "train", "dev" or "test"."""
        return [self.sentence_files.files[split]]

    def fingerprint(self, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict that identifies the data of a split, such as its SHA-256."""
        files = self.sentence_files
        return {
            "data_sha256": file_io.sha256(files.files[split]),
            "format": word_files.format_of(files.files[split]),
            "columns": dataclasses.asdict(files.columns),
            "labels": list(files.labels),
        }

    def examples(self, split: str) -> Iterator[Part]:
        """Yields the parts of the sentences of a split."""
        return self.sentence_files.parts(split, self.max_seq_length, self.tokenizer)

    def dev_requests(self) -> Iterator[dict[str, list[str]]]:
        """Yields {"words": words} of each dev sentence."""
        return ({"words": list(row.words)} for row in self.sentence_files.sentences("dev"))

    def inputs(
        self, number: int, example: Part, cuts: model_inputs.Cuts
    ) -> list[dict[str, np.ndarray]]:
        """Returns the features of a part's record; see `ExampleData.inputs`."""
        return [convert_part(example, self.max_seq_length, self.tokenizer, cuts)]

    def _predictions(self, rows: contracts.Rows) -> Iterator[word_files.Prediction]:
        """Yields the predicted sentences of the test file from {name: array} of `eval_outputs`."""
        sentences = self.sentence_files.sentences("test")
        return predictions(sentences, self.sentence_files.labels, rows)

    @property
    def _is_labeled(self) -> bool:
        """Whether the test file has labels, judged by its first sentence."""
        return next(self.sentence_files.sentences("test")).labels is not None

    def write_files(
        self, output_dir: str, rows: contracts.Rows, ids: list[str]
    ) -> dict[str, float] | None:
        """Writes the predictions and the scores; see `ExampleData.write_files`."""
        labels = self.sentence_files.labels
        for name in (CONLL_NAME, JSONL_NAME):
            with file_io.atomic_writer(os.path.join(output_dir, name)) as file:
                form = word_files.format_of(name)
                word_files.write_predictions(file, form, labels, self._predictions(rows))
        if not self._is_labeled:
            return None
        return prediction_files.write_scores(output_dir, Evaluator(labels), rows)

    def outcomes(self, rows: contracts.Rows, ids: list[str]) -> Iterator[outcomes.Outcome] | None:
        """Yields label and prediction of each sentence; None if the labels are not known."""
        if not self._is_labeled:
            return None
        return outcomes_of(self._predictions(rows), self.sentence_files.labels)


def outcomes_of(
    rows: Iterable[word_files.Prediction], labels: Sequence[str]
) -> Iterator[outcomes.Outcome]:
    """Yields the outcomes of predicted sentences whose labels are known."""
    marked = entities.mark_entities(labels)
    for row in rows:
        true = row.sentence.labels
        assert true is not None
        right = sum(map(operator.eq, true, row.labels))
        numbers = {"right_words": right, "words": len(true)}
        if marked:
            _, counts = entities.count([true], [row.labels])
            numbers |= {f"{name}_entities": x for name, x in counts._asdict().items()}
        yield outcomes.Outcome(
            row.sentence.guid, " ".join(row.sentence.words), " ".join(true),
            " ".join(row.labels), right == len(true), numbers=numbers,
        )  # fmt: skip


def check_length(max_seq_length: int) -> None:
    """Rejects lengths without space for a piece in addition to [CLS] and [SEP]."""
    if max_seq_length < 3:
        raise file_io.InputError(
            f"max_seq_length={max_seq_length} must be at least 3: a piece, [CLS] and [SEP]"
        )
