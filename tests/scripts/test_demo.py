"""The demo: its table, its failures, and once in earnest."""

import os
import re
import subprocess

import pytest

from tests.support import forked, graphs, processes
from tests.support.processes import interrupt
from tests.support.sources import ROOT


@pytest.mark.slow(60)
def test_demo(tmp_path):
    """From nothing to scores clearly above chance; the program of python.md then uses the model.

    First, as pytest-xdist gives a process its next file when two tests are left of one: after the
    longest test, that file would have to wait.
    """
    folder = tmp_path / "demo_output"
    result = processes.run(
        [str(ROOT / "run_demo.sh"), "--from_nothing"],
        env={
            **os.environ,
            graphs.VARIABLE: "",
            "PYTHON": forked.python(),
            "DEMO_DIR": str(folder),
        },
        timeout=900,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("   ok\n") == 6
    (answer,) = re.findall(r"^ [01]\.\d+  (.*?)  \(line 1", result.stdout, re.M)
    assert answer == "kitchen"
    (exported,) = (folder / "export").iterdir()
    assert (exported / "saved_model.pb").exists()
    for task in ("SST-2", "RTE", "STS-B"):
        assert len((folder / task / "submit_results.tsv").read_text().splitlines()) == 101
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    result = processes.run(
        [forked.python(), "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    (positive,) = re.findall(r"'1': np.float32\(([\d.]+)\)", result.stdout)
    assert float(positive) > 0.9


@pytest.mark.slow(30)
def test_demo_of_own_texts(tmp_path):
    """From the shipped model and messages to scores, topics and a report."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    environment = {**os.environ, "PYTHON": forked.python(), "DEMO_DIR": str(tmp_path)}
    result = processes.run([str(ROOT / "run_demo.sh")], env=environment, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^topic: accuracy +(?:0\.[789]\d+|1\.000) .* ok$", result.stdout, re.M)
    assert len(re.findall(r"^  \w+ +[4-8] of 8 found, predicted", result.stdout, re.M)) == 4
    assert "  payment   You took forty dollars from my card" in result.stdout
    assert (tmp_path / "topics.html").stat().st_size > 10_000


# Stands in for the interpreter: writes the result files that the table is made of.
FAKE = """#!/bin/bash
for flag in "$@"; do
  case $flag in --output_dir=*) out=${{flag#*=}} ;; --task_name=*) task=${{flag#*=}} ;; esac
done
case $2 in
  albert.make_demo_data)
    mkdir -p "$out/glue/SST-2"
    printf 'index\\tsentence\\n0\\tA.\\n1\\tB.\\n2\\tC.\\n' >"$out/glue/SST-2/test.tsv" ;;
  albert.train_vocab) [[ '{trouble}' != fail ]] || {{ echo 'error: no text'; exit 1; }} ;;
  albert.run_pretraining)
    if [[ '{trouble}' == sleep ]]; then echo $$ >"{folder}/running"; sleep 60; fi
    printf '800:800:0.4' >"$out/best_trial.txt"
    printf 'sentence_order_accuracy = 0.1\\nsentence_order_accuracy = 0.9\\n' \\
      >"$out/eval_results.txt" ;;
  albert.run_classifier)
    mkdir -p "$out"
    printf 'index\\tprediction\\n0\\t1\\n1\\t0\\n2\\t1\\n' >"$out/submit_results.tsv"
    score=0.95; [[ $task != RTE ]] || score={rte}
    printf '300:200:%s' "$score" >"$out/best_trial.txt" ;;
  albert.run_squad_v1)
    mkdir -p "$out"
    printf '225:225:75.5' >"$out/best_trial.txt" ;;
  albert.ask) printf ' 0.875  kitchen  (line 1, characters 0 to 7)\\n' ;;
esac
"""


def _start(folder, trouble="", rte="0.95"):
    python = folder / "python"
    python.write_text(FAKE.format(folder=folder, trouble=trouble, rte=rte))
    python.chmod(0o755)
    return subprocess.Popen(
        [str(ROOT / "run_demo.sh"), "--from_nothing"],
        env={"PATH": os.environ["PATH"], "PYTHON": str(python), "DEMO_DIR": str(folder / "out")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_scores_are_shown(tmp_path):
    process = _start(tmp_path)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for name, score in (
        ("pre-training: masked words", "0.400"),
        ("pre-training: sentence order", "0.900"),
        ("SST-2: accuracy", "0.950"),
        ("RTE: accuracy", "0.950"),
        ("STS-B: Pearson correlation", "0.950"),
        ("SQuAD: F1, percent", "75.500"),
    ):
        assert re.search(rf"^{name} +{score} .* ok$", output, re.M), name
    assert "1\tA.\n0\tB.\n1\tC.\n" in output
    assert re.search(r'^Asked "Where was it\?" of "At dawn.*":\n 0.875  kitchen ', output, re.M)
    assert output.count(" s\n") >= 10


def test_a_score_near_chance_is_a_failure(tmp_path):
    process = _start(tmp_path, rte="0.55")
    output, _ = process.communicate()
    assert process.returncode == 1
    assert re.search(r"^RTE: accuracy +0.550 +0.50 +0.80 +too low$", output, re.M)
    assert output.count("too low") == 1


def test_a_step_that_fails_ends_the_demo_with_its_log(tmp_path):
    process = _start(tmp_path, trouble="fail")
    output, _ = process.communicate()
    assert process.returncode == 1
    assert re.search(
        r"Training a vocabulary \.\.\. failed; the end of \S+2\.log:\nerror: no text\n$", output
    )


@pytest.mark.slow
def test_ctrl_c_stops_at_once(tmp_path):
    process = _start(tmp_path, trouble="sleep")
    output = interrupt(process, tmp_path / "running")
    assert "interrupted; the same command resumes here" in output
