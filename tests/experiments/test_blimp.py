"""Reading BLiMP and counting the pairs that a model gets right."""

import bz2
import gzip
import json

import pytest

from albert.experiments import blimp
from albert.io import file_io


def write(folder, name, pairs, field="syntax", term="island_effects"):
    """A file of a paradigm as it is published, with keys that are not read."""
    rows = [
        {
            "sentence_good": good, "sentence_bad": bad, "field": field, "linguistics_term": term,
            "UID": name, "pairID": str(number), "lexically_identical": True,
        }
        for number, (good, bad) in enumerate(pairs)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "blimp"
    write(data, "wh_island", [("aaa", "a"), ("a", "aaa"), ("aa", "a")])
    write(data, "passive_1", [("aa", "b"), ("c", "d")], "syntax/semantics", "argument_structure")
    write(data, "causative", [("ccc", "b")], "syntax_semantics", "argument_structure")
    return data


def test_paradigms_and_shares(folder, tmp_path):
    paradigms = blimp.read(str(folder))
    assert [p.name for p in paradigms] == ["causative", "passive_1", "wh_island"]
    # By hand: the longer sentence wins; ("c", "d") is the only tie.
    result = blimp.measure(paradigms, lambda sentences: [len(text) for text in sentences])
    assert [share for _, share in result.paradigms] == [
        blimp.Tally(1, 1, 0), blimp.Tally(2, 1, 1), blimp.Tally(3, 2, 0)
    ]  # fmt: skip
    assert result.metrics() == pytest.approx(
        {
            "blimp_accuracy": 4 / 6,
            "blimp_accuracy_ties_right": 5 / 6,
            "blimp_syntax_accuracy": 2 / 3,
            "blimp_syntax_semantics_accuracy": 2 / 3,
        }
    )
    blimp.write(str(tmp_path / "out"), result)
    found = json.loads((tmp_path / "out" / "blimp.json").read_text())
    assert found["overall"] == pytest.approx(
        {"accuracy": 4 / 6, "accuracy_ties_right": 5 / 6, "pairs": 6, "ties": 1}
    )
    assert found["phenomena"]["argument_structure"]["pairs"] == 3
    assert found["paradigms"]["passive_1"] == {
        "accuracy": 0.5, "accuracy_ties_right": 1.0, "pairs": 2, "ties": 1,
        "field": "syntax_semantics", "phenomenon": "argument_structure",
    }  # fmt: skip
    lines = [line.split() for line in (tmp_path / "out" / "blimp.txt").read_text().splitlines()]
    columns = ["pairs", "ties", "accuracy", "ties", "right"]
    assert lines[:2] == [["paradigm", *columns], ["causative", "1", "0", "1.000", "1.000"]]
    assert ["field", *columns] in lines
    assert lines[-1] == ["overall", "6", "1", "0.667", "0.833"]


def test_each_pair_is_written_with_both_scores(folder, tmp_path):
    def score(sentences):
        return [float("-inf") if text == "b" else len(text) for text in sentences]

    blimp.write(str(tmp_path), blimp.measure(blimp.read(str(folder)), score))
    lines = (tmp_path / "blimp_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert [(row["paradigm"], row["pair"]) for row in found] == [
        ("causative", 0), ("passive_1", 0), ("passive_1", 1), ("wh_island", 0), ("wh_island", 1),
        ("wh_island", 2),
    ]  # fmt: skip
    assert found[4] == {
        "paradigm": "wh_island", "pair": 1, "sentence_good": "a", "sentence_bad": "aaa",
        "score_good": 1, "score_bad": 3, "right": False,
    }  # fmt: skip
    assert (found[0]["score_good"], found[0]["score_bad"], found[0]["right"]) == (3, None, True)


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_compressed_files_are_read(folder, ending):
    wanted = blimp.read(str(folder))
    path = folder / "wh_island.jsonl"
    pack = {".gz": gzip, ".bz2": bz2}[ending].compress
    (folder / f"wh_island.jsonl{ending}").write_bytes(pack(path.read_bytes()))
    with pytest.raises(file_io.InputError, match=rf"wh_island.jsonl and .*.jsonl{ending} "):
        blimp.read(str(folder))
    path.unlink()
    assert blimp.read(str(folder)) == wanted
    packed = folder / f"wh_island.jsonl{ending}"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(file_io.InputError, match=rf"jsonl{ending} is cut off or damaged"):
        blimp.read(str(folder))


def test_limit_takes_the_first_of_each(folder):
    paradigms = blimp.read(str(folder), limit=2)
    assert [len(p.pairs) for p in paradigms] == [1, 2, 2]
    assert paradigms[2].pairs == [("aaa", "a"), ("a", "aaa")]


def test_the_published_files(shared):
    paradigms = blimp.read(str(shared / "data" / "blimp"), limit=3)
    assert len(paradigms) == 67 and {len(p.pairs) for p in paradigms} == {3}
    fields = {"morphology", "semantics", "syntax", "syntax_semantics"}
    assert {p.field for p in paradigms} == fields
    assert len({p.phenomenon for p in paradigms}) == 13


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"BLiMP: .*empty holds no \.jsonl file; expected one for each paradigm"),
        ("", r"x\.jsonl: there is no pair of sentences"),
        ("{}\n", r"x\.jsonl line 1: there is no column 'sentence_good' \(BLiMP\)"),
        ("no\n", r"x\.jsonl line 1: expected a JSON object"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    (tmp_path / "empty").mkdir()
    if text is not None:
        (tmp_path / "empty" / "x.jsonl").write_text(text)
    with pytest.raises(file_io.InputError, match=message):
        blimp.read(str(tmp_path / "empty"))
    with pytest.raises(file_io.InputError, match="BLiMP: the folder nowhere does not exist"):
        blimp.read("nowhere")


def test_a_file_has_one_field(folder):
    row = {"sentence_good": "a", "sentence_bad": "b", "field": "x", "linguistics_term": "y"}
    with open(folder / "wh_island.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(file_io.InputError, match=r"and island_effects .* 1\), x and y .*4\)"):
        blimp.read(str(folder))
