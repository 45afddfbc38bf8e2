"""The page to try a model: what the server sends, and to whom."""

import base64
import hashlib
import html.parser
import json
import re
import sys

import pytest

from tests.serving import test_server
from tests.support import processes
from tests.support.serving_stand_in import EchoModel
from tests.support.sources import ROOT

try_page = pytest.importorskip("albert.serving.try_page")


class Parts(html.parser.HTMLParser):
    """The texts of elements by tag, and all attributes by name."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.attributes, self._open = {}, {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value)

    def handle_data(self, data):
        self.texts.setdefault(self._open, data)


def test_only_its_own_script_and_style_run():
    text, headers = try_page.document()
    parts = Parts(text)
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy.pop("default-src") == "'none'" and policy.pop("connect-src") == "'self'"
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        digest = base64.b64encode(hashlib.sha256(parts.texts[tag].encode()).digest()).decode()
        assert len(parts.texts[tag]) > 1000 and policy.pop(name) == f"'sha256-{digest}'"
    for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types"):
        assert policy.pop(name) == "'none'"
    assert policy == {"img-src": "data:", "require-trusted-types-for": "'script'"}
    icon, *links = parts.attributes.pop("href")
    assert icon.startswith("data:image/svg+xml,") and links == ["docs"]
    assert not {"src", "srcset", "style", "action"} & parts.attributes.keys()
    assert not [name for name in parts.attributes if name.startswith("on")]
    script = parts.texts["script"]
    for sink in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval", "Function("):
        assert sink not in script
    assert not re.search(r"https?:|//\w", re.sub(r"(^|\s)//\s.*", "", script))


def test_what_the_server_sends():
    async def scenario(client, server):
        server.start(EchoModel())
        async with client.get("/") as response:
            assert response.status == 200 and response.content_type == "text/html"
            text, headers = try_page.document()
            assert await response.text() == text
            assert {name: response.headers[name] for name in headers} == headers
        async with client.head("/") as response:
            assert response.status == 200
        async with client.post("/", data=b"{}") as response:
            assert response.status == 405
        assert (await test_server.get(client, "/", Host="pages.example"))[0] == 421
        _, metrics = await test_server.get(client, "/metrics")
        assert 'albert_requests_total{path="/",status="200"} 2.0\n' in metrics

    test_server.serve(scenario)


def test_the_page_can_be_left_out():
    async def scenario(client, server):
        status, text = await test_server.get(client, "/")
        assert status == 404 and json.loads(text).keys() == {"error"}
        assert (await test_server.post(client, "/predict", {"text": "a"}))[0] == 200

    test_server.serve(scenario, EchoModel(), page=False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://proxy.example"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://LOCALHOST:80", "Host": "localhost:80"}, 200),
        ({"Origin": "http://localhost:81", "Host": "localhost:80"}, 403),
        ({"Origin": "https://pages.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[::1"}, 403),
    ],
)
def test_pages_of_other_sites_may_not_ask(headers, status):
    async def scenario(client, server):
        asked = (("/predict", {"text": "a"}), ("/v1/models/model:predict", {"inputs": ["a"]}))
        for path, body in asked:
            async with client.post(path, data=json.dumps(body), headers=headers) as response:
                assert response.status == status
                if status == 403:
                    assert "a page of another site may not" in (await response.json())["error"]
        async with client.get("/healthz", headers=headers) as response:
            assert response.status == 200

    test_server.serve(scenario, EchoModel())


def test_it_needs_no_template_engine():
    program = """
import sys
sys.modules["jinja2"] = sys.modules["tensorflow"] = None
from albert.serving import try_page
print(len(try_page.document()[0]))
"""
    found = processes.run([sys.executable, "-c", program], cwd=ROOT, timeout=60)
    assert int(found.stdout) > 5000, found.stderr
