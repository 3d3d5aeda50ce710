"""Command line, plots, viewer scenes, replanning runs, parameter sweeps, paper reproductions, and benchmarks.

Benchmarks are in benchmarks/ and its subfolders, which an installed wheel does not contain. Run one by its module name:
`python -m experiments.benchmark_arms`.
"""

from pathlib import Path

_BENCHMARKS = Path(__file__).with_name("benchmarks")
__path__ += [str(folder) for folder in (_BENCHMARKS, *_BENCHMARKS.glob("[a-z]*/"))]
