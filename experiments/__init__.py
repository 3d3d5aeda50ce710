"""Command line, plots, viewer scenes, replanning runs, parameter sweeps, paper reproductions, and benchmarks.

Benchmarks are in benchmarks/ and its subfolders. Run one by its module name: `python -m experiments.benchmark_arms`. A wheel
contains the folders that the command line needs.
"""

from pathlib import Path

_BENCHMARKS = Path(__file__).with_name("benchmarks")
__path__ += [str(folder) for folder in (_BENCHMARKS, *_BENCHMARKS.glob("[a-z]*/"))]
