"""A model behind HTTP: what is asked, refused and counted, and how it stops.

Connections are read and written by one thread, which never computes; one more computes. A slow
client therefore holds up nobody, and is given up after a while. There is no encryption and no
authentication.
"""

import asyncio
import dataclasses
import ipaddress
import signal
import time

from absl import logging
from aiohttp import web

from albert.io import file_io
from albert.serving import batcher, requests, server_metrics

_LOADING, _READY, _STOPPING = "loading", "ready", "stopping"
_RETRY_LOADING = 5  # seconds


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a server works.

    Attributes:
      host, port: address to listen at; port 0: any that is free.
      model_name: in paths of TensorFlow Serving's form.
      max_batch_size: see `batcher.Queue`.
      batch_deadline: seconds that a row may wait for others.
      max_waiting: most rows that wait.
      max_request_bytes: largest body of a request.
      limits: `requests.Limits`.
      request_timeout: seconds after which a request that was read is given up.
      read_timeout: seconds for a client to send a request's head, to send its body, or to take a
        reply; a connection without requests is closed after as long.
    """

    host: str = "127.0.0.1"
    port: int = 8501
    model_name: str = "model"
    max_batch_size: int = 16
    batch_deadline: float = 0.002
    max_waiting: int = 256
    max_request_bytes: int = 1 << 20
    limits: requests.Limits = requests.Limits()
    request_timeout: float = 30.0
    read_timeout: float = 10.0


def is_loopback(host):
    """Whether only programs of this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Refusal(Exception):
    """A reply that says why there is no other."""

    def __init__(self, status, message, headers=None):
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class Server:
    """A server of one model.

    Args:
      settings: `Settings`.
    """

    def __init__(self, settings):
        self._settings = settings
        self._state = _LOADING
        self._model = self._batcher = None
        model = f"/v1/models/{settings.model_name}"
        self._paths = {"/healthz", "/metrics", "/predict", "/ask", model, f"{model}:predict"}
        self._metrics = server_metrics.Metrics(
            waiting=lambda: len(self._batcher) if self._batcher else 0,
            ready=lambda: self._state == _READY,
        )

    # --- life ---

    def start(self, model):
        """From now on requests are answered.

        Args:
          model: `served_model.ServedModel`.
        """
        self._model = model
        settings = self._settings
        self._batcher = batcher.Batcher(
            model.answer,
            settings.max_batch_size,
            settings.batch_deadline,
            settings.max_waiting,
            on_batch=self._metrics.count_batch,
        )
        if self._state == _LOADING:
            self._state = _READY

    def refuse_new(self):
        """From now on requests are refused; those that were accepted are still answered."""
        self._state = _STOPPING

    def close(self):
        """Ends the thread that computes, after what it has accepted."""
        if self._batcher:
            self._batcher.close()

    # --- paths ---

    def application(self):
        """`aiohttp.web.Application` of all paths."""
        app = web.Application(
            middlewares=[self._guard], client_max_size=self._settings.max_request_bytes
        )
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_post("/predict", self._answer_own)
        app.router.add_post("/ask", self._answer_own)
        app.router.add_get("/v1/models/{name}", self._status)
        app.router.add_post("/v1/models/{name}:predict", self._answer_tensorflow)
        return app

    async def _health(self, _):
        status = 200 if self._state == _READY else 503
        return _json({"status": self._state}, status)

    async def _show_metrics(self, _):
        headers = {"Content-Type": server_metrics.CONTENT_TYPE}
        return web.Response(body=self._metrics.page(), headers=headers)

    async def _status(self, request):
        self._check_name(request)
        states = {_LOADING: "LOADING", _READY: "AVAILABLE", _STOPPING: "UNLOADING"}
        version = {
            "version": "1",
            "state": states[self._state],
            "status": {"error_code": "OK", "error_message": ""},
        }
        return _json({"model_version_status": [version]})

    async def _answer_tensorflow(self, request):
        self._check_name(request)
        return await self._answer(request, requests.read_tensorflow)

    async def _answer_own(self, request):
        self._check_state()
        entry = self._model.form.entry
        if request.path != entry:
            raise _Refusal(
                404, f"{request.path}: a model of kind {self._model.kind} is asked at {entry}"
            )
        return await self._answer(request, requests.read)

    def _check_name(self, request):
        name, known = request.match_info["name"], self._settings.model_name
        if name != known:
            raise _Refusal(404, f"expected the model {known!r}, found {name!r}")

    def _check_state(self):
        if self._state == _LOADING:
            retry = {"Retry-After": str(_RETRY_LOADING)}
            raise _Refusal(503, "the model is still being loaded", retry)
        if self._state == _STOPPING:
            raise batcher.Closed("the server is stopping")

    async def _answer(self, request, read):
        self._check_state()
        body = await self._body(request)
        form, length = self._model.form, self._model.max_seq_length
        asked = read(body, form, self._settings.limits)
        rows = [requests.measured(form, value, length) for value in asked.examples]
        future = asyncio.wrap_future(self._batcher.submit(rows))
        timeout = self._settings.request_timeout
        try:
            results = await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            raise _Refusal(504, f"no answer within {timeout:g} seconds") from None
        return _json(asked.reply(results))

    async def _body(self, request):
        most, timeout = self._settings.max_request_bytes, self._settings.read_timeout
        coding = request.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise _Refusal(415, f"Content-Encoding: expected none, found {coding!r}")
        found = request.content_length
        try:
            if found is not None and found > most:
                raise web.HTTPRequestEntityTooLarge(most, found)
            return await asyncio.wait_for(request.read(), timeout)
        except web.HTTPRequestEntityTooLarge:
            size = f"{found} bytes" if found else "more"
            raise _Refusal(413, f"the request: expected at most {most} bytes, found {size}") from (
                None
            )
        except asyncio.TimeoutError:
            raise _Refusal(408, f"the request did not come within {timeout:g} seconds") from None

    # --- around all paths ---

    @web.middleware
    async def _guard(self, request, handler):
        """Turns errors into replies, counts, and gives up clients that do not take a reply."""
        started = time.monotonic()
        path = request.path if request.path in self._paths else "other"
        try:
            response = await self._reply(request, handler)
            # A reply to a request that was not read, or that comes at the end, ends the connection.
            if self._state == _STOPPING or (request.can_read_body and not request.content.at_eof()):
                response.force_close()
            try:
                await asyncio.wait_for(_send(request, response), self._settings.read_timeout)
            except asyncio.TimeoutError:
                request.transport.abort()
            self._metrics.count_request(path, response.status)
        except asyncio.CancelledError:
            self._metrics.count_request(path, 499)  # the client has gone
            raise
        self._metrics.time_request(path, time.monotonic() - started)
        return response

    async def _reply(self, request, handler):
        try:
            return await handler(request)
        except file_io.InputError as error:
            return _error(400, error)
        except _Refusal as error:
            return _error(error.status, error, error.headers)
        except batcher.Full as error:
            return _error(503, error, {"Retry-After": str(error.retry_after)})
        except batcher.Closed as error:
            return _error(503, error, {"Retry-After": "1"})
        except web.HTTPException as error:
            allowed = {k: v for k, v in error.headers.items() if k == "Allow"}
            return _error(error.status, f"{request.method} {request.path}: {error.reason}", allowed)
        except Exception:
            logging.exception("%s could not be answered", request.path)
            return _error(500, "an error of the server, see its log")


def _json(value, status=200, headers=None):
    text = requests.to_json(value)
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def _error(status, error, headers=None):
    return _json({"error": str(error)}, status, headers)


async def _send(request, response):
    await response.prepare(request)
    await response.write_eof()


async def _serve(settings, load):
    server, stop = Server(settings), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        handler_cancellation=True,
        # Also the time until the first request has come with all of its head.
        keepalive_timeout=settings.read_timeout,
        # After a refusal the rest of a body is taken, and forgotten, for as long.
        lingering_time=settings.read_timeout,
        shutdown_timeout=settings.read_timeout * 2 + settings.request_timeout,
        auto_decompress=False,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        logging.info("Listening at http://%s:%d", f"[{host}]" if ":" in host else host, port)
        loading = asyncio.ensure_future(asyncio.to_thread(load, lambda: not stop.is_set()))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
        model = await loading
        if not stop.is_set():
            server.start(model)
            logging.info("Ready: %s", model.kind)
        await stopped
        server.refuse_new()
        await site.stop()
        logging.info("Stopping: what was accepted is answered")
    finally:
        await runner.cleanup()
        server.close()


def run(settings, load):
    """Serves a model until SIGTERM or SIGINT, then answers what was accepted and returns.

    Args:
      settings: `Settings`.
      load: function that loads a `served_model.ServedModel` and tries it, called in a thread; it
        gets a function that says whether to go on.

    Raises:
      OSError: the address cannot be had.
      file_io.InputError: what `load` raises.
    """
    asyncio.run(_serve(settings, load))
