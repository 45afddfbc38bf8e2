"""Builds the server's page for trying its models in a browser.

It is one document with its style and script inside and nothing from elsewhere. The script reads the
list of models (``/v1/models``), builds the form of the chosen one from its schema, and sends the
same requests as programs do.
"""

import base64
import functools
import hashlib
import importlib.resources
from collections.abc import Mapping

from aiohttp import web

PATH = "/"
_SCRIPTS = ("page.js", "replies.js", "many.js")  # which become one
_OWN_SITE = ("same-origin", "none")


def _part(name: str) -> str:
    path = importlib.resources.files("albert.serving").joinpath("page", name)
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Returns the source expression of a text between two tags, for a policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@functools.cache
def document() -> tuple[str, dict[str, str]]:
    """Returns the HTML of the page and the headers it needs.

    The Content-Security-Policy allows this script and this style by their hashes and connections to
    this server. Nothing else runs, is loaded, framed or sent, and the script cannot turn a text
    into HTML (``require-trusted-types-for``).
    """
    html, style = _part("page.html"), _part("page.css")
    script = "\n".join(map(_part, _SCRIPTS))
    html = html.replace("/* page.css */", style).replace("/* page.js */", script)
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "connect-src": "'self'",
        "img-src": "data:",  # the icon
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return html, {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


async def show(_: web.Request) -> web.Response:
    """Answers a request for the page."""
    html, headers = document()
    return web.Response(text=html, content_type="text/html", headers=headers)


def check_site(request: web.Request) -> None:
    """Rejects requests that a page of another site makes in a browser, except for reading.

    Browsers say in ``Sec-Fetch-Site`` where a request comes from; without encryption they do so
    only to this machine, and otherwise name the other site in ``Origin``. Other programs send
    neither.
    """
    if request.method in ("GET", "HEAD") or _is_own_site(request.headers):
        return
    raise web.HTTPForbidden(reason="a page of another site may not send this")


def _is_own_site(headers: Mapping[str, str]) -> bool:
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if site is not None:
        return site in _OWN_SITE
    if origin is None:
        return True
    return origin.partition("://")[2].lower() == headers.get("Host", "").lower()
