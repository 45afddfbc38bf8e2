"""A headless Chromium, and servers in this process that it visits."""

import asyncio
import contextlib
import os
import shutil
import threading

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextlib.contextmanager
def opened():
    """A browser of playwright; skips the test where playwright or Chromium is missing."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, _NAMES)), playwright.chromium.executable_path)
        if not os.path.exists(path):
            pytest.skip("there is no Chromium")
        # Within containers, and for root, its sandbox does not start.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def in_thread(listening):
    """Runs a server next to the test, whose thread is that of the browser.

    Args:
      listening: function that returns an asynchronous context manager, which yields the port.

    Yields:
      The address of the server.
    """
    loop, started, found = asyncio.new_event_loop(), threading.Event(), {}

    async def run():
        found["stop"] = asyncio.Event()
        async with listening() as port:
            found["port"] = port
            started.set()
            await found["stop"].wait()

    def main():
        try:
            loop.run_until_complete(run())
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=main)
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{found['port']}/"
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(found["stop"].set)
        thread.join()
