"""Durable file writes: a file is on disk before its name appears, and its name before the next write. They survive power cuts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from trajopt.results.archive import write_atomically
from trajopt.sweeps.extra import require


def durable_store(path: Path) -> Any:
    """Return a zarr store in a folder, for a single writing process. Its durability is that of the file system's fsync."""
    LocalStore: Any = require("zarr").storage.LocalStore

    class DurableStore(LocalStore):
        async def set(self, key: str, value: Any) -> None:
            self._check_writable()
            target = self.root / key
            _make(target.parent)
            write_atomically(target, lambda file: file.write(value.as_buffer_like()))
            settle(target.parent)

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            if not (self.root / key).exists():
                await self.set(key, value)

    return DurableStore(path)


def settle(folder: Path) -> None:
    """Flush the entries of a folder to disk."""
    with suppress(OSError):  # some systems cannot fsync folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make(folder: Path) -> None:
    """Create a folder and its parents durably."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        settle(folder.parent)
