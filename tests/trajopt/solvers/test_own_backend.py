"""User-defined backend with two methods in every solver, compared with the built-in backend of the same dynamics."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from shooting_cases import PROBLEMS

import trajopt as to
from dynamics_backends.registry import METHODS
from dynamics_backends.systems.contact.registry import CONTACT_LAWS
from trajopt.config.config import read_config
from trajopt.solvers.registry import SOLVERS

FIRST_ORDER = {
    "slq": {},
    "ilqr": {},
    "gnms": {},
    "fddp": {},
    "sqp": {},
    "dms": {"hessian": "gauss_newton"},
    "ipm": {},
}
"""Solvers that need no second derivatives of the dynamics, with the options by which they do without."""
SECOND_ORDER = {"ddp": {}, "ipm": {"hessian": "exact"}, "sqp": {"hessian": "exact"}, "dms": {}}


class Pendulum:
    """A damped pendulum, its hinge driven."""

    manifold, nu, second_order = 2, 1, True

    def __init__(self, gravity=2.0):
        self.gravity = gravity

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        return np.stack([x[:, 1], u[:, 0] - self.gravity * np.sin(x[:, 0]) - 0.1 * x[:, 1]], axis=1)

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        fx, fu = np.zeros((len(x), 2, 2)), np.zeros((len(x), 2, 1))
        fx[:, 0, 1], fx[:, 1, 0], fx[:, 1, 1] = 1.0, -self.gravity * np.cos(x[:, 0]), -0.1
        fu[:, 1, 0] = 1.0
        return self.f(x, u, t, p), fx, fu


class CurvedPendulum(Pendulum):
    """Pendulum with second derivatives."""

    def hessian_contraction(self, x, u, t, p, lam):
        """First derivatives, and second ones of lam' f."""
        xx = np.zeros((len(x), 2, 2))
        xx[:, 0, 0] = lam[:, 1] * self.gravity * np.sin(x[:, 0])
        return self.jacobians(x, u, t, p), (xx, np.zeros((len(x), 1, 2)), np.zeros((len(x), 1, 1)))


def source(x, u, t, p):
    """Dynamics of the pendulum for built-in backends."""
    return [x[1], u[0] - 2.0 * to.sin(x[0]) - 0.1 * x[1]]


def built_in(method="forward_ad"):
    return to.make_backend(to.FunctionMap(source, 2, 1, second_order=True), method, engine="numpy")


def swing(backend, scheme="rk4", substeps=1, **changes):
    """The pendulum swings to 2.6 rad in three seconds."""
    step = to.SampledSystem(backend, scheme, substeps)
    goal = to.state_cost(step.manifold, [2.6, 0.0], 50.0, "goal")
    return to.OCP.single_phase(step, [0.0, 0.0], 30, 0.1, [to.control_cost(1)], [goal], **changes)


@pytest.fixture(autouse=True)
def _nothing_stays_registered():
    before = [(registry, registry.loaded()) for registry in (METHODS, SOLVERS, CONTACT_LAWS)]
    yield
    for registry, names in before:
        for name in set(registry.loaded()) - set(names):
            del registry[name]


@pytest.mark.parametrize("solver", FIRST_ORDER)
@pytest.mark.parametrize("substeps", [1, 2])
def test_two_methods_are_enough(solver, substeps):
    own = to.solve(swing(Pendulum(), substeps=substeps), solver=solver, options=FIRST_ORDER[solver])
    expected = to.solve(swing(built_in(), substeps=substeps), solver=solver, options={"hessian": "gauss_newton"})
    assert own.status.success and own.meta["engines"] == ["numpy"]
    approximated = [f"the backend Pendulum has no hessian_contraction; .* until then {solver} uses hessian"]
    expected_findings = approximated if solver in ("sqp", "ipm") else []
    assert len(own.meta["findings"]) == len(expected_findings)
    assert all(map(re.match, expected_findings, own.meta["findings"]))
    assert own.cost == pytest.approx(expected.cost, rel=1e-9)
    assert np.abs(own.xs - expected.xs).max() < 1e-5


@pytest.mark.parametrize(("solver", "options"), SECOND_ORDER.items())
def test_a_third_method_adds_second_order(solver, options):
    own = to.solve(swing(CurvedPendulum()), solver=solver, options=options)
    expected = to.solve(swing(built_in()), solver=solver, options=options)
    assert own.status.success and own.iterations == expected.iterations
    assert own.cost == pytest.approx(expected.cost, rel=1e-10)


def test_auto_and_a_user_defined_method():
    def full_steps(size, options):
        from trajopt.solvers.methods import GAUSS_NEWTON, Accept, End, FirstGains, Start, Step

        yield Start()
        at = yield FirstGains(0.0)
        while at.gradient > options.gradient_tolerance or at.defect > options.defect_tolerance:
            step = yield Step(0, GAUSS_NEWTON, GAUSS_NEWTON + 1)
            if step is None:
                return End.NO_STEP
            at = yield Accept(0, 0, 1 << GAUSS_NEWTON)
        return End.OPTIMAL

    to.register_method("full_steps", full_steps)
    expected = to.solve(swing(built_in()), solver="ddp").cost
    for solver in ("auto", "full_steps"):
        found = to.solve(swing(Pendulum()), solver=solver)
        assert found.status.success and found.cost == pytest.approx(expected, rel=1e-9)


def test_bounds_constraints_and_other_schemes():
    limits = to.state_bounds(to.Manifold.vector(2), [-np.inf, -1.6], [np.inf, 1.6], "speed")
    changes = {"u_lower": [-2.0], "u_upper": [2.0], "constraints": [limits], "replay_tolerance": np.inf}
    for scheme in ("semi_implicit_euler", "euler"):
        for solver in ("ipm", "sqp", "slq"):
            own = to.solve(swing(Pendulum(), scheme, **changes), solver=solver)
            expected = to.solve(
                swing(built_in(), scheme, **changes), solver=solver, options={"hessian": "gauss_newton"}
            )
            assert own.status.acceptable and own.cost == pytest.approx(expected.cost, rel=1e-6)


@pytest.mark.parametrize("solver", FIRST_ORDER)
def test_states_with_quaternions(solver):
    """A body turns about a large angle; derivatives are those in the tangent space."""
    to.register_backend("reference", Reference)
    ocp, options = PROBLEMS["attitude"](), {"hessian": "gauss_newton"}
    own = to.solve(ocp, solver=solver, options=options, backend="reference")
    expected = to.solve(ocp, solver=solver, options=options, backend={"name": "forward_ad", "engine": "numpy"})
    assert own.status.success and own.iterations == expected.iterations
    assert np.abs(own.xs - expected.xs).max() < 1e-9


@pytest.mark.parametrize("solver", ["slq", "ipm"])
def test_a_batch_is_solved(solver):
    starts = np.array([[0.0, 0.0], [0.3, 0.0], [-0.2, 0.1]])
    own, expected = (to.solve_batch(swing(b), {"x0": starts}, solver=solver) for b in (Pendulum(), built_in()))
    assert own.success.all() and own.cost == pytest.approx(expected.cost, rel=1e-8)


def test_a_solution_is_replayed_on_finer_dynamics():
    found = to.solve(swing(Pendulum()), solver="slq")
    expected = to.solve(swing(built_in()), solver="slq")
    assert found.status.message == expected.status.message
    ways = [way for way in ("open", "gains") if way in expected.meta["replay"]]  # controls held, under its feedback
    assert ways and [way for way in ("open", "gains") if way in found.meta["replay"]] == ways
    for way in ways:
        assert found.meta["replay"][way]["amount"] == pytest.approx(expected.meta["replay"][way]["amount"], rel=1e-3)


def errors(ocp, **solver):
    return [f.message for f in to.validate(ocp, **solver) if f.severity == "error"]


@pytest.mark.parametrize("solver", SECOND_ORDER)
def test_what_a_solver_lacks_is_said_before_the_solve(solver):
    ocp, options = swing(Pendulum()), {} if solver == "ddp" else {"hessian": "exact"}
    who = "ddp" if solver == "ddp" else f"{solver} with hessian = exact"
    needs = f"{who} needs hessian_contraction: the backend Pendulum has no hessian_contraction; give it one"
    (finding,) = errors(ocp, solver=solver, options=options)
    assert finding.startswith(needs)
    for check in (True, False):
        with pytest.raises(to.InvalidProblem, match=needs):
            to.solve(ocp, solver=solver, options=options, check=check)
    assert errors(ocp) == errors(ocp, solver="slq") == []
    assert to.validate(swing(CurvedPendulum()), solver=solver, options=options) == []


def test_a_built_in_backend_without_second_derivatives_is_named_too():
    (finding,) = errors(swing(built_in("forward_difference")), solver="ddp")
    assert finding.startswith("ddp needs hessian_contraction: the backend forward_difference has no second")
    assert errors(swing(built_in("forward_difference")), solver="dms") == []  # its source is differentiated


def wrong(**methods):
    return type("Wrong", (Pendulum,), methods)()


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (wrong(f=lambda self, x, u, t, p: x[0]), r"backend Wrong: f has shape \(2,\); expected \(2, 2\)"),
        (wrong(jacobians=lambda self, x, u, t, p: x), "Wrong: jacobians returned a ndarray; expected .value, fx, fu"),
        (
            wrong(jacobians=lambda self, x, u, t, p: (x, np.zeros((2, 2, 2)), np.zeros((2, 2)))),
            r"backend Wrong: fu of jacobians has shape \(2, 2\); expected \(2, 2, 1\)",
        ),
        (wrong(f=lambda self, x, u, t, p: 1 / 0), r"ZeroDivisionError in line \d+ of .*test_own_backend.py, `.*`: div"),
        (wrong(f=lambda self, x, u, t, p: "x"), "backend Wrong: f is a str; expected an array of shape"),
        (wrong(f=lambda self, x, u, t, p: None), "backend Wrong: f is a NoneType; expected an array of shape"),
    ],
)
def test_mistakes_of_a_backend_are_found_before_the_solve(backend, message):
    (finding,) = to.validate(swing(backend))
    assert finding.severity == "error" and finding.message.startswith("dynamics of phase 0: ")
    with pytest.raises(to.InvalidProblem, match=message):
        to.solve(swing(backend))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            lambda first, second: (first, *second),
            r"hessian_contraction returned a tuple.*; expected \(\(value, fx, fu\), \(xx, ux, uu\)\)",
        ),
        (lambda first, second: None, "hessian_contraction returned"),
        (lambda first, second: (first, (second[0][:1], *second[1:])), "xx of hessian_contraction has shape"),
    ],
)
def test_mistakes_in_second_derivatives_are_found_before_the_solve(found, message):
    class Wrong(CurvedPendulum):
        def hessian_contraction(self, x, u, t, p, lam):
            """Another result than expected."""
            return found(*super().hessian_contraction(x, u, t, p, lam))

    with pytest.raises(to.InvalidProblem, match=message):
        to.solve(swing(Wrong()), solver="ddp")


def test_objects_that_are_no_backend_are_rejected():
    class Sizeless:
        f = jacobians = Pendulum.f

    with pytest.raises(TypeError, match="Sizeless does not define its sizes: .* missing: manifold, nu"):
        to.SampledSystem(Sizeless(), "rk4")
    with pytest.raises(TypeError, match="backend Wrong: nu is '1'; expected the number of controls"):
        to.SampledSystem(wrong(nu="1"), "rk4")
    with pytest.raises(TypeError, match="expected a system or a backend of one, got object"):
        to.SampledSystem(object(), "rk4")
    with pytest.raises(ValueError, match="declare second_order=True"):
        to.SampledSystem(type("First", (Pendulum,), {"second_order": False})(), "semi_implicit_euler")


def test_free_time_names_what_it_needs():
    with pytest.raises(ValueError, match="Pendulum cannot differentiate"):
        _ = to.free_time(swing(Pendulum())).ocp


# -- by name ---------------------------------------------------------------------------------------------------------


def test_a_registered_backend_is_made_for_a_system():
    made = []

    def factory(system, gravity=2.0):
        made.append(system)
        return Pendulum(gravity)

    to.register_backend("pendulum", factory)
    system = to.FunctionMap(source, to.Manifold.vector(2, ("angle", "rate")), 1, second_order=True)
    backend = to.make_backend(system, "pendulum", gravity=3.0)
    assert made == [system] and (backend.name, backend.engine, backend.own.gravity) == ("pendulum", "numpy", 3.0)
    assert backend.options == {"gravity": 3.0} and "pendulum" in to.backend_names()
    with pytest.raises(ValueError, match="backend 'analytic' is built in"):
        to.register_backend("analytic", factory)
    with pytest.raises(TypeError, match="expected a factory of"):
        to.register_backend("other", 3)
    to.register_backend("nothing", lambda system: 3)
    with pytest.raises(TypeError, match=r"backend nothing: expected an object with f\(x, u, t, p\)"):
        to.make_backend(system, "nothing")


class Reference:
    """Dynamics of any system by a built-in backend, as another library would give them."""

    def __init__(self, system):
        self.inner = to.make_backend(system, "forward_ad", engine="numpy")

    def f(self, x, u, t, p):
        return self.inner.f(x, u, t, p)

    def jacobians(self, x, u, t, p):
        return tuple(self.inner.jacobians(x, u, t, p))


def test_a_configuration_names_a_registered_backend():
    to.register_backend("reference", Reference)
    changes = {"horizon": 40, "solver": {"name": "slq", "max_iterations": 200}}
    own = to.load_problem("cart_pole_swing_up", backend="reference", **changes)
    expected = to.load_problem("cart_pole_swing_up", backend="forward_ad", engine="numpy", **changes)
    assert own.ocp.phases[0].dynamics.backend.name == "reference"
    assert own.solve(report=False).cost == pytest.approx(expected.solve(report=False).cost, rel=1e-9)
    with pytest.raises(to.ConfigError, match="did you mean 'reference'"):
        to.load_problem("cart_pole_swing_up", backend="referense")


def test_a_configuration_names_a_registered_contact_law():
    @dataclass(frozen=True)
    class Softer(to.HuntCrossley):
        """A law of a user; hardness: factor on the stiffness."""

        hardness: float = 1.0

    to.register_contact_law("softer", Softer)
    table = {"name": "quadruped_gait", "robot": "hyq", "contact_law": "softer", "contact_parameters": {"hardness": 0.5}}
    settings = read_config({"problem": table}).problem
    assert settings.law() == Softer(hardness=0.5) == to.contact_law("softer", hardness=0.5)
    assert "hardness" not in settings.units()
    with pytest.raises(
        to.ConfigError, match="contact_law: expected one of exponential, hunt_crossley, relaxed_cone, softer"
    ):
        read_config({"problem": {**table, "contact_law": "harder"}})
    with pytest.raises(TypeError, match="expected a frozen dataclass that extends trajopt.ContactLaw"):
        to.register_contact_law("none", Pendulum)

    @dataclass(frozen=True)
    class Stuck(to.StepLaw):
        """A law of a user without ``slower``."""

        def force(self, g, n, w, p):
            return n * to.exp(-20.0 * g)

    with pytest.raises(TypeError, match="trajopt.StepLaw and defines force and slower"):
        to.register_contact_law("stuck", Stuck)
    with pytest.raises(TypeError, match="contact law Stuck, a StepLaw, does not define slower"):
        to.SteppedContact(to.chain(2), ["body1"], law=Stuck())


def soft_law(force):
    return type("Own", (to.ContactLaw,), {"force": force})()


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (
            soft_law(lambda self, g, n, w, p: n if g < 0 else w),
            r"law Own fails in line \d+ of .*, `.*`: '<' not supported",
        ),
        (soft_law(lambda self, g, n, w, p: [0.0, 0.0, g]), "the force of contact law Own is a list; expected a vector"),
        (to.HuntCrossley, r"HuntCrossley is a class; create the law, HuntCrossley\(\)"),
        (to.RelaxedCone(), "RelaxedCone is a StepLaw: use trajopt.SteppedContact"),
    ],
)
def test_mistakes_of_a_contact_law_are_named_where_it_is_used(law, message):
    with pytest.raises(TypeError, match=message):
        to.SoftContact(to.chain(2), ["body1"], law=law)
    with pytest.raises(TypeError, match="HuntCrossley is a soft law: use trajopt.SoftContact"):
        to.SteppedContact(to.chain(2), ["body1"], law=to.HuntCrossley())


def test_a_parameter_of_a_contact_law_may_be_missing_at_first():
    law = soft_law(lambda self, g, n, w, p: n * (p["stiffness"][0] * to.exp(-g)))
    system = to.SoftContact(to.chain(2), ["body1"], law=law)
    given = np.zeros((1, 4)), np.zeros((1, 2)), 0.0
    assert np.isfinite(to.make_backend(system).f(*given, {"stiffness": [1.0]})).all()


def test_the_derivatives_of_a_registered_backend_are_checked():
    """Comparison with the derivatives of the system of the backend, as by `trajopt check`."""

    class Biased(Reference):
        def jacobians(self, x, u, t, p):
            value, fx, fu = super().jacobians(x, u, t, p)
            return value, fx + 1e-3, fu

    to.register_backend("reference", Reference)
    to.register_backend("biased", Biased)
    for name, passed in (("reference", True), ("biased", False)):
        problem = to.load_problem("cart_pole_swing_up", backend=name)
        found = to.check_derivatives(problem.ocp, problem.guess)
        lines = [line for line in found if line.method == name and line.error is not None]
        assert [line.block for line in lines] == ["fx", "fu"] and lines[0].passed == passed and lines[1].passed
    assert any("only their backend Pendulum" in line.entry for line in to.check_derivatives(swing(Pendulum())))


def test_mpc_steps():
    mpc, x = to.MPC(swing(Pendulum()), solver="slq"), np.zeros(2)
    expected = to.solve(swing(Pendulum()), solver="slq").us[0]
    assert mpc.step(x, 0.0) == pytest.approx(expected, rel=1e-2) and np.isfinite(mpc.step(x, 0.1)).all()


def test_a_replanning_loop_follows_a_plan():
    ocp = swing(Pendulum())
    plan = to.Plan.from_solution(to.solve(ocp, solver="slq"), 0.0)
    plant = to.SampledPlant(ocp.phases[0].dynamics, ocp.x0, 0.01)
    loop = to.ReplanningLoop(to.ShrinkingHorizon(ocp), to.RealTimeSLQ(), plant, plan, to.Timing(tick=0.01, period=0.1))
    log = loop.run(0.5)
    assert np.isfinite(log.xs).all() and len(log.solves) >= 4


class WrongPendulum(Pendulum):
    """Pendulum with a wrong sign in a derivative."""

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        value, fx, fu = super().jacobians(x, u, t, p)
        fx[:, 1, 0] *= -1.0
        return value, fx, fu


class ShiftedPendulum(Pendulum):
    """Pendulum whose Jacobians are right, with a wrong value beside them."""

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        value, fx, fu = super().jacobians(x, u, t, p)
        return value + [0.0, 0.1], fx, fu


class ReusingPendulum(Pendulum):
    """Pendulum that returns the same array at each call, as simulators do."""

    memory = np.zeros((200, 2))

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        self.memory[: len(x)] = super().f(x, u, t, p)
        return self.memory[: len(x)]


def test_a_backend_may_reuse_the_array_that_it_returns():
    expected, found = (to.solve(swing(own()), solver="slq") for own in (Pendulum, ReusingPendulum))
    assert not found.meta["findings"] and found.cost == expected.cost


def test_the_value_beside_the_jacobians_is_compared_with_that_of_f():
    (wrong,) = (f.message for f in to.validate(swing(ShiftedPendulum())) if "do not agree with its values" in f.message)
    assert "value of d x[1]/dt, relative error" in wrong
    assert [c.block for c in to.check_derivatives(swing(ShiftedPendulum())) if not c.passed] == ["value"]


@pytest.mark.parametrize("own", [Pendulum, WrongPendulum])
def test_jacobians_are_compared_with_differences_of_the_values(own):
    dynamics = to.SampledSystem(own(), "rk4")
    ocp = to.OCP.single_phase(dynamics, [0.1, 0.0], 5, 0.1, [to.control_cost(1)])
    wrong = [f.message for f in to.validate(ocp) if "do not agree with its values" in f.message]
    failed = [c for c in to.check_derivatives(ocp) if not c.passed]
    assert len(wrong) == len(failed) == (own is WrongPendulum)
    if wrong:
        assert "d(d x[1]/dt) / d(x[0]), relative error 2.0e+00" in wrong[0] and failed[0].block == "fx"


class SinglePendulum(CurvedPendulum):
    """Pendulum in single precision, as JAX's default, with a factor on the derivatives of sin."""

    factor = 1.0

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        return super().f(np.float32(x), np.float32(u), t, p)

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        value, fx, fu = super().jacobians(np.float32(x), np.float32(u), t, p)
        fx[:, 1, 0] *= self.factor
        return value, np.float32(fx), np.float32(fu)


def test_backends_in_single_precision_pass_the_check_of_derivatives():
    right, wrong = SinglePendulum(50.0), SinglePendulum(50.0)
    wrong.factor = 1.001
    for own, expected in ((right, set()), (wrong, {"fx"})):
        assert {check.block for check in to.check_derivatives(swing(own), seed=1) if not check.passed} == expected


class NoisyPendulum(Pendulum):
    """Pendulum whose values have errors of a millionth, as those of iterative simulators."""

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        return super().f(x, u, t, p) + 1e-6 * np.sin(1e9 * (x + u))


class MicroscopicPendulum(Pendulum):
    """Force that changes its sign within three micrometers."""

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        return np.stack([x[:, 1], u[:, 0] - np.sin(1e6 * x[:, 0])], axis=1)

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        _, fx, fu = super().jacobians(x, u, t, p)
        fx[:, 1] = np.stack([-1e6 * np.cos(1e6 * x[:, 0]), np.zeros(len(x))], axis=1)
        return self.f(x, u, t, p), fx, fu


class RubbingPendulum(Pendulum):
    """Friction that changes its sign within 0.1 mrad/s, with second derivatives."""

    def f(self, x, u, t, p):
        """The time derivative of the state."""
        return np.stack([x[:, 1], u[:, 0] - np.tanh(1e4 * x[:, 1])], axis=1)

    def jacobians(self, x, u, t, p):
        """Value and first derivatives."""
        _, fx, fu = super().jacobians(x, u, t, p)
        fx[:, 1] = np.stack([np.zeros(len(x)), -1e4 * (1.0 - np.tanh(1e4 * x[:, 1]) ** 2)], axis=1)
        return self.f(x, u, t, p), fx, fu

    def hessian_contraction(self, x, u, t, p, lam):
        """First derivatives, and second ones of lam' f."""
        xx, size = np.zeros((len(x), 2, 2)), np.tanh(1e4 * x[:, 1])
        xx[:, 1, 1] = lam[:, 1] * 2e8 * size * (1.0 - size**2)
        return self.jacobians(x, u, t, p), (xx, np.zeros((len(x), 1, 2)), np.zeros((len(x), 1, 1)))


@pytest.mark.parametrize("own", [NoisyPendulum, MicroscopicPendulum, RubbingPendulum])
def test_correct_derivatives_of_noisy_and_of_steep_values_are_not_reported(own):
    ocp = to.OCP.single_phase(to.SampledSystem(own(), "rk4"), [0.5, 0.0], 5, 0.1, [to.control_cost(1)])
    assert not [f.message for f in to.validate(ocp) if "do not agree with its" in f.message]


class Tumbling:
    """User-defined backend of a body that turns about its main axes: attitude (SO(3)) and rates."""

    manifold, nu, sign = to.Manifold([to.SO3, to.vector_space(3)]), 3, 1.0

    def __init__(self):
        def rates(x, u, t, p):
            w = x[4:]
            up = 2.0 * (x[0] * x[2] - x[1] * x[3])  # of the body's first axis
            return [*w, u[0] - 0.5 * w[1] * w[2] - up, u[1] + 0.7 * w[0] * w[2], u[2] * x[3] - 0.3 * w[0] * w[1]]

        self._own = to.make_backend(to.FunctionMap(rates, self.manifold, 3), "forward_ad", engine="numpy")
        self.f, self.jacobians = self._own.f, self._own.jacobians

    def hessian_contraction(self, x, u, t, p, lam):
        """First derivatives, and second ones of lam' f."""
        first, (xx, ux, uu) = self._own.hessian_contraction(x, u, t, p, lam)
        return first, (self.sign * xx, ux, uu)


class WrongTumbling(Tumbling):
    """A wrong sign in second derivatives."""

    sign = -1.0


class WrongCurvedPendulum(CurvedPendulum):
    """A wrong sign in second derivatives."""

    def hessian_contraction(self, x, u, t, p, lam):
        """First derivatives, and second ones of lam' f."""
        return super().hessian_contraction(x, u, t, p, -lam)


class WrongUndefinedPendulum(CurvedPendulum):
    """Second derivatives that are NaN."""

    def hessian_contraction(self, x, u, t, p, lam):
        """First derivatives, and NaN."""
        return super().hessian_contraction(x, u, t, p, np.nan * lam)


@pytest.mark.parametrize("own", [CurvedPendulum, WrongCurvedPendulum, WrongUndefinedPendulum, Tumbling, WrongTumbling])
def test_second_derivatives_are_compared_with_differences_of_the_jacobians(own):
    backend = own()
    x0 = [0.5, 0.0] if isinstance(backend, Pendulum) else [0.1, 0.5, -0.3, np.sqrt(0.65), 1.0, -2.0, 0.5]
    dynamics = to.SampledSystem(backend, "rk4")
    ocp = to.OCP.single_phase(dynamics, x0, 5, 0.1, [to.control_cost(backend.nu)])
    wrong = [f.message for f in to.validate(ocp) if "do not agree with its Jacobians" in f.message]
    checks = list(to.check_derivatives(ocp))
    failed = [c.block for c in checks if not c.passed]
    assert not any("second derivatives" in c.entry for c in checks if c.left_out)
    assert failed == ["second"] * len(wrong) and len(wrong) == own.__name__.startswith("Wrong")
    assert all(message.endswith("correct its hessian_contraction") for message in wrong)


class OwnStep:
    """User-defined time steps of a pendulum, by semi-implicit Euler."""

    manifold, nu, control_names = to.Manifold.vector(2), 1, ("torque",)
    takes_time, sampling, contract = True, None, None

    def step(self, x, u, t, dt, p=None):
        """Next states."""
        v = x[:, 1] + dt * (u[:, 0] - 2.0 * np.sin(x[:, 0]))
        return np.stack([x[:, 0] + dt * v, v], axis=1)

    def linearize(self, x, u, t, dt, p=None):
        """Next states and their derivatives."""
        A, B = np.zeros((len(x), 2, 2)), np.zeros((len(x), 2, 1))
        A[:, 1, 0], A[:, 1, 1], B[:, 1, 0] = -2.0 * dt * np.cos(x[:, 0]), 1.0, dt
        A[:, 0], B[:, 0] = [1.0, 0.0] + dt[:, None] * A[:, 1], dt[:, None] * B[:, 1]
        return to.LinearizedStep(self.step(x, u, t, dt), A, B)


def changed_step(**changes):
    """OwnStep whose parts of a linearized step are changed by these functions."""

    class Changed(OwnStep):
        def linearize(self, x, u, t, dt, p=None):
            found = super().linearize(x, u, t, dt)
            return found._replace(**{key: change(getattr(found, key)) for key, change in changes.items()})

    return Changed()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (OwnStep(), None),
        (changed_step(x_next=lambda x: x + [0.0, 0.01]), "x[1] of x_next by linearize is not that of step"),
        (changed_step(A=lambda A: A * [[1.0, 1.0], [-1.0, 1.0]]), "differences of step: d(x[1] of x_next) / d(x[0])"),
        (
            changed_step(B=lambda B: 0.9 * B),
            "differences of step: d(x[1] of x_next) / d(torque), relative error 5.0e-02",
        ),
        (changed_step(A=lambda A: A[:, :1]), "linearize: A has shape (2, 1, 2); expected an array of shape (2, 2, 2)"),
        (changed_step(B=lambda B: B.tolist()), "linearize: B is a list; expected an array of shape (2, 2, 1)"),
        (changed_step(B=lambda B: 1 / 0), "ZeroDivisionError in line"),
    ],
)
def test_own_time_steps_are_compared_with_their_differences(step, expected):
    ocp = to.OCP.single_phase(step, [0.1, 0.0], 5, 0.1, [to.control_cost(1)])
    found = [f.message for f in to.validate(ocp) if f.message.startswith(f"time step {type(step).__name__}")]
    assert len(found) == (expected is not None) and all(expected in message for message in found)


class LongOrbit(OwnStep):
    """Time steps of a rocket far from its origin: the position in meters is 1e11."""

    def step(self, x, u, t, dt, p=None):
        """Next states."""
        return np.stack([x[:, 0] + dt * x[:, 1], x[:, 1] + dt * (u[:, 0] - 1e20 / x[:, 0] ** 2)], axis=1)

    def linearize(self, x, u, t, dt, p=None):
        """Next states and their derivatives."""
        A, B = np.tile(np.eye(2), (len(x), 1, 1)), np.zeros((len(x), 2, 1))
        A[:, 0, 1], A[:, 1, 0], B[:, 1, 0] = dt, 2e20 * dt / x[:, 0] ** 3, dt
        return to.LinearizedStep(self.step(x, u, t, dt), A, B)


def test_steps_of_large_states_are_not_called_wrong():
    ocp = to.OCP.single_phase(LongOrbit(), [1e11, 3e4], 5, 0.1, [to.control_cost(1)])
    assert not [f.message for f in to.validate(ocp) if "linearize" in f.message]


class SingleStep(OwnStep):
    """Time steps in single precision."""

    def step(self, x, u, t, dt, p=None):
        """Next states."""
        return super().step(*(np.float32(part) for part in (x, u, t, dt)))


class ReusingStep(OwnStep):
    """Wrong next states of ``linearize`` in an array that later calls of ``step`` overwrite."""

    memory = np.zeros((100, 2))

    def step(self, x, u, t, dt, p=None):
        """Next states."""
        self.memory[: len(x)] = super().step(x, u, t, dt)
        return self.memory[: len(x)]

    def linearize(self, x, u, t, dt, p=None):
        """Next states and their derivatives."""
        found = super().linearize(x, u, t, dt)
        found.x_next[:, 1] += 0.01
        return found


class MovingStep(OwnStep):
    """Time steps that write into the states that they are given."""

    def step(self, x, u, t, dt, p=None):
        """Next states."""
        x[:] = super().step(x, u, t, dt)
        return x


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([SingleStep()], []),
        ([ReusingStep()], ["x[1] of x_next by linearize is not that of step"]),
        ([MovingStep()], ["changes its argument x in place"]),
        ([changed_step(A=lambda A: 0.5 * A), changed_step()], ["differences of step"]),
    ],
)
def test_own_time_steps_may_be_rounded_and_are_all_checked(steps, expected):
    phases = tuple(to.Phase(step, np.full(5, 0.01), (to.control_cost(1),)) for step in steps)
    found = [f.message for f in to.validate(to.OCP(phases, [np.pi, 0.0])) if f.message.startswith("time step")]
    assert len(found) == len(expected) and all(part in message for part, message in zip(expected, found, strict=True))


class OwnPartials(to.FunctionMap):
    """The pendulum with ``partials``, whose slope of gravity is multiplied by ``factor``."""

    def __init__(self, factor):
        super().__init__(source, 2, 1, second_order=True)
        self.factor = factor

    def partials(self, x, u, t, p):
        """Value and rows of derivatives."""
        zero = 0.0 * x[0]
        slope = -2.0 * self.factor * to.cos(x[0]) if self.factor else 1.0 / self.factor
        fx = [to.stack([zero, zero + 1.0]), to.stack([slope, zero - 0.1])]
        return to.Partials(self(x, u, t, p), fx, [to.stack([zero]), to.stack([zero + 1.0])])


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.0, None),
        (
            0.9,
            "the partials of the system do not agree with its values: d(d x[1]/dt) / d(x[0]), relative error 1.0e-01",
        ),
        (0, "backend analytic raises ZeroDivisionError in line"),
    ],
)
def test_own_partials_are_compared_with_differences_of_the_values(factor, expected):
    messages = [f.message for f in to.validate(swing(to.make_backend(OwnPartials(factor), "analytic")))]
    found = [message for message in messages if "partials of" in message or "analytic raises" in message]
    assert len(found) == (expected is not None) and all(expected in message for message in found)


def test_own_partials_are_compared_with_free_durations_too():
    ocp = to.free_time(swing(to.make_backend(OwnPartials(0.9), "analytic")), (2.0, 4.0), 1.0).ocp
    assert len([f for f in to.validate(ocp) if "partials of the system do not agree" in f.message]) == 1
