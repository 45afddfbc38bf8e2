"""Writes pre-trained models as reusable SavedModels of TensorFlow 2 ("hub modules").

The object is called with a dict of int32 [B, S] tensors under either of two sets of names,
``input_ids, input_mask, segment_ids`` (the released ALBERT modules) or ``input_word_ids,
input_mask, input_type_ids`` (TensorFlow's text encoders, such as Lambert), and ``training``. It has
the interface of https://www.tensorflow.org/hub/reusable_saved_models. Signatures and assets are
those of the released modules.

Letters in shapes: B batch, S sequence, V vocabulary, H hidden, P masked positions.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from albert.data.input_options import Tensors
from albert.export import graphs, saved_model_export
from albert.io import file_io
from albert.model import encoder, heads, pretraining_heads, sources
from albert.text import model_inputs, text_rules, tokenization, wordpiece

_INTERFACES = (model_inputs.NAMES, ("input_word_ids", "input_mask", "input_type_ids"))
# The name of the masked positions in each interface.
_POSITIONS = ("mlm_positions", "masked_lm_positions")


def _shared_encoder(model: pretraining_heads.PretrainingModel) -> Callable:
    """Makes ``(inputs, training) -> AlbertOutput`` for both interfaces, one graph for all callers.

    Every object and signature of a module calls it. Its graph is built, written and read once per
    value of ``training``, not fourteen times.
    """

    def traced(training: bool) -> Callable:
        def encode_columns(
            ids: tf.Tensor, mask: tf.Tensor, types: tf.Tensor
        ) -> encoder.AlbertOutput:
            return model.albert(ids, mask, types, training=training)

        return graphs.function_of_ids(encode_columns, [None] * 3)

    in_inference, in_training = traced(False), traced(True)

    def encode(inputs: Tensors, training: bool) -> encoder.AlbertOutput:
        (names,) = [names for names in _INTERFACES if set(names) <= set(inputs)]
        encode_columns = in_training if training else in_inference
        return encode_columns(*(inputs[name] for name in names))

    return encode


def _call(
    encode: Callable, outputs: Callable[[Tensors, encoder.AlbertOutput], dict[str, Any]]
) -> Callable:
    """Makes ``(inputs, training) -> dict``: the encoder's outputs, and what `outputs` adds.

    `encode`: that of `_shared_encoder`.
    """

    def call(inputs: Tensors, training: bool = False) -> dict[str, Any]:
        encoded = encode(inputs, training)
        return {
            "pooled_output": encoded.pooled_output,
            "sequence_output": encoded.sequence_output,
            **outputs(inputs, encoded),
        }

    return call


def _encoder_call(encode: Callable) -> Callable:
    return _call(encode, lambda _, encoded: {"encoder_outputs": list(encoded.all_encoder_layers)})


def _mlm_call(encode: Callable, model: pretraining_heads.PretrainingModel) -> Callable:
    def logits(inputs: Tensors, encoded: encoder.AlbertOutput) -> dict[str, tf.Tensor]:
        (positions,) = [inputs[name] for name in _POSITIONS if name in inputs]
        masked = tf.gather(encoded.sequence_output, positions, batch_dims=1)  # [B, P, H]
        return {"mlm_logits": model.masked_lm(masked)}  # [B * P, V]

    return _call(encode, logits)


def _sop_call(encode: Callable, head: heads.LabelWeights) -> Callable:
    def log_probs(_: Tensors, encoded: encoder.AlbertOutput) -> dict[str, tf.Tensor]:
        return {"sop_log_probs": tf.nn.log_softmax(head(encoded.pooled_output))}

    return _call(encode, log_probs)


def _variables(*modules: tf.Module) -> list[tf.Variable]:
    """Returns the variables of modules, each once, as a head may use one of the encoder's."""
    variables = [variable for module in modules for variable in module.variables]
    return list({variable.ref(): variable for variable in variables}.values())


def _callable(
    call: Callable, variables: Iterable[tf.Variable], extra: Sequence[Sequence[str]] = ((), ())
) -> tf.train.Checkpoint:
    """Builds a callable object with traces of `call` for both interfaces, in and out of training.

    Args:
      call: ``(inputs, training) -> dict``.
      variables: the variables that fine-tuning through this object may change.
      extra: for each interface, the names of its additional inputs.
    """
    function = tf.function(call, autograph=False)
    for names, more in zip(_INTERFACES, extra, strict=True):
        for training in (False, True):
            function.get_concrete_function(
                {name: tf.TensorSpec([None, None], tf.int32, name) for name in (*names, *more)},
                training=training,
            )
    # Not a tf.Module: its lists of variables are properties, which are not saved.
    root = tf.train.Checkpoint()
    root.__call__ = function
    root.variables = list(variables)
    root.trainable_variables = list(variables)
    root.regularization_losses = []
    return root


def _signature(call: Callable, names: Sequence[str]) -> Callable:
    """Builds a signature with one int32 [B, S] input (or [B, P]) per name."""

    def serve(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = call(dict(zip(names, tensors, strict=True)))
        return {name: value for name, value in outputs.items() if name != "encoder_outputs"}

    return graphs.function_of_ids(serve, names)


def _gather_assets(folder: str, config: encoder.AlbertConfig, source: sources.Source) -> list[str]:
    """Copies the files of a model into a new folder, under the names of released modules.

    Returns the paths of configuration, vocabulary, and the list of pieces if there is one.
    """
    file_io.make_dirs(folder)
    paths = [os.path.join(folder, sources.CONFIG_NAME)]
    file_io.write_text(paths[0], config.to_json_string())
    vocabulary = source.vocabulary or ""
    name = os.path.basename(vocabulary) if source.spm_model_file else sources.VOCAB_NAME
    files = {name: vocabulary}
    pieces = os.path.splitext(vocabulary)[0] + ".vocab"
    if source.spm_model_file and file_io.exists(pieces):
        files[os.path.basename(pieces)] = pieces
    for name, original in files.items():
        paths.append(os.path.join(folder, name))
        file_io.copy(original, paths[-1])
    if not source.spm_model_file:
        vocab = wordpiece.load_vocab(vocabulary, source.rules.ids_by_line)
        file_io.write_text(paths[1], wordpiece.vocab_text(vocab))
    return paths


def _check_rules(source: sources.Source) -> None:
    """Rejects rules of texts that modules do not record; programs would make other pieces."""
    rules = source.rules
    names = ("longest_word", "drop_private", "lower_alone")
    rare = {name: getattr(rules, name) for name in names}
    known = text_rules.TextRules(rules.do_lower_case, **rare)
    if differing := rules.differences(known, bool(source.spm_model_file)):
        raise file_io.InputError(
            "a hub module only records do_lower_case; the texts of this model become pieces by "
            f"further rules: {differing}"
        )


def _new_folder(path: str) -> str:
    """Removes a final slash from the path of a folder to make; raises if the folder exists."""
    target = path.rstrip("/")
    if file_io.exists(target):
        raise file_io.InputError(f"{target} already exists; delete it or give another folder")
    return target


def _save(root: tf.train.Checkpoint, signatures: dict[str, Any], target: str) -> str:
    parent, name = os.path.split(target)
    return saved_model_export.save_model(root, signatures, parent or ".", name)


def check(source: sources.Source, *paths: str) -> None:
    """Checks before any work that a model can become a module, and that its folders are new."""
    folders = [*map(_new_folder, paths)]
    if len({*folders}) < len(folders):
        raise file_io.InputError(f"{folders[0]} is named twice: give each output its own folder")
    _check_rules(source)


def export_module(
    model: pretraining_heads.PretrainingModel, source: sources.Source, path: str
) -> str:
    """Writes a hub module to a new folder, which it returns.

    A model without a sentence task gives a module without `sop`. `source` has the vocabulary.
    """
    target = _new_folder(path)
    _check_rules(source)
    encode = _shared_encoder(model)
    encoder, words = _encoder_call(encode), _mlm_call(encode, model)
    root = _callable(encoder, _variables(model.albert))
    root.mlm = _callable(
        words, _variables(model.albert, model.masked_lm), [(name,) for name in _POSITIONS]
    )
    tokens = _signature(encoder, _INTERFACES[0])
    signatures = {
        "tokens": tokens,
        "mlm": _signature(words, (*_INTERFACES[0], _POSITIONS[0])),
        "serving_default": tokens,
    }
    if model.sentence_head:
        order = _sop_call(encode, model.sentence_head)
        root.sop = _callable(order, _variables(model.albert, model.sentence_head))
        signatures["sop"] = _signature(order, _INTERFACES[0])
    # A hidden folder, as in `saved_model_export.save_model`.
    assets = file_io.temporary_name(os.path.join(os.path.dirname(target), ".assets"))
    try:
        files = _gather_assets(assets, model.config, source)
        root.assets = [tf.saved_model.Asset(file) for file in files]
        signatures["tokenization_info"] = _tokenization_info(root.assets[1], source.rules.lower)
        return _save(root, signatures, target)
    finally:
        file_io.remove(assets)


def _tokenization_info(vocabulary: tf.saved_model.Asset, do_lower_case: bool) -> Callable:
    def serve() -> dict[str, tf.Tensor]:
        return {
            "vocab_file": tf.identity(vocabulary.asset_path),
            "do_lower_case": tf.constant(do_lower_case),
        }

    return tf.function(serve, input_signature=[], autograph=False)


def export_preprocessing(
    tokenizer: tokenization.FullTokenizer, max_seq_length: int, path: str
) -> str:
    """Writes a SavedModel that turns strings into the inputs of an exported encoder.

    It is called with strings [B], or with a list of two such tensors for pairs, and returns
    ``input_word_ids, input_mask, input_type_ids`` int32 [B, S]. Its ``tokenize`` returns the ids of
    strings [B] as a ragged tensor. Programs that load it must import ``tensorflow_text`` first.
    """
    target = _new_folder(path)
    graphs.check_text(tokenizer, "preprocessing_path")
    packer = saved_model_export.TextPacker(tokenizer, max_seq_length)

    def pack(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        features = packer.features(*texts)
        missing = max_seq_length - tf.shape(features["input_ids"])[1]
        fill = {"input_ids": tokenizer.pad_id}
        padded = {
            name: tf.pad(x, [[0, 0], [0, missing]], constant_values=fill.get(name, 0))
            for name, x in features.items()
        }
        renamed = zip(*_INTERFACES, strict=True)
        return {new: tf.ensure_shape(padded[old], [None, max_seq_length]) for old, new in renamed}

    strings = tf.TensorSpec([None], tf.string, name="text")
    root = tf.train.Checkpoint(packer=packer)
    root.__call__ = tf.function(
        lambda texts: pack(*(texts if isinstance(texts, list) else [texts])), autograph=False
    )
    root.__call__.get_concrete_function(strings)
    root.__call__.get_concrete_function([strings, tf.TensorSpec([None], tf.string, name="pair")])
    root.tokenize = tf.function(packer.tokenizer.encode, input_signature=[strings], autograph=False)
    serve = tf.function(pack, input_signature=[strings], autograph=False)
    return _save(root, {"serving_default": serve}, target)
