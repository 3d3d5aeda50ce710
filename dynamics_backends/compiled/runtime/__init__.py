"""The compiler, the cache of libraries, and the memory and threads that kernels run in."""
