"""The functions of theta^2 of `dynamics_backends.scalar` by their definitions, in decimal arithmetic of 160 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

DIGITS = 160
H = Decimal("1e-40")  # central differences: truncation 1e-80, rounding 1e-160 / 1e-40


def _series(x: Decimal, first: Decimal, n: int) -> Decimal:
    """first - first x^2 / ((n+1)(n+2)) + ...: sine from (x, 1), cosine from (1, 0)."""
    total, term = Decimal(0), first
    while abs(term) > Decimal(10) ** -(DIGITS + 5):
        total += term
        term *= -x * x / ((n + 1) * (n + 2))
        n += 2
    return total


def sin(x: Decimal) -> Decimal:
    return _series(x, x, 1)


def cos(x: Decimal) -> Decimal:
    return _series(x, Decimal(1), 0)


def gamma(x: Decimal) -> Decimal:
    return x / 2 * cos(x / 2) / sin(x / 2)


def gamma_slope(x: Decimal) -> Decimal:
    """theta gamma'(theta)."""
    return x * (gamma(x + H) - gamma(x - H)) / (2 * H)


DEFINITIONS = {  # name -> function of theta
    "cos_root": cos,
    "sinc": lambda x: sin(x) / x,
    "cosc": lambda x: (1 - cos(x)) / x**2,
    "sinc3": lambda x: (x - sin(x)) / x**3,
    "dexp3": lambda x: (2 * (1 - cos(x)) - x * sin(x)) / (2 * x**4),
    "dexp4": lambda x: (2 + cos(x) - 3 * sin(x) / x) / (2 * x**4),
    "logc": lambda x: (1 - gamma(x)) / x**2,
    "dlog2": lambda x: (gamma_slope(x) - 4 * (gamma(x) - 1)) / (2 * x**2),
    "dlog4": lambda x: (gamma_slope(x) - 2 * (gamma(x) - 1)) / (2 * x**4),
}


def value(name: str, t2: float) -> float:
    """The function at theta^2 = t2."""
    with localcontext(prec=DIGITS):
        return float(_at(name, _positive(t2)))


def slope(name: str, t2: float) -> float:
    """Its derivative in theta^2, by central differences."""
    with localcontext(prec=DIGITS):
        at, h = _positive(t2), Decimal("1e-25")
        return float((_at(name, at + h) - _at(name, at - h)) / (2 * h))


def curvature(name: str, t2: float) -> float:
    """Its second derivative in theta^2, by central differences."""
    with localcontext(prec=DIGITS):
        at, h = _positive(t2), Decimal("1e-20")
        return float((_at(name, at + h) - 2 * _at(name, at) + _at(name, at - h)) / (h * h))


def _positive(t2: float) -> Decimal:
    """Replace zero by a number that is negligible in double precision."""
    return max(Decimal(t2), Decimal("1e-18"))


def _at(name: str, t2: Decimal) -> Decimal:
    return DEFINITIONS[name](t2.sqrt())
