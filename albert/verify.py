"""Checks that checkpoints, records, hub modules and exported models are as they were written."""

from absl import flags

from albert.cli import app
from albert.io import file_io


def define_flags(flag_values):
    """Flags of this script."""
    flags.DEFINE_string(
        "path",
        None,
        "What to check: a folder, with all folders in it, a checkpoint (prefix or file), or a file "
        "of records or weights.",
        flag_values=flag_values,
    )
    flags.mark_flag_as_required("path", flag_values=flag_values)


def main(values):
    from albert.export import verification

    damaged = unreadable = count = 0
    for item in verification.check(values.path):
        count += 1
        unreadable += item.is_unreadable
        damaged += bool(item.damage) and not item.is_unreadable
        wrong = "NOT READ" if item.is_unreadable else "DAMAGED"
        state = f"{wrong}: {item.damage}" if item.damage else "ok"
        print(f"{item.path} ({item.what}): {state}", flush=True)
    if unreadable:
        raise file_io.InputError(f"{damaged} of {count} are damaged, {unreadable} cannot be read")
    if damaged:
        raise file_io.InputError(f"{damaged} of {count} are damaged")
    print(f"{count} checked, none is damaged")


if __name__ == "__main__":
    app.run(main, define_flags)
