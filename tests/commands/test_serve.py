"""The script that serves a model: its flags, and one run of it against curl's bytes."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from albert import serve
from albert.export import serving_export
from albert.io import file_io
from albert.serving import requests, tensorflow_protocol
from tests.support import builders, processes
from tests.support.serving_stand_in import EchoModel
from tests.support.sources import ROOT


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_texts": 9, "max_waiting": 8}, "--max_texts=9 must not be more than --max_waiting=8"),
        ({"model_dir": "no/folder"}, "--model_dir: the folder no/folder does not exist"),
        ({"model_name": "a/b"}, "--model_name: expected letters, digits, dots and dashes, found"),
    ],
)
def test_flags_are_checked_before_any_work(run_script, tmp_path, flags, message):
    pytest.importorskip("aiohttp")
    pytest.importorskip("prometheus_client")
    with pytest.raises(file_io.InputError, match=re.escape(message)):
        run_script(serve, **({"model_dir": tmp_path} | flags))


def test_a_port_in_use_is_named(run_script, tmp_path):
    pytest.importorskip("aiohttp")
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(file_io.InputError, match=f"--port={port} of 127.0.0.1 is in use"):
            run_script(serve, model_dir=tmp_path, port=port)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected either --model_dir=folder, or --model=name:folder for each"),
        ({"model_dir": ".", "model": ("a:.",)}, "expected either --model_dir=folder, or --model="),
        ({"model": ("a:no/folder",)}, "--model=a:no/folder: the folder no/folder does not exist"),
        ({"model": ("/x:.",)}, "--model=/x:.: expected letters, digits, dots and dashes"),
        (
            {"model_dir": "no/my model"},
            "--model_dir=no/my model: the folder's name 'my model' cannot be in paths of requests; "
            "give --model_name",
        ),
        ({"model": ("x",)}, "--model=x: expected name:folder"),
        ({"model": ("a:.", "a:..")}, "--model=a:..: expected each name once, found 'a' again"),
        ({"model": ("a:.",), "model_name": "b"}, "--model_name: only for --model_dir"),
    ],
)
def test_models_and_their_names_are_checked(given, message):
    with pytest.raises(file_io.InputError, match=re.escape(message)):
        serve.models_of(serve.Settings(**given))


def test_models_are_named(tmp_path):
    folder = str(tmp_path)
    assert serve.models_of(serve.Settings(model_dir=folder)) == {tmp_path.name: folder}
    given = serve.Settings(model=(f"a:{folder}", f"b.c:{folder}/."))
    assert serve.models_of(given) == {"a": folder, "b.c": f"{folder}/."}


@pytest.mark.parametrize(
    ("threads", "models", "each"),
    [(None, 1, None), (3, 1, 3), (4, 2, 2), (5, 2, 2), (1, 3, 1)],
)
def test_models_share_the_threads(threads, models, each):
    assert serve.share_of(threads, models) == each
    assert serve.share_of(None, 2) >= 1


def test_models_of_tensorflow_share_the_sum_of_their_parts(tmp_path):
    pytest.importorskip("onnx")
    trained, exported = builders.write_classifier(tmp_path / "a"), str(tmp_path / "b")
    serving_export.export(trained, exported, "onnx")
    for threads, folders, expected in (
        (9, [trained, exported, trained], [6, 3, 6]),
        (3, [trained, trained], [2, 2]),
        (4, [exported, exported], [2, 2]),
        (4, [trained], [4]),
        (None, [trained], [None]),
    ):
        assert serve.threads_of(threads, folders) == expected


def test_the_missing_package_is_named(run_script, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "albert.serving.server", raising=False)
    monkeypatch.delattr("albert.serving.server", raising=False)
    import albert

    monkeypatch.delattr(albert, "http_server", raising=False)
    with pytest.raises(file_io.InputError, match="aiohttp: pip install aiohttp .* serve"):
        run_script(serve, model_dir=tmp_path)


def test_the_commands_of_the_documents_are_requests():
    """Each body is taken by one kind of model at least, at the path that it goes to."""
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^curl localhost:8501(\S+) +-d '(.*)'$", text, re.M)
    forms = ("ONE_TEXT", "TWO_TEXTS", "WORDS", "CHOICE", "MASKED", "QUESTION")
    taken = set()
    for path, body in commands:
        if path.startswith("/v2/"):
            http_server = pytest.importorskip("albert.serving.server")
            hosted = http_server.hosted_models.HostedModel("sst", True, print)
            hosted.model = EchoModel()
            protocol = http_server.inference_protocol
            assert protocol.read(body.encode(), None, hosted, requests.Limits()).examples
            continue
        path = re.sub(r"^/models/\w+", "", path)
        own = path in ("/predict", "/ask")
        read = requests.read if own else tensorflow_protocol.read
        found = []
        for name in forms:
            form = getattr(requests, name)
            with contextlib.suppress(file_io.InputError):
                assert read(body.encode(), form, requests.Limits()).examples
                found += [name] if not own or form.entry == path else []
        assert found, f"{path} {body}"
        taken.update(found)
    assert len(commands) >= 8 and taken == set(forms)


def fetch(url, body=None):
    try:
        with urllib.request.urlopen(url, body and json.dumps(body).encode(), timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.slow
def test_a_server_from_its_start_to_its_end(tmp_path):
    pytest.importorskip("aiohttp")
    pytest.importorskip("prometheus_client")
    folder = builders.write_classifier(tmp_path / "sst")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "albert.serve", f"--model_dir={folder}", f"--port={port}"]
    log = tmp_path / "log"
    with log.open("w") as file, processes.killed_at_the_end([]) as running:
        server = subprocess.Popen(
            [*command, "--threads=1", "--host=0.0.0.0"], cwd=ROOT, stderr=file, stdin=-3
        )
        running.append(server)
        processes.wait_until(
            lambda: "Ready: classifier" in log.read_text(), server, say=log.read_text
        )
        url = f"http://127.0.0.1:{port}"
        assert fetch(f"{url}/healthz") == (200, {"status": "ready"})
        status, reply = fetch(f"{url}/predict", {"text": "a soup"})
        assert status == 200 and reply["prediction"] in ("bad", "good")
        status, rows = fetch(f"{url}/v1/models/sst:predict", {"instances": ["a soup"]})
        assert (status, rows) == (200, {"predictions": [reply]})
        assert fetch(f"{url}/predict", {"words": ["a"]})[0] == 400
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    text = log.read_text()
    assert "--host=0.0.0.0: anyone who reaches this address may ask the model" in text
    assert "Traceback" not in text and "soup" not in text


@pytest.mark.slow
def test_two_models_flags_of_the_environment_and_the_log_as_json(tmp_path):
    """A classifier and a model that answers questions, from ONNX files."""
    for name in ("aiohttp", "prometheus_client", "onnx", "onnxruntime"):
        pytest.importorskip(name)
    from albert.export import onnx_export
    from albert.serving import serving_folder
    from tests.support import serving_samples

    for kind, name in (("classifier", "moods"), ("squad_v1", "answers")):
        (tmp_path / f"run_{name}").mkdir()
        trained = serving_samples.trained_in(tmp_path / f"run_{name}", kind)
        out = str(tmp_path / name)
        with serving_folder.creating(out, trained, "onnx", "float32") as made:
            onnx_export.write(made, onnx_export.Model(trained))
    log = tmp_path / "log"
    models = [f"--model={name}:{tmp_path / name}" for name in ("moods", "answers")]
    variables = {"ALBERT_PORT": "0", "ALBERT_LOG_FORMAT": "json", "ALBERT_THREADS": "9",
                 "ALBERT_MAX_BATCH_TOKENS": "64", "ALBERT_MAX_WAITIN": "3"}  # fmt: skip
    command = [sys.executable, "-m", "albert.serve", *models, "--threads=2"]
    with log.open("w") as file, processes.killed_at_the_end([]) as running:
        server = subprocess.Popen(
            command, cwd=ROOT, stderr=file, stdin=-3, env=os.environ | variables
        )
        running.append(server)
        processes.wait_until(
            lambda: "Ready: squad_v1 (answers)" in log.read_text(), server, say=log.read_text
        )
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (port,) = [
            int(row["message"].rpartition(":")[2]) for row in lines if "Listening" in row["message"]
        ]
        url = f"http://127.0.0.1:{port}"
        assert fetch(f"{url}/readyz") == (200, {"status": "ready"})
        texts = {"examples": [{"text": "a soup " * k} for k in range(1, 30)]}
        status, reply = fetch(f"{url}/models/moods/predict", texts)
        assert status == 200 and len(reply["results"]) == 29
        # One after the other they are the same, although 64 tokens are fewer than theirs.
        for example, found in list(zip(texts["examples"], reply["results"], strict=True))[::7]:
            alone = fetch(f"{url}/models/moods/predict", example)[1]
            assert alone["prediction"] == found["prediction"]
        asked = {"question": "who ?", "context": "the bread was fine . " * 9}
        status, reply = fetch(f"{url}/models/answers/ask", asked)
        assert status == 200 and reply["answers"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (warning,) = [row["message"] for row in lines if "ALBERT_" in row["message"]]
    assert warning.startswith("ALBERT_MAX_WAITIN in the environment is ignored; did you mean ")
    requested = [row for row in lines if row["message"] == "request"]
    assert {row["model"] for row in requested} == {None, "moods", "answers"}
    assert all(row["status"] == 200 and len(row["request_id"]) == 16 for row in requested)
