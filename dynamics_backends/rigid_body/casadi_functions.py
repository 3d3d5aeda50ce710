"""Forward and inverse dynamics as CasADi functions with closed-form Jacobians (Astudillo et al. 2021, sec. 4.3).

CasADi's AD differentiates an MX expression of the user, except for calls of these functions: there it uses the Jacobian of IDSVA
or FDSVA (option ``custom_jacobian``). Second derivatives are AD of the closed form. The functions are plain CasADi functions:
``f.save("fd.casadi")`` stores one with its Jacobian, and ``casadi.Function.load`` reads it without this package.

CasADi differentiates with respect to the numbers of q. For a joint with a quaternion these are not tangent coordinates. With the
tangent Jacobian J and the rates w = W(q) dq of a change dq of the numbers
(:class:`~dynamics_backends.rigid_body.spatial.joints.Joint`) the Jacobian is J W. W ignores changes of the quaternion's length.
The functions therefore normalize: r = q/|q| enters the dynamics, and W(r)/|q| the Jacobian. Function and Jacobian then agree for
every nonzero quaternion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.joints import JOINTS
from dynamics_backends.scalar import sqrt

_BY_JACOBIAN = {f"enable_{way}": False for way in ("forward", "reverse", "fd")} | {
    "never_inline": True,
    "jac_penalty": 0,
}
Algorithm = Callable[..., Any]
_QUATERNION_AT = {"spherical": 0, "floating": 3}


def casadi_forward_dynamics(model: Model, name: str = "forward_dynamics") -> Any:
    """casadi.Function (q, v, tau) -> a with the Jacobians of FDSVA.

    Columns q (nq), v (nv) and tau (nv) [N, N m], a (nv) [m/s^2, rad/s^2]; quaternions are normalized. name: of the function.
    Raises ValueError for a model with mimic joints that follow others.

    >>> import casadi as ca
    >>> import trajopt as to
    >>> model = to.load_robot("double_pendulum")
    >>> f = to.casadi_forward_dynamics(model)
    >>> q, v, tau = (ca.MX.sym(name, 2) for name in ("q", "v", "tau"))
    >>> ca.jacobian(f(q, v, tau), tau).shape
    (2, 2)
    """
    return _function_with_jacobian(name, model, ("q", "v", "tau"), "a", aba, fd_derivatives)


def casadi_inverse_dynamics(model: Model, name: str = "inverse_dynamics") -> Any:
    """casadi.Function (q, v, a) -> tau with the Jacobians of IDSVA.

    Columns q (nq), v (nv) and a (nv), tau (nv) [N, N m]; quaternions are normalized. name: of the function.
    Raises ValueError for a model with mimic joints that follow others.
    """
    return _function_with_jacobian(name, model, ("q", "v", "a"), "tau", rnea, rnea_derivatives)


def _function_with_jacobian(
    name: str, model: Model, inputs: Sequence[str], output: str, value: Algorithm, derivatives: Algorithm
) -> Any:
    """CasADi function of the inputs with quaternions normalized, and the Jacobian by ``derivatives``.

    Raises ValueError for a model with mimic joints that follow others.
    """
    import casadi as ca

    if model.coupling is not None:
        raise ValueError(f"{model.name} has mimic joints that follow others; load it with mimic = 'free' or 'lock'")
    symbols = [ca.SX.sym(n, model.nq if n == "q" else model.nv) for n in inputs]
    result = value(model, _normalized(model, symbols[0])[0], *symbols[1:])
    jacobian = _jacobian(f"jac_{name}", model, dict(zip(inputs, symbols, strict=True)), output, derivatives)
    options = {"custom_jacobian": jacobian, **_BY_JACOBIAN}
    return ca.Function(name, symbols, [result], list(inputs), [output], options)


def _jacobian(name: str, model: Model, symbols: dict[str, Any], output: str, derivatives: Algorithm) -> Any:
    """The Function (inputs..., output) -> one Jacobian block for each input, in the numbers of q and in the other inputs.

    name: CasADi expects jac_<function>.
    """
    import casadi as ca

    q, *others = symbols.values()
    r, lengths = _normalized(model, q)
    _, dq, *blocks = derivatives(model, r, *others)
    blocks = [_matrix(dq) @ _rates_of_numbers(model, r, lengths), *map(_matrix, blocks)]
    nominal = ca.SX.sym(f"out_{output}", model.nv)  # the function's value; the closed forms do not use it
    names = [f"jac_{output}_{n}" for n in symbols]
    return ca.Function(name, [*symbols.values(), nominal], ca.cse(blocks), [*symbols, f"out_{output}"], names)


def _matrix(block: Any) -> Any:
    """One sparse SX matrix of nested lists [i][j] or of a list of rows; plain zeros become structural zeros."""
    import casadi as ca

    rows = [r if hasattr(r, "is_symbolic") else ca.vertcat(*r) for r in block]
    return ca.sparsify(ca.horzcat(*rows).T)


def _quaternions(model: Model) -> dict[int, int]:
    """The index in q of the first number of each joint's quaternion, by body."""
    starts = {b: _QUATERNION_AT.get(t) for b, t in enumerate(model.joint_types)}
    return {b: int(model.q_index[b]) + start for b, start in starts.items() if start is not None}


def _normalized(model: Model, q: Any) -> tuple[Any, dict[int, Any]]:
    """q with each quaternion divided by its length, and the original lengths by body."""
    import casadi as ca

    numbers, lengths = q.elements(), {}
    for b, first in _quaternions(model).items():
        part = slice(first, first + 4)
        lengths[b] = sqrt(ca.sumsqr(q[part]))
        numbers[part] = [x / lengths[b] for x in numbers[part]]
    return ca.vertcat(*numbers), lengths


def _rates_of_numbers(model: Model, r: Any, lengths: dict[int, Any]) -> Any:
    """Matrix W (nv, nq) of the joint rates W dq of a change dq of q.

    r: q with unit quaternions; lengths: the original lengths of the quaternions by body.
    """
    import casadi as ca

    blocks = []
    for b, joint_type in enumerate(model.joint_types):
        joint = JOINTS[joint_type]
        first = int(model.q_index[b])
        numbers = [r[first + i] for i in range(joint.nq)]
        change = ca.SX.sym("dq", joint.nq)
        W = ca.jacobian(ca.vertcat(*joint.rates(numbers, change.elements())), change)
        if b in lengths:
            start = _QUATERNION_AT[joint_type]
            W[:, start : start + 4] = W[:, start : start + 4] / lengths[b]
        blocks.append(W)
    return ca.diagcat(*blocks)
