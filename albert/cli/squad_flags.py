"""What run_squad_v1 and run_squad_v2 share: their flags, and the run that these describe."""

from absl import flags

from albert.cli import (
    common_flags,
    dropout_flags,
    fine_tuning_flags,
    record_flags,
    schedule_flags,
    study_flags,
)
from albert.io import file_io
from albert.tasks.squad import features as squad_features


def define_flags(flag_values):
    """The flags that both scripts have."""
    text, integer, number, switch = common_flags.definers(flag_values)
    text("output_dir", None, "Folder of checkpoints, answers and results.")
    text("train_file", None, "SQuAD file to train on: one answer a question, or is_impossible.")
    text("predict_file", None, "SQuAD file to answer; scored if it has answers.")
    text("train_feature_file", None, "Records of the training data; by default in --output_dir.")
    text("predict_feature_file", None, "Records to predict; by default in --output_dir.")
    text(
        "predict_feature_left_file",
        None,
        "What finding the answers needs of the features, as JSON; by default in --output_dir.",
    )
    text("export_dir", None, "Write the best checkpoint in here as a SavedModel (saved_model/…/).")
    switch("do_train", False, "Train; with --do_predict each checkpoint is scored as it is saved.")
    switch("do_predict", False, "Answer --predict_file with the best checkpoint, and score it.")
    integer("max_seq_length", 384, "Longest input in tokens; longer texts are read in windows.")
    integer("doc_stride", 128, "Tokens from the start of one window to that of the next.")
    integer("max_query_length", 64, "Most tokens of a question; the rest is cut off.")
    integer("train_batch_size", 32, "Windows per step, over all devices.")
    integer("predict_batch_size", 8, "Windows per prediction step, over all devices.")
    fine_tuning_flags.define_flags(flag_values, 5e-5)
    number("num_train_epochs", 3.0, "Steps in all are the questions times this, by the batch size.")
    number("warmup_proportion", 0.1, "Share of the steps in which the learning rate rises from 0.")
    integer("save_checkpoints_steps", 1000, "Steps between checkpoints.")
    fine_tuning_flags.define_keep_flag(flag_values, "keep_checkpoint_max")
    integer("n_best_size", 20, "Answers kept of each question, and ends looked at of each window.")
    integer("max_answer_length", 30, "Most tokens of an answer.")
    study_flags.define_squad_flags(flag_values)
    flags.mark_flag_as_required("output_dir", flag_values=flag_values)


def check_flags(values):
    """Refuses contradictions before any work."""
    if not (values.do_train or values.do_predict or values.export_dir):
        raise file_io.InputError(
            "nothing to do: none of --do_train, --do_predict, --export_dir is given"
        )
    for stage, name in (("do_train", "train_file"), ("do_predict", "predict_file")):
        if values[stage].value and not values[name].value:
            raise file_io.InputError(f"--{stage} needs --{name}")
    fine_tuning_flags.check(values)
    common_flags.require_positive(
        values,
        "train_batch_size",
        "predict_batch_size",
        "max_seq_length",
        "n_best_size",
        "max_answer_length",
        "save_checkpoints_steps",
    )
    squad_features.check_lengths(values.max_seq_length, values.doc_stride, values.max_query_length)
    if not 0 <= values.warmup_proportion <= 1:
        raise file_io.InputError(
            f"--warmup_proportion={values.warmup_proportion} must be a share, from 0 to 1"
        )
    walks = values.do_predict and not values.do_train and values.checkpoint == "all"
    if values.checkpoint == "all" and not walks:
        raise file_io.InputError(
            "--checkpoint=all is for --do_predict alone: training scores every checkpoint anyway"
        )
    if values.eval_wait_secs and not walks:
        raise file_io.InputError("--eval_wait_secs is for --do_predict --checkpoint=all alone")


def num_train_steps(values, num_questions):
    """Steps in all.

    Raises:
      file_io.InputError: there are none.
    """
    steps = int(num_questions / values.train_batch_size * values.num_train_epochs)
    if steps < 1:
        raise file_io.InputError(
            f"{num_questions} questions, --train_batch_size={values.train_batch_size} and "
            f"--num_train_epochs={values.num_train_epochs} make no step of training"
        )
    return steps


def _questions(values, kind, source, config, beams, strategy):
    """`squad_task.QuestionFiles` of the flags, and the `squad_task.Settings`."""
    from albert.io import processes
    from albert.model import model_folder
    from albert.tasks.squad import task as squad_task

    settings = squad_task.Settings(
        values.max_seq_length,
        values.doc_stride,
        values.max_query_length,
        values.n_best_size,
        values.max_answer_length,
        **beams,
        **study_flags.head(values).settings,
    )
    names = ("train_file", "predict_file", "train_feature_file", "predict_feature_file")
    names += ("predict_feature_left_file",)
    train_selection, predict_selection = study_flags.selections(values)
    questions = squad_task.QuestionFiles(
        kind,
        settings,
        model_folder.load_tokenizer(source, config),
        values.output_dir,
        strategy,
        num_processes=processes.num_cores(),
        train_selection=train_selection,
        predict_selection=predict_selection,
        **{name: values[name].value for name in names},
    )
    return questions, settings


def make_run(values, kind, source, config, questions, settings, strategy):
    """`stages.Run` of the flags; reads the questions.

    Raises:
      file_io.InputError: all checkpoints are to be scored, but the answers are not known.
    """
    from albert.training import stages

    steps = num_train_steps(values, len(questions.train_examples)) if values.do_train else 0
    known = values.do_predict and questions.answers_known
    if values.checkpoint == "all" and not known:
        raise file_io.InputError(
            "--checkpoint=all evaluates every checkpoint, but the answers of "
            f"{values.predict_file} are not known"
        )
    return stages.Run(
        model_config=config,
        run_config=common_flags.run_config(
            values,
            num_train_steps=steps,
            predict_batch_size=values.predict_batch_size,
            eval_batch_size=values.predict_batch_size,
            keep_checkpoint_max=fine_tuning_flags.num_kept(values, known),
        ),
        strategy=strategy,
        init_checkpoint=source.checkpoint,
        from_scratch=values.from_scratch,
        complete_folder=lambda write: write(
            values.output_dir, kind, config, source, settings.to_dict()
        ),
        do_eval=known and (values.do_train or _scores_all(values)),
        record=record_flags.recorder(values, f"run_{kind}", source),
        **schedule_flags.of_run(
            values, steps, int(steps * values.warmup_proportion), f"recipes/{kind}.flags"
        ),
    )


def _scores_all(values):
    """Whether prediction alone scores all checkpoints, as it must where none is the best yet."""
    from albert.model import checkpoints

    folder = values.output_dir
    is_open = values.checkpoint is None and not checkpoints.find_best(folder)
    return values.checkpoint == "all" or (is_open and bool(checkpoints.numbered(folder)))


def run_squad(values, kind, **beams):
    """Trains, answers and exports as the flags say.

    Args:
      values: flag values.
      kind: `squad_records.V1` or `squad_records.V2`.
      beams: the settings that only SQuAD 2.0 has.
    """
    check_flags(values)
    data = {
        "train_feature_file": f"{kind}_train.tf_record",
        "predict_feature_file": f"{kind}_predict.tf_record",
        "predict_feature_left_file": f"{kind}_predict_features.json",
    }
    if schedule_flags.runs_seeds(values, f"run_{kind}", "f1", data):
        return
    from albert.export import saved_model_export
    from albert.tasks.squad import task as squad_task
    from albert.training import distribution, stages

    strategy = common_flags.strategy(values)
    source = common_flags.source_of_run(values, kind)
    config = dropout_flags.read_config(values, source)
    common_flags.check_seq_length(values, config)
    common_flags.end_with_estimate(values, config, strategy)
    questions, settings = _questions(values, kind, source, config, beams, strategy)
    run = make_run(values, kind, source, config, questions, settings, strategy)
    task = squad_task.make_task(kind, settings, lambda: questions.to_answer)
    data = questions.data(task.evaluator)
    runner = stages.run(*fine_tuning_flags.prepared(values, task, data, run, shares=False), run)
    if values.export_dir and distribution.is_chief(strategy):
        which = run.checkpoint_to_use
        saved_model_export.export_squad(runner, which, values.max_seq_length, values.export_dir)
    stages.complete_folder(run)
