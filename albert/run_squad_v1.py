"""Fine-tunes ALBERT on SQuAD 1.1, answers questions about texts, scores and exports."""

from absl import flags, logging

from albert.cli import app, squad_flags
from albert.tasks.squad import records as squad_records


def define_flags(flag_values):
    squad_flags.define_flags(flag_values)
    flags.DEFINE_bool(
        "use_einsum",
        True,
        "Kept for old commands: the model computes the same without einsum either way.",
        flag_values=flag_values,
    )


def main(values):
    if not values.use_einsum:
        logging.info("--nouse_einsum changes nothing: no part of the model uses einsum")
    squad_flags.run_squad(values, squad_records.V1)


if __name__ == "__main__":
    app.run(main, define_flags)
