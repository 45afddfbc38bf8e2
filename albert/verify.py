"""Checks that checkpoints, records, hub modules and exported models are as they were written.

Example:

    albert verify --path=out/sst2
"""

import dataclasses

from absl import flags

from albert.cli import app, options, path_flags
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(options.Group):
    """The files to check."""

    path: str = options.flag(
        None,
        "Files to check: a folder with its subfolders, a checkpoint (prefix or file), or a file of "
        "records or weights.",
        required=True,
        path=path_flags.FOLDER,
    )


def define_flags(flag_values: flags.FlagValues) -> None:
    options.define(Settings, flag_values)


def main(values: flags.FlagValues) -> None:
    settings = options.read(Settings, values)
    from albert.export import verification

    damaged = unreadable = count = 0
    for item in verification.check(settings.path):
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
