"""Vocabulary training: the recipe, determinism, clear refusals, whole files or none."""

import bz2
import collections
import gzip
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc

import pytest
import sentencepiece
from scipy import stats

from albert import train_vocab
from albert.io import file_io
from albert.text import corpus, text_rules, tokenization, vocabulary
from tests.support.sources import ROOT
from tests.testdata import make_tiny_vocab

SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def text(tmp_path):
    """Two files with the text of the tests' vocabulary, in capitals and with blank lines."""
    lines = [line.upper() for line in make_tiny_vocab.sentences()]
    (tmp_path / "text1").write_text("\n\n".join(lines[:40]), "utf-8")
    (tmp_path / "text2").write_text("\n".join(lines[40:]) + "\n", "utf-8")
    return f"{tmp_path}/text1,{tmp_path}/text2"


def pieces(path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(len(processor))]


def test_the_recipe(text, tmp_path, run_script, capsys):
    prefix = tmp_path / "new" / "30k-clean"
    run_script(train_vocab, input_file=text, output_prefix=prefix, vocab_size=400)
    found = pieces(f"{prefix}.model")
    assert len(found) == 400
    symbols = ["(", ")", '"', "-", ".", "–", "£", "€"]
    assert found[: len(SPECIAL + symbols)] == SPECIAL + symbols
    assert "▁the" in found and not any(piece != piece.lower() for piece in found[5:])
    # The marks stand alone in every piece; a tokenizer can be made of the model.
    assert not [piece for piece in found[5:] if len(piece) > 1 and set(piece) & set(symbols)]
    tokenizer = tokenization.FullTokenizer(spm_model_file=f"{prefix}.model")
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 1, 4)
    report = capsys.readouterr().out
    assert report.startswith(f"400 pieces in {prefix}.model and {prefix}.vocab")
    assert re.search(r"read: (9\d) lines in 2 file\(s\), \1 used", report)
    assert "skipped: 0 not drawn (--input_sentence_size=10000000), 0 empty" in report


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "wordpiece"), [(".model", False), (".txt", True)])
def test_the_vocabulary_of_a_model_is_not_replaced(text, tmp_path, run_script, ending, wordpiece):
    if wordpiece:
        pytest.importorskip("tokenizers")
    flags = {"input_file": text, "output_prefix": tmp_path / "vocab", "wordpiece": wordpiece}
    run_script(train_vocab, vocab_size=300, **flags)
    run_script(train_vocab, vocab_size=310, **flags)
    (tmp_path / "pretraining.json").write_text("{}")
    before = (tmp_path / f"vocab{ending}").read_bytes()
    run_script(train_vocab, vocab_size=310, **flags)  # the same
    with pytest.raises(file_io.InputError, match=rf"vocab{ending} is the vocabulary of the model"):
        run_script(train_vocab, vocab_size=300, **flags)
    assert (tmp_path / f"vocab{ending}").read_bytes() == before


def test_capitals_are_kept_if_asked(text, tmp_path, run_script):
    prefix = tmp_path / "cased"
    run_script(
        train_vocab, input_file=text, output_prefix=prefix, vocab_size=400, do_lower_case=False
    )
    assert "▁THE" in pieces(f"{prefix}.model")


def sentences(tmp_path, text, **recipe):
    (tmp_path / "text").write_text(text, "utf-8")
    counts = collections.Counter()
    plan = corpus.plan_blocks([str(tmp_path / "text")])
    recipe = vocabulary.VocabRecipe(**recipe)
    lines = vocabulary.drawn_lines(plan, recipe, counts)
    return list(vocabulary.sentences(lines, recipe, counts)), counts


def test_the_text_is_preprocessed(tmp_path):
    found, counts = sentences(tmp_path, "Äpfel\t und  BÄUME\n\u3000\n\u0301\nx\u0301\n")
    assert found == ["apfel und baume", "x"]
    assert counts == {"lines": 3, "not_drawn": 0, "sentences": 2, "empty": 1}


@pytest.mark.slow
def test_every_sentence_is_equally_likely_to_be_drawn(tmp_path):
    text = "".join(f"{i}\n" for i in range(10))
    drawn = collections.Counter()
    for seed in range(2000):
        found, counts = sentences(tmp_path, text, input_sentence_size=3, random_seed=seed)
        assert len(found) == 3 and counts["not_drawn"] == 7
        assert found == sorted(found)
        drawn.update(found)
    assert stats.chisquare([drawn[str(i)] for i in range(10)]).pvalue > 1e-3  # fixed seeds


def test_a_corpus_may_be_larger_than_memory(tmp_path, monkeypatch):
    """Only a part of one file is in memory while lines are drawn, however long the file is."""
    monkeypatch.setattr(corpus, "PIECE_BYTES", 1 << 16)
    text = tmp_path / "text"
    text.write_text("".join(f"this is line number {n} of a long text\n" for n in range(100_000)))
    plan = corpus.plan_blocks([str(text)], block_bytes=1 << 20)
    recipe, counts = vocabulary.VocabRecipe(input_sentence_size=10), collections.Counter()
    tracemalloc.start()
    try:
        assert len(list(vocabulary.drawn_lines(plan, recipe, counts))) == 10
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts["lines"] == 100_000 and counts["not_drawn"] == 99_990
    assert peak < 1e6 < text.stat().st_size / 4


def test_the_report_tells_of_the_sample(text, tmp_path, run_script, capsys):
    settings = {"input_sentence_size": 60, "vocab_size": 100, "random_seed": -4}
    run_script(train_vocab, input_file=text, output_prefix=tmp_path / "v", **settings)
    found = capsys.readouterr().out
    assert re.search(
        r"\n  sample: 60 lines, each of the 9\d equally likely .--random_seed=-4.\n", found
    )


def test_long_lines_are_cut_and_counted(text, tmp_path, run_script, capsys):
    with open(tmp_path / "text2", "a") as file:
        file.write("word " * 1000 + "\n")
    run_script(train_vocab, input_file=text, output_prefix=tmp_path / "v", vocab_size=400)
    assert "  cut: 1 lines of more than 4192 bytes" in capsys.readouterr().out


@pytest.mark.slow
def test_same_seed_same_files(text, tmp_path):
    """In processes of their own: within one, SentencePiece repeats its random draws."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        subprocess.run(
            [
                *(sys.executable, "-m", "albert.train_vocab", f"--input_file={text}"),
                *(f"--output_prefix={tmp_path}/{name}", "--vocab_size=150", "--num_threads=3"),
                *("--input_sentence_size=50", f"--random_seed={seed}"),
            ],
            cwd=ROOT,
            check=True,
        )
    for ending in ("model", "vocab"):
        a, b, c = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "abc")
        assert a == b and a != c


@pytest.mark.parametrize("wordpiece", [False, True])
def test_compressed_text_gives_the_same_vocabulary(text, tmp_path, run_script, wordpiece):
    if wordpiece:
        pytest.importorskip("tokenizers")
    for number, name in enumerate(text.split(",")):
        pack, ending = ((gzip.compress, "gz"), (bz2.compress, "bz2"))[number]
        with open(name, "rb") as file:
            (tmp_path / f"packed{number}.{ending}").write_bytes(pack(file.read()))
    made = []
    for names in (text, f"{tmp_path}/packed*"):
        prefix = tmp_path / f"out{len(made)}"
        run_script(
            train_vocab, input_file=names, output_prefix=prefix, vocab_size=400, wordpiece=wordpiece
        )
        path = prefix.with_suffix(".txt" if wordpiece else ".model")
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_vocab_file_is_what_sentencepiece_itself_writes(text, tmp_path, run_script):
    run_script(train_vocab, input_file=text, output_prefix=tmp_path / "ours", vocab_size=300)
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=str(tmp_path / "theirs"), vocab_size=300, minloglevel=2
    )
    model = (tmp_path / "theirs.model").read_bytes()
    assert vocabulary.vocab_text(model) == (tmp_path / "theirs.vocab").read_text("utf-8")
    model = (tmp_path / "ours.model").read_bytes()
    assert vocabulary.vocab_text(model) == (tmp_path / "ours.vocab").read_text("utf-8")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"vocab_size": 30000}, r"--vocab_size=30000 is too high for 9\d sentence.*at most \d+"),
        ({"vocab_size": 20}, r"--vocab_size=20 is too low .* alone are \d+; give a larger"),
        ({"vocab_size": 0}, "--vocab_size=0 must be at least 1"),
        ({"input_sentence_size": 0}, "--input_sentence_size=0 must be at least 1"),
        ({"num_threads": 0}, "--num_threads=0 must be at least 1"),
        ({"character_coverage": 0.5}, "--character_coverage=0.5 must be between 0.98 and 1"),
        ({"input_file": "/none*"}, r"--input_file: no file matches '/none\*'"),
        ({"input_file": ""}, "--input_file must be given"),
        ({"output_prefix": ""}, "--output_prefix must be given"),
    ],
)
def test_mistakes(text, tmp_path, run_script, arguments, message):
    for ending in ("model", "vocab"):
        (tmp_path / f"v.{ending}").write_text("precious")
    arguments = {"input_file": text, "output_prefix": tmp_path / "v", **arguments}
    with pytest.raises(file_io.InputError, match=message):
        run_script(train_vocab, **arguments)
    for ending in ("model", "vocab"):
        assert (tmp_path / f"v.{ending}").read_text() == "precious"


def test_the_largest_size_that_is_named_works(text, tmp_path, run_script):
    with pytest.raises(file_io.InputError) as error:
        run_script(train_vocab, input_file=text, output_prefix=tmp_path / "v")
    largest = int(re.search(r"or --vocab_size=(\d+)", str(error.value))[1])
    run_script(train_vocab, input_file=text, output_prefix=tmp_path / "v", vocab_size=largest)
    assert len(pieces(tmp_path / "v.model")) == largest


@pytest.mark.parametrize(
    "content, message",
    [
        (b"\n\n", "no sentence found in the input"),
        (b"", "no sentence found in the input"),
        (b"one\ntw\xff\n", "text, line 2, byte 3: not UTF-8"),
    ],
)
def test_unusable_text(tmp_path, run_script, content, message):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(file_io.InputError, match=message):
        run_script(train_vocab, input_file=tmp_path / "text", output_prefix=tmp_path / "v")
    assert os.listdir(tmp_path) == ["text"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 75, "ended by SIGTERM")],
)
def test_signals_end_the_training_at_once(tmp_path, kind, status, message):
    (tmp_path / "text").write_text("".join(f"a{i} b{i} c{i * i}\n" for i in range(200_000)))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "albert.train_vocab", f"--input_file={tmp_path}/text"),
            f"--output_prefix={tmp_path}/v",
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "Training 30000 pieces" in process.stderr.readline()
    time.sleep(1)
    process.send_signal(kind)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == status
    assert errors.endswith(f"{message}; nothing was written\n")
    assert os.listdir(tmp_path) == ["text"]


@pytest.mark.slow
def test_a_vocabulary_of_the_published_size(shared, tmp_path, run_script):
    """The recipe, down to the scores: this vocabulary was made with the reference's options."""
    run_script(
        train_vocab, input_file=shared / "data/corpus/*.txt", output_prefix=tmp_path / "30k-clean"
    )
    assert len(pieces(tmp_path / "30k-clean.model")) == 30000
    expected = (shared / "data" / "spm" / "30k-clean.vocab").read_text("utf-8")
    assert (tmp_path / "30k-clean.vocab").read_text("utf-8") == expected


# --- WordPiece ----------------------------------------------------------------------------------


def wordpieces(path):
    return path.read_text("utf-8").splitlines()


def test_a_wordpiece_vocabulary(text, tmp_path, run_script, capsys):
    pytest.importorskip("tokenizers")
    run_script(
        train_vocab, input_file=text, output_prefix=tmp_path / "vocab", vocab_size=300,
        wordpiece=True,
    )  # fmt: skip
    found = wordpieces(tmp_path / "vocab.txt")
    assert found[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(found) == len(set(found)) == 300
    assert "the" in found and "##e" in found and not any(p != p.lower() for p in found[5:])
    tokenizer = tokenization.FullTokenizer(vocab_file=str(tmp_path / "vocab.txt"))
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 1, 4)
    for sentence in make_tiny_vocab.sentences():
        pieces = tokenizer.tokenize(sentence)
        assert "[UNK]" not in pieces and len(pieces) < 0.6 * len(sentence), sentence
    report = capsys.readouterr().out
    assert report.startswith(f"300 pieces in {tmp_path}/vocab.txt, ")
    assert re.search(r"read: (9\d) lines in 2 file\(s\), \1 used", report)


@pytest.mark.slow
def test_the_same_wordpieces_in_every_process(text, tmp_path):
    pytest.importorskip("tokenizers")
    for name, options in (("a", []), ("b", []), ("c", ["--nodo_lower_case"])):
        subprocess.run(
            [
                *(sys.executable, "-m", "albert.train_vocab", f"--input_file={text}"),
                *(f"--output_prefix={tmp_path}/{name}", "--vocab_size=200", "--wordpiece"),
                *options,
            ],
            cwd=ROOT,
            check=True,
        )
    a, b, c = (wordpieces(tmp_path / f"{name}.txt") for name in "abc")
    assert a == b != c
    assert "t" in a and "T" in c and "t" not in c


def test_rare_characters_get_no_wordpiece(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "text").write_text("ab ab\n" * 500 + "xb ab\n", "utf-8")
    paths = [str(tmp_path / "text")]
    recipe = vocabulary.VocabRecipe(vocab_size=9, character_coverage=0.999)
    found, counts = vocabulary.train_wordpiece(paths, recipe)
    assert found == [*vocabulary.WORDPIECE_SYMBOLS, "a", "b", "##b", "ab"]
    assert counts["sentences"] == 501
    recipe = vocabulary.VocabRecipe(vocab_size=10, character_coverage=1)
    assert "x" in vocabulary.train_wordpiece(paths, recipe)[0]


@pytest.mark.parametrize(
    ("lower", "keep", "letter"),
    [
        *((True, None, "e"), (True, True, "é"), (True, False, "e")),
        *((False, None, "É"), (False, True, "É"), (False, False, "E")),
    ],
)
def test_wordpieces_have_the_accents_of_the_tokenizer(tmp_path, lower, keep, letter):
    pytest.importorskip("tokenizers")
    (tmp_path / "text").write_text("É É\n", "utf-8")
    recipe = vocabulary.VocabRecipe(6, lower, keep, character_coverage=1)
    found, _ = vocabulary.train_wordpiece([str(tmp_path / "text")], recipe)
    assert found[5:] == [letter]
    rules = text_rules.TextRules(lower, keep)
    vocab_file = str(tmp_path / "vocab.txt")
    file_io.write_text(vocab_file, "\n".join(found))
    assert tokenization.FullTokenizer(vocab_file, rules=rules).tokenize("É") == [letter]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 30000}, r"--vocab_size=30000 is too high for 9\d sentence.*at most \d+"),
        ({"vocab_size": 20}, r"--vocab_size=20 is too low .* alone are \d+; give a larger"),
        ({"num_threads": 2}, "--num_threads is of SentencePiece; with --wordpiece the package"),
    ],
)
def test_mistakes_with_wordpieces(text, tmp_path, run_script, arguments, message):
    pytest.importorskip("tokenizers")
    arguments = {"input_file": text, "output_prefix": tmp_path / "v", **arguments}
    with pytest.raises(file_io.InputError, match=message):
        run_script(train_vocab, wordpiece=True, **arguments)
    assert not (tmp_path / "v.txt").exists()


def test_the_largest_number_of_wordpieces_that_is_named_works(text, tmp_path, run_script):
    pytest.importorskip("tokenizers")
    flags = {"input_file": text, "output_prefix": tmp_path / "v", "wordpiece": True}
    with pytest.raises(file_io.InputError) as error:
        run_script(train_vocab, **flags)
    largest = int(re.search(r"or --vocab_size=(\d+)", str(error.value))[1])
    run_script(train_vocab, vocab_size=largest, **flags)
    assert len(wordpieces(tmp_path / "v.txt")) == largest


def test_no_sentence_for_wordpieces(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "text").write_text("\n\n")
    with pytest.raises(file_io.InputError, match="no sentence found in the input"):
        vocabulary.train_wordpiece([str(tmp_path / "text")], vocabulary.VocabRecipe())


def test_the_extra_for_wordpieces_is_named(text, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(file_io.InputError, match="tokenizers: pip install tokenizers"):
        vocabulary.train_wordpiece(text.split(","), vocabulary.VocabRecipe())
