"""Runs the notebook of this folder and keeps what its cells print and draw.

    python ../tutorials/run.py

In an empty folder, which then also holds `tutorial_output/`; takes a few minutes.
"""

import contextlib
import io
import json
import pathlib
from typing import Any

NOTEBOOK = pathlib.Path(__file__).with_name("fine_tuning.ipynb")


def main() -> None:
    """Runs the cells in turn and writes the notebook."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    drawn: list[dict[str, Any]] = []

    def display(picture: Any) -> None:
        """Keeps a drawing, as the function of this name in notebooks does."""
        data = {"image/svg+xml": picture._repr_svg_().splitlines(keepends=True)}
        drawn.append({"data": data, "metadata": {}, "output_type": "display_data"})

    names: dict = {"display": display}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        lines = printed.getvalue().splitlines(keepends=True)
        cell["execution_count"] = number
        stream = {"name": "stdout", "output_type": "stream", "text": lines}
        cell["outputs"] = [*([stream] if lines else []), *drawn]
        drawn.clear()
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
