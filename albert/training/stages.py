"""Runs the stages of any task: training, evaluation, prediction.

`run` calls `_train`, which calls `Engine.train`; its compiled step is `train_step.run`.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf
from absl import logging

from albert.data import input_pipeline
from albert.io import file_io, locks
from albert.model import checkpoints, configuration, model_folder, weight_names
from albert.training import (
    budget,
    contracts,
    distribution,
    evaluation,
    learning_rates,
    optimizer_table,
    results,
    run_record,
    run_session,
    stuck_runs,
)
from albert.training.engine import Engine, RunConfig, check_batches, training_batch
from albert.training.evaluation_basis import Basis

# Fits the decision to outputs of the dev examples; see `Run`.
Calibrate = Callable[[contracts.Rows, str], tuple[contracts.Task, contracts.Data]]


@dataclasses.dataclass(frozen=True)
class Training:
    """How a run trains.

    Attributes:
      stuck: None: training is not judged.
      limits: budget of time; None: `RunConfig` has the number of steps.
    """

    optimizer: optimizer_table.Settings
    stuck: stuck_runs.Settings | None = None
    limits: budget.Settings | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of a run of any task.

    Attributes:
      training: None: the run does not train. With training each checkpoint is evaluated when it is
        saved.
      init_checkpoint: prefix of the weights to start from.
      from_scratch: start from random weights if there is no `init_checkpoint`.
      view, new_head, new_rows: see `checkpoints.restore`.
      adapt: ``(model, LoadReport)`` changes the initial weights to suit the model.
      check_folder: raises if the output folder holds another model, before training.
      complete_folder: ``(replace)`` adds the files that make the output folder usable without
        flags; see `model_folder.write`. replace is True before training, else False.
      checkpoint: the checkpoint to evaluate or to predict with, see `checkpoints.choose`. "all"
        evaluates all checkpoints and predicts with the best.
      eval_wait_secs: see `evaluation.evaluate_all`.
      record: describes the run in its folder; None: the run is not recorded.
      before_save: called by the chief before each checkpoint; raises if it must not save.
      basis: returns what evaluations are measured on; None: unknown.
      calibrate: ``(rows, prefix)`` fits the model's decision to the dev rows that the checkpoint to
        use predicted; all workers call it. Returns the task and its data with this decision.
    """

    model_config: configuration.AlbertConfig
    run_config: RunConfig
    strategy: tf.distribute.Strategy
    training: Training | None = None
    init_checkpoint: str | None = None
    from_scratch: bool = False
    view: weight_names.View | None = None
    adapt: Callable[[contracts.Model, checkpoints.LoadReport], None] = lambda model, report: None
    new_head: bool | None = None
    new_rows: int = 0
    check_folder: Callable[[], None] = lambda: None
    complete_folder: Callable[[bool], None] = lambda replace: None
    do_eval: bool = False
    do_predict: bool = False
    checkpoint: str | None = None
    eval_wait_secs: int = 0
    record: run_session.Recorder | None = None
    before_save: Callable[[], None] = lambda: None
    basis: Callable[[], Basis | None] = lambda: None
    calibrate: Calibrate | None = None

    @property
    def do_train(self) -> bool:
        return self.training is not None

    @property
    def checkpoint_to_use(self) -> str | None:
        """The checkpoint to predict with, as `checkpoints.choose` takes it."""
        return None if self.checkpoint == "all" else self.checkpoint


def run(task: contracts.Task, data: contracts.Data, run: Run) -> Engine:
    """Runs the stages of a run: training, evaluation, prediction."""
    stages = {"train": run.do_train, "dev": run.do_eval, "test": run.do_predict}
    splits = [split for split, is_chosen in stages.items() if is_chosen]
    if splits:  # otherwise the folder is only read, for an export
        file_io.make_dirs(run.run_config.output_dir)
    check_start(run)
    run = _with_basis(run, task, data)
    with _locking_folder(run) as run, _recording(run, data, splits):
        if run.do_train:
            _check_not_left_alone(run.run_config.output_dir)
        paths = {split: data.records(split) for split in splits}
        if run.do_train and distribution.is_chief(run.strategy):
            run.complete_folder(True)
            run_record.drop_calibration(run.run_config.output_dir)
        with data.reading([path for files in paths.values() for path in files]):
            eval_input = _eval_input(data, paths, "dev") if run.do_eval else None
            if run.training:
                engine = _train(task, data, run, run.training, paths["train"], eval_input)
            else:
                engine = _make_engine(task, run)
            block = _evaluate(run, engine, eval_input) if eval_input else None
            if run.calibrate and eval_input:
                prefix = load(engine, run.checkpoint_to_use)
                task, data = run.calibrate(engine.predict(eval_input), prefix)
                engine = _make_engine(task, run)
                block = evaluation.find_best_block(engine)  # with the calibration
            if run.do_predict:
                block = _predict(run, data, engine, _eval_input(data, paths, "test")) or block
            if block:
                _log_results(run, engine, block)
                if run.do_eval:
                    evaluation.warn_of_start(engine, block)
                folder = run.run_config.output_dir
                remarks = run_record.read_remarks(folder, only_current=True)
                run_record.log_remarks(folder, remarks)
    return engine


def _check_not_left_alone(folder: str) -> None:
    """Rejects training in the folder of a finished run that has only its best checkpoint left."""
    if checkpoints.numbered(folder) or not checkpoints.find_best(folder):
        return
    trial = results.read_trial(folder)
    if trial and trial.last_step > 0:
        raise file_io.InputError(
            f"{folder} holds a finished run of which only the best checkpoint is left, so that it "
            "cannot be resumed, and a new training would replace its results: give another "
            "output_dir (the folder can be its init_checkpoint)"
        )


def _log_results(run: Run, engine: Engine, block: results.Block) -> None:
    """Logs the scores of the chosen checkpoint, with a table of its classes if there are any."""
    text = results.display(block, engine.task.results_form)
    table = results.class_table(run_record.read_classes(run.run_config.output_dir))
    logging.info("%s", f"{text}\n{table}" if table else text)


def _train(
    task: contracts.Task,
    data: contracts.Data,
    run: Run,
    training: Training,
    paths: Sequence[str],
    eval_input: input_pipeline.InputFn | None,
) -> Engine:
    """Trains on record files in a budget; restarts with another seed if the run does not learn."""
    folder, first_seed = run.run_config.output_dir, run.run_config.seed
    on_chief = functools.partial(distribution.from_chief, run.strategy)
    num_restarts = training.stuck.num_restarts if training.stuck else 0
    for seed, count in stuck_runs.attempts(folder, first_seed, num_restarts, on_chief):
        watch = _make_watch(run, training)
        pacer = _make_pacer(run, training, count, watch)
        optimizer, config = training.optimizer, dataclasses.replace(run.run_config, seed=seed)
        if pacer:
            optimizer = optimizer.in_fractions()
            config = dataclasses.replace(config, num_train_steps=pacer.num_train_steps)
        engine = _make_engine(task, dataclasses.replace(run, run_config=config))
        extra: dict[str, float] | None = {"restarts": count} if count else None
        evaluate = None
        if eval_input:
            evaluate = evaluation.evaluate_while_training(engine, eval_input, extra)
            if pacer:
                time_evaluation = functools.partial(engine.time_evaluation, eval_input)
                evaluate = pacer.timing(evaluate, time_evaluation)
        try:
            average = engine.train(
                input_pipeline.train_input_fn(paths, data.specs("train"), seed, data.train_input),
                optimizer,
                lambda model: _initialize(model, run),
                evaluate,
                [hook for hook in (watch, pacer) if hook],
                data.words_per_token,
            )
            if average and eval_input:
                evaluation.evaluate_average(engine, eval_input, average)
            return engine
        except stuck_runs.StuckError as error:
            stuck_runs.give_up(folder, seed, error, on_chief)
            del engine, evaluate, watch, pacer  # the next attempt needs their memory
    raise AssertionError("the last attempt has raised")


def _eval_input(
    data: contracts.Data, paths: Mapping[str, Sequence[str]], split: str
) -> input_pipeline.InputFn:
    """Returns the input function that reads the `paths` of a split, record files, once."""
    return input_pipeline.eval_input_fn(paths[split], data.specs(split), data.eval_input)


def _initialize(model: contracts.Model, run: Run) -> checkpoints.LoadReport | None:
    """Loads the initial weights of a run and returns what was loaded; None without a checkpoint."""
    if not run.init_checkpoint:
        return None
    report = checkpoints.restore(
        model, run.init_checkpoint, view=run.view, new_head=run.new_head, new_rows=run.new_rows
    )
    run.adapt(model, report)
    return report


def _make_engine(task: contracts.Task, run: Run) -> Engine:
    """Makes the engine of a run, and writes the size of its model to the run's record."""
    if not (run.training and run.training.stuck):  # the learning signals are not needed
        task = dataclasses.replace(task, learning_signals=contracts.no_metrics)
    engine = Engine(task, run.model_config, run.run_config, run.strategy)
    engine.before_save, engine.basis = run.before_save, run.basis
    if distribution.is_chief(run.strategy):
        counts = [
            sum(variable.shape.num_elements() for variable in variables)
            for variables in (engine.model.variables, engine.model.trained_variables)
        ]
        run_record.set_model(run.run_config.output_dir, task.name, task.best_metric, *counts)
    return engine


def _make_watch(run: Run, training: Training) -> stuck_runs.Watch | None:
    """Makes the hook that judges whether a run learns; None if it is not judged."""
    if not training.stuck:
        return None
    config = run.run_config
    return stuck_runs.Watch(
        training.stuck, config.output_dir, None if training.limits else config.num_train_steps,
        config.train_batch_size, distribution.is_chief(run.strategy),
    )  # fmt: skip


def _make_pacer(
    run: Run, training: Training, attempt: int, watch: stuck_runs.Watch | None
) -> budget.Pacer | None:
    """Makes the hook that plans the steps within a budget of time; None without a budget.

    `attempt` is the number of attempts that were given up before.
    """
    limits, config, folder = training.limits, run.run_config, run.run_config.output_dir
    if not limits:
        return None
    on_chief = functools.partial(distribution.from_chief, run.strategy)
    with run.strategy.scope():
        pace = learning_rates.Pace()
    pacer = budget.Pacer(
        limits, folder, attempt, config.save_checkpoints_steps, config.eval_every,
        on_chief, distribution.is_chief(run.strategy), pace,
        watch.expect if watch else lambda steps, step: None,
    )  # fmt: skip
    if pacer.is_new and on_chief(lambda: bool(checkpoints.numbered(folder))):
        raise file_io.InputError(
            f"budget_minutes={limits.minutes:g}: {folder} has a run without a budget; give "
            "another output_dir"
        )
    return pacer


def _evaluate(run: Run, engine: Engine, eval_input: input_pipeline.InputFn) -> results.Block | None:
    """Returns the results of the best checkpoint, or of `run.checkpoint`; None in other workers.

    Training has already evaluated each checkpoint.
    """
    if run.do_train:
        best = evaluation.find_best_block(engine)
        if best and best.step == 0 and run.run_config.num_train_steps:
            logging.warning(
                "The best checkpoint is that of step 0, before training: no later one has a better "
                "%s",
                engine.task.best_metric,
            )
        return best
    return evaluation.evaluate(engine, eval_input, run.checkpoint, run.eval_wait_secs)


@contextlib.contextmanager
def _locking_folder(run: Run) -> Iterator[Run]:
    """Yields the run, and locks its output folder against other processes while it trains.

    A folder of another model is rejected before anything is written there.
    """
    if not (run.do_train and distribution.is_chief(run.strategy)):
        yield run
        return
    with locks.written_by_one(run.run_config.output_dir) as lock:
        run.check_folder()
        yield dataclasses.replace(run, before_save=lock.check)


# Split -> name of its stage in the record of a run.
_STAGE_OF_SPLIT = {"train": run_record.TRAIN, "dev": run_record.EVAL, "test": run_record.PREDICT}


def _with_basis(run: Run, task: contracts.Task, data: contracts.Data) -> Run:
    """Returns the run with the basis of its evaluations, if it is recorded."""
    recorder = run.record
    if not recorder:
        return run

    @functools.cache
    def basis() -> Basis:
        files = data.files("dev" if run.do_eval else "test")
        return recorder.basis(task.name, task.best_metric, _name_of(files), files)

    return dataclasses.replace(run, basis=basis)


def _name_of(files: Sequence[str]) -> str:
    """Returns the name of an input: its file, or the folder of its files."""
    return files[0] if len(files) == 1 else os.path.dirname(os.path.commonprefix([*files]))


def _recording(
    run: Run, data: contracts.Data, splits: Sequence[str]
) -> contextlib.AbstractContextManager:
    """Returns the context manager in which the chief records the run."""
    if not (run.record and splits and distribution.is_chief(run.strategy)):
        return contextlib.nullcontext()
    names = {split: _STAGE_OF_SPLIT[split] for split in splits}
    inputs: dict[str, tuple[str, list[str]]] = {}
    for split, stage in names.items():
        if files := data.files(split):
            inputs[f"{stage}_data"] = (_name_of(files), files)
    return run.record.session(run.run_config.output_dir, list(names.values()), inputs)


def check_start(run: Run) -> None:
    """Checks that the stages of the run can start, before touching the data."""
    stages = {"eval_batch_size": run.do_eval, "predict_batch_size": run.do_predict}
    stages["predict_batch_size"] |= run.calibrate is not None
    names = [name for name, is_needed in stages.items() if is_needed]
    check_batches(run.run_config, run.strategy, *names)
    checkpoints.check_path(run.run_config.output_dir)
    if not run.do_train:
        return
    training_batch(run.run_config, run.strategy)
    if not (
        run.init_checkpoint or run.from_scratch or checkpoints.numbered(run.run_config.output_dir)
    ):
        raise file_io.InputError(
            "no weights to start from: give init_checkpoint or albert_hub_module_handle, or "
            "from_scratch to start from random weights"
        )


def load(engine: Engine, checkpoint: str | None = None) -> str:
    """Loads "best", "last" or a path (None: the best, else the last) and returns its prefix."""
    folder = engine.run_config.output_dir
    prefix = distribution.from_chief(
        engine.strategy, lambda: checkpoints.choose(folder, checkpoint)
    )
    checkpoints.restore(engine.model, prefix, allow_new_heads=False)
    logging.info("Using %s", prefix)
    return prefix


def _predict(
    run: Run, data: contracts.Data, engine: Engine, predict_input: input_pipeline.InputFn
) -> results.Block | None:
    """Writes predictions; returns their results if they are the evaluation, else None."""
    prefix = load(engine, run.checkpoint_to_use)
    rows = engine.predict(predict_input)
    if not distribution.is_chief(run.strategy):
        return None
    described = model_folder.described_decision(os.path.dirname(prefix))
    model_folder.warn_of_decision(described, prefix)
    folder = run.run_config.output_dir
    metrics = data.write_predictions(folder, rows, data.ids(), prefix)
    run_record.set_predicted(folder, prefix, checkpoints.read_step(prefix))
    name = prefix if checkpoints.is_foreign(prefix, folder) else os.path.basename(prefix)
    logging.info("Wrote the predictions of %s to %s", name, folder)
    if metrics is None:
        return None
    if run.do_eval or not data.predicts_dev:  # the results file keeps the checkpoints' scores
        best = engine.task.best_metric
        split = "dev" if data.predicts_dev else "test"
        score = results.short(metrics[best])
        logging.info("%s: %s %s on the %s data", name, best, score, split)
    if not data.predicts_dev:
        run_record.set_test(folder, prefix, checkpoints.read_step(prefix) or 0, metrics)
    if run.do_eval or not data.predicts_dev:
        return None
    return evaluation.report(engine, prefix, metrics)


def leave_checkpoints(run: Run, keep_only_best: bool) -> None:
    """Logs the size of the checkpoints of a successful run, or leaves the best weights alone."""
    folder = run.run_config.output_dir
    if not (run.do_train and distribution.is_chief(run.strategy)):
        return
    if not (before := checkpoints.size_in(folder)):
        return
    best = checkpoints.find_best(folder)
    if not (keep_only_best and best):
        hint = "; the flag keep_only_best leaves the weights of the best alone" if best else ""
        logging.info(
            "The checkpoints in %s take %s, with what resuming needs%s",
            folder, file_io.describe(before), hint,
        )  # fmt: skip
        return
    with locks.written_by_one(folder):
        checkpoints.keep_only_best(folder)
    logging.info(
        "Kept only the weights of the best checkpoint in %s: %s of %s; this run cannot be resumed",
        folder, file_io.describe(checkpoints.size_in(folder)), file_io.describe(before),
    )  # fmt: skip


def complete_folder(run: Run) -> None:
    """Adds missing files to the output folder, such as one that another program has trained.

    Call it at the end of a successful run without training; training completes its folder before
    the first checkpoint. If a file cannot be written, it only warns, as the run has succeeded.
    """
    folder = run.run_config.output_dir
    if run.do_train or not distribution.is_chief(run.strategy):
        return
    try:
        prefix = checkpoints.choose(folder, run.checkpoint_to_use)
        # A checkpoint of another folder is no evidence for this folder.
        if os.path.abspath(os.path.dirname(prefix)) == os.path.abspath(folder):
            run.complete_folder(False)
    except (OSError, tf.errors.OpError, file_io.InputError) as error:
        logging.warning("%s could not be made usable without flags: %s", folder, error)
