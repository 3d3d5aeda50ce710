"""The gallery: every bundled configuration solved, with a picture of the robot, its time and iterations.

A configuration is solved by the command that a reader would type, in a process of its own with a limit of time. What was made is
kept under the digest of the configuration and of the sources that solve and draw it, so that a second build solves nothing, and one
after a change shows what the changed code does.
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

from trajopt.config.bundled import about

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "problems" / "configs"
TIME_LIMIT = 120
"""Seconds of a processor for one configuration, without its compilers; what takes longer is named, not shown."""
PATIENCE = 1800.0
"""Seconds after which one is given up, however busy the machine is."""
WORKERS = 2
SOURCES = ("dynamics_backends", "trajopt", "problems", "experiments/plots", "experiments/view")
GROUPS = (
    ("Arms", ("arm_go_to", "contour_following")),
    ("Legged robots", ("quadruped_gait", "scheduled_gait", "receding_gait")),
    ("Pendulums, linkages and people", ()),
)
"""(title, names of problems); the last group takes the others."""


class Shown(NamedTuple):
    """A configuration and what its solve left: ``facts`` of its solution, None where the time was over."""

    name: str
    problem: str
    about: str
    replans: bool
    facts: dict[str, Any] | None


def configs(pattern: str = "*") -> list[Path]:
    """The bundled configurations whose names fit a pattern."""
    return sorted(CONFIGS.glob(f"{pattern}.toml"))


def digest(config: Path) -> str:
    """What a kept result is known by."""
    return hashlib.sha256(code() + config.read_bytes()).hexdigest()[:16]


@cache
def code() -> bytes:
    """A digest of the sources and robots from which results come."""
    found = hashlib.sha256()
    for path in sorted(path for place in SOURCES for path in (ROOT / place).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and CONFIGS not in path.parents:
            found.update(f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.digest()


def make(folder: Path, kept: Path, pattern: str = "*", tell: Callable[[str], None] = print) -> list[Shown]:
    """Solve what fits the pattern and is not kept; the pictures are copied into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(config: Path) -> Shown:
        place = kept / f"{config.stem}-{digest(config)}"
        if not (place / "facts.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            _solve(config, place)
            tell(f"gallery: {config.stem}")
        known = place / "facts.json"
        facts = json.loads(known.read_text(encoding="utf-8")) if known.exists() else None
        if (place / "poses.png").exists():
            shutil.copyfile(place / "poses.png", folder / f"{config.stem}.png")
        values = tomllib.loads(config.read_text(encoding="utf-8"))
        return Shown(config.stem, values["problem"]["name"], about(config), "replan" in values, facts)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, configs(pattern)))


def _solve(config: Path, place: Path) -> None:
    """Run the command, draw the picture, write the facts; nothing where it took too long, so that a later build tries again."""
    command = [sys.executable, "-m", "experiments.cli.main", "solve", str(config), "--out", str(place), "--wait"]
    limited = ["sh", "-c", f'ulimit -t {TIME_LIMIT}; exec "$@"', "sh", *command]
    try:
        ended = subprocess.run(
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
    if ended.returncode < 0 and not solution.exists():
        return
    if not solution.exists():
        raise RuntimeError(f"{config.stem} left no solution; run: trajopt solve problems/configs/{config.name}")
    draw = "import sys; sys.path[:0] = [sys.argv[1]]; import gallery; gallery.draw(sys.argv[2])"
    subprocess.run([sys.executable, "-c", draw, str(Path(__file__).parent), str(place)], cwd=ROOT, check=True)


def draw(place: str) -> None:
    """The picture and the facts of the solution in a folder."""
    from experiments.plots.robot_picture import draw_poses
    from experiments.view.shown import shown
    from trajopt import Solution

    solution = Solution.load(Path(place) / "solution.npz")
    draw_poses(Path(place) / "poses.png", shown([solution]))
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

Every configuration of `problems/configs`, solved when this page was built. A time is that of the solve on the machine that built
the page, without the compilation of kernels, which the next solve finds on disk. What takes a processor more than {TIME_LIMIT} s
is named at the end. A configuration with a table `[replan]` is shown by its first plan.

```sh
trajopt solve problems/configs/NAME.toml --out out/NAME
```

"""


def page(found: list[Shown]) -> str:
    """The page in Markdown; pictures beside it."""
    parts = [HEAD]
    named = {problem for _, problems in GROUPS for problem in problems}
    for title, problems in GROUPS:
        cards = [s for s in found if s.facts and (s.problem in problems if problems else s.problem not in named)]
        if cards:
            parts += [f"## {title}\n", "::::{grid} 1 1 2 2\n:gutter: 3\n", *map(_card, cards), "::::\n"]
    late = [s.name for s in found if s.facts is None]
    ended = f"`{'`, `'.join(late)}`: more than {TIME_LIMIT} s." if late else "None."
    return "\n".join([*parts, "## Left out\n", ended, ""])


def _card(shown: Shown) -> str:
    facts = shown.facts or {}
    command = "replan" if shown.replans else "solve"
    rows = [
        f":::{{grid-item-card}} {shown.name}",
        f":img-top: {shown.name}.png",
        "",
        shown.about,
        "",
        f"**{facts['status'].replace('_', ' ')}** by `{facts['solver']}` in {facts['iterations']} iterations, "
        f"{_time(facts['seconds'])}; {facts['knots']} knots. `trajopt {command} problems/configs/{shown.name}.toml`",
        ":::",
        "",
    ]
    return "\n".join(rows)


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"
