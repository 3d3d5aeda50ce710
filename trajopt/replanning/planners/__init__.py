"""What a replanning loop asks of a solver, in two steps.

    prepare   all that can be done before the state is known
    respond   the solution from the state, as fast as possible

| planner | prepare | respond |
|---|---|---|
| :class:`~trajopt.replanning.planners.converged_planner.ConvergedPlanner` | nothing | a solve, by any solver |
| :class:`~trajopt.replanning.planners.real_time_slq.RealTimeSLQ` | derivatives and sweep about the shifted plan | one step |
| :class:`~trajopt.replanning.planners.real_time_sqp.RealTimeSQP` | the QP about the shifted plan | its solution |
"""
