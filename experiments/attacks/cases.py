"""Fuzz cases: input files and the command that reads them, from a kind and a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dynamics_backends.rigid_body.robots import FOLDER as ROBOTS
from experiments.attacks.archives import mutated_solution
from experiments.attacks.mutations import mutated
from experiments.attacks.robots import MJCF
from trajopt.config.registry import bundled_files, bundled_names

NUMPY = ("--set", "backend.engine=numpy")
SHORT = (*NUMPY, "--set", "output.plots=false", "--set", "solver.max_iterations=2")
SOLVED = ("double_pendulum_swing_up", "cart_pole_swing_up", "cart_pendulum", "irb4600_go_to")
"""Configurations that one case in eight solves for two iterations; the other cases validate any bundled one."""
REPLANNED = "irb4600_replan"
SOLUTIONS: dict[str, tuple[str, ...]] = {
    "cart_pendulum": ("--set", "problem.horizon=20"),
    "double_pendulum_swing_up": (),
    "irb4600_go_to": (),
    "hyq_stand": ("--set", "problem.horizon=30"),
}
"""Configurations whose solution files are mutated, with overrides that let NumPy solve them in seconds."""
URDFS = ("double_pendulum", "cart_pole", "irb4600", "iiwa7", "gen3", "hyq")
ARM_CONFIG, LEGGED_CONFIG = "irb4600_go_to", "hyq_stand"
SCENE = """[[body]]
name = "ball"
type = "sphere"
radius = 0.1
position = [1.0, 0.0, 0.0]
times = [0.0, 1.0]
offsets = [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]

[[body]]
name = "table"
type = "box"
size = [1.0, 1.0, 0.1]
quaternion = [0.0, 0.0, 0.0, 1.0]
"""
VARIABLES = {
    "TRAJOPT_THREADS": ("abc", "-1", "1.5", "1e3", " ", "9" * 30, "4096", "\u0664", "0"),
    "CC": (" ", '"', "'", "/", "/bin/true", "/bin/echo", "/nowhere/cc", "''", "cat", "\t", "gcc --nonsense"),
    "TRAJOPT_CACHE_DIR": ("/dev/null", "/dev/null/x", " ", "/proc/x", "a" * 300, "\udcff\udcfe", "file"),
    "ROS_PACKAGE_PATH": (":::", "a" * 5000, "\udcff", "/dev/null"),
}


@dataclass(frozen=True)
class Case:
    """A command line, its input files in the working folder, and environment variables. what: short description."""

    kind: str
    seed: int
    what: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def config_case(seed: int) -> Case:
    """Validate, solve (two iterations), or sweep a mutated bundled configuration; replan configurations are validated."""
    rng = random.Random(f"config {seed}")
    draw = rng.random()
    command: Sequence[str]
    if draw < 1 / 8:
        name, command = rng.choice(SOLVED), ("solve", "config.toml", *SHORT)
    elif draw < 1 / 6:
        name, command = REPLANNED, ("validate", "config.toml", *NUMPY)
    elif draw < 1 / 5:
        how = "problem.dt=uniform(0.01, 0.02)"
        name, command = (
            rng.choice(SOLVED),
            ("sweep", "config.toml", "--vary", how, "--n", "1", "--workers", "0", *SHORT),
        )
    else:
        name, command = rng.choice(bundled_names()), ("validate", "config.toml", *NUMPY)
    return Case("config", seed, name, tuple(command), {"config.toml": mutated(_config(name), rng)})


def _config(name: str) -> str:
    return bundled_files()[name].read_text(encoding="utf-8")


def robot_case(seed: int) -> Case:
    """Show a mutated URDF or MJCF file, or validate a configuration with this robot."""
    rng = random.Random(f"robot {seed}")
    if rng.random() < 0.4:
        name = rng.choice(sorted(MJCF))
        text, file, config = MJCF[name], "robot.xml", ARM_CONFIG if name == "arm" else LEGGED_CONFIG
    else:
        name = rng.choice(URDFS)
        text, file = (ROBOTS / f"{name}.urdf").read_text(encoding="utf-8"), "robot.urdf"
        config = LEGGED_CONFIG if name == "hyq" else ARM_CONFIG
    shown = rng.random() < 0.7
    command = ("show", file) if shown else ("validate", str(bundled_files()[config]), "--urdf", file, *NUMPY)
    return Case("robot", seed, f"{name} {file}", command, {file: mutated(text, rng)})


def solution_case(seed: int, solutions: Mapping[str, bytes]) -> Case:
    """Show, plot, view or warm start from a mutated solution file. solutions: valid files by configuration."""
    rng = random.Random(f"solution {seed}")
    name = rng.choice(sorted(solutions))
    config = str(bundled_files()[name])
    command: Sequence[str] = rng.choice(
        (
            ("show", "solution.npz"),
            ("show", "solution.npz"),
            ("view", "solution.npz", "--page", "page.html"),
            ("view", "solution.npz", "--page", "page.html", "--guess"),
            ("solve", config, "--warm-start", "solution.npz", "--out", "out", *SHORT, *SOLUTIONS[name]),
            ("solve", config, "--warm-start", "solution.npz", "--out", "out", *SHORT, *SOLUTIONS[name]),
        )
    )
    return Case("solution", seed, name, tuple(command), {"solution.npz": mutated_solution(solutions[name], rng)})


def scene_case(seed: int) -> Case:
    """Validate a configuration with a mutated scene file."""
    rng = random.Random(f"scene {seed}")
    command = ("validate", str(bundled_files()["panda_bookshelf"]), "--set", 'problem.scene="scene.toml"', *NUMPY)
    return Case("scene", seed, "scene.toml", command, {"scene.toml": mutated(SCENE, rng)})


def argument_case(seed: int) -> Case:
    """Validate a configuration with hostile values of --set."""
    rng = random.Random(f"argument {seed}")
    name = rng.choice(SOLVED)
    keys = re.findall(r"^(\w+) =", _config(name), re.MULTILINE)
    override = rng.choice(
        (
            f"problem.{rng.choice(keys)}={mutated('1', rng).decode(errors='replace')}",
            f"problem.{rng.choice(keys)}={'[' * rng.choice((60, 5000))}",
            f"solver.{rng.choice(('name', 'max_iterations', 'x'))}={mutated('10', rng).decode(errors='replace')}",
            ".".join("a" * rng.choice((60, 20_000))) + "=1",
            f"{'a' * 100_000}=1",
            mutated("problem.dt=0.02", rng).decode(errors="replace"),
            "=",
            "..=1",
        )
    )[:120_000]  # the system limits an argument to 128 KiB
    override = override.replace("\0", "")
    return Case("argument", seed, name, ("validate", str(bundled_files()[name]), "--set", override, *NUMPY))


def environment_case(seed: int) -> Case:
    """Run a command with a hostile environment variable."""
    rng = random.Random(f"environment {seed}")
    variable = rng.choice(sorted(VARIABLES))
    value = rng.choice(VARIABLES[variable])
    config = str(bundled_files()["cart_pendulum"])
    command: Sequence[str] = rng.choice(
        (("solve", config, "--out", "out", *SHORT[2:]), ("doctor",), ("cache",), ("validate", config))
    )
    return Case("environment", seed, f"{variable}={value!r}", tuple(command), {"file": b"x"}, {variable: value})


KINDS: dict[str, Callable[..., Case]] = {
    "config": config_case,
    "robot": robot_case,
    "solution": solution_case,
    "scene": scene_case,
    "argument": argument_case,
    "environment": environment_case,
}
