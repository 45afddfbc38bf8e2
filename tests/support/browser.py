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


# The texts of a page whose contrast with what is behind them is below that of WCAG 2, level AA.
_LOW_CONTRASTS = """() => {
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = color => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) =>
    [...[r, g, b].map((x, i) => x * a + below[i] * (1 - a)), 1];
  const behind = node => {
    const parent = node.parentElement;
    const below = parent ? behind(parent) : [255, 255, 255, 1];
    return over(rgba(getComputedStyle(node).backgroundColor), below);
  };
  const light = color => color.slice(0, 3).map(x => x / 255).map(
    x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4
  ).reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const node of document.body.querySelectorAll("*")) {
    const isField = /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName);
    const text = isField ? node.value : [...node.childNodes].filter(child => child.nodeType === 3)
      .map(child => child.data).join("").trim();
    if (!text || node.disabled || !node.checkVisibility()) continue;
    const style = getComputedStyle(node), background = behind(node);
    const color = rgba(style.color);
    for (let at = node; at; at = at.parentElement) color[3] *= getComputedStyle(at).opacity;
    const [low, high] = [light(background), light(over(color, background))].sort((a, b) => a - b);
    const size = parseFloat(style.fontSize), isBold = style.fontWeight >= 700;
    const needed = size >= 24 || (size >= 18.66 && isBold) ? 3 : 4.5;
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < needed) found.push(`${node.tagName} ${String(text).slice(0, 40)}: ${ratio}`);
  }
  return found;
}"""


def low_contrasts(page):
    """The texts that the page shows in colors with less contrast than AA asks for."""
    return page.evaluate(_LOW_CONTRASTS)


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
