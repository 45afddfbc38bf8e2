"""Measures time, processor time, memory and energy that this process has used so far."""

import contextlib
import os
import re
import sys
import time
from typing import NamedTuple

from albert.io import file_io

ENERGY_FOLDER = "/sys/class/powercap"
# Zones of Intel's RAPL counters, which AMD processors also have: a package, and a part of one. The
# zone psys and those of intel-rapl-mmio count the same energy again.
_PACKAGE, _PART = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")


class Usage(NamedTuple):
    """Totals of time and energy since an arbitrary moment; only differences are meaningful.

    Attributes:
      seconds: time by the clock.
      processor_seconds: user and system time of this process, all its threads, and of its child
        processes that have ended.
      joules: energy of the machine's processors and their memory, whatever process used it; None
        without a counter that can be read.
    """

    seconds: float
    processor_seconds: float
    joules: float | None


class Counter:
    """A reader of `Usage`.

    Args:
      energy_folder: folder of the machine's energy counters.

    Attributes:
      energy_problem: why the counters of energy cannot be read; None if they can, or if there are
        none.
    """

    def __init__(self, energy_folder: str = ENERGY_FOLDER) -> None:
        self._zones = _energy_zones(energy_folder)
        self._readings: list[int] | None = None
        self._joules = 0.0
        self.energy_problem: str | None = None
        if self._zones:
            try:
                self._ranges = [_number(zone, "max_energy_range_uj") for zone in self._zones]
                self._readings = self._read_energy()
            except (OSError, ValueError) as error:
                self.energy_problem = str(error)

    def read(self) -> Usage:
        """Returns the usage so far."""
        spent = os.times()
        processor_seconds = spent.user + spent.system + spent.children_user + spent.children_system
        return Usage(time.monotonic(), processor_seconds, self._update_energy())

    def _update_energy(self) -> float | None:
        """Returns the joules since the first reading.

        A counter starts at 0 again after its range, about an hour at full power; more than once
        between two readings is not noticed.
        """
        if self._readings is None:
            return None
        try:
            readings = self._read_energy()
        except (OSError, ValueError) as error:
            self._readings, self.energy_problem = None, str(error)
            return None
        for before, now, peak in zip(self._readings, readings, self._ranges, strict=True):
            self._joules += (now - before + (peak if now < before else 0)) * 1e-6
        self._readings = readings
        return self._joules

    def _read_energy(self) -> list[int]:
        return [_number(zone, "energy_uj") for zone in self._zones]


def _energy_zones(folder: str) -> list[str]:
    """Returns the folders of the counters of each package and of its memory."""
    try:
        names = sorted(file_io.listdir(folder))
        return [os.path.join(folder, name) for name in names if _counts(folder, name)]
    except OSError:  # no counters, as on virtual machines
        return []


def _counts(folder: str, name: str) -> bool:
    """Returns whether a zone counts energy that no other zone does."""
    if not (_PACKAGE.fullmatch(name) or _PART.fullmatch(name)):
        return False
    with file_io.open_file(os.path.join(folder, name, "name")) as file:
        of = file.read().strip()
    return of.startswith("package") if _PACKAGE.fullmatch(name) else of == "dram"


def _number(zone: str, name: str) -> int:
    with file_io.open_file(os.path.join(zone, name)) as file:
        return int(file.read())


def peak_memory() -> int | None:
    """Returns the peak bytes of main memory that this process has held; None if unknown."""
    # getrusage of a child process may give the peak of its parent.
    with contextlib.suppress(OSError, ValueError), file_io.open_file("/proc/self/status") as file:
        match = re.search(r"^VmHWM:\s*(\d+) kB", file.read(), re.MULTILINE)
        if match:
            return int(match[1]) << 10
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
