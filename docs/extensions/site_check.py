"""Checks of the built site: pages need no network, and all links have targets.

The checks read the final HTML, independent of the tool that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
"""HTML element -> attribute with the address that the element loads."""
STYLES = {"stylesheet", "preload", "modulepreload", "icon"}
"""Values of rel for which a <link> loads its address."""


class Page(NamedTuple):
    """An HTML page. loaded: addresses of its resources; links: addresses of its links; ids: anchors in it."""

    loaded: list[str]
    links: list[str]
    ids: set[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page([], [], set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag in LOADED and given.get(LOADED[tag]):
            self.page.loaded.append(given[LOADED[tag]])
        if tag == "link" and STYLES & set(given.get("rel", "").split()):
            self.page.loaded.append(given.get("href", ""))
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])


def read(path: Path) -> Page:
    """Read resources, links and anchors of a page."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def site_errors(site: Path) -> Iterator[str]:
    """Yield a message for each error in the pages of a folder."""
    found = [
        path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != "_static"
    ]  # skips pages of the theme
    pages = {path.resolve(): read(path) for path in found}
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        for address in dict.fromkeys(page.loaded):
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                yield f"{here} loads {address} from the network"
            elif not urlsplit(address).scheme and not _target(path, address).exists():
                yield f"{here} shows {address}, which does not exist"
        for address in dict.fromkeys(page.links):
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target, anchor = _target(path, address), unquote(urlsplit(address).fragment)
            if not target.exists():
                yield f"{here} links to {address}, which does not exist"
            elif anchor and target in pages and anchor not in pages[target].ids:
                yield f"{here} links to {address}, which has no such anchor"


def _target(page: Path, address: str) -> Path:
    """Return the file of an address in a page."""
    path = unquote(urlsplit(address).path)
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found
