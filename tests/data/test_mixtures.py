"""Mixtures: shares, whole epochs of every source, and the same records after a stop."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from albert import run_pretraining
from albert.data import input_pipeline, record_files
from albert.data.input_options import Source, TrainInput
from albert.io import file_io
from tests.support import command_lines

SPECS = (input_pipeline.FeatureSpec("number", "int64", ()),)


@pytest.fixture
def files(tmp_path):
    """{name: records}: numbers from 0, from 1000 and from 2000 on."""
    sizes = {"books-0": (0, 30), "books-1": (30, 50), "wiki-0": (1000, 1210), "web-0": (2000, 2007)}
    for name, numbers in sizes.items():
        rows = ({"number": number} for number in range(*numbers))
        record_files.write(str(tmp_path / name), SPECS, rows, {})
    return tmp_path


def parse(folder, text):
    return input_pipeline.parse_mixture(text.replace("@", f"{folder}/"), "--input_file")


def numbers(files, text, count, seed=1, **params):
    """The first `count` records of training, with batches of 10."""
    sources = parse(files, text)
    paths = [path for source in sources for path in source.paths]
    mixture = sources if len(sources) > 1 else None
    input_fn = input_pipeline.train_input_fn(
        paths, SPECS, seed, TrainInput(trim_batches=False, mixture=mixture)
    )
    batches = input_fn({"batch_size": 10, **params}).take(count // 10)
    return np.concatenate([batch["number"].numpy() for batch in batches])


# --- what is named --------------------------------------------------------------------------------


def test_globs_with_weights(files):
    (alone,) = parse(files, "@books-*, @wiki-0")
    assert alone == Source(tuple(f"{files}/{name}" for name in ("books-0", "books-1", "wiki-0")))
    books, wiki = parse(files, "@books-*:0.3 ,@wiki*:7e-1,")
    assert books == Source((f"{files}/books-0", f"{files}/books-1"), 0.3)
    assert wiki == Source((f"{files}/wiki-0",), 0.7)
    (one,) = parse(files, "@wiki-0:5")
    assert one.paths == (f"{files}/wiki-0",)
    # A file may be called so.
    (files / "a:3").write_bytes(b"")
    assert parse(files, "@a:3")[0].paths == (f"{files}/a:3",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@books-*:0.3,@wiki-0", "wiki-0 has no weight, others have: give all of them one"),
        ("@books-*:0,@wiki-0:1", r"the weight of .*books-\*:0 must be above 0"),
        ("@books-*:-1,@wiki-0:1", "must be above 0"),
        ("@books-*:nan,@wiki-0:1", "must be above 0"),
        ("@books-*:inf,@wiki-0:1", "must be above 0"),
        ("@books-*:1,@wiki-0:1000000", r"weight of .*books-\*:1 is less than 1 in 10000 of all"),
        ("@books-*:1,@books-1:1", r"books-1 belongs to .*books-\* and to .*books-1"),
        ("@none*:1,@wiki-0:1", r"--input_file: no file matches '.*none\*'"),
    ],
)
def test_mistakes(files, text, message):
    with pytest.raises(file_io.InputError, match=message):
        parse(files, text)


def test_counts_are_the_shares_and_all_of_a_block():
    def counts(*weights):
        return input_pipeline.counts_per_block([Source((), weight) for weight in weights])

    assert counts(0.3, 0.7) == [3000, 7000] == counts(3, 7)
    assert counts(1, 1, 1) == [3334, 3333, 3333]
    assert counts(1) == [10_000]
    assert sum(counts(0.1, 0.123456, 7)) == 10_000


# --- what is read ---------------------------------------------------------------------------------


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(input_pipeline, "BLOCK", 200)


@pytest.mark.usefixtures("small_blocks")
def test_every_source_has_its_share_and_whole_epochs(files):
    text = "@books-*:0.5,@wiki-*:0.3,@web-*:0.2"
    found = numbers(files, text, 400)
    source = found // 1000
    for block in (source[:200], source[200:]):
        assert collections.Counter(block.tolist()) == {0: 100, 1: 60, 2: 40}
    assert not np.array_equal(source[:200], source[200:])
    # Also in every part of a block, nearly.
    assert all(abs((part == 0).mean() - 0.5) < 0.3 for part in np.split(source, 8))
    for number, size in ((0, 50), (2, 7)):
        own = found[source == number]
        for start in range(0, len(own) - size + 1, size):
            assert len(set(own[start : start + size].tolist())) == size
        assert not np.array_equal(own[:size], own[size : 2 * size])


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("step", [1, 20, 33])
def test_a_resumed_run_reads_the_same(files, step):
    text = "@books-*:0.5,@wiki-*:0.3,@web-*:0.2"
    whole = numbers(files, text, 10 * step + 100)
    rest = numbers(files, text, 100, first_step=step)
    assert np.array_equal(whole[10 * step :], rest)


@pytest.mark.slow
def test_seed_and_input_pipelines(files):
    text = "@books-*:1,@wiki-*:1"
    one, other = numbers(files, text, 100), numbers(files, text, 100, seed=2)
    assert not np.array_equal(one, other)
    parts = [
        numbers(files, text, 50, num_input_pipelines=2, input_pipeline_id=number, first_step=3)
        for number in range(2)
    ]
    both = np.stack([part.reshape(-1, 10) for part in parts], axis=1).reshape(-1)
    assert np.array_equal(both, numbers(files, text, 100, first_step=6))


def test_a_source_without_records_is_refused(files):
    record_files.write(str(files / "empty-0"), SPECS, [], {})
    with pytest.raises(file_io.InputError, match="no records in .*empty-0"):
        numbers(files, "@books-*:1,@empty-*:1", 10)
    # With others it does no harm, and memory for shuffling is judged by those.
    assert (
        input_pipeline.shuffle_buffer_size([str(files / "empty-0"), str(files / "books-0")]) > 1000
    )


def test_remote_files_are_read_as_others(files):
    """Through `tf.io.gfile`; TensorFlow keeps this file system in memory."""
    for path in files.glob("*-?"):
        tf.io.gfile.makedirs("ram://corpus")
        tf.io.gfile.copy(str(path), f"ram://corpus/{path.name}", overwrite=True)
    text = "@books-*:0.3,@wiki-*:0.7"
    remote = input_pipeline.parse_mixture(text.replace("@", "ram://corpus/"), "")
    assert remote[0] == Source(("ram://corpus/books-0", "ram://corpus/books-1"), 0.3)
    paths = [path for source in remote for path in source.paths]
    assert record_files.count_records(paths) == 50 + 210
    input_fn = input_pipeline.train_input_fn(
        paths, SPECS, 1, TrainInput(trim_batches=False, mixture=remote)
    )
    batches = input_fn({"batch_size": 10, "first_step": 3}).take(5)
    found = np.concatenate([batch["number"].numpy() for batch in batches])
    assert np.array_equal(found, numbers(files, text, 50, first_step=3))
    with pytest.raises(file_io.InputError, match="cannot read nowhere://; install tensorflow-io"):
        input_pipeline.parse_mixture("nowhere://corpus/*:1,ram://corpus/*:1", "--input_file")


def test_the_script_takes_mixtures(files, monkeypatch):
    taken = {}
    monkeypatch.setattr(
        "albert.tasks.pretraining.make_data", lambda *_, **settings: taken.update(settings)
    )

    for text, expected in (("@books-*", None), ("@books-*:1,@wiki-0:3", [1, 3])):
        config = type("Config", (), {"vocab_size": 9, "type_vocab_size": 2, "segment_limit": 2})
        input_file = text.replace("@", f"{files}/")
        settings = command_lines.read(run_pretraining, input_file=input_file, output_dir="x")
        run_pretraining.make_data(settings, config, True)
        mixture = taken["mixture"]
        assert (mixture and [source.weight for source in mixture]) == expected


def test_manifests_are_no_records(files):
    assert (files / "wiki-0.manifest.json").exists()
    assert parse(files, "@wiki*")[0].paths == (f"{files}/wiki-0",)
    with pytest.raises(file_io.InputError, match="no record file matches .*wiki.*, only .*json"):
        parse(files, "@wiki*json")
