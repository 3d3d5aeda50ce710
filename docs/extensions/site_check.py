"""What a built site must be: without need of a network, and without links that lead nowhere.

Both are looked up in the pages as they are, so that it does not matter what wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
"""Elements that load what an attribute names."""
STYLES = {"stylesheet", "preload", "modulepreload", "icon"}
"""What a <link> loads."""


class Page(NamedTuple):
    """loaded: addresses of what the page needs. links: addresses it leads to. ids: places in it."""

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
    """What a page needs, where it leads, and what can be led to in it."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def complaints(site: Path) -> Iterator[str]:
    """Sentences about what is wrong with the pages in a folder."""
    found = [path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] != "_static"]  # a theme's
    pages = {path.resolve(): read(path) for path in found}
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        for address in dict.fromkeys(page.loaded):
            if urlsplit(address).scheme in ("http", "https") or address.startswith("//"):
                yield f"{here} needs a network for {address}"
            elif not urlsplit(address).scheme and not _target(path, address).exists():
                yield f"{here} shows {address}, which is not there"
        for address in dict.fromkeys(page.links):
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target, place = _target(path, address), unquote(urlsplit(address).fragment)
            if not target.exists():
                yield f"{here} links to {address}, which is not there"
            elif place and target in pages and place not in pages[target].ids:
                yield f"{here} links to {address}, which has no such place"


def _target(page: Path, address: str) -> Path:
    """The file that an address in a page means."""
    path = unquote(urlsplit(address).path)
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found
