"""Methods as generators: each reads as its paper, decides in Python, and yields requests for what costs time.

What a user's own method needs (:func:`trajopt.register_method`) is here: requests, answers, ends, the size of a problem.
"""

from trajopt.solvers.methods.method import End as End, Size as Size
from trajopt.solvers.methods.requests import (
    FRACTIONS as FRACTIONS,
    GAUSS_NEWTON as GAUSS_NEWTON,
    Accept as Accept,
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
    Turn as Turn,
)
