"""Solver methods as generators: the algorithm runs in Python and yields requests for the expensive operations.

This package exports the types of a user-defined method (:func:`trajopt.register_method`): requests, answers, ends and problem
sizes.
"""

from trajopt.solvers.methods.method import End as End, Size as Size
from trajopt.solvers.methods.requests import (
    FRACTIONS as FRACTIONS,
    GAUSS_NEWTON as GAUSS_NEWTON,
    Accept as Accept,
    AcceptOnBounds as AcceptOnBounds,
    Direction as Direction,
    FirstGains as FirstGains,
    IsFinite as IsFinite,
    OnBounds as OnBounds,
    Point as Point,
    Restore as Restore,
    Roll as Roll,
    Start as Start,
    Step as Step,
    Trial as Trial,
)
