"""Trace the bundled problems that trace for more than 0.5 s, and store their traces with the package.

Each problem is solved with one iteration, in a process whose traces go to the package's folder. Problems that cannot be loaded,
since their robot is not installed, are left out. A solve uses these traces if its toolkit and version of Python are those that
wrote them.

Usage: python tools/build_traces.py [FOLDER OF THE PACKAGES]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = (
    *("anymal_trot", "gen3_contour_fd", "gen3_contour_id", "lifting", "panda_bookshelf", "panda_person", "talos_walk"),
    *(f"hyq_{name}" for name in ("bound", "free_walk", "gallop", "gallop_published", "jump", "pace", "stand", "trot")),
    *(f"hyq_trot_{name}" for name in ("mpc", "published", "rigid", "stepped")),
    "hyq_walk",
)
"""Configurations whose functions take more than 0.5 s to trace, on one core of an AMD EPYC."""
ONE_THREAD = dict.fromkeys(("TRAJOPT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def trace(config: Path) -> None:
    """Store the traces of a configuration of the bundled problems, which need not be installed."""
    import trajopt as to
    from dynamics_backends.compiled.runtime import trace_cache

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = tomllib.loads(config.read_text(encoding="utf-8"))["problem"]["name"]
    module = project["entry-points"]["trajopt.problems"][name]
    to.register_problem(name, import_module(module.replace("problems", config.parents[1].name, 1)))
    trace_cache.cache_folder = lambda: trace_cache.PACKAGED
    to.load_problem(config, solver={"max_iterations": 1}).solve(report=False)


def build(packages: Path = ROOT) -> str:
    """Store the traces of all configurations with the packages in a folder; return a summary."""
    folder = packages / "dynamics_backends" / "machine" / "traces"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    place = next(packages.glob("*problems/configs"))
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(packages), "TRAJOPT_CACHE_DIR": cache}

        def error(name: str) -> str:
            command = [sys.executable, __file__, str(place / f"{name}.toml")]
            done = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            return f"{name} ({done.stderr.strip().splitlines()[-1]})" if done.returncode else ""

        errors = list(filter(None, pool.map(error, CONFIGS)))
    left_out = f"; left out: {', '.join(errors)}" if errors else ""
    return f"{folder}: traces of {len(CONFIGS) - len(errors)} problems{left_out}"


if __name__ == "__main__":
    given = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    if given.suffix == ".toml":
        trace(given)
    else:
        print(build(given))
