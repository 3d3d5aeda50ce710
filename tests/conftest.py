"""Settings of the whole suite; they must stand before the first import of numpy and matplotlib."""

import os

os.environ["MPLBACKEND"] = "Agg"
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_threads, "1")
