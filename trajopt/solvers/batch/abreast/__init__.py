"""One problem in each lane: seats that take turns, and what the solvers that sit there ask for."""
