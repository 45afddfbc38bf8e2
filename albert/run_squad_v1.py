r"""Fine-tunes ALBERT on SQuAD 1.1, answers questions about texts, scores and exports.

Example:

    albert run_squad_v1 --train_file=train-v1.1.json --predict_file=dev-v1.1.json \
        --output_dir=out/squad --init_checkpoint=albert_base_v2 --do_train \
        --do_predict
"""

import dataclasses

from absl import flags, logging

from albert.cli import app, fine_tuning, fine_tuning_settings, options, squad
from albert.tasks.squad import records as squad_records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(squad.Settings):
    """Settings of the command."""

    use_einsum: bool = options.flag(
        True, "Kept for old commands: the model computes the same without einsum either way."
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = fine_tuning_settings.read(Settings, values)
    settings.check()
    if not settings.use_einsum:
        logging.info("--nouse_einsum changes nothing: no part of the model uses einsum")
    fine_tuning.run(squad.Squad(settings, squad_records.V1), values, "run_squad_v1")


if __name__ == "__main__":
    app.run(main, define_flags)
