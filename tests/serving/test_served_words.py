"""A pre-trained model behind the server: masked words in every protocol, and what is refused."""

import json

import pytest

from albert import heads, serve
from albert.io import file_io
from albert.model import published
from albert.serving import masked_words, served_model, tensors
from albert.tasks import kinds
from tests.serving import test_masked_words, test_server
from tests.support import builders, servers, serving_samples

CONFIG, TEXTS = test_masked_words.CONFIG, test_masked_words.TEXTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    builders.write_model(path, heads.PretrainingModel(CONFIG, seed=1), CONFIG)
    return str(path)


@pytest.fixture(scope="module")
def model(folder):
    return served_model.load(folder)


def assert_answers(found, wanted):
    for ours, theirs in zip(found, masked_words.to_json(wanted), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.pop("probability") == pytest.approx(other.pop("probability"), rel=1e-4)
            assert one == other


@pytest.mark.slow
def test_answers_are_those_of_fill_mask(folder, model):
    filler = masked_words.MaskedWords.load(folder)
    counts = (1, 4, 20)
    examples = [{"text": text, "num_answers": n} for text, n in zip(TEXTS, counts, strict=True)]
    for served in (model, served_model.load(folder, max_batch_tokens=1)):
        results = served.answer(examples)
        for result, text, count in zip(results, TEXTS, counts, strict=True):
            assert_answers(result["masks"], filler.fill(text, count))
    assert (model.kind, model.max_seq_length, model.labels) == ("masked_words", 24, ())
    assert model.abstention() is None and model.outputs == (tensors.RESULT,)
    served_model.warm(model, 2)


def test_a_model_that_refuses_the_longest_sample_starts(model, monkeypatch):
    """As where the word of the sample is several tokens."""
    tried = []

    def answer(examples):
        tried.append(len(examples[0]["text"].split()))
        raise file_io.InputError("the text has too many tokens")

    monkeypatch.setattr(model, "answer", answer)
    served_model.warm(model, 2)
    assert len(tried) == len(served_model.shapes(24, 2))


def test_every_protocol(folder, model):
    wanted = masked_words.MaskedWords.load(folder).fill(TEXTS[0], 3)

    async def scenario(client, server):
        async def post(path, body):
            return (await servers.post(client, path, body))[:2]

        status, reply = await post("/predict", {"text": TEXTS[0]})
        assert status == 200 and reply.keys() == {"masks"}
        assert_answers(reply["masks"], wanted)
        path = "/v1/models/model:predict"
        row, bare = {"text": TEXTS[0], "num_answers": 3}, TEXTS[0]
        for body in ({"instances": [row]}, {"instances": [bare]}, {"inputs": [bare]}):
            status, reply = await post(path, body)
            (masks,) = next(iter(reply.values()))
            assert status == 200
            assert_answers(masks, wanted)
        text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [TEXTS[0]]}
        status, reply = await post("/v2/models/model/infer", {"inputs": [text]})
        (output,) = reply["outputs"]
        assert (status, output["name"], output["shape"]) == (200, "result", [1])
        assert_answers(json.loads(output["data"][0])["masks"], wanted)
        ids = {"name": "input_ids", "datatype": "INT32", "shape": [1, 2], "data": [2, 3]}
        status, reply = await post("/v2/models/model/infer", {"inputs": [ids]})
        assert status == 400 and "input_ids" in reply["error"]
        for text, message in (
            ("the bread", "text: expected a text with 1 to 16 [MASK] in the place of words, found"),
            ("[MASK] " * 17, "found 17"),
            ("the " * 30 + "[MASK]", "has 33 tokens"),
        ):
            status, reply = await post("/predict", {"text": text})
            assert status == 400 and message in reply["error"]
        (described,) = json.loads((await test_server.get(client, "/v1/models"))[1])["models"]
        assert described["kind"] == "masked_words" and described["labels"] is None
        assert "[MASK]" in described["example"]["properties"]["text"]["examples"][0]
        assert (await test_server.get(client, "/v1/models/model/metadata"))[0] == 200
        docs = (await test_server.get(client, "/docs"))[1]
        assert "The capital of France is [MASK]." in docs

    servers.run(scenario, model)


def test_what_is_pretrained(folder, tmp_path):
    assert kinds.find_pretrained(folder).checkpoint == f"{folder}/model.ckpt-best"
    shipped = serve.models_of(serve.Settings(model_dir="albert_mini"))
    assert shipped == {"albert_mini": published.local_path("albert_mini")}
    assert kinds.find_pretrained(shipped["albert_mini"]).checkpoint.endswith(".safetensors")
    trained = serving_samples.trained_in(tmp_path / "trained", "classifier")
    (tmp_path / "empty").mkdir()
    for path in (trained.path, str(tmp_path / "empty"), str(tmp_path / "nothing")):
        assert kinds.find_pretrained(path) is None
    (tmp_path / "trained/model.json").unlink()
    assert kinds.find_pretrained(trained.path) is None
    encoder = tmp_path / "encoder"
    model = heads.ClassifierModel(CONFIG, 2, seed=2).albert
    builders.write_model(encoder, model, CONFIG)
    with pytest.raises(file_io.InputError, match="has no head for masked words"):
        served_model.load(str(encoder))
