"""Runs the program `albert` as `python -m albert`."""

import sys

from albert.cli import commands

if __name__ == "__main__":
    sys.exit(commands.main())
