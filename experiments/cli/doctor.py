"""Report of the installation: versions, compiler, cache, missing optional packages."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

import trajopt
from .trace_cache import contents

CORE = ("numpy", "scipy", "casadi", "osqp", "matplotlib")
NONE = "not installed"


class Extra(NamedTuple):
    """An optional package, its extra, its purpose, and its install command."""

    package: str
    extra: str
    purpose: str
    command: str


EXTRAS = (
    Extra("cyipopt", "ipopt", "solvers that call IPOPT", "python tools/install_cyipopt.py"),
    Extra("example-robot-data", "robots", "more robots", "pip install 'example-robot-data>=6.0'"),
    Extra("mujoco", "sim", "MuJoCo as a plant", "pip install 'mujoco>=3.16'"),
    Extra("viser", "view", "3D viewer", "pip install 'viser>=1.1.1,<2'"),
    Extra("trimesh", "view", "meshes of robots", "pip install 'trimesh>=4.6'"),
    Extra("pycollada", "view", "meshes in COLLADA files", "pip install 'pycollada>=0.8'"),
    Extra("fast-simplification", "view", "simplification of fine meshes", "pip install 'fast-simplification>=0.1.8'"),
    Extra("imageio-ffmpeg", "view", "videos in MP4", "pip install 'imageio-ffmpeg>=0.5'"),
    Extra("coal", "scene", "arms among obstacles: collision checks", "pip install 'coal>=3.0'"),
    Extra("ompl", "scene", "arms among obstacles: path planning", "pip install 'ompl>=2.0'"),
    Extra("toppra", "scene", "arms among obstacles: time parameterization", "pip install 'toppra>=0.6.3'"),
    Extra("zarr", "sweep", "datasets of studies", "pip install 'zarr>=3.1.3'"),
    Extra("loky", "sweep", "parallel studies", "pip install 'loky>=3.5'"),
    Extra("distributed", "sweep", "studies on clusters", "pip install 'distributed>=2025.7'"),
    Extra("pin", "test", "cross-checks and benchmarks", "pip install 'pin>=4.0'"),
)


def version(package: str) -> str:
    """Return the installed version of a package; for cyipopt also the version of IPOPT."""
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return NONE
    return f"{found} with IPOPT {_ipopt_version()}" if package == "cyipopt" else found


def _ipopt_version() -> str:
    try:
        import cyipopt
    except ImportError as error:  # the IPOPT library it was built against is missing
        return f"(failed to load: {error})"
    return ".".join(map(str, getattr(cyipopt, "IPOPT_VERSION", ("of unknown version",))))


def versions() -> Iterator[tuple[str, str]]:
    """Yield (name, version) of trajopt, Python, the core packages and the optional packages."""
    yield "trajopt", trajopt.__version__
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in (*CORE, *(extra.package for extra in EXTRAS)):
        yield package, version(package)


def compiler() -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the C compiler: command and purpose."""
    from dynamics_backends.environment import CompilerError, compiler_command

    try:
        yield "command", shlex.join(compiler_command())
    except CompilerError as error:
        yield "command", str(error)
    yield "needed for", "trajopt export, which runs its example; solves need none"


def engine() -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the compiled engine: threads, C library, cache."""
    from dynamics_backends.compiled.runtime.memory import default_threads

    source = (
        "TRAJOPT_THREADS"
        if os.environ.get("TRAJOPT_THREADS")
        else "number of processors; override with TRAJOPT_THREADS"
    )
    yield "threads", f"{default_threads()} ({source})"
    yield "C library", _library()
    yield "cache", str(contents())


def _library() -> str:
    """Return the instruction set of the package's C library, or the reason why the library cannot be loaded."""
    try:
        from dynamics_backends.machine.library import chosen_instructions, lanes

        return f"{chosen_instructions() or platform.machine()}, {lanes()} doubles in a vector"
    except (ImportError, ValueError) as error:
        return str(error)


def missing() -> Iterator[tuple[str, str]]:
    """Yield (package, install command) of the missing optional packages."""
    for extra in EXTRAS:
        if version(extra.package) == NONE:
            yield extra.package, f"{extra.command}    ({extra.purpose}; extra [{extra.extra}])"


SECTIONS = {
    "Versions": versions,
    "C compiler": compiler,
    "Compiled engine": engine,
    "Missing optional packages": missing,
}


def report() -> list[str]:
    """Return the output lines of `trajopt doctor`."""
    lines: list[str] = []
    for title, section in SECTIONS.items():
        entries = list(section())
        width = max([len(name) for name, _ in entries], default=0)
        lines += [title, *(f"  {name:<{width}}  {value}" for name, value in entries or [("none", "")]), ""]
    return lines[:-1]
