"""Files that outlive a power cut: each is on the disk before it has its name, and its name before anything else is written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from trajopt.results.archive import write_whole
from trajopt.sweeps.extra import require


def durable_store(path: Path) -> Any:
    """A store of zarr in a folder, for one process that writes. What the file system makes of fsync is left to it."""
    LocalStore: Any = require("zarr").storage.LocalStore

    class DurableStore(LocalStore):
        async def set(self, key: str, value: Any) -> None:
            self._check_writable()
            target = self.root / key
            _make(target.parent)
            write_whole(target, lambda file: file.write(value.as_buffer_like()))
            settle(target.parent)

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            if not (self.root / key).exists():
                await self.set(key, value)

    return DurableStore(path)


def settle(folder: Path) -> None:
    """Put on the disk which files a folder has."""
    with suppress(OSError):  # where the system has no fsync of folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make(folder: Path) -> None:
    """Make a folder, with those above it, to stay."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        settle(folder.parent)
