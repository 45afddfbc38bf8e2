"""Fine-tunes ALBERT on SQuAD 2.0 (with unanswerable questions), answers, scores and exports."""

from absl import flags

from albert.cli import app, common_flags, squad_flags
from albert.io import file_io
from albert.tasks.squad import records as squad_records


def define_flags(flag_values):
    squad_flags.define_flags(flag_values)
    _, integer, number, _ = common_flags.definers(flag_values)
    integer("start_n_top", 5, "Starts of an answer to look at in each window.")
    integer("end_n_top", 5, "Ends to look at for each of these starts.")
    number("dropout_prob", 0.1, "Dropout of the part that tells whether there is an answer.")
    flags.DEFINE_alias("classifier_dropout_prob", "dropout_prob", flag_values=flag_values)


def check_flags(values):
    """Refuses beams that cannot be, before any work."""
    common_flags.require_positive(values, "start_n_top", "end_n_top")
    for name in ("start_n_top", "end_n_top"):
        if values[name].value > values.max_seq_length:
            raise file_io.InputError(
                f"--{name}={values[name].value} must be at most --max_seq_length="
                f"{values.max_seq_length}"
            )


def main(values):
    check_flags(values)
    squad_flags.run_squad(
        values,
        squad_records.V2,
        start_n_top=values.start_n_top,
        end_n_top=values.end_n_top,
        dropout_prob=values.dropout_prob,
    )


if __name__ == "__main__":
    app.run(main, define_flags)
