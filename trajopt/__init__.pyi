"""Public API of the package: each name and the module that defines it."""

from dynamics_backends.derivative_check import DerivativeCheck as DerivativeCheck
from dynamics_backends.manifold import (
    SE2 as SE2,
    SE3 as SE3,
    SO2 as SO2,
    SO3 as SO3,
    Manifold as Manifold,
    as_manifold as as_manifold,
    vector_space as vector_space,
)
from dynamics_backends.names import UnknownName as UnknownName
from dynamics_backends.protocol import (
    DynamicsBackend as DynamicsBackend,
    FunctionMap as FunctionMap,
    Hessians as Hessians,
    Jacobians as Jacobians,
    Map as Map,
    Partials as Partials,
    SecondOrderBackend as SecondOrderBackend,
    System as System,
)
from dynamics_backends.registry import (
    ENGINES as ENGINES,
    backend_names as backend_names,
    make_backend as make_backend,
    register_backend as register_backend,
)
from dynamics_backends.rigid_body.algorithms import kinematics as kinematics
from dynamics_backends.rigid_body.batched import (
    center_of_mass as center_of_mass,
    energy as energy,
    forward_dynamics as forward_dynamics,
    forward_dynamics_derivatives as forward_dynamics_derivatives,
    frame_jacobian as frame_jacobian,
    frame_jacobian_rate as frame_jacobian_rate,
    frame_placement as frame_placement,
    frame_velocity as frame_velocity,
    inverse_dynamics as inverse_dynamics,
    inverse_dynamics_derivatives as inverse_dynamics_derivatives,
    mass_matrix as mass_matrix,
    nonlinear_effects as nonlinear_effects,
    solve_mass_matrix as solve_mass_matrix,
    spatial_momentum as spatial_momentum,
)
from dynamics_backends.rigid_body.casadi_functions import (
    casadi_forward_dynamics as casadi_forward_dynamics,
    casadi_inverse_dynamics as casadi_inverse_dynamics,
)
from dynamics_backends.rigid_body.geometry.scene import (
    Body as Body,
    BodyPath as BodyPath,
    Scene as Scene,
)
from dynamics_backends.rigid_body.geometry.shapes import (
    Box as Box,
    Capsule as Capsule,
    Cylinder as Cylinder,
    HalfSpace as HalfSpace,
    Mesh as Mesh,
    Sphere as Sphere,
)
from dynamics_backends.rigid_body.mjcf.loader import (
    MJCFError as MJCFError,
    MJCFWarning as MJCFWarning,
    load_mjcf as load_mjcf,
)
from dynamics_backends.rigid_body.model.model import (
    JOINT_TYPES as JOINT_TYPES,
    Frame as Frame,
    Model as Model,
)
from dynamics_backends.rigid_body.model.model_builder import (
    JointSpec as JointSpec,
    ModelBuilder as ModelBuilder,
    lock_joints as lock_joints,
)
from dynamics_backends.rigid_body.model.sample_models import (
    binary_tree as binary_tree,
    chain as chain,
    four_bar as four_bar,
    random_tree as random_tree,
)
from dynamics_backends.rigid_body.model.state import PinocchioConverter as PinocchioConverter
from dynamics_backends.rigid_body.robots import (
    erd_names as erd_names,
    load_robot as load_robot,
    robot_names as robot_names,
    robot_path as robot_path,
)
from dynamics_backends.rigid_body.spatial.rotations import (
    rotation_matrix as rotation_matrix,
    rpy_angles as rpy_angles,
    rpy_matrix as rpy_matrix,
)
from dynamics_backends.rigid_body.urdf.loader import (
    URDFError as URDFError,
    URDFWarning as URDFWarning,
    load_urdf as load_urdf,
)
from dynamics_backends.rigid_body.urdf.srdf import (
    SRDF as SRDF,
    load_srdf as load_srdf,
    srdf_beside as srdf_beside,
)
from dynamics_backends.scalar import (
    Rows as Rows,
    Scalar as Scalar,
    atan2 as atan2,
    concatenate as concatenate,
    cos as cos,
    exp as exp,
    log as log,
    select as select,
    sin as sin,
    sqrt as sqrt,
    stack as stack,
    tan as tan,
    tanh as tanh,
)
from dynamics_backends.stretched_map import (
    Durations as Durations,
    TimeScaled as TimeScaled,
    time_scaled as time_scaled,
)
from dynamics_backends.systems.bodies.along_path import (
    AlongPath as AlongPath,
    DoubleIntegrator as DoubleIntegrator,
)
from dynamics_backends.systems.bodies.coupled_body import CoupledBody as CoupledBody
from dynamics_backends.systems.bodies.free_body import (
    FreeBody as FreeBody,
    InertialBody as InertialBody,
    inertial_parameters as inertial_parameters,
)
from dynamics_backends.systems.bodies.rigid_body_map import (
    ActuatedInverseDynamics as ActuatedInverseDynamics,
    ForwardDynamics as ForwardDynamics,
    FrameMotion as FrameMotion,
    InverseDynamics as InverseDynamics,
    MassMatrix as MassMatrix,
    NonlinearEffects as NonlinearEffects,
)
from dynamics_backends.systems.constraints.consistency import (
    Dependence as Dependence,
    closed_state as closed_state,
    redundant_constraints as redundant_constraints,
)
from dynamics_backends.systems.constraints.constraint_kinds import (
    FrameContact as FrameContact,
    FrameLoop as FrameLoop,
    JointRelation as JointRelation,
    PointContact as PointContact,
    PointLoop as PointLoop,
)
from dynamics_backends.systems.constraints.holonomic import Holonomic as Holonomic
from dynamics_backends.systems.constraints.mjcf_constraints import mjcf_constraints as mjcf_constraints
from dynamics_backends.systems.contact.contact_forces import (
    ConstraintForces as ConstraintForces,
    SoftForces as SoftForces,
)
from dynamics_backends.systems.contact.contact_law import (
    ContactLaw as ContactLaw,
    StepLaw as StepLaw,
)
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw as SoftContactLaw
from dynamics_backends.systems.contact.ground_contact import (
    Ground as Ground,
    Plane as Plane,
    Terrain as Terrain,
)
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley as HuntCrossley
from dynamics_backends.systems.contact.impact import Impact as Impact
from dynamics_backends.systems.contact.registry import (
    CONTACT_LAWS as CONTACT_LAWS,
    contact_law as contact_law,
    register_contact_law as register_contact_law,
)
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone as RelaxedCone
from dynamics_backends.systems.contact.soft_contact import SoftContact as SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact as SteppedContact
from trajopt.comparison.check_derivatives import check_derivatives as check_derivatives
from trajopt.comparison.compare import (
    Comparison as Comparison,
    compare as compare,
)
from trajopt.config.config import ConfigError as ConfigError
from trajopt.config.load import (
    LoadedProblem as LoadedProblem,
    load_problem as load_problem,
    tasks as tasks,
)
from trajopt.config.registry import register_problem as register_problem
from trajopt.config.task import (
    Checked as Checked,
    Sampling as Sampling,
    Task as Task,
)
from trajopt.guesses.guesses import (
    WarmStart as WarmStart,
    constant_guess as constant_guess,
    detour as detour,
    feedback_guess as feedback_guess,
    interpolated_guess as interpolated_guess,
    minimum_jerk_guess as minimum_jerk_guess,
    quasi_static_guess as quasi_static_guess,
    regulator as regulator,
    resampled_guess as resampled_guess,
)
from trajopt.guesses.inverse_kinematics import (
    IKResult as IKResult,
    inverse_kinematics as inverse_kinematics,
)
from trajopt.guesses.time_grids import refine as refine
from trajopt.lq.lq import LQProblem as LQProblem
from trajopt.lq.lq_solver import solve_riccati as solve_riccati
from trajopt.problem.annotations import (
    Annotations as Annotations,
    Drawn as Drawn,
    rod as rod,
)
from trajopt.problem.constraints import (
    Composition as Composition,
    Constraint as Constraint,
    bounded as bounded,
    joint_limit_cost as joint_limit_cost,
    joint_limits as joint_limits,
    link_points as link_points,
    quadratic_barrier as quadratic_barrier,
    residual_constraint as residual_constraint,
    self_collision as self_collision,
    softened as softened,
    sphere_obstacle as sphere_obstacle,
    state_bounds as state_bounds,
    tube as tube,
    velocity_limits as velocity_limits,
)
from trajopt.problem.expansion import (
    StageExpansion as StageExpansion,
    quadratize as quadratize,
)
from trajopt.problem.goals import (
    Goal as Goal,
    state_goal as state_goal,
)
from trajopt.problem.guess import Guess as Guess
from trajopt.problem.impact_stage import (
    ImpactStage as ImpactStage,
    discrete_dynamics as discrete_dynamics,
)
from trajopt.problem.ocp import (
    OCP as OCP,
    DiscreteMap as DiscreteMap,
    LinearizedStep as LinearizedStep,
    Phase as Phase,
)
from trajopt.problem.residuals import (
    LinkPoint as LinkPoint,
    path_offset as path_offset,
)
from trajopt.problem.terms import (
    CostTerm as CostTerm,
    center_of_mass_cost as center_of_mass_cost,
    control_cost as control_cost,
    frame_axis_cost as frame_axis_cost,
    frame_placement_cost as frame_placement_cost,
    frame_position_cost as frame_position_cost,
    frame_velocity_cost as frame_velocity_cost,
    linear_cost as linear_cost,
    objective_term as objective_term,
    residual_cost as residual_cost,
    state_cost as state_cost,
)
from trajopt.replanning.converged_planner import ConvergedPlanner as ConvergedPlanner
from trajopt.replanning.loop import (
    Plant as Plant,
    ReplanningLoop as ReplanningLoop,
)
from trajopt.replanning.measurements import (
    Measurement as Measurement,
    MovingObject as MovingObject,
    Sensor as Sensor,
)
from trajopt.replanning.mpc import MPC as MPC
from trajopt.replanning.mujoco_plant import (
    MujocoGround as MujocoGround,
    MujocoPlant as MujocoPlant,
)
from trajopt.replanning.plan import (
    Plan as Plan,
    RecedingHorizon as RecedingHorizon,
    ResampledHorizon as ResampledHorizon,
    ShrinkingHorizon as ShrinkingHorizon,
    warm_start as warm_start,
)
from trajopt.replanning.planning import Planner as Planner
from trajopt.replanning.real_time import RealTimeSLQ as RealTimeSLQ
from trajopt.replanning.real_time_sqp import RealTimeSQP as RealTimeSQP
from trajopt.replanning.run_log import (
    Event as Event,
    EventKind as EventKind,
    RunLog as RunLog,
    Solve as Solve,
)
from trajopt.replanning.sampled_plant import (
    Push as Push,
    SampledPlant as SampledPlant,
)
from trajopt.replanning.setpoints import (
    Setpoint as Setpoint,
    setpoint as setpoint,
    setpoints as setpoints,
)
from trajopt.replanning.simulator import Simulator as Simulator
from trajopt.replanning.workers import (
    ScriptedWorker as ScriptedWorker,
    SimulatedClock as SimulatedClock,
    SimulatedWorker as SimulatedWorker,
    ThreadWorker as ThreadWorker,
    Timing as Timing,
    WallClock as WallClock,
)
from trajopt.results.records import (
    Callback as Callback,
    IterationRecord as IterationRecord,
)
from trajopt.results.report import ConsoleTable as ConsoleTable
from trajopt.results.solution import (
    Solution as Solution,
    SolutionFileError as SolutionFileError,
)
from trajopt.results.status import (
    Status as Status,
    StatusCode as StatusCode,
)
from trajopt.solvers import methods as methods
from trajopt.solvers.batch.multi_start import (
    MultiStart as MultiStart,
    Optimum as Optimum,
    multi_start as multi_start,
)
from trajopt.solvers.batch.solution import BatchSolution as BatchSolution
from trajopt.solvers.batch.solve_batch import solve_batch as solve_batch
from trajopt.solvers.feedback import tracking_gains as tracking_gains
from trajopt.solvers.options import (
    AutoOptions as AutoOptions,
    DDPOptions as DDPOptions,
    DMSOptions as DMSOptions,
    IPMOptions as IPMOptions,
    MethodOptions as MethodOptions,
    SLQOptions as SLQOptions,
    SQPOptions as SQPOptions,
)
from trajopt.solvers.problem_batch import Batch as Batch
from trajopt.solvers.registry import (
    register_method as register_method,
    solver_names as solver_names,
    solver_options as solver_options,
)
from trajopt.solvers.solve import solve as solve, validate as validate
from trajopt.solvers.sqp.sqp import solve_nlp as solve_nlp
from trajopt.stage.evaluation import (
    Shooting as Shooting,
    StageEvaluator as StageEvaluator,
)
from trajopt.step.free_time import FreeTime as FreeTime, free_time as free_time
from trajopt.step.integrators import SCHEMES as SCHEMES
from trajopt.step.sensitivities import SampledSystem as SampledSystem
from trajopt.sweeps.results import Sweep as Sweep
from trajopt.sweeps.rows import SweepProblem as SweepProblem
from trajopt.sweeps.run import sweep as sweep
from trajopt.sweeps.variation import Variation as Variation
from trajopt.validation.limit_violations import (
    LimitViolation as LimitViolation,
    limit_violations as limit_violations,
    self_collision_note as self_collision_note,
)
from trajopt.validation.validation import (
    Finding as Finding,
    InvalidProblem as InvalidProblem,
)
from trajopt.view.view import (
    view as view,
    watch as watch,
    write_animation as write_animation,
    write_video as write_video,
)

__version__: str
