"""C99 for a controller without Python: dynamics, derivatives, time step and one step of SLQ of a problem.

The texts are those of the compiled engine (kernels of trajopt/lq and trajopt/stage, straight-line dynamics and cost terms)
behind a prelude of one lane, and the folder templates around them.  The result needs libm only and allocates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.sources import constant, dynamics_source, has_source
from dynamics_backends.protocol import Array, unwrapped
from trajopt.guesses.guesses import Guess
from trajopt.lq.compiled_lq import lq_source
from trajopt.problem.impact_stage import JUMP
from trajopt.problem.ocp import OCP, Sampling
from trajopt.problem.terms import CostTerm
from trajopt.stage.source.stage_source import StageShape, StageSource, stage_source, theta_room
from trajopt.stage.source.term_source import TermShape, theta_of
from trajopt.validation.validation import refuse_constraints

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NUMBERS_A_LINE = 6
_PLACEHOLDERS = ("prefix_", "PREFIX_")
"""How identifiers in the templates begin that get the export's name."""


def controller_files(ocp: OCP, name: str, guess: Guess | None = None, hessian: str = "gauss_newton") -> dict[str, str]:
    """The files NAME.h, NAME.c, main.c and Makefile, by name; guess: where the example starts, default zero controls.

    Raises ValueError for a problem that cannot be exported, or a name that is no C identifier, or that of the example, or that
    makes names which the code has already.
    """
    if not _NAME.fullmatch(name) or name == "main":
        raise ValueError(f"{name!r} cannot be the export's name: it takes letters, digits and _, and is not 'main'")
    sampled = _exportable(ocp)
    dynamics = dynamics_source(sampled.called, {}, straight=True)
    running, terminal = (tuple(TermShape.of(term) for term in terms) for terms in (ocp.phases[0].terms, ocp.terminal))
    stage = stage_source(
        dynamics,
        unwrapped(sampled.called.map),
        StageShape(sampled.scheme, (), ocp.nu, running, terminal, hessian=hessian),
    )
    texts = {
        f"{name}.h": _header(ocp, sampled, stage),
        f"{name}.c": _source(ocp, sampled, stage),
        "main.c": _example(ocp, guess),
        "Makefile": _template("Makefile"),
    }
    _refuse_taken(name, "\n".join(texts.values()))
    return {file: _prefixed(text, name) for file, text in texts.items()}


def _refuse_taken(name: str, text: str) -> None:
    """Raise ValueError where a name in place of the placeholders makes an identifier that the text has already."""
    identifiers = set(re.findall(r"\w+", text))
    open_ones = {identifier for identifier in identifiers if identifier.startswith(_PLACEHOLDERS)}
    taken = sorted({_prefixed(identifier, name) for identifier in open_ones} & (identifiers - open_ones))
    if taken:
        raise ValueError(f"{name!r} cannot be the export's name: its code has another {taken[0]}; choose another name")


def _exportable(ocp: OCP) -> Sampling:
    """The dynamics of a problem that can be exported; raises ValueError with the reason for any other."""
    if len(ocp.phases) != 1:
        raise ValueError(f"cannot export {ocp.name!r}: it has {len(ocp.phases)} phases, and an export has one")
    refuse_constraints(ocp, "an export")
    phase = ocp.phases[0]
    if phase.parameters:
        raise ValueError(f"cannot export {ocp.name!r}: its dynamics have parameters ({', '.join(phase.parameters)})")
    sampling = phase.dynamics.sampling
    if sampling is None or sampling.scheme == JUMP:
        kind = type(phase.dynamics).__name__
        raise ValueError(f"cannot export {ocp.name!r}: its dynamics are {kind}, and an export has a sampled system")
    if not has_source(sampling.backend):
        method = sampling.backend.name
        raise ValueError(
            f"cannot export {ocp.name!r}: its derivatives are by {method}; choose backend = 'analytic' or 'casadi_ad'"
        )
    return sampling


def _prefixed(text: str, name: str) -> str:
    """The placeholders ``prefix`` and ``PREFIX`` replaced where they begin or are a word."""
    text = re.sub(r"\b(lib)?prefix(?=_|\b)", lambda m: (m[1] or "") + name, text)
    return re.sub(r"\bPREFIX(?=_)", name.upper(), text)


def _header(ocp: OCP, sampled: Sampling, stage: StageSource) -> str:
    fills = {
        "SIZES": _sizes(ocp, stage),
        "SCHEME": f"{sampled.scheme}, {sampled.substeps} substep{'s' * (sampled.substeps > 1)}",
        "THETA": _components(ocp.phases[0].terms),
        "THETA_END": _components(ocp.terminal),
    }
    return _filled(_template("controller.h"), fills)


def _sizes(ocp: OCP, stage: StageSource) -> str:
    nx, n, m = ocp.manifold.nx, ocp.manifold.ndx, ocp.nu
    columns = n + ocp.phases[0].dynamics.nu
    theta = theta_room(stage.theta, stage.theta_end)
    carved = (
        3 * nx + 2 * n + 2 * m + theta + n * columns + max(n, m) ** 2 + n * n + n * m + m * m + stage.forces + 14
    )  # knot_t of stage.h
    sizes = {
        "NX": nx,
        "NDX": n,
        "NU": m,
        "HORIZON": ocp.horizon,
        "NTHETA": stage.theta,
        "NTHETA_END": stage.theta_end,
        "ROOM": f"({carved} + {stage.room})",
    }
    return "\n".join(f"#define PREFIX_{key} {value}" for key, value in sizes.items())


def _components(terms: Sequence[CostTerm]) -> str:
    """What stands where in theta, a line for each weight and parameter."""
    lines, at = [], 0
    for term in terms:
        for what, value in (("weight", term.weight), *term.parameters.items()):
            size = np.shape(value)[-1]
            lines.append(f"     [{at}] .. [{at + size - 1}]  {term.name}: {what}".replace("*/", "* /"))
            at += size
    return "\n".join(lines) or "     none"


def _source(ocp: OCP, sampled: Sampling, stage: StageSource) -> str:
    prelude = (files("dynamics_backends.compiled") / "templates" / "lanes" / "scalar.h").read_text()
    sizes = f"#define NDX {ocp.manifold.ndx}\n#define SUBSTEPS {sampled.substeps}"
    parts = [
        '#include "prefix.h"',
        prelude,
        sizes,
        stage.source,
        lq_source(),
        _template("controller.c"),
    ]
    return "\n".join([*parts, _defaults(ocp)])


def _defaults(ocp: OCP) -> str:
    """The arrays of the exported problem."""
    arrays = {
        "t": ocp.t,
        "dt": ocp.dt,
        "theta": theta_of(ocp.phases[0].terms, ocp.horizon),
        "theta_end": theta_of(ocp.terminal, 1),
    }
    bounds = ocp.control_bounds
    if bounds is not None:
        arrays |= {"u_lower": bounds[0], "u_upper": bounds[1]}
    lines = [f"static const double default_{key}[] = {_braced(values)};" for key, values in arrays.items()]
    members = ", ".join(f"default_{key}" if key in arrays else "NULL" for key in (*_ALWAYS, "u_lower", "u_upper"))
    lines.append(f"const double prefix_default_x0[PREFIX_NX] = {_braced(ocp.x0)};")
    lines.append(f"const prefix_problem prefix_default_problem = {{{members}}};")
    return "\n\n".join(lines) + "\n"


_ALWAYS = ("t", "dt", "theta", "theta_end")


def _example(ocp: OCP, guess: Guess | None) -> str:
    us = np.zeros((ocp.horizon, ocp.nu)) if guess is None else guess.us
    return _filled(_template("main.c"), {"GUESS": _braced(us)})


def _template(name: str) -> str:
    """A text of the folder templates."""
    return (files("trajopt.export") / "templates" / name).read_text()


def _filled(text: str, fills: dict[str, Any]) -> str:
    """The places @KEY@ of a text filled."""
    return re.sub(r"@([A-Z_]+)@", lambda m: fills[m[1]], text)


def _braced(values: Array) -> str:
    """A C initializer; an empty array becomes one zero."""
    numbers: Iterable[float] = np.ravel(values).tolist() or [0.0]
    texts = [constant(x) for x in numbers]
    rows = [", ".join(texts[i : i + _NUMBERS_A_LINE]) for i in range(0, len(texts), _NUMBERS_A_LINE)]
    return "{\n    " + ",\n    ".join(rows) + ",\n}"
