"""Bundled robots: URDF files, loaded by :mod:`dynamics_backends.rigid_body.robots`, and models built in code."""

from dynamics_backends.rigid_body.robots import (
    ERD_PACKAGE as ERD_PACKAGE,
    ERD_PREFIX as ERD_PREFIX,
    FILES as FILES,
    erd_names as erd_names,
    is_path as is_path,
    load_robot as load_robot,
    robot_names as robot_names,
    robot_path as robot_path,
)
