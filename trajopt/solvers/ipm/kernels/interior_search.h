/* The filter line search of the interior-point method: the twin of line_search.py.  Before this text stands interior_state.h. */

static int decides_by_cost(const solve_t *o, double theta, double expected)
{
    return theta <= SMALL * o->filter_scale && -expected > 0.0 && pow(-expected, SWITCH_PHI) > pow(theta, SWITCH_THETA);
}

/* Whether the filter takes a step from (theta, phi) to (gaps, value); the iterate left is kept where it was one for the violation. */
static int takes(solve_t *o, double theta, double phi, double gaps, double value, double expected)
{
    double *pairs = o->w->pairs;
    if (!(fabs(gaps + value) < HUGE_VAL)) return o->matched = 0;
    if (gaps > LARGE * o->filter_scale) return o->matched = 1, 0;
    const long kept = o->pairs < o->w->most_pairs ? o->pairs : o->w->most_pairs;
    for (long i = 0; i < kept; i++)
        if (!(gaps <= (1.0 - MARGIN) * pairs[2 * i] || value <= pairs[2 * i + 1] - MARGIN * pairs[2 * i])) return o->matched = 1, 0;
    const int by_cost = decides_by_cost(o, theta, expected);
    if (by_cost ? !(value <= phi + ARMIJO * fmin(expected, 0.0) + NOISE * fabs(phi))
                : !(gaps <= (1.0 - MARGIN) * theta || value <= phi - MARGIN * theta))
        return o->matched = 0;
    if (by_cost) return 1;
    pairs += 2 * (o->pairs++ % o->w->most_pairs);
    pairs[0] = theta * (1.0 - MARGIN), pairs[1] = phi - MARGIN * theta;
    return 1;
}

static double merit(const solve_t *o, double objective, violation_t at) { return o->scale * objective + o->mu * at.barrier; }

static double least_length(const solve_t *o, double theta, double slope)
{
    if (slope >= 0.0) return SAFETY * MARGIN;
    double least = fmin(MARGIN, MARGIN * theta / -slope);
    if (theta <= SMALL * o->filter_scale) least = fmin(least, pow(theta, SWITCH_THETA) / pow(-slope, SWITCH_PHI));
    return fmax(SAFETY * least, 1e-14);
}

static void move(const solve_t *o, double alpha, const double *step)
{
    const ipm_structure *s = &o->w->structure;
    const program_t *w = &o->w->program;
    const long count = numbers(s), apart = w->moved ? first_control(s) : 0;
    const double *from = o->point->own.v;
    double *to = o->other->own.v;
    if (w->moved) w->moved(o->point->xs, step, alpha, s->N + 1, o->other->xs);
    for (long i = apart; i < count; i++) to[i] = alpha * step[i] + from[i];
}

static direction_t solved(const interior_t *w, const ipm_step *step)
{
    return (direction_t){step, w->system->alpha, w->system->alpha_z, w->system->slope};
}

/* The objective at the trial point, with first derivatives. */
static double find_first_there(solve_t *o)
{
    lap(o, ROLLOUT);
    const double objective = find_first(PROBLEM(o), o->other);
    lap(o, DERIVATIVES);
    return objective;
}

/* Second-order corrections of a full step whose end, of violation *here, is in o->other; 1: one is taken, as *step, *alpha, *objective, *here. */
static int corrected(solve_t *o, direction_t *step, double *alpha, double *objective, violation_t *here, double phi, double tau)
{
    interior_t *w = o->w;
    const ipm_structure *s = &w->structure;
    const ipm_point start = to_read(o->point);
    const double slope = step->slope;
    double length = step->alpha, last = here->theta;
    violation_t at = *here;
    if (!(fabs(last) < HUGE_VAL) || last > LARGE * o->filter_scale) return 0;
    memcpy(w->d, o->point->own.d, sizeof(double) * s->N * N_);
    memcpy(w->rows, w->system->rows, sizeof(double) * s->rows);
    memcpy(w->fixes, w->system->fixes, sizeof(double) * s->fixes);
    for (int i = 0; i < CORRECTIONS; i++) {
        ipm_residuals(s, o->other->own.v, o->other->own.g, w->new_rows, w->new_fixes);
        for (long j = 0; j < s->N * N_; j++) w->d[j] = length * w->d[j] + o->other->own.d[j];
        for (long j = 0; j < s->rows; j++) w->rows[j] = length * w->rows[j] + w->new_rows[j];
        for (long j = 0; j < s->fixes; j++) w->fixes[j] = length * w->fixes[j] + w->new_fixes[j];
        lap(o, ROLLOUT);
        ipm_vectors(w->system, &start, w->d, w->rows, w->fixes);
        ipm_solve(w->system, &start, &w->z, w->rows, tau, w->steps[1]);
        lap(o, BACKWARD);
        const direction_t other = solved(w, w->steps[1]);
        length = other.alpha;
        move(o, length, other.own->v);
        const double value = find_values(PROBLEM(o), o->other);
        at = violation_at(o, o->other);
        if (takes(o, o->at.theta, phi, at.theta, merit(o, value, at), length * slope)) {
            *step = other, *alpha = length, *objective = value, *here = at;
            find_first_there(o);
            return 1;
        }
        if (!(at.theta <= WORTH * last)) return 0;
        last = at.theta;
    }
    return 0;
}

/* Empty a filter whose pairs have shortened the last steps. */
static void look_back(solve_t *o)
{
    o->blocked = o->matched ? o->blocked + 1 : 0, o->matched = 0;
    if (o->blocked >= BLOCKED && o->emptied < EMPTIED) o->blocked = 0, o->emptied++, restart(o);
}

/* The longest step length of its trials that the filter accepts, its end in o->other with first derivatives; 0: none is. */
static int search(solve_t *o, direction_t *step, double *alpha, double *objective, violation_t *here)
{
    look_back(o);
    const double phi = merit(o, o->objective, o->at), tau = fmax(TAU, 1.0 - o->mu), least = least_length(o, o->at.theta, step->slope);
    const int hopeful = o->hopeful;
    int full = 1;
    o->hopeful = 1;
    for (*alpha = step->alpha; *alpha >= least || full; *alpha *= 0.5, full = 0, o->hopeful = 0) {
        const int known = full && hopeful;
        move(o, *alpha, step->own->v);
        *objective = known ? find_first_there(o) : find_values(PROBLEM(o), o->other);
        *here = violation_at(o, o->other);
        if (takes(o, o->at.theta, phi, here->theta, merit(o, *objective, *here), *alpha * step->slope)) {
            if (!known) find_first_there(o);
            return 1;
        }
        if (full && here->theta >= o->at.theta && corrected(o, step, alpha, objective, here, phi, tau)) return o->hopeful = 0, 1;
    }
    return 0;
}
