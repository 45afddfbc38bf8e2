"""Flags that choose where data is made: on this machine, or with Apache Beam on many."""

import dataclasses
import shlex

from albert.cli import options
from albert.io import file_io


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runner(options.Group):
    """Flags for text processing: local processes, or a pipeline of Apache Beam."""

    section = options.DEVICES

    runner: str = options.flag(
        "local",
        "What processes the texts: processes of this machine, or Apache Beam (extra beam), also on "
        "many machines. The files are the same.",
        choices=("local", "beam"),
    )
    beam_args: str = options.flag(
        "",
        "Options of Beam's pipeline, as on a command line; by default Beam runs on this machine, "
        "with --num_workers processes.",
    )

    @property
    def is_beam(self) -> bool:
        return self.runner == "beam"

    def check(self) -> None:
        """Rejects Beam options with another runner."""
        if self.beam_args and not self.is_beam:
            raise file_io.InputError("--beam_args is for --runner=beam")

    def beam_arguments(self) -> list[str]:
        """Returns the options of Beam's pipeline, split as a shell does."""
        return shlex.split(self.beam_args)
