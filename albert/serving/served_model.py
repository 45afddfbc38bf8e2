"""A fine-tuned model behind one function, whatever its kind: what a server needs of it.

Letters in shapes: S sequence.
"""

import dataclasses
import gc
import time
from collections.abc import Callable

import tensorflow as tf
from absl import logging

from albert.io import tables
from albert.model import batching
from albert.serving import (
    answer_text,
    choice_predictor,
    inference,
    predictors,
    requests,
    token_predictor,
)
from albert.tasks import glue, race, token_classification, word_files
from albert.tasks.squad import task as squad_task

_WORD = "a"  # a token in most vocabularies


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A model that is loaded.

    Attributes:
      kind: see `model_folder.ModelFolder`.
      form: `requests.Form` of its examples.
      max_seq_length: S of the training.
      answer: function from a list of examples to a list of JSON-ready dicts, computed together.
    """

    kind: str
    form: requests.Form
    max_seq_length: int
    answer: Callable


def _classifier(*model):
    predictor = predictors.TextPredictor(*model)
    is_pair = predictor.columns.text_pair is not None

    def answer(examples):
        texts = [(e["text"], e["text_pair"]) if is_pair else e["text"] for e in examples]
        found = predictor.predict(texts, batch_size=len(texts))
        return [tables.to_dict(predictor.labels, row) for row in found]

    return requests.TWO_TEXTS if is_pair else requests.ONE_TEXT, answer


def _token_classifier(*model):
    predictor = token_predictor.TokenPredictor(*model)
    marks = word_files.mark_entities(predictor.labels)

    def answer(examples):
        texts = [example["words"] for example in examples]
        found = predictor.predict(texts, batch_size=len(texts))
        return [word_files.to_dict(row, marks) for row in found]

    return requests.WORDS, answer


def _multiple_choice(*model):
    predictor = choice_predictor.ChoicePredictor(*model)

    def answer(examples):
        questions = [
            choice_predictor.Question("", e["article"], e["question"], tuple(e["options"]))
            for e in examples
        ]
        rows = sum(len(question.options) for question in questions)
        return [found.to_dict() for found in predictor.predict(questions, batch_size=rows)]

    return requests.CHOICE, answer


def _questions(*model):
    answerer = predictors.Answerer(*model)

    def answer(examples):
        rows = [("", example["question"], example["context"]) for example in examples]
        return [
            answer_text.to_dict("", example["question"], reply, example["num_answers"])
            for example, reply in zip(examples, answerer.ask_all(rows), strict=True)
        ]

    return requests.QUESTION, answer


_LOADERS = {
    glue.KIND: _classifier,
    token_classification.KIND: _token_classifier,
    race.KIND: _multiple_choice,
    **dict.fromkeys(squad_task.KINDS, _questions),
}


def load(model_dir, runtime="auto", threads=None):
    """`ServedModel` of the folder of a fine-tuning run, or of a serving folder.

    Args:
      model_dir: the folder.
      runtime: of a serving folder; see `runtimes.load`.
      threads: that compute; None: one for each core.

    Raises:
      file_io.InputError: no such folder, or one without a model that can be asked.
    """
    found = inference.find(model_dir, *_LOADERS)
    folder = found.folder
    if threads is not None and not found.serving:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    form, answer = _LOADERS[folder.kind](found, runtime, threads)

    def without_ids(examples):
        return [{k: v for k, v in row.items() if k != "id"} for row in answer(examples)]

    return ServedModel(folder.kind, form, folder.length(), without_ids)


# --- the first time -----------------------------------------------------------------------------


def _sample(form, tokens):
    """An example of about so many tokens."""
    words = [_WORD] * max(tokens - 3 * len(form.fields), 1)
    text = " ".join(words)
    samples = {
        "text": text,
        "words": words,
        "article": text,
        "context": text,
        "text_pair": _WORD,
        "question": _WORD,
        "options": [_WORD, _WORD],
        "num_answers": 1,
    }
    return {name: samples[name] for name in (*form.fields, *form.optional)}


def shapes(max_seq_length, max_batch_size):
    """(rows, tokens) of the inputs that `warm` tries: one row of each length that is computed, and
    more rows, in powers of two, of the longest."""
    lengths = {min(batching.round_up(n), max_seq_length) for n in range(1, max_seq_length + 1)}
    rows = [2**k for k in range(1, max_batch_size.bit_length())]
    return [(1, n) for n in sorted(lengths)] + [(n, max_seq_length) for n in rows]


def warm(model, max_batch_size, go_on=lambda: True):
    """Asks a model for the first time, when its graph is traced, and with inputs of all lengths.

    In float32 nothing is compiled for a shape (see `kernels.for_block`), but the first use of one
    takes memory and makes oneDNN choose its products. What is in memory then stays there, so the
    collector of garbage need not look at it again, which takes longer than a short text does.

    Args:
      model: `ServedModel`.
      max_batch_size: most rows.
      go_on: function without arguments, asked before each input.
    """
    started, tried = time.monotonic(), shapes(model.max_seq_length, max_batch_size)
    for rows, tokens in tried:
        if not go_on():
            return
        model.answer([_sample(model.form, tokens)] * rows)
    gc.collect()
    gc.freeze()
    logging.info("Tried %d shapes in %.1f s", len(tried), time.monotonic() - started)
