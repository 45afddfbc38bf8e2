"""Rounds: cases that are made from a random generator and whose right result is known.

A round is a function ``(rng, folder)``; what it raises is a finding. The right result is that of
the package that made a vocabulary, or follows from how the case was made.
"""

import contextlib
import json
import os
import random
import tempfile
import traceback
import unicodedata

import numpy as np
import pytest

from albert.experiments import predictions
from albert.export import tokenizer_json
from albert.io import file_io, tables
from albert.text import sample_lines, text_rules, tokenization
from albert.training import evaluation, results, run_record
from albert.training.evaluation_basis import Basis
from tests.support import number_engine, vocabulary_samples

_TEXTS = 20  # of each round, besides the sample lines


# --- joins: labels x ids x forms ------------------------------------------------------------------

_LABELS = (
    ((False, True), ("false", "true")), ((0, 1), ("0", "1")), ((0.0, "1."), ("0", "1")),
    ((" no", "yes "), ("no", "yes")), (("a,b", "c|d"), ("a,b", "c|d")), ((0, "1"), ("1", "0")),
    (("é", "e\u0301"), ("é", "e\u0301")), ((1, 0), ("equivalent", "not_equivalent")),
)  # fmt: skip
_NUMBERED = {"equivalent": "1", "not_equivalent": "0"}
_IDS = (
    lambda i: i,
    lambda i: f" x {i}",
    lambda i: i + 0.5,
    lambda i: f"{i:04d}",
    lambda i: f"é{i}",
)


def joins(rng, folder):
    """Predictions with some mistakes have the accuracy that was drawn, rows in any order."""
    values, names = rng.choice(_LABELS)
    make_id, count = rng.choice(_IDS), rng.randrange(2, 30)
    right = {tables.label_key(_NUMBERED.get(name, name)): name for name in names}
    rows = [{"text": f"t {i}", "id": make_id(i), "label": rng.choice(values)} for i in range(count)]
    named = [tables.label_key(str(json_text(row["label"])).strip()) for row in rows]
    truth = [right[key] for key in named]
    found = [name if rng.random() < 0.7 else rng.choice(names) for name in truth]
    pairs = [(json_text(row["id"]).strip(), name) for row, name in zip(rows, found, strict=True)]
    rng.shuffle(pairs)
    fault = rng.choice([None, None, "repeated", "missing", "foreign"])
    if fault == "repeated":
        pairs.append(rng.choice(pairs))
    elif fault == "missing":
        pairs.pop()
    elif fault == "foreign":
        rows[0]["label"] = "another"
    data = _write_rows(rng, os.path.join(folder, "data"), rows)
    path = _write_rows(rng, os.path.join(folder, "found"), _predictions(pairs, names))
    columns = tables.Columns(guid="id")
    if fault:
        with pytest.raises(file_io.InputError, match="data|found"):
            predictions.read_file(path, data, columns)
        return
    metrics = predictions.read_file(path, data, columns).metrics
    assert metrics["eval_accuracy"].value == pytest.approx(np.mean(np.array(truth) == found))


def json_text(value):
    """The name of a value of JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _predictions(pairs, names):
    order = list(names)
    for key, name in pairs:
        yield {"id": key, "prediction": name,
               **{f"probability_{n}": float(n == name) for n in order}}  # fmt: skip


def _write_rows(rng, path, rows):
    """Writes rows in a form that is drawn; returns the path."""
    import csv

    rows, form = list(rows), rng.choice(["csv", "tsv", "jsonl"])
    with open(f"{path}.{form}", "w", encoding="utf-8", newline="") as file:
        if form == "jsonl":
            file.writelines(json.dumps(row, ensure_ascii=rng.random() < 0.5) + "\n" for row in rows)
        else:
            quotes = {"quoting": csv.QUOTE_NONE, "quotechar": None} if form == "tsv" else {}
            delimiter = "\t" if form == "tsv" else ","
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n", **quotes)
            writer.writerow(rows[0])
            writer.writerows([json_text(value) for value in row.values()] for row in rows)
    return f"{path}.{form}"


# --- vocabularies ---------------------------------------------------------------------------------


def _texts(rng):
    yield from sample_lines.SENTENCES
    yield from vocabulary_samples.random_texts(rng, _TEXTS)


def sentencepieces(rng, folder):
    """Ids are those of the package sentencepiece, and of tokenizers where its file is written."""
    import sentencepiece

    tokenizers = pytest.importorskip("tokenizers")

    kind = rng.choice(list(vocabulary_samples.SENTENCEPIECE))
    path = os.path.join(folder, "m.model")
    with open(path, "wb") as file:
        file.write(vocabulary_samples.train_sentencepiece(kind, rng.randrange(300, 460)))
    # Folding and lower-casing a final sigma differ between the two, in tokenizer.json alone.
    lower = kind != "case_folding" and rng.random() < 0.5
    keeps = rng.random() < 0.5
    own = tokenization.load(path, text_rules.TextRules(lower, keep_accents=keeps))
    theirs = sentencepiece.SentencePieceProcessor(model_file=path)
    found = None
    with contextlib.suppress(file_io.InputError):
        tokenizer_json.write(folder, own)
        found = tokenizers.Tokenizer.from_file(os.path.join(folder, tokenizer_json.NAME))
    assert found or vocabulary_samples.SENTENCEPIECE[kind][1], kind
    for text in _texts(rng):
        if any(map(str.isdigit, text)):
            continue  # The comma after a number has its own rule.
        form = " ".join(text.replace("``", '"').replace("''", '"').split())
        if not keeps:
            form = "".join(
                c for c in unicodedata.normalize("NFKD", form) if not unicodedata.combining(c)
            )
        expected = theirs.encode(form.lower() if lower else form)
        assert own.encode(text) == expected, (kind, lower, keeps, text)
        if found:
            ids = found.encode(text, add_special_tokens=False).ids
            assert ids == expected, ("tokenizer.json", kind, lower, keeps, text)


def _is_common(character):
    categories = {d.category(character) for d in (unicodedata, unicodedata.ucd_3_2_0)}
    return len(categories) == 1 and not min(categories).startswith("C")


_LINES = ("plain", "repeated", "blank", "trailing blanks", "carriage returns")


def wordpieces(rng, folder):
    """Ids are those of the package tokenizers, which reads the same vocab.txt."""
    tokenizers = pytest.importorskip("tokenizers")

    # As the original BERT, and unlike the package, this one knows new characters of Unicode and
    # keeps those not yet assigned.
    texts = ["".join(c for c in text if _is_common(c)) for text in _texts(rng)]
    letters = sorted({c for text in texts for c in text if not c.isspace()})
    words = rng.sample([w for text in texts for w in text.split()], 30)
    pieces = [*letters[::2], *(f"##{c}" for c in letters), *words]
    pieces = [piece for piece in dict.fromkeys(pieces) if piece == piece.strip()]
    kind = rng.choice(_LINES)
    if kind == "repeated":
        pieces += rng.sample(pieces, 5)
    elif kind == "blank":
        pieces.insert(rng.randrange(len(pieces)), "")
    end = {"trailing blanks": " \n", "carriage returns": "\r\n"}.get(kind, "\n")
    path = os.path.join(folder, "vocab.txt")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(f"{piece}{end}" for piece in [*vocabulary_samples.SPECIAL, *pieces])
    rules = {
        "lowercase": rng.random() < 0.5,
        "strip_accents": rng.choice([True, False, None]),
        "handle_chinese_chars": rng.random() < 0.5,
    }
    keep = None if rules["strip_accents"] is None else not rules["strip_accents"]
    casing = (rules["lowercase"], keep, rules["handle_chinese_chars"])
    own = tokenization.load(path, text_rules.TextRules(*casing, ids_by_line=True, lower_alone=True))
    theirs = tokenizers.Tokenizer(
        tokenizers.models.WordPiece.from_file(path, unk_token="[UNK]", max_input_chars_per_word=100)
    )
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(clean_text=True, **rules)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    for text in texts:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ids == own.encode(text), (kind, rules, text)


# --- folders that change between runs -------------------------------------------------------------


def changed_folders(rng, folder):
    """Sessions that train or evaluate, on data that changes at random, and back again."""
    steps = range(0, 60, 10)
    table = {
        name: dict(zip(steps, np.array(rng.sample(range(6), 6)) / 8, strict=True)) for name in "abc"
    }
    done = 0
    for _ in range(6):
        name = rng.choice("abc")
        runner = number_engine.make_engine(folder, table[name], basis=Basis(sha256=name))
        trains = done == 0 or rng.random() < 0.5
        with number_engine.recorded(folder, ["train", "eval"] if trains else ["eval"]):
            if trains:
                on_checkpoint = evaluation.evaluate_while_training(runner, None)
                for step in range(max(done - 10, 0), min(done + 20, 60), 10):
                    if step >= done:
                        number_engine.save(folder, step)
                    runner.model.step.assign(step)
                    on_checkpoint(os.path.join(folder, f"model.ckpt-{step}"), step)
                done = min(done + 20, 60)
            else:
                evaluation.evaluate_all(runner, None)
        blocks = results.read_blocks(folder)
        scores = {block.step: block.values["score"] for block in blocks}
        assert scores == {step: table[name][step] for step in scores}
        trained = {step: score for step, score in scores.items() if step}
        best = max(trained, key=trained.get)
        assert number_engine.best_step(folder) == best
        assert results.read_trial(folder)[1:] == (best, trained[best])
        kinds = {(row["kind"], row["step"]) for row in run_record.read_metrics(folder)}
        assert {step for kind, step in kinds if kind == "eval"} == set(scores)


ALL = {
    function.__name__: function for function in (joins, sentencepieces, wordpieces, changed_folders)
}


def find(name, seed, number):
    """Returns the finding of a case of a round; None if it is right."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            ALL[name](random.Random(f"{seed}/{name}/{number}"), folder)
        except Exception:
            return traceback.format_exc()
    return None
