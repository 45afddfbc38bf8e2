"""A server under load: latency and throughput, bad requests, slow clients, its end and its death.

    python -m benchmarks.serving.load --model_dir=sst --input_file=glue/SST-2/dev.tsv \\
        [--clients=1,8,64] [--server_flags=--threads=2]

Starts `python -m albert.serve` itself and prints a row for each part. Each client sends a text,
waits for the reply and sends the next. "lengths" asks a thousand texts of as many different lengths
(in characters, the longest cut by the model), one after another, for the first time and again: the
ratio of both tells what the first use of a shape costs. Clients take time of the same cores.
"""

import asyncio
import contextlib
import json
import signal
import statistics
import time

import aiohttp
from absl import flags

from albert.io import tables
from benchmarks import harness
from benchmarks.serving import server_process

FLAGS = flags.FLAGS
_LENGTHS = 1000
_BAD = [
    b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"txt": "a"}', b'{"text": 3}',
    b'{"text": "%s"}' % (b"a" * 100_000), b"x" * 2_000_000, b'{"examples": []}',
]  # fmt: skip
_SLOW = 200  # connections


def define_flags():
    flags.DEFINE_string("model_dir", None, "Folder of a classifier of single texts.", required=True)
    flags.DEFINE_string("input_file", None, "Texts: .tsv, .csv or .jsonl.", required=True)
    flags.DEFINE_string("text_column", "sentence", "Column of the texts.")
    flags.DEFINE_list("clients", ["1", "8", "64"], "Numbers of clients.")
    flags.DEFINE_float("seconds", 20.0, "Seconds of each part.")
    flags.DEFINE_multi_string("server_flags", [], "Further flags of the server.")


class Load:
    """Results of some clients: seconds of the answers, and how often each status came."""

    def __init__(self):
        self.seconds, self.statuses, self.whole = [], {}, 0.0

    def count(self, status, seconds):
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            self.seconds.append(seconds)

    def row(self):
        if not self.seconds:
            return f"no answer  {self.statuses}"
        seconds = self.seconds
        p99 = statistics.quantiles(seconds, n=100)[-1] if len(seconds) > 1 else seconds[-1]
        others = {status: n for status, n in self.statuses.items() if status != 200}
        return (
            f"p50 {1000 * statistics.median(seconds):7.1f} ms  p99 {1000 * p99:7.1f} ms  "
            f"{len(seconds) / self.whole:7.1f} /s  {others or 'all answered'}"
        )


def say(part, text):
    print(f"{part:30s} {text}", flush=True)


async def ask(session, url, text):
    """(status, seconds, reply)."""
    started = time.monotonic()
    try:
        async with session.post(f"{url}/predict", data=json.dumps({"text": text})) as response:
            reply = await response.read()
            return response.status, time.monotonic() - started, reply
    except aiohttp.ClientError as error:
        return type(error).__name__, time.monotonic() - started, b""


@contextlib.asynccontextmanager
async def session():
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as made:
        yield made


async def load(url, texts, clients, seconds):
    """`Load` of some clients that each send one text after the other."""
    found, started = Load(), time.monotonic()

    async def client(number, made):
        while time.monotonic() - started < seconds:
            number = (number + clients) % len(texts)
            status, took, _ = await ask(made, url, texts[number])
            found.count(status, took)
            if isinstance(status, str) and status != "ServerDisconnectedError":
                return  # the server has gone

    async with session() as made:
        await asyncio.gather(*(client(number, made) for number in range(clients)))
    found.whole = time.monotonic() - started
    return found


async def lengths(url, texts):
    """A thousand lengths, for the first time and again."""
    words = " ".join(texts).split()
    every = " ".join(words)
    first, again = [], []
    async with session() as made:
        # Up and down, so that neighbors are not of one length.
        order = [(7 * k) % _LENGTHS + 1 for k in range(_LENGTHS)]
        for seconds in (first, again):
            for length in order:
                status, took, _ = await ask(made, url, every[:length])
                assert status == 200, status
                seconds.append(took)
    groups = {}
    for length, took in zip(order, again, strict=True):
        groups.setdefault(length // 50, []).append(took)
    usual = {group: statistics.median(values) for group, values in groups.items()}
    for name, seconds in (("first time", first), ("again", again)):
        ratios = [t / usual[n // 50] for n, t in zip(order, seconds, strict=True)]
        cut, by_length = statistics.quantiles(seconds, n=100), statistics.quantiles(ratios, n=100)
        say(
            f"1000 lengths, {name}",
            f"p50 {1000 * statistics.median(seconds):7.1f} ms  p99 {1000 * cut[-1]:7.1f} ms  ratio "
            f"{cut[-1] / statistics.median(seconds):.2f}; to the median of like lengths: p50 "
            f"{statistics.median(ratios):.2f}  p99 {by_length[-1]:.2f}",
        )


async def bad_requests(url, until):
    """Sends what is not a request, again and again; {status: times}."""
    statuses = {}
    async with session() as made:
        while time.monotonic() < until:
            for body in _BAD:
                try:
                    async with made.post(f"{url}/predict", data=body) as response:
                        await response.read()
                        status = response.status
                except aiohttp.ClientError as error:
                    status = type(error).__name__
                statuses[status] = statuses.get(status, 0) + 1
                await asyncio.sleep(0.02)
    return statuses


async def slow_clients(port, until):
    """Connections that send a byte a second; how many the server has closed."""

    async def dribble():
        closed = 0
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                for byte in b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"x" * 10_000:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    with contextlib.suppress(asyncio.TimeoutError):
                        if await asyncio.wait_for(reader.read(1), 1) == b"":
                            closed += 1
                            break
                    if time.monotonic() >= until:
                        break
            writer.close()
        return closed

    return sum(await asyncio.gather(*(dribble() for _ in range(_SLOW))))


async def disturbed(server, texts):
    seconds = max(FLAGS.seconds, 15.0)  # slow clients are given up after ten
    until = time.monotonic() + seconds
    found, statuses = await asyncio.gather(
        load(server.url, texts, 8, seconds), bad_requests(server.url, until)
    )
    say("8 clients, bad requests", f"{found.row()}; bad: {statuses}")
    until = time.monotonic() + seconds
    found, closed = await asyncio.gather(
        load(server.url, texts, 8, seconds), slow_clients(server.port, until)
    )
    say(f"8 clients, {_SLOW} slow ones", f"{found.row()}; slow ones closed: {closed}")
    found = await load(server.url, texts, 400, FLAGS.seconds)
    say("400 clients (queue of 256)", found.row())


async def ended(server, texts, number):
    """Sends a signal while 8 clients ask."""
    running = asyncio.ensure_future(load(server.url, texts, 8, 60.0))
    await asyncio.sleep(3)
    started = time.monotonic()
    server.process.send_signal(number)
    status = await asyncio.to_thread(server.process.wait)
    took = time.monotonic() - started
    found = await running
    say(
        f"{signal.Signals(number).name}, 8 clients",
        f"exit status {status} after {took:.1f} s; clients saw {found.statuses}",
    )


async def first_reply(server, text):
    async with session() as made:
        status, took, reply = await ask(made, server.url, text)
        say("first request", f"status {status}, {1000 * took:.1f} ms")
        return reply


def main():
    rows = tables.read_file(FLAGS.input_file, "input_file")
    texts = [row[FLAGS.text_column] for _, row in rows]
    server = server_process.Process(FLAGS.model_dir, FLAGS.server_flags)
    try:
        say("ready after", f"{server.seconds:.1f} s")
        reply = asyncio.run(first_reply(server, texts[0]))
        asyncio.run(lengths(server.url, texts))
        for clients in map(int, FLAGS.clients):
            outcome = asyncio.run(load(server.url, texts, clients, FLAGS.seconds))
            say(f"{clients} clients", outcome.row())
        asyncio.run(disturbed(server, texts))
        asyncio.run(ended(server, texts, signal.SIGKILL))
        server = server_process.Process(FLAGS.model_dir, FLAGS.server_flags)
        say("started again, ready after", f"{server.seconds:.1f} s")
        assert asyncio.run(first_reply(server, texts[0])) == reply
        asyncio.run(ended(server, texts, signal.SIGTERM))
    finally:
        server.process.kill()


if __name__ == "__main__":
    harness.run(main, define_flags)
