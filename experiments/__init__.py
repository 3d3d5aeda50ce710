"""Command line, configuration, plots, replanning runs, and benchmarks.

Benchmarks stand in benchmarks/ and its rooms, which are no part of an installed wheel, and are run by name:
`python -m experiments.benchmark_arms`.
"""

from pathlib import Path

_BENCHMARKS = Path(__file__).with_name("benchmarks")
__path__ += [str(folder) for folder in (_BENCHMARKS, *_BENCHMARKS.glob("[a-z]*/"))]
