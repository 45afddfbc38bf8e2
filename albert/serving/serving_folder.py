"""Reads and writes serving folders: fine-tuned models that run without training checkpoints.

A serving folder holds the description of the model (``model.json``, the configuration and the
vocabulary, see `model_folder`), the model in one of `MODEL_FILES`, ``serving.json``, which says how
to run it and what was measured at the export, and the manifest that `manifests` writes. It appears
complete or not at all.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from types import NoneType
from typing import Any

from albert.io import file_io, json_shapes, manifests
from albert.model import model_folder
from albert.tasks import kinds
from albert.tasks.squad import null_threshold
from albert.tasks.squad import task as squad_task
from albert.training import run_record

NAME = "serving.json"
VERSION = 1
# Format -> the model's file or folder in the serving folder.
MODEL_FILES = {"saved_model": "saved_model", "litert": "model.tflite", "onnx": "model.onnx"}
PRECISIONS = ("float32", "bfloat16", "int8", "int8_bfloat16")
_SHAPE = {
    "version": int,
    "format": str,
    "precision": str,
    "kind": str,
    "model": str,
    "inputs": [str],
    "outputs": [str],
    "null_odds_threshold": (*json_shapes.NUMBER, NoneType),
    "measured": dict,
    "special_ids?": {"*": int},
    "remarks?": [str],
}


@dataclasses.dataclass(frozen=True)
class ServingFolder:
    """An exported fine-tuned model."""

    path: str
    model: model_folder.ModelFolder  # without a checkpoint
    format: str  # key of `MODEL_FILES`
    precision: str  # one of `PRECISIONS`
    # Null odds from which a question is not answered; None except for SQuAD 2.0.
    null_odds_threshold: float | None = None
    # JSON-ready measurements at the export: agreement, metrics, calibration.
    measured: dict = dataclasses.field(default_factory=dict)
    # {"cls", "sep", "pad", "unk": id of the special piece}, for programs that read the folder
    # without this package; empty in folders of older versions.
    special_ids: dict = dataclasses.field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # about the trained model's score, see `stuck_runs.remarks`

    @property
    def kind(self) -> str:
        return self.model.kind

    @property
    def model_file(self) -> str:
        """Path of the model's file or folder."""
        return os.path.join(self.path, MODEL_FILES[self.format])

    @property
    def inputs(self) -> tuple[str, ...]:
        return kinds.KINDS[self.kind].inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return kinds.KINDS[self.kind].outputs


def is_serving_folder(path: str) -> bool:
    """Returns whether a folder is a serving folder, by its files."""
    return file_io.exists(os.path.join(path, NAME))


def read(path: str, *names: str) -> ServingFolder:
    """Reads the `ServingFolder` at a path; `names`: kinds that the caller can use, none: any."""
    name = os.path.join(path, NAME)
    description = file_io.read_json(name, "description of an exported model", dict)
    if description.get("version") != VERSION:
        raise file_io.InputError(
            f"{name}: expected version {VERSION}, found {description.get('version')!r}; export the "
            "model again, or use it with the version of this program that wrote it"
        )
    json_shapes.check(description, _SHAPE, name)
    for entry, choices in (("format", MODEL_FILES), ("precision", PRECISIONS)):
        if description[entry] not in choices:
            raise file_io.InputError(
                f"{name}: {entry} is {description[entry]!r}; expected one of {', '.join(choices)}"
            )
    model = model_folder.read(path, *names, with_weights=False)
    values = {key: description[key] for key in ("format", "precision", "measured")}
    values["special_ids"] = description.get("special_ids", {})
    values["remarks"] = tuple(description.get("remarks", ()))
    folder = ServingFolder(
        path, model, null_odds_threshold=description["null_odds_threshold"], **values
    )
    expected = _description(folder)
    for entry in ("kind", "model", "inputs", "outputs"):
        if description[entry] != expected[entry]:
            raise file_io.InputError(
                f"{name}: {entry} is {description[entry]!r}; for this model expected "
                f"{expected[entry]!r}"
            )
    if not file_io.exists(folder.model_file):
        raise file_io.InputError(f"{folder.model_file} is missing, which {name} names")
    file_io.check_regular(folder.model_file)  # as runtimes open it
    return folder


def _description(folder: ServingFolder) -> dict[str, Any]:
    """Returns the content of ``serving.json``."""
    return {
        "version": VERSION,
        "kind": folder.kind,
        "format": folder.format,
        "precision": folder.precision,
        "model": MODEL_FILES[folder.format],
        "inputs": list(folder.inputs),
        "outputs": list(folder.outputs),
        "null_odds_threshold": folder.null_odds_threshold,
        "special_ids": folder.special_ids,
        "measured": folder.measured,
        **({"remarks": list(folder.remarks)} if folder.remarks else {}),
    }


def describe(folder: ServingFolder) -> None:
    """Writes ``serving.json``."""
    file_io.write_json(os.path.join(folder.path, NAME), _description(folder))


def measured(folder: ServingFolder, measurements: dict) -> ServingFolder:
    """Returns the `ServingFolder` with further measurements."""
    return dataclasses.replace(folder, measured={**folder.measured, **measurements})


@contextlib.contextmanager
def creating(
    path: str, trained: model_folder.ModelFolder, format: str, precision: str
) -> Iterator[ServingFolder]:
    """Creates a serving folder that appears at the end of the block, or not at all.

    The path must not exist, and the model must have its checkpoint. Yields a `ServingFolder` in a
    temporary place, for which the block writes the model's file, and adds measurements with
    `measured` and `describe`.
    """
    path = str(path).rstrip("/")
    if file_io.exists(path):
        raise file_io.InputError(f"output_dir={path} exists already; name a new folder")
    temporary = file_io.temporary_name(path)
    try:
        model_folder.write(
            temporary, trained.kind, trained.config, trained.source, trained.settings
        )
        threshold = None
        if trained.kind == squad_task.V2:
            assert trained.source.checkpoint is not None
            threshold = null_threshold.read(trained.source.checkpoint)
        model = model_folder.read(temporary, with_weights=False)
        tokenizer = model_folder.load_tokenizer(model.source, model.config)
        names = ("cls", "sep", "pad", "unk")
        ids = {name: getattr(tokenizer, f"{name}_id") for name in names}
        remarks = tuple(run_record.read_remarks(trained.path))
        folder = ServingFolder(
            temporary, model, format, precision, threshold, special_ids=ids, remarks=remarks
        )
        describe(folder)
        yield folder
        manifests.write(temporary)
        file_io.rename(temporary, path)
    except OSError as error:
        raise file_io.InputError(f"cannot write output_dir={path}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            file_io.remove(temporary)
