"""Hugging Face folders as transformers sees them: the same outputs and ids, both ways."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from safetensors import numpy as safetensors_numpy

from albert.export import huggingface_export
from albert.io import file_io, manifests
from albert.model import checkpoints, decision, encoder, huggingface_entries, published, sources
from albert.serving import predictors
from albert.text import sample_lines, tokenization
from tests.support import builders
from tests.support.huggingface_samples import (
    BERT,
    CLASSES,
    CONFIG,
    LABELS,
    MODELS,
    ONLY_ALBERT,
    SQUARE,
    class_of,
    exported,
)

EXACT = encoder.AlbertConfig(**{**CONFIG.to_dict(), "hidden_act": "gelu_erf"})


def make_inputs(config, choices=None):
    """Two rows, one with padding; [B, S] or [B, C, S]."""
    rng = np.random.default_rng(3)
    shape = [2, 16] if choices is None else [2, choices, 16]
    mask = np.ones(shape, np.int32)
    mask[-1, ..., 11:] = 0
    return {
        "input_ids": rng.integers(0, config.vocab_size, shape).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, shape).astype(np.int32) * mask,
    }


def our_outputs(model, head, inputs):
    """Computes our outputs, under the names of transformers."""
    if head == "encoder":
        encoded = model(inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"])
        return {
            "last_hidden_state": encoded.sequence_output,
            "pooler_output": encoded.pooled_output,
        }
    if head == "pretraining":
        places = np.tile(np.arange(16, dtype=np.int32), [2, 1])
        outputs = model({**inputs, "masked_lm_positions": places})
        words = tf.reshape(outputs["masked_lm_logits"], [2, 16, -1])
        return {"prediction_logits": words, "order_logits": outputs["sentence_order_logits"]}
    outputs = model(inputs)
    if head == "squad_v1":
        return {name: outputs[name] for name in ("start_logits", "end_logits")}
    if head == "token_classification":
        return {"logits": outputs["logits"]}
    return {"logits": tf.reshape(outputs["logits"], [2, -1])}


def assert_close(theirs, ours):
    assert set(theirs) == set(ours)
    for name, value in ours.items():
        assert np.std(value) > 0.001, name
        np.testing.assert_allclose(theirs[name], value, atol=1e-5, err_msg=name)


# One token type is exported as two of the same values.
ONE_TYPE = encoder.AlbertConfig(**{**SQUARE.to_dict(), "type_vocab_size": 1})
EXPORTED = {"mapped": (CONFIG, "albert"), "square": (ONE_TYPE, "albert"), "bert": (BERT, "bert")}
MADE = {"tanh": (CONFIG, "albert"), "erf": (EXACT, "albert"), "bert": (BERT, "bert")}


def write_inputs(folder, config, head):
    """The files of the inputs and of the outputs, as a request names them."""
    inputs = make_inputs(config, 2 if head == "multiple_choice" else None)
    np.savez(folder / "inputs.npz", **inputs)
    return {name: str(folder / f"{name}.npz") for name in ("inputs", "outputs")}


@pytest.mark.slow
def test_transformers_computes_the_same_from_our_folders(tmp_path, peer):
    requests, models = [], {}
    for name, (config, architecture) in EXPORTED.items():
        for head in MODELS:
            place = tmp_path / name / head
            models[name, head], folder = exported(place, head, config, architecture)
            requests.append({
                "do": "load", "class": class_of(head, architecture), "folder": str(folder),
                **write_inputs(place, config, head),
            })  # fmt: skip
    for (name, head), answer in zip(models, peer(requests), strict=True):
        labels = answer.pop("labels")
        assert not any(answer.values()), (name, head, answer)
        if "classification" in head:
            assert list(labels.values()) == LABELS
        inputs, theirs = (
            dict(np.load(tmp_path / name / head / f"{file}.npz")) for file in ("inputs", "outputs")
        )
        assert_close(theirs, our_outputs(models[name, head], head, inputs))


@pytest.mark.slow
def test_we_compute_the_same_from_folders_of_transformers(tmp_path, peer, caplog):
    requests = []
    for name, (config, architecture) in MADE.items():
        act = {"gelu": "gelu_new", "gelu_erf": "gelu"}[config.hidden_act]
        sizes = {**config.to_dict(), "hidden_act": act}
        if architecture == "bert":
            sizes = {key: value for key, value in sizes.items() if key not in ONLY_ALBERT}
        for head in CLASSES:
            place = tmp_path / name / head
            place.mkdir(parents=True)
            labels = {"regression": 1}.get(head, 3 if "classification" in head else 2)
            requests.append({
                "do": "make", "class": class_of(head, architecture),
                "folder": str(place / "theirs"), "config": {**sizes, "num_labels": labels},
                **write_inputs(place, config, head),
            })  # fmt: skip
    peer(requests)
    for name, (config, _) in MADE.items():
        for head in CLASSES:
            place = tmp_path / name / head
            source = sources.locate(checkpoint=str(place / "theirs"), needs_vocabulary=False)
            assert encoder.AlbertConfig.from_json_file(source.config_file) == config
            assert "Unknown keys" not in caplog.text
            model = MODELS[head](config)
            report = checkpoints.restore(model, source.checkpoint, allow_new_heads=False)
            assert report.unused == []
            inputs, theirs = (
                dict(np.load(place / f"{file}.npz")) for file in ("inputs", "outputs")
            )
            assert_close(theirs, our_outputs(model, head, inputs))


NO_SEGMENTS = ["input_ids", "attention_mask"]
ALL_NAMES = ["input_ids", "token_type_ids", "attention_mask"]


@pytest.mark.slow
def test_pairs_have_the_segments_that_transformers_gives(tmp_path, peer, wordpiece):
    saved, texts = tmp_path / "saved", TEXTS[:2]
    saved.mkdir()
    huggingface_export.write_tokenizer(str(tmp_path), wordpiece, 24)
    for folder in (tmp_path, saved):
        (folder / "config.json").write_text('{"model_type": "bert"}')
    request = {"do": "tokenize", "folder": str(tmp_path), "classes": ["BertTokenizer"]}
    peer([{**request, "texts": texts, "save": str(saved)}])
    path = str(saved / "tokenizer_config.json")
    written = file_io.read_json(path, "tokenizer", dict)
    written.pop("model_input_names", None)
    for kind in ("BertTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"):
        for names in (None, NO_SEGMENTS, ALL_NAMES):
            config = {**written, "tokenizer_class": kind}
            config |= {} if names is None else {"model_input_names": names}
            file_io.write_json(path, config)
            request = {"do": "tokenize", "folder": str(saved), "classes": ["AutoTokenizer"]}
            (answer,) = peer([{**request, "texts": texts}])
            expected = "token_type_ids" in answer["AutoTokenizer"]["pair"]
            assert huggingface_entries.gives_segments(path, config) == expected, config
            sources.rules_beside(path)  # with the last step that transformers writes


@pytest.mark.slow
def test_a_model_that_is_given_no_segments_computes_the_same(tmp_path, peer, wordpiece):
    config = {k: value for k, value in BERT.to_dict().items() if k not in ONLY_ALBERT}
    folder, inputs = tmp_path / "theirs", make_inputs(BERT)
    np.savez(tmp_path / "inputs.npz", **{k: x for k, x in inputs.items() if k != "segment_ids"})
    files = {name: str(tmp_path / f"{name}.npz") for name in ("inputs", "outputs")}
    kind = "BertForSequenceClassification"
    config = {**config, "hidden_act": "gelu", "num_labels": 3}
    peer([{"do": "make", "class": kind, "folder": str(folder), "config": config, **files}])
    theirs = np.load(tmp_path / "outputs.npz")["logits"]
    for names in (NO_SEGMENTS, ALL_NAMES):
        entries = {"tokenizer_class": "BertTokenizer", "model_input_names": names}
        file_io.write_json(str(folder / "tokenizer_config.json"), entries)
        model = MODELS["classification"](BERT)
        checkpoints.restore(model, str(folder), allow_new_heads=False)
        error = np.abs(model(inputs)["logits"] - theirs).max()
        assert (error < 1e-5) == (names == NO_SEGMENTS), (names, error)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("config", "architecture"), [(EXACT, "albert"), (BERT, "bert")])
def test_of_two_biases_of_pieces_the_same_one_counts(tmp_path, peer, config, architecture, tied):
    _, folder = exported(tmp_path, "pretraining", config, architecture)
    path = folder / "model.safetensors"
    tensors = safetensors_numpy.load(path.read_bytes())
    words = "cls.predictions." if architecture == "bert" else "predictions."
    bias = tensors[f"{words}bias"]
    tensors[f"{words}decoder.bias"] = bias + np.arange(len(bias), dtype=np.float32) / 100
    name = f"{architecture}.embeddings.word_embeddings.weight"
    tensors[f"{words}decoder.weight"] = tensors[name].copy()
    path.write_bytes(safetensors_numpy.save(tensors, metadata={"format": "pt"}))
    (folder / manifests.NAME).unlink()
    settings = file_io.read_json(str(folder / "config.json"), "configuration", dict)
    file_io.write_json(str(folder / "config.json"), {**settings, "tie_word_embeddings": tied})
    files = write_inputs(tmp_path, config, "pretraining")
    kind = class_of("pretraining", architecture)
    peer([{"do": "load", "class": kind, "folder": str(folder), **files}])
    model = MODELS["pretraining"](config)
    checkpoints.restore(model, str(folder), allow_new_heads=False)
    inputs, theirs = (dict(np.load(files[name])) for name in ("inputs", "outputs"))
    assert_close(theirs, our_outputs(model, "pretraining", inputs))


def write_texts(folder, tokenizer, texts):
    """The files of the inputs of texts and of the outputs, as a request names them."""
    rows = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in texts]
    shape = (len(rows), max(map(len, rows)))
    arrays = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask")}
    for row, ids, mask in zip(rows, *arrays.values(), strict=True):
        ids[: len(row)], mask[: len(row)] = row, 1
    np.savez(folder / "inputs.npz", **arrays, segment_ids=np.zeros(shape, np.int32))
    return {name: str(folder / f"{name}.npz") for name in ("inputs", "outputs")}


@pytest.mark.slow
def test_several_labels_per_text_have_the_same_probabilities_both_ways(tmp_path, peer, caplog):
    texts = ["the bread was fine .", "the cake and the soup were cheap .", "the house ."]
    warm = decision.Decision(2.0, thresholds=(0.25, 0.5, 0.75))
    ours = builders.write_multi_label(tmp_path / "ours", decision=warm)
    exported_to = str(tmp_path / "exported")
    with caplog.at_level("WARNING", "absl"):
        assert huggingface_export.export(ours, output_dir=exported_to) == "multi_label"
    assert "no place for the thresholds of its labels; the model card" in caplog.text
    predictor = predictors.load(ours)
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    kind = "AlbertForSequenceClassification"
    config = {**CONFIG.to_dict(), "hidden_act": "gelu_new", "num_labels": 2}
    config["problem_type"] = "multi_label_classification"
    there, _ = peer([
        {"do": "load", "class": kind, "folder": exported_to,
         **write_texts(tmp_path / "there", predictor.tokenizer, texts)},
        {"do": "make", "class": kind, "folder": str(tmp_path / "theirs"), "config": config,
         **write_texts(tmp_path / "back", predictor.tokenizer, texts)},
    ])  # fmt: skip
    assert [*there["labels"].values()] == [*builders.LABELS]
    shutil.copyfile(builders.SPM, tmp_path / "theirs" / "spiece.model")
    back = predictors.load(str(tmp_path / "theirs"))
    assert back.labels == ("LABEL_0", "LABEL_1")
    for model, name in ((predictor, "there"), (back, "back")):
        logits = np.load(tmp_path / name / "outputs.npz")["logits"].astype(np.float64)
        found = [[*row.probabilities.values()] for row in model.predict(texts)]
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)), atol=1e-5)
        assert np.std(found) > 0.001


TOKENIZERS = ["AutoTokenizer", "PreTrainedTokenizerFast", "AlbertTokenizer", "AlbertTokenizerFast"]
TEXTS = [
    "The old harbour lies at the end of the town.",
    "Two  spaces,\ta tab\u00a0and a thin\u2009one.",
    "In 1999, 2,000 boats came; 12, 13, and 14.",
    "Caf\u00e9 \u00dcber na\u00efve \ufb01ne \u00bd \u2460 \u0130stanbul",
    '"quoted" (bracketed) well-known \u2013 \u00a35 \u20ac6',
    "\u6f22\u5b57 \u0441\u043b\u043e\u0432\u043e \U0001f600 x\u0301\u0323y",
    "",
    "``a'' \u0937\u0947\u0932\u0941",
]


def test_token_ids_are_the_same(tmp_path, tokenizer, peer):
    _, folder = exported(tmp_path, "encoder")
    (answer,) = peer(
        [{"do": "tokenize", "folder": str(folder), "classes": TOKENIZERS, "texts": TEXTS}]
    )
    ids = [tokenizer.encode(text) for text in TEXTS]
    for name in TOKENIZERS:
        expected = [[tokenizer.cls_id, *row, tokenizer.sep_id] for row in ids]
        # The class itself reads `` and '' as quotation marks.
        count = len(TEXTS) - name.startswith("Albert")
        assert answer[name]["ids"][:count] == expected[:count], name
        pair = answer[name]["pair"]
        assert pair["input_ids"] == [*expected[0], *expected[1][1:]]
        assert pair["token_type_ids"] == [0] * len(expected[0]) + [1] * (len(expected[1]) - 1)


@pytest.mark.slow
def test_token_ids_are_the_same_on_real_text(tmp_path, peer, shared, english):
    """Numbers before a comma can be cut elsewhere there; see `huggingface_export`."""
    corpus = shared / "data" / "corpus"
    texts = [
        line
        for name in ("wiki_000.txt", "book_000.txt")
        for line in (corpus / name).read_text(encoding="utf-8").splitlines()[:3000]
        if line.strip()
    ]
    huggingface_export.write_tokenizer(str(tmp_path), english, 512)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    (answer,) = peer(
        [{"do": "tokenize", "folder": str(tmp_path), "classes": TOKENIZERS, "texts": texts}]
    )
    ids = [[english.cls_id, *english.encode(t), english.sep_id] for t in texts]
    assert len(texts) > 4000
    for name in TOKENIZERS:
        differing = [
            text
            for text, one, other in zip(texts, ids, answer[name]["ids"], strict=True)
            if one != other
        ]
        assert len(differing) <= len(texts) // 1000, differing


@pytest.mark.slow
def test_a_tokenizer_json_alone_gives_the_ids_of_its_class(
    tmp_path, peer, shared, english, monkeypatch
):
    """AlbertTokenizer of transformers 5 saves nothing else, and reads numbers and marks its way."""
    monkeypatch.setattr(published, "cache_dir", lambda: str(tmp_path / "cache"))
    (tmp_path / "saved").mkdir()
    shutil.copyfile(english.spm_model_file, tmp_path / "spiece.model")
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    lines = (shared / "data/corpus/wiki_000.txt").read_text(encoding="utf-8").splitlines()
    texts = [*TEXTS, *sample_lines.SENTENCES, *lines[:2000]]
    request = {"do": "tokenize", "folder": str(tmp_path), "classes": ["AlbertTokenizer"]}
    (answer,) = peer([{**request, "texts": texts, "save": str(tmp_path / "saved")}])
    assert sorted(os.listdir(tmp_path / "saved")) == ["tokenizer.json", "tokenizer_config.json"]
    (vocabulary,) = sources.vocabularies_in(str(tmp_path / "saved"))
    ours = tokenization.load(vocabulary, sources.rules_beside(vocabulary))
    for text, expected in zip(texts, answer["AlbertTokenizer"]["ids"], strict=True):
        assert [ours.cls_id, *ours.encode(text), ours.sep_id] == expected, text


def test_wordpiece_vocabularies_are_written_too(tmp_path, wordpiece, peer):
    huggingface_export.write_tokenizer(str(tmp_path), wordpiece, 24)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    classes = ["BertTokenizer", "AutoTokenizer"]
    (answer,) = peer(
        [{"do": "tokenize", "folder": str(tmp_path), "classes": classes, "texts": TEXTS}]
    )
    for name in classes:
        expected = [[wordpiece.cls_id, *wordpiece.encode(t), wordpiece.sep_id] for t in TEXTS]
        assert answer[name]["ids"] == expected, name
