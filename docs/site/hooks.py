"""Hooks of mkdocs: pages from outside docs/, and links that work in a clone and on the site."""

import os
import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from texts import (
    DOORS,
    NOTEBOOK,
    PAGES,
    ROOT,
    keep_names_whole,
    loaded_from_elsewhere,
    notebook_page,
    show_navigation,
    slug,
)

FENCED = re.compile(r"^```.*?^```$", re.S | re.M)
# The target of `[text](target)` or of the definition `[name]: target`.
LINK = re.compile(r"(\]\(|^\[[^]]+\]: )(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?", re.M)


def _api_page(door: str) -> str:
    return f"# albert.{door}\n\n::: albert.{door}\n"


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, os.path.dirname(page) or ".")


def _linked(path: str, source: str, page: str, files: Files, config: MkDocsConfig) -> str:
    """Returns the target of a link of a page; adds other files of the repository to the site."""
    target = os.path.normpath(os.path.join(os.path.dirname(source), path))
    if target in PAGES:
        return _relative(PAGES[target], page)
    if target.startswith("docs/"):
        return _relative(target.removeprefix("docs/"), page)
    if (ROOT / target).is_file():
        # A text that browsers show instead of downloading it.
        name = f"files/{target}.txt"
        if files.get_file_from_path(name) is None:
            content = (ROOT / target).read_text(encoding="utf-8")
            files.append(File.generated(config, name, content=content))
        return _relative(name, page)
    raise PluginError(f"{source}: a link to {target}, which is not a file in the repository")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the rule of anchors, which a file of settings cannot name without an import path."""
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside docs/ and the reference of the Python API."""
    for source, name in PAGES.items():
        path = ROOT / source
        text = notebook_page(path) if source == NOTEBOOK else path.read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for door in DOORS:
        files.append(File.generated(config, f"api/{door}.md", content=_api_page(door)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points the links of a page at pages of the site."""
    name = page.file.src_uri
    source = next((key for key, value in PAGES.items() if value == name), f"docs/{name}")

    def replaced(match: re.Match) -> str:
        before, path, anchor = match.groups("")
        return before + _linked(path, source, name, files, config) + anchor

    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [LINK.sub(replaced, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join(parts) + LINK.sub(replaced, markdown[end:])


def on_page_content(html: str, **_: object) -> str:
    """Keeps the names in a page from breaking."""
    return keep_names_whole(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Shows the navigation in narrower windows than the theme does, and checks what is loaded.

    Raises:
      PluginError: the theme has other widths; or a page or a style sheet loads something from
        another host.
    """
    assets = pathlib.Path(config.site_dir, "assets")
    for pattern in ("stylesheets/main*.css", "stylesheets/palette*.css", "javascripts/bundle*.js"):
        (path,) = assets.glob(pattern)
        before = path.read_text(encoding="utf-8")
        after = show_navigation(before)
        if after == before:
            raise PluginError(f"{path.name}: the theme shows its navigation at another width")
        path.write_text(after, encoding="utf-8")
    addresses = [
        f"{path.relative_to(config.site_dir)}: {tag}"
        for path in pathlib.Path(config.site_dir).rglob("*")
        if path.suffix in (".html", ".css", ".svg")
        for tag in loaded_from_elsewhere(path.read_text(encoding="utf-8"))
    ]
    if addresses:
        raise PluginError("the site loads from other hosts:\n" + "\n".join(addresses))
