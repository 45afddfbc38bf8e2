"""Without TensorFlow: what must work does, everything else says in a line what to install."""

import json
import os
import re
import runpy
import sys

import pytest

from albert.io import requirements
from albert.serving import serving_folder
from tests.support import processes, serving_samples
from tests.support.builders import SPM
from tests.support.sources import COMMANDS, DOORS, ROOT

WITHOUT = ("tokenization", "classifier_utils", "squad_utils", "race_utils")  # doors
TEXT = "the boats leave before the sun is up\nit rained all night\nnobody knew who\n\n" * 20
NEEDED = (
    "this needs tensorflow, which is not installed: pip install "
    "'pyyaml>=6.0' 'safetensors>=0.4.3' 'tensorboard>=2.18' 'tensorflow>=2.18'\n"
)


@pytest.fixture(scope="module")
def blocked(tmp_path_factory):
    """A folder that makes Python find no TensorFlow if it is on the path."""
    folder = tmp_path_factory.mktemp("blocked")
    error = "ModuleNotFoundError('No module named \\'tensorflow\\'', name='tensorflow')"
    (folder / "tensorflow.py").write_text(f"raise {error}\n")
    return folder


def run(command, *arguments, without=None, **options):
    folders = [str(ROOT), *([str(without)] if without else [])]
    return processes.run(
        [sys.executable, "-m", f"albert.{command}", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        **options,
    )


def onnx_folder(tmp_path, kind):
    """A serving folder of a tiny model."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from albert.export import onnx_export

    (tmp_path / "run").mkdir()
    trained = serving_samples.trained_in(tmp_path / "run", kind)
    with serving_folder.creating(str(tmp_path / "out"), trained, "onnx", "float32") as made:
        onnx_export.write(made, onnx_export.Model(trained))
    return tmp_path / "out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("classifier", {"sentence": "a b"}),
        ("multiple_choice", {"article": "a b", "question": "c", "options": ["d", "e f"]}),
        ("token_classifier", {"words": ["a", "b"]}),
    ],
)
def test_files_are_predicted(tmp_path, blocked, kind, line):
    folder, texts = onnx_folder(tmp_path, kind), tmp_path / "texts.jsonl"
    texts.write_text(json.dumps(line) + "\n")
    flags = [
        f"--model_dir={folder}",
        f"--input_file={texts}",
        f"--output_file={tmp_path / 'out.jsonl'}",
    ]
    result = run("predict", *flags, without=blocked)
    assert result.returncode == 0, result.stderr
    assert "probabilities" in (tmp_path / "out.jsonl").read_text()


@pytest.mark.slow
def test_questions_are_answered(tmp_path, blocked):
    folder, context = onnx_folder(tmp_path, "squad_v2"), tmp_path / "context.txt"
    context.write_text("The boats leave before the sun is up.")
    result = run(
        "ask", f"--model_dir={folder}", f"--context_file={context}", "--question=When?",
        without=blocked,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "\n" in result.stdout


@pytest.mark.slow
def test_records_are_the_same(tmp_path, blocked):
    (tmp_path / "text.txt").write_text(TEXT)
    made = []
    for name, without in (("with", None), ("without", blocked)):
        result = run(
            "create_pretraining_data", f"--input_file={tmp_path / 'text.txt'}",
            f"--output_file={tmp_path / name}", f"--spm_model_file={SPM}", "--max_seq_length=32",
            "--dupe_factor=2", without=without,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        made.append((tmp_path / name).read_bytes())
    assert made[0] and made[0] == made[1]
    result = run("describe_records", f"--input_file={tmp_path / 'without'}", without=blocked)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("run_classifier", ["--task_name=RTE", "--data_dir=x", "--output_dir={0}/out",
                            "--albert_config_file=configs/albert_tiny.json", "--from_scratch",
                            f"--spm_model_file={SPM}", "--do_train"]),
        ("export_serving", ["--model_dir={0}", "--output_dir={0}/out"]),
        ("predict", ["--model_dir={0}", "--input_file={0}/model.json"]),
        ("serve", ["--model_dir={0}", "--port=0"]),
    ],
)  # fmt: skip
def test_what_needs_tensorflow_says_so(tmp_path, blocked, command, flags):
    """`predict` and `serve` need it for the folder of a training."""
    if command == "serve":
        pytest.importorskip("aiohttp")
        pytest.importorskip("prometheus_client")
    (tmp_path / "run").mkdir()
    serving_samples.trained_in(tmp_path / "run", "classifier")
    flags = [flag.format(tmp_path / "run") for flag in flags]
    result = run(command, *flags, without=blocked, cwd=ROOT)
    assert result.returncode == 1
    assert result.stderr.endswith(f"error: {NEEDED}") and "Traceback" not in result.stderr


@pytest.mark.parametrize("name", [*DOORS, "a training's folder"])
def test_imports_of_tensorflow_say_so(blocked, tmp_path, name):
    code = f"import albert.{name}"
    if name not in DOORS:
        serving_samples.trained_in(tmp_path, "classifier")
        code = f"from albert.serving import predictors; predictors.TextPredictor({str(tmp_path)!r})"
    folders = os.pathsep.join([str(ROOT), str(blocked)])
    result = processes.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": folders})
    if name in WITHOUT:
        assert result.returncode == 0, result.stderr
    else:
        assert result.stderr.endswith(f"ModuleNotFoundError: {NEEDED}"), result.stderr
        assert result.stderr.count("Traceback") == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_nothing(blocked, command):
    assert run(command, "--help", without=blocked).returncode == 0


def test_the_light_distribution_is_made_of_the_whole_one():
    """The same package and versions; nothing of it brings TensorFlow."""
    whole = runpy.run_path(str(ROOT / "setup.py"), run_name="whole")
    lines = [line for name in whole["LIGHT_EXTRAS"] for line in whole["EXTRAS"][name]]
    assert not [line for line in [*whole["LIGHT"], *lines] if "tensor" in line]
    rest = [r for r in whole["REQUIREMENTS"] if re.match(r"[\w-]+", r)[0] not in whole["LIGHT"]]
    assert sorted(rest) == sorted(requirements.PACKAGES.values())
