"""Two minutes at twice the capacity, with slow, cut-off and hostile clients."""

import asyncio
import contextlib
import json
import pathlib
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

import pytest

from tests.support import processes
from tests.support.sources import ROOT

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("albert.serving.server")

SECONDS = 120
PER_TEXT = 0.02  # seconds that the model takes: 50 texts per second
RATE = 2 / PER_TEXT  # requests per second
MOST = 400  # unanswered requests: more than may wait, and fewer than connections
SLOW, CUT_OFF_PER_SECOND = 20, 10
MEMORY = 0.05  # allowed growth
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"


def tensor(**changes):
    return {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"]} | changes


# Path, body, headers.
HOSTILE = [
    ("/predict", b"[" * 100_000, {}),
    ("/predict", b'{"text": ' + b"9" * 5000 + b"}", {}),
    ("/predict", b'{"text": "\xff"}', {}),
    ("/predict", b"x" * 2_000_000, {}),
    ("/predict", b'{"text": "a"}', {"Content-Encoding": "gzip"}),
    ("/predict", b'{"text": "a"}', {"Host": "evil.example"}),
    ("/predict", b'{"examples": []}', {"X-Request-ID": "x" * 4000}),
    ("/models/other/predict", b"{}", {}),
    ("/v1/models/model/versions/9:predict", b"{}", {}),
    ("/v1/models/model:predict", b'{"inputs": {"text": [], "b": [1]}}', {}),
    ("/v2/models/model/infer", json.dumps({"inputs": [tensor(shape=[10**300])]}).encode(), {}),
    ("/v2/models/model/infer", json.dumps({"inputs": [tensor(shape=[64, 10**9])]}).encode(), {}),
    ("/v2/models/model/infer", b'{"inputs": []}', {"Inference-Header-Content-Length": "-5"}),
    ("/v2/models/model/infer", json.dumps({"inputs": [tensor()] * 10_000}).encode(), {}),
]  # fmt: skip


class Seen:
    """Results of clients: statuses, and everything that must not happen."""

    def __init__(self):
        self.statuses, self.wrong, self.memory = {}, [], []

    def check(self, status, headers, reply, expected=None):
        """Counts a reply; `expected` is that of a right request."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status in (429, 503):
            if not headers.get("Retry-After", "").isdigit():
                self.wrong.append((status, "no Retry-After"))
        elif (status == 200) != (expected is not None) or status >= 500:
            self.wrong.append((status, expected, reply[:200]))
        elif expected is not None and expected not in reply:
            self.wrong.append(("another answer", expected, reply[:200]))


def asked(number):
    """(path, JSON, a part of the right reply) of one of many requests, each with its own text."""
    text = f"text {number} " + "word " * (number % 50)
    quoted = json.dumps(text)
    return [
        ("/predict", {"text": text}, f'"prediction": {quoted}'),
        ("/v1/models/model:predict", {"instances": [text]}, f'"predictions": [{quoted}]'),
        ("/v2/models/model/infer", {
            "inputs": [tensor(data=[text])], "outputs": [{"name": "prediction"}],
        }, f'"data": [{quoted}]'),
    ][number % 3]  # fmt: skip


async def right_client(session, seen, number):
    path, value, expected = asked(number)
    try:
        async with session.post(path, data=json.dumps(value)) as response:
            seen.check(response.status, response.headers, await response.text(), expected)
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        seen.wrong.append((path, repr(error)))


async def right_clients(session, seen, until):
    """Sends requests at `RATE`, whether or not earlier ones were answered."""
    started, sent, running = time.monotonic(), 0, set()
    while time.monotonic() < until:
        while sent < (time.monotonic() - started) * RATE and len(running) < MOST:
            task = asyncio.ensure_future(right_client(session, seen, sent))
            running.add(task)
            task.add_done_callback(running.discard)
            sent += 1
        await asyncio.sleep(0.01)
    await asyncio.gather(*running)


async def hostile_client(session, seen, until):
    while time.monotonic() < until:
        for path, body, headers in HOSTILE:
            # The server may close the connection before it has read everything.
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.post(path, data=body, headers=headers) as response:
                    seen.check(response.status, response.headers, await response.text())
            await asyncio.sleep(0.05)


async def slow_client(port, until):
    """Sends a byte now and then until the server gives up."""
    while time.monotonic() < until:
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD)
            with contextlib.suppress(asyncio.TimeoutError):
                while time.monotonic() < until:
                    writer.write(b"X")
                    if await asyncio.wait_for(reader.read(1), 0.3) == b"":
                        break
            writer.close()


async def cut_off_clients(port, until):
    """Vanish with a reset: at once, within a request, or while they wait for an answer."""
    whole = HEAD + b'Content-Length: 13\r\n\r\n{"text": "a"}'
    number = 0
    while time.monotonic() < until:
        number += 1
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(whole[: (0, 20, len(HEAD), -3, None)[number % 5]])
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
        await asyncio.sleep(1 / CUT_OFF_PER_SECOND)


async def operator(session, seen, process, until):
    """Asks for health, and reads the resident memory of the server."""
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while time.monotonic() < until:
        started = time.monotonic()
        for path in ("/livez", "/readyz", "/metrics"):
            async with session.get(path) as response:
                if response.status != 200:
                    seen.wrong.append((path, response.status))
                await response.read()
        if time.monotonic() - started > 10:
            seen.wrong.append(("health", time.monotonic() - started))
        seen.memory.append(int(re.search(r"VmRSS:\s+(\d+) kB", status.read_text())[1]))
        await asyncio.sleep(1)


async def overload(process, port, seconds):
    seen, until = Seen(), time.monotonic() + seconds
    # A connection that is kept may be closed by the server just as the client uses it again.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    limit = aiohttp.ClientTimeout(60)
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(url, connector=connector, timeout=limit) as session:
        await asyncio.gather(
            right_clients(session, seen, until),
            hostile_client(session, seen, until),
            cut_off_clients(port, until),
            operator(session, seen, process, until),
            *(slow_client(port, until) for _ in range(SLOW)),
        )
    return seen


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_two_minutes_at_twice_the_capacity(tmp_path):
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "tests.support.serving_stand_in",
        "0",
        str(PER_TEXT),
        "patient",
    ]
    with log.open("w") as file, processes.killed_at_the_end([]) as running:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file, stdin=subprocess.DEVNULL)
        running.append(process)
        processes.wait_until(lambda: "Ready" in log.read_text(), process, say=log.read_text)
        port = int(re.search(r"Listening at http://127\.0\.0\.1:(\d+)", log.read_text())[1])
        seen = asyncio.run(overload(process, port, SECONDS))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not seen.wrong, (len(seen.wrong), seen.wrong[:5], seen.statuses)
    assert seen.statuses.keys() <= {200, 400, 404, 413, 415, 421, 503}, seen.statuses
    # Nearly all of the capacity was used, and what was beyond it was refused.
    assert seen.statuses[200] > 0.5 * SECONDS / PER_TEXT, seen.statuses
    assert seen.statuses[503] > 0.1 * SECONDS / PER_TEXT, seen.statuses
    # The queue is full after a quarter of the time.
    quarter = len(seen.memory) // 4
    early = statistics.median(seen.memory[quarter : 2 * quarter])
    late = statistics.median(seen.memory[-quarter:])
    assert late <= (1 + MEMORY) * early, seen.memory
    text = log.read_text()
    assert "Traceback" not in text and len(text.splitlines()) < 10 + SECONDS / 10, text[-2000:]
