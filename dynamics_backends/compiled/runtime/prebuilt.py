"""True if the kernels that were built with the installation still serve: they are those of one state of the sources, of one
compiler and one kind of processor.

Nothing wrong comes of others, which are not found; but first solutions take longer without them.
"""

from __future__ import annotations

import hashlib

from dynamics_backends.compiled.runtime.fingerprints.toolkit_version import environment
from dynamics_backends.compiled.runtime.kept_files import prebuilt_folder, read_value, write_value
from dynamics_backends.compiled.runtime.toolchain import find_toolchain
from dynamics_backends.trusted_files import problem_of

FILE = f"{hashlib.sha256(b'built with the installation').hexdigest()[:32]}.known"
REMEDY = "rebuild them with `trajopt cache --prebuild`"


def note_built() -> None:
    """Keep what the kernels in the folder were built from. Raises OSError, CompilerError."""
    write_value(prebuilt_folder() / FILE, [_sources(), _machine()])


def outdated() -> str:
    """The reason why they do not serve, with the remedy; '' where they do. Raises CompilerError without a compiler."""
    folder = prebuilt_folder()
    problem = problem_of(folder) if folder.is_dir() else ""
    if problem:
        return f"the kernels of the installation are not used: {problem}"
    found = read_value(folder / FILE)
    if found is None:
        return f"the installation has no prebuilt kernels: {REMEDY}"
    sources, machine = found
    if sources != _sources():
        return f"the prebuilt kernels are older than the sources: {REMEDY}"
    return "" if machine == _machine() else f"the prebuilt kernels belong to another compiler or processor: {REMEDY}"


def _sources() -> str:
    return environment().hex()


def _machine() -> str:
    toolchain = find_toolchain()
    return hashlib.sha256((toolchain.definitions + toolchain.fingerprint).encode()).hexdigest()
