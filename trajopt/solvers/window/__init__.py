"""Who answers what methods ask for: the driver of a window of problems, answers by kernels and by NumPy."""
