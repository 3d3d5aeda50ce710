"""Trusted cache files: read only if no other user could have written them, written atomically and without following links.

A foreign trace could read and write any memory of the process. A folder is trusted if nobody but this user and root can write to
it, or replace a folder on its path; a file, if nobody else can write to it. The user's private group counts as the user. Windows
has no such modes: all is trusted there.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import tempfile
from functools import lru_cache
from pathlib import Path

ROOT = 0
OWNER_ONLY = 0o700
"""Mode of a user's cache folder."""
FILE = 0o644
"""Mode of cache files; their folder restricts who reads them."""


_FLAGS = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _flag, 0)  # O_NONBLOCK: the open does not wait for the writer of a named pipe


class UntrustedFolder(OSError):
    """Another user could have written to a folder; the message names the folder, or one on its path, and the problem.

    It also names the remedy if the problem is that of the folder itself.
    """


def problem_of(folder: Path) -> str:
    """Reason why a folder is not trusted, with the remedy unless a folder on its path is the reason; '' if it is trusted.

    Always '' on Windows. A folder is trusted if only this user and root can write to it and replace it. Raises OSError for a
    missing folder.
    """
    if not hasattr(os, "geteuid"):
        return ""
    found = folder.stat()
    return _problem_on_path(folder.absolute(), found.st_mode, found.st_uid, found.st_gid)


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
            return opened.read() if _is_trusted_file(os.fstat(opened.fileno())) else None
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


def user_folder() -> Path:
    """Cache folder of the user; a folder in the temporary one for a user without a home directory. Creates none."""
    import platformdirs

    with contextlib.suppress(RuntimeError):
        folder = Path(platformdirs.user_cache_dir("trajopt"))
        if folder.is_absolute():
            return folder
    return Path(tempfile.gettempdir()) / f"trajopt-{getattr(os, 'geteuid', int)()}"


@lru_cache(maxsize=32)
def _problem_on_path(folder: Path, *_: int) -> str:
    """First problem of a folder or of one on its path, outermost first; '' for none. Links are followed after their path.

    A remedy is added if the problem is that of the folder itself. The other arguments are the folder's mode and owners; a change of
    these invalidates the cached result.
    """
    last = folder.resolve()
    for part in dict.fromkeys((*reversed(folder.parents), folder, *reversed(last.parents), last)):
        problem = _problem(part.lstat(), is_last=part == last)
        if problem:
            return f"{part} {problem}" + (_command(part) if part == last else "")
    return ""


def _is_trusted_file(found: os.stat_result) -> bool:
    """True for a regular file that nobody but this user and root can write to."""
    return stat.S_ISREG(found.st_mode) and (not hasattr(os, "geteuid") or not _problem(found, is_last=True))


def _problem(found: os.stat_result, *, is_last: bool) -> str:
    """Phrase on other users who own or can write to an entry of the file system; '' for nobody.

    Only the owner counts for links, and for sticky folders such as /tmp unless ``is_last``, since there only owners may replace
    entries. is_last: True for the folder or file itself, False for folders on its path.
    """
    mode = found.st_mode
    if found.st_uid not in (ROOT, os.geteuid()):
        return f"belongs to {_user(found.st_uid)}"
    if stat.S_ISLNK(mode):
        return ""  # the rights to replace a link depend on its folder
    if mode & stat.S_ISVTX and not is_last:
        return ""  # as in /tmp, only owners may replace its entries
    writers = ["everybody"] if mode & stat.S_IWOTH else []
    if mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        writers.insert(0, f"the group {_group(found.st_gid)}")
    return f"can be written by {' and '.join(writers)}" if writers else ""


def _command(folder: Path) -> str:
    """Remedy in parentheses: chmod if this user or root owns the folder, else chown; for a file, to choose another folder."""
    if not folder.is_dir():
        return " (it is not a folder; choose another one by TRAJOPT_CACHE_DIR)"
    path = shlex.quote(str(folder))
    if folder.stat().st_uid in (ROOT, os.geteuid()):
        return f" (remedy: chmod go-w {path})"
    return f" (remedy: chown -R {_user(os.geteuid())} {path})"


@lru_cache(maxsize=16)
def _is_own_group(gid: int) -> bool:
    """True for the user's private group: primary, of the user's name and without other members, as many systems create it."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    """Name of a user, or "user" with the number of an unknown one."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    """Name of a group, or the number of an unknown one."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
