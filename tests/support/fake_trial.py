"""Stands in for a training script: learns nothing, but resumes, scores itself, fails and dies.

A step takes a moment and is noted in a file of its own, so that a killed trial resumes where it was
and a test can see what ran when. The score depends on the flags alone.
"""

import os
import signal
import sys
import time

from absl import flags

from albert.cli import app
from albert.io import file_io
from albert.training import results, stuck_runs


def define_flags(flag_values):
    flags.DEFINE_string("output_dir", None, "Folder.", flag_values=flag_values)
    flags.DEFINE_float("rate", 0.1, "Best is 0.3.", flag_values=flag_values)
    flags.DEFINE_integer("batch", 16, "Smaller is better.", flag_values=flag_values)
    flags.DEFINE_integer("seed", 1, "Adds a hundredth.", flag_values=flag_values)
    flags.DEFINE_integer("steps", 3, "Steps.", flag_values=flag_values)
    flags.DEFINE_float("seconds", 0.0, "Of a step.", flag_values=flag_values)
    flags.DEFINE_float("fail_at", -1.0, "Rate that fails.", flag_values=flag_values)
    flags.DEFINE_float("die_at", -1.0, "Rate that is killed.", flag_values=flag_values)
    flags.DEFINE_float("end_at", -1.0, "Rate that gets SIGTERM.", flag_values=flag_values)
    flags.DEFINE_float("stuck_at", -1.0, "Rate that causes a warning.", flag_values=flag_values)
    flags.DEFINE_string("note", None, "File that gets a line a step.", flag_values=flag_values)


def _score(values, step):
    return 1 - abs(values.rate - 0.3) - values.batch / 1000 + values.seed / 100 + step / 1000


def main(values):
    file_io.make_dirs(values.output_dir)
    path = os.path.join(values.output_dir, "step")
    done = int(file_io.read_text(path, "step")) if file_io.exists(path) else 0
    blocks = results.read_blocks(values.output_dir)
    for step in range(done + 1, values.steps + 1):
        time.sleep(values.seconds)
        if values.note:
            with file_io.open_file(values.note, "a") as file:
                file.write(f"{os.path.basename(values.output_dir)} {step} {os.getpid()}\n")
        if step == 2 and values.rate == values.fail_at:
            print("some lines before", file=sys.stderr)
            raise file_io.InputError(f"rate={values.rate} does not learn")
        if step == 2 and values.rate == values.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 2 and values.rate == values.end_at:
            signal.raise_signal(signal.SIGTERM)
        score = _score(values, step)
        blocks = results.put(blocks, results.make_block({"eval_score": score}, step, score))
        results.write_blocks(values.output_dir, blocks)
        results.write_trial(values.output_dir, results.Trial(step, step, score))
        if values.rate == values.stuck_at:
            warned = {"told": {"step": 1}, "judgements": [], "signs": {}}
            file_io.write_json(os.path.join(values.output_dir, stuck_runs.STATE), warned)
        file_io.write_text(path, str(step))


if __name__ == "__main__":
    app.run(main, define_flags)
