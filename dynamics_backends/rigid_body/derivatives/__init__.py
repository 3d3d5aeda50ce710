"""Closed-form derivatives of inverse and forward dynamics: first order, contracted second order, tensors."""
