"""Mutated URDFs and configurations end in success or in an error that names the place; see tests/cases/fuzzed_files.py.

TRAJOPT_FUZZ=10000 runs so many cases; by default there are some that take a few seconds.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import fuzzed_files
import pytest

CASES = int(os.environ.get("TRAJOPT_FUZZ", "300"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and processor time are POSIX's")
def test_no_file_is_too_strange():
    """In a process of its own, for its limits."""
    script = Path(fuzzed_files.__file__)
    run = subprocess.run(
        [sys.executable, str(script), str(CASES)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert [json.loads(line) for line in run.stdout.splitlines()] == []


def test_mutations_differ_and_are_repeated():
    cases = [fuzzed_files.case(seed) for seed in range(300)]
    assert cases == [fuzzed_files.case(seed) for seed in range(300)]
    assert {kind for kind, _, _ in cases} == {"urdf", "config", "built"}
    robots, configs = (fuzzed_files.ROOT / "problems" / name for name in ("robots", "configs"))
    valid = {p.stem: p.read_text() for p in (*robots.glob("*.urdf"), *configs.glob("*.toml"))}
    assert sum(text != valid[name] for _, name, text in cases) > 270
