"""Record files from text: complete, in order, the same for any number of workers, or not at all."""

import collections
import concurrent.futures
import dataclasses
import io
import itertools
import os
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from albert.data import instance_files, instances, masking, shuffling
from albert.io import file_io
from albert.text import corpus, text_rules, tokenization
from tests.support.instance_samples import SENTENCES, make_job, use_small_blocks

BLOCK_BYTES = 1000


@pytest.fixture
def text(tmp_path):
    """A text file of 12 documents."""
    documents = [
        [f"{SENTENCES[(number + i) % 5]} {number}" for i in range(2 + number)]
        for number in range(12)
    ]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", "utf-8")
    return str(path)


@pytest.fixture
def job():
    return make_job(dupe_factor=3)


@pytest.fixture
def small_blocks(monkeypatch):
    use_small_blocks(monkeypatch, BLOCK_BYTES)


def records_in(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def create(text, outputs, job, num_workers=1):
    return instance_files.create([text], list(map(str, outputs)), job, num_workers)


def test_files_are_filled_in_turn_and_counts_are_true(text, job, tmp_path):
    outputs = [tmp_path / "new" / "a", tmp_path / "new" / "b", tmp_path / "c"]
    counts = create(text, outputs, job)
    sizes = [len(records_in(path)) for path in outputs]
    assert sum(sizes) == counts["instances"] > 50
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
    assert counts["documents"] == 12
    assert counts["sentences"] == sum(2 + number for number in range(12))
    assert counts["empty_lines"] == 11
    masked = labels = tokens = 0
    for path in outputs:
        for record in records_in(path):
            feature = tf.train.Example.FromString(record).features.feature
            masked += sum(feature["masked_lm_weights"].float_list.value)
            labels += feature["next_sentence_labels"].int64_list.value[0]
            tokens += sum(feature["input_mask"].int64_list.value)
    assert (counts["masked"], counts["labels_1"]) == (masked, labels)
    assert counts["instance_tokens"] == tokens
    # Nothing but the files is left.
    assert sorted(os.listdir(tmp_path)) == ["c", "new", "text.txt"]
    assert sorted(os.listdir(tmp_path / "new")) == ["a", "b"]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("num_workers", [2, 3])
def test_workers_do_not_change_a_byte(text, job, tmp_path, num_workers, monkeypatch):
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert len(corpus.plan_blocks([text]).blocks) > 2
    counts = create(text, [alone], job)
    assert create(text, [together], job, num_workers) == counts
    assert alone.read_bytes() == together.read_bytes()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "num_workers"),
    [("full_sentences", 2), ("full_sentences", 3), ("doc_sentences", 2), ("sentence_pair", 2)],
)
def test_workers_do_not_change_a_byte_of_any_format(text, tmp_path, name, num_workers):
    task = "sop" if name == "sentence_pair" else "none"
    job = make_job(dupe_factor=3, sequence_format=name, sentence_task=task)
    counts = create(text, [tmp_path / "alone"], job)
    assert create(text, [tmp_path / "together"], job, num_workers) == counts
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "together").read_bytes()


@pytest.mark.parametrize("name", ["full_sentences", "doc_sentences"])
def test_the_records_of_a_corpus_are_its_documents(shared, tmp_path, name):
    """Read back by TensorFlow: each document's tokens, each once, in pieces that lie in it."""
    text = tmp_path / "text"
    source = (shared / "data" / "corpus" / "wiki_000.txt").read_text("utf-8")
    text.write_text(source[:400_000])
    vocabulary = str(shared / "data" / "spm" / "30k-clean.model")
    mask = masking.MaskingConfig(10)
    settings = instances.Settings(64, 0.0, "none", 1, mask, sequence_format=name)
    job = instance_files.Job(settings, 1, spm_model_file=vocabulary)
    counts = create(str(text), [tmp_path / "out"], job)

    tokenizer = tokenization.FullTokenizer(spm_model_file=vocabulary)
    texts = [part for part in text.read_text("utf-8").split("\n\n") if part.strip()]
    documents = [
        [token for line in part.split("\n") for token in tokenizer.encode(line)] for part in texts
    ]
    found = collections.Counter()
    for record in records_in(tmp_path / "out"):
        feature = tf.train.Example.FromString(record).features.feature
        ids = list(feature["input_ids"].int64_list.value)
        for place, label, weight in zip(
            feature["masked_lm_positions"].int64_list.value,
            feature["masked_lm_ids"].int64_list.value,
            feature["masked_lm_weights"].float_list.value,
            strict=True,
        ):
            if weight:
                ids[place] = label
        ids = ids[: sum(feature["input_mask"].int64_list.value)]
        assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
        assert not any(feature["segment_ids"].int64_list.value)
        ends = [place for place, token in enumerate(ids) if token == tokenizer.sep_id]
        assert len(ends) == 1 or name == "full_sentences"
        for start, end in itertools.pairwise([0, *ends]):
            found[bytes_of(ids[start + 1 : end])] += 1
    assert counts["long_sentences"] and counts["pieces"] > counts["long_sentences"]
    assert counts["tokens"] == sum(map(len, documents)) > 50_000
    assert counts["instances"] * 64 >= counts["instance_tokens"]
    # Every document is its parts in a row.
    for document in documents:
        rest = bytes_of(document)
        while rest:
            parts = [rest[:end] for end in range(4, 4 * 63, 4) if found[rest[:end]]]
            assert parts
            found[parts[-1]] -= 1
            rest = rest[len(parts[-1]) :]
    assert not +found


def bytes_of(ids):
    return np.array(ids, np.int32).tobytes()


def test_passes_of_a_single_block_are_shared_among_workers(text, job, tmp_path):
    counts = create(text, [tmp_path / "alone"], job)
    assert create(text, [tmp_path / "together"], job, 2) == counts
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "together").read_bytes()


def test_division_of_the_work():
    divide = instance_files.divide
    units = divide([("x",), ("y",)], dupe_factor=5, num_workers=1)
    assert [(unit.block, unit.passes) for unit in units] == [(0, range(5)), (1, range(5))]
    units = divide([("x",)], dupe_factor=5, num_workers=2)
    assert [unit.passes for unit in units] == [range(3), range(3, 5)]
    units = divide([("x",)], dupe_factor=2, num_workers=8)
    assert [unit.passes for unit in units] == [range(1), range(1, 2)]


def test_the_seed_decides(text, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        create(text, [tmp_path / name], make_job(dupe_factor=3, random_seed=seed))
    a, b, c = (records_in(tmp_path / name) for name in "abc")
    assert a == b and a != c


@pytest.mark.usefixtures("small_blocks")
def test_records_are_shuffled_across_blocks_and_passes(text, tmp_path):
    create(text, [tmp_path / "out"], make_job(dupe_factor=12, short_seq_prob=0))
    lengths = []
    for record in records_in(tmp_path / "out"):
        feature = tf.train.Example.FromString(record).features.feature
        lengths.append(sum(feature["input_mask"].int64_list.value))
    # The short ends of documents are everywhere, not at the end of a pass.
    short = [place / len(lengths) for place, length in enumerate(lengths) if length < 40]
    assert len(short) > 20
    assert 0.3 < sum(short) / len(short) < 0.7


def test_several_buckets(text, job, tmp_path, monkeypatch):
    monkeypatch.setattr(shuffling, "BUCKET_BYTES", 5000)
    counts = create(text, [tmp_path / "out"], job)
    assert len(records_in(tmp_path / "out")) == counts["instances"]


# --- mistakes and failures ----------------------------------------------------------------------


def assert_untouched(tmp_path, names):
    assert sorted(os.listdir(tmp_path)) == sorted(["text.txt", *names])
    for name in names:
        assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "no sentence found in 1 input file.s. with 0 bytes"),
        (b"\n \n\n", "no sentence found"),
        (b"fine\nbad \xe9 line\n", r"text.txt, line 2, byte 5: not UTF-8"),
    ],
)
def test_unusable_text(text, job, tmp_path, content, message):
    (tmp_path / "text.txt").write_bytes(content)
    (tmp_path / "out").write_text("precious")
    with pytest.raises(file_io.InputError, match=message):
        create(text, [tmp_path / "out"], job)
    assert_untouched(tmp_path, ["out"])


def test_sentence_order_needs_two_sentences(text, tmp_path):
    (tmp_path / "text.txt").write_text("one\n\ntwo\n")
    job = make_job(dupe_factor=3, sentence_task="sop")
    with pytest.raises(file_io.InputError, match="2 sentence.* 'sop' needs documents of two"):
        create(text, [tmp_path / "out"], job)


def test_unusable_outputs(text, job, tmp_path):
    with pytest.raises(file_io.InputError, match="text.txt, which is an input file"):
        create(text, [tmp_path / "x", text], job)
    with pytest.raises(file_io.InputError, match="names .*x more than once"):
        create(text, [tmp_path / "x", tmp_path / "." / "x"], job)
    with pytest.raises(file_io.InputError, match="is a folder"):
        create(text, [tmp_path], job)
    with pytest.raises(file_io.InputError, match="cannot make the folder"):
        create(text, [tmp_path / "text.txt" / "x"], job)
    with pytest.raises(file_io.InputError, match="names no file"):
        create(text, [], job)
    with pytest.raises(file_io.InputError, match="new/ is a folder, a file was expected"):
        create(text, [f"{tmp_path}/new/"], job)
    with pytest.raises(file_io.InputError, match="names .*/x as a file and as a folder, .*x/a/b"):
        create(text, [tmp_path / "x" / "a" / "b", tmp_path / "x"], job)
    assert_untouched(tmp_path, [])


def test_a_disk_that_fills_up_while_compressing(text, job, tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    open_file = file_io.open_file

    def full(path, mode="r"):
        return Full() if mode == "wb" else open_file(path, mode)

    monkeypatch.setattr(file_io, "open_file", full)
    with pytest.raises(file_io.InputError, match="cannot write .*No space left on device"):
        create(text, [tmp_path / "out"], dataclasses.replace(job, compress=True))
    assert_untouched(tmp_path, [])


def test_a_missing_vocabulary_is_found_before_any_work(text, job, tmp_path):
    job = dataclasses.replace(job, spm_model_file=str(tmp_path / "none.model"))
    with pytest.raises(file_io.InputError, match="the file .*none.model does not exist"):
        create(text, [tmp_path / "out"], job, 2)
    assert_untouched(tmp_path, [])


@pytest.mark.parametrize(("keep_accents", "count"), [(None, 1), (True, 0)])
def test_pieces_that_no_text_gives_are_named_once(
    text, job, tmp_path, testdata, caplog, keep_accents, count
):
    path = tmp_path / "vocab.txt"
    path.write_text((testdata / "tiny_vocab.txt").read_text() + "für\n")
    rules = text_rules.TextRules(True, keep_accents)
    job = instance_files.Job(job.settings, 1, vocab_file=str(path), rules=rules)
    with caplog.at_level("WARNING", logger="absl"):
        create(text, [tmp_path / "out"], job)
    assert caplog.text.count("1 of 296 pieces (für) can never be found") == count
    assert caplog.text.count("give nodo_lower_case or keep_accents") == count


@pytest.mark.parametrize("where", ["buckets", "out"])
def test_a_full_disk_leaves_the_old_files(text, job, tmp_path, monkeypatch, where):
    open_file = file_io.open_file

    def full(path, mode="r"):
        if f"{where}" in str(path) and mode != "rb":
            raise OSError(28, "No space left on device")
        return open_file(path, mode)

    (tmp_path / "out").write_text("precious")
    monkeypatch.setattr(file_io, "open_file", full)
    with pytest.raises(file_io.InputError, match="cannot write .*No space left on device"):
        create(text, [tmp_path / "out"], job)
    assert_untouched(tmp_path, ["out"])


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_interrupt_leaves_the_old_files(text, job, tmp_path, monkeypatch, num_workers):
    def interrupt(*arguments, **kwargs):
        raise KeyboardInterrupt

    (tmp_path / "out").write_text("precious")
    if num_workers == 1:
        monkeypatch.setattr(instances, "make_records", interrupt)
    else:
        monkeypatch.setattr(concurrent.futures, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        create(text, [tmp_path / "out"], job, num_workers)
    assert_untouched(tmp_path, ["out"])


@pytest.mark.usefixtures("small_blocks")
def test_a_mistake_in_a_worker_is_reported_as_such(text, job, tmp_path, monkeypatch):
    real = corpus.plan_blocks([text])
    gone = dataclasses.replace(real.blocks[1][0], path=str(tmp_path / "gone"))
    plan = dataclasses.replace(real, blocks=(real.blocks[0], (gone,)))
    monkeypatch.setattr(corpus, "plan_blocks", lambda paths: plan)
    with pytest.raises(file_io.InputError, match="input text: the file .*gone does not exist"):
        create(text, [tmp_path / "out"], job, 2)
    assert_untouched(tmp_path, [])


def test_leftovers_of_a_killed_run_are_named_and_not_used(text, job, tmp_path, caplog):
    create(text, [tmp_path / "first"], job)
    (tmp_path / "out.tmp-99999.buckets").mkdir()
    (tmp_path / "out.tmp-99999.buckets" / "bucket-00000.1").write_bytes(b"rubbish")
    # Even under the name that this process uses.
    own = tmp_path / f"out.tmp-{os.getpid()}-{file_io.machine()}.buckets"
    own.mkdir()
    (own / "bucket-00000.1").write_bytes(b"rubbish")
    with caplog.at_level("WARNING"):
        create(text, [tmp_path / "out"], job)
    assert "unused files of a run that was killed" in caplog.text
    assert (tmp_path / "out").read_bytes() == (tmp_path / "first").read_bytes()


# --- report -------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "statvfs"), reason="asks the system for the room left")
def test_disk_warning(text, job, tmp_path, monkeypatch, caplog):
    with caplog.at_level("WARNING"):
        create(text, [tmp_path / "out"], job)
        assert not caplog.records
        full = types.SimpleNamespace(f_bavail=1, f_frsize=512)
        monkeypatch.setattr(os, "statvfs", lambda folder: full)
        create(text, [tmp_path / "out"], job)
    assert re.search("About .* GB will be written, but .* has only 0.0 GB left", caplog.text)


@pytest.mark.parametrize("mask", [masking.MaskingConfig(6), None], ids=["masked", "not masked"])
def test_expected_size_is_about_right(text, tmp_path, mask):
    job = make_job(dupe_factor=3, mask=mask)
    counts = create(text, [tmp_path / "out"], job)
    text_bytes = os.path.getsize(text) * job.dupe_factor
    expected = text_bytes * instance_files._bytes_per_text_byte(job.settings)
    assert 0.3 < expected / os.path.getsize(tmp_path / "out") < 3
    assert counts["bytes"] == os.path.getsize(text)


def test_report_names_everything():
    counts = collections.Counter(
        instances=200,
        files=2,
        bytes=5000,
        documents=10,
        sentences=40,
        tokens=900,
        empty_lines=11,
        sentences_without_tokens=12,
        documents_without_tokens=13,
        single_sentences_skipped=14,
        masked=150,
        permuted=140,
        instance_tokens=1000,
        labels_1=60,
        random_next=50,
        random_next_single_sentence=15,
        random_next_same_document=16,
        single_sentences_without_b=17,
        cut_documents=18,
    )
    job = make_job(dupe_factor=3, mask=masking.MaskingConfig(do_permutation=True))
    text = instance_files.report(counts, job, ["a", "b"], 4.0)
    assert "200 instances in 2 file(s), 4.0 s, 50 instances/s" in text
    assert "2 file(s), 5000 bytes, 10 documents, 40 sentences, 900 tokens" in text
    assert (
        "11 empty lines, 12 sentences and 13 documents without tokens, 14 single sentences" in text
    )
    assert "150 (15.0%) of the instances' tokens; asked for 15.0%, at most 20" in text
    assert "label 1: 60 (30.0%); with a random next text: 50 (25.0%), of these 15" in text
    assert "permuted: 140 (14.0%)" in text
    assert "16 random next texts come from the document itself" in text
    assert "without B: 17" in text
    assert "18 times inside a document of more than 32 MB" in text
