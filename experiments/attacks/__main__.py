"""Attack the command line with damaged and hostile files.

    python -m experiments.attacks [--configs 1000] [--robots 300] [--solutions 300] [--scenes 50] [--arguments 100]
                                  [--environments 50] [--seed 0] [--bases NAME,...] [--case KIND SEED] [--keep FOLDER]

Cases of a kind have the seeds seed, seed + 1, ... --case runs one case and prints its messages. Exit code 1 if a case fails.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads do not survive a fork

from experiments.attacks.cases import KINDS, SOLUTIONS, Case
from experiments.attacks.run import Outcome, run_case, scratch, solutions

PROGRESS = 50
"""Number of cases between two progress lines on the error stream."""
COUNTS = {"config": 1000, "robot": 300, "solution": 300, "scene": 50, "argument": 100, "environment": 50}


def main(arguments: list[str] | None = None) -> int:
    """Run the cases of the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.attacks", description="Attack the command line.")
    for kind, count in COUNTS.items():
        parser.add_argument(f"--{kind}s", type=int, default=count, metavar="N", help=f"cases, default {count}")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case of each kind")
    parser.add_argument("--case", nargs=2, metavar=("KIND", "SEED"), help="run one case, and show its messages")
    bases = ",".join(SOLUTIONS)
    parser.add_argument("--bases", default=bases, help=f"configurations whose solutions are attacked, default {bases}")
    parser.add_argument("--keep", type=Path, help="folder for the files of cases that fail")
    options = parser.parse_args(arguments)
    _import_all()
    names = options.bases.split(",")
    if options.case:
        kind, seed = options.case
        outcome = _run(_case(kind, int(seed), solutions(names) if kind == "solution" else {}), options.keep)
        print(outcome.output)
        print(_line(outcome))
        return int(bool(outcome.trouble))
    failed = 0
    for kind in KINDS:
        count = getattr(options, f"{kind}s")
        if count:
            valid = solutions(names) if kind == "solution" else {}
            failed += _attack(kind, range(options.seed, options.seed + count), valid, options.keep)
    return int(failed > 0)


def _import_all() -> None:
    """Import the modules of the commands once; forked cases then start fast."""
    for name in (
        "trajopt.config.build",
        "experiments.view.scenes",
        "experiments.plots.plotting",
        "trajopt.view.files",
    ):
        import_module(name)


def _case(kind: str, seed: int, valid: Mapping[str, bytes]) -> Case:
    return KINDS[kind](seed, valid) if kind == "solution" else KINDS[kind](seed)


def _attack(kind: str, seeds: range, valid: Mapping[str, bytes], keep: Path | None) -> int:
    """Run the cases of a kind, print the failed ones and a summary; return the number of failures."""
    codes: Counter[int] = Counter()
    failed, slowest, largest = 0, 0.0, 0
    for seed in seeds:
        outcome = _run(_case(kind, seed, valid), keep)
        codes[outcome.code] += 1
        slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.megabytes)
        if (seed + 1 - seeds.start) % PROGRESS == 0:
            print(f"{kind}: {seed + 1 - seeds.start} of {len(seeds)}", file=sys.stderr, flush=True)
        if outcome.trouble:
            failed += 1
            print(_line(outcome), flush=True)
    ends = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(
        f"{kind}: seeds {seeds.start} to {seeds.stop - 1}: {failed} of {len(seeds)} failed; {ends}; "
        f"at most {slowest:.1f} s and {largest} MiB",
        flush=True,
    )
    return failed


def _run(case: Case, keep: Path | None) -> Outcome:
    with scratch() as folder:
        outcome = run_case(case, folder)
    if outcome.trouble and keep is not None:
        place = keep / f"{case.kind}_{case.seed}"
        place.mkdir(parents=True, exist_ok=True)
        for name, content in case.files.items():
            (place / name).write_bytes(content)
        (place / "stderr.txt").write_text(outcome.output, encoding="utf-8")
    return outcome


def _line(outcome: Outcome) -> str:
    case = outcome.case
    command = " ".join(word if len(word) < 80 else f"{word[:60]}..." for word in case.arguments)
    return f"{case.kind} {case.seed} ({case.what}): {outcome.trouble or outcome.code}    [trajopt {command}]"


if __name__ == "__main__":
    sys.exit(main())
