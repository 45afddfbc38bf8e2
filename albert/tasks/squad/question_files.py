"""The question files of a run: the questions, their records and the files of their answers."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from albert.data import input_options, tfrecord
from albert.io import file_io, locks
from albert.model import batching
from albert.tasks import outcomes
from albert.tasks.squad import answer_features, null_threshold, positions, selection
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import outcomes as squad_outcomes
from albert.tasks.squad import records as squad_records
from albert.tasks.squad import task as squad_task
from albert.tasks.squad.features import SquadExample, SquadFeatures
from albert.text import tokenization
from albert.training import contracts

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class QuestionFiles:
    """The questions to train on and to answer; each file is read, and each record made, once.

    Attributes:
      kind: `V1` or `V2`; part of the default names of files.
      output_dir: folder of records whose path is not given.
      train_feature_file, predict_feature_file: paths of the records, or None.
      predict_feature_left_file: path of the file of `answer_features`, or None.
    """

    kind: str
    settings: squad_task.Settings
    tokenizer: tokenization.FullTokenizer
    output_dir: str
    strategy: "tf.distribute.Strategy"
    train_file: str | None = None
    predict_file: str | None = None
    train_feature_file: str | None = None
    predict_feature_file: str | None = None
    predict_feature_left_file: str | None = None
    num_processes: int = 1
    train_selection: selection.Selection = selection.ALL
    predict_selection: selection.Selection = selection.ALL

    def file(self, split: str) -> str:
        """Returns the path of the SQuAD file of a split: to train on ("train"), else to answer."""
        path = self.train_file if split == "train" else self.predict_file
        assert path is not None  # the command has checked that the run has it
        return path

    @functools.cached_property
    def train_examples(self) -> list[SquadExample]:
        """Returns the questions to train on."""
        return self._read(self.file("train"), self.train_selection, is_training=True)

    @functools.cached_property
    def predict_examples(self) -> list[SquadExample]:
        """Returns the questions to answer."""
        return self._read(self.file("dev"), self.predict_selection, is_training=False)

    def _read(
        self, path: str, selection: selection.Selection, is_training: bool
    ) -> list[SquadExample]:
        """Reads selected questions; in training each must have one answer or be impossible."""
        examples = squad_answers.read_squad_examples(path, is_training, selection.answerable_only)
        return selection.choose(examples, self.tokenizer, self.settings.max_query_length, path)

    @functools.cached_property
    def answers_known(self) -> bool:
        """Returns whether the questions to answer come with their answers."""
        return squad_answers.answers_known(self.predict_examples)

    def train_records(self) -> str:
        """Makes the training records if they are missing or stale; returns their path."""
        from albert.training import distribution

        path = self.train_feature_file or self._default_path("_train.tf_record")
        examples = self.train_examples

        def make_rows() -> Iterator[bytes]:
            """Returns the serialized records."""
            pairs = self._convert(squad_answers.shuffle_examples(examples), is_training=True)
            return (record for record, _ in pairs)

        _make_folders(path)
        with distribution.chief_first(self.strategy):
            self._cached(path, self._fingerprint("train"), make_rows)
        return path

    @functools.cached_property
    def to_answer(self) -> squad_answers.Questions:
        """Returns the questions to answer; makes their records if they are missing or stale."""
        from albert.training import distribution

        _make_folders(*self._predict_paths)
        features_left = self._predict_paths[1]
        with distribution.chief_first(self.strategy), locks.made_by_one(features_left):
            return squad_answers.Questions(
                self.predict_examples, self._make_features(*self._predict_paths)
            )

    def predict_records(self) -> str:
        """Makes the records of the questions to answer if they are missing; returns their path."""
        self.to_answer  # noqa: B018  (makes the file)
        return self._predict_paths[0]

    def _make_features(self, path: str, left_path: str) -> list[SquadFeatures]:
        """Returns the windows to predict, and writes both of their files if needed."""
        from albert.data import record_files

        examples = self.predict_examples
        fingerprint = self._fingerprint("predict")
        features = answer_features.read_if_current(left_path, fingerprint)
        windows: list[SquadFeatures] = []

        def make_rows() -> Iterator[bytes]:
            """Yields the serialized records, and adds their windows to `windows`."""
            for record, window in self._convert(examples, is_training=False):
                if window:  # always, outside of training
                    windows.append(window)
                yield record

        if features is None:
            # Both files must be made together; without a manifest the records are made again.
            file_io.remove(record_files.manifest_path(path))
        count = self._cached(path, fingerprint, make_rows)
        if windows or features is None:
            answer_features.write(left_path, windows, fingerprint)
            features = windows
        if not count:
            raise file_io.InputError(
                f"{self.predict_file}: none of the {len(examples)} contexts has any text"
            )
        return features

    @property
    def _predict_paths(self) -> tuple[str, str]:
        """Returns the paths of the records to predict and of their `answer_features`."""
        path = self.predict_feature_file or self._default_path("_predict.tf_record")
        left_path = self.predict_feature_left_file or self._default_path("_predict_features.json")
        return path, left_path

    def _default_path(self, ending: str) -> str:
        """Returns the path in the output folder of the file with this ending."""
        return os.path.join(self.output_dir, self.kind + ending)

    def _fingerprint(self, split: str) -> dict[str, Any]:
        """Returns a JSON-ready dict of what the features of "train" or "predict" depend on."""
        selection = self.train_selection if split == "train" else self.predict_selection
        settings = self.settings.window | selection.settings
        return squad_records.fingerprint(self.file(split), self.tokenizer, settings, split)

    def _report_cuts(self, examples: Sequence[SquadExample]) -> None:
        """Logs how many of the questions are longer than the model reads; texts have windows."""
        most = self.settings.max_query_length
        # A token has at least a byte, so most questions need not be tokenized.
        long = [e.question_text for e in examples if len(e.question_text.encode()) > most]
        num_cut = sum(len(question) > most for question in self.tokenizer.encode_batch(long))
        if num_cut:
            logging.warning(
                "%d of %d questions were cut: they have more than max_query_length=%d tokens",
                num_cut,
                len(examples),
                most,
            )

    def _convert(
        self, examples: Sequence[SquadExample], is_training: bool
    ) -> Iterator[tuple[bytes, SquadFeatures | None]]:
        """Yields (serialized record, window) of examples; the windows are None in training."""
        self._report_cuts(examples)
        return squad_records.convert_examples_to_records(
            examples, self.tokenizer, self.settings.lengths, is_training, self.num_processes
        )

    def _cached(
        self, path: str, fingerprint: dict[str, Any], make_rows: Callable[[], Iterable[bytes]]
    ) -> int:
        """Writes records unless they exist with the same fingerprint; returns their number."""
        from albert.data import record_files

        specs = self.specs(fingerprint["split"])
        return record_files.cached(
            path, specs, fingerprint, make_rows, record_files.write_serialized
        )

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        length = self.settings.max_seq_length
        return squad_records.feature_specs(length, is_training=split == "train")

    def data(self) -> "QuestionData":
        """Returns the data of a run."""
        # Batches may be cut to this length, which is too short for a wider beam.
        fits = self.settings.widest_beam <= batching.STEP
        eval_input = input_options.EvalInput(
            trim_batches=fits, prepare=positions.make_target_adder(lambda: self.to_answer)
        )
        return QuestionData(eval_input=eval_input, questions=self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionData(contracts.Data):
    """The data of SQuAD, whose "dev" and "test" are both the questions to answer."""

    questions: QuestionFiles
    predicts_dev = True

    @property
    def limits(self) -> dict[str, int]:
        """Returns {feature: number below which its integers must be}."""
        length = self.questions.settings.max_seq_length
        places = dict.fromkeys(("start_positions", "end_positions"), length)
        return places | {"p_mask": 2, "is_impossible": 2}

    def specs(self, split: str) -> Sequence[tfrecord.FeatureSpec]:
        """Returns the features in records of the split "train", "dev" or "test"."""
        return self.questions.specs(split)

    def files(self, split: str) -> list[str]:
        """Returns the paths of the source files of the split "train", "dev" or "test"."""
        return [self.questions.file(split)]

    def dev_requests(self) -> Iterator[dict[str, str]]:
        """Yields {"question": text, "context": text} of each question to answer."""
        for example in self.questions.predict_examples:
            yield {"question": example.question_text, "context": example.paragraph_text}

    def make_records(self, split: str) -> list[str]:
        """Returns the TFRecord file of a split; makes it if it is missing or outdated."""
        if split == "train":
            return [self.questions.train_records()]
        return [self.questions.predict_records()]

    def read_ids(self) -> list[str]:
        """Returns the ids of the questions to answer, in the order of the file."""
        return [example.qas_id for example in self.questions.predict_examples]

    def write_predictions(
        self, output_dir: str, rows: contracts.Rows, ids: list[str], prefix: str
    ) -> dict[str, float] | None:
        """Writes the answers and their scores; see `contracts.Data.write_predictions`."""
        from albert.model import checkpoints

        path = self.questions.file("dev")
        kind, settings = self.questions.kind, self.questions.settings
        evaluator = squad_task.Evaluator(kind, settings, lambda: self.questions.to_answer)
        evaluator.update(dict(rows))
        answers = evaluator.answers()
        scores = evaluator.score(answers) if self.questions.answers_known else None
        if scores is None:
            logging.info("The answers of %s are not known: predictions only", path)
        texts = answers.texts
        if answers.null_odds is not None:
            if scores:
                threshold = scores[null_threshold.THRESHOLD]
                num_questions = len(self.questions.predict_examples)
                if not checkpoints.is_foreign(prefix, output_dir):
                    null_threshold.update(output_dir, threshold, prefix, path, num_questions)
            else:
                threshold = null_threshold.read(prefix)
            texts = null_threshold.apply(texts, answers.null_odds, threshold)
        outcomes.remove(output_dir)
        squad_answers.write_predictions(output_dir, texts, answers.nbest, answers.null_odds)
        if scores:
            examples = self.questions.predict_examples
            outcomes.write(output_dir, squad_outcomes.question_outcomes(examples, answers, texts))
        return scores


def _make_folders(*paths: str) -> None:
    """Makes the folders of files with these paths."""
    for path in paths:
        file_io.make_dirs(os.path.dirname(path) or ".")
