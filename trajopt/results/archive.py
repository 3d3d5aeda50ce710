"""Files that appear whole or not at all, and archives of arrays by name (``.npz``) in which nothing is pickled."""

from __future__ import annotations

import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from dynamics_backends.protocol import Array

_BEGINNING = b"PK\x03\x04"
"""How a zip file, and so an archive of arrays, begins."""
_DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError)
"""What reading raises where bytes of an archive are missing or changed; RuntimeError where it then seems encrypted."""


class ForeignFile(ValueError):
    """A file that is no archive of arrays."""


class DamagedArchive(ValueError):
    """An archive of which a part is missing or changed."""


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file beside the target, then rename it: a reader never sees half of it. Raises OSError about the target."""
    try:
        _write_beside(path, write)
    except OSError as error:
        raise _about(path, error) from error


def write_archive(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays of numbers and texts. Raises OSError where that fails, ValueError for arrays of other objects."""
    strange = [name for name, values in arrays.items() if values.dtype.hasobject]
    if strange:
        raise ValueError(f"arrays {strange} hold objects; give numbers or texts")
    write_whole(path, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type] # of a keyword


def read_archive(path: Path) -> dict[str, Array]:
    """All arrays of a file. Raises OSError, :class:`ForeignFile` and :class:`DamagedArchive`."""
    with path.open("rb") as file:
        if file.read(len(_BEGINNING)) != _BEGINNING:  # to numpy, anything else may be a pickle
            raise ForeignFile(f"{path} is no archive of arrays")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except _DAMAGES as error:
        raise DamagedArchive(f"{path} is not whole ({error})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ForeignFile(f"{path} is no archive of arrays") from error


def _write_beside(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _about(path: Path, error: OSError) -> OSError:
    """The error as one about the target, not about the temporary file."""
    if error.errno is None:
        return OSError(f"{path}: {error}")
    return OSError(error.errno, error.strerror, str(path))


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
