"""Takes pictures of a report and of the server's page, in a headless Chromium.

    python docs/figures/screenshots.py tutorial_output

The folder is what the notebook in `tutorials/` writes. Needs the extras `serve` and `dev`, and
Chromium on the PATH.
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
TEXT = "The happy cook tasted the splendid soup."


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


def _take(browser: sync_api.Browser, folder: pathlib.Path) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 760})
    page.goto((folder / "report.html").resolve().as_uri())
    table = page.get_by_role("heading", name="Points, best first").bounding_box()
    _save(page, "report.webp", table["y"] - 12, table["y"] + 778)
    with _server(folder / "SST-2") as address:
        for file, scheme in zip(FILES[1:], ("light", "dark"), strict=True):
            page = browser.new_page(viewport={"width": 720, "height": 760}, color_scheme=scheme)
            page.goto(address)
            page.locator("#fields textarea").fill(TEXT)
            page.locator("#send").click()
            page.locator("#result").wait_for()
            _save(page, file, 0, page.locator("#reply").locator("..").bounding_box()["y"] + 40)


if __name__ == "__main__":
    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        _take(browser, pathlib.Path(sys.argv[1]))
