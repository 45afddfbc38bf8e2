"""Vocabularies of many kinds, as other programs make them, and texts to compare them on."""

import io
import json

from albert.export import tokenizer_json
from albert.model import sources
from albert.text import sample_lines, tokenization

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# --- texts --------------------------------------------------------------------------------------

RANGES = (range(32, 127), range(0x500), range(0x370, 0x400), range(0x1E00, 0x3100))
RANGES += (range(0x4E00, 0xD800), range(0x1F300, 0x1F700))


def random_texts(rng, count):
    """Texts of any characters but digits, whose segmentations can have equal scores.

    Args:
      rng: `random.Random`.
      count: number of texts.
    """
    for _ in range(count):
        size = rng.randrange(1, 30)
        usual = [rng.choice(" ,.Σa") if rng.random() < 0.4 else "" for _ in range(size)]
        text = "".join(c or chr(rng.choice(rng.choice(RANGES))) for c in usual)
        yield "".join(c for c in text if not c.isnumeric())


# --- SentencePiece ------------------------------------------------------------------------------

LINES = [line for line in tokenizer_json.__doc__.splitlines() if line]
# Settings of SentencePiece, and the words with which the export refuses a model.
SENTENCEPIECE = {
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


def train_sentencepiece(kind, vocab_size=450, sentences=sample_lines.SENTENCES):
    """The content of a model of one of the kinds of `SENTENCEPIECE`."""
    import sentencepiece

    model = io.BytesIO()
    text = [tokenization.preprocess_text(x) for x in (*LINES * 2, *sentences * 3)]
    settings = {"vocab_size": vocab_size, "model_type": "unigram", **SENTENCEPIECE[kind][0]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, hard_vocab_limit=False, pad_id=0,
        unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2, **settings,
    )  # fmt: skip
    return model.getvalue()


# --- WordPiece ----------------------------------------------------------------------------------


# The step after the model in a tokenizer.json of BERT and ALBERT.
SINGLE = [
    {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
]
SECOND = [
    {"Sequence": {"id": "B", "type_id": 1}},
    {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
]
LAST_STEP = {
    "type": "TemplateProcessing", "single": SINGLE, "pair": [*SINGLE, *SECOND],
    "special_tokens": {
        name: {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]}
        for name in ("[CLS]", "[SEP]")
    },
}  # fmt: skip


def folder_with(path, lines=(*SPECIAL, "film", "the"), config="config.json", **files):
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(lines) + "\n")
    (path / config).write_text("{}")
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def tokenizer_of(path):
    vocabulary = str(path / "vocab.txt")
    return tokenization.FullTokenizer(vocabulary, rules=sources.rules_beside(vocabulary))


def fast_file(**changes):
    vocab = {piece: i for i, piece in enumerate([*SPECIAL, "für", "fur", "##e", "the"])}
    return {
        "model": {"type": "WordPiece", "vocab": vocab, "continuing_subword_prefix": "##"},
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": False},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": LAST_STEP,
        **changes,
    }
