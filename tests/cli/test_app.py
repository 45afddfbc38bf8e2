"""Start and end of commands."""

import os
import sys

import pytest
from absl import flags

from albert.cli import app
from albert.io import file_io, tensorflow_start
from tests.support import command_lines, processes
from tests.support.sources import COMMANDS, ROOT

SCRIPT = """
from absl import flags
from albert.cli import app
from albert.io import file_io, signals

def define_flags(values):
    flags.DEFINE_string("how", None, "How to end.", flag_values=values)
    {flags}

def main(values):
    {body}

app.run(main, define_flags)
"""


def run_script(body, flags="pass"):
    return processes.run(
        [sys.executable, "-c", SCRIPT.format(body=body, flags=flags), "--how=well"], cwd=ROOT
    )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("print(values.how)", 0, ""),
        # While Python ends, nothing is left to be saved.
        (
            "import atexit, os, signal\n    atexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
            "    print(values.how)",
            0,
            "",
        ),
        ("raise file_io.InputError('--how must be kind')", 1, "error: --how must be kind\n"),
        ("raise KeyboardInterrupt", 130, "interrupted; the same command begins again\n"),
        ("raise signals.Terminated", 75, "ended by SIGTERM; the same command begins again\n"),
        (
            "try:\n        raise signals.Terminated\n"
            "    finally:\n        raise SystemError('bad argument to internal function')",
            75,
            "ended by SIGTERM; the same command begins again\n",
        ),
        # What is left of a signal that comes in C++ code.
        *(
            (
                "import contextlib, signal\n    with contextlib.suppress(BaseException):\n"
                f"        signal.raise_signal(signal.{number})\n    raise TypeError",
                status,
                f"{message}; the same command begins again\n",
            )
            for number, status, message in (
                ("SIGTERM", 75, "ended by SIGTERM"),
                ("SIGINT", 130, "interrupted"),
            )
        ),
        # What is left of Ctrl-C if it comes while TensorFlow makes an error.
        (
            "raise RuntimeError('ORIGINAL UnavailableError REPLACED BY KeyboardInterrupt: ')",
            130,
            "interrupted; the same command begins again\n",
        ),
    ],
)
def test_how_a_script_ends(body, status, message):
    result = run_script(body)
    assert result.returncode == status, result.stderr
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.stderr
    assert result.stdout == ("well\n" if status == 0 else "")


@pytest.mark.parametrize(
    ("body", "message"),
    [("raise KeyboardInterrupt", "interrupted"), ("raise signals.Terminated", "ended by SIGTERM")],
)
def test_a_script_with_checkpoints_says_that_it_resumes(body, message):
    """Its flag is in all training scripts and in no other."""
    flag = 'flags.DEFINE_integer("save_checkpoints_steps", 1, "Steps.", flag_values=values)'
    result = run_script(body, flag)
    assert result.stderr == f"{message}; the same command resumes from the last checkpoint\n"


def test_scripts_with_checkpoints_are_those_that_train():
    found = set()
    for script in COMMANDS:
        if "save_checkpoints_steps" in command_lines.define(script):
            found.add(script)
    others = {"run_sweep", "run_blimp"}
    assert found == {script for script in COMMANDS if script.startswith("run_")} - others


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
        return app.check_tensorflow()
    with pytest.raises(file_io.InputError) as error:
        app.check_tensorflow()
    assert str(error.value) == (
        f"TensorFlow {refused} is installed; this toolkit needs 2.18 or newer: "
        "pip install 'tensorflow>=2.18'"
    )


def test_windows_is_rejected_with_a_remedy(monkeypatch, capsys):
    monkeypatch.delattr("signal.SIGHUP")
    with pytest.raises(SystemExit) as exit:
        app.run(lambda values: None, lambda values: None)
    assert exit.value.code == 1
    assert capsys.readouterr().err == (
        "error: this system has no SIGHUP, which Linux and macOS have: on Windows use WSL2\n"
    )


@pytest.mark.parametrize("script", ["run_squad_v1", "make_demo_data"])
def test_every_script_names_an_old_tensorflow_first(tmp_path, script):
    """Before anything else, and without a look at TensorFlow itself."""
    write_metadata(tmp_path, "tensorflow", "2.17.1")
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
    result = processes.run(
        [sys.executable, "-m", f"albert.{script}", f"--output_dir={tmp_path / 'out'}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: TensorFlow 2.17.1 is installed; this toolkit needs ")
    assert result.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


# Memory of 61 MiB is used again; otherwise each product would cost 15,625 page faults.
KEEPS_MEMORY = """
    import resource
    x = tf.ones([4000, 4000])
    for turn in range(8):
        if turn == 4:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        x * 3.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000"""


@pytest.mark.slow
def test_tensorflow_starts_silently_and_imports_keras_only_when_it_is_used():
    """TensorFlow would import it at its start, which takes up to a third of that time."""
    environment = {name: os.environ[name] for name in os.environ if name != tensorflow_start.LEVEL}
    environment["CUDA_VISIBLE_DEVICES"] = ""  # A GPU that cannot be used is another line.
    environment["TF_ENABLE_ONEDNN_OPTS"] = "0"  # With it, memory is kept anyway.
    body = (
        "import gc, sys\n    import tensorflow as tf\n    assert 'keras' not in sys.modules\n"
        "    assert gc.isenabled() and gc.get_freeze_count() > 10**5\n"
        "    from tensorflow.keras import layers\n    assert layers is tf.keras.layers\n"
        "    import keras.src.optimizers\n    print(layers.Dense(2)(tf.ones([3, 4])).shape)"
    )
    body += KEEPS_MEMORY
    result = processes.run(
        [sys.executable, "-c", SCRIPT.format(body=body, flags="pass")], cwd=ROOT, env=environment
    )
    assert (result.returncode, result.stdout) == (0, "(3, 2)\n"), result.stderr
    assert result.stderr == ""


def test_a_defect_of_ours_still_shows_where_it_is():
    """Only mistakes of users are made short."""
    result = run_script("raise ValueError('a bug')")
    assert result.returncode == 1
    assert "Traceback" in result.stderr and "ValueError: a bug" in result.stderr


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "train_batch_size=7 must be a multiple of 2",
            "--train_batch_size=7 must be a multiple of 2",
        ),
        ("give train_batch_size, or nodo_train.", "give --train_batch_size, or --nodo_train."),
        ("seed=3 is odd; the seed is 3", "--seed=3 is odd; the seed is 3"),
        ("`seed` or `do_train`: `sop`, not seed", "--seed or --do_train: `sop`, not seed"),
        ("/tmp/output_dir/x and 'output_dir'", "/tmp/output_dir/x and 'output_dir'"),
        ("--output_dir=x has output_dir.txt", "--output_dir=x has output_dir.txt"),
        ("other_flag=1", "other_flag=1"),
    ],
)
def test_messages_name_the_flags_of_the_script(message, expected):
    values = flags.FlagValues()
    flags.DEFINE_integer("train_batch_size", 1, "", flag_values=values)
    flags.DEFINE_integer("seed", 1, "", flag_values=values)
    flags.DEFINE_string("output_dir", None, "", flag_values=values)
    flags.DEFINE_bool("do_train", True, "", flag_values=values)
    values(["script"])
    assert app.with_flag_names(message, values) == expected
