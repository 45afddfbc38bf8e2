"""A session of a run: what `run_record` says about it from its start to its end."""

import contextlib
import dataclasses
import datetime
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from albert.io import file_io, signals
from albert.training import evaluation_basis, run_facts, run_record
from albert.training.evaluation_basis import Basis
from albert.training.run_record import Json

Inputs = Mapping[str, tuple[str, Sequence[str]]]  # {role: (path, its files)}, as "vocabulary"
_MESSAGE_LENGTH = 1000  # TensorFlow's messages can fill pages


@dataclasses.dataclass(frozen=True)
class Recorder:
    """The facts about a run that are known at its start.

    Attributes:
      script: name of the script, without the package.
      flags: {name: {"value": …, "source": …}}; source is "default", "command line", "flag file …"
        or the name of another origin.
      inputs: {role: (path, its files)} of what the run reads at any stage.
      description: settings of the model in the folder's ``model.json``; None if unknown.
    """

    script: str
    command: Sequence[str]
    flags: Mapping[str, Mapping[str, Any]]
    inputs: Inputs
    description: Json | None = None

    def basis(self, task: str, metric: str, path: str, files: Sequence[str]) -> Basis:
        """Returns the hash of files and the settings on which scores depend.

        Args:
          metric: score that picks the best checkpoint.
          path: name of the input in the record: a file or a folder.
          files: paths of its files.
        """
        data = run_facts.describe_input(path, files) if files else None
        return evaluation_basis.from_values(self.flags, task, metric, data, self.description)

    @contextlib.contextmanager
    def session(self, folder: str, stages: Sequence[str], inputs: Inputs) -> Iterator[None]:
        """Logs the settings, and maintains an existing folder's ``run.json`` during the block.

        Args:
          stages: from "train", "eval" and "predict".
          inputs: {role: (path, its files)} that are added to the recorder's.
        """
        log_settings(self.flags)
        inputs = {**self.inputs, **inputs}
        with run_record.changing(folder):
            earlier = _begin(self, folder, stages, inputs)
        is_over = threading.Event()
        hashing = threading.Thread(
            target=_describe_inputs, args=(folder, inputs, earlier, is_over), daemon=True
        )
        hashing.start()
        try:
            yield
        except BaseException as error:
            is_over.set()  # the hashes are no longer needed
            message = str(error)[:_MESSAGE_LENGTH] or type(error).__name__
            is_interrupt = signals.root_interrupt(error)
            _end(folder, run_record.INTERRUPTED if is_interrupt else run_record.FAILED, message)
            raise
        hashing.join()
        _end(folder, run_record.DONE)


def log_settings(flags: Mapping[str, Mapping[str, Any]]) -> None:
    """Logs flags, {name: {"value", "source"}}, that differ from their defaults, by source."""
    groups: dict[str, list[str]] = {}
    for name, flag in sorted(flags.items()):
        if flag["source"] != "default":
            value = flag["value"]
            text = value if isinstance(value, str) else json.dumps(value)
            groups.setdefault(flag["source"], []).append(f"{name}={text}")
    logging.info("Settings (all others are defaults):")
    for source, settings in sorted(groups.items(), reverse=True):
        logging.info("  %s: %s", source, "  ".join(settings))


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _begin(recorder: Recorder, folder: str, stages: Sequence[str], inputs: Inputs) -> Json | None:
    """Writes the facts that are known immediately; returns the earlier record, None without one."""
    path = os.path.join(folder, run_record.RUN)
    earlier = None
    try:
        earlier = run_record.read(folder) if file_io.exists(path) else None
    except file_io.InputError as error:
        run_record.rename_damaged(path, error)
    started = _now()
    session: Json = {
        "pid": os.getpid(), "stages": list(stages), "command": recorder.command, "result": None,
        "started": started, "ended": None, "status": run_record.RUNNING,
        "first_step": None, "last_step": None,
    }  # fmt: skip
    record: Json = {
        "format": run_record.FORMAT, "script": recorder.script, "command": recorder.command,
        "directory": os.getcwd(), "flags": recorder.flags, "versions": run_facts.versions(),
        "host": run_facts.host(), "git_commit": None, "parameters": None, "started": started,
        "result": None, "sessions": [], "inputs": {
            r: {"path": name, "bytes": None, "sha256": None} for r, (name, _) in inputs.items()
        },
    }  # fmt: skip
    if weights := (recorder.description or {}).get("class_weights"):
        record["class_weights"] = weights
    if earlier:
        _add_bases(folder, earlier)
        record = _add_session(earlier, record, session)
    record["sessions"].append(session)
    if not earlier or run_record.changes_status(record, session):
        record.update(status=run_record.RUNNING, ended=None)
        record.pop("message", None)
    file_io.write_json(path, run_record.plain(record))
    return earlier


def _add_bases(folder: str, record: Json) -> None:
    """Adds to ``run.json``, in place, what results of a version without bases were measured on."""
    if record["result"] and "measured_on" not in record:
        basis = evaluation_basis.from_record(folder, record).to_dict()
        record["measured_on"] = basis
        if session := run_record.session_of_result(record):
            session.setdefault("measured_on", basis)


def _add_session(earlier: Json, record: Json, session: Json) -> Json:
    """Returns the record of a folder in which another session starts.

    Until a session takes a step, the record describes the training before it.
    """
    trains = run_record.trains(session)
    for other in earlier["sessions"]:
        # One process may evaluate while another trains, but no two processes do the same.
        if other["status"] == run_record.RUNNING and run_record.trains(other) == trains:
            other.update(status=run_record.INTERRUPTED, message="ended silently, perhaps killed")
    is_described = run_record.describes(earlier, session)
    if not (is_described or trains):
        return earlier
    parts = ("flags", "versions", "host")
    session["changed"] = run_record.differences(earlier, run_record.plain(record), parts)
    if trains and any(map(run_record.trains, earlier["sessions"])):
        _warn_of_changes(session["changed"])
    history = ("started", "sessions", "result", "parameters")
    own = {name: value for name, value in record.items() if name not in history}
    if is_described:
        return {**earlier, **own}
    session[run_record.OWN] = own
    return earlier


def _warn_of_changes(changed: Mapping[str, Json]) -> None:
    """Warns of relevant flags in {"flags.<name>": {"before", "after"}} since training began."""
    settings = [
        f"{name.removeprefix('flags.')}={values['after']} (was {values['before']})"
        for name, values in changed.items()
        if name.startswith("flags.") and name.removeprefix("flags.") not in run_record.MAY_CHANGE
    ]
    if settings:
        logging.warning("Resuming with other settings: %s", ", ".join(settings))


def _describe_inputs(
    folder: str, inputs: Inputs, earlier: Json | None, is_over: threading.Event
) -> None:
    """Adds the facts that take time, in a background thread, unless the run `is_over`."""
    descriptions = {r: run_facts.describe_input(*input) for r, input in inputs.items()}
    new = {"git_commit": run_facts.git_commit(), "inputs": descriptions}

    def change(record: Json, session: Json) -> None:
        if is_over.is_set():
            return
        (record if run_record.describes(record, session) else session).update(new)
        if earlier and "changed" in session:
            # A run that was killed early has not recorded the hashes of its inputs.
            known = {role: old for role, old in earlier["inputs"].items() if old["sha256"]}
            old_facts = {"inputs": known, "git_commit": earlier["git_commit"] or new["git_commit"]}
            changed = run_record.differences(old_facts, new, tuple(old_facts))
            session["changed"].update(changed)
            path, _ = inputs.get(run_record.TRAIN_DATA, (None, None))
            if path and changed.get(f"inputs.{run_record.TRAIN_DATA}", {}).get("before"):
                logging.warning(
                    "Training resumes with other data than before; the order of the examples "
                    "continues in %s",
                    path,
                )

    run_record.change_session(folder, change)


def _keep_scored_data(record: Json, session: Json, roles: Sequence[str]) -> None:
    """Gives a record the data of the scores that a session without a step has measured again.

    `roles` are from `run_record.SCORED_DATA`.
    """
    directory = session[run_record.OWN]["directory"]
    is_elsewhere = directory != record["directory"]
    for role in roles:
        if entry := session.get("inputs", {}).get(role):
            record["inputs"][role] = new = {**entry}
            if is_elsewhere:  # names are relative to the directory of the record
                new["path"] = os.path.join(directory, entry["path"])
                if "files" in entry:
                    new["files"] = [os.path.join(directory, name) for name in entry["files"]]


def _end(folder: str, status: str, message: str | None = None) -> None:
    """Records how the session has ended: `run_record.DONE`, `FAILED` or `INTERRUPTED`."""

    def change(record: Json, session: Json) -> None:
        ended = {"status": status, "ended": _now(), **({"message": message} if message else {})}
        session.update(ended)
        if run_record.changes_status(record, session):
            record.update(ended)
        if "test" in session and session["test"] == record.get("test"):
            inputs = session.get("inputs") or record["inputs"]
            if tested := inputs.get(run_record.SCORED_DATA[1]):
                record[run_record.TESTED_ON] = tested
        if run_record.OWN in session:
            # A session that failed may have evaluated, but its predictions did not end.
            roles = ["eval_data"] if session["result"] else []
            is_done = status == run_record.DONE
            _keep_scored_data(record, session, run_record.SCORED_DATA if is_done else roles)

    run_record.change_session(folder, change)
