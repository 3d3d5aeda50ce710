"""Termination of the feasibility phase: at a point that is enough, at one of least violation, where the violation hardly falls,
without an acceptable step, or without iterations or time.
"""

from __future__ import annotations

BACK, LEAST_VIOLATION, HOPELESS, STUCK, OUT = "back", "least violation", "hopeless", "stuck", "out"
