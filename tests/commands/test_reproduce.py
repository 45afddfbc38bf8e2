"""A tiny run, done again by the command that its folder describes."""

import json
import sys

import pytest

from albert import reproduce, run_classifier
from albert.training import run_record
from tests.support import builders, forked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Output folder of a run that was resumed once, and evaluated again afterwards."""
    inputs = tmp_path_factory.mktemp("inputs")
    builders.write_glue(inputs)
    flags = builders.glue_flags(
        inputs, inputs / "out", do_eval=True, from_scratch=True, log_every_steps=5
    )
    for steps in (10, 20):
        builders.run(run_classifier, **{**flags, "do_train": True, "train_step": steps})
    del flags["from_scratch"]
    builders.run(run_classifier, **{**flags, "checkpoint": "last"})
    return inputs / "out"


def test_a_run_can_be_done_again(trained, tmp_path, run_script, capfd, monkeypatch):
    monkeypatch.setattr(sys, "executable", forked.python())
    record = run_record.read(str(trained))
    assert [s["stages"] for s in record["sessions"]] == [["train", "eval"]] * 2 + [["eval"]]
    assert record["sessions"][1]["changed"] == {"flags.train_step": {"before": 10, "after": 20}}
    rows = run_record.read_metrics(str(trained))
    keys = [(row["kind"], row["step"]) for row in rows]
    assert sorted(keys) == [
        *[("eval", step) for step in (0, 10, 20)], *[("train", step) for step in (5, 10, 15, 20)],
    ]  # fmt: skip
    # The schedule of the first part ended at step 10: done in one go the results are others.
    with pytest.raises(SystemExit):
        run_script(reproduce, run=trained, output_dir=tmp_path / "again")
    printed = capfd.readouterr().out
    assert "not the same around them: flags.train_step: 10, from step 10 on 20\n" in printed
    assert "different: training: " in printed
    # What was done in one go is done in one go again, with the same results, bit for bit.
    run_script(reproduce, run=tmp_path / "again", output_dir=tmp_path / "twice")
    printed = capfd.readouterr().out
    assert "equal: training: 4 lines\n" in printed and "equal: evaluation: 3 lines\n" in printed
    assert "different" not in printed
    found = [json.loads((tmp_path / n / "run.json").read_text()) for n in ("again", "twice")]
    assert found[0]["result"] == found[1]["result"]
    assert found[0]["flags"]["train_step"] == {"value": 20, "source": "command line"}
