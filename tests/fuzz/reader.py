"""Readers: samples that are accepted, and a function that reads a changed copy."""

import dataclasses
import json
import os
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of one kind of file.

    Attributes:
      name: what the file is called.
      samples: list of contents that are read without an error.
      read: ``(path)``; reads the file there, which may have others next to it, as deep as the
        toolkit does. What it returns does not matter.
      siblings: {name: content} of files in the same folder.
      forge: ``(rng, sample) -> content``; a sample with other values inside its form, such as
        headers of an archive, whose checksums are right. None: there is no such form.
    """

    name: str
    samples: list
    read: Callable
    siblings: dict = dataclasses.field(default_factory=dict)
    forge: Callable | None = None


def to_json(*values):
    return [json.dumps(value, indent=2).encode() for value in values]


def content_of(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def folder_of(path):
    return os.path.dirname(path)
