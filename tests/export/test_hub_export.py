"""Hub modules of our own: what they compute, how they train, and that they are read again."""

import dataclasses
import importlib.util
import logging
import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert import export_to_tfhub
from albert.export import hub_export
from albert.io import file_io
from albert.model import checkpoints, encoder, heads, model_folder, pretraining_heads, sources
from albert.text import text_rules, tokenization
from tests.support import builders, processes

CONFIG = builders.tiny_config(
    num_hidden_layers=2, intermediate_size=24, max_position_embeddings=32, initializer_range=0.3,
    hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
LENGTH = 12


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder, model) of a pre-trained model with its vocabulary."""
    folder = tmp_path_factory.mktemp("trained")
    model = pretraining_heads.PretrainingModel(CONFIG, seed=1)
    rng = np.random.default_rng(7)
    for variable in model.variables:
        variable.assign_add(rng.normal(0, 0.1, variable.shape).astype(np.float32))
    builders.write_model(folder, model, CONFIG)
    (folder / "30k-clean.vocab").write_text("<pad>\t0\n")
    return folder, model


@pytest.fixture(scope="module")
def module(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "module"
    builders.run(export_to_tfhub, albert_directory=trained[0], export_path=f"{path}/")
    return path


@pytest.fixture(scope="module")
def loading(module):
    """(the loaded module, what was logged meanwhile)."""
    with pytest.MonkeyPatch.context() as patch:
        logged = []
        patch.setattr(logging.Logger, "handle", lambda logger, record: logged.append(record))
        return tf.saved_model.load(str(module)), logged


@pytest.fixture(scope="module")
def loaded(loading):
    return loading[0]


def make_inputs(names=("input_ids", "input_mask", "segment_ids")):
    rng = np.random.default_rng(3)
    mask = np.ones([3, LENGTH], np.int32)
    mask[2, 7:] = 0
    columns = (
        rng.integers(5, 400, [3, LENGTH]).astype(np.int32) * mask,
        mask,
        rng.integers(0, 2, [3, LENGTH]).astype(np.int32) * mask,
    )
    return {name: tf.constant(column) for name, column in zip(names, columns, strict=True)}


TEXT_INTERFACE = ("input_word_ids", "input_mask", "input_type_ids")
POSITIONS = tf.constant([[1, 3], [0, 2], [5, 6]])


def expected(model):
    inputs = make_inputs()
    encoded = model.albert(inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"])
    outputs = model({**inputs, "masked_lm_positions": POSITIONS})
    return {
        "sequence_output": encoded.sequence_output,
        "pooled_output": encoded.pooled_output,
        "encoder_outputs": encoded.all_encoder_layers,
        "mlm_logits": outputs["masked_lm_logits"],
        "sop_log_probs": outputs["sentence_order_log_probs"],
    }


def assert_close(found, wanted):
    assert found
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_signatures_are_those_of_the_released_modules(loaded, trained, golden):
    wanted, inputs = expected(trained[1]), make_inputs()
    names = {
        "tokens": {"sequence_output", "pooled_output"},
        "serving_default": {"sequence_output", "pooled_output"},
        "sop": {"sequence_output", "pooled_output", "sop_log_probs"},
        "mlm": {"sequence_output", "pooled_output", "mlm_logits"},
    }
    released = tf.saved_model.load(str(golden / "hub_tf1"), tags=[])
    assert set(released.signatures) == {"tokens", "sop", "mlm", "tokenization_info"}
    for signature, outputs in names.items():
        extra = {"mlm_positions": POSITIONS} if signature == "mlm" else {}
        found = loaded.signatures[signature](**inputs, **extra)
        assert set(found) == outputs
        assert_close(found, wanted)
        if signature in released.signatures:
            theirs = released.signatures[signature]
            assert set(theirs.structured_outputs) == outputs
            ours = loaded.signatures[signature]
            assert ours.structured_input_signature[1].keys() == (
                theirs.structured_input_signature[1].keys()
            )
    info = loaded.signatures["tokenization_info"]()
    assert bool(info["do_lower_case"]) is True
    assert info["vocab_file"].numpy().endswith(b"assets/30k-clean.model")


def test_assets_are_those_of_the_released_modules(module):
    names = sorted(path.name for path in (module / "assets").iterdir())
    assert names == ["30k-clean.model", "30k-clean.vocab", "albert_config.json"]
    assert "# module\n" in (module / "README.md").read_text()
    assert not [p for p in module.parent.iterdir() if p != module]


@pytest.mark.parametrize("interface", [("input_ids", "input_mask", "segment_ids"), TEXT_INTERFACE])
def test_the_object_is_called_under_either_interface(loaded, trained, interface):
    wanted, inputs = expected(trained[1]), make_inputs(interface)
    found = loaded(inputs, training=False)
    assert set(found) == {"sequence_output", "pooled_output", "encoder_outputs"}
    assert len(found["encoder_outputs"]) == CONFIG.num_hidden_layers
    assert_close(found, wanted)
    assert_close(loaded(inputs), wanted)
    position_name = "mlm_positions" if "input_ids" in inputs else "masked_lm_positions"
    assert_close(loaded.mlm({**inputs, position_name: POSITIONS}, training=False), wanted)
    assert_close(loaded.sop(inputs, training=False), wanted)


def test_training_drops_and_evaluation_does_not(loaded):
    inputs = make_inputs()
    still = [loaded(inputs, training=False)["pooled_output"] for _ in range(2)]
    np.testing.assert_array_equal(*still)
    moving = [loaded(inputs, training=True)["pooled_output"] for _ in range(2)]
    assert np.abs(moving[0] - moving[1]).max() > 1e-3


@pytest.mark.slow
def test_steps_on_a_loaded_module_lower_the_loss(module):
    tensorflow_hub = pytest.importorskip("tensorflow_hub")
    hub_encoder = tensorflow_hub.load(str(module))
    assert len(hub_encoder.trainable_variables) == len(encoder.AlbertModel(CONFIG).variables)
    assert len(hub_encoder.mlm.trainable_variables) == len(hub_encoder.trainable_variables) + 5
    assert hub_encoder.regularization_losses == []
    before = hub_encoder.trainable_variables[0].numpy()
    head = tf.Variable(tf.zeros([CONFIG.hidden_size, 2]))

    def find_loss(training):
        logits = hub_encoder(make_inputs(), training=training)["pooled_output"] @ head
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(tf.constant([0, 1, 1]), logits)
        )

    first = find_loss(training=False)
    # The first step has dropout; the others not, as its masks differ from run to run.
    for step in range(40):
        with tf.GradientTape() as tape:
            loss = find_loss(training=step == 0)
        variables = [*hub_encoder.trainable_variables, head]
        gradients = tape.gradient(loss, variables)
        assert all(gradient is not None for gradient in gradients)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.02 * tf.convert_to_tensor(gradient))
    assert find_loss(training=False) < 0.5 * first
    assert np.abs(hub_encoder.trainable_variables[0].numpy() - before).max() > 0


def assert_same_gradients(hub_encoder, model, training):
    """Outputs and gradients of a loaded module are those of the model it was made from."""
    inputs = make_inputs()
    with tf.GradientTape() as tape:
        theirs = hub_encoder(inputs, training=training)
        loss = sum(
            tf.reduce_sum(theirs[name] ** 2) for name in ("sequence_output", "pooled_output")
        )
    found = tape.gradient(loss, hub_encoder.trainable_variables)
    with tf.GradientTape() as tape:
        ours = model.albert(*inputs.values(), training=training)
        loss = tf.reduce_sum(ours.sequence_output**2) + tf.reduce_sum(ours.pooled_output**2)
    wanted = tape.gradient(loss, list(model.albert.variables))
    np.testing.assert_allclose(theirs["pooled_output"], ours.pooled_output, atol=1e-5)
    for variable, one, other in zip(model.albert.variables, found, wanted, strict=True):
        one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
        assert tf.reduce_max(tf.abs(other)) > 0, variable.name
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=variable.name)


@pytest.mark.slow
def test_loading_warns_of_nothing(loading):
    hub_encoder, logged = loading
    assert not logged
    # Gradients of gradients also exist.
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(hub_encoder(make_inputs())["pooled_output"])
        first = inner.gradient(loss, hub_encoder.trainable_variables[-1])
        size = tf.reduce_sum(tf.square(tf.convert_to_tensor(first)))
    assert outer.gradient(size, hub_encoder.trainable_variables[-1]) is not None


def test_gradients_are_those_of_the_model(trained, loaded):
    assert_same_gradients(loaded, trained[1], training=False)


@pytest.mark.slow
def test_gradients_of_training_are_those_of_the_model(trained, tmp_path):
    """Also through the functions with gradients of their own, compiled ones among them."""
    config = dataclasses.replace(
        CONFIG, hidden_size=192, intermediate_size=200, initializer_range=0.05,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = pretraining_heads.PretrainingModel(config, seed=1, sentence_task="none")
    source = sources.locate(checkpoint=str(trained[0] / "model.ckpt-best"))
    path = hub_export.export_module(model, source, str(tmp_path / "module"))
    assert_same_gradients(tf.saved_model.load(path), model, training=True)


@pytest.mark.slow
def test_a_keras_layer_takes_the_inputs_of_text_encoders(tmp_path):
    """As the programs for Lambert are written: a BERT behind hub.KerasLayer, and one step."""
    if not importlib.util.find_spec("tf_keras"):
        pytest.skip("hub.KerasLayer needs tf_keras")
    config = dataclasses.replace(
        CONFIG, embedding_size=16, num_hidden_groups=2, max_position_embeddings=128,
        hidden_act="gelu_erf",
    )  # fmt: skip
    model = pretraining_heads.PretrainingModel(config, seed=1, sentence_task="none")
    vocabulary = str(builders.TESTDATA / "tiny_vocab.txt")
    source = sources.Source(None, None, None, vocabulary, text_rules.TextRules(True))
    path = hub_export.export_module(model, source, str(tmp_path / "module"))
    done = processes.run(
        [
            sys.executable,
            str(builders.TESTDATA / "keras_program.py"),
            path,
            str(tmp_path / "outputs.npz"),
        ],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "outputs.npz")
    wanted = model.albert(*(found[name] for name in TEXT_INTERFACE))
    assert found["pooled_output"].shape == (8, config.hidden_size)
    np.testing.assert_array_equal(found["encoder_outputs"][-1], found["sequence_output"])
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(found[name], getattr(wanted, name), atol=1e-5, err_msg=name)
    np.testing.assert_allclose(
        found["encoder_outputs"], tf.stack(wanted.all_encoder_layers), atol=1e-5
    )
    assert found["trained"] == len(model.albert.variables)
    before, after = found["losses"]
    assert after < before


def test_our_own_loader_takes_a_module_back_bit_by_bit(module, trained):
    source = sources.locate(hub_handle=str(module))
    assert source.checkpoint == str(module / "variables" / "variables")
    assert source.rules.do_lower_case is True
    assert encoder.AlbertConfig.from_json_file(source.config_file) == CONFIG
    assert tokenization.FullTokenizer(spm_model_file=source.spm_model_file).vocab_size == 400
    other = pretraining_heads.PretrainingModel(CONFIG, seed=2)
    report = checkpoints.restore(other, source.checkpoint, allow_new_heads=False)
    assert report.new == report.unused == []
    wanted = checkpoints.variables_by_name(trained[1])
    for name, variable in checkpoints.variables_by_name(other).items():
        np.testing.assert_array_equal(variable, wanted[name], err_msg=name)


def test_mistakes_are_named(tmp_path, trained, module, run_script):
    with pytest.raises(file_io.InputError, match="module already exists; delete it or give anoth"):
        run_script(export_to_tfhub, albert_directory=trained[0], export_path=module)
    with pytest.raises(file_io.InputError, match="there is no checkpoint .*model.ckpt-best.*holds"):
        run_script(export_to_tfhub, albert_directory=tmp_path, export_path=tmp_path / "x")
    model = heads.ClassifierModel(CONFIG, 2, seed=1)
    checkpoints.save(str(tmp_path / "model.ckpt-best"), model)
    flags = {"albert_directory": tmp_path, "export_path": tmp_path / "x"}
    with pytest.raises(file_io.InputError, match="albert_config_file and .* must be given"):
        run_script(export_to_tfhub, **flags)
    for name in ("albert_config.json", "30k-clean.model"):
        (tmp_path / name).write_bytes((trained[0] / name).read_bytes())
    with pytest.raises(file_io.InputError, match="lacks .*cls/predictions.* masked words"):
        run_script(export_to_tfhub, **flags)
    assert not (tmp_path / "x").exists()


def test_an_option_without_effect_is_said_to_be_one(
    trained, tmp_path, run_script, monkeypatch, caplog
):
    made = []

    def export(*arguments):
        made.append(arguments)
        (tmp_path / "x").mkdir()

    monkeypatch.setattr(hub_export, "export_module", export)
    with caplog.at_level("INFO", logger="absl"):
        run_script(
            export_to_tfhub, albert_directory=trained[0], export_path=tmp_path / "x",
            use_einsum=False,
        )  # fmt: skip
    assert "nouse_einsum has no effect" in caplog.text
    assert len(made) == 1


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["tokenizer", "wordpiece"])
def test_strings_become_inputs_of_the_module(loaded, tmp_path, vocabulary, request):
    tensorflow_text = pytest.importorskip("tensorflow_text")
    from albert.tasks import glue

    tokenizer = request.getfixturevalue(vocabulary)
    path = hub_export.export_preprocessing(tokenizer, 16, str(tmp_path / "preprocessing"))
    assert tensorflow_text
    preprocess = tf.saved_model.load(path)
    first = ["The old harbour", "In 1999, bread; " * 9, ""]
    second = ["and the town", "a long text about bread " * 5, "x"]
    for texts in ([first], [first, second]):
        given = [tf.constant(column) for column in texts]
        found = preprocess(given if len(given) > 1 else given[0])
        assert set(found) == set(TEXT_INTERFACE)
        for row, parts in enumerate(zip(*texts, strict=True)):
            example = glue.InputExample("0", *(*parts, None)[:2], "0")
            task = glue.get_task("sst-2")
            wanted = glue.convert_example(example, task, 16, tokenizer)
            for ours, theirs in zip(
                ("input_ids", "input_mask", "segment_ids"), TEXT_INTERFACE, strict=True
            ):
                np.testing.assert_array_equal(found[theirs][row], wanted[ours], err_msg=theirs)
        assert loaded(found, training=False)["pooled_output"].shape == (3, CONFIG.hidden_size)
    assert preprocess.tokenize(tf.constant(first)).to_list()[0] == tokenizer.encode(first[0])
    with pytest.raises(file_io.InputError, match="preprocessing already exists"):
        hub_export.export_preprocessing(tokenizer, 16, path)


def test_outputs_are_checked_before_any_is_written(trained, tmp_path, run_script):
    flags = {"albert_directory": trained[0], "preprocessing_path": tmp_path / "p"}
    (tmp_path / "there").mkdir()
    for path, message in (("there", "there already exists"), ("p/", "p is named twice")):
        with pytest.raises(file_io.InputError, match=message):
            run_script(export_to_tfhub, **flags, export_path=f"{tmp_path}/{path}")
    flags = {"albert_directory": trained[0], "export_path": tmp_path / "module"}
    with pytest.raises(file_io.InputError, match="--max_seq_length is for --preprocessing_path"):
        run_script(export_to_tfhub, **flags, max_seq_length=64)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def export_with(task, folder, run_script, **flags):
    """Exports a model with a sentence task and a WordPiece vocabulary; returns the model."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    model = pretraining_heads.PretrainingModel(config, seed=1, sentence_task=task)
    checkpoints.save(str(folder / "model.ckpt-7"), model)
    model_folder.write_pretrained(str(folder), config, task)
    (folder / "vocab.txt").write_bytes((builders.TESTDATA / "tiny_vocab.txt").read_bytes())
    run_script(
        export_to_tfhub, albert_directory=folder, checkpoint_name="model.ckpt-7",
        export_path=folder / "module", **flags,
    )  # fmt: skip
    return model


@pytest.mark.slow
def test_casing_wordpiece_and_the_lack_of_a_sentence_task_are_kept(tmp_path, run_script, caplog):
    with caplog.at_level("INFO", logger="absl"):
        model = export_with("none", tmp_path, run_script, do_lower_case=False)
    assert "was trained with --sentence_task=none: the module has no `sop`" in caplog.text
    loaded = tf.saved_model.load(str(tmp_path / "module"))
    assert hasattr(loaded, "mlm") and not hasattr(loaded, "sop")
    assert set(loaded.signatures) == {"tokens", "mlm", "serving_default", "tokenization_info"}
    source = sources.locate(hub_handle=str(tmp_path / "module"))
    assert source.rules.do_lower_case is False
    assert source.vocab_file.endswith("assets/vocab.txt") and source.spm_model_file is None
    again = pretraining_heads.PretrainingModel(model.config, seed=2, sentence_task="none")
    assert checkpoints.restore(again, source.checkpoint, allow_new_heads=False).new == []


def test_what_a_head_has_learned_is_said(tmp_path, run_script, monkeypatch, caplog):
    made = []

    def export(model, *_):
        made.append(model)
        (tmp_path / "module").mkdir()

    monkeypatch.setattr(hub_export, "export_module", export)
    with caplog.at_level("INFO", logger="absl"):
        export_with("nsp", tmp_path, run_script)
    assert made[0].sentence_name == "next_sentence"
    said = "trained with --sentence_task=nsp: the module answers in `sop` what follows a text"
    assert said in caplog.text
