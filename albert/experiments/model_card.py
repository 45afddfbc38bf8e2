"""Writes model cards: a README.md next to exported weights, for the Hugging Face Hub.

Front matter: https://huggingface.co/docs/hub/model-cards. A card states only known
facts: those in the ``run.json`` of the model's folder and those that the user gives.
"""

import dataclasses
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from albert.io import file_io
from albert.model import decision as decisions
from albert.model import huggingface, model_folder, weight_names
from albert.training import results as run_results
from albert.training import run_record

if TYPE_CHECKING:
    import yaml

NAME = "README.md"


@dataclasses.dataclass(frozen=True)
class CardFields:
    """Fields of a card that the user gives; None: not given.

    Attributes:
      license: name of a license on the Hub.
      base_model: Hub name of the model that this one was made from.
      language: code of the language, such as "en".
    """

    license: str | None = None
    base_model: str | None = None
    language: str | None = None


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """The form in which a model is written.

    Attributes:
      program: library that loads it, a `library_name` of the Hub.
      use: how to load it, in Markdown.
      kind: its `pipeline_tag` on the Hub; None: the tag of the run's script.
      architecture: key of `weight_names.ARCHITECTURES`.
    """

    program: str
    use: str
    kind: str | None = None
    architecture: str = "albert"

    @property
    def title(self) -> str:
        """The architecture with its article, such as "An ALBERT"."""
        return f"{'An' if self.architecture == 'albert' else 'A'} {self.architecture.upper()}"


_PRETRAINING_TAG = "fill-mask"
# Keys of `huggingface.HEADS` that are not in a row of `kinds.KINDS` -> `pipeline_tag` on the Hub.
_TAGS = {
    "encoder": "feature-extraction",
    "pretraining": _PRETRAINING_TAG,
    "masked_lm": _PRETRAINING_TAG,
    "regression": "text-classification",
}
# Published data: the set's id on the Hub, configuration, title, and SHA-256 of files by split. The
# other files of GLUE and those of RACE have no known hash: they count as the user's own.
_OWN = "own"
_GLUE = "nyu-mll/glue"
_PUBLISHED_FILES = {
    (_GLUE, "cola", "GLUE CoLA"): {
        "train": "cb368ebeb9f27d7ad03720d27ddc95687a311bdb100781a2fe59a5f5b1bc0624",
        "validation": "fc08f7ca16084543d9222d75eee13f094d738c3a20d874384417f1766197b716",
    },
    (_GLUE, "qnli", "GLUE QNLI"): {
        "validation": "ac19409dcb04631eaaa094bdebdcf621086bc352503dfb6a1a648b614986f4fd",
    },
    (_GLUE, "rte", "GLUE RTE"): {
        "train": "41e3a9b063433392343fad9e962cf2f58b681c78d8f71592f4186f0837246c5c",
        "validation": "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb",
    },
    (_GLUE, "sst2", "GLUE SST-2"): {
        "validation": "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0",
    },
    (_GLUE, "stsb", "GLUE STS-B"): {
        "train": "41c4d978b6162abdcada7e49a982211954cca5459c228db478af333124b257a2",
        "validation": "fe7dc0632a5033562f3cadff991f6e8d9b9b6311861660e78c3c82eb7db67f59",
    },
    (_GLUE, "wnli", "GLUE WNLI"): {
        "train": "9a88e9d54b6861cc796a088e9acf4f5f65064a9ef65ae6fa7a688b28391e5c9a",
        "validation": "cba00490596dd14be8cf53b4f53bb744abe3a7b89f81ab210528d80225338ed5",
    },
    ("rajpurkar/squad", "plain_text", "SQuAD 1.1"): {
        "train": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        "validation": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
    },
    ("rajpurkar/squad_v2", "squad_v2", "SQuAD 2.0"): {
        "train": "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
        "validation": "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
    },
}
_DATASETS = {  # fields for the Hub, by SHA-256
    digest: {"name": title, "type": hub_id, "config": config, "split": split}
    for (hub_id, config, title), digests in _PUBLISHED_FILES.items()
    for split, digest in digests.items()
}
# Scores that the Hub has names for.
_METRICS = {
    "eval_accuracy": "accuracy",
    "masked_lm_accuracy": "accuracy",
    "sentence_order_accuracy": "accuracy",
    "next_sentence_accuracy": "accuracy",
    "f1": "f1",
    "micro_f1": "f1",
    "macro_f1": "f1",
    "subset_accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "exact": "exact_match",
    "exact_match": "exact_match",
    "matthew_corr": "matthews_correlation",
    "pearson": "pearson",
    "spearman": "spearmanr",
    "MSE": "mse",
    "MAE": "mae",
    "R2": "r_squared",
}
_RELEASED = re.compile(r"albert[_-](base|large|xlarge|xxlarge)[_-]v([12])", re.I)


def _tag_of_script(script: str) -> str | None:
    """Returns the `pipeline_tag` of the models that a script trains; None for others."""
    from albert.tasks import kinds  # brings TensorFlow

    tags = {row.command.split()[0]: row.pipeline_tag for row in kinds.KINDS.values()}
    return {**tags, "run_pretraining": _PRETRAINING_TAG}.get(script)


def transformers_form(head: str) -> ExportFormat:
    """Returns the form of a Hugging Face folder; `head`: key of `huggingface.HEADS`."""
    from albert.tasks import kinds  # brings TensorFlow

    tags = {row.huggingface_head: row.pipeline_tag for row in kinds.KINDS.values()} | _TAGS
    name = "AutoModel" + huggingface.HEADS[head][0].removeprefix("Model")
    use = (
        f"```python\nfrom transformers import AutoTokenizer, {name}\n\n"
        f'folder = "…"\ntokenizer = AutoTokenizer.from_pretrained(folder)\n'
        f"model = {name}.from_pretrained(folder)\n```"
    )
    return ExportFormat("transformers", use, tags[head])


def write(
    folder: str,
    run_folder: str,
    form: ExportFormat,
    step: int | None,
    fields: CardFields,
    is_average: bool = False,
) -> bool:
    """Writes the card of a model and returns True, unless the folder has another README.md.

    A card that was edited after it was written is also kept.

    Args:
      folder: folder of the exported model, which gets the card.
      run_folder: folder of its checkpoint.
      step: step of the checkpoint; None: it is not known.
      is_average: whether it holds averaged weights, which have scores of their own.
    """
    path = os.path.join(folder, NAME)
    if file_io.exists(path) and not _is_ours(file_io.read_text(path, "model card")):
        logging.warning("%s is kept: it was not written here, or was changed since", path)
        return False
    record, scores, choice = _read_run(run_folder, step, is_average)
    name = os.path.basename(os.path.abspath(folder))
    front = front_matter(name, form, record, scores, fields, choice)
    labels = _labels_of(run_folder)
    decision = model_folder.described_decision(run_folder)
    body = _body(name, form, record, scores, step, fields, choice, labels, decision)
    text = f"---\n{to_yaml(front)}---\n\n{body}"
    file_io.write_text(path, f"{text}\n{_mark(text)}\n")
    logging.info("Wrote %s", path)
    return True


def write_for_checkpoint(folder: str, prefix: str, form: ExportFormat, **facts: str | None) -> None:
    """Writes the card of a model that was made from a checkpoint.

    It names the architecture in the ``config.json`` of the folder, else that of the weights.

    Args:
      facts: fields of `CardFields`.
      prefix: path of the checkpoint, without ending.
    """
    from albert.model import checkpoints

    shapes = checkpoints.reader(prefix).get_variable_to_shape_map()
    likely_type = weight_names.architecture_of(shapes).model_type
    architecture = huggingface.read_config(folder).get("model_type", likely_type)
    form = dataclasses.replace(form, architecture=architecture)
    (run_folder, name), step = os.path.split(prefix), checkpoints.read_step(prefix)
    is_average = name == checkpoints.AVERAGE
    write(folder, run_folder, form, step, CardFields(**facts), is_average)


def _mark(text: str) -> str:
    """Returns the last line of a card, which shows whether its text was changed."""
    digest = hashlib.sha256(text.strip().encode()).hexdigest()[:16]
    return f"<!-- written by albert, {digest} -->"


def _is_ours(text: str) -> bool:
    """Returns whether the text of a card was written by `write` and not changed since."""
    text, _, mark = text.rstrip().rpartition("\n")
    return mark == _mark(text)


def _read_run(
    folder: str, step: int | None, is_average: bool
) -> tuple[dict[str, Any], dict[str, float], str]:
    """Reads the record of a run and the scores of one of its checkpoints.

    Returns:
      (dict of ``run.json``, {} if unusable; {metric: value}; how this checkpoint was chosen: "best
      of 5 checkpoints" or "one of 5 checkpoints", "" if no other was evaluated, or for averaged
      weights, which take no part in the choice).
    """
    if not file_io.exists(os.path.join(folder, run_record.RUN)):
        return {}, {}, ""
    try:
        record = run_record.read(folder)
        rows = run_record.read_metrics(folder)
    except file_io.InputError as error:
        logging.warning("The model card does not describe the training: %s", error)
        return {}, {}, ""
    kind = run_record.AVERAGE if is_average else run_record.EVAL
    evaluated = [row for row in rows if row["kind"] == kind]
    result, count = record["result"] or {}, len({row["step"] for row in evaluated})
    if run_record.find_other_basis(record):  # those are not of the data that the card names
        evaluated, count = [], record.get("evaluated") or 0
    is_best = step in (result.get("step"), None) and not is_average
    is_chosen = count > 1 and not is_average
    choice = f"{'best' if is_best else 'one'} of {count} checkpoints" if is_chosen else ""
    step_rows = [row for row in evaluated if row["step"] == step]
    if step_rows:
        scores = {k: v for k, v in step_rows[-1].items() if k not in ("kind", "checkpoint")}
        return record, scores, choice
    return record, result if is_best else {}, choice


def _labels_of(folder: str) -> Sequence[str]:
    """Returns the names of the labels of a fine-tuned model by id; () for other folders."""
    from albert.tasks import glue, model_labels

    try:
        head = model_labels.read_folder(folder)
    except file_io.InputError as error:
        logging.warning("The model card does not name the labels: %s", error)
        return ()
    words = glue.words_of(head.task_name) if head else {}
    return tuple(words.get(label, label) for label in head.labels) if head else ()


# --- front matter -------------------------------------------------------------------------------


def front_matter(
    name: str, form: ExportFormat, record: dict, scores: dict, fields: CardFields, choice: str = ""
) -> dict:
    """Returns {field: value} that the Hub reads, of lists, dicts and texts.

    Args:
      name: title of the card.
      record: dict of ``run.json``, or {}.
      scores: {name: number}, with "step", or {}.
      choice: how this checkpoint was chosen, such as "best of 5 checkpoints".
    """
    kind = form.kind or _tag_of_script(record.get("script") or "")
    trained, evaluated = (_dataset(record, split) for split in ("train_data", "eval_data"))
    ids = [trained["type"]] if trained and trained["type"] != _OWN else []
    results = [
        {"type": _METRICS[key], "value": value, "name": f"{key}, {choice}" if choice else key}
        for key, value in sorted(scores.items())
        if key in _METRICS and value is not None
    ]
    front = {
        "license": fields.license,
        "language": fields.language or ("en" if ids else None),
        "library_name": form.program,
        "pipeline_tag": kind if form.program == "transformers" else None,
        "tags": [form.architecture, *([kind] if kind and form.program != "transformers" else [])],
        "datasets": ids,
        "metrics": sorted({entry["type"] for entry in results}),
        "base_model": fields.base_model or _released(record),
    }
    if results and kind and evaluated:
        result = {"task": {"type": kind}, "dataset": evaluated, "metrics": results}
        front["model-index"] = [{"name": name, "results": [result]}]
    return {key: value for key, value in front.items() if value}


def _dataset(record: dict[str, Any], role: str) -> dict[str, str] | None:
    """Returns {"name", "type", …} of an input of a ``run.json``, such as "train_data", or None."""
    entry = record.get("inputs", {}).get(role)
    if entry is None:
        return None
    # Names of files and tasks prove nothing: a user's own data has the same forms.
    own = {"name": os.path.basename(entry["path"].rstrip("/")), "type": _OWN}
    return _DATASETS.get(entry["sha256"], own)


def _released(record: dict[str, Any]) -> str | None:
    """Returns the Hub name of the released model that a ``run.json`` started from, or None."""
    path = record.get("inputs", {}).get("init_checkpoint", {}).get("path", "")
    flag = record.get("flags", {}).get("init_checkpoint", {}).get("value")
    for part in [*reversed(path.split("/")), flag or ""]:
        if match := _RELEASED.fullmatch(part):
            return f"albert/albert-{match.group(1).lower()}-v{match.group(2)}"
    return None


def to_yaml(value: dict) -> str:
    """Returns a dict of strings, numbers, lists and dicts as YAML.

    All strings are quoted. Characters of HTML are escaped, for programs that show YAML as Markdown.
    """
    import yaml  # here, to keep commands that write no card fast to start

    class Dumper(yaml.SafeDumper):
        def represent_mapping(
            self, tag: str, mapping: object, flow_style: bool | None = None
        ) -> "yaml.MappingNode":
            node = super().represent_mapping(tag, mapping, flow_style)
            for key, _ in node.value:
                key.style = None  # no quotes
            return node

        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent_text(dumper: "yaml.SafeDumper", text: str) -> "yaml.ScalarNode":
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')

    Dumper.add_representer(str, represent_text)
    text = yaml.dump(value, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=math.inf)
    return re.sub("[<>&]", lambda match: f"\\u{ord(match.group()):04x}", text)


# --- text ---------------------------------------------------------------------------------------


def _escaped(value: object) -> str:
    """Escapes foreign text for Markdown and HTML, and puts it on one line.

    Underscores stay: inside words they have no meaning.
    """
    text = html.escape(" ".join(str(value).splitlines()), quote=False)
    return re.sub(r"([\\`*\[\]~])", r"\\\1", text)


def _code(value: object) -> str:
    """Escapes foreign text and marks it as code."""
    text = str(value)
    if re.search(r"[<>&`\\]", text) or not text.strip():
        return f"<code>{_escaped(text)}</code>"
    return f"`{' '.join(text.splitlines())}`"


def _body(
    name: str,
    form: ExportFormat,
    record: dict[str, Any],
    scores: dict[str, float],
    step: int | None,
    fields: CardFields,
    choice: str,
    labels: Sequence[str],
    decision: decisions.Decision,
) -> str:
    """Returns the text of the card below its front matter, in Markdown.

    Args:
      name: title of the card.
      record: dict of ``run.json``, or {}.
      scores: {metric: number or None for undefined}, with "step"; {} if there are none.
      choice: how this checkpoint was chosen; "" if no other was evaluated.
      decision: the thresholds of the labels, and where the model abstains.
    """
    parts = [f"# {_escaped(name)}", _introduction(form, record, fields), "## Use", form.use]
    if labels:
        rows = [(number, _escaped(label)) for number, label in enumerate(labels)]
        parts += ["## Labels", _table(("id", "label"), rows), *_decision(labels, decision)]
    if scores:
        values = [
            (_escaped(name), run_results.UNDEFINED if value is None else value)
            for name, value in sorted(scores.items())
            if name != "step"
        ]
        which = f"At step {scores['step']}"
        if choice and "best_metric" in record:
            which += f", {choice} by {_escaped(record['best_metric'])}"
        parts += ["## Results", f"{which}:", _table(("score", "value"), values)]
        if remarks := record.get("remarks"):
            parts.append(f"Note: {_escaped('; '.join(remarks))}.")
        parts += _probabilities(record.get("calibration") or {}, scores.get("step"))
    elif record:
        which = "" if step is None else f" of step {step}"
        parts += ["## Results", f"This checkpoint{which} was not evaluated."]
    if record:
        parts += _training(record)
    return "\n\n".join(parts) + "\n"


def _decision(labels: Sequence[str], decision: decisions.Decision) -> list[str]:
    """Returns the paragraphs on the probabilities that labels and answers need."""
    parts = []
    if len(decision.thresholds) == len(labels):
        values = (f"{value:.4f}" for value in decision.thresholds)
        parts += [
            "A text has the labels whose probability, the sigmoid of the logit, is at least:",
            _table(("label", "threshold"), [*zip(map(_escaped, labels), values, strict=True)]),
        ]
    if decision.may_abstain:
        text = (
            f"The model abstains where its top probability is below {decision.min_probability:.4f}"
        )
        if decision.max_error is not None:
            text += f", so that at most {decision.max_error:.2%} of its answers are wrong"
        parts.append(f"{text}.")
    return parts


def _probabilities(calibration: dict[str, Any], step: float | None) -> list[str]:
    """Returns the paragraphs on how far the probabilities of a checkpoint can be trusted.

    `calibration`: entry of that name in ``run.json``, or {}; `step`: that of the checkpoint.
    """
    found = [calibration.get(name) for name in ("temperature", "thresholds", "abstention")]
    texts = [f"{_escaped(one['text'])}." for one in found if one]
    return ["## Probabilities", *texts] if texts and calibration["step"] == step else []


def _introduction(form: ExportFormat, record: dict[str, Any], fields: CardFields) -> str:
    """Returns the sentences on how the model was trained and what it started from.

    `record`: dict of ``run.json``, or {}.
    """
    if not record:
        return (
            f"{form.title} model. How it was trained is not known: there was no `{run_record.RUN}` "
            "next to its checkpoint."
        )
    task = f" for the task {_escaped(record['task'])}" if "task" in record else ""
    text = f"{form.title} model, trained by {_code('albert.' + record['script'])}{task}."
    weights = record["inputs"].get("init_checkpoint")
    base = fields.base_model or _released(record)
    if weights:
        names = _escaped(base) if base else _code(_short(weights["path"]))
        text += f" It started from {names} (SHA-256 of the weights {_code(weights['sha256'])})."
    elif any(run_record.TRAIN in session["stages"] for session in record["sessions"]):
        text += " It started from random weights."
    return text


def _training(record: dict[str, Any]) -> list[str]:
    """Returns the sections on settings, data and environment of a record, ``run.json``."""
    flags = [
        (_code(name), _code(_short(flag["value"])))
        for name, flag in sorted(record["flags"].items())
        if flag["source"] != "default"
    ]
    inputs = [
        (_escaped(role), _code(_short(entry["path"])), entry["bytes"], _code(entry["sha256"]))
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
        _table(("", ""), [tuple(map(_escaped, row)) for row in facts if row[1] is not None]),
        "Settings that are not defaults:",
        _table(("flag", "value"), flags),
        "Files:",
        _table(("input", "name", "bytes", "SHA-256"), inputs),
    ]


def _short(value: object) -> str:
    """Drops the folders of a path, which mean nothing on other machines."""
    if isinstance(value, str) and "/" in value and "://" not in value:
        return os.path.basename(value.rstrip("/"))
    return value if isinstance(value, str) else json.dumps(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([str(cell).replace("|", "\\|") for cell in row] for row in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
