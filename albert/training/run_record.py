"""The record of a run, written to its output folder: ``run.json`` and ``metrics.jsonl``.

``run.json`` records the command, settings, machine, input files and results of a run. It describes
the run that trained; a run that only evaluates or predicts in the same folder adds a session.
``metrics.jsonl`` has a line for each training report and for each evaluation.
"""

import contextlib
import dataclasses
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, cast

from absl import logging

from albert.io import file_io, json_shapes, locks
from albert.training import evaluation_basis, results, run_facts, stuck_runs
from albert.training.evaluation_basis import Basis

Json = dict[str, Any]  # a record, a session of one, or a row of metrics
FORMAT = 1
RUN, METRICS = "run.json", "metrics.jsonl"
RUNNING, DONE, FAILED, INTERRUPTED = "running", "done", "failed", "interrupted"
TRAIN = "train"  # a stage, and a kind of row
EVAL = "eval"
AVERAGE = "average"  # kind of a line with the scores of averaged weights
OWN = "own"  # of a session that has not begun to train: what the record does not have of it
EARLIER = "earlier_"  # prefix of the kind of a line with scores on other data
PREDICT = "predict"
TESTED_ON = "tested_on"  # the data of the scores in "test"
_TEXT, _OPTIONAL = str, (str, NoneType)
_STEP = (int, NoneType)
_SCORES = {"step": int, "*": (*json_shapes.NUMBER, NoneType)}
_RESULT = (dict, NoneType)  # of _SCORES
_BASELINE = {"*": (*json_shapes.NUMBER, NoneType)}
_FLAGS = {"*": {"value": json_shapes.ANY, "source": _TEXT}}
_INPUT = {"path": _TEXT, "bytes": _STEP, "sha256": _OPTIONAL, "count?": int, "files?": [_TEXT]}
_INPUTS = {"*": _INPUT}
_CLASSES = [{"name": _TEXT, "labels": int, "predictions": int, "right": int}]
_COST = {"steps": int, "*": json_shapes.NUMBER}
_BASIS = {
    "sha256": _OPTIONAL, "path": _TEXT, "metric": _OPTIONAL,
    "examples": {"*": json_shapes.ANY}, "reading": {"*": json_shapes.ANY},
}  # fmt: skip
_SESSION = {
    "pid": int, "stages": [_TEXT], "command": [_TEXT], "started": _TEXT, "ended": _OPTIONAL,
    "status": _TEXT, "message?": _TEXT, "first_step": _STEP, "last_step": _STEP,
    "result": _RESULT, "test?": _RESULT, "classes?": _CLASSES,
    "changed?": {"*": {"before": json_shapes.ANY, "after": json_shapes.ANY}},
    "inputs?": _INPUTS, "cost?": _COST, "measured_on?": _BASIS, "own?": {"*": json_shapes.ANY},
    "predicted?": {"checkpoint": _TEXT, "step": _STEP},
}  # fmt: skip
_RECORD = {
    "script": _TEXT, "command": [_TEXT], "directory": _TEXT, "flags": _FLAGS,
    "versions": {"*": _OPTIONAL}, "host": {"*": (str, int, NoneType)}, "git_commit": _OPTIONAL,
    "inputs": _INPUTS, "task?": _TEXT, "best_metric?": _TEXT, "parameters": _RESULT,
    "started": _TEXT, "ended": _OPTIONAL, "status": _TEXT, "message?": _TEXT,
    "sessions": [_SESSION], "result": _RESULT, "evaluated?": int, "baseline?": _BASELINE,
    "test?": _RESULT, f"{TESTED_ON}?": _INPUT, "cost?": _COST, "remarks?": [_TEXT],
    "classes?": _CLASSES, "measured_on?": _BASIS, "class_weights?": {"*": json_shapes.NUMBER},
    "calibration?": {"step": int, "*": {"*": json_shapes.ANY}},
}  # fmt: skip
_ROW = {"kind": _TEXT, "step": int, "checkpoint?": _TEXT, "*": (*json_shapes.NUMBER, NoneType)}
# Flags whose values may change when a run resumes.
MAY_CHANGE = """
    do_train do_eval do_predict calibrate choose_thresholds max_error export_dir
    export_text checkpoint eval_wait_secs log_every_steps
    log_format keep_checkpoint_max save_checkpoints_steps save_checkpoints_secs iterations_per_loop
""".split()
_LOCK = threading.Lock()  # inputs are hashed in a background thread


# --- reading ------------------------------------------------------------------------------------


def read(folder: str) -> Json:
    """Reads a folder's ``run.json`` as a dict; docs/run_record.md describes it."""
    path = os.path.join(folder, RUN)
    record = file_io.read_json(path, "record of a run")
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise file_io.InputError(f"{path} is not the record of a run (format {FORMAT})")
    json_shapes.check(record, _RECORD, path)
    json_shapes.check_text(record, path)
    for owner in (record, *record["sessions"]):
        for name in ("result", "test"):
            if owner.get(name):
                json_shapes.check(owner[name], _SCORES, f"{path}: {name}")
    return record


TRAIN_DATA = "train_data"
SCORED_DATA = ("eval_data", "predict_data")
_CHECKPOINTS = ("init_checkpoint", "teacher")  # roles with the names of their flags
# Roles of inputs that are data, and of those that are a model or a part of one.
DATA = (TRAIN_DATA, *SCORED_DATA)
MODELS = (*_CHECKPOINTS, "vocabulary", "configuration")


def changed_inputs(folders: Sequence[str]) -> list[list[str]]:
    """Returns for each folder the roles of the inputs that have changed since its run.

    They are from `DATA` and `MODELS`. Inputs whose files are gone, or too many to be listed, are
    not compared.
    """
    hashes: dict[tuple[str, ...], str | None] = {}

    def is_changed(record: Json, role: str, entry: Json) -> bool:
        files = tuple(_files_now(record, role, entry))
        if entry["sha256"] is None or not files or not all(map(file_io.exists, files)):
            return False
        if files not in hashes:
            hashes[files] = run_facts.describe_input(entry["path"], files)["sha256"]
        return hashes[files] not in (None, entry["sha256"])

    changed_roles = []
    for folder in folders:
        has_record = file_io.exists(os.path.join(folder, RUN))
        record = read(folder) if has_record else {"inputs": {}}
        entries = [(role, record["inputs"].get(role)) for role in (*DATA, *MODELS)]
        changed_roles.append(
            [role for role, entry in entries if entry and is_changed(record, role, entry)]
        )
    return changed_roles


def _files_now(record: Json, role: str, entry: Json) -> list[str]:
    """Returns the files of an input now, [] if unknown; for a folder the last checkpoint's."""
    given = record["flags"].get(role, {}).get("value")
    folder = os.path.join(record["directory"], given) if isinstance(given, str) else ""
    if role in _CHECKPOINTS and folder and file_io.is_dir(folder):
        from albert.model import checkpoints

        with contextlib.suppress(file_io.InputError):
            return run_facts.checkpoint_files(checkpoints.resolve(folder))
    names = entry.get("files") or [entry["path"]]
    if len(names) != entry.get("count", 1):
        return []
    return [os.path.join(record["directory"], name) for name in names]


class Context(NamedTuple):
    """Facts in a record that put the score of the best checkpoint into context.

    Attributes:
      evaluated: number of checkpoints from which the best was chosen; None if unknown.
      baseline: score of the best constant answer; None if unknown.
      test: {name: score, None if undefined} on labeled test data; empty if there is none.
    """

    evaluated: int | None = None
    baseline: float | None = None
    test: dict[str, float | None] = {}


def read_context(folder: str, metric: str | None = None) -> Context:
    """Reads the `Context` of a metric (None: that of the best); it is empty without a record."""
    if not file_io.exists(os.path.join(folder, RUN)):
        return Context()
    record = read(folder)
    baseline = (record.get("baseline") or {}).get(metric or record.get("best_metric"))
    test = {name: v for name, v in (record.get("test") or {}).items() if name != "step"}
    return Context(record.get("evaluated"), baseline, test)


def log_remarks(folder: str, remarks: Sequence[str]) -> None:
    """Logs remarks on the score of the model in a folder as one warning, if there are any."""
    if remarks:
        logging.warning("The model of %s: %s", folder, "; ".join(remarks))


def read_remarks(folder: str, only_current: bool = False) -> list[str]:
    """Returns `stuck_runs.remarks` on the run of a folder; [] without a readable record.

    Args:
      only_current: return no remarks if a later evaluation was on other data than the result.
    """
    try:
        if file_io.exists(os.path.join(folder, RUN)):
            record = read(folder)
            is_outdated = only_current and find_other_basis(record)
            return [] if is_outdated else stuck_runs.remarks(folder, record)
    except file_io.InputError as error:
        logging.warning("Whether the model has learned is unknown: %s", error)
    return []


def read_classes(folder: str) -> list[results.ClassCount]:
    """Reads the examples of each class from the last session of a folder; [] if unknown."""
    try:
        if file_io.exists(os.path.join(folder, RUN)):
            rows = read(folder)["sessions"][-1].get("classes", ())
            return [results.ClassCount(**row) for row in rows]
    except (file_io.InputError, IndexError) as error:
        logging.warning("The scores of single classes are unknown: %s", error)
    return []


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a run's training over all of its sessions; None for unknown values.

    Steps that were repeated after a kill count again.

    Attributes:
      tokens: tokens without padding.
      positions: rows that the encoder has computed, including padding.
      words: words of pre-training records, estimated from the tokens.
      flop: floating-point operations of the model, see `flops`.
      seconds, processor_seconds: `usage.Usage` of training, without evaluations.
      evaluation_seconds, evaluation_processor_seconds: those of the evaluations during training.
      peak_memory: maximum main memory of a session's process, in bytes.
    """

    steps: int
    examples: int | None = None
    tokens: int | None = None
    positions: int | None = None
    words: int | None = None
    flop: int | None = None
    seconds: float | None = None
    processor_seconds: float | None = None
    evaluation_seconds: float | None = None
    evaluation_processor_seconds: float | None = None
    peak_memory: int | None = None

    def text(self) -> str:
        """Returns a line that begins with ``cost:``."""
        parts = [
            None if self.tokens is None else f"{_rounded(self.tokens)} tokens",
            None if self.words is None else f"{_rounded(self.words)} words",
            None if self.flop is None else f"{self.flop:.2g} FLOP",
            f"{self.processor_seconds or 0:,.0f} processor seconds",
            None if self.peak_memory is None else f"{self.peak_memory / 1e9:.1f} GB",
        ]
        return "cost: " + ", ".join(part for part in parts if part)


def _rounded(count: int) -> str:
    """Formats a count, such as "12.3 million"."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:,}"


def read_cost(folder: str) -> Cost | None:
    """Reads the `Cost` of the run in an output folder; None if there is no record of it."""
    if not file_io.exists(os.path.join(folder, RUN)):
        return None
    cost = read(folder).get("cost")
    names = {field.name for field in dataclasses.fields(Cost)}
    return Cost(**{k: v for k, v in cost.items() if k in names}) if cost else None


def read_metrics(folder: str) -> list[Json]:
    """Reads {"kind", "step", name: number} of each line of a folder's ``metrics.jsonl``, or [].

    An incomplete last line, as left by a killed run, is skipped.
    """
    return _read_rows(os.path.join(folder, METRICS))[0]


def _read_rows(path: str) -> tuple[list[Json], bool]:
    """Reads the rows of a metrics file, and whether its last line is complete."""
    if not file_io.exists(path):
        return [], True
    with file_io.open_input(path, "metrics", "rb") as file:
        *lines, last = file.read().split(b"\n")
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = file_io.parse_json(line.decode("utf-8"))
        except ValueError as error:  # also file_io.InputError
            raise file_io.InputError(f"{path} line {number} is damaged: {error}") from error
        json_shapes.check(row, _ROW, f"{path} line {number}")
        json_shapes.check_text(row, f"{path} line {number}")
        rows.append(cast(Json, row))
    return rows, not last


# --- metrics.jsonl ------------------------------------------------------------------------------


def start_training(folder: str, step: int) -> list[Json]:
    """Prepares a folder for training from a step on; returns the remaining rows of `read_metrics`.

    Lines of later steps, which will be written again, and an incomplete line are removed.
    """
    path = os.path.join(folder, METRICS)
    rows, whole = _read_rows_or_rename(path)
    earlier_rows = [row for row in rows if row["step"] <= step]
    if len(earlier_rows) < len(rows) or not whole:
        _write_rows(path, earlier_rows)
    set_steps(folder, step)
    return earlier_rows


def append_training(folder: str, step: int, seconds: float, values: Json) -> None:
    """Appends a line with {name: number} for the steps since the last line.

    Seconds count from the building of the model.
    """
    row = {"kind": TRAIN, "step": step, "seconds": round(seconds, 3), **values}
    _append_row(os.path.join(folder, METRICS), row)


def append_save(folder: str, step: int, tokens_seen: int) -> None:
    """Appends a line for a checkpoint at a step that has no other line."""
    row = {"kind": "save", "step": step, "tokens_seen": tokens_seen}
    _append_row(os.path.join(folder, METRICS), row)


def append_evaluation(
    folder: str, step: int, checkpoint: str, scores: Json, kind: str = EVAL
) -> None:
    """Appends a line for an evaluation; it replaces an earlier line of its kind and step.

    Args:
      checkpoint: its prefix; only the name is written if it is in the folder.
      kind: `EVAL`, or `AVERAGE` for averaged weights.
    """
    path = os.path.join(folder, METRICS)
    if os.path.dirname(checkpoint) == str(folder).rstrip("/"):
        checkpoint = os.path.basename(checkpoint)
    rows, whole = _read_rows_or_rename(path)
    other_rows = [row for row in rows if (row.get("kind"), row["step"]) != (kind, step)]
    if len(other_rows) < len(rows) or not whole:
        _write_rows(path, other_rows)
    _append_row(path, {"kind": kind, "step": step, "checkpoint": checkpoint, **scores})


def _read_rows_or_rename(path: str) -> tuple[list[Json], bool]:
    """Does as `_read_rows`, but renames a damaged file and returns ([], True)."""
    try:
        return _read_rows(path)
    except file_io.InputError as error:
        rename_damaged(path, error)
        return [], True


def rename_damaged(path: str, error: file_io.InputError) -> None:
    """Renames a damaged file, so that its content is not lost."""
    target, count = f"{path}.damaged", 1
    while file_io.exists(target):
        count += 1
        target = f"{path}.damaged{count}"
    file_io.rename(path, target)
    logging.warning("%s; renamed it to %s and started a new file", error, target)


def _line(row: Json) -> str:
    return json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n"


def _append_row(path: str, row: Json) -> None:
    try:
        with file_io.room_for(path), file_io.open_file(path, "a") as file:
            file.write(_line(row))
    except OSError as error:
        raise file_io.InputError(f"cannot write {path}: {error.strerror}") from error


def _write_rows(path: str, rows: Iterable[Json]) -> None:
    file_io.write_text(path, "".join(map(_line, rows)))


def plain(value: Any) -> Any:
    """Converts a value for JSON: NumPy numbers to Python's, numbers that are not finite to None."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


# --- changes to run.json ------------------------------------------------------------------------


@contextlib.contextmanager
def changing(folder: str) -> Iterator[None]:
    """Lets one thread change a folder's ``run.json``, and one process: others may evaluate it."""
    with _LOCK, locks.changing(folder):
        yield


def update(folder: str, change: Callable[[Json], Any]) -> None:
    """Changes a folder's ``run.json``, if it exists; ``change(record)`` modifies it in place.

    Failures are logged as a warning, and the run continues.
    """
    path = os.path.join(folder, RUN)
    with changing(folder):
        try:
            if not file_io.exists(path):
                return
            record = read(folder)
            change(record)
            file_io.write_json(path, plain(record))
        except (OSError, file_io.InputError) as error:
            logging.warning("%s is incomplete for this run: %s", path, error)


def change_session(folder: str, change: Callable[[Json, Json], None]) -> None:
    """Calls ``change(record, session)`` with the running session of this process, if any.

    It changes the content of ``run.json`` and the entry of the session in place.
    """

    def change_record(record: Json) -> None:
        own = [s for s in record["sessions"] if s["pid"] == os.getpid() and s["status"] == RUNNING]
        if own:
            change(record, own[-1])

    update(folder, change_record)


def set_steps(folder: str, step: int) -> None:
    """Records the step that this session's training has reached."""

    def change(record: Json, session: Json) -> None:
        if TRAIN in session["stages"]:
            session["last_step"] = step
            if session["first_step"] is None:
                session["first_step"] = step
                _adopt(record, session)

    change_session(folder, change)


def _adopt(record: Json, session: Json) -> None:
    """Makes a record that described an earlier training describe a session that begins to train."""
    if OWN in session:
        record.update(session.pop(OWN), status=RUNNING, ended=None)
        record.pop("message", None)
        # If these are not hashed yet, the record gets them later.
        record.update({n: session.pop(n) for n in ("inputs", "git_commit") if n in session})


def add_cost(folder: str, spent: Json) -> None:
    """Adds the known fields of a `Cost`, {name: number}, to that of this session and of the run."""

    def change(record: Json, session: Json) -> None:
        session["cost"] = _sum_costs([session["cost"], spent] if "cost" in session else [spent])
        record.pop("cost", None)
        # Sessions that were killed before they wrote anything count as having no steps.
        took_steps = [s for s in record["sessions"] if s["last_step"] != s["first_step"]]
        if all("cost" in s for s in took_steps):
            costs = [s["cost"] for s in record["sessions"] if "cost" in s]
            record["cost"] = _sum_costs(costs)

    change_session(folder, change)


def _sum_costs(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Adds up the entries {name: number} that all costs have; of the peak memory the maximum."""
    names = [name for name in costs[0] if all(name in cost for cost in costs)]
    combine = {"peak_memory": max}
    totals = {name: combine.get(name, sum)([cost[name] for cost in costs]) for name in names}
    return {
        name: round(total, 3 if name.endswith("seconds") else None)
        for name, total in totals.items()
    }


def read_differences(folder: str, basis: Basis) -> list[str]:
    """Returns, in words, how the basis of a folder's results differs from another, or [].

    The metric is not compared: results hold all of them.
    """
    if not file_io.exists(os.path.join(folder, RUN)):
        return []
    earlier = read(folder).get("measured_on")
    return Basis(**earlier).differences(basis, evaluation_basis.READING) if earlier else []


def set_basis(folder: str, basis: Basis) -> None:
    """Records what this session and the results of its folder are measured on."""

    def change(record: Json, session: Json) -> None:
        record["measured_on"] = session["measured_on"] = basis.to_dict()

    change_session(folder, change)


def quarantine_evaluations(folder: str) -> None:
    """Gives the lines of evaluations in ``metrics.jsonl`` another kind, as for `EARLIER`."""
    path = os.path.join(folder, METRICS)
    rows, _ = _read_rows_or_rename(path)
    kinds = {EVAL: EARLIER + EVAL, AVERAGE: EARLIER + AVERAGE}
    if any(row["kind"] in kinds for row in rows):
        _write_rows(path, [{**row, "kind": kinds.get(row["kind"], row["kind"])} for row in rows])


def set_result(
    folder: str, step: int, scores: Json, classes: Sequence[results.ClassCount] = ()
) -> None:
    """Records the scores of this session's best checkpoint so far, and the counts of classes."""

    def change(record: Json, session: Json) -> None:
        session["result"] = {"step": step, **scores}
        session["classes"] = [row._asdict() for row in classes]
        chosen = session_of_result(record)
        assert chosen, "this session has one"
        record["result"], record["classes"] = chosen["result"], chosen.get("classes")
        for owner in (session, record):
            if not owner["classes"]:
                del owner["classes"]
        if (record.get("test") or {}).get("step") != record["result"]["step"]:
            for name in ("test", TESTED_ON):  # scores of a checkpoint that is no longer the best
                record.pop(name, None)
        if (record.get("calibration") or {}).get("step") != record["result"]["step"]:
            record.pop("calibration", None)

    change_session(folder, change)


def set_evaluated(folder: str, count: int, baseline: dict[str, float] | None) -> None:
    """Records the number of checkpoints that the result was chosen from, and the baseline."""

    def change(record: Json, session: Json) -> None:
        if takes_scores(record, session) or session_of_result(record) is session:
            record.update(evaluated=count, baseline=baseline or {})
            record["remarks"] = stuck_runs.remarks(folder, record)

    change_session(folder, change)


def set_test(folder: str, checkpoint: str, step: int, scores: Json) -> None:
    """Records the scores on labeled test data.

    Args:
      checkpoint: prefix of the checkpoint that made the predictions; the scores become part of
        the run's record if it is in this folder.
    """

    def change(record: Json, session: Json) -> None:
        session["test"] = {"step": step, **scores}
        if os.path.abspath(os.path.dirname(checkpoint)) == os.path.abspath(folder):
            record["test"] = session["test"]
            record.pop(TESTED_ON, None)  # until the end of the session

    change_session(folder, change)


def set_predicted(folder: str, checkpoint: str, step: int | None) -> None:
    """Records the checkpoint of the predictions in a folder."""
    predicted = {"checkpoint": checkpoint, "step": step}
    change_session(folder, lambda record, session: session.update(predicted=predicted))


def set_calibration(folder: str, calibration: Json) -> None:
    """Records what was found about the probabilities of the best checkpoint.

    Args:
      calibration: {"step": its step} and, each if there is one, "temperature", "abstention" and
        "thresholds": dicts of numbers, which reports and cards show under their keys. Without a
        new temperature that of the same step, which is also that of the thresholds, is kept.
    """

    def change(record: Json, session: Json) -> None:
        del session
        earlier = record.get("calibration") or {}
        names = () if "temperature" in calibration else ("temperature", "thresholds")
        kept = {name: earlier[name] for name in names if name in earlier}
        if earlier.get("step") != calibration["step"]:
            kept = {}
        record["calibration"] = {**kept, **calibration}
        record["remarks"] = stuck_runs.remarks(folder, record)

    change_session(folder, change)


def drop_calibration(folder: str) -> None:
    """Removes the calibration, which is not that of weights that are trained further."""
    change_session(folder, lambda record, session: record.pop("calibration", None))


def set_model(folder: str, task: str, best_metric: str, total: int, trained: int) -> None:
    """Records the task, its metric, and the numbers of all parameters and of the trained ones."""

    def change(record: Json, session: Json) -> None:
        if takes_scores(record, session):
            record.update(task=task, best_metric=best_metric)
            record["parameters"] = {"total": total, "trained": trained}

    change_session(folder, change)


def trains(session: Json) -> bool:
    """Returns whether training is one of a session's stages."""
    return TRAIN in session["stages"]


def has_trained(session: Json) -> bool:
    """Returns whether a session has begun to train; a finished run has no step left to take."""
    return trains(session) and session["first_step"] is not None


def describes(record: Json, session: Json) -> bool:
    """Returns whether the record describes this session's run, not an earlier session's."""
    return has_trained(session) or not any(map(has_trained, record["sessions"]))


def changes_status(record: Json, session: Json) -> bool:
    """Returns whether the record has the status of this session: also of one that is to resume."""
    return describes(record, session) or (trains(session) and record["status"] != DONE)


def takes_scores(record: Json, session: Json) -> bool:
    """Returns whether the record has the scores of this session, as of each that was to train."""
    return trains(session) or not any(map(trains, record["sessions"]))


def read_basis(folder: str) -> Basis:
    """Reads what the result of a folder's run was measured on."""
    return basis_of_result(folder, read(folder))


def metric_of_result(folder: str) -> tuple[str | None, bool]:
    """Returns the metric that picked the result of a folder's run, and whether while it trained."""
    if not file_io.exists(os.path.join(folder, RUN)):
        return None, False
    record = read(folder)
    session = session_of_result(record)
    metric = basis_of_result(folder, record).metric if session else None
    return metric, bool(session and trains(session))


def basis_of_result(folder: str, record: Json) -> Basis:
    """Returns what the result in a folder's record was measured on."""
    session = session_of_result(record)
    if session and "measured_on" in session:
        return Basis(**session["measured_on"])
    return evaluation_basis.from_record(folder, record)


def find_other_basis(record: Json) -> list[str]:
    """Returns how what the lines of evaluations are measured on differs from that of the result.

    They are those of a later evaluation on other data, which leaves the result of the training.
    """
    of_result = (session_of_result(record) or {}).get("measured_on")
    of_lines = record.get("measured_on")
    if not of_result or not of_lines:
        return []
    return Basis(**of_result).differences(Basis(**of_lines), evaluation_basis.READING)


def session_of_result(record: Json) -> Json | None:
    """Returns the last training session with a result, else another session with one, or None."""
    sessions = [session for session in record["sessions"] if session["result"]]
    return sorted(sessions, key=trains)[-1] if sessions else None


# The field of an entry that is compared, by part; other parts are compared as a whole.
_ENTRY = {"flags": "value", "inputs": "sha256"}


def differences(one: Json, other: Json, parts: Sequence[str]) -> dict[str, Json]:
    """Returns the differences of two records as {"part.name": {"before": …, "after": …}}.

    Flags are compared by value, inputs by hash.
    """
    changes = {}
    for part in parts:
        if not isinstance(one[part], dict):
            if one[part] != other[part]:
                changes[part] = {"before": one[part], "after": other[part]}
            continue
        for name in sorted(one[part].keys() | other[part].keys()):
            values = [record[part].get(name) for record in (one, other)]
            if part in _ENTRY:
                values = [value and value[_ENTRY[part]] for value in values]
            if values[0] != values[1]:
                changes[f"{part}.{name}"] = dict(zip(("before", "after"), values, strict=True))
    return changes
