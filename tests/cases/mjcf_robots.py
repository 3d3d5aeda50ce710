"""MJCF robots that cover all supported joints, placements, and joint forces."""

WALKER = """
<mujoco model="walker">
  <compiler angle="radian" autolimits="true"/>
  <option gravity="0.3 -0.2 -9.7"/>
  <default>
    <joint damping="0.4" armature="0.02"/>
    <geom density="700" friction="0.8 0.02 0.001"/>
  </default>
  <worldbody>
    <light pos="0 0 3"/>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="pillar" pos="2 0 0"><geom name="post" type="cylinder" size="0.1 0.5" euler="0.3 0 0"/></body>
    <body name="trunk" pos="0 0 0.6" quat="0.9 0.1 -0.2 0.3">
      <freejoint name="root"/>
      <geom name="box" type="box" size="0.3 0.15 0.1" pos="0.02 0 0.01"/>
      <site name="imu" pos="0.1 0.02 0.03" euler="0.2 0.1 0"/>
      <body name="thigh" pos="0.25 0.1 -0.05" euler="0.1 0.2 0.3">
        <joint name="hip_x" axis="1 0 0" range="-1 1.2"/>
        <joint name="hip_y" axis="0.1 1 0.2" ref="0.4" pos="0.01 0.02 -0.03" stiffness="12" springref="0.2"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.04"/>
        <body name="shank" pos="0 0 -0.25">
          <joint name="knee" type="hinge" axis="0 1 0" pos="0 0 0.02" ref="-0.3" frictionloss="0.5"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.03"/>
          <body name="sole" pos="0 0 -0.25"><geom name="ball" size="0.04"/></body>
        </body>
      </body>
      <body name="arm" pos="-0.2 0 0.1" euler="0 0.5 0">
        <joint name="shoulder" type="ball" pos="0.02 -0.01 0.03" damping="0.1"/>
        <geom type="ellipsoid" size="0.05 0.06 0.2" pos="0 0 0.2"/>
        <body name="rod" pos="0 0 0.4">
          <joint name="reach" type="slide" axis="0.2 0 1" ref="0.05" stiffness="30" springref="0.02" range="-0.2 0.3"/>
          <joint name="twist" axis="0 0 1"/>
          <geom type="box" size="0.02 0.03 0.15" pos="0 0.01 0.1"/>
        </body>
      </body>
    </body>
    <body name="ball" pos="1 0 0.5"><joint name="rolls" type="free" damping="0.2" armature="0"/><geom name="toy" size="0.1"/></body>
    <body pos="0 1 1"><joint axis="0 0 1"/><joint type="slide" axis="1 0 0"/><geom type="box" size="0.1 0.2 0.3"/></body>
  </worldbody>
  <actuator>
    <motor name="m" joint="hip_x" gear="50" ctrlrange="-2 1"/>
    <position joint="knee" kp="80" kv="3" gear="2" forcerange="-20 20"/>
    <motor joint="shoulder" gear="1 0 0"/>
  </actuator>
  <sensor><gyro site="imu"/></sensor>
</mujoco>
"""

TIED = """
<mujoco model="tied">
  <compiler angle="radian"/>
  <option gravity="0 0 -9.81"/>
  <worldbody>
    <body name="a" pos="0 0 1">
      <joint name="a1" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03"/>
      <body name="b" pos="0.4 0 0">
        <joint name="b1" axis="0 1 0"/><joint name="b2" axis="0 0 1"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      </body>
    </body>
    <body name="c" pos="0.7 0.5 1">
      <joint name="c1" type="ball"/>
      <geom type="capsule" fromto="0 0 0 0 -0.5 0" size="0.03"/>
      <body name="d" pos="0 -0.5 0">
        <joint name="d1" axis="0 1 0" ref="0.2"/><joint name="d2" type="slide" axis="1 0 0"/>
        <geom type="box" size="0.1 0.05 0.05" pos="0.1 0 0"/>
      </body>
    </body>
    <body name="e" pos="0 2 1"><freejoint name="e1"/><geom type="box" size="0.1 0.2 0.1"/></body>
  </worldbody>
  {equality}
</mujoco>
"""
EQUALITIES = {
    "connect": '<connect body1="b" body2="d" anchor="0.3 0 0"/>',
    "connect to the world": '<connect body1="b" anchor="0.3 0.01 0.02"/>',
    "weld": '<weld body1="e" body2="d"/>',
    "weld with a pose": '<weld body1="d" body2="e" relpose="0.1 0.2 0.3 0.8 0.6 0 0" anchor="0.05 0.02 0"/>',
    "weld to the world": '<weld body1="e"/>',
    "joint": '<joint joint1="b1" joint2="d1" polycoef="0.1 -1.5 0 0 0"/>',
    "tendon": '</equality><tendon><fixed name="t"><joint joint="d1" coef="0.5"/><joint joint="b1" coef="2"/></fixed></tendon>'
    '<equality><tendon tendon1="t" polycoef="0.1 0 0 0 0"/>',
    "joint alone": '<joint joint1="b1" polycoef="0.1 0 0 0 0"/>',
}


def tied(equality: str) -> str:
    """The robot with one of EQUALITIES."""
    return TIED.format(equality=f"<equality>{EQUALITIES[equality]}</equality>")


ARM = """
<mujoco model="arm">
  <compiler angle="radian" autolimits="true"/>
  <worldbody>
    <geom name="table" type="box" size="0.3 0.3 0.05" pos="0.6 0 -0.1"/>
    <body name="stand">
      <geom type="cylinder" size="0.05 0.02"/>
      <body name="upper" pos="0 0 0.1">
        <joint name="turn" axis="0 0 1" range="-2 2" damping="0.1"/><joint name="lift" axis="0 1 0" range="-2 2" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0.05 0 0 0.25" size="0.03"/>
        <body name="lower" pos="0 0 0.3">
          <joint name="bend" axis="0 1 0" range="-2.5 2.5"/>
          <geom type="capsule" fromto="0 0 0.05 0 0 0.25" size="0.03"/>
          <body name="hand" pos="0 0 0.3"><geom type="sphere" size="0.03"/></body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="turn" ctrlrange="-20 20"/><motor joint="lift" ctrlrange="-40 40"/></actuator>
  <keyframe><key name="home" qpos="0.1 0.2 0.3"/></keyframe>
</mujoco>
"""


def quadruped(gravity: str = "0 0 -9.81") -> str:
    """A trunk on four legs of three joints and a ball."""
    legs = "".join(
        f"""<body name="{name}_hip" pos="{x} {y} 0"><joint name="{name}_haa" axis="1 0 0"/><geom size="0.05" mass="0.5"/>
        <body name="{name}_thigh" pos="0 {0.3 * y} 0"><joint name="{name}_hfe" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.03" mass="1"/>
        <body name="{name}_shank" pos="0 0 -0.25"><joint name="{name}_kfe" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.3"/>
        <geom name="{name}" size="0.025" pos="0 0 -0.25" mass="0.1"/>
        </body></body></body>"""
        for name, x, y in (("RL", -0.3, 0.15), ("FR", 0.3, -0.15), ("FL", 0.3, 0.15), ("RR", -0.3, -0.15))
    )
    return f"""<mujoco model="quadruped"><option gravity="{gravity}"/><worldbody>
      <geom type="plane" size="1 1 1"/><site name="target" pos="1 0 0"/>
      <body name="trunk" pos="0 0 0.5"><freejoint name="root"/><geom type="box" size="0.35 0.12 0.06" mass="15"/>{legs}</body>
    </worldbody></mujoco>"""


def spider() -> str:
    """A trunk on four legs that point outward, each of a joint about the vertical and one about a level axis."""
    legs = "".join(
        f"""<body name="{name}_hip" pos="{0.2 * x} {0.2 * y} 0"><joint name="{name}_yaw" axis="0 0 1" range="-1 1"/>
        <geom size="0.05" mass="0.2"/><body name="{name}_shank" pos="{0.1 * x} {0.1 * y} 0">
        <joint name="{name}_lift" axis="{-y} {x} 0" range="0.2 1.4"/>
        <geom name="{name}" type="capsule" fromto="0 0 0 {0.3 * x} {0.3 * y} 0" size="0.02" mass="0.3"/></body></body>"""
        for name, x, y in (("FL", 1, 1), ("FR", 1, -1), ("HL", -1, 1), ("HR", -1, -1))
    )
    return f"""<mujoco model="spider"><compiler angle="radian" autolimits="true"/><worldbody>
      <body name="trunk" pos="0 0 0.5"><freejoint name="root"/><geom size="0.15" mass="3"/>{legs}</body></worldbody></mujoco>"""


def waisted() -> str:
    """A chest over a waist that carries two legs."""
    legs = "".join(
        f"""<body name="{side}_thigh" pos="0 {y} -0.05"><joint name="{side}_hip" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.04"/><body name="{side}_shin" pos="0 0 -0.3">
        <joint name="{side}_knee" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -0.25" size="0.03"/>
        <geom name="{side}" pos="0 0 -0.3" size="0.04"/></body></body>"""
        for side, y in (("left", 0.1), ("right", -0.1))
    )
    return f"""<mujoco model="waisted"><worldbody><body name="chest" pos="0 0 1"><freejoint/><geom size="0.15"/>
      <body name="pelvis" pos="0 0 -0.3"><joint name="turn" axis="0 0 1"/><joint name="bow" axis="0 1 0"/>
      <geom size="0.1"/>{legs}</body>
    </body></worldbody></mujoco>"""
