"""Experiments of the papers and beyond, one module and one command each: `trajopt experiment NAME [--quick]`."""
