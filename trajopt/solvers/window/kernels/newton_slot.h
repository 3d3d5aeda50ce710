/* Slot of Newton's method: memory of one problem, and the kernels that answer its requests (trajopt/solvers/methods/requests.py), with the
   knots of the problem in lanes.  The method that decides is trajopt/solvers/methods/newton.py.

   A slot has two points (the current and the next iterate), three steps (two trial steps and the last accepted one), and the trajectories of
   the last trial step lengths. */
#pragma once
#include "barrier.h"
#include "slot.h"
#include "../../../lq/kernels/equality_types.h"

/* Functions of a phase: expansions with the exact and with the Gauss-Newton Hessian of the cost, rollouts, and the second derivatives of its
   time steps contracted with costates. */
typedef struct {
    phase_t exact, plain;
    void (*curve)(const stages_t *s, const point_t *at, long first, long last, const second_t *out, void *workspace);
    void *curve_workspace;
} newton_phase_t;

/* Policy and its linear step; longest: largest step length that the bounds allow. */
typedef struct {
    double *K, *k, *dx, *du, longest;
} newton_step_t;

/* Problem: data of the phases (stages with the exact Hessian, stages with the Gauss-Newton Hessian, and stages of second derivatives) and of the
   final knot, guess, bounds, and arrays of the solution; to_K, to_k: NULL without gains. */
typedef struct {
    const stages_t *exact, *plain, *curved;
    const end_t *end, *plain_end;
    const double *x0, *xs, *us, *lower, *upper;
    double *to_xs, *to_us, *to_K, *to_k;
} newton_problem_t;

/* Functions of Python that evaluate the stages of a problem, `count` = 0 phases for C; NULL if all stages are compiled.  Points are numbered as in
   `points`.  expand: expand about a point with the exact or the Gauss-Newton Hessian of the cost, and return the cost; alone: that Hessian alone,
   in oQ, oS, oR.  curve: second derivatives of the time steps contracted with the costates of a point, in cQ, cS, cR.  roll: roll out `count` step
   lengths, and sum their costs in `cost`. */
typedef struct {
    double (*expand)(long point, long plain, long alone);
    void (*curve)(long point);
    void (*roll)(const trials_t *trials, long count);
} python_t;

/* Slot.  Vx, Vxx: value function of a sweep; cQ, cS, cR: Hessian of the Lagrangian; oQ, oS, oR: Hessian of the cost of the kind (exact or
   Gauss-Newton) that the current iterate does not have; mQ, mS, mR, mr: LQ problem with damping and barrier; z, move: multipliers of the bounds and
   their step; lower, upper: bounds of the barrier, infinite for controls with equal bounds, which are held; X, U, D, cost: trial trajectories, their defects and costs.  alike: 1 if both evaluators are the same; widest: index of the largest
   curvature fraction to try; trials: step lengths rolled out together.  Members from `problem` on belong to one problem.  answer: last answer;
   seconds: time in derivatives, sweeps and rollouts. */
typedef struct {
    const newton_phase_t *phases;
    final_t end, plain_end;
    python_t python;
    lq_size dims;
    long N, nx, count, alike, widest, trials;
    iterate_t points[2];
    newton_step_t steps[3];
    double *Vx, *Vxx, *cQ, *cS, *cR, *oQ, *oS, *oR, *mQ, *mS, *mR, *mr, *z, *move, *lower, *upper, *alphas, *size, *X, *U, *D, *cost, *part_cost;
    long *start, *stop_at, *trial;
    const signed char *every, *none;
    const newton_problem_t *problem;
    iterate_t *at, *fresh;
    newton_step_t *tried[2], *last;
    barrier_t barrier;
    long bounded, has_policy, other_known, curvature_known;
    double seconds[3];
    double answer[ANSWER];
} newton_t;

#define GAUSS_NEWTON (FRACTIONS - 1)

/* -- expansions ------------------------------------------------------------------------------------------------------------------ */

static const phase_t *newton_kind(const newton_t *o, long j, long plain) { return plain ? &o->phases[j].plain : &o->phases[j].exact; }

/* Hold controls with equal bounds in an LQ problem: they have no effect, no gradient and unit curvature, so that their steps and gains are zero.
   B, r: NULL for a Hessian alone. */
static void newton_hold(const newton_t *o, double *B, double *r, double *S, double *R)
{
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    for (long i = 0; o->bounded && i < N * m; i++) {
        if (o->problem->lower[i] != o->problem->upper[i]) continue;
        const long k = i / m, j = i % m;
        if (B)
            for (long a = 0; a < n; a++) B[(k * n + a) * m + j] = 0.0;
        if (r) r[i] = 0.0;
        memset(S + i * n, 0, sizeof(double) * n);
        for (long a = 0; a < m; a++) R[i * m + a] = R[(k * m + a) * m + j] = 0.0;
        R[i * m + j] = 1.0;
    }
}

/* Expand about a point with the evaluator `plain` or the other one, into `to`: the point, or Q, S and R alone. */
static void newton_evaluate(newton_t *o, const iterate_t *point, long plain, iterate_t *to)
{
    const stages_t *stages = plain ? o->problem->plain : o->problem->exact;
    const end_t *end = plain ? o->problem->plain_end : o->problem->end;
    const double began = now();
    for (long j = 0; j < o->count; j++) expand_phase(newton_kind(o, j, plain), stages + j, o->dims, o->nx, to);
    if (o->python.expand) to->cost = o->python.expand(point - o->points, plain, point != to);
    else expand_end(plain ? &o->plain_end : &o->end, end, o->N, o->dims, o->nx, to);
    newton_hold(o, to->B, to->r, to->S, to->R);
    o->seconds[DERIVATIVES] += now() - began;
}

/* Expand about the trajectory of e; plain: with the Gauss-Newton Hessian of the cost. */
static void newton_expand(newton_t *o, iterate_t *e, long plain)
{
    e->plain = plain;
    newton_evaluate(o, e, plain, e);
}

/* Find the Hessian of the cost about the trajectory of e of the kind (exact or Gauss-Newton) that e does not have. */
static void newton_other(newton_t *o, const iterate_t *e)
{
    iterate_t other = {.xs = e->xs, .us = e->us, .Q = o->oQ, .S = o->oS, .R = o->oR};
    if (o->other_known) return;
    newton_evaluate(o, e, !e->plain, &other);
    o->other_known = 1;
}

/* Find the Hessian of the Lagrangian at the current iterate. */
static void newton_curvature(newton_t *o)
{
    const iterate_t *e = o->at;
    if (o->curvature_known) return;
    if (e->plain) newton_other(o, e);
    const double *Q = e->plain ? o->oQ : e->Q, *S = e->plain ? o->oS : e->S, *R = e->plain ? o->oR : e->R;
    const double began = now();
    const long N = o->N, nx = o->nx, n = o->dims.n, m = o->dims.m;
    for (long j = 0; j < o->count; j++) {
        const newton_phase_t *p = o->phases + j;
        const long k = p->exact.first, last = p->exact.last;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const second_t out = {0.0, e->lambda + (k + 1) * n, NULL, NULL, o->cQ + k * n * n, o->cS + k * m * n, o->cR + k * m * m};
        p->curve(o->problem->curved + j, &at, 0, last - k, &out, p->curve_workspace);
    }
    if (o->python.curve) o->python.curve(e - o->points);
    for (long i = 0; i < N * n * n; i++) o->cQ[i] += Q[i];
    copy(o->cQ + N * n * n, Q + N * n * n, n * n);
    for (long i = 0; i < N * m * n; i++) o->cS[i] += S[i];
    for (long i = 0; i < N * m * m; i++) o->cR[i] += R[i];
    newton_hold(o, NULL, NULL, o->cS, o->cR);
    o->curvature_known = 1;
    o->seconds[DERIVATIVES] += now() - began;
}

/* Compute the costates under the gains of the last step (open loop without any), and the errors of a point; its gradients are NaN if its cost,
   gradient, costates or defects are not finite. */
static void newton_measure(newton_t *o, iterate_t *e)
{
    const double began = now();
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    lq_problem lq = lq_of(e, o->dims, N);
    if (o->bounded) {
        const double *z = o->barrier.z;
        for (long i = 0; i < N * m; i++) o->mr[i] = e->r[i] + (z[N * m + i] - z[i]);
        lq.r = o->mr;
    }
    lq_stationarity(&lq, o->has_policy ? o->last->K : NULL, e->lambda, e->g, o->size);
    e->gradient = largest(e->g, N * m), e->defect = largest(e->d, N * n), e->theta = l1(e->d, N * n);
    e->scaled = 0.0;
    for (long i = 0; i < N * m; i++)
        if (o->size[i % m] > 0.0) e->scaled = larger(e->scaled, fabs(e->g[i]) / o->size[i % m]);
    /* non-finite entries of q, r, A and B make the costates or the gradient non-finite; a non-finite Hessian makes every sweep fail */
    if (!(fabs(e->cost) < HUGE_VAL) || !all_finite(e->g, N * m) || !all_finite(e->lambda, (N + 1) * n) || !all_finite(e->d, N * n))
        e->gradient = e->scaled = NAN;
    o->seconds[BACKWARD] += now() - began;
}

/* l1 norm of the differences between the states of neighboring knots. */
static double travel_of(const newton_t *o, const iterate_t *e)
{
    double sum = 0.0;
    for (long i = 0; i < o->N * o->nx; i++) sum += fabs(e->xs[i + o->nx] - e->xs[i]);
    return sum;
}

/* Answer a request: see Point of trajopt/solvers/methods/requests.py. */
static void answer_point(newton_t *o, const iterate_t *e, int found)
{
    double least = HUGE_VAL, greatest = -HUGE_VAL, logs = 0.0;
    if (o->bounded) barrier_products(&o->barrier, e->us, &least, &greatest), logs = barrier_logs(&o->barrier, e->us);
    const double answer[] = {e->cost, e->gradient, e->scaled, e->defect, e->theta, travel_of(o, e), least, greatest, logs, found};
    copy(o->answer, answer, sizeof answer / sizeof *answer);
}

/* -- linear-quadratic problems ------------------------------------------------------------------------------------------------------ */

static void between(double *to, const double *plain, const double *exact, double fraction, long count)
{
    for (long i = 0; i < count; i++) to[i] = plain[i] + fraction * (exact[i] - plain[i]);
}

static void on_diagonal(double *H, double delta, long knots, long n)
{
    for (long i = 0; i < knots; i++)
        for (long a = 0; a < n; a++) H[(i * n + a) * n + a] += delta;
}

/* LQ problem with a curvature fraction, the damping delta, and the barrier. */
static lq_problem newton_damped_lq(newton_t *o, double fraction, double delta)
{
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    lq_problem lq = lq_of(o->at, o->dims, N);
    if (fraction == 1.0) {
        lq.Q = o->cQ, lq.S = o->cS, lq.R = o->cR;
    } else if (!o->alike && !o->at->plain) {
        newton_other(o, o->at);
        lq.Q = o->oQ, lq.S = o->oS, lq.R = o->oR;
    }
    if ((fraction == 0.0 || fraction == 1.0) && delta == 0.0 && !o->bounded) return lq;
    if (fraction == 0.0 || fraction == 1.0) {
        copy(o->mQ, lq.Q, (N + 1) * n * n), copy(o->mR, lq.R, N * m * m);
    } else {
        between(o->mQ, lq.Q, o->cQ, fraction, (N + 1) * n * n);
        between(o->mS, lq.S, o->cS, fraction, N * m * n);
        between(o->mR, lq.R, o->cR, fraction, N * m * m);
        lq.S = o->mS;
    }
    if (delta != 0.0) on_diagonal(o->mQ, delta, N + 1, n), on_diagonal(o->mR, delta, N, m);
    if (o->bounded) {
        copy(o->mr, lq.r, N * m);
        barrier_impose(&o->barrier, o->at->us, m, o->mR, o->mr);
        lq.r = o->mr;
    }
    lq.Q = o->mQ, lq.R = o->mR;
    return lq;
}

/* Find the first of the curvature fractions first .. last - 1 that yields a convex problem, with its policy in `to`; returns its index, or last
   if there is none. */
static long newton_convex(newton_t *o, long first, long last, double delta, const newton_step_t *to, lq_problem *lq)
{
    const lq_policy policy = {to->K, to->k, o->Vx, o->Vxx};
    const long values = (o->N + 1) * o->dims.n * o->dims.n;
    if (first < GAUSS_NEWTON) newton_curvature(o);
    for (long i = first; i < last; i++) {
        *lq = newton_damped_lq(o, fractions[i], delta);
        const double began = now();
        const int convex = lq_riccati(lq, NULL, 0.0, 0.0, NULL, &policy) < 0 && all_finite(o->Vxx, values);
        o->seconds[BACKWARD] += now() - began;
        if (convex) return i;
    }
    return last;
}

/* -- rollouts ------------------------------------------------------------------------------------------------------------------------- */

/* Roll out `count` step lengths of `alphas`, from the controls us with gains K; nodes: knots at which the rollout starts from the linear step. */
static void newton_roll(newton_t *o, const double *us, const double *K, const newton_step_t *step, const double *alphas, long count,
                        const signed char *nodes)
{
    const double began = now();
    const long N = o->N, nx = o->nx;
    const trials_t r = {N, 0, o->at->xs, us, step->dx, step->du, K, o->at->d, o->problem->lower, o->problem->upper,
                        alphas, nodes, o->X, o->U, o->D};
    memset(o->cost, 0, sizeof(double) * count);
    for (long j = 0; j < o->count; j++) {
        const phase_t *p = &o->phases[j].plain;
        const long tasks = parts_between(p, nodes, count, o->start, o->stop_at, o->trial);
        const parts_t parts = {p->first, o->start, o->stop_at, o->trial, o->part_cost};
        p->roll(o->problem->plain + j, &r, &parts, 0, tasks, p->workspace);
        for (long i = 0; i < tasks; i++) o->cost[o->trial[i]] += o->part_cost[i];
    }
    if (o->python.roll) {
        o->python.roll(&r, count);
    } else {
        o->plain_end.values(o->problem->plain_end, o->X + N * nx, (N + 1) * nx, count, o->part_cost, NULL, o->plain_end.workspace);
        for (long i = 0; i < count; i++) o->cost[i] += o->part_cost[i];
    }
    o->seconds[ROLLOUT] += now() - began;
}

/* Roll out the controls us (N, m) from x0 with gains K and a zero step, into the first row of the trial trajectories. */
static void newton_roll_out(newton_t *o, const double *us, const double *K)
{
    static const double still[1] = {0.0};
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    const newton_step_t *step = o->tried[1];
    memset(step->dx, 0, sizeof(double) * (N + 1) * n), memset(step->du, 0, sizeof(double) * N * m);
    newton_roll(o, us, K, step, still, 1, o->none);
}

/* Answer a request from row i of the trial trajectories: see Trial of trajopt/solvers/methods/requests.py. */
static void answer_trial(newton_t *o, long i, double *to)
{
    const long x = (o->N + 1) * o->nx, u = o->N * o->dims.m, d = o->N * o->dims.n;
    const int finite = all_finite(o->X + i * x, x);
    to[0] = o->cost[i], to[1] = o->bounded ? barrier_logs(&o->barrier, o->U + i * u) : 0.0;
    to[2] = finite ? l1(o->D + i * d, d) : HUGE_VAL;
}

/* -- requests ------------------------------------------------------------------------------------------------------------------------- */

/* AcceptOnBounds: make the next point the current iterate. */
EXPORT void newton_turn(newton_t *o)
{
    iterate_t *left = o->at;
    o->at = o->fresh, o->fresh = left, o->other_known = o->curvature_known = 0;
}

/* Start: load the problem and its guess, with controls moved into the interior of their bounds by `push`, or onto equal ones, and expand there;
   answer: cost. */
EXPORT void newton_start(newton_t *o, double push)
{
    const newton_problem_t *problem = o->problem;
    const long N = o->N, m = o->dims.m;
    iterate_t *at = o->points;
    o->at = at, o->fresh = at + 1;
    o->tried[0] = o->steps, o->tried[1] = o->steps + 1, o->last = o->steps + 2;
    o->barrier = (barrier_t){o->lower, o->upper, o->z, 0.0, N * m};
    o->bounded = problem->lower != NULL, o->has_policy = o->other_known = o->curvature_known = 0;
    memset(o->seconds, 0, sizeof o->seconds);
    copy(at->xs, problem->xs, (N + 1) * o->nx), copy(at->xs, problem->x0, o->nx), copy(at->us, problem->us, N * m);
    for (long i = 0; o->bounded && i < N * m; i++) {
        const int held = problem->lower[i] == problem->upper[i];
        o->lower[i] = held ? -INFINITY : problem->lower[i], o->upper[i] = held ? INFINITY : problem->upper[i];
        if (held) at->us[i] = problem->lower[i];
    }
    if (o->bounded) barrier_interior(&o->barrier, push, at->us);
    at->gradient = at->scaled = at->defect = at->theta = NAN;
    newton_expand(o, at, 0);
    o->answer[0] = at->cost;
}

/* FirstGains: compute gains of the Gauss-Newton problem with the damping delta, no new ones if delta is negative; with bounds and delta = 0, set
   their multipliers first.  Answer: errors of the guess under the gains. */
EXPORT void newton_first_gains(newton_t *o, double delta, double mu)
{
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    const lq_policy policy = {o->last->K, o->last->k, o->Vx, o->Vxx};
    o->barrier.mu = mu;
    if (o->bounded && delta == 0.0) barrier_multipliers(&o->barrier, o->at->us);
    if (delta >= 0.0) {
        const lq_problem lq = newton_damped_lq(o, 0.0, delta);
        const double began = now();
        o->has_policy = lq_riccati(&lq, NULL, 0.0, 0.0, NULL, &policy) < 0 && all_finite(policy.K, N * m * n);
        o->seconds[BACKWARD] += now() - began;
    }
    if (!o->has_policy) memset(policy.K, 0, sizeof(double) * N * m * n), memset(policy.k, 0, sizeof(double) * N * m);
    newton_measure(o, o->at);
    answer_point(o, o->at, (int)o->has_policy);
}

/* IsFinite: 1 if the expansion is finite. */
EXPORT void newton_is_finite(newton_t *o)
{
    const lq_problem lq = lq_of(o->at, o->dims, o->N);
    o->answer[0] = fabs(o->at->cost) < HUGE_VAL && lq_finite(&lq);
}

/* Expand about the next point, for steps with the curvature fractions in the bit mask `asked`, and find its errors. */
static void newton_reach(newton_t *o, long asked)
{
    newton_expand(o, o->fresh, !o->alike && asked == 1L << GAUSS_NEWTON);
    newton_measure(o, o->fresh);
}

/* Accept trial trajectory `row` of the step in `place`; asked: bit mask of the curvature fractions that the next step will request. */
EXPORT void newton_accept(newton_t *o, long place, long row, long asked, double mu)
{
    const long x = (o->N + 1) * o->nx, u = o->N * o->dims.m;
    newton_step_t *step = o->tried[place];
    copy(o->fresh->xs, o->X + row * x, x);
    copy(o->fresh->us, o->U + row * u, u);
    o->barrier.mu = mu;
    if (o->bounded) barrier_stepped(&o->barrier, o->at->us, step->du, o->fresh->us, o->move);
    o->tried[place] = o->last, o->last = step, o->has_policy = 1;
    newton_reach(o, asked);
    newton_turn(o);
    answer_point(o, o->at, 1);
}

/* Step: solve with the first of the curvature fractions first .. last - 1 that yields a convex problem, and roll out its largest step length;
   answer: fraction (-1 if none is convex), slope, longest, size and trial. */
EXPORT void newton_solve_step(newton_t *o, long place, long first, long last, double delta, double mu)
{
    newton_step_t *to = o->tried[place];
    lq_problem lq;
    double change[2];
    o->barrier.mu = mu;
    const long fraction = newton_convex(o, first, last, delta, to, &lq);
    o->answer[0] = -1.0;
    if (fraction == last) return;
    const lq_policy policy = {to->K, to->k, NULL, NULL};
    const double began = now();
    memset(to->dx, 0, sizeof(double) * o->dims.n);
    lq_rollout(&lq, NULL, &policy, to->dx, to->du, change);
    to->longest = o->bounded ? barrier_longest(&o->barrier, o->at->us, to->du) : 1.0;
    o->seconds[BACKWARD] += now() - began;
    newton_roll(o, o->at->us, to->K, to, &to->longest, 1, o->every);
    const double length = fmax(largest(to->dx, (o->N + 1) * o->dims.n), largest(to->du, o->N * o->dims.m));
    const double answer[] = {(double)fraction, change[0], to->longest, length};
    copy(o->answer, answer, 4);
    answer_trial(o, 0, o->answer + 4);
}

/* Roll: roll out up to `count` of the step lengths longest / 2^i from i = first on; returns their number. */
EXPORT long newton_try(newton_t *o, long place, long first, long count)
{
    const newton_step_t *step = o->tried[place];
    if (count > o->trials) count = o->trials;
    for (long i = 0; i < count; i++) o->alphas[i] = ldexp(step->longest, (int)(-first - i));
    newton_roll(o, o->at->us, step->K, step, o->alphas, count, o->every);
    for (long i = 0; i < count; i++) answer_trial(o, i, o->answer + 3 * i);
    return count;
}

/* Restore: roll out the controls from x0 with the gains of the last step, without defects, then move the controls into the interior of their
   bounds, which may open defects; the iterate stays if the rollout or its expansion is not finite. */
EXPORT void newton_restore(newton_t *o, long asked, double mu)
{
    const long N = o->N, m = o->dims.m;
    if (!o->has_policy) memset(o->last->K, 0, sizeof(double) * N * m * o->dims.n);
    newton_roll_out(o, o->at->us, o->last->K);
    if (!(fabs(o->cost[0]) < HUGE_VAL) || !all_finite(o->X, (N + 1) * o->nx)) {
        answer_point(o, o->at, 0);
        return;
    }
    copy(o->fresh->xs, o->X, (N + 1) * o->nx), copy(o->fresh->us, o->U, N * m);
    o->barrier.mu = mu;
    if (o->bounded) barrier_interior(&o->barrier, PUSH, o->fresh->us), copy(o->move, o->z, 2 * N * m), barrier_multipliers(&o->barrier, o->fresh->us);
    newton_reach(o, asked);
    const int finite = o->fresh->gradient == o->fresh->gradient;
    if (finite) newton_turn(o);
    else if (o->bounded) copy(o->z, o->move, 2 * o->N * o->dims.m);
    answer_point(o, o->at, finite);
}

/* OnBounds: set controls that multipliers hold near a bound to that bound, with zero gains in the last step, and roll them out as the next point;
   answer: its errors. */
EXPORT void newton_on_bounds(newton_t *o)
{
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    double *us = o->fresh->us;
    if (!o->has_policy) memset(o->last->K, 0, sizeof(double) * N * m * n);
    copy(us, o->at->us, N * m);
    for (long i = 0; i < N * m; i++) {
        const int side = barrier_holds(&o->barrier, o->at->us, i);
        if (side) us[i] = side == 1 ? o->problem->lower[i] : o->problem->upper[i], memset(o->last->K + i * n, 0, sizeof(double) * n);
    }
    newton_roll_out(o, us, o->last->K);
    copy(o->fresh->xs, o->X, (N + 1) * o->nx), copy(us, o->U, N * m);
    newton_reach(o, 0);
    answer_point(o, o->fresh, 1);
}

/* Gains: write gains about the current iterate, or those of the last step if no problem is convex, to the arrays of the solution; they are zero
   for controls that multipliers hold on a bound. */
EXPORT void newton_gains(newton_t *o, long first)
{
    const long N = o->N, n = o->dims.n, m = o->dims.m;
    const newton_problem_t *p = o->problem;
    lq_problem lq;
    const int convex = newton_convex(o, first, FRACTIONS, 0.0, o->tried[1], &lq) < FRACTIONS;
    const newton_step_t *from = convex ? o->tried[1] : o->last;
    if (!p->to_K || !(convex || o->has_policy)) return;
    copy(p->to_K, from->K, N * m * n), copy(p->to_k, from->k, N * m);
    for (long i = 0; o->bounded && i < N * m; i++)
        if (barrier_holds(&o->barrier, o->at->us, i)) memset(p->to_K + i * n, 0, sizeof(double) * n), p->to_k[i] = 0.0;
}

/* Write the current iterate to the solution arrays of the problem. */
EXPORT void newton_put(const newton_t *o)
{
    copy(o->problem->to_xs, o->at->xs, (o->N + 1) * o->nx);
    copy(o->problem->to_us, o->at->us, o->N * o->dims.m);
}
