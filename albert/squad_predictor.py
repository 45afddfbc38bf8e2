"""Answers questions about texts with a model that was fine-tuned on SQuAD."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl import logging

from albert import (
    batching,
    checkpoints,
    file_io,
    layers,
    model_folder,
    squad_features,
    squad_records,
    squad_task,
    squad_utils,
)

_BATCH = 16  # windows that go through the model together
_INPUTS = ("input_ids", "input_mask", "segment_ids", "p_mask")


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a model says to a question.

    Attributes:
      answers: list of `squad_utils.Answer`, best first; `start` and `end` are places in the text.
      null_odds: how much speaks against there being any answer; None under SQuAD 1.1.
      threshold: null odds from which on there is none; None under SQuAD 1.1.
    """

    answers: list
    null_odds: float | None = None
    threshold: float | None = None

    @property
    def has_answer(self):
        """False where no answer was found, or none is in the text."""
        if self.answers[0].start is None:
            return False
        return self.null_odds is None or self.null_odds < self.threshold


class Answerer:
    """A fine-tuned model, ready to be asked.

    Args:
      model_dir: output folder of run_squad_v1 or run_squad_v2.

    Raises:
      file_io.InputError: the folder holds no such model.
    """

    def __init__(self, model_dir):
        folder = model_folder.read(model_dir, *squad_task.KINDS)
        self._settings = squad_task.Settings(**folder.settings)
        self._task = squad_task.make_task(folder.kind, self._settings)
        self._tokenizer = model_folder.load_tokenizer(folder.source, folder.config)
        # It keeps texts that it has seen, so further questions about one cost little.
        self._featurizer = squad_features.Featurizer(
            self._tokenizer, **self._settings.window, is_training=False
        )
        self._model = self._task.build_model(folder.config, layers.Compute(), 0)
        checkpoints.restore(self._model, folder.source.checkpoint, allow_new_heads=False)
        self._threshold = None
        if folder.kind == squad_task.V2:
            self._threshold = squad_task.read_threshold(folder.source.checkpoint)
        names = [spec.name for spec in squad_records.feature_specs(None, is_training=False)]
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in names}
        self._infer = tf.function(self._score, input_signature=[signature], autograph=False)

    def ask(self, question, context):
        """Answers a question about a text of any length.

        Args:
          question: text of the question.
          context: the text.

        Returns:
          `Reply`.

        Raises:
          file_io.InputError: the question is empty, or the text is or does not fit the vocabulary.
        """
        if not question.strip():
            raise file_io.InputError("the question is empty")
        length = len(self._tokenizer.encode(question))
        if length > self._settings.max_query_length:
            logging.warning(
                "The question has %d tokens; the model reads the first %d",
                length,
                self._settings.max_query_length,
            )
        example = squad_utils.SquadExample("question", question, context)
        (windows,) = self._featurizer.batch([example], [0])
        if isinstance(windows, str):
            raise file_io.InputError(f"the text cannot be searched: {windows}")
        for number, window in enumerate(windows):
            window.unique_id = number
        return self._reply(example, windows, self._results(windows))

    def _results(self, windows):
        """{unique id: scores} of the windows."""
        evaluator = self._task.evaluator()
        for start in range(0, len(windows), _BATCH):
            batch = windows[start : start + _BATCH]
            columns = {
                name: np.int32([getattr(window, name) for window in batch]) for name in _INPUTS
            }
            columns = batching.trim_arrays(columns, _INPUTS, self._settings.widest_beam)
            columns["unique_ids"] = np.int32([[window.unique_id] for window in batch])
            rows = self._infer(columns)
            evaluator.update({name: value.numpy() for name, value in rows.items()})
        return evaluator.results

    def _score(self, features):
        outputs = self._model(features, training=False)
        return self._task.eval_outputs(outputs, features)

    def _reply(self, example, windows, results):
        settings = self._settings
        limits = (settings.n_best_size, settings.max_answer_length)
        if self._threshold is None:
            (answers,) = squad_utils.best_answers_v1([example], windows, results, *limits)
            return Reply(answers)
        beams = (settings.start_n_top, settings.end_n_top)
        (answers,) = squad_utils.best_answers_v2([example], windows, results, *limits, *beams)
        null_odds = squad_utils.find_null_odds([example], windows, results)
        return Reply(answers, null_odds[example.qas_id], self._threshold)
