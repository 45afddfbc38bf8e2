"""Answers to masked words: values, the texts that they make, files, mistakes."""

import json

import numpy as np
import pytest

from albert import fill_mask, heads
from albert.io import file_io
from albert.serving import masked_words
from albert.text import text_rules
from tests.support import builders, huggingface_samples

CONFIG = builders.tiny_config(initializer_range=0.3, max_position_embeddings=24)
TEXTS = [
    "the [MASK] was fine .",
    "[MASK] bread and the [MASK], of the town",
    "the soup is [MASK].",
]


@pytest.fixture(scope="module")
def model():
    return huggingface_samples.randomize(heads.PretrainingModel(CONFIG, seed=1))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    builders.write_model(path, model, CONFIG)
    return path


def expected_of(model, tokenizer, pieces, top_k):
    """[(piece, probability)] of each mask, from the model's own outputs for the text alone."""
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", *pieces, "[SEP]"])
    places = [place for place, i in enumerate(ids) if i == tokenizer.mask_id]
    outputs = model({"input_ids": [ids], "masked_lm_positions": [places]})
    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    found = []
    for row in np.exp(outputs["masked_lm_log_probs"].numpy()):
        order = [tokenizer.inv_vocab[i] for i in np.argsort(-row, kind="stable")]
        kept = [piece for piece in order if piece not in special][:top_k]
        found.append([(piece, row[tokenizer.vocab[piece]]) for piece in kept])
    return found


def pieces_of(tokenizer, text):
    """Each mask in the place of a word: SentencePiece then sees no break before a mark."""
    pieces = []
    for number, part in enumerate(text.split("[MASK]")):
        own = tokenizer.tokenize(part)
        if number and not part.startswith(" ") and own and own[0] != "\u2581":
            own[0] = own[0].removeprefix("\u2581")
        elif number and not part.startswith(" "):
            own = own[1:]
        pieces += ["[MASK]"] * bool(number) + own
    return pieces


def test_answers_are_those_of_the_model(model, folder, tokenizer):
    filler = masked_words.MaskedWords.load(folder)
    encoded = [filler.encode(text) for text in TEXTS]
    for batch_size in (1, 2):
        for text, answers in zip(TEXTS, filler.fill_all(encoded, 4, batch_size), strict=True):
            expected = expected_of(model, tokenizer, pieces_of(tokenizer, text), 4)
            assert len(answers) == len(expected) == text.count("[MASK]")
            for row, wanted in zip(answers, expected, strict=True):
                assert [answer.piece for answer in row] == [piece for piece, _ in wanted]
                np.testing.assert_allclose(
                    [answer.probability for answer in row], [p for _, p in wanted], rtol=1e-4
                )
    assert [len(row) for row in filler.fill(TEXTS[1])] == [5, 5]


def test_a_mark_after_a_mask_is_no_new_word(folder, tokenizer):
    """As in training, where a mask takes the place of a piece of the whole text's."""
    filler = masked_words.MaskedWords.load(folder)
    for rest, pieces in ((".", ["."]), (" .", ["\u2581", "."])):
        ids = filler.encode(f"the bread is [MASK]{rest}").ids
        assert tokenizer.convert_ids_to_tokens(ids)[-2 - len(pieces) :] == [
            "[MASK]", *pieces, "[SEP]"
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "before", "piece", "word", "text"),
    [
        ("tokenizer", "It is ", "\u2581fine", "fine", "It is fine."),
        ("tokenizer", "It is", "\u2581fine", "fine", "It is fine."),
        ("tokenizer", "It is ", "ing", "ing", "It ising."),
        ("tokenizer", "(", "\u2581fine", "fine", "(fine."),
        ("tokenizer", "It is ", "\u2581", "\u2581", "It is \u2581."),
        ("wordpiece", "It is ", "fine", "fine", "It is fine."),
        ("wordpiece", "It is ", "##ing", "ing", "It ising."),
        ("wordpiece", "\u4e2d", "\u6587", "\u6587", "\u4e2d\u6587."),
    ],
)
def test_answers_read_as_texts(request, kind, before, piece, word, text):
    filler = masked_words.MaskedWords(
        heads.PretrainingModel(CONFIG, seed=1), request.getfixturevalue(kind)
    )
    answer = filler._answer(before, piece, ".", 0.5)
    assert answer == masked_words.Answer(word, piece, 0.5, text)


def test_extra_pieces_are_answers_and_special_ones_are_not(tokenizer):
    vocabulary = {"spm_model_file": str(builders.SPM)}
    extra = type(tokenizer)(**vocabulary, rules=text_rules.TextRules(extra_pieces=("NASA",)))
    ids = extra.text_ids()
    assert extra.vocab["NASA"] in ids
    special = {extra.cls_id, extra.sep_id, extra.mask_id, extra.pad_id, extra.unk_id}
    assert special.isdisjoint(ids) and len(ids) >= extra.vocab_size - 10


@pytest.mark.slow
def test_the_command(folder, tmp_path, run_script, capsys):
    filler = masked_words.MaskedWords.load(folder)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (tmp_path / "texts.jsonl").write_text(rows)
    expected = [
        masked_words.to_dict(number, text, filler.fill(text, 2))
        for number, text in enumerate(TEXTS)
    ]
    for name in ("texts.txt", "texts.jsonl"):
        run_script(
            fill_mask, init_checkpoint=folder, input_file=tmp_path / name, top_k=2,
            output_file=tmp_path / "out.jsonl",
        )  # fmt: skip
        found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [row["index"] for row in found] == [0, 1, 2]
        for row, wanted in zip(found, expected, strict=True):
            assert row["text"] == wanted["text"]
            for ours, theirs in zip(row["masks"], wanted["masks"], strict=True):
                assert [a["text"] for a in ours] == [a["text"] for a in theirs]
    capsys.readouterr()
    config = folder / "albert_config.json"
    run_script(fill_mask, model_dir=folder, albert_config_file=config, text=TEXTS[0], top_k=2)
    best, second = expected[0]["masks"][0]
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == TEXTS[0]
    assert [line.split()[:2] for line in lines] == [
        [f"{answer['probability']:.3f}", answer["word"]] for answer in (best, second)
    ]
    assert lines[0].endswith(best["text"])


def test_mistakes_are_named(folder, tmp_path, run_script):
    flags = {"model_dir": folder}
    for values, message in (
        ({**flags}, "give either --text="),
        ({**flags, "text": "a [MASK]", "input_file": "x"}, "give either --text="),
        ({"text": "a [MASK]"}, "no model: give --model_dir"),
        (
            {
                "text": "a [MASK]",
                "albert_config_file": folder / "albert_config.json",
                "spm_model_file": folder / "tiny.model",
            },
            "no model: give --model_dir",
        ),
        ({**flags, "init_checkpoint": folder, "text": "a [MASK]"}, "--model_dir contradicts"),
        ({**flags, "text": "the bread"}, r"--text: expected a text with \[MASK\].*'the bread'"),
        ({**flags, "text": "the " * 30 + "[MASK]"}, "has 33 tokens .* reads at most 24: keep"),
        ({**flags, "text": "a [MASK]", "top_k": 1000}, "--top_k=1000: expected 1 to 3"),
        ({**flags, "text": "a [MASK]", "output_file": "out.txt"}, "ends in .jsonl"),
    ):
        with pytest.raises(file_io.InputError, match=message):
            run_script(fill_mask, **values)
    (tmp_path / "texts.txt").write_text("the [MASK]\nthe bread\n")
    with pytest.raises(file_io.InputError, match=r"texts.txt line 2: expected a text with"):
        run_script(fill_mask, **flags, input_file=tmp_path / "texts.txt")
    classifier = tmp_path / "labels"
    builders.write_model(classifier, heads.ClassifierModel(CONFIG, 2, seed=2), CONFIG)
    with pytest.raises(file_io.InputError, match="has no head for masked words: expected a pre-"):
        run_script(fill_mask, model_dir=classifier, text="a [MASK]")
