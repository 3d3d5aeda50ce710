"""Interface of the compiled engine for hand-written kernels: C sources to include, and functions of the library."""
