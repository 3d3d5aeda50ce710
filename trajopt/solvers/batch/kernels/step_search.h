/* The direction of an iteration of a shooting solver, and the step along it: see trajopt/solvers/methods/shooting.py.  Before this text stands iterate.h. */

/* -- direction -------------------------------------------------------------------------------------------------------------- */

/* The bounds on du at an iterate. */
static lq_bounds room_for(const shooting_t *s, const iterate_t *e)
{
    for (long i = 0; i < s->N * s->sweeps.m; i++)
        s->lower_du[i] = s->lower[i] - e->us[i], s->upper_du[i] = s->upper[i] - e->us[i];
    return (lq_bounds){s->lower_du, s->upper_du};
}

/* alpha^2/2 D2: the curvature of the cost along a step. */
static double curvature(const shooting_t *s, lq_problem p, lq_step step)
{
    const long n = s->sweeps.n, m = s->sweeps.m;
    double D2 = 0.0;
    for (long i = 0; i <= p.N; i++) {
        const double *x = step.dx + i * n, *u = step.du + i * m;
        for (long a = 0; a < n; a++) D2 += x[a] * dot(p.Q + (i * n + a) * n, x, n);
        if (i == p.N) break;
        for (long a = 0; a < m; a++) D2 += u[a] * (2.0 * dot(p.S + (i * m + a) * n, x, n) + dot(p.R + (i * m + a) * m, u, m));
    }
    return D2;
}

/* The direction that was found with the expansion, or is by another; 0 where that failed. */
static int seen_ahead(shooting_t *s, iterate_t *at, model_t *step)
{
    ahead_t *a = &s->ahead;
    if (!a->look || s->lower) return 0;
    if (a->of != at || a->mu != s->state.mu) look(s, at, at->d, s->state.mu);
    if (!a->to.found) return 0;
    const lq_policy policy = s->policy;
    const lq_step last = s->step;
    s->policy.K = a->to.K, s->policy.k = a->to.k;
    a->to.K = policy.K, a->to.k = policy.k;
    if (a->to.dx) {
        s->step = (lq_step){a->to.dx, a->to.du};
        a->to.dx = last.dx, a->to.du = last.du;
    } else {
        memset(s->step.dx, 0, sizeof(double) * (s->N + 1) * s->sweeps.n);
        copy(s->step.du, s->policy.k, s->N * s->sweeps.m);
    }
    a->of = NULL;
    step->D1 = a->to.slope;
    step->D2 = 2.0 * (a->to.change - step->D1);
    step->gap = at->gap;
    s->record.failed_at = NONE;
    s->record.kkt = fmax(largest(at->d, s->N * s->sweeps.n), a->to.kkt);
    return 1;
}

/* The policy and its linear trajectory, with more regularization until Quu can be factorized, and how far the iterate is from optimal under it;
   0 where it cannot. */
static int direction(shooting_t *s, iterate_t *at, model_t *step)
{
    if (seen_ahead(s, at, step)) return 1;
    recall(s, at);
    const lq_problem lq = lq_of(at, s->N);
    const double began = now();
    long failed;
    memset(s->step.dx, 0, sizeof(double) * s->sweeps.n); /* trajectories begin at x0 */
    while (1) {
        const double mu = s->state.mu, on_state = s->options.on_state ? mu : 0.0, on_control = mu - on_state;
        if (s->lower) {
            bounded_room *w = &s->bounded;
            bounded_begin(&s->sweeps, lq, room_for(s, at), on_state, on_control, w, s->policy);
            do w->sweep.failed = s->sweeps.riccati(w->sweep.p, w->sweep.bounds, w->sweep.on_state, 0.0, NULL, w->sweep.to);
            while (bounded_next(&s->sweeps, w, s->step));
            failed = w->failed;
            if (failed < 0) step->D2 = curvature(s, lq, s->step);
        } else {
            double change[2];
            failed = s->sweeps.riccati(&lq, NULL, on_state, on_control, NULL, &s->policy);
            if (failed < 0) s->sweeps.rollout(&lq, NULL, &s->policy, s->step.dx, s->step.du, change), step->D2 = change[1];
        }
        if (failed < 0 || mu >= s->options.largest) break;
        raise_mu(&s->state, &s->options);
    }
    step->D1 = 0.0, step->gap = at->gap;
    s->record.failed_at = failed;
    if (failed < 0) {
        s->record.kkt = kkt(s, at);
        step->D1 = slope(s, at, at->d, 1.0);
    }
    s->record.seconds[BACKWARD] += now() - began;
    return failed < 0;
}

/* -- search ----------------------------------------------------------------------------------------------------------------- */

/* The parts of a phase that are rolled out side by side, for `count` step lengths next to each other. */
static parts_t parts_of(const shooting_t *s, const phase_t *p, long count, long *tasks)
{
    long k = 0, begin = p->first;
    for (long knot = p->first + 1; knot <= p->last; knot++) {
        if (knot < p->last && (s->nonlinear || !s->node[knot])) continue;
        for (long i = 0; i < count; i++, k++) s->start[k] = begin, s->stop[k] = knot, s->trial[k] = i;
        begin = knot;
    }
    *tasks = k;
    return (parts_t){p->first, s->start, s->stop, s->trial, s->part_cost};
}

/* Trajectories along a step for `count` step lengths from the number `first` on: X, U, D and their costs. */
static void roll(shooting_t *s, const iterate_t *at, lq_step step, long first, long count)
{
    const long N = s->N, nx = s->nx;
    const double began = now();
    const trials_t r = {N, s->nonlinear, at->xs, at->us, step.dx, step.du, s->policy.K, at->d, s->lower, s->upper, s->alphas + first,
                        s->node, s->X, s->U, s->D};
    memset(s->cost, 0, sizeof(double) * count);
    for (const phase_t *p = s->phases; p < s->phases + s->count; p++) {
        long tasks;
        const parts_t parts = parts_of(s, p, count, &tasks);
        p->roll(p->stages, &r, &parts, 0, tasks, p->room);
        for (long k = 0; k < tasks; k++) s->cost[s->trial[k]] += s->part_cost[k];
    }
    s->end.values(s->end.end, s->X + N * nx, (N + 1) * nx, count, s->part_cost, NULL, s->end.room);
    for (long i = 0; i < count; i++) s->cost[i] += s->part_cost[i];
    s->record.seconds[ROLLOUT] += now() - began;
}

/* The decrease of the merit in a row of what was rolled out last, -infinity where something is not finite. */
static double decrease(const shooting_t *s, const iterate_t *at, long row)
{
    const long x = (s->N + 1) * s->nx, d = s->N * s->sweeps.n;
    const double actual = phi(s, at) - (s->cost[row] + s->state.penalty * l1(s->D + row * d, d));
    return fabs(actual) < HUGE_VAL && all_finite(s->X + row * x, x) ? actual : -HUGE_VAL;
}

/* Whether no shorter step need be looked at. */
static int is_good(found_t found) { return found.accepted && found.actual >= LOWER_RATIO * found.expected; }

/* Look at `count` step lengths that were rolled out last, of which the first is the number `first`, beside the best of those before, whose
   number is NONE where there is none: see _shortened of shooting.py.  Returns whether shorter ones are to be looked at. */
static int look_at(const shooting_t *s, const iterate_t *at, model_t step, long first, long count, found_t *best, long *number)
{
    for (long i = 0; i < count; i++) {
        const double alpha = s->alphas[first + i], expected = expected_decrease(&s->state, alpha, step), actual = decrease(s, at, i);
        const int accepted = acceptable(&s->options, expected, actual), none = *number == NONE;
        if (!none && best->accepted && !(actual > best->actual)) return 0;
        if (none || (accepted && !best->accepted) || actual > best->actual) {
            *best = (found_t){accepted || (!none && best->accepted), i, alpha, expected, actual};
            *number = first + i;
        }
        if (is_good(*best)) return 0;
    }
    return 1;
}

/* The step that closes the gaps left by `current` too, under the same policy: see second_order of iterate.py. */
static void correct(shooting_t *s, iterate_t *at, lq_step current)
{
    recall(s, at);
    const double began = now();
    const long n = s->sweeps.n, m = s->sweeps.m;
    lq_problem lq = lq_of(at, s->N);
    lq_policy feedback = s->policy;
    lq_bounds limits;
    double change[2];
    lq.d = s->D;
    memset(s->bounded.k, 0, sizeof(double) * s->N * m);
    feedback.k = s->bounded.k;
    if (s->lower) {
        limits = room_for(s, at);
        for (long i = 0; i < s->N * m; i++) s->lower_du[i] -= current.du[i], s->upper_du[i] -= current.du[i];
    }
    memset(s->extra.dx, 0, sizeof(double) * n);
    s->sweeps.rollout(&lq, s->lower ? &limits : NULL, &feedback, s->extra.dx, s->extra.du, change);
    for (long i = 0; i < (s->N + 1) * n; i++) current.dx[i] += s->extra.dx[i];
    for (long i = 0; i < s->N * m; i++) current.du[i] += s->extra.du[i];
    s->record.seconds[BACKWARD] += now() - began;
}

/* A full step, or longer ones in its direction, with the lowest merit: see _stretched of shooting.py. */
static found_t stretched(shooting_t *s, const iterate_t *at, found_t full)
{
    const long first = 1 + (s->options.max_backtracks > POLISHED ? s->options.max_backtracks : POLISHED); /* behind 1, 1/2, ... */
    found_t best = full;
    roll(s, at, s->step, first, STRETCHED);
    for (long i = 1; i < STRETCHED; i++) {
        const double actual = decrease(s, at, i);
        if (actual > best.actual) best.row = i, best.alpha = s->alphas[first + i], best.actual = actual;
    }
    return best;
}

/* The line search on the merit: see _searched of shooting.py. */
static found_t search(shooting_t *s, iterate_t *at, model_t step)
{
    found_t best;
    long number = NONE, behind = 0; /* of the best step length, and of the first one that was rolled out last */
    roll(s, at, s->step, 0, 1);
    look_at(s, at, step, 0, 1, &best, &number);
    if (best.accepted && best.actual >= TOO_MUCH * best.expected) return stretched(s, at, best);
    if (!s->nonlinear && s->nodes && !best.accepted) {
        copy(s->current.dx, s->step.dx, (s->N + 1) * s->sweeps.n);
        copy(s->current.du, s->step.du, s->N * s->sweeps.m);
        found_t full = best;
        for (int i = 0; i < MAX_CORRECTIONS && full.actual > -HUGE_VAL; i++) {
            const double before = full.actual;
            long own = NONE;
            correct(s, at, s->current);
            roll(s, at, s->current, 0, 1);
            look_at(s, at, step, 0, 1, &full, &own);
            if (full.accepted) return full;
            if (full.actual > best.actual) best = full;
            if (full.actual < before) break;
        }
    }
    int more = !is_good(best);
    for (long first = 1; more && first <= s->options.max_backtracks; first += s->abreast) {
        const long left = s->options.max_backtracks + 1 - first, count = left < s->abreast ? left : s->abreast;
        roll(s, at, s->step, behind = first, count);
        more = look_at(s, at, step, first, count, &best, &number);
    }
    if (best.accepted && number < behind) roll(s, at, s->step, number, 1), best.row = 0; /* others stand there */
    return best;
}

/* The damping behind a step. */
static globalization_t behind(const shooting_t *s, found_t found)
{
    globalization_t next = s->state;
    if (found.alpha > LOWER_AT && found.actual >= LOWER_RATIO * found.expected) lower_mu(&next, &s->options);
    return next;
}

/* The next iterate: that of a row of what was tried; 0 where it is not finite. */
static int take(shooting_t *s, long row, double mu)
{
    const long x = (s->N + 1) * s->nx, u = s->N * s->sweeps.m, d = s->N * s->sweeps.n;
    iterate_t *e = s->slots + s->fresh;
    copy(e->xs, s->X + row * x, x);
    copy(e->us, s->U + row * u, u);
    return measure(s, e, s->D + row * d, mu);
}

/* The longest of a few steps that reduces the residual, or the cost as told by the gradients at both ends: see _polished of shooting.py. */
static found_t polish(shooting_t *s, iterate_t *at, model_t step)
{
    const options_t *o = &s->options;
    found_t found = {0, 0, 0.0, 0.0, -HUGE_VAL};
    roll(s, at, s->step, 0, POLISHED);
    for (long i = 0; i < POLISHED && !found.accepted; i++) {
        const double alpha = s->alphas[i], expected = expected_decrease(&s->state, alpha, step);
        iterate_t *e = s->slots + s->fresh;
        found = (found_t){0, i, alpha, expected, -HUGE_VAL};
        if (!take(s, i, s->state.mu)) continue;
        const double began = now(), measure = kkt(s, e), slopes = step.D1 + slope(s, e, at->d, 1.0 - alpha);
        s->record.seconds[BACKWARD] += now() - began;
        found.actual = -0.5 * alpha * slopes + s->state.penalty * alpha * at->gap;
        const int sufficient = found.actual >= o->accept_ratio * expected && o->accept_ratio * expected > 0.0;
        const int closed = e->defect <= fmax(at->defect, o->defect_tolerance);
        const int risen = s->cost[i] - at->cost > 10.0 * ROUNDING * fabs(phi(s, at));
        found.accepted = !risen && (measure < s->record.kkt || (sufficient && closed));
    }
    return found;
}
