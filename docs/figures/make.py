"""Writes every drawing of this folder next to its script: `python docs/figures/make.py`."""

import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
DRAWINGS = """
    badges pipeline sharing input_formats run_life loss speed training_log two_hours_study
    sharing_study ablations_study
""".split()


def drawings() -> dict[str, str]:
    """Returns the text of each SVG file by its name."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return {f"{name}.svg": importlib.import_module(name).draw() for name in DRAWINGS}


if __name__ == "__main__":
    for file, text in drawings().items():
        (HERE / file).write_text(text, encoding="utf-8")
