"""Comparing ids with those of the library `tokenizers`."""

import json

import pytest

from albert.text import library_ids, text_rules, tokenization
from tests.support.vocabulary_samples import SPECIAL, fast_file, folder_with

pytest.importorskip("tokenizers")


def test_a_difference_is_shown_with_its_text(tmp_path):
    content = fast_file(version="1.0", added_tokens=[])
    content["normalizer"] |= {"clean_text": True, "handle_chinese_chars": True}
    content["model"] |= {"unk_token": "[UNK]", "max_input_chars_per_word": 100}
    content["model"]["vocab"] = {piece: i for i, piece in enumerate([*SPECIAL, "free", "born"])}
    cut = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    filled = {"strategy": {"Fixed": 400}, "direction": "Right", "pad_to_multiple_of": None}
    filled |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    content |= {"truncation": cut, "padding": filled}  # which do not change the ids of texts
    path = folder_with(tmp_path / "a", [*SPECIAL, "free", "born"]) / "vocab.txt"
    rules = text_rules.TextRules(True, keep_accents=True)
    library_ids.compare(json.dumps(content), tokenization.load(str(path), rules))
    path.write_text("\n".join([*SPECIAL, "born", "free"]) + "\n")
    with pytest.raises(library_ids.Difference, match="other ids on the text 'All human beings"):
        library_ids.compare(json.dumps(content), tokenization.load(str(path), rules))
    with pytest.raises(library_ids.Difference, match="an error of the library"):
        library_ids.compare("{}", tokenization.load(str(path), rules))
