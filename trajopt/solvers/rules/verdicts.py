"""Termination reasons of the restoration phase.

BACK: at an acceptable point. LEAST_VIOLATION: at a minimizer of the violation. HOPELESS: the violation hardly decreases. STUCK: no
acceptable step. OUT: out of iterations or time.
"""

from __future__ import annotations

BACK, LEAST_VIOLATION, HOPELESS, STUCK, OUT = "back", "least violation", "hopeless", "stuck", "out"
