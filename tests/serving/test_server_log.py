"""Identifiers of requests, and the log as JSON."""

import io
import json
import logging as python_logging
import re

import pytest

from albert.serving import server_log
from tests.support import servers
from tests.support.serving_stand_in import EchoModel


@pytest.fixture
def log(monkeypatch):
    """The log as JSON lines."""
    stream = io.StringIO()
    handler = python_logging.StreamHandler(stream)
    handler.setFormatter(server_log.JsonFormatter())
    root = python_logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(python_logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize("given", ["a", "5f3e-42", "Root=1-67891233:a/b+c_d.e@f", "x" * 128])
def test_identifiers_of_clients_are_taken(given):
    assert server_log.request_id(given) == given


@pytest.mark.parametrize(
    "given", [None, "", "a b", 'a"', "a\n", "a\r\nX: y", "\x1b[31m", "é", "x" * 129, "{}"]
)
def test_others_are_made(given):
    found = {server_log.request_id(given) for _ in range(50)}
    assert len(found) == 50 and all(re.fullmatch("[0-9a-f]{16}", name) for name in found)


def test_requests_have_a_line_with_their_identifier(log):
    async def scenario(client, server):
        found = await servers.post(
            client, "/predict", {"text": "a secret"}, **{"X-Request-ID": "mine-1"}
        )
        assert found[0] == 200 and found[2]["X-Request-ID"] == "mine-1"
        bad = await servers.post(client, "/predict", b"{", **{"X-Request-ID": "no no"})
        assert bad[0] == 400 and re.fullmatch("[0-9a-f]{16}", bad[2]["X-Request-ID"])
        broken = await servers.post(client, "/models/model/predict", {"text": "broken"})
        lost = await servers.get(client, "/" + "x" * 1000)
        rows = [row for row in log() if row["message"] == "request"]
        keys = ("request_id", "method", "path", "model", "status", "bytes")
        assert [tuple(row[key] for key in keys) for row in rows] == [
            ("mine-1", "POST", "/predict", "model", 200, 20),
            (bad[2]["X-Request-ID"], "POST", "/predict", "model", 400, 1),
            (broken[2]["X-Request-ID"], "POST", "/models/model/predict", "model", 500, 18),
            (lost[2]["X-Request-ID"], "GET", "/" + "x" * 199, None, 404, None),
        ]
        for row in rows:
            assert row["remote"] == "127.0.0.1" and 0 <= row["seconds"] < 60
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", row["time"])
        (error,) = [row for row in log() if row["level"] == "ERROR" and "text" in row["message"]]
        assert "RuntimeError: a mistake of the model" in error["error"]
        assert "secret" not in json.dumps(log())

    servers.run(scenario, EchoModel(), log_requests=True)


def test_without_it_requests_have_no_line(log):
    async def scenario(client, server):
        assert (await servers.post(client, "/predict", {"text": "a"}))[2]["X-Request-ID"]
        assert not log()

    servers.run(scenario, EchoModel())


def test_lines_are_objects_whatever_a_message_holds(log):
    python_logging.getLogger("albert.test").info("%s", 'two\nlines "quoted" \x1b[31m \ud800')
    (row,) = log()
    assert row["message"] == 'two\nlines "quoted" \x1b[31m \ud800' and row["level"] == "INFO"
