"""Writes fine-tuned models as SavedModels, which other programs load.

Classifiers take serialized tf.Examples or strings, SQuAD models take ids. SQuAD 1.1 is also written
for TensorFlow Lite. If a model takes strings, its graph contains the tokenizer, see `graphs`;
programs that load it must import ``tensorflow_text`` first.

Letters in shapes: B batch, K labels, S sequence.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert.data import input_pipeline, tfrecord
from albert.export import graphs, litert_export
from albert.io import file_io, manifests, tables
from albert.model import checkpoints, encoder, layers, model_folder, tensor_batching
from albert.model import decision as decisions
from albert.serving import serving_folder
from albert.tasks import race, token_classification
from albert.tasks.squad import task as squad_task
from albert.text import long_texts, model_inputs, tokenization
from albert.training import contracts, engine

SAVED_MODEL = "saved_model"
TFLITE_NAME = "albert_model.tflite"
# The names that the reference gives the logits of SQuAD 1.1 in its SavedModel.
_REFERENCE_NAMES = {"start_log_prob": "start_logits", "end_log_prob": "end_logits"}
# In the order of the reference's TensorFlow Lite model, whose converter sorts the names.
_LITE_OUTPUTS = ("end_logits", "start_logits")


def model_to_serve(
    task: contracts.Task, config: encoder.AlbertConfig, prefix: str, skip_padding: bool = True
) -> contracts.Model:
    """Builds the model of a task with the weights of a checkpoint, for use on any machine.

    It computes in float32, because support for lower precision depends on the machine.
    """
    model = task.build_model(config, layers.Compute(skip_padding=skip_padding), 0)
    checkpoints.restore(model, prefix, allow_new_heads=False)
    return model


# --- classifiers ----------------------------------------------------------------------------------


class _ExampleServer(tf.Module):
    """Answers serialized tf.Examples with a classifier's probabilities and predictions.

    `threshold`: see `export_classifier`.
    """

    def __init__(
        self, model: contracts.Model, specs: Sequence[tfrecord.FeatureSpec], threshold: float | None
    ) -> None:
        super().__init__()
        self._model = model
        self._specs = tuple(spec for spec in specs if spec.name in model_inputs.NAMES)
        self._threshold = threshold

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="input")], autograph=False)
    def serve(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tensor_batching.trim(
            input_pipeline.parse(self._specs, examples), model_inputs.NAMES
        )
        outputs = self._model(features, training=False)
        answer = {name: outputs[name] for name in ("probabilities", "predictions")}
        if self._threshold is not None:
            answer["threshold"] = tf.constant(self._threshold, tf.float32)
        return answer

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False
    )
    def serve_examples(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return self.serve(examples)


def export_classifier(
    model: contracts.Model,
    specs: Sequence[tfrecord.FeatureSpec],
    export_dir: str,
    threshold: float | None = None,
) -> str:
    """Writes a SavedModel that takes serialized tf.Examples, and returns its new folder.

    The signature ``serving_default`` calls them ``input``, like the reference; the signature
    ``examples`` calls them ``examples``.

    Args:
      model: classifier or regression model of `heads`.
      export_dir: see `save_version`.
      threshold: constant output ``threshold``; None or NaN omits it.
    """
    if threshold is not None and math.isnan(threshold):
        threshold = None
    server = _ExampleServer(model, specs, threshold)
    signatures = {"serving_default": server.serve, "examples": server.serve_examples}
    return save_version(server, signatures, export_dir)


def save_version(module: tf.Module, signatures: dict, parent: str) -> str:
    """Writes a SavedModel to a new folder of `parent`; returns that folder.

    Its name is the time in seconds, as model servers choose the largest number.
    """
    version = int(time.time())
    while file_io.exists(os.path.join(parent, str(version))):
        version += 1
    return save_model(module, signatures, parent, str(version))


def save_model(module: tf.Module, signatures: dict, parent: str, name: str) -> str:
    """Writes a SavedModel under `parent` that appears whole or not at all; returns its folder.

    It replaces an existing model of that name.
    """
    file_io.make_dirs(parent)
    target = os.path.join(parent, name)
    # A hidden folder, which no server loads even if the process is killed.
    temporary = file_io.temporary_name(os.path.join(parent, ".model"))
    try:
        with file_io.room_for(target, _size_of(module)):
            try:
                tf.saved_model.save(module, temporary, signatures=signatures)
                manifests.write(temporary)
                file_io.remove(target)
                file_io.rename(temporary, target)
            finally:
                file_io.remove(temporary)
    except (tf.errors.OpError, OSError) as error:
        raise file_io.InputError(f"cannot write the model to {target}: {error}") from error
    logging.info("Exported to %s", target)
    return target


def _size_of(module: tf.Module) -> int | None:
    """Returns the bytes of a module's variables; None for an object that does not list them."""
    if not isinstance(module, tf.Module):
        return None
    shapes = [(variable.dtype.size, variable.shape.num_elements()) for variable in module.variables]
    return sum(size * count for size, count in shapes)


# --- SQuAD --------------------------------------------------------------------------------------


def answer_mask(input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
    """Computes the feature ``p_mask``, int32 [B, S], from the other inputs, integers [B, S].

    It is 0 at [CLS] and in the text, where an answer can be, else 1.
    """
    text = segment_ids * input_mask
    # The last position of the segment is its [SEP].
    before_end = tf.cumsum(text, axis=-1, reverse=True) > 1
    first = tf.range(tf.shape(text)[-1]) == 0
    return tf.cast(~(((text > 0) & before_end) | first), tf.int32)


class _SquadServer(tf.Module):
    """A SQuAD model that takes only ids, mask and segments."""

    def __init__(self, model: contracts.Model) -> None:
        super().__init__()
        self._model = model

    def __call__(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        features = {
            "input_ids": input_ids,
            "input_mask": input_mask,
            "segment_ids": segment_ids,
            "p_mask": answer_mask(input_mask, segment_ids),
        }
        return self._model(features, training=False)

    def with_reference_names(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the outputs, with the logits of SQuAD 1.1 also under the reference's names."""
        outputs = self(input_ids, input_mask, segment_ids)
        names = {theirs: ours for theirs, ours in _REFERENCE_NAMES.items() if ours in outputs}
        return outputs | {theirs: tf.identity(outputs[ours]) for theirs, ours in names.items()}


def _lite_model(server: _SquadServer, max_seq_length: int, path: str) -> bytes:
    function = graphs.function_of_ids(server.__call__, model_inputs.NAMES, 1, max_seq_length)
    about = {"inputs": model_inputs.NAMES, "outputs": _LITE_OUTPUTS}
    return litert_export.convert(server, {"serving_default": function}, about, path)


def export_squad(
    trained: engine.Engine, checkpoint: str | None, max_seq_length: int, export_dir: str
) -> None:
    """Writes a new folder in ``saved_model/`` and, for SQuAD 1.1, ``albert_model.tflite``.

    The SavedModel takes int32 ``input_ids``, ``input_mask`` and ``segment_ids``, each [B, S].
    For SQuAD 1.1 it returns ``start_logits`` and ``end_logits`` [B, S], also under the names
    ``start_log_prob`` and ``end_log_prob``; for SQuAD 2.0 the beams and ``cls_logits``. The
    TensorFlow Lite model takes the same inputs, in this order, as [1, `max_seq_length`] and returns
    ``end_logits`` and ``start_logits``; it replaces an existing file. `checkpoint`: see
    `checkpoints.choose`.
    """
    prefix = checkpoints.choose(trained.run_config.output_dir, checkpoint)
    logging.info("Exporting %s", prefix)
    # TensorFlow Lite has no operations to skip padding.
    model = model_to_serve(trained.task, trained.model.config, prefix, skip_padding=False)
    server = _SquadServer(model)
    server.serve = graphs.function_of_ids(server.with_reference_names, model_inputs.NAMES)
    signatures = {"serving_default": server.serve}
    save_version(server, signatures, os.path.join(export_dir, SAVED_MODEL))
    if trained.task.name == squad_task.V1:
        path = os.path.join(export_dir, TFLITE_NAME)
        file_io.write_bytes(path, _lite_model(server, max_seq_length, path))
        logging.info("Exported to %s", path)


# --- strings ------------------------------------------------------------------------------------


def kept_lengths(
    lengths_a: tf.Tensor, lengths_b: tf.Tensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the lengths [B] of two texts after `model_inputs.truncate_pair`, in a graph."""
    excess = tf.maximum(lengths_a + lengths_b - max_length, 0)
    until_equal = tf.minimum(excess, tf.abs(lengths_a - lengths_b))
    in_turns = excess - until_equal
    drop_a = in_turns // 2 + tf.where(lengths_a > lengths_b, until_equal, 0)
    return lengths_a - drop_a, lengths_b - (excess - drop_a)


def _truncate(ids: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Keeps the first `lengths` [B] ids of each row of a ragged tensor."""
    return tf.RaggedTensor.from_tensor(ids.to_tensor(), lengths=lengths)


class TextPacker(tf.Module):
    """Turns strings into the inputs of a model; cuts texts longer than S = `max_seq_length`."""

    def __init__(self, tokenizer: tokenization.FullTokenizer, max_seq_length: int) -> None:
        super().__init__()
        self.tokenizer = graphs.make(tokenizer)
        self._max_seq_length = max_seq_length
        self._cls_id, self._sep_id = tokenizer.cls_id, tokenizer.sep_id
        self._pad_id = tokenizer.pad_id

    def features(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Packs strings [B] like `model_inputs.pack`: int32 [B, S'], S' the longest length."""
        first = self.tokenizer.encode(text)
        if text_pair is None:
            return self.pack(first[:, : self._max_seq_length - 2])
        second = self.tokenizer.encode(text_pair)
        lengths_a, lengths_b = (tf.cast(x.row_lengths(), tf.int32) for x in (first, second))
        lengths = kept_lengths(lengths_a, lengths_b, self._max_seq_length - 3)
        return self.pack(*(_truncate(*pair) for pair in zip((first, second), lengths, strict=True)))

    def pack(
        self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Packs ragged ids [B, (tokens)] that fit like `model_inputs.pack`; see `features`."""
        rows = first.nrows(tf.int32)

        def mark(piece: int) -> tf.Tensor:
            return tf.fill([rows, 1], piece)

        second = [] if second is None else [second, mark(self._sep_id)]
        whole = tf.concat([mark(self._cls_id), first, mark(self._sep_id), *second], axis=1)
        boundary = tf.cast(first.row_lengths(), tf.int32)[:, tf.newaxis] + 2
        input_ids = whole.to_tensor(self._pad_id)
        input_mask = tf.sequence_mask(whole.row_lengths(), dtype=tf.int32)
        place = tf.range(tf.shape(input_ids)[1])[tf.newaxis, :]
        segment_ids = input_mask * tf.cast(place >= boundary, tf.int32)
        return {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}

    @property
    def signatures(self) -> dict[str, Any]:
        """The functions of the signatures of a class with a function `serve`, by name."""
        return {"serving_default": self.serve}


def check_cut(rule: long_texts.LongTexts) -> None:
    """Rejects models that read long texts in another way than cutting them, as a graph does."""
    if rule != long_texts.ALL_CUT:
        raise file_io.InputError(
            f"a model that takes texts cuts long ones, but this model has long_texts={rule.mode}: "
            "give it ids"
        )


class TextServer(TextPacker):
    """Answers strings with a classifier or regression model.

    Longer texts than S = `max_seq_length` are cut as `glue.convert_example` does.

    Args:
      labels: K label names by id; empty for regression.
      is_pair: whether the model takes two texts.
      decision: tells where the model abstains: its answer is then `decision.ABSTAINS`.

    Attributes:
      serve: the function of its signature: text [B], and text_pair [B] if `is_pair`, to prediction
        [B] (label names; for regression numbers) and, for labels, probabilities and labels [B, K].
        Of several labels per text, predictions int32 [B, K] are 1 for those of the text.
    """

    def __init__(
        self,
        model: contracts.Model,
        tokenizer: tokenization.FullTokenizer,
        max_seq_length: int,
        labels: Sequence[str],
        is_pair: bool,
        decision: decisions.Decision = decisions.PLAIN,
    ) -> None:
        super().__init__(tokenizer, max_seq_length)
        self._model, self._decision = model, decision
        self._labels = tuple(labels)
        names = ("text", "text_pair") if is_pair else ("text",)
        signature = [tf.TensorSpec([None], tf.string, name=name) for name in names]
        self.serve = tf.function(self._answer, input_signature=signature, autograph=False)

    def _answer(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        outputs = self._model(self.features(text, text_pair), training=False)
        if not self._labels:
            return {"prediction": outputs["predictions"]}
        labels, predictions = tf.constant(self._labels), outputs["predictions"]
        if predictions.shape.rank == 2:  # several labels per text
            named = {"predictions": predictions}
        else:
            answers = tf.gather(labels, predictions)
            if self._decision.may_abstain:
                highest = tf.reduce_max(outputs["probabilities"], axis=-1)
                abstains = highest < self._decision.min_probability
                answers = tf.where(abstains, decisions.ABSTAINS, answers)
            named = {"prediction": answers}
        return {
            **named,
            "probabilities": outputs["probabilities"],
            "labels": tf.tile(labels[tf.newaxis], [tf.shape(text)[0], 1]),
        }


# --- multiple choice ----------------------------------------------------------------------------


_BLANK = "_"  # in questions, see `race.ending`


class ChoiceServer(TextPacker):
    """Answers questions with a model that was fine-tuned on RACE.

    Args:
      model: `heads.RegressionModel`, which scores a text with a question and an option.
      max_seq_length: S; longer texts are cut as `race.convert_example` does.
      max_qa_length: maximum number of tokens of question and option.

    Attributes:
      serve: the function of its signature: strings ``article`` [B], ``question`` [B] and
        ``options`` [B, C] to ``prediction`` int32 [B], the index of the option, and
        ``probabilities`` [B, C].
    """

    def __init__(
        self,
        model: contracts.Model,
        tokenizer: tokenization.FullTokenizer,
        max_seq_length: int,
        max_qa_length: int,
    ) -> None:
        super().__init__(tokenizer, max_seq_length)
        self._model = model
        self._max_tokens, self._max_qa_length = max_seq_length - 3, max_qa_length
        shapes = {"article": [None], "question": [None], "options": [None, None]}
        signature = [tf.TensorSpec(shape, tf.string, name) for name, shape in shapes.items()]
        self.serve = tf.function(self._answer, input_signature=signature, autograph=False)

    def _answer(
        self, article: tf.Tensor, question: tf.Tensor, options: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        shape = tf.shape(options)
        endings = endings_of(tf.repeat(question, shape[1]), tf.reshape(options, [-1]))
        first = self.tokenizer.encode(tf.repeat(article, shape[1]))
        second = self.tokenizer.encode(endings)[:, -self._max_qa_length :]
        space = self._max_tokens - tf.cast(second.row_lengths(), tf.int32)
        first = _truncate(first, tf.minimum(tf.cast(first.row_lengths(), tf.int32), space))
        scores = self._model(self.pack(first, second), training=False)["logits"]
        scores = tf.reshape(scores, shape)
        return {
            "prediction": tf.argmax(scores, -1, tf.int32),
            "probabilities": tf.nn.softmax(scores),
        }


def endings_of(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Computes `race.ending` of `race.single_blanks` of questions [B], and of options [B]."""
    questions = tf.strings.regex_replace(questions, f"{_BLANK}+", _BLANK)
    parts = tf.strings.split(questions, _BLANK)  # [B, (parts)]
    ends = tf.repeat(parts.row_splits[1:], parts.row_lengths())
    is_last = tf.range(tf.size(parts.flat_values, ends.dtype)) == ends - 1
    filled = parts.flat_values + tf.repeat(options, parts.row_lengths())
    filled = parts.with_flat_values(tf.where(is_last, parts.flat_values, filled))
    return tf.where(
        parts.row_lengths() > 1,
        tf.strings.reduce_join(filled, axis=-1),
        tf.strings.join([questions, options], " "),
    )


# --- token classification -----------------------------------------------------------------------


def export_ids(model: contracts.Model, export_dir: str) -> str:
    """Writes a SavedModel of int32 ``input_ids``, ``input_mask`` and ``segment_ids`` [B, S].

    It returns ``predictions`` [B, S] and ``probabilities`` [B, S, K]; those at the first piece of a
    word are the word's. `export_dir`: see `save_version`.
    """
    module = tf.Module()
    module.model = model

    def serve(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = dict(zip(model_inputs.NAMES, inputs, strict=True))
        outputs = model(features, training=False)
        return {name: outputs[name] for name in ("predictions", "probabilities")}

    module.serve = graphs.function_of_ids(serve, model_inputs.NAMES)
    return save_version(module, {"serving_default": module.serve}, export_dir)


class WordServer(TextPacker):
    """Answers texts and words with a token classifier.

    Args:
      max_seq_length: S; words beyond this many pieces, with [CLS] and [SEP], get the
        label "" and the probability 0.
      labels: K label names by id.

    Attributes:
      serve: the function of strings ``text`` [B], which are split at white space, to ``words``,
        ``labels`` and ``probabilities`` [B, W], with "" and 0 after the last word.
      serve_words: the same function of strings ``words`` [B, W], with "" after the last word.
    """

    def __init__(
        self,
        model: contracts.Model,
        tokenizer: tokenization.FullTokenizer,
        max_seq_length: int,
        labels: Sequence[str],
    ) -> None:
        super().__init__(tokenizer, max_seq_length)
        self._model = model
        self._unk_id = tokenizer.unk_id
        self._max_pieces = max_seq_length - 2
        self._labels = tuple(labels)
        self._space = tokenization.character_class(str.isspace) + "+"
        text = tf.TensorSpec([None], tf.string, name="text")
        words = tf.TensorSpec([None, None], tf.string, name="words")
        self.serve = tf.function(self._answer_texts, input_signature=[text], autograph=False)
        self.serve_words = tf.function(self._answer_words, input_signature=[words], autograph=False)

    @property
    def signatures(self) -> dict[str, Any]:
        """The functions of the signatures by name."""
        return {"serving_default": self.serve, "words": self.serve_words}

    def _answer_texts(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._answer(tf.strings.split(tf.strings.regex_replace(text, self._space, " ")))

    def _answer_words(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._answer(tf.RaggedTensor.from_tensor(words, padding=""))

    def _answer(self, words: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Computes the outputs for a ragged tensor of words [B, (W)]."""
        pieces = self._pieces(words.flat_values)
        ids = words.with_values(pieces).merge_dims(1, 2)  # [B, (pieces)]
        row = words.value_rowids()
        place = pieces.row_starts() - tf.gather(ids.row_starts(), row)  # of the first piece
        outputs = self._model(self.pack(ids[:, : self._max_pieces]), training=False)
        fits = place < self._max_pieces
        index = tf.stack([row, tf.where(fits, place + 1, 0)], axis=1)
        word_outputs = {name: tf.gather_nd(outputs[name], index) for name in outputs}
        labels = tf.gather(tf.constant(self._labels), word_outputs["predictions"])
        best = tf.reduce_max(word_outputs["probabilities"], axis=-1)
        return {
            "words": words.to_tensor(""),
            "labels": words.with_values(tf.where(fits, labels, "")).to_tensor(""),
            "probabilities": words.with_values(tf.where(fits, best, 0.0)).to_tensor(0.0),
        }

    def _pieces(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids of words [N]: ragged [N, (pieces)], from one to `_max_pieces` per word."""
        pieces = self.tokenizer.encode(words).with_row_splits_dtype(tf.int64)
        empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(empty)], self._unk_id)
        unknown = tf.RaggedTensor.from_row_lengths(unknown, empty)
        return tf.concat([pieces, unknown], axis=1)[:, : self._max_pieces]


def export_text(server: TextPacker, export_dir: str) -> str:
    """Writes a SavedModel that takes texts, and returns its new folder in ``<export_dir>/text``."""
    return save_version(server, server.signatures, os.path.join(export_dir, "text"))


# --- serving folders ----------------------------------------------------------------------------


TEXT_MODEL = "saved_model_text"  # next to the model for ids
DESCRIPTION = "description"  # name of the signature that describes the model


def write(
    folder: serving_folder.ServingFolder, trained: model_folder.ModelFolder, with_texts: bool = True
) -> None:
    """Writes the models of a serving folder.

    The model for ids has the signature ``serving_default``, int32 [B, S] of any sizes, with the
    inputs and outputs of the kind of model, and the signature `DESCRIPTION` without inputs:
    ``kind`` string, ``labels`` strings [K], ``max_seq_length`` int32. If tensorflow-text is
    installed, and for all kinds except SQuAD, `TEXT_MODEL` has the signatures of `TextServer`,
    `WordServer` or `ChoiceServer`, and `DESCRIPTION`.
    """
    # XLA may compile for each number of token rows, of which there are fewer than batch shapes.
    compute = layers.Compute(dtype=folder.precision, skip_padding=True)
    exported = graphs.ExportedModel(trained, compute)
    exported.serve, exported.describe = exported.function(), _description(exported)
    about = {DESCRIPTION: exported.describe}
    _save(exported, {"serving_default": exported.serve, **about}, folder.model_file)
    if not with_texts:
        return
    try:
        server = _text_server(exported, trained)
    except file_io.InputError as error:
        logging.warning("The folder has no model for texts: %s", error)
        return
    if server:
        server.describe = exported.describe
        _save(server, server.signatures | about, os.path.join(folder.path, TEXT_MODEL))


def _description(exported: graphs.ExportedModel) -> Callable:
    def describe() -> dict[str, tf.Tensor]:
        return {
            "kind": tf.constant(exported.kind),
            "labels": tf.constant(exported.labels, tf.string, [len(exported.labels)]),
            "max_seq_length": tf.constant(exported.max_seq_length, tf.int32),
        }

    return tf.function(describe, input_signature=[], autograph=False)


def _text_server(
    exported: graphs.ExportedModel, trained: model_folder.ModelFolder
) -> TextPacker | None:
    """Makes the text server of a model; None for SQuAD models, which have none."""
    kind = exported.kind
    if kind in squad_task.KINDS:
        return None
    tokenizer = model_folder.load_tokenizer(trained.source, trained.config)
    graphs.check_text(tokenizer, "a model for texts")
    settings = (exported.model, tokenizer, exported.max_seq_length)
    if kind == race.KIND:
        return ChoiceServer(*settings, trained.length("max_qa_length", 1))
    if kind == token_classification.KIND:
        return WordServer(*settings, exported.labels)
    check_cut(trained.long_text_rule)
    is_pair = trained.setting("columns", tables.are_columns)["text_pair"] is not None
    return TextServer(*settings, exported.labels, is_pair, trained.decision)


def _save(module: tf.Module, signatures: dict[str, Any], path: str) -> None:
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        tf.saved_model.save(module, path, signatures=signatures, options=options)
    except tf.errors.OpError as error:
        raise file_io.InputError(f"cannot write {path}: {error}") from error
