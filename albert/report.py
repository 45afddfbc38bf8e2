"""Writes one HTML file about a run, several runs of a task, a sweep, or a GLUE sweep."""

from absl import flags

from albert.cli import app, common_flags
from albert.experiments import report, report_data
from albert.io import file_io


def define_flags(flag_values):
    text, *_ = common_flags.definers(flag_values)
    flags.DEFINE_list(
        "runs",
        None,
        "Output folders of runs of one task, or of one sweep; globs are allowed.",
        flag_values=flag_values,
    )
    text("output", "report.html", "The file to write; it needs nothing beside it.")
    flags.DEFINE_list(
        "heat_map",
        None,
        "The two parameters of a sweep's heat map; by default those with the most values.",
        flag_values=flag_values,
    )
    flags.mark_flag_as_required("runs", flag_values=flag_values)


def make_page(folders, axes):
    """HTML of the report on folders."""
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


def main(values):
    report.check_installed()
    folders = report_data.find_folders(values.runs)
    page = make_page(folders, values.heat_map)
    file_io.write_text(values.output, page)
    print(f"Written to {values.output}: {len(page.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    app.run(main, define_flags)
