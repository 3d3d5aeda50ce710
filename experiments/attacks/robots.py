"""MJCF robots to attack, with defaults, replicates, actuators, equalities, sites and free joints."""

ARM = """<mujoco model="arm">
  <compiler angle="radian" autolimits="true"/>
  <option gravity="0 0 -9.81" timestep="0.002"/>
  <size njmax="500" nconmax="100"/>
  <default>
    <joint damping="0.5" armature="0.01"/>
    <geom density="900"/>
  </default>
  <worldbody>
    <geom name="table" type="box" size="0.5 0.5 0.05"/>
    <body name="base" pos="0 0 0.1">
      <joint name="turn" axis="0 0 1" range="-3 3"/>
      <geom type="cylinder" size="0.06 0.1"/>
      <body name="upper" pos="0 0 0.2" euler="0 0.3 0">
        <joint name="shoulder" axis="0 1 0" range="-2 2" frictionloss="0.1"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.4" size="0.04"/>
        <body name="fore" pos="0 0 0.4" quat="1 0 0 0">
          <joint name="elbow" axis="0 1 0" range="-2.5 2.5" stiffness="2" springref="0.1"/>
          <inertial pos="0 0 0.15" mass="1.2" diaginertia="0.01 0.01 0.002"/>
          <site name="tool" pos="0 0 0.35"/>
          <body name="finger_1" pos="0.03 0 0.3"><joint name="grip_1" type="slide" axis="1 0 0" range="0 0.04"/>
            <geom type="box" size="0.005 0.01 0.03"/></body>
          <body name="finger_2" pos="-0.03 0 0.3"><joint name="grip_2" type="slide" axis="-1 0 0" range="0 0.04"/>
            <geom type="box" size="0.005 0.01 0.03"/></body>
        </body>
      </body>
    </body>
    <body name="rail" pos="1 0 0"><replicate count="3" offset="0 0.2 0"><geom size="0.05"/></replicate></body>
  </worldbody>
  <equality><joint joint1="grip_2" joint2="grip_1" polycoef="0 1 0 0 0"/></equality>
  <actuator>
    <motor name="m1" joint="turn" gear="10" ctrlrange="-5 5"/>
    <position name="m2" joint="shoulder" kp="100" ctrlrange="-2 2"/>
    <motor name="m3" joint="elbow" forcerange="-30 30"/>
  </actuator>
  <keyframe><key name="home" qpos="0 0.5 0.5 0.02 0.02"/></keyframe>
</mujoco>
"""

HOPPER = """<mujoco model="hopper">
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="trunk" pos="0 0 1">
      <freejoint name="root"/>
      <geom type="box" size="0.2 0.1 0.1" mass="5"/>
      <body name="thigh" pos="0.1 0 -0.1">
        <joint name="hip" axis="0 1 0" range="-60 60" damping="0.2"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03"/>
        <body name="shank" pos="0 0 -0.3">
          <joint name="knee" axis="0 1 0" range="-120 0" ref="10"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.025"/>
          <geom name="foot" size="0.03" pos="0 0 -0.3"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><general joint="hip" gear="20"/><motor joint="knee" gear="20"/></actuator>
</mujoco>
"""

MJCF = {"arm": ARM, "hopper": HOPPER}
