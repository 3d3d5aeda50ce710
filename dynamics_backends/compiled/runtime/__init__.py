"""Memory and threads that kernels use, their structs, and the cache of traces."""
