"""What the scripts share: checks of flags, and how a script ends."""

import importlib.metadata  # noqa: F401  loaded before a test changes sys.path
import os
import pathlib
import subprocess
import sys
import types

import pytest
from absl import flags

from albert import common_flags, distribution, file_io, layers, modeling

ROOT = pathlib.Path(__file__).resolve().parent.parent


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
    config = modeling.AlbertConfig(vocab_size=10, max_position_embeddings=128)
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


def test_runs_without_a_hub_module_refuse_the_word_for_its_file(values, tmp_path):
    found = values("--spm_model_file=from_tf_hub")
    flags.DEFINE_bool("do_train", False, "Train.", flag_values=found)
    with pytest.raises(file_io.InputError, match="spm_model_file=from_tf_hub stands for"):
        common_flags.source_of_run(found, "classifier")


SCRIPT = """
from absl import flags
from albert import common_flags, file_io

def define_flags(values):
    flags.DEFINE_string("how", None, "How to end.", flag_values=values)

def main(values):
    {body}

common_flags.run(main, define_flags)
"""


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("print(values.how)", 0, ""),
        ("raise file_io.InputError('--how must be kind')", 1, "error: --how must be kind\n"),
        ("raise KeyboardInterrupt", 130, "interrupted; the same command goes on from the last"),
        # What is left of Ctrl-C if it comes while TensorFlow makes an error.
        (
            "raise RuntimeError('ORIGINAL UnavailableError REPLACED BY KeyboardInterrupt: ')",
            130,
            "interrupted; the same command goes on from the last",
        ),
    ],
)
def test_how_a_script_ends(body, status, message):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body), "--how=well"],
        cwd=ROOT,
        env=os.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert result.returncode == status, result.stderr
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr
    assert result.stdout == ("well\n" if status == 0 else "")


def write_metadata(folder, name, version):
    """Makes a folder look as if a distribution were installed in it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("installed", "refused"),
    [
        ({}, None),
        ({"tensorflow": "2.17.1"}, "2.17.1"),
        ({"tensorflow": "1.15.5"}, "1.15.5"),
        ({"tensorflow-cpu": "2.9.0rc1"}, "2.9.0rc1"),
        ({"tf-nightly": "2.17.0.dev20240801"}, "2.17.0.dev20240801"),
        ({"tensorflow": "2.18.0"}, None),
        ({"tensorflow-cpu": "2.100"}, None),
        ({"tf-nightly": "3.0.0.dev20300101"}, None),
        ({"tensorflow-cpu": "2.17.0", "tensorflow": "2.21.0"}, None),
    ],
)
def test_a_tensorflow_that_is_too_old_is_refused(tmp_path, monkeypatch, installed, refused):
    for name, version in installed.items():
        write_metadata(tmp_path, name, version)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if refused is None:
        return common_flags.check_tensorflow()
    with pytest.raises(file_io.InputError) as error:
        common_flags.check_tensorflow()
    assert str(error.value) == (
        f"TensorFlow {refused} is installed; this toolkit needs 2.18 or newer: "
        "pip install 'tensorflow>=2.18'"
    )


@pytest.mark.parametrize("script", ["run_squad_v1", "make_demo_data"])
def test_every_script_names_an_old_tensorflow_first(tmp_path, script):
    """Before anything else, and without a look at TensorFlow itself."""
    write_metadata(tmp_path, "tensorflow", "2.17.1")
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
    result = subprocess.run(
        [sys.executable, "-m", f"albert.{script}", f"--output_dir={tmp_path / 'out'}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: TensorFlow 2.17.1 is installed; this toolkit needs ")
    assert result.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_defect_of_ours_still_shows_where_it_is():
    """Only mistakes of users are made short."""
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body="raise ValueError('a bug')")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "Traceback" in result.stderr and "ValueError: a bug" in result.stderr


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


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (
            "train_batch_size=7 must be a multiple of 2",
            "--train_batch_size=7 must be a multiple of 2",
        ),
        ("give train_batch_size, or nodo_train.", "give --train_batch_size, or --nodo_train."),
        ("seed=3 is odd; the seed is 3", "--seed=3 is odd; the seed is 3"),
        ("/tmp/output_dir/x and 'output_dir'", "/tmp/output_dir/x and 'output_dir'"),
        ("--output_dir=x has output_dir.txt", "--output_dir=x has output_dir.txt"),
        ("other_flag=1", "other_flag=1"),
    ],
)
def test_messages_name_the_flags_of_the_script(message, wanted):
    values = flags.FlagValues()
    flags.DEFINE_integer("train_batch_size", 1, "", flag_values=values)
    flags.DEFINE_integer("seed", 1, "", flag_values=values)
    flags.DEFINE_string("output_dir", None, "", flag_values=values)
    flags.DEFINE_bool("do_train", True, "", flag_values=values)
    values(["script"])
    assert common_flags.with_flag_names(message, values) == wanted
