"""A page of the server on which a person tries the models in a browser.

It is one document with its style and script inside and nothing from elsewhere. The script reads
``page.json``, which describes the models, builds the form of the chosen one, and sends the same
requests as programs do.
"""

import base64
import functools
import hashlib
import importlib.resources
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from albert.serving import requests

PATHS = ("/", "/page.json")
_OWN_SITE = ("same-origin", "none")
_FOR_ALL = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


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
    html, style, script = _part("page.html"), _part("page.css"), _part("page.js")
    html = html.replace("/* page.css */", style).replace("/* page.js */", script)
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "connect-src": "'self'",
        "img-src": "data:",  # the empty icon, without which browsers ask for one
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return html, {
        **_FOR_ALL,
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
    }


def described(name: str, state: str, path: str | None = None, model: Any = None) -> dict[str, Any]:
    """Returns what the page has to know of a model, ready for JSON.

    Args:
      name: its name in paths.
      state: "ready", or what it is otherwise ("loading", "stopping").
      path: path of its requests in the toolkit's form; None: that of its kind.
      model: `served_model.ServedModel`; None while it is being loaded.
    """
    if model is None:
        return {"name": name, "state": state}
    form: requests.Form = model.form
    return {
        "name": name,
        "state": state,
        "kind": model.kind,
        "path": path or form.entry,
        "fields": list(form.fields),
        "optional": list(form.optional),
    }


def add_routes(router: web.UrlDispatcher, models: Callable[[], list[dict[str, Any]]]) -> None:
    """Adds the page and its description of the models.

    Args:
      router: that of the server.
      models: function that returns a list of what `described` returns.
    """

    async def page(_: web.Request) -> web.Response:
        html, headers = document()
        return web.Response(text=html, content_type="text/html", headers=headers)

    async def description(_: web.Request) -> web.Response:
        text = requests.to_json({"models": models()})
        return web.Response(text=text, content_type="application/json", headers=_FOR_ALL)

    for path, handler in zip(PATHS, (page, description), strict=True):
        router.add_get(path, handler)


def check_site(request: web.Request) -> None:
    """Rejects requests that a page of another site makes in a browser, except for reading.

    Browsers say in ``Sec-Fetch-Site`` where a request comes from; without encryption they do so
    only to this machine, and otherwise name the other site in ``Origin``. Other programs send
    neither.

    Raises:
      web.HTTPForbidden: the request comes from a page of another site.
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
