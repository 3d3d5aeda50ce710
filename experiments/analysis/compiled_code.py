"""C code compiled for comparisons. The libraries are cached, and failures by the time limit."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dynamics_backends.compiled.runtime.trace_cache import cache_folder, read_value, write_value
from dynamics_backends.environment import CompilerError, compiler_command
from dynamics_backends.trusted_files import content_of, replace, trusted_folder


def compiled_library(text: str, flags: Sequence[str], patience: float) -> Path | None:
    """Return the cached or newly compiled library of a source, or None if the compiler exceeds the time limit, now or earlier.

    patience: processor time [s]. Raises CompilerError if the compiler fails.
    """
    compiler, options = compiler_command(), (*flags, "-fPIC", "-shared", "-w")
    given = "\n".join([text, *compiler, *options, platform.node()])
    folder, key = trusted_folder(cache_folder() / "generated"), hashlib.sha256(given.encode()).hexdigest()[:32]
    library, late = folder / f"{key}.so", folder / f"{key}.late"
    if content_of(library) is not None:
        return library
    if (read_value(late) or 0.0) >= patience:
        return None
    with tempfile.TemporaryDirectory() as place:
        source, built = Path(place) / "code.c", Path(place) / "code.so"
        source.write_text(text)
        limited = ["sh", "-c", f'ulimit -t {patience:.0f}; exec "$@"', "sh", *compiler]
        command = [*limited, *options, str(source), "-o", str(built), "-lm"]
        process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if process.returncode == 0:
            replace(library, built.read_bytes())
            return library
    if process.returncode > 0 and not any(
        word in process.stderr for word in ("CPU time limit", "Killed", "terminated")
    ):
        raise CompilerError(f"{compiler[0]} failed: {process.stderr.strip()[:2000]}")
    write_value(late, patience)
    return None
