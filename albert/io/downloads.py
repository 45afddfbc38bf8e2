"""Downloads large files over HTTP: with progress, resuming, and limits of size and time."""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from typing import IO

from absl import logging

from albert.io import file_io, locks, progress

MAX_BYTES = 16 << 30
# Seconds without a single byte after which a server counts as gone.
TIMEOUT_SECONDS = 60.0
WAIT_SECONDS = 2.0  # before an interrupted download resumes
MAX_ATTEMPTS = 100
_CHUNK = 1 << 18
_BAD_RANGE = 416


class _OtherContentError(file_io.InputError):
    """The server has sent something else than the file."""


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to web servers only, and never from an encrypted to an open connection."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        allowed = ("https://",) if req.type == "https" else ("http://", "https://")
        if not newurl.startswith(allowed):
            raise urllib.error.HTTPError(
                req.full_url, code, f"redirects to {newurl}, which is not followed", headers, fp
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(url: str, path: str, magic: bytes) -> None:
    """Downloads a file, unless it is there already.

    A download that breaks off resumes while each attempt brings something; after an interruption
    of the program the next call resumes. One process at a time downloads to a path. The proxies are
    those of the environment (``https_proxy`` and so on), as `urllib` reads them.

    Args:
      path: where to put it; it appears complete or not at all.
      magic: first bytes that every file of the expected format has.

    Raises:
      file_io.InputError: the server cannot be reached, does not have the file, sends something
        else, more than `MAX_BYTES` or nothing for `TIMEOUT_SECONDS`; or the disk is full.
    """
    if file_io.exists(path):
        return
    with locks.made_by_one(path):
        if not file_io.exists(path):
            _Download(url, path, magic).run()


class _Download:
    """One download into ``<path>.part``, next to which ``.version`` names the server's version."""

    def __init__(self, url: str, path: str, magic: bytes) -> None:
        self._url, self._path, self._magic = url, path, magic
        self._part, self._version = f"{path}.part", f"{path}.part.version"

    def run(self) -> None:
        """Downloads until the file is complete."""
        for attempt in range(MAX_ATTEMPTS):
            before = self._size()
            try:
                self._continue(before)
                break
            except _OtherContentError:
                self._remove()
                raise
            except file_io.InputError:  # The disk is full, for example.
                raise
            except (http.client.HTTPException, OSError, ValueError) as error:
                received = self._size()  # ValueError: an impossible address
                if received <= before or attempt == MAX_ATTEMPTS - 1:
                    raise file_io.InputError(
                        f"cannot fetch {self._url}: {_reason(error)}"
                    ) from error
                text = "%s broke off after %s (%s): resuming"
                logging.warning(text, self._url, file_io.describe(received), _reason(error))
                time.sleep(WAIT_SECONDS)
        file_io.rename(self._part, self._path)
        file_io.remove(self._version)

    def _size(self) -> int:
        return file_io.size(self._part) if file_io.exists(self._part) else 0

    def _remove(self) -> None:
        file_io.remove(self._part)
        file_io.remove(self._version)

    def _continue(self, start: int) -> None:
        """Requests the bytes from `start` on and appends them to the part."""
        version = ""
        if start and file_io.exists(self._version):
            version = file_io.read_text(self._version, "version of a download")
        headers = {"Accept-Encoding": "identity"}
        if version:
            headers |= {"Range": f"bytes={start}-", "If-Range": version}
        request = urllib.request.Request(self._url, headers=headers)
        logging.info("Fetching %s to %s", self._url, self._path)
        try:
            reply = urllib.request.build_opener(Redirects).open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            if not version or error.code != _BAD_RANGE:
                raise
            if error.headers["Content-Range"] == f"bytes */{start}":
                return  # This version is complete.
            self._remove()
            return self._continue(0)
        with reply:
            if reply.status == http.HTTPStatus.PARTIAL_CONTENT:
                self._check_range(reply.headers["Content-Range"], start)
            else:
                start = 0
                self._remove()
                version = reply.headers["ETag"] or reply.headers["Last-Modified"] or ""
                # A weak version may stand for other bytes.
                if version and not version.startswith("W/"):
                    file_io.write_text(self._version, version)
            self._receive(reply, start)

    def _receive(self, reply: http.client.HTTPResponse, start: int) -> None:
        """Appends the body of a reply to the part, which has `start` bytes."""
        stated = reply.headers["Content-Length"]
        total = start + int(stated) if stated and stated.isdigit() else None
        self._check_size(total or 0)
        size = file_io.describe(total) if total else "an unknown number of bytes"
        there = f", of which {file_io.describe(start)} were fetched earlier" if start else ""
        logging.info("Receiving %s%s", size, there)
        num_bytes, name = start, os.path.basename(self._path)
        with (
            file_io.room_for(self._part, total),
            file_io.open_file(self._part, "ab") as file,
            progress.Progress(f"Fetching {name}", total or MAX_BYTES, "B") as bar,
        ):
            while chunk := reply.read(_CHUNK):
                if not num_bytes:
                    self._check_begin(chunk, reply.headers["Content-Type"])
                num_bytes += len(chunk)
                self._check_size(num_bytes)
                file.write(chunk)
                if total:
                    bar.show(num_bytes)
        if not num_bytes:
            raise _OtherContentError(f"{self._url} is empty")
        if total is not None and num_bytes < total:
            raise http.client.IncompleteRead(b"", total - num_bytes)

    def _check_range(self, content_range: str | None, start: int) -> None:
        if not re.match(rf"bytes {start}-", content_range or ""):
            self._remove()
            raise http.client.HTTPException(
                f"the server sends the range {content_range!r} in place of the bytes from {start} "
                "on"
            )

    def _check_size(self, size: int) -> None:
        if size > MAX_BYTES:
            raise _OtherContentError(
                f"{self._url} has {file_io.describe(size)} or more; at most "
                f"{file_io.describe(MAX_BYTES)} are fetched"
            )

    def _check_begin(self, chunk: bytes, kind: str | None) -> None:
        """Rejects a file that begins otherwise; `kind`: its Content-Type."""
        if not chunk.startswith(self._magic):
            raise _OtherContentError(
                f"{self._url} is another file than expected: it begins with {chunk[:20]!r} "
                f"(Content-Type: {kind}) in place of {self._magic!r}"
            )


def _reason(error: BaseException) -> str:
    """Returns what a network error says."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, http.client.IncompleteRead):
        return f"{error.expected} bytes are missing"
    return str(getattr(error, "reason", error)) or type(error).__name__
