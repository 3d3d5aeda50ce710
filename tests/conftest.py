"""Settings of the test suite. They must precede the first import of numpy and matplotlib."""

import os
import subprocess
import sys
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import pytest  # noqa: E402

from dynamics_backends import registry  # noqa: E402

USERS_ENGINE = registry.DEFAULT_ENGINE
"""Engine of tests without the mark ``numpy``."""
ON_USERS_ENGINE = tuple(
    f"tests/{folder}"
    for folder in (
        "trajopt/solvers",
        "trajopt/results",
        "trajopt/replanning",
        "trajopt/config",
        "trajopt/comparison",
        "problems",
        "experiments",
    )
)
"""Folders whose tests use the engine that users get.

Tests of other folders check formulas in Python, or name the engines that they compare; they are marked ``numpy``.
Single tests in the folders above that evaluate untraceable functions also have this mark.
"""
SHARED_CACHE = "traces"


def pytest_configure(config):
    """Build the C library for this machine if it is missing or outdated; workers use it."""
    if hasattr(config, "workerinput"):
        return
    root = Path(__file__).resolve().parents[1]
    folder = root / "dynamics_backends"
    built = [file.stat().st_mtime for file in (folder / "machine").glob("kernels*") if file.suffix != ".h"]
    sources = [*folder.rglob("*.py"), *folder.rglob("*.h"), root / "tools" / "build_kernels.py"]
    newest = max(file.stat().st_mtime for file in sources if file.name != "_declarations.py")
    if not built or max(built) < newest:
        subprocess.run([sys.executable, str(root / "tools" / "build_kernels.py"), "--here"], check=True)


@pytest.fixture(scope="session", autouse=True)
def _trace_cache(tmp_path_factory):
    """Share one cache of traces among all workers of a run; TRAJOPT_CACHE_DIR selects another one."""
    if os.environ.get("TRAJOPT_CACHE_DIR"):
        yield
        return
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / SHARED_CACHE
    os.environ["TRAJOPT_CACHE_DIR"] = str(folder)
    yield
    del os.environ["TRAJOPT_CACHE_DIR"]


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.nodeid.startswith(ON_USERS_ENGINE):
            item.add_marker("numpy")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    registry.DEFAULT_ENGINE = "numpy" if item.get_closest_marker("numpy") else USERS_ENGINE
    if item.get_closest_marker("needs_compiler"):
        from dynamics_backends.environment import CompilerError, compiler_command

        try:
            compiler_command()
        except CompilerError as error:
            pytest.skip(str(error))
