"""Tokenizers of Hugging Face folders: what they ask for is done, or refused by name."""

import json
import sys
import unicodedata

import pytest

from albert.io import file_io
from albert.model import huggingface_tokenizer, model_folder, sources
from albert.text import sample_lines, text_rules, tokenization, wordpiece
from tests.support.vocabulary_samples import SPECIAL, fast_file, folder_with, tokenizer_of


def test_entries_become_rules(tmp_path):
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": False}
    config["tokenize_chinese_chars"] = False
    path = folder_with(tmp_path / "a", tokenizer_config=config)
    others = {"longest_word": 100, "drop_private": True, "lower_alone": True}
    expected = text_rules.TextRules(True, True, False, ids_by_line=True, **others)
    assert sources.rules_beside(str(path / "model.safetensors")) == expected
    fast = {"normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": None}}
    path = folder_with(tmp_path / "b", tokenizer=fast)
    assert huggingface_tokenizer.read_rules(str(path)) == {"do_lower_case": False} | others
    path = folder_with(tmp_path / "c", tokenizer=fast, tokenizer_config={"do_lower_case": True})
    assert huggingface_tokenizer.read_rules(str(path)) == {"do_lower_case": True} | others
    for number, (kind, do_lower_case) in enumerate((
        ({"tokenizer_class": "BertTokenizer"}, None),  # takes its own default
        ({"tokenizer_class": "BertTokenizerFast", "do_lower_case": True}, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}, False),
        ({"tokenizer_class": "TokenizersBackend"}, False),
    )):  # fmt: skip
        path = folder_with(tmp_path / str(number), tokenizer=fast, tokenizer_config=kind)
        assert huggingface_tokenizer.read_rules(str(path)).get("do_lower_case") is do_lower_case
    path = folder_with(tmp_path / "d", tokenizer_config={"keep_accents": True})
    assert huggingface_tokenizer.read_rules(str(path)) == {"keep_accents": True} | others


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "'BertJapaneseTokenizer', whose words come"),
        ({"tokenizer_class": "RobertaTokenizerFast"}, "'RobertaTokenizerFast', a byte-level BPE"),
        ({"tokenizer_class": "XTokenizer"}, "'XTokenizer', which makes other pieces; this package"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize is False"),
        ({"remove_space": False}, "remove_space is False"),
        ({"never_split": ["<x>"]}, "never_split is"),
        ({"never_split": 5}, "never_split is 5"),
        ({"cls_token": "<s>"}, "cls_token is '<s>'"),
        ({"cls_token": ["x"]}, r"cls_token is \['x'\]"),
        ({"extra_special_tokens": 5}, "tokenizer_config.json: expected an added token, found 5"),
        ({"strip_accents": "no"}, "strip_accents is 'no'"),
        ({"truncation_side": "left"}, "truncation_side is 'left'; this package only has 'right'"),
        ({"mask_token": "[PAD]"}, r"mask_token is '\[PAD\]'; expected \[MASK\]"),
        ({"unk_token": "<unk>"}, r"unk_token is '<unk>'; expected \[UNK\]"),
        ({"split_special_tokens": True, "extra_special_tokens": ["the"]}, "split_special_tokens"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(tmp_path, entries, words):
    path = folder_with(tmp_path / "a", tokenizer_config=entries)
    with pytest.raises(file_io.InputError, match=words):
        huggingface_tokenizer.read_rules(str(path))


def test_added_tokens_are_extra_pieces(tmp_path):
    token = {"content": "<x>", "lstrip": False, "normalized": False}
    decoder = {"7": token, "0": {"content": "[PAD]", "special": True}}
    path = folder_with(
        tmp_path / "a", added_tokens={"<x>": 7}, tokenizer_config={"added_tokens_decoder": decoder}
    )
    made = tokenizer_of(path)
    assert made.tokenize("the <x> film") == ["the", "<x>", "film"] and made.vocab["<x>"] == 7
    for name, added, words in (
        ("b", {"<9>": 8}, "'<9>' has the id 8; expected 7"),
        ("c", {"new": 7}, "'new' is normalized, which ignores case"),
    ):
        path = folder_with(tmp_path / name, added_tokens=added)
        with pytest.raises(file_io.InputError, match=words):
            tokenizer_of(path)


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("tokenizer_config", {"additional_special_tokens": ["[e1]", "[CLS]"]}),
        ("tokenizer_config", {"extra_special_tokens": {"marker": {"content": "[e1]"}}}),
        ("special_tokens_map", {"additional_special_tokens": [{"content": "[e1]", "id": "5"}]}),
    ],
)
def test_special_pieces_that_are_only_named_have_the_ids_of_the_vocabulary(tmp_path, name, entries):
    path = folder_with(tmp_path / "a", [*SPECIAL, "the", "[e1]"], **{name: entries})
    made = tokenizer_of(path)
    assert made.encode("the [e1] the") == [5, 6, 5] and made.vocab_size == 7
    path = folder_with(tmp_path / "b", **{name: entries})
    with pytest.raises(file_io.InputError, match="special token '.e1.' is not in the vocabulary"):
        tokenizer_of(path)
    tokenizer_of(folder_with(tmp_path / "c", **{name: entries}, added_tokens={"[e1]": 7}))
    decoder = {"added_tokens_decoder": {}}  # then the other file does not count
    if name == "special_tokens_map":
        tokenizer_of(folder_with(tmp_path / "d", **{name: entries}, tokenizer_config=decoder))


@pytest.mark.parametrize(
    ("config", "the"), [("config.json", 8), ("bert_config.json", 8), ("albert_config.json", 6)]
)
def test_the_kind_of_folder_says_how_lines_are_numbered(tmp_path, config, the):
    lines = [*SPECIAL, "film", "", "film ", "the"]
    if config == "albert_config.json":
        lines = [*SPECIAL, "film", "film ", "the"]
    made = tokenizer_of(folder_with(tmp_path / "a", lines, config))
    assert made.vocab["the"] == the and made.vocab["film"] == (7 if the == 8 else 5)
    assert [made.inv_vocab[i] for i in range(made.vocab_size)] == list(made.vocab)
    assert made.encode("film the") == [made.vocab["film"], the]


def test_rules_survive_pretraining_and_exports(tmp_path, run_script):
    import numpy as np

    from albert import export_checkpoints
    from albert.model import checkpoints, configuration

    lines = [*SPECIAL, "Paris", "film"]
    path = folder_with(tmp_path / "cased_L-1", lines, "bert_config.json")
    checkpoints.write_tensors(str(path / "bert_model.ckpt"), {"x": np.zeros(1, np.float32)})
    arguments = {"albert_directory": path, "checkpoint_name": "bert_model.ckpt"}
    with pytest.raises(file_io.InputError, match="2 of its|1 of its 7 pieces have capitals"):
        run_script(export_checkpoints, **arguments, export_path=f"{tmp_path}/out/")
    run_script(export_checkpoints, **arguments, export_path=f"{tmp_path}/out/", do_lower_case=False)
    expected = text_rules.TextRules(False, ids_by_line=True)
    assert sources.rules_beside(f"{tmp_path}/out/bert_model.ckpt") == expected
    config = configuration.AlbertConfig(7)
    source = sources.Source("", None, None, str(path / "vocab.txt"), expected)
    (tmp_path / "pretrained").mkdir()
    model_folder.write_pretrained(str(tmp_path / "pretrained"), config, "sop", source)
    assert sources.rules_beside(f"{tmp_path}/pretrained/model.ckpt-1") == expected


def test_a_wordpiece_vocabulary_is_read_from_tokenizer_json(tmp_path):
    path = folder_with(tmp_path / "a", tokenizer=fast_file())
    (path / "vocab.txt").unlink()
    (found,) = sources.vocabularies_in(str(path))
    rules = sources.rules_beside(found)
    made = tokenization.load(found, rules)
    assert made.tokenize("The Füre fur") == ["the", "für", "##e", "fur"]
    assert made.vocab == fast_file()["model"]["vocab"]
    source = sources.Source("", None, None, found, rules)
    model_folder.copy_vocabulary(str(tmp_path), source)
    copy = tokenization.load(str(tmp_path / "vocab.txt"), rules)
    assert copy.vocab == made.vocab


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "the normalizer is 'Lowercase'"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre_tokenizer is 'Whitespace'"),
    ],
)
def test_another_wordpiece_is_refused_by_name(tmp_path, changes, words):
    content, config = fast_file(**changes), {"tokenizer_class": "PreTrainedTokenizerFast"}
    lines = content["model"]["vocab"]
    path = folder_with(tmp_path / "a", lines, tokenizer=content, tokenizer_config=config)
    with pytest.raises(file_io.InputError, match=f"{words}.*; this package only has the steps"):
        tokenizer_of(path)
    config["tokenizer_class"] = "BertTokenizer"  # whose steps are its own
    tokenizer_of(folder_with(tmp_path / "b", lines, tokenizer=content, tokenizer_config=config))
    (path / "vocab.txt").unlink()
    with pytest.raises(file_io.InputError, match=words):
        sources.vocabularies_in(str(path))
    (path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}))
    with pytest.raises(file_io.InputError, match="holds a model of the type 'Unigram'"):
        tokenization.load(str(path / "tokenizer.json"), text_rules.TextRules())


@pytest.mark.parametrize(
    ("lines", "content", "words"),
    [
        ([*SPECIAL, "für", "fur", "the"], fast_file(), "'##e' has the id None .there 7."),
        ([*SPECIAL, "fur", "für", "##e", "the"], fast_file(), "'fur' has the id 5 .there 6."),
        (SPECIAL, {"model": {"type": "WordLevel"}}, "of the type 'WordLevel', but .*vocab.txt"),
    ],
)
def test_another_vocabulary_than_that_of_tokenizer_json_is_refused(tmp_path, lines, content, words):
    with pytest.raises(file_io.InputError, match=f"{words}.*delete the"):
        tokenizer_of(folder_with(tmp_path / "a", lines, tokenizer=content))


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False, None])
@pytest.mark.parametrize("handle_chinese_chars", [True, False])
def test_ids_are_those_of_the_library(tmp_path, lowercase, strip_accents, handle_chinese_chars):
    tokenizers = pytest.importorskip("tokenizers")
    sentences = (*sample_lines.SENTENCES, "ΟΔΟΣ ΑΘΗΝΑΣ Σ ΑΣ'Α οδός")  # a final sigma
    letters = sorted(
        {c for line in sentences for x in (line, line.lower()) for c in x if not c.isspace()}
    )
    words = [w for line in sample_lines.SENTENCES for w in line.split()][::3]
    pieces = dict.fromkeys([*SPECIAL, *letters[::2], *(f"##{c}" for c in letters), *words])
    rules = {"lowercase": lowercase, "strip_accents": strip_accents, "clean_text": True}
    rules["handle_chinese_chars"] = handle_chinese_chars
    content = fast_file(normalizer={"type": "BertNormalizer", **rules}, version="1.0")
    content["model"] |= {"vocab": {piece: i for i, piece in enumerate(pieces)}}
    content["model"] |= {"unk_token": "[UNK]", "max_input_chars_per_word": 100}
    content["added_tokens"] = []
    path = folder_with(tmp_path / "a", tokenizer=content)
    (path / "vocab.txt").unlink()
    fast = str(path / "tokenizer.json")
    made = tokenization.load(fast, sources.rules_beside(fast))
    theirs = tokenizers.Tokenizer.from_file(fast)
    for line in (*sample_lines.lines(made), *sentences):
        assert theirs.encode(line, add_special_tokens=False).ids == made.encode(line), line


@pytest.mark.parametrize(
    ("longest", "says_type", "name"),
    [
        (100, True, "tokenizer.json"),
        (7, False, "tokenizer.json"),
        (300, True, "vocab.txt"),
        (100, False, "vocab.txt"),
    ],
)
def test_words_too_long_for_the_library_are_unknown(tmp_path, longest, says_type, name):
    """As in scripts without spaces: Thai, Lao, Khmer."""
    tokenizers = pytest.importorskip("tokenizers")
    content = fast_file(version="1.0", added_tokens=[])
    content["normalizer"] |= {"clean_text": True, "handle_chinese_chars": True}
    pieces = [*SPECIAL, "a", "##a", "ม", "##ม"]
    content["model"] |= {"vocab": {piece: i for i, piece in enumerate(pieces)}}
    content["model"] |= {"unk_token": "[UNK]", "max_input_chars_per_word": longest}
    if not says_type:  # as older files
        del content["model"]["type"]
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    path = folder_with(tmp_path / "a", pieces, tokenizer=content, tokenizer_config=config)
    if name != "vocab.txt":
        (path / "vocab.txt").unlink()
    (found,) = sources.vocabularies_in(str(path))
    assert found == str(path / name)
    made = tokenization.load(found, sources.rules_beside(found))
    assert made.rules.drop_private
    theirs = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    for letter in "aม":
        for count in (7, 8, 100, 101, 200, 201, 300, 301):
            ids = theirs.encode(letter * count, add_special_tokens=False).ids
            assert made.encode(letter * count) == ids
            assert (ids == [1]) == (count > longest)
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert sources.rules_beside(found).longest_word == 100  # the class takes the vocabulary alone


# Those that the library keeps and Python drops, which are of the category Cf in later versions of
# Unicode than the library knows.
_OTHER_IN_LIBRARY = {*"\u0890\u0891\u08e2\U000110cd", *map(chr, range(0x13430, 0x1343F))}


@pytest.mark.slow
def test_characters_are_dropped_as_in_the_library(tmp_path):
    """All that are assigned; bullets of PDF files are characters for private use."""
    normalizers = pytest.importorskip("tokenizers.normalizers")
    path = folder_with(tmp_path / "a", fast_file()["model"]["vocab"], tokenizer=fast_file())
    rules = sources.rules_beside(str(path / "model.safetensors"))
    assert (
        rules.drop_private
        and rules.lower_alone
        and text_rules.from_json(rules.to_json(), "") == rules
    )
    made = tokenization.load(str(path / "vocab.txt"), rules)
    assert made.encode("the\uf0b7 \U000f0001") == made.encode("the")
    plain = tokenization.load(str(path / "vocab.txt"), text_rules.TextRules(True))
    assert {"drop_private", "lower_alone"}.isdisjoint(plain.rules.to_json())
    assert plain.tokenize("the \uf0b7") == ["the", "[UNK]"]
    words = wordpiece.BasicTokenizer(False, False, False, drop_private=True).tokenize
    clean = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False
    )
    known = (c for c in map(chr, range(sys.maxunicode + 1)))
    known = [c for c in known if unicodedata.category(c) not in ("Cs", "Cn")]
    differing = {
        c for c in known
        if not wordpiece.is_punctuation(c)
        and words(f"a{c}b") != clean.normalize_str(f"a{c}b").split()
    }  # fmt: skip
    assert differing <= _OTHER_IN_LIBRARY


def test_the_longest_word_must_be_a_number(tmp_path):
    content = fast_file()
    content["model"]["max_input_chars_per_word"] = "100"
    config = {"tokenizer_class": "TokenizersBackend"}
    lines = content["model"]["vocab"]
    path = folder_with(tmp_path / "a", lines, tokenizer=content, tokenizer_config=config)
    with pytest.raises(file_io.InputError, match="max_input_chars_per_word is '100', expected"):
        huggingface_tokenizer.read_rules(str(path))
