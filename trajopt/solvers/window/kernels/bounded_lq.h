/* LQ problem with control bounds, the C version of trajopt/lq/bounded_lq.py.  Requires knots.h, and that module's constants MAX_SWEEPS, ENOUGH
   and LENGTHS (the number of its step lengths 1, 1/2, ...).

   The caller performs the Riccati sweeps, for one problem or for several in lanes; `sweep` describes the next one. */

enum { FIRST_SWEEP, OPEN_SWEEP, LOCAL_SWEEP };

/* Workspace and state of a solve.  R to move: arrays of the re-centered problem and of trial steps.  p, limits, policy: the problem, its bounds,
   and its solution; local, workspace: the re-centered problem and its bounds.  enough: residual of convergence; least: change of the cost by the best
   start; stage, sweep: kind and arguments of the next sweep; left: remaining sweeps; failed: knot where the first sweep failed, or NONE. */
typedef struct {
    double *R, *q, *r, *zero, *lower, *upper, *k, *lambda, *g;
    lq_policy about;
    lq_step move;
    lq_problem p, local;
    lq_bounds limits, workspace;
    lq_policy policy;
    double enough, least;
    long stage, left, failed;
    lq_lane sweep;
} bounded_workspace;

/* Largest entry of the gradient at du = 0, projected on the bounds. */
static double bounded_residual(lq_size dims, lq_problem p, lq_bounds limits, const bounded_workspace *w)
{
    double most = 0.0;
    lq_adjoint(&p, w->lambda, w->g);
    for (long i = 0; i < p.N * dims.m; i++) most = fmax(most, fabs(clipped(w->g[i], -limits.upper[i], -limits.lower[i])));
    return most;
}

/* Roll out a policy to `to`; returns the change of the cost. */
static double rolled(lq_size dims, lq_problem p, const lq_bounds *limits, lq_policy along, lq_step to)
{
    double change[2];
    lq_rollout(&p, limits, &along, to.dx, to.du, change);
    return change[0] + 0.5 * change[1];
}

/* Roll out a policy, and store its trajectory in `to` if it is cheaper than the best start. */
static void cheaper_start(lq_size dims, bounded_workspace *w, lq_policy policy, lq_step to)
{
    copy(w->move.dx, to.dx, dims.n);
    const double change = rolled(dims, w->p, &w->limits, policy, w->move);
    if (!(change < w->least)) return;
    w->least = change;
    copy(to.dx, w->move.dx, (w->p.N + 1) * dims.n);
    copy(to.du, w->move.du, w->p.N * dims.m);
}

/* Re-center the problem: write it in the deviations from a trajectory that satisfies its dynamics, with the bounds on them. */
static lq_problem recentered(lq_size dims, lq_problem p, lq_step at, lq_bounds limits, const bounded_workspace *w)
{
    const long N = p.N, n = dims.n, m = dims.m;
    copy(w->q, p.q, (N + 1) * n);
    copy(w->r, p.r, N * m);
    for (long i = 0; i <= N; i++) {
        const double *x = at.dx + i * n, *u = at.du + i * m, *Q = p.Q + i * n * n;
        double *q = w->q + i * n, *r = w->r + i * m;
        for (long a = 0; a < n; a++)
            for (long b = 0; b < n; b++) q[a] += Q[a * n + b] * x[b];
        if (i == N) break;
        const double *S = p.S + i * m * n, *R = p.R + i * m * m;
        for (long a = 0; a < m; a++) {
            for (long b = 0; b < n; b++) r[a] += S[a * n + b] * x[b], q[b] += S[a * n + b] * u[a];
            for (long b = 0; b < m; b++) r[a] += R[a * m + b] * u[b];
        }
    }
    for (long i = 0; i < N * m; i++) w->lower[i] = limits.lower[i] - at.du[i], w->upper[i] = limits.upper[i] - at.du[i];
    p.q = w->q, p.r = w->r, p.d = w->zero;
    return p;
}

/* Backtrack on the feedforward k until the rollout, in w->move, lowers the cost; returns 0 if no step length does, or if the step is zero. */
static int descent(lq_size dims, lq_problem p, lq_policy policy, const lq_bounds *workspace, const bounded_workspace *w)
{
    const long du = p.N * dims.m;
    const double *k = policy.k;
    double alpha = 1.0;
    policy.k = w->k;
    memset(w->move.dx, 0, sizeof(double) * dims.n);
    for (int i = 0; i < LENGTHS; i++, alpha *= 0.5) {
        for (long j = 0; j < du; j++) w->k[j] = alpha * k[j];
        if (rolled(dims, p, workspace, policy, w->move) < 0.0) return any(w->move.du, du);
    }
    return 0;
}

static void ask_sweep(bounded_workspace *w, long stage, const lq_problem *p, const lq_bounds *bounds, const lq_policy *to)
{
    w->stage = stage;
    w->sweep = (lq_lane){p, bounds, to, w->sweep.on_state, 0.0, NONE};
}

/* Start a solve of a problem with bounds on du; `sweep` is the first sweep. */
static void bounded_begin(lq_size dims, lq_problem p, lq_bounds limits, double on_state, double on_control, bounded_workspace *w,
                          lq_policy policy)
{
    copy(w->R, p.R, p.N * dims.m * dims.m);
    for (long i = 0; i < p.N; i++)
        for (long a = 0; a < dims.m; a++) w->R[(i * dims.m + a) * dims.m + a] += on_control;
    p.R = w->R;
    w->p = p, w->limits = limits, w->policy = policy, w->sweep.on_state = on_state;
    w->enough = ENOUGH * bounded_residual(dims, p, limits, w);
    ask_sweep(w, FIRST_SWEEP, &w->p, &w->limits, &w->policy);
}

/* Continue after a sweep.  Returns 1 if another sweep is needed; else `policy` and the trajectory `to`, with the given dx_0, are the solution,
   unless `failed` is a knot.

   The initial trajectory is the cheapest of three rollouts: of the policy, of its feedback alone, and of the policy without bounds. */
static int bounded_next(lq_size dims, bounded_workspace *w, lq_step to)
{
    const long N = w->p.N, n = dims.n, m = dims.m;
    if (w->stage == LOCAL_SWEEP) {
        if (w->sweep.failed >= 0) return 0;
        copy(w->policy.K, w->about.K, N * m * n);
        copy(w->policy.k, w->about.k, N * m);
        if (!descent(dims, w->local, w->about, &w->workspace, w)) return 0;
        for (long j = 0; j < (N + 1) * n; j++) to.dx[j] += w->move.dx[j];
        for (long j = 0; j < N * m; j++) to.du[j] = clipped(to.du[j] + w->move.du[j], w->limits.lower[j], w->limits.upper[j]);
        w->left--;
    } else {
        if (w->stage == FIRST_SWEEP) {
            w->failed = w->sweep.failed;
            if (w->failed >= 0) return 0;
            lq_policy feedback = w->policy;
            w->least = rolled(dims, w->p, &w->limits, w->policy, to);
            memset(w->k, 0, sizeof(double) * N * m);
            feedback.k = w->k;
            cheaper_start(dims, w, feedback, to);
            if (any(w->p.d, N * n) || any(to.dx, n)) {
                ask_sweep(w, OPEN_SWEEP, &w->p, NULL, &w->about);
                return 1;
            }
        } else if (w->sweep.failed < 0) cheaper_start(dims, w, w->about, to);
        w->left = w->sweep.on_state == 0.0 ? MAX_SWEEPS : !any(to.du, N * m); /* each would undo the damping of V'xx */
    }
    if (w->left <= 0) return 0;
    w->local = recentered(dims, w->p, to, w->limits, w);
    w->workspace = (lq_bounds){w->lower, w->upper};
    if (bounded_residual(dims, w->local, w->workspace, w) <= w->enough) return 0;
    ask_sweep(w, LOCAL_SWEEP, &w->local, &w->workspace, &w->about);
    return 1;
}
