"""The description in OpenAPI: valid, complete, and its examples are answered."""

import html.parser
import json
import re

import pytest

from albert.io import file_io
from albert.serving import requests, tensorflow_protocol
from tests.support import servers
from tests.support.serving_stand_in import EchoModel

openapi = pytest.importorskip("albert.serving.openapi")
pytest.importorskip("albert.serving.server")
FORMS = ("ONE_TEXT", "TWO_TEXTS", "WORDS", "CHOICE", "QUESTION")


def described(*models):
    """Descriptions of a server that has one model per form, and of one that loads it."""
    found = []

    async def scenario(client, server):
        for name, model in zip(("first", "second"), models, strict=False):
            server.start(model, name)
        found.append((await servers.get(client, openapi.DOCUMENT))[1])

    servers.run(scenario, model_names=("first", "second"))
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_it_is_valid(form):
    validator = pytest.importorskip("openapi_spec_validator")
    model = EchoModel(form=getattr(requests, form))
    for document in (described(), described(model), described(model, model)):
        validator.validate(document)


@pytest.mark.parametrize("form", FORMS)
def test_examples_are_requests(form):
    form = getattr(requests, form)
    entry = form.entry
    document = described(EchoModel(form=form))
    own = document["paths"][f"/models/first{entry}"]["post"]["requestBody"]["content"]
    example = own["application/json"]["example"]
    assert form.read(example, "", requests.Limits())
    with pytest.raises(file_io.InputError):
        form.read({**example, "unknown": 1}, "", requests.Limits())


def bodies(form):
    """Requests of both formats, good and bad."""
    one = form.example
    others = [(field.name, field.other_name) for field in form.fields if field.other_name]
    wrong = [{}, {**one, "unknown": 1}, one | dict.fromkeys(one, 1), one | dict.fromkeys(one, " ")]
    named = [one | {other: one[name]} for name, other in others]
    renamed = [{other: one[name] for name, other in others}]
    for row in (one, *wrong, *named, *renamed):
        yield from (row, {"examples": [row]}, {"instances": [row]}, {"instances": [one, row]})
        yield {"inputs": {name: [value] for name, value in row.items()}}
    values = list(one.values())
    for rows in ([], [one] * 65, values, [values], "a"):
        yield from ({"examples": rows}, {"instances": rows}, {"inputs": rows})
    yield from ({"examples": [one], "unknown": 1}, {"instances": [one], "inputs": [one]})
    yield from (
        {"instances": [one], "signature_name": name} for name in ("other", "serving_default")
    )


@pytest.mark.parametrize("form", FORMS)
def test_requests_are_answered_if_they_fit_the_schema(form):
    jsonschema = pytest.importorskip("jsonschema")
    form = getattr(requests, form)
    paths = described(EchoModel(form=form))["paths"]
    formats = {
        f"/models/first{form.entry}": requests.read,
        "/v1/models/first:predict": tensorflow_protocol.read,
    }
    for path, read in formats.items():
        content = paths[path]["post"]["requestBody"]["content"]
        validator = jsonschema.Draft202012Validator(content["application/json"]["schema"])
        answered = []
        for body in bodies(form):
            try:
                read(json.dumps(body).encode(), form, requests.Limits())
            except file_io.InputError as error:
                assert not validator.is_valid(body), (path, body, error)
            else:
                assert validator.is_valid(body), (path, body)
                answered.append(body)
        assert len(answered) >= 2


class Answers(EchoModel):
    """Gives classes and probabilities."""

    def answer(self, examples):
        share = {"a": 0.25, "b": 0.75}
        return [{"prediction": "b", "probabilities": share} for _ in examples]


def test_every_path_is_there_and_answers():
    async def scenario(client, server):
        server.start(Answers())
        document = (await servers.get(client, openapi.DOCUMENT))[1]
        for path, operations in document["paths"].items():
            assert "{" not in path
            async with client.options(path) as response:
                allowed = set(response.headers["Allow"].lower().split(","))
                assert allowed - {"head"} == set(operations)
            for method, operation in operations.items():
                body = operation.get("requestBody", {}).get("content", {})
                value = body.get("application/json", {}).get("example")
                async with client.request(method, path, json=value) as response:
                    assert response.status == 200, (path, await response.text())
        routes = {
            resource.canonical.replace("{name}", "model").replace("{version}", "1")
            for resource in server._application().router.resources()
        }
        hidden = {"/", openapi.DOCUMENT, openapi.PAGE, "/ask", "/models/model/ask"}
        assert routes - hidden == set(document["paths"])

    servers.run(scenario)


class Parser(html.parser.HTMLParser):
    """Collects tags and what they refer to."""

    def __init__(self):
        super().__init__()
        self.tags, self.links, self.shown = set(), [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data):
        self.shown += data


def test_the_page_needs_nothing_from_elsewhere():
    async def scenario(client, server):
        async with client.get(openapi.PAGE) as response:
            assert response.status == 200 and response.content_type == "text/html"
            policy = response.headers["Content-Security-Policy"]
            text = await response.text()
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        parser = Parser()
        parser.feed(text)
        assert parser.tags.isdisjoint({"script", "link", "img", "iframe", "form"})
        assert parser.links == [openapi.DOCUMENT]
        assert not re.search(r"https?://|@import|url\(", text)
        document = (await servers.get(client, openapi.DOCUMENT))[1]
        assert all(path in parser.shown for path in document["paths"])
        host = str(client._base_url).removeprefix("http://").rstrip("/")
        assert f"""curl {host}/predict -d '{{"text": "What a""" in parser.shown
        shown = parser.shown
        assert 0 < shown.index("What answers") < shown.index("/predict")
        assert shown.index("/v2/models/model/infer") < shown.index("Names, states")
        assert shown.index("Names, states") < shown.index("/v1/models/model/metadata")
        assert "curl localhost/predict" in openapi.page(document, "a'b")[0]

    servers.run(scenario, EchoModel())
