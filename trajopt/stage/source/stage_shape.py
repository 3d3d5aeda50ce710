"""Structure of a phase, which determines its functions together with the dynamics."""

from __future__ import annotations

from typing import NamedTuple

from trajopt.stage.source.term_source import TermShape


class StageShape(NamedTuple):
    """Terms, constraints and scheme of a phase.

    scheme: integration scheme, or JUMP. parameters: names and sizes of the dynamics parameters. nu: controls of the problem.
    running, terminal: cost terms. path, final: constraints. hessian: Hessian of the cost, "gauss_newton" or "exact". second: second
    derivatives of dynamics and constraints are evaluated too.
    """

    scheme: str
    parameters: tuple[tuple[str, int], ...]
    nu: int
    running: tuple[TermShape, ...] = ()
    terminal: tuple[TermShape, ...] = ()
    path: tuple[TermShape, ...] = ()
    final: tuple[TermShape, ...] = ()
    hessian: str = "gauss_newton"
    second: bool = False
