"""SentencePiece models in ``tokenizer.json`` alone: ids equal to the library's, or refused."""

import dataclasses
import json

import pytest

from albert.export import huggingface_export, tokenizer_json
from albert.io import file_io
from albert.model import model_folder, published, sources
from albert.text import (
    library_ids,
    sample_lines,
    sentencepiece_json,
    sentencepiece_proto,
    text_rules,
    tokenization,
)
from tests.support import vocabulary_samples

tokenizers = pytest.importorskip("tokenizers")

KOREAN = [line for line in sample_lines.SENTENCES if "\uc790" in line]
OTHERS = tuple(line for line in sample_lines.SENTENCES if line not in KOREAN)
# Real sentences with what rules differ in: vowels that are marks, a final sigma, quotes, numbers.
TEXTS = [
    *sample_lines.SENTENCES,
    "\u039f\u0394\u039f\u03a3 \u0391\u0398\u0397\u039d\u0391\u03a3, 12,500 \u20ac ``so'' it's",
    "Caf\u00e9 \ufb01ne \uff11\uff12 (na\u00efve) a(b)c - d-e .5 \u00a0x",
    "\u0915\u093f\u0924\u093e\u092c \u0915\u0940 \u0926\u0941\u0915\u093e\u0928",
]
RULES = {
    "as transformers 5": {"quotes": True, "extra_pieces": ("(", ")", "-", ".")},
    "cased": {"do_lower_case": False, "quotes": True},
    "accents": {"keep_accents": True, "extra_pieces": ("-",)},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "cache_dir", lambda: str(tmp_path / "cache"))


def folder_of(path, kind="unigram", sentences=OTHERS, **rules):
    """A folder with a configuration and a ``tokenizer.json`` alone."""
    path.mkdir()
    spm = path.parent / f"{path.name}.model"
    spm.write_bytes(vocabulary_samples.train_sentencepiece(kind, sentences=sentences))
    (path / "config.json").write_text("{}")
    made = text_rules.TextRules(**{"do_lower_case": True, "as_huggingface": True, **rules})
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(spm), rules=made)
    tokenizer_json.write(str(path), tokenizer, with_special_pieces=True)
    return path


def read(path):
    """The tokenizer of a folder, by what its file says."""
    (vocabulary,) = sources.vocabularies_in(str(path))
    rules = sources.rules_beside(str(path / "model.safetensors"))
    beside = sources.rules_beside(vocabulary)  # which numbers no lines
    assert dataclasses.replace(beside, ids_by_line=rules.ids_by_line) == rules
    return tokenization.load(vocabulary, rules)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_ids_are_those_of_the_library(tmp_path, kind, name):
    sentences = sample_lines.SENTENCES if name == "accents" else OTHERS
    path = folder_of(tmp_path / "a", kind, sentences, **RULES[name])
    if name == "cased":  # as older files, which do not name the type
        content = json.loads((path / "tokenizer.json").read_text("utf-8"))
        del content["model"]["type"]
        (path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    ours, theirs = read(path), tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text
        assert ours.convert_tokens_to_ids(ours.tokenize(text)) == ours.encode(text)


def test_the_model_and_its_rules_go_with_what_is_trained(tmp_path):
    """The copy beside trained weights, and an export of it, give the same ids."""
    path = folder_of(tmp_path / "a", **RULES["as transformers 5"])
    made = read(path)
    rules = sources.rules_beside(str(path / "model.safetensors"))
    source = sources.Source("", None, made.spm_model_file, None, rules)
    (tmp_path / "trained").mkdir()
    model_folder.copy_vocabulary(str(tmp_path / "trained"), source)
    model_folder.write_rules(str(tmp_path / "trained"), rules)
    (tmp_path / "exported").mkdir()
    huggingface_export.write_tokenizer(str(tmp_path / "exported"), read(tmp_path / "trained"), 9)
    assert not (tmp_path / "exported" / "spiece.model").exists()
    for folder in ("trained", "exported"):
        again = read(tmp_path / folder)
        assert [again.encode(text) for text in TEXTS] == [made.encode(text) for text in TEXTS]
    beside = sources.files_beside(str(path / "model.safetensors"))
    assert made.spm_model_file in beside


def test_a_changed_file_is_read_again(tmp_path):
    path = folder_of(tmp_path / "a")
    (first,) = sources.vocabularies_in(str(path))
    assert sources.vocabularies_in(str(path)) == [first]
    with open(path / "tokenizer.json", "a", encoding="utf-8") as file:
        file.write("\n")
    assert sources.vocabularies_in(str(path)) != [first]
    (path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(file_io.InputError, match="tokenizer.json cannot be .* gives other ids on"):
        sources.vocabularies_in(str(path))


def changed(content, place, value):
    *path, last = place
    for entry in path:
        content = content[entry]
    content[last] = value


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (["normalizer"], {"type": "NFC"}, "the normalizer has the steps NFC; of a Sentence"),
        (["normalizer"], {"type": "NFKD"}, "only one of the steps NFKD and StripAccents"),
        (["pre_tokenizer"], {"type": "Whitespace"}, "the pre_tokenizer is Whitespace; of a"),
        (["pre_tokenizer"], {"type": "ByteLevel"}, "is a byte-level BPE, as those of GPT-2"),
        (["model", "merges"], [["a", "b"]], "merges are not those of a SentencePiece model"),
        (["model", "fuse_unk"], False, "fuse_unk is False, which no SentencePiece model has"),
        (["model", "vocab", "a"], 1, "ids are missing or repeat"),
    ],
)
def test_what_no_sentencepiece_model_does_is_refused(tmp_path, place, value, words):
    path = folder_of(tmp_path / "a", "bpe")
    content = json.loads((path / "tokenizer.json").read_text("utf-8"))
    changed(content, place, value)
    (path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(file_io.InputError, match=words):
        sources.vocabularies_in(str(path))
    assert not list(tmp_path.glob("cache/*/"))


@pytest.mark.parametrize(
    ("place", "value"),
    [(["model", "vocab", 9], ["\uc790", -9.0]), (["model", "byte_fallback"], True)],
)
def test_korean_pieces_are_refused_where_marks_are_stripped(tmp_path, place, value):
    path = folder_of(tmp_path / "a")
    content = json.loads((path / "tokenizer.json").read_text("utf-8"))
    changed(content, place, value)
    (path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(file_io.InputError, match=r"can spell Korean \((\uc790|byte_fallback)\)"):
        sources.vocabularies_in(str(path))


def test_ids_are_compared_as_soon_as_the_library_is_there(tmp_path, monkeypatch, caplog):
    def missing(*arguments):
        raise ImportError("no tokenizers")

    path = folder_of(tmp_path / "a")
    with monkeypatch.context() as patched:
        patched.setattr(library_ids, "compare", missing)
        for _ in range(2):
            caplog.clear()
            (made,) = sources.vocabularies_in(str(path))
            assert "were not compared" in caplog.text
    caplog.clear()
    assert sources.vocabularies_in(str(path)) == [made] and not caplog.text
    monkeypatch.setattr(library_ids, "compare", missing)
    assert sources.vocabularies_in(str(path)) == [made] and not caplog.text


def test_white_space_that_the_library_keeps_is_refused(tmp_path):
    """Tabs and wide spaces, which SentencePiece reads as spaces."""
    path = folder_of(tmp_path / "a")
    content = json.loads((path / "tokenizer.json").read_text("utf-8"))
    content["normalizer"] = {"type": "Lowercase"}
    place = content["pre_tokenizer"]["pretokenizers"]
    for steps, words in ((place, None), (place[-1:], "gives other ids on the text 'All.thuman")):
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
        (path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
        if words is None:
            assert sources.vocabularies_in(str(path))
            continue
        with pytest.raises(file_io.InputError, match=words):
            sources.vocabularies_in(str(path))


def test_other_ids_are_refused(tmp_path, monkeypatch):
    """Whatever the reason: here a model whose scores were lost."""
    path = folder_of(tmp_path / "a")
    model_of = sentencepiece_json.model_of

    def spoiled(*arguments):
        model = sentencepiece_proto.model_class().FromString(model_of(*arguments))
        for number, piece in enumerate(model.pieces):
            piece.score = -float(number * 7919 % 100)
        return model.SerializeToString()

    monkeypatch.setattr(sentencepiece_json, "model_of", spoiled)
    with pytest.raises(file_io.InputError, match="other ids on the text .* give spm_model_file"):
        sources.vocabularies_in(str(path))
    assert not list(tmp_path.glob("cache/*/"))
