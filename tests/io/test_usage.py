"""Time, processor time, memory and energy of a process, with counters of energy in a folder."""

import os
import subprocess
import sys
import time

import pytest

from albert.io import usage


def zone(folder, number, name, microjoules, most=1_000_000_000):
    path = folder / f"intel-rapl:{number}"
    path.mkdir(parents=True)
    for file, value in (("name", name), ("max_energy_range_uj", most), ("energy_uj", microjoules)):
        (path / file).write_text(f"{value}\n")
    return path / "energy_uj"


def test_processor_time_counts_ended_child_processes():
    counter = usage.Counter()
    before = counter.read()
    work = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-S", "-c", work], check=True)
    after = counter.read()
    assert 0.25 < after.processor_seconds - before.processor_seconds < 10
    assert after.seconds - before.seconds > 0.25


def test_peak_memory_is_that_of_this_process():
    before = usage.peak_memory()
    held = bytearray(os.urandom(1 << 20) * 200)
    assert usage.peak_memory() >= min(before + (50 << 20), len(held))
    del held
    assert usage.peak_memory() >= before  # a peak does not fall


def test_energy_of_packages_and_memory_is_added_up(tmp_path):
    package = zone(tmp_path, "0", "package-0", 5_000_000)
    memory = zone(tmp_path, "0:1", "dram", 900_000_000)
    cores = zone(tmp_path, "0:0", "core", 0)  # a part of the package
    platform = zone(tmp_path, "1", "psys", 0)  # the package and more
    (tmp_path / "intel-rapl-mmio:0").mkdir()  # the package again
    counter = usage.Counter(str(tmp_path))
    assert counter.read().joules == 0
    for file, value in ((package, 7_500_000), (memory, 900_500_000), (cores, 9), (platform, 9)):
        file.write_text(f"{value}\n")
    assert counter.read().joules == pytest.approx(3.0)
    package.write_text("8500000\n")
    memory.write_text("500000\n")  # It has started again, after 1000 J.
    assert counter.read().joules == pytest.approx(3.0 + 1.0 + 100.0)
    assert counter.energy_problem is None


def test_without_counters_there_is_no_energy(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        counter = usage.Counter(str(folder))
        assert counter.read().joules is None and counter.energy_problem is None
    assert counter.read().seconds <= time.monotonic()


@pytest.mark.parametrize("later", [False, True])
def test_counters_that_cannot_be_read_are_a_problem(tmp_path, later):
    file = zone(tmp_path, "0", "package-0", 5)
    if later:
        counter = usage.Counter(str(tmp_path))
        assert counter.read().joules == 0
    file.unlink()
    file.mkdir()  # Tests may run as root, who may read every file.
    if not later:
        counter = usage.Counter(str(tmp_path))
    assert counter.read().joules is None
    assert str(file) in counter.energy_problem
