"""C code of the package's library, from the script that builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from build_kernels import solver_sources as solver_sources
