"""Equivalence of source texts: texts that differ only in comments, docstrings and layout are equivalent.

A text is identified by its own hash, until an equivalent earlier text is known; then by the hash of that one.  Texts are equivalent
if their syntax trees without docstrings are equal.  Parsing all sources takes about a second, so it is done in parallel with
uncompiled solves, or with the installation, and cached; later a changed text costs a few milliseconds.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable

from dynamics_backends.compiled.runtime.kept_files import cache_folder, read_value, write_value
from dynamics_backends.trusted_files import trusted_folder

FILE = f"{hashlib.sha256(b'source texts').hexdigest()[:32]}.texts"
MAX_TEXTS = 10_000
"""Maximum number of cached texts; beyond it only the current ones are stored."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def counted_as(texts: Iterable[bytes]) -> list[str]:
    """Identifying hash of each text: its own, or that of an equivalent known text."""
    known = _known()
    return [_counted_as(text, known) for text in texts]


def remember(texts: Iterable[bytes]) -> None:
    """Cache the identifying hashes of texts, so that later equivalent texts have the same ones. Raises OSError."""
    known = _known()
    now = {}
    for text in texts:
        own, counted = _hash(text), _counted_as(text, known)
        now[own] = counted
        if own not in known:
            now[meaning(text)] = counted
    if now.keys() <= known.keys():
        return
    write_value(trusted_folder(cache_folder()) / FILE, now if len(known) > MAX_TEXTS else known | now)


def is_known(texts: Iterable[bytes]) -> bool:
    """True if the hashes of all texts are cached."""
    known = _known()
    return all(_hash(text) in known for text in texts)


def meaning(text: bytes) -> str:
    """Hash of a Python text without comments and docstrings; of the text itself if it is not Python."""
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
    """Cached table: hash of a text, or of its syntax tree, -> identifying hash."""
    return dict(read_value(cache_folder() / FILE) or {})


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
