"""The cache of a frozen encoder's outputs, with an encoder that can be computed by hand."""

import os

import numpy as np
import pytest
import tensorflow as tf

from albert.data import record_files
from albert.io import file_io
from albert.model import heads
from albert.tasks import glue, race
from albert.training import frozen_encoder

WIDTH, LENGTH = 4, 8


def make_row(number, specs=None, choices=()):
    """Features of a text of 3 to 7 tokens; the number is in the text."""
    count = max(np.prod(choices, dtype=int), 1)
    tokens = 3 + (number + np.arange(count)) % 5
    mask = np.arange(LENGTH) < tokens[:, np.newaxis]
    ids = (10 * number + 1 + np.arange(count)[:, np.newaxis] + np.arange(LENGTH)) * mask
    text = {"input_ids": ids, "input_mask": mask, "segment_ids": mask * (np.arange(LENGTH) > 2)}
    text = {name: np.int64(x) if choices else np.int64(x[0]) for name, x in text.items()}
    rest = {"label_ids": 0, "is_real_example": 1, "level": 0}
    names = [spec.name for spec in specs or SPECS]
    return {**text, **{name: value for name, value in rest.items() if name in names}}


SPECS = glue.feature_specs(LENGTH)


class Encoder:
    """Outputs are a function of token, segment and place; counts the texts."""

    def __init__(self, is_sequence=True, ends_after=None):
        self.texts, self._is_sequence, self._ends_after = 0, is_sequence, ends_after

    def __call__(self, ids, mask, segments):
        if self._ends_after is not None and self.texts >= self._ends_after:
            raise KeyboardInterrupt
        self.texts += len(ids)
        rows = (ids + 0.5 * segments)[..., np.newaxis] + np.arange(WIDTH) / 8
        rows = np.float32(rows * mask[..., np.newaxis])
        return rows if self._is_sequence else rows[:, 0] + rows[:, 1]


def write(path, numbers, specs=SPECS, choices=()):
    rows = [make_row(number, specs, choices) for number in numbers]
    record_files.write(str(path), specs, rows, {"numbers": list(numbers)})
    return [str(path)]


def make_cache(folder, settings=None, dtype="float32", is_sequence=True, part_bytes=1 << 20):
    settings = settings or {"weights_sha256": "1"}
    return frozen_encoder.OutputCache(
        str(folder), settings, WIDTH, dtype, is_sequence, part_bytes=part_bytes
    )


def looked_up(cache, numbers, specs=SPECS, choices=()):
    """Values that the cache adds to a batch, and those of the encoder."""
    rows = [make_row(number, specs, choices) for number in numbers]
    batch = {
        name: tf.constant(np.stack([row[name] for row in rows]), tf.int32)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    return cache.prepare(batch)[heads.ENCODER_OUTPUT], batch


def check(cache, numbers):
    found, batch = looked_up(cache, numbers)
    longest = batch["input_mask"].numpy().sum(1).max()
    expected = Encoder()(*(batch[name].numpy() for name in batch))[:, :longest]
    np.testing.assert_array_equal(found, expected)


def test_texts_are_encoded_once_and_kept(tmp_path, caplog):
    paths, encoder = write(tmp_path / "train", range(50)), Encoder()
    cache = make_cache(tmp_path / "cache")
    with caplog.at_level("INFO", logger="absl"):
        cache.fill(paths, SPECS, encoder, 4)
    assert encoder.texts == 50
    tokens = sum(make_row(number)["input_mask"].sum() for number in range(50))
    assert f"outputs of 50 texts need {tokens * 4 * WIDTH / 1024:.1f} KiB" in caplog.text
    check(cache, [7, 3, 49, 3])
    # Another process finds them; other data has the encoder compute what is new alone.
    later, again = make_cache(tmp_path / "cache"), Encoder()
    later.fill(paths, SPECS, again, 4)
    assert again.texts == 0
    check(later, range(50))
    later.fill(write(tmp_path / "dev", [*range(40, 60), 45]), SPECS, again, 4)
    assert again.texts == 10
    check(later, [55, 41])
    manifest = file_io.read_json(os.path.join(later.folder, frozen_encoder.MANIFEST), "manifest")
    assert manifest["settings"] == {"weights_sha256": "1"}
    data = sorted((entry["file"], entry["num_examples"]) for entry in manifest["data"].values())
    assert data == [("dev", 21), ("train", 50)]
    # Only real tokens are kept.
    sizes = [file_io.size(path) for path in file_io.glob(f"{later.folder}/*.bin")]
    tokens += sum(make_row(number)["input_mask"].sum() for number in range(50, 60))
    assert sum(sizes) == tokens * 4 * WIDTH


def test_another_encoder_has_a_folder_of_its_own(tmp_path):
    folders = [
        make_cache(tmp_path, {"weights_sha256": weights, "dtype": "float32"}).folder
        for weights in ("1", "2", "1")
    ]
    assert folders[0] == folders[2] != folders[1]


def test_what_a_killed_run_has_done_is_used_and_never_half(tmp_path):
    paths = write(tmp_path / "train", range(60))
    with pytest.raises(KeyboardInterrupt):
        make_cache(tmp_path / "cache", part_bytes=400).fill(paths, SPECS, Encoder(ends_after=30), 2)
    cache = make_cache(tmp_path / "cache", part_bytes=400)
    there = file_io.listdir(cache.folder)
    assert frozen_encoder.MANIFEST not in there
    # What a kill in the middle of a part leaves.
    for name in ("part-00077.bin", "part-00078.json.tmp-1"):
        file_io.write_text(os.path.join(cache.folder, name), "half")
    encoder = Encoder()
    cache.fill(paths, SPECS, encoder, 2)
    assert 0 < encoder.texts < 60
    check(cache, range(60))
    names = file_io.listdir(cache.folder)
    assert not {"part-00077.bin", "part-00078.json.tmp-1"} & set(names)
    assert len([name for name in names if name.endswith(".bin")]) > 3


@pytest.mark.parametrize("ending", ["bin", "json"])
def test_a_damaged_part_is_made_again(tmp_path, ending, caplog):
    paths = write(tmp_path / "train", range(60))
    make_cache(tmp_path / "cache", part_bytes=400).fill(paths, SPECS, Encoder(), 2)
    cache, encoder = make_cache(tmp_path / "cache", part_bytes=400), Encoder()
    path = os.path.join(cache.folder, f"part-00001.{ending}")
    with file_io.open_file(path, "rb") as file:
        content = file.read()
    with file_io.open_file(path, "wb") as file:
        file.write(content[:-7])
    cache.fill(paths, SPECS, encoder, 2)
    assert 0 < encoder.texts < 30
    assert "part-00001" in caplog.text and "computing it again" in caplog.text
    check(cache, range(60))


@pytest.mark.parametrize("endings", [["json"], ["bin"], ["bin", "json"]])
def test_a_missing_part_is_made_again(tmp_path, endings, caplog):
    paths = write(tmp_path / "train", range(60))
    first = make_cache(tmp_path / "cache", part_bytes=400)
    first.fill(paths, SPECS, Encoder(), 2)
    parts = [name for name in file_io.listdir(first.folder) if name.endswith(".bin")]
    last = parts[-1].split(".")[0]  # Another part may get its name.
    for ending in endings:
        file_io.remove(os.path.join(first.folder, f"{last}.{ending}"))
    with pytest.raises(KeyboardInterrupt):
        make_cache(tmp_path / "cache").fill(paths, SPECS, Encoder(ends_after=0), 2)
    assert last in caplog.text and "computing it again" in caplog.text
    cache, encoder = make_cache(tmp_path / "cache"), Encoder()
    cache.fill(paths, SPECS, encoder, 2)
    assert 0 < encoder.texts < 30
    check(cache, range(60))


def test_a_manifest_of_version_1_0_does_not_hide_a_missing_part(tmp_path):
    paths = write(tmp_path / "train", range(60))
    first = make_cache(tmp_path / "cache", part_bytes=400)
    first.fill(paths, SPECS, Encoder(), 2)
    manifest_path = os.path.join(first.folder, frozen_encoder.MANIFEST)
    manifest = file_io.read_json(manifest_path, "manifest")
    del manifest["parts"]
    file_io.write_json(manifest_path, manifest)
    file_io.remove(os.path.join(first.folder, "part-00000.json"))
    cache, encoder = make_cache(tmp_path / "cache"), Encoder()
    cache.fill(paths, SPECS, encoder, 2)
    assert 0 < encoder.texts < 30
    check(cache, range(60))
    assert "parts" in file_io.read_json(manifest_path, "manifest")


def test_too_little_room_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(file_io, "free_bytes", lambda folder: 1000)
    encoder, cache = Encoder(), make_cache(tmp_path / "cache")
    with pytest.raises(file_io.InputError, match=r"needs \d+\.\d KiB in .*, where 1000 bytes are"):
        cache.fill(write(tmp_path / "train", range(50)), SPECS, encoder, 4)
    assert encoder.texts == 0
    assert not file_io.glob(f"{cache.folder}/part-*")
    monkeypatch.undo()
    with pytest.raises(file_io.InputError, match="must be a local folder"):
        make_cache("gs://bucket").fill([], SPECS, encoder, 4)


def test_a_full_disk_is_named(tmp_path):
    def encode(*texts):
        raise OSError(28, "No space left on device")

    cache = make_cache(tmp_path / "cache")
    with pytest.raises(file_io.InputError, match=r"cannot write .*: No space left.*; it needs \d+"):
        cache.fill(write(tmp_path / "train", range(9)), SPECS, encode, 4)
    assert not file_io.glob(f"{cache.folder}/part-*")


def test_pooled_outputs_of_choices(tmp_path):
    specs = race.feature_specs(LENGTH)
    choices = (race.NUM_CHOICES, 1)
    paths = write(tmp_path / "train", range(0, 90, 9), specs, choices)
    cache, encoder = make_cache(tmp_path / "cache", is_sequence=False), Encoder(False)
    cache.fill(paths, specs, encoder, 3)
    found, batch = looked_up(cache, [18, 0], specs, choices)
    flat = [batch[name].numpy().reshape(-1, LENGTH) for name in batch]
    expected = Encoder(False)(*flat).reshape(2, race.NUM_CHOICES, WIDTH)
    np.testing.assert_array_equal(found, expected)


def test_low_precision_is_kept_as_it_is(tmp_path):
    def encode(*texts):
        values = tf.cast(Encoder()(*texts) / 3, tf.bfloat16)
        return tf.bitcast(values, tf.uint16).numpy()

    cache = make_cache(tmp_path / "cache", dtype="bfloat16")
    cache.fill(write(tmp_path / "train", range(20)), SPECS, encode, 4)
    found, batch = looked_up(cache, [7, 3])
    expected = tf.cast(Encoder()(*(batch[name].numpy() for name in batch)) / 3, tf.bfloat16)
    assert found.dtype == tf.bfloat16
    np.testing.assert_array_equal(
        tf.cast(found, tf.float32), tf.cast(expected, tf.float32)[:, : found.shape[1]]
    )


def test_keys_tell_texts_apart_by_their_real_tokens():
    ids = np.int32([[5, 6, 7, 0], [5, 6, 7, 9], [5, 6, 0, 0], [5, 6, 7, 0]])
    mask = np.int32([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]])
    segments = np.int32([[0, 0, 0, 0]] * 3 + [[0, 0, 1, 0]])
    keys, lengths = frozen_encoder.text_keys(ids, mask, segments)
    assert keys[0] == keys[1] and len(set(keys)) == 3
    assert lengths.tolist() == [3, 3, 2, 3]
    sizes = [file_io.describe(n) for n in (512, 3 << 20, 5 << 30)]
    assert sizes == ["512 bytes", "3.0 MiB", "5.0 GiB"]
