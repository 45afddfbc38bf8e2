"""Connections of a server: how many there may be, what comes of broken ones, what the log says.

A client costs at most a line of the log, however often it comes, and never the file handles that
others need.
"""

import asyncio
import contextlib

from absl import logging
from aiohttp import web

from albert.io import file_io
from albert.serving import requests

# Kinds of notes.
NO_HTTP, GONE = "Not HTTP", "A client left before its answer"
OWN_ERROR = "an error of the server, see its log"
NOTE_SECONDS = 60.0  # in which the log has one line of a kind, and then how many more there were
_LONGEST_NOTE = 200  # characters of what a client sent
_MOST_ACCEPTED = 32  # connections taken at once, before any of them is counted
_MOST_IN_QUEUE = 128  # connections that the system keeps until they are taken
_SPARE = 8  # connections beyond the bound, for questions about health
# File handles that connections leave to others: those accepted but not yet counted (they take
# some turns of the loop to be counted, and to be closed), the model's files, the log.
_KEPT_HANDLES = 192
_TURNS = 6
_ASK_SECONDS = 1.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Notes:
    """Lines of the log about clients: the first of a kind at once, of others only their number."""

    def __init__(self):
        self._more = {}  # kind: how many came since its line

    def add(self, kind, said):
        """Logs an event, or counts it where one of its kind was logged not long ago.

        Args:
          kind: of the event, in a few words.
          said: what happened; a client may have written it.
        """
        if kind in self._more:
            self._more[kind] += 1
            return
        self._more[kind] = 0
        text = " ".join(str(said).split())
        text = text.encode("unicode_escape").decode()
        logging.warning("%s: %.*s", kind, _LONGEST_NOTE, text)
        asyncio.get_running_loop().call_later(NOTE_SECONDS, self._tell, kind)

    def _tell(self, kind):
        if more := self._more.pop(kind, 0):
            logging.warning("%s: %d more in %g seconds", kind, more, NOTE_SECONDS)

    def close(self):
        """Logs the numbers that were not told yet."""
        for kind in list(self._more):
            self._tell(kind)

    def of_loop(self, loop, context):
        """Handler of exceptions for `asyncio`, which itself logs each with its traceback."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self.add("A connection failed", f"{context['message']}: {error}")
        else:
            loop.default_exception_handler(context)


def what_is_wrong(error):
    """What `aiohttp` says of a request, without the bytes of the request that it quotes."""
    return (getattr(error, "message", "") or str(error or "")).partition(":")[0].strip()


def json_reply(value, status=200, headers=None):
    """Returns a reply in JSON."""
    text = requests.to_json(value)
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def error_reply(status, error, headers=None):
    """Returns a reply in JSON with an error message."""
    return json_reply({"error": str(error)}, status, headers)


# --- how many -----------------------------------------------------------------------------------


def _free_handles():
    """File handles that this process may still open; None: without a limit, or none is known."""
    with contextlib.suppress(ImportError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY and file_io.is_dir("/proc/self/fd"):
            return limit - len(file_io.listdir("/proc/self/fd"))
    return None


class Connections:
    """The open connections of a server.

    Beyond their bound the one is closed that has been open longest without a whole request. Where
    all have one, a few more are taken, which are told about health and nothing else.

    Args:
      most: bound that is wanted; it becomes less where file handles are short.
      notes: `Notes`.
      count_closed: function without arguments, called for each one that is closed to make room.
    """

    def __init__(self, most, notes, count_closed):
        free = _free_handles()
        kept = _KEPT_HANDLES if free is None else max(0, min(_KEPT_HANDLES, free // 2))
        self.most = most if free is None else max(1, min(most, free - kept))
        self._at_once = max(1, min(_MOST_ACCEPTED, kept // _TURNS))
        self._notes = notes
        self._count_closed = count_closed
        self._open = {}  # oldest first
        if self.most < most:
            said = f"At most {self.most} connections instead of {most}"
            logging.warning("%s: this process may open only %d more files (ulimit -n)", said, free)

    def __len__(self):
        return len(self._open)

    async def listen(self, manager, make, host, port):
        """`asyncio.Server` of an address.

        Args:
          manager: `aiohttp.web.Server` of the connections.
          make: function without arguments that makes a `Connection`.
          host, port: the address.
        """
        make_request = manager.request_factory

        def begin_request(message, payload, connection, *more):
            request = make_request(message, payload, connection, *more)
            connection.begin(request)
            return request

        manager.request_factory = begin_request
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, host, port, backlog=self._at_once)
        for listening in server.sockets:
            with listening.dup() as same:  # asyncio has one number for both
                same.listen(_MOST_IN_QUEUE)
        return server

    def add(self, connection):
        """Counts a connection that was made.

        Returns:
          Whether there was room; else it is one of the few that are told about health only.
        """
        self._open[connection] = None
        if len(self._open) <= self.most:
            return True
        oldest = next((c for c in self._open if c is not connection and c.is_idle()), None)
        has_room = len(self._open) <= self.most + _SPARE
        closed = oldest or (None if has_room else connection)
        if closed is not None:
            self._count_closed()
            self._notes.add(
                "Too many connections",
                f"{self.most} are open, the most there may be; the one that has been open longest "
                "without a whole request was closed",
            )
            self.remove(closed)
            closed.transport.abort()
        return oldest is not None

    def remove(self, connection):
        """Counts a connection no more."""
        self._open.pop(connection, None)


class Connection(web.RequestHandler):
    """A connection to a client.

    What is no HTTP is answered in JSON and noted in a line. A client that has ended its side after
    its requests still gets the answers.

    Args:
      manager: `aiohttp.web.Server`.
      connections: `Connections`.
      notes: `Notes`.
      count: function of a status, called for each reply that is made here.
      **options: of `aiohttp.web.RequestHandler`.

    Attributes:
      has_ended: whether the client has ended its side.
      has_room: see `Connections.add`.
    """

    def __init__(self, manager, connections, notes, count, **options):
        super().__init__(manager, **options)
        self._connections, self._notes, self._count = connections, notes, count
        self.has_ended, self.has_room = False, True
        self._request, self._is_answered = None, True

    def connection_made(self, transport):
        super().connection_made(transport)
        self.has_room = self._connections.add(self)

    def connection_lost(self, exc):
        self._connections.remove(self)
        super().connection_lost(exc)

    def begin(self, request):
        """Called with each request when it is its turn to be answered."""
        self._request, self._is_answered = request, False

    def is_idle(self):
        """Whether there is no whole request to answer."""
        return not self._messages and (self._is_answered or not self._request.content.is_eof())

    def is_last(self):
        """Whether no request can follow the one that is being answered."""
        return self.has_ended and not self._messages

    def eof_received(self):
        """Called when the client has ended its side; True keeps the other one open."""
        self.has_ended = True
        if self._is_answered and not self._messages:
            return False
        body = self._messages[-1][1] if self._messages else self._request.content
        if not body.is_eof():
            body.set_exception(web.RequestPayloadError("the body of the request is not complete"))
            body.feed_eof()
        self._loop.call_later(_ASK_SECONDS, self._ask)
        return True

    def _ask(self):
        """Finds out whether a client that has ended its side is still there.

        One that is not there answers with a reset, so that what it asked need not be computed.
        """
        if self.transport is None or self.transport.is_closing():
            return
        request = self._request
        if not self._is_answered and request.version >= (1, 1) and not request.writer.output_size:
            self.transport.write(_CONTINUE)
        self._loop.call_later(_ASK_SECONDS, self._ask)

    def handle_error(self, request, status=500, exc=None, message=None):
        """Reply to what is no HTTP, or to a mistake of the server outside of its paths."""
        if isinstance(exc, ConnectionError) or request.writer.output_size:
            self._notes.add(GONE, "other")
            raise ConnectionError("nobody takes a reply") from exc
        self._count(status)
        if status == 400:
            said = what_is_wrong(exc) or message
            self._notes.add(NO_HTTP, f"from {request.remote}: {said}")
            reply = error_reply(status, f"the request: expected HTTP/1.1, found {said}")
        else:
            logging.error("%s could not be answered", request.path, exc_info=exc)
            reply = error_reply(status, OWN_ERROR)
        reply.force_close()
        return reply

    async def finish_response(self, request, resp, start_time):
        """Sends a reply; those that `aiohttp` makes itself become JSON."""
        if isinstance(resp, web.HTTPException):
            self._count(resp.status)
            resp = error_reply(resp.status, f"{request.method} {request.path}: {resp.reason}")
            resp.force_close()
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._is_answered = True

    def log_exception(self, *args, exc_info=None, **_):
        """Called by `aiohttp` where a connection ended in an error."""
        self._notes.add("A connection failed", exc_info or args)
