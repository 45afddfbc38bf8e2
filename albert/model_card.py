"""Model cards: a README.md beside exported weights, with the front matter of the Hugging Face Hub.

Front matter: https://huggingface.co/docs/hub/model-cards. It says only what is known: from the
``run.json`` of the model's folder and from the user. Text is quoted as in JSON, which YAML reads.
"""

import dataclasses
import hashlib
import json
import os
import re

from absl import logging

from albert import file_io, run_record

NAME = "README.md"


@dataclasses.dataclass(frozen=True)
class Said:
    """What only the user knows; None where nothing was said.

    Attributes:
      license: name of a licence, as the Hub has them.
      base_model: name on the Hub of the model that this one was made from.
      language: code of the language, such as "en".
    """

    license: str | None = None
    base_model: str | None = None
    language: str | None = None


@dataclasses.dataclass(frozen=True)
class Form:
    """What a model is written as.

    Attributes:
      program: name of the program that loads it.
      use: how, in Markdown.
      kind: what it does, a `pipeline_tag` of the Hub; None: what the run's script says.
    """

    program: str
    use: str
    kind: str | None = None


# Head of `huggingface` -> kind on the Hub, class of transformers.
_HEADS = {
    "encoder": ("feature-extraction", "AutoModel"),
    "pretraining": ("fill-mask", "AutoModelForPreTraining"),
    "masked_lm": ("fill-mask", "AutoModelForMaskedLM"),
    "classification": ("text-classification", "AutoModelForSequenceClassification"),
    "regression": ("text-classification", "AutoModelForSequenceClassification"),
    "multiple_choice": ("multiple-choice", "AutoModelForMultipleChoice"),
    "token_classification": ("token-classification", "AutoModelForTokenClassification"),
    "squad_v1": ("question-answering", "AutoModelForQuestionAnswering"),
}
_KINDS = {
    "run_classifier": "text-classification",
    "run_race": "multiple-choice",
    "run_token_classifier": "token-classification",
    "run_squad_v1": "question-answering",
    "run_squad_v2": "question-answering",
    "run_pretraining": "fill-mask",
}
# Published data by the name of the task: id on the Hub, configuration, title.
_DATASETS = {
    "race": ("ehovy/race", "all", "RACE"),
    "mnli": ("nyu-mll/glue", "mnli_matched", "GLUE MNLI"),
    "mismnli": ("nyu-mll/glue", "mnli_mismatched", "GLUE MNLI, mismatched"),
    **{
        title.lower(): ("nyu-mll/glue", title.lower().replace("-", ""), f"GLUE {title}")
        for title in ("CoLA", "MRPC", "RTE", "SST-2", "STS-B", "QQP", "QNLI", "WNLI")
    },
}
# SQuAD is recognized by the names of its files: own questions come in the same form.
_SQUAD_FILE = re.compile(r"(train|dev)-v(1\.1|2\.0)\.json")
_SQUAD = {
    "1.1": ("rajpurkar/squad", "plain_text", "SQuAD 1.1"),
    "2.0": ("rajpurkar/squad_v2", "squad_v2", "SQuAD 2.0"),
}
# Scores that the Hub has names for.
_METRICS = {
    "eval_accuracy": "accuracy",
    "masked_lm_accuracy": "accuracy",
    "sentence_order_accuracy": "accuracy",
    "next_sentence_accuracy": "accuracy",
    "f1": "f1",
    "exact": "exact_match",
    "exact_match": "exact_match",
    "matthew_corr": "matthews_correlation",
    "pearson": "pearson",
    "spearman": "spearmanr",
}
_RELEASED = re.compile(r"albert[_-](base|large|xlarge|xxlarge)[_-]v([12])", re.I)


def transformers_form(head):
    """`Form` of a Hugging Face folder, by the head that it was written with."""
    kind, name = _HEADS[head]
    use = (
        f"```python\nfrom transformers import AutoTokenizer, {name}\n\n"
        f'folder = "…"\ntokenizer = AutoTokenizer.from_pretrained(folder)\n'
        f"model = {name}.from_pretrained(folder)\n```"
    )
    return Form("transformers", use, kind)


def write(folder, run_folder, form, step, said):
    """Writes the card of a model, unless the folder has a README.md of somebody else.

    A card that was changed since it was written counts as somebody's own.

    Args:
      folder: where the model has been written.
      run_folder: where its checkpoint lies.
      form: `Form`.
      step: the checkpoint's step, or None.
      said: `Said`.

    Returns:
      Whether it was written.

    Raises:
      file_io.InputError: it cannot be written.
    """
    path = os.path.join(folder, NAME)
    if file_io.exists(path) and not _is_ours(file_io.read_text(path, "model card")):
        logging.warning("%s is kept: it was not written here, or was changed since", path)
        return False
    record, scores = _read_run(run_folder, step)
    name = os.path.basename(os.path.abspath(folder))
    front = front_matter(name, form, record, scores, said)
    text = f"---\n{to_yaml(front)}---\n\n{_body(name, form, record, scores, step, said)}"
    file_io.write_text(path, f"{text}\n{_mark(text)}\n")
    logging.info("Wrote %s", path)
    return True


def _mark(text):
    digest = hashlib.sha256(text.strip().encode()).hexdigest()[:16]
    return f"<!-- written by albert, {digest} -->"


def _is_ours(text):
    text, _, mark = text.rstrip().rpartition("\n")
    return mark == _mark(text)


def _read_run(folder, step):
    """The record of a folder, {} without a usable one, and the scores of a step's checkpoint."""
    if not file_io.exists(os.path.join(folder, run_record.RUN)):
        return {}, {}
    try:
        record = run_record.read(folder)
        rows = run_record.read_metrics(folder)
    except file_io.InputError as error:
        logging.warning("The model card does not tell of the training: %s", error)
        return {}, {}
    found = [r for r in rows if r["kind"] == run_record.EVAL and step in (r["step"], None)]
    result = record["result"] or {}
    if found and step is not None:
        return record, {k: v for k, v in found[-1].items() if k not in ("kind", "checkpoint")}
    return record, result if step in (result.get("step"), None) else {}


# --- front matter -------------------------------------------------------------------------------


def front_matter(name, form, record, scores, said):
    """Dict of what the Hub reads.

    Args:
      name: name of the model.
      form, said: as of `write`.
      record: dict of ``run.json``, or {}.
      scores: {name: number}, with "step", or {}.
    """
    kind = form.kind or _KINDS.get(record.get("script"))
    trained, evaluated = (_dataset(record, split) for split in ("train_data", "eval_data"))
    ids = sorted({data["type"] for data in (trained, evaluated) if data and "/" in data["type"]})
    results = [
        {"type": _METRICS[key], "value": value, "name": key}
        for key, value in sorted(scores.items())
        if key in _METRICS and value is not None
    ]
    front = {
        "license": said.license,
        "language": said.language or ("en" if ids else None),
        "library_name": form.program,
        "pipeline_tag": kind if form.program == "transformers" else None,
        "tags": ["albert", *([kind] if kind and form.program != "transformers" else [])],
        "datasets": ids,
        "metrics": sorted({entry["type"] for entry in results}),
        "base_model": said.base_model or _released(record),
    }
    if results and kind and evaluated:
        result = {"task": {"type": kind}, "dataset": evaluated, "metrics": results}
        front["model-index"] = [{"name": name, "results": [result]}]
    return {key: value for key, value in front.items() if value}


def _dataset(record, role):
    """{"name", "type", …} of an input of a run; None where it is not known."""
    entry = record.get("inputs", {}).get(role)
    if entry is None:
        return None
    name = os.path.basename(entry["path"].rstrip("/"))
    squad = _SQUAD_FILE.fullmatch(name) if record["script"].startswith("run_squad") else None
    known = _SQUAD[squad.group(2)] if squad else _DATASETS.get(record.get("task"))
    if known is None:
        return {"name": name, "type": "own"}
    split = "train" if role == "train_data" else "validation"
    return {"name": known[2], "type": known[0], "config": known[1], "split": split}


def _released(record):
    """Name on the Hub of the released model that a run has started from, by its folder's name."""
    path = record.get("inputs", {}).get("init_checkpoint", {}).get("path", "")
    for part in reversed(path.split("/")):
        if found := _RELEASED.fullmatch(part):
            return f"albert/albert-{found.group(1).lower()}-v{found.group(2)}"
    return None


def to_yaml(value, indent=0):
    """A dict of texts, numbers, lists and dicts as YAML; scalars are written as in JSON."""
    lines = []
    for key, part in value.items():
        lines += _lines_of_yaml(f"{key}:", part, indent)
    return "".join(f"{line}\n" for line in lines)


def _lines_of_yaml(head, value, indent):
    start = " " * indent + head
    if isinstance(value, dict):
        inner = [_lines_of_yaml(f"{key}:", part, indent + 2) for key, part in value.items()]
        return [start, *(line for lines in inner for line in lines)]
    if isinstance(value, list):
        lines = [start]
        for item in value:
            if isinstance(item, dict):
                inner = to_yaml(item, indent + 2).splitlines()
                lines += [" " * indent + "- " + inner[0].lstrip(), *inner[1:]]
            else:
                lines.append(" " * indent + "- " + json.dumps(item, ensure_ascii=False))
        return lines
    return [f"{start} {json.dumps(value, ensure_ascii=False)}"]


# --- text ---------------------------------------------------------------------------------------


def _body(name, form, record, scores, step, said):
    parts = [f"# {name}", _introduction(record, said), "## Use", form.use]
    if scores:
        rows = [(key, value) for key, value in sorted(scores.items()) if key != "step"]
        parts += ["## Results", f"At step {scores['step']}:", _table(("score", "value"), rows)]
    elif record:
        which = "" if step is None else f" of step {step}"
        parts += ["## Results", f"This checkpoint{which} was not evaluated."]
    if record:
        parts += _training(record)
    return "\n\n".join(parts) + "\n"


def _introduction(record, said):
    if not record:
        return (
            f"An ALBERT model. How it was trained is not known: there was no `{run_record.RUN}` "
            "beside its checkpoint."
        )
    task = f" for the task {record['task']}" if "task" in record else ""
    text = f"An ALBERT model, trained by `albert.{record['script']}`{task}."
    weights = record["inputs"].get("init_checkpoint")
    base = said.base_model or _released(record)
    if weights:
        names = base or f"`{_short(weights['path'])}`"
        text += f" It started from {names} (SHA-256 of the weights `{weights['sha256']}`)."
    elif any(run_record.TRAIN in session["stages"] for session in record["sessions"]):
        text += " It started from random weights."
    return text


def _training(record):
    """Sections on settings, data and circumstances."""
    flags = [
        (f"`{name}`", f"`{_short(flag['value'])}`")
        for name, flag in sorted(record["flags"].items())
        if flag["source"] != "default"
    ]
    inputs = [
        (role, f"`{_short(entry['path'])}`", entry["bytes"], f"`{entry['sha256']}`")
        for role, entry in sorted(record["inputs"].items())
    ]
    machine, parameters = record["host"], record["parameters"] or {}
    facts = [
        ("status", record["status"]),
        ("started", record["started"]),
        ("ended", record["ended"]),
        ("steps", max((s["last_step"] or 0 for s in record["sessions"]), default=0)),
        *((f"parameters, {name}", number) for name, number in sorted(parameters.items())),
        *record["versions"].items(),
        ("commit", record["git_commit"]),
        ("processor", machine.get("processor")),
        ("cores", machine.get("cores")),
    ]
    return [
        "## Training",
        _table(("", ""), [(name, value) for name, value in facts if value is not None]),
        "Settings that are not defaults:",
        _table(("flag", "value"), flags),
        "Files:",
        _table(("input", "name", "bytes", "SHA-256"), inputs),
    ]


def _short(value):
    """A value without the folders of a path, which say nothing elsewhere."""
    if isinstance(value, str) and "/" in value and "://" not in value:
        return os.path.basename(value.rstrip("/"))
    return value if isinstance(value, str) else json.dumps(value)


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    cells = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
