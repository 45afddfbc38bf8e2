r"""Fine-tunes ALBERT on SQuAD 2.0 (with unanswerable questions), answers, scores and exports.

Example:

    albert run_squad_v2 --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
        --output_dir=out/squad --init_checkpoint=albert_base_v2 --do_train \
        --do_predict
"""

import dataclasses
from typing import Any

from absl import flags

from albert.cli import app, fine_tuning, fine_tuning_settings, options, squad
from albert.io import file_io
from albert.tasks.squad import records as squad_records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(squad.Settings):
    """Settings of the command."""

    start_n_top: int = options.count(5, "Starts of an answer to consider in each window.")
    end_n_top: int = options.count(5, "Ends of an answer to consider for each of its starts.")
    dropout_prob: float = options.flag(
        0.1,
        "Dropout of the part that predicts whether there is an answer.",
        check=options.fraction,
        alias="classifier_dropout_prob",
    )

    @property
    def output_dropout_prob(self) -> float:
        return self.dropout_prob

    @property
    def beams(self) -> dict[str, Any]:
        names = ("start_n_top", "end_n_top", "dropout_prob")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        for name in ("start_n_top", "end_n_top"):
            if getattr(self, name) > self.max_seq_length:
                raise file_io.InputError(
                    f"--{name}={getattr(self, name)} must be at most --max_seq_length="
                    f"{self.max_seq_length}"
                )
        super().check()


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = fine_tuning_settings.read(Settings, values)
    settings.check()
    fine_tuning.run(squad.Squad(settings, squad_records.V2), values, "run_squad_v2")


if __name__ == "__main__":
    app.run(main, define_flags)
