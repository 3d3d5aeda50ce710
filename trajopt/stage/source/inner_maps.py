"""Cost terms that are functions of costly maps, such as the forces of contacts: l = sum 1/2 w r(y)^2 with y = y(x, u).

    l_x = J' g,     l_xx = J' H J + (g' y)_xx          g, H: gradient and Hessian of l in y,   J = dy/d(x, u)

where the second part, and that of H with the curvature of r, is left out for a Gauss-Newton Hessian.
g and H are a few operations, which are traced; y, J and (g' y)_xx come from the map's own code
(:mod:`dynamics_backends.compiled.sources.forces_source`), once for all terms of a stage that read them, and the products are loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from dynamics_backends.compiled.interface.sources import ForcesSource, forces_source, solved_in_loops
from dynamics_backends.composed_map import ComposedMap
from dynamics_backends.deferred import deferred
from dynamics_backends.protocol import Map

ca = deferred("casadi")
_WRAPPERS = """
static void {name}_value(const V* x, const V* u, const V* t, const V* dt, const V* theta, V* l, V* w)
{{
V {ys};
{values}
{name}_plain_value(x, u, t, dt, theta, {given}, l, w);
}}
static void {name}_expand(const V* x, const V* u, const V* t, const V* dt, const V* theta, V* l, V* lx, V* lu, V* lxx, V* lux,
                          V* luu, V* w)
{{
V {ys}, {gs};
V* J = w;
w += {numbers};
{firsts}
{name}_plain_expand(x, u, t, dt, theta, {given}, l, lx, lu, lxx, lux, luu, {slopes}, w);
{products}
}}
"""
_SECONDS = """
{{
V *xx = J + {end}, *ux = xx + {ndx} * {ndx};
{prefix}_forces_second(x, u, *t, {g}, J + {at}, xx, ux, ux + {nu} * {ndx});
for (int i = 0; i < {ndx} * {ndx}; i++) lxx[i] += xx[i];
for (int i = 0; i < {own} * {ndx}; i++) lux[i] += ux[i];
}}"""
_PRODUCT = "add_inner({rows}, {columns}, {ndx}, {nu}, {g}, {H}, J + {at}, lx, lu, lxx, lux, luu, w);"


@dataclass
class InnerMaps:
    """The inner maps of some residuals, by identity, and what their terms add to the gradient and the Hessian in y."""

    exact: bool
    maps: list[Map] = field(default_factory=list)
    sources: list[ForcesSource] = field(default_factory=list)
    symbols: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    hessians: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, residuals: Iterable[Map], *, exact: bool) -> InnerMaps:
        """Of the residuals that can be served; name: of the sum of terms, before all names in C; exact: with the maps' own second
        derivatives."""
        found = cls(exact)
        for residual in residuals:
            inner = residual.inner if isinstance(residual, ComposedMap) else None
            if inner is None or not solved_in_loops(inner, second=exact) or found._place(residual) is not None:
                continue
            source = forces_source(inner, f"{name}_{len(found.maps)}", second=exact)
            found.maps.append(inner)
            found.sources.append(source)
            found.symbols.append(ca.SX.sym("y", source.rows))
            found.gradients.append(ca.SX(source.rows, 1))
            found.hessians.append(ca.SX(source.rows, source.rows))
        return found

    def _place(self, residual: Map) -> int | None:
        """Which of the maps a residual is a function of: those of one system give the same forces."""
        inner: Any = residual.inner if isinstance(residual, ComposedMap) else None
        known = [i for i, map in enumerate(self.maps) if map.system is getattr(inner, "system", None)]  # type: ignore[attr-defined]
        return known[0] if known else None

    def serves(self, residual: Map) -> bool:
        """Whether a residual is a function of one of the maps."""
        return self._place(residual) is not None

    def add(self, residual: ComposedMap, p: dict[str, Any], weight: Any) -> Any:
        """The value of a term; its derivatives in y are kept."""
        i = self._place(residual)
        assert i is not None
        y = self.symbols[i]
        r = ca.vertcat(*residual.outer(y, p))
        value = 0.5 * ca.dot(weight, r * r)
        J = ca.jacobian(r, y)
        JW = J.T * ca.repmat(weight.T, y.numel(), 1)
        self.gradients[i] += ca.mtimes(JW, r)
        self.hessians[i] += ca.hessian(value, y)[0] if self.exact else ca.mtimes(JW, J)
        return value

    # -- C ------------------------------------------------------------------------------------------------------------
    @property
    def names(self) -> list[str]:
        """Of y, as arguments."""
        return [f"y{i}" for i in range(len(self.maps))]

    @property
    def outputs(self) -> list[str]:
        """Of g and H."""
        return [f"{kind}{i}" for i in range(len(self.maps)) for kind in ("g", "h")]

    def expansions(self) -> list[Any]:
        """g and H by their names."""
        return [ca.densify(e) for pair in zip(self.gradients, self.hessians, strict=True) for e in pair]

    def room(self, plain: str) -> str:
        """The workspace of all, in vectors."""
        own = [f"{2 * s.rows * s.columns + 2 * self.exact * s.columns**2} + {s.room}" for s in self.sources]
        return " + ".join([plain, *own]) if own else plain

    def _before(self, s: ForcesSource, y: str, at: int) -> str:
        """y, and J where it does not wait for the multipliers of the second derivatives."""
        return (
            f"{s.prefix}_forces_value(x, u, *t, {y}, w);"
            if self.exact
            else f"{s.prefix}_forces_first(x, u, *t, {y}, J + {at}, w);"
        )

    def _after(self, s: ForcesSource, i: int, at: int, ndx: int, nu: int) -> str:
        """What a map adds to the expansion."""
        sizes = {"rows": s.rows, "columns": s.columns, "ndx": ndx, "nu": nu, "g": f"g{i}", "H": f"h{i}", "at": at}
        product = _PRODUCT.format(**sizes)
        if not self.exact:
            return product
        end = sum(source.rows * source.columns for source in self.sources)
        return _SECONDS.format(prefix=s.prefix, end=end, own=s.columns - ndx, **sizes) + product

    def text(self, name: str, ndx: int, nu: int) -> list[str]:
        """The maps' own code, and NAME_value and NAME_expand around NAME_plain_value and NAME_plain_expand."""
        if not self.sources:
            return []
        starts = [sum(s.rows * s.columns for s in self.sources[:i]) for i in range(len(self.sources))]
        calls = [(i, s, f"y{i}", at) for i, (s, at) in enumerate(zip(self.sources, starts, strict=True))]
        wrappers = _WRAPPERS.format(
            name=name,
            ys=", ".join(f"y{i}[{s.rows}]" for i, s in enumerate(self.sources)),
            gs=", ".join(f"g{i}[{s.rows}], h{i}[{s.rows**2}]" for i, s in enumerate(self.sources)),
            values="\n".join(f"{s.prefix}_forces_value(x, u, *t, {y}, w);" for _, s, y, _ in calls),
            firsts="\n".join(self._before(s, y, at) for _, s, y, at in calls),
            given=", ".join(self.names),
            slopes=", ".join(self.outputs),
            numbers=sum(s.rows * s.columns for s in self.sources),
            products="\n".join(self._after(s, i, at, ndx, nu) for i, s, _, at in calls),
        )
        return [
            *(s.source for s in self.sources),
            "#ifndef ADD_INNER\n",
            (files("trajopt.stage") / "kernels" / "inner_maps.h").read_text(),
            "#endif\n",
            wrappers,
        ]
