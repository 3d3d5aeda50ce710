"""Problems with user-defined functions, whose first solve benchmark_startup measures; each module defines ``problem()``."""
