"""Mutations of valid URDFs and configurations: each must end in success or in an error that a user can act on.

    python tests/cases/fuzzed_files.py COUNT [FIRST]      prints one line of JSON for each case that does not

A case is known by its number: its seed. It fails where reading it raises another kind of error than those that the command
line tells as a sentence, where the message names no place, where it takes more than SECONDS of processor time, or more than
MEMORY bytes.
"""

from __future__ import annotations

import json
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SECONDS, MEMORY = 5.0, 2 << 30
ROBOTS = ("double_pendulum", "cart_pole", "irb4600", "iiwa7", "gen3", "hyq")
CONFIGS_EACH = 3
"""Of so many cases one is a configuration."""
BUILT_EACH = 8
"""Of so many configurations one is built and validated, not only read."""
BUILT = (
    "double_pendulum_swing_up",
    "cart_pole_swing_up",
    "cart_pendulum",
    "irb4600_go_to",
    "kinova_reach",
    "hyq_stand",
)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.])")
NAME = re.compile(r'"[^"\n]+"')
ODD = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e308",
    "1e-320",
    "-1e9",
    "1e30",
    "",
    "abc",
    "1,5",
    "0x10",
    "1 2",
    "true",
    "[]",
    "{}",
)
ODD += ('""', "99999999999999999999")
SCRAPS = (
    "<",
    ">",
    "&",
    "]]>",
    "<!--",
    '"',
    "=",
    "[",
    "]",
    "{",
    "\x00",
    "\ufeff",
    "\u00e9",
    "\U0001d54f",
    "\n",
    "<robot>",
    "&lt;",
)
SCRAPS += ("[problem]",)


class TooSlow(Exception):
    """Raised by the clock."""


def _replaced(pattern: re.Pattern, text: str, rng: random.Random, by: Callable[[str], str]) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    m = rng.choice(found)
    return text[: m.start()] + by(m[0]) + text[m.end() :]


def _odd_number(text: str, rng: random.Random) -> str:
    return _replaced(NUMBER, text, rng, lambda _: rng.choice(ODD))


def _scaled_number(text: str, rng: random.Random) -> str:
    return _replaced(NUMBER, text, rng, lambda old: repr(float(old) * rng.choice((-1, 0, 1e-9, 1e9, 1e3, 0.5))))


def _other_name(text: str, rng: random.Random) -> str:
    names = NAME.findall(text) or ['""']
    return _replaced(
        NAME, text, rng, lambda _: rng.choice([*names, '""', '"nowhere"', '"../x"', '"' + "a" * 5000 + '"'])
    )


def _lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    i, j = (rng.randrange(len(lines)) for _ in range(2))
    kind = rng.choice(("lost", "twice", "exchanged", "moved"))
    if kind == "lost":
        del lines[i]
    elif kind == "twice":
        lines.insert(j, lines[i])
    elif kind == "exchanged":
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(j, lines.pop(i))
    return "".join(lines)


def _cut(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.5 else text[:at] + text[at + rng.randrange(1, 40) :]


def _scrap(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(SCRAPS) + text[at:]


def _attribute(text: str, rng: random.Random) -> str:
    """An attribute or a key less, or under another name."""
    return _replaced(re.compile(r"\b\w+\s*="), text, rng, lambda old: rng.choice(("", "other=", old.upper())))


MUTATIONS = (_odd_number, _odd_number, _scaled_number, _other_name, _lines, _lines, _cut, _scrap, _attribute)


def mutated(text: str, rng: random.Random) -> str:
    """One to three mutations."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        text = rng.choice(MUTATIONS)(text, rng)
    return text


def case(seed: int) -> tuple[str, str, str]:
    """Kind ("urdf", "config" or "built"), name and text of a case."""
    rng = random.Random(seed)
    if seed % CONFIGS_EACH:
        name = rng.choice(ROBOTS)
        return "urdf", name, mutated((ROOT / "problems" / "robots" / f"{name}.urdf").read_text(), rng)
    kind = "config" if (seed // CONFIGS_EACH) % BUILT_EACH else "built"
    names = BUILT if kind == "built" else sorted(p.stem for p in (ROOT / "problems" / "configs").glob("*.toml"))
    name = rng.choice(names)
    return kind, name, mutated((ROOT / "problems" / "configs" / f"{name}.toml").read_text(), rng)


def read(kind: str, text: str, folder: Path) -> None:
    """Do with a file what the command line does first."""
    if kind == "urdf":
        from dynamics_backends.rigid_body.urdf.loader import load_urdf

        file = folder / "robot.urdf"
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        load_urdf(file, base=("fixed", "floating")[len(text) % 2], mimic="follow")
        return
    from experiments.config.build import build_task
    from experiments.config.config import load_config
    from trajopt import validate

    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    config = load_config(file)
    if kind == "built":
        task = build_task(config.with_engine("numpy"))
        validate(task.ocp, task.start)


def trouble(seed: int, folder: Path) -> dict[str, str] | None:
    """What is wrong with how a case ends; None where nothing is."""
    from dynamics_backends.names import UnknownName
    from dynamics_backends.rigid_body.urdf.loader import URDFError
    from experiments.cli.cli_support import _is_bad_input

    kind, name, text = case(seed)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            read(kind, text, folder)
        return None
    except Exception as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        meant = isinstance(error, (URDFError, UnknownName)) if kind == "urdf" else _is_bad_input(error)
        if meant and names_a_place(kind, str(error)):
            return None
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(where.filename).name}:{where.lineno}"
        return {
            "seed": str(seed),
            "kind": kind,
            "name": name,
            "error": type(error).__name__,
            "text": str(error)[:300],
            "at": at,
        }
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def names_a_place(kind: str, message: str) -> bool:
    """Whether a message says where to look: file, line, element, key or name."""
    places = (
        [r"['\"<].+?['\">]", r"\.urdf"]
        if kind == "urdf"
        else [r"['\"].+?['\"]", r"\.toml|\w+\.\w+:|\bline \d+|\w+ (is|=) "]
    )
    return any(re.search(place, message) for place in places)


def _out_of_time(*_: object) -> None:
    raise TooSlow(f"more than {SECONDS} s of processor time")


def main(count: int, first: int = 0) -> None:
    """Run the cases; one line for each that fails."""
    import experiments.config.build  # noqa: F401 - what is loaded does not count as memory

    signal.signal(signal.SIGVTALRM, _out_of_time)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            found = trouble(seed, Path(folder))
            if found is not None:
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
