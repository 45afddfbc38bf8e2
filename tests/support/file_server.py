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
      has_length: whether it states the Content-Length.
      status: status of its replies.
      ranges: the header Range of each request.
      url: address of the file.
    """

    content: bytes
    version: str | None = '"1"'
    break_at: list = dataclasses.field(default_factory=list)
    stalls: bool = False
    has_length: bool = True
    status: int = 200
    ranges: list = dataclasses.field(default_factory=list)
    url: str = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server.site
        asked, condition = self.headers["Range"], self.headers["If-Range"]
        site.ranges.append(asked)
        start = 0
        if asked and condition == site.version:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(site.content):
            self.send_error(416)
            return
        self.send_response(206 if start else site.status)
        if site.version:
            self.send_header("ETag", site.version)
        body = site.content[start:]
        if site.has_length:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/gzip")
        self.end_headers()
        until = site.break_at.pop(0) if site.break_at else len(body)
        with contextlib.suppress(OSError):
            self.wfile.write(body[:until])
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
