"""The script: flags, refusals, a whole run and what reads its files."""

import json
import random
import re
import shlex
import signal
import sys

import pytest

from albert import create_pretraining_data, train_vocab
from albert import prepare_corpus as script
from albert.cli import app, options
from albert.io import file_io
from albert.text import corpus, corpus_cleaning, corpus_preparation
from tests.support import command_lines, processes
from tests.support.sources import ROOT


def parse(*arguments):
    return command_lines.parse(script, *arguments)


@pytest.fixture(autouse=True)
def handlers_restored():
    """Scripts that run here change what SIGTERM does."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


NEEDED = ("--input_file=in", "--output_dir=out")


def test_flags_reach_the_preparation():
    assert script.preparation(script.Settings()) == corpus_preparation.Preparation()
    given = parse(
        *NEEDED,
        "--text_field=body",
        "--whole_files",
        "--text_lines=wrapped",
        "--language=de",
        "--min_letter_share=0.4",
        "--min_document_words=3",
        "--near_duplicate_threshold=0.7",
        "--max_line_repeats=9",
        "--data_dir=d",
        "--contamination=glue, race",
        "--only_report_contamination",
        "--encoding=latin-1",
        "--skip_bad_files",
    )
    chosen = script.preparation(options.read(script.Settings, given))
    cleaning = corpus_cleaning.Cleaning("body", True, "wrapped", "de", 0.4, 3, "latin-1")
    expected = corpus_preparation.Preparation(cleaning, 0.7, 9, ("glue", "race"), "d", True, True)
    assert chosen == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (NEEDED[:1], "--output_dir must be given"),
        ((*NEEDED, "--encoding=nonsense"), "--encoding=nonsense: expected an encoding that"),
        ((*NEEDED, "--num_workers=0"), "--num_workers=0 must be at least 1"),
        ((*NEEDED, "--min_letter_share=2"), "--min_letter_share=2.0 must be between 0 and 1"),
        ((*NEEDED, "--near_duplicate_threshold=-1"), "--near_duplicate_threshold=-1.0 must be"),
        ((*NEEDED, "--max_line_repeats=-1"), "--max_line_repeats=-1 must be at least 0"),
        ((*NEEDED, "--contamination=glue"), "--data_dir must be given"),
        ((*NEEDED, "--data_dir=d"), "are for --contamination, which is not given"),
        *(
            ((*NEEDED, f"--language={code}"), f"--language={code}: expected a code of .* such as")
            for code in ("german", "de-AT", "DE", "")
        ),
        (
            (*NEEDED, "--text_lines=sentences", "--language=en"),
            "--language=en: only for --text_lines=paragraphs and wrapped",
        ),
    ],
)
def test_mistakes_in_flags(arguments, message):
    values = parse(*arguments)
    with pytest.raises(file_io.InputError) as caught:
        script.main(values)
    assert re.search(message, app.with_flag_names(str(caught.value), values))


@pytest.mark.parametrize(
    ("names", "flag", "message"),
    [
        (["a.txt", "b.gz"], "--text_field=text", "--text_field=text: only for .jsonl and .ndjson"),
        (
            ["a.jsonl", "b.NDJSON.bz2"],
            "--whole_files",
            "--whole_files=True: only for text, .*jsonl",
        ),
        (["a.txt", "b.json.gz"], "--whole_files", "b.json.gz: expected text, or .jsonl with an ob"),
    ],
)
def test_mistakes_in_files(tmp_path, names, flag, message):
    for name in names:
        (tmp_path / name).write_text("a")
    paths = ",".join(str(tmp_path / name) for name in names)
    with pytest.raises(file_io.InputError, match=message):
        script.main(parse(f"--input_file={paths}", f"--output_dir={tmp_path}/out", flag))


def run(*arguments):
    return processes.run([sys.executable, "-m", "albert.prepare_corpus", *arguments], cwd=ROOT)


@pytest.mark.slow
def test_a_run_makes_a_corpus(tmp_path):
    pytest.importorskip("datasketch")
    pytest.importorskip("sentencex")
    text = "It rained all night. Nobody knew why!\nThe boats, about 12 of them, stayed at home."
    rows = [json.dumps({"body": text}), json.dumps({"body": f"{text} Really."})]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, rows[0]]))
    arguments = (
        *(f"--input_file={tmp_path}/*.jsonl", f"--output_dir={tmp_path}/out"),
        *("--text_field=body", "--min_document_words=5"),
    )
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 documents, 3 sentences, 16 words")
    plan = corpus.plan_blocks([str(tmp_path / "out" / "corpus-00000.txt")])
    (lines,) = corpus.read_lines(plan.blocks[0][0])
    assert lines[:3] == [
        *("It rained all night.", "Nobody knew why!"),
        "The boats, about 12 of them, stayed at home.",
    ]
    refused = run(*arguments)
    assert refused.returncode == 1 and "error: --output_dir=" in refused.stderr


def test_the_documented_commands_read_the_corpus_and_nothing_else(tmp_path, monkeypatch, capsys):
    """As the page has them in a row; what each counts is what the first one wrote."""
    pytest.importorskip("datasketch")
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(300)]
    documents = [[" ".join(rng.choices(words, k=9)) for _ in range(9)] for _ in range(20)]
    (tmp_path / "raw").mkdir()
    text = "\n\n".join("\n".join(lines) for lines in documents)
    (tmp_path / "raw" / "a.txt").write_text(text)
    page = (ROOT / "docs" / "corpus.md").read_text(encoding="utf-8")
    commands = [
        re.search(rf"python -m albert\.{name} ((?:[^`]*?\\\n)*.*)", page)[1].replace("\\\n", "")
        for name in ("prepare_corpus", "train_vocab", "create_pretraining_data")
    ]
    changes = [
        ("--text_lines=sentences", "--contamination=", "--data_dir=", "--num_workers=1"),
        ("--vocab_size=90",),
        ("--dupe_factor=1", "--max_seq_length=64", "--num_workers=1"),
    ]
    commands[0] = commands[0].replace("raw/*.jsonl.gz,", "")
    monkeypatch.chdir(tmp_path)
    read = []
    for module, command, changed in zip(
        (script, train_vocab, create_pretraining_data), commands, changes, strict=True
    ):
        command_lines.run(module, *shlex.split(command), *changed)
        read.append(capsys.readouterr().out)
    assert "20 documents, 180 sentences" in read[0]
    assert "read: 180 lines in 1 file(s), 180 used" in read[1]
    assert "read: 1 file(s), " in read[2] and "20 documents, 180 sentences" in read[2]
