"""Assignment of pairs to slots, compared with a direct implementation of its description."""

import numpy as np
import pytest

from trajopt.collisions.choice import FAR, FARTHER, SPREAD, chosen_pairs

REACH = 0.5
PIECE, CORE = np.array([1, 3, 4]), np.array([0, 2, 5, 6])


def by_words(gaps, coarse, slots):
    """Return (piece, core) of each slot at one configuration: gaps (pieces, cores), coarse (cores,) or None."""
    costs = []
    for j, column in enumerate(gaps.T):
        least = min(column) if coarse is None else min(*column, coarse[j])
        if coarse is not None and coarse[j] > FAR:
            costs.append((least, len(column), j, least))
            continue
        step = SPREAD + FARTHER * np.clip(min(column), 0.0, REACH)
        for rank, i in enumerate(sorted(range(len(column)), key=lambda i, column=column: column[i])):
            costs.append((column[i] + rank * step if slots > 1 else column[i], i, j, column[i]))
    best = sorted(costs)[:slots]
    return {(slot, i, j) for slot, (_, i, j, gap) in enumerate(best) if gap < REACH}


@pytest.mark.parametrize("slots", [1, 2, 5, 20])
@pytest.mark.parametrize("has_coarse", [True, False])
def test_each_body_gets_a_slot_first(slots, has_coarse):
    rng = np.random.default_rng(slots)
    gaps = rng.uniform(-0.1, 0.9, (30, 6, 7))
    coarse = gaps.min(axis=1, keepdims=True).repeat(2, axis=1) - rng.uniform(0.0, 0.3, (30, 2, 7))
    found = chosen_pairs(gaps, coarse if has_coarse else None, 1, PIECE, CORE, slots, REACH)
    for m in range(30):
        own = found.knot == m
        pairs = set(zip(found.slot[own].tolist(), found.piece[own].tolist(), found.core[own].tolist(), strict=True))
        assert pairs == by_words(gaps[m][np.ix_(PIECE, CORE)], coarse[m, 1, CORE] if has_coarse else None, slots)
    assert slots > 12 or len(found.knot) > 20
