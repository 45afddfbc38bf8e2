"""A web server on the loopback address that sends one file, or fails to."""

import contextlib
import dataclasses
import http.server
import threading
import time


@dataclasses.dataclass
class Site:
    """Content that the server sends, and the requests that it got.

    Attributes:
      content: bytes of the file.
      version: its ETag.
      break_at: for the first requests the number of bytes after which the connection is closed.
      stalls: whether it waits before it closes the connection.
      pause: seconds that it waits between the parts of a body.
      has_length: whether it states the Content-Length.
      length: what it states instead of the right one.
      range: the Content-Range that it states instead of the right one.
      redirects: addresses that it redirects the first requests to.
      status: status of its replies.
      ranges: the header Range of each request.
      url: address of the file.
    """

    content: bytes
    version: str | None = '"1"'
    break_at: list = dataclasses.field(default_factory=list)
    stalls: bool = False
    pause: float = 0.0
    has_length: bool = True
    length: int | None = None
    range: str | None = None
    redirects: list = dataclasses.field(default_factory=list)
    status: int = 200
    ranges: list = dataclasses.field(default_factory=list)
    url: str = ""


_PART = 100_000


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server.site
        asked, condition = self.headers["Range"], self.headers["If-Range"]
        site.ranges.append(asked)
        if site.redirects:
            self.send_response(302)
            self.send_header("Location", site.redirects.pop(0))
            self.end_headers()
            return
        start, whole = 0, len(site.content)
        if asked and condition == site.version:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= whole:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{whole}")
            self.end_headers()
            return
        self.send_response(206 if start else site.status)
        if start:
            self.send_header("Content-Range", site.range or f"bytes {start}-{whole - 1}/{whole}")
        if site.version:
            self.send_header("ETag", site.version)
        body = site.content[start:]
        if site.has_length:
            self.send_header("Content-Length", str(site.length or len(body)))
        self.send_header("Content-Type", "application/gzip")
        self.end_headers()
        until = site.break_at.pop(0) if site.break_at else len(body)
        with contextlib.suppress(OSError):
            for place in range(0, until, _PART):
                self.wfile.write(body[place : min(place + _PART, until)])
                time.sleep(site.pause)
            if site.stalls:
                time.sleep(2)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serve(content, name="a.tar.gz"):
    """Yields the `Site` of a file."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.site = Site(content, url=f"http://127.0.0.1:{server.server_port}/{name}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.site
        server.shutdown()
        thread.join()
