"""Turns a missing package into an error of one line that says what to install."""

import contextlib
from collections.abc import Iterator

from albert.io import file_io

# What the distribution `albert` requires in addition to `albert-light`: modules and their packages.
PACKAGES = {
    "safetensors": "safetensors>=0.4.3",
    "tensorboard": "tensorboard>=2.18",
    "tensorflow": "tensorflow>=2.18",
    "yaml": "pyyaml>=6.0",
}
# One of them is missing only where all are, and training needs them all.
_REMEDY = "pip install " + " ".join(f"'{package}'" for package in sorted(PACKAGES.values()))


def missing(error: BaseException) -> str | None:
    """Returns what to install after a failed import, in one line; None for any other error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    module = (name or "").split(".")[0]
    if module not in PACKAGES:
        return None
    return f"this needs {module}, which is not installed: {_REMEDY}"


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Makes imports inside say what to install if one of these packages is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if reason := missing(error):
            raise ModuleNotFoundError(reason, name=error.name) from None
        raise


@contextlib.contextmanager
def needed(message: str) -> Iterator[None]:
    """Makes imports of optional packages inside raise file_io.InputError if one is missing.

    The message says what needs the package, and how to install it; "{error}" becomes the error.
    """
    try:
        yield
    except ImportError as error:
        raise file_io.InputError(message.replace("{error}", str(error))) from error
