"""Cost terms of costly inner maps, such as contact forces: l = sum 1/2 w r(y)^2 with y = y(x, u).

    l_x = J' g,     l_xx = J' H J + (g' y)_xx          g, H: gradient and Hessian of l in y,   J = dy/d(x, u)

A Gauss-Newton Hessian omits the second summand, and the curvature of r in H.
g and H take few operations and are traced. y, J and (g' y)_xx come from the map's C source
(:mod:`dynamics_backends.compiled.sources.forces_source`), evaluated once for all terms of a stage that read them; the products are
loops. Contact forces of the stage's own dynamics are computed with its time step, which then provides y and J. If second
derivatives of the step are compiled, they include (g' y)_xx: g is passed to them as the multipliers of the forces (phi of ctx_t).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dynamics_backends.compiled.interface.libraries import kernel_text
from dynamics_backends.compiled.interface.sources import ForcesSource, forces_source, solved_in_loops
from dynamics_backends.composed_map import ComposedMap
from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Map, ReportOf

ca = deferred("casadi")
_WRAPPERS = """
static void {name}_value(const V* x, const V* u, const V* t, const V* dt, const V* theta, const V* forces, V* l, V* w)
{{
{values}
{name}_plain_value(x, u, t, dt, theta, forces, {ys}, l, w);
}}
static void {name}_expand(const V* x, const V* u, const V* t, const V* dt, const V* theta, const V* forces, V* phi, V* l, V* lx,
                          V* lu, V* lxx, V* lux, V* luu, V* w)
{{
{firsts}
{name}_plain_expand(x, u, t, dt, theta, forces, {ys}, phi, l, lx, lu, lxx, lux, luu, {slopes}, w);
{products}
}}
"""


class InnerMap:
    """An inner map, with the gradient and the Hessian in y of its terms.

    i: index among the inner maps of a stage. from_step: the time step provides y and J. exact: include the map's second
    derivatives. bent: the contraction of the time step provides them.
    """

    def __init__(self, map: Any, i: int, name: str, *, from_step: bool, exact: bool, bent: bool) -> None:
        self.map, self.i, self.from_step, self.exact, self.bent = map, i, from_step, exact, bent
        result = () if from_step else ("value",) if exact else ("value", "first")
        second = ("second",) if self.curved else ()
        self.source: ForcesSource = forces_source(map, f"{name}_{i}", (*result, *second))
        self.y = ca.SX.sym("y", self.source.rows)
        self.gradient = ca.SX(self.source.rows, 1)
        self.hessian = ca.SX(self.source.rows, self.source.rows)

    @property
    def curved(self) -> bool:
        """True if the map's own C source contains second derivatives."""
        return self.exact and not self.bent

    @property
    def room(self) -> str:
        """Workspace in vectors: J and T of kernels/inner_maps.h, two blocks of second derivatives, and that of the map's source."""
        s = self.source
        return f"{2 * s.rows * s.columns + 2 * self.curved * s.columns**2} + {s.room}"

    def value(self) -> str:
        """C code that computes y."""
        s, y = self.source, f"y{self.i}"
        if self.from_step:
            return f"const V* {y} = forces;"
        return f"V {y}[{s.rows}];\n{s.prefix}_forces_value(x, u, *t, {y}, w);"

    def first(self) -> str:
        """C code that computes y, declares g and H, and computes J unless the second derivatives compute it."""
        s, i = self.source, self.i
        slopes = f"V g{i}[{s.rows}], h{i}[{s.rows**2}];\n"
        if self.from_step and not self.curved:
            return f"{slopes}const V *y{i} = forces, *J{i} = forces + {s.rows};"
        J = f"V* J{i} = w;\nw += {s.rows * s.columns};\n"
        if self.curved:
            return f"{slopes}{J}{self.value()}"
        return f"{slopes}{J}V y{i}[{s.rows}];\n{s.prefix}_forces_first(x, u, *t, y{i}, J{i}, w);"

    def product(self, ndx: int, nu: int) -> str:
        """C code that adds the contribution of the map to the expansion."""
        s, i = self.source, self.i
        at = f"{s.rows}, {s.columns}, {ndx}, {nu}"
        product = f"add_inner((inner_t){{{at}, g{i}, h{i}, J{i}}}, (expanded_t){{lx, lu, lxx, lux, luu}}, w);"
        if self.bent:
            return f"{product}\nmemcpy(phi, g{i}, sizeof g{i});"
        if not self.exact:
            return product
        ux = ndx * ndx
        second = f"{s.prefix}_forces_second(x, u, *t, g{i}, J{i}, w, w + {ux}, w + {ux + nu * ndx});"
        return f"{second}\nadd_bent({ndx}, {s.columns - ndx}, w, w + {ux}, lxx, lux);\n{product}"


@dataclass
class InnerMaps:
    """Inner maps of a list of residuals, one for each system."""

    maps: list[InnerMap] = field(default_factory=list)

    @classmethod
    def of(
        cls, name: str, residuals: Iterable[Map], *, exact: bool, moving: Any = None, curved: bool = False
    ) -> InnerMaps:
        """Inner maps of the residuals whose maps have C source.

        name: prefix of all C names. exact: include the maps' second derivatives. moving: the system whose time step provides its
        contact forces, if any. curved: second derivatives of that step are compiled too.
        """
        result = cls()
        for residual in residuals:
            inner: Any = residual.inner if isinstance(residual, ComposedMap) else None
            if inner is None or result._serving(residual) is not None:
                continue
            from_step = _served_by_step(inner, moving)
            if from_step or solved_in_loops(inner, second=exact):
                bent = from_step and exact and curved
                result.maps.append(InnerMap(inner, len(result.maps), name, from_step=from_step, exact=exact, bent=bent))
        return result

    def _serving(self, residual: Map) -> InnerMap | None:
        """Inner map of a residual, found by its system, because all maps of a system give the same forces; None without one."""
        inner: Any = residual.inner if isinstance(residual, ComposedMap) else None
        return next((m for m in self.maps if m.map.system is _system(inner)), None)

    def serves(self, residual: Map) -> bool:
        """True if a residual is a function of one of these maps."""
        return self._serving(residual) is not None

    def add(self, residual: ComposedMap, p: dict[str, Any], weight: Any) -> Any:
        """Return the value of a term, and add its derivatives in y to those of its inner map."""
        m = self._serving(residual)
        assert m is not None
        r = ca.vertcat(*residual.outer(m.y, p))
        value = 0.5 * ca.dot(weight, r * r)
        J = ca.jacobian(r, m.y)
        JW = J.T * ca.repmat(weight.T, m.y.numel(), 1)
        m.gradient += ca.mtimes(JW, r)
        m.hessian += ca.hessian(value, m.y)[0] if m.exact else ca.mtimes(JW, J)
        return value

    # -- C ------------------------------------------------------------------------------------------------------------
    @property
    def arguments(self) -> dict[str, Any]:
        """Symbols of y by C name."""
        return {f"y{m.i}": m.y for m in self.maps}

    @property
    def expansions(self) -> dict[str, Any]:
        """Expressions of g and H by C name."""
        pairs = [((f"g{m.i}", m.gradient), (f"h{m.i}", m.hessian)) for m in self.maps]
        return {name: ca.densify(e) for pair in pairs for name, e in pair}

    @property
    def from_step(self) -> int:
        """Number of entries of y and J that the time step provides."""
        return sum(m.source.rows * (1 + m.source.columns) for m in self.maps if m.from_step)

    @property
    def bent(self) -> int:
        """Number of forces of the time step whose multipliers the contraction of its dynamics receives."""
        return sum(m.source.rows for m in self.maps if m.bent)

    @property
    def are_of_step(self) -> bool:
        """True if the time step and its second derivatives provide all that the terms read of the maps."""
        return all(m.from_step and not m.curved for m in self.maps)

    def room(self, plain: str) -> str:
        """C expression of the workspace of all maps, in vectors; plain: that of the traced terms."""
        return " + ".join([plain, *(m.room for m in self.maps)])

    def text(self, name: str, ndx: int, nu: int) -> list[str]:
        """C source of the maps, and of NAME_value and NAME_expand, which wrap NAME_plain_value and NAME_plain_expand."""
        if not self.maps:
            return []
        wrappers = _WRAPPERS.format(
            name=name,
            values="\n".join(m.value() for m in self.maps),
            firsts="\n".join(m.first() for m in self.maps),
            ys=", ".join(self.arguments),
            slopes=", ".join(self.expansions),
            products="\n".join(m.product(ndx, nu) for m in self.maps),
        )
        products = kernel_text("trajopt.stage", "inner_maps.h")
        return [*(m.source.source for m in self.maps), products, wrappers]


def _served_by_step(map: Map, moving: Any) -> bool:
    """True if the time step of the system ``moving`` provides the map. moving: None for none."""
    return moving is not None and _system(map) is moving


def _system(map: Map) -> Any:
    """System whose forces a map reports; None for other maps."""
    return map.system if isinstance(map, ReportOf) else None
