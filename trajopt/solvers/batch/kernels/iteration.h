/* One iteration of a shooting method with one model, the plain expansion: what ShootingMethod._advance of trajopt/solvers/methods/shooting.py does, for
   batches.  Before this text stands step_search.h. */

/* Adapt mu to the outcome; whether the solve ends here. */
static int judge(shooting_t *s, const iterate_t *at, iterate_t *new, found_t found, int polished)
{
    globalization_t *g = &s->state;
    const options_t *o = &s->options;
    if (s->best == NONE || !polished || at->stop < PROGRESS * s->slots[s->best].stop) s->best = s->at, g->idle = 0;
    g->idle++;
    const int open = !s->nonlinear && s->nodes && at->defect > o->defect_tolerance;
    if (!open) g->drift = 0;
    const int given_up = open && adrift(g, new ? found.alpha : 0.0, at->gap);
    if (g->idle > MAX_IDLE || given_up || (!new && g->mu >= o->largest)) return NO_PROGRESS;
    if (!new) {
        raise_mu(g, o);
        return GO_ON;
    }
    *g = behind(s, found);
    const double change = fabs(at->cost - new->cost);
    if (!(change < o->cost_tolerance * fabs(new->cost)) || new->defect > o->defect_tolerance) return GO_ON;
    s->record.change = change / fabs(new->cost);
    s->record.kkt_new = kkt(s, new);
    return COST_CONVERGED;
}

/* Roll the guess out under the gains of the policy, its nodes where they are; returns the cost. */
static double roll_guess(shooting_t *s, const iterate_t *e)
{
    const long nonlinear = s->nonlinear;
    s->nonlinear = 0;
    roll(s, e, s->step, 0, 1);
    s->nonlinear = nonlinear;
    return s->cost[0];
}

/* Hold a guess by the policy of its LQ problem, or by its gains alone, where either costs less than the guess as it is rolled out: see
   held_rollout of iterate.py. */
static void hold(shooting_t *s, const iterate_t *e, double cost)
{
    enum { OPEN, GAINS, POLICY } best = OPEN;
    const long gains = s->N * s->sweeps.m * s->sweeps.n, controls = s->N * s->sweeps.m;
    const lq_problem lq = lq_of(e, s->N);
    const double began = now();
    const int swept = s->sweeps.finite(&lq) && s->sweeps.riccati(&lq, NULL, 0.0, HOLDING, NULL, &s->policy) < 0;
    s->record.seconds[BACKWARD] += now() - began;
    if (swept) {
        const double held = roll_guess(s, e);
        if (fabs(held) < HUGE_VAL && !(cost <= held)) best = GAINS, cost = held;
        copy(s->step.du, s->policy.k, controls);
        const double led = roll_guess(s, e);
        if (fabs(led) < HUGE_VAL && !(cost <= led)) best = POLICY;
    }
    if (best == OPEN) memset(s->policy.K, 0, sizeof(double) * gains);
    if (best != POLICY) {
        memset(s->step.du, 0, sizeof(double) * controls);
        roll_guess(s, e);
    }
}

/* The iterate in the slot `at` from a guess there, within the bounds, with the parts between nodes rolled out: see Start of shooting_requests.py;
   0 where it is not finite. */
static int shooting_start(shooting_t *s)
{
    const long N = s->N, n = s->sweeps.n, m = s->sweeps.m;
    iterate_t *e = s->slots + s->at;
    memset(&s->record, 0, sizeof s->record);
    memset(s->step.dx, 0, sizeof(double) * (N + 1) * n);
    memset(s->step.du, 0, sizeof(double) * N * m);
    memset(s->policy.K, 0, sizeof(double) * N * m * n);
    for (long i = 0; s->lower && i < N * m; i++) e->us[i] = clipped(e->us[i], s->lower[i], s->upper[i]);
    const double cost = roll_guess(s, e);
    if (s->nodes < N) { /* where every knot is a node, no state follows from another */
        const double began = now();
        expand(s, e);
        s->record.seconds[DERIVATIVES] += now() - began;
        if (!(cost <= FALLEN * fmax(1.0, fabs(e->cost)))) hold(s, e, cost);
    }
    copy(e->xs, s->X, (N + 1) * s->nx);
    copy(e->us, s->U, N * m);
    return measure(s, e, s->D, s->state.mu);
}

/* One iteration from the slot `at`: a direction, a search along it, the next iterate in the slot `fresh` (NONE: none).  Where the solve
   goes on, that is the one to go on from. */
static int shooting_iterate(shooting_t *s)
{
    iterate_t *at = s->slots + s->at;
    model_t step;
    found_t found = {0};
    memset(s->record.seconds, 0, sizeof s->record.seconds);
    for (s->fresh = 0; s->fresh == s->at || s->fresh == s->best; s->fresh++) {}
    if (!direction(s, at, &step)) return NOT_POSITIVE_DEFINITE;
    adapt(&s->state, step);
    const double hope = promise(&s->state, step, phi(s, at));
    int moved = 0, polished = !(hope > ROUNDING);
    if (!polished) {
        found = search(s, at, step);
        moved = found.accepted && take(s, found.row, behind(s, found).mu);
        polished = !moved && hope <= NEAR_ROUNDING;
    }
    if (polished) {
        found = polish(s, at, step);
        moved = found.accepted;
    }
    const double told = now();
    const int code = judge(s, at, moved ? s->slots + s->fresh : NULL, found, polished);
    s->record.cost = at->cost, s->record.expected = found.expected, s->record.alpha = moved ? found.alpha : 0.0;
    s->record.seconds[BACKWARD] += now() - told;
    if (!moved) s->fresh = NONE;
    else if (code == GO_ON) s->at = s->fresh;
    return code;
}

EXPORT long shooting_size(void) { return sizeof(shooting_t); }
