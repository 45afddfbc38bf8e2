"""Folders as runs of the reference leave them."""

import pathlib
import shutil

import numpy as np

from albert.model import checkpoints
from albert.training import results

META = "graph of the reference"


def rename_best(folder, step, trial=None):
    """Makes ``model.ckpt-best`` of a numbered checkpoint, which is then its only copy.

    Args:
      folder: output folder.
      step: the checkpoint's step.
      trial: text of ``best_trial.txt``; None for none, as after most scripts of the reference.

    Returns:
      Bytes of its data file.
    """
    folder = pathlib.Path(folder)
    for prefix in [*checkpoints.numbered(str(folder)), str(folder / "model.ckpt-best")]:
        pathlib.Path(f"{prefix}.meta").write_text(META)
    for path in folder.glob(f"model.ckpt-{step}.*"):
        path.replace(folder / path.name.replace(f"-{step}.", "-best."))
    (folder / "best_trial.txt").unlink(missing_ok=True)
    if trial is not None:
        (folder / "best_trial.txt").write_text(trial)
    return data_of_best(folder)


def data_of_best(folder):
    return (pathlib.Path(folder) / "model.ckpt-best.data-00000-of-00001").read_bytes()


def make(source, target):
    """A folder whose best is the only copy of what is learned; step 0 always answers the same.

    Args:
      source: output folder with a best checkpoint.
      target: the folder to make.

    Returns:
      Bytes of the data file of the best.
    """
    shutil.copytree(source, target)
    for prefix in checkpoints.numbered(str(target)):
        checkpoints.delete(prefix)
    for name in ("best_trial.txt", "eval_results.txt"):
        (target / name).unlink(missing_ok=True)
    reader = checkpoints.reader(str(target / "model.ckpt-best"))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    poor = {name: np.zeros_like(value) for name, value in tensors.items()}
    for name, value in poor.items():
        if name.endswith("output_bias"):  # No two answers are to be equally good.
            value[:] = np.arange(len(value))
    checkpoints.write_tensors(str(target / "model.ckpt-0"), poor, with_meta=True)
    (target / "model.ckpt-best.meta").write_text(META)
    return data_of_best(target)


def check_best_survives(trained, folder, run):
    """Neither evaluation nor training loses the best of `folder`, which is made of `trained`.

    ``run(do_train)`` works on the folder; it trains one step.
    """
    before = make(trained, folder)
    step = checkpoints.read_step(str(folder / "model.ckpt-best"))
    for do_train, steps in ((False, [0, step]), (True, [0, 1, step])):
        (folder / "best_trial.txt").unlink(missing_ok=True)
        run(do_train)
        assert data_of_best(folder) == before
        assert [block.step for block in results.read_blocks(str(folder))] == steps
        assert results.read_trial(str(folder)).best_step == step
