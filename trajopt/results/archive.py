"""Atomic file writes, archives of named arrays (``.npz``) without pickled objects, and checks of the archives of solutions.

The functions ``check_...`` require consistent sizes, and values of the right type. Each raises ValueError with a message that names
the array or key.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.user_input import InputError, quoted
from trajopt.results.status import Status, StatusCode

if TYPE_CHECKING:
    from pydantic import BaseModel

_BEGINNING = b"PK\x03\x04"
"""First bytes of a zip file, which an archive of arrays is."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SMALL = 256 << 20
"""Unpacked size [bytes] up to which archives are read regardless of their file size, 256 MiB."""
LARGEST_RATIO = 200
"""Maximum ratio of unpacked size to file size of larger archives; trajectories have about 2, zip bombs about 1000."""
MAX_ARRAYS = 10_000


class ForeignFile(InputError):
    """Error for a file that is not an archive of arrays of numbers and texts, or not one of a solution."""


class DamagedArchive(InputError):
    """Error for an archive with missing or modified parts; the message is the reason, without the path."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a temporary file in the same folder, then rename it to the target, so that readers never see a partial file.

    write: writes the content to an open binary file. Raises OSError, which names the target, if writing fails.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        about = (f"{path}: {error}",) if error.errno is None else (error.errno, error.strerror, str(path))
        raise OSError(*about) from error


def write_archive(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays of numbers and texts to a compressed archive, atomically.

    Raises OSError if writing fails, ValueError for arrays of other objects.
    """
    strange = [name for name, values in arrays.items() if values.dtype.hasobject]
    if strange:
        raise ValueError(f"arrays {strange} hold objects; give numbers or texts")
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type] # keyword of savez


def read_archive(path: Path) -> dict[str, Array]:
    """Read all arrays of a file, by name.

    An archive is rejected if it unpacks to more than SMALL bytes and more than LARGEST_RATIO times its own size.

    Raises OSError if the file cannot be read, :class:`ForeignFile` if it is not an archive of arrays of numbers and texts,
    :class:`DamagedArchive` if it is incomplete, modified, rejected for its size or too large for the memory.
    """
    with path.open("rb") as file:
        if file.read(len(_BEGINNING)) != _BEGINNING:  # numpy would treat other files as pickles
            raise ForeignFile(f"{path} is not an archive of arrays")
        with _damage_reported(), zipfile.ZipFile(file) as archive:
            return {name: _values(archive, member) for name, member in _members(path, archive).items()}


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Context that converts exceptions of reading a modified zip file, of many types, to DamagedArchive; also MemoryError.

    Disk errors, ForeignFile and DamagedArchive itself are passed on.
    """
    try:
        yield
    except (ForeignFile, DamagedArchive):
        raise
    except MemoryError as error:
        raise DamagedArchive("it does not fit into memory") from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # disk errors; EINVAL: offsets before the beginning of the file
            raise
        raise DamagedArchive(str(error)) from error
    except Exception as error:
        raise DamagedArchive(str(error)) from error


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Members of an archive by array name, without ".npy".

    Raises ForeignFile for members of another suffix, DamagedArchive for more than MAX_ARRAYS members, repeated names, encryption,
    unknown compression, and unpacked sizes beyond the limits.
    """
    members = archive.infolist()
    members_by_name = {member.filename.removesuffix(".npy"): member for member in members}
    if not all(member.filename.endswith(".npy") for member in members):
        raise ForeignFile(f"{path} is not an archive of arrays")
    if len(members) > MAX_ARRAYS or len(members_by_name) < len(members):
        raise DamagedArchive(f"it has {len(members)} arrays with {len(members_by_name)} names")
    if any(member.compress_type not in _COMPRESSIONS or member.flag_bits & 1 for member in members):
        raise DamagedArchive("it is encrypted, or compressed by an unknown method")
    unpacked, packed = sum(member.file_size for member in members), path.stat().st_size
    if unpacked > max(SMALL, LARGEST_RATIO * packed):
        raise DamagedArchive(f"its {packed} bytes claim to unpack to {unpacked}")
    return members_by_name


_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def _values(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Array of a member. Memory use depends on its actual content, not on the shape that its header claims.

    Raises ForeignFile for an array of objects or records, DamagedArchive for an unknown format and for a claimed shape that
    is not that of the content.
    """
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _READ_HEADER:
            raise DamagedArchive(f"{quoted(member.filename)} has the unknown format {version}")
        shape, in_columns, dtype = _READ_HEADER[version](file)
        content = bytearray(file.read())
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise ForeignFile(f"{member.filename} holds objects")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        claim = f"claims the shape {quoted(shape)} of {dtype}, and has {len(content)} bytes"
        raise DamagedArchive(f"{quoted(member.filename)} {claim}")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if in_columns else "C")


MULTIPLIER = "multiplier: "
"""Prefix of the names of multipliers in a file."""
ARRAYS = ("xs", "us", "K", "k", "times")


def check_arrays(arrays: Mapping[str, Array]) -> None:
    """Check that a solution's arrays are all present, with consistent shapes, numeric types, and a text as metadata.

    Raises ForeignFile if the metadata and other arrays are missing, as in archives of other programs; else ValueError.
    """
    missing = [name for name in (*ARRAYS, "cost", "history", "metadata") if name not in arrays]
    if len(missing) > 1 and "metadata" in missing:
        raise ForeignFile("the arrays are not those of a solution")
    if missing:
        raise ValueError(f"it has no array {missing[0]!r}")
    shapes = {name: values.shape for name, values in arrays.items()}
    for name, values in arrays.items():
        of_numbers = name in (*ARRAYS, "cost", "history") or name.startswith(MULTIPLIER)
        if of_numbers and values.dtype.kind not in "fiu":
            raise ValueError(f"the array {quoted(name)} is of type {values.dtype}, not of numbers")
    if arrays["metadata"].dtype.kind != "U" or shapes["metadata"]:
        raise ValueError("its metadata are not a single text")
    if len(shapes["us"]) != 2 or shapes["us"][0] < 1:
        raise ValueError(f"us has shape {shapes['us']}; expected (N, nu), N at least 1")
    N, nu = shapes["us"]
    nx, ndx = shapes["xs"][-1] if shapes["xs"] else 0, shapes["K"][-1] if shapes["K"] else 0
    expected = {"xs": (N + 1, nx), "k": (N, nu), "K": (N, nu, ndx), "times": (N + 1,), "cost": ()}
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise ValueError(
                f"{name} has shape {quoted(shapes[name])}; expected {shape}, since us has shape {shapes['us']}"
            )
    if nx < 1:
        raise ValueError(f"xs has shape {shapes['xs']}: states without entries")
    if len(shapes["history"]) != 2:
        raise ValueError(f"history has shape {quoted(shapes['history'])}; expected two axes")


def check_times(times: Array) -> None:
    """Check that the times (N + 1,) [s] of knots are finite and do not decrease. Raises ValueError if not."""
    if not np.isfinite(times).all() or (np.diff(times) < 0.0).any():
        raise ValueError("its times decrease or are not finite")


@cache
def _schemas() -> tuple[type[BaseModel], type[BaseModel]]:
    """Return the schemas of a file's metadata and of their status, of strict types; a key with a value may be missing."""
    from pydantic import ConfigDict, Field, create_model

    count: Any = Annotated[int, Field(ge=0, lt=2**53)]
    texts: Any = (list[str], [])
    read: Any = {  # by reports and viewers; other keys are free
        "solve_time": (float, 0.0),
        **dict.fromkeys(("problem", "solver", "check"), (str, "")),
        **dict.fromkeys(("backends", "schemes", "state_names", "control_names", "engines", "findings"), texts),
        **dict.fromkeys(("config", "options", "replay"), (dict[str, Any], {})),
        **dict.fromkeys(("easier", "attempts"), (list[dict[str, Any]], [])),
        "clock": (list[float], []),
        "model": (dict[str, Any] | None, None),
    }
    metadata: Any = {
        "status": (dict[str, Any], ...),
        "iterations": (count, ...),
        "history_columns": (list[str], ...),
        "hessian": (list[str], ...),
        "phase_times": (list[dict[str, float]], ...),
        "meta": (create_model("meta", __config__=ConfigDict(strict=True), **read), ...),
        "robot": (dict[str, Any] | None, None),
    }
    codes: Any = Literal[tuple(str(code) for code in StatusCode)]
    status: Any = {
        "code": (codes, ...),
        "message": (str, ...),
        "knot": (count | None, None),
        "component": (str | None, None),
        "advice": (str, ""),
        "kkt": (float | None, None),
    }
    return (
        create_model("metadata", __config__=ConfigDict(strict=True), **metadata),
        create_model("status", __config__=ConfigDict(strict=True, extra="forbid"), **status),
    )


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Check the types of the keys of a file's metadata, and of those keys of ``meta`` that reports and viewers read.

    Raises ValueError for a missing key or a value of another type.
    """
    _check(_schemas()[0], metadata, "")


def status_from_data(values: Mapping[str, Any]) -> Status:
    """Status from the metadata of a file; the field "asked" of version 0.1 is ignored.

    Raises ValueError for an unknown field, a missing field without a default, and a value of the wrong type.
    """
    values = {key: value for key, value in values.items() if key != "asked"}  # a field of version 0.1
    _check(_schemas()[1], values, "status.")
    return Status.from_dict(values)


def _check(schema: type[BaseModel], values: Mapping[str, Any], within: str) -> None:
    """Raise ValueError that names the first value that does not fit a schema; within: prefix of its key."""
    from pydantic import ValidationError

    try:
        schema.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)[0]
        key, value = ".".join(map(str, found["loc"])), quoted(found["input"])
        raise ValueError(f"'{within}{key}' in its metadata is {value}: {found['msg'].lower()}") from error
