"""Whether checkpoints are whole, and which one a run goes on from."""

import os

from absl import logging

from albert import checkpoint_manifest, checkpoints, file_io


def damage_of(prefix, renew=False):
    """What is wrong with a checkpoint; None if every byte and every value is as it was saved.

    Its files are compared with its manifest, if it has one, and each value with its checksum. Of
    files that another program has put in the place of ours, the checksums count.

    Args:
      prefix: of the checkpoint.
      renew: make the manifest of such files again.

    Raises:
      file_io.UnreadableError: nobody knows, as a file cannot be read.
    """
    problem = checkpoint_manifest.misfit(prefix)
    if not problem:
        return checkpoints.damage_of_values(prefix)
    if not checkpoints.is_replaced(prefix):
        return problem
    if renew:
        checkpoints.renew_manifest(prefix)
    return None


def last_whole(folder):
    """The last numbered checkpoint of a folder that is whole, to go on from; None without any.

    Damaged ones behind it are set aside under other names, with a line that says what is wrong and
    which steps have to be taken again.

    Args:
      folder: output folder.

    Raises:
      file_io.InputError: there are checkpoints, and none is whole; or one cannot be read, which
        does not mean that it is damaged.
    """
    damaged = {}
    # Without data either it was deleted, or moved by another program: nothing is lost.
    lost = filter(checkpoint_manifest.parts, checkpoints.without_index(folder))
    found = [*checkpoints.numbered(folder), *lost]
    for prefix in sorted(found, key=checkpoints.step_of, reverse=True):
        damage = damage_of(prefix, renew=True)
        if damage is None:
            _set_aside(damaged, prefix)
            return prefix
        damaged[prefix] = damage
    if damaged:
        raise file_io.InputError(
            f"{folder} has no checkpoint to go on from that is whole: "
            f"{'; '.join(damaged.values())}. To start anew, move them away or use another "
            "output_dir"
        )
    return None


def _set_aside(damaged, whole):
    for prefix, damage in damaged.items():
        first, last = checkpoints.step_of(whole) + 1, checkpoints.step_of(prefix)
        checkpoint_manifest.set_aside(prefix)
        logging.error(
            "The checkpoint %s is damaged: %s. It is not used, its files are now %s.*%s. Going on "
            "from %s: steps %d to %d are taken again",
            prefix,
            damage,
            prefix,
            checkpoint_manifest.ASIDE,
            whole,
            first,
            last,
        )
    if damaged:
        checkpoints.update_pointer(os.path.dirname(whole))
