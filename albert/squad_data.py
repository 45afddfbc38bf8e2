"""The data of a SQuAD run: questions, their records, and the files of answers."""

import functools
import os

from absl import logging

from albert import (
    batching,
    checkpoints,
    distribution,
    file_io,
    records,
    squad_metrics,
    squad_records,
    squad_task,
    squad_utils,
    task,
)

THRESHOLD = "null_score_diff_threshold"
THRESHOLD_FILE = f"{THRESHOLD}.json"


class Questions:
    """The questions to train on and those to answer; each file is read, and made, once.

    Args:
      kind: `squad_task.V1` or `squad_task.V2`; part of the default names of files.
      settings: `squad_task.Settings`.
      tokenizer: `tokenization.FullTokenizer`.
      train_file, predict_file: SQuAD files; None where they are not needed.
      output_dir: folder of the records that have no path of their own.
      train_feature_file, predict_feature_file, predict_feature_left_file: paths of records and of
        what finding the answers needs of them, or None.
      strategy: `tf.distribute.Strategy`.
      num_processes: processes that make features.
    """

    def __init__(
        self,
        kind,
        settings,
        tokenizer,
        output_dir,
        strategy,
        train_file=None,
        predict_file=None,
        train_feature_file=None,
        predict_feature_file=None,
        predict_feature_left_file=None,
        num_processes=1,
    ):
        self._settings = settings
        self._tokenizer = tokenizer
        self._strategy = strategy
        self._num_processes = num_processes
        self.train_file, self.predict_file = train_file, predict_file
        default = lambda path, ending: path or os.path.join(output_dir, kind + ending)  # noqa: E731
        self._train_path = default(train_feature_file, "_train.tf_record")
        self._predict_path = default(predict_feature_file, "_predict.tf_record")
        self._left_path = default(predict_feature_left_file, "_predict_features.json")

    @functools.cached_property
    def train_examples(self):
        """List of `squad_utils.SquadExample` to train on."""
        return squad_utils.read_squad_examples(self.train_file, is_training=True)

    @functools.cached_property
    def predict_examples(self):
        """List of `squad_utils.SquadExample` to answer."""
        return squad_utils.read_squad_examples(self.predict_file, is_training=False)

    @functools.cached_property
    def answers_known(self):
        """Whether the questions to answer come with their answers."""
        return squad_utils.answers_known(self.predict_examples)

    def train_records(self):
        """Makes the training records unless they are there; their path."""
        self._make_folders(self._train_path)
        with distribution.chief_first(self._strategy):
            make_training_records(
                *(self._train_path, self.train_file, self.train_examples),
                *(self._tokenizer, self._settings, self._num_processes),
            )
        return self._train_path

    @functools.cached_property
    def to_answer(self):
        """`squad_task.Questions` to answer; makes their records unless they are there."""
        self._make_folders(self._predict_path, self._left_path)
        with distribution.chief_first(self._strategy):
            return make_questions(
                *(self._predict_path, self._left_path, self.predict_file, self.predict_examples),
                *(self._tokenizer, self._settings, self._num_processes),
            )

    def _make_folders(self, *paths):
        for path in paths:
            file_io.make_dirs(os.path.dirname(path) or ".")

    def data(self, evaluator):
        """The `task.Data`; "dev" and "test" are both the questions to answer.

        Args:
          evaluator: see `task.Task.evaluator`.
        """
        length = self._settings.max_seq_length
        # Some batches may be cut to as little as this: too short for a wider beam.
        fits = self._settings.widest_beam <= batching.STEP

        def records_of(split):
            if split == "train":
                return [self.train_records()]
            self.to_answer  # noqa: B018  (makes the file)
            return [self._predict_path]

        return task.Data(
            specs=lambda split: squad_records.feature_specs(length, is_training=split == "train"),
            records=records_of,
            ids=lambda split: [example.qas_id for example in self.predict_examples],
            write_predictions=functools.partial(self._write_predictions, evaluator),
            reading=records.damage_reported,
            eval_input={"trim_batches": fits},
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
                threshold = scores[THRESHOLD]
                write_threshold(output_dir, threshold, prefix, self.predict_file)
            else:
                threshold = read_threshold(prefix)
            texts = squad_metrics.apply_threshold(texts, answers.null_odds, threshold)
        squad_utils.write_predictions(output_dir, texts, answers.nbest, answers.null_odds)
        return scores


# --- records ------------------------------------------------------------------------------------


def _fingerprint(data_file, tokenizer, settings, split):
    return {
        **settings.window,
        "do_lower_case": tokenizer.do_lower_case,
        "vocabulary_sha256": file_io.sha256(tokenizer.spm_model_file or tokenizer.vocab_file),
        "data_sha256": file_io.sha256(data_file),
        "split": split,
    }


def _convert(examples, tokenizer, settings, is_training, num_processes):
    return squad_records.convert_examples_to_records(
        examples,
        tokenizer,
        **settings.window,
        is_training=is_training,
        do_lower_case=tokenizer.do_lower_case,
        num_processes=num_processes,
    )


def make_training_records(path, data_file, examples, tokenizer, settings, num_processes=1):
    """Makes the training records, unless they are there already.

    Args:
      path: record file.
      data_file: SQuAD file that the examples are from.
      examples: list of `squad_utils.SquadExample` read for training.
      tokenizer: `tokenization.FullTokenizer`.
      settings: `squad_task.Settings`.
      num_processes: see `squad_records.convert_examples_to_records`.

    Raises:
      file_io.InputError: too many questions cannot be used, or the file cannot be written.
    """

    def make_rows():
        shuffled = squad_utils.shuffle_examples(examples)
        made = _convert(shuffled, tokenizer, settings, True, num_processes)
        return (record for record, _ in made)

    specs = squad_records.feature_specs(settings.max_seq_length, is_training=True)
    fingerprint = _fingerprint(data_file, tokenizer, settings, "train")
    records.cached(path, specs, fingerprint, make_rows, records.write_serialized)


def make_questions(path, left_path, data_file, examples, tokenizer, settings, num_processes=1):
    """Makes the records for prediction and what decoding needs, unless they are there already.

    Args:
      path: record file.
      left_path: file of the features left, see `squad_records.write_features_left`.
      For the rest see `make_training_records`.

    Returns:
      `squad_task.Questions`.

    Raises:
      file_io.InputError: no question has any text to look in; `left_path` is another kind of file.
    """
    specs = squad_records.feature_specs(settings.max_seq_length, is_training=False)
    fingerprint = _fingerprint(data_file, tokenizer, settings, "predict")
    features = _read_features_left(left_path, fingerprint)
    made = []

    def make_rows():
        for record, window in _convert(examples, tokenizer, settings, False, num_processes):
            made.append(window)
            yield record

    if features is None:
        # Both files are of one making; without a manifest the records are made again.
        file_io.remove(records.manifest_path(path))
    count = records.cached(path, specs, fingerprint, make_rows, records.write_serialized)
    if made or features is None:
        squad_records.write_features_left(left_path, made, fingerprint)
        features = made
    if not count:
        raise file_io.InputError(f"{data_file}: none of the {len(examples)} contexts has any text")
    return squad_task.Questions(examples, features)


def _read_features_left(path, fingerprint):
    """The features of the file, None where they have to be made."""
    if not file_io.exists(path):
        return None
    try:
        return squad_records.read_features_left(path, fingerprint)
    except squad_records.StaleFeaturesError as error:
        logging.warning("Making the features again: %s", error)
        return None


# --- the threshold of SQuAD 2.0 -----------------------------------------------------------------


def write_threshold(folder, threshold, prefix, predict_file):
    """Writes the null odds from which on a question is not answered, beside the model.

    Args:
      folder: output folder.
      threshold: the value.
      prefix: the checkpoint whose odds it is for.
      predict_file: the file on which it gives the best F1.
    """
    content = {
        THRESHOLD: threshold,
        "step": checkpoints.read_step(prefix),
        "predict_file": os.path.basename(predict_file),
    }
    file_io.write_json(os.path.join(folder, THRESHOLD_FILE), content)


def read_threshold(prefix):
    """The threshold that lies beside a checkpoint; 0 if there is none.

    Raises:
      file_io.InputError: the file there is damaged.
    """
    path = os.path.join(os.path.dirname(prefix), THRESHOLD_FILE)
    if not file_io.exists(path):
        logging.warning(
            "There is no %s: using the threshold 0. Answering a file whose answers are known "
            "finds a better one",
            path,
        )
        return 0.0
    content = file_io.read_json(path, "threshold")
    try:
        threshold, step = float(content[THRESHOLD]), content["step"]
    except (TypeError, KeyError, ValueError) as error:
        raise file_io.InputError(f"threshold: {path} holds no {THRESHOLD} and step") from error
    if step != checkpoints.read_step(prefix):
        logging.warning(
            "The threshold of %s was found with the checkpoint of step %s, not with %s",
            *(path, step, prefix),
        )
    logging.info("Using the threshold %g of %s", threshold, path)
    return threshold
