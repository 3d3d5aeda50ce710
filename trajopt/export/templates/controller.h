/* Dynamics, linearization and one step of SLQ for the problem "prefix", written by trajopt: plain C99, no dynamic memory.

   Units are those of the problem, of robots SI.  A state x has NX numbers, a quaternion four (x, y, z, w); derivatives are in its
   tangent space, of NDX, in which a quaternion counts three.  Matrices by rows; a trajectory is one knot after the other:
   xs (horizon + 1, NX), us (horizon, NU), K (horizon, NU, NDX), k (horizon, NU).  Functions keep no state; a workspace serves one
   caller at a time.

   Components of the tangent space of a state, in the order of x:
@STATES@
   Components of the controls u:
@CONTROLS@ */
#ifndef PREFIX_H
#define PREFIX_H

#ifdef __cplusplus
extern "C" {
#endif

@SIZES@

/* xdot (NDX) = f(x, u) at time 0, and its partial derivatives fx (NDX, NDX), fu (NDX, NU). */
void prefix_dynamics(const double *x, const double *u, double *xdot);
void prefix_dynamics_partials(const double *x, const double *u, double *xdot, double *fx, double *fu);

/* One time step of dt [s] from time 0 with the control held (@SCHEME@), and its partial derivatives A (NDX, NDX), B (NDX, NU). */
void prefix_step(const double *x, const double *u, double dt, double *x_next);
void prefix_linearize(const double *x, const double *u, double dt, double *x_next, double *A, double *B);

/* What may change between steps: times t (horizon + 1) and steps dt (horizon) [s]; the weights and references of the cost,
   theta (horizon, NTHETA) and theta_end (NTHETA_END); bounds on the controls (horizon, NU), both NULL for none.

   Components of a row of theta:
@THETA@
   Components of theta_end:
@THETA_END@ */
typedef struct {
    const double *t, *dt, *theta, *theta_end, *u_lower, *u_upper;
} prefix_problem;

/* The values of the problem that was exported, and its initial state. */
extern const prefix_problem prefix_default_problem;
extern const double prefix_default_x0[PREFIX_NX];

/* Memory of prefix_slq_step; all zero before the first step.  After a step: A .. r hold the expansion around the trajectory
   that the step began with, alpha the step length taken (0 where none was better), mu the regularization of the next step. */
typedef struct {
    double A[PREFIX_HORIZON * PREFIX_NDX * PREFIX_NDX], B[PREFIX_HORIZON * PREFIX_NDX * PREFIX_NU];
    double d[PREFIX_HORIZON * PREFIX_NDX], x_next[PREFIX_HORIZON * PREFIX_NX];
    double Q[(PREFIX_HORIZON + 1) * PREFIX_NDX * PREFIX_NDX], q[(PREFIX_HORIZON + 1) * PREFIX_NDX];
    double S[PREFIX_HORIZON * PREFIX_NU * PREFIX_NDX], R[PREFIX_HORIZON * PREFIX_NU * PREFIX_NU], r[PREFIX_HORIZON * PREFIX_NU];
    double cost[PREFIX_HORIZON + 1];
    double K[PREFIX_HORIZON * PREFIX_NU * PREFIX_NDX], k[PREFIX_HORIZON * PREFIX_NU];
    double Vx[(PREFIX_HORIZON + 1) * PREFIX_NDX], Vxx[(PREFIX_HORIZON + 1) * PREFIX_NDX * PREFIX_NDX];
    double dx[(PREFIX_HORIZON + 1) * PREFIX_NDX], du[PREFIX_HORIZON * PREFIX_NU];
    double X[(PREFIX_HORIZON + 1) * PREFIX_NX], U[PREFIX_HORIZON * PREFIX_NU], D[PREFIX_HORIZON * PREFIX_NDX];
    double lower[PREFIX_HORIZON * PREFIX_NU], upper[PREFIX_HORIZON * PREFIX_NU], bounded[PREFIX_BOUNDED_WORKSPACE];
    double workspace[PREFIX_WORKSPACE];
    double alpha, mu;
    signed char node[PREFIX_HORIZON + 1];
} prefix_workspace;

/* One step of SLQ with single shooting, 1 <= horizon <= PREFIX_HORIZON; returns the cost of the new trajectory.

   On entry xs, us are a trajectory and K gains that track it, or 0.  It is first rolled out from x0 (NX) under
   u = us + K (x (-) xs), which changes nothing where xs starts at x0 and obeys the dynamics.  Then: expansion, Riccati recursion,
   and the longest of the closed-loop roll-outs with step lengths 1, 1/2, 1/4, ... that lowers the cost as expected.  On return
   xs, us are the new trajectory, and K, k the policy du = k + K dx around the one the step began with.  Bounds on the
   controls hold in the recursion, whose gains are 0 for controls at their bounds, and in the roll-outs, which clamp to them.

   NAN: the horizon does not fit, or the roll-out on entry diverged (xs, us, K, k are then as they were).
   alpha = 0: no step was better; the trajectory is the one rolled out on entry.  Unless it is optimal to rounding, mu is raised
   for the next call.  K, k are new wherever Quu could be made positive definite. */
double prefix_slq_step(long horizon, const double *x0, double *xs, double *us, const prefix_problem *problem, double *K, double *k,
                       prefix_workspace *workspace);

#ifdef __cplusplus
}
#endif

#endif
