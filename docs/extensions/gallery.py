"""Gallery page: every bundled configuration with an image of the robot, solve time and iterations.

Each configuration is solved by `trajopt solve` in a separate process with a time limit. Results are cached by a digest of the
configuration and of the sources that solve and draw it, so that a build repeats only changed results.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from trajopt.config.registry import about

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "problems" / "configs"
TIME_LIMIT = 120
"""Processor time limit of one configuration [s]; slower configurations are only listed."""
PATIENCE = 1800.0
"""Wall-clock time limit of one configuration [s]."""
WORKERS = 2
SOURCES = ("dynamics_backends", "trajopt", "problems", "experiments/plots", "experiments/view")
GROUPS = (
    ("Arms", ("arm_go_to", "contour_following")),
    ("Legged robots", ("quadruped_gait", "scheduled_gait", "receding_gait")),
    ("Pendulums, linkages and people", ()),
)
"""(title, names of problems); the last group has all other problems."""


class Entry(NamedTuple):
    """A configuration and its results. facts: data of the solution, None after the time limit."""

    name: str
    problem: str
    about: str
    replans: bool
    facts: dict[str, Any] | None


def configs(pattern: str = "*") -> list[Path]:
    """Return the bundled configurations whose names match a pattern."""
    return sorted(CONFIGS.glob(f"{pattern}.toml"))


def digest(config: Path) -> str:
    """Return the cache key of a configuration's results."""
    return hashlib.sha256(code() + config.read_bytes()).hexdigest()[:16]


@cache
def code() -> bytes:
    """Return a digest of the sources and robot files."""
    found = hashlib.sha256()
    for path in sorted(path for place in SOURCES for path in (ROOT / place).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and CONFIGS not in path.parents:
            found.update(f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.digest()


def make(folder: Path, cache_folder: Path, pattern: str = "*", log: Callable[[str], None] = print) -> list[Entry]:
    """Solve the matching configurations that are not cached; copy the images into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)

    def entry_of(config: Path) -> Entry:
        place = cache_folder / f"{config.stem}-{digest(config)}"
        if not (place / "facts.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            _solve(config, place)
            log(f"gallery: {config.stem}")
        facts_file = place / "facts.json"
        facts = json.loads(facts_file.read_text(encoding="utf-8")) if facts_file.exists() else None
        if (place / "poses.png").exists():
            shutil.copyfile(place / "poses.png", folder / f"{config.stem}.png")
        values = tomllib.loads(config.read_text(encoding="utf-8"))
        return Entry(config.stem, values["problem"]["name"], about(config), "replan" in values, facts)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(entry_of, configs(pattern)))


def _solve(config: Path, place: Path) -> None:
    """Run the command, draw the image and write the facts; write nothing after the time limit, so that a later build retries."""
    command = [sys.executable, "-m", "experiments.cli.main", "solve", str(config), "--out", str(place)]
    limited = ["sh", "-c", f'ulimit -t {TIME_LIMIT}; exec "$@"', "sh", *command]
    try:
        process = subprocess.run(
            [*limited, "--set", "output.plots=false", "--verbosity", "0"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return
    solution = place / "solution.npz"
    if process.returncode < 0 and not solution.exists():
        return
    if not solution.exists():
        raise RuntimeError(f"{config.stem} left no solution; run: trajopt solve problems/configs/{config.name}")
    draw = "import sys; sys.path[:0] = [sys.argv[1]]; import gallery; gallery.draw(sys.argv[2])"
    subprocess.run([sys.executable, "-c", draw, str(Path(__file__).parent), str(place)], cwd=ROOT, check=True)


def draw(place: str) -> None:
    """Draw the image and write the facts of the solution in a folder."""
    from experiments.plots.robot_picture import draw_poses
    from experiments.view.scenes import solutions_scene
    from trajopt import Solution

    solution = Solution.load(Path(place) / "solution.npz")
    draw_poses(Path(place) / "poses.png", solutions_scene([solution]))
    facts = {
        "status": str(solution.status.code),
        "success": solution.status.success,
        "iterations": solution.iterations,
        "seconds": solution.meta.get("solve_time"),
        "cost": solution.cost,
        "solver": solution.meta.get("solver"),
        "knots": len(solution.us),
    }
    (Path(place) / "facts.json").write_text(json.dumps(facts))


HEAD = f"""# Gallery

All configurations of `problems/configs`, solved when this page was built. Times are solve times on that machine,
without the tracing of functions, whose tapes are cached on disk. Configurations that take more than {TIME_LIMIT} s of
processor time are listed at the end. For configurations with a table `[replan]`, the image shows the first plan.

```sh
trajopt solve problems/configs/NAME.toml --out out/NAME
```

"""


def page(found: list[Entry]) -> str:
    """Return the page in Markdown; images are in the same folder."""
    parts = [HEAD]
    named = {problem for _, problems in GROUPS for problem in problems}
    for title, problems in GROUPS:
        cards = [s for s in found if s.facts and (s.problem in problems if problems else s.problem not in named)]
        if cards:
            parts += [f"## {title}\n", "::::{grid} 1 1 2 2\n:gutter: 3\n", *map(_card, cards), "::::\n"]
    late = [s.name for s in found if s.facts is None]
    omitted = f"`{'`, `'.join(late)}`: more than {TIME_LIMIT} s." if late else "None."
    return "\n".join([*parts, "## Omitted\n", omitted, ""])


def _card(entry: Entry) -> str:
    facts = entry.facts or {}
    command = "replan" if entry.replans else "solve"
    rows = [
        f":::{{grid-item-card}} {entry.name}",
        f":img-top: {entry.name}.png",
        "",
        entry.about,
        "",
        f"**{facts['status'].replace('_', ' ')}** by `{facts['solver']}` in {facts['iterations']} iterations, "
        f"{_time(facts['seconds'])}; {facts['knots']} knots. `trajopt {command} problems/configs/{entry.name}.toml`",
        ":::",
        "",
    ]
    return "\n".join(rows)


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"
