"""Pairs of robot bodies that may collide. Excluded: neighbors, pairs that overlap in almost every configuration, and pairs that
overlap in no sampled configuration.

A pair contains two bodies of one chain, -1 for the ground, the body nearer to the ground first. Bodies of different branches,
such as two arms, are not paired.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from dynamics_backends.rigid_body.geometry.covers import RobotCover
from dynamics_backends.rigid_body.geometry.scene import Scene
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.free_space import TruePieces

SAMPLES = 200
ALWAYS = 0.95
"""A pair whose capsules overlap in this fraction of random configurations counts as always touching."""


class SelfPairs(NamedTuple):
    """Pairs of a robot. pairs: bodies that may collide. left_out: the excluded pairs with the reason, as text. disabled: excluded
    pairs of links of bodies in ``pairs``."""

    pairs: tuple[tuple[int, int], ...]
    left_out: str
    disabled: frozenset[frozenset[str]] = frozenset()


def self_pairs(robot: RobotCover, seed: int = 0) -> SelfPairs:
    """Find the pairs of a robot by sampling random configurations within its joint limits."""
    model = robot.model
    candidates = [pair for pair in _on_chains(robot) if not _neighbors(model.parent, pair)]
    neighbors = [pair for pair in _on_chains(robot) if _neighbors(model.parent, pair)]
    rng = np.random.default_rng(seed)
    lower, upper = (np.where(np.isfinite(b), b, s * np.pi) for b, s in ((model.q_lower, -1.0), (model.q_upper, 1.0)))
    qs = rng.uniform(lower, upper, (SAMPLES, model.nq))
    checked = CollisionPairs(robot, Scene(), tuple(candidates))
    gaps = checked.gaps(qs, np.zeros(SAMPLES))
    bases = robot.bodies[list(checked.self_pieces)]
    exact = find_spec("coal") is not None
    true = TruePieces(checked, qs, np.zeros(SAMPLES)) if exact else None
    pairs: list[tuple[int, int]] = []
    always: list[tuple[int, int]] = []
    never: list[tuple[int, int]] = []
    for near, far in candidates:
        pieces, others = np.flatnonzero(robot.bodies == far), np.flatnonzero(bases == near)
        overlap = gaps[:, pieces][:, :, others] < 0.0
        touching = np.array(overlap.any(axis=(1, 2)))
        if true is not None:
            for k in np.flatnonzero(touching):
                close = np.argwhere(overlap[k])
                touching[k] = any(true.distance(int(k), int(pieces[i]), int(others[o])) < 0.0 for i, o in close)
        kind = always if touching.mean() > ALWAYS else pairs if touching.any() else never
        kind.append((near, far))
    kinds = {"neighbors": neighbors, "always touching": always, "never touching": never}
    text = "; ".join(f"{name}: {_named(robot, found) or 'none'}" for name, found in kinds.items())
    return SelfPairs(tuple(pairs), text)


def pairs_not_disabled(robot: RobotCover, disabled: Iterable[tuple[str, str, str]]) -> SelfPairs:
    """Return the pairs of a robot that an SRDF does not disable. disabled: rows (link, link, reason)."""
    left_out = frozenset(frozenset(pair[:2]) for pair in disabled)
    links: dict[int, set[str]] = {}
    for link, body in zip(robot.links, robot.bodies.tolist(), strict=True):
        links.setdefault(body, set()).add(link)
    enabled = [
        (near, far)
        for near, far in _on_chains(robot)
        if any(frozenset((a, b)) not in left_out for a in links[near] for b in links[far])
    ]
    words = ", ".join(sorted(" and ".join(sorted(pair)) for pair in left_out))
    return SelfPairs(tuple(enabled), f"disabled: {words or 'none'}", left_out)


def _on_chains(robot: RobotCover) -> list[tuple[int, int]]:
    """Return the pairs of bodies with shapes, of which one is an ancestor of the other."""
    found = []
    for far in robot.carried:
        near = far
        while near >= 0:
            near = int(robot.model.parent[near])
            if near in robot.carried:
                found.append((near, far))
    return sorted(found)


def _neighbors(parent: np.ndarray, pair: tuple[int, int]) -> bool:
    return int(parent[pair[1]]) == pair[0]


def _named(robot: RobotCover, pairs: Iterable[tuple[int, int]]) -> str:
    names = robot.model.body_names
    fixed = dict.fromkeys(link for link, body in zip(robot.links, robot.bodies.tolist(), strict=True) if body < 0)
    base = " with ".join(fixed)
    return ", ".join(f"{base if near < 0 else names[near]} and {names[far]}" for near, far in pairs)
