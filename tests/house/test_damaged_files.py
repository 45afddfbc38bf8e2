"""Files from disk that are damaged or made to do harm: an error that names them, or no effect."""

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from albert import run_classifier
from albert.data import (
    dynamic_masking,
    input_options,
    input_pipeline,
    instances,
    masking,
    record_files,
    tfrecord,
)
from albert.export import saved_model_export, verification
from albert.io import archives, file_io, manifests, tables
from albert.model import encoder, huggingface, huggingface_tokenizer, sources
from albert.serving import predictors
from albert.tasks import custom, pretraining
from albert.training import results
from tests.support import builders, command_lines
from tests.support.builders import SPM, tiny_config

InputError = file_io.InputError

# --- archives -----------------------------------------------------------------------------------


def archive(path, **members):
    with tarfile.open(path, "w:gz", compresslevel=9) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return str(path)


def refused(path, folder, message):
    with pytest.raises(InputError, match=message):
        archives.unpack_archive(str(path), str(folder))
    assert not file_io.exists(str(folder)) or file_io.listdir(str(folder)) == []


def test_a_flipped_bit_of_an_archive_is_found(tmp_path):
    # Stored without compression: only the checksum at the end can tell.
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        info = tarfile.TarInfo("weights")
        info.size = 5000
        tar.addfile(info, io.BytesIO(b"w" * 5000))
    content = bytearray(gzip.compress(plain.getvalue(), compresslevel=0))
    content[content.index(b"wwww") + 77] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(content)
    refused(tmp_path / "a.tar.gz", tmp_path / "cache", "damaged or not a .tar.gz archive .*CRC")


def test_an_archive_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_UNPACKED", 1000)
    path = archive(tmp_path / "a.tar.gz", zeros=bytes(1_000_000))
    refused(path, tmp_path / "cache", "unpacks to more than 20 times its size; not unpacked")
    monkeypatch.setattr(archives, "ALWAYS_UNPACKED", 1_000_000)
    archives.unpack_archive(path, str(tmp_path / "cache"))


@pytest.mark.parametrize("members", [{"x" * 300: b"1"}, {"a": b"1", "a__b": b"2"}])
def test_impossible_names_in_archives_are_refused(tmp_path, members):
    path = archive(tmp_path / "a.tar.gz", **members)
    refused(path, tmp_path / "cache", "cannot (be written|make the folder)")


# --- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[" * 200_000 + "]" * 200_000, "1" * 5000, '{"a": ' * 3000, "", "{", "nul"]
)
def test_json_that_python_cannot_read_is_named(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"configuration: .*bad\.json is not valid JSON: "):
        file_io.read_json(str(path), "configuration")
    with pytest.raises(InputError, match="rows line 1: expected a JSON object; "):
        next(tables.read_rows([text.encode() or b"{"], "rows", "jsonl"))


def test_json_of_another_kind_is_named(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match=r"x: .*x\.json must hold an object, found a list"):
        file_io.read_json(str(tmp_path / "x.json"), "x", dict)


# --- rows and labels ----------------------------------------------------------------------------


def test_a_header_of_many_columns_takes_no_time():
    header = b",".join(b"c%d" % i for i in range(300_000))
    rows = tables.read_rows([header + b"\n", b"1\n"], "wide", "csv")
    with pytest.raises(InputError, match="wide line 2: expected 300000 columns"):
        next(rows)


def test_lines_that_end_in_carriage_returns_alone_are_named():
    with pytest.raises(InputError, match="x: its lines end in carriage returns alone"):
        list(tables.read_rows([b"text\tlabel\rgood\t1\rbad\t0\r"], "x", "tsv"))
    header = [b"text\tlabel\rgood\t1\r"]  # before a row or a column is missed
    with pytest.raises(InputError, match="x: its lines end in carriage returns alone"):
        next(file_io.text_lines(header, "x"))
    assert list(file_io.text_lines([b"a\rb\n", b"c\n"], "x")) == [(1, "a\rb\n"), (2, "c\n")]
    # One line with such an end is a line.
    assert list(file_io.text_lines([b"one\r"], "x")) == [(1, "one\r")]


def test_half_a_surrogate_pair_is_no_name():
    with pytest.raises(InputError, match="must be a name without tabs"):
        tables.name_of({"label": "a\ud83d"}, "label", "label_column", "here")


@pytest.mark.parametrize("word", ["nan", "-inf", "Infinity"])
def test_numbers_that_are_not_finite_do_not_make_a_classification(tmp_path, word):
    path = tmp_path / "train.csv"
    path.write_text(f"text,label\ngood,1.5\nbad,{word}\nworse,2.5\n")
    files = {"train": str(path)}
    with pytest.raises(InputError, match=rf"train\.csv: 1 labels are '{word}', the others numbers"):
        custom.find_labels(str(tmp_path), files, tables.Columns())
    names = custom.find_labels(str(tmp_path), files, tables.Columns(), "classification")
    assert set(names) == {"1.5", "2.5", word}


@pytest.mark.parametrize("content", [["a", "a"], [1, 2], ["a", "b\ud83d"], {"a": 1}, ["", "b"]])
def test_damaged_label_files_are_named(tmp_path, content):
    (tmp_path / "labels.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"labels\.json must hold a list of different label names"):
        custom.find_labels(str(tmp_path), {}, tables.Columns())


# --- scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-inf", "inf", "9e99", "-9e99"])
def test_a_best_score_that_nothing_can_beat_is_refused(tmp_path, value):
    (tmp_path / "best_trial.txt").write_text(f"20:10:{value}")
    with pytest.raises(InputError, match=r"best_trial\.txt: .* 1e.40, found '20:10"):
        results.read_trial(str(tmp_path))


# --- configurations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 10000; got 1000000000"),
        ({"vocab_size": 10**9}, "vocab_size must be at most 100000000; got 1000000000"),
        (
            {"hidden_size": 10**7, "intermediate_size": 10**7},
            r"hidden_size 10000000, .* 6.0e\+14 p",
        ),
        ({"num_hidden_layers": int("9" * 400)}, "num_hidden_layers must be at most 10000"),
    ],
)
def test_sizes_that_no_memory_holds_are_refused_at_once(changes, message):
    with pytest.raises(InputError, match=message):
        tiny_config(**changes)


# --- Hugging Face -------------------------------------------------------------------------------


def safetensors_file(path, tensors):
    from safetensors.numpy import save_file

    save_file(tensors, str(path))
    return str(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    weights = np.ones((3, 2), np.float32)
    weights[1, 1] = value
    path = safetensors_file(tmp_path / "model.safetensors", {"albert.pooler.weight": weights})
    message = r"model\.safetensors: albert\.pooler\.weight holds values that are not finite"
    with pytest.raises(InputError, match=message):
        huggingface.Reader(path)


def test_a_flipped_bit_of_exported_weights_is_found(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_file(path, {"albert.pooler.weight": np.ones((3, 2), np.float32)})
    manifests.write(str(tmp_path))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    message = r"model\.safetensors has changed since its export: .* has the SHA-256"
    with pytest.raises(InputError, match=message):
        huggingface.Reader(str(path))


@pytest.mark.parametrize(
    "name",
    [
        "albert.encoder.albert_layer_groups.999999.albert_layers.0.ffn.weight",
        "bert.encoder.layer.99999.output.dense.weight",
    ],
)
def test_a_layer_that_cannot_be_is_refused_at_once(tmp_path, name):
    path = safetensors_file(tmp_path / "model.safetensors", {name: np.ones(1, np.float32)})
    with pytest.raises(InputError, match=r"model\.safetensors: there is a weight .* only 1 blocks"):
        huggingface.Reader(path)
    longer = name.replace("99999", "99999" * 9)
    path = safetensors_file(tmp_path / "model.safetensors", {longer: np.ones(1, np.float32)})
    with pytest.raises(InputError, match="has weights of the encoder that this package does not"):
        huggingface.Reader(path)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": "../b"}}']
)
def test_a_damaged_index_of_weights_is_named(tmp_path, content):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"index of weights: .*index\.json must (have|hold)"):
        huggingface.Reader(str(path))


def test_other_damaged_files_of_such_a_folder_are_named(tmp_path):
    for name, content, read in (
        ("config.json", "[]", huggingface.read_config),
        ("config.json", '{"model_type": {}}', huggingface.read_config),
        ("tokenizer_config.json", "3", huggingface_tokenizer.read_rules),
        ("tokenizer_config.json", '{"do_lower_case": "no"}', huggingface_tokenizer.read_rules),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            read(str(tmp_path))


# --- hub modules --------------------------------------------------------------------------------


def test_a_hub_module_is_read_but_not_run(golden, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.saved_model, "load", None)
    source = sources.locate(hub_handle=str(golden / "hub_tf1"))
    assert source.rules.do_lower_case is True

    class Root(tf.Module):
        pass

    root = Root()
    info = tf.function(
        lambda: {"do_lower_case": tf.identity(tf.constant(False))}, input_signature=[]
    )
    folder = saved_model_export.save_model(
        root, {"tokenization_info": info}, str(tmp_path), "module"
    )
    (tmp_path / "module" / "assets").mkdir(exist_ok=True)
    config, vocabulary = (tmp_path / "module" / "assets" / name for name in ("c.json", "v.model"))
    config.write_text(tiny_config().to_json_string())
    vocabulary.write_bytes(SPM.read_bytes())
    given = sources.Given(config_file=str(config), spm_model_file=str(vocabulary))
    found = sources.locate(given, hub_handle=folder)
    assert found.rules.do_lower_case is False


# --- folders of fine-tuned models ---------------------------------------------------------------


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return builders.write_classifier(tmp_path_factory.mktemp("model"))


def changed(folder, name, change):
    """Puts another JSON value into a file; returns what puts it back."""
    path = os.path.join(folder, name)
    before = file_io.read_text(path, name)
    value = json.loads(before)
    change(value)
    file_io.write_json(path, value)
    return lambda: file_io.write_text(path, before)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.json", lambda v: v.pop("settings"), "entry settings is invalid: 'missing'"),
        ("model.json", lambda v: v.update(kind=3), "entry kind is invalid: 3; move the"),
        ("model.json", lambda v: v.update(spm_model_file=None), "expected the name of one file"),
        ("model.json", lambda v: v.update(spm_model_file="../x"), r"one file .*found \['\.\./x'\]"),
        ("model.json", lambda v: v["settings"].pop("columns"), "the setting columns is 'missing'"),
        ("model.json", lambda v: v["settings"].update(columns=[1]), "the setting columns is"),
        ("model.json", lambda v: v["settings"].update(labels=3), "the setting labels is 3"),
        ("model.json", lambda v: v["settings"].update(max_seq_length="9"), "max_seq_length is '9'"),
        ("model.json", lambda v: v["settings"].update(max_seq_length=999), "max_seq_length is 999"),
        ("model.json", lambda v: v["settings"].update(max_seq_length=2), "is 2, .*: restore"),
        ("model.json", lambda v: v["settings"].update(max_seq_length=True), "max_seq_length is Tr"),
        ("model.json", lambda v: v["settings"].update(task_name=None), "the setting task_name is"),
        (
            "albert_config.json",
            lambda v: v.update(vocab_size=10**8, intermediate_size=8),
            r"which has vocab_size 400 \(100000000\), intermediate_size 16 \(8\); brack",
        ),
        ("labels.json", list.reverse, r"labels\.json holds \['good', 'bad'\], the description of"),
    ],
)
def test_a_damaged_description_is_named(model_dir, name, change, message):
    restore = changed(model_dir, name, change)
    try:
        with pytest.raises(InputError, match=message):
            predictors.TextPredictor(model_dir)
    finally:
        restore()


def test_the_folder_is_whole_otherwise(model_dir):
    assert predictors.TextPredictor(model_dir).labels == ("bad", "good")


# --- records ------------------------------------------------------------------------------------

SPECS = (input_pipeline.FeatureSpec("input_ids", "int64", (2,)),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"\xff\xff rubbish", "record 4 is not a tf.train.Example; make the file again"),
        (b"\n\x12\n\x10\n\tinput_ids\x12\x09", "record 4 is not a tf.train.Example"),
        (tfrecord.example([]), "record 4 has other features than the first: {}"),
        (
            record_files.encode(
                (input_pipeline.FeatureSpec("input_ids", "int64", (3,)),), {"input_ids": [1, 2, 3]}
            ),
            "has other lengths than the first",
        ),
    ],
)
def test_records_that_are_no_examples_are_named(tmp_path, row, message):
    path = str(tmp_path / "x.tf_record")
    good = record_files.encode(SPECS, {"input_ids": [1, 2]})
    with tf.io.TFRecordWriter(path) as writer:
        for serialized in [good] * 3 + [row]:
            writer.write(serialized)
    dataset = input_pipeline.eval_input_fn(
        [path], SPECS, input_options.EvalInput(trim_batches=False)
    )({"batch_size": 4})
    with pytest.raises(InputError, match=message), record_files.report_damage([path]):
        list(dataset)


def test_a_first_record_that_is_no_example_is_named(tmp_path):
    path = str(tmp_path / "x.tf_record")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"\xff\xff rubbish")
    with pytest.raises(InputError, match="x.tf_record: the first record is not a tf.train.Exam"):
        record_files.check_files([path], SPECS, "")


@pytest.mark.parametrize("content", ["[]", "{}", '{"version": 1, "num_bytes": "x"}', "[" * 9000])
def test_a_cache_with_a_damaged_manifest_is_made_again(tmp_path, content):
    path = str(tmp_path / "x.tf_record")
    rows = [{"input_ids": [1, 2]}] * 3
    for _ in range(2):
        assert record_files.cached(path, SPECS, {}, lambda: rows) == 3
        file_io.write_text(record_files.manifest_path(path), content)


def test_a_damaged_cache_is_made_again_by_the_next_run(tmp_path, caplog):
    path = str(tmp_path / "x.tf_record")

    def make():
        return record_files.cached(path, SPECS, {}, lambda: [{"input_ids": [1, 2]}] * 3)

    make()
    content = bytearray((tmp_path / "x.tf_record").read_bytes())
    content[-5] ^= 1
    (tmp_path / "x.tf_record").write_bytes(content)
    input_fn = input_pipeline.eval_input_fn(
        [path], SPECS, input_options.EvalInput(trim_batches=False)
    )
    message = "is damaged; the same command makes the file again"
    with pytest.raises(InputError, match=message), record_files.report_damage([path]):
        list(input_fn({"batch_size": 3}))
    make()
    with record_files.report_damage([path]):
        assert len(list(input_fn({"batch_size": 3}))) == 1


# --- records that somebody has forged -------------------------------------------------------------


def forged(folder, name, place, value):
    """Records of which the 38th has another value."""
    rows = list(builders.pretraining_rows(40))
    rows[37][name] = np.array(rows[37][name])
    rows[37][name][place] = value
    path = str(folder / "forged.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write(record_files.encode(builders.PRETRAINING_SPECS, row))
    return path


def pretraining_input(paths, masker=None, limits=None):
    """(`contracts.Data`, dataset of its training batches)."""
    found = dynamic_masking.inspect(paths)
    lengths = (builders.PRETRAINING_LENGTH, builders.PREDICTIONS)
    reading = pretraining.Reading(lengths, masker, limits=limits or {})
    data = pretraining.make_data({"train": found, "dev": found}, reading, 100)
    input_fn = input_pipeline.train_input_fn(paths, data.specs("train"), 1, data.train_input)
    return data, input_fn({"batch_size": 8})


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("input_ids", 3, 40, r"input_ids\[3\] = 40, expected 0 to 39"),
        ("input_ids", 3, -1, r"input_ids\[3\] = -1, expected 0 to 39"),
        ("input_ids", 3, 2**40 + 5, r"input_ids\[3\] = 1099511627781: a number does not fit in 32"),
        ("input_mask", 3, 9, r"input_mask\[3\] = 9, expected 0 to 1"),
        ("segment_ids", 3, 2, r"segment_ids\[3\] = 2, expected 0 to 1"),
        ("next_sentence_labels", (), 7, r"next_sentence_labels\[0\] = 7, expected 0 to 1"),
        ("masked_lm_ids", 1, 9999, r"masked_lm_ids\[1\] = 9999, expected 0 to 39"),
        ("masked_lm_positions", 1, 2**33, r"masked_lm_positions\[1\] = 8589934592: a number"),
        ("masked_lm_weights", 1, -5, r"masked_lm_weights\[1\] = -5.0, expected a weight of 0 or"),
        ("masked_lm_weights", 1, np.nan, r"masked_lm_weights\[1\] = nan, expected a weight"),
    ],
)
def test_forged_values_are_named(tmp_path, name, place, value, message):
    path = forged(tmp_path, name, place, value)
    limits = pretraining.limits(builders.PRETRAINING_CONFIG)
    data, batches = pretraining_input([path], limits=limits)
    with pytest.raises(InputError, match=rf"{path}, record 38: {message}"), data.reading([path]):
        list(batches.take(10))


@pytest.mark.slow
def test_at_padding_and_without_weight_anything_may_stand(tmp_path):
    limits = pretraining.limits(builders.PRETRAINING_CONFIG)
    for name in ("input_ids", "segment_ids", "masked_lm_ids", "masked_lm_positions"):
        path = forged(tmp_path, name, -1, -100)
        data, batches = pretraining_input([path], limits=limits)
        with data.reading([path]):
            for batch in batches.take(10):
                assert batch[name].numpy().min() >= 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (([2, 30, 3], 3, 1), r"input_ids\[1\] = 30, expected 0 to 29"),
        (([2, 2**40 + 5, 3], 3, 1), r"input_ids\[1\] = 1099511627781, expected 0 to 29"),
        (([2, 5, -1], 3, 1), r"input_ids\[2\] = -1, expected 0 to 29"),
        (([2, 5, 3], 4, 1), r"segment_b_start\[0\] = 4, expected 0 to 3"),
        (([2, 5, 3], 3, 7), r"next_sentence_labels\[0\] = 7, expected 0 to 1"),
    ],
)
def test_forged_records_without_masks_are_named(tmp_path, values, message):
    specs, path = instances.compact_feature_specs(), str(tmp_path / "forged")
    names = [spec.name for spec in specs]
    rows = [dict(zip(names, (*row, 77), strict=True)) for row in [([2, 5, 3], 3, 0)] * 9 + [values]]
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write(record_files.encode(specs, row))
    vocabulary = instances.Vocabulary(np.ones(30, bool), 2, 3, 4, 0, 77)
    masker = dynamic_masking.Masker(masking.MaskingConfig(4), vocabulary, 1)
    data, batches = pretraining_input([path], masker)
    with pytest.raises(InputError, match=rf"{path}, record 10: {message}"), data.reading([path]):
        list(batches.take(5))


@pytest.mark.parametrize("packed", [False, True])
def test_a_record_of_impossible_length_is_named(tmp_path, packed):
    length = struct.pack("<Q", 2**63)
    content = tfrecord.frame([b"0123456789"])[0] + length
    content += tfrecord.masked_bytes(tfrecord.crc32c([length])) + b"x" * 20
    path = tmp_path / "x.tf_record"
    path.write_bytes(gzip.compress(content) if packed else content)
    readers = [
        lambda: dynamic_masking.inspect([str(path)]),
        lambda: input_pipeline.train_input_fn([str(path)], SPECS, 1)({"batch_size": 2}),
        lambda: input_pipeline.eval_input_fn([str(path)], SPECS)({"batch_size": 2}),
    ]
    for read in readers:
        with pytest.raises(InputError, match="x.tf_record is damaged: .* record at byte 26"):
            read()
    (item,) = verification.check(str(path))
    assert "the record at byte 26" in item.damage


# --- leftovers ----------------------------------------------------------------------------------


def test_what_killed_processes_left_for_a_path_is_deleted(tmp_path):
    code = (
        "import os, sys\nfrom albert.io import file_io\n"
        "with file_io.atomic_writer(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush(); os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    assert len(file_io.listdir(tmp_path)) == 1
    kept = [f"file.tmp-{os.getppid()}-{file_io.machine()}", "file.tmp-7-0123abcd", "file.tmp-x"]
    for name in kept:
        (tmp_path / name).write_text("of a living process; of another machine; a user's")
    (tmp_path / "file.tmp-7-0123abce").write_text("old, of another machine")
    (tmp_path / "file.tmp-8-0123abcd.old").mkdir()
    (tmp_path / "file.tmp-9-0123abcd.new").mkdir()
    for name in ("8-0123abcd.old", "9-0123abcd.new"):
        (tmp_path / f"file.tmp-{name}" / "part").write_text("")
    for name in ("7-0123abce", "8-0123abcd.old", "8-0123abcd.old/part", "9-0123abcd.new"):
        os.utime(tmp_path / f"file.tmp-{name}", (5, 5))
    file_io.write_text(str(tmp_path / "file"), "whole")
    assert file_io.listdir(tmp_path) == sorted(["file", "file.tmp-9-0123abcd.new", *kept])


@pytest.mark.parametrize(
    "name",
    ["tmp-2024-backup", "tmp-2024", "tmp-7-0123abcde", "tmp-x-0123abcd", "tmp-7-0123abcd_2"],
)
def test_old_files_of_users_with_similar_names_are_kept(tmp_path, name):
    folder = tmp_path / f"notes.json.{name}"
    folder.mkdir()
    (folder / "mine").write_text("precious")
    for path in (folder / "mine", folder):
        os.utime(path, (5, 5))
    file_io.write_text(str(tmp_path / "notes.json"), "new")
    assert (folder / "mine").read_text() == "precious"


def test_a_killed_export_leaves_nothing_that_looks_like_a_model(tmp_path, monkeypatch):
    seen = []

    def save(module, path, signatures):
        file_io.make_dirs(path)
        seen.extend(file_io.glob(f"{tmp_path}/*"))
        raise tf.errors.ResourceExhaustedError(None, None, "disk full")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(InputError, match="cannot write the model to .*disk full"):
        saved_model_export.save_model(tf.Module(), {}, str(tmp_path), "1700000000")
    assert seen == [] and file_io.listdir(tmp_path) == []


# --- flags --------------------------------------------------------------------------------------


def test_a_negative_number_of_checkpoints_is_refused(tmp_path):
    flags = {"task_name": "SST-2", "output_dir": tmp_path, "keep_checkpoint_max": -1}
    with pytest.raises(InputError, match="--keep_checkpoint_max=-1 must be at least 0"):
        command_lines.read(run_classifier, **flags)


def test_configurations_of_other_kinds_are_named(tmp_path):
    (tmp_path / "c.json").write_text("[" * 5000)
    with pytest.raises(InputError, match=r"c\.json is not valid JSON"):
        encoder.AlbertConfig.from_json_file(str(tmp_path / "c.json"))
