"""Crocoddyl's part of the benchmark: a script for a separate environment, without imports from this project.

    python crocoddyl_side.py RESULT.npz < problem.json > results.json

The script builds the problem of the JSON text (format: :mod:`crocoddyl_problems`). It solves the problem by FDDP to
``tight`` for the optimum, and ``repeats`` times to ``tolerance`` for the times, on one thread. With ``many``, a list of
changes of the problem, it solves each changed problem once to ``tolerance``, and prints costs, iterations and solve
times. With ``guesses``, a list of states and controls, it solves the problem from each of them and saves the controls "us" in the
result file.
"""

import json
import sys
import time

import crocoddyl
import example_robot_data
import numpy as np
import pinocchio as pin


def cost(state, residual, weight, activation=None):
    activation = activation or crocoddyl.ActivationModelQuad(residual.nr)
    return crocoddyl.CostModelResidual(state, activation, residual), weight


def cost_sum(state, nu, terms):
    total = crocoddyl.CostModelSum(state, nu)
    for i, (model, weight) in enumerate(terms):
        total.addCost(f"{i}", model, weight)
    return total


class Joints:
    """Indices of named joints in Pinocchio's model. free: True for a floating base."""

    def __init__(self, model, names):
        self.model = model
        self.free = model.joints[1].shortname() == "JointModelFreeFlyer"
        self.joints = [model.joints[model.getJointId(name)] for name in names]
        self.places = np.array([joint.idx_v for joint in self.joints])

    def q(self, values):
        """Convert a configuration (base, joints) to Pinocchio's order."""
        q, base = pin.neutral(self.model), 7 if self.free else 0
        q[:base] = values[:base]
        for joint, value in zip(self.joints, values[base:], strict=True):
            q[joint.idx_q : joint.idx_q + joint.nq] = value if joint.nq == 1 else [np.cos(value), np.sin(value)]
        return q

    def v(self, values):
        """Convert a velocity vector to Pinocchio's order."""
        values, base = np.asarray(values), 6 if self.free else 0
        v = np.zeros(self.model.nv)
        v[:base], v[self.places] = values[:base], values[base:]
        return v

    def tangent(self, values):
        """Convert a tangent vector (dq, v) to Pinocchio's order."""
        half = len(values) // 2
        return np.concatenate([self.v(values[:half]), self.v(values[half:])])

    def state(self, values):
        nq = len(self.joints) + (7 if self.free else 0)
        return np.concatenate([self.q(values[:nq]), self.v(values[nq:])])

    def controls(self, us):
        """Convert controls from Pinocchio's order to ours."""
        return np.asarray(us)[:, self.places - (6 if self.free else 0)]


def unicycle(p):
    model = crocoddyl.ActionModelUnicycle()
    model.dt, model.costWeights = p["dt"], np.array(p["weights"])
    problem = crocoddyl.ShootingProblem(np.array(p["x0"]), [model] * p["horizon"], model)
    return problem, lambda us: us


def arm(p):
    model = example_robot_data.load(p["robot"]).model
    joints, state = Joints(model, p["joints"]), crocoddyl.StateMultibody(model)
    actuation, nu = crocoddyl.ActuationModelFull(state), model.nv
    goal = pin.SE3(np.eye(3), np.array(p["goal"]))
    place = crocoddyl.ResidualModelFramePlacement(state, model.getFrameId(p["frame"]), goal, nu)
    x0 = joints.state(p["x0"])
    still, effort = crocoddyl.ResidualModelState(state, x0, nu), crocoddyl.ResidualModelControl(state, nu)
    w = p["weights"]
    running = [cost(state, place, w["goal"]), cost(state, still, w["state"]), cost(state, effort, w["control"])]
    models = [
        crocoddyl.IntegratedActionModelEuler(
            crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, cost_sum(state, nu, terms)), dt
        )
        for terms, dt in ((running, p["dt"]), ([cost(state, place, w["terminal"])], 0.0))
    ]
    return crocoddyl.ShootingProblem(x0, [models[0]] * p["horizon"], models[1]), joints.controls


def tool(p):
    """Arm of a URDF file that moves a tool to a position at rest."""
    model = pin.buildModelFromUrdf(p["urdf"])
    q = pin.neutral(model)
    for name, value in p["locked"].items():
        joint = model.joints[model.getJointId(name)]
        q[joint.idx_q : joint.idx_q + joint.nq] = value if joint.nq == 1 else [np.cos(value), np.sin(value)]
    model = pin.buildReducedModel(model, [model.getJointId(name) for name in p["locked"]], q)
    joints, state = Joints(model, p["joints"]), crocoddyl.StateMultibody(model)
    actuation, nu, w = crocoddyl.ActuationModelFull(state), model.nv, p["terminal"]
    frame = model.getFrameId(p["frame"], pin.FrameType.BODY)
    x0 = joints.state(p["x0"])
    still, effort = crocoddyl.ResidualModelState(state, x0, nu), crocoddyl.ResidualModelControl(state, nu)
    place = crocoddyl.ResidualModelFrameTranslation(state, frame, np.array(p["goal"]), nu)
    rest = crocoddyl.ResidualModelFrameVelocity(state, frame, pin.Motion.Zero(), pin.LOCAL_WORLD_ALIGNED, nu)
    weighted = crocoddyl.ActivationModelWeightedQuad
    running = [
        cost(state, still, 1.0, weighted(joints.tangent(p["state"]))),
        cost(state, effort, 1.0, weighted(joints.v(p["control"]))),
    ]
    terminal = [cost(state, still, w["state"]), cost(state, place, w["goal"]), cost(state, rest, w["rest"])]
    models = [
        crocoddyl.IntegratedActionModelEuler(
            crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, cost_sum(state, nu, terms)), dt
        )
        for terms, dt in ((running, p["dt"]), (terminal, 0.0))
    ]
    if p["limits"] is not None:
        models[0].u_ub = joints.v(p["limits"])
        models[0].u_lb = -models[0].u_ub
    return crocoddyl.ShootingProblem(x0, [models[0]] * p["horizon"], models[1]), joints


def trot(p):
    model = example_robot_data.load(p["robot"]).model
    joints, state = Joints(model, p["joints"]), crocoddyl.StateMultibody(model)
    actuation, nu = crocoddyl.ActuationModelFloatingBase(state), model.nv - 6
    posture = joints.state(p["x0"])
    w = p["weights"]

    def regular(weights, nu):
        activation = crocoddyl.ActivationModelWeightedQuad(joints.tangent(weights))
        return cost(state, crocoddyl.ResidualModelState(state, posture, nu), 1.0, activation)

    def feet(k, nu):
        for frame, goal in k["feet"].items():
            at = crocoddyl.ResidualModelFrameTranslation(state, model.getFrameId(frame), np.array(goal), nu)
            yield cost(state, at, k["foot_weight"])

    def impact(k):
        impulses = crocoddyl.ImpulseModelMultiple(state)
        for frame in k["lands"]:
            impulses.addImpulse(
                frame, crocoddyl.ImpulseModel3D(state, model.getFrameId(frame), pin.LOCAL_WORLD_ALIGNED)
            )
        terms = [*feet(k, 0), regular(w["impact"], 0)]
        return crocoddyl.ActionModelImpulseFwdDynamics(state, impulses, cost_sum(state, 0, terms))

    def step(k):
        contacts, terms = crocoddyl.ContactModelMultiple(state, nu), [*feet(k, nu), regular(w["state"], nu)]
        terms.append(cost(state, crocoddyl.ResidualModelControl(state, nu), w["control"]))
        if k["center"] is not None:
            center = crocoddyl.ResidualModelCoMPosition(state, np.array(k["center"]), nu)
            terms.append(cost(state, center, w["center"]))
        for frame in k["stance"]:
            of, cone = model.getFrameId(frame), crocoddyl.FrictionCone(np.eye(3), p["friction"], 4, False)
            contacts.addContact(
                frame,
                crocoddyl.ContactModel3D(
                    state, of, np.zeros(3), pin.LOCAL_WORLD_ALIGNED, nu, np.array([0.0, p["gain"]])
                ),
            )
            activation = crocoddyl.ActivationModelQuadraticBarrier(crocoddyl.ActivationBounds(cone.lb, cone.ub))
            residual = crocoddyl.ResidualModelContactFrictionCone(state, of, cone, nu, True)
            terms.append(cost(state, residual, w["cone"], activation))
        dynamics = crocoddyl.DifferentialActionModelContactFwdDynamics(
            state, actuation, contacts, cost_sum(state, nu, terms), 0.0, True
        )
        return crocoddyl.IntegratedActionModelEuler(dynamics, p["dt"])

    models = [impact(k) if "lands" in k else step(k) for k in p["knots"]]
    problem = crocoddyl.ShootingProblem(posture, models, step(p["end"]))

    def controls(us):
        return np.stack([joints.controls(u[None])[0] if len(u) else np.zeros(nu) for u in us])

    return problem, controls


def start(problem, p):
    """Return states and controls of the guess; empty lists for Crocoddyl's default, zeros."""
    if not p["still"]:
        return [], []
    xs = [problem.x0] * (problem.T + 1)
    return xs, list(problem.quasiStatic(xs[:-1]))


def solve_many(build, p):
    """Solve each changed problem once and print the results."""
    costs, iterations, wall, processor = [], [], 0.0, 0.0
    for changes in p["many"]:
        problem, _ = build(p | changes)
        problem.nthreads = 1
        solver = crocoddyl.SolverFDDP(problem)
        solver.th_stop = p["tolerance"]
        began = time.perf_counter(), time.process_time()
        solver.solve(*start(problem, p), p["max_iterations"], False)
        wall += time.perf_counter() - began[0]
        processor += time.process_time() - began[1]
        costs.append(solver.cost)
        iterations.append(solver.iter + 1)
    results = {"costs": costs, "iterations": iterations, "wall": wall, "processor": processor}
    json.dump(results, sys.stdout)


def solve_guesses(p):
    """Solve a problem of kind "tool" from each guess and save the controls."""
    problem, joints = tool(p)
    problem.nthreads = 1
    solver = (crocoddyl.SolverFDDP if p["limits"] is None else crocoddyl.SolverBoxFDDP)(problem)
    us = []
    for guess in p["guesses"]:
        xs = [problem.x0, *(joints.state(x) for x in guess["xs"][1:])]
        solver.solve(xs, [joints.v(u) for u in guess["us"]], p["max_iterations"], False)
        us.append(joints.controls(solver.us))
    np.savez(sys.argv[1], us=us)
    json.dump({"version": crocoddyl.__version__}, sys.stdout)


def main():
    p = json.load(sys.stdin)
    if "guesses" in p:
        solve_guesses(p)
        return
    build = {"unicycle": unicycle, "arm": arm, "trot": trot}[p["kind"]]
    if "many" in p:
        solve_many(build, p)
        return
    problem, controls = build(p)
    problem.nthreads = 1
    xs, us = start(problem, p)

    def solve(tolerance):
        solver = crocoddyl.SolverFDDP(problem)
        solver.th_stop = tolerance
        began = time.process_time()
        solver.solve(xs, us, p["max_iterations"], False)
        return solver, 1e3 * (time.process_time() - began)

    best = solve(p["tight"])[0]
    controls_of_best, optimum = controls(best.us), best.cost
    runs = [solve(p["tolerance"]) for _ in range(p["repeats"])]
    last = runs[-1][0]
    np.savez(sys.argv[1], us=controls_of_best, guess=controls(us) if len(us) else np.zeros((0, 0)))
    results = {"version": crocoddyl.__version__, "optimum": optimum, "cost": last.cost}
    results["iterations"] = last.iter + 1  # counts from zero, and stops after a step
    json.dump({**results, "stop": last.stop, "ms": [ms for _, ms in runs]}, sys.stdout)


main()
