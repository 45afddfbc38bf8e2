"""Tokenization: recorded outputs, exact ids on tiny vocabularies, invariants, messages."""

import gzip
import importlib.util
import io
import json
import pickle
import random
import re
import sys
import time
import unicodedata

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from albert.io import file_io
from albert.text import tokenization
from tests.support import processes

VOCABULARIES = {
    "spm/en": {"spm_model_file": "data/spm/30k-clean.model"},
    "spm/de": {"spm_model_file": "data/spm/de_30k-clean.model"},
    "wordpiece/zh": {"vocab_file": "data/zh/vocab.txt"},
}


@pytest.fixture(scope="module")
def recorded(shared):
    with gzip.open(shared / "golden" / "data" / "tokenization.json.gz", "rt") as file:
        return json.load(file)


# --- recorded outputs of the reference ----------------------------------------------------------


def _without_added_word_starts(raw, pieces):
    """The documented comma rule, from the recorded pieces and SentencePiece's own (`raw`).

    Written with positions in the text, not with the rule's own steps: a recorded lone "▁" that
    the text does not have at this place is the one that was added.
    """
    text, place, fixed = "".join(raw), 0, []
    for piece in pieces:
        if not text.startswith(piece, place):
            assert piece.startswith("▁")
            piece = piece[1:]
        if piece:
            fixed.append(piece)
        place += len(piece)
    assert place == len(text)
    return fixed


@pytest.mark.parametrize("case", ["uncased", "cased"])
@pytest.mark.parametrize("vocabulary", ["spm/en", "spm/de"])
def test_recorded_sentencepiece(recorded, shared, vocabulary, case):
    files = {key: str(shared / path) for key, path in VOCABULARIES[vocabulary].items()}
    lower = case == "uncased"
    tokenizer = tokenization.FullTokenizer(do_lower_case=lower, **files)
    rows = recorded[f"{vocabulary}/{case}"]
    assert len(rows) == 448
    differing, ties = [], []
    for number, row in enumerate(rows):
        text = tokenization.preprocess_text(row["text"], lower=lower)
        assert text == row["preprocessed"]
        pieces = tokenizer.tokenize(text)
        assert tokenizer.tokenize(row["text"]) == pieces
        assert tokenization.encode_pieces(tokenizer.sp_model, text) == pieces
        ids = tokenizer.convert_tokens_to_ids(pieces)
        assert tokenizer.encode(row["text"]) == ids
        assert tokenization.encode_ids(tokenizer.sp_model, text) == ids
        if pieces == row["pieces"]:
            assert ids == row["ids"]
            continue
        raw = tokenizer.sp_model.encode(text, out_type=str)
        if any(re.fullmatch(r"[^▁].*\d,|\d,", piece) for piece in raw):
            differing.append(number)
            assert pieces == _without_added_word_starts(raw, row["pieces"])
            assert ids == tokenizer.sp_model.piece_to_id(pieces)
        else:
            # Equally probable segmentations, such as w|ww and ww|w: SentencePiece 0.2.1 and 0.2.3
            # choose differently among them.
            ties.append(number)
            assert sorted(pieces) == sorted(row["pieces"])
    # Only in one text does such a piece not start a word.
    assert differing == ([404] if vocabulary == "spm/en" else [])
    assert len(ties) <= 1


def test_recorded_comma_row_loses_only_the_added_word_start(recorded, shared):
    path = str(shared / VOCABULARIES["spm/en"]["spm_model_file"])
    tokenizer = tokenization.FullTokenizer(spm_model_file=path)
    row = recorded["spm/en/uncased"][404]
    at = row["pieces"].index("223")
    assert row["pieces"][at - 2 : at + 2] == ["▁1", "▁", "223", ","]
    expected = row["pieces"][: at - 1] + row["pieces"][at:]
    assert tokenizer.tokenize(row["text"]) == expected


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_recorded_wordpiece(recorded, shared, case):
    path = str(shared / VOCABULARIES["wordpiece/zh"]["vocab_file"])
    tokenizer = tokenization.FullTokenizer(vocab_file=path, do_lower_case=case == "uncased")
    assert tokenizer.vocab_size == 21128
    rows = recorded[f"wordpiece/zh/{case}"]
    assert len(rows) == 451
    for row in rows:
        assert tokenizer.tokenize(row["text"]) == row["pieces"]
        assert tokenizer.encode(row["text"]) == row["ids"]
        assert tokenizer.convert_ids_to_tokens(row["ids"]) == row["pieces"]


# --- the tiny vocabularies ----------------------------------------------------------------------


def test_tiny_vocabularies_come_from_their_script(testdata, tmp_path):
    spec = importlib.util.spec_from_file_location("make", testdata / "make_tiny_vocab.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.main(tmp_path)
    same = {
        name: (tmp_path / name).read_bytes() == (testdata / name).read_bytes()
        for name in ("tiny.model", "tiny_vocab.txt")
    }
    assert same["tiny_vocab.txt"]
    if sentencepiece.__version__ != make.MADE_WITH_SENTENCEPIECE:
        pytest.skip(f"tiny.model was made with SentencePiece {make.MADE_WITH_SENTENCEPIECE}")
    assert same["tiny.model"]


def test_tiny_model_follows_the_recipe(tokenizer):
    first = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert tokenizer.convert_ids_to_tokens(range(len(first))) == first
    assert (
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    ) == (0, 1, 2, 3, 4)
    assert tokenizer.vocab_size == len(tokenizer.vocab) == len(tokenizer.inv_vocab) == 400
    assert all(tokenizer.vocab[piece] == i for i, piece in tokenizer.inv_vocab.items())


def test_exact_pieces_and_ids(tokenizer):
    text = "The  OLD boat\tis ×2 – Ünder £5."
    expected = ["▁the", "▁", "old", "▁boat", "▁is", "▁", "×", "2", "▁", "–"]
    pieces = tokenizer.tokenize(text)
    assert pieces[: len(expected)] == expected
    assert "".join(pieces) == "▁the▁old▁boat▁is▁×2▁–▁under▁£5."
    assert tokenizer.encode("the boat ×") == [
        tokenizer.vocab["▁the"],
        tokenizer.vocab["▁boat"],
        tokenizer.vocab["▁"],
        tokenizer.unk_id,
    ]


@pytest.mark.parametrize(
    ("text", "raw", "expected"),
    [
        # the piece starts a word: the new "▁" is one the piece had
        ("▁14,", ["▁14,"], ["▁", "14", ","]),
        # it does not: "▁" is removed, alone or in front of the number
        ("x14,", ["▁", "x", "14,"], ["▁", "x", "14", ","]),
        ("x5,y2,", ["▁", "x", "5,", "y", "2,"], ["▁", "x", "5", ",", "y", "2", ","]),
        # a comma of its own, and one after a letter, are left alone
        ("7, so,", ["▁", "7", ",", "▁so", ","], ["▁", "7", ",", "▁so", ","]),
        ("14, 14", ["▁14,", "▁", "14"], ["▁", "14", ",", "▁", "14"]),
    ],
)
def test_digit_comma_rule(tokenizer, text, raw, expected):
    assert tokenizer.sp_model.encode(text, out_type=str) == raw
    assert tokenizer.tokenize(text) == expected
    assert tokenizer.encode(text) == tokenizer.convert_tokens_to_ids(expected)
    assert tokenizer.encode_batch(["a", text]) == [tokenizer.encode("a"), tokenizer.encode(text)]


class _FakeSentencePiece:
    """Encodes by table, to reach number pieces that carry the added "▁" themselves."""

    def __init__(self, table):
        self._table = table

    def encode(self, text, out_type):
        assert out_type is str
        return list(self._table[text])


def test_digit_comma_rule_cuts_the_word_start_off_a_longer_piece():
    table = {"a12,": ["▁a", "12,"], "12": ["▁12"], "12,": ["▁12,"], "9,": [","]}
    model = _FakeSentencePiece(table)
    assert tokenization.encode_pieces(model, "a12,") == ["▁a", "12", ","]
    assert tokenization.encode_pieces(model, "12,") == ["▁12", ","]


def test_unknown_comma_after_digit(tmp_path):
    # Without "," in the vocabulary, SentencePiece joins "٣," into one unknown piece.
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba"] * 9),
        model_writer=model,
        vocab_size=9,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    )
    (tmp_path / "spm.model").write_bytes(model.getvalue())
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(tmp_path / "spm.model"))
    assert tokenizer.sp_model.encode("a٣,", out_type=str)[-1] == "٣,"
    assert tokenizer.tokenize("a٣,")[-2:] == ["٣", ","]
    assert tokenizer.encode("a٣,") == tokenizer.convert_tokens_to_ids(tokenizer.tokenize("a٣,"))


TEXTS = st.text(st.one_of(st.sampled_from(" ,,.0123456789abtheodk£▁É-"), st.characters()))


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXTS, max_size=5))
def test_encode_agrees_with_tokenize(tokenizer, wordpiece, texts):
    for each in (tokenizer, wordpiece):
        expected = [each.convert_tokens_to_ids(each.tokenize(t)) for t in texts]
        assert each.encode_batch(texts) == expected
        assert [each.encode(text) for text in texts] == expected


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_pieces_keep_every_character(tokenizer, text):
    pieces = tokenization.encode_pieces(tokenizer.sp_model, tokenization.preprocess_text(text))
    raw = tokenizer.sp_model.encode(tokenization.preprocess_text(text), out_type=str)
    assert "".join(pieces) == "".join(raw)
    assert not any(re.search(r"\d,$", piece) and len(piece) > 1 for piece in pieces)


def test_special_pieces_in_text_stay_text(tokenizer):
    assert not {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id} & set(
        tokenizer.encode("[CLS] a [SEP] [MASK]")
    )
    cased = tokenization.FullTokenizer(spm_model_file=tokenizer.spm_model_file, do_lower_case=False)
    assert cased.sp_model.encode("[CLS]", out_type=str) == ["▁", "[CLS]"]
    assert cased.encode("[CLS]") == [cased.vocab["▁"], cased.unk_id]


def test_bytes_are_text(tokenizer, wordpiece):
    for each in (tokenizer, wordpiece):
        assert each.tokenize("größe, 了".encode()) == each.tokenize("größe, 了")
        assert all(isinstance(piece, str) for piece in each.tokenize(b"the boats"))


def test_half_surrogate_is_no_crash(tokenizer):
    assert tokenization.preprocess_text("a\ud83d b") == "a\ufffd b"
    assert tokenizer.tokenize("a \ud83d b") == tokenizer.tokenize("a \ufffd b")


def test_pickled_tokenizer(tokenizer, wordpiece):
    for each in (tokenizer, wordpiece):
        again = pickle.loads(pickle.dumps(each))
        assert again.encode("the boats, x14, 2") == each.encode("the boats, x14, 2")


# --- preprocess_text ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("  A\t b\n\u2003c ", {}, "A b c"),
        ("  A\t b ", {"remove_space": False}, "  A\t b "),
        ("ÀÉ ﬁ ½ Ω", {"lower": True}, "ae fi 1⁄2 ω"),
        ("ÀÉ", {}, "AE"),
        ("İ", {"lower": True}, "i"),
        (" é", {"remove_space": False, "lower": True}, " e"),
        (b"\xc3\xa9\xff", {}, "e"),
        ("", {}, ""),
    ],
)
def test_preprocess_text(text, arguments, expected):
    assert tokenization.preprocess_text(text, **arguments) == expected


def test_preprocess_text_of_every_character_is_stable():
    # tokenize() preprocesses again what readers may have preprocessed already.
    for code in [*range(0xD800), *range(0xE000, 0x20000)]:
        once = tokenization.preprocess_text(f"x{chr(code)}x", lower=True)
        assert tokenization.preprocess_text(once, lower=True) == once


# --- WordPiece ----------------------------------------------------------------------------------


def test_wordpiece_exact(wordpiece):
    text = "The boats, zz 中国x\u0000 wörd £2 qä"
    expected = "the boats , z ##z 中 国 x w ##or ##d £ ##2 q ##a".split()
    assert wordpiece.tokenize(text) == expected
    assert wordpiece.convert_tokens_to_ids(["的", "nothing"]) == [
        wordpiece.vocab["的"],
        wordpiece.unk_id,
    ]


# --- names of the reference's module ------------------------------------------------------------


def test_every_public_name_of_the_reference_is_there():
    names = """
        preprocess_text encode_pieces encode_ids convert_to_unicode printable_text load_vocab
        convert_by_vocab convert_tokens_to_ids convert_ids_to_tokens whitespace_tokenize
        FullTokenizer BasicTokenizer WordpieceTokenizer
    """
    for name in names.split():
        assert callable(getattr(tokenization, name)), name


def test_words_pieces_and_ids_step_by_step(wordpiece):
    """The way of BERT's scripts gives what `FullTokenizer` gives."""
    text = "The boats, zz 中国x\u0000 wörd £2 qä"
    vocab = tokenization.load_vocab(wordpiece.vocab_file)
    assert list(vocab.values()) == list(range(len(vocab))) and vocab == wordpiece.vocab
    words = tokenization.BasicTokenizer(do_lower_case=True).tokenize(text)
    split = tokenization.WordpieceTokenizer(vocab=vocab)
    pieces = [piece for word in words for piece in split.tokenize(word)]
    assert pieces == wordpiece.tokenize(text) == split.tokenize(" ".join(words))
    assert pieces == wordpiece.wordpiece_tokenizer.tokenize(
        " ".join(wordpiece.basic_tokenizer.tokenize(text.encode()))
    )
    ids = tokenization.convert_tokens_to_ids(vocab, pieces)
    assert ids == tokenization.convert_by_vocab(vocab, pieces) == wordpiece.encode(text)
    assert tokenization.convert_ids_to_tokens(wordpiece.inv_vocab, ids) == pieces
    with pytest.raises(KeyError, match="nothing"):
        tokenization.convert_by_vocab(vocab, ["nothing"])


def test_pieces_of_bytes_and_drawn_pieces(tokenizer):
    text = "the boats went over the water, 2000,"
    best = tokenization.encode_pieces(tokenizer.sp_model, text)
    assert (
        tokenization.encode_pieces(tokenizer.sp_model, text.encode(), return_unicode=False) == best
    )
    assert tokenization.encode_ids(tokenizer.sp_model, text.encode()) == tokenizer.encode(text)
    drawn = [tokenization.encode_pieces(tokenizer.sp_model, text, sample=True) for _ in range(50)]
    assert any(pieces != best for pieces in drawn)
    # Only the digit-comma rule may cut, so every drawn segmentation spells the text.
    for pieces in drawn:
        assert "".join(pieces).replace("▁", " ").strip() == text
    sizes = {len(tokenization.encode_ids(tokenizer.sp_model, text, sample=True)) for _ in range(50)}
    assert len(sizes) > 1


# --- choosing and checking ----------------------------------------------------------------------


def test_sentencepiece_wins_over_vocab_file(tokenizer):
    both = tokenization.FullTokenizer("no/such/file", True, tokenizer.spm_model_file)
    assert both.tokenize("the boat") == tokenizer.tokenize("the boat")


def test_class_methods(testdata, tokenizer, golden, tmp_path):
    made = tokenization.FullTokenizer.from_scratch(None, False, tokenizer.spm_model_file)
    assert made.sp_model and not made.do_lower_case
    hub = tokenization.FullTokenizer.from_hub_module(str(golden / "hub_tf1"))
    assert hub.sp_model and hub.do_lower_case
    (tmp_path / "assets").mkdir()
    content = (testdata / "tiny_vocab.txt").read_bytes()
    (tmp_path / "assets" / "vocab.txt").write_bytes(content)
    chinese = tokenization.FullTokenizer.from_hub_module(str(tmp_path), do_lower_case=False)
    assert chinese.sp_model is None and not chinese.do_lower_case
    with pytest.raises(file_io.InputError, match=r"expected a \*\.model file or vocab\.txt in"):
        tokenization.FullTokenizer.from_hub_module(str(testdata))


def _error(**arguments):
    with pytest.raises(file_io.InputError) as caught:
        tokenization.FullTokenizer(**arguments)
    return str(caught.value)


def test_error_no_file():
    assert re.search("needs spm_model_file .* or vocab_file .* neither was given", _error())


@pytest.mark.parametrize("flag", ["spm_model_file", "vocab_file"])
def test_error_missing_file_and_folder(flag, tmp_path):
    missing = str(tmp_path / "none")
    assert _error(**{flag: missing}) == f"{flag}: the file {missing} does not exist"
    assert "is a folder" in _error(**{flag: str(tmp_path)})


def test_error_kinds_mixed_up(testdata, tmp_path):
    message = _error(vocab_file=str(testdata / "tiny.model"))
    assert re.search(r"tiny\.model is not a text file .* give it as spm_model_file", message)
    message = _error(spm_model_file=str(testdata / "tiny_vocab.txt"))
    assert re.search(r"is not a SentencePiece model; a text file: .* as vocab_file", message)
    listing = tmp_path / "30k-clean.vocab"
    listing.write_text("<pad>\t0\n<unk>\t0\n[CLS]\t0\n[SEP]\t0\n[MASK]\t0\n▁the\t-3.1\n")
    message = _error(vocab_file=str(listing))
    assert re.search(r"lists the pieces of a SentencePiece model; .* \.model file", message)
    message = _error(spm_model_file=str(listing))
    assert re.search(r"lists the pieces of such a model: give the \.model file", message)


def test_error_unreadable_content(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00\x01" * 40)
    assert re.search(
        "not a SentencePiece model; it is empty", _error(spm_model_file=f"{tmp_path}/empty")
    )
    assert re.search("expected a file such as", _error(spm_model_file=f"{tmp_path}/noise"))
    assert re.search("must be a list of pieces", _error(vocab_file=f"{tmp_path}/empty"))


def test_error_special_pieces(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[CLS]\n[SEP]\na\n")
    message = _error(vocab_file=str(path))
    assert re.search(
        r"lacks special pieces: expected \[MASK\], \[UNK\] or <unk> among its 4", message
    )
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba"] * 9),
        model_writer=model,
        vocab_size=6,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    message = _error(spm_model_file=str(path))
    assert re.search(r"expected \[CLS\], \[SEP\], \[MASK\], <pad> or \[PAD\] among", message)
    assert "control symbols [CLS], [SEP], [MASK]" in message


def test_wordpiece_prefers_its_own_special_names(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("<unk>\n<pad>\n[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n")
    tokenizer = tokenization.FullTokenizer(vocab_file=str(path))
    assert (tokenizer.unk_id, tokenizer.pad_id) == (2, 3)
    assert tokenizer.tokenize("q") == ["[UNK]"]


def test_id_outside_the_vocabulary(tokenizer):
    with pytest.raises(ValueError, match=r"id 400 is outside the vocabulary, expected 0\.\.399"):
        tokenizer.convert_ids_to_tokens([5, 400])


def test_check_vocab_size(tokenizer, caplog):
    tokenization.check_vocab_size(tokenizer, 400)
    assert not caplog.records
    with pytest.raises(file_io.InputError, match=r"tiny\.model has 400 pieces.* is only 399"):
        tokenization.check_vocab_size(tokenizer, 399)
    with caplog.at_level("WARNING", logger="absl"):
        tokenization.check_vocab_size(tokenizer, 408)
    assert "400 pieces, the config's vocab_size is 408" in caplog.text


# --- cost ---------------------------------------------------------------------------------------


def test_import_brings_no_tensorflow():
    code = (
        "import sys, albert.tokenization; print({'tensorflow', 'sentencepiece'} & set(sys.modules))"
    )
    output = processes.run([sys.executable, "-c", code], check=True)
    assert output.stdout.strip() == "set()"


def test_ascii_text_is_not_decomposed(monkeypatch):
    """Normalizing again would take ten times as long as all the rest."""
    seen, normalize = [], unicodedata.normalize
    monkeypatch.setattr(
        unicodedata, "normalize", lambda form, text: seen.append(text) or normalize(form, text)
    )
    assert tokenization.preprocess_text("A  word", lower=True) == "a word"
    assert tokenization.preprocess_text("A  w\u00f6rd", lower=True) == "a word"
    assert seen == ["A w\u00f6rd"]


def test_a_class_of_characters_is_written_as_ranges():
    found = tokenization.character_class(lambda character: character in "abcx€")
    assert found == r"[\x{61}-\x{63}\x{78}-\x{78}\x{20ac}-\x{20ac}]"


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0315\u0327\u0334", "\u0f73", "\u0f71\u0f72"])
def test_many_marks_take_little_time(tokenizer, wordpiece, marks):
    text = ("a" + marks * 100_000)[:100_000]
    started = time.process_time()
    assert tokenizer.tokenize(text) and wordpiece.tokenize(text) == wordpiece.tokenize("a")
    assert time.process_time() - started < 1.5  # in the square of their number: 10 to 60 s


def test_long_texts_are_decomposed_as_short_ones_are():
    rng = random.Random(1)
    alphabet = (
        "ab \u0301\u0316\u00e9\uac01\ufdfa\u0f73\uff76\uff9e\u3099\u0344\u1e69\U0001d15e\U0001d16d"
    )
    for size in (255, 256, 257, 300, 5000):
        text = "".join(rng.choices(alphabet, k=size))
        whole = unicodedata.normalize("NFKD", text)
        expected = "".join(c for c in whole if not unicodedata.combining(c))
        assert tokenization.preprocess_text(text, remove_space=False) == expected
        parts = "".join(c for c in text if c not in "\u0f73")  # a mark, but not by its class
        expected = unicodedata.normalize("NFD", parts)
        assert tokenization.wordpiece.decompose("NFD", parts) == expected
