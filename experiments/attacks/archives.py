"""Mutations of solution files: damaged bytes, changed metadata and arrays, false headers and sizes."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from experiments.attacks.mutations import damaged

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 1e308, 10**18, 2**70, float("nan"), float("inf"), "", "abc", "1e5", "a" * 100_000),
    *([], [1], ["a"], [[1.0], [2.0, 3.0]], {}, {"a": 1}, [None] * 5, [0.0] * 100_000),
)
HEADERS: tuple[dict[str, Any], ...] = (
    {"shape": (4_000_000_000,)},
    {"shape": (10**9, 10**9, 10**9)},
    {"shape": (-1, 5)},
    {"shape": ()},
    {"shape": (0,)},
    {"descr": "|O"},
    {"descr": "<U1000000000"},
    {"descr": "<c16"},
    {"descr": ">f8"},
    {"descr": "<f2"},
    {"descr": "<M8[s]"},
    {"descr": [("a", "<f8")]},
    {"descr": "not a type"},
    {"fortran_order": True},
    {"fortran_order": "yes"},
)
CLAIMS = (0, 1, 4_000_000_000, 0xFFFFFFFF, 2**31)


def mutated_solution(content: bytes, rng: random.Random) -> bytes:
    """Return a solution file after one mutation of a random kind, two in one case of five."""
    arrays = _arrays(content)
    for _ in range(rng.choice((1, 1, 1, 1, 2))):
        kind = rng.choice(KINDS)
        result = kind(arrays, rng)
        if isinstance(result, bytes):
            return result
        arrays = result
    return _npz_bytes(arrays)


def _arrays(content: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(content)) as data:
        return dict(data)


def _npz_bytes(arrays: dict[str, Array]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type] # array named like a keyword
    return file.getvalue()


def _bytes(arrays: dict[str, Array], rng: random.Random) -> bytes:
    return damaged(_npz_bytes(arrays), rng)


def _metadata(arrays: dict[str, Array], rng: random.Random) -> dict[str, Array] | bytes:
    """Remove or replace a metadata value, rename its key, or repeat an entry of a list."""
    try:
        metadata = json.loads(str(arrays["metadata"]))
        metadata["meta"] = dict(metadata["meta"])
    except (KeyError, TypeError, ValueError, RecursionError):  # an earlier mutation changed them
        return arrays
    if rng.random() < 0.3:
        metadata["meta"]["replay"] = json.loads(json.dumps(REPLAY))
    for _ in range(rng.choice((1, 1, 2))):
        _change(metadata, rng)
    return arrays | {"metadata": np.array(json.dumps(metadata))}


REPLAY = {"open": {"largest": 0.2, "at": "q[0]", "x": [0.0, 0.0]}, "gains": None, "slower": 0.01}
"""Entries of ``meta`` that solves on the NumPy engine lack."""


def _change(metadata: dict[str, Any], rng: random.Random) -> None:
    places = list(_places(metadata, rng.choice((1, 2, 3, 9))))
    if not places:
        return
    holder, key = rng.choice(places)
    kind = rng.choice(("removed", "replaced", "replaced", "renamed", "repeated", "exchanged"))
    if kind == "removed":
        del holder[key]
    elif kind == "renamed" and isinstance(holder, dict):
        holder[key + "_"] = holder.pop(key)
    elif kind == "repeated" and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == "exchanged":
        other, place = rng.choice(places)
        holder[key] = other[place]
        if json_depth(metadata) > 40:  # a value that holds itself
            holder[key] = 0
    else:
        holder[key] = rng.choice(ODD_VALUES)


def _places(value: Any, depth: int) -> list[tuple[Any, Any]]:
    """Return (container, key) of all values down to a depth; only the first four entries of a list."""
    if depth == 0 or not isinstance(value, (dict, list)):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(min(len(value), 4)))
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key], depth - 1)]


def json_depth(value: Any, max_depth: int = 50) -> int:
    """Nesting depth of lists and dictionaries, at most ``max_depth``."""
    if max_depth == 0 or not isinstance(value, (dict, list)) or not value:
        return 0
    return 1 + max(json_depth(v, max_depth - 1) for v in (value.values() if isinstance(value, dict) else value))


def _text(arrays: dict[str, Array], rng: random.Random) -> dict[str, Array]:
    """Replace the metadata text by deeply nested, truncated or invalid JSON."""
    text, deep = str(arrays.get("metadata", "")), rng.choice((100, 5000, 100_000))
    at = rng.randrange(len(text) + 1)
    texts = ("[" * deep, "[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep, text[:at], "", "null", "[]", "7")
    inner = text.replace('"meta": {', f'"meta": {{"deep": {"[" * deep + "]" * deep}, ', 1)
    return arrays | {"metadata": np.array(rng.choice((*texts, inner, inner)))}


def _array(arrays: dict[str, Array], rng: random.Random) -> dict[str, Array]:
    """Change shape, type or values of an array; or remove, exchange or add an array."""
    name, other = (rng.choice(list(arrays)) for _ in range(2))
    value = arrays[name]
    changes: list[Callable[[], Any]] = [
        lambda: value[:-1] if value.ndim else np.array([value]),
        lambda: np.concatenate([value, value]) if value.ndim else np.array([value, value]),
        lambda: value[..., None],
        lambda: value.T,
        lambda: value.ravel(),
        lambda: value[..., :0] if value.ndim else np.zeros((0,)),
        lambda: np.zeros((0, *value.shape[1:])),
        lambda: np.zeros(()),
        lambda: np.full(value.shape, rng.choice((np.nan, np.inf, -np.inf, 1e308, -1.0, 1e29))),
        lambda: np.full(value.shape, "text"),
        lambda: np.zeros(value.shape, complex),
        lambda: np.zeros(value.shape, bool),
        lambda: np.zeros(value.shape, rng.choice(("i1", "u8", "f2", "M8[s]", "S3"))),
        lambda: value[::-1] if value.ndim else value,
        lambda: arrays[other],
        lambda: np.zeros((rng.choice((1, 3, 100_000)), rng.choice((1, 7, 64)))),
    ]
    if rng.random() < 0.1:
        return {key: v for key, v in arrays.items() if key != name}
    if rng.random() < 0.05:
        return arrays | {rng.choice(("multiplier: x", "extra", "x/../y", "m" * 5000)): rng.choice(changes)()}
    return arrays | {name: rng.choice(changes)()}


def _header(arrays: dict[str, Array], rng: random.Random) -> bytes:
    """Write a false shape, type or order into the header of one array."""
    name = rng.choice(list(arrays))
    members = {key: _npy(value) for key, value in arrays.items()}
    claim = rng.choice(HEADERS)
    members[name] = _npy(arrays[name], claim)
    if rng.random() < 0.1:  # deep nesting, against the header parser
        n = rng.choice((100, 1000, 9000))
        text = rng.choice(("(" * n + ")" * n, "-" * n + "1", "[" * n)).encode() + b"\n"
        members[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    return _zip_bytes(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def _npy(value: Array, claim: dict[str, Any] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, value, version=(1, 0), allow_pickle=False)
    if not claim:
        return file.getvalue()
    head = {"descr": value.dtype.str, "fortran_order": False, "shape": value.shape} | claim
    text = repr(head).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + value.tobytes()


def _zip_bytes(members: dict[str, bytes], compression: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def _bomb(arrays: dict[str, Array], rng: random.Random) -> bytes:
    """Add an array of zeros that unpacks to many times the file size, with a consistent header."""
    members = {key: _npy(value) for key, value in arrays.items()}
    rows = rng.choice((5_000_000, 40_000_000))
    head = repr({"descr": "<f8", "fortran_order": False, "shape": (rows, 1)}).encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(8 * rows)
    members[rng.choice(("xs", "us", "extra", "K"))] = content
    return _zip_bytes(members, zipfile.ZIP_DEFLATED)


def _directory(arrays: dict[str, Array], rng: random.Random) -> bytes:
    """Change a field of the zip directory: size, flag, compression method, or offset of a member."""
    data = bytearray(_npz_bytes(arrays))
    entries, at = [], data.find(b"PK\x01\x02")
    while at >= 0:
        entries.append(at)
        at = data.find(b"PK\x01\x02", at + 4)
    at = rng.choice(entries)
    offset, form = rng.choice(((8, "<H"), (10, "<H"), (16, "<I"), (20, "<I"), (24, "<I"), (24, "<I"), (42, "<I")))
    struct.pack_into(form, data, at + offset, rng.choice(CLAIMS) & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    return bytes(data)


Kind = Callable[[dict[str, Array], random.Random], "dict[str, Array] | bytes"]
KINDS: tuple[Kind, ...] = (
    *(_bytes, _metadata, _metadata, _metadata, _metadata, _text, _array, _array, _array),
    *(_header, _header, _directory, _bomb, _bytes, _metadata, _array),
)
