/* The step of an iteration of Newton's loop: the twin of filter.py and of NewtonLoop._step of newton_loop.py.  Before this text stands
   newton_model.h. */

static int newton_by_cost(const newton_t *o, double theta, double expected)
{
    return theta <= CLOSED * o->scale || (theta <= SMALL * o->scale && -expected > 0.0 && pow(-expected, SWITCH_PHI) > pow(theta, SWITCH_THETA));
}

static int newton_accepts(const newton_t *o, double theta, double phi, double gaps, double value, double expected)
{
    const double *pairs = o->pairs;
    const long kept = o->paired < o->most_pairs ? o->paired : o->most_pairs;
    if (gaps > WIDE * o->scale) return 0;
    for (long i = 0; i < kept; i++)
        if (!(gaps <= (1.0 - MARGIN) * pairs[2 * i] || value <= pairs[2 * i + 1] - MARGIN * pairs[2 * i])) return 0;
    if (newton_by_cost(o, theta, expected)) return value <= phi + ARMIJO * fmin(expected, 0.0) + NOISE * fabs(phi);
    return gaps <= (1.0 - MARGIN) * theta || value <= phi - MARGIN * theta;
}

/* Remember a point that was left by a step for its gaps; the oldest is forgotten where there is no more room. */
static void newton_remember(newton_t *o, double theta, double phi)
{
    double *pair = o->pairs + 2 * (o->paired++ % o->most_pairs);
    pair[0] = theta, pair[1] = phi;
}

/* Trajectories for `count` step lengths from `alphas` on; nodes: where parts begin. */
static void newton_roll(newton_t *o, const newton_found_t *step, const double *alphas, long count, const signed char *nodes)
{
    const double began = now();
    const long N = o->N, nx = o->nx;
    if (o->abreast && nodes == o->every) {
        o->abreast->roll(o, step, *alphas);
        o->record.seconds[ROLLOUT] += now() - began;
        return;
    }
    const trials_t r = {N, 0, o->at->xs, o->at->us, step->dx, step->du, step->K, o->at->d, o->m->lower, o->m->upper, alphas, nodes, o->X, o->U, o->D};
    memset(o->cost, 0, sizeof(double) * count);
    for (long j = 0; j < o->count; j++) {
        const phase_t *p = &o->phases[j].plain;
        long tasks = 0, begin = p->first;
        for (long knot = p->first + 1; knot <= p->last; knot++) {
            if (knot < p->last && !nodes[knot]) continue;
            for (long i = 0; i < count; i++, tasks++) o->start[tasks] = begin, o->stop_at[tasks] = knot, o->trial[tasks] = i;
            begin = knot;
        }
        const parts_t parts = {p->first, o->start, o->stop_at, o->trial, o->part_cost};
        p->roll(o->m->plain + j, &r, &parts, 0, tasks, p->room);
        for (long i = 0; i < tasks; i++) o->cost[o->trial[i]] += o->part_cost[i];
    }
    o->plain_end.values(o->m->plain_end, o->X + N * nx, (N + 1) * nx, count, o->part_cost, NULL, o->plain_end.room);
    for (long i = 0; i < count; i++) o->cost[i] += o->part_cost[i];
    o->record.seconds[ROLLOUT] += now() - began;
}

/* The first of the steps 1, 1/2, ... that the filter accepts, for the policy in `to`; the full one is tried alone. */
static int newton_searched(newton_t *o, const lq_problem *lq, double delta, newton_found_t *to)
{
    const long N = o->N, x = (N + 1) * o->nx, d = N * o->sweeps.n, u = N * o->sweeps.m;
    const lq_policy policy = {to->K, to->k, NULL, NULL};
    const double began = now();
    if (!o->abreast) {
        double change[2];
        memset(to->dx, 0, sizeof(double) * o->sweeps.n);
        o->sweeps.rollout(lq, NULL, &policy, to->dx, to->du, change);
        to->slope = change[0];
        o->record.seconds[BACKWARD] += now() - began;
    }
    to->delta = delta, to->longest = o->bounded ? barrier_longest(&o->barrier, o->at->us, to->du) : 1.0;
    for (long i = 0; i < o->lengths; i++) o->own_alphas[i] = to->longest * o->alphas[i];
    const double start = newton_phi(o, o->at->cost, o->at->us);
    for (long first = 0, count; first < o->lengths; first += count) {
        count = first == 0 ? 1 : o->lengths - first < o->trials ? o->lengths - first : o->trials;
        newton_roll(o, to, o->own_alphas + first, count, o->every);
        for (long i = 0; i < count; i++) {
            const double alpha = o->own_alphas[first + i], theta = l1(o->D + i * d, d), phi = newton_phi(o, o->cost[i], o->U + i * u);
            if (!all_finite(o->X + i * x, x) || !(fabs(theta) < HUGE_VAL) || !(fabs(phi) < HUGE_VAL)) continue;
            if (!newton_accepts(o, o->at->theta, start, theta, phi, to->slope * alpha)) continue;
            to->alpha = alpha, to->theta = theta, to->phi = phi;
            copy(to->xs, o->X + i * x, x), copy(to->us, o->U + i * u, u);
            return 1;
        }
    }
    return 0;
}

static double newton_raised(const newton_t *o, double delta)
{
    if (delta == 0.0) return fmax(FIRST, DECAY * o->last_delta);
    return delta * (o->last_delta != 0.0 ? GROWTH : LEAP);
}

/* A step that the filter accepts, by the shares first .. last, with more damping than delta until there is one. */
static int newton_damped(newton_t *o, int first, int last, double delta, newton_found_t *to)
{
    for (; delta < LARGEST; delta = newton_raised(o, delta)) {
        lq_problem lq;
        if (o->abreast && delta != 0.0) return o->abreast->damped(o, first, last, delta, to);
        const int share = newton_convex(o, first, last, delta, to, &lq);
        if (share == last) continue;
        to->share = share;
        if (newton_searched(o, &lq, delta, to)) {
            o->last_delta = delta != 0.0 ? delta : o->last_delta * DECAY;
            return 1;
        }
        if (fabs(to->slope) <= AT_ROUNDING * fabs(newton_phi(o, o->at->cost, o->at->us)) && o->at->defect <= o->defect_tolerance) return 0;
        first = share, last = share + 1;
    }
    return 0;
}

static double newton_merit(const newton_t *o, const newton_found_t *step)
{
    return step->phi + o->at->costate * step->theta;
}

/* The step to take, in o->best; where short ones follow each other, damped ones compete. */
static int newton_step(newton_t *o)
{
    const int widest = (int)o->widest, spared = widest < SHARES - 1 && o->plain > 0 && o->at->scaled > FAR;
    int found = 0;
    if (spared) o->plain--, found = newton_damped(o, SHARES - 1, SHARES, 0.0, o->best);
    const int asked = !found;
    if (asked) {
        newton_exact(o, o->at);
        found = newton_damped(o, widest, SHARES, 0.0, o->best);
        o->plain = found && o->best->share == SHARES - 1 ? PLAIN : 0;
    }
    o->short_steps = found && o->best->alpha <= SHORT * o->best->longest ? o->short_steps + 1 : 0;
    if (!found || o->short_steps) o->plain = 0;
    if (!found || o->short_steps < PATIENCE) return found;
    const double before = o->last_delta;
    double delta = o->best->delta;
    if (!asked) newton_exact(o, o->at);
    for (int i = 0; i < RIVALS; i++) {
        if (!newton_damped(o, widest, widest + 1, newton_raised(o, delta), o->rival)) break;
        const int short_step = o->rival->alpha <= SHORT * o->rival->longest;
        delta = o->rival->delta;
        if (newton_merit(o, o->rival) < newton_merit(o, o->best)) {
            newton_found_t *won = o->rival;
            o->rival = o->best, o->best = won;
        }
        if (!short_step) break;
    }
    o->last_delta = o->best->delta != 0.0 ? o->best->delta : before;
    return 1;
}

