"""Kills runs of create_pretraining_data at random moments and compares the files at the end.

    python -m benchmarks.robustness.killed_data_creation --input_file='corpus/*.txt' \\
        --spm_model_file=30k-clean.model

First an unbroken run. Then, `--kills` times: a run with two workers is killed (SIGKILL, no warning)
after a random part of the time that the unbroken one took, and the same command is given again, now
with one worker, until it ends by itself. All files must be those of the unbroken run, byte for
byte. Needs no particular machine; nothing is measured but whether it holds.
"""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks import harness

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("input_file", None, "Text files: comma-separated globs.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_integer("kills", 20, "Runs that are killed.")
    flags.DEFINE_integer("num_shards", 4, "Files of a run.")
    flags.DEFINE_integer("random_seed", 1, "Decides when.")


def command(folder, num_workers):
    """Arguments of a run that writes to a folder."""
    return [
        *(sys.executable, "-m", "albert.create_pretraining_data", "--dupe_factor=2"),
        *(f"--input_file={FLAGS.input_file}", f"--output_file={folder}/part"),
        *(f"--num_shards={FLAGS.num_shards}", f"--num_workers={num_workers}"),
        f"--spm_model_file={os.path.abspath(FLAGS.spm_model_file)}",
        *("--max_seq_length=128", "--max_predictions_per_seq=20"),
    ]


def start(folder, num_workers):
    return subprocess.Popen(
        command(folder, num_workers),
        cwd=harness.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def content(folder):
    """{name: bytes} of the files of a folder; a folder in it is an error."""
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def killed_run(folder, seconds):
    """Kills a run, then lets the same command end; returns whether the run still ran."""
    process = start(folder, 2)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    if process.wait() == 0:
        return False
    # Its workers may still run for a moment: that must do no harm.
    if start(folder, 1).wait():
        sys.exit(f"{folder}: the run did not resume after {seconds:.2f} s")
    return True


def main():
    rng = random.Random(FLAGS.random_seed)
    identical = hit = 0
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        if start(f"{folder}/unbroken", 2).wait():
            sys.exit("the unbroken run failed")
        seconds = time.monotonic() - started
        right = content(f"{folder}/unbroken")
        for number in range(FLAGS.kills):
            after = rng.uniform(0, seconds)
            hit += killed_run(f"{folder}/{number}", after)
            same = content(f"{folder}/{number}") == right
            identical += same
            print(
                f"killed after {after:.2f} of {seconds:.2f} s: {'same' if same else 'OTHER'} files"
            )
            shutil.rmtree(f"{folder}/{number}")
    print(f"{identical} of {FLAGS.kills} ended with identical files; {hit} were killed in time")
    sys.exit(identical != FLAGS.kills)


if __name__ == "__main__":
    harness.run(main, define_flags)
