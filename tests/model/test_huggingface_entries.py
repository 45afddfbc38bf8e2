"""Entries of tokenizers that change ids or inputs: each value is read, or refused by name."""

import json

import pytest

from albert.io import file_io
from albert.model import huggingface_entries, huggingface_tokenizer
from tests.support.vocabulary_samples import LAST_STEP, SECOND, SINGLE, fast_file, folder_with

BOTH = ["input_ids", "token_type_ids"]
GENERIC = {"tokenizer_class": "TokenizersBackend"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, True),
        ({"tokenizer_class": "BertTokenizer", "backend": "tokenizers"}, True),
        ({"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids"]}, False),
        ({"tokenizer_class": "AlbertTokenizer"}, True),  # of an earlier version
        ({"tokenizer_class": "AlbertTokenizer", "backend": "tokenizers"}, False),
        ({"tokenizer_class": "AlbertTokenizer", "backend": "x", "model_input_names": BOTH}, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "backend": "tokenizers"}, False),
        (GENERIC, False),
        ({**GENERIC, "model_input_names": BOTH}, True),
    ],
)
def test_the_version_and_the_class_say_whether_there_are_segments(config, expected):
    assert huggingface_entries.gives_segments("", config) is expected


def test_names_of_inputs_must_be_a_list():
    with pytest.raises(file_io.InputError, match="x.json: model_input_names is 'input_ids', exp"):
        huggingface_entries.gives_segments("x.json", {"model_input_names": "input_ids"})


def read(path, config, **changes):
    content = fast_file(**changes)
    lines = content["model"]["vocab"]
    folder = folder_with(path, lines, tokenizer=content, tokenizer_config=config)
    return huggingface_tokenizer.read_rules(str(folder))


WITHOUT_END = {**LAST_STEP, "single": SINGLE[:2]}
OLDER = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
ONE_SEGMENT = [
    {"Sequence": {"id": "B", "type_id": 0}},
    {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
]
OTHER_ID = {**LAST_STEP["special_tokens"]["[SEP]"], "ids": [4]}
OTHER_IDS = {**LAST_STEP, "special_tokens": {**LAST_STEP["special_tokens"], "[SEP]": OTHER_ID}}


@pytest.mark.parametrize(
    ("step", "names", "words"),
    [
        (LAST_STEP, BOTH, None),
        (OLDER, BOTH, None),
        (None, BOTH, "is None; expected .CLS.:0 A:0 .SEP.:0 and"),
        ({"type": "RobertaProcessing"}, BOTH, "is 'RobertaProcessing'; exp"),
        ({**OLDER, "sep": ["</s>", 3]}, BOTH, "is 'BertProcessing'; expected"),
        ({"type": "TemplateProcessing"}, BOTH, "is 'TemplateProcessing'; exp"),
        (WITHOUT_END, BOTH, "of .CLS.:0 A:0 and .CLS.:0 A:0 .SEP.:0 B:1 .SEP.:1; expected"),
        ({**LAST_STEP, "pair": [*SINGLE, *ONE_SEGMENT]}, BOTH, "A:0 .SEP.:0 B:0 .SEP.:0; expect"),
        ({**LAST_STEP, "pair": [*SINGLE, *ONE_SEGMENT]}, ["input_ids"], None),
        ({**LAST_STEP, "pair": [*SINGLE, SINGLE[2], *SECOND]}, BOTH, ".SEP.:0 .SEP.:0 B:1"),
        (OTHER_IDS, BOTH, "has the id 4 for .SEP., added_tokens have 3"),
    ],
)
def test_the_last_step_of_a_generic_class_is_that_of_this_package(tmp_path, step, names, words):
    added = [{"content": "[SEP]", "id": 3, "special": True, "normalized": False}]
    changes = {"post_processor": step, "added_tokens": added}
    config = {**GENERIC, "model_input_names": names}
    read(tmp_path / "bert", {"tokenizer_class": "BertTokenizer"}, **changes)  # has its own
    if words is None:
        assert read(tmp_path / "a", config, **changes)["longest_word"] == 100
        return
    with pytest.raises(file_io.InputError, match=f"tokenizer.json: the post_processor .*{words}"):
        read(tmp_path / "a", config, **changes)


@pytest.mark.parametrize("direction", ["Left", "Right"])
def test_texts_are_cut_at_their_end(tmp_path, direction):
    """By the entry of the first file, which every class takes, else by that of the second."""
    cut = {"truncation": {"direction": direction, "max_length": 8}}
    read(tmp_path / "a", {"truncation_side": "right"}, **cut)
    if direction == "Right":
        read(tmp_path / "b", {}, **cut)
        return
    with pytest.raises(file_io.InputError, match="tokenizer.json: truncation has the direction 'L"):
        read(tmp_path / "b", {}, **cut)


def test_the_unknown_piece_of_a_generic_class_is_that_of_the_model(tmp_path):
    content = fast_file()["model"]
    read(tmp_path / "a", GENERIC, model={**content, "unk_token": "[UNK]"})
    other = {**content, "unk_token": "[MASK]"}
    read(tmp_path / "b", {"tokenizer_class": "BertTokenizer"}, model=other)
    with pytest.raises(file_io.InputError, match="tokenizer.json: model: unk_token is '.MASK.'"):
        read(tmp_path / "c", GENERIC, model=other)
    lines = ["[PAD]", "<unk>", "[CLS]", "[SEP]", "[MASK]", "the"]  # the only unknown piece
    path = folder_with(tmp_path / "d", lines, tokenizer_config={"unk_token": "<unk>"})
    huggingface_tokenizer.read_rules(str(path))


ALBERT = {"tokenizer_class": "AlbertTokenizer"}
STEPS = {"do_lower_case": True, "keep_accents": False, "quotes": True}


@pytest.mark.parametrize(
    ("config", "steps", "words"),
    [
        ({}, {}, None),
        ({"do_lower_case": False, "keep_accents": True},
         {"do_lower_case": False, "keep_accents": True}, None),
        ({"do_lower_case": False}, {},
         "has the step Lowercase, but .*_config.json has .* do_lower_case is False;"),
        ({}, {"do_lower_case": False},
         "has no step Lowercase, but .* do_lower_case is True by default; .* else do_lower_case"),
        ({"keep_accents": True}, {}, "has the step NFKD, but .* and there keep_accents is True;"),
        ({}, {"keep_accents": True}, "has no step NFKD, but .* keep_accents is False by default;"),
        ({}, {"quotes": False}, "has no step ``, but .* it always has that step; .*Backend'$"),
    ],
)  # fmt: skip
def test_the_steps_of_albert_are_those_of_its_class(config, steps, words):
    def check():
        rules, there = {**STEPS, **steps}, {**ALBERT, **config}
        huggingface_entries.check_steps_of_albert(
            "x/tokenizer.json", rules, "x/t_config.json", there
        )

    if words is None:
        check()
        return
    with pytest.raises(file_io.InputError, match=f"x/tokenizer.json: the normalizer {words}"):
        check()


def test_words_of_albert_begin_with_a_space():
    huggingface_entries.check_fixed("x.json", {**GENERIC, "add_prefix_space": False})
    with pytest.raises(file_io.InputError, match="x.json: add_prefix_space is False; this package"):
        huggingface_entries.check_fixed("x.json", {**ALBERT, "add_prefix_space": False})


def test_unknown_entries_are_accepted(tmp_path):
    config = {"chat_template": "x", "padding_side": "left", "clean_up_tokenization_spaces": True}
    path = folder_with(tmp_path / "a", tokenizer_config=config)
    (path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "padding": None}))
    assert huggingface_tokenizer.read_rules(str(path))
