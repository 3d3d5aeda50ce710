"""Kernels of rigid-body programs: loops over the tables of a model, or straight lines for one model."""
