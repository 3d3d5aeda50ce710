"""Cost terms that are functions of costly maps, such as the forces of contacts: l = sum 1/2 w r(y)^2 with y = y(x, u).

    l_x = J' g,     l_xx = J' H J + (g' y)_xx          g, H: gradient and Hessian of l in y,   J = dy/d(x, u)

where the second part, and that of H with the curvature of r, is left out for a Gauss-Newton Hessian.
g and H are a few operations, which are traced; y, J and (g' y)_xx come from the map's own code
(:mod:`dynamics_backends.compiled.sources.forces_source`), once for all terms of a stage that read them, and the products are loops.
The forces in the motion of the stage itself are found with its time step: y and J are then those of the step, and where its second
derivatives are compiled, (g' y)_xx joins them: g is handed out as the multipliers of the forces (phi of ctx_t).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

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
    """One such map, and what its terms add to the gradient and the Hessian in y.

    i: its number among those of a stage. given: whether the time step gives y and J. exact: with the map's second derivatives.
    bent: whether the contraction of the time step gives these.
    """

    def __init__(self, map: Any, i: int, name: str, *, given: bool, exact: bool, bent: bool) -> None:
        self.map, self.i, self.given, self.exact, self.bent = map, i, given, exact, bent
        found = () if given else ("value",) if exact else ("value", "first")
        second = ("second",) if self.curved else ()
        self.source: ForcesSource = forces_source(map, f"{name}_{i}", (*found, *second))
        self.y = ca.SX.sym("y", self.source.rows)
        self.gradient = ca.SX(self.source.rows, 1)
        self.hessian = ca.SX(self.source.rows, self.source.rows)

    @property
    def curved(self) -> bool:
        """True if the own code has second derivatives."""
        return self.exact and not self.bent

    @property
    def room(self) -> str:
        """The workspace in vectors: J and T of kernels/inner_maps.h, two blocks of second derivatives, that of the own code."""
        s = self.source
        return f"{2 * s.rows * s.columns + 2 * self.curved * s.columns**2} + {s.room}"

    def value(self) -> str:
        """y in C."""
        s, y = self.source, f"y{self.i}"
        if self.given:
            return f"const V* {y} = forces;"
        return f"V {y}[{s.rows}];\n{s.prefix}_forces_value(x, u, *t, {y}, w);"

    def first(self) -> str:
        """y and J in C, J where it does not wait for the multipliers of the second derivatives; and the places of g and H."""
        s, i = self.source, self.i
        slopes = f"V g{i}[{s.rows}], h{i}[{s.rows**2}];\n"
        if self.given and not self.curved:
            return f"{slopes}const V *y{i} = forces, *J{i} = forces + {s.rows};"
        J = f"V* J{i} = w;\nw += {s.rows * s.columns};\n"
        if self.curved:
            return f"{slopes}{J}{self.value()}"
        return f"{slopes}{J}V y{i}[{s.rows}];\n{s.prefix}_forces_first(x, u, *t, y{i}, J{i}, w);"

    def product(self, ndx: int, nu: int) -> str:
        """What the map adds to the expansion, in C."""
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
    """The inner maps of some residuals, by identity."""

    maps: list[InnerMap] = field(default_factory=list)

    @classmethod
    def of(
        cls, name: str, residuals: Iterable[Map], *, exact: bool, moving: Any = None, curved: bool = False
    ) -> InnerMaps:
        """The inner maps of the residuals that can be served.

        name: of the sum of terms, before all names in C. exact: with the maps' own second derivatives. moving: the system whose
        time step gives its forces, if any; curved: whether that step's second derivatives are compiled beside.
        """
        found = cls()
        for residual in residuals:
            inner: Any = residual.inner if isinstance(residual, ComposedMap) else None
            if inner is None or found._serving(residual) is not None:
                continue
            given = moving is not None and _system(inner) is moving
            if given or solved_in_loops(inner, second=exact):
                bent = given and exact and curved
                found.maps.append(InnerMap(inner, len(found.maps), name, given=given, exact=exact, bent=bent))
        return found

    def _serving(self, residual: Map) -> InnerMap | None:
        """The map that a residual is a function of: those of one system give the same forces."""
        inner: Any = residual.inner if isinstance(residual, ComposedMap) else None
        return next((m for m in self.maps if m.map.system is _system(inner)), None)

    def serves(self, residual: Map) -> bool:
        """True if a residual is a function of one of the maps."""
        return self._serving(residual) is not None

    def add(self, residual: ComposedMap, p: dict[str, Any], weight: Any) -> Any:
        """The value of a term; its derivatives in y are kept."""
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
        """The symbols of y by their names in C."""
        return {f"y{m.i}": m.y for m in self.maps}

    @property
    def expansions(self) -> dict[str, Any]:
        """g and H by their names in C."""
        pairs = [((f"g{m.i}", m.gradient), (f"h{m.i}", m.hessian)) for m in self.maps]
        return {name: ca.densify(e) for pair in pairs for name, e in pair}

    @property
    def given(self) -> int:
        """Number of entries of the step that are read: y and J."""
        return sum(m.source.rows * (1 + m.source.columns) for m in self.maps if m.given)

    @property
    def bent(self) -> int:
        """Number of forces of the step for which the contraction of its dynamics gets multipliers."""
        return sum(m.source.rows for m in self.maps if m.bent)

    def room(self, plain: str) -> str:
        """The workspace of all, in vectors."""
        return " + ".join([plain, *(m.room for m in self.maps)])

    def text(self, name: str, ndx: int, nu: int) -> list[str]:
        """The maps' own code, and NAME_value and NAME_expand around NAME_plain_value and NAME_plain_expand."""
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
        products = (files("trajopt.stage") / "kernels" / "inner_maps.h").read_text()
        return [*(m.source.source for m in self.maps), products, wrappers]


def _system(map: Map) -> Any:
    """Whose forces a map gives, None for another map."""
    return map.system if isinstance(map, ReportOf) else None
