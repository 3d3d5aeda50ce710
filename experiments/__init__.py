"""Command line, configuration, plots, replanning runs, and benchmarks.

Benchmarks stand in the folder benchmarks/, which is no part of an installed wheel, and are modules of this package:
`python -m experiments.benchmark_arms`.
"""

from pathlib import Path

__path__.append(str(Path(__file__).with_name("benchmarks")))
