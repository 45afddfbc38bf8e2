"""Says whether one run is better than another, by how much and how surely, and what each cost.

Example:

    albert compare --runs=out/base,out/large --format=markdown
"""

import dataclasses

from absl import flags

from albert.cli import app, options, path_flags
from albert.experiments import (
    comparison,
    comparison_sides,
    comparison_text,
    equivalence,
    statistics,
)
from albert.io import tables


def _is_level(name: str, value: float) -> None:
    """Checks that the value of flag `name` is the level of an interval, such as 0.95."""
    statistics.check_level(value, f"--{name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The runs to compare, and the form of the result."""

    runs: tuple[str, ...] = options.flag(
        None,
        "Two or more runs to compare: folders of runs, of runs over seeds and of sweeps (all of "
        "their points), points as SWEEP/learning_rate=1e-5, files of predictions; globs of "
        "folders are allowed.",
        required=True,
        path=path_flags.RUNS,
    )
    metric: str | None = options.flag(
        None,
        "Score to compare; by default the one that picks the best checkpoints. test/NAME is a "
        "score on labeled test data.",
    )
    baseline: str | None = options.flag(
        None, "Name of the side to compare all others with; by default all pairs are compared."
    )
    level: float = options.flag(
        0.95, "Level of the intervals; 1 minus the level is the probability of a false claim.",
        check=_is_level,
    )  # fmt: skip
    equivalence_margin: float | None = options.flag(
        None,
        "Largest difference that does not matter, in the unit of the score (0.01: one point of "
        "accuracy; 1: one point of SQuAD's F1): also tests whether two sides are equal within it.",
        check=equivalence.check_margin,
    )
    cluster_column: str | None = options.flag(
        None,
        "Column of your own data that names a group of examples which are alike, such as the "
        "document that texts are from; intervals allow for it. For SQuAD and RACE articles and "
        "passages are known.",
    )
    format: str = options.flag(
        "text", "Form of the result.", choices=tuple(comparison_text.FORMATS)
    )
    num_examples: int = options.flag(
        3, "Changed examples to show per pair and direction, as text and Markdown.", minimum=0
    )
    labels: str | None = options.flag(
        None,
        "File of the right answers, for files of predictions outside of the folder of a run.",
        path=path_flags.INPUT,
    )
    text_column: str = options.flag("text", "Column of the text in --labels.")
    label_column: str = options.flag("label", "Column of the label in --labels.")
    id_column: str | None = options.flag(
        None, "Column of the id in --labels; by default rows are numbered."
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    statistics.scipy_stats()  # before any reading
    columns = tables.Columns(settings.text_column, None, settings.label_column, settings.id_column)
    sides = comparison_sides.read(settings.runs, settings.labels, columns)
    compared = comparison.compare(
        sides,
        metric=settings.metric,
        baseline=settings.baseline,
        level=settings.level,
        equivalence_margin=settings.equivalence_margin,
        cluster_column=settings.cluster_column,
        id_column=settings.id_column,
    )
    print(
        comparison_text.format_comparison(compared, settings.format, settings.num_examples), end=""
    )


if __name__ == "__main__":
    app.run(main, define_flags)
