/* Slot of shooting methods: memory of one problem, and the kernels that answer its requests (trajopt/solvers/methods/shooting_requests.py), with
   the knots of the problem in lanes.  The method that decides is trajopt/solvers/methods/shooting.py.

   A slot has three iterates (the current, the next and the best one), the last step and the last trial trajectories; if several models compete
   for the step, also another step with its next iterate.  In a window (shooting_window.h), the iterates of a slot share the memory of their blocks,
   which saves memory. */
#pragma once
#include "knots.h"
#include "shooting_constants.h"
#include "slot.h"

/* Direction of a problem in a window that one backward pass computes together with the residuals of the iterate `of`, with the damping mu.  to.K,
   to.k: the spare gains.  to.dx, to.du: NULL if rollouts in a vector space start only at x0; they then need only du - K dx = k, so that (0, k)
   replaces the linear step.  nearly: if the KKT error of an iterate is below it, the pass also finds the KKT error of the next iterate, under the
   gains of the step between. */
typedef struct {
    lq_direction to;
    const iterate_t *of;
    double mu, nearly;
} early_direction_t;

/* Problem: data of the phases and of the final knot (NULL: those of the slot), guess, bounds on us (NULL for none), and arrays of the solution;
   to_K, to_k: NULL without gains. */
typedef struct {
    const stages_t *stages;
    const end_t *end;
    const double *x0, *xs, *us, *lower, *upper;
    double *to_xs, *to_us, *to_K, *to_k;
} shooting_problem_t;

/* State of a rollout: arguments, parts of the current phase, index of the phase, numbers of parts and of step lengths. */
typedef struct {
    trials_t trials;
    parts_t parts;
    long phase, tasks, count;
} rolling_t;

/* Functions of Python for a problem that is not compiled as a whole, or with other models than the plain expansion; NULL if C does their work, with
   `count` = 0 phases for C if it does not.  Iterates are numbered as in `slots`.  expand: expand about an iterate, and return the cost.  model: write
   the Hessian of the LQ problem of the requested model about an iterate to mQ, mS, mR, for a damping mu, and return the knot where Quu cannot be
   factorized, or NONE.  bend: write the parabola of a step dx, du with gains K to `bend`, and return 1, or 0 if there is none.  roll: roll out
   `count` step lengths, and sum their costs in `cost`. */
typedef struct {
    double (*expand)(long number);
    double (*model)(long number, double mu);
    double (*bend)(long number, const double *dx, const double *du, const double *K);
    void (*roll)(const trials_t *trials, long count);
} python_t;

/* Slot.  alphas: 2^DOUBLINGS, 2^(DOUBLINGS - 1), ..., 1, 1/2, ...; at, fresh, best: indices of the current, the next and the best iterate;
   spare_K, spare_k: memory for the next gains; lower_du, upper_du: bounds on the step, masked: gains without those of controls on a bound,
   bounded: workspace of lq_bounded; size, lambda, g: of the last call of kkt; zero_k: a feedforward of zero; X, U, D, cost, part_cost, start,
   stop, trial: trial trajectories and their parts.  mQ, mS, mR: Hessian of the LQ problem of a model.  other_K, other_k, other_step, other: gains,
   step and index of the next iterate of another direction, NULL and NONE without several models.  bend: parabola of the step, and bent: 1 if it has
   one.  nodes: number of shooting nodes; together: step lengths tried together; in_lanes: step lengths
   that take no longer than one; on_state: 1 if mu is added to V'xx, else to Quu; shared: 1 if iterates share the memory of their blocks, which
   then hold those of iterate `holder`; row: row of the first trial in the last answer; known_from, known: rows known_from .. known - 1 are trials
   of the lengths 2^-row of the last direction; kkt: KKT error answered with the last direction.  window: that of the slot, or NULL; request, rolled, mu: current
   request; waits: operation of the window that it waits for.  answer: last answer; seconds: time in derivatives, sweeps and rollouts. */
typedef struct {
    long N, nx, count, nonlinear, nodes, together, in_lanes, on_state, shared, holder, row, known_from, known;
    phase_t *phases;
    final_t end;
    python_t python;
    lq_size dims;
    const signed char *node;
    const double *alphas, *lower, *upper;
    iterate_t slots[4];
    lq_policy policy;
    double *spare_K, *spare_k, *other_K, *other_k, *mQ, *mS, *mR;
    lq_step step, current, extra, other_step, bend;
    double *lower_du, *upper_du, *masked, *size, *lambda, *g, *zero_k, *bounded;
    double *X, *U, *D, *cost, *part_cost;
    long *start, *stop, *trial;
    const shooting_problem_t *problem;
    long at, fresh, best, other, bent;
    double kkt;
    early_direction_t early;
    rolling_t rolling;
    const void *window;
    long request, rolled, waits;
    double mu;
    double seconds[3], answer[ANSWER];
} shooting_t;

static iterate_t *here(shooting_t *s) { return s->slots + s->at; }

static iterate_t *next_of(shooting_t *s) { return s->slots + s->fresh; }

/* -- iterates --------------------------------------------------------------------------------------------------------------- */

/* Expand about the trajectory of an iterate. */
static void expand(shooting_t *s, iterate_t *e)
{
    const double began = now();
    if (s->python.expand) e->cost = s->python.expand(e - s->slots);
    else {
        for (const phase_t *p = s->phases; p < s->phases + s->count; p++) expand_phase(p, p->stages, s->dims, s->nx, e);
        expand_end(&s->end, s->end.end, s->N, s->dims, s->nx, e);
    }
    s->holder = e - s->slots;
    s->seconds[DERIVATIVES] += now() - began;
}

/* Restore the blocks of an iterate: expand again if another iterate has overwritten them. */
static void recall(shooting_t *s, iterate_t *e)
{
    if (!s->shared || s->holder == e - s->slots) return;
    expand(s, e);
    if (e->theta == 0.0) memset(e->d, 0, sizeof(double) * s->N * s->dims.n);
}

/* Largest entry of the projected gradient us - P(us - g), with P the projection on the bounds. */
static double projected(const shooting_t *s, const iterate_t *e)
{
    const long count = s->N * s->dims.m;
    double most = 0.0;
    if (!s->lower) return largest(e->g, count);
    for (long i = 0; i < count; i++) most = fmax(most, fabs(clipped(e->g[i], e->us[i] - s->upper[i], e->us[i] - s->lower[i])));
    return most;
}

/* Compute the residuals of an iterate from its gradient and defects. */
static void note_residuals(const shooting_t *s, iterate_t *e)
{
    e->gradient = all_finite(e->g, s->N * s->dims.m) ? projected(s, e) : NAN;
    e->theta = l1(e->d, s->N * s->dims.n);
}

/* Expand about an iterate and compute its residuals; returns 0 if its cost or LQ problem is not finite.  Gaps at the level of rounding errors
   become zero, as multiplied by costates they would outweigh small gradients; `defect` keeps their size. */
static int measure(shooting_t *s, iterate_t *e)
{
    const long N = s->N, n = s->dims.n;
    expand(s, e);
    const double began = now();
    const lq_problem lq = lq_of(e, s->dims, N);
    const int finite = fabs(e->cost) < HUGE_VAL && lq_finite(&lq);
    if (finite) {
        e->defect = largest(e->d, N * n);
        if (e->defect <= GAP_ROUNDING * (1.0 + largest(e->xs, (N + 1) * s->nx))) memset(e->d, 0, sizeof(double) * N * n);
        lq_stationarity(&lq, NULL, e->lambda, e->g, NULL);
        note_residuals(s, e);
    }
    s->seconds[BACKWARD] += now() - began;
    return finite;
}

/* Set the index of the next iterate to one that is not in use. */
static void find_fresh(shooting_t *s)
{
    for (s->fresh = 0; s->fresh == s->at || s->fresh == s->best || s->fresh == s->other; s->fresh++) {}
}

/* Make the next iterate the current one; MARK: remember the previous one as the best; STAY: no effect. */
static void go(shooting_t *s, long going)
{
    if (going == STAY) return;
    if (going == MARK) s->best = s->at;
    s->at = s->fresh;
    find_fresh(s);
}

static void answer_point(shooting_t *s, const iterate_t *e, int finite)
{
    double most = 0.0;
    for (long i = 0; finite && s->lower && i < s->N * s->dims.m; i++)
        most = fmax(most, fmax(s->lower[i] - e->us[i], e->us[i] - s->upper[i]));
    double *to = s->answer;
    to[0] = finite, to[1] = e->cost, to[2] = e->gradient, to[3] = e->defect, to[4] = e->theta, to[5] = most;
}

/* -- measures --------------------------------------------------------------------------------------------------------------- */


/* Gains of the policy, zero for controls on a bound. */
static const double *free_gains(const shooting_t *s, const iterate_t *e)
{
    const long n = s->dims.n, m = s->dims.m;
    if (!s->lower) return s->policy.K;
    copy(s->masked, s->policy.K, s->N * m * n);
    for (long i = 0; i < s->N * m; i++)
        if (e->us[i] <= s->lower[i] || e->us[i] >= s->upper[i]) memset(s->masked + i * n, 0, sizeof(double) * n);
    return s->masked;
}

/* Derivative of the cost along the step as the fraction `closed` of the defects `gaps` closes: sum_k g_k'(du - K dx)_k + lambda_(k+1)'d_k, with
   the costates and the gradient under K of the last call of kkt.  This form avoids the cancellation in q'dx + r'du and the growth of open-loop
   costates on unstable motions. */
static double slope(const shooting_t *s, const iterate_t *e, const double *gaps, double closed)
{
    const long n = s->dims.n, m = s->dims.m;
    const double *K = free_gains(s, e);
    double sum = closed * dot(s->lambda + n, gaps, s->N * n);
    for (long i = 0; i < s->N; i++)
        for (long a = i * m; a < (i + 1) * m; a++) sum += s->g[a] * (s->step.du[a] - dot(K + a * n, s->step.dx + i * n, n));
    return sum;
}

/* Gradient of control number i (of N m) under the gains of the policy; zero if it pushes against a bound. */
static double inward(const shooting_t *s, const iterate_t *e, long i)
{
    double g = s->g[i];
    if (s->lower && e->us[i] <= s->lower[i]) g = fmin(g, 0.0);
    if (s->lower && e->us[i] >= s->upper[i]) g = fmax(g, 0.0);
    return g;
}

/* Scaled KKT error under the gains of the policy: see trajopt/solvers/rules/cost_size.py.  A window may have found it with the
   direction.  `g` then holds the gradient under these gains. */
static double kkt(shooting_t *s, iterate_t *e)
{
    const long N = s->N, n = s->dims.n, m = s->dims.m;
    const early_direction_t *early = &s->early;
    if (early->of == e && early->to.found && early->to.under == s->policy.K) return fmax(largest(e->d, N * n), early->to.kkt_under);
    recall(s, e);
    const lq_problem lq = lq_of(e, s->dims, N);
    const double *K = free_gains(s, e);
    double most = largest(e->d, N * n);
    lq_stationarity(&lq, K, s->lambda, s->g, s->size);
    for (long i = 0; i < N * m; i++) {
        const double size = s->size[i % m];
        if (size > 0.0) most = fmax(most, fabs(inward(s, e, i)) / size);
    }
    return most;
}

/* -- rollouts --------------------------------------------------------------------------------------------------------------- */

/* List the parts of the current phase that are rolled out in lanes, for all step lengths. */
static void roll_phase(shooting_t *s)
{
    rolling_t *r = &s->rolling;
    const phase_t *p = s->phases + r->phase;
    r->tasks = parts_between(p, r->trials.nonlinear ? NULL : s->node, r->count, s->start, s->stop, s->trial);
    r->parts = (parts_t){p->first, s->start, s->stop, s->trial, s->part_cost};
}

/* Start rollouts along a step with gains K, for `count` step lengths 2^-first, ...; results: X, U, D and costs. */
static void roll_begin(shooting_t *s, const double *K, lq_step step, long nonlinear, long first, long count)
{
    const iterate_t *e = here(s);
    rolling_t *r = &s->rolling;
    r->trials = (trials_t){s->N, nonlinear, e->xs, e->us, step.dx, step.du, K, e->d, s->lower, s->upper, s->alphas + first + DOUBLINGS,
                           s->node, s->X, s->U, s->D};
    r->phase = 0, r->count = count;
    memset(s->cost, 0, sizeof(double) * count);
    if (s->count) roll_phase(s);
}

/* Sum the costs of a rolled-out phase and prepare the next phase; returns 0 after the last phase. */
static int roll_on(shooting_t *s)
{
    rolling_t *r = &s->rolling;
    for (long k = 0; k < r->tasks; k++) s->cost[s->trial[k]] += s->part_cost[k];
    if (++r->phase < s->count) {
        roll_phase(s);
        return 1;
    }
    s->end.values(s->end.end, s->X + s->N * s->nx, (s->N + 1) * s->nx, r->count, s->part_cost, NULL, s->end.workspace);
    for (long i = 0; i < r->count; i++) s->cost[i] += s->part_cost[i];
    return 0;
}

static void roll_here(shooting_t *s)
{
    const phase_t *p = s->phases + s->rolling.phase;
    p->roll(p->stages, &s->rolling.trials, &s->rolling.parts, 0, s->rolling.tasks, p->workspace);
}

/* Run the rollouts that roll_begin started. */
static void roll_all(shooting_t *s)
{
    const double began = now();
    if (s->python.roll) s->python.roll(&s->rolling.trials, s->rolling.count);
    else {
        do roll_here(s);
        while (roll_on(s));
    }
    s->seconds[ROLLOUT] += now() - began;
}

/* Answer `count` trials, whose trajectories are the rows from s->row on. */
static void answer_trials(const shooting_t *s, long count, double *to)
{
    const long x = (s->N + 1) * s->nx, d = s->N * s->dims.n;
    for (long i = s->row; i < s->row + count; i++, to += 2)
        to[0] = s->cost[i], to[1] = all_finite(s->X + i * x, x) ? l1(s->D + i * d, d) : HUGE_VAL;
}

/* -- the start -------------------------------------------------------------------------------------------------------------- */

/* Roll out the guess with the spare gains, from its states at the nodes; returns the cost. */
static double roll_guess(shooting_t *s)
{
    roll_begin(s, s->spare_K, s->step, 0, 0, 1);
    roll_all(s);
    return s->cost[0];
}

/* Roll out the guess with the policy of its LQ problem, or with the feedback gains alone, if either costs less than the rollout without
   feedback. */
static void hold(shooting_t *s, double cost)
{
    enum { OPEN, GAINS, POLICY } best = OPEN;
    const long gains = s->N * s->dims.m * s->dims.n, controls = s->N * s->dims.m;
    const lq_problem lq = lq_of(here(s), s->dims, s->N);
    const lq_policy to = {s->spare_K, s->spare_k, s->policy.Vx, s->policy.Vxx};
    const double began = now();
    const int swept = lq_finite(&lq) && lq_riccati(&lq, NULL, 0.0, HOLDING, NULL, &to) < 0;
    s->seconds[BACKWARD] += now() - began;
    if (swept) {
        const double held = roll_guess(s);
        if (fabs(held) < HUGE_VAL && !(cost <= held)) best = GAINS, cost = held;
        copy(s->step.du, s->spare_k, controls);
        const double led = roll_guess(s);
        if (fabs(led) < HUGE_VAL && !(cost <= led)) best = POLICY;
    }
    if (best == OPEN) memset(s->spare_K, 0, sizeof(double) * gains);
    if (best != POLICY) {
        memset(s->step.du, 0, sizeof(double) * controls);
        roll_guess(s);
    }
}

/* Load the problem with its guess, which starts at x0 and is clipped to the bounds; reset the gains. */
static void take(shooting_t *s)
{
    const shooting_problem_t *p = s->problem;
    const long N = s->N, n = s->dims.n, m = s->dims.m;
    s->lower = p->lower, s->upper = p->upper;
    for (long i = 0; p->stages && i < s->count; i++) s->phases[i].stages = p->stages + i;
    if (p->end) s->end.end = p->end;
    s->at = 0, s->fresh = 1, s->best = s->holder = NONE, s->other = s->other_K ? 3 : NONE, s->kkt = HUGE_VAL, s->early.of = NULL;
    iterate_t *e = here(s);
    copy(e->xs, p->xs, (N + 1) * s->nx);
    copy(e->xs, p->x0, s->nx);
    for (long i = 0; i < N * m; i++) e->us[i] = s->lower ? clipped(p->us[i], s->lower[i], s->upper[i]) : p->us[i];
    memset(s->step.dx, 0, sizeof(double) * (N + 1) * n);
    memset(s->step.du, 0, sizeof(double) * N * m);
    memset(s->spare_K, 0, sizeof(double) * N * m * n);
    memset(s->policy.K, 0, sizeof(double) * N * m * n);
    memset(s->policy.k, 0, sizeof(double) * N * m);
    s->bent = 0;
}

/* After the rollout of the guess, set the first iterate; use a rollout with feedback if that costs less. */
static void start_from(shooting_t *s)
{
    iterate_t *e = here(s);
    const double cost = s->cost[0];
    if (s->nodes < s->N) { /* if every knot is a node, no state depends on another */
        expand(s, e);
        if (!(cost <= FALLEN * fmax(1.0, fabs(e->cost)))) hold(s, cost);
    }
    copy(e->xs, s->X, (s->N + 1) * s->nx);
    copy(e->us, s->U, s->N * s->dims.m);
}

/* -- steps ------------------------------------------------------------------------------------------------------------------ */

/* Bounds on du at an iterate. */
static lq_bounds bounds_at(const shooting_t *s, const iterate_t *e)
{
    for (long i = 0; i < s->N * s->dims.m; i++)
        s->lower_du[i] = s->lower[i] - e->us[i], s->upper_du[i] = s->upper[i] - e->us[i];
    return (lq_bounds){s->lower_du, s->upper_du};
}

/* Curvature D2 of the cost along a step, whose second-order change is alpha^2/2 D2. */
static double curvature(const shooting_t *s, lq_problem p, lq_step step)
{
    const long n = s->dims.n, m = s->dims.m;
    double D2 = 0.0;
    for (long i = 0; i <= p.N; i++) {
        const double *x = step.dx + i * n, *u = step.du + i * m;
        for (long a = 0; a < n; a++) D2 += x[a] * dot(p.Q + (i * n + a) * n, x, n);
        if (i == p.N) break;
        for (long a = 0; a < m; a++) D2 += u[a] * (2.0 * dot(p.S + (i * m + a) * n, x, n) + dot(p.R + (i * m + a) * m, u, m));
    }
    return D2;
}

/* Swap the gains of the policy and the spare gains. */
static void take_policy(shooting_t *s)
{
    double *K = s->policy.K, *k = s->policy.k;
    s->policy.K = s->spare_K, s->policy.k = s->spare_k;
    s->spare_K = K, s->spare_k = k;
}

/* LQ problem about the current iterate, with the Hessian of the requested model; sets `failed` to the knot where its Quu cannot be factorized, or
   NONE. */
static lq_problem model_here(shooting_t *s, double mu, long *failed)
{
    lq_problem lq = lq_of(here(s), s->dims, s->N);
    *failed = NONE;
    if (s->python.model) {
        *failed = (long)s->python.model(s->at, mu);
        lq.Q = s->mQ, lq.S = s->mS, lq.R = s->mR;
    }
    return lq;
}

/* Answer a Step; failed: knot where the sweep failed, or NONE. */
static void answer_direction(shooting_t *s, long failed, double D2)
{
    double *to = s->answer;
    iterate_t *at = here(s);
    to[0] = failed;
    if (failed >= 0) return;
    take_policy(s);
    s->kkt = to[4] = kkt(s, at);
    to[1] = slope(s, at, at->d, 1.0), to[2] = D2;
    to[3] = fmax(largest(s->step.dx, (s->N + 1) * s->dims.n), largest(s->step.du, s->N * s->dims.m));
}

/* Solve for the policy and its linear step. */
static void solve_direction(shooting_t *s, double mu)
{
    const double began = now(), on_state = s->on_state ? mu : 0.0;
    iterate_t *at = here(s);
    recall(s, at);
    s->early.of = NULL;
    long failed;
    const lq_problem lq = model_here(s, mu, &failed);
    const lq_policy to = {s->spare_K, s->spare_k, s->policy.Vx, s->policy.Vxx};
    double change[2] = {0.0, 0.0};
    memset(s->step.dx, 0, sizeof(double) * s->dims.n); /* trajectories begin at x0 */
    if (failed < 0 && s->lower) {
        const lq_bounds limits = bounds_at(s, at);
        failed = lq_bounded(&lq, &limits, on_state, mu - on_state, &to, s->step.dx, s->step.du, s->bounded);
        if (failed < 0) change[1] = curvature(s, lq, s->step);
    } else if (failed < 0) {
        failed = lq_riccati(&lq, NULL, on_state, mu - on_state, NULL, &to);
        if (failed < 0) lq_rollout(&lq, NULL, &to, s->step.dx, s->step.du, change);
    }
    answer_direction(s, failed, change[1]);
    s->seconds[BACKWARD] += now() - began;
}

/* Second-order correction (Maratos effect: Nocedal & Wright, section 18.3): extend the step so that it also closes the defects of the last
   rollout, with the same policy. */
static void correct(shooting_t *s, long again)
{
    iterate_t *at = here(s);
    recall(s, at);
    const double began = now();
    const long n = s->dims.n, m = s->dims.m;
    const lq_step current = s->current;
    lq_problem lq = lq_of(at, s->dims, s->N);
    lq_policy feedback = s->policy;
    lq_bounds limits;
    double change[2];
    if (!again) {
        copy(current.dx, s->step.dx, (s->N + 1) * n);
        copy(current.du, s->step.du, s->N * m);
    }
    lq.d = s->D;
    memset(s->zero_k, 0, sizeof(double) * s->N * m);
    feedback.k = s->zero_k;
    if (s->lower) {
        limits = bounds_at(s, at);
        for (long i = 0; i < s->N * m; i++) s->lower_du[i] -= current.du[i], s->upper_du[i] -= current.du[i];
    }
    memset(s->extra.dx, 0, sizeof(double) * n);
    lq_rollout(&lq, s->lower ? &limits : NULL, &feedback, s->extra.dx, s->extra.du, change);
    for (long i = 0; i < (s->N + 1) * n; i++) current.dx[i] += s->extra.dx[i];
    for (long i = 0; i < s->N * m; i++) current.du[i] += s->extra.du[i];
    s->seconds[BACKWARD] += now() - began;
}

/* Copy trial trajectory `row` of the last answer to the next iterate. */
static void take_row(shooting_t *s, long row)
{
    const long x = (s->N + 1) * s->nx, u = s->N * s->dims.m;
    iterate_t *e = next_of(s);
    copy(e->xs, s->X + (s->row + row) * x, x);
    copy(e->us, s->U + (s->row + row) * u, u);
    if (s->holder == s->fresh) s->holder = NONE;
    if (s->early.of == e) s->early.of = NULL;
}

/* -- requests; those for rollouts, expansions and directions are in shooting_window.h ----------------------------------------------- */

EXPORT void shooting_rate(shooting_t *s, double alpha)
{
    const double began = now();
    iterate_t *e = next_of(s);
    s->answer[0] = kkt(s, e), s->answer[1] = slope(s, e, here(s)->d, 1.0 - alpha);
    s->seconds[BACKWARD] += now() - began;
}

EXPORT void shooting_go(shooting_t *s, long going) { go(s, going); }

/* Exchange the direction, with its next iterate, and the other one. */
EXPORT void shooting_swap(shooting_t *s)
{
    double *K = s->policy.K, *k = s->policy.k;
    const lq_step step = s->step;
    const long fresh = s->fresh;
    s->policy.K = s->other_K, s->policy.k = s->other_k, s->step = s->other_step, s->fresh = s->other;
    s->other_K = K, s->other_k = k, s->other_step = step, s->other = fresh;
}

EXPORT void shooting_back(shooting_t *s)
{
    s->at = s->best;
    find_fresh(s);
}

EXPORT void shooting_kkt(shooting_t *s)
{
    const double began = now();
    const iterate_t *e = here(s);
    double gradient = 0.0;
    s->answer[0] = kkt(s, here(s));
    for (long i = 0; i < s->N * s->dims.m; i++) gradient = fmax(gradient, fabs(inward(s, e, i)));
    s->answer[1] = gradient;
    s->seconds[BACKWARD] += now() - began;
}

/* Gains about the current iterate, or the last ones if the sweep cannot factorize Quu. */
EXPORT void shooting_gains(shooting_t *s, double mu)
{
    const double began = now(), on_state = s->on_state ? mu : 0.0;
    const shooting_problem_t *p = s->problem;
    const lq_policy to = {p->to_K, p->to_k, s->policy.Vx, s->policy.Vxx};
    const long steps = s->N * s->dims.m;
    long failed;
    lq_bounds limits;
    if (!p->to_K) return;
    recall(s, here(s));
    const lq_problem lq = model_here(s, mu, &failed);
    if (s->lower) limits = bounds_at(s, here(s));
    if (failed >= 0 || lq_riccati(&lq, s->lower ? &limits : NULL, on_state, mu - on_state, NULL, &to) >= 0)
        copy(p->to_K, s->policy.K, steps * s->dims.n), copy(p->to_k, s->policy.k, steps);
    s->seconds[BACKWARD] += now() - began;
}

/* Write the current iterate to the solution arrays of the problem. */
EXPORT void shooting_put(shooting_t *s)
{
    copy(s->problem->to_xs, here(s)->xs, (s->N + 1) * s->nx);
    copy(s->problem->to_us, here(s)->us, s->N * s->dims.m);
}
