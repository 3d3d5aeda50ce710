"""Distances of segments from boxes, cylinders, triangles: against samples of the segment, gradients against a complex step."""

import numpy as np
import pytest

from dynamics_backends.rigid_body.geometry.distances import (
    CONTACT,
    ROUND,
    segment_box,
    segment_cylinder,
    segment_triangle,
)
from dynamics_backends.rigid_body.spatial.spatial import Vec

HALF = np.array([0.3, 0.05, 0.2])
RADIUS, LENGTH = 0.08, 0.15
TRIANGLE = np.array([0.3, 0.1, 0.25])
CORNERS = np.array([[-0.3, 0.0, 0.0], [0.3, 0.0, 0.0], [0.1, 0.25, 0.0]])


def box(p, d):
    return segment_box(Vec(*p), Vec(*d), Vec(*HALF))


def cylinder(p, d):
    return segment_cylinder(Vec(*p), Vec(*d), Vec(*(s + 0.0 * p[0] for s in (RADIUS, LENGTH, 0.0))))


def triangle(p, d):
    return segment_triangle(Vec(*p), Vec(*d), Vec(*(s + 0.0 * p[0] for s in TRIANGLE)))


def from_triangle(P):
    """The least of the distances from the edges, and from the plane where the foot has barycentric coordinates above zero."""
    a, b, c = CORNERS
    second, third = np.linalg.lstsq(np.stack([b - a, c - a], axis=1), P - a[:, None], rcond=None)[0]
    inside = (second > 0) & (third > 0) & (second + third < 1)
    found = np.where(inside, np.abs(P[2]), np.inf)
    for x, y in ((a, b), (b, c), (c, a)):
        t = np.clip((y - x) @ (P - x[:, None]) / ((y - x) @ (y - x)), 0.0, 1.0)
        found = np.minimum(found, np.linalg.norm(P - x[:, None] - (y - x)[:, None] * t, axis=0))
    return found


def from_box(P):
    return np.linalg.norm(np.maximum(np.abs(P) - HALF[:, None], 0.0), axis=0)


def from_cylinder(P):
    return np.hypot(np.maximum(np.hypot(P[0], P[1]) - RADIUS, 0.0), np.maximum(np.abs(P[2]) - LENGTH, 0.0))


BODIES = pytest.mark.parametrize(
    ("distance", "exact"), [(box, from_box), (cylinder, from_cylinder), (triangle, from_triangle)]
)


def segments(count, length=0.3):
    rng = np.random.default_rng(1)
    d = rng.normal(size=(3, count))
    return rng.uniform(-0.6, 0.6, (3, count)), length * d / np.linalg.norm(d, axis=0)


@BODIES
def test_the_bound_is_below_the_distance_by_at_most_the_rounding(distance, exact):
    p, d = segments(4000)
    least = np.min([exact(p + t * d) for t in np.linspace(0.0, 1.0, 801)], axis=0)
    found = distance(p, d).distance
    away = least > 0.03
    assert away.sum() > 2000
    assert (found - least)[away].max() < 1e-12
    allowed = ROUND * 0.3**2 / 4.0
    assert (least**2 - found**2)[away].max() < allowed + 2e-5  # and the spacing of the samples


@BODIES
def test_the_nearest_point_is_where_the_distance_is_measured(distance, exact):
    p, d = segments(500)
    found = distance(p, d)
    away = found.distance > 0.05
    pull = np.stack([found.pull.x, found.pull.y, found.pull.z])
    np.testing.assert_allclose(np.linalg.norm(pull, axis=0)[away], exact(p + found.fraction * d)[away], atol=1e-12)


@BODIES
def test_the_gradient_agrees_with_a_complex_step(distance, exact):
    p, d = segments(300)
    found, h = distance(p, d), 1e-30
    out = found.distance > 0.01
    n = np.stack([found.normal.x, found.normal.y, found.normal.z])
    for i in range(3):
        step = np.zeros((3, 1), dtype=complex)
        step[i] = 1j * h
        slope = distance(p + step, d + 0j).distance.imag / h
        np.testing.assert_allclose(slope[out], n[i, out], atol=1e-9)


@pytest.mark.parametrize("distance", [box, cylinder])
def test_a_segment_inside_is_reported_by_its_depth(distance):
    p, d = np.array([[0.01], [0.0], [0.0]]), np.array([[0.0], [0.01], [0.0]])
    depth = distance(p, d).distance[0]
    assert depth < -0.04
    far = distance(p + [[1.0], [0.0], [0.0]], d)
    np.testing.assert_allclose(far.distance[0], 1.01 - (HALF[0] if distance is box else RADIUS), atol=1e-3)
    assert far.distance[0] > CONTACT


def test_the_depth_of_a_segment_in_a_triangle_is_its_shortest_exit():
    p, d = np.array([[0.05], [0.1], [-0.02]]), np.array([[0.0], [0.0], [0.3]])
    found = triangle(p, d)
    assert found.distance[0] == pytest.approx(-0.02) and found.normal.z[0] == 1.0 and found.fraction[0] == 0.0
    edge = triangle(np.array([[0.05], [0.015], [-0.3]]), np.array([[0.0], [0.0], [0.6]]))
    assert edge.distance[0] == pytest.approx(-0.015) and edge.normal.y[0] == -1.0


def test_the_gradient_is_continuous_where_the_nearest_end_changes():
    """A segment above a face turns through the position parallel to it."""
    angles = np.linspace(-0.05, 0.05, 401)
    d = 0.2 * np.stack([np.cos(angles), np.zeros_like(angles), np.sin(angles)])
    p = np.array([[0.0], [0.0], [0.3]]) - 0.5 * d
    fraction = box(p, d).fraction
    assert fraction[0] == 1.0 and fraction[-1] == 0.0
    assert np.abs(np.diff(fraction)).max() < 0.05


def test_a_point_and_a_sphere():
    """A box without edges, and a segment without length."""
    p, zero = np.array([[0.3], [0.4], [0.0]]), np.zeros((3, 1))
    found = segment_box(Vec(*p), Vec(*zero), Vec(*zero))
    np.testing.assert_allclose(found.distance, 0.5, atol=1e-12)
    np.testing.assert_allclose([found.normal.x[0], found.normal.y[0]], [0.6, 0.8], atol=1e-12)
