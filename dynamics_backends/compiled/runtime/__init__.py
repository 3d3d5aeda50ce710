"""C compiler, cache of compiled libraries, and the memory and threads that kernels use."""
