"""Checks ``run.json`` and ``metrics.jsonl`` of a finished run of any script."""

import numpy as np

from albert.training import run_record
from tests.support import builders


def check_record(folder, script, *roles):
    """Checks what a run has told that trained and evaluated, against its other files.

    Args:
      folder: output folder.
      script: name of the script that has trained.
      *roles: names of its inputs.

    Returns:
      The record.
    """
    record = run_record.read(str(folder))
    assert (record["script"], record["status"]) == (script, run_record.DONE)
    assert record["flags"]["output_dir"]["value"] == str(folder)
    assert set(record["inputs"]) == set(roles)
    for entry in record["inputs"].values():
        assert len(entry["sha256"]) == 64 and entry["bytes"] > 0
    assert 0 < record["parameters"]["trained"] <= record["parameters"]["total"]
    session = record["sessions"][0]
    assert (session["status"], session["first_step"]) == (run_record.DONE, 0)
    rows = run_record.read_metrics(str(folder))
    steps = {kind: [r["step"] for r in rows if r["kind"] == kind] for kind in ("train", "eval")}
    for found in steps.values():
        assert found and found == sorted(set(found))
    assert session["last_step"] == steps["train"][-1] == steps["eval"][-1]
    cost = run_record.read_cost(str(folder))
    assert cost.steps >= session["last_step"] and cost.examples > cost.steps
    assert cost.flop > cost.tokens > cost.examples
    assert cost.processor_seconds > 0 and cost.peak_memory > 1 << 26
    blocks = builders.read_results(folder)
    assert steps["eval"] == [int(block["global_step"]) for block in blocks]
    assert record["evaluated"] == len(blocks)
    best = max(blocks, key=lambda block: float(block[record["best_metric"]]))
    assert record["result"]["step"] == int(best["global_step"])
    for name, value in record["result"].items():
        if name in best:  # GLUE has no scores of classes there
            assert np.float32(value) == np.float32(best[name]), name
    return record
