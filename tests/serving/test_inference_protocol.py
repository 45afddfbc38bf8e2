"""The Open Inference Protocol: by hand, with a client of Triton, and with ids of every kind."""

import asyncio
import dataclasses
import json

import numpy as np
import pytest

from albert.io import file_io
from albert.serving import batcher, hosted_models, requests, tensors
from tests.support import servers
from tests.support.serving_stand_in import EchoModel

inference_protocol = pytest.importorskip("albert.serving.inference_protocol")
pytest.importorskip("albert.serving.server")

PATH = "/v2/models/model"
IDS = tensors.IdModel(
    tensors.id_inputs("classifier"),
    tensors.id_outputs("classifier", ("no", "yes")),
    {"input_ids": 50, "input_mask": 2, "segment_ids": 2},
    8,
    2,
)


@dataclasses.dataclass
class Votes(EchoModel):
    """Answers with the length of a text, and ids with their sums."""

    labels: tuple = ("no", "yes")
    ids: object = IDS

    def answer(self, examples):
        return [self._answer(example) for example in examples]

    def _answer(self, example):
        if isinstance(example, requests.Ids):
            sums = example.features["input_ids"].sum(axis=1)
            pairs = np.stack([sums, -sums], axis=1).astype(np.float32)
            return {"predictions": sums.astype(np.int32), "probabilities": pairs}
        share = len(example["text"]) / 8
        return {
            "prediction": example["text"],
            "probabilities": {"no": 1 - share, "yes": share},
        }


def of_texts(*texts, **changes):
    return {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts} | changes


def of_ids(*rows, kind="INT32"):
    ids = {"input_ids": rows}
    ids |= {name: [[1] * len(row) for row in rows] for name in ("input_mask", "segment_ids")}
    shape = [len(rows), len(rows[0])]
    return [
        {"name": name, "datatype": kind, "shape": shape, "data": values}
        for name, values in ids.items()
    ]


def output_of(reply, name):
    (found,) = [output for output in reply["outputs"] if output["name"] == name]
    return found


def test_health_and_metadata():
    async def scenario(client, server):
        assert (await servers.get(client, "/v2/health/live"))[:2] == (200, {"live": True})
        for path, reply in (("/v2/health/ready", {}), (f"{PATH}/ready", {"name": "model"})):
            status, found, headers = await servers.get(client, path)
            assert (status, found) == (503, reply | {"ready": False})
            assert headers["Retry-After"] == "5"
        assert (await servers.get(client, PATH))[0] == 503
        server.start(Votes())
        assert (await servers.get(client, "/v2/health/ready"))[:2] == (200, {"ready": True})
        for path in (PATH, f"{PATH}/versions/1"):
            ready = {"name": "model", "ready": True}
            assert (await servers.get(client, f"{path}/ready"))[:2] == (200, ready)
            _, reply, _ = await servers.get(client, path)
            assert reply["name"] == "model" and reply["versions"] == ["1"]
            assert reply["parameters"] == {"labels": "no,yes"}
            listed = [
                (row["name"], row["datatype"], row["shape"], row["parameters"]["form"])
                for row in reply["inputs"] + reply["outputs"]
            ]
            assert listed == [
                ("text", "BYTES", [-1], "texts"),
                ("input_ids", "INT32", [-1, -1], "ids"),
                ("input_mask", "INT32", [-1, -1], "ids"),
                ("segment_ids", "INT32", [-1, -1], "ids"),
                ("prediction", "BYTES", [-1], "texts"),
                ("probabilities", "FP32", [-1, 2], "texts"),
                ("result", "BYTES", [-1], "texts"),
                ("predictions", "INT32", [-1], "ids"),
                ("probabilities", "FP32", [-1, 2], "ids"),
            ]
        _, reply, _ = await servers.get(client, "/v2")
        assert reply["name"] == "albert" and reply["extensions"] == ["binary_tensor_data"]
        for path in ("/v2/models/other", f"{PATH}/versions/2", f"{PATH}/config"):
            assert (await servers.get(client, path))[0] == 404

    servers.run(scenario)


def test_texts_and_ids_in_json():
    async def scenario(client, server):
        value = {"id": "seven", "inputs": [of_texts("four", "")]}
        status, reply, _ = await servers.post(client, f"{PATH}/infer", value)
        assert status == 400 and reply["error"].startswith("inputs.text[1]: expected a text")
        for shape, data in (([2], ["four", "two"]), ([2, 1], [["four"], ["two"]])):
            value |= {"inputs": [of_texts(shape=shape, data=data)], "model_name": "of KServe"}
            _, reply, _ = await servers.post(client, f"{PATH}/versions/1/infer", value)
            assert (reply["id"], reply["model_name"], reply["model_version"]) == (
                "seven", "model", "1"
            )  # fmt: skip
            assert output_of(reply, "prediction")["data"] == ["four", "two"]
            assert output_of(reply, "probabilities") == {
                "name": "probabilities", "datatype": "FP32", "shape": [2, 2],
                "data": [0.5, 0.5, 0.625, 0.375],
            }  # fmt: skip
            first = json.loads(output_of(reply, "result")["data"][0])
            assert first == {"prediction": "four", "probabilities": {"no": 0.5, "yes": 0.5}}
        value["outputs"] = [{"name": "prediction"}]
        assert len((await servers.post(client, f"{PATH}/infer", value))[1]["outputs"]) == 1
        for kind in ("INT32", "INT64"):
            value = {"inputs": of_ids([1, 2, 3], [4, 5, 49], kind=kind)}
            _, reply, _ = await servers.post(client, f"{PATH}/infer", value)
            assert "id" not in reply and output_of(reply, "predictions") == {
                "name": "predictions", "datatype": "INT32", "shape": [2], "data": [6, 58]
            }  # fmt: skip
            assert output_of(reply, "probabilities")["data"] == [6.0, -6.0, 58.0, -58.0]

    servers.run(scenario, Votes())


def test_texts_and_ids_of_several_requests_are_answered_together():
    async def scenario(client, server):
        asked = [{"inputs": [of_texts(f"t{k}")]} for k in range(4)]
        asked += [{"inputs": of_ids([k, 1])} for k in range(4)]
        replies = await asyncio.gather(
            *(servers.post(client, f"{PATH}/infer", value) for value in asked)
        )
        found = [reply[1]["outputs"][0]["data"] for reply in replies]
        assert found == [["t0"], ["t1"], ["t2"], ["t3"], [1], [2], [3], [4]]

    servers.run(scenario, Votes(), batch_deadline=0.1)


def binary(head, *parts):
    head = json.dumps(head).encode()
    return head + b"".join(parts), {"Inference-Header-Content-Length": str(len(head))}


def packed(*texts):
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def test_binary_tensors():
    async def scenario(client, server):
        part = packed(b"four", "\u20ac".encode())
        tensor = of_texts(shape=[2], parameters={"binary_data_size": len(part)})
        del tensor["data"]
        value = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
        value["outputs"] = [
            {"name": "probabilities", "parameters": {"binary_data": False}}, {"name": "prediction"}
        ]  # fmt: skip
        body, headers = binary(value, part)
        async with client.post(f"{PATH}/infer", data=body, headers=headers) as response:
            assert response.status == 200
            assert response.content_type == "application/octet-stream"
            size, found = int(response.headers["Inference-Header-Content-Length"]), b""
            found = await response.read()
        reply = json.loads(found[:size])
        assert output_of(reply, "probabilities")["data"] == [0.5, 0.5, 0.875, 0.125]
        assert output_of(reply, "prediction")["parameters"] == {"binary_data_size": len(part)}
        assert found[size:] == part

    servers.run(scenario, Votes())


def without(value, key):
    return {name: part for name, part in value.items() if name != key}


def sized(size, **changes):
    changes = {"parameters": {"binary_data_size": size}} | changes
    return without(of_texts("a", **changes), "data")


BAD = [
    ([], "the request: expected object, found list"),
    ({}, "inputs: expected list, found null"),
    ({"inputs": []}, "inputs: expected tensors with the same number of rows, found nothing"),
    ({"inputs": [of_texts("a")], "more": 1}, "the request: expected only id, inputs, model_name"),
    ({"inputs": [of_texts("a")], "id": 3}, "id: expected text, found whole number"),
    ({"inputs": [of_texts("a")], "id": "x" * 257}, "id: expected at most 256 characters"),
    ({"inputs": [of_texts("a")], "parameters": {"sequence_id": 1}},
     "parameters: expected binary_data_output, found 'sequence_id'"),
    ({"inputs": [of_texts("a"), of_texts("a")]}, "inputs[1].name: expected each tensor once"),
    ({"inputs": [of_texts("a", name="txt")]}, "inputs.txt[0]: expected the field text, found"),
    ({"inputs": [of_texts("a", shape=[2])]}, "inputs[0]: expected 2 values for the shape [2]"),
    ({"inputs": [of_texts("a", shape=[0])]}, "inputs[0].shape: expected 1 to 3 examples"),
    ({"inputs": [of_texts("a", shape=[-1])]}, "inputs[0].shape: expected 1 to 3 examples"),
    ({"inputs": [of_texts("a", shape=[1, 1, 1])]}, "inputs[0].shape: expected 1 to 3 examples"),
    ({"inputs": [of_texts("a", shape=[10**400])]}, "inputs[0].shape[0]: the number has 401"),
    ({"inputs": [of_texts(*"abcd")]}, "inputs[0].shape: expected 1 to 3 examples"),
    ({"inputs": [of_texts("a", datatype="FP32")]}, "inputs[0].datatype: expected one of BYTES"),
    ({"inputs": [of_texts(1)]}, "inputs[0].data[0]: expected text, found whole number"),
    ({"inputs": [of_texts([["a"]])]}, "inputs[0].data[0]: expected text, found list"),
    ({"inputs": [of_texts("a", more=1)]}, "inputs[0]: expected only data, datatype, name"),
    ({"inputs": [without(of_texts("a"), "data")]}, "inputs[0]: expected either data or binary"),
    ({"inputs": [of_texts("a", parameters={"x": 1})]},
     "inputs[0].parameters: expected binary_data_size or content_type, found 'x'"),
    ({"inputs": [of_texts("YQ==", parameters={"content_type": "base64"})]},
     "inputs[0].parameters.content_type: expected np or str for BYTES, found 'base64'"),
    ({"inputs": [of_texts(1, datatype="INT32", parameters={"content_type": "str"})]},
     "inputs[0].parameters.content_type: expected np for INT32, found 'str'"),
    ({"inputs": [sized(9)]}, "inputs[0]: expected 9 bytes after the JSON, found 0"),
    ({"inputs": [sized(-1)]}, "inputs[0]: expected -1 bytes after the JSON, found 0"),
    ({"inputs": [of_texts(1, datatype="INT32")]}, "inputs: expected text as BYTES, found INT32"),
    ({"inputs": [of_texts("a")], "outputs": [{"name": "x"}]}, "outputs[0].name: expected each of"),
    ({"inputs": [of_texts("a")], "outputs": [{"name": "result"}] * 2}, "outputs[1].name: expected"),
    ({"inputs": [of_texts("a")], "outputs": [{"name": "result", "parameters":
      {"classification": 2}}]}, "outputs[0].parameters: expected binary_data, found 'classif"),
    ({"inputs": of_ids([1])[:2]}, "inputs: expected input_ids, input_mask, segment_ids, found"),
    ({"inputs": of_ids([50])}, "inputs: expected input_ids of 0 to 49, found 50"),
    ({"inputs": of_ids([-1])}, "inputs: expected input_ids of 0 to 49, found -1"),
    ({"inputs": of_ids([10**30])}, "inputs: expected input_ids of 0 to 49, found 1000"),
    ({"inputs": of_ids([1] * 9)}, "inputs: expected 2 to 8 ids in a sequence, found 9"),
    ({"inputs": of_ids([1])}, "inputs: expected 2 to 8 ids in a sequence, found 1"),
    ({"inputs": of_ids([True])}, "inputs[0].data[0]: expected whole number, found true or false"),
    ({"inputs": [*of_ids([1]), of_texts("a")]}, "inputs: expected input_ids, input_mask"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), BAD)
def test_bad_requests_are_named(value, message):
    with pytest.raises(file_io.InputError) as raised:
        read(json.dumps(value).encode(), None)
    assert str(raised.value).startswith(message)


def read(body, head_size, model=None):
    hosted = hosted_models.HostedModel("model", True, lambda rows, seconds: None)
    hosted.model = model or Votes()
    return inference_protocol.read(body, head_size, hosted, requests.Limits(3, 50))


@pytest.mark.parametrize(
    ("value", "part", "message"),
    [
        (sized(1), b"a", "inputs[0]: expected each text after its length in 4 bytes"),
        (sized(5), b"\xff\xff\xff\xffa", "inputs[0]: expected each text after its length"),
        (sized(5), packed(b"\xff"), "inputs[0]: expected UTF-8, found "),
        (sized(5), packed(b"a") + b"b", "the request: expected 5 bytes after the JSON, found 6"),
        (sized(0), b"", "inputs[0]: expected 1 values for the shape [1], found 0"),
        (sized(3, datatype="INT32"), b"abc", "inputs[0]: expected values of 4 bytes, found 3"),
    ],
)
def test_bad_binary_tensors_are_named(value, part, message):
    body, headers = binary({"inputs": [value]}, part)
    with pytest.raises(file_io.InputError) as raised:
        read(body, headers["Inference-Header-Content-Length"])
    assert str(raised.value).startswith(message)
    for size in ("-1", "x", "1e3", str(len(body) + 1), "9" * 40):
        with pytest.raises(file_io.InputError, match="Inference-Header-Content-Length: expected"):
            read(body, size)


def test_forms_of_several_fields_and_their_outputs():
    def texts(name, *values, shape=None):
        return of_texts(*values, name=name, shape=shape or [len(values)])

    outputs = (tensors.PREDICTION, tensors.ANSWER, tensors.probabilities(tensors.ANY))
    question = EchoModel(
        kind="squad_v1", form=requests.QUESTION, labels=(), outputs=(tensors.ANSWER, tensors.RESULT)
    )
    number = of_texts(5, name="num_answers", datatype="INT64")
    body = {"inputs": [texts("question", "q"), texts("context", "c"), number]}
    parsed = read(json.dumps(body).encode(), None, question)
    assert parsed.examples == [{"question": "q", "context": "c", "num_answers": 5}]
    reply = json.loads(parsed.encode([{"answer": "", "answers": []}]).body)
    assert output_of(reply, "answer")["data"] == [""]
    choice = dataclasses.replace(
        question, kind="multiple_choice", form=requests.CHOICE, outputs=outputs
    )
    options = texts("options", "1", "2", "3", "4", shape=[2, 2])
    body = {"inputs": [texts("article", "a", "b"), texts("question", "q", "r"), options]}
    parsed = read(json.dumps(body).encode(), None, choice)
    assert [row["options"] for row in parsed.examples] == [["1", "2"], ["3", "4"]]
    row = {"prediction": "A", "answer": "1", "probabilities": {"A": 0.75, "B": 0.25}}
    reply = json.loads(parsed.encode([row, row]).body)
    assert output_of(reply, "probabilities")["shape"] == [2, 2]
    words = dataclasses.replace(
        question, kind="token_classifier", form=requests.WORDS, outputs=(tensors.RESULT,)
    )
    for name in ("words", "text"):
        body = {"inputs": [texts(name, "a b c")]}
        parsed = read(json.dumps(body).encode(), None, words)
        assert parsed.examples == [{"words": ["a", "b", "c"]}]
    body = {"inputs": [texts("words", "a", "b", "c", "d", shape=[2, 2])]}
    parsed = read(json.dumps(body).encode(), None, words)
    assert parsed.examples == [{"words": ["a", "b"]}, {"words": ["c", "d"]}]
    for name, expected in (("words", ["New York"]), ("text", ["New", "York"])):
        body = {"inputs": [texts(name, "New York", shape=[1, 1])]}
        assert read(json.dumps(body).encode(), None, words).examples == [{"words": expected}]
    number = dataclasses.replace(
        question, kind="classifier", form=requests.ONE_TEXT, outputs=(tensors.NUMBER,)
    )
    parsed = read(json.dumps({"inputs": [of_texts("a")]}).encode(), None, number)
    reply = json.loads(parsed.encode([{"prediction": 2.5}]).body)
    assert output_of(reply, "prediction") == {
        "name": "prediction", "datatype": "FP32", "shape": [1], "data": [2.5]
    }  # fmt: skip


def test_ids_weigh_as_many_sequences_as_they_are():
    example = requests.Ids({"input_ids": np.zeros((3, 8), np.int32)})
    assert requests.measured(requests.ONE_TEXT, example, 64) == batcher.Row(example, 40, 3)


def test_a_client_of_triton(tmp_path):
    """Everything that the client offers for a model, with its own defaults (binary tensors)."""
    http = pytest.importorskip("tritonclient.http")

    def ask(port):
        client = http.InferenceServerClient(f"127.0.0.1:{port}")
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("model") and client.is_model_ready("model", "1")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["name"] == "albert"
        assert client.get_model_metadata("model", "1")["platform"] == "albert_classifier"
        text = http.InferInput("text", [2], "BYTES")
        for is_binary in (True, False):
            text.set_data_from_numpy(np.array(["four", "\u20ac"], object), is_binary)
            for outputs in (
                None,
                [http.InferRequestedOutput(name, is_binary)
                 for name in ("prediction", "probabilities")],
            ):  # fmt: skip
                found = client.infer("model", [text], outputs=outputs, request_id="a1")
                assert found.get_response()["id"] == "a1"
                texts = [
                    value.decode() if isinstance(value, bytes) else value
                    for value in found.as_numpy("prediction")
                ]
                assert texts == ["four", "\u20ac"]
                expected = np.array([[0.5, 0.5], [0.875, 0.125]], np.float32)
                assert (found.as_numpy("probabilities") == expected).all()
            inputs = []
            for name in ("input_ids", "input_mask", "segment_ids"):
                inputs.append(http.InferInput(name, [2, 3], "INT64"))
                inputs[-1].set_data_from_numpy(np.ones((2, 3), np.int64), is_binary)
            found = client.infer("model", inputs, model_version="1")
            assert found.as_numpy("predictions").tolist() == [3, 3]
            assert found.as_numpy("probabilities").dtype == np.float32
        wrong = http.InferInput("txt", [1], "BYTES")
        wrong.set_data_from_numpy(np.array(["a"], object))
        with pytest.raises(http.InferenceServerException, match="expected the field text"):
            client.infer("model", [wrong])
        client.close()

    async def scenario(client, server):
        await asyncio.to_thread(ask, client._base_url.port)

    servers.run(scenario, Votes())
