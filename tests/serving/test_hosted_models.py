"""Several models in one server, the list of them, and the paths of TensorFlow Serving."""

import asyncio
import json
import threading

import pytest

from albert.serving import served_model, tensorflow_protocol
from tests.support import builders, servers
from tests.support.serving_stand_in import EchoModel

http_server = pytest.importorskip("albert.serving.server")


def test_the_list_describes_each_model():
    async def scenario(client, server):
        _, reply, _ = await servers.get(client, "/v1/models")
        loading = {"name": "first", "version": "1", "state": "loading"}
        assert reply == {"models": [loading, loading | {"name": "second"}]}
        server.start(EchoModel(), "second")
        _, reply, _ = await servers.get(client, "/v1/models")
        assert reply["models"] == [
            loading,
            {
                "name": "second",
                "version": "1",
                "state": "ready",
                "kind": "classifier",
                "labels": ["a", "b"],
                "max_seq_length": 64,
                "path": "/models/second/predict",
                "example": {
                    "type": "object",
                    "properties": {
                        "text": {
                            "type": "string",
                            "pattern": r"\S",
                            "examples": ["What a charming journey."],
                        }
                    },
                    "required": ["text"],
                },
            },
        ]

    servers.run(scenario, model_names=("first", "second"))


def test_a_single_model_needs_no_name():
    async def scenario(client, server):
        (described,) = (await servers.get(client, "/v1/models"))[1]["models"]
        assert (described["name"], described["path"]) == ("model", "/predict")
        for path in ("/predict", "/models/model/predict"):
            assert (await servers.post(client, path, {"text": "a"}))[1] == {"prediction": "a"}

    servers.run(scenario, EchoModel())


@pytest.mark.parametrize("form", ["ONE_TEXT", "TWO_TEXTS", "WORDS", "CHOICE", "QUESTION"])
def test_every_form_has_a_schema_of_its_examples(form):
    form = getattr(http_server.requests, form)
    schema = form.schema
    assert schema["required"] == [field.name for field in form.required]
    assert list(schema["properties"]) == [field.name for field in form.fields]
    assert all("type" in part or "oneOf" in part for part in schema["properties"].values())


class Slow(EchoModel):
    """Waits for `go`."""

    def __init__(self):
        super().__init__()
        self.go, self.called = threading.Event(), threading.Event()

    def answer(self, examples):
        self.called.set()
        assert self.go.wait(30)
        return [{"prediction": f"slow {example['text']}"} for example in examples]


def test_models_have_their_own_states_and_queues():
    slow = Slow()

    async def scenario(client, server):
        status, reply, headers = await servers.post(client, "/models/slow/predict", {"text": "a"})
        assert status == 503 and reply["error"] == "the model is still being loaded"
        assert headers["Retry-After"] == "5"
        server.start(EchoModel(), "quick")
        assert (await servers.get(client, "/readyz"))[0] == 503
        assert (await servers.get(client, "/livez"))[:2] == (200, {"status": "live"})
        assert (await servers.post(client, "/models/quick/predict", {"text": "a"}))[0] == 200
        server.start(slow, "slow")
        assert (await servers.get(client, "/readyz"))[:2] == (200, {"status": "ready"})
        asked = {"text": "b"}
        waiting = []
        for _ in range(2):
            task = asyncio.ensure_future(servers.post(client, "/models/slow/predict", asked))
            waiting.append(task)
            await asyncio.to_thread(slow.called.wait, 30)
        while 'waiting_rows{model="slow"} 1.0' not in await servers.text(client, "/metrics"):
            await asyncio.sleep(0.01)
        # The queue of one model is full; the other one still answers.
        full = await servers.post(client, "/v1/models/slow:predict", {"instances": ["c"]})
        assert full[0] == 503 and full[2]["Retry-After"] == "1"
        assert (await servers.post(client, "/v1/models/quick:predict", {"inputs": ["c"]}))[1] == {
            "outputs": ["c"]
        }
        slow.go.set()
        assert {(await task)[1]["prediction"] for task in waiting} == {"slow b"}
        async with asyncio.timeout(30):  # a batch is counted after its answers
            while "\nalbert_batch_rows_count 4.0\n" not in (
                text := await servers.text(client, "/metrics")
            ):
                await asyncio.sleep(0.01)
        for line in (
            'albert_model_requests_total{model="slow",status="503"} 2.0',
            'albert_model_requests_total{model="slow",status="200"} 2.0',
            'albert_model_requests_total{model="quick",status="200"} 2.0',
            'albert_model_batch_rows_count{model="quick"} 2.0',
            'albert_model_ready{model="slow"} 1.0',
            'albert_model_waiting_rows{model="quick"} 0.0',
        ):
            assert f"\n{line}\n" in text, line
        server.refuse_new()
        assert (await servers.get(client, "/readyz"))[:2] == (503, {"status": "stopping"})
        assert (await servers.get(client, "/livez"))[0] == 200

    servers.run(scenario, model_names=("slow", "quick"), max_waiting=1, max_batch_size=1)


def test_several_models_must_be_named():
    async def scenario(client, server):
        for name in ("x", "y"):
            server.start(EchoModel(), name)
        status, reply, _ = await servers.post(client, "/predict", {"text": "a"})
        assert status == 404 and reply["error"] == (
            "/predict: this server has several models, which are asked at /models/x/predict, "
            "/models/y/predict"
        )
        status, reply, _ = await servers.post(client, "/models/z/predict", {"text": "a"})
        assert status == 404 and reply["error"] == "expected the model 'x' or 'y', found 'z'"
        status, reply, _ = await servers.post(client, "/models/x/ask", {"text": "a"})
        assert status == 404 and "is asked at /models/x/predict" in reply["error"]

    servers.run(scenario, model_names=("x", "y"))


def test_versions_and_metadata_are_those_of_tensorflow_serving():
    async def scenario(client, server):
        asked = {"instances": ["a"]}
        for path in ("/v1/models/m", "/v1/models/m/versions/1"):
            assert (await servers.post(client, f"{path}:predict", asked))[1] == {
                "predictions": ["a"]
            }
            (version,) = (await servers.get(client, path))[1]["model_version_status"]
            assert version["version"] == "1" and version["state"] == "AVAILABLE"
            _, reply, _ = await servers.get(client, f"{path}/metadata")
            assert reply["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
            signature = tensorflow_protocol.SIGNATURE
            found = reply["metadata"]["signature_def"]["signature_def"][signature]
            assert found["method_name"] == "tensorflow/serving/predict"
            assert found["inputs"] == {
                "text": {
                    "dtype": "DT_STRING",
                    "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
                    "name": "text:0",
                }
            }
            assert found["outputs"]["probabilities"]["dtype"] == "DT_FLOAT"
            sizes = found["outputs"]["probabilities"]["tensor_shape"]["dim"]
            assert [size["size"] for size in sizes] == ["-1", "2"]
        for end in ("", "/metadata", ":predict"):
            ask = servers.post if end == ":predict" else servers.get
            arguments = [asked] if end == ":predict" else []
            status, reply, _ = await ask(client, f"/v1/models/m/versions/2{end}", *arguments)
            assert (status, reply) == (404, {"error": "m: expected the version 1, found '2'"})
        text = await servers.text(client, "/metrics")
        assert 'path="/v1/models/m/versions/1:predict",status="200"} 1.0' in text
        assert json.dumps("/v1/models/m/versions/2") not in text

    servers.run(scenario, EchoModel(), model_name="m")


def test_metadata_names_the_fields_of_replies_of_several_labels(tmp_path):
    async def scenario(client, server):
        _, reply, _ = await servers.get(client, "/v1/models/m/metadata")
        signature = tensorflow_protocol.SIGNATURE
        outputs = reply["metadata"]["signature_def"]["signature_def"][signature]["outputs"]
        assert {name: row["dtype"] for name, row in outputs.items()} == {
            "prediction": "DT_STRING", "probabilities": "DT_FLOAT", "thresholds": "DT_FLOAT",
        }  # fmt: skip
        asked = {"instances": ["the soup"]}
        (row,) = (await servers.post(client, "/v1/models/m:predict", asked))[1]["predictions"]
        assert row.keys() == outputs.keys()
        body = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["the soup"]}
        _, reply, _ = await servers.post(client, "/v2/models/m/infer", {"inputs": [body]})
        found = {output["name"]: output["data"] for output in reply["outputs"]}
        labels = [int(label in row["prediction"]) for label in builders.LABELS]
        assert found["predictions"] == labels and found["thresholds"] == [0.5, 0.5, 0.5]

    folder = builders.write_multi_label(tmp_path / "run")
    servers.run(scenario, served_model.load(folder), model_name="m")
