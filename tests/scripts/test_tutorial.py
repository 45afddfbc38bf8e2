"""The notebook in `tutorials/` runs from its first cell to its last and shows what it says."""

import ast
import json
import os
import re

import pytest

from tests.support import forked, graphs, processes
from tests.support.sources import MODULES, ROOT

NOTEBOOK = json.loads((ROOT / "tutorials" / "fine_tuning.ipynb").read_text(encoding="utf-8"))


def code_cells():
    return ["".join(c["source"]) for c in NOTEBOOK["cells"] if c["cell_type"] == "code"]


def printed():
    """The output that the notebook was stored with."""
    outputs = [output for cell in NOTEBOOK["cells"] for output in cell.get("outputs", [])]
    streams = [output for output in outputs if output["output_type"] == "stream"]
    return "".join("".join(output["text"]) for output in streams)


def test_the_notebook_has_the_form_of_one():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in NOTEBOOK["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        assert all(len(line) <= 100 for line in "".join(cell["source"]).splitlines())
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert len(cells) >= 6


def test_it_is_plain_python_that_runs_scripts_of_the_project():
    called = []
    for cell in code_cells():
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "albert":
                called.append(node.args[0].value)
    expected = {"make_demo_data", "run_classifier", "run_sweep", "report"}
    assert expected <= set(called) <= set(MODULES)


def check_rates(shown):
    """The sweep's table teaches the rate that the tutorial trains with."""
    rows = [line.split("|")[1:-1] for line in shown.splitlines() if line.startswith("| trial")]
    header, best, other = [[cell.strip() for cell in row] for row in rows[-3:]]
    assert header[1] == "learning_rate" and header[2].startswith("eval_accuracy (dev, best of 3")
    assert (best[1], other[1]) == ("0.0005", "1e-05")
    assert float(best[2]) > 0.75 and float(other[2]) < 0.65
    assert best[3] == "done; not judged" and other[3].startswith("done; ")


def check_trust(shown):
    """All labels are found, and a part of the texts is answered."""
    rows = [line.split() for line in shown.splitlines() if line.startswith("  ")]
    scores = {row[0]: float(row[3]) for row in rows if row[0] in ("complaint", "praise", "denial")}
    assert len(scores) == 3 and min(scores.values()) > 0.3
    assert "Calibration on" in shown and "temperature" in shown
    assert re.search(r"At most 10.00% errors .*the model answers where", shown)


def check_output(shown):
    accuracy = re.search(r"best: step \d+, accuracy ([\d.]+)", shown)
    assert accuracy and float(accuracy.group(1)) > 0.9, shown
    check_rates(shown)
    check_trust(shown)
    good, bad = shown.splitlines()[-2:]
    assert re.fullmatch(r"1  [\d.]+  The happy cook tasted the splendid soup.", good)
    assert re.fullmatch(r"0  [\d.]+  The bread was awful.", bad)


def test_the_stored_output_is_what_the_text_says():
    """`tutorials/run.py` stores it."""
    check_output(printed())
    outputs = [output for cell in NOTEBOOK["cells"] for output in cell.get("outputs", [])]
    pictures = [output["data"]["image/svg+xml"] for output in outputs if "data" in output]
    assert ["Confusion" in "".join(svg) for svg in pictures] == [False, True]


@pytest.mark.slow(30)
def test_it_runs_to_its_end(tmp_path):
    pytest.importorskip("matplotlib")
    start = f"import sys\nsys.executable = {forked.python()!r}\nDRAWN = []\n"
    start += "display = lambda picture: DRAWN.append(picture._repr_svg_())"
    end = "assert len(DRAWN) == 2, len(DRAWN)"
    result = processes.run(
        [forked.python(), "-c", "\n\n".join([start, *code_cells(), end])],
        cwd=tmp_path,
        env={
            **os.environ,
            graphs.VARIABLE: "",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
    )
    assert result.returncode == 0, result.stderr
    check_output(result.stdout)
    assert (tmp_path / "tutorial_output" / "report.html").stat().st_size > 10_000
