"""Identities of mechanics on random trees of mixed joints, fixed and floating, with rotors and without."""

from functools import cache

import dense_dynamics as dense
import numpy as np
import pytest
from rigid_body_cases import error, state

from dynamics_backends.rigid_body import batched as rb
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.rnea import nonlinear_effects
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, Model
from dynamics_backends.rigid_body.model.sample_models import random_tree

SEEDS = range(50)
TOLERANCE = 1e-10
STEP = dense.STEP
VECTOR_JOINTS = ("revolute", "prismatic", "helical")
each_seed = pytest.mark.parametrize("seed", SEEDS)


@cache
def model_of(seed: int) -> Model:
    """A tree of 5 to 8 bodies; every second one floats, every third one has rotors."""
    rng = np.random.default_rng(seed)
    model = random_tree(rng, 5 + seed % 4, floating_base=seed % 2 == 1)
    rotors = rng.uniform(0.01, 0.2, model.nv) if seed % 3 == 0 else np.zeros(model.nv)
    return model.replace(armature=rotors)


def point(seed: int) -> tuple[Model, np.ndarray, np.ndarray, np.ndarray]:
    """The model, q (nq,), v (nv,) and a or tau (nv,)."""
    model = model_of(seed)
    q, v, a = state(model, seed, 1)
    return model, q[0], v[0], a[0]


def column(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Vectors as rows with N = 1."""
    return tuple(a[:, None] for a in arrays)


def mass_matrix(model: Model):
    return lambda q: crba(model, q[:, None])[:, :, 0]


def test_all_joint_types_and_both_bases_occur():
    models = [model_of(seed) for seed in SEEDS]
    assert {kind for m in models for kind in m.joint_types} == set(JOINT_TYPES)
    assert sum(m.floating_base for m in models) >= 25 and sum(bool(np.any(m.armature)) for m in models) > 10


@each_seed
def test_inverse_dynamics_undoes_forward_dynamics(seed):
    model, q, v, tau = point(seed)
    a = rb.forward_dynamics(model, q, v, tau)
    assert error(rb.inverse_dynamics(model, q, v, a), tau) < TOLERANCE
    assert error(rb.forward_dynamics(model, q, v, rb.inverse_dynamics(model, q, v, tau)), tau) < TOLERANCE


@each_seed
def test_the_mass_matrix_is_symmetric_positive_definite(seed):
    model, q, v, a = point(seed)
    M = rb.mass_matrix(model, q)
    assert error(M, M.T) < 1e-15 and np.linalg.eigvalsh(M)[0] > 0
    assert error(M @ a, rb.inverse_dynamics(model, q, v, a) - rb.nonlinear_effects(model, q, v)) < TOLERANCE
    assert 0.5 * v @ M @ v == pytest.approx(rb.energy(model, q, v)[0], rel=TOLERANCE)


def coriolis_force(model: Model, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """C(q, v) v."""
    still = model.with_gravity((0.0, 0.0, 0.0))
    return rb.nonlinear_effects(still, q, v)


@each_seed
def test_the_rate_of_the_mass_matrix_balances_the_coriolis_force(seed):
    """v' (Mdot - 2 C) v = 0."""
    model, q, v, _ = point(seed)
    rate = dense.along(mass_matrix(model), model, q, v)
    assert error(2.0 * v @ coriolis_force(model, q, v), v @ rate @ v, at_least=np.abs(rate).max() * (v @ v)) < TOLERANCE


@each_seed
def test_mdot_minus_2c_is_skew(seed):
    """Joints with one DoF: C from the derivative of the Coriolis force, half of it, is the matrix of Christoffel symbols."""
    model = random_tree(seed, 5 + seed % 4, joints=VECTOR_JOINTS)
    q, v, _ = (x[0] for x in state(model, seed, 1))
    dM = dense.configuration_derivative(mass_matrix(model), model, q)
    christoffel = 0.5 * np.einsum("abc,c->ab", dM + dM.transpose(0, 2, 1) - dM.transpose(2, 1, 0), v)
    C = 0.5 * rb.inverse_dynamics_derivatives(model, q, v, 0 * v)[1]
    scale = np.abs(rb.mass_matrix(model, q)).max() * np.abs(v).max() / 1000
    assert scale < np.abs(C).max()  # there is something to be skew
    assert error(C, christoffel) < TOLERANCE
    assert error(C @ v, coriolis_force(model, q, v)) < TOLERANCE
    rate = dense.along(mass_matrix(model), model, q, v)
    difference = rate - 2.0 * C
    assert error(difference, -difference.T, at_least=np.abs(C).max()) < TOLERANCE


@each_seed
def test_power_is_the_rate_of_energy(seed):
    """Along the solution, by complex step through kinetic and potential energy."""
    model, q, v, tau = point(seed)
    a = rb.forward_dynamics(model, q, v, tau)
    later = column(dense.moved(model, q, 1j * STEP * v), v + 1j * STEP * a)
    kinetic = kinematics.kinetic_energy(model, *later)[0].imag / STEP
    potential = kinematics.potential_energy(model, later[0])[0].imag / STEP
    scale = abs(kinetic) + abs(potential)
    assert error(kinetic + potential, tau @ v, at_least=scale) < TOLERANCE


@each_seed
def test_momentum_is_conserved_without_gravity(seed):
    """Floating trees that nothing pushes: the dense oracle's momentum about the world's origin, along the solution."""
    model = random_tree(seed, 5 + seed % 4, floating_base=True).with_gravity((0.0, 0.0, 0.0))
    q, v, tau = (x[0] for x in state(model, seed, 1))
    tau[:6] = 0.0
    a = rb.forward_dynamics(model, q, v, tau)
    rate = np.imag(dense.momentum(model, dense.moved(model, q, 1j * STEP * v), v + 1j * STEP * a)) / STEP
    forces = np.abs(dense.momentum(model, q, a)).max()  # what the accelerations alone would change
    assert np.abs(rate).max() < TOLERANCE * forces
    library = kinematics.spatial_momentum(model, *column(dense.moved(model, q, 1j * STEP * v), v + 1j * STEP * a))
    assert np.abs(library.imag / STEP).max() < TOLERANCE * forces


@each_seed
def test_gravity_is_the_gradient_of_potential_energy(seed):
    model, q, v, _ = point(seed)

    def potential(x):
        return kinematics.potential_energy(model, x[:, None])[0]

    assert error(rb.nonlinear_effects(model, q, 0 * v), dense.configuration_derivative(potential, model, q)) < TOLERANCE


@each_seed
def test_the_coriolis_force_is_quadratic_in_velocity(seed):
    """Homogeneous of degree two: by Euler's theorem its derivative along v is twice itself."""
    model, q, v, _ = point(seed)
    still = model.with_gravity((0.0, 0.0, 0.0))
    slope = nonlinear_effects(still, *column(q, v * (1 + 1j * STEP)))[:, 0].imag / STEP
    assert error(slope, 2.0 * coriolis_force(model, q, v)) < TOLERANCE


@each_seed
def test_accelerations_are_affine_in_forces_with_slope_the_inverse_of_m(seed):
    model, q, v, tau = point(seed)
    slope = aba(model, *column(q, v, tau * (1 + 1j * STEP)))[:, 0].imag / STEP
    assert error(rb.mass_matrix(model, q) @ slope, tau) < TOLERANCE
    assert error(rb.solve_mass_matrix(model, q, tau), slope) < TOLERANCE
