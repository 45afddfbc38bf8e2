"""What the scripts share: checks of flags, and how a script ends."""

import importlib.metadata  # noqa: F401  loaded before a test changes sys.path
import tarfile
import types

import pytest
import tensorflow as tf
from absl import flags

from albert.cli import common_flags, optimizer_flags
from albert.io import file_io
from albert.model import encoder, layers
from albert.training import distribution, memory


@pytest.fixture
def values():
    found = flags.FlagValues()
    common_flags.define_device_flags(found)
    common_flags.define_run_flags(found)
    common_flags.define_model_flags(found)
    flags.DEFINE_integer("max_seq_length", 128, "Tokens.", flag_values=found)
    return lambda *arguments: found(["script", *arguments]) and found


def test_one_device_by_default(values):
    assert common_flags.strategy(values()).num_replicas_in_sync == 1


def test_contradictory_devices_are_refused(values):
    with pytest.raises(file_io.InputError, match="--use_tpu contradicts .*strategy=mirrored"):
        common_flags.strategy(values("--use_tpu", "--distribution_strategy=mirrored"))


def test_sequences_must_fit_the_table_of_positions(values):
    config = encoder.AlbertConfig(vocab_size=10, max_position_embeddings=128)
    common_flags.check_seq_length(values(), config)
    with pytest.raises(file_io.InputError, match="--max_seq_length=129 is above .* of 128"):
        common_flags.check_seq_length(values("--max_seq_length=129"), config)


def test_counts_and_presence_are_checked(values):
    common_flags.require_positive(values(), "max_seq_length")
    with pytest.raises(file_io.InputError, match="--max_seq_length=0 must be at least 1"):
        common_flags.require_positive(values("--max_seq_length=0"), "max_seq_length")
    with pytest.raises(file_io.InputError, match="^--tpu_name, --tpu_zone must be given$"):
        common_flags.require_given(
            values("--max_seq_length=5"), "tpu_name", "max_seq_length", "tpu_zone"
        )


def test_flags_name_the_files_of_a_model(values, golden):
    found = common_flags.source(values(f"--albert_hub_module_handle={golden / 'hub_tf1'}"))
    assert found.spm_model_file == str(golden / "hub_tf1" / "assets" / "30k-clean.model")
    with pytest.raises(file_io.InputError, match="albert_config_file .*must be given"):
        common_flags.source(values("--albert_hub_module_handle=", "--from_scratch"))


def test_the_cache_of_hub_modules_can_be_named(values, golden, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "of the environment"))
    with tarfile.open(tmp_path / "module.tar.gz", "w:gz") as tar:
        tar.add(golden / "hub_tf1", ".")
    handle = f"--albert_hub_module_handle={tmp_path / 'module.tar.gz'}"
    for folder, *arguments in (
        ("of the environment", handle),
        ("of the flag", handle, f"--tfhub_cache_dir={tmp_path / 'of the flag'}"),
    ):
        found = values(*arguments)
        checkpoint = common_flags.source(found).checkpoint
        assert checkpoint.startswith(str(tmp_path / folder))
    # As tensorflow_hub does when it is imported later.
    flags.DEFINE_string("tfhub_cache_dir", None, "Of tensorflow_hub.", flag_values=found)


def test_runs_without_a_hub_module_refuse_the_word_for_its_file(values, tmp_path):
    found = values("--spm_model_file=from_tf_hub")
    flags.DEFINE_bool("do_train", False, "Train.", flag_values=found)
    with pytest.raises(file_io.InputError, match="spm_model_file=from_tf_hub stands for"):
        common_flags.source_of_run(found, "classifier")


@pytest.mark.parametrize(
    ("batch", "steps", "recompute", "parts"),
    [(15, 1, False, 1), (16, 1, False, 2), (16, 2, False, 1), (16, 1, True, 1)],
)
def test_large_batches_are_computed_in_parts(batch, steps, recompute, parts):
    values = types.SimpleNamespace(
        precision="mixed_bfloat16",
        recompute=recompute,
        gradient_accumulation_steps=steps,
        train_batch_size=batch,
        max_seq_length=128,
    )
    found = common_flags.compute(values)
    assert found == layers.Compute("bfloat16", True, recompute, parts)


def test_workers_compare_all_flags(values, monkeypatch):
    told = {}
    monkeypatch.setattr(distribution, "check_agreement", lambda strategy, all: told.update(all))
    common_flags.strategy(values("--seed=7", "--init_checkpoint=here", "--recompute"))
    assert told["seed"] == 7 and told["recompute"] is True and told["precision"] == "float32"
    assert told["init_checkpoint"] == "here" and "verbosity" not in told


def test_a_seed_beyond_32_bits_is_refused(values):
    with pytest.raises(flags.IllegalFlagValueError, match="seed=2147483648.*2147483647"):
        values(f"--seed={2**31}")


def test_waiting_for_checkpoints_is_for_evaluation_alone(values):
    found = values("--eval_wait_secs=5")
    for name, value in (("do_train", True), ("do_eval", True)):
        flags.DEFINE_bool(name, value, "Stage.", flag_values=found)
    with pytest.raises(file_io.InputError, match="--eval_wait_secs: only for --do_eval alone"):
        common_flags.check_waiting(found)
    found.do_train = False
    common_flags.check_waiting(found)
    found.do_eval = False
    with pytest.raises(file_io.InputError, match="--eval_wait_secs: only for --do_eval alone"):
        common_flags.check_waiting(found)


@pytest.mark.parametrize("gains", [True, False])
def test_memory_is_estimated_for_the_parts_that_are_computed(values, monkeypatch, gains):
    told = {}
    monkeypatch.setattr(distribution, "gains_from_parts", lambda strategy: gains)
    monkeypatch.setattr(
        memory, "report", lambda *arguments: told.update(make=arguments[3], rest=arguments[4:])
    )
    found = values("--recompute", "--estimate_memory")
    flags.DEFINE_integer("train_batch_size", 16, "Batch.", flag_values=found)
    optimizer_flags.define_optimizer_flags(found, "lamb", 0.001)
    with pytest.raises(SystemExit):
        common_flags.end_with_estimate(found, "config", tf.distribute.get_strategy())
    assert told["rest"] == (1, True, 0, 1, "lamb")
    assert told["make"](1, False) == layers.Compute("float32", True, False, 2 if gains else 1)
    for saving in ((2, False), (1, True)):
        assert told["make"](*saving) == layers.Compute("float32", True, saving[1], 1)
