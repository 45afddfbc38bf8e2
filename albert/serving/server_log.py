"""The log of a server: identifiers of requests, JSON lines, and a line for each request."""

import json
import logging as python_logging
import re
import secrets
import time
from typing import Any

from absl import logging

REQUEST_ID = "X-Request-ID"  # header
_ID = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)
_LONGEST = 200  # characters of a path, which a client chooses
_FIELDS = "fields"  # attribute of log records
_ACCESS = python_logging.getLogger("albert.access")


def request_id(header: str | None) -> str:
    """Returns the identifier of a request: its header `REQUEST_ID`, or 16 hexadecimal digits.

    The header is taken if it has 1 to 128 letters, digits and ``. : / + = @ _ -``, so that it
    cannot forge a line of any log.
    """
    if header is not None and _ID.fullmatch(header):
        return header
    return secrets.token_hex(8)


class JsonFormatter(python_logging.Formatter):
    """Formats log records as JSON objects: time (UTC), level, message, perhaps error and fields."""

    def format(self, record: python_logging.LogRecord) -> str:
        """Returns a line without its end."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry | getattr(record, _FIELDS, {}))


def use_json() -> None:
    """Makes the log of this process JSON lines."""
    logging.get_absl_handler().setFormatter(JsonFormatter())


def log_request(**fields: Any) -> None:
    """Logs a request that was answered; `fields` are those of its line."""
    fields["path"] = fields["path"][:_LONGEST]
    _ACCESS.info("request", extra={_FIELDS: fields})
