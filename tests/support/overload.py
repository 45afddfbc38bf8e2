"""Clients that overload a server: right ones at a given rate, hostile, slow and cut-off ones."""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import re
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp")

MOST = 400  # unanswered requests: more than may wait, and fewer than connections
SLOW, CUT_OFF_PER_SECOND = 20, 10
STATUSES = {200, 400, 404, 413, 415, 421, 503}  # that may come
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"


@dataclasses.dataclass(frozen=True)
class Request:
    """A request that has an answer.

    Attributes:
      path, value: path of the server, and the body before it is written as JSON.
      is_right: ``(reply)``: whether the text of a reply is the right one.
    """

    path: str
    value: Any
    is_right: Callable[[str], bool]


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
    """Results of clients: statuses, everything that must not happen, and memory each second."""

    def __init__(self):
        self.statuses, self.wrong, self.memory = {}, [], []

    def check(self, status, headers, reply, request=None):
        """Counts a reply to a right request; to a hostile one if it is None."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status in (429, 503):
            if not headers.get("Retry-After", "").isdigit():
                self.wrong.append((status, "no Retry-After"))
        elif (status == 200) != (request is not None) or status >= 500:
            self.wrong.append((status, request, reply[:200]))
        elif request is not None and not request.is_right(reply):
            self.wrong.append(("another answer", request, reply[:200]))

    def growth(self):
        """Resident memory of the last quarter of the time over that of the second quarter.

        The queue is full after the first quarter.
        """
        quarter = len(self.memory) // 4
        early = statistics.median(self.memory[quarter : 2 * quarter])
        return statistics.median(self.memory[-quarter:]) / early


async def right_client(session, seen, request):
    try:
        async with session.post(request.path, data=json.dumps(request.value)) as response:
            seen.check(response.status, response.headers, await response.text(), request)
    except (TimeoutError, aiohttp.ClientError) as error:
        seen.wrong.append((request.path, repr(error)))


async def right_clients(session, seen, until, make_request, rate):
    """Sends requests at a rate, whether or not earlier ones were answered."""
    started, sent, running = time.monotonic(), 0, set()
    while time.monotonic() < until:
        while sent < (time.monotonic() - started) * rate and len(running) < MOST:
            task = asyncio.ensure_future(right_client(session, seen, make_request(sent)))
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


async def overload(
    process: subprocess.Popen,
    port: int,
    seconds: float,
    rate: float,
    make_request: Callable[[int], Request],
) -> Seen:
    """Runs all clients at once.

    Args:
      process: the server, on this machine.
      port: its port.
      seconds: how long.
      rate: right requests per second.
      make_request: ``(number)`` returns a `Request`.
    """
    seen, until = Seen(), time.monotonic() + seconds
    # A connection that is kept may be closed by the server just as the client uses it again.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    limit = aiohttp.ClientTimeout(60)
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(url, connector=connector, timeout=limit) as session:
        await asyncio.gather(
            right_clients(session, seen, until, make_request, rate),
            hostile_client(session, seen, until),
            cut_off_clients(port, until),
            operator(session, seen, process, until),
            *(slow_client(port, until) for _ in range(SLOW)),
        )
    return seen
