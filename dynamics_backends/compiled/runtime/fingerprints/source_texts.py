"""Equivalence of source texts: those that differ in comments, docstrings and layout only are the same.

A text counts by its own hash until another one that means the same has been seen; then by the hash of that.  What means the same
is told by the syntax tree without docstrings.  To find that of all sources takes about a second, so it is done beside solves
that start at once, or with the installation, and kept in the cache; later a text that has changed costs a few milliseconds.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable

from dynamics_backends.compiled.runtime.kept_files import cache_folder, read_value, write_value
from dynamics_backends.trusted_files import trusted_folder

FILE = f"{hashlib.sha256(b'source texts').hexdigest()[:32]}.texts"
MOST = 10_000
"""Texts that are remembered; beyond, those of now alone."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def counted_as(texts: Iterable[bytes]) -> list[str]:
    """By which hash each text counts."""
    known = _known()
    return [_counted_as(text, known) for text in texts]


def remember(texts: Iterable[bytes]) -> None:
    """Keep what texts mean, so that later ones that mean the same count as these. Raises OSError."""
    known = _known()
    now = {}
    for text in texts:
        own, counted = _hash(text), _counted_as(text, known)
        now[own] = counted
        if own not in known:
            now[meaning(text)] = counted
    if now.keys() <= known.keys():
        return
    write_value(trusted_folder(cache_folder()) / FILE, now if len(known) > MOST else known | now)


def is_known(texts: Iterable[bytes]) -> bool:
    """True if there is nothing to be remembered."""
    known = _known()
    return all(_hash(text) in known for text in texts)


def meaning(text: bytes) -> str:
    """The hash of a text without comments and docstrings; of its own, where it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _hash(text)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return hashlib.sha256(b"meaning " + ast.dump(tree).encode()).hexdigest()


def _counted_as(text: bytes, known: dict[str, str]) -> str:
    own = _hash(text)
    if own in known or not known:
        return known.get(own, own)
    return known.get(meaning(text), own)


def _known() -> dict[str, str]:
    """Hash of a text or of its meaning -> the hash that counts."""
    return dict(read_value(cache_folder() / FILE) or {})


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
