"""Windows of problems: they answer the requests of solver methods, with C kernels or with NumPy."""
