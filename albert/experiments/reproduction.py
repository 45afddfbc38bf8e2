"""Repeats the run that a ``run.json`` describes, and compares the results.

In all functions a `record` is the content of a ``run.json``, and `sessions` are its sessions that
trained; `equal` and `different` are lists of lines, to which the functions add theirs.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import albert
from albert.io import file_io, processes, signals
from albert.training import budget, run_facts, run_record

# Times and checkpoint paths in lines of metrics may differ.
_OF_THE_MOMENT = (
    "seconds", "examples_per_second", "tokens_per_second", "input_share", "checkpoint",
)  # fmt: skip
_ENVIRONMENT = ("versions", "host", "git_commit")
_NOT_GIVEN = ("default", "program")  # sources of values that a command works out itself

_INCOMPLETE = "the repetition is not complete: give the command again, with a new output_dir"


class NothingToRepeat(file_io.InputError):
    """Error: the run has no training to repeat."""


def trained(record: dict) -> list[dict]:
    """Returns the sessions of a ``run.json`` that trained; raises `NothingToRepeat` without any."""
    sessions = [s for s in record["sessions"] if run_record.TRAIN in s["stages"]]
    if not sessions:
        stages = sorted({stage for session in record["sessions"] for stage in session["stages"]})
        raise NothingToRepeat(f"the run has only done {stages}; only training is run again")
    return sessions


def changed_inputs(record: dict) -> list[str]:
    """Describes the inputs of a ``run.json`` that have changed since; [] if all are the same.

    Inputs with very many files are not checked: the record does not list their names.
    """
    changed = []
    for role, entry in sorted(record["inputs"].items()):
        if "count" in entry and "files" not in entry:
            continue
        files = [
            os.path.join(record["directory"], file) for file in entry.get("files", [entry["path"]])
        ]
        missing = [file for file in files if not file_io.exists(file)]
        if missing:
            changed.append(f"{role}: the file {missing[0]} does not exist")
        elif entry["sha256"] is None:
            changed.append(f"{role}: the run ended before {entry['path']} was hashed")
        else:
            new_entry = run_facts.describe_input(entry["path"], files)
            if new_entry["sha256"] != entry["sha256"]:
                changed.append(
                    f"{role}: {entry['path']} is another file than before "
                    f"({new_entry['bytes']} bytes, SHA-256 {new_entry['sha256']}; "
                    f"then {entry['bytes']}, {entry['sha256']})"
                )
    return changed


# --- the command --------------------------------------------------------------------------------


def command(record: dict, output_dir: str, more: dict | None = None) -> list[str]:
    """Returns the words of the command that repeats the run.

    Args:
      output_dir: the new folder. Files that the run wrote inside its own folder, and an exported
        model, go inside this folder.
      more: {name: value} of flags to pass although they had their defaults; None: no others.
    """
    flags = record["flags"]
    values = {name: f["value"] for name, f in flags.items() if f["source"] not in _NOT_GIVEN}
    values |= more or {}
    own = os.path.join(record["directory"], str(flags.get("output_dir", {}).get("value")))
    words = []
    for name, value in sorted(values.items()):
        if isinstance(value, str):
            path = os.path.join(record["directory"], value)
            if path == own or path.startswith(own.rstrip("/") + "/"):
                value = os.path.join(output_dir, os.path.relpath(path, own))
            elif name == "export_dir":
                value = os.path.join(output_dir, "export")
        if name == "output_dir":
            value = output_dir
        words += _words(name, value)
    return [sys.executable, "-m", f"albert.{record['script']}", *words]


def repeat_schedule(record: dict, folder: str, output_dir: str) -> None:
    """Copies the steps and rates of a run with a time budget to the folder of its repetition."""
    if record["flags"].get("budget_minutes", {}).get("value"):
        budget.repeat(folder, output_dir)


def _words(name: str, value: object) -> list[str]:
    """Returns the command line arguments that set a flag to a JSON value; none for None."""
    if value is None:
        return []
    if isinstance(value, bool):
        return ["--" + ("" if value else "no") + name]
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return [f"--{name}={value}"]


def run(words: list[str], directory: str) -> None:
    """Runs a command, in the current directory if the given one is gone, and waits for its end."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(albert.__file__)))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = processes.start_program(
        words,
        cwd=directory if file_io.is_dir(directory) else None,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
    )
    try:
        status = signals.wait(process)
    except signals.Terminated:
        raise signals.Terminated(_INCOMPLETE) from None
    if status < 0:
        raise file_io.InputError(f"the run was ended by signal {-status}")
    if status:
        raise file_io.InputError(f"the run failed with status {status}")


# --- the comparison -----------------------------------------------------------------------------


def compare(folder: str, other: str) -> tuple[list[str], list[str], list[str]]:
    """Compares a run with its repetition.

    Returns:
      Three lists of lines: what is equal, which results differ, and which circumstances differ
      (versions, machine, inputs, settings).
    """
    records = [run_record.read(path) for path in (folder, other)]
    sessions = [trained(record) for record in records]
    equal: list[str] = []
    different: list[str] = []
    is_whole = records[0]["status"] == run_record.DONE
    if is_whole:
        _compare_results(sessions, equal, different)
    rows = [
        _rows(run_record.read_metrics(path), part)
        for path, part in zip((folder, other), sessions, strict=True)
    ]
    _compare_rows(rows, is_whole, equal, different)
    return equal, different, _circumstances(records, sessions[0])


def _compare_results(
    sessions: list[list[dict[str, Any]]], equal: list[str], different: list[str]
) -> None:
    """Compares the last results in the sessions of both runs, and adds a line to a list."""
    last_results = [[s["result"] for s in part if s["result"]][-1:] for part in sessions]
    if not any(last_results):
        return
    before, after = (part[0] if part else {} for part in last_results)
    names = sorted(before.keys() | after.keys())
    differing = [
        f"{n} {before.get(n)}, now {after.get(n)}" for n in names if before.get(n) != after.get(n)
    ]
    different += [f"result: {text}" for text in differing]
    if not differing:
        equal.append("result: " + ", ".join(f"{name} {before[name]}" for name in names))


def _rows(
    rows: Iterable[dict[str, Any]], sessions: list[dict[str, Any]]
) -> dict[tuple[str, int, int], dict[str, float]]:
    """Returns {(kind, first step, last step): values} that training and evaluations measured.

    Those of training are means over these steps. `rows` are {name: value} of each line of the file
    of metrics.
    """
    entries, last = {}, 0
    starts = [session["first_step"] for session in sessions if session["first_step"] is not None]
    for row in sorted(rows, key=lambda row: row["step"]):
        step, first = row["step"], row["step"]
        if row["kind"] == run_record.TRAIN:
            first = max([last, *(start for start in starts if start < step)])
            last = step
        values = {name: v for name, v in row.items() if name not in _OF_THE_MOMENT}
        entries[row["kind"], first, step] = values
    return entries


def _compare_rows(
    rows: list[dict[tuple[str, int, int], dict[str, float]]],
    is_whole: bool,
    equal: list[str],
    different: list[str],
) -> None:
    """Compares results of `_rows` for both runs, and adds lines to the lists.

    If the first run is whole, no evaluation may be missing on either side.
    """
    before, after = rows
    both = before.keys() & after.keys()
    for kind, what in ((run_record.TRAIN, "training"), (run_record.EVAL, "evaluation")):
        keys = sorted(key for key in both if key[0] == kind)
        unequal = [key for key in keys if before[key] != after[key]]
        if unequal:
            first = unequal[0]
            one, other = before[first], after[first]
            names = sorted(n for n in one.keys() | other.keys() if one.get(n) != other.get(n))
            changes = ", ".join(f"{name} {one.get(name)}, now {other.get(name)}" for name in names)
            different.append(
                f"{what}: {len(unequal)} of {len(keys)} lines, first at step {first[2]}: {changes}"
            )
        elif keys:
            equal.append(f"{what}: {len(keys)} lines")
        # A resumed run may have averaged over different steps.
        steps = [{key[2] for key in part if key[0] == kind} for part in rows]
        missing = sorted(steps[0] - steps[1] if not is_whole else steps[0] ^ steps[1])
        if missing and kind == run_record.EVAL:
            different.append(f"{what}: only one of both has step {missing[0]}")


def _circumstances(records: list[dict[str, Any]], sessions: list[dict[str, Any]]) -> list[str]:
    """Describes the differences between the circumstances of two runs, a line for each.

    `sessions` are those of the first run.
    """
    parts = (*_ENVIRONMENT, "inputs")
    before, after = records
    differences = run_record.differences(before, after, parts)
    differing = [
        f"{name}: {both['before']}, now {both['after']}" for name, both in differences.items()
    ]
    if records[0]["status"] != run_record.DONE:
        differing.append(f"status: the run was {records[0]['status']}, not done")
    for session in sessions:
        changed = session.get("changed", {}) if run_record.has_trained(session) else {}
        differing += [
            f"{name}: {both['before']}, from step {session['first_step']} on {both['after']}"
            for name, both in changed.items()
        ]
    return differing
