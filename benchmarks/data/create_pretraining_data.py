"""Pre-training data: instances per second and peak memory of a whole run.

    python -m benchmarks.data.create_pretraining_data --input_file='corpus/*.txt' \\
        --spm_model_file=30k-clean.model

Runs `albert.create_pretraining_data` as a process of its own on the given number of cores, from
reading the text to the finished files, and prints instances per second, the ratio to the reference
(430 instances a second at length 128 on one core, measured on this project's machine; it needs
TensorFlow 1.15, so it is not run here), and the largest sum of the resident memory of all
processes of the run, looked at twenty times a second. Needs Linux (/proc, CPU affinity).
"""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from absl import flags

from albert.io import file_io
from benchmarks import harness

FLAGS = flags.FLAGS
REFERENCE = 430  # instances per second


def define_flags():
    flags.DEFINE_string("input_file", None, "Text files: comma-separated globs.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_integer("megabytes", 64, "The text is repeated until it has this length.")
    flags.DEFINE_integer("cores", 1, "Cores, and worker processes, of the run.")
    flags.DEFINE_integer("max_seq_length", 128, "Tokens in an instance.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens in an instance.")
    flags.DEFINE_integer("dupe_factor", 2, "Passes over the text.")
    flags.DEFINE_string("sequence_format", "segment_pair", "What an instance holds.")


def repeat(paths, num_bytes, target):
    """Copies the files to `target`, over and over, as documents of their own."""
    with open(target, "wb") as file:
        while file.tell() < num_bytes:
            for path in paths:
                with open(path, "rb") as source:
                    shutil.copyfileobj(source, file)
                file.write(b"\n\n")


def resident_bytes(root_pid):
    """Sum over a process and all its descendants."""
    children, sizes = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            sizes[int(folder.name)] = int((folder / "statm").read_text().split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(folder.name))
    total, waiting = 0, [root_pid]
    while waiting:
        pid = waiting.pop()
        total += sizes.get(pid, 0)
        waiting += children.get(pid, [])
    return total * os.sysconf("SC_PAGE_SIZE")


def run(arguments, cores):
    """(output, seconds, peak bytes) of a process bound to some cores."""
    started = time.perf_counter()
    process = subprocess.Popen(
        arguments,
        cwd=harness.ROOT,
        env=harness.environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    peak = 0

    def watch():
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, resident_bytes(process.pid))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - started
    watcher.join()
    if process.returncode:
        sys.exit(process.returncode)
    return output, seconds, peak


def main():
    cores = sorted(os.sched_getaffinity(0))[-FLAGS.cores :]
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        paths = file_io.expand_globs(FLAGS.input_file, "--input_file")
        repeat(paths, FLAGS.megabytes * 1e6, text)
        arguments = [
            *(sys.executable, "-m", "albert.create_pretraining_data", f"--input_file={text}"),
            *(f"--output_file={folder}/out", f"--num_workers={len(cores)}"),
            *(
                f"--{name}={FLAGS[name].value}"
                for name in (
                    "max_seq_length",
                    "max_predictions_per_seq",
                    "dupe_factor",
                    "sequence_format",
                )
            ),
            f"--spm_model_file={os.path.abspath(FLAGS.spm_model_file)}",
        ]
        output, seconds, peak = run(arguments, cores)
        megabytes = os.path.getsize(text) / 1e6
        record_megabytes = os.path.getsize(f"{folder}/out") / 1e6
    instances = int(re.match(r"\d+", output)[0])
    print(output)
    print(harness.machine())
    print(
        f"{megabytes:.0f} MB of text, {record_megabytes:.0f} MB of records, {len(cores)} core(s), "
        f"load before {os.getloadavg()[2]:.1f}"
    )
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    print(
        f"{instances / seconds:.0f} instances/s in {seconds:.1f} s, all of the process included "
        f"({instances / cpu_seconds:.0f} per second of CPU time)"
    )
    print(f"{instances / seconds / REFERENCE:.1f} times the reference's {REFERENCE} (length 128)")
    print(f"{peak / 1e6:.0f} MB resident memory at most, all processes together")


if __name__ == "__main__":
    harness.run(main, define_flags)
