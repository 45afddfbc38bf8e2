"""Predicts the labels of texts that have any number of them.

Letters in shapes: B batch, K labels.
"""

from collections.abc import Iterable
from typing import IO, Any, cast

import numpy as np

from albert.io import file_io
from albert.model import model_folder
from albert.serving import tensors
from albert.serving.text_predictor import TextPredictor
from albert.tasks import custom, glue, label_set_scores, label_sets, prediction_files


class MultiLabelPredictor(TextPredictor):
    """A classifier of texts with several labels; see `TextPredictor`."""

    kinds = (label_sets.KIND,)

    def _read_settings(self, folder: model_folder.ModelFolder) -> int:
        minimum = super()._read_settings(folder)
        self._answers = label_sets.answers_of(self.labels, folder.decision)
        values = map(prediction_files.plain_number, self._answers.thresholds)
        self._thresholds = dict(zip(self.names, values, strict=True))
        self.metric = "micro_f1"
        return minimum

    def _make_task(self, folder: model_folder.ModelFolder) -> custom.CustomTask:
        form = label_sets.LabelFormat.from_folder(folder)
        self._separator = form.separator
        name, labels = folder.setting("task_name", str), custom.labels_of(folder)
        return label_sets.LabelSetTask({}, self.columns, labels, name, form)

    def to_json(self, result: prediction_files.Prediction) -> dict[str, Any]:
        """Returns a JSON-ready prediction, with the threshold of each label."""
        return super().to_json(result) | {"thresholds": self._thresholds}

    def write(
        self,
        file: IO[str],
        form: str,
        results: Iterable[prediction_files.Prediction],
        examples: Iterable[glue.InputExample] | None = None,
    ) -> None:
        """Writes results; see `TextPredictor`. Rejects .tsv if a label has its separator in it."""
        joined = [name for name in self.names if self._separator in name]
        if form == "tsv" and joined:
            raise file_io.InputError(
                f"the label {joined[0]!r} has {self._separator!r} in it, which separates the "
                "labels of a .tsv file: write .jsonl (output_file or output_format)"
            )
        super().write(file, form, results, examples)

    def tensors(self) -> tuple[tensors.Tensor, ...]:
        """Returns predictions, 1 for labels of the text, probabilities and thresholds, [B, K]."""
        size = len(self.labels)
        return tensors.members(self.names), tensors.probabilities(size), tensors.thresholds(size)

    # --- scores ---

    def answers(self, results: Iterable[prediction_files.Prediction]) -> list:
        """Returns whether the text has the label, for each label of each text."""
        members = [cast(tuple[str, ...], result.prediction) for result in results]
        return [label in names for names in members for label in self.labels]

    def score(self, gold: list, answers: list) -> float:
        true = np.array([[label in members for label in self.labels] for members in gold])
        counts = label_set_scores.count(self.labels, true, np.reshape(answers, true.shape))
        return 100 * label_set_scores.score_counts(counts)["micro_f1"]
