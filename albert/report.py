"""Writes one HTML file about a run, several runs of a task, a sweep, or a comparison of two.

Example:

    albert report --runs='out/*' --output=report.html
"""

import dataclasses

from absl import flags

from albert.cli import app, options, path_flags
from albert.experiments import (
    equivalence,
    report,
    report_groups,
    seed_runs,
    statistics,
    sweep_results,
)
from albert.experiments.runs import (
    AXES,
    GLUE,
    RUN,
    SEEDS,
    STEPS,
    SWEEP,
    find_folders,
    kind_of,
    recorded,
)
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The runs to report on, and the output file."""

    runs: tuple[str, ...] | None = options.flag(
        None,
        "Output folders of runs of one task, or of one sweep; globs are allowed.",
        path=path_flags.RUNS,
    )
    compare: tuple[str, ...] | None = options.flag(
        None,
        "In place of --runs the two sides of a page 'A against B', as --runs of compare names "
        "them: folders of runs, of runs over seeds, or points as SWEEP/learning_rate=1e-5.",
        path=path_flags.RUNS,
    )
    equivalence_margin: float | None = options.flag(
        None,
        "For --compare: the largest difference that does not matter, in the unit of the score; "
        "the page then also says whether both sides are equal within it.",
        check=equivalence.check_margin,
    )
    cluster_column: str | None = options.flag(
        None, "For --compare: column of your own data that names a group of examples; see compare."
    )
    output: str = options.flag(
        "report.html", "The file to write; it needs no other files.", path=path_flags.OUTPUT
    )
    heat_map: tuple[str, ...] | None = options.flag(
        None, "The two parameters of a sweep's heat map; by default those with the most values."
    )
    axis: str = options.flag(STEPS.name, "Axis of the curves.", choices=tuple(AXES))
    cost_axis: str = options.flag(
        "flop",
        "Unit of the costs that scores are drawn against; minutes are those of training.",
        choices=tuple(AXES),
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def make_page(settings: Settings) -> str:
    """Returns the HTML of the report."""
    axis, cost_axis = (AXES[name] for name in (settings.axis, settings.cost_axis))
    if settings.compare is not None:
        if settings.runs is not None or settings.heat_map is not None:
            raise file_io.InputError("give --compare or --runs and --heat_map, not both")
        statistics.scipy_stats()  # before any reading
        margin, column = settings.equivalence_margin, settings.cluster_column
        sides = report_groups.read_sides(settings.compare)
        return report.comparison_page(sides, axis, cost_axis, margin, column)
    settings.refuse_given("--compare", "equivalence_margin", "cluster_column")
    if settings.runs is None:
        raise file_io.InputError("--runs or --compare must be given: folders of runs")
    folders = find_folders(settings.runs)
    kinds = [kind_of(folder) for folder in folders]
    if kinds == [SWEEP]:
        sweep = sweep_results.read_sweep(folders[0])
        return report.sweep_page(sweep, settings.heat_map, axis, cost_axis)
    if settings.heat_map is not None:
        raise file_io.InputError("--heat_map is for one sweep")
    if kinds == [GLUE]:
        return report.glue_page(folders[0], axis)
    note = seed_runs.describe(folders[0]) if kinds == [SEEDS] else ""
    sides = report_groups.read(folders)
    if kinds == [RUN]:
        (run,) = recorded(sides)
        return report.run_page(run, axis)
    return report.runs_page(sides, axis, cost_axis, note)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    report.check_installed()
    file_io.check_folder_of(settings.output, "--output")
    page = make_page(settings)
    file_io.write_text(settings.output, page)
    size = f"{len(page.encode()) / 1024:.0f} KiB"
    if not file_io.is_stream(settings.output):
        print(f"Written to {settings.output}: {size}")


if __name__ == "__main__":
    app.run(main, define_flags)
