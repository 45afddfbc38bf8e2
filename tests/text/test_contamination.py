"""Runs of words of evaluation sets."""

import json
import unicodedata

import numpy as np
import pytest

from albert.io import file_io
from albert.text import contamination, words

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"

FRENCH = "Françoise et Irène étaient à l’hôtel où Beyoncé avait déjà été reçue"


@pytest.fixture
def data_dir(tmp_path):
    folders = ("glue/RTE", "squad", "race/RACE/dev/high", "race/RACE/test/middle")
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "glue/RTE/dev.tsv").write_text(f"index\tsentence1\n0\t{LONG} glue\n1\tshort\n")
    (tmp_path / "glue/RTE/train.tsv").write_text("index\tsentence1\n0\t" + "train " * 20)
    squad = {"data": [{"paragraphs": [{"context": f"{LONG} squad", "qas": [{"id": 7}]}]}]}
    (tmp_path / "squad/dev-v1.1.json").write_text(json.dumps(squad))
    race = json.dumps({"article": f"{LONG} race", "options": [["a"] * 4]})
    (tmp_path / "race/RACE/dev/high/all.txt").write_text(f"{race}\n{race}\n")
    article = FRENCH.replace("ç", "\u00adç", 1).replace("é", "é\u200b", 1)
    (tmp_path / "race/RACE/test/middle/1.txt").write_text(json.dumps(["x " * 30, article]))
    return tmp_path


def find(index, text):
    return index.find(words.word_hashes(words.split(text)))


def test_texts_of_all_sets_are_found(data_dir):
    index = contamination.build(("glue", "squad", "race"), data_dir)
    assert index.names == ("glue", "squad", "race")
    counted = {name: dict(counts) for name, counts in index.counts.items()}
    assert counted["glue"] == {"files": 1, "texts": 6, "short_texts": 5, "runs": 3}
    assert counted["squad"] == {"files": 1, "texts": 1, "short_texts": 0, "runs": 3}
    assert counted["race"] == {"files": 2, "texts": 4, "short_texts": 1, "runs": 3 + 18 + 1}
    for number, name in enumerate(index.names):
        places, texts = find(index, f"Before, that: {LONG.upper()}, «{name}» after")
        assert places.tolist() == [2, 3, 4]
        # Two runs are in a text of each set, one in this set alone.
        assert index.set_of[texts].tolist() == [0, 1, 2, 0, 1, 2, number]
        assert index.starts[texts[-1]].startswith("one two")
    # Another form of Unicode, and characters without width, which the corpus never has.
    for text in (FRENCH, unicodedata.normalize("NFD", FRENCH), FRENCH.upper()):
        places, texts = find(index, text)
        assert places.tolist() == [0] and index.starts[texts[0]].startswith("Fran")
    places, texts = find(index, "x " * 13)
    assert places.tolist() == [0] and index.names[index.set_of[texts[0]]] == "race"


def test_a_text_counts_once_in_each_set_that_has_it(data_dir):
    (data_dir / "squad/dev-v1.1.json").write_text(json.dumps([f"{LONG} glue", LONG]))
    (data_dir / "squad/dev-v2.0.json").write_text(json.dumps([f"{LONG} glue", f"{LONG} two"]))
    index = contamination.build(("glue", "squad"), data_dir)
    assert index.counts["squad"] == {"files": 2, "texts": 3, "short_texts": 0, "runs": 3 + 2 + 3}
    places, texts = find(index, f"{LONG} glue. {LONG}")
    assert places.tolist() == [0, 1, 2, 15, 16]
    assert set(texts.tolist()) == {0, 1, 2, 3}
    assert index.set_of.tolist() == [0, 1, 1, 1]


def test_what_is_not_found(data_dir):
    index = contamination.build(("glue",), data_dir)
    for text in ("", "one two", "train " * 30, LONG.replace("seven", "7"), f"{LONG} squad"[18:]):
        places, _ = find(index, text)
        assert not len(places), text
    empty = contamination.Index(np.zeros(0, np.uint64), np.zeros(0, np.int32), [], [], (), {})
    assert not len(find(empty, LONG)[0])


def test_missing_unknown_and_damaged_sets(data_dir):
    with pytest.raises(file_io.InputError, match="contamination=snli: expected .* glue, sq"):
        contamination.build(("snli",), data_dir)
    with pytest.raises(file_io.InputError, match="contamination=race: data_dir=.*/none has"):
        contamination.build(("race",), data_dir / "none")
    (data_dir / "race/RACE/dev/high/all.txt").write_text('{"a": "b"}\n{"a":\n')
    with pytest.raises(file_io.InputError, match="all.txt line 2 is not JSON"):
        contamination.build(("race",), data_dir)
