"""How texts become pieces: casing, accents, ideographs, extra pieces."""

import io

import pytest

from albert.io import file_io
from albert.text import text_rules, tokenization

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["für", "fur", "Für", "Paris", "paris", "film", "中文", "中", "文", "the"]


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def accented(tmp_path_factory):
    """A SentencePiece model of German text with capitals and accents."""
    import sentencepiece

    model = io.BytesIO()
    lines = ["Für die Würde über Menschen", "NASA für Öl in Köln", "Die Größe der Bücher"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=60, hard_vocab_limit=False,
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["NASA"], minloglevel=2,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "de.model"
    path.write_bytes(model.getvalue())
    return str(path)


def tokens(text, path, **rules):
    kind = "spm_model_file" if path.endswith(".model") else "vocab_file"
    made = tokenization.FullTokenizer(**{kind: path}, rules=text_rules.TextRules(**rules))
    assert made.convert_tokens_to_ids(made.tokenize(text)) == made.encode(text)
    assert made.encode_batch([text, text]) == [made.encode(text)] * 2
    return made.tokenize(text)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"do_lower_case": True}, ["fur", "paris"]),
        ({"do_lower_case": True, "keep_accents": True}, ["für", "paris"]),
        ({"do_lower_case": False}, ["Für", "Paris"]),
        ({"do_lower_case": False, "keep_accents": False}, ["[UNK]", "Paris"]),
    ],
)
def test_casing_and_accents_of_words(words, rules, expected):
    assert tokens("Für Paris", words, **rules) == expected


def test_ideographs_stand_alone_unless_the_model_says_otherwise(words):
    assert tokens("中文film", words, do_lower_case=True) == ["中", "文", "film"]
    together = tokens("中文 film", words, do_lower_case=True, split_ideographs=False)
    assert together == ["中文", "film"]


def test_accents_of_sentencepiece_are_kept_on_request(accented):
    assert "ü" not in "".join(tokens("Für Bücher", accented, do_lower_case=False))
    kept = tokens("Für Bücher", accented, do_lower_case=False, keep_accents=True)
    assert "".join(kept) == "▁Für▁Bücher"
    decomposed = tokens("Fu\u0308r Bu\u0308cher", accented, do_lower_case=False, keep_accents=True)
    assert decomposed == kept


def test_a_vocabulary_with_capitals_needs_its_casing(words, accented):
    for path in (words, accented):
        with pytest.raises(file_io.InputError, match="have capitals .* give nodo_lower_case"):
            tokens("x", path)
    assert tokens("Paris", words, do_lower_case=False) == ["Paris"]


def test_pieces_that_no_text_gives_are_named(accented, caplog):
    rules = text_rules.TextRules(do_lower_case=False)
    made = tokenization.FullTokenizer(spm_model_file=accented, rules=rules)
    assert any("ü" in piece for piece in made.unreachable_pieces())
    with caplog.at_level("WARNING", logger="absl"):
        tokenization.warn_of_unreachable_pieces(made)
    assert "can never be found" in caplog.text and "keep_accents" in caplog.text
    kept = rules.changed({"keep_accents": True})
    made = tokenization.FullTokenizer(spm_model_file=accented, rules=kept)
    assert made.unreachable_pieces() == []
    lower = tokenization.FullTokenizer(spm_model_file=accented, do_lower_case=True)
    assert "NASA" in lower.unreachable_pieces()


def test_extra_pieces_are_found_as_they_are_written(words, accented):
    extra = ("<ORT>", "<ORT-2>")
    found = tokens("the <ORT-2>film<ort>", words, do_lower_case=True, extra_pieces=extra)
    assert found[:3] == ["the", "<ORT-2>", "film"] and "<ORT>" not in found
    rules = text_rules.TextRules(do_lower_case=True, extra_pieces=(*extra, "NASA"))
    made = tokenization.FullTokenizer(spm_model_file=accented, rules=rules)
    assert [made.vocab[piece] for piece in extra] == [made.base_size, made.base_size + 1]
    assert made.vocab_size == made.base_size + 2  # "NASA" has its id in the vocabulary
    assert made.tokenize("die NASA <ORT>").count("NASA") == 1
    assert "NASA" not in made.unreachable_pieces()


def test_a_description_is_read_and_checked():
    rules = text_rules.TextRules(True, False, False, True, ("<A>",))
    assert text_rules.from_json({**rules.to_json(), "kind": "classifier"}, "f") == rules
    assert text_rules.from_json({}, "f") == text_rules.TextRules()
    for name, value in (("do_lower_case", None), ("keep_accents", 1), ("extra_pieces", [""])):
        with pytest.raises(file_io.InputError, match=f"f: the entry {name} is invalid"):
            text_rules.from_json({name: value}, "f")
