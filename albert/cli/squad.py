"""Settings and command that `run_squad_v1` and `run_squad_v2` share."""

import dataclasses
from typing import TYPE_CHECKING, Any

from albert.cli import fine_tuning, fine_tuning_settings, options, path_flags
from albert.io import file_io
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import selection

if TYPE_CHECKING:
    from albert.tasks.squad.question_files import QuestionFiles
    from albert.training.engine import Engine

_FILES = (
    *("train_file", "train_feature_file"),
    *("predict_file", "predict_feature_file", "predict_feature_left_file"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning_settings.Settings):
    """Settings of both commands."""

    output_dir: str = options.flag(
        None,
        "Folder of checkpoints, answers and results.",
        required=True,
        path=path_flags.RUN_FOLDER,
    )
    train_file: str | None = options.flag(
        None,
        "SQuAD file to train on: one answer per question, or is_impossible.",
        path=path_flags.INPUT,
    )
    predict_file: str | None = options.flag(
        None, "SQuAD file to answer; scored if it has answers.", path=path_flags.INPUT
    )
    train_feature_file: str | None = options.flag(
        None, "Records of the training data; by default in --output_dir.", path=path_flags.OUTPUT
    )
    predict_feature_file: str | None = options.flag(
        None, "Records to predict; by default in --output_dir.", path=path_flags.OUTPUT
    )
    predict_feature_left_file: str | None = options.flag(
        None,
        "Features that finding the answers needs, as JSON; by default in --output_dir.",
        path=path_flags.OUTPUT,
    )
    export_dir: str | None = options.flag(
        None,
        "Write the best checkpoint in here as a SavedModel (saved_model/…/).",
        path=path_flags.FOLDER,
    )
    do_train: bool = options.flag(
        False, "Train; with --do_predict each checkpoint is scored as it is saved."
    )
    do_predict: bool = options.flag(
        False, "Answer --predict_file with the best checkpoint, and score it."
    )
    max_seq_length: int = options.count(
        384, "Longest input in tokens; longer texts are read in windows."
    )
    doc_stride: int = options.flag(128, "Tokens from the start of one window to that of the next.")
    max_query_length: int = options.flag(64, "Maximum tokens of a question; the rest is cut off.")
    train_batch_size: int = options.count(32, "Windows per step, over all devices.")
    predict_batch_size: int = options.count(8, "Windows per prediction step, over all devices.")
    num_train_epochs: float = options.flag(
        3.0,
        "Passes over the training questions: the number of steps is the number of questions times "
        "this, divided by --train_batch_size.",
        check=options.above_zero,
    )
    warmup_proportion: float = options.flag(
        0.1,
        "Fraction of the steps in which the learning rate rises from 0.",
        check=options.unit_interval,
    )
    keep_checkpoint_max: int = fine_tuning_settings.keep_flag()
    n_best_size: int = options.count(
        20, "Answers kept per question; for SQuAD 1.1 also starts and ends tried per window."
    )
    max_answer_length: int = options.count(30, "Maximum tokens of an answer.")
    answerable_only: bool = options.flag(
        False, "Omit questions without an answer, in training and evaluation."
    )
    drop_longer_than: int | None = options.flag(
        None,
        "Omit questions that have more tokens than this together with their text, [CLS] and "
        "[SEP]s, in training and evaluation.",
        minimum=4,
    )

    @property
    def evaluates(self) -> bool:
        return self.do_predict

    @property
    def eval_batch(self) -> int:
        return self.predict_batch_size

    @property
    def max_kept(self) -> int:
        return self.keep_checkpoint_max

    @property
    def beams(self) -> dict[str, Any]:
        """Returns {attribute of `squad_task.Settings`: value} that only SQuAD 2.0 has."""
        return {}

    def check(self) -> None:
        self.check_work("do_train", "do_predict", "export_dir")
        for stage, name in (("do_train", "train_file"), ("do_predict", "predict_file")):
            if getattr(self, stage) and not getattr(self, name):
                raise file_io.InputError(f"--{stage} needs --{name}")
        super().check()
        squad_features.check_lengths(self.max_seq_length, self.doc_stride, self.max_query_length)
        takes_all = self.loop.checkpoint == "all"
        walks = self.do_predict and not self.do_train and takes_all
        if takes_all and not walks:
            raise file_io.InputError(
                "--checkpoint=all is for --do_predict alone: training scores every checkpoint "
                "anyway"
            )
        if self.loop.eval_wait_secs and not walks:
            raise file_io.InputError("--eval_wait_secs is for --do_predict --checkpoint=all alone")

    def num_train_steps(self, num_questions: int) -> int:
        """Returns the total number of steps for a number of training questions."""
        steps = int(num_questions / self.train_batch_size * self.num_train_epochs)
        if steps < 1:
            raise file_io.InputError(
                f"{num_questions} questions, --train_batch_size={self.train_batch_size} and "
                f"--num_train_epochs={self.num_train_epochs} give no training step"
            )
        return steps

    def selections(self) -> tuple[selection.Selection, selection.Selection]:
        """Returns the selections of the training file and of the file to answer."""
        criteria, seed = (self.answerable_only, self.drop_longer_than), self.loop.seed
        return (
            selection.Selection(*criteria, self.fractions.train_fraction, "train_fraction", seed),
            selection.Selection(*criteria, self.fractions.eval_fraction, "eval_fraction", seed),
        )


@dataclasses.dataclass(frozen=True)
class Squad(fine_tuning.Command):
    """The command for one version of SQuAD: `squad_records.V1` or `squad_records.V2`."""

    settings: Settings
    version: str

    best_metric = "f1"

    @property
    def kind(self) -> str:
        """Returns the version, which is the kind of its models."""
        return self.version

    @property
    def recipe(self) -> str:
        return f"recipes/{self.kind}.flags"

    @property
    def shared_data(self) -> dict[str, str]:
        return {
            "train_feature_file": f"{self.kind}_train.tf_record",
            "predict_feature_file": f"{self.kind}_predict.tf_record",
            "predict_feature_left_file": f"{self.kind}_predict_features.json",
        }

    def prepare(self, inputs: fine_tuning.Inputs) -> fine_tuning.Prepared:
        from albert.io import processes
        from albert.tasks.squad import question_files
        from albert.tasks.squad import task as squad_task

        settings = self.settings
        task_settings = squad_task.Settings(
            settings.max_seq_length,
            settings.doc_stride,
            settings.max_query_length,
            settings.n_best_size,
            settings.max_answer_length,
            **settings.beams,
            head=inputs.head,
        )
        train_selection, predict_selection = settings.selections()
        questions = question_files.QuestionFiles(
            self.kind,
            task_settings,
            inputs.tokenizer,
            settings.output_dir,
            inputs.strategy,
            num_processes=processes.num_cores(),
            train_selection=train_selection,
            predict_selection=predict_selection,
            **{name: getattr(settings, name) for name in _FILES},
        )
        return self.prepare_questions(questions)

    def prepare_questions(self, questions: "QuestionFiles") -> fine_tuning.Prepared:
        """Returns task, data and steps of a run on questions."""
        from albert.tasks.squad import task as squad_task

        settings, steps = self.settings, 0
        if settings.do_train:
            steps = settings.num_train_steps(len(questions.train_examples))
        has_answers = settings.do_predict and questions.answers_known
        if settings.loop.checkpoint == "all" and not has_answers:
            raise file_io.InputError(
                "--checkpoint=all evaluates every checkpoint, but the answers of "
                f"{settings.predict_file} are not known"
            )
        task = squad_task.make_task(self.kind, questions.settings, lambda: questions.to_answer)
        return fine_tuning.Prepared(
            task,
            questions.data(),
            questions.settings.to_dict(),
            steps,
            int(steps * settings.warmup_proportion),
            do_eval=has_answers and (settings.do_train or _scores_all(settings)),
            draws_fractions=False,
        )

    def export(
        self,
        export_dir: str,
        inputs: fine_tuning.Inputs,
        prepared: fine_tuning.Prepared,
        engine: "Engine",
    ) -> None:
        from albert.export import saved_model_export
        from albert.training import distribution

        settings = self.settings
        if distribution.is_chief(inputs.strategy):
            checkpoint = fine_tuning.checkpoint_to_use(settings, inputs)
            which = None if checkpoint == "all" else checkpoint
            saved_model_export.export_squad(engine, which, settings.max_seq_length, export_dir)


def _scores_all(settings: Settings) -> bool:
    """Returns whether prediction alone scores all checkpoints, because none is best yet."""
    from albert.model import checkpoints

    folder, checkpoint = settings.output_dir, settings.loop.checkpoint
    is_open = checkpoint is None and not checkpoints.find_best(folder)
    return checkpoint == "all" or (is_open and bool(checkpoints.numbered(folder)))
