"""Command line, configuration, plots, replanning runs, and benchmarks.

Benchmarks stand in the rooms of benchmarks/, which is no part of an installed wheel, and are run by name:
`python -m experiments.benchmark_arms`.
"""

from pathlib import Path

__path__.extend(str(room) for room in Path(__file__).with_name("benchmarks").glob("[a-z]*/"))
