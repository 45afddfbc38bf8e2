"""The tokenizer of serving folders: the library `tokenizers` gives the ids of the toolkit."""

import io
import random
import re

import pytest

from albert.export import tokenizer_json
from albert.io import file_io
from albert.text import sample_lines, text_rules, tokenization
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
RANGES = (range(32, 127), range(0x500), range(0x370, 0x400), range(0x1E00, 0x3100))
RANGES += (range(0x4E00, 0xD800), range(0x1F300, 0x1F700))


def random_texts(count):
    """Texts of any characters but digits, whose segmentations can have equal scores."""
    rng = random.Random(1)
    for _ in range(count):
        size = rng.randrange(1, 30)
        usual = [rng.choice(" ,.Σa") if rng.random() < 0.4 else "" for _ in range(size)]
        text = "".join(c or chr(rng.choice(rng.choice(RANGES))) for c in usual)
        yield "".join(c for c in text if not c.isnumeric())


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["spm_model_file", "vocab_file"])
def test_ids_are_those_of_the_toolkit(tmp_path, kind, lower):
    tokenizers = pytest.importorskip("tokenizers")
    path = str(SPM if kind == "spm_model_file" else WORDS)
    own = tokenization.FullTokenizer(**{kind: path}, do_lower_case=lower)
    tokenizer_json.write(str(tmp_path), own)
    found = tokenizers.Tokenizer.from_file(str(tmp_path / tokenizer_json.NAME))
    for text in [*HARD, *random_texts(500)]:
        assert found.encode(text, add_special_tokens=False).ids == own.encode(text), repr(text)
    whole = found.encode("some words", "and others")
    a, b = own.encode("some words"), own.encode("and others")
    assert whole.ids == [own.cls_id, *a, own.sep_id, *b, own.sep_id]
    assert whole.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert found.encode("").ids == [own.cls_id, own.sep_id]


LINES = [line for line in tokenizer_json.__doc__.splitlines() if line]
# Settings of SentencePiece, and the words with which a model is refused.
KINDS = {
    "unigram": ({}, None),
    "bpe": ({"model_type": "bpe"}, None),
    "char": ({"model_type": "char"}, None),
    "word": ({"model_type": "word"}, "no model_type=word"),
    "unigram_bytes": ({"byte_fallback": True, "vocab_size": 600}, None),
    "bpe_bytes": ({"model_type": "bpe", "byte_fallback": True, "vocab_size": 600}, None),
    "unigram_symbols": ({"user_defined_symbols": ["(", ")", "-", "<br>"]}, None),
    "bpe_symbols": ({"model_type": "bpe", "user_defined_symbols": ["(", ")", "-"]}, None),
    "bpe_long_symbols": (
        {"model_type": "bpe", "user_defined_symbols": ["<br>"]},
        "no user_defined_symbols of several characters",
    ),
    "no_dummy_prefix": ({"add_dummy_prefix": False}, None),
    "extra_white_space": ({"remove_extra_whitespaces": False}, None),
    "identity": ({"normalization_rule_name": "identity"}, None),
    "case_folding": ({"normalization_rule_name": "nmt_nfkc_cf"}, None),
    "no_split_at_spaces": ({"model_type": "bpe", "split_by_whitespace": False}, None),
    "suffix": ({"treat_whitespace_as_suffix": True}, "no treat_whitespace_as_suffix"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sentencepiece_is_written_or_refused(tmp_path, kind):
    import sentencepiece

    tokenizers = pytest.importorskip("tokenizers")
    settings, refusal = KINDS[kind]
    model = io.BytesIO()
    text = [tokenization.preprocess_text(x) for x in (*LINES * 2, *sample_lines.SENTENCES * 3)]
    arguments = {"vocab_size": 450, "model_type": "unigram", **settings}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, hard_vocab_limit=False, pad_id=0,
        unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2, **arguments,
    )  # fmt: skip
    path = tmp_path / "m.model"
    path.write_bytes(model.getvalue())
    rules = text_rules.TextRules(False, keep_accents=kind == "case_folding")
    own = tokenization.FullTokenizer(spm_model_file=str(path), rules=rules)
    if refusal:
        with pytest.raises(file_io.InputError, match=refusal):
            tokenizer_json.write(str(tmp_path), own)
        return
    tokenizer_json.write(str(tmp_path), own)
    found = tokenizers.Tokenizer.from_file(str(tmp_path / tokenizer_json.NAME))
    for line in (*LINES, *sample_lines.SENTENCES):
        line = re.sub(r"(?<=\d),", "", line)
        assert found.encode(line, add_special_tokens=False).ids == own.encode(line), line


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
    rules = text_rules.TextRules(True, True, False, extra_pieces=("<ORT>", "(c)"))
    own = tokenization.FullTokenizer(**{kind: str(path)}, rules=rules)
    tokenizer_json.write(str(tmp_path), own)
    found = tokenizers.Tokenizer.from_file(str(tmp_path / tokenizer_json.NAME))
    for text in ("caf\u00e9 中文x", "a <ORT> b(c)d <ort>", "<ORT>"):
        assert found.encode(text, add_special_tokens=False).ids == own.encode(text), text
