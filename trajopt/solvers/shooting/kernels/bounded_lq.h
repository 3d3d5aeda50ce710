/* The LQ problem with bounds on the controls: the twin of trajopt/lq/bounded_lq.py.  Before this text stand lq_types.h, that module's
   constants MAX_SWEEPS, ENOUGH and LENGTHS (the number of its step lengths 1, 1/2, ...).  Sizes n and m are known when it is called. */

/* The sweeps over the knots of a problem: the functions of riccati.h for its sizes. */
typedef struct {
    long n, m;
    long (*riccati)(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const void *changes,
                    const lq_policy *policy);
    void (*adjoint)(const lq_problem *p, double *lambda, double *g);
    void (*stationarity)(const lq_problem *p, const double *K, double *lambda, double *g, double *size);
    int (*finite)(const lq_problem *p);
    void (*rollout)(const lq_problem *p, const lq_bounds *bounds, const lq_policy *policy, double *dx, double *du, double *change);
} sweeps_t;

/* A trajectory of the problem, dx (N + 1, n) and du (N, m). */
typedef struct {
    double *dx, *du;
} lq_step;

/* Room for the re-centered problem and what is tried of it. */
typedef struct {
    double *R, *q, *r, *zero, *lower, *upper, *k, *lambda, *g;
    lq_policy about;
    lq_step move;
} bounded_room;

static double clipped(double x, double lower, double upper)
{
    x = x < lower ? lower : x;
    return x > upper ? upper : x;
}

/* The largest entry of the gradient at du = 0, projected on the bounds. */
static double bounded_residual(const sweeps_t *s, lq_problem p, lq_bounds limits, const bounded_room *w)
{
    double most = 0.0;
    s->adjoint(&p, w->lambda, w->g);
    for (long i = 0; i < p.N * s->m; i++) most = fmax(most, fabs(clipped(w->g[i], -limits.upper[i], -limits.lower[i])));
    return most;
}

/* The change of the cost along the roll-out `to` of a policy. */
static double rolled(const sweeps_t *s, lq_problem p, const lq_bounds *limits, lq_policy along, lq_step to)
{
    double change[2];
    s->rollout(&p, limits, &along, to.dx, to.du, change);
    return change[0] + 0.5 * change[1];
}

static void copy(double *to, const double *from, long count) { memcpy(to, from, sizeof(double) * count); }

static int any(const double *x, long count)
{
    for (long i = 0; i < count; i++)
        if (x[i] != 0.0) return 1;
    return 0;
}

/* `best`, whose dx_0 is given, becomes a trajectory that closes the gaps: the cheapest of those of the policy, of its feedback alone, and of
   the policy without bounds. */
static void bounded_start(const sweeps_t *s, lq_problem p, lq_policy policy, lq_bounds limits, double on_state, const bounded_room *w,
                          lq_step best)
{
    const long dx = (p.N + 1) * s->n, du = p.N * s->m;
    double least = rolled(s, p, &limits, policy, best);
    for (int other = 0; other < 2; other++) {
        lq_policy next = policy;
        if (other == 0) {
            memset(w->k, 0, sizeof(double) * du);
            next.k = w->k;
        } else {
            if (!any(p.d, p.N * s->n) && !any(best.dx, s->n)) break;
            if (s->riccati(&p, NULL, on_state, 0.0, NULL, &w->about) >= 0) break;
            next = w->about;
        }
        copy(w->move.dx, best.dx, s->n);
        const double change = rolled(s, p, &limits, next, w->move);
        if (!(change < least)) continue;
        least = change;
        copy(best.dx, w->move.dx, dx);
        copy(best.du, w->move.du, du);
    }
}

/* The problem in the deviations from a trajectory that satisfies its dynamics, and the bounds on them. */
static lq_problem recentered(const sweeps_t *s, lq_problem p, lq_step at, lq_bounds limits, const bounded_room *w)
{
    const long N = p.N, n = s->n, m = s->m;
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

/* w->move: the longest step with k shortened that lowers the cost; 0 if rounding allows none, or if it is none. */
static int descent(const sweeps_t *s, lq_problem p, lq_policy policy, const lq_bounds *room, const bounded_room *w)
{
    const long du = p.N * s->m;
    const double *k = policy.k;
    double alpha = 1.0;
    policy.k = w->k;
    memset(w->move.dx, 0, sizeof(double) * s->n);
    for (int i = 0; i < LENGTHS; i++, alpha *= 0.5) {
        for (long j = 0; j < du; j++) w->k[j] = alpha * k[j];
        if (rolled(s, p, room, policy, w->move) < 0.0) return any(w->move.du, du);
    }
    return 0;
}

/* The solution within bounds on du: a policy, and a trajectory whose dx_0 is given.  Returns the knot where the first sweep failed, or -1. */
static long solve_bounded(const sweeps_t *s, lq_problem p, lq_bounds limits, double on_state, double on_control, const bounded_room *w,
                          lq_policy policy, lq_step to)
{
    const long N = p.N, n = s->n, m = s->m;
    copy(w->R, p.R, N * m * m);
    for (long i = 0; i < N; i++)
        for (long a = 0; a < m; a++) w->R[(i * m + a) * m + a] += on_control;
    p.R = w->R;
    const double enough = ENOUGH * bounded_residual(s, p, limits, w);
    const long failed = s->riccati(&p, &limits, on_state, 0.0, NULL, &policy);
    if (failed >= 0) return failed;
    bounded_start(s, p, policy, limits, on_state, w, to);
    const int sweeps = on_state == 0.0 ? MAX_SWEEPS : !any(to.du, N * m); /* each would undo the damping of V'xx */
    for (int i = 0; i < sweeps; i++) {
        const lq_problem local = recentered(s, p, to, limits, w);
        const lq_bounds room = {w->lower, w->upper};
        if (bounded_residual(s, local, room, w) <= enough) break;
        if (s->riccati(&local, &room, on_state, 0.0, NULL, &w->about) >= 0) break;
        copy(policy.K, w->about.K, N * m * n);
        copy(policy.k, w->about.k, N * m);
        if (!descent(s, local, w->about, &room, w)) break;
        for (long j = 0; j < (N + 1) * n; j++) to.dx[j] += w->move.dx[j];
        for (long j = 0; j < N * m; j++) to.du[j] = clipped(to.du[j] + w->move.du[j], limits.lower[j], limits.upper[j]);
    }
    return -1;
}
