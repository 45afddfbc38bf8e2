"""Writes one HTML file about a run, several runs of a task, a sweep, or a GLUE sweep."""

import dataclasses

from absl import flags

from albert.cli import app, options
from albert.experiments import report, report_data
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The runs to report on, and the output file."""

    runs: tuple[str, ...] = options.flag(
        None,
        "Output folders of runs of one task, or of one sweep; globs are allowed.",
        required=True,
    )
    output: str = options.flag("report.html", "The file to write; it needs no other files.")
    heat_map: tuple[str, ...] | None = options.flag(
        None,
        "The two parameters of a sweep's heat map; by default those with the most values.",
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def make_page(folders: list[str], axes: tuple[str, ...] | None) -> str:
    """Returns the HTML of the report on folders.

    Args:
      folders: folders of runs, or of one sweep.
      axes: the two parameters of a sweep's heat map, or None.
    """
    kinds = [report_data.kind_of(folder) for folder in folders]
    if len(folders) == 1 and kinds[0] == report_data.GLUE:
        return report.glue_page(folders[0])
    if len(folders) == 1 and kinds[0] == report_data.SWEEP:
        return report.sweep_page(report_data.read_sweep(folders[0]), axes)
    if axes is not None:
        raise file_io.InputError("--heat_map is for one sweep")
    runs = report_data.read_runs(folders)
    if kinds == [report_data.SEEDS]:
        return report.runs_page(runs, report_data.describe_seeds(folders[0]))
    return report.run_page(runs[0]) if len(runs) == 1 else report.runs_page(runs)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    report.check_installed()
    folders = report_data.find_folders(settings.runs)
    page = make_page(folders, settings.heat_map)
    file_io.write_text(settings.output, page)
    print(f"Written to {settings.output}: {len(page.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    app.run(main, define_flags)
