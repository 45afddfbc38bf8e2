"""Shares of examples: drawn by the seed, the smaller ones within the larger."""

import pytest
import tensorflow as tf

from albert.data import input_pipeline, record_files
from albert.io import file_io
from albert.training import subsets
from tests.support import data_samples


def test_smaller_shares_are_part_of_larger_ones():
    shares = (0.001, 0.005, 0.05, 0.2, 0.7, 1.0)
    found = [subsets.choose_indices(1000, share, 5) for share in shares]
    assert [len(places) for places in found] == [1, 5, 50, 200, 700, 1000]
    for smaller, larger in zip(found, found[1:], strict=False):
        assert set(smaller) < set(larger)
    assert all(places == sorted(places) for places in found)
    assert (
        found[2] == subsets.choose_indices(1000, 0.05, 5) != subsets.choose_indices(1000, 0.05, 6)
    )
    # Not from the front alone.
    assert max(found[2]) > 800 and min(found[2]) < 200


def test_there_is_always_an_example():
    assert len(subsets.choose_indices(3, 1e-9, 1)) == 1


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(file_io.InputError, match="train_fraction=.* above 0 and at most 1"):
        subsets.check_fraction("train_fraction", share)


def test_records_of_a_share(tmp_path):
    specs = (input_pipeline.FeatureSpec("x", "int64"),)
    paths = {split: str(tmp_path / split) for split in ("train", "dev")}
    for path in paths.values():
        record_files.write(path, specs, [{"x": number} for number in range(40)], {"of": "x"})
    strategy = tf.distribute.get_strategy()

    def numbers(share, split="train"):
        shares = {"train": ("train_fraction", share), "dev": ("eval_fraction", 1.0)}
        data = data_samples.RecordData(paths=[paths[split]], features=specs)
        (path,) = data.subset(subsets.Fractions(shares, 5, strategy)).records(split)
        found = record_files.serialized_examples([path]).as_numpy_iterator()
        manifest = file_io.read_json(record_files.manifest_path(path), "manifest")
        return [int(input_pipeline.parse(specs, [row])["x"][0]) for row in found], manifest

    small, manifest = numbers(0.1)
    large, _ = numbers(0.5)
    assert small == subsets.choose_indices(40, 0.1, 5) and set(small) < set(large)
    assert manifest["settings"] == {"of": "x", "train_fraction": 0.1, "seed": 5}
    assert numbers(0.1, "dev")[0] == list(range(40))


def test_records_of_one_sentence_are_chosen_together(tmp_path):
    specs = tuple(input_pipeline.FeatureSpec(name, "int64") for name in ("x", subsets.SENTENCE))
    rows = [{"x": i, subsets.SENTENCE: i // 3} for i in range(60)]
    record_files.write(str(tmp_path / "dev"), specs, rows, {"of": "x"})
    shares = {"dev": ("eval_fraction", 0.2)}
    data = data_samples.RecordData(paths=[str(tmp_path / "dev")], features=specs)
    (path,) = data.subset(subsets.Fractions(shares, 5, tf.distribute.get_strategy())).records("dev")
    found = record_files.serialized_examples([path]).as_numpy_iterator()
    numbers = [int(input_pipeline.parse(specs, [row])["x"][0]) for row in found]
    chosen = subsets.choose_indices(20, 0.2, 5)
    assert numbers == [3 * sentence + part for sentence in chosen for part in range(3)]
