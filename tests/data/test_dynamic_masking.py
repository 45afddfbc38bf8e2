"""Masks drawn for batches: what they are a function of, and which records they are for."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from albert.data import dynamic_masking, input_options, input_pipeline, instances, masking, tfrecord
from albert.io import file_io

LENGTH = 32
VOCABULARY = instances.Vocabulary(
    word_starts=np.arange(200) % 3 > 0, cls_id=2, sep_id=3, mask_id=4, pad_id=1, fingerprint=77
)
CONFIG = masking.MaskingConfig(6, 0.2)
PREDICTED = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def make_rows(count, longest=LENGTH, seed=0):
    """Arrays as `instances.assemble` gives them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, longest + 1, count)
    column = np.arange(LENGTH)
    middle = (lengths // 2)[:, None]
    last = (lengths - 1)[:, None]
    specials = (column == 0) | (column == middle) | (column == last)
    ids = np.where(column <= last, rng.integers(5, 200, (count, LENGTH)), VOCABULARY.pad_id)
    ids[:, 0] = VOCABULARY.cls_id
    ids[(column == middle) | (column == last)] = VOCABULARY.sep_id
    return ids, lengths, (column > middle) & (column <= last), (column < last) & ~specials


def serialize(rows, fingerprint=77):
    ids, lengths, segments, _ = rows
    return instances.serialize_compact(ids, lengths, segments, np.arange(len(ids)) % 2, fingerprint)


def write(path, serialized, compress=False):
    with open(path, "wb") as file:
        if compress:
            with tfrecord.compressing(file) as packed:
                packed.writelines(tfrecord.frame(serialized))
        else:
            file.writelines(tfrecord.frame(serialized))
    return str(path)


def masker(config=CONFIG, seed=1, whole=0.0):
    return dynamic_masking.Masker(config, VOCABULARY, seed, whole)


def masked_batch(serialized, number, **kwargs):
    own = masker(**kwargs)
    read = own.read(tf.constant(serialized), LENGTH)
    return {
        name: x.numpy() for name, x in own.transform(tf.constant(number, tf.int64), read).items()
    }


def test_what_is_read_is_what_was_written():
    rows = ids, lengths, segments, _ = make_rows(9)
    features = masker().read(tf.constant(serialize(rows)), LENGTH)
    np.testing.assert_array_equal(features["input_ids"], ids)
    np.testing.assert_array_equal(features["input_mask"], np.arange(LENGTH) < lengths[:, None])
    np.testing.assert_array_equal(features["segment_ids"], segments)
    assert features["next_sentence_labels"].numpy().tolist() == [[i % 2] for i in range(9)]
    assert {x.dtype for x in features.values()} == {tf.int32}


@pytest.mark.parametrize(
    "config",
    [CONFIG, masking.MaskingConfig(4, 0.3, 2, False, False, True)],
    ids=["defaults", "others"],
)
def test_masks_are_those_of_mask_batch(config):
    """The same function on the same arrays, so with the same statistics."""
    rows = ids, lengths, _, maskable = make_rows(40)
    expected = masking.mask_batch(
        ids, lengths, VOCABULARY.word_starts[ids], maskable, config, 200, VOCABULARY.mask_id,
        np.random.default_rng([5, 0, 3]),
    )  # fmt: skip
    found = masked_batch(serialize(rows), 3, config=config, seed=5)
    np.testing.assert_array_equal(found["input_ids"], expected.input_ids)
    np.testing.assert_array_equal(found["masked_lm_positions"], expected.positions)
    np.testing.assert_array_equal(found["masked_lm_ids"], expected.labels)
    filled = np.arange(config.num_slots) < expected.num_predictions[:, None]
    np.testing.assert_array_equal(found["masked_lm_weights"], filled.astype(np.float32))


def test_whole_words_of_the_vocabulary_are_masked():
    rows = ids, _, _, maskable = make_rows(60)
    found = masked_batch(serialize(rows), 0, config=masking.MaskingConfig(20, 0.3))
    predicted = np.zeros(ids.shape, bool)
    in_row, slot = np.nonzero(found["masked_lm_weights"])
    predicted[in_row, found["masked_lm_positions"][in_row, slot]] = True
    assert predicted.sum() > 200 and not (predicted & ~maskable).any()
    # A piece that begins no word shares the fate of the token before it.
    joined = maskable[:, 1:] & maskable[:, :-1] & ~VOCABULARY.word_starts[ids[:, 1:]]
    assert joined.sum() > 200
    np.testing.assert_array_equal(predicted[:, 1:][joined], predicted[:, :-1][joined])


def test_masks_depend_on_seed_and_number_alone():
    serialized = serialize(make_rows(20))
    once, again = masked_batch(serialized, 7), masked_batch(serialized, 7)
    for name in once:
        np.testing.assert_array_equal(once[name], again[name])
    for other in (masked_batch(serialized, 8), masked_batch(serialized, 7, seed=2)):
        assert (other["masked_lm_positions"] != once["masked_lm_positions"]).any()


def test_some_examples_stay_whole_and_predict_nothing():
    rows = ids, *_ = make_rows(400)
    serialized = serialize(rows)
    all_masked, found = masked_batch(serialized, 3), masked_batch(serialized, 3, whole=0.6)
    is_whole = ~found["masked_lm_weights"].any(axis=1)
    assert 0.5 < is_whole.mean() < 0.7 and all_masked["masked_lm_weights"].any(axis=1).all()
    np.testing.assert_array_equal(found["input_ids"][is_whole], ids[is_whole])
    for name in found:  # the masks of the others are the same
        np.testing.assert_array_equal(found[name][~is_whole], all_masked[name][~is_whole])
    again, other = (masked_batch(serialized, number, whole=0.6) for number in (3, 4))
    np.testing.assert_array_equal(found["input_ids"], again["input_ids"])
    assert (is_whole == other["masked_lm_weights"].any(axis=1)).any()


def test_masks_can_be_drawn_again_at_every_step():
    ids, lengths, segments, maskable = make_rows(8)
    starts = np.random.default_rng(3).random(ids.shape) < 0.5
    first = masking.mask_batch(
        ids, lengths, starts, maskable, CONFIG, 200, 4, np.random.default_rng(0)
    )
    static = instances.serialize(first, lengths, segments, starts, np.arange(8) % 2)
    specs = instances.feature_specs(LENGTH, CONFIG.num_slots)
    batch = input_pipeline.parse(specs, tf.constant(static))
    once, again, other = (masker().transform(tf.constant(n, tf.int64), batch) for n in (5, 5, 6))
    for name in PREDICTED:
        np.testing.assert_array_equal(once[name], again[name])
    assert (once["masked_lm_positions"].numpy() != other["masked_lm_positions"].numpy()).any()
    # By the words of the records, not by those of the vocabulary.
    expected = masking.mask_batch(
        ids, lengths, starts, maskable, CONFIG, 200, 4, np.random.default_rng([1, 0, 5])
    )
    np.testing.assert_array_equal(once["masked_lm_positions"], expected.positions)
    for features in (once, other):
        arrays = [features[name].numpy() for name in ("input_ids", *PREDICTED)]
        np.testing.assert_array_equal(dynamic_masking.unmask(*arrays), ids)
        assert "token_boundary" not in features


# --- input functions ----------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path):
    """One file is compressed, the other not."""
    serialized = serialize(make_rows(50))
    return [
        write(tmp_path / "a", serialized[:23]),
        write(tmp_path / "b", serialized[23:], compress=True),
    ]


def static_specs():
    return instances.feature_specs(LENGTH, CONFIG.num_slots, with_boundaries=False)


def training(paths):
    own = masker()
    read = functools.partial(own.read, seq_length=LENGTH)
    return input_pipeline.train_input_fn(
        paths, static_specs(), 1, input_options.TrainInput(read=read, transform=own.transform)
    )


@pytest.mark.slow
def test_a_resumed_run_gets_the_same_masks(paths):
    whole = list(training(paths)({"batch_size": 16}).take(8))
    for step in (1, 5):
        rest = training(paths)({"batch_size": 16, "first_step": step}).take(8 - step)
        for found, expected in zip(rest, whole[step:], strict=True):
            assert found.keys() == expected.keys()
            for name in expected:
                np.testing.assert_array_equal(found[name], expected[name])
    # The second epoch masks the same texts otherwise.
    first = {tuple(row) for batch in whole[:3] for row in batch["input_ids"].numpy()}
    second = {tuple(row) for batch in whole[4:7] for row in batch["input_ids"].numpy()}
    assert len(first & second) < 5


def test_batches_of_training_are_cut_or_of_one_shape(paths):
    (batch,) = training(paths)({"batch_size": 4, "fixed_shapes": True}).take(1)
    shapes = {name: tuple(x.shape) for name, x in batch.items()}
    assert shapes["input_ids"] == shapes["segment_ids"] == (4, LENGTH)
    assert shapes["masked_lm_ids"] == (4, 6) and shapes["next_sentence_labels"] == (4, 1)
    widths = {batch["input_ids"].shape[1] for batch in training(paths)({"batch_size": 1}).take(9)}
    assert widths <= {8, 16, 24, 32} and len(widths) > 1


def evaluated(paths, seed=1, **params):
    """{place of the record: its features} of an evaluation."""
    rewrite = functools.partial(masker(seed=seed).rewrite, seq_length=LENGTH)
    input_fn = input_pipeline.eval_input_fn(
        paths, static_specs(), input_options.EvalInput(rewrite=rewrite)
    )
    found = {}
    for batch in input_fn({"batch_size": 8, **params}):
        for row, index in enumerate(batch["example_index"].numpy()):
            if index >= 0:
                ids = batch["input_ids"].numpy()[row]
                places = batch["masked_lm_positions"].numpy()[row]
                found[int(index)] = (ids[ids != VOCABULARY.pad_id].tolist(), places.tolist())
    return found


@pytest.mark.slow
def test_an_evaluation_always_sees_the_same_masks(paths, monkeypatch):
    monkeypatch.setattr(input_pipeline, "REWRITE_BATCH", 16)  # several blocks
    expected = evaluated(paths)
    assert sorted(expected) == list(range(50))
    assert evaluated(paths, batch_size=3) == expected
    assert evaluated(paths, seed=7) == expected
    assert evaluated(paths, replicas_per_pipeline=2) == expected
    together = {}
    for i in range(2):
        together.update(evaluated(paths, num_input_pipelines=2, input_pipeline_id=i))
    assert together == expected
    assert len({tuple(places) for _, places in expected.values()}) > 40


def test_evaluated_records_hold_what_was_read(paths):
    ids = make_rows(50)[0]
    rewrite = functools.partial(masker().rewrite, seq_length=LENGTH)
    input_fn = input_pipeline.eval_input_fn(
        paths, static_specs(), input_options.EvalInput(rewrite=rewrite, max_examples=20)
    )
    (batch,) = input_fn({"batch_size": 20, "fixed_shapes": True})
    arrays = [batch[name].numpy() for name in ("input_ids", *PREDICTED)]
    np.testing.assert_array_equal(dynamic_masking.unmask(*arrays), ids[:20])


# --- files --------------------------------------------------------------------------------------


def masked_file(path):
    ids, lengths, segments, maskable = make_rows(3)
    first = masking.mask_batch(
        ids, lengths, maskable, maskable, CONFIG, 200, 4, np.random.default_rng(0)
    )
    return write(path, instances.serialize(first, lengths, segments, maskable, lengths))


def test_records_are_recognized_by_their_features(paths, tmp_path):
    empty = write(tmp_path / "empty", [])
    assert dynamic_masking.inspect([empty, *paths]).without_masks
    other = dynamic_masking.inspect([masked_file(tmp_path / "masked"), empty])
    assert not other.without_masks and not other.fingerprints
    assert not dynamic_masking.inspect([empty]).without_masks


@pytest.mark.parametrize("without_masks", [True, False])
def test_second_texts_are_found(tmp_path, without_masks):
    for has_second in (False, True):
        ids, lengths, segments, maskable = make_rows(3)
        segments = segments & has_second
        rows = ids, lengths, segments, maskable
        if without_masks:
            path = write(tmp_path / "a", serialize(rows))
        else:
            rng = np.random.default_rng(0)
            masks = masking.mask_batch(ids, lengths, maskable, maskable, CONFIG, 200, 4, rng)
            rows = instances.serialize(masks, lengths, segments, maskable, lengths)
            path = write(tmp_path / "b", rows)
        assert dynamic_masking.inspect([path]).has_second_texts is has_second


def test_second_texts_are_also_found_behind_the_first_record(tmp_path):
    ids, lengths, segments, maskable = make_rows(3)
    segments[0] = 0  # a single sentence
    path = write(tmp_path / "a", serialize((ids, lengths, segments, maskable)))
    assert dynamic_masking.inspect([path]).has_second_texts


def test_the_mean_length_is_that_of_files_with_records(tmp_path):
    """Of 20 files, of which every second is looked at, one has records."""
    ids, lengths, segments, maskable = make_rows(3)
    paths = [write(tmp_path / f"{i:02}", []) for i in range(20)]
    write(tmp_path / "01", serialize((ids, lengths, segments, maskable)))
    assert dynamic_masking.inspect(paths).mean_length() == np.mean(lengths)


def test_files_of_both_kinds_are_refused(paths, tmp_path):
    masked = masked_file(tmp_path / "masked")
    with pytest.raises(file_io.InputError, match=f"{paths[0]} .*, {masked} records with masks"):
        dynamic_masking.inspect([*paths, masked])


def test_another_vocabulary_is_refused_by_name(paths, tmp_path):
    other = write(tmp_path / "other", serialize(make_rows(3), fingerprint=78))
    dynamic_masking.inspect(paths).check_vocabulary(77, "v.model")
    found = dynamic_masking.inspect([*paths, other])
    with pytest.raises(file_io.InputError, match=f"{other} was made with another .* than v.model"):
        found.check_vocabulary(77, "v.model")


def test_records_of_another_version_are_refused(tmp_path):
    entries = [tfrecord.feature_entry("vocabulary_fingerprint", np.array([77]))]
    path = write(tmp_path / "other", [tfrecord.example(entries)])
    with pytest.raises(file_io.InputError, match=f"{path} has no feature 'input_ids'.*Make the"):
        dynamic_masking.inspect([path])


@pytest.mark.parametrize("compress", [False, True])
def test_too_long_a_record_is_found(tmp_path, compress):
    short, long = serialize(make_rows(30, 16)), serialize(make_rows(1, 9, seed=1))
    path = write(tmp_path / "long", [*short, *long, *serialize(make_rows(9))], compress)
    with pytest.raises(tf.errors.InvalidArgumentError, match=dynamic_masking.INVALID):
        masker().read(tf.constant(serialize(make_rows(9))), 16)
    lengths = make_rows(9)[1]
    first = int((lengths > 16).argmax())
    message = dynamic_masking.find_invalid_record([write(tmp_path / "fine", short), path], 16, 200)
    assert message.startswith(
        f"{path}, record {32 + first} has {lengths[first]} tokens, more than max_seq_length=16"
    )
