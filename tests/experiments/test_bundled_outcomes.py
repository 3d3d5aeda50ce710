"""Bundled configurations converge, unless their header names another exit code and status."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.cli.main import main
from problems.robots import ERD_PREFIX, erd_names
from trajopt import Solution
from trajopt.results.status import StatusCode

CONFIGS = sorted((Path(__file__).parents[2] / "problems" / "configs").glob("*.toml"))
CONVERGED = (0, StatusCode.CONVERGED)
SAID = re.compile(r"exits with (\d) \((\w+)\)")
QUICK = {
    "cart_pendulum",
    "cart_pole_balance",
    "cart_pole_swing_up",
    "double_pendulum_swing_up",
    "four_bar",
    "iiwa7_reach",
    "irb4600_go_to",
}
"""Configurations that take some seconds each, with tracing."""
LONG = {"hyq_gallop", "hyq_gallop_published", "hyq_jump", "hyq_trot", "hyq_trot_published", "lifting"}
"""Configurations that take a minute or more; not solved here."""


def header(config: Path) -> str:
    """Return the comment above the first key as one line."""
    lines = config.read_text(encoding="utf-8").splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ") for line in lines[:end])


def said_of(config: Path) -> tuple[int, StatusCode]:
    """Return exit code and status of a header."""
    said = SAID.search(header(config))
    return (int(said[1]), StatusCode(said[2])) if said else CONVERGED


def solved_here():
    """Yield a pytest case for each configuration except the long ones."""
    return [
        pytest.param(config, id=config.stem, marks=() if config.stem in QUICK else pytest.mark.slow)
        for config in CONFIGS
        if config.stem not in LONG
    ]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.stem)
def test_a_header_names_an_exit_code_with_a_status_that_has_it(config):
    text = header(config)
    assert text.count("exits with") == len(SAID.findall(text)) <= 1
    exit_code, status = said_of(config)
    assert exit_code == {StatusCode.CONVERGED: 0, StatusCode.ACCEPTABLE: 3}.get(status, 1)


@pytest.mark.parametrize("config", solved_here())
def test_a_config_ends_as_its_header_says(config, tmp_path):
    robot = tomllib.loads(config.read_text(encoding="utf-8"))["problem"].get("robot", "")
    if robot.startswith(ERD_PREFIX) and robot.removeprefix(ERD_PREFIX) not in erd_names():
        pytest.skip(f"the robot {robot} is not installed")
    if config.stem == "panda_bookshelf" and not importlib.util.find_spec("coal"):
        pytest.skip("the package coal is not installed")
    quiet = ["--set", "output.plots=false", "--verbosity", "0"]
    result = CliRunner().invoke(main, ["solve", str(config), "--out", str(tmp_path), *quiet])
    found = Solution.load(tmp_path / "solution.npz").status
    assert (result.exit_code, found.code) == said_of(config), result.output
