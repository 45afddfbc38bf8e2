"""Settings of training commands: devices, computation, memory, and files of models."""

import dataclasses
import functools
import importlib.metadata  # noqa: F401  loaded before a test changes sys.path
import tarfile

import pytest
import tensorflow as tf
from absl import flags

from albert.cli import command_flags, model_settings, options, training
from albert.io import file_io
from albert.model import encoder, layers
from albert.training import distribution, memory
from tests.support import command_lines

COMMAND = command_flags.CommandLine("run_classifier", [], [], {})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(training.Settings):
    """Settings with flags of a model to use."""

    output_dir: str = options.flag("out", "Folder.")
    model: model_settings.ModelToUse = options.group(model_settings.ModelToUse)


@pytest.fixture
def settings():
    return functools.partial(command_lines.read, Settings)


def test_one_device_by_default(settings):
    assert training.make_strategy(settings(), COMMAND).num_replicas_in_sync == 1


def test_contradictory_devices_are_refused(settings):
    with pytest.raises(file_io.InputError, match="--use_tpu contradicts .*strategy=mirrored"):
        training.make_strategy(settings("--use_tpu", "--distribution_strategy=mirrored"), COMMAND)


def test_flags_of_a_tpu_that_is_not_used_are_named(settings, caplog):
    training.make_strategy(settings("--tpu_name=pod", "--master=grpc://host:8470"), COMMAND)
    assert "--tpu_name, --master: not read without --use_tpu; this run uses no TPU" in caplog.text
    caplog.clear()
    training.make_strategy(settings(), COMMAND)
    assert "TPU" not in caplog.text


def test_sequences_must_fit_the_table_of_positions():
    config = encoder.AlbertConfig(vocab_size=10, max_position_embeddings=128)
    model_settings.check_seq_length(128, config)
    with pytest.raises(file_io.InputError, match="--max_seq_length=129 is above .* of 128"):
        model_settings.check_seq_length(129, config)


def test_counts_are_checked(settings):
    with pytest.raises(file_io.InputError, match="--max_seq_length=0 must be at least 1"):
        settings("--max_seq_length=0")


def test_flags_name_the_files_of_a_model(settings, golden):
    found = settings(f"--albert_hub_module_handle={golden / 'hub_tf1'}").model.find()
    assert found.spm_model_file == str(golden / "hub_tf1" / "assets" / "30k-clean.model")
    with pytest.raises(file_io.InputError, match="albert_config_file .*must be given"):
        settings("--albert_hub_module_handle=", "--from_scratch").model.find()


def test_the_cache_of_hub_modules_can_be_named(settings, golden, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "of the environment"))
    with tarfile.open(tmp_path / "module.tar.gz", "w:gz") as tar:
        tar.add(golden / "hub_tf1", ".")
    handle = f"--albert_hub_module_handle={tmp_path / 'module.tar.gz'}"
    for folder, *arguments in (
        ("of the environment", handle),
        ("of the flag", handle, f"--tfhub_cache_dir={tmp_path / 'of the flag'}"),
    ):
        checkpoint = settings(*arguments).model.find().checkpoint
        assert checkpoint.startswith(str(tmp_path / folder))
    # As tensorflow_hub does when it is imported later.
    values = command_lines.define(model_settings.ModelFiles)
    flags.DEFINE_string("tfhub_cache_dir", None, "Of tensorflow_hub.", flag_values=values)


def test_runs_without_a_hub_module_refuse_the_word_for_its_file(settings):
    model = settings("--spm_model_file=from_tf_hub").model
    with pytest.raises(file_io.InputError, match="spm_model_file=from_tf_hub stands for"):
        model.find_for_run(False, "out", "classifier")


@pytest.mark.parametrize(
    ("batch", "steps", "recompute", "parts"),
    [(15, 1, False, 1), (16, 1, False, 2), (16, 2, False, 1), (16, 1, True, 1)],
)
def test_large_batches_are_computed_in_parts(batch, steps, recompute, parts):
    compute = training.Compute(
        precision="mixed_bfloat16", recompute=recompute, gradient_accumulation_steps=steps
    )
    found = compute.for_batch(batch * 128)
    assert found == layers.Compute("bfloat16", True, recompute, parts)


def test_workers_compare_all_flags(settings, monkeypatch):
    told = {}
    monkeypatch.setattr(distribution, "check_agreement", lambda strategy, all: told.update(all))
    flag_of_run = {"value": 7, "source": "command line"}
    command = command_flags.CommandLine("run_classifier", [], [], {"seed": flag_of_run})
    training.make_strategy(settings(), command)
    assert told == {"seed": 7}


def test_a_seed_beyond_32_bits_is_refused(settings):
    with pytest.raises(flags.IllegalFlagValueError, match="seed=2147483648.*2147483647"):
        settings(f"--seed={2**31}")


def test_waiting_for_checkpoints_is_for_evaluation_alone(settings):
    loop = settings("--eval_wait_secs=5").loop
    loop.check_waiting(do_train=False, do_eval=True)
    for stages in ((True, True), (False, False)):
        with pytest.raises(file_io.InputError, match="--eval_wait_secs: only for --do_eval alone"):
            loop.check_waiting(*stages)


@pytest.mark.parametrize("gains", [True, False])
def test_memory_is_estimated_for_the_parts_that_are_computed(settings, monkeypatch, gains):
    told = {}
    monkeypatch.setattr(distribution, "gains_from_parts", lambda strategy: gains)
    monkeypatch.setattr(
        memory,
        "report",
        lambda *arguments: told.update(shapes=arguments[0], make=arguments[1], rest=arguments[2:]),
    )
    given = ("--train_batch_size=16", "--max_seq_length=128", "--optimizer=lamb")
    found = settings("--recompute", "--estimate_memory", *given)
    with pytest.raises(SystemExit):
        training.end_with_estimate(found, "config", tf.distribute.get_strategy())
    assert told["shapes"] == memory.Shapes("config", 16, 128, optimizer="lamb")
    assert told["rest"] == (1, True)
    assert told["make"](1, False) == layers.Compute("float32", True, False, 2 if gains else 1)
    for saving in ((2, False), (1, True)):
        assert told["make"](*saving) == layers.Compute("float32", True, saving[1], 1)
