r"""Fine-tunes ALBERT on RACE (multiple choice), evaluates it and predicts.

Example:

    albert run_race --data_dir=race --output_dir=out/race \
        --init_checkpoint=albert_base_v2 --do_train --do_eval
"""

import dataclasses
import os

from absl import flags

from albert.cli import (
    app,
    fine_tuning,
    fine_tuning_settings,
    model_settings,
    options,
    path_flags,
    training,
)
from albert.io import file_io
from albert.tasks import example_data, race

_DATA = {
    "train_file": "race_train.tf_record",
    "eval_file": "race_eval.tf_record",
    "predict_file": "predict.tf_record",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(fine_tuning_settings.StepSettings):
    """Settings of the command."""

    data_dir: str = options.flag(
        None, "Folder that holds the folder RACE.", required=True, path=path_flags.FOLDER
    )
    task_name: str = options.flag("race", "Name of the task; there is only race.")
    train_file: str | None = options.flag(
        None, "Records of the training data; by default in --output_dir.", path=path_flags.OUTPUT
    )
    eval_file: str | None = options.flag(
        None, "Records of the dev data; by default in --output_dir.", path=path_flags.OUTPUT
    )
    predict_file: str | None = options.flag(
        None, "Records of the test data; by default in --output_dir.", path=path_flags.OUTPUT
    )
    do_train: bool = options.flag(True, "Train.")
    do_eval: bool = options.flag(
        True, "Evaluate: each checkpoint as it is saved, or all existing ones."
    )
    do_predict: bool = options.flag(False, "Score the test data and write its predictions.")
    high_only: bool = options.flag(False, "Only the questions for high schools.")
    middle_only: bool = options.flag(False, "Only the questions for middle schools.")
    max_seq_length: int = options.count(
        512, "Longest input in tokens; articles are cut at their end to fit."
    )
    max_qa_length: int = options.flag(
        race.MAX_QA_LENGTH, "Maximum tokens of question and option; the last are kept."
    )
    train_batch_size: int = options.count(
        32, "Questions per step, over all devices; each has 4 inputs."
    )
    eval_batch_size: int = options.count(8, "Questions per evaluation step, over all devices.")
    predict_batch_size: int = options.count(8, "Questions per prediction step, over all devices.")
    dropout_prob: float = options.flag(
        0.1,
        "Dropout of the pooled output in training.",
        check=options.fraction,
        alias="classifier_dropout_prob",
    )
    optimizer: training.Optimizer = options.group(training.Optimizer, learning_rate=1e-5)
    train_step: int = options.count(12000, "Total number of steps.")
    warmup_step: int = options.flag(1000, "Steps over which the learning rate rises from 0.")
    save_checkpoints_steps: int = options.count(100, "Steps between checkpoints.")
    num_keep_checkpoint: int = fine_tuning_settings.keep_flag()

    @property
    def output_dropout_prob(self) -> float:
        return self.dropout_prob

    @property
    def max_kept(self) -> int:
        return self.num_keep_checkpoint

    def check(self) -> None:
        self.check_work("do_train", "do_eval", "do_predict")
        super().check()
        if self.task_name.lower() != "race":
            raise file_io.InputError(f"--task_name={self.task_name}: expected race")
        paths = [path for path in (self.train_file, self.eval_file, self.predict_file) if path]
        if len(set(paths)) < len(paths):
            raise file_io.InputError(
                "--train_file, --eval_file and --predict_file are the records of different data: "
                f"give each its own name, not {', '.join(paths)}"
            )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def count_questions(settings: Settings) -> int:
    """Returns the number of questions to train on."""
    levels = {"high_only": settings.high_only, "middle_only": settings.middle_only}
    return len(race.read_race_examples(settings.data_dir, "train", use_spm=False, **levels))


@dataclasses.dataclass(frozen=True)
class Race(fine_tuning.Command):
    """The command for RACE."""

    settings: Settings

    kind = race.KIND
    best_metric = "eval_accuracy"
    recipe = "recipes/race.flags"
    shared_data = _DATA
    num_choices = race.NUM_CHOICES

    def prepare(self, inputs: fine_tuning.Inputs) -> fine_tuning.Prepared:
        settings = self.settings
        text = model_settings.text_settings(settings.max_seq_length, inputs.source)
        text["max_qa_length"] = settings.max_qa_length
        paths = {
            split: getattr(settings, flag) or os.path.join(settings.output_dir, name)
            for split, (flag, name) in zip(("train", "dev", "test"), _DATA.items(), strict=True)
        }
        data = race.make_data(
            inputs.tokenizer,
            settings.max_seq_length,
            settings.max_qa_length,
            settings.data_dir,
            example_data.FeatureCache(paths, text, inputs.strategy),
            high_only=settings.high_only,
            middle_only=settings.middle_only,
        )
        return fine_tuning.Prepared(
            race.make_task(settings.dropout_prob, inputs.head),
            data,
            {**text, "dropout_prob": settings.dropout_prob, **inputs.head.settings},
            settings.train_step,
            settings.warmup_step,
            settings.do_eval,
        )


def main(values: flags.FlagValues) -> None:
    settings = fine_tuning_settings.read(Settings, values)
    settings.check()
    settings = settings.with_steps(lambda: count_questions(settings), is_own_data=False)
    fine_tuning.run(Race(settings), values, "run_race")


if __name__ == "__main__":
    app.run(main, define_flags)
