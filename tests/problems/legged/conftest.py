"""Robots shared by several test modules."""

from __future__ import annotations

import pytest
from contact_cases import small_hyq_file


@pytest.fixture(scope="session")
def small_hyq(tmp_path_factory) -> str:
    """Return a file of HyQ, scaled to another size."""
    return small_hyq_file(tmp_path_factory.mktemp("robots") / "small.urdf")
