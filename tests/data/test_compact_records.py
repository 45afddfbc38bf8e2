"""Records without masks: their content, their names, and what they are next to masked ones."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from albert.data import instances, sentence_pairs, sequence_formats, tfrecord
from tests.support.builders import VOCABULARY, make_documents, parse_records, records_of


def batch_of(*rows):
    """(input_ids, lengths, segment_ids, labels) of (ids, tokens before the second segment)."""
    ids = np.zeros((len(rows), 12), np.int64)
    segments = np.zeros((len(rows), 12), bool)
    for row, (values, start) in enumerate(rows):
        ids[row, : len(values)] = values
        segments[row, start : len(values)] = True
    lengths = np.array([len(values) for values, _ in rows])
    return ids, lengths, segments, np.arange(len(rows)) % 2


def test_a_record_holds_its_tokens_alone():
    fingerprint = 2**63 - 1
    rows = [([2, 300, 70_000, 3, 5, 3], 4), ([2, 9, 3], 3), ([2, 0, 0, 3], 2)]
    found = instances.serialize_compact(*batch_of(*rows), fingerprint)
    for record, (values, start), label in zip(found, rows, (0, 1, 0), strict=True):
        example = tf.train.Example.FromString(record)
        assert example.SerializeToString(deterministic=True) == record
        features = example.features.feature
        assert {name: list(feature.int64_list.value) for name, feature in features.items()} == {
            "input_ids": values,
            "segment_b_start": [start],
            "next_sentence_labels": [label],
            "vocabulary_fingerprint": [fingerprint],
        }


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (instances.compact_feature_specs()[1:], r"features \['input_ids'\] are not declared"),
        (
            (*instances.compact_feature_specs(), tfrecord.FeatureSpec("weight", "float32")),
            r"features \['weight'\] are missing",
        ),
    ],
)
def test_names_are_compared_with_the_declared_ones(monkeypatch, specs, message):
    monkeypatch.setattr(instances, "compact_feature_specs", lambda: specs)
    with pytest.raises(ValueError, match=message):
        instances.serialize_compact(*batch_of(([2, 5, 3], 3)), 1)


def test_a_second_segment_reaches_to_the_end():
    ids, lengths, segments, labels = batch_of(([2, 5, 3, 6, 3], 3))
    segments[0, 4] = False
    with pytest.raises(ValueError, match="after the first, to the last"):
        instances.serialize_compact(ids, lengths, segments, labels, 1)


def test_fingerprints_tell_vocabularies_apart():
    pieces = ["<pad>", "▁a", "b"]
    own = instances.fingerprint(pieces)
    assert own == instances.fingerprint(list(pieces))
    others = [pieces[::-1], pieces[:2], ["<pad>", "▁ab"], ["<pad>", "▁a", "c"]]
    assert own not in map(instances.fingerprint, others)
    many = [instances.fingerprint([str(i)]) for i in range(200)]
    assert 2**60 < max(many) < 2**63 and min(many) >= 0


@hypothesis.given(
    st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(5, 150),
    st.sampled_from(sentence_pairs.SENTENCE_TASKS),
    st.sampled_from(sorted(sequence_formats.FORMATS)),
    st.integers(0, 3),
)
@hypothesis.settings(deadline=None, max_examples=50)
def test_instances_are_those_of_the_first_pass_with_masks(documents, length, task, name, seed):
    documents = make_documents(*documents)
    task = task if sequence_formats.has_sentence_task(name) else "none"
    settings = {
        "max_seq_length": length, "sentence_task": task, "short_seq_prob": 0.3, "random_seed": seed,
        "sequence_format": name,
    }  # fmt: skip
    masked, counts = records_of(documents, instances.Settings(**settings))
    compact, same = records_of(documents, instances.Settings(**settings, mask=None))
    assert len(compact) == len(masked)
    assert {name: same[name] for name in same} == {name: counts[name] for name in same}
    masked, compact = parse_records(masked), parse_records(compact)
    for row in range(counts["instances"]):
        value = {name: rows[row] for name, rows in masked.items()}
        ids, filled = value["input_ids"].copy(), int(value["masked_lm_weights"].sum())
        ids[value["masked_lm_positions"][:filled]] = value["masked_lm_ids"][:filled]
        ids = ids[: value["input_mask"].sum()]
        np.testing.assert_array_equal(compact["input_ids"][row], ids)
        in_b = np.arange(len(ids)) >= compact["segment_b_start"][row]
        np.testing.assert_array_equal(in_b, value["segment_ids"][: len(ids)])
        assert compact["next_sentence_labels"][row] == value["next_sentence_labels"]
        assert compact["vocabulary_fingerprint"][row] == VOCABULARY.fingerprint
