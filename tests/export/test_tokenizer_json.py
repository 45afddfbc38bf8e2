"""The tokenizer of serving folders: the library `tokenizers` gives the ids of the toolkit."""

import random
import re

import pytest

from albert.export import tokenizer_json
from albert.io import file_io
from albert.text import sample_lines, text_rules, tokenization
from tests.support import vocabulary_samples
from tests.support.builders import SPM

WORDS = SPM.parent / "tiny_vocab.txt"
HARD = [
    *("", " ", "a", "a" * 500, "x" * 201 + " " + "y" * 200, "##ing ing", "▁ ▁a"),
    "[CLS] a [SEP] <pad> <unk> [MASK] [UNK]",
    "ΟΔΟΣ ΣΑΣ Σ ΑΣ' ΑΣ'Α ὈΔΥΣΣΕΎΣ Σ\u0301 ΑΣ.Β",
    "İstanbul ﬁne Ａ１ ½ ² ㎏ Straße ẞ ŉ",
    "中文 字a字，。 \U0002f800\uf900\ufa0e 한국어 ㄱ ป่า हिन्दी عربى",
    "a\u0301 e\u0300\u0301 \u0301 deja\u0300 vu",
    "one\ttwo\n\nthree\r\n four\u2028five\u00a0six\u3000seven\u200beight\x85nine\x1cten",
    "9, 99,9, 2000, (3,4) ``quoted'' \"text\" don't stop-it $5^2 a_b <b> & © ™ …",
    "\U0001f600\U0001f468\u200d\U0001f469 \ufffd\ufeff\x00a\x07 \ud7ff\ue000",
]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["spm_model_file", "vocab_file"])
def test_ids_are_those_of_the_toolkit(tmp_path, kind, lower):
    tokenizers = pytest.importorskip("tokenizers")
    path = str(SPM if kind == "spm_model_file" else WORDS)
    own = tokenization.FullTokenizer(**{kind: path}, do_lower_case=lower)
    tokenizer_json.write(str(tmp_path), own)
    found = tokenizers.Tokenizer.from_file(str(tmp_path / tokenizer_json.NAME))
    for text in [*HARD, *vocabulary_samples.random_texts(random.Random(1), 500)]:
        assert found.encode(text, add_special_tokens=False).ids == own.encode(text), repr(text)
    whole = found.encode("some words", "and others")
    a, b = own.encode("some words"), own.encode("and others")
    assert whole.ids == [own.cls_id, *a, own.sep_id, *b, own.sep_id]
    assert whole.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert found.encode("").ids == [own.cls_id, own.sep_id]


@pytest.mark.parametrize("kind", vocabulary_samples.SENTENCEPIECE)
def test_every_kind_of_sentencepiece_is_written_or_refused(tmp_path, kind):
    tokenizers = pytest.importorskip("tokenizers")
    refusal = vocabulary_samples.SENTENCEPIECE[kind][1]
    path = tmp_path / "m.model"
    path.write_bytes(vocabulary_samples.train_sentencepiece(kind))
    rules = text_rules.TextRules(False, keep_accents=kind == "case_folding")
    own = tokenization.FullTokenizer(spm_model_file=str(path), rules=rules)
    if refusal:
        with pytest.raises(file_io.InputError, match=refusal):
            tokenizer_json.write(str(tmp_path), own)
        return
    tokenizer_json.write(str(tmp_path), own)
    found = tokenizers.Tokenizer.from_file(str(tmp_path / tokenizer_json.NAME))
    for line in (*vocabulary_samples.LINES, *sample_lines.SENTENCES):
        line = re.sub(r"(?<=\d),", "", line)
        assert found.encode(line, add_special_tokens=False).ids == own.encode(line), line


def test_lower_casing_before_case_folding_is_refused(tmp_path):
    path = tmp_path / "m.model"
    path.write_bytes(vocabulary_samples.train_sentencepiece("case_folding"))
    own = tokenization.FullTokenizer(spm_model_file=str(path), rules=text_rules.TextRules(True))
    with pytest.raises(file_io.InputError, match="no lower-casing before case folding"):
        tokenizer_json.write(str(tmp_path), own)


def test_a_file_that_gives_other_ids_is_not_written(tmp_path):
    pytest.importorskip("tokenizers")
    own = tokenization.FullTokenizer(str(WORDS))
    own.do_lower_case = False  # its words are lower-cased all the same
    with pytest.raises(file_io.InputError, match="gives other ids on the text 'All human"):
        tokenizer_json.write(str(tmp_path), own)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [SPM, WORDS])
def test_rules_of_texts_are_written(tmp_path, path):
    tokenizers = pytest.importorskip("tokenizers")
    kind = "spm_model_file" if path == SPM else "vocab_file"
    rules = text_rules.TextRules(
        True, True, False, extra_pieces=("<ORT>", "(c)"), drop_private=True, lower_alone=True
    )
    own = tokenization.FullTokenizer(**{kind: str(path)}, rules=rules)
    tokenizer_json.write(str(tmp_path), own)
    found = tokenizers.Tokenizer.from_file(str(tmp_path / tokenizer_json.NAME))
    for text in ("caf\u00e9 中文x", "a <ORT> b(c)d <ort>", "<ORT>", "th\uf0b7e \ue000a"):
        assert found.encode(text, add_special_tokens=False).ids == own.encode(text), text
    if path == WORDS:
        assert own.basic_tokenizer.tokenize("\u039f\u03a3") == ["\u03bf\u03c3"]
        assert found.normalizer.normalize_str("\u039f\u03a3") == "\u03bf\u03c3"
