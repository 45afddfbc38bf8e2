"""Limits, error replies and log lines for the connections of a server.

A client costs at most one line of the log, however often it connects, and never the file handles
that others need.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from absl import logging
from aiohttp import StreamReader, web

from albert.io import file_io
from albert.serving import requests

# Kinds of notes.
NO_HTTP, GONE = "Not HTTP", "A client left before its answer"
OWN_ERROR = "an error of the server, see its log"
NOTE_SECONDS = 60.0  # one line per kind and period; its end logs how many more there were
_LONGEST_NOTE = 200  # characters of what a client sent
_MAX_ACCEPTED = 32  # connections accepted at once, before any of them is counted
_MAX_IN_QUEUE = 128  # connections that the system queues until they are accepted
_SPARE = 8  # connections beyond the limit, for requests to /healthz and /metrics
# File handles that connections leave free: for connections accepted but not yet counted (counting
# and closing them takes some turns of the event loop), the model's files and the log.
_KEPT_HANDLES = 192
_TURNS = 6
_PROBE_SECONDS = 1.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Notes:
    """Log lines about clients: logs the first event of a kind, then only the number of others."""

    def __init__(self) -> None:
        self._more: dict[str, int] = {}  # kind: number of events since its line

    def add(self, kind: str, message: object) -> None:
        """Logs an event, or counts it if one of its kind was logged within `NOTE_SECONDS`.

        The text of the message may come from a client.
        """
        if kind in self._more:
            self._more[kind] += 1
            return
        self._more[kind] = 0
        text = " ".join(str(message).split())
        text = text.encode("unicode_escape").decode()
        logging.warning("%s: %.*s", kind, _LONGEST_NOTE, text)
        asyncio.get_running_loop().call_later(NOTE_SECONDS, self._log_count, kind)

    def _log_count(self, kind: str) -> None:
        if more := self._more.pop(kind, 0):
            logging.warning("%s: %d more in %g seconds", kind, more, NOTE_SECONDS)

    def close(self) -> None:
        """Logs the counts that are not logged yet."""
        for kind in list(self._more):
            self._log_count(kind)

    def log_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles exceptions of the event loop, which would log each with its traceback."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self.add("A connection failed", f"{context['message']}: {error}")
        else:
            loop.default_exception_handler(context)


def what_is_wrong(error: object) -> str:
    """Returns the error message of `aiohttp`, without the bytes of the request that it quotes."""
    return (getattr(error, "message", "") or str(error or "")).partition(":")[0].strip()


def json_reply(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Returns a reply in JSON."""
    text = requests.to_json(value)
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def error_reply(
    status: int, error: object, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Returns a reply in JSON with an error message."""
    return json_reply({"error": str(error)}, status, headers)


# --- limits -------------------------------------------------------------------------------------


def _free_handles() -> int | None:
    """Returns how many files this process may still open; None: unlimited or unknown."""
    with contextlib.suppress(ImportError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY and file_io.is_dir("/proc/self/fd"):
            return limit - len(file_io.listdir("/proc/self/fd"))
    return None


class Connections:
    """The open connections of a server.

    Beyond their limit, the connection that has been open longest without a whole request is closed.
    If all have a whole request, a few more are accepted, which may only ask for health and metrics.

    Args:
      limit: maximum number of connections; lower if the process may open too few files.
      count_closed: called for each connection closed to make room.
    """

    def __init__(self, limit: int, notes: Notes, count_closed: Callable[[], None]) -> None:
        free = _free_handles()
        reserve = _KEPT_HANDLES if free is None else max(0, min(_KEPT_HANDLES, free // 2))
        self.limit = limit if free is None else max(1, min(limit, free - reserve))
        self._at_once = max(1, min(_MAX_ACCEPTED, reserve // _TURNS))
        self._notes = notes
        self._count_closed = count_closed
        self._open: dict[Connection, None] = {}  # oldest first
        if self.limit < limit:
            change = f"At most {self.limit} connections instead of {limit}"
            logging.warning(
                "%s: this process may open only %d more files (ulimit -n)", change, free
            )

    def __len__(self) -> int:
        return len(self._open)

    async def listen(
        self, manager: web.Server, make: Callable[[], "Connection"], host: str, port: int
    ) -> asyncio.Server:
        """Listens at an address."""
        make_request = manager.request_factory

        def begin_request(
            message: Any, payload: StreamReader, connection: web.RequestHandler, *more: Any
        ) -> web.BaseRequest:
            request = make_request(message, payload, connection, *more)
            cast(Connection, connection).begin(request)
            return request

        manager.request_factory = begin_request
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, host, port, backlog=self._at_once)
        for listening in server.sockets:
            with listening.dup() as same:  # asyncio uses its backlog for both
                same.listen(_MAX_IN_QUEUE)
        return server

    def add(self, connection: "Connection") -> bool:
        """Counts a new connection; without room it may only ask for health and metrics.

        Returns whether there was room.
        """
        self._open[connection] = None
        if len(self._open) <= self.limit:
            return True
        oldest = next((c for c in self._open if c is not connection and c.is_idle()), None)
        has_room = len(self._open) <= self.limit + _SPARE
        closed = oldest or (None if has_room else connection)
        if closed is not None:
            self._count_closed()
            self._notes.add(
                "Too many connections",
                f"{self.limit} are open, which is the maximum; the one that has been open longest "
                "without a complete request was closed",
            )
            self.remove(closed)
            if closed.transport:
                closed.transport.abort()
        return oldest is not None

    def remove(self, connection: "Connection") -> None:
        """Stops counting a connection."""
        self._open.pop(connection, None)


class Connection(web.RequestHandler):
    """A connection to a client.

    Input that is not HTTP is answered in JSON and logged in one line. A client that has ended its
    side after its requests still gets the replies.

    Args:
      count: ``(status)``, called for each reply that this class makes.
      **options: keyword arguments of `aiohttp.web.RequestHandler`.

    Attributes:
      has_ended: whether the client has ended its side.
      has_room: see `Connections.add`.
    """

    def __init__(
        self,
        manager: web.Server,
        connections: Connections,
        notes: Notes,
        count: Callable[[int], None],
        **options: Any,
    ) -> None:
        super().__init__(manager, **options)
        self._connections, self._notes, self._count = connections, notes, count
        self.has_ended, self.has_room = False, True
        self._request: web.BaseRequest  # that is answered, or was answered last
        self._is_answered = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.has_room = self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def begin(self, request: web.BaseRequest) -> None:
        """Called with each request before it is answered."""
        self._request, self._is_answered = request, False

    @property
    def _next(self) -> Sequence[tuple[Any, StreamReader]]:
        """The head and body of each request that has come but is not answered yet.

        `aiohttp` shows only the request that it answers. Without the others, a client that has
        sent several and ended its side would get the reply to the first alone.
        """
        return self._messages

    def is_idle(self) -> bool:
        """Returns whether there is no whole request to answer."""
        return not self._next and (self._is_answered or not self._request.content.is_eof())

    def is_last(self) -> bool:
        """Returns whether no request can follow the one that is being answered."""
        return self.has_ended and not self._next

    def eof_received(self) -> Any:  # bool: `aiohttp` declares None
        """Called when the client has ended its side; returns True to keep the other one open."""
        self.has_ended = True
        if self._is_answered and not self._next:
            return False
        body = self._next[-1][1] if self._next else self._request.content
        if not body.is_eof():
            body.set_exception(web.RequestPayloadError("the body of the request is not complete"))
            body.feed_eof()
        asyncio.get_running_loop().call_later(_PROBE_SECONDS, self._probe)
        return True

    def _probe(self) -> None:
        """Sends "100 Continue" to find out whether a client that has ended its side is still there.

        If it has gone, its system answers with a reset, and its request need not be computed.
        """
        if self.transport is None or self.transport.is_closing():
            return
        if not self._is_answered:
            request = self._request
            if request.version >= (1, 1) and not request.writer.output_size:
                self.transport.write(_CONTINUE)
        asyncio.get_running_loop().call_later(_PROBE_SECONDS, self._probe)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Replies to input that is not HTTP, and after errors outside of the handlers of paths."""
        if isinstance(exc, ConnectionError) or request.writer.output_size:
            self._notes.add(GONE, "other")
            raise ConnectionError("nobody takes a reply") from exc
        self._count(status)
        if status == 400:
            error = what_is_wrong(exc) or message
            self._notes.add(NO_HTTP, f"from {request.remote}: {error}")
            reply = error_reply(status, f"the request: expected HTTP/1.1, found {error}")
        else:
            logging.error("%s could not be answered", request.path, exc_info=exc)
            reply = error_reply(status, OWN_ERROR)
        reply.force_close()
        return reply

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends a reply; turns error replies that `aiohttp` makes into JSON."""
        if isinstance(resp, web.HTTPException):
            self._count(resp.status)
            resp = error_reply(resp.status, f"{request.method} {request.path}: {resp.reason}")
            resp.force_close()
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._is_answered = True

    def log_exception(self, *args: Any, exc_info: Any = None, **_: Any) -> None:
        """Called by `aiohttp` if a connection ended in an error."""
        self._notes.add("A connection failed", exc_info or args)
