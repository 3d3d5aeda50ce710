"""Interface of the compiled engine for hand-written kernels: C sources to include, and libraries compiled from them."""
