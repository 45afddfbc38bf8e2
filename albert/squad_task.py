"""SQuAD 1.1 and 2.0 as tasks of the engine: records, models, answers and their scores."""

import dataclasses
import functools
import math

from absl import logging

from albert import file_io, records, squad_metrics, squad_records, squad_utils, task

V1, V2 = "squad_v1", "squad_v2"
# Logit of padding: never among the best, so that answers do not depend on how long a batch is.
_NO_LOGIT = -1e30


@dataclasses.dataclass(frozen=True)
class Settings:
    """What features and answers depend on beside the model and its vocabulary.

    Attributes:
      max_seq_length, doc_stride, max_query_length: see `squad_features.Featurizer`.
      n_best_size, max_answer_length: see `squad_utils.best_answers_v1`.
      start_n_top, end_n_top, dropout_prob: see `heads.SquadV2Model`; None for SQuAD 1.1.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    n_best_size: int
    max_answer_length: int
    start_n_top: int | None = None
    end_n_top: int | None = None
    dropout_prob: float | None = None

    @property
    def window(self):
        """The lengths that features depend on, as keyword arguments of what makes them."""
        names = ("max_seq_length", "doc_stride", "max_query_length")
        return {name: getattr(self, name) for name in names}

    @property
    def widest_beam(self):
        """Places that an input must have at least; 0 without beams."""
        return max(self.start_n_top or 0, self.end_n_top or 0)


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions to answer and their windows.

    Attributes:
      examples: list of `squad_utils.SquadExample`.
      features: list of `squad_utils.SquadFeatures`, in the order of the records.
    """

    examples: list
    features: list

    @functools.cached_property
    def answers_known(self):
        return squad_utils.answers_known(self.examples)

    @functools.cached_property
    def dataset(self):
        """The gold answers in the layout of SQuAD files."""
        questions = [
            {"id": example.qas_id, "answers": [{"text": text} for text in example.answers or ()]}
            for example in self.examples
        ]
        return [{"paragraphs": [{"qas": questions}]}]


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers of all questions.

    Attributes:
      texts: ``{qas_id: text}``, the best text of each, whether or not it has an answer.
      nbest: ``{qas_id: [entry of nbest_predictions.json, …]}``.
      null_odds: ``{qas_id: score}``, high where there is no answer; None under SQuAD 1.1.
    """

    texts: dict
    nbest: dict
    null_odds: dict | None


# --- records ------------------------------------------------------------------------------------


def feature_specs(seq_length, is_training):
    """`records.FeatureSpec` of the records of `squad_records`."""
    sequences = ("input_ids", "input_mask", "segment_ids", "p_mask")
    scalars = ("start_positions", "end_positions", "is_impossible") if is_training else ()
    return (
        records.FeatureSpec("unique_ids", "int64"),
        *(records.FeatureSpec(name, "int64", (seq_length,), sequence=True) for name in sequences),
        *(records.FeatureSpec(name, "int64") for name in scalars),
    )


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
      settings: `Settings`.
      num_processes: see `squad_records.convert_examples_to_records`.

    Raises:
      file_io.InputError: too many questions cannot be used, or the file cannot be written.
    """

    def make_rows():
        shuffled = squad_utils.shuffle_examples(examples)
        made = _convert(shuffled, tokenizer, settings, True, num_processes)
        return (record for record, _ in made)

    specs = feature_specs(settings.max_seq_length, is_training=True)
    fingerprint = _fingerprint(data_file, tokenizer, settings, "train")
    records.cached(path, specs, fingerprint, make_rows, records.write_serialized)


def make_questions(path, left_path, data_file, examples, tokenizer, settings, num_processes=1):
    """Makes the records for prediction and what decoding needs, unless they are there already.

    Args:
      path: record file.
      left_path: file of the features left, see `squad_records.write_features_left`.
      For the rest see `make_training_records`.

    Returns:
      `Questions`.

    Raises:
      file_io.InputError: no question has any text to look in; `left_path` is another kind of file.
    """
    specs = feature_specs(settings.max_seq_length, is_training=False)
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
    return Questions(examples, features)


def _read_features_left(path, fingerprint):
    """The features of the file, None where they have to be made."""
    if not file_io.exists(path):
        return None
    try:
        return squad_records.read_features_left(path, fingerprint)
    except squad_records.StaleFeaturesError as error:
        logging.warning("Making the features again: %s", error)
        return None


# --- evaluation ---------------------------------------------------------------------------------


class Evaluator:
    """Collects the scores of windows, and makes answers of them.

    Args:
      questions: `Questions`.
      decode: ``(questions, results) -> Answers``; results as for `squad_utils.best_answers_v1`.
      score: ``(dataset, Answers) -> dict[str, float]``.

    Attributes:
      results: ``{unique id: {name: array}}``, what was collected.
    """

    def __init__(self, questions, decode, score):
        self._questions = questions
        self._decode = decode
        self._score = score
        self.results = {}

    def update(self, rows):
        """Adds windows: dict of arrays [B, …], with ``unique_ids`` [B]."""
        names = [name for name in rows if name != "unique_ids"]
        columns = [rows[name] for name in names]
        for number, *values in zip(rows["unique_ids"].tolist(), *columns, strict=True):
            self.results[number] = dict(zip(names, values, strict=True))

    def answers(self):
        """`Answers` of the questions whose windows all have been added.

        Raises:
          file_io.InputError: windows are missing.
        """
        return self._decode(self._questions, self.results)

    def score(self, answers):
        """Scores of `Answers` of these questions: dict of numbers."""
        return self._score(self._questions.dataset, answers)

    def result(self):
        """The scores of `answers`."""
        return self.score(self.answers())


# --- SQuAD 1.1 -----------------------------------------------------------------------------------


def _build_v1(config, compute, seed):
    from albert import heads

    return heads.SquadV1Model(config, compute, seed)


def _eval_outputs_v1(model, outputs, features, max_seq_length):
    """Logits [B, S] of the whole length, so that batches of all lengths fit together."""
    import tensorflow as tf

    del model
    is_real = features["input_mask"] > 0
    missing = max_seq_length - tf.shape(is_real)[1]

    def whole(logits):
        logits = tf.where(is_real, logits, _NO_LOGIT)
        padded = tf.pad(logits, [[0, 0], [0, missing]], constant_values=_NO_LOGIT)
        return tf.ensure_shape(padded, [None, max_seq_length])

    return {
        "unique_ids": tf.reshape(features["unique_ids"], [-1]),
        "start_log_prob": whole(outputs["start_logits"]),
        "end_log_prob": whole(outputs["end_logits"]),
    }


def _decode_v1(questions, results, settings):
    texts, nbest = squad_utils.predictions_v1(
        questions.examples,
        questions.features,
        results,
        settings.n_best_size,
        settings.max_answer_length,
    )
    return Answers(texts, nbest, None)


def _score_v1(dataset, answers):
    return squad_metrics.evaluate_v1(dataset, answers.texts)


def _make_v1(settings, questions):
    decode = functools.partial(_decode_v1, settings=settings)
    return task.Task(
        name=V1,
        feature_specs=functools.partial(feature_specs, is_training=True),
        build_model=_build_v1,
        eval_outputs=functools.partial(_eval_outputs_v1, max_seq_length=settings.max_seq_length),
        evaluator=functools.partial(Evaluator, questions, decode, _score_v1),
        best_metric="f1",
    )


# --- SQuAD 2.0 -----------------------------------------------------------------------------------


def _build_v2(config, compute, seed, settings):
    from albert import heads

    beams = (settings.start_n_top, settings.end_n_top)
    return heads.SquadV2Model(config, *beams, settings.dropout_prob, compute, seed)


def _eval_outputs_v2(model, outputs, features):
    import tensorflow as tf

    del model
    return {"unique_ids": tf.reshape(features["unique_ids"], [-1]), **outputs}


def _decode_v2(questions, results, settings):
    texts, nbest, null_odds = squad_utils.predictions_v2(
        questions.examples,
        questions.features,
        results,
        settings.n_best_size,
        settings.max_answer_length,
        settings.start_n_top,
        settings.end_n_top,
        null_score_diff_threshold=math.inf,  # the best text of each question
    )
    return Answers(texts, nbest, null_odds)


def _score_v2(dataset, answers):
    return squad_metrics.evaluate_v2(dataset, answers.texts, answers.null_odds)


def _make_v2(settings, questions):
    decode = functools.partial(_decode_v2, settings=settings)
    return task.Task(
        name=V2,
        feature_specs=functools.partial(feature_specs, is_training=True),
        build_model=functools.partial(_build_v2, settings=settings),
        eval_outputs=_eval_outputs_v2,
        evaluator=functools.partial(Evaluator, questions, decode, _score_v2),
        best_metric="f1",
    )


_BUILDERS = {V1: _make_v1, V2: _make_v2}
KINDS = tuple(_BUILDERS)


def make_task(kind, settings, questions=None):
    """The `task.Task` of SQuAD 1.1 (`V1`) or 2.0 (`V2`).

    Args:
      kind: `V1` or `V2`.
      settings: `Settings`.
      questions: `Questions` that its evaluators work on; None where nothing is evaluated.
    """
    return _BUILDERS[kind](settings, questions)
