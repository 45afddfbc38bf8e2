"""Shards: complete, the same however often their making was ended, and never another job's."""

import gzip
import json
import os
import re
import shutil
import sys
from contextlib import nullcontext

import pytest
import tensorflow as tf

from albert.data import (
    input_options,
    instance_files,
    instance_shards,
    instances,
    masking,
    record_files,
    shuffling,
)
from albert.export import verification
from albert.io import file_io, locks
from albert.text import text_rules, tokenization
from tests.support import processes
from tests.support.instance_samples import (
    SENTENCES,
    VOCABULARY,
    content_of,
    make_job,
    use_small_blocks,
)
from tests.support.sources import ROOT


@pytest.fixture
def text(tmp_path):
    documents = [
        "\n".join(f"{SENTENCES[(number + i) % 5]} {number}" for i in range(2 + number % 7))
        for number in range(20)
    ]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", "utf-8")
    return path


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    use_small_blocks(monkeypatch)


def create(text, prefix, job, num_shards=3, num_workers=1, **kwargs):
    return instance_shards.create([str(text)], str(prefix), num_shards, job, num_workers, **kwargs)


def records_in(paths, compression=""):
    return [r.numpy() for r in tf.data.TFRecordDataset(list(map(str, paths)), compression)]


def test_shards_hold_the_records_of_a_single_file(text, tmp_path):
    job = make_job()
    counts = create(text, tmp_path / "out" / "part", job)
    names = [f"part-0000{i}-of-00003" for i in range(3)]
    assert sorted(os.listdir(tmp_path / "out")) == [*names, "part.manifest.json"]
    single = instance_files.create([str(text)], [str(tmp_path / "single")], job)
    assert counts == single
    shards = [records_in([tmp_path / "out" / name]) for name in names]
    assert sorted(sum(shards, [])) == sorted(records_in([tmp_path / "single"]))
    manifest = json.loads((tmp_path / "out" / "part.manifest.json").read_text())
    assert [shard["instances"] for shard in manifest["shards"]] == list(map(len, shards))
    for shard, name in zip(manifest["shards"], names, strict=True):
        assert shard["name"] == name
        assert shard["sha256"] == file_io.sha256(str(tmp_path / "out" / name))
    # At random: every shard has some of the first document and some of the last.
    assert min(map(len, shards)) > len(sum(shards, [])) / 6


def test_words_of_records_are_counted(text, tmp_path):
    job = make_job(mask=None)
    counts = create(text, tmp_path / "part", job, num_shards=2)
    tokenizer = tokenization.FullTokenizer(spm_model_file=job.spm_model_file)
    starts = instances.Vocabulary.from_tokenizer(tokenizer).word_starts
    ids = [
        tf.train.Example.FromString(record).features.feature["input_ids"].int64_list.value
        for record in records_in(tmp_path.glob("part-*"))
    ]
    # The first token, [CLS], and the last of both texts, [SEP], are no words.
    special = {tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]}
    words = sum(starts[i] and i not in special for row in ids for i in row)
    assert counts["instance_words"] == words > 1000
    paths = tuple(map(str, tmp_path.glob("part-*")))
    ratio = instance_shards.words_per_token([input_options.Source(paths)])
    assert ratio == pytest.approx(words / sum(map(len, ids)))


def test_words_of_a_mixture_have_the_shares_of_its_sources(text, tmp_path):
    sources = []
    for name, weight, sizes in (("a", 3.0, (10, 100, 50)), ("b", 1.0, (2, 60, 60))):
        path = str(tmp_path / f"{name}-00000-of-00001")
        names = ("instances", "instance_tokens", "instance_words")
        manifest = {"counts": dict(zip(names, sizes, strict=True)), "shards": []}
        file_io.write_json(instance_shards.manifest_path(str(tmp_path / name)), manifest)
        sources.append(input_options.Source((path,), weight))
    # Of four records three have 10 tokens and 5 words, one has 30 of each.
    assert instance_shards.words_per_token(sources) == (3 * 5 + 30) / (3 * 10 + 30)
    other = input_options.Source((str(text),))
    assert instance_shards.words_per_token([*sources, other]) is None
    manifest["counts"].pop("instance_words")  # of an earlier version
    file_io.write_json(instance_shards.manifest_path(str(tmp_path / "b")), manifest)
    assert instance_shards.words_per_token(sources) is None


def test_workers_do_not_change_a_byte(text, tmp_path):
    job = make_job(compress=True)
    create(text, tmp_path / "one" / "part", job)
    create(text, tmp_path / "two" / "part", job, num_workers=2)
    assert content_of(tmp_path / "one") == content_of(tmp_path / "two")
    assert len(records_in(tmp_path.glob("one/part-*"), "GZIP")) > 50


def test_compressed_text_makes_the_same_shards(text, tmp_path):
    """Also with several processes, each of which reads some of the blocks only."""
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    counts = [
        create(path, tmp_path / name / "part", make_job(), num_workers=workers)
        for path, name, workers in ((text, "plain", 1), (packed, "packed", 1), (packed, "two", 2))
    ]
    assert counts[0] == counts[1] == counts[2]
    for name in ("packed", "two"):
        shards = {k: v for k, v in content_of(tmp_path / name).items() if "-of-" in k}
        assert shards and shards.items() <= content_of(tmp_path / "plain").items()


def test_a_large_shard_has_several_buckets(text, tmp_path, monkeypatch):
    job = make_job()
    monkeypatch.setattr(shuffling, "BUCKET_BYTES", 5000)
    create(text, tmp_path / "out" / "part", job, num_shards=2)
    single = instance_files.create([str(text)], [str(tmp_path / "single")], job)
    found = records_in(tmp_path.glob("out/part-*"))
    assert len(found) == single["instances"]
    assert sorted(found) == sorted(records_in([tmp_path / "single"]))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="ends forked processes")
@pytest.mark.parametrize("stride", [29, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_step_goes_on(text, tmp_path, stride):
    result = processes.run(
        [
            *(sys.executable, "-m", "tests.support.killed_runs"),
            *(text, tmp_path / "out", VOCABULARY, str(stride)),
        ],
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 60


# --- other jobs -----------------------------------------------------------------------------------


def test_finished_shards_are_kept(text, tmp_path, monkeypatch):
    job = make_job()
    counts = create(text, tmp_path / "out" / "part", job)
    before = content_of(tmp_path / "out")
    monkeypatch.setattr(instance_files, "make_instances", None)
    assert create(text, tmp_path / "out" / "part", job) == counts
    assert content_of(tmp_path / "out") == before
    # The name of a text does not matter, what is in it does.
    text = text.rename(tmp_path / "moved.txt")
    assert create(text, tmp_path / "out" / "part", job) == counts


def stop_before_shuffling(monkeypatch, text, prefix, job):
    with monkeypatch.context() as patch:
        patch.setattr(shuffling, "shuffled_bucket", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            create(text, prefix, job)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seq_length": 30}, "max_seq_length=40, now it is 30"),
        ({"dupe_factor": 3}, "dupe_factor=2, now it is 3"),
        ({"mask": masking.MaskingConfig(6, ngram=1)}, "ngram=3, now it is 1"),
        ({"mask": None}, "mask_in_training=False, now it is True"),
        ("shards", "num_shards=3, now it is 4"),
        ("text", "text.txt, which has changed"),
        ("more text", "made of 1 input file.s., now there are 2"),
        ("vocabulary", "another vocabulary"),
    ],
)
def test_changes_are_refused_by_name_or_made_again(
    text, tmp_path, finished, change, message, monkeypatch
):
    prefix, inputs, num_shards = str(tmp_path / "out" / "part"), [str(text)], 3
    job = make_job()
    if finished:
        create(text, prefix, job)
    else:
        stop_before_shuffling(monkeypatch, text, prefix, job)
    before = set(os.listdir(tmp_path / "out"))
    if isinstance(change, dict):
        job = make_job(**change)
    elif change == "shards":
        num_shards = 4
    elif change == "vocabulary":
        other = tmp_path / "vocab.txt"
        other.write_text((VOCABULARY.with_name("tiny_vocab.txt")).read_text() + "\nmore")
        job = instance_files.Job(job.settings, 2, vocab_file=str(other))
    else:
        text.write_text(text.read_text() + "\none more\nand two\n")
        inputs *= 1 + (change == "more text")
    with pytest.raises(file_io.InputError, match=message) as caught:
        instance_shards.create(inputs, prefix, num_shards, job)
    assert "overwrite_shards=true" in str(caught.value) and prefix in str(caught.value)
    assert set(os.listdir(tmp_path / "out")) == before
    instance_shards.create(inputs, prefix, num_shards, job, overwrite_shards=True)
    instance_shards.create(inputs, str(tmp_path / "new" / "part"), num_shards, job)
    assert content_of(tmp_path / "out") == content_of(tmp_path / "new")


def test_changed_and_foreign_shards_are_refused(text, tmp_path):
    job, prefix = make_job(), tmp_path / "part"
    foreign = tmp_path / "part-00000-of-00007"
    foreign.write_bytes(b"precious")
    with pytest.raises(file_io.InputError, match="no manifest: another program made them"):
        create(text, prefix, job)
    assert foreign.read_bytes() == b"precious" and sorted(os.listdir(tmp_path)) == [
        foreign.name,
        "text.txt",
    ]
    create(text, prefix, job, overwrite_shards=True)
    assert not foreign.exists()
    shard = tmp_path / "part-00001-of-00003"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(file_io.InputError, match=f"{shard.name} has .* bytes, not"):
        create(text, prefix, job)
    shard.unlink()
    with pytest.raises(file_io.InputError, match=f"{shard.name} is missing"):
        create(text, prefix, job)
    create(text, prefix, job, overwrite_shards=True)
    assert shard.read_bytes() == whole


def test_two_runs_at_once_and_impossible_numbers(text, tmp_path):
    job, prefix = make_job(), tmp_path / "part"
    (tmp_path / "part.unfinished").mkdir()
    lock = locks.locked(str(tmp_path / "part.unfinished" / "lock"), "")
    with lock, pytest.raises(file_io.InputError, match="another run is making .*part; wait"):
        create(text, prefix, job)
    with pytest.raises(file_io.InputError, match="num_shards=100000 must be between 1 and 99999"):
        create(text, prefix, job, num_shards=100_000)


def test_a_pass_that_two_runs_have_made_counts_once(text, tmp_path, monkeypatch):
    """The last worker of a killed run may finish a pass that the next run makes again."""
    job = make_job()
    stop_before_shuffling(monkeypatch, text, tmp_path / "out" / "part", job)
    for path in (tmp_path / "out" / "part.unfinished").glob("*.1.*"):
        copy = path.with_name(path.name.replace(".1.", ".2.") + "0")
        copy.write_bytes(path.read_bytes())
    create(text, tmp_path / "out" / "part", job)
    create(text, tmp_path / "new" / "part", job)
    assert content_of(tmp_path / "out") == content_of(tmp_path / "new")


def test_damaged_work_is_not_published(text, tmp_path, monkeypatch):
    job = make_job()
    stop_before_shuffling(monkeypatch, text, tmp_path / "out" / "part", job)
    path = next((tmp_path / "out" / "part.unfinished").glob("bucket-*"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(file_io.InputError, match="unfinished holds .* of .* instances: .*damaged"):
        create(text, tmp_path / "out" / "part", job)
    assert os.listdir(tmp_path / "out") == ["part.unfinished"]


def test_a_full_disk_keeps_what_is_done(text, tmp_path, monkeypatch):
    open_file = file_io.open_file

    def full(path, mode="r"):
        if "shard-00001" in str(path) and mode != "rb":
            raise OSError(28, "No space left on device")
        return open_file(path, mode)

    job = make_job()
    with monkeypatch.context() as patch:
        patch.setattr(file_io, "open_file", full)
        with pytest.raises(file_io.InputError, match="cannot write .*No space left"):
            create(text, tmp_path / "out" / "part", job)
    assert (tmp_path / "out" / "part.unfinished" / "shard-00000.json").exists()
    monkeypatch.setattr(instance_files, "make_instances", None)  # They are all there.
    create(text, tmp_path / "out" / "part", job)
    assert len(os.listdir(tmp_path / "out")) == 4


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", '{"version": 1}', '{"version": 1, "settings": 3}']
)
def test_damaged_descriptions_are_refused_or_made_again(text, tmp_path, damaged, monkeypatch):
    job, prefix = make_job(), tmp_path / "out" / "part"
    create(text, prefix, job)
    expected = content_of(tmp_path / "out")
    (tmp_path / "out" / "part.manifest.json").write_text(damaged)
    with pytest.raises(
        file_io.InputError, match="the shards there (have a damaged manifest|were made by)"
    ):
        create(text, prefix, job)
    create(text, prefix, job, overwrite_shards=True)
    assert content_of(tmp_path / "out") == expected
    stop_before_shuffling(monkeypatch, text, tmp_path / "new" / "part", job)
    (tmp_path / "new" / "part.unfinished" / "job.json").write_text(damaged)
    with pytest.raises(file_io.InputError, match="the shards there are unfinished and"):
        create(text, tmp_path / "new" / "part", job)
    create(text, tmp_path / "new" / "part", job, overwrite_shards=True)
    assert content_of(tmp_path / "new") == expected


def test_a_damaged_journal_is_named(text, tmp_path, monkeypatch):
    job = make_job()
    stop_before_shuffling(monkeypatch, text, tmp_path / "part", job)
    (journal,) = (tmp_path / "part.unfinished").glob("done.*")
    for rubbish in ("[1, 2]", "[", "[0, 0, 3]"):
        journal.write_text(f"{rubbish}\n")
        with pytest.raises(file_io.InputError, match="done.* is damaged .*; remove the folder"):
            create(text, tmp_path / "part", job)


def test_a_long_journal_is_read_to_its_end(text, tmp_path, monkeypatch):
    job = make_job()
    create(text, tmp_path / "whole" / "part", job)
    stop_before_shuffling(monkeypatch, text, tmp_path / "out" / "part", job)
    (journal,) = (tmp_path / "out" / "part.unfinished").glob("done.*")
    journal.write_bytes(journal.read_bytes()[:-1] + b" " * file_io.SMALL + b"\n")
    create(text, tmp_path / "out" / "part", job)
    assert content_of(tmp_path / "out") == content_of(tmp_path / "whole")


# --- what the manifest tells later ----------------------------------------------------------------


def cut_behind_a_record(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    path.write_bytes(content[: 16 + length])


def delete(path):
    path.unlink()


def swap(path):
    other = path.with_name("part-00002-of-00003")
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def of_another_set(path):
    shutil.copy(path, path.with_name("part-00001-of-00002"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "found", "refusal"),
    [
        (cut_behind_a_record, {1: "has .* bytes, .* were written"}, "00001.* has 1 records and"),
        (delete, {1: "is missing"}, "the shard .*part-00001-of-00003 is missing: restore it"),
        (swap, {1: "", 2: ""}, "00001-of-00003 has .* records and .* by its manifest"),
        (flip, {1: "has the SHA-256"}, None),
        (of_another_set, {"00001-of-00002": "does not name"}, "00002 is not one of the shards"),
    ],
)
def test_damaged_shards_are_named(text, tmp_path, damage, found, refusal):
    prefix = tmp_path / "out" / "part"
    create(text, prefix, make_job())
    names = [f"part-0000{i}-of-00003" for i in range(3)]

    def checked(path):
        return {item.path.rpartition("/")[2]: item.damage for item in verification.check(str(path))}

    def check_to_train():
        paths = list(map(str, (tmp_path / "out").glob("part-*")))
        paths = sorted(paths)
        record_files.check_files(paths, (), "")

    whole = dict.fromkeys(names)
    manifest = f"{prefix}.manifest.json"
    assert checked(tmp_path) == checked(prefix) == checked(manifest) == whole
    check_to_train()
    damage(tmp_path / "out" / names[1])
    found = {f"part-0000{k}-of-00003" if k in (1, 2) else f"part-{k}": v for k, v in found.items()}
    state = checked(tmp_path)
    assert {name for name, text in state.items() if text} == set(found)
    assert all(re.search(pattern, state[name]) for name, pattern in found.items())
    one = next(iter(found))
    assert checked(tmp_path / "out" / one) == {one: state[one]}
    with pytest.raises(file_io.InputError, match=refusal) if refusal else nullcontext():
        check_to_train()


def test_shards_may_be_held_out_and_copied_alone(text, tmp_path, caplog):
    create(text, tmp_path / "out" / "part", make_job())
    paths = [str(tmp_path / "out" / f"part-0000{i}-of-00003") for i in range(3)]
    with caplog.at_level("INFO", logger="absl"):
        record_files.check_files(paths[:2], (), "")
        assert "missing" not in caplog.text
        assert f"{record_files.count_records(paths[:2])} records in 2 file(s)" in caplog.text
        os.remove(paths[2])
        os.remove(tmp_path / "out" / "part.manifest.json")
        record_files.check_files(paths[:2], (), "")
    assert f"1 of 3 shards are missing: {paths[2]}" in caplog.text


def test_a_damaged_manifest_of_shards_is_named(text, tmp_path):
    create(text, tmp_path / "part", make_job())
    manifest = tmp_path / "part.manifest.json"
    for content in ("{", "[]", '{"shards": [{"name": "../x"}]}', '{"shards": 3}'):
        manifest.write_text(content)
        (item,) = [i for i in verification.check(str(tmp_path)) if "manifest of shards" in i.what]
        assert item.path == str(manifest) and item.damage
        with pytest.raises(file_io.InputError, match="part.manifest.json"):
            record_files.check_files([str(tmp_path / "part-00000-of-00003")], (), "")


def test_the_vocabulary_and_rules_of_shards_are_compared(text, tmp_path):
    prefix, vocabulary = tmp_path / "part", str(VOCABULARY)
    create(text, prefix, make_job())
    paths = [*map(str, tmp_path.glob("part-*")), str(text)]
    for rules in (text_rules.TextRules(), text_rules.TextRules(True, keep_accents=False)):
        instance_shards.check_vocabulary(paths, vocabulary, rules, sentencepiece=True)
    other = tmp_path / "other.model"
    other.write_bytes(VOCABULARY.read_bytes() + b"\0")
    name = f"{prefix}.manifest.json"
    for path, rules, message in (
        (str(other), {}, f"made with another vocabulary than {other}"),
        (vocabulary, {"do_lower_case": False}, "do_lower_case is False (there True)"),
        (vocabulary, {"extra_pieces": ("NASA",)}, "extra_pieces is ['NASA'] (there [])"),
    ):
        with pytest.raises(file_io.InputError, match=re.escape(f"{name}: ")) as error:
            instance_shards.check_vocabulary(
                paths, path, text_rules.TextRules(**rules), sentencepiece=True
            )
        assert message in str(error.value)
    file_io.write_json(name, {"shards": [], "settings": {}})  # says nothing about them
    instance_shards.check_vocabulary(paths, str(other), text_rules.TextRules(), sentencepiece=True)


@pytest.mark.parametrize(
    ("made_for", "task", "fits"),
    [
        *(("reference", "sop", True), ("reference", "nsp", False), ("sop", "sop", True)),
        *(("nsp", "nsp", True), ("nsp", "sop", False), ("none", "sop", False)),
    ],
)
def test_the_sentence_task_of_shards_is_compared(tmp_path, made_for, task, fits):
    name = str(tmp_path / "part.manifest.json")
    paths = [str(tmp_path / "a.tf_record"), str(tmp_path / "part-00000-of-00001")]
    instance_shards.check_sentence_task(paths, task)
    file_io.write_json(name, {"shards": [], "settings": {"sentence_task": made_for}})
    if fits:
        instance_shards.check_sentence_task(paths, task)
        return
    remedy = {"reference": "sop"}.get(made_for, made_for)
    expected = rf"{name}: .*made with sentence_task={made_for}, .*: give sentence_task={remedy}, "
    with pytest.raises(file_io.InputError, match=expected):
        instance_shards.check_sentence_task(paths, task)


def test_a_vocabulary_in_json_equals_its_copy_in_model_folders(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(pieces)}}
    file_io.write_json(str(tmp_path / "tokenizer.json"), {"model": model, "added_tokens": []})
    settings = instances.Settings(max_seq_length=40)
    job = instance_files.Job(settings, 1, vocab_file=str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("a ab a ab\nab a ab\n\na ab\nab a\n")
    create(tmp_path / "a.txt", tmp_path / "part", job, num_shards=1)
    for name in ("tokenizer.json", "vocab.txt"):
        instance_shards.check_vocabulary(
            [str(tmp_path / "part-00000-of-00001")], str(tmp_path / name), job.rules, False
        )
