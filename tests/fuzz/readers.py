"""All readers of files; here those of what users give, `states` has those of what runs write."""

import collections
import contextlib
import functools
import gzip
import hashlib
import io
import json
import os
import tarfile

import numpy as np
import tensorflow as tf

from albert.data import dynamic_masking, input_pipeline, instances, record_files, tfrecord
from albert.experiments import blimp, demo_data, model_card, reproduction
from albert.export import saved_model_export, verification
from albert.io import archives, file_io, tables
from albert.model import (
    checkpoints,
    encoder,
    huggingface,
    huggingface_tokenizer,
    layers,
    model_folder,
    sources,
)
from albert.serving import choice_predictor, predictors
from albert.tasks import custom, glue, kinds, pretraining, race, token_classification, word_files
from albert.tasks.squad import answers as squad_answers
from albert.tasks.squad import null_threshold
from albert.text import corpus, corpus_cleaning, text_rules, tokenization
from albert.training import results, run_record, run_session
from tests.fuzz import forgeries, states
from tests.fuzz.reader import Reader, content_of, folder_of, to_json
from tests.support import builders
from tests.support.builders import SPM, TESTDATA, make_model, tiny_config

# --- text ---------------------------------------------------------------------------------------


def _read_table(path):
    for place, row in tables.read_file(path, "train_file"):
        tables.text_of(row, "text", "text_column", place)
        tables.name_of(row, "label", "label_column", place)


def _read_labels_of_rows(path):
    folder = folder_of(path)
    columns = tables.Columns()
    labels = custom.find_labels(folder, {"train": path}, columns)
    task = custom.CustomTask({"train": path}, columns, labels)
    for example in task.iter_examples(None, "train"):
        example.guid.encode()


def _tables():
    rows = [("good bread, and\tmore", "1"), ('a "bad" one', "0"), ("caf\u00e9 \u4e2d\u6587", "2")]
    csv = 'text,label\n"good bread, and more",1\n"a ""bad"" one",0\ncaf\u00e9 \u4e2d,2\n'.encode()
    tsv = "text\tlabel\ngood bread\t1.5\ncaf\u00e9 \u4e2d\t0.5\n".encode()
    jsonl = b"".join(
        json.dumps({"text": text, "label": label}).encode() + b"\n" for text, label in rows
    )
    samples = {"csv": [csv], "tsv": [tsv], "jsonl": [jsonl, jsonl.replace(b'"1"', b"1")]}
    for form, contents in samples.items():
        yield Reader(f"rows.{form}", contents, _read_table)
        yield Reader(f"train.{form}", contents, _read_labels_of_rows)


def _glue():
    for name, file, content in (
        ("SST-2", "train.tsv", "sentence\tlabel\ngood bread\t1\nbad\u00e9 one\t0\n"),
        ("CoLA", "train.tsv", "gj04\t1\t\tA good one.\nbc01\t0\t*\tOne bad a.\n"),
        ("STS-B", "train.tsv", "\t".join(f"h{i}" for i in range(10)) + "\n"
         + "\t".join([*"0123456", "A plane.", "A plane is.", "4.5"]) + "\n"),
        ("MRPC", "train.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA b.\tA c.\n"),
    ):  # fmt: skip

        def read(path, name=name):
            task = glue.get_task(name)
            for example in task.iter_examples(os.path.dirname(folder_of(path)), "train"):
                example.guid.encode()

        yield Reader(f"{glue.get_task(name).folder}/{file}", [content.encode()], read)


def _read_squad(path):
    for is_training in (True, False):
        try:
            examples = squad_answers.read_squad_examples(path, is_training)
        except file_io.InputError as error:
            _must_name(error, path)
            continue
        json.dumps([example.qas_id for example in examples], ensure_ascii=False).encode()


def _race(path):
    data_dir = path[: path.index(f"{os.sep}RACE{os.sep}")]
    for example in race.iter_race_examples(data_dir, "train", middle_only=True):
        example.guid.encode()


def _texts():
    squad = demo_data.squad_files(seed=1)
    small = json.loads(squad["dev"])
    small["data"][0]["paragraphs"] = small["data"][0]["paragraphs"][:2]
    yield Reader("squad.json", to_json(small), _read_squad)
    passage = {
        "article": "A b c.", "id": "high1.txt", "questions": ["What _ ?", "Who?"],
        "options": [["a", "b", "c", "d"]] * 2, "answers": ["A", "D"],
    }  # fmt: skip
    line = json.dumps(passage).encode()
    yield Reader("RACE/train/middle/1.txt", [line], _race)
    second = line.replace(b"high1", b"high2")
    yield Reader("RACE/train/middle/all.txt", [line + b"\n" + second + b"\n"], _race)
    text = "One line.\nTwo caf\u00e9.\n\nNew document \u4e2d\u6587.\n".encode()

    def read_corpus(path):
        for block in corpus.plan_blocks([path], 16, 1000).blocks:
            for segment in block:
                list(corpus.read_lines(segment))

    yield Reader("corpus.txt", [text], read_corpus)
    yield Reader("corpus.txt.gz", [gzip.compress(text, mtime=0)], read_corpus)

    def read_raw(path, encoding="utf-8"):
        cleaning = corpus_cleaning.Cleaning(lines="sentences", min_words=1, encoding=encoding)
        cleaner, counts = corpus_cleaning.Cleaner(cleaning), collections.Counter()
        for document in corpus_cleaning.read_documents(path, cleaning, counts):
            "\n".join(cleaner.clean(document, counts)).encode()

    yield Reader("raw.jsonl", [b'{"text": "One two."}\n{"text": "Three \\u00e9."}\n'], read_raw)
    read_utf16 = functools.partial(read_raw, encoding="utf-16")
    yield Reader("raw.txt", [text.decode().encode("utf-16")], read_utf16)


# --- labels of words, questions, pairs ----------------------------------------------------------


def _read_words(path):
    files = {"train": path}
    labels = token_classification.find_labels(folder_of(path), files, word_files.Columns())
    data = token_classification.Files(files, word_files.Columns(), labels)
    list(data.parts("train", 8, tokenization.FullTokenizer(spm_model_file=str(SPM))))
    for form in ("conll", "jsonl"):
        written = io.StringIO()
        found = (
            word_files.Prediction(row, list(row.labels), [0.5] * len(row.words))
            for row in data.sentences("train")
        )
        word_files.write_predictions(written, form, labels, found)
        written.getvalue().encode()


def _read_choices(path):
    with file_io.open_input(path, "input_file", "rb") as lines:
        for question in choice_predictor.read_questions(lines, path):
            choice = choice_predictor.Choice(question, 0, [0.5] * len(question.options))
            tables.json_line(choice.to_dict()).encode()


def _read_blimp(path):
    def score(sentences):
        return [len(sentence) for sentence in sentences]

    result = blimp.measure(blimp.read(folder_of(path)), score)
    "\n".join(result.table()).encode()
    "".join(map(tables.json_line, result.pairs())).encode()


def _words():
    conll = "-DOCSTART- -X- O\n\nCaf\u00e9 NN B-A\nwas VB O\n\n\u4e2d NN B-A\n".encode()
    rows = [{"words": ["a", "\u00e9"], "labels": ["O", "B-A"], "id": 3}]
    rows.append({"text": "a b", "labels": ["O", "I-A"]})
    yield Reader("words.conll", [conll, conll.replace(b" ", b"\t")], _read_words)
    yield Reader(
        "words.jsonl", [b"".join(json.dumps(r).encode() + b"\n" for r in rows)], _read_words
    )
    question = {"article": "A b.", "question": "What _ ?", "options": ["a", "\u00e9"], "id": "x"}
    yield Reader("choices.jsonl", [json.dumps(question).encode() + b"\n"], _read_choices)
    pair = {"sentence_good": "A b.", "sentence_bad": "B a.", "field": "syntax",
            "linguistics_term": "islands"}  # fmt: skip
    pairs = json.dumps(pair).encode() + b"\n"
    yield Reader("blimp/island.jsonl", [pairs], _read_blimp)
    yield Reader("packed/island.jsonl.gz", [gzip.compress(pairs, mtime=0)], _read_blimp)


# --- vocabularies -------------------------------------------------------------------------------

_SENTENCE = "The caf\u00e9 had 2,000 chairs; \u4e2d\u6587!"


def _read_wordpiece(path):
    tokenizer = tokenization.FullTokenizer(vocab_file=path)
    tokenizer.convert_tokens_to_ids(tokenizer.tokenize(_SENTENCE))


def _read_sentencepiece(path):
    tokenizer = tokenization.FullTokenizer(spm_model_file=path)
    tokenizer.convert_tokens_to_ids(tokenizer.tokenize(_SENTENCE))


def _vocabularies():
    yield Reader("vocab.txt", [content_of(TESTDATA, "tiny_vocab.txt")], _read_wordpiece)
    yield Reader("spiece.model", [SPM.read_bytes()], _read_sentencepiece)


# --- descriptions -------------------------------------------------------------------------------


def _descriptions(work):
    config = json.loads(tiny_config().to_json_string())
    bert = {
        key: config[key] for key in config if key not in ("embedding_size", "num_hidden_groups")
    }
    read = encoder.AlbertConfig.from_json_file
    yield Reader("albert_config.json", to_json(config, {**bert, "model_type": "bert"}), read)
    yield Reader("config.json", to_json({**config, "model_type": "albert"}),
                 lambda path: huggingface.read_config(folder_of(path)))  # fmt: skip
    yield Reader("tokenizer_config.json", to_json({"do_lower_case": True}),
                 lambda path: huggingface_tokenizer.read_rules(folder_of(path)))  # fmt: skip
    yield Reader("best_trial.txt", [b"20:10:0.75"], lambda p: results.read_trial(folder_of(p)))
    block = results.make_block({"eval_accuracy": 0.5}, 10, 0.5).text
    rule = "\n" + "=" * 50 + "\n"
    yield Reader("eval_results.txt", [(block + rule + block + rule).encode()],
                 lambda path: results.read_blocks(folder_of(path)))  # fmt: skip
    threshold = {null_threshold.THRESHOLD: -1.5, "step": 10, "predict_file": "dev.json"}
    checkpoint = os.path.join(work, "one")
    checkpoints.save(checkpoint, make_model("pretraining"))
    yield Reader(null_threshold.FILE_NAME, to_json(threshold),
                 lambda path: null_threshold.read(os.path.join(folder_of(path), "one")),
                 _files(checkpoint, "one"))  # fmt: skip
    pretraining = {"version": model_folder.VERSION, "sentence_task": "sop"}
    yield Reader(sources.PRETRAINING_NAME, to_json(pretraining),
                 lambda path: model_folder.sentence_tasks(folder_of(path)),
                 _files(checkpoint, "model.ckpt-best"))  # fmt: skip


def _read_record(path):
    """As a resumed run, its repetition and a model card read it."""
    record = run_record.read(folder_of(path))
    run_record.read_metrics(folder_of(path))
    json.dumps(reproduction.changed_inputs(record), ensure_ascii=False).encode()
    with contextlib.suppress(reproduction.NothingToRepeat):
        reproduction.command(record, "out")
        reproduction.compare(folder_of(path), folder_of(path))
    card = os.path.join(folder_of(path), "card")
    file_io.make_dirs(card)
    fields = model_card.CardFields()
    model_card.write(card, folder_of(path), model_card.transformers_form("encoder"), 2, fields)
    recorder = run_session.Recorder(record["script"], ["x"], record["flags"], {})
    with recorder.session(folder_of(path), ["train"], {}):
        run_record.start_training(folder_of(path), 1)


def _run_records(work):
    folder = os.path.join(work, "run")
    file_io.make_dirs(folder)
    values = {"output_dir": "out", "seed": 1, "learning_rate": 1e-5, "do_train": True}
    flags = {name: {"value": value, "source": "caller"} for name, value in values.items()}
    inputs = {"vocabulary": (str(SPM), [str(SPM)]), "init_checkpoint": ("x", ["x.a", "x.b"])}
    for _ in range(2):
        recorder = run_session.Recorder("run_classifier", ["python"], flags, inputs)
        with recorder.session(folder, ["train", "eval"], {}):
            run_record.set_model(folder, "sst-2", "eval_accuracy", 10, 5)
            run_record.start_training(folder, 0)
            run_record.append_training(folder, 2, 0.5, {"loss": 0.5})
            run_record.append_evaluation(folder, 2, "model.ckpt-2", {"eval_accuracy": 0.5})
            run_record.set_result(folder, 2, {"eval_accuracy": 0.5})
    files = {name: content_of(folder, name) for name in (run_record.RUN, run_record.METRICS)}
    for name, content in files.items():
        siblings = {other: value for other, value in files.items() if other != name}
        yield Reader(name, [content], _read_record, siblings)


def _predict(path):
    predictor = predictors.TextPredictor(folder_of(path))
    len(predictor.labels)


def _model_folder(work):
    folder = os.path.join(work, "folder")
    row = custom.CustomTask({}, tables.Columns(), ("bad", "good"))
    source = sources.Source(None, None, str(SPM), None, text_rules.TextRules(True))
    settings = custom.settings_of(row, 32, 0.1)
    kinds.write_folder(folder, glue.KIND, tiny_config(), source, settings)
    model = glue.make_task(row).build_model(tiny_config(), layers.Compute(), 1)
    checkpoints.save(os.path.join(folder, "model.ckpt-best"), model)
    files = {name: content_of(folder, name) for name in file_io.listdir(folder)}
    for name in ("model.json", "labels.json", "albert_config.json"):
        siblings = {other: content for other, content in files.items() if other != name}
        yield Reader(f"model/{name}", [files[name]], _predict, {
            f"model/{other}": content for other, content in siblings.items()
        })  # fmt: skip


# --- binary files -------------------------------------------------------------------------------


def _must_name(error, path):
    """Refuses a message that does not say which file is meant."""
    if os.path.basename(path) not in str(error):
        raise AssertionError(f"the message does not name {path}: {error}")


SPECS = (
    input_pipeline.FeatureSpec("input_ids", "int64", (4,), sequence=True),
    input_pipeline.FeatureSpec("input_mask", "int64", (4,), sequence=True),
)


@functools.cache
def _examples(path, kind, count):
    """Batches of a file, which is read again each time; building the pipeline takes far longer."""
    return input_pipeline.eval_input_fn([path], SPECS)({"batch_size": 2})


def _read_records(path, specs=SPECS):
    record_files.check_files([path], specs, "the hint")
    (kind,) = record_files.with_compression([path])[1]
    with record_files.report_damage([path]):
        list(_examples(path, kind, record_files.count_records([path])))


@functools.cache
def _whole_rows(path):
    """(Content of a file of records, batches of it without an end)."""
    rows = [{"input_ids": [i, 2, 0, 0], "input_mask": [1, 1, 0, 0]} for i in range(5)]
    record_files.write(path, SPECS, rows, {})
    file_io.remove(record_files.manifest_path(path))
    batches = input_pipeline.train_input_fn([path], SPECS, 1)({"batch_size": 2})
    return content_of(folder_of(path), os.path.basename(path)), batches


def _read_changing_records(path):
    """The content takes the place of whole records while these are read."""
    changing = f"{path}.rows"
    whole, batches = _whole_rows(changing)
    file_io.write_bytes(changing, whole)
    with record_files.report_damage([changing]):
        iterator = iter(batches)
        next(iterator)
        file_io.copy(path, changing)
        for _ in range(20):
            next(iterator)


@functools.cache
def _pretraining(path):
    """(`contracts.Data` of one file of three records, its training batches)."""
    found = dynamic_masking.RecordFiles([path], False, {})
    lengths = (builders.PRETRAINING_LENGTH, builders.PREDICTIONS)
    limits = pretraining.limits(builders.PRETRAINING_CONFIG)
    reading = pretraining.Reading(lengths, limits=limits)
    data = pretraining.make_data({"train": found, "dev": found}, reading, 9)
    input_fn = input_pipeline.train_input_fn([path], data.specs("train"), 1, data.train_input)
    return data, input_fn({"batch_size": 3})


def _read_forged_record(path):
    """The content is a record between two others, with right checksums."""
    good = [record_files.encode(builders.PRETRAINING_SPECS, row) for row in _pretraining_rows()]
    content = content_of(folder_of(path), os.path.basename(path))
    if len(content) < 4:
        return  # too short to be framed
    forged = f"{path}.records"
    file_io.write_bytes(forged, b"".join(tfrecord.frame([good[0], content, good[1]])))
    data, batches = _pretraining(forged)
    with data.reading([forged]):
        for batch in batches.take(2):
            for name, limit in pretraining.limits(builders.PRETRAINING_CONFIG).items():
                values = batch[name].numpy()
                assert values.min() >= 0 and values.max() < limit, f"{name}: {values}"
            assert np.isfinite(batch["masked_lm_weights"]).all()


def _pretraining_rows():
    return list(builders.pretraining_rows(2))


def _read_shards(path):
    list(map(str, verification.check(folder_of(path))))
    shard = os.path.join(folder_of(path), "part-00000-of-00002")
    record_files.check_files([shard], SPECS, "the hint")


def _shards(plain):
    names = [f"part-0000{number}-of-00002" for number in range(2)]
    sums = {"instances": 5, "bytes": len(plain), "sha256": hashlib.sha256(plain).hexdigest()}
    manifest = {"version": 1, "shards": [{"name": name, **sums} for name in names]}
    return Reader(
        "part.manifest.json", to_json(manifest), _read_shards, dict.fromkeys(names, plain)
    )


def _records(work):
    path = os.path.join(work, "rows.tf_record")
    rows = [{"input_ids": [i, 2, 0, 0], "input_mask": [1, 1, 0, 0]} for i in range(5)]
    record_files.write(path, SPECS, rows, {"length": 4}, list("abcde"))
    plain = content_of(work, "rows.tf_record")
    yield Reader("rows.tf_record", [plain], _read_records, forge=forgeries.records)
    yield Reader("rows.gz", [gzip.compress(plain, mtime=0)], _read_records, forge=forgeries.records)
    yield Reader("changing.tf_record", [plain], _read_changing_records)
    example = record_files.encode(builders.PRETRAINING_SPECS, _pretraining_rows()[1])
    yield Reader("example", [example], _read_forged_record)
    yield _shards(plain)

    def read_manifest(path):
        path = path.removesuffix(".manifest.json")
        record_files.cached_with_ids(path, SPECS, {"length": 4}, lambda: zip("abcde", rows))  # noqa: B905
        record_files.read_ids(path)

    manifest = content_of(work, "rows.tf_record.manifest.json")
    yield Reader("rows.tf_record.manifest.json", [manifest], read_manifest,
                 {"rows.tf_record": plain})  # fmt: skip
    examples = instances.serialize_compact(
        np.array([[2, 5, 6, 3], [2, 7, 3, 0]]), np.array([4, 3]),
        np.array([[False, False, True, True], [False] * 4]), np.array([1, 0]), 7,
    )  # fmt: skip
    with tf.io.TFRecordWriter(os.path.join(work, "compact")) as writer:
        for example in examples:
            writer.write(example)

    def read_compact(path):
        specs = instances.compact_feature_specs()
        record_files.check_files([path], specs, "the hint")
        with record_files.report_damage([path]):
            for serialized in record_files.serialized_examples([path]).batch(2):
                input_pipeline.parse(specs, serialized)

    yield Reader("compact.tf_record", [content_of(work, "compact")], read_compact,
                 forge=forgeries.records)  # fmt: skip


def _save(work, name):
    prefix = os.path.join(work, name)
    checkpoints.save(prefix, make_model("pretraining"))
    return prefix


def _walk_once(model):
    """Keeps a model's lists of variables: finding them takes longer than reading a file."""
    kept = {name: getattr(model, name) for name in ("variables", "trainable_variables")}
    model.__class__ = type("Walked", (type(model),), kept)
    return model


def _files(prefix, name):
    folder, base = os.path.split(prefix)
    found = [other for other in file_io.listdir(folder) if other.startswith(f"{base}.")]
    return {name + other.removeprefix(base): content_of(folder, other) for other in found}


def _checkpoints(work):
    model = _walk_once(make_model("pretraining"))

    def restore(path):
        checkpoints.restore(model, path)

    files = _files(_save(work, "model.ckpt-7"), "model.ckpt-7")
    del files["model.ckpt-7.meta"]  # which is never read
    for name, content in files.items():
        # Next to its manifest no other content of a file would get any further.
        siblings = {
            other: value
            for other, value in files.items()
            if other not in (name, "model.ckpt-7.manifest.json")
        }
        yield Reader(name, [content], restore, siblings)
    tensors = {
        name: variable.numpy() for name, variable in checkpoints.variables_by_name(model).items()
    }
    from safetensors.numpy import save

    converted = huggingface.convert_weights(tensors, model.config, "pretraining")
    yield Reader("model.safetensors", [save(converted)], restore)
    yield Reader("model.safetensors.index.json",
                 to_json({"weight_map": dict.fromkeys(converted, "part.safetensors")}), restore,
                 {"part.safetensors": save(converted)})  # fmt: skip


def _hub_modules(work):
    root = tf.Module()
    root.value = tf.Variable([1.0, 2.0], name="value")
    info = tf.function(
        lambda: {"do_lower_case": tf.constant(True)}, input_signature=[], autograph=False
    )
    folder = saved_model_export.save_model(root, {"tokenization_info": info}, work, "module")
    names = ["saved_model.pb", "variables/variables.index"]
    names.append("variables/variables.data-00000-of-00001")
    files = {f"module/{name}": content_of(folder, name) for name in names}
    files["module/assets/albert_config.json"] = tiny_config().to_json_string().encode()
    files["module/assets/30k-clean.model"] = SPM.read_bytes()

    def locate(path):
        module = path[: path.index("module") + len("module")]
        source = sources.locate(hub_handle=module)
        checkpoints.restore(root, source.checkpoint, strict=False)

    for name in map("module/{}".format, names):
        siblings = {other: content for other, content in files.items() if other != name}
        yield Reader(name, [files[name]], locate, siblings)


def _archives():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("module/a.txt", "module/b/c.txt"):
            info = tarfile.TarInfo(name)
            info.size = 100
            tar.addfile(info, io.BytesIO(b"x" * 100))

    def unpack(path):
        archives.unpack_archive(path, os.path.join(folder_of(path), "cache"))

    yield Reader("module.tar.gz", [buffer.getvalue()], unpack, forge=forgeries.archive)


def all_readers(work):
    """{name: `Reader`}; samples that are made by the toolkit itself are made in the folder."""
    file_io.make_dirs(work)
    found = [
        *_tables(), *_glue(), *_texts(), *_words(), *_vocabularies(), *_descriptions(work),
        *_model_folder(work), *_records(work), *_checkpoints(work), *_hub_modules(work),
        *_archives(), *_run_records(work), *states.readers(os.path.join(work, "states")),
    ]  # fmt: skip
    return {reader.name: reader for reader in found}
