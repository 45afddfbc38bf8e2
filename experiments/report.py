"""Makes REPORT.md and report.html from the recorded results: claims of papers and what was found.

    python experiments/report.py

A claim without recorded runs says "not run", and one with a single seed "too few seeds". Other
verdicts are those of tests over seeds: "agrees", "differs" or "cannot be decided at this size".
"""

import argparse
import dataclasses
import json
import pathlib
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from albert.experiments import report as pages
from albert.experiments import statistics

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = HERE.parent / "docs" / "figures"
NOT_RUN, TOO_FEW = "not run", "too few seeds"
AGREES, DIFFERS, UNKNOWN = "agrees", "differs", "cannot be decided at this size"
# How the names of their accuracies end, also those of a head on the data of the other task.
_ACCURACIES = {"sop": "sentence_order_accuracy", "nsp": "next_sentence_accuracy"}


# --- records --------------------------------------------------------------------------------------


def read_records(results: pathlib.Path) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    """Reads {(study, run): {seed: record}}; failed runs are those with "failed".

    Folders of no study, such as the scores from weights of others, are left out.
    """
    records: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for path in sorted(results.glob("*/*.json")):
        if not (HERE / f"{path.parent.name}.json").exists():
            continue
        run, _, seed = path.stem.rpartition("-seed_")
        records.setdefault((path.parent.name, run), {})[int(seed)] = json.loads(path.read_text())
    return records


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
    values = {seed: measure(record) for seed, record in runs.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def task_scores(record: dict[str, Any], task: str) -> dict[int, float]:
    """Returns {seed of fine-tuning: score} of a task; only of those that finished."""
    part = record.get(f"task {task}")
    if not part:
        return {}
    values = {int(seed): scores.get(part["metric"]) for seed, scores in part["seeds"].items()}
    return {seed: value for seed, value in values.items() if value is not None}


def interval(scores: Iterable[float], digits: int = 3) -> str:
    """Formats a mean with its 95% interval and the number of scores; "not run" without scores."""
    values = list(scores)
    if not values:
        return NOT_RUN
    mean = statistics.mean_interval(values)
    text = f"{mean.estimate:.{digits}f}"
    if mean.low is not None and mean.high is not None:
        text += f" [{mean.low:.{digits}f}, {mean.high:.{digits}f}]"
    return f"{text} (n={mean.n})"


def compare(
    worse: dict[int, float], better: dict[int, float], minimize: bool = False
) -> tuple[str, str | None]:
    """Returns the difference of two groups of scores with its interval, and the better group.

    Args:
      worse, better: {seed: score}.
      minimize: whether lower is better.

    Returns:
      "not run" and None if a group has no score; None also if the seeds do not decide.
    """
    if not (worse and better):
        return NOT_RUN, None
    comparison = statistics.compare_seeds(
        worse, better, minimize=minimize, names=("worse", "better")
    )
    text = f"{comparison.difference:+.3f}"
    if comparison.low is not None and comparison.high is not None:
        text += f" [{comparison.low:+.3f}, {comparison.high:+.3f}]"
    return f"{text} (n={comparison.n_a}, {comparison.n_b})", comparison.better


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
        text, better = compare(*sides, minimize=self.minimize)
        if text == NOT_RUN:
            return NOT_RUN, NOT_RUN
        if min(map(len, sides)) < 2:
            return text, TOO_FEW
        return text, {"better": AGREES, "worse": DIFFERS}.get(better or "", UNKNOWN)


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
    Claim(f"sharing attention beats sharing feed-forward layers ({_LAN}, table 4)", "sharing",
          "attention-words", "ffn-words", loss, True),
    Claim("sharing nothing beats sharing all at equal time too (our question)", "sharing",
          "none-time", "all-time", loss, True),
    Claim(f"of two models of 2.3 million parameters, a wide one that shares all beats one that "
          f"shares nothing ({_LAN}, section 1)", "sharing", "all_wide-parameters", "none-words",
          loss, True),
    Claim(f"the same with 1.3 million parameters ({_LAN}, section 1)", "sharing", "all-words",
          "none_narrow-parameters", loss, True),
    Claim(f"where all is shared, E < H beats E = H ({_LAN}, table 3)", "ablations",
          "embedding_64", "base", loss, True),
    Claim(f"sentence order beats next sentence ({_LAN}, table 5)", "ablations", "task_sop",
          "task_nsp"),
    Claim(f"sentence order beats no sentence task ({_LAN}, table 5)", "ablations", "task_sop",
          "format_segment_pair"),
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
    Claim("averaged weights beat the last ones (Kaddour, 2022)", "ablations", "average", "base",
          loss, True),
    Claim("masks of 40% beat masks of 15% (Wettig et al., 2023)", "ablations", "masks_40", "base",
          loss, True),
    Claim("masked n-grams of up to 3 words beat single words (SpanBERT, Joshi et al., 2020)",
          "ablations", "ngram_3", "base"),
    Claim("Muon beats AdamW at the better of two rates (Jordan et al., 2024)", "ablations", "base",
          "adamw_batch_64", loss, True),
    Claim("LAMB, which is made for large batches, beats AdamW at 64 too (our question)",
          "ablations", "lamb_batch_64_rate_4e-3", "adamw_batch_64", loss, True),
    Claim("four times as many steps of a quarter of the batch are better (our question)",
          "ablations", "muon_batch_16", "base", loss, True),
)  # fmt: skip


# --- content --------------------------------------------------------------------------------------
# Sections are those of `albert.experiments.report`, and a block may also be a figure of FIGURES:
# {"figure": name, "caption": text}.

Section = tuple[str, list[dict[str, Any]]]


def study_sections(study: dict[str, Any], records: dict) -> list[Section]:
    """Returns the sections of a study: its runs, and its fine-tuning against random weights."""
    title = study["name"].replace("_", " ").capitalize()
    blocks = [{"paragraph": study["about"]}, _runs_table(study, records)]
    if _untrained(study) and (starts := _starts_table(study, records))["rows"]:
        blocks.append(starts)
    if (matrix := _sentence_tasks_table(study, records))["rows"]:
        blocks.append(matrix)
    figure = f"{study['name']}_study.svg"
    if (FIGURES / figure).exists():
        blocks.append({"figure": figure, "caption": study["figure"]})
    return [(title, blocks)]


def _untrained(study):
    """Returns the name of the run without pre-training; None without one."""
    return next((name for name, run in study["runs"].items() if run.get("untrained")), None)


def _runs_table(study, records):
    """Returns a row for each run with pre-training: its size, cost and scores."""
    untrained = _untrained(study)
    tasks = [] if untrained else list(study.get("tasks", {}))
    rows = []
    for name in study["runs"]:
        if name == untrained:
            continue
        runs = records.get((study["name"], name), {})
        failed = sum("failed" in record for record in runs.values())
        one = next((x["pretraining"] for x in runs.values() if "pretraining" in x), {})
        stages = [one, *filter(None, [one.get("first_stage")])]
        tokens = sum(stage["tokens"] for stage in stages) if one else None
        seconds = one.get("seconds")
        memory = max(stage.get("peak_memory") or 0 for stage in stages)
        cells = [interval(scores_of(runs, measure).values())
                 for measure in (loss, blimp, blimp_ties_right)]  # fmt: skip
        for task in tasks:
            scores_of_runs = [task_scores(record, task).values() for record in runs.values()]
            cells.append(interval(value for scores in scores_of_runs for value in scores))
        rows.append([
            name, _millions((one.get("parameters") or {}).get("total")),
            _millions(tokens),
            f"{seconds / one['steps']:.3f}" if seconds and one.get("steps") else "",
            f"{memory / 2**30:.2f}" if memory else "", _machine(one) if one else "",
            *cells, str(failed or ""),
        ])  # fmt: skip
    header = ["run", "parameters", "tokens", "s/step", "GiB", "machine of these", "held-out loss",
              "BLiMP", "BLiMP, ties right", *tasks, "failed"]  # fmt: skip
    return {"table": header, "rows": rows}


def _starts_table(study, records):
    """Returns a row for each run and task: scores from its weights and from random ones."""
    untrained = _untrained(study)
    baseline = next(iter(records.get((study["name"], untrained), {}).values()), {})
    rows = []
    for run in study["runs"]:
        for record in records.get((study["name"], run), {}).values():
            for task in study["tasks"]:
                ours, random = task_scores(record, task), task_scores(baseline, task)
                if ours and run != untrained:
                    metric = record[f"task {task}"]["metric"]
                    rows.append([run, task, metric, interval(ours.values()),
                                 interval(random.values()), compare(random, ours)[0]])  # fmt: skip
    header = ["run", "task", "metric", "from its weights", "from random weights", "difference"]
    return {"table": header, "rows": rows}


def _sentence_tasks_table(study, records):
    """Returns a row for each run with a sentence head: its accuracy on the data of each task."""
    rows = []
    for run in study["runs"]:
        tasks_of_seeds = [
            record["heldout"]["sentence_tasks"]
            for record in records.get((study["name"], run), {}).values()
            if record.get("heldout", {}).get("sentence_tasks")
        ]
        if tasks_of_seeds:
            cells = [
                interval(
                    value
                    for tasks in tasks_of_seeds
                    for name, value in tasks[task].items()
                    if name.endswith(_ACCURACIES[task])
                )
                for task in study["sentence_tasks"]
            ]
            rows.append([run, *cells])
    header = ["run", *(f"accuracy on {task} data" for task in study.get("sentence_tasks", ()))]
    return {"table": header, "rows": rows}


def _millions(number):
    return "" if number is None else f"{number / 1e6:.1f}M"


def _machine(pretraining):
    machine = pretraining["machine"]
    return f"{machine['processor']}, {machine['cores']} cores"


def machines(records: dict) -> list[str]:
    """Returns a line for each machine and commit of the records."""
    counts: dict[str, int] = {}
    for runs in records.values():
        for record in runs.values():
            part = record.get("pretraining")
            if part:
                text = f"{_machine(part)}; commit {part['commit']}"
                counts[text] = counts.get(text, 0) + 1
    return [f"{count} runs: {text}" for text, count in sorted(counts.items())] or [NOT_RUN]


def content(records: dict, studies: Iterable[dict[str, Any]]) -> list[Section]:
    """Returns the sections of the report.

    Args:
      records: see `read_records`.
      studies: contents of the studies' files, with their "name".
    """
    rows = [[claim.text, claim.study, *claim.judge(records)] for claim in CLAIMS]
    header = ["claim", "study", "difference and interval", "verdict"]
    return [
        ("Claims of the papers", [{"table": header, "rows": rows}]),
        *(section for study in studies for section in study_sections(study, records)),
        ("Machines", [{"paragraph": line} for line in machines(records)]),
    ]


# --- pages ----------------------------------------------------------------------------------------

TITLE = "What was found"
ABOUT = (
    "Made by experiments/report.py from experiments/results. Losses are those of single masked "
    "tokens (15%) on the reported halves of both held-out files; nothing was chosen on these. "
    "Brackets are 95% intervals over n seeds. Runs on different machines compare by steps and "
    "tokens only."
)


def to_markdown(sections: Iterable[Section]) -> str:
    """Returns the report as Markdown."""
    parts = [f"# {TITLE}", textwrap.fill(ABOUT, 100)]
    for title, blocks in sections:
        parts += [f"## {title}", *map(_markdown_block, blocks)]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block):
    if "figure" in block:
        return f"![{block['caption']}](../docs/figures/{block['figure']})"
    if "paragraph" in block:
        return textwrap.fill(block["paragraph"], 100, break_on_hyphens=False)
    lines = [block["table"], ["---"] * len(block["table"]), *block["rows"]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def to_html(sections: Iterable[Section]) -> str:
    """Returns the report as a page that loads nothing from elsewhere."""
    filled = [(title, [_html_block(block) for block in blocks]) for title, blocks in sections]
    return pages.render(TITLE, [{"paragraph": ABOUT}], filled)


def _html_block(block):
    if "figure" not in block:
        return block
    svg = (FIGURES / block["figure"]).read_text(encoding="utf-8")
    return {"figures": [(block["caption"], svg)], "wide": True}


def write(results: pathlib.Path, studies: Iterable[pathlib.Path], folder: pathlib.Path) -> None:
    """Writes REPORT.md and report.html of the recorded results.

    Args:
      results: folder of the records.
      studies: files of the studies.
      folder: where the reports are written.
    """
    contents = [{"name": path.stem, **json.loads(path.read_text())} for path in studies]
    sections = content(read_records(results), contents)
    (folder / "REPORT.md").write_text(to_markdown(sections), encoding="utf-8")
    (folder / "report.html").write_text(to_html(sections), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--output", type=pathlib.Path, default=HERE, help="folder of the reports")
    options = parser.parse_args()
    studies = [HERE / f"{name}.json" for name in ("two_hours", "sharing", "ablations")]
    write(options.results, studies, options.output)


if __name__ == "__main__":
    main()
