"""Damaged and hostile files give an exit code and a message: a small seeded part of `python -m experiments.attacks`."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.attacks.archives import mutated_solution
from experiments.attacks.cases import KINDS, config_case, environment_case, robot_case
from experiments.attacks.run import error_message

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"configs": 8, "robots": 16, "solutions": 10, "scenes": 2, "arguments": 6, "environments": 4}


@pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and processor time are POSIX's")
def test_no_attack_ends_with_a_traceback():
    """Runs in a separate process, which forks one process per case."""
    counts = [word for kind, count in COUNTS.items() for word in (f"--{kind}", str(count))]
    command = [sys.executable, "-m", "experiments.attacks", *counts, "--seed", "41", "--bases", "cart_pendulum"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert [line.partition(":")[0] for line in run.stdout.splitlines()] == list(KINDS)


def test_cases_are_functions_of_their_seeds():
    for kind in (config_case, robot_case, environment_case):
        assert [kind(seed) for seed in range(8)] == [kind(seed) for seed in range(8)]
        assert len({repr(kind(seed)) for seed in range(20)}) > 10


def test_attacked_archives_are_functions_of_their_seeds(tmp_path):
    file = tmp_path / "a.npz"
    arrays = {name: np.ones((3, 2)) for name in ("xs", "us", "K", "k")}
    np.savez(file, metadata=np.array('{"meta": {"a": [1, 2]}, "status": {"code": "converged"}}'), **arrays)
    content = file.read_bytes()
    once, again = ([mutated_solution(content, random.Random(seed)) for seed in range(12)] for _ in range(2))
    lengths = [len(one) for one in once]
    assert lengths == [len(one) for one in again]
    assert len(set(lengths)) > 6


def test_messages_of_errors_start_with_error():
    listed = "error: a.toml: 2 problems\n  - problem.error: unknown key\n  - problem.terminal_error: unknown key\n"
    assert error_message("warning: old\n" + listed) == listed
    assert error_message("Usage: trajopt\n\nError: No such option: -q\n") == "Error: No such option: -q\n"
    assert error_message("problem.terminal_error: unknown key") == ""
