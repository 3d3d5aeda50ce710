"""Export of a controller to C99 without Python: dynamics, derivatives, time step and one SLQ step of a problem.

The code consists of kernels of the compiled engine (trajopt/lq and trajopt/stage), with dynamics and cost terms as straight-line C,
a scalar prelude and the files of the folder templates. The result needs libm only and allocates no memory.

The functions of a phase are the table of kernels/functions.h. The derivatives of the dynamics are exact: analytic where the system
defines them, else CasADi's.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.emit.emit import constant
from dynamics_backends.compiled.loops.kernel import kernel_text, template
from dynamics_backends.compiled.sources.dynamics_source import has_source, straight_functions
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.protocol import Array, Map, NeedsScheme, unwrapped
from trajopt.export.example import ExampleStart, example_start
from trajopt.lq import lq_solver
from trajopt.problem.guess import Guess
from trajopt.problem.impact_stage import JUMP
from trajopt.problem.ocp import OCP, Sampling
from trajopt.problem.terms import CostTerm
from trajopt.results.solution import Solution
from trajopt.stage.compiled.library import stages_source
from trajopt.stage.compiled.structure import Structure
from trajopt.stage.source.term_source import StageShape, TermShape, term_source, theta_of

_ADAPTER = """static void {name}_adapted(const void *self, const V *const *in, V *const *out, V *w)
{{
    (void)self;
    {name}({arguments}, w);
}}"""
_TABLE = "CONSTANT functions_t stage_functions = {{ {members}, .rows = {rows} }};"


class FunctionsSource(NamedTuple):
    """C source of the functions, which needs a prelude before it. workspace: the largest workspace of a function, in SIMD
    vectors. rows: number of rows of xdot that the dynamics compute: all, or the accelerations of a second-order system.
    """

    source: str
    workspace: int
    rows: int


def functions_source(system: Map, shape: StageShape) -> FunctionsSource:
    """C source of the dynamics and the costs of a phase.

    Raises TooLong for more code than a compiler can handle, TraceError for functions that cannot be traced.
    """
    dynamics, rows = straight_functions(system)
    given = system.manifold, shape.nu
    costs = [
        term_source(name, terms, *given, running=name == "running", hessian=shape.hessian, kernels=False)
        for name, terms in (("running", shape.running), ("terminal", shape.terminal))
    ]
    functions = [*dynamics, *(f for cost in costs for f in cost.functions)]
    texts, workspaces = zip(*(f.source() for f in functions), strict=True)
    adapters = []
    for f in functions:
        arguments = [f"in[{i}]" for i in range(len(f.arguments))] + [f"out[{i}]" for i in range(len(f.outputs))]
        adapters.append(_ADAPTER.format(name=f.name, arguments=", ".join(arguments)))
    members = ", ".join(f".{f.name} = {{{f.name}_adapted, NULL}}" for f in functions)
    headers = template("lanes/function.h"), template("lanes/context.h"), kernel_text("trajopt.stage", "functions.h")
    source = "\n".join([*headers, *texts, *adapters, _TABLE.format(members=members, rows=rows)])
    return FunctionsSource(source, max(workspaces), rows)


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_NUMBERS_A_LINE = 6
_PLACEHOLDERS = ("prefix_", "PREFIX_")
"""Prefixes of identifiers in the templates that the name of the export replaces."""


class ExportError(ValueError):
    """A problem cannot be exported; ``reasons`` holds a sentence with the remedy for each obstacle."""

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"cannot export {name!r}:\n" + "\n".join(f"  - {reason}" for reason in reasons))


def controller_files(
    ocp: OCP,
    name: str,
    guess: Guess | Solution | None = None,
    hessian: str = "gauss_newton",
    removed_by: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the texts of NAME.h, NAME.c, main.c and Makefile, by file name.

    name: up to 63 letters, digits and _, a letter first, and not "main". guess: start of the example; default: x0 with zero
    controls; a solution also gives feedback gains, see :func:`~trajopt.export.example.example_start`. hessian: Hessian of the
    cost, "gauss_newton" or "exact". removed_by: for messages: the setting that removes a constraint, by constraint name, or
    "phases"; default: the arguments of :class:`~trajopt.OCP`. Raises ExportError for a problem that cannot be exported,
    ValueError for an invalid name, for a name that collides with another one, and for a guess of wrong shape or whose rollouts
    all diverge.
    """
    if not _NAME.fullmatch(name) or name.lower() == "main":
        raise ValueError(
            f"{name[:80]!r} cannot be the export's name: give up to 63 letters, digits and _, a letter first, and not 'main'"
        )
    sampled = _exportable(ocp, removed_by)
    start = example_start(ocp, guess)
    running, terminal = (tuple(TermShape.of(term) for term in terms) for terms in (ocp.phases[0].terms, ocp.terminal))
    shape, system = (
        StageShape(sampled.scheme, (), ocp.nu, running, terminal, hessian=hessian),
        unwrapped(sampled.called.map),
    )
    try:
        stage = functions_source(system, shape)
    except TraceError as error:
        raise ExportError(
            ocp.name, [f"a function cannot be traced, so that there is no C code for it: {error}"]
        ) from error
    structure = Structure.of(system, shape)
    texts = {
        f"{name}.h": _header(ocp, sampled, stage, structure),
        f"{name}.c": _source(ocp, sampled, stage, structure),
        "main.c": _example(start),
        "Makefile": _template("Makefile"),
    }
    _reject_reserved_name(name, "\n".join(texts.values()))
    return {file: _prefixed(text, name) for file, text in texts.items()}


def _reject_reserved_name(name: str, text: str) -> None:
    """Raise ValueError if the name makes an identifier that the text already contains."""
    identifiers = set(re.findall(r"\w+", text))
    open_ones = {identifier for identifier in identifiers if identifier.startswith(_PLACEHOLDERS)}
    taken = sorted({_prefixed(identifier, name) for identifier in open_ones} & (identifiers - open_ones))
    if taken:
        raise ValueError(f"{name!r} cannot be the export's name: its code has another {taken[0]}; choose another name")


def _exportable(ocp: OCP, removed_by: Mapping[str, str] | None) -> Sampling:
    """Return the sampled dynamics of an exportable problem. Raises ExportError with all reasons otherwise.

    Exportable are problems of one phase without constraints and dynamics parameters, whose sampled system has derivatives in C and
    no time steps of its own. removed_by: as in :func:`controller_files`.
    """
    reasons = [*_structure_reasons(ocp, removed_by), *_constraint_reasons(ocp, removed_by)]
    samplings = [phase.dynamics.sampling for phase in ocp.phases]
    single = ocp.phases if len(ocp.phases) == 1 else ()
    for phase, sampling in zip(single, samplings, strict=False):
        if sampling is None or sampling.scheme == JUMP:
            kind = type(phase.dynamics).__name__ if sampling is None else "a discrete map"
            reasons.append(f"its dynamics are {kind}: give a system sampled in time (to.SampledSystem) as dynamics")
        elif not has_source(sampling.backend):
            reasons.append(
                f"its derivatives are by {sampling.backend.name}: set backend = 'analytic' or 'casadi_ad' "
                "(to.make_backend(system, 'analytic') in a script)"
            )
        elif isinstance(phase.system, NeedsScheme):
            reasons.append(
                "its time steps are solved by iterations, which an export does not contain: choose contact = 'soft'"
            )
    if reasons:
        raise ExportError(ocp.name, list(dict.fromkeys(reasons)))
    (sampling,) = samplings
    assert sampling is not None  # otherwise reasons is not empty
    return sampling


def _structure_reasons(ocp: OCP, removed_by: Mapping[str, str] | None) -> Iterable[str]:
    """Yield the reasons against several phases and against dynamics parameters."""
    if len(ocp.phases) != 1:
        setting = _setting("phases", removed_by, "give it one phase (to.OCP.single_phase)")
        yield f"it has {len(ocp.phases)} phases, and an export has one: {setting}"
    names = list(dict.fromkeys(name for phase in ocp.phases for name in phase.parameters))
    if names:
        setting = _setting("parameters", removed_by, "write their values into the system, and leave out parameters=")
        yield f"its dynamics have parameters ({', '.join(names)}): {setting}"


def _constraint_reasons(ocp: OCP, removed_by: Mapping[str, str] | None) -> Iterable[str]:
    """Yield the reasons against constraints, with the arguments that set them; control bounds can be exported."""
    places: dict[str, list[str]] = {}
    running = [c for phase in ocp.phases for c in phase.constraints]
    for argument, constraints in (("constraints", running), ("terminal_constraints", ocp.terminal_constraints)):
        for c in constraints:
            if argument not in places.setdefault(c.name, []):
                places[c.name].append(argument)
    for name, arguments in places.items():
        given = " and ".join(f"{argument}=" for argument in arguments)
        setting = _setting(name, removed_by, f"leave it out of {given}, or make it a cost (to.softened)")
        yield f"it has the constraint {name!r}, and SLQ has none: {setting}"


def _setting(part: str, removed_by: Mapping[str, str] | None, in_script: str) -> str:
    """Return the advice that removes a part: the setting of ``removed_by``, or that there is none.

    Without ``removed_by``, as in a script, it is ``in_script``.
    """
    if removed_by is None:
        return in_script
    return f"set {removed_by[part]}" if part in removed_by else "no setting of this problem removes it"


def _prefixed(text: str, name: str) -> str:
    """Replace the placeholder ``prefix`` by a name, alone and at the start of identifiers, also after "lib", and ``PREFIX_`` by
    the name in upper case.
    """
    text = re.sub(r"\b(lib)?prefix(?=_|\b)", lambda m: (m[1] or "") + name, text)
    return re.sub(r"\bPREFIX(?=_)", name.upper(), text)


def _header(ocp: OCP, sampled: Sampling, stage: FunctionsSource, structure: Structure) -> str:
    """Return the text of NAME.h, before prefixing."""
    fills = {
        "STATES": _names(ocp.state_names),
        "CONTROLS": _names(ocp.control_names),
        "SIZES": _sizes(ocp, stage, structure),
        "SCHEME": f"{sampled.scheme}, {sampled.substeps} substep{'s' * (sampled.substeps > 1)}",
        "THETA": _components(ocp.phases[0].terms),
        "THETA_END": _components(ocp.terminal),
    }
    return _filled(_template("controller.h"), fills)


def _names(names: Sequence[str]) -> str:
    """Return names as indented lines of a comment."""
    text = ", ".join(_in_comment(name) for name in names) or "none"
    return textwrap.fill(text, 126, initial_indent=" " * 5, subsequent_indent=" " * 5, break_on_hyphens=False)


def _sizes(ocp: OCP, stage: FunctionsSource, structure: Structure) -> str:
    """Return the size macros of the header: states, controls, horizon, parameters and workspace."""
    sizes = {
        "NX": ocp.manifold.nx,
        "NDX": ocp.manifold.ndx,
        "NU": ocp.nu,
        "HORIZON": ocp.horizon,
        "NTHETA": structure.numbers["nt"],
        "NTHETA_END": structure.numbers["ntt"],
        "BOUNDED_WORKSPACE": lq_solver.shared_lq().bounded_workspace(ocp.manifold.ndx, ocp.nu, ocp.horizon),
        "WORKSPACE": f"({structure.stage_workspace(stage.rows)} + {stage.workspace})",
    }
    return "\n".join(f"#define PREFIX_{key} {value}" for key, value in sizes.items())


def _components(terms: Sequence[CostTerm]) -> str:
    """Return the index ranges of weights and parameters in theta, one per line."""
    lines, at = [], 0
    for term in terms:
        for what, value in (("weight", term.weight), *term.parameters.items()):
            size = np.shape(value)[-1]
            lines.append(f"     [{at}] .. [{at + size - 1}]  {_in_comment(term.name)}: {_in_comment(what)}")
            at += size
    return "\n".join(lines) or "     none"


_LONGEST_NAME = 80
_UNSAFE = frozenset("*\\?")
"""Characters that may end a comment, continue a line, or begin a trigraph."""


def _in_comment(name: str) -> str:
    """Make a user's name safe for a C comment: one line, cut to _LONGEST_NAME characters, unsafe and unprintable ones then
    written as <U+HEX>.
    """
    short = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
    return "".join(c if c.isprintable() and c not in _UNSAFE else f"<U+{ord(c):04X}>" for c in short)


def _source(ocp: OCP, sampled: Sampling, stage: FunctionsSource, structure: Structure) -> str:
    """Return the text of NAME.c, before prefixing."""
    prelude = (files("dynamics_backends.compiled") / "templates" / "lanes" / "scalar.h").read_text()
    sizes = f"#define SUBSTEPS {sampled.substeps}\n#define N_ PREFIX_NDX\n#define M_ PREFIX_NU"
    parts = [
        '#include "prefix.h"',
        prelude,
        sizes,
        structure.groups_source(),
        stage.source,
        template("lanes/rows.h"),
        stages_source("rollout.h"),
        f"#define DYNAMICS_WORKSPACE ({stage.workspace})",
        structure.source("0"),
        lq_solver.source(),
        _template("controller.c"),
    ]
    return "\n".join([*parts, _defaults(ocp)])


def _defaults(ocp: OCP) -> str:
    """Return the defaults of the exported problem as C definitions: arrays, x0, and the struct of pointers to the arrays."""
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


def _example(start: ExampleStart) -> str:
    """Return the text of main.c, which runs SLQ steps from the start."""
    gains = f" = {_braced(start.K)}" if start.K.any() else ""
    return _filled(_template("main.c"), {"STATES": _braced(start.xs), "CONTROLS": _braced(start.us), "GAINS": gains})


def _template(name: str) -> str:
    """Read a template file."""
    return (files("trajopt.export") / "templates" / name).read_text()


def _filled(text: str, fills: dict[str, Any]) -> str:
    """Replace the placeholders @KEY@ in a text."""
    return re.sub(r"@([A-Z_]+)@", lambda m: fills[m[1]], text)


def _braced(values: Array) -> str:
    """Format a C initializer; an empty array becomes one zero."""
    numbers: Iterable[float] = np.ravel(values).tolist() or [0.0]
    texts = [constant(x) for x in numbers]
    rows = [", ".join(texts[i : i + _NUMBERS_A_LINE]) for i in range(0, len(texts), _NUMBERS_A_LINE)]
    return "{\n    " + ",\n    ".join(rows) + ",\n}"
