"""Makes REPORT.md from the recorded results: what the papers claim beside what was found.

    python experiments/report.py

A claim without recorded runs says "not run". Verdicts are those of tests over seeds: "agrees",
"differs" or "cannot be decided at this size".
"""

import argparse
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from albert.experiments import statistics

HERE = pathlib.Path(__file__).resolve().parent
NOT_RUN = "not run"
AGREES, DIFFERS, UNKNOWN = "agrees", "differs", "cannot be decided at this size"


# --- records --------------------------------------------------------------------------------------


def read_records(results: pathlib.Path) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    """Reads {(study, run): {seed: record}}; failed runs are those with "failed"."""
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for path in sorted(results.glob("*/*.json")):
        run, _, seed = path.stem.rpartition("-seed_")
        found.setdefault((path.parent.name, run), {})[int(seed)] = json.loads(path.read_text())
    return found


def loss(record: dict[str, Any]) -> float | None:
    """Returns the masked LM loss on the reported halves of the held-out files."""
    return record.get("heldout", {}).get("loss")


def blimp(record: dict[str, Any]) -> float | None:
    """Returns the accuracy on BLiMP, ties wrong."""
    return record.get("blimp", {}).get("overall", {}).get("accuracy")


def blimp_ties_right(record: dict[str, Any]) -> float | None:
    """Returns the accuracy on BLiMP, ties right."""
    return record.get("blimp", {}).get("overall", {}).get("accuracy_ties_right")


def scores_of(runs: dict[int, dict[str, Any]], measure: Callable) -> dict[int, float]:
    """Returns {seed: number} of the records that have it."""
    found = {seed: measure(record) for seed, record in runs.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def task_scores(record: dict[str, Any], task: str, start: str) -> list[float]:
    """Returns a task's score of each seed of fine-tuning that finished."""
    part = record.get(f"task {task}", {}).get(start)
    if not part:
        return []
    values = (seed.get(part["metric"]) for seed in part["seeds"].values())
    return [value for value in values if value is not None]


def interval(scores: Iterable[float], digits: int = 3) -> str:
    """Formats a mean with its 95% interval and the number of scores; "not run" without scores."""
    values = list(scores)
    if not values:
        return NOT_RUN
    found = statistics.mean_interval(values)
    text = f"{found.estimate:.{digits}f}"
    if found.low is not None and found.high is not None:
        text += f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
    return f"{text} (n={found.n})"


# --- claims ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper about two runs of a study.

    Attributes:
      text: the claim with its source.
      study: name of the study.
      better, worse: runs of which the paper finds the first better than the second.
      measure: function of a record; None of it: not known.
      minimize: whether lower is better.
    """

    text: str
    study: str
    better: str
    worse: str
    measure: Callable = blimp
    minimize: bool = False

    def judge(self, records: dict) -> tuple[str, str]:
        """Returns the difference with its interval, and the verdict."""
        sides = [
            scores_of(records.get((self.study, name), {}), self.measure)
            for name in (self.worse, self.better)
        ]
        if not all(sides):
            return NOT_RUN, NOT_RUN
        found = statistics.compare_seeds(*sides, minimize=self.minimize, names=("worse", "better"))
        text = f"{found.difference:+.3f}"
        if found.low is not None and found.high is not None:
            text += f" [{found.low:+.3f}, {found.high:+.3f}]"
        verdict = {"better": AGREES, "worse": DIFFERS}.get(found.better or "", UNKNOWN)
        return f"{text} (n={found.n_a}, {found.n_b})", verdict


_LIU = "RoBERTa, Liu et al., 2019, section 4"
_LAN = "ALBERT, Lan et al., 2020"
_SANH = "DistilBERT, Sanh et al., 2019, table 4"
CLAIMS = (
    Claim(f"sharing nothing beats sharing all ({_LAN}, table 4)", "sharing", "none-words",
          "all-words", loss, True),
    Claim(f"sharing attention only beats sharing all ({_LAN}, table 4)", "sharing",
          "attention-words", "all-words", loss, True),
    Claim(f"sharing feed-forward only beats sharing all ({_LAN}, table 4)", "sharing", "ffn-words",
          "all-words", loss, True),
    Claim(f"E = 128 beats E = 64 where all is shared ({_LAN}, table 3)", "ablations", "base",
          "embedding_64", loss, True),
    Claim(f"E = 128 beats E = H where all is shared ({_LAN}, table 3)", "ablations", "base",
          "embedding_256", loss, True),
    Claim(f"sentence order beats next sentence ({_LAN}, table 5)", "ablations", "task_sop",
          "task_nsp"),
    Claim(f"sentence order beats no sentence task ({_LAN}, table 5)", "ablations", "task_sop",
          "task_none_segment_pair"),
    Claim(f"no next-sentence loss beats it, on inputs of full sentences ({_LIU}.2)", "ablations",
          "base", "task_nsp", loss, True),
    Claim(f"full sentences beat single sentences ({_LIU}.2)", "ablations", "base",
          "format_sentence_pair", loss, True),
    Claim(f"sentences of one document beat those of several ({_LIU}.2)", "ablations",
          "format_doc_sentences", "base", loss, True),
    Claim(f"masks drawn at every step beat stored ones ({_LIU}.1)", "ablations", "base",
          "masks_stored", loss, True),
    Claim(f"a student that starts as a copy beats a random start ({_SANH})", "ablations",
          "student_copy", "student_random", loss, True),
    Claim(f"the loss against the teacher matters ({_SANH})", "ablations", "student_copy",
          "student_without_teacher", loss, True),
    Claim(f"the cosine loss matters ({_SANH})", "ablations", "student_copy",
          "student_without_cosine", loss, True),
    Claim(f"the masked LM loss of the student matters little but helps ({_SANH})", "ablations",
          "student_copy", "student_without_masked_lm", loss, True),
    Claim("averaged weights beat the last ones (Kaddour, 2022)", "ablations", "base", "no_average",
          loss, True),
)  # fmt: skip


# --- pages ----------------------------------------------------------------------------------------


def table(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    """Returns the lines of a table in Markdown."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def claims_table(records: dict) -> list[str]:
    """Returns the table of `CLAIMS`."""
    rows = [[claim.text, claim.study, *claim.judge(records)] for claim in CLAIMS]
    return table(["claim", "study", "difference and interval", "verdict"], rows)


def study_table(study: dict[str, Any], records: dict) -> list[str]:
    """Returns the table of all runs of a study."""
    tasks = list(study.get("tasks", {}))
    starts = ["pretrained", *(["random"] if study.get("random_weights") else [])]
    columns = [(task, start) for task in tasks for start in starts]
    rows = []
    for name in study["runs"]:
        runs = records.get((study["name"], name), {})
        failed = sum("failed" in record for record in runs.values())
        first = next((x["pretraining"] for x in runs.values() if "pretraining" in x), {})
        sizes = [_count((first.get("parameters") or {}).get("total")), _count(first.get("tokens"))]
        seconds = first.get("seconds")
        step = f"{seconds / first['steps']:.3f}" if seconds and first.get("steps") else ""
        memory = first.get("peak_memory")
        cells = [interval(scores_of(runs, measure).values())
                 for measure in (loss, blimp, blimp_ties_right)]  # fmt: skip
        for task, start in columns:
            scores = (task_scores(record, task, start) for record in runs.values())
            cells.append(interval(value for found in scores for value in found))
        rows.append([name, *sizes, step, f"{memory / 2**30:.2f}" if memory else "", *cells,
                     str(failed or "")])  # fmt: skip
    header = ["run", "parameters", "tokens", "s/step", "GiB", "held-out loss", "BLiMP",
              "BLiMP, ties right", *(_title(*pair) for pair in columns), "failed"]  # fmt: skip
    return table(header, rows)


def _title(task, start):
    return task if start == "pretrained" else f"{task}, random weights"


def _count(number):
    return "" if number is None else f"{number / 1e6:.1f}M"


def machines(records: dict) -> list[str]:
    """Returns a line for each machine and commit of the records."""
    found: dict[str, int] = {}
    for runs in records.values():
        for record in runs.values():
            part = record.get("pretraining")
            if part:
                machine = part["machine"]
                text = f"{machine['processor']}, {machine['cores']} cores; commit {part['commit']}"
                found[text] = found.get(text, 0) + 1
    return [f"- {count} runs: {text}" for text, count in sorted(found.items())] or [f"- {NOT_RUN}"]


def write(results: pathlib.Path, studies: Iterable[pathlib.Path], target: pathlib.Path) -> None:
    """Writes the report of the recorded results.

    Args:
      results: folder of the records.
      studies: files of the studies.
      target: the report.
    """
    records = read_records(results)
    lines = [
        "# What was found", "",
        "Made by `experiments/report.py` from `experiments/results`. Losses are those of single",
        "masked tokens (15%) on the reported halves of both held-out files; nothing was chosen on",
        "these. Brackets are 95% intervals over n seeds. Runs on different machines compare by",
        "steps and tokens only.", "",
        "## Claims of the papers", "", *claims_table(records), "",
    ]  # fmt: skip
    for path in studies:
        study = {"name": path.stem, **json.loads(path.read_text())}
        title = path.stem.replace("_", " ").capitalize()
        lines += [f"## {title}", "", study["about"], "", *study_table(study, records), ""]
    lines += ["## Machines", "", *machines(records)]
    target.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "REPORT.md")
    given = parser.parse_args()
    studies = [HERE / f"{name}.json" for name in ("two_hours", "sharing", "ablations")]
    write(given.results, studies, given.output)


if __name__ == "__main__":
    main()
