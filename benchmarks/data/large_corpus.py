"""Pre-training data from much text: processes of this program against Apache Beam's DirectRunner.

    python -m benchmarks.data.large_corpus --input_file='corpus/*.txt.gz' \\
        --spm_model_file=30k-clean.model

Makes `--megabytes` of text by repeating the corpus with other words (one in ten is replaced by one
that is drawn from the corpus by `--random_seed`), then runs `albert.create_pretraining_data` on it
as `--runner=local` and as `--runner=beam`, with each number of workers, on all cores that it may
use. Prints instances per second, the whole process from its start to its end included, the largest
sum of the resident memory of all processes of the run, and the rate of Beam as a part of the local
one; and whether all shards are the same, which is an error if not. Shards are deleted after each
run, the text at the end. Needs Linux (/proc) and room for about nine times the text.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np
from absl import flags

from albert.io import archives, file_io
from benchmarks import harness
from benchmarks.data import create_pretraining_data as one_run

FLAGS = flags.FLAGS
CHANGED = 0.1  # share of the words


def define_flags():
    flags.DEFINE_string("input_file", None, "Text files, also .gz: globs.", required=True)
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
    flags.DEFINE_integer("megabytes", 1000, "Length of the text.")
    flags.DEFINE_string("output_dir", None, "Folder for a folder that is removed at the end.")
    flags.DEFINE_list("workers", ["2", "4"], "Numbers of workers to try.")
    flags.DEFINE_list("runners", ["local", "beam"], "What to try.")
    flags.DEFINE_integer("num_shards", 8, "Files of a run.")
    flags.DEFINE_integer("max_seq_length", 128, "Tokens in an instance.")
    flags.DEFINE_integer("max_predictions_per_seq", 20, "Most masked tokens in an instance.")
    flags.DEFINE_integer("dupe_factor", 2, "Passes over the text.")
    flags.DEFINE_integer("random_seed", 1, "Decides which words are changed, and how.")


def texts(paths):
    """Yields whole files, over and over."""
    while True:
        for path in paths:
            with archives.open_input(path, "--input_file") as file:
                yield file.read().decode()


def write_text(paths, num_bytes, target):
    """Writes the files over and over with other words; line ends and documents stay."""
    rng = np.random.default_rng(FLAGS.random_seed)
    with open(target, "wb") as file:
        for text in texts(paths):
            # Line ends belong to the adjacent words; those words are not changed.
            words = text.split(" ")
            places = rng.choice(len(words), int(CHANGED * len(words)), replace=False)
            others = rng.permutation(places)
            drawn = [words[place] for place in others.tolist()]
            for place, word in zip(places.tolist(), drawn, strict=True):
                if "\n" not in words[place] and "\n" not in word:
                    words[place] = word
            file.write((" ".join(words) + "\n\n").encode()[: num_bytes - file.tell()])
            if file.tell() >= num_bytes:
                break
    # The end may lie inside a character.
    with open(target, "rb+") as file:
        file.seek(-200, os.SEEK_END)
        file.truncate(num_bytes - 200 + file.read().rfind(b" "))


def command(text, folder, runner, workers):
    """Arguments of a run."""
    names = ("num_shards", "max_seq_length", "max_predictions_per_seq", "dupe_factor")
    return [
        *(sys.executable, "-m", "albert.create_pretraining_data", f"--runner={runner}"),
        *(f"--input_file={text}", f"--output_file={folder}/part", f"--num_workers={workers}"),
        *(f"--{name}={FLAGS[name].value}" for name in names),
        f"--spm_model_file={os.path.abspath(FLAGS.spm_model_file)}",
    ]


def measure(text, folder, runner, workers, cores):
    """(instances a second, description of the shards) of a run, which is printed."""
    output = os.path.join(folder, "shards")
    _, seconds, peak = one_run.run(command(text, output, runner, workers), cores)
    manifest = json.loads(pathlib.Path(f"{output}/part.manifest.json").read_text())
    shutil.rmtree(output)
    rate = manifest["counts"]["instances"] / seconds
    print(
        f"{runner}, {workers} workers: {manifest['counts']['instances']} instances, {seconds:.1f} "
        f"s, {rate:.0f} instances/s, {peak / 1e6:.0f} MB resident memory at most",
        flush=True,
    )
    return rate, manifest["shards"]


def main():
    cores = sorted(os.sched_getaffinity(0))
    paths = file_io.expand_globs(FLAGS.input_file, "--input_file")
    with tempfile.TemporaryDirectory(dir=FLAGS.output_dir) as folder:
        text = os.path.join(folder, "text")
        write_text(paths, int(FLAGS.megabytes * 1e6), text)
        print(
            f"{harness.machine()}; {len(cores)} core(s) used, "
            f"{os.path.getsize(text) / 1e6:.0f} MB of text, load before {os.getloadavg()[2]:.1f}"
        )
        all_shards = []
        for workers in FLAGS.workers:
            rates = {}
            for runner in FLAGS.runners:
                rates[runner], shards = measure(text, folder, runner, int(workers), cores)
                all_shards.append(shards)
            if len(rates) > 1:
                print(f"{workers} workers: Beam / local {rates['beam'] / rates['local']:.0%}")
    if any(shards != all_shards[0] for shards in all_shards):
        sys.exit("the runs made other shards")
    print("all runs made the same shards, byte for byte")


if __name__ == "__main__":
    harness.run(main, define_flags)
