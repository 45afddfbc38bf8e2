"""Tiny models, configurations, data and flag values that several test files build on."""

import collections
import contextlib
import json
import pathlib
import random

import numpy as np
import tensorflow as tf
from tensorflow.python.grappler import tf_optimizer

from albert.data import instances, record_files, sentence_pairs
from albert.experiments import demo_data
from albert.io import file_io, tables
from albert.model import (
    checkpoints,
    encoder,
    head_config,
    heads,
    label_scale,
    layers,
    pretraining_heads,
    sources,
)
from albert.model import decision as decisions
from albert.tasks import custom, glue, kinds, label_sets, multi_label
from albert.text import text_rules, tokenization
from tests.support import command_lines

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"
SPM = TESTDATA / "tiny.model"
# What tokenizers could treat differently: case, white space, Unicode forms, scripts, nothing.
ODD_TEXTS = [
    "The bread was FINE .",
    "  white\t\u2003space\n everywhere\u3000",
    "caf\u00e9 na\u00efve \ufb01ne \u00bd \u00a8 \u00b4x \u1e9b\u0323 \u01c5",
    "A\u03a3 \u03a3\u0391\u03a3. \u0130stanbul STRASSE \u1e9e \u212b",
    "2,000 9, 12,, 3.0, \u00b2, x9,y \u0663,",
    "\u4e2d\u6587 \uac01 \ud55c\uad6d \u0e01\u0e33 \U0001f600\u200d\U0001f469",
    "[CLS] <unk> \u2581 [SEP]",
    "",
    "\u0301",
]


def tiny_config(**changes):
    """A configuration for the vocabulary `SPM`; `changes` replace its values."""
    values = {
        "vocab_size": 400, "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 48,
    }  # fmt: skip
    return encoder.AlbertConfig(**{**values, **changes})


class WithoutEncoder(tf.Module):
    """Implements the engine's demands on models, for those without an encoder to make ready."""

    def prepare_weights(self):
        return []

    def use_weights(self, weights):
        return contextlib.nullcontext()


# --- scripts and what they leave ----------------------------------------------------------------

run = command_lines.run


def read_results(folder):
    """The blocks of eval_results.txt as dicts of texts, without the summary of SQuAD."""
    text = (folder / "eval_results.txt").read_text()
    blocks = [block.splitlines() for block in text.split("=" * 50 + "\n")]
    blocks = [block for block in blocks if block and " = " in block[-1]]
    return [dict(line.split(" = ") for line in block) for block in blocks]


def read_examples(folder):
    """The lines of examples.jsonl as dicts."""
    return [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]


def weights(prefix):
    """{name: array} of a checkpoint, as TensorFlow reads it."""
    names = [name for name, _ in tf.train.list_variables(str(prefix))]
    return {name: tf.train.load_variable(str(prefix), name) for name in names}


def model_weights(model):
    """{name: array} of a model."""
    return {name: v.numpy() for name, v in checkpoints.variables_by_name(model).items()}


def assert_same(one, other):
    """Two dicts of arrays are equal, bit for bit."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def write_model(folder, model, config, vocabulary="30k-clean.model"):
    """A folder with a checkpoint, its configuration and the tiny vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints.save(str(folder / "model.ckpt-best"), model)
    (folder / "albert_config.json").write_text(config.to_json_string())
    (folder / vocabulary).write_bytes(SPM.read_bytes())


def write_pooling(folder, kind="mean_tokens", further=()):
    """Writes the files by which a folder of sentence-transformers says its pooling."""
    names = ("Transformer", "Pooling", *further)
    modules = [{"path": name, "type": f"sentence_transformers.models.{name}"} for name in names]
    file_io.write_json(str(folder / "modules.json"), modules)
    entries = {f"pooling_mode_{name}": name == kind for name in ("cls_token", "mean_tokens", kind)}
    (folder / "Pooling").mkdir(exist_ok=True)
    file_io.write_json(str(folder / "Pooling" / "config.json"), entries)


def write_classifier(
    folder,
    labels=("bad", "good"),
    config=None,
    pair=None,
    length=32,
    seed=1,
    step="best",
    scale=label_scale.RAW,
    decision=decisions.PLAIN,
    pooling="cls",
):
    """Writes the folder of a text classifier as fine-tuning leaves it, with random weights.

    Args:
      folder: path.
      labels: names of the classes; none: a regression.
      config: of the encoder; None: `tiny_config`.
      pair: column of the second text, if there is one.
      length: most tokens of an example.
      seed: of the weights.
      step: of the checkpoint.
      scale: unit of a regression.
      decision: how scores become answers.
      pooling: what its head reads.

    Returns:
      The folder as text.
    """
    config = config or tiny_config()
    row = custom.CustomTask({}, tables.Columns(text_pair=pair), labels, "mine")
    source = sources.Source("", None, str(SPM), None, text_rules.TextRules(True))
    head = head_config.Head(pooling=pooling)
    settings = custom.settings_of(row, length, 0.1, head, scale, decision)
    kinds.write_folder(str(folder), glue.KIND, config, source, settings)
    model = glue.make_task(row, 0.1, head, scale).build_model(config, layers.Compute(), seed)
    checkpoints.save(f"{folder}/model.ckpt-{step}", model)
    return str(folder)


LABELS = ("cheap", "fine", "sweet")


def write_multi_label(folder, labels=LABELS, seed=1, decision=decisions.PLAIN, pair=None):
    """Writes the folder of a classifier of several labels per text, with random weights.

    For the arguments see `write_classifier`. The output layer has large weights, so that texts get
    different labels.

    Returns:
      The folder as text.
    """
    config = tiny_config()
    row = label_sets.LabelSetTask({}, tables.Columns(text_pair=pair), labels)
    source = sources.Source("", None, str(SPM), None, text_rules.TextRules(True))
    settings = multi_label.settings_of(row, 32, 0.1, decision=decision)
    kinds.write_folder(str(folder), label_sets.KIND, config, source, settings)
    task = multi_label.make_task(row, decision=decision)
    model = task.build_model(config, layers.Compute(), seed)
    model.output.weights.assign(200 * model.output.weights)
    checkpoints.save(f"{folder}/model.ckpt-best", model)
    return str(folder)


def watch_cleaning(monkeypatch):
    """List that gets each text that is preprocessed from now on."""
    seen, preprocess_text = [], tokenization.preprocess_text

    def clean(text, **settings):
        seen.append(text)
        return preprocess_text(text, **settings)

    monkeypatch.setattr(tokenization, "preprocess_text", clean)
    return seen


# --- models and batches -------------------------------------------------------------------------

GROUPED = {
    "vocab_size": 50,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "num_attention_heads": 3,
    "intermediate_size": 16,
    "inner_group_num": 1,
    "max_position_embeddings": 32,
}
LENGTHS, LENGTH = (9, 24, 3, 17), 24

# Functions of configuration and `layers.Compute`; models of one kind have the same weights. Their
# heads drop nothing, as dropout draws other masks in other types and in micro-batches.
MODELS = {
    "classifier": lambda *c: heads.ClassifierModel(c[0], 3, *c[1:], seed=1, dropout_prob=0.0),
    "weighted": lambda *c: heads.ClassifierModel(
        c[0], 3, *c[1:], seed=1, dropout_prob=0.0, class_weights=(0.5, 3.0, 1.25)
    ),
    "multi_label": lambda *c: heads.MultiLabelModel(c[0], 3, *c[1:], seed=1, dropout_prob=0.0),
    "regression": lambda *c: heads.RegressionModel(*c, seed=1, dropout_prob=0.0),
    "choices": lambda *c: heads.MultipleChoiceModel(c[0], 2, 0.0, *c[1:], seed=1),
    "pretraining": lambda *c: pretraining_heads.PretrainingModel(*c, seed=1),
    "squad_v1": lambda *c: heads.SquadV1Model(*c, seed=1),
    "squad_v2": lambda *c: heads.SquadV2Model(c[0], 2, 2, 0.0, *c[1:], seed=1),
}


def make_model(name, compute=layers.Compute(), **changes):
    """One of `MODELS` with the configuration `GROUPED` but for `changes`."""
    return MODELS[name](encoder.AlbertConfig.from_dict(GROUPED | changes), compute)


def make_features(name, lengths=LENGTHS, length=LENGTH):
    """A padded batch for the model of this name, with labels."""
    rng = np.random.default_rng(3)
    batch = len(lengths)
    mask = np.arange(length) < np.array(lengths)[:, np.newaxis]
    features = {
        "input_ids": rng.integers(5, 50, (batch, length)) * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, (batch, length)) * mask,
    }
    if name == "choices":
        features = {key: x.reshape(batch // 2, -1) for key, x in features.items()}
        features["label_ids"] = rng.integers(0, 2, batch // 2)
    if name in ("classifier", "weighted"):
        features["label_ids"] = rng.integers(0, 3, batch)
    if name == "multi_label":
        features["label_ids"] = rng.integers(0, 2, (batch, 3))
    if name == "pretraining":
        features["masked_lm_positions"] = rng.integers(0, 3, (batch, 4))
        features["masked_lm_ids"] = rng.integers(5, 50, (batch, 4))
        features["next_sentence_labels"] = rng.integers(0, 2, (batch, 1))
    if name.startswith("squad"):
        features["start_positions"] = features["end_positions"] = rng.integers(0, 3, batch)
        features["p_mask"] = 1 - mask.astype(int)
        features["is_impossible"] = rng.integers(0, 2, batch)
    features = {key: tf.constant(x, tf.int32) for key, x in features.items()}
    if name == "regression":
        features["label_ids"] = tf.constant(rng.normal(size=batch), tf.float32)
    if name == "pretraining":
        features["masked_lm_weights"] = tf.constant(rng.integers(0, 2, (batch, 4)), tf.float32)
    return features


def optimized_nodes(concrete_function):
    """Returns the nodes of a function after the graph optimizer."""
    graph = concrete_function.graph
    with graph.as_default():
        meta_graph = tf.compat.v1.train.export_meta_graph()
    fetches = meta_graph.collection_def["train_op"].node_list.value
    fetches.extend(output.op.name for output in graph.outputs)
    return tf_optimizer.OptimizeGraph(tf.compat.v1.ConfigProto(), meta_graph).node


def optimized_sums(function):
    """{name: number of terms} of the sums that the graph optimizer makes of a `tf.function`'s.

    Loops over the parts of one tensor are omitted.
    """
    nodes = optimized_nodes(function.get_concrete_function())
    terms = {
        node.name: [name.split(":")[0] for name in node.input if name[0] != "^"]
        for node in nodes
        if node.op == "AddN"
    }
    return {name: len(found) for name, found in terms.items() if len(set(found)) > 1}


# --- GLUE ---------------------------------------------------------------------------------------


def reviews(seed=1):
    """SST-2 files whose labels a single word gives away."""
    rng = random.Random(seed)
    files = {"train": "sentence\tlabel\n", "dev": "sentence\tlabel\n", "test": "index\tsentence\n"}
    for split, count in (("train", 600), ("dev", 60), ("test", 21)):
        for i in range(count):
            mood = rng.choice((demo_data.BAD, demo_data.GOOD))
            text = f"the bread was {rng.choice(demo_data.QUALITIES[mood])} ."
            label = int(mood == demo_data.GOOD)
            files[split] += f"{i}\t{text}\n" if split == "test" else f"{text}\t{label}\n"
    return files


def write_glue(folder):
    """GLUE folders cut to a few hundred rows, a configuration and nothing else."""
    for name in ("SST-2", "RTE", "STS-B"):
        (folder / "glue" / name).mkdir(parents=True)
        files = reviews() if name == "SST-2" else demo_data.task_files(name, seed=1)
        for split, text in files.items():
            lines = text.splitlines(keepends=True)
            count = {"train": 600, "dev": 60, "test": 21}[split]
            (folder / "glue" / name / f"{split}.tsv").write_text("".join(lines[: count + 1]))
    (folder / "glue" / "diagnostic").mkdir()
    test = (folder / "glue" / "RTE" / "test.tsv").read_text()
    (folder / "glue" / "diagnostic" / "diagnostic.tsv").write_text(test)
    config = tiny_config(
        embedding_size=16, hidden_size=32, intermediate_size=64,
        max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    file_io.write_text(str(folder / "albert_config.json"), config.to_json_string())


def glue_flags(inputs, output_dir, task="SST-2", **changes):
    """Flags of a short run of run_classifier on what `write_glue` wrote."""
    return {
        "data_dir": inputs / "glue", "task_name": task, "output_dir": output_dir,
        "albert_config_file": inputs / "albert_config.json", "spm_model_file": SPM,
        "max_seq_length": 64, "train_step": 20, "save_checkpoints_steps": 10,
        "train_batch_size": 16, "learning_rate": 5e-4, **changes,
    }  # fmt: skip


def glue_texts(path, task):
    """The texts of a test file, as tuples."""
    lines = path.read_text().splitlines()[1:]
    first = {"SST-2": 1, "RTE": 1, "STS-B": 7}[task]
    return [tuple(line.split("\t")[first : first + 1 + (task != "SST-2")]) for line in lines]


# --- RACE ---------------------------------------------------------------------------------------


def passages(level, split, count):
    """Passages with two questions each; the right option is the only good one."""
    rng = random.Random(f"{level} {split}")
    for number in range(count):
        questions, options, answers = [], [], []
        for question in ("the cake was _ .", "how was the soup ?"):
            words = rng.sample(demo_data.QUALITIES[demo_data.BAD], 3)
            place = rng.randrange(4)
            words.insert(place, rng.choice(demo_data.QUALITIES[demo_data.GOOD]))
            questions.append(question)
            options.append(words)
            answers.append("ABCD"[place])
        yield {
            "id": f"{level}{number}.txt", "article": "the bread was fine .",
            "questions": questions, "options": options, "answers": answers,
        }  # fmt: skip


# --- pre-training -------------------------------------------------------------------------------

PRETRAINING_LENGTH, PREDICTIONS = 24, 4
PRETRAINING_SPECS = instances.feature_specs(PRETRAINING_LENGTH, PREDICTIONS)
PRETRAINING_CONFIG = tiny_config(
    vocab_size=40, intermediate_size=32, max_position_embeddings=32, initializer_range=0.2
)


def forge_record(path, number, name, place, value):
    """Changes a value of a record, counted from 1; checksums and manifest are right again."""
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    example = tf.train.Example.FromString(records[number - 1])
    example.features.feature[name].int64_list.value[place] = value
    records[number - 1] = example.SerializeToString()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    manifest = record_files.manifest_path(str(path))
    num_bytes = file_io.size(str(path))
    file_io.write_json(
        manifest, {**file_io.read_json(manifest, "manifest"), "num_bytes": num_bytes}
    )


def pretraining_rows(count, seed=0):
    """One word over and over, then another: both the masked words and the order can be seen."""
    length = PRETRAINING_LENGTH
    rng = np.random.default_rng(seed)
    for _ in range(count):
        half, start, swapped = rng.integers(6, 10), rng.integers(5, 20), rng.integers(2)
        a, b = np.full(half, start), np.full(half, start + 20)
        a, b = (b, a) if swapped else (a, b)
        ids = np.zeros(length, np.int64)
        tokens = [2, *a, 3, *b, 3]
        ids[: len(tokens)] = tokens
        positions = np.sort(rng.choice(np.arange(1, 1 + half), 3, replace=False))
        labels = ids[positions]
        masked = ids.copy()
        masked[positions] = 4
        segments = np.zeros(length, np.int64)
        segments[half + 2 : len(tokens)] = 1
        yield {
            "input_ids": masked,
            "input_mask": (np.arange(length) < len(tokens)).astype(np.int64),
            "segment_ids": segments,
            "token_boundary": (np.arange(length) < len(tokens)).astype(np.int64),
            "masked_lm_positions": np.append(positions, 0),
            "masked_lm_ids": np.append(labels, 0),
            "masked_lm_weights": np.float32([1, 1, 1, 0]),
            "next_sentence_labels": swapped,
        }


def make_documents(*documents):
    """`Documents` of lists of sentence lengths; every token is its own place + 5, modulo 150."""
    sentence_offsets, document_offsets = [0], [0]
    for lengths in documents:
        for length in lengths:
            sentence_offsets.append(sentence_offsets[-1] + length)
        document_offsets.append(len(sentence_offsets) - 1)
    tokens = 5 + np.arange(sentence_offsets[-1], dtype=np.int32) % 150
    return sentence_pairs.Documents(tokens, sentence_offsets, document_offsets)


VOCABULARY = instances.Vocabulary(
    word_starts=np.arange(200) % 3 > 0, cls_id=2, sep_id=3, mask_id=4, pad_id=0
)


def records_of(documents, settings, stream=(0, 0)):
    records, totals = [], collections.Counter()
    for batch, counts in instances.make_records(documents, settings, VOCABULARY, stream):
        records += batch
        totals.update(counts)
    return records, totals


def parse_records(records):
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


def pretraining_flags(inputs, output_dir, **changes):
    """Flags of a short run of run_pretraining on part*.tfrecord with config.json."""
    return {
        "albert_config_file": inputs / "config.json", "input_file": inputs / "part*.tfrecord",
        "output_dir": output_dir, "max_seq_length": PRETRAINING_LENGTH,
        "max_predictions_per_seq": PREDICTIONS, "train_batch_size": 16, "eval_batch_size": 16,
        "num_train_steps": 30, "num_warmup_steps": 5, "save_checkpoints_steps": 10,
        "learning_rate": 0.01, "log_every_steps": 10, **changes,
    }  # fmt: skip
