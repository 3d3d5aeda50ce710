"""URDF of a planar arm with two links of 0.5 m and boxes as collision shapes."""

LINK = """<link name="{name}"><inertial><origin xyz="0.25 0 0"/><mass value="2"/>
<inertia ixx="0.05" iyy="0.05" izz="0.05" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><origin xyz="0.25 0 0"/><geometry><box size="0.5 0.04 0.04"/></geometry></collision></link>"""
JOINT = """<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><origin xyz="{x} 0 0"/>
<axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="{effort}" velocity="{velocity}"/></joint>"""


def two_link_arm(effort: float, velocity: float) -> str:
    """The URDF, with limits of torques [N m] and of joint rates [rad/s]."""
    limits = {"effort": effort, "velocity": velocity}
    parts = [
        LINK.format(name="l1"),
        LINK.format(name="l2"),
        JOINT.format(name="j1", parent="ground", child="l1", x=0, **limits),
        JOINT.format(name="j2", parent="l1", child="l2", x=0.5, **limits),
    ]
    return f'<robot name="arm"><link name="ground"/>{"".join(parts)}</robot>'
