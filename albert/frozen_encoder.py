"""Training a head on an encoder that stays as it is.

The encoder then computes as in inference, forward alone: it drops nothing, and its variables get
neither gradients nor slots. Checkpoints hold the whole model all the same.
"""

import dataclasses

from albert import checkpoints, file_io, optimization


def frozen(task):
    """The task with an encoder that is not trained.

    Args:
      task: `task.Task`.

    Returns:
      `task.Task`.
    """

    def build_model(config, compute, seed):
        model = task.build_model(config, compute, seed)
        model.freeze_encoder()
        return model

    return dataclasses.replace(task, build_model=build_model)


def check_resume(output_dir, is_frozen):
    """Refuses to go on with a run whose encoder was trained where this one's is frozen, or not.

    Args:
      output_dir: folder of the run, with or without checkpoints.
      is_frozen: whether this run's encoder is frozen.

    Raises:
      file_io.InputError: names the parameter, and the checkpoint that says otherwise.
    """
    last = checkpoints.numbered(output_dir)[-1:]
    if not last:
        return
    state = filter(optimization.is_state, checkpoints.reader(last[0]).get_variable_to_shape_map())
    slots = [name for name in state if name != optimization.STEP]
    was_frozen = not any(name.startswith(checkpoints.ENCODER_PREFIX) for name in slots)
    if slots and was_frozen != is_frozen:
        how, here = ("frozen", "trained") if was_frozen else ("trained", "frozen")
        raise file_io.InputError(
            f"cannot resume from {last[0]}: its encoder was {how}, that of this run is to be "
            f"{here} (freeze_encoder={is_frozen}). Use another output_dir and name this one's "
            "checkpoint as init_checkpoint"
        )
