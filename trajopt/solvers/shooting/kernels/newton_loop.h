/* Solves by Newton's loop: the twin of newton_loop.py.  Before this text stands newton_search.h.

   A solve is begun, iterated until something else than NONE comes back, and ended; single solves do so call by call, batches one problem
   after the other on each thread.  A problem's values are those of its member, which must live as long. */

/* Let the points change places. */
EXPORT void newton_turn(newton_t *o)
{
    newton_point_t *left = o->at;
    o->at = o->fresh, o->fresh = left, o->other_known = 0;
}

/* Tell of the point where the solve is, without a step. */
static void newton_tell(newton_t *o)
{
    newton_record_t *r = &o->record;
    const newton_point_t *at = o->at;
    r->cost = at->cost, r->merit = newton_phi(o, at->cost, at->us), r->stop = newton_stop(o, at);
    r->gradient = at->gradient, r->defect = at->defect, r->kkt = at->kkt;
    r->delta = r->step_norm = r->expected = r->actual = r->alpha = 0.0, r->share = NONE;
}

/* Tell of the step that is taken from there. */
static void newton_tell_step(newton_t *o, const newton_found_t *step)
{
    newton_record_t *r = &o->record;
    const double size = fmax(largest(step->dx, (o->N + 1) * o->sweeps.n), largest(step->du, o->N * o->sweeps.m));
    r->delta = step->delta, r->alpha = step->alpha, r->step_norm = step->alpha * size, r->share = step->share;
    r->expected = -step->slope * step->alpha, r->actual = r->merit - step->phi;
}

static int no_progress(const newton_t *o)
{
    return o->at->kkt <= NEARLY_SOLVED * SOLVED && o->at->defect <= NEARLY_SOLVED * o->defect_tolerance ? ROUNDED : NO_STEP;
}

/* Let the fresh point be there, with its expansion; asked: shares, as bits, of which attempts are made from it beside others. */
static void go_to(newton_t *o, const double *xs, const double *us, long asked)
{
    copy(o->fresh->xs, xs, (o->N + 1) * o->nx);
    copy(o->fresh->us, us, o->N * o->sweeps.m);
    if (o->abreast) newton_attempt(o, o->fresh, asked, 0.0, o->last->K);
    else newton_expand(o, o->fresh);
}

/* The shares that the next step will ask for. */
static long newton_next_asked(const newton_t *o) { return newton_asked(o, o->plain > 0 ? SHARES - 1 : (int)o->widest, SHARES); }

static void arrive(newton_t *o)
{
    newton_measure(o, o->fresh);
    newton_turn(o);
    o->iteration++;
}

/* Go on from the roll-out of the last policy, without gaps; the end, or NONE. */
static int newton_restore(newton_t *o)
{
    static const double still[1] = {0.0};
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    if (o->at->kkt <= SOLVED || o->at->theta == 0.0 || o->restored++ >= MAX_RESTORED) return no_progress(o);
    memset(o->rival->dx, 0, sizeof(double) * (N + 1) * n), memset(o->rival->du, 0, sizeof(double) * N * m);
    if (o->has_policy) copy(o->rival->K, o->last->K, N * m * n);
    else memset(o->rival->K, 0, sizeof(double) * N * m * n);
    newton_roll(o, o->rival, still, 1, o->none);
    if (!(fabs(o->cost[0]) < HUGE_VAL) || !all_finite(o->X, (N + 1) * o->nx)) return no_progress(o);
    if (o->bounded) barrier_interior(&o->barrier, o->U), copy(o->move, o->z, 2 * N * m), barrier_multipliers(&o->barrier, o->U);
    go_to(o, o->X, o->U, newton_next_asked(o));
    if (!newton_finite(o, o->fresh)) {
        if (o->bounded) copy(o->z, o->move, 2 * N * m);
        return no_progress(o);
    }
    arrive(o);
    o->scale = fmax(1.0, o->at->theta), o->paired = 0;
    return NONE;
}

/* One iteration; the end, or NONE. */
static int newton_advance(newton_t *o)
{
    const double cost = o->at->cost;
    while (o->bounded && barrier_lowered(&o->barrier, newton_error(o, o->at, o->barrier.mu), size_of_cost(cost))) o->paired = 0;
    newton_tell(o);
    if (!newton_step(o)) return newton_restore(o);
    newton_found_t *taken = o->best;
    newton_tell_step(o, taken);
    if (!newton_by_cost(o, o->at->theta, -o->record.expected)) newton_remember(o, o->at->theta, o->record.merit);
    o->best = o->last, o->last = taken, o->has_policy = 1;
    if (o->bounded) barrier_stepped(&o->barrier, o->at->us, taken->du, taken->us, o->move);
    go_to(o, taken->xs, taken->us, newton_next_asked(o));
    arrive(o);
    const newton_point_t *new = o->at;
    const double change = fabs(cost - new->cost);
    if (change < o->cost_tolerance * fabs(new->cost) && new->defect <= o->defect_tolerance) {
        o->change = change / fabs(new->cost);
        return CHEAPER;
    }
    const int better = new->kkt < BETTER * o->least || fabs(o->record.expected) > LITTLE * size_of_cost(cost);
    o->least = fmin(o->least, new->kkt), o->idle = better ? 0 : o->idle + 1;
    return o->idle > STALLED ? ROUNDED : NONE;
}

/* Gains for the first costates, and with them, for problems side by side, the expansion; whether there are any. */
static int newton_first_gains(newton_t *o)
{
    const lq_policy policy = {o->last->K, o->last->k, o->Vx, o->Vxx};
    const long steps = o->N * o->sweeps.m, gains = steps * o->sweeps.n;
    for (double delta = 0.0; delta < LARGEST; delta = fmax(FIRST, LEAP * delta)) {
        if (o->abreast) {
            newton_attempt(o, o->at, newton_asked(o, (int)o->widest, SHARES), delta, NULL);
            if (o->ahead.convex >> (SHARES - 1) & 1) {
                copy(o->last->K, o->ahead.K[SHARES - 1], gains), copy(o->last->k, o->ahead.k[SHARES - 1], steps);
                newton_grow(o, o->last->k, o->ahead.k_by[SHARES - 1], steps);
                return 1;
            }
            if (!(fabs(o->at->cost) < HUGE_VAL) || !(o->at->theta < HUGE_VAL)) break;
            continue;
        }
        const lq_problem lq = newton_part(o, 0.0, delta);
        const double began = now();
        const int convex = o->sweeps.riccati(&lq, NULL, 0.0, 0.0, NULL, &policy) < 0 && all_finite(o->last->K, gains);
        o->record.seconds[BACKWARD] += now() - began;
        if (convex) return 1;
    }
    memset(o->last->K, 0, sizeof(double) * gains), memset(o->last->k, 0, sizeof(double) * steps);
    if (o->abreast) newton_attempt(o, o->at, 0, 0.0, o->last->K);
    return 0;
}

/* A barrier whose weight fits the cost of the guess. */
static void newton_begin_barrier(newton_t *o, double cost)
{
    o->barrier.mu = BARRIER_SHARE * size_of_cost(cost) / (double)o->barrier.count;
    barrier_multipliers(&o->barrier, o->at->us);
}

/* The cost of the guess, without an expansion. */
static double newton_cost(newton_t *o)
{
    static const double still[1] = {0.0};
    memset(o->rival->dx, 0, sizeof(double) * (o->N + 1) * o->sweeps.n), memset(o->rival->du, 0, sizeof(double) * o->N * o->sweeps.m);
    newton_roll(o, o->rival, still, 1, o->every);
    return o->cost[0];
}

/* The guess of a problem with its expansion, and gains for its first costates: NONE, or an end where numbers are not finite. */
EXPORT long newton_begin(newton_t *o, const newton_member_t *member)
{
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    newton_point_t *at = o->points;
    o->m = member, o->at = at, o->fresh = at + 1, o->best = o->found, o->rival = o->found + 1, o->last = o->found + 2;
    o->barrier = (barrier_t){member->lower, member->upper, o->z, 0.0, N * m};
    o->bounded = member->lower != NULL, o->began = now(), o->least = HUGE_VAL, o->last_delta = o->change = 0.0;
    o->paired = o->has_policy = o->other_known = o->iteration = o->restored = o->idle = o->short_steps = o->plain = 0;
    o->last->delta = 0.0, o->last->share = NONE;
    memset(&o->record, 0, sizeof o->record);
    copy(at->xs, member->xs, (N + 1) * o->nx), copy(at->xs, member->x0, o->nx), copy(at->us, member->us, N * m);
    if (o->bounded) barrier_interior(&o->barrier, at->us);
    if (o->abreast) {
        if (o->bounded) newton_begin_barrier(o, newton_cost(o));
        o->has_policy = newton_first_gains(o);
    } else newton_expand(o, at), at->gradient = at->defect = at->kkt = NAN;
    if (!newton_finite(o, at)) return NOT_FINITE;
    if (!o->abreast) {
        if (o->bounded) newton_begin_barrier(o, at->cost);
        o->has_policy = newton_first_gains(o);
    }
    newton_measure(o, at);
    o->scale = fmax(1.0, at->theta);
    return NONE;
}

/* See NewtonLoop._finished; NONE where the solve goes on. */
static long newton_finished(const newton_t *o)
{
    const newton_point_t *at = o->at;
    if (newton_stop(o, at) <= 1.0 || (at->kkt <= o->kkt_tolerance && at->defect <= o->defect_tolerance)) return OPTIMAL;
    if (o->iteration >= o->m->max_iterations) return MOST_ITERATIONS;
    if (o->time_limit > 0.0 && now() - o->began > o->time_limit) return OUT_OF_TIME;
    return *o->stop ? INTERRUPTED : NONE;
}

/* One iteration, if the solve is not at its end: that end, or NONE.  Where `iteration` has risen, the record tells what it did. */
EXPORT long newton_iterate(newton_t *o)
{
    const long end = newton_finished(o);
    memset(o->record.seconds, 0, sizeof o->record.seconds);
    if (end != NONE) return end;
    return o->abreast && o->abreast->is_alone(o) ? o->abreast->iterate(o) : newton_advance(o);
}

/* The gains about the solution, or those of the last step. */
static void newton_gains(newton_t *o)
{
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    lq_problem lq;
    newton_exact(o, o->at);
    const newton_found_t *from = newton_convex(o, (int)o->widest, SHARES, 0.0, o->rival, &lq) < SHARES ? o->rival : o->has_policy ? o->last : NULL;
    if (!from) return;
    copy(o->m->to_K, from->K, N * m * n);
    copy(o->m->to_k, from->k, N * m);
    for (long i = 0; o->bounded && i < N * m; i++)
        if (barrier_holds(&o->barrier, o->at->us, i)) memset(o->m->to_K + i * n, 0, sizeof(double) * n), o->m->to_k[i] = 0.0;
}

/* Go to the point with controls on the bounds that hold them, its motion rolled out; nowhere where that spoils it. */
static void put_on_bounds(newton_t *o)
{
    static const double still[1] = {0.0};
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    newton_found_t *s = o->rival;
    if (!o->has_policy) memset(o->last->K, 0, sizeof(double) * N * m * n);
    memset(s->dx, 0, sizeof(double) * (N + 1) * n), memset(s->du, 0, sizeof(double) * N * m);
    copy(s->us, o->at->us, N * m);
    for (long i = 0; i < N * m; i++) {
        const int side = barrier_holds(&o->barrier, o->at->us, i);
        if (side) o->at->us[i] = side == 1 ? o->m->lower[i] : o->m->upper[i], memset(o->last->K + i * n, 0, sizeof(double) * n);
    }
    copy(s->K, o->last->K, N * m * n);
    newton_roll(o, s, still, 1, o->none);
    copy(o->at->us, s->us, N * m);
    if (!(fabs(o->cost[0] - o->at->cost) <= SOLVED * fabs(o->at->cost))) return;
    go_to(o, o->X, o->U, 0);
    if (!newton_finite(o, o->fresh)) return;
    newton_measure(o, o->fresh);
    if (o->fresh->kkt <= fmax(SOLVED, o->at->kkt)) newton_turn(o);
}

/* Whether an end is a success: see Status. */
static int newton_succeeds(const newton_t *o, long code)
{
    return code == OPTIMAL || (code == CHEAPER && o->at->kkt <= STATIONARY) || (code == ROUNDED && o->at->kkt <= SOLVED);
}

/* End a solve: its solution and its result go where the member says; the record tells of it. */
EXPORT void newton_end(newton_t *o, long code)
{
    const newton_member_t *m = o->m;
    const newton_point_t *at = o->at;
    newton_result_t *r = m->result;
    *r = (newton_result_t){code, o->iteration, 0.0, at->gradient, at->defect, at->kkt, o->change, 0.0};
    memset(o->record.seconds, 0, sizeof o->record.seconds);
    if (o->bounded && newton_succeeds(o, code)) put_on_bounds(o);
    r->cost = o->at->cost;
    copy(m->to_xs, o->at->xs, (o->N + 1) * o->nx);
    copy(m->to_us, o->at->us, o->N * o->sweeps.m);
    if (code != NOT_FINITE) {
        newton_tell(o);
        if (m->to_K) newton_gains(o);
    }
    r->seconds = now() - o->began;
}

/* Solve problems until there are none left, or until `stop` is set. */
EXPORT void newton_run(newton_t *o)
{
    while (!*o->stop) {
        const long number = __atomic_fetch_add(o->next, 1, __ATOMIC_RELAXED);
        if (number >= o->total) break;
        long code = newton_begin(o, o->members + number);
        while (code == NONE) code = newton_iterate(o);
        newton_end(o, code);
        __atomic_add_fetch(o->done, 1, __ATOMIC_RELAXED);
    }
}

/* The sizes of newton_t, newton_phase_t, newton_result_t and newton_member_t. */
EXPORT long newton_size(int of)
{
    const long sizes[] = {sizeof(newton_t), sizeof(newton_phase_t), sizeof(newton_result_t), sizeof(newton_member_t)};
    return sizes[of];
}
