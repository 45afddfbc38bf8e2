"""Takes pictures of a report and of the server's page, in a headless Chromium.

    python -m albert.report --runs=topics --output=report.html
    python docs/figures/screenshots.py topics report.html

The run is that of the first command in README.md with `--do_predict --predict_on=dev`. Needs the
extras `serve` and `dev`, and Chromium on the PATH.
"""

import base64
import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from playwright import sync_api

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["report.webp", "server_page.webp", "server_page_dark.webp"]
TEXTS = (
    "The hat is too tight, I would like a bigger one.",
    "You took forty dollars from my card instead of fourteen.",
)


def _save(page: sync_api.Page, file: str, top: float, bottom: float) -> None:
    """Saves a part of a page as WebP; playwright itself makes only PNG and JPEG."""
    area = {
        "x": 0,
        "y": top,
        "height": bottom - top,
        "width": page.viewport_size["width"],
        "scale": 1,
    }
    picture = page.context.new_cdp_session(page).send(
        "Page.captureScreenshot",
        {"format": "webp", "quality": 80, "clip": area, "captureBeyondViewport": True},
    )
    (HERE / file).write_bytes(base64.b64decode(picture["data"]))


@contextlib.contextmanager
def _server(model_dir: pathlib.Path) -> Iterator[str]:
    """Yields the address of a server of the model."""
    command = [sys.executable, "-m", "albert.serve", f"--model_dir={model_dir}", "--port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr)
            address = next(filter(None, (re.search(r"http://[\d.]+:\d+", line) for line in lines)))
            next(line for line in lines if "Ready: " in line)
            yield address[0]
        finally:
            process.terminate()


def _take(browser: sync_api.Browser, model_dir: pathlib.Path, report: pathlib.Path) -> None:
    page = browser.new_page(viewport={"width": 1100, "height": 700})
    page.goto(report.resolve().as_uri())
    _save(page, "report.webp", 0, 700)
    with _server(model_dir) as address:
        for file, scheme in zip(FILES[1:], ("light", "dark"), strict=True):
            page = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme=scheme)
            page.goto(address)
            for text in TEXTS:
                page.get_by_label("Text", exact=True).fill(text)
                page.get_by_role("button", name="Ask the model").click()
                page.locator("#answers").get_by_text(text).wait_for()
            end = page.locator("#request").bounding_box()
            _save(page, file, 0, end["y"])


if __name__ == "__main__":
    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        _take(browser, *map(pathlib.Path, sys.argv[1:]))
