"""A model behind HTTP: what is asked, refused and counted, and how it stops.

Connections are read and written by one thread, which never computes; one more computes. A slow
client therefore holds up nobody, and is given up after a while. There is no encryption and no
authentication.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import re
import signal
import socket
import time

from absl import logging
from aiohttp import web

from albert.io import file_io, signals
from albert.serving import batcher, http_connections, requests, server_metrics

_LOADING, _READY, _STOPPING = "loading", "ready", "stopping"
_RETRY_LOADING = 5  # seconds
_GONE = 499  # counted for clients that left before their answer
_HEALTH, _METRICS = "/healthz", "/metrics"
# What a Host header holds: a name or an address, perhaps a port.
_HOST = re.compile(r"(?:\[(?P<v6>[^][]*)\]|(?P<name>[^][:]+))(?::\d*)?")
ANY_HOST = "*"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a server.

    Attributes:
      host, port: address to listen at; port 0: any that is free.
      model_name: in paths of TensorFlow Serving's form.
      max_batch_size: see `batcher.Queue`.
      batch_deadline: seconds that a row may wait for others.
      max_waiting: maximum number of queued rows.
      max_request_bytes: largest body of a request.
      limits: `requests.Limits`.
      request_timeout: seconds after which a request that was read is given up.
      read_timeout: seconds for a client to send a request's head, to send its body, or to take a
        reply; a connection without requests is closed after as long.
      max_connections: maximum number of connections; fewer where file handles are short.
      allowed_hosts: names in Host headers, in addition to addresses, "localhost", `host` and the
        machine's name; `ANY_HOST`: any name.
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
    max_connections: int = 512
    allowed_hosts: tuple[str, ...] = ()


def is_loopback(host: str) -> bool:
    """Returns whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host):
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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

    def __init__(self, settings: Settings):
        self._settings = settings
        self._state = _LOADING
        self._model = self._batcher = None
        model = f"/v1/models/{settings.model_name}"
        self._paths = {_HEALTH, _METRICS, "/predict", "/ask", model, f"{model}:predict"}
        hosts = ("localhost", settings.host, socket.gethostname(), *settings.allowed_hosts)
        self._hosts = {host.lower() for host in hosts}
        self._notes = http_connections.Notes()
        self._connections = ()
        self._metrics = server_metrics.Metrics(
            waiting=lambda: len(self._batcher) if self._batcher else 0,
            connections=lambda: len(self._connections),
            ready=lambda: self._state == _READY,
        )

    # --- life ---

    def start(self, model):
        """Starts to answer requests.

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

    def refuse_new(self) -> None:
        """Rejects new requests; those that were accepted are still answered."""
        self._state = _STOPPING

    def close(self) -> None:
        """Ends the thread that computes, after what it has accepted."""
        if self._batcher:
            self._batcher.close()

    @contextlib.asynccontextmanager
    async def listening(self):
        """A context in which connections are taken, until its function to stop that is called.

        At its end what was accepted is answered.

        Yields:
          ``(host, port, stop)``.

        Raises:
          OSError: the address is not available.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        loop.set_exception_handler(self._notes.of_loop)
        self._connections = http_connections.Connections(
            settings.max_connections, self._notes, self._metrics.count_closed
        )
        runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            shutdown_timeout=settings.read_timeout * 2 + settings.request_timeout,
        )
        await runner.setup()
        try:
            listening = await self._connections.listen(
                runner.server,
                lambda: self._connection(runner.server),
                settings.host,
                settings.port,
            )
            try:
                host, port = listening.sockets[0].getsockname()[:2]
                yield host, port, listening.close
            finally:
                listening.close()
        finally:
            await runner.cleanup()
            self._notes.close()

    def _connection(self, manager):
        timeout = self._settings.read_timeout
        return http_connections.Connection(
            manager,
            self._connections,
            self._notes,
            lambda status: self._metrics.count_request("other", status),
            loop=asyncio.get_running_loop(),
            access_log=None,
            # Also the time until the first request has come with all of its head.
            keepalive_timeout=timeout,
            # After a refusal the rest of a body is taken, and forgotten, for as long.
            lingering_time=timeout,
            auto_decompress=False,
        )

    # --- paths ---

    def _application(self):
        app = web.Application(
            middlewares=[self._guard], client_max_size=self._settings.max_request_bytes
        )
        app.router.add_get(_HEALTH, self._health)
        app.router.add_get(_METRICS, self._show_metrics)
        app.router.add_post("/predict", self._answer_own)
        app.router.add_post("/ask", self._answer_own)
        app.router.add_get("/v1/models/{name}", self._status)
        app.router.add_post("/v1/models/{name}:predict", self._answer_tensorflow)
        return app

    async def _health(self, _):
        status = 200 if self._state == _READY else 503
        return http_connections.json_reply({"status": self._state}, status)

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
        return http_connections.json_reply({"model_version_status": [version]})

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
        return http_connections.json_reply(asked.reply(results))

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
        except web.RequestPayloadError as error:
            said = http_connections.what_is_wrong(error.__cause__ or error)
            self._notes.add(http_connections.NO_HTTP, f"from {request.remote}: {said}")
            raise _Refusal(400, f"the request: expected a whole body, found {said}") from error

    # --- around all paths ---

    @web.middleware
    async def _guard(self, request, handler):
        """Turns errors into replies, counts, and gives up clients that do not take a reply."""
        started = time.monotonic()
        path = request.path if request.path in self._paths else "other"
        try:
            response = await self._reply(request, handler)
            # A reply to a request that was not read, or that comes at the end, ends the connection.
            if self._is_last(request):
                response.force_close()
            try:
                await asyncio.wait_for(_send(request, response), self._settings.read_timeout)
            except asyncio.TimeoutError:
                if request.transport:
                    request.transport.abort()
            self._metrics.count_request(path, response.status)
        except asyncio.CancelledError:
            self._count_gone(request, path)
            raise
        except ConnectionError:
            self._count_gone(request, path)
            return web.Response()  # which nobody gets
        self._metrics.time_request(path, time.monotonic() - started)
        return response

    def _is_last(self, request):
        connection = request.protocol
        is_unread = request.can_read_body and not request.content.at_eof()
        is_spare = not connection.has_room
        return self._state == _STOPPING or is_unread or is_spare or connection.is_last()

    def _count_gone(self, request, path):
        self._metrics.count_request(path, _GONE)
        self._notes.add(http_connections.GONE, path)

    def _check_host(self, request):
        """Refuses names that are not this server's, as a page of another site would send them."""
        found = request.headers.getall("Host", [])
        if not found and request.version < (1, 1):
            return
        match = _HOST.fullmatch(found[0].strip()) if len(found) == 1 else None
        if match is None:
            said = ", ".join(map(repr, found)) or "none"
            raise _Refusal(400, f"Host: expected one name or address, found {said}")
        name = (match["v6"] or match["name"]).lower().rstrip(".")
        if not (_is_address(name) or name in self._hosts or ANY_HOST in self._hosts):
            raise _Refusal(
                421,
                f"Host: expected localhost, an address or one of allowed_hosts, found {name!r}",
            )

    def _check_room(self, request):
        if not request.protocol.has_room and request.path not in (_HEALTH, _METRICS):
            raise _Refusal(503, "too many connections are open", {"Retry-After": "1"})

    async def _reply(self, request, handler):
        try:
            self._check_host(request)
            self._check_room(request)
            return await handler(request)
        except ConnectionError:  # the client has gone
            raise
        except file_io.InputError as error:
            return http_connections.error_reply(400, error)
        except _Refusal as error:
            return http_connections.error_reply(error.status, error, error.headers)
        except batcher.Full as error:
            return http_connections.error_reply(503, error, {"Retry-After": str(error.retry_after)})
        except batcher.Closed as error:
            return http_connections.error_reply(503, error, {"Retry-After": "1"})
        except web.HTTPException as error:
            allowed = {k: v for k, v in error.headers.items() if k == "Allow"}
            return http_connections.error_reply(
                error.status, f"{request.method} {request.path}: {error.reason}", allowed
            )
        except Exception:
            logging.exception("%s could not be answered", request.path)
            return http_connections.error_reply(500, http_connections.OWN_ERROR)


async def _send(request, response):
    await response.prepare(request)
    await response.write_eof()


async def _serve(settings, load):
    server, stop = Server(settings), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, *signals.ending()):
        loop.add_signal_handler(number, stop.set)
    try:
        async with server.listening() as (host, port, stop_listening):
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
            stop_listening()
            logging.info("Stopping: what was accepted is answered")
    finally:
        server.close()


def run(settings, load):
    """Serves a model until SIGTERM, SIGHUP or SIGINT, then answers what was accepted and returns.

    Args:
      settings: `Settings`.
      load: function that loads a `served_model.ServedModel` and tries it, called in a thread; it
        gets a function that returns whether to continue.

    Raises:
      OSError: the address is not available.
      file_io.InputError: what `load` raises.
    """
    asyncio.run(_serve(settings, load))
