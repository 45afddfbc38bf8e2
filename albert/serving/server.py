"""The HTTP server of a model: paths, limits, errors, metrics and shutdown.

One thread reads and writes connections and never computes; another one computes. A slow client
therefore delays nobody, and is dropped after a timeout. There is no encryption and no
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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from absl import logging
from aiohttp import web

from albert.io import file_io, signals
from albert.serving import batcher, http_connections, requests, server_metrics, try_page

_LOADING, _READY, _STOPPING = "loading", "ready", "stopping"
_RETRY_LOADING = 5  # seconds
_GONE = 499  # counted for clients that left before their answer
_HEALTH, _METRICS = "/healthz", "/metrics"
# A name or an address, and perhaps a port.
_HOST_HEADER = re.compile(r"(?:\[(?P<v6>[^][]*)\]|(?P<name>[^][:]+))(?::\d*)?")
ANY_HOST = "*"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a server.

    Attributes:
      host, port: address to listen at; port 0: any free port.
      model_name: name in the paths that TensorFlow Serving also has.
      max_batch_size: see `batcher.Queue`.
      batch_deadline: seconds that a row may wait for others.
      max_waiting: maximum number of queued rows.
      max_request_bytes: maximum bytes of the body of a request.
      limits: `requests.Limits`.
      request_timeout: seconds from reading a request to giving up its answer.
      read_timeout: seconds for a client to send a request's head, to send its body, or to take a
        reply; also until a connection without requests is closed.
      max_connections: maximum number of connections; lower if the process may open too few files.
      allowed_hosts: names in Host headers, in addition to addresses, "localhost", `host` and the
        machine's name; `ANY_HOST`: any name.
      page: whether there is a page to try the model in a browser.
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
    page: bool = True


def is_loopback(host: str) -> bool:
    """Returns whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Refusal(Exception):
    """An error reply with its status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class Server:
    """A server of one model.

    Args:
      settings: `Settings`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._state = _LOADING
        self._model: Any = None
        self._batcher: Any = None
        model = f"/v1/models/{settings.model_name}"
        self._paths = {_HEALTH, _METRICS, "/predict", "/ask", model, f"{model}:predict"}
        self._paths.update(try_page.PATHS if settings.page else ())
        hosts = ("localhost", settings.host, socket.gethostname(), *settings.allowed_hosts)
        self._hosts = {host.lower() for host in hosts}
        self._notes = http_connections.Notes()
        self._connections: Any = ()
        self._metrics = server_metrics.Metrics(
            waiting=lambda: len(self._batcher) if self._batcher else 0,
            connections=lambda: len(self._connections),
            ready=lambda: self._state == _READY,
        )

    # --- start and stop ---

    def start(self, model: Any) -> None:
        """Starts answering requests.

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
        """Answers the accepted requests and ends the thread that computes."""
        if self._batcher:
            self._batcher.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[str, int, Callable[[], None]]]:
        """Accepts connections within a block, until the block calls the function that it gets.

        At the end of the block, accepted requests are answered.

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
        manager: Any = runner.server
        try:
            listening = await self._connections.listen(
                manager, lambda: self._connection(manager), settings.host, settings.port
            )
            try:
                host, port = listening.sockets[0].getsockname()[:2]
                yield host, port, listening.close
            finally:
                listening.close()
        finally:
            await runner.cleanup()
            self._notes.close()

    def _connection(self, manager: web.Server) -> http_connections.Connection:
        timeout = self._settings.read_timeout
        return http_connections.Connection(
            manager,
            self._connections,
            self._notes,
            lambda status: self._metrics.count_request("other", status),
            loop=asyncio.get_running_loop(),
            access_log=None,
            # Also the time for the complete head of the first request.
            keepalive_timeout=timeout,
            # How long the rest of a rejected body is read and dropped.
            lingering_time=timeout,
            auto_decompress=False,
        )

    # --- paths ---

    def _application(self) -> web.Application:
        app = web.Application(
            middlewares=[self._guard], client_max_size=self._settings.max_request_bytes
        )
        app.router.add_get(_HEALTH, self._health)
        app.router.add_get(_METRICS, self._show_metrics)
        app.router.add_post("/predict", self._answer_own)
        app.router.add_post("/ask", self._answer_own)
        app.router.add_get("/v1/models/{name}", self._status)
        app.router.add_post("/v1/models/{name}:predict", self._answer_tensorflow)
        if self._settings.page:
            try_page.add_routes(app.router, self._described)
        return app

    def _described(self) -> list[dict[str, Any]]:
        name = self._settings.model_name
        return [try_page.described(name, self._state, model=self._model)]

    async def _health(self, _: web.Request) -> web.Response:
        status = 200 if self._state == _READY else 503
        return http_connections.json_reply({"status": self._state}, status)

    async def _show_metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": server_metrics.CONTENT_TYPE}
        return web.Response(body=self._metrics.page(), headers=headers)

    async def _status(self, request: web.Request) -> web.Response:
        self._check_name(request)
        states = {_LOADING: "LOADING", _READY: "AVAILABLE", _STOPPING: "UNLOADING"}
        version = {
            "version": "1",
            "state": states[self._state],
            "status": {"error_code": "OK", "error_message": ""},
        }
        return http_connections.json_reply({"model_version_status": [version]})

    async def _answer_tensorflow(self, request: web.Request) -> web.Response:
        self._check_name(request)
        return await self._answer(request, requests.read_tensorflow)

    async def _answer_own(self, request: web.Request) -> web.Response:
        self._check_state()
        entry = self._model.form.entry
        if request.path != entry:
            raise _Refusal(
                404, f"{request.path}: a model of kind {self._model.kind} is asked at {entry}"
            )
        return await self._answer(request, requests.read)

    def _check_name(self, request: web.Request) -> None:
        name, known = request.match_info["name"], self._settings.model_name
        if name != known:
            raise _Refusal(404, f"expected the model {known!r}, found {name!r}")

    def _check_state(self) -> None:
        if self._state == _LOADING:
            retry = {"Retry-After": str(_RETRY_LOADING)}
            raise _Refusal(503, "the model is still being loaded", retry)
        if self._state == _STOPPING:
            raise batcher.Closed("the server is stopping")

    async def _answer(
        self, request: web.Request, read: Callable[..., requests.Request]
    ) -> web.Response:
        self._check_state()
        body = await self._body(request)
        form, length = self._model.form, self._model.max_seq_length
        parsed = read(body, form, self._settings.limits)
        rows = [requests.measured(form, value, length) for value in parsed.examples]
        future = asyncio.wrap_future(self._batcher.submit(rows))
        timeout = self._settings.request_timeout
        try:
            results = await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            raise _Refusal(504, f"no answer within {timeout:g} seconds") from None
        return http_connections.json_reply(parsed.reply(results))

    async def _body(self, request: web.Request) -> bytes:
        most, timeout = self._settings.max_request_bytes, self._settings.read_timeout
        coding = request.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise _Refusal(415, f"Content-Encoding: expected none, found {coding!r}")
        size = request.content_length
        try:
            if size is not None and size > most:
                raise web.HTTPRequestEntityTooLarge(most, size)
            return await asyncio.wait_for(request.read(), timeout)
        except web.HTTPRequestEntityTooLarge:
            found = f"{size} bytes" if size else "more"
            raise _Refusal(413, f"the request: expected at most {most} bytes, found {found}") from (
                None
            )
        except asyncio.TimeoutError:
            raise _Refusal(408, f"the request did not come within {timeout:g} seconds") from None
        except web.RequestPayloadError as error:
            found = http_connections.what_is_wrong(error.__cause__ or error)
            self._notes.add(http_connections.NO_HTTP, f"from {request.remote}: {found}")
            raise _Refusal(400, f"the request: expected a whole body, found {found}") from error

    # --- around all paths ---

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turns errors into replies, counts, and drops clients that do not take a reply."""
        started = time.monotonic()
        path = request.path if request.path in self._paths else "other"
        try:
            response = await self._reply(request, handler)
            # The connection ends after a reply to an unread request, or to the last one.
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
            return web.Response()  # never sent
        self._metrics.time_request(path, time.monotonic() - started)
        return response

    def _is_last(self, request: web.Request) -> bool:
        connection: Any = request.protocol  # `http_connections.Connection`
        is_unread = request.can_read_body and not request.content.at_eof()
        is_spare = not connection.has_room
        return self._state == _STOPPING or is_unread or is_spare or connection.is_last()

    def _count_gone(self, request: web.Request, path: str) -> None:
        self._metrics.count_request(path, _GONE)
        self._notes.add(http_connections.GONE, path)

    def _check_host(self, request: web.Request) -> None:
        """Rejects host names of other servers, which a page of another site would send."""
        found = request.headers.getall("Host", [])
        if not found and request.version < (1, 1):
            return
        match = _HOST_HEADER.fullmatch(found[0].strip()) if len(found) == 1 else None
        if match is None:
            names = ", ".join(map(repr, found)) or "none"
            raise _Refusal(400, f"Host: expected one name or address, found {names}")
        name = (match["v6"] or match["name"]).lower().rstrip(".")
        if not (_is_address(name) or name in self._hosts or ANY_HOST in self._hosts):
            raise _Refusal(
                421,
                f"Host: expected localhost, an address or one of allowed_hosts, found {name!r}",
            )

    def _check_room(self, request: web.Request) -> None:
        connection: Any = request.protocol
        if not connection.has_room and request.path not in (_HEALTH, _METRICS):
            raise _Refusal(503, "too many connections are open", {"Retry-After": "1"})

    async def _reply(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            self._check_host(request)
            try_page.check_site(request)
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


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await response.write_eof()


async def _serve(settings: Settings, load: Callable) -> None:
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


def run(settings: Settings, load: Callable) -> None:
    """Serves a model until SIGTERM, SIGHUP or SIGINT, then answers accepted requests and returns.

    Args:
      settings: `Settings`.
      load: function that loads and warms up a `served_model.ServedModel`, called in a thread; its
        argument is a function that returns whether to continue.

    Raises:
      OSError: the address is not available.
      file_io.InputError: raised by `load`.
    """
    asyncio.run(_serve(settings, load))
