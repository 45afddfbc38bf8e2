"""Pre-training instances: text to documents to pairs to records."""

import itertools

import hypothesis
import numpy as np
from hypothesis import strategies as st

from albert.data import instances, masking, sentence_pairs, sequence_formats
from albert.text import corpus, model_inputs, text_rules, tokenization
from tests.support.builders import SPM, VOCABULARY, make_documents, parse_records, records_of

# --- reading ----------------------------------------------------------------------------------


def read(tmp_path, text):
    (tmp_path / "text").write_bytes(text.encode())
    (block,) = corpus.plan_blocks([str(tmp_path / "text")]).blocks

    def encode_batch(texts):
        return [[int(word) for word in text.split() if word.isdigit()] for text in texts]

    return instances.read_documents(block, encode_batch)


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
    documents, _ = instances.read_documents(block, lambda texts: [[7] for _ in texts])
    assert documents.document_offsets == [0, 2, 4]


def test_an_extra_piece_begins_a_word():
    rules = text_rules.TextRules(extra_pieces=("NASA", "<PER>"))
    tokenizer = tokenization.FullTokenizer(spm_model_file=str(SPM), rules=rules)
    plain = instances.Vocabulary.from_tokenizer(tokenization.FullTokenizer(spm_model_file=str(SPM)))
    starts = instances.Vocabulary.from_tokenizer(tokenizer).word_starts
    assert starts.tolist() == [*plain.word_starts, True, True]
    found = tokenizer.tokenize("the NASA of")
    at = found.index("NASA")
    assert [starts[tokenizer.vocab[piece]] for piece in found[at : at + 2]] == [True, True]


# --- layout -------------------------------------------------------------------------------------


@hypothesis.given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 5))
def test_layout_is_that_of_model_inputs(length_a, length_b, padding):
    tokens = np.arange(5, 105, dtype=np.int32)
    seq_length = length_a + length_b + 3 + padding
    pair = np.array([[10, 10 + length_a, 40, 40 + length_b, 0]])
    ids, lengths, segments, maskable = instances.assemble(
        tokens, sequence_formats.pairs_as_inputs(pair), seq_length, VOCABULARY
    )
    expected_ids, expected_mask, expected_segments = model_inputs.pack(
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


def test_layout_of_one_text():
    """A [SEP] after each span, all in segment 0; rows of different lengths and numbers of spans."""
    tokens = np.arange(5, 105, dtype=np.int32)
    inputs = sequence_formats.Inputs(
        spans=np.array([[10, 12], [40, 43], [90, 91], [0, 1]]),
        segment_ids=np.zeros(4, int),
        offsets=np.array([0, 3, 4]),
        labels=np.zeros(2, int),
    )
    ids, lengths, segments, maskable = instances.assemble(tokens, inputs, 11, VOCABULARY)
    assert ids.tolist() == [
        [2, 15, 16, 3, 45, 46, 47, 3, 95, 3, 0],
        [2, 5, 3, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert lengths.tolist() == [10, 3]
    assert not segments.any()
    np.testing.assert_array_equal(maskable, ids > 4)
    second = inputs.part(1, 5)
    assert len(second) == 1
    again, *_ = instances.assemble(tokens, second, 11, VOCABULARY)
    assert again.tolist() == ids[1:].tolist()


# --- records ----------------------------------------------------------------------------------


FORMATS_AND_TASKS = [
    (name, task)
    for name in sequence_formats.FORMATS
    for task in sentence_pairs.SENTENCE_TASKS
    if task == "none" or sequence_formats.has_sentence_task(name)
]
settings_strategy = st.sampled_from(FORMATS_AND_TASKS).flatmap(
    lambda format_and_task: st.builds(
        instances.Settings,
        max_seq_length=st.integers(5, 200),
        short_seq_prob=st.sampled_from([0.0, 0.3, 1.0]),
        sequence_format=st.just(format_and_task[0]),
        sentence_task=st.just(format_and_task[1]),
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
    features = parse_records(records)
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
        assert ids[0] == VOCABULARY.cls_id and seps[-1] == length - 1
        pair = sequence_formats.has_sentence_task(settings.sequence_format)
        assert not pair or len(seps) <= 2
        for start, end in itertools.pairwise([0, *seps]):
            part = ids[start + 1 : end]
            assert part
            assert "".join(map(chr, part)) in "".join(map(chr, text))
        boundary = [i in (0, *seps) or bool(VOCABULARY.word_starts[t]) for i, t in enumerate(ids)]
        assert value["token_boundary"][:length].tolist() == boundary
        segments = [int(pair and i > seps[0]) for i in range(length)]
        assert value["segment_ids"][:length].tolist() == segments
    assert counts["masked"] + counts["permuted"] == sum(
        map(sum, features.get("masked_lm_weights", []))
    )


def test_streams_and_seeds_differ_and_repeat():
    documents = make_documents(*[[9] * 40] * 3)
    settings = instances.Settings(max_seq_length=40)
    other_seed = instances.Settings(max_seq_length=40, random_seed=1)
    first, _ = records_of(documents, settings)
    assert records_of(documents, settings)[0] == first
    assert records_of(documents, settings, (0, 1))[0] != first
    assert records_of(documents, other_seed)[0] != first


def test_batches_are_only_a_matter_of_memory(monkeypatch):
    documents = make_documents(*[[9] * 100] * 3)
    settings = instances.Settings(max_seq_length=40)
    monkeypatch.setattr(instances, "BATCH_CELLS", 7 * 40)
    records, counts = records_of(documents, settings)
    assert len(records) == counts["instances"] > 7
    parse_records(records)


def test_no_documents_give_no_records():
    records, counts = records_of(make_documents(), instances.Settings())
    assert records == [] and not counts["instances"]


def test_large_vocabularies_and_long_sequences():
    """Ids and positions of one, two and three bytes."""
    size = 40_000
    vocabulary = instances.Vocabulary(np.ones(size, bool), 2, 3, 4, 0)
    tokens = np.tile(np.array([5, 127, 128, 16383, 16384, size - 1], np.int32), 100)
    documents = sentence_pairs.Documents(tokens, [0, 300, 600], [0, 2])
    settings = instances.Settings(max_seq_length=512, short_seq_prob=0)
    (record,) = [
        record
        for batch, _ in instances.make_records(documents, settings, vocabulary, (0,))
        for record in batch
    ]
    features = parse_records([record])
    ids = features["input_ids"][0].copy()
    filled = int(features["masked_lm_weights"][0].sum())
    assert filled == 20
    ids[features["masked_lm_positions"][0]] = features["masked_lm_ids"][0]
    assert set(ids) <= {0, 2, 3, *tokens.tolist()}
