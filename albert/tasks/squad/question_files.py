"""The questions of a run of SQuAD: their files, records and predictions."""

import dataclasses
import functools
import os

import tensorflow as tf
from absl import logging

from albert.data import input_options, record_files
from albert.io import file_io, locks
from albert.model import batching
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import metrics as squad_metrics
from albert.tasks.squad import records as squad_records
from albert.tasks.squad import task as squad_task
from albert.training import contracts, distribution


def adding_targets(get_questions):
    """``prepare`` of `input_options.EvalInput`: adds `squad_task.targets` where they are known.

    Args:
      get_questions: function without arguments that returns `squad_task.Questions`.
    """

    def prepare(features):
        questions = get_questions()
        if not questions.answers_known:
            return features
        place = tf.reshape(features["unique_ids"], [-1]) - squad_features.FIRST_UNIQUE_ID
        found = {
            name: tf.gather(values, place) for name, values in squad_task.targets(questions).items()
        }
        return {**features, **found}

    return prepare


@dataclasses.dataclass(frozen=True)
class QuestionFiles:
    """The questions to train on and those to answer; each file is read, and made, once.

    Attributes:
      kind: `squad_task.V1` or `squad_task.V2`; part of the default names of files.
      settings: `squad_task.Settings`.
      tokenizer: `tokenization.FullTokenizer`.
      output_dir: folder of the records that have no path of their own.
      strategy: `tf.distribute.Strategy`.
      train_file, predict_file: SQuAD files; None where they are not needed.
      train_feature_file, predict_feature_file, predict_feature_left_file: paths of records and of
        what finding the answers needs of them, or None.
      num_processes: processes that make features.
      train_selection, predict_selection: which questions of the files are taken.
    """

    kind: str
    settings: squad_task.Settings
    tokenizer: object
    output_dir: str
    strategy: object
    train_file: str | None = None
    predict_file: str | None = None
    train_feature_file: str | None = None
    predict_feature_file: str | None = None
    predict_feature_left_file: str | None = None
    num_processes: int = 1
    train_selection: squad_records.Selection = squad_records.ALL
    predict_selection: squad_records.Selection = squad_records.ALL

    @functools.cached_property
    def train_examples(self):
        """List of `squad_utils.SquadExample` to train on."""
        return self._read(self.train_file, self.train_selection, is_training=True)

    @functools.cached_property
    def predict_examples(self):
        """List of `squad_utils.SquadExample` to answer."""
        return self._read(self.predict_file, self.predict_selection, is_training=False)

    def _read(self, path, selection, is_training):
        examples = squad_answers.read_squad_examples(path, is_training)
        return selection.choose(examples, self.tokenizer, self.settings.max_query_length, path)

    @functools.cached_property
    def answers_known(self):
        """Whether the questions to answer come with their answers."""
        return squad_answers.answers_known(self.predict_examples)

    def train_records(self):
        """Makes the training records unless they are there; their path.

        Raises:
          file_io.InputError: too many questions cannot be used, or the file cannot be written.
        """
        path = self.train_feature_file or self._default_path("_train.tf_record")
        examples = self.train_examples

        def make_rows():
            made = self._convert(squad_answers.shuffle_examples(examples), is_training=True)
            return (record for record, _ in made)

        _make_folders(path)
        with distribution.chief_first(self.strategy):
            self._cached(path, self._fingerprint(self.train_file, "train"), make_rows)
        return path

    @functools.cached_property
    def to_answer(self):
        """`squad_task.Questions` to answer; makes their records unless they are there.

        Raises:
          file_io.InputError: no question has any text to look in; the file of what finding the
            answers needs is another kind of file.
        """
        _make_folders(*self._predict_paths)
        features_left = self._predict_paths[1]
        with distribution.chief_first(self.strategy), locks.made_by_one(features_left):
            return squad_task.Questions(
                self.predict_examples, self._make_features(*self._predict_paths)
            )

    def _make_features(self, path, left_path):
        """List of `squad_utils.SquadFeatures`; both files are there afterwards."""
        examples = self.predict_examples
        fingerprint = self._fingerprint(self.predict_file, "predict")
        features = squad_records.find_features_left(left_path, fingerprint)
        made = []

        def make_rows():
            for record, window in self._convert(examples, is_training=False):
                made.append(window)
                yield record

        if features is None:
            # Both files are of one making; without a manifest the records are made again.
            file_io.remove(record_files.manifest_path(path))
        count = self._cached(path, fingerprint, make_rows)
        if made or features is None:
            squad_records.write_features_left(left_path, made, fingerprint)
            features = made
        if not count:
            raise file_io.InputError(
                f"{self.predict_file}: none of the {len(examples)} contexts has any text"
            )
        return features

    @property
    def _predict_paths(self):
        """Paths of the records to predict, and of what finding the answers needs of them."""
        path = self.predict_feature_file or self._default_path("_predict.tf_record")
        left = self.predict_feature_left_file or self._default_path("_predict_features.json")
        return path, left

    def _default_path(self, ending):
        return os.path.join(self.output_dir, self.kind + ending)

    def _fingerprint(self, data_file, split):
        selection = self.train_selection if split == "train" else self.predict_selection
        settings = self.settings.window | selection.settings
        return squad_records.fingerprint(data_file, self.tokenizer, settings, split)

    def _convert(self, examples, is_training):
        return squad_records.convert_examples_to_records(
            examples,
            self.tokenizer,
            **self.settings.window,
            is_training=is_training,
            do_lower_case=self.tokenizer.do_lower_case,
            num_processes=self.num_processes,
        )

    def _cached(self, path, fingerprint, make_rows):
        specs = self._specs(fingerprint["split"])
        return record_files.cached(
            path, specs, fingerprint, make_rows, record_files.write_serialized
        )

    def _specs(self, split):
        length = self.settings.max_seq_length
        return squad_records.feature_specs(length, is_training=split == "train")

    def data(self, evaluator):
        """The `contracts.Data`; "dev" and "test" are both the questions to answer.

        Args:
          evaluator: see `contracts.Task.evaluator`.
        """
        # Some batches may be cut to as little as this: too short for a wider beam.
        fits = self.settings.widest_beam <= batching.STEP

        def records_of(split):
            if split == "train":
                return [self.train_records()]
            self.to_answer  # noqa: B018  (makes the file)
            return [self._predict_paths[0]]

        return contracts.Data(
            specs=self._specs,
            records=records_of,
            ids=lambda split: [example.qas_id for example in self.predict_examples],
            write_predictions=functools.partial(self._write_predictions, evaluator),
            reading=record_files.damage_reported,
            predicts_dev=True,
            eval_input=input_options.EvalInput(
                trim_batches=fits, prepare=adding_targets(lambda: self.to_answer)
            ),
            files=lambda split: [self.train_file if split == "train" else self.predict_file],
        )

    def _write_predictions(self, make_evaluator, output_dir, rows, ids, prefix):
        """Writes all files of answers; returns their scores if the gold answers are known."""
        evaluator = make_evaluator()
        evaluator.update(rows)
        answers = evaluator.answers()
        scores = evaluator.score(answers) if self.answers_known else None
        if scores is None:
            logging.info("The answers of %s are not known: predictions only", self.predict_file)
        texts = answers.texts
        if answers.null_odds is not None:
            if scores:
                threshold = scores[squad_answers.THRESHOLD]
                squad_answers.write(output_dir, threshold, prefix, self.predict_file)
            else:
                threshold = squad_answers.read(prefix)
            texts = squad_metrics.apply_threshold(texts, answers.null_odds, threshold)
        squad_answers.write_predictions(output_dir, texts, answers.nbest, answers.null_odds)
        return scores


def _make_folders(*paths):
    for path in paths:
        file_io.make_dirs(os.path.dirname(path) or ".")
