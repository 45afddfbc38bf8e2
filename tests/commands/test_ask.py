"""Asking a model about a text: from Python, from the command line, in texts of any length."""

import codecs
import dataclasses
import io
import itertools
import json
import re
import unicodedata

import numpy as np
import pytest

from albert import ask
from albert.io import file_io
from albert.model import checkpoints, heads, layers, model_folder, sources
from albert.serving import answer_text, predictors, question_predictor
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import features as squad_features
from albert.tasks.squad import null_threshold
from albert.tasks.squad import task as squad_task
from albert.text import graphemes, text_rules, tokenization
from tests.support import builders, squad_samples

CONFIG = builders.tiny_config(initializer_range=0.5)
V1 = squad_task.Settings(48, 16, 10, 20, 30)
V2 = dataclasses.replace(V1, start_n_top=3, end_n_top=4, dropout_prob=0.1)
LONG = " ".join(
    f"\n{number}. " + paragraph["context"]
    for number, paragraph in enumerate(
        squad_samples.content("train", 30, 1)["data"][0]["paragraphs"]
    )
)


def make_folder(folder, kind, settings):
    source = sources.Source("", None, str(builders.SPM), None, text_rules.TextRules(True))
    model_folder.write(str(folder), kind, CONFIG, source, settings.to_dict())
    task = squad_task.make_task(kind, settings)
    prefix = str(folder / "model.ckpt-7")
    checkpoints.save(prefix, task.build_model(CONFIG, layers.Compute(), seed=4))
    if kind == squad_task.V2:
        null_threshold.write(str(folder), 0.5, prefix, "dev.json")
    return str(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    settings = {squad_task.V1: V1, squad_task.V2: V2}
    return {kind: make_folder(root / kind, kind, settings[kind]) for kind in squad_task.KINDS}


def expected(kind, folder, question, context):
    """The answers by the way of the scripts: all windows padded, one batch."""
    example = squad_features.SquadExample("q", question, context)
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(builders.SPM))
    windows = list(
        squad_features.convert_examples_to_features([example], tokenizer, 48, 16, 10, False, True)
    )
    names = ("input_ids", "input_mask", "segment_ids", "p_mask")
    features = {name: [getattr(window, name) for window in windows] for name in names}
    model = (
        heads.SquadV1Model(CONFIG) if kind == squad_task.V1 else heads.SquadV2Model(CONFIG, 3, 4)
    )
    checkpoints.restore(model, folder)
    outputs = {name: value.numpy() for name, value in model(features).items()}
    if kind == squad_task.V1:
        outputs = {
            f"{name}_log_prob": np.where(features["input_mask"], outputs[f"{name}_logits"], -1e30)
            for name in ("start", "end")
        }
    results = {
        window.unique_id: {name: value[i] for name, value in outputs.items()}
        for i, window in enumerate(windows)
    }
    if kind == squad_task.V1:
        _, nbest = squad_answers.predictions_v1([example], windows, results, 20, 30)
        return nbest["q"], None
    _, nbest, odds = squad_answers.predictions_v2([example], windows, results, 20, 30, 3, 4)
    return nbest["q"], odds["q"]


@pytest.mark.parametrize("kind", squad_task.KINDS)
@pytest.mark.parametrize("context", [LONG, "The cook tasted the soup."])
def test_answers_are_those_of_the_scripts(folders, kind, context):
    answerer = predictors.Answerer(folders[kind])
    reply = answerer.ask("Who was there?", context)
    wanted, null_odds = expected(kind, folders[kind], "Who was there?", context)
    wanted = [w for w in wanted if w["text"]]  # the scripts also answer with white space
    total = sum(w["probability"] for w in wanted)
    assert [answer.text for answer in reply.answers][:5] == [w["text"] for w in wanted][:5]
    assert [a.probability for a in reply.answers] == pytest.approx(
        [w["probability"] / total for w in wanted], abs=1e-4
    )
    for answer in reply.answers:
        assert context[answer.start : answer.end] == answer.text
    if kind == squad_task.V1:
        assert reply.null_odds is None and reply.has_answer
    else:
        assert reply.null_odds == pytest.approx(null_odds, abs=1e-4)
        assert reply.threshold == 0.5
        assert reply.has_answer == (reply.null_odds < 0.5)


def test_texts_of_other_scripts_are_searched(folders):
    answerer = predictors.Answerer(folders[squad_task.V1])
    for form, script in itertools.product(("NFC", "NFD"), squad_samples.OTHER_SCRIPTS.values()):
        text = unicodedata.normalize(form, script)
        begins = [*graphemes.begins(text), True]
        reply = answerer.ask(" ".join(text.split()[:2]), text)
        assert reply.answers
        for answer in reply.answers:
            assert text[answer.start : answer.end] == answer.text
            assert begins[answer.start] and begins[answer.end]  # no letter loses a mark


def test_white_space_is_no_answer(folders):
    """The text has the pieces "▁the", "▁" and an unknown character; the second has most scores."""
    question, context = "Who?", "the \u4e2d"
    answerer = predictors.Answerer(folders[squad_task.V1])

    def logits(inputs):
        values = np.full(inputs["input_ids"].shape, -9.0, np.float32)
        values[0, 5:7] = [1, 5]
        return {"start_logits": values, "end_logits": values}

    answerer.infer = logits
    reply = answerer.ask(question, context)
    assert reply.has_answer and {a.text for a in reply.answers[1:]} == {"the \u4e2d", "\u4e2d"}
    assert sum(answer.probability for answer in reply.answers) == pytest.approx(1)
    assert reply.answers[0].text == reply.to_dict()["answer"] == "the"

    answerer = predictors.Answerer(folders[squad_task.V2])

    def beams(inputs):
        ends = np.array([[6] + 11 * [0]])
        return {
            "start_top_log_probs": np.array([[5.0, -9, -9]]),
            "start_top_index": ends[:, :3],
            "end_top_log_probs": np.array([[5.0] + 11 * [-9]]),
            "end_top_index": ends,
            "cls_logits": np.array([0.25]),
        }

    answerer.infer = beams
    reply = answerer.ask(question, context)
    assert not reply.has_answer and reply.to_dict()["answers"] == []
    assert list(answer_text.describe(reply, context, 3)) == [
        "no answer in the text (null odds 0.250 < 0.500)",
        "nothing found",
    ]


def test_mistakes_are_named(folders, tmp_path, caplog):
    answerer = predictors.Answerer(folders[squad_task.V1])
    with pytest.raises(file_io.InputError, match="the question is empty"):
        answerer.ask(" ", "Some text.")
    with pytest.raises(file_io.InputError, match="cannot be searched: the paragraph has no text"):
        answerer.ask("Who?", " \n")
    with pytest.raises(file_io.InputError, match="do not match its text; remove what is no text"):
        answerer.ask("Who?", "a \x01\x02\x03" * 5)
    with caplog.at_level("WARNING", logger="absl"):
        answerer.ask("Who " * 20 + "?", "Some text.")
    assert "tokens; the model reads the first 10" in caplog.text
    with pytest.raises(file_io.InputError, match="there is no model folder"):
        predictors.Answerer(str(tmp_path / "nowhere"))


# --- the command ----------------------------------------------------------------------------------


def reply_of(null_odds=None, threshold=None, **changes):
    answer = squad_answers.Answer("old\ncat", 0.75, -1.0, -2.0, 9, 16)
    none = squad_answers.Answer("empty", 1.0, 0.0, 0.0)
    answers = changes.get("answers", [answer, squad_answers.Answer("cat", 0.25, -2, -2, 13, 16)])
    question = question_predictor.Question("Who sat?", "")
    return question_predictor.Reply(question, answers or [none], null_odds, threshold)


@pytest.mark.parametrize(
    ("reply", "count", "lines"),
    [
        (
            reply_of(),
            3,
            [
                " 0.750  old cat  (line 2, characters 9 to 16)",
                " 0.250  cat  (line 3, characters 13 to 16)",
            ],
        ),
        (
            reply_of(1.5, 2.0),
            1,
            [
                "there is an answer (null odds 1.500 < 2.000)",
                " 0.750  old cat  (line 2, characters 9 to 16)",
            ],
        ),
        (
            reply_of(2.0, 2.0),
            1,
            [
                "no answer in the text (null odds 2.000 >= 2.000)",
                " 0.750  old cat  (line 2, characters 9 to 16)",
            ],
        ),
        (reply_of(answers=[]), 3, ["nothing found"]),
    ],
)
def test_what_is_printed(reply, count, lines):
    assert list(answer_text.describe(reply, "Here:\nan old\ncat.", count)) == lines


@pytest.fixture
def context_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The cook tasted the soup.\nThe baker mixed the cake.\n", encoding="utf-8")
    return path


def test_one_question(folders, context_file, run_script, capsys):
    flags = {"model_dir": folders[squad_task.V1], "context_file": context_file}
    run_script(ask, **flags, question="Who?", num_answers=2)
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert len(lines) == 2
    probability, place = lines[0].split()[0], lines[0].split("(")[1]
    assert 0 < float(probability) <= 1 and place.startswith("line ")
    context_file.write_bytes(codecs.BOM_UTF8 + context_file.read_bytes())
    run_script(ask, **flags, question="Who?", num_answers=2)
    assert capsys.readouterr().out == shown


def test_questions_from_the_keyboard(folders, context_file, run_script, capsys, monkeypatch):
    flags = {"model_dir": folders[squad_task.V2], "context_file": context_file, "num_answers": 1}
    for typed, count in (("Who?\nWhat?\n\nWhen?\n", 2), ("Who?\n", 1)):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        run_script(ask, **flags)
        assert capsys.readouterr().out.count("null odds") == count


@pytest.mark.slow
@pytest.mark.parametrize("kind", squad_task.KINDS)
def test_many_questions_from_a_file(folders, context_file, tmp_path, run_script, capsys, kind):
    """In their order, with the answers that each gets alone; more than are read ahead."""
    rows = [{"question": f"Who {'was ' * (i % 3)}there?", "context": LONG[: 90 * (1 + i % 4)]}
            for i in range(66)]  # fmt: skip
    rows[1] = {"question": "Who tasted it?", "id": "second"}
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = {"model_dir": folders[kind], "input_file": path, "context_file": context_file}
    run_script(ask, **flags, output_file=tmp_path / "out.jsonl", num_answers=2)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == ["0", "second", *map(str, range(2, 66))]
    assert [row["question"] for row in found] == [row["question"] for row in rows]
    answerer = predictors.Answerer(folders[kind])
    for place in (0, 1, 2, 3, 65):
        context = rows[place].get("context", context_file.read_text())
        reply = answerer.ask(rows[place]["question"], context)
        best = [answer for answer in reply.answers if answer.start is not None][:2]
        answers = found[place]["answers"]
        assert [(a["text"], a["start"], a["end"]) for a in answers] == [
            (answer.text, answer.start, answer.end) for answer in best
        ]
        assert [a["probability"] for a in answers] == pytest.approx(
            [answer.probability for answer in best], abs=1e-5
        )
        assert found[place]["answer"] == (best[0].text if reply.has_answer else "")
        assert found[place].get("null_odds") == pytest.approx(reply.null_odds, abs=1e-5)
    path.write_text(json.dumps(rows[1]) + "\n")
    capsys.readouterr()
    run_script(ask, **flags)
    assert json.loads(capsys.readouterr().out)["id"] == "second"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", r"in\.jsonl line 2: expected a JSON object, found a list"),
        ('{"question": "Who?"}', r"line 2: there is no column 'context' \(--context_file\)"),
        ('{"context": "x"}', r"line 2: there is no column 'question'"),
        ('{"question": "Who?", "context": " "}', "line 2: column 'context' holds no text"),
    ],
)
def test_bad_lines_are_named(folders, tmp_path, run_script, line, message):
    path = tmp_path / "in.jsonl"
    path.write_text(f'{{"question": "Who?", "context": "The cook."}}\n{line}\n')
    flags = {"model_dir": folders[squad_task.V1], "input_file": path}
    with pytest.raises(file_io.InputError, match=message):
        run_script(ask, **flags, output_file=tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", r"in\.jsonl line 100: expected a JSON object"),
        ('{"question": "Who?", "context": "\\u200b"}', "line 100: the text cannot be searched"),
    ],
)
def test_a_file_is_checked_before_long_work(folders, tmp_path, capsys, line, message):
    path = tmp_path / "in.jsonl"
    path.write_text('{"question": "Who?", "context": "The cook."}\n' * 99 + f"{line}\n")
    answerer, batches = predictors.Answerer(folders[squad_task.V1]), []
    answerer.infer = batches.append
    settings = ask.Settings(model_dir=folders[squad_task.V1], input_file=str(path))
    with pytest.raises(file_io.InputError, match=message):
        ask.answer_file(settings, str(path), answerer, None)
    assert not batches and not capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", squad_task.KINDS)
def test_a_question_of_a_file(folders, tmp_path, run_script, capsys, kind):
    path = squad_samples.write_long_context(tmp_path)
    run_script(ask, model_dir=folders[kind], data_file=path, index=6, num_answers=2)
    shown = capsys.readouterr().out
    example = squad_answers.read_squad_examples(path, is_training=False)[6]
    assert f"question:       {example.question_text}\n" in shown
    assert f"gold answer:    {example.answers[0]}\n" in shown
    assert " ".join(example.paragraph_text.split()) in shown
    (gold,) = [line for line in shown.splitlines() if line.startswith("gold start")]
    assert example.answers[0].startswith(re.search(r"\('(.+)'\)", gold).group(1))
    found = predictors.Answerer(folders[kind]).explain(example)
    for name, place in (("highest start:", found.start), ("highest end:", found.end)):
        (line,) = [line for line in shown.splitlines() if line.startswith(name)]
        assert f"token {place.token}" in line and line.endswith(f"of window {place.window}")
    wanted, _ = expected(kind, folders[kind], example.question_text, example.paragraph_text)
    predicted = shown.split("predicted answer:\n")[1]
    assert wanted[0]["text"].split()[0] in predicted or "nothing found" in predicted
    run_script(ask, model_dir=folders[kind], data_file=path, index=4)
    impossible = capsys.readouterr().out
    assert "gold answer:    none\n" in impossible and "gold start" not in impossible


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "give --context_file, .* or --input_file"),
        ({"question": "Who?"}, "give --context_file"),
        ({"question": "Who?", "context_file": "empty.txt"}, r"context_file: empty\.txt holds no"),
        ({"question": "Who?", "context_file": "x"}, "context_file: the file x does not exist"),
        ({"question": "Who?", "context_file": "x", "output_file": "y"}, "--output_file: only for"),
        ({"question": "Who?", "input_file": "x"}, "--question: only for .* without --input_file"),
        (
            {"question": "Who?", "context_file": "squad.json", "num_answers": 0},
            "num_answers=0 must be at",
        ),
        (
            {"question": "Who?", "context_file": "squad.json", "model_dir": "y"},
            "kind classifier; .*_v2",
        ),
        ({"data_file": "x"}, "--data_file and --index"),
        ({"context_file": "x", "index": 1}, "--data_file and --index"),
        ({"context_file": "x", "data_file": "y", "index": 1}, "give --context_file"),
        ({"data_file": "x", "index": 1, "question": "Who?"}, "--question: only for --context_file"),
        ({"data_file": "x", "index": 1}, "SQuAD file: the file x does not exist"),
        ({"data_file": "squad.json", "index": 30}, "--index=30: .* 0 to 29"),
    ],
)
def test_mistakes_on_the_command_line(folders, tmp_path, run_script, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    squad_samples.write_long_context(tmp_path)
    source = sources.Source("", None, str(builders.SPM), None, text_rules.TextRules(True))
    model_folder.write("y", "classifier", CONFIG, source, {})
    with pytest.raises(file_io.InputError, match=message):
        run_script(ask, **{"model_dir": folders[squad_task.V1], **flags})
