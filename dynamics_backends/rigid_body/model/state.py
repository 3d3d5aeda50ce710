"""Manifolds of a robot's configuration and state."""

from __future__ import annotations

from dynamics_backends.manifold import SE2, SE3, SO2, SO3, LieGroup, Manifold, vector_space
from dynamics_backends.rigid_body.model.model import Model

GROUPS = {"spherical": SO3, "planar": SE2, "floating": SE3}


def configuration_groups(model: Model) -> list[LieGroup]:
    """Lie groups of q in order; consecutive single-DoF joints form one vector space, except circular joints."""
    groups: list[LieGroup] = []
    for joint, joint_type in zip(model.joint_names, model.joint_types, strict=True):
        group = SO2 if joint in model.circular else GROUPS.get(joint_type)
        if group is not None:
            groups.append(group)
        elif groups and groups[-1].is_vector_space:
            groups[-1] = vector_space(groups[-1].nq + 1)
        else:
            groups.append(vector_space(1))
    return groups


def configuration_manifold(model: Model) -> Manifold:
    """Manifold of q."""
    return Manifold(configuration_groups(model), [f"q[{n}]" for n in model.dof_names])


def state_manifold(model: Model) -> Manifold:
    """Manifold of x = (q, v)."""
    names = [f"q[{n}]" for n in model.dof_names] + [f"v[{n}]" for n in model.dof_names]
    return Manifold([*configuration_groups(model), vector_space(model.nv)], names)
