"""Measures a pre-trained model on BLiMP: does it score acceptable sentences higher?"""

from absl import flags, logging

from albert.cli import app, common_flags
from albert.experiments import blimp
from albert.io import file_io


def define_flags(flag_values):
    common_flags.define_model_flags(flag_values)
    text, integer, *_ = common_flags.definers(flag_values)
    text("data_dir", None, "Folder of BLiMP's files, <paradigm>.jsonl or .jsonl.gz.")
    text("output_dir", None, "Folder for blimp.txt, .json and _pairs.jsonl; by default printed.")
    flags.DEFINE_integer(
        "limit",
        None,
        "Most pairs of each paradigm, from the front; by default all.",
        lower_bound=1,
        flag_values=flag_values,
    )
    integer("batch_size", 256, "Most masked copies of sentences that are computed together.")
    flags.mark_flag_as_required("data_dir", flag_values=flag_values)


def main(values):
    common_flags.require_positive(values, "batch_size")
    paradigms = blimp.read(values.data_dir, values.limit)
    source = common_flags.source(values)
    if not (source.checkpoint or values.from_scratch):
        raise file_io.InputError(
            "no weights: give --init_checkpoint or --albert_hub_module_handle, or --from_scratch "
            "for random ones"
        )
    from albert.experiments import sentence_scores

    scorer = sentence_scores.load(source, values.batch_size)
    result = blimp.measure(paradigms, scorer.score)
    print("\n".join(result.table()), flush=True)
    if values.output_dir:
        blimp.write(values.output_dir, result)
        names = (blimp.TEXT_NAME, blimp.JSON_NAME, blimp.PAIRS_NAME)
        logging.info("Wrote %s, %s and %s to %s", *names, values.output_dir)


if __name__ == "__main__":
    app.run(main, define_flags)
