"""Untrusted XML as a tree of elements with line numbers, and parsing of numbers.

defusedxml rejects entity declarations and external references, so that a small file cannot expand into a large one or read
another file. Two common mistakes are corrected: an XML declaration that is not at the very start, and undeclared prefixes. Every
error is a `URDFError` that names the file; errors about an element begin with the file, the line and the element.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from dynamics_backends.names import nearest_names
from dynamics_backends.rigid_body.spatial.rotations import quaternion_matrices, rpy_matrix
from dynamics_backends.user_input import InputError, read_bounded

_BLANK = "\ufeff \t\r\n"  # characters allowed before the text, including a byte order mark
NESTING_LIMIT = 200  # a URDF nests about six deep


class URDFError(InputError):
    """A URDF cannot be read, or describes no usable robot; the message contains the position and the remedy."""


LARGEST = 1e12
"""Upper bound of masses, inertias and coefficients; a larger joint limit counts as unlimited."""
FARTHEST = 1e6
"""Largest size of an entry of an origin [m, rad]."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WORDS = re.compile(r"[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_BETWEEN = re.compile(r"[^ \t\r\n]+")


@dataclass(eq=False)
class Element:
    """XML element. source: name of the file, or "URDF text"; text: characters between the tags, without those of children."""

    tag: str
    attributes: dict[str, str]
    source: str
    line: int
    parent: Element | None = None
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def error(self, message: str) -> URDFError:
        """Return an error with the position of this element."""
        return URDFError(f"{self.source}, {self.place()}: {message}")

    def place(self) -> str:
        """Line and path of this element, for messages."""
        return f"line {self.line}, {self._path()}"

    def _path(self) -> str:
        """Tags with names from below the root to this element, for messages."""
        name = f" name={self.attributes['name']!r}" if "name" in self.attributes else ""
        above = "" if self.parent is None or self.parent.parent is None else self.parent._path() + " "
        return f"{above}<{self.tag}{name}>"

    def all(self, tag: str) -> list[Element]:
        """Return the children with this tag."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Element | None:
        """Return the first child with this tag, or None."""
        return next(iter(self.all(tag)), None)

    def required(self, tag: str) -> Element:
        """Return the first child with this tag. Raises URDFError if there is none."""
        child = self.first(tag)
        if child is None:
            raise self.error(f"<{tag}> is missing: add it")
        return child

    def string(self, attribute: str) -> str:
        """Return a non-empty attribute. Raises URDFError if there is none."""
        value = self.attributes.get(attribute, "")
        if not value:
            raise self.error(f"the attribute {attribute!r} is missing or empty: add it")
        return value

    def number(self, attribute: str, default: float | None = None, infinite: bool = False) -> float:
        """Return an attribute as a number; required if there is no default. Raises URDFError for other text and for NaN.

        infinite: True accepts infinity, and makes numbers of a size above LARGEST infinite; else both are errors.
        """
        if attribute not in self.attributes and default is not None:
            return default
        return self._parse(attribute, self.string(attribute), infinite)

    def vector(self, attribute: str, default: Sequence[float], largest: float = LARGEST) -> np.ndarray:
        """Return an attribute as an array of the default's size; the default if the attribute is missing.

        Raises URDFError for another number of words, for other text than finite numbers, and for entries of a size above
        ``largest``.
        """
        if attribute not in self.attributes:
            return np.array(default, dtype=float)
        words = _BETWEEN.findall(self.attributes[attribute])
        if len(words) != len(default):
            hint = "; separate them by spaces, not by commas" if "," in self.attributes[attribute] else ""
            raise self.error(
                f"{attribute}={self.attributes[attribute]!r} has {len(words)} numbers, not {len(default)}{hint}"
            )
        return np.array([self._parse(attribute, word, largest=largest) for word in words])

    def origin(self) -> tuple[np.ndarray, np.ndarray]:
        """Return xyz (3,) [m] and the rotation (3, 3) by rpy [rad] or quat_xyzw (URDF 1.1) of the child <origin>.

        They are zero and the identity without the element. Raises URDFError as :meth:`vector`, and for an origin with rpy and
        quat_xyzw or a quaternion whose norm is not 1.
        """
        element = self.first("origin")
        if element is None:
            return np.zeros(3), np.eye(3)
        p = element.vector("xyz", (0, 0, 0), FARTHEST)
        if "quat_xyzw" not in element.attributes:
            return p, rpy_matrix(element.vector("rpy", (0, 0, 0), FARTHEST))
        if "rpy" in element.attributes:
            raise element.error("it has rpy and quat_xyzw: remove one of them")
        quaternion = element.vector("quat_xyzw", (0, 0, 0, 1))
        try:
            return p, quaternion_matrices(quaternion, "quat_xyzw")
        except ValueError as error:
            raise element.error(str(error)) from None

    def content(self) -> float:
        """Return the text between the tags as a number. Raises URDFError for other text, and a size above LARGEST."""
        return self._parse("its text", self.text.strip())

    def _parse(self, what: str, word: str, infinite: bool = False, largest: float = LARGEST) -> float:
        """Number of a word. what: its description in messages.

        infinite: True accepts infinity, and makes numbers of a size above ``largest`` infinite; else both raise URDFError. Raises
        URDFError for other text and for NaN.
        """
        if not (
            _NUMBER.fullmatch(word) or _WORDS.fullmatch(word)
        ):  # float() takes 1_000 and digits of other scripts too
            raise self.error(f"{what} is {word!r}, which is not a number: write digits 0 to 9, as in 1000, 0.5 or 1e-3")
        value = float(word)
        if math.isnan(value) or (math.isinf(value) and not infinite):
            raise self.error(f"{what} is {word!r}: give a finite number")
        if abs(value) > largest:
            if not infinite:
                raise self.error(f"{what} is {word!r}: give a number of at most {largest:.0e}, in SI units")
            return math.copysign(math.inf, value)
        return value


def is_text(source: str | os.PathLike) -> bool:
    """True if a source is XML text, which starts with "<", and not the path of a file."""
    return isinstance(source, str) and source.lstrip(_BLANK).startswith("<")


def read_xml(source: str | os.PathLike) -> Element:
    """Return the root element of a file, or of XML text that starts with "<".

    Raises URDFError for a file that cannot be read, and as :func:`_parse_xml`.
    """
    if is_text(source):
        return _parse_text(str(source).lstrip(_BLANK), "URDF text")
    path = Path(source)
    try:
        content = read_bounded(path)
    except InputError as error:
        raise URDFError(f"cannot read the URDF: {error}") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise URDFError(f"cannot read the URDF {str(path)!r}: {_read_error(path, error)}") from None
    return _parse_text(content, path.name)


def _parse_text(content: str | bytes, source: str) -> Element:
    """Root element of a text; undeclared prefixes are declared if necessary. Raises URDFError as :func:`_parse_xml`."""
    content = _declaration_first(content)
    try:
        return _parse_xml(content, source)
    except URDFError as error:
        if UNBOUND not in str(error):
            raise
    return _parse_xml(_with_prefixes(content), source)


_OTHER_ENCODING = (
    "its text is not UTF-8: save it as such, or name its encoding in the first line, as in"
    """ <?xml version="1.0" encoding="iso-8859-1"?>"""
)


def _is_unicode(content: str | bytes) -> bool:
    """True for a str, and for bytes in UTF-8."""
    try:
        if isinstance(content, bytes):
            content.decode()
    except UnicodeDecodeError:
        return False
    return True


UNBOUND = "unbound prefix"
_LATE_DECLARATION = rb"\A((?:\s|<!--(?:(?!-->).)*-->)+)(<\?xml\b.*?\?>)"
_TO_ROOT = rb"\A(?:\xef\xbb\xbf)?(?:\s|<\?(?:(?!\?>).)*\?>|<!--(?:(?!-->).)*-->|<!DOCTYPE[^>]*>)*<[\w.:-]+"
_PREFIX = rb"<([A-Za-z_][\w.-]*):|\s([A-Za-z_][\w.-]*):[\w.-]+\s*="
_BOUND = rb"xmlns:([\w.-]+)\s*="


def _declaration_first(content: str | bytes) -> str | bytes:
    """Return the text with an XML declaration moved before preceding blank lines and comments; line numbers are unchanged."""
    raw = content.encode() if isinstance(content, str) else content
    moved = re.sub(_LATE_DECLARATION, rb"\2\1", raw, count=1, flags=re.DOTALL)
    return content if moved == raw else moved


def _with_prefixes(content: str | bytes) -> bytes:
    """Return the text with every undeclared prefix declared in its root element."""
    raw = content.encode() if isinstance(content, str) else content
    used = (
        {name for pair in re.findall(_PREFIX, raw) for name in pair if name}
        - set(re.findall(_BOUND, raw))
        - {b"xmlns", b"xml"}
    )
    names = b"".join(b' xmlns:%s="urn:undeclared:%s"' % (name, name) for name in sorted(used))
    return re.sub(_TO_ROOT, lambda found: found.group(0) + names, raw, count=1, flags=re.DOTALL)


def _parse_xml(content: str | bytes, source: str) -> Element:
    """Root element of a text. Raises URDFError for malformed or empty XML, entities, external references, too deep nesting."""
    target = _Target(source)
    parser = target.parser = DefusedXMLParser(target=target)
    try:
        parser.feed(content)
        root = parser.close()
    except DefusedXmlException:
        raise URDFError(
            f"{source}, line {target.line}: entity declarations and external references are refused, since"
            " they can blow up or read other files; write the text in place of the entity, and remove"
            " the DOCTYPE"
        ) from None
    except ParseError as error:
        remedy = "correct it there" if _is_unicode(content) else _OTHER_ENCODING
        remedy = remedy if content.strip() else "it is empty"
        raise URDFError(f"{source}: not well-formed XML: {error}; {remedy}") from None
    if root is None:
        raise URDFError(f"{source}: there is no XML element in it")
    return root


class _Target:
    """Parser target that builds the tree."""

    def __init__(self, source: str):
        self.source = source
        self.parser: Any = None  # set once the parser exists, which needs the target first
        self._open: list[Element] = []
        self._texts: list[list[str]] = []  # of the open elements, in parts
        self._root: Element | None = None

    @property
    def line(self) -> int:
        """Current line of the parser."""
        return self.parser.parser.CurrentLineNumber

    def start(self, tag: str, attributes: dict[str, str]):
        """Add an opened element to the tree. Raises URDFError for nesting deeper than NESTING_LIMIT."""
        above = self._open[-1] if self._open else None
        element = Element(tag, dict(attributes), self.source, self.line, above)
        if len(self._open) >= NESTING_LIMIT:
            raise element.error(f"elements are nested more than {NESTING_LIMIT} deep: this is no URDF")
        if above is None:
            self._root = element
        else:
            above.children.append(element)
        self._open.append(element)
        self._texts.append([])

    def end(self, tag: str):
        """Close the innermost open element and store its text."""
        element, parts = self._open.pop(), self._texts.pop()
        element.text = "".join(parts)

    def data(self, text: str):
        """Append text to the innermost open element."""
        self._texts[-1].append(text)

    def close(self) -> Element | None:
        """Return the root element; None if there is none."""
        return self._root


def _read_error(path: Path, error: OSError | ValueError) -> str:
    """Reason why a file cannot be read; for a missing file, with similar names or else the .urdf and .xml files in its folder."""
    if not isinstance(error, FileNotFoundError):
        return getattr(error, "strerror", None) or str(error)
    if not path.parent.is_dir():
        return f"the folder {str(path.parent)!r} does not exist"
    present = sorted(entry.name for entry in path.parent.iterdir())
    near = nearest_names(path.name, present)
    models = [name for name in present if name.lower().endswith((".urdf", ".xml"))]
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"no such file. {hint or 'URDF files there: ' + (', '.join(models[:8]) or 'none')}"
