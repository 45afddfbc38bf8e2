"""Trains again from another seed while a run does not learn, and keeps count.

`attempts.json` in the output folder lists the attempts that were given up; their checkpoints,
results and logs are in `attempt_<n>` beside it. It is written before anything is moved, so that a
run killed at any moment goes on in the attempt that it was in.
"""

import functools
import os
import re

from absl import logging

from albert import file_io, json_shapes, results, stuck

ATTEMPTS = "attempts.json"
# What belongs to one attempt; data, vocabulary and descriptions serve all of them.
_OF_AN_ATTEMPT = re.compile(
    r"(new-)?model\.ckpt-.*|checkpoint|eval|events\.out\..*|load_report\.json|metrics\.jsonl|"
    + "|".join(map(re.escape, (results.RESULTS, results.BEST_TRIAL, stuck.STATE)))
)
_ATTEMPT = {
    "seed": int, "step": int, "share": json_shapes.NUMBER, "message": str, "folder": str,
}  # fmt: skip
_SHAPE = {"given_up": [_ATTEMPT], "moving?": bool}


def _folder(number):
    return f"attempt_{number}"


def read(folder):
    """The attempts that were given up in an output folder.

    Returns:
      List of dicts: seed, step, share, message and folder (its name in the output folder).

    Raises:
      file_io.InputError: the file is damaged.
    """
    return _read(folder)["given_up"]


def _read(folder):
    path = os.path.join(folder, ATTEMPTS)
    if not file_io.exists(path):
        return {"given_up": [], "moving": False}
    state = file_io.read_json(path, "attempts")
    json_shapes.check(state, _SHAPE, path)
    json_shapes.check_text(state, path)
    for number, attempt in enumerate(state["given_up"], 1):
        if attempt["folder"] != _folder(number):
            raise file_io.InputError(
                f"{path}: attempt {number}: expected the folder {_folder(number)!r}, found "
                f"{attempt['folder']!r}"
            )
    if state.get("moving") and not state["given_up"]:
        raise file_io.InputError(f"{path}: nothing was given up, so nothing can be moved")
    return state


def _finish_moving(folder):
    """Moves what belongs to an attempt that was just given up; returns the attempts."""
    state = _read(folder)
    if state.get("moving"):
        target = os.path.join(folder, state["given_up"][-1]["folder"])
        file_io.make_dirs(target)
        for name in file_io.listdir(folder):
            if _OF_AN_ATTEMPT.fullmatch(name):
                file_io.rename(os.path.join(folder, name), os.path.join(target, name))
        file_io.write_json(os.path.join(folder, ATTEMPTS), {**state, "moving": False})
    return state["given_up"]


def give_up(folder, seed, error, on_chief):
    """Writes that an attempt is given up, and moves its files.

    Args:
      folder: output folder.
      seed: of the attempt.
      error: `stuck.StuckError` that ended it.
      on_chief: see `attempts`.
    """
    # As text: who keeps the error keeps its traceback, and with it the model.
    logging.warning("seed=%d: %s", seed, str(error))
    on_chief(functools.partial(_give_up, folder, seed, error))


def _give_up(folder, seed, error):
    given_up = read(folder)
    judgement = error.judgement
    given_up.append(
        {
            "seed": seed,
            "step": judgement.step,
            "share": judgement.share,
            "message": str(error),
            "folder": _folder(len(given_up) + 1),
        }
    )
    file_io.write_json(os.path.join(folder, ATTEMPTS), {"given_up": given_up, "moving": True})
    _finish_moving(folder)


def attempts(folder, seed, num_restarts, on_chief):
    """Yields the seed of each attempt to make, and how many were given up before it.

    The caller ends the loop when an attempt has learned, and calls `give_up` when it is stuck.

    Args:
      folder: output folder.
      seed: of the first attempt; each further one has the next.
      num_restarts: attempts after the first, at most; 0: none is given up, and the last one that
        was begun goes on.
      on_chief: ``(make) -> what make() returns in the chief``; all workers come to each call.

    Raises:
      file_io.InputError: all attempts are stuck.
    """
    given_up = on_chief(lambda: _finish_moving(folder))
    while not num_restarts or len(given_up) <= num_restarts:
        own = seed + len(given_up)
        if given_up:
            logging.info("Restart %d of %d, with seed=%d", len(given_up), num_restarts, own)
        yield own, len(given_up)
        given_up = on_chief(lambda: read(folder))
    raise file_io.InputError(
        f"all {len(given_up)} attempts (seeds {seed} to {given_up[-1]['seed']}) are stuck: "
        f"{given_up[-1]['message']} More num_restarts go on with the next seeds"
    )
