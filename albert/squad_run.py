"""The stages of a SQuAD run: features, training, evaluation, answers and their threshold."""

import dataclasses
import os
from typing import Any

from absl import logging

from albert import (
    batching,
    checkpoint_walk,
    checkpoints,
    distribution,
    engine,
    file_io,
    fine_tuning,
    model_folder,
    records,
    squad_metrics,
    squad_task,
    squad_utils,
)

THRESHOLD = "null_score_diff_threshold"
THRESHOLD_FILE = f"{THRESHOLD}.json"


@dataclasses.dataclass(frozen=True)
class Data:
    """What a SQuAD run reads, and where it keeps features.

    Attributes:
      tokenizer: `tokenization.FullTokenizer`.
      settings: `squad_task.Settings`.
      train_file, train_examples: SQuAD file and what was read from it; None without training.
      predict_file, predict_examples: the same for prediction.
      train_feature_file, predict_feature_file, predict_feature_left_file: files of features; None
        means files in the output folder.
      num_processes: processes that make features.
    """

    tokenizer: Any
    settings: squad_task.Settings
    train_file: str | None = None
    train_examples: list | None = None
    predict_file: str | None = None
    predict_examples: list | None = None
    train_feature_file: str | None = None
    predict_feature_file: str | None = None
    predict_feature_left_file: str | None = None
    num_processes: int = 1


def run(job, data, checkpoint=None, eval_wait_secs=0):
    """Trains if there are training examples, and answers if there are questions.

    Answers are scored if the gold answers are known: in training each checkpoint as it is saved,
    without training the one that is used, or all of them with `checkpoint` "all".

    Args:
      job: `fine_tuning.Job`; its task is made anew for the questions.
      data: `Data`.
      checkpoint: the one to answer with: "best", "last", a path, or None for the best, else the
        last; "all" evaluates all of them and takes the best.
      eval_wait_secs: with "all", see `checkpoint_walk.evaluate_all`.

    Returns:
      The `engine.Engine`.

    Raises:
      file_io.InputError: there is nothing to start from, to evaluate or to answer with, or a file
        cannot be used.
    """
    file_io.make_dirs(job.run_config.output_dir)
    trains, answers = data.train_examples is not None, data.predict_examples is not None
    fine_tuning.check_start(job, trains, answers and (trains or checkpoint == "all"), answers)
    paths = []
    if trains:
        train_path = _training_records(job, data)
        if distribution.is_chief(job.strategy):
            job.complete_folder(model_folder.write)
        paths.append(train_path)
    scored_input = None
    if answers:
        predict_path, questions = _questions(job, data)
        paths.append(predict_path)
        answer_input = _answer_input(predict_path, data.settings)
        scored_input = answer_input if questions.answers_known else None
        task = squad_task.make_task(job.task.name, data.settings, questions)
        job = dataclasses.replace(job, task=task)
    runner = engine.Engine(job.task, job.model_config, job.run_config, job.strategy)
    with records.damage_reported(paths):
        if trains:
            fine_tuning.train(job, runner, _train_input(job, data, train_path), scored_input)
        elif checkpoint == "all":
            _evaluate_all(runner, data, scored_input, eval_wait_secs)
        if answers:
            walked = trains or checkpoint == "all"
            prefix = fine_tuning.load(runner, None if checkpoint == "all" else checkpoint)
            _answer(runner, questions, answer_input, prefix, data.predict_file, walked)
    return runner


def _place(job, path, ending):
    path = path or os.path.join(job.run_config.output_dir, job.task.name + ending)
    file_io.make_dirs(os.path.dirname(path) or ".")
    return path


def _training_records(job, data):
    path = _place(job, data.train_feature_file, "_train.tf_record")
    with distribution.chief_first(job.strategy):
        squad_task.make_training_records(
            path,
            data.train_file,
            data.train_examples,
            data.tokenizer,
            data.settings,
            data.num_processes,
        )
    return path


def _questions(job, data):
    path = _place(job, data.predict_feature_file, "_predict.tf_record")
    left_path = _place(job, data.predict_feature_left_file, "_predict_features.json")
    with distribution.chief_first(job.strategy):
        questions = squad_task.make_questions(
            path,
            left_path,
            data.predict_file,
            data.predict_examples,
            data.tokenizer,
            data.settings,
            data.num_processes,
        )
    return path, questions


def _train_input(job, data, path):
    specs = squad_task.feature_specs(data.settings.max_seq_length, is_training=True)
    return records.train_input_fn([path], specs, job.run_config.seed)


def _answer_input(path, settings):
    specs = squad_task.feature_specs(settings.max_seq_length, is_training=False)
    # Some batches may be cut to as little as this: too short for a wider beam.
    fits = settings.widest_beam <= batching.STEP
    return records.eval_input_fn([path], specs, trim_batches=fits)


def _evaluate_all(runner, data, scored_input, eval_wait_secs):
    if scored_input is None:
        raise file_io.InputError(
            f"--checkpoint=all evaluates every checkpoint, but the answers of {data.predict_file} "
            "are not known"
        )
    checkpoint_walk.evaluate(runner, scored_input, "all", eval_wait_secs)


def _answer(runner, questions, input_fn, prefix, predict_file, walked):
    """Answers with the weights of `prefix`, which are loaded, and writes all files.

    Args:
      walked: checkpoints have been evaluated in this run; their results stay in their file.
    """
    evaluator = runner.task.evaluator()
    evaluator.update(runner.predict(input_fn))
    answers = evaluator.answers()
    metrics = evaluator.score(answers) if questions.answers_known else None
    is_chief = distribution.is_chief(runner.strategy)
    if metrics is None:
        logging.info("The answers of %s are not known: predictions only", predict_file)
    elif walked:
        logging.info("%s: f1 %.3f", os.path.basename(prefix), metrics["f1"])
    else:
        checkpoint_walk.report(runner, prefix, metrics)
    if not is_chief:
        return
    folder = runner.run_config.output_dir
    texts = answers.texts
    if answers.null_odds is not None:
        if metrics:
            threshold = metrics[THRESHOLD]
            write_threshold(folder, threshold, prefix, predict_file)
        else:
            threshold = read_threshold(prefix)
        texts = squad_metrics.apply_threshold(texts, answers.null_odds, threshold)
    squad_utils.write_predictions(folder, texts, answers.nbest, answers.null_odds)


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
