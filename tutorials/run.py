"""Runs the notebook of this folder and keeps what its cells print.

    python ../tutorials/run.py

In an empty folder, which then also holds `tutorial_output/`; takes a few minutes.
"""

import contextlib
import io
import json
import pathlib

NOTEBOOK = pathlib.Path(__file__).with_name("fine_tuning.ipynb")


def main() -> None:
    """Runs the cells in turn and writes the notebook."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        lines = printed.getvalue().splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] * bool(lines)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
