"""A server over HTTP: bad input, too much of it, slow clients, its end."""

import asyncio
import contextlib
import functools
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from tests.support import processes, servers
from tests.support.servers import post
from tests.support.serving_stand_in import EchoModel
from tests.support.sources import ROOT

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("prometheus_client")
http_server = pytest.importorskip("albert.serving.server")

LIMITS = http_server.requests.Limits(3, 50)


serve = functools.partial(servers.run, limits=LIMITS)


async def get(client, path, **headers):
    async with client.get(path, headers=headers) as response:
        return response.status, await response.text()


def test_requests_and_replies():
    async def scenario(client, server):
        assert (await post(client, "/predict", {"text": "a"}))[:2] == (200, {"prediction": "a"})
        several = {"examples": [{"text": "a"}, {"text": "b"}]}
        expected = {"results": [{"prediction": "a"}, {"prediction": "b"}]}
        assert (await post(client, "/predict", several))[:2] == (200, expected)
        path = "/v1/models/mine:predict"
        assert (await post(client, path, {"instances": ["a"]}))[1] == {"predictions": ["a"]}
        assert (await post(client, path, {"inputs": ["a"]}))[1] == {"outputs": ["a"]}
        status, text = await get(client, "/v1/models/mine")
        (version,) = json.loads(text)["model_version_status"]
        assert status == 200 and version["state"] == "AVAILABLE"
        assert version["status"] == {"error_code": "OK", "error_message": ""}
        assert await get(client, "/healthz") == (200, '{"status": "ready"}\n')

    serve(scenario, EchoModel(), model_name="mine")


BAD = [
    ("/predict", b"{", 400, "the request: not valid JSON: Expecting property name"),
    ("/predict", {"txt": "a"}, 400, "txt: expected the field text, found 'txt'"),
    ("/predict", {"text": "a" * 51}, 400, "the request: expected at most 50 characters, found 51"),
    ("/predict", {"examples": [{"text": "a"}] * 4}, 400, "examples: expected 1 to 3 examples"),
    ("/predict", {"text": "refused"}, 400, "text: the model refuses it"),
    (
        "/predict",
        {"examples": [{"text": "a"}, {"text": "refused"}]},
        400,
        "examples[1]: text: the model refuses it",
    ),
    ("/predict", {"text": "broken"}, 500, "an error of the server, see its log"),
    ("/predict", {"text": "overflow"}, 500, "the model has computed logits that are not finite"),
    (
        "/predict",
        {"examples": [{"text": "a"}, {"text": "overflow"}]},
        500,
        "examples[1]: the model has computed logits",
    ),
    ("/predict", b"x" * 101, 413, "the request: expected at most 100 bytes, found 101 bytes"),
    ("/ask", {"question": "a"}, 404, "/ask: a model of kind classifier is asked at /predict"),
    ("/v1/models/model:predict", b"[]", 400, "the request: expected object, found list"),
    ("/v1/models/model:predict", {"instances": 1}, 400, "instances: expected list, found whole"),
    ("/v1/models/other:predict", {"instances": ["a"]}, 404, "expected the model 'model', found"),
    ("/v1/models/model", b"", 405, "POST /v1/models/model: Method Not Allowed"),
    ("/healthz", b"", 405, "POST /healthz: Method Not Allowed"),
    ("/metrics", b"", 405, "POST /metrics: Method Not Allowed"),
    ("/nothing", b"", 404, "POST /nothing: Not Found"),
]


def test_bad_input_is_refused_and_the_server_stays():
    async def scenario(client, server):
        for path, value, status, message in BAD:
            found = await post(client, path, value)
            assert found[0] == status and found[1]["error"].startswith(message), (path, found)
        for path in ("/v1/models/x", "/predict", "/%00"):
            status, text = await get(client, path)
            assert status in (404, 405) and json.loads(text).keys() == {"error"}

        async def parts():
            for _ in range(20):
                yield b"x" * 10

        async with client.post("/predict", data=parts()) as response:  # of no known length
            assert response.status == 413 and "found more" in await response.text()
        headers = {"Content-Encoding": "gzip"}
        async with client.post("/predict", data=b"x", headers=headers) as response:
            assert response.status in (400, 415)
        assert (await post(client, "/predict", {"text": "a"}))[0] == 200
        _, text = await get(client, "/metrics")
        counted = 'albert_requests_total{path="/predict",status="%d"} %.1f\n'
        for status, times in ((200, 1), (405, 1), (413, 2), (500, 3)):
            assert counted % (status, times) in text
        assert 'albert_requests_total{path="other",status="404"} 4.0\n' in text
        assert re.search(r'^albert_request_seconds_count\{path="/ask"\} 1\.0$', text, re.M)
        assert re.search(r"^albert_batch_rows_count [1-9]", text, re.M)
        assert "\nalbert_ready 1.0\n" in text and "\nalbert_waiting_rows 0.0\n" in text

    serve(scenario, EchoModel(), max_request_bytes=100)


def test_before_the_model_is_there_and_after_the_end():
    async def scenario(client, server):
        assert await get(client, "/healthz") == (503, '{"status": "loading"}\n')
        status, reply, headers = await post(client, "/predict", {"text": "a"})
        assert status == 503 and reply == {"error": "the model is still being loaded"}
        assert headers["Retry-After"] == "5"
        assert '"LOADING"' in (await get(client, "/v1/models/model"))[1]
        server.start(EchoModel())
        assert (await post(client, "/predict", {"text": "a"}))[0] == 200
        server.refuse_new()
        assert await get(client, "/healthz") == (503, '{"status": "stopping"}\n')
        status, reply, headers = await post(client, "/v1/models/model:predict", {"inputs": ["a"]})
        assert status == 503 and reply == {"error": "the server is stopping"}
        assert headers["Retry-After"] == "1" and headers["Connection"] == "close"

    serve(scenario)


class Gate(EchoModel):
    """Waits for `go` before each batch, whose texts it keeps."""

    def __init__(self):
        super().__init__()
        self.go, self.called, self.seen = threading.Event(), threading.Event(), []

    def answer(self, examples):
        self.seen.append([example["text"] for example in examples])
        self.called.set()
        assert self.go.wait(30)
        return super().answer(examples)

    async def busy(self, client):
        """Occupies the model with a first request."""
        task = asyncio.ensure_future(post(client, "/predict", {"text": "first"}))
        await asyncio.to_thread(self.called.wait, 30)
        return task


async def waiting_rows(client, count):
    while f"\nalbert_waiting_rows {count:.1f}\n" not in (await get(client, "/metrics"))[1]:
        await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_full_queue_refuses_and_clients_that_go_make_room():
    model = Gate()

    async def scenario(client, server):
        first = await model.busy(client)
        gone = asyncio.ensure_future(post(client, "/predict", {"text": "gone"}))
        kept = asyncio.ensure_future(post(client, "/predict", {"text": "kept"}))
        await waiting_rows(client, 2)
        status, reply, headers = await post(client, "/predict", {"text": "more"})
        assert status == 503 and reply["error"] == "the queue is full: 2 of 2 texts are waiting"
        assert int(headers["Retry-After"]) >= 1
        gone.cancel()
        while 'status="499"' not in (await get(client, "/metrics"))[1]:
            await asyncio.sleep(0.01)
        more = asyncio.ensure_future(post(client, "/predict", {"text": "more"}))
        await waiting_rows(client, 2)
        model.go.set()
        replies = [(await task)[1]["prediction"] for task in (first, kept, more)]
        assert replies == ["first", "kept", "more"]
        assert model.seen == [["first"], ["kept", "more"]]

    serve(scenario, model, max_waiting=2)


def test_a_request_that_takes_too_long_is_given_up():
    model = Gate()

    async def scenario(client, server):
        first = await model.busy(client)
        status, reply, headers = await post(client, "/predict", {"text": "late"})
        assert (status, headers["Retry-After"]) == (503, "5")
        assert reply == {"error": "no answer within 0.2 seconds"}
        assert (await first)[0] == 503
        model.go.set()
        model.called.clear()
        assert (await post(client, "/predict", {"text": "next"}))[1] == {"prediction": "next"}
        assert model.seen == [["first"], ["next"]]  # "late" was not computed any more

    serve(scenario, model, request_timeout=0.2)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:80", 200), ("LOCALHOST.", 200), ("10.0.0.7", 200), ("[::1]:8501", 200),
        (socket.gethostname(), 200), ("model.example:8501", 200), ("evil.example", 421),
        ("localhost.evil.example:8501", 421), ("127.0.0.1.evil.example", 421), ("a b", 421),
        ("", 400), ("[::1", 400), ("evil.example:80:80", 400),
    ],
)  # fmt: skip
def test_the_host_is_checked(host, status):
    async def scenario(client, server):
        for path in ("/healthz", "/metrics", "/nothing"):
            found, text = await get(client, path, Host=host)
            expected = 404 if status == 200 and path == "/nothing" else status
            assert (found, "Host: expected" in text) == (expected, status != 200)

    serve(scenario, EchoModel(), allowed_hosts=("model.example",))


def test_any_host_may_be_allowed():
    async def scenario(client, server):
        assert (await get(client, "/healthz", Host="evil.example"))[0] == 200

    serve(scenario, EchoModel(), allowed_hosts=(http_server.ANY_HOST,))


def test_who_is_warned():
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert http_server.is_loopback(host)
    for host in ("0.0.0.0", "::", "", "192.168.0.1", "example.com"):
        assert not http_server.is_loopback(host)


# --- in a process of its own --------------------------------------------------------------------


class Process:
    """`serving_stand_in` in a process; its log is read to the end by `ended`."""

    def __init__(self, *arguments, most_files=None):
        limit = [] if most_files is None else ["prlimit", f"--nofile={most_files}:{most_files}"]
        program = [sys.executable, "-m", "tests.support.serving_stand_in", "0"]
        self.process = subprocess.Popen(
            [*limit, *program, *map(str, arguments)],
            cwd=ROOT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.log = ""
        listening = self.wait_for(r"Listening at http://127\.0\.0\.1:(\d+)")
        self.port = int(listening[1]) if listening else None

    def wait_for(self, pattern):
        while not re.search(pattern, self.log):
            line = self.process.stderr.readline()
            if not line:
                return None
            self.log += line
        return re.search(pattern, self.log)

    def connect(self, text=b""):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(text)
        return connection

    def ask(self, text):
        """A connection on which a text was asked for, which the server has begun to answer."""
        body = json.dumps({"text": text}).encode()
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        connection = self.connect(head + b"Content-Length: %d\r\n\r\n" % len(body))
        go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert connection.recv(len(go_on), socket.MSG_WAITALL) == go_on
        connection.sendall(body)
        return connection

    def ended(self):
        """Exit status."""
        self.log += self.process.communicate(timeout=60)[1]
        return self.process.returncode


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:
        stand_ins = []
        running = stack.enter_context(processes.killed_at_the_end([]))

        def begin(*arguments, **options):
            stand_ins.append(Process(*arguments, **options))
            running.append(stand_ins[-1].process)
            return stand_ins[-1]

        yield begin
        for stand_in in stand_ins:
            stand_in.process.stderr.close()


def read_all(connection):
    """Receives until the server closes the connection."""
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


def exchange(server, text):
    """The whole reply to a text after which the client has ended its side."""
    with server.connect(text) as connection:
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def request_of(text, path="/predict"):
    body = json.dumps({"text": text}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


NO_HTTP = [
    (b"\x16\x03\x01 secret\r\n\r\n", "400", "the request: expected HTTP/1.1, found "),
    (b"GET /healthz HTTP/9.9\r\n\r\n", "400", "the request: expected HTTP/1.1, found "),
    (b"GET / HTTP/1.1\r\nA b: c\r\n\r\n", "400", "the request: expected HTTP/1.1, found "),
    (b"GET / HTTP/1.1\r\nX: %s\r\n\r\n" % (b"x" * 9000), "400", "the request: expected HTTP/1.1"),
    (request_of("a").replace(b"Length: ", b"Length: -"), "400", "the request: expected HTTP/1.1"),
    (request_of("a")[:-3], "400", "the request: expected a complete body, found "),
    (request_of("a").replace(b"Content-Length: 13", b"Transfer-Encoding: chunked"), "400",
     "the request: expected HTTP/1.1, found Invalid character in chunk size"),
    (request_of("a").replace(b"Host", b"Expect: magic\r\nHost"), "417",
     "POST /predict: Expectation Failed"),
    (request_of("a").replace(b"Host: localhost\r\n", b""), "400",
     ""),  # whose words depend on the version
    (request_of("a").replace(b"Host", b"Host: a\r\nHost"), "400", ""),
]  # fmt: skip


@pytest.mark.slow
def test_what_is_no_http_is_answered_in_json_and_noted_in_a_line(start):
    server = start(0)
    server.wait_for("Ready")
    for text, status, message in NO_HTTP * 10:
        head, _, body = exchange(server, text).partition("\r\n\r\n")
        assert re.match(rf"HTTP/1.[01] {status} ", head), (text, head)
        assert "application/json" in head and json.loads(body)["error"].startswith(message)
    for _ in range(100):  # clients that vanish, with a reset
        for text in (request_of("a"), request_of("a")[:-3], request_of("a")[:30], b""):
            with server.connect(text) as connection:
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    metrics = exchange(server, b"GET /metrics HTTP/1.0\r\n\r\n")
    counted = re.findall(r'^albert_requests_total.*,status="400"\} (\d+)\.0$', metrics, re.M)
    assert sum(map(int, counted)) >= 10 * sum(status == "400" for _, status, _ in NO_HTTP)
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() == 0
    assert "Traceback" not in server.log and "secret" not in server.log
    assert len(server.log.splitlines()) < 20, server.log
    assert re.search(r"Not HTTP: from 127.0.0.1: \w", server.log)
    assert re.search(r"Not HTTP: \d\d more in 60 seconds", server.log)


@pytest.mark.slow
def test_a_client_that_has_ended_its_side_gets_its_answers(start):
    server = start(0.2)
    server.wait_for("Ready")
    started = time.monotonic()
    text = exchange(server, request_of("one") + request_of("two"))
    assert time.monotonic() - started < 0.9, "the server waits for another request"
    assert re.findall(r'^HTTP/1.1 (\d+)|"(one|two)"', text, re.M) == [
        ("200", ""), ("", "one"), ("200", ""), ("", "two")
    ]  # fmt: skip
    assert exchange(server, b"") == exchange(server, request_of("a")[:20]) == ""
    old = request_of("old").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert '"old"' in exchange(server, old)


def is_rejected(stack, server):
    """Whether one more request is answered at once, with status 503; else it is left open."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        connection = stack.enter_context(server.connect(request_of("b")))
        connection.settimeout(1)
        return b"503 Service Unavailable" in connection.recv(1 << 16)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["unanswered", "silent"])
def test_health_is_told_when_file_handles_are_short(start, whole):
    """Of clients that send nothing, and of those whose requests are not answered yet."""
    server = start(100, most_files=80)  # answers nothing meanwhile
    server.wait_for("Ready")
    assert re.search(r"At most (\d+) connections instead of 512", server.log)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            with contextlib.suppress(ConnectionError):  # closed at once
                stack.enter_context(server.connect(request_of("a") if whole else b""))
        for _ in range(5):
            started = time.monotonic()
            assert "HTTP/1.0 200" in exchange(server, b"GET /healthz HTTP/1.0\r\n\r\n")
            assert time.monotonic() - started < 2
        metrics = exchange(server, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert int(re.search(r"^albert_connections (\d+)", metrics, re.M)[1]) <= 48
        if whole:  # On a slow machine, some of the 200 were dropped before they were read.
            assert any(is_rejected(stack, server) for _ in range(50))
    server.process.kill()
    server.ended()
    assert "Traceback" not in server.log and "Too many open files" not in server.log
    assert server.log.count("Too many connections") <= 1 and len(server.log.splitlines()) < 20


@pytest.mark.slow
def test_slow_clients_are_given_up_and_delay_nobody(start):
    server = start(0)
    server.wait_for("Ready")
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
    silent = [server.connect() for _ in range(30)]
    slow_heads = [server.connect(head) for _ in range(30)]
    slow_bodies = [server.connect(head + b'Content-Length: 14\r\n\r\n{"te') for _ in range(30)]
    started = time.monotonic()
    with server.ask("quick") as quick:
        assert b'{"prediction": "quick"}' in quick.recv(1 << 16)
    assert time.monotonic() - started < 20  # one after the other they would take 90 seconds
    for connection in slow_heads:
        connection.sendall(b"X-More: ")  # a little now and then does not help
    assert all(read_all(connection) == "" for connection in silent + slow_heads)
    for text in map(read_all, slow_bodies):
        assert text.startswith("HTTP/1.1 408") and "did not come within 1 seconds" in text
    body = json.dumps({"examples": [{"text": "x" * 19_000}] * 50}).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with server.connect() as greedy, contextlib.suppress(OSError):  # takes no reply at all
        greedy.sendall((head + body) * 30)
        pytest.fail("the server holds 30 MB for a client")
    server.process.send_signal(signal.SIGINT)
    assert server.ended() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_answers_what_was_accepted(start, number):
    server = start(0.3)
    server.wait_for("Ready")
    idle = server.connect()
    waiting = [server.ask(f"text {i}") for i in range(4)]
    server.process.send_signal(number)
    server.wait_for("Stopping")
    with pytest.raises(ConnectionError):
        server.connect()
    for i, text in enumerate(map(read_all, waiting)):
        assert text.startswith("HTTP/1.1 200") and f'"text {i}"' in text
    assert read_all(idle) == ""
    assert server.ended() == 0


def test_the_end_while_the_model_is_loaded(start):
    server = start(0, "slow")
    with server.ask("early") as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 503")
    server.process.send_signal(signal.SIGTERM)
    assert server.ended() == 0
    assert "Ready" not in server.log


def test_a_model_that_cannot_be_loaded_ends_the_server(start):
    server = start(0, "broken")
    assert server.ended() == 1
    assert "InputError: there is no model" in server.log
