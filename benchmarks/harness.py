"""Starts benchmarks, runs their sides in turns and prints how these compare.

Benchmarks are run from the top folder of the clone, as modules:

    python -m benchmarks.training.start_up --help
"""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from absl import app, flags

from benchmarks import STARTED_WITH

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(main: Callable[[], Any], define_flags: Callable[[], None]) -> None:
    """Parses the flags and runs a benchmark."""
    define_flags()
    flags.DEFINE_string("figures_file", None, "File to which figures are added, a JSON a line.")
    app.run(lambda _: main())


def config_file(name: str) -> str:
    """Returns the path of published sizes, such as `base_v2`."""
    return str(ROOT / "configs" / f"albert_{name}.json")


def machine(*libraries: Any) -> str:
    """Describes the processor and the versions of Python and of imported libraries."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        (name, *_) = re.findall(r"^model name\s*: (.*)$", text, re.M)
    except (OSError, ValueError):
        name = platform.processor() or platform.machine()
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{library.__name__} {library.__version__}" for library in libraries]
    return f"machine: {name}, {os.cpu_count()} cores; {', '.join(versions)}"


def in_turns(sides: Mapping[str, Callable[[], Any]], rounds: int, warm_up: bool = True) -> dict:
    """Runs all sides one after the other, several times: the speed of a machine may change.

    Args:
      sides: {name: function that does the work once}.
      rounds: times that each is run.
      warm_up: whether the result of a first round, in which things are compiled, is dropped.

    Returns:
      {name: list of results, one per round}.
    """
    results = {name: [] for name in sides}
    for number in range(rounds + warm_up):
        for name, work in sides.items():
            result = work()
            if number >= warm_up:
                results[name].append(result)
    return results


def compare(label: str, rates: Mapping[str, float], unit: str = "examples/s") -> str:
    """Returns a line with the rate of each side, and the ratios of the first to the others."""
    (first, rate), *others = rates.items()
    line = f"{label} {first} {rate:7.2f} {unit}"
    for name, other in others:
        line += f"   {name} {other:.2f}, ratio {rate / other:.2f}"
    return line


def show(label: str, figures: Mapping[str, float], unit: str = "examples/s") -> None:
    """Prints the figures of sides, see `compare`, and records them."""
    print(compare(label, figures, unit), flush=True)
    record(label, figures, unit)


def record(label: str, figures: Mapping[str, float], unit: str) -> None:
    """Adds the figures of sides to the file of --figures_file, if it is given."""
    if path := flags.FLAGS.figures_file:
        line = {"label": label, "unit": unit, "figures": dict(figures)}
        with open(path, "a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)


# --- whole commands -------------------------------------------------------------------------------


def command(script: str, *switches: str, **values: Any) -> list[str]:
    """Returns the arguments of a command of the package; values of None are omitted."""
    arguments = [f"--{name}" for name in switches]
    arguments += [f"--{name}={value}" for name, value in values.items() if value is not None]
    return [sys.executable, "-m", f"albert.{script}", *arguments]


def environment(tree: str | os.PathLike = ROOT) -> dict[str, str]:
    """Returns the environment in which Python imports the package of a source tree."""
    paths = [os.path.abspath(tree), STARTED_WITH.get("PYTHONPATH")]
    return {**STARTED_WITH, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def check_output(
    arguments: list[str],
    tree: str | os.PathLike = ROOT,
    variables: Mapping[str, str] = types.MappingProxyType({}),
    timeout: float | None = None,
) -> str:
    """Runs a command in a source tree, with further environment variables; returns what it prints.

    Raises:
      SystemExit: it failed; with the end of its log.
      TimeoutExpired: it took more than `timeout` seconds.
    """
    result = subprocess.run(
        arguments,
        cwd=tree,
        env={**environment(tree), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{result.stderr[-3000:]}")
    return result.stdout


def last_results(folder: str) -> dict[str, str]:
    """Returns the metrics of the last evaluation in the output folder of a run."""
    text = pathlib.Path(folder, "eval_results.txt").read_text(encoding="utf-8")
    block = [part for part in text.split("=" * 50) if part.strip()][-1]
    return dict(line.split(" = ") for line in block.strip().splitlines())
