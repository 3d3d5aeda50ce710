"""Trusted cache files: read only if no other user could have written them, written atomically and without following links.

A foreign trace could read and write any memory of the process. A folder or file is trusted if it belongs to this user or root, and
nobody else can write to it; one that another user puts in its place is not. Windows has no such modes: all is trusted there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import stat
import tempfile
from pathlib import Path

ROOT = 0
OWNER_ONLY = 0o700
"""Mode of a user's cache folder."""
FILE = 0o644
"""Mode of cache files; their folder restricts who reads them."""
_CHECKSUM_SIZE = 64
"""Number of bytes of the checksum at the start of a file."""


_FLAGS = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _flag, 0)  # O_NONBLOCK: the open does not wait for the writer of a named pipe


class UntrustedFolder(OSError):
    """Another user could have written to a folder; the message names the folder, the problem and the remedy."""


def problem_of(folder: Path) -> str:
    """Reason why a folder is not trusted, with the remedy; '' if it is trusted, and always on Windows.

    Raises OSError for a missing folder.
    """
    found, path = folder.stat(), shlex.quote(str(folder))
    problem = _problem(found)
    if not problem:
        return ""
    if not folder.is_dir():
        return f"{folder} {problem} (it is not a folder; choose another one by TRAJOPT_CACHE_DIR)"
    own = found.st_uid in (ROOT, os.geteuid())
    return f"{folder} {problem} (remedy: {'chmod go-w' if own else f'chown -R {os.geteuid()}'} {path})"


def trusted_folder(folder: Path) -> Path:
    """Return the folder; if it is missing, it and its missing parents are created with the mode OWNER_ONLY.

    Raises OSError if they cannot be created, UntrustedFolder for a folder that another user could have written to.
    """
    for part in () if folder.is_dir() else (*reversed(folder.parents), folder):
        try:
            part.mkdir(OWNER_ONLY)
        except FileExistsError:
            continue
        except OSError:
            if not part.is_dir():  # mkdir also fails for an existing root of a read-only file system
                raise
        else:
            part.chmod(OWNER_ONLY)  # the process's umask may have removed bits
    problem = problem_of(folder)
    if problem:
        raise UntrustedFolder(problem)
    return folder


def content_of(file: Path) -> bytes | None:
    """Bytes of a trusted regular file in a trusted folder; None if missing, unreadable, untrusted, a link or no regular file."""
    try:
        if problem_of(file.parent):
            return None
        with os.fdopen(os.open(file, _FLAGS), "rb") as opened:
            found = os.fstat(opened.fileno())
            return opened.read() if stat.S_ISREG(found.st_mode) and not _problem(found) else None
    except OSError:
        return None


def replace(file: Path, content: bytes) -> None:
    """Write a file atomically with the mode FILE, replacing an existing file or link. Raises OSError if this fails."""
    descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".tmp", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        temporary.chmod(FILE)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def write_checked(file: Path, content: bytes) -> None:
    """Write a file as :func:`replace` does, with the checksum of the content before it. Raises OSError."""
    replace(file, _checksum(content) + content)


def checked_content(file: Path) -> bytes | None:
    """Content that :func:`write_checked` wrote to a trusted file; None if the file is missing, not trusted or damaged."""
    found = content_of(file) or b""
    checksum, content = found[:_CHECKSUM_SIZE], found[_CHECKSUM_SIZE:]
    return content if checksum == _checksum(content) else None


def _checksum(content: bytes) -> bytes:
    """SHA-256 of a content, _CHECKSUM_SIZE hexadecimal digits."""
    return hashlib.sha256(content).hexdigest().encode()


def user_folder() -> Path:
    """Cache folder of the user; a folder in the temporary one for a user without a home directory. Creates none."""
    import platformdirs

    with contextlib.suppress(RuntimeError):
        folder = Path(platformdirs.user_cache_dir("trajopt"))
        if folder.is_absolute():
            return folder
    return Path(tempfile.gettempdir()) / f"trajopt-{getattr(os, 'geteuid', int)()}"


def _problem(found: os.stat_result) -> str:
    """Phrase on other users who own or can write to a folder or file; '' for nobody, and on Windows."""
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid not in (ROOT, os.geteuid()):
        return f"belongs to user {found.st_uid}"
    return "can be written by others" if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""
