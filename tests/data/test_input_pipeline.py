"""Feature specifications, record files, manifests and input functions."""

import itertools
import json
import pathlib
import time
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from albert.data import input_pipeline, record_files
from albert.data.input_options import EvalInput, TrainInput
from albert.io import file_io, locks

SPECS = (
    input_pipeline.FeatureSpec("input_ids", "int64", (16,), sequence=True),
    input_pipeline.FeatureSpec("input_mask", "int64", (16,), sequence=True),
    input_pipeline.FeatureSpec("label_ids", "int64"),
    input_pipeline.FeatureSpec("weight", "float32", (2,)),
)


def make_rows(count, longest=16):
    for i in range(count):
        length = 1 + i % longest
        ids = np.zeros(16, np.int64)
        ids[:length] = i + 1
        yield {
            "input_ids": ids,
            "input_mask": (ids > 0).astype(np.int64),
            "label_ids": i,
            "weight": np.float32([i / 2, -1]),
        }


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "rows.tf_record")
    record_files.write(path, SPECS, make_rows(10), {"length": 16})
    return path


def labels(dataset, batches=None):
    taken = dataset if batches is None else dataset.take(batches)
    return [batch["label_ids"].numpy().tolist() for batch in taken]


def test_what_is_written_is_what_is_parsed(path):
    serialized = tf.stack(list(tf.data.TFRecordDataset(path)))
    parsed = input_pipeline.parse(SPECS, serialized)
    for i, row in enumerate(make_rows(10)):
        for name, value in row.items():
            np.testing.assert_array_equal(parsed[name][i], value)
    assert parsed["input_ids"].dtype == tf.int32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, r"\['extra'\] are not declared"),
        ({"input_ids": [1, 2]}, "input_ids has 2 values, expected 16"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, message):
    row = {**next(make_rows(1)), **change}
    with pytest.raises(ValueError, match=message):
        record_files.encode(SPECS, row)


def test_a_missing_feature_is_refused():
    row = next(make_rows(1))
    del row["weight"]
    with pytest.raises(ValueError, match=r"features \['weight'\] are missing"):
        record_files.encode(SPECS, row)


def test_records_are_made_once(path):
    def never():
        raise AssertionError("made again")

    assert record_files.cached(path, SPECS, {"length": 16}, never) == 10


def test_records_that_another_process_makes_are_awaited(path):
    file_io.remove(record_files.manifest_path(path))
    made = []

    def make(number):
        made.append(number)
        yield from make_rows(number)

    with futures.ThreadPoolExecutor() as pool:
        with locks.made_by_one(path):

            def work():
                return record_files.cached(path, SPECS, {}, lambda: make(3))

            counts = [pool.submit(work) for _ in range(2)]
            time.sleep(0.3)
            assert not made
        assert [count.result() for count in counts] == [3, 3]
    assert made == [3]


@pytest.mark.parametrize("damage", ["settings", "specs", "cut", "no manifest", "bad manifest"])
def test_records_that_do_not_fit_are_made_again(path, damage, caplog):
    settings, specs = {"length": 16}, SPECS
    if damage == "settings":
        settings = {"length": 32}
    elif damage == "specs":
        specs = (*SPECS[:3], input_pipeline.FeatureSpec("weight", "float32", (1, 2)))
    elif damage == "cut":
        with open(path, "r+b") as file:
            file.truncate(100)
    elif damage == "no manifest":
        file_io.remove(record_files.manifest_path(path))
    else:
        with open(record_files.manifest_path(path), "w") as file:
            file.write('{"version":')
    rows = [{**row, "weight": np.reshape(row["weight"], specs[3].shape)} for row in make_rows(3)]
    assert record_files.cached(path, specs, settings, lambda: rows) == 3
    assert sum(1 for _ in tf.data.TFRecordDataset(path)) == 3
    assert (
        json.loads(pathlib.Path(record_files.manifest_path(path)).read_text())["settings"]
        == settings
    )


def test_the_field_that_differs_is_named(path, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        record_files.cached(path, SPECS, {"length": 32}, lambda: make_rows(1))
    assert "made with length = 16, now it is 32" in caplog.text


def test_a_failed_writer_leaves_the_old_records(path, tmp_path):
    def broken():
        yield from make_rows(2)
        raise RuntimeError("interrupted")

    before = pathlib.Path(path).read_bytes()
    with pytest.raises(RuntimeError, match="interrupted"):
        record_files.cached(path, SPECS, {"length": 32}, broken)
    assert pathlib.Path(path).read_bytes() == before
    assert record_files.cached(path, SPECS, {"length": 16}, broken) == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "rows.tf_record",
        "rows.tf_record.manifest.json",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            input_pipeline.FeatureSpec("segment_ids", "int64", (16,)),
            "no feature 'segment_ids'.*the hint",
        ),
        (input_pipeline.FeatureSpec("weight", "int64", (2,)), "weight is a float_list, expected"),
        (
            input_pipeline.FeatureSpec("input_ids", "int64", (8,)),
            "input_ids has 16 values, expected 8",
        ),
    ],
)
def test_the_first_record_is_compared_with_the_specs(path, spec, message):
    record_files.check_files([path], SPECS, "the hint")
    with pytest.raises(file_io.InputError, match=message):
        record_files.check_files([path], (spec,), "the hint")


def test_the_first_record_of_every_file_is_compared(path, tmp_path):
    other = str(tmp_path / "other")
    with tf.io.TFRecordWriter(other) as writer:
        ids = tf.train.Feature(int64_list=tf.train.Int64List(value=range(8)))
        features = tf.train.Features(feature={"input_ids": ids})
        writer.write(tf.train.Example(features=features).SerializeToString())
    with pytest.raises(file_io.InputError, match=f"{other}: .*input_ids has 8 values"):
        spec = input_pipeline.FeatureSpec("input_ids", "int64", (16,))
        record_files.check_files([path, other], (spec,), "the hint")


def test_a_cut_file_is_named(path):
    with open(path, "r+b") as file:
        file.truncate(1000)
    with pytest.raises(file_io.InputError, match=rf"{path} is damaged: .* at byte \d+"):
        record_files.count_records([path])
    with (
        pytest.raises(file_io.InputError, match=f"{path} is damaged"),
        record_files.report_damage([path]),
    ):
        list(tf.data.TFRecordDataset(path))


def test_a_file_cut_between_records_shows_in_its_manifest(path):
    record_files.check_files([path], SPECS, "")
    whole = pathlib.Path(path).read_bytes()
    (length,) = np.frombuffer(whole[:8], "<u8")
    pathlib.Path(path).write_bytes(whole[: 16 + int(length)])
    with pytest.raises(file_io.InputError, match=f"has changed: .* {16 + length}, .* is 1"):
        record_files.check_files([path], SPECS, "")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(file_io.InputError, match="no records in"):
        record_files.check_files([str(tmp_path / "empty")], SPECS, "")


# --- lists of any length, compressed files -------------------------------------------------------


def test_lists_of_any_length_are_padded_to_the_longest(tmp_path):
    specs = (input_pipeline.FeatureSpec("tokens", "int64", (None,)), SPECS[2])
    rows = [{"tokens": list(range(count)), "label_ids": count} for count in (3, 0, 5)]
    path = str(tmp_path / "rows")
    record_files.write(path, specs, rows, {"a": 1})
    parsed = input_pipeline.parse(specs, tf.stack(list(tf.data.TFRecordDataset(path))))
    assert parsed["tokens"].dtype == tf.int32
    assert parsed["tokens"].numpy().tolist() == [[0, 1, 2, -1, -1], [-1] * 5, [0, 1, 2, 3, 4]]
    record_files.check_files([path], specs, "")
    assert record_files.cached(path, specs, {"a": 1}, lambda: pytest.fail("made again")) == 3
    with pytest.raises(file_io.InputError, match="label_ids is a int64_list, expected a float_li"):
        record_files.check_files([path], (input_pipeline.FeatureSpec("label_ids", "float32"),), "")


@pytest.fixture
def packed(path, tmp_path):
    """The records of `path` in a compressed file without an ending that says so."""
    packed = str(tmp_path / "packed")
    with tf.io.TFRecordWriter(packed, "GZIP") as writer:
        for record in tf.data.TFRecordDataset(path):
            writer.write(record.numpy())
    return packed


@pytest.mark.slow
def test_compressed_files_are_read_as_others(path, packed):
    record_files.check_files([packed], SPECS, "")
    assert record_files.count_records([packed, path]) == 20
    assert input_pipeline.shuffle_buffer_size([packed]) == input_pipeline.shuffle_buffer_size(
        [path]
    )
    found = list(record_files.serialized_examples([packed, path]))
    assert found[:10] == found[10:] and len(found) == 20
    for step in (0, 3):
        batches = [
            labels(
                input_pipeline.train_input_fn(paths, SPECS, seed=1)(
                    {"batch_size": 4, "first_step": step}
                ),
                8,
            )
            for paths in ([path, path], [packed, path], [packed, packed])
        ]
        assert batches[0] == batches[1] == batches[2]
    evaluated = [
        labels(input_pipeline.eval_input_fn([p], SPECS)({"batch_size": 4})) for p in (path, packed)
    ]
    assert evaluated[0] == evaluated[1]


def test_damaged_compressed_files_are_named(path, packed):
    content = pathlib.Path(packed).read_bytes()
    for wrong in (content[: len(content) // 2], content[:40] + b"rubbish" + content[47:]):
        pathlib.Path(packed).write_bytes(wrong)
        with pytest.raises(file_io.InputError, match=rf"{packed} is damaged: its .* byte \d+"):
            record_files.check_files([path, packed], SPECS, "")
        with (
            pytest.raises(file_io.InputError, match=f"{packed} is damaged"),
            record_files.report_damage([path, packed]),
        ):
            list(record_files.serialized_examples([path, packed]))


# --- input functions -----------------------------------------------------------------------------


def test_training_epochs_hold_every_example_once(path):
    dataset = input_pipeline.train_input_fn([path], SPECS, seed=1)({"batch_size": 5})
    first, second = labels(dataset, 2), labels(dataset.skip(2), 2)
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(10))
    assert first != second


@pytest.mark.slow
def test_training_order_depends_on_the_seed_alone(path):
    def make(seed):
        return labels(input_pipeline.train_input_fn([path], SPECS, seed)({"batch_size": 4}), 9)

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_a_buffer_has_a_place_for_each_record_at_most(path, monkeypatch):
    """More would cost memory and time in every epoch, and not change the order."""
    records = record_files.serialized_examples([path])
    large = records.shuffle(1000, seed=3 * 1_000_003, reshuffle_each_iteration=False).batch(10)
    expected = labels(large.map(lambda rows: input_pipeline.parse(SPECS, rows)))
    sizes, shuffle = [], tf.data.Dataset.shuffle

    def record_size(self, size, **options):
        sizes.append(size)
        return shuffle(self, size, **options)

    monkeypatch.setattr(tf.data.Dataset, "shuffle", record_size)
    found = labels(input_pipeline.train_input_fn([path], SPECS, 3)({"batch_size": 10}), 1)
    assert found == expected and max(sizes) == 10


@pytest.mark.parametrize("step", [1, 3, 7])
def test_a_resumed_run_sees_the_same_batches(path, step):
    input_fn = input_pipeline.train_input_fn([path], SPECS, seed=1)
    whole = labels(input_fn({"batch_size": 4}), step + 4)
    rest = labels(input_fn({"batch_size": 4, "first_step": step}), 4)
    assert whole[step:] == rest


def token_counts(serialized):
    mask = input_pipeline.parse([spec for spec in SPECS if spec.name == "input_mask"], serialized)
    return tf.reduce_sum(mask["input_mask"], axis=1)


@pytest.mark.slow
def test_batches_of_equal_tokens_hold_all_records_in_order(path):
    record_files.write(path, SPECS, make_rows(160), {})
    plain = input_pipeline.train_input_fn([path], SPECS, seed=1)({"batch_size": 10})
    cut = input_pipeline.train_input_fn(
        [path], SPECS, seed=1, options=TrainInput(lengths=token_counts)
    )({"batch_size": 10})
    assert sum(labels(cut, 32), []) == sum(labels(plain, 32), [])
    sizes = [int(tf.reduce_sum(batch["input_mask"])) for batch in cut.take(16)]
    mean = sum(sizes) / 16
    assert max(abs(size - mean) for size in sizes) <= 16  # as long as the longest record
    assert len({len(batch) for batch in labels(cut, 16)}) > 1


@pytest.mark.slow(2)
def test_batches_grouped_by_length_hold_the_same_records_with_less_padding(path):
    record_files.write(path, SPECS, make_rows(160), {})
    found = {}
    for grouped in (False, True):
        options = TrainInput(lengths=token_counts, group_by_length=grouped)
        input_fn = input_pipeline.train_input_fn([path], SPECS, seed=1, options=options)
        batches = [batch["input_mask"].numpy() for batch in input_fn({"batch_size": 10}).take(16)]
        records = sorted(
            label for batch in labels(input_fn({"batch_size": 10}), 16) for label in batch
        )
        found[grouped] = batches, records
    (plain, records), (grouped, others) = found[False], found[True]
    assert records == others
    ranges = [(mask.sum(1).min(), mask.sum(1).max()) for mask in grouped]
    by_length = sorted(ranges)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(by_length))
    assert ranges not in (by_length, by_length[::-1])  # the batches come in random order
    assert sum(mask.size for mask in grouped) < 0.9 * sum(mask.size for mask in plain)


@pytest.mark.slow
@pytest.mark.parametrize("group_by_length", [False, True])
@pytest.mark.parametrize("step", [15, 17])
def test_a_resumed_run_cuts_the_same_batches_of_equal_tokens(path, step, group_by_length):
    options = TrainInput(lengths=token_counts, group_by_length=group_by_length)
    input_fn = input_pipeline.train_input_fn([path], SPECS, seed=1, options=options)
    whole = labels(input_fn({"batch_size": 3}), step + 2)
    assert whole[step:] == labels(input_fn({"batch_size": 3, "first_step": step}), 2)


def test_no_batch_of_equal_tokens_is_empty(path):
    """Not even where one record is longer than a batch."""

    def lengths(serialized):
        return tf.where(tf.range(tf.size(serialized)) % 16 == 3, 1000, 1)

    for batch_size in (1, 2):
        input_fn = input_pipeline.train_input_fn(
            [path], SPECS, seed=1, options=TrainInput(lengths=lengths)
        )
        batches = labels(input_fn({"batch_size": batch_size}), 32)
        assert all(batches) and sum(map(len, batches)) == 32 * batch_size


@pytest.mark.parametrize(("pipelines", "replicas"), [(2, 1), (1, 2), (2, 2)])
def test_replicas_share_out_the_same_global_batches(path, pipelines, replicas):
    input_fn = input_pipeline.train_input_fn([path], SPECS, seed=1)
    whole = labels(input_fn({"batch_size": 4}), 6)
    per_replica = 4 // (pipelines * replicas)
    parts = [
        labels(
            input_fn(
                {
                    "batch_size": per_replica,
                    "num_input_pipelines": pipelines,
                    "input_pipeline_id": i,
                    "replicas_per_pipeline": replicas,
                }
            ),
            6 * replicas,
        )
        for i in range(pipelines)
    ]
    for step, batch in enumerate(whole):
        together = [x for part in parts for r in range(replicas) for x in part[step * replicas + r]]
        assert together == batch


@pytest.mark.parametrize("batch_size", [1, 3, 4, 9, 10, 11])
@pytest.mark.parametrize("trim", [True, False])
def test_evaluation_sees_every_example_once(path, batch_size, trim):
    dataset = input_pipeline.eval_input_fn([path], SPECS, EvalInput(trim_batches=trim))(
        {"batch_size": batch_size}
    )
    seen = []
    for batch in dataset:
        if trim:  # as many as fit in the tokens of a full batch
            tokens = tf.reduce_sum(batch["input_mask"])
            assert int(tokens) <= batch_size * 16
            assert len(batch["example_index"])
        else:
            assert batch["label_ids"].shape[0] == batch_size
        real = batch["example_index"] >= 0
        np.testing.assert_array_equal(batch["label_ids"][real], batch["example_index"][real])
        seen += batch["label_ids"][real].numpy().tolist()
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("pipelines", [1, 2])
def test_pipelines_of_an_evaluation_share_the_examples(path, pipelines):
    seen, batches = [], []
    for i in range(pipelines):
        params = {
            "batch_size": 2,
            "num_input_pipelines": pipelines,
            "input_pipeline_id": i,
            "replicas_per_pipeline": 2,
        }
        parts = list(input_pipeline.eval_input_fn([path], SPECS)(params))
        batches.append(len(parts))
        seen += [x for part in parts for x in part["example_index"].numpy() if x >= 0]
    assert sorted(seen) == list(range(10))
    assert len(set(batches)) == 1


def test_the_number_of_evaluated_examples_can_be_limited(path):
    dataset = input_pipeline.eval_input_fn([path], SPECS, EvalInput(max_examples=3))(
        {"batch_size": 2}
    )
    index = np.concatenate([batch["example_index"].numpy() for batch in dataset])
    assert sorted(index[index >= 0]) == [0, 1, 2]


def test_batches_are_cut_to_their_real_length(path):
    params = {"batch_size": 3, "replicas_per_pipeline": 2}
    batches = list(input_pipeline.eval_input_fn([path], SPECS)(params))
    lengths = [batch["input_ids"].shape[1] for batch in batches]
    assert set(lengths) == {16, 8} and lengths == sorted(lengths, reverse=True)  # longest first
    for batch in batches:
        assert batch["weight"].shape == (3, 2)
        assert tf.reduce_all((batch["input_ids"] > 0) == (batch["input_mask"] > 0))


def test_short_examples_fill_up_a_single_replica(tmp_path):
    specs = (input_pipeline.FeatureSpec("input_mask", "int64", (64,), sequence=True),)
    rng = np.random.default_rng(1)
    rows = [{"input_mask": np.arange(64) < length} for length in rng.integers(1, 65, 300)]
    path = str(tmp_path / "rows")
    record_files.write(path, specs, rows, {})
    batches = list(input_pipeline.eval_input_fn([path], specs)({"batch_size": 4}))
    tokens = [int(tf.reduce_sum(batch["input_mask"])) for batch in batches]
    assert sum(len(batch["example_index"]) for batch in batches) == 300
    assert min(tokens[:-1]) > 2 * 64 and max(tokens) <= 4 * 64
    assert len(batches[-2]["example_index"]) > 20 > 6 > len(batches[0]["example_index"])
    bounded = input_pipeline.eval_input_fn([path], specs, EvalInput(min_tokens=16))(
        {"batch_size": 4}
    )
    sizes = [len(batch["example_index"]) for batch in bounded]
    assert sum(sizes) == 300 and 4 < max(sizes) <= 4 * 64 // 16


@pytest.mark.parametrize("make", [input_pipeline.train_input_fn, input_pipeline.eval_input_fn])
def test_devices_that_need_fixed_shapes_get_them(path, make):
    arguments = (1,) if make is input_pipeline.train_input_fn else ()
    dataset = make([path], SPECS, *arguments)({"batch_size": 2, "fixed_shapes": True})
    assert {batch["input_ids"].shape for batch in dataset.take(4)} == {(2, 16)}


# --- files that change while a run reads them ----------------------------------------------------


def emptied(path):
    path.write_bytes(b"")


def replaced(path):
    record_files.write(str(path), SPECS, make_rows(7), {})


def replaced_by_text(path):
    path.write_text("These are no records at all, but somebody's notes.\n" * 9)


@pytest.mark.slow
@pytest.mark.parametrize("change", [emptied, replaced, replaced_by_text, pathlib.Path.unlink])
@pytest.mark.parametrize("make", [input_pipeline.train_input_fn, input_pipeline.eval_input_fn])
@pytest.mark.parametrize("others", [0, 1])
def test_a_file_that_changes_under_a_run_is_named(path, tmp_path, change, make, others):
    """At the end of the epoch at the latest, also where other files still have records."""
    paths = [path, str(tmp_path / "other")][: 1 + others]
    record_files.write(str(tmp_path / "other"), SPECS, make_rows(6), {})
    dataset = make(paths, SPECS, *([1] * (make is input_pipeline.train_input_fn)))(
        {"batch_size": 2}
    )
    message = r"was changed while it was read \(\d+ bytes, now (\d+ bytes|missing)\)"
    with record_files.report_damage(paths):
        next(iter(dataset))
    with pytest.raises(file_io.InputError, match=message), record_files.report_damage(paths):
        change(pathlib.Path(path))
        for _ in range(5):  # what is read ahead was read before
            list(dataset.take(20))


def test_a_file_may_be_written_again_with_the_same_records(path):
    dataset = input_pipeline.eval_input_fn([path], SPECS)({"batch_size": 10})
    before = labels(dataset)
    record_files.write(path, SPECS, make_rows(10), {})
    with record_files.report_damage([path]):
        assert labels(dataset) == before
