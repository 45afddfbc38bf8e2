"""Pre-training instances: text to documents to pairs to records."""

import collections
import random

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from scipy import stats

from albert import corpus, masking, packing, pretraining_data, sequence_formats

P_THRESHOLD = 1e-3  # seeds are fixed, so a test that passes once passes always
VOCABULARY = pretraining_data.Vocabulary(
    word_starts=np.arange(200) % 3 > 0, cls_id=2, sep_id=3, mask_id=4, pad_id=0
)


def make_documents(*documents):
    """`Documents` of lists of sentence lengths; every token is its own place + 5, modulo 150."""
    sentence_offsets, document_offsets = [0], [0]
    for lengths in documents:
        for length in lengths:
            sentence_offsets.append(sentence_offsets[-1] + length)
        document_offsets.append(len(sentence_offsets) - 1)
    tokens = 5 + np.arange(sentence_offsets[-1], dtype=np.int32) % 150
    return pretraining_data.Documents(tokens, sentence_offsets, document_offsets)


def draw(documents, seed=0, **settings):
    settings = pretraining_data.Settings(**{"short_seq_prob": 0.0, **settings})
    return sequence_formats.draw_pairs(documents, settings, random.Random(seed))


# --- reading ----------------------------------------------------------------------------------


def read(tmp_path, text):
    (tmp_path / "text").write_bytes(text.encode())
    (block,) = corpus.plan_blocks([str(tmp_path / "text")]).blocks

    def encode_batch(texts):
        return [[int(word) for word in text.split() if word.isdigit()] for text in texts]

    return pretraining_data.read_documents(block, encode_batch)


def test_documents_and_counts(tmp_path):
    documents, counts = read(tmp_path, "\n\n10 11\n 12 \n\n\u3000\n-\n\n13\n-\n14 15\n\n")
    assert documents.tokens.tolist() == [10, 11, 12, 13, 14, 15]
    assert documents.sentence_offsets == [0, 2, 3, 4, 6]
    assert documents.document_offsets == [0, 2, 4]
    assert counts == {
        "empty_lines": 6,
        "sentences_without_tokens": 2,
        "documents_without_tokens": 1,
        "documents": 2,
        "sentences": 4,
        "tokens": 6,
    }


def test_the_end_of_a_file_ends_a_document(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(b"10\n11")
    (block,) = corpus.plan_blocks([str(tmp_path / "a"), str(tmp_path / "b")]).blocks
    documents, _ = pretraining_data.read_documents(block, lambda texts: [[7] for _ in texts])
    assert documents.document_offsets == [0, 2, 4]


# --- pairs ------------------------------------------------------------------------------------


def test_sentences_are_collected_until_the_target_is_reached():
    # Target 10: sentences of 4 are collected in threes.
    pairs, counts = draw(make_documents([4] * 7), max_seq_length=13, sentence_task="none")
    assert len(pairs) == 3
    assert pairs[:2, 0].tolist() == [0, 12]
    assert pairs[:2, 3].tolist() == [12, 24]
    assert (pairs[:2, 1] == pairs[:2, 2]).all()
    # The last sentence is alone: A without B.
    assert pairs[2].tolist() == [24, 28, 28, 28, 0]
    assert counts == {"single_sentences_without_b": 1}


def test_split_point_is_uniform():
    documents = make_documents([1] * 4000)
    pairs, _ = draw(documents, max_seq_length=13, sentence_task="none")
    lengths = np.bincount(pairs[:, 1] - pairs[:, 0], minlength=10)
    assert lengths[0] == 0 and len(lengths) == 10
    assert stats.chisquare(lengths[1:]).pvalue > P_THRESHOLD


@pytest.mark.parametrize("task", ["reference", "sop"])
def test_sentence_order_swaps_half_of_the_pairs(task):
    pairs, counts = draw(make_documents([5] * 4000), max_seq_length=13, sentence_task=task)
    assert len(pairs) == 2000 and not counts
    swapped = pairs[:, 2] < pairs[:, 0]
    np.testing.assert_array_equal(pairs[:, 4], swapped)
    assert stats.binomtest(int(swapped.sum()), 2000).pvalue > P_THRESHOLD


def test_reference_gives_a_sentence_alone_a_random_next_text_with_label_1():
    documents = make_documents([30], [2, 2, 2, 2, 2], [1])
    pairs, counts = draw(documents, max_seq_length=13, sentence_task="reference")
    by_start = {pair[0]: pair for pair in pairs.tolist()}
    assert by_start[0][1] == 30 and by_start[0][2] >= 30 and by_start[0][4] == 1
    assert by_start[40][1] == 41 and by_start[40][3] <= 40 and by_start[40][4] == 1
    assert counts["random_next"] == counts["random_next_single_sentence"] == 2
    assert counts["random_next_same_document"] == 0


def test_random_text_fills_what_a_left():
    """From a random sentence of another document on, to the target or the document's end."""
    documents = make_documents([4], [3] * 5)
    seen = collections.Counter()
    for seed in range(300):
        pairs, _ = draw(documents, seed, max_seq_length=13)
        (pair,) = [pair for pair in pairs.tolist() if pair[0] == 0]
        seen[tuple(pair[2:4])] += 1
    # A has 4 of 10 tokens, so B wants 6: two sentences.
    assert set(seen) == {(4, 10), (7, 13), (10, 16), (13, 19), (16, 19)}


def test_random_text_of_an_only_document_is_its_own_and_counted():
    pairs, counts = draw(make_documents([30]), max_seq_length=13)
    assert pairs.tolist() == [[0, 30, 0, 30, 1]]
    assert counts["random_next_same_document"] == 1


def test_sop_labels_only_what_was_swapped():
    documents = make_documents([30, 2, 3], [7], [20, 20, 1])
    for seed in range(20):
        pairs, counts = draw(documents, seed, max_seq_length=13, sentence_task="sop")
        # A long sentence waits for a second one; single ones at the end are passed over.
        assert counts == {"single_sentences_skipped": 3}
        spans = [sorted([tuple(pair[:2]), tuple(pair[2:4])]) for pair in pairs.tolist()]
        assert spans == [[(0, 30), (30, 32)], [(42, 62), (62, 82)]]
        for pair in pairs.tolist():
            assert pair[4] == (pair[2] < pair[0])


def test_nsp_puts_unused_sentences_back():
    documents = make_documents([2] * 300, [2] * 300)
    pairs, counts = draw(documents, max_seq_length=13, sentence_task="nsp")
    labels = pairs[:, 4]
    assert counts["random_next"] == labels.sum()
    assert stats.binomtest(int(labels.sum()), len(labels)).pvalue > P_THRESHOLD
    for bounds in ((0, 600), (600, 1200)):
        used = pairs[(pairs[:, 0] >= bounds[0]) & (pairs[:, 0] < bounds[1])]
        # Every A begins where the text used before it ends: nothing is lost or used twice.
        ends = np.where(used[:, 4] == 1, used[:, 1], used[:, 3])
        assert used[0, 0] == bounds[0] and ends[-1] == bounds[1]
        np.testing.assert_array_equal(used[1:, 0], ends[:-1])
        random_next = used[used[:, 4] == 1]
        assert not ((random_next[:, 2] >= bounds[0]) & (random_next[:, 2] < bounds[1])).any()


def test_none_never_labels():
    pairs, counts = draw(make_documents([2] * 300), max_seq_length=13, sentence_task="none")
    assert not pairs[:, 4].any() and not counts
    np.testing.assert_array_equal(pairs[:, 1], pairs[:, 2])


def test_short_targets_are_uniform_and_per_document():
    documents = make_documents(*[[1] * 60] * 2000)
    pairs, _ = draw(documents, max_seq_length=13, short_seq_prob=0.5, sentence_task="none")
    firsts = pairs[pairs[:, 0] % 60 == 0]
    lengths = firsts[:, 3] - firsts[:, 0]
    # Half of the documents aim at 10 tokens, the others at 2..10 alike.
    expected = np.array([0.5 / 9] * 8 + [0.5 + 0.5 / 9]) * 2000
    assert stats.chisquare(np.bincount(lengths, minlength=11)[2:], expected).pvalue > P_THRESHOLD
    for document in range(2000):
        of_document = pairs[pairs[:, 0] // 60 == document]
        assert len(set((of_document[:, 3] - of_document[:, 0])[:-1].tolist())) <= 1


@hypothesis.given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), max_size=6),
    st.sampled_from(sequence_formats.SENTENCE_TASKS),
    st.integers(5, 40),
    st.integers(0, 100),
)
@hypothesis.settings(deadline=None)
def test_pairs_are_sentences_of_one_document_each(lengths, task, max_seq_length, seed):
    documents = make_documents(*lengths)
    settings = pretraining_data.Settings(
        max_seq_length=max_seq_length, short_seq_prob=0.3, sentence_task=task
    )
    pairs, counts = sequence_formats.draw_pairs(documents, settings, random.Random(seed))
    bounds = {documents.sentence_offsets[i] for i in range(len(documents.sentence_offsets))}
    document_ends = [documents.sentence_offsets[i] for i in documents.document_offsets]
    for a, a_end, b, b_end, _ in pairs.tolist():
        assert {a, a_end, b, b_end} <= bounds
        assert a < a_end and (b < b_end or task == "none")
        for begin, end in ((a, a_end), (b, b_end)):
            owner = np.searchsorted(document_ends, begin, side="right")
            assert begin == end or end <= document_ends[owner]
    # Without random texts every sentence is used exactly once, or counted as passed over.
    if task in ("sop", "none"):
        used = sum(
            int(np.searchsorted(sorted(bounds), x)) * s
            for p in pairs.tolist()
            for x, s in ((p[1], 1), (p[0], -1), (p[3], 1), (p[2], -1))
        )
        assert used + counts["single_sentences_skipped"] == len(bounds) - 1


# --- layout -------------------------------------------------------------------------------------


@hypothesis.given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 5))
def test_layout_is_that_of_packing(length_a, length_b, padding):
    tokens = np.arange(5, 105, dtype=np.int32)
    seq_length = length_a + length_b + 3 + padding
    pair = np.array([[10, 10 + length_a, 40, 40 + length_b, 0]])
    ids, lengths, segments, maskable = pretraining_data.assemble(
        tokens, pair, seq_length, VOCABULARY
    )
    expected_ids, expected_mask, expected_segments = packing.pack(
        tokens[10 : 10 + length_a],
        tokens[40 : 40 + length_b] if length_b else None,
        VOCABULARY.cls_id,
        VOCABULARY.sep_id,
        seq_length,
    )
    np.testing.assert_array_equal(ids[0], expected_ids)
    np.testing.assert_array_equal(segments[0], expected_segments)
    assert lengths.tolist() == [expected_mask.sum()]
    specials = np.isin(expected_ids, [VOCABULARY.cls_id, VOCABULARY.sep_id])
    np.testing.assert_array_equal(maskable[0], (expected_mask == 1) & ~specials)


# --- records ----------------------------------------------------------------------------------


def records_of(documents, settings, stream=(0, 0)):
    records, totals = [], collections.Counter()
    for batch, counts in pretraining_data.make_records(documents, settings, VOCABULARY, stream):
        records += batch
        totals.update(counts)
    return records, totals


def parse(records):
    """Feature dict of lists of arrays, straight from the protobuf library."""
    features = collections.defaultdict(list)
    for record in records:
        example = tf.train.Example.FromString(record)
        assert example.SerializeToString(deterministic=True) == record
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            features[name].append(np.array(getattr(feature, kind).value))
            assert kind == ("float_list" if name == "masked_lm_weights" else "int64_list")
    return dict(features)


settings_strategy = st.builds(
    pretraining_data.Settings,
    max_seq_length=st.integers(5, 200),
    short_seq_prob=st.sampled_from([0.0, 0.3, 1.0]),
    sentence_task=st.sampled_from(sequence_formats.SENTENCE_TASKS),
    random_seed=st.integers(0, 5),
    mask=st.builds(
        masking.MaskingConfig,
        max_predictions_per_seq=st.integers(1, 12),
        masked_lm_prob=st.floats(0, 0.5),
        ngram=st.integers(1, 4),
        do_whole_word_mask=st.booleans(),
        do_permutation=st.booleans(),
    ),
)


@hypothesis.given(
    st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=6), min_size=1, max_size=4),
    settings_strategy,
)
@hypothesis.settings(deadline=None, max_examples=60)
def test_records_hold_the_text_and_nothing_else(lengths, settings):
    documents = make_documents(*lengths)
    records, counts = records_of(documents, settings)
    assert counts["instances"] == len(records)
    features = parse(records)
    text = documents.tokens.tolist()
    for row in range(len(records)):
        value = {name: rows[row] for name, rows in features.items()}
        seq_length, slots = settings.max_seq_length, settings.mask.num_slots
        sizes = {name: len(array) for name, array in value.items()}
        assert sizes == {
            **dict.fromkeys(
                ["input_ids", "input_mask", "segment_ids", "token_boundary"], seq_length
            ),
            **dict.fromkeys(["masked_lm_positions", "masked_lm_ids", "masked_lm_weights"], slots),
            "next_sentence_labels": 1,
        }
        length, filled = int(value["input_mask"].sum()), int(value["masked_lm_weights"].sum())
        assert value["input_mask"].tolist() == [1] * length + [0] * (seq_length - length)
        assert value["masked_lm_weights"].tolist() == [1.0] * filled + [0.0] * (slots - filled)
        for name in ("input_ids", "segment_ids", "token_boundary"):
            assert not value[name][length:].any()
        for name in ("masked_lm_positions", "masked_lm_ids"):
            assert not value[name][filled:].any()
        ids = value["input_ids"].copy()
        ids[value["masked_lm_positions"][:filled]] = value["masked_lm_ids"][:filled]
        ids = ids[:length].tolist()
        seps = [place for place, token in enumerate(ids) if token == VOCABULARY.sep_id]
        assert ids[0] == VOCABULARY.cls_id and seps[-1] == length - 1 and len(seps) <= 2
        for part in (ids[1 : seps[0]], ids[seps[0] + 1 : -1]):
            assert "".join(map(chr, part)) in "".join(map(chr, text))
        boundary = [i in (0, *seps) or bool(VOCABULARY.word_starts[t]) for i, t in enumerate(ids)]
        assert value["token_boundary"][:length].tolist() == boundary
        assert value["segment_ids"][:length].tolist() == [int(i > seps[0]) for i in range(length)]
    assert counts["masked"] + counts["permuted"] == sum(
        map(sum, features.get("masked_lm_weights", []))
    )


def test_streams_and_seeds_differ_and_repeat():
    documents = make_documents(*[[9] * 40] * 3)
    settings = pretraining_data.Settings(max_seq_length=40)
    other_seed = pretraining_data.Settings(max_seq_length=40, random_seed=1)
    first, _ = records_of(documents, settings)
    assert records_of(documents, settings)[0] == first
    assert records_of(documents, settings, (0, 1))[0] != first
    assert records_of(documents, other_seed)[0] != first


def test_batches_are_only_a_matter_of_memory(monkeypatch):
    documents = make_documents(*[[9] * 100] * 3)
    settings = pretraining_data.Settings(max_seq_length=40)
    monkeypatch.setattr(pretraining_data, "_BATCH_CELLS", 7 * 40)
    records, counts = records_of(documents, settings)
    assert len(records) == counts["instances"] > 7
    parse(records)


def test_no_documents_give_no_records():
    records, counts = records_of(make_documents(), pretraining_data.Settings())
    assert records == [] and not counts["instances"]


def test_large_vocabularies_and_long_sequences():
    """Ids and positions of one, two and three bytes."""
    size = 40_000
    vocabulary = pretraining_data.Vocabulary(np.ones(size, bool), 2, 3, 4, 0)
    tokens = np.tile(np.array([5, 127, 128, 16383, 16384, size - 1], np.int32), 100)
    documents = pretraining_data.Documents(tokens, [0, 300, 600], [0, 2])
    settings = pretraining_data.Settings(max_seq_length=512, short_seq_prob=0)
    (record,) = [
        record
        for batch, _ in pretraining_data.make_records(documents, settings, vocabulary, (0,))
        for record in batch
    ]
    features = parse([record])
    ids = features["input_ids"][0].copy()
    filled = int(features["masked_lm_weights"][0].sum())
    assert filled == 20
    ids[features["masked_lm_positions"][0]] = features["masked_lm_ids"][0]
    assert set(ids) <= {0, 2, 3, *tokens.tolist()}
