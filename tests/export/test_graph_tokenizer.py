"""The tokenizers in a graph give the ids of those in Python."""

import functools
import gzip
import json
import random
import sys
import unicodedata

import pytest
import tensorflow as tf

from albert.export import graphs
from albert.io import file_io
from albert.text import text_rules, tokenization
from tests.support.builders import ODD_TEXTS, TESTDATA

pytest.importorskip("tensorflow_text")


def make_tokenizer(kind, do_lower_case):
    if kind == "sentencepiece":
        file = {"spm_model_file": str(TESTDATA / "tiny.model")}
    else:
        file = {"vocab_file": str(TESTDATA / "tiny_vocab.txt")}
    return tokenization.FullTokenizer(do_lower_case=do_lower_case, **file)


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=[True, False])
def do_lower_case(request):
    return request.param


@pytest.fixture(scope="module")
def made():
    """Function of kind and casing: a tokenizer and the same in a graph."""

    @functools.cache
    def make(kind, do_lower_case):
        tokenizer = make_tokenizer(kind, do_lower_case)
        return tokenizer, graphs.make(tokenizer)

    return make


@pytest.fixture(scope="module")
def tokenizer(kind, do_lower_case, made):
    return made(kind, do_lower_case)[0]


@pytest.fixture(scope="module")
def in_graph(kind, do_lower_case, made):
    return made(kind, do_lower_case)[1]


def assert_same_ids(tokenizer, texts, in_graph):
    found = in_graph.encode(tf.constant(texts)).to_list()
    for text, ids in zip(texts, found, strict=True):
        preprocessed = tokenizer.preprocess(text)  # as readers of files do
        assert ids == tokenizer.encode(preprocessed), repr(text)


@functools.cache
def characters():
    """All that are text and that Python's Unicode version knows."""
    codes = range(1, sys.maxunicode + 1)
    return [chr(c) for c in codes if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]


@pytest.mark.slow
def test_every_character(tokenizer, in_graph):
    """Characters that TensorFlow's Unicode version does not know yet are unknown pieces anyway."""
    texts = [f"A{character}b" for character in characters()]
    assert_same_ids(tokenizer, texts, in_graph)
    found = in_graph.preprocess(tf.constant(texts)).numpy()
    differing = [
        text
        for text, other in zip(texts, found, strict=True)
        if in_graph.expected_text(tokenizer, text) != other.decode()
    ]
    assert len(differing) < 100


@pytest.mark.slow
def test_a_vocabulary_with_a_character_that_differs_is_refused(kind, monkeypatch):
    made = {"sentencepiece": graphs.SentencePiece, "wordpiece": graphs.WordPiece}
    preprocess = made[kind].preprocess

    def another(self, texts):
        return tf.strings.regex_replace(preprocess(self, texts), "e", "\u00e9")

    monkeypatch.setattr(made[kind], "preprocess", another)
    with pytest.raises(file_io.InputError, match="characters .*e .*that TensorFlow"):
        graphs.make(make_tokenizer(kind, True))


@pytest.mark.slow
def test_ids_of_hard_texts(tokenizer, in_graph):
    assert_same_ids(tokenizer, [*ODD_TEXTS, "the\0boat was\0\0old", "\0"], in_graph)


@pytest.mark.slow
def test_characters_for_private_use_and_final_sigmas_are_read_as_the_rules_say():
    path = str(TESTDATA / "tiny_vocab.txt")
    for is_theirs in (True, False):
        rules = text_rules.TextRules(True, drop_private=is_theirs, lower_alone=is_theirs)
        tokenizer = tokenization.FullTokenizer(path, rules=rules)
        texts = ["the\uf0b7 boat", "\U000f0001\U0010fffd the"]
        in_graph = graphs.WordPiece(tokenizer)
        assert_same_ids(tokenizer, texts, in_graph)
        assert (tokenizer.encode(texts[1]) == tokenizer.encode("the")) == is_theirs
        words = in_graph.preprocess(tf.constant(["\u039f\u0394\u039f\u03a3"])).numpy()[0].decode()
        assert words == ("\u03bf\u03b4\u03bf\u03c3" if is_theirs else "\u03bf\u03b4\u03bf\u03c2")
        assert [words] == tokenizer.basic_tokenizer.tokenize("\u039f\u0394\u039f\u03a3")


SIGNS = 'ab ,.9 1\u00e9\u0301\u00bd\u2003\u03a3\u0130\u2581\u4e2d\U0001f600\t"'


def random_texts(signs):
    rng = random.Random(1)
    return ["".join(rng.choices(signs, k=rng.randrange(1, 30))) for _ in range(2000)]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_ids_of_random_texts(do_lower_case, made):
    """Equal scores may differ in their last bit; such a text may be cut another way."""
    tokenizer, in_graph = made("sentencepiece", do_lower_case)
    texts = random_texts(SIGNS)
    found = in_graph.encode(tf.constant(texts)).to_list()
    expected = [tokenizer.encode(text) for text in texts]
    scores = tokenizer.sp_model.get_score(list(range(tokenizer.vocab_size)))
    differing = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    assert len(differing) <= 4
    for pair in differing:
        ours, theirs = (sum(scores[i] for i in ids) for ids in pair)
        assert ours == pytest.approx(theirs, abs=1e-9)
        ours, theirs = ("".join(tokenizer.inv_vocab[i] for i in ids) for ids in pair)
        assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_wordpieces_of_random_texts(do_lower_case, made):
    """With controls, white space of all kinds, marks, and a piece of any beginning of a word."""
    tokenizer, in_graph = made("wordpiece", do_lower_case)
    signs = SIGNS + "\x00\x0b\x1f\x85\u2028\u00ad\ufeff\ufffdthinged\u4e00\u56fd\ufa6e#$\u0378"
    assert_same_ids(tokenizer, random_texts(signs), in_graph)


@pytest.mark.slow
def test_words_that_are_too_long_are_unknown(made):
    tokenizer, in_graph = made("wordpiece", True)
    texts = [sign * count for sign in ("a", "\u03b1", "\u4e00") for count in (100, 200, 201)]
    found = in_graph.encode(tf.constant(texts)).to_list()
    assert found == [tokenizer.encode(text) for text in texts]
    assert found[1] != [tokenizer.unk_id] == found[2]


def glue_texts(shared):
    columns = {"MRPC": (3, 4), "RTE": (1, 2), "STS-B": (7, 8), "CoLA": (3,), "SST-2": (0,)}
    texts = []
    for folder, places in columns.items():
        text = (shared / "data" / "glue" / folder / "dev.tsv").read_text(encoding="utf-8")
        rows = [line.split("\t") for line in text.split("\n")[1:] if line]
        texts += [row[place] for row in rows for place in places if len(row) > place]
    with gzip.open(shared / "golden" / "data" / "tokenization.json.gz", "rt") as file:
        recorded = json.load(file)
    texts += sorted({row["text"] for row in _rows_with_text(recorded)})
    assert len(texts) > 6000
    return texts


@pytest.mark.slow
@pytest.mark.parametrize(
    "files",
    [
        {"spm_model_file": "spm/30k-clean.model"},
        {"vocab_file": "zh/vocab.txt"},
        {"vocab_file": "zh/vocab.txt", "do_lower_case": False},
    ],
    ids=["sentencepiece", "wordpiece", "cased wordpiece"],
)
def test_ids_of_glue_texts(shared, files):
    for name in files.keys() & {"spm_model_file", "vocab_file"}:
        files = {**files, name: str(shared / "data" / files[name])}
    tokenizer = tokenization.FullTokenizer(**files)
    assert_same_ids(tokenizer, glue_texts(shared), graphs.make(tokenizer))


def _rows_with_text(value):
    """Every dict with a text, however deep."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _rows_with_text(part)


def test_a_vocabulary_without_comma_is_refused(monkeypatch):
    tokenizer = make_tokenizer("sentencepiece", True)
    monkeypatch.delitem(tokenizer.vocab, ",")
    with pytest.raises(file_io.InputError, match="export_text needs a SentencePiece"):
        graphs.check_text(tokenizer)
