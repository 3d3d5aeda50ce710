/* LQ problem with control bounds, solved by repeated backward sweeps about its own trajectories: see trajopt/lq/lq_solver.py, and its constants
   MAX_SWEEPS, MAX_HOLDS, NEAR, ENOUGH and LENGTHS. */
#pragma once
#include "lq_dispatch.h"

/* Workspace of a solve.  R to upper: arrays of the re-centered problem; held_lower, held_upper: 0 for held controls, infinite for free ones;
   k: shortened feedforward; about: policy of a sweep; dx, du: trial step; least: change of the cost by the best start. */
typedef struct {
    double *R, *q, *r, *zero, *lower, *upper, *held_lower, *held_upper, *k, *lambda, *g, *dx, *du;
    lq_policy about;
    double least;
} bounded_t;

/* Find the places of a workspace that begins at `at`; its length, in doubles. */
static long take_bounded(bounded_t *w, double *at, long N, lq_size dims)
{
    const long n = N_, m = M_;
    double *end = at;
    w->R = taken(&end, N * m * m), w->q = taken(&end, (N + 1) * n), w->r = taken(&end, N * m), w->zero = taken(&end, N * n);
    w->lower = taken(&end, N * m), w->upper = taken(&end, N * m), w->k = taken(&end, N * m);
    w->held_lower = taken(&end, N * m), w->held_upper = taken(&end, N * m);
    w->lambda = taken(&end, (N + 1) * n), w->g = taken(&end, N * m), w->dx = taken(&end, (N + 1) * n), w->du = taken(&end, N * m);
    w->about.K = taken(&end, N * m * n), w->about.k = taken(&end, N * m);
    w->about.Vx = taken(&end, (N + 1) * n), w->about.Vxx = taken(&end, (N + 1) * n * n);
    return end - at;
}

/* Workspace of lq_bounded in doubles. */
EXPORT long lq_bounded_workspace(int n, int m, long N)
{
    bounded_t w;
    return take_bounded(&w, NULL, N, (lq_size){n, m});
}

static double between_bounds(double x, double lower, double upper) { return fmin(fmax(x, lower), upper); }

static int any_nonzero(const double *x, long count)
{
    for (long i = 0; i < count; i++)
        if (x[i] != 0.0) return 1;
    return 0;
}

/* Largest entry of the gradient at du = 0, projected on the bounds. */
static double bounded_residual(const lq_problem *p, lq_bounds limits, const bounded_t *w)
{
    double most = 0.0;
    lq_stationarity(p, NULL, w->lambda, w->g, NULL);
    for (long i = 0; i < p->N * p->size.m; i++) most = fmax(most, fabs(between_bounds(w->g[i], -limits.upper[i], -limits.lower[i])));
    return most;
}

/* Roll out a policy to dx and du; returns the change of the cost. */
static double rolled_change(const lq_problem *p, const lq_bounds *limits, const lq_policy *along, double *dx, double *du)
{
    double change[2];
    lq_rollout(p, limits, along, dx, du, change);
    return change[0] + 0.5 * change[1];
}

/* Roll out a policy, and store its trajectory in dx and du if it is cheaper than the best start. */
static void cheaper_start(const lq_problem *p, const lq_bounds *limits, const lq_policy *policy, bounded_t *w, double *dx, double *du)
{
    SIZES(p->size);
    memcpy(w->dx, dx, sizeof(double) * N_);
    const double change = rolled_change(p, limits, policy, w->dx, w->du);
    if (!(change < w->least)) return;
    w->least = change;
    memcpy(dx, w->dx, sizeof(double) * (p->N + 1) * N_);
    memcpy(du, w->du, sizeof(double) * p->N * M_);
}

/* Re-center the problem: write it in the deviations from a trajectory that satisfies its dynamics, with the bounds on them. */
static lq_problem recentered(lq_problem p, const double *dx, const double *du, lq_bounds limits, const bounded_t *w)
{
    SIZES(p.size);
    const long N = p.N, n = N_, m = M_;
    memcpy(w->q, p.q, sizeof(double) * (N + 1) * n);
    memcpy(w->r, p.r, sizeof(double) * N * m);
    for (long i = 0; i <= N; i++) {
        const double *x = dx + i * n, *u = du + i * m, *Q = p.Q + i * n * n;
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
    for (long i = 0; i < N * m; i++) w->lower[i] = limits.lower[i] - du[i], w->upper[i] = limits.upper[i] - du[i];
    memset(w->zero, 0, sizeof(double) * N * n);
    p.q = w->q, p.r = w->r, p.d = w->zero;
    return p;
}

/* Hold the free controls at a bound that factor * direction (N, m) points out of; returns 1 if there are any.  A control is at a bound if its
   distance is at most NEAR, relative to ranges below 1. */
static int hold(lq_bounds limits, double factor, const double *direction, long count, const bounded_t *w)
{
    int more = 0;
    for (long i = 0; i < count; i++) {
        const double toward = factor * direction[i], near = NEAR * fmin(1.0, limits.upper[i] - limits.lower[i]);
        if (w->held_upper[i] == 0.0 || !(toward < 0.0 ? limits.lower[i] >= -near : toward > 0.0 && limits.upper[i] <= near)) continue;
        w->held_lower[i] = w->held_upper[i] = 0.0;
        more = 1;
    }
    return more;
}

/* Policy `about` of a sweep over the free controls: not held at a bound by the gradient in w->g, nor, in up to MAX_HOLDS sweeps, by the step of the
   policy.  Returns the knot where a sweep failed, or -1. */
static long free_policy(const lq_problem *p, lq_bounds limits, double on_state, const bounded_t *w)
{
    const long count = p->N * p->size.m;
    const lq_bounds held = {w->held_lower, w->held_upper};
    for (long i = 0; i < count; i++) w->held_lower[i] = -INFINITY, w->held_upper[i] = INFINITY;
    hold(limits, -1.0, w->g, count, w);
    memset(w->dx, 0, sizeof(double) * p->size.n);
    for (int i = 0; i < MAX_HOLDS; i++) {
        const long failed = lq_riccati(p, &held, on_state, 0.0, NULL, &w->about);
        if (failed >= 0) return failed;
        rolled_change(p, NULL, &w->about, w->dx, w->du);
        if (!hold(limits, 1.0, w->du, count, w)) break;
    }
    return -1;
}

/* Shorten the feedforward of `about`, to at most `lengths` lengths 1, 1/2, ..., until the rollout, in w->dx and w->du, lowers the cost; returns 0 if no
   length does, or if the step is zero. */
static int descent(const lq_problem *p, const lq_bounds *limits, int lengths, const bounded_t *w)
{
    SIZES(p->size);
    const long count = p->N * M_;
    lq_policy policy = w->about;
    double alpha = 1.0;
    policy.k = w->k;
    memset(w->dx, 0, sizeof(double) * N_);
    for (int i = 0; i < lengths; i++, alpha *= 0.5) {
        for (long j = 0; j < count; j++) w->k[j] = alpha * w->about.k[j];
        if (rolled_change(p, limits, &policy, w->dx, w->du) < 0.0) return any_nonzero(w->du, count);
    }
    return 0;
}

/* Solve a problem with bounds on du, from the given dx_0: a policy, and the trajectory dx, du, which starts from the cheapest of the rollouts of the
   bounded policy, of its feedback alone, and of the policy without bounds.  Returns the knot where the first sweep failed, or -1. */
EXPORT long lq_bounded(const lq_problem *problem, const lq_bounds *bounds, double on_state, double on_control, const lq_policy *policy, double *dx,
                       double *du, double *workspace)
{
    lq_problem p = *problem;
    SIZES(p.size);
    const long N = p.N, n = N_, m = M_;
    const lq_bounds limits = *bounds;
    bounded_t arrays, *w = &arrays;
    take_bounded(w, workspace, N, dims);
    memcpy(w->R, p.R, sizeof(double) * N * m * m);
    for (long i = 0; i < N; i++)
        for (long a = 0; a < m; a++) w->R[(i * m + a) * m + a] += on_control;
    p.R = w->R;
    const double enough = ENOUGH * bounded_residual(&p, limits, w);
    const long failed = lq_riccati(&p, bounds, on_state, 0.0, NULL, policy);
    if (failed >= 0) return failed;
    w->least = rolled_change(&p, bounds, policy, dx, du);
    lq_policy feedback = *policy;
    feedback.k = w->k;
    memset(w->k, 0, sizeof(double) * N * m);
    cheaper_start(&p, bounds, &feedback, w, dx, du);
    const int moved = any_nonzero(p.d, N * n) || any_nonzero(dx, n);
    if (moved && lq_riccati(&p, NULL, on_state, 0.0, NULL, &w->about) < 0) cheaper_start(&p, bounds, &w->about, w, dx, du);
    long left = on_state == 0.0 ? MAX_SWEEPS : !any_nonzero(du, N * m); /* each would undo the damping of V'xx */
    for (; left > 0; left--) {
        const lq_problem local = recentered(p, dx, du, limits, w);
        const lq_bounds remaining = {w->lower, w->upper};
        if (bounded_residual(&local, remaining, w) <= enough) break;
        if (lq_riccati(&local, &remaining, on_state, 0.0, NULL, &w->about) >= 0) break; /* with other clamped controls, Quu may be indefinite */
        int descends = descent(&local, &remaining, 1, w);
        if (!descends) descends = free_policy(&local, remaining, on_state, w) < 0 && descent(&local, &remaining, LENGTHS, w);
        if (!descends) break;
        memcpy(policy->K, w->about.K, sizeof(double) * N * m * n), memcpy(policy->k, w->about.k, sizeof(double) * N * m);
        memcpy(policy->Vx, w->about.Vx, sizeof(double) * (N + 1) * n);
        memcpy(policy->Vxx, w->about.Vxx, sizeof(double) * (N + 1) * n * n);
        for (long j = 0; j < (N + 1) * n; j++) dx[j] += w->dx[j];
        for (long j = 0; j < N * m; j++) du[j] = between_bounds(du[j] + w->du[j], limits.lower[j], limits.upper[j]);
    }
    return -1;
}
