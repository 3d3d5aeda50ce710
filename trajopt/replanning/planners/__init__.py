"""Planners of a replanning loop, with two steps for each solve.

    prepare   all work that does not need the current state
    respond   the solution from the current state, as fast as possible

| planner | prepare | respond |
|---|---|---|
| :class:`~trajopt.replanning.planners.converged_planner.ConvergedPlanner` | nothing | a solve, by any solver |
| :class:`~trajopt.replanning.planners.real_time_slq.RealTimeSLQ` | derivatives and Riccati sweep about the shifted plan | one step
| | :class:`~trajopt.replanning.planners.real_time_sqp.RealTimeSQP` | QP about the shifted plan | its solution |
"""
