"""The HTTP server of one or several models: paths, limits, errors, metrics and shutdown.

One thread reads and writes connections and never computes; each model has another one that
computes. A slow client therefore delays nobody, and is dropped after a timeout. The queue of a
model and its limit are in `batcher`. There is no encryption and no authentication.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from absl import logging
from aiohttp import web

import albert
from albert.io import file_io, signals
from albert.model import batching
from albert.serving import (
    batcher,
    hosted_models,
    http_connections,
    inference_protocol,
    openapi,
    requests,
    server_log,
    server_metrics,
    tensorflow_protocol,
    try_page,
)

if TYPE_CHECKING:
    from albert.serving.served_model import ServedModel

_RETRY_WHEN_LOADED = {"Retry-After": "5"}  # seconds
_GONE = 499  # counted for clients that left before their answer
_METRICS = "/metrics"
_HEALTH = ("/livez", "/readyz", "/healthz")
# Answered even if there are too many connections.
_FOR_OPERATORS = {*_HEALTH, _METRICS, inference_protocol.LIVE, inference_protocol.READY}
# Of a request: the name of the model that it asks, and its identifier.
_MODEL, _ID = web.RequestKey("model", str), web.RequestKey("id", str)
_PARAMETER = re.compile(r"\{(\w+)\}")  # of a path
# A name or an address, and perhaps a port.
_HOST_HEADER = re.compile(r"(?:\[(?P<v6>[^][]*)\]|(?P<name>[^][:]+))(?::\d*)?")
ANY_HOST = "*"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a server; times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8501  # 0: any free port
    model_name: str = "model"  # in paths, of the only model
    model_names: tuple[str, ...] = ()  # in paths, of several models; empty: there is one
    max_batch_size: int = 16  # see `batcher.Queue`; for each model
    # Of tokens that are computed together, with padding, as estimated from the characters before
    # texts are tokenized; None: any.
    max_batch_tokens: int | None = None
    batch_deadline: float = 0.002  # that a row may wait for others
    max_waiting: int = 256  # queued rows of each model
    max_request_bytes: int = 1 << 20  # of the body of a request
    limits: requests.Limits = requests.Limits()
    request_timeout: float = 30.0  # from reading a request to giving up its answer
    # For a client to send a request's head, to send its body, or to take a reply; also until a
    # connection without requests is closed.
    read_timeout: float = 10.0
    max_connections: int = 512  # lower if the process may open too few files
    # Names in Host headers, in addition to addresses, "localhost", `host` and the machine's name;
    # `ANY_HOST`: any name.
    allowed_hosts: tuple[str, ...] = ()
    log_requests: bool = False
    page: bool = True  # whether there is a page to try the model in a browser


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


_Handler = Callable[[web.Request], Awaitable[web.Response]]
_Decode = Callable[[bytes, requests.RequestSchema, requests.Limits], requests.Request]


def _showing(describe: Callable[[web.Request], Any]) -> _Handler:
    """Returns a handler that replies with what a function returns, as JSON."""

    async def show(request: web.Request) -> web.Response:
        return http_connections.json_reply(describe(request))

    return show


class Server:
    """A server of one or several models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_stopping = False
        names = settings.model_names or (settings.model_name,)
        self._models = {name: self._hosted(name, len(names) == 1) for name in names}
        # Paths that metrics name; all others are "other", as clients can make up any number.
        self._paths = {
            path.format(name=name, version=hosted_models.VERSION)
            for _, path, _ in self._routes()
            for name in names
        }
        hosts = ("localhost", settings.host, socket.gethostname(), *settings.allowed_hosts)
        self._hosts = {host.lower() for host in hosts}
        self._notes = http_connections.Notes()
        self._connections: http_connections.Connections | None = None
        self._metrics = server_metrics.Metrics(
            waiting=lambda: sum(map(len, self._models.values())),
            connections=lambda: 0 if self._connections is None else len(self._connections),
            ready=self._is_ready,
            models=lambda: [
                (name, len(hosted), hosted.state == hosted_models.READY)
                for name, hosted in self._models.items()
            ],
        )

    def _hosted(self, name: str, is_only: bool) -> hosted_models.HostedModel:
        settings = self._settings
        return hosted_models.HostedModel(
            name,
            is_only,
            lambda rows, seconds: self._metrics.count_batch(rows, seconds, name),
            max_batch_size=settings.max_batch_size,
            delay=settings.batch_deadline,
            capacity=settings.max_waiting,
            max_wait=settings.request_timeout,
            max_batch_length=requests.length_of(settings.max_batch_tokens),
        )

    # --- start and stop ---

    def start(self, model: "ServedModel", name: str | None = None) -> None:
        """Starts answering requests for a model; without a name for the only one."""
        (self._models[name] if name else self._only()).start(model)

    def refuse_new(self) -> None:
        """Rejects new requests; those that were accepted are still answered."""
        self._is_stopping = True
        for hosted in self._models.values():
            hosted.stop()

    def close(self) -> None:
        """Answers the accepted requests and ends the threads that compute."""
        for hosted in self._models.values():
            hosted.close()

    def _is_ready(self) -> bool:
        return all(hosted.state == hosted_models.READY for hosted in self._models.values())

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[str, int, Callable[[], None]]]:
        """Accepts connections within a block, until the block calls the function that it gets.

        At the end of the block, accepted requests are answered.

        Yields ``(host, port, stop)``; raises OSError if the address is not available.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        loop.set_exception_handler(self._notes.log_loop_error)
        self._connections = connections = http_connections.Connections(
            settings.max_connections, self._notes, self._metrics.count_closed
        )
        runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            shutdown_timeout=settings.read_timeout * 2 + settings.request_timeout,
        )
        await runner.setup()
        manager = runner.server
        assert manager is not None
        try:
            listening = await connections.listen(
                manager,
                lambda: self._connection(manager, connections),
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

    def _connection(
        self, manager: web.Server, connections: http_connections.Connections
    ) -> http_connections.Connection:
        timeout = self._settings.read_timeout
        return http_connections.Connection(
            manager,
            connections,
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
        add = {"GET": app.router.add_get, "POST": app.router.add_post}
        for method, path, answer in self._routes():
            add[method](_PARAMETER.sub(r"{\1:[^/:]+}", path), answer)
        return app

    def _routes(self) -> list[tuple[str, str, _Handler]]:
        """Returns (method, path, handler) of all paths."""
        about = inference_protocol.server_metadata(albert.__version__)
        routes: list[tuple[str, str, _Handler]] = [
            ("GET", "/livez", _showing(lambda _: {"status": "live"})),
            ("GET", "/readyz", self._health),
            ("GET", "/healthz", self._health),
            ("GET", _METRICS, self._show_metrics),
            ("GET", openapi.DOCUMENT, _showing(lambda _: self._document())),
            ("GET", openapi.PAGE, self._docs),
            ("GET", tensorflow_protocol.MODELS, _showing(self._list)),
            ("GET", inference_protocol.ROOT, _showing(lambda _: about)),
            ("GET", inference_protocol.LIVE, _showing(lambda _: {"live": True})),
            ("GET", inference_protocol.READY, self._server_ready),
        ]
        if self._settings.page:
            routes.append(("GET", try_page.PATH, try_page.show))
        for path in ("/predict", "/ask", "/models/{name}/predict", "/models/{name}/ask"):
            routes.append(("POST", path, self._answer_own))
        for version in ("", "/versions/{version}"):
            model = f"{tensorflow_protocol.MODELS}/{{name}}{version}"
            routes += [
                ("GET", model, self._describing(tensorflow_protocol.status)),
                ("GET", f"{model}/metadata", self._describing(tensorflow_protocol.metadata)),
                ("POST", f"{model}:predict", self._answer_tensorflow),
            ]
            model = f"{inference_protocol.ROOT}/models/{{name}}{version}"
            routes += [
                ("GET", model, self._describing(inference_protocol.metadata)),
                ("GET", f"{model}/ready", self._model_ready),
                ("POST", f"{model}/infer", self._answer_inference),
            ]
        return routes

    async def _health(self, _: web.Request) -> web.Response:
        if self._is_ready():
            return http_connections.json_reply({"status": hosted_models.READY})
        state = hosted_models.STOPPING if self._is_stopping else hosted_models.LOADING
        return http_connections.json_reply({"status": state}, 503, _RETRY_WHEN_LOADED)

    async def _show_metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": server_metrics.CONTENT_TYPE}
        return web.Response(body=self._metrics.page(), headers=headers)

    def _document(self) -> dict[str, Any]:
        return openapi.document(self._models.values(), self._settings.limits, albert.__version__)

    async def _docs(self, request: web.Request) -> web.Response:
        text, headers = openapi.page(self._document(), request.host)
        return web.Response(text=text, content_type="text/html", headers=headers)

    def _list(self, _: web.Request) -> dict[str, Any]:
        return {"models": [hosted.described() for hosted in self._models.values()]}

    def _describing(self, describe: Callable[[hosted_models.HostedModel], Any]) -> _Handler:
        """Returns a handler that describes the model that the path names."""
        return _showing(lambda request: describe(self._named(request)))

    async def _answer_tensorflow(self, request: web.Request) -> web.Response:
        return await self._answer(request, self._named(request), tensorflow_protocol.read)

    async def _answer_own(self, request: web.Request) -> web.Response:
        if "name" not in request.match_info and len(self._models) > 1:
            paths = ", ".join(f"/models/{name}{request.path}" for name in self._models)
            raise _Refusal(
                404,
                f"{request.path}: this server has several models, which are asked at {paths}",
            )
        hosted = self._named(request) if "name" in request.match_info else self._only()
        request[_MODEL] = hosted.name
        model = hosted.loaded()
        if not request.path.endswith(model.form.entry):
            kind, path = model.kind, hosted.path
            raise _Refusal(404, f"{request.path}: a model of kind {kind} is asked at {path}")
        return await self._answer(request, hosted, requests.read)

    async def _server_ready(self, _: web.Request) -> web.Response:
        return _readiness(self._is_ready())

    async def _model_ready(self, request: web.Request) -> web.Response:
        hosted = self._named(request)
        return _readiness(hosted.state == hosted_models.READY, name=hosted.name)

    async def _answer_inference(self, request: web.Request) -> web.Response:
        hosted = self._named(request)
        head_size = request.headers.get(inference_protocol.HEAD_SIZE)

        def decode(
            body: bytes, _: requests.RequestSchema, limits: requests.Limits
        ) -> requests.Request:
            return inference_protocol.read(body, head_size, hosted, limits)

        return await self._answer(request, hosted, decode)

    def _only(self) -> hosted_models.HostedModel:
        (hosted,) = self._models.values()
        return hosted

    def _named(self, request: web.Request) -> hosted_models.HostedModel:
        """Returns the model that the path of a request names."""
        name, version = request.match_info["name"], request.match_info.get("version", "1")
        hosted = self._models.get(name)
        if hosted is None:
            names = " or ".join(map(repr, self._models))
            raise _Refusal(404, f"expected the model {names}, found {name!r}")
        if version != hosted_models.VERSION:
            raise _Refusal(
                404, f"{name}: expected the version {hosted_models.VERSION}, found {version!r}"
            )
        return hosted

    async def _answer(
        self, request: web.Request, hosted: hosted_models.HostedModel, decode: _Decode
    ) -> web.Response:
        """Decodes a request, has the model compute the results, and encodes them."""
        request[_MODEL] = hosted.name
        model = hosted.loaded()
        body = await self._body(request)
        decoded = decode(body, model.form, self._settings.limits)
        length = model.max_seq_length
        rows = [requests.measured(model.form, value, length) for value in decoded.examples]
        future = asyncio.wrap_future(hosted.submit(rows))
        timeout = self._settings.request_timeout
        try:
            results = await asyncio.wait_for(future, timeout)
        except TimeoutError:
            message = f"no answer within {timeout:g} seconds"
            raise _Refusal(503, message, {"Retry-After": "5"}) from None
        reply = decoded.encode(results)
        return web.Response(body=reply.body, headers=reply.headers)

    async def _body(self, request: web.Request) -> bytes:
        limit, timeout = self._settings.max_request_bytes, self._settings.read_timeout
        coding = request.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise _Refusal(415, f"Content-Encoding: expected none, found {coding!r}")
        size = request.content_length
        try:
            if size is not None and size > limit:
                raise web.HTTPRequestEntityTooLarge(limit, size)
            return await asyncio.wait_for(request.read(), timeout)
        except web.HTTPRequestEntityTooLarge:
            detail = f"{size} bytes" if size else "more"
            raise _Refusal(
                413, f"the request: expected at most {limit} bytes, found {detail}"
            ) from None
        except TimeoutError:
            raise _Refusal(408, f"the request did not come within {timeout:g} seconds") from None
        except web.RequestPayloadError as error:
            detail = http_connections.what_is_wrong(error.__cause__ or error)
            self._notes.add(http_connections.NO_HTTP, f"from {request.remote}: {detail}")
            raise _Refusal(400, f"the request: expected a complete body, found {detail}") from error

    # --- around all paths ---

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turns errors into replies, counts, and drops clients that do not take a reply."""
        started = time.monotonic()
        path = request.path if request.path in self._paths else "other"
        header = request.headers.get(server_log.REQUEST_ID)
        request[_ID] = server_log.request_id(header)
        try:
            response = await self._reply(request, handler)
            response.headers[server_log.REQUEST_ID] = request[_ID]
            # The connection ends after a reply to an unread request, or to the last one.
            if self._is_last(request):
                response.force_close()
            try:
                await asyncio.wait_for(_send(request, response), self._settings.read_timeout)
            except TimeoutError:
                if request.transport:
                    request.transport.abort()
            self._metrics.count_request(path, response.status, request.get(_MODEL))
        except asyncio.CancelledError:
            self._count_gone(request, path, started)
            raise
        except ConnectionError:
            self._count_gone(request, path, started)
            return web.Response()  # never sent
        self._metrics.time_request(path, time.monotonic() - started)
        self._log(request, response.status, started)
        return response

    def _log(self, request: web.Request, status: int, started: float) -> None:
        """Logs a request if the settings say so; `started`: its ``time.monotonic()``."""
        if self._settings.log_requests:
            server_log.log_request(
                request_id=request[_ID],
                method=request.method,
                path=request.path,
                model=request.get(_MODEL),
                status=status,
                seconds=round(time.monotonic() - started, 6),
                bytes=request.content_length,
                remote=request.remote,
            )

    def _is_last(self, request: web.Request) -> bool:
        connection = _connection_of(request)
        is_unread = request.can_read_body and not request.content.at_eof()
        is_spare = not connection.has_room
        return self._is_stopping or is_unread or is_spare or connection.is_last()

    def _count_gone(self, request: web.Request, path: str, started: float) -> None:
        """Counts and logs a request of `path`, begun at `started`, whose client has gone."""
        self._metrics.count_request(path, _GONE, request.get(_MODEL))
        self._notes.add(http_connections.GONE, path)
        self._log(request, _GONE, started)

    def _check_host(self, request: web.Request) -> None:
        """Rejects host names of other servers, which a page of another site would send."""
        hosts = request.headers.getall("Host", [])
        if not hosts and request.version < (1, 1):
            return
        match = _HOST_HEADER.fullmatch(hosts[0].strip()) if len(hosts) == 1 else None
        if match is None:
            names = ", ".join(map(repr, hosts)) or "none"
            raise _Refusal(400, f"Host: expected one name or address, found {names}")
        name = (match["v6"] or match["name"]).lower().rstrip(".")
        if not (_is_address(name) or name in self._hosts or ANY_HOST in self._hosts):
            raise _Refusal(
                421,
                f"Host: expected localhost, an address or one of allowed_hosts, found {name!r}",
            )

    def _check_room(self, request: web.Request) -> None:
        connection = _connection_of(request)
        if not connection.has_room and request.path not in _FOR_OPERATORS:
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
        except batching.NonFiniteError as error:
            logging.error("%s could not be answered: %s", request.path, error)
            return http_connections.error_reply(500, error)
        except file_io.InputError as error:
            return http_connections.error_reply(400, error)
        except _Refusal as error:
            return http_connections.error_reply(error.status, error, error.headers)
        except hosted_models.Loading as error:
            return http_connections.error_reply(503, error, _RETRY_WHEN_LOADED)
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
            logging.exception("%s could not be answered (%s)", request.path, request[_ID])
            return http_connections.error_reply(500, http_connections.OWN_ERROR)


def _connection_of(request: web.Request) -> http_connections.Connection:
    return cast(http_connections.Connection, request.protocol)


def _readiness(is_ready: bool, **fields: Any) -> web.Response:
    """Returns the reply of the Open Inference Protocol about a server or a model."""
    status, headers = (200, None) if is_ready else (503, _RETRY_WHEN_LOADED)
    return http_connections.json_reply({**fields, "ready": is_ready}, status, headers)


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await response.write_eof()


async def _load_all(
    server: Server, names: Sequence[str], loads: Sequence[Callable], stop: asyncio.Event
) -> None:
    """Loads one model after the other; each answers as soon as it is loaded."""
    for name, load in zip(names, loads, strict=True):
        model = await asyncio.to_thread(load, lambda: not stop.is_set())
        if stop.is_set():
            return
        server.start(model, name)
        logging.info("Ready: %s%s", model.kind, f" ({name})" if len(names) > 1 else "")


async def _serve(settings: Settings, loads: Sequence[Callable]) -> None:
    server, stop = Server(settings), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, *signals.end_signals()):
        loop.add_signal_handler(number, stop.set)
    names = settings.model_names or (settings.model_name,)
    try:
        async with server.listening() as (host, port, stop_listening):
            logging.info("Listening at http://%s:%d", f"[{host}]" if ":" in host else host, port)
            await _load_all(server, names, loads, stop)
            await stop.wait()
            server.refuse_new()
            stop_listening()
            logging.info("Stopping: accepted requests are still answered")
    finally:
        server.close()


def run(settings: Settings, *loads: Callable) -> None:
    """Serves models until SIGTERM, SIGHUP or SIGINT, then answers accepted requests and returns.

    Args:
      *loads: for each model a function that loads and warms up a `served_model.ServedModel`, called
        in a thread; its argument is a function that returns whether to continue.

    Raises:
      OSError: the address is not available.
    """
    asyncio.run(_serve(settings, loads))
