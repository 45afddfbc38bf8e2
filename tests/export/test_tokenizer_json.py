"""The tokenizer of serving folders: the library `tokenizers` gives the ids of the toolkit."""

import random

import pytest

from albert.export import tokenizer_json
from albert.text import tokenization
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
