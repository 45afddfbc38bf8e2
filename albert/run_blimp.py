"""Measures a pre-trained model on BLiMP: does it score acceptable sentences higher?

Example:

    albert run_blimp --init_checkpoint=albert_base_v2 --data_dir=blimp
"""

import dataclasses

from absl import flags, logging

from albert.cli import app, model_settings, options, path_flags
from albert.experiments import blimp
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The model, the files of BLiMP, and the number of pairs to measure."""

    model: model_settings.ModelToUse = options.group(model_settings.ModelToUse)
    data_dir: str = options.flag(
        None,
        "Folder of BLiMP's files, <paradigm>.jsonl or .jsonl.gz.",
        required=True,
        path=path_flags.Path(files=("/*.jsonl", "/*.jsonl.gz")),
    )
    output_dir: str | None = options.flag(
        None,
        "Folder for blimp.txt, blimp.json and blimp_pairs.jsonl; without it, scores are printed.",
        path=path_flags.outputs("/blimp.txt", "/blimp.json", "/blimp_pairs.jsonl"),
    )
    limit: int | None = options.flag(
        None, "Maximum number of pairs of each paradigm, from the front; by default all.", minimum=1
    )
    batch_size: int = options.count(
        256, "Maximum number of masked copies of sentences that are computed together."
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    paradigms = blimp.read(settings.data_dir, settings.limit)
    from albert.experiments import sentence_scores
    from albert.model import sources

    source = settings.model.find()
    sources.check_weights(source, settings.model.from_scratch)
    if settings.output_dir:
        file_io.make_dirs(settings.output_dir)  # a bad path fails before the scoring
    scorer = sentence_scores.load(source, settings.batch_size)
    result = blimp.measure(paradigms, scorer.score)
    print("\n".join(result.table()), flush=True)
    if settings.output_dir:
        blimp.write(settings.output_dir, result)
        names = (blimp.TEXT_NAME, blimp.JSON_NAME, blimp.PAIRS_NAME)
        logging.info("Wrote %s, %s and %s to %s", *names, settings.output_dir)


if __name__ == "__main__":
    app.run(main, define_flags)
