"""Problems with a user's own functions, whose first solve benchmark_startup measures; each module defines ``problem()``."""
