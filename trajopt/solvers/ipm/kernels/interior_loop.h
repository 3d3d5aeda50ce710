/* Solves by the interior-point method: the twin of ipm.py, barrier.py, measure.py and line_search.py.  Before this text stand
   interior_stages.h, the constants of those modules and the ends of compiled_ipm.py.

   A solve is begun, iterated until something else than GO_ON comes back, and is at its end then; single solves do so call by call, batches
   one problem after the other on each thread.  Steps for feasibility alone stand in Python only: a solve that ends in NO_STEP asks for them. */
#include <time.h>

enum { GO_ON = -1 };
enum { DERIVATIVES, BACKWARD, ROLLOUT };

/* gradient and violation: see Optimality; error, scale: of the last iterate. */
typedef struct {
    long code, iterations;
    double cost, gradient, violation, complementarity, error, scale, seconds;
} result_t;

/* A problem: its values by phase and at the end, its start, bounds, targets and fixed numbers, and where its solution goes. */
typedef struct {
    problem_t own;
    const double *x0, *xs, *us, *lower, *upper, *target, *at;
    double *to_xs, *to_us;
    result_t *result;
} member_t;

/* theta, the largest residual, the largest gap, the barrier's sum and the sum of squares: see Violation. */
typedef struct {
    double theta, largest, gap, barrier, squares;
} violation_t;

/* See Optimality. */
typedef struct {
    double gradient, violation, plain, error, shifted, mean, squares;
    long products;
} optimality_t;

/* A step, the lengths it may have, and the slope of the barrier's objective along it. */
typedef struct {
    const ipm_step *own;
    double alpha, alpha_z, slope;
} direction_t;

/* What solves problems on one thread.  pairs: of the filter, most_pairs at most; d, rows,
   fixes, new_rows, new_fixes: residuals of corrected steps.  total, next, done, stop: shared with other threads. */
typedef struct {
    program_t program;
    ipm_structure structure;
    ipm_system *system;
    place_t places[2];
    ipm_multipliers z;
    ipm_step *steps[2];
    double *pairs, *d, *rows, *fixes, *new_rows, *new_fixes;
    long most_pairs, equations, adaptive, max_iterations;
    double barrier, least, gradient_tolerance, constraint_tolerance, time_limit;
    const member_t *members;
    long total, *next, *done;
    const volatile long *stop;
} interior_t;

/* A solve: where it is, its barrier parameter and how that moves, its filter, whether steps by reflected Hessians lead on slowly; and
   the step that was found from there, which the next iteration takes first: its end, in `other`, and its length and size.
   now_: of the iterate; seconds of the last iteration. */
typedef struct {
    interior_t *w;
    const member_t *m;
    place_t *point, *other;
    violation_t at;
    double scale, objective, mu, most, filter_scale, errors[REMEMBERED], slow_errors[SLOW];
    long is_free, remembered, oldest, pairs, matched, blocked, emptied, hopeful, slow, slow_count, iteration, found;
    double began;
    optimality_t now_;
    direction_t step;
    violation_t there;
    double alpha, objective_there, size, seconds[3];
} solve_t;

/* What evaluations ask for. */
#define PROBLEM(o) &(o)->w->program, &(o)->w->structure, &(o)->m->own

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double largest(const double *x, long count, double most)
{
    for (long i = 0; i < count; i++)
        if (!(fabs(x[i]) <= most) && most == most) most = fabs(x[i]);
    return most;
}

/* -- measures ---------------------------------------------------------------------------------------------------------------------- */

static violation_t violation_at(const solve_t *o, const place_t *p)
{
    double out[5];
    ipm_values(&o->w->structure, p->own.v, p->own.d, p->own.g, out);
    return (violation_t){out[0], out[1], out[2], out[3], out[4]};
}

static optimality_t optimality(const solve_t *o)
{
    const ipm_point at = to_read(o->point);
    double out[10];
    ipm_measure(&o->w->structure, &at, &o->w->z, o->scale, o->mu, out);
    const double gradient = out[0], sum_z = out[4], count_z = out[6], violation = o->at.largest;
    const double s_d = fmax(SCALED_FROM, (out[3] + sum_z) / fmax(out[5] + count_z, 1.0)) / SCALED_FROM;
    const double s_c = fmax(SCALED_FROM, sum_z / fmax(count_z, 1.0)) / SCALED_FROM;
    double error = fmax(fmax(gradient / s_d, violation), out[1] / s_c), shifted = fmax(fmax(gradient / s_d, violation), out[2] / s_c);
    if (!(fabs(gradient + violation) < HUGE_VAL)) error = shifted = NAN;
    return (optimality_t){gradient, violation, out[1], error, shifted, count_z > 0.0 ? out[7] / count_z : 0.0, out[9], (long)count_z};
}

/* -- the barrier: see Barrier ---------------------------------------------------------------------------------------------------- */

/* An empty filter; its scale is that of the start. */
static void restart(solve_t *o)
{
    if (o->filter_scale == 0.0) o->filter_scale = fmax(1.0, o->at.theta);
    o->pairs = 0;
}

static double lowered(const solve_t *o) { return fmax(o->w->least, fmin(KAPPA_MU * o->mu, pow(o->mu, THETA_MU))); }

static void watch(solve_t *o, optimality_t now_)
{
    double most = 0.0;
    if (!o->w->adaptive) return;
    for (int i = 0; i < REMEMBERED; i++) most = fmax(most, o->errors[i]);
    const int enough = o->remembered < REMEMBERED || now_.error <= PROGRESS * most;
    if (enough) o->errors[o->oldest++ % REMEMBERED] = now_.error, o->remembered++;
    if (o->is_free && !enough) {
        o->is_free = 0, o->mu = fmax(o->w->least, AFTER * now_.mean);
        restart(o);
    } else if (!o->is_free && enough) {
        o->is_free = 1;
    }
}

/* Whether reflected Hessians lead on slowly: see Curvature. */
static void watch_curvature(solve_t *o, double error, double alpha)
{
    if (!(o->w->system->reflected > 0 || o->w->system->shift > 0.0) || alpha < SHORT) o->slow_count = 0;
    else {
        if (o->slow_count == SLOW) memmove(o->slow_errors, o->slow_errors + 1, sizeof(double) * (SLOW - 1)), o->slow_count--;
        o->slow_errors[o->slow_count++] = error;
    }
    o->slow = o->slow_count == SLOW && error > LITTLE * o->slow_errors[0];
}

/* -- the search: see LineSearch -------------------------------------------------------------------------------------------------- */

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
        ipm_vectors(w->system, &start, w->d, w->rows, w->fixes);
        ipm_solve(w->system, &start, &w->z, w->rows, tau, w->steps[1]);
        const direction_t other = solved(w, w->steps[1]);
        length = other.alpha;
        move(o, length, other.own->v);
        const double value = find_values(PROBLEM(o), o->other);
        at = violation_at(o, o->other);
        if (takes(o, o->at.theta, phi, at.theta, merit(o, value, at), length * slope)) {
            *step = other, *alpha = length, *objective = value, *here = at;
            find_first(PROBLEM(o), o->other);
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
        *objective = known ? find_first(PROBLEM(o), o->other) : find_values(PROBLEM(o), o->other);
        *here = violation_at(o, o->other);
        if (takes(o, o->at.theta, phi, here->theta, merit(o, *objective, *here), *alpha * step->slope)) {
            if (!known) find_first(PROBLEM(o), o->other);
            return 1;
        }
        if (full && here->theta >= o->at.theta && corrected(o, step, alpha, objective, here, phi, tau)) return o->hopeful = 0, 1;
    }
    return 0;
}

/* -- a solve --------------------------------------------------------------------------------------------------------------------- */

/* Multipliers at the start: of the bounds from the barrier, the others by least squares or zero; given: those that are there stay. */
EXPORT void interior_multipliers(solve_t *o, int given)
{
    interior_t *w = o->w;
    const ipm_structure *s = &w->structure;
    const ipm_multipliers *z = &w->z, *found = &w->steps[0]->z;
    const ipm_point at = to_read(o->point);
    const double *v = at.v;
    const long count = numbers(s);
    const int warm = given || w->barrier < NEAR;
    for (long i = 0; i < count; i++) {
        const double below = o->mu / (v[i] - s->lower[i]), above = o->mu / (s->upper[i] - v[i]);
        const double own_below = given ? z->zl[i] : 0.0, own_above = given ? z->zu[i] : 0.0;
        z->zl[i] = !(s->lower[i] > -HUGE_VAL) ? 0.0 : warm ? fmax(own_below, below) : fmin(1.0, below);
        z->zu[i] = !(s->upper[i] < HUGE_VAL) ? 0.0 : warm ? fmax(own_above, above) : fmin(1.0, above);
    }
    if (given) return;
    w->system->settings = (ipm_settings){0.0, o->scale, 0.0, 0.0, ESTIMATE};
    ipm_build(w->system, &at, z);
    memset(w->system->rows, 0, sizeof(double) * s->rows);
    ipm_factor_damped(w->system, 0.0, 0.0);
    ipm_solve(w->system, &at, z, w->system->rows, 1.0, w->steps[0]);
    const double most = largest(found->f, s->fixes, largest(found->y, s->rows, largest(found->lambda, s->N * N_, 0.0)));
    const int kept = most <= LARGEST_ESTIMATE;
    for (long i = 0; i < s->N * N_; i++) z->lambda[i] = kept ? found->lambda[i] : 0.0;
    for (long i = 0; i < s->rows; i++) z->y[i] = kept ? found->y[i] : 0.0;
    for (long i = 0; i < s->fixes; i++) z->f[i] = kept ? found->f[i] : 0.0;
}

/* The guess of a problem within its bounds, with derivatives, without multipliers: GO_ON, or NOT_FINITE. */
EXPORT long interior_begin(solve_t *o, interior_t *w, const member_t *m)
{
    const double began = now();
    ipm_structure *s = &w->structure;
    memset(o, 0, sizeof *o);
    o->w = w, o->m = m, o->point = w->places, o->other = w->places + 1, o->mu = w->barrier, o->most = HUGE_VAL, o->began = began;
    o->is_free = w->adaptive, o->hopeful = 1, o->scale = 1.0;
    s->lower = m->lower, s->upper = m->upper, s->target = m->target, s->at = m->at;
    w->system->structure = s;
    w->system->shift = w->system->last_shift = 0.0, w->system->reflected = 0;
    const double push = w->barrier < NEAR ? NEAR_PUSH : PUSH;
    double *v = o->point->own.v;
    memcpy(o->point->xs, m->xs, sizeof(double) * (s->N + 1) * w->program.nx);
    memcpy(o->point->xs, m->x0, sizeof(double) * w->program.nx);
    memcpy(v + first_control(s), m->us, sizeof(double) * s->N * M_);
    memset(v + first_slack(s), 0, sizeof(double) * s->rows);
    ipm_push(s, NULL, push, push, v);
    o->objective = find_first(PROBLEM(o), o->point);
    ipm_push(s, o->point->own.g, push, push, v);
    o->at = violation_at(o, o->point);
    o->seconds[DERIVATIVES] = now() - began;
    if (!(fabs(o->objective + o->at.theta) < HUGE_VAL)) return NOT_FINITE;
    const double steepest = largest(o->point->own.lu, s->N * M_, largest(o->point->own.lx + N_, s->N * N_, 0.0));
    o->scale = steepest > 0.0 ? fmin(1.0, STEEPEST / steepest) : 1.0;
    restart(o);
    return GO_ON;
}

/* Go on from the point where the solve is, which was changed from outside. */
EXPORT void interior_resume(solve_t *o) { o->objective = find_first(PROBLEM(o), o->point), o->at = violation_at(o, o->point); }

/* The Newton step; with a free barrier, for the mu that a step for mu = 0 suggests; 0: there is none. */
static int find_direction(solve_t *o, optimality_t now_, direction_t *step)
{
    interior_t *w = o->w;
    const ipm_point at = to_read(o->point);
    const int probing = o->is_free && now_.products > 0;
    w->system->settings = (ipm_settings){probing ? 0.0 : o->mu, o->scale, 1.0, 0.0, NEWTON};
    ipm_build(w->system, &at, &w->z);
    if (!ipm_factor(w->system, !o->slow)) return 0;
    if (probing) {
        if (!(o->most < HUGE_VAL)) o->most = LARGEST * now_.mean;
        const double low = fmax(SMALLEST_SIGMA, w->least / now_.mean), high = fmin(LARGEST_SIGMA, o->most / now_.mean);
        const double dual = now_.squares / (double)numbers(&w->structure), primal = o->at.squares / (double)w->equations;
        const ipm_aim aim = {now_.mean, dual, primal, low, fmax(high, low), fmax(TAU, 1.0 - now_.error)};
        ipm_centered(w->system, &at, &w->z, &aim, w->steps[1], w->steps[0]);
        if (w->system->mu_of_step != o->mu) restart(o);
        o->mu = w->system->mu_of_step;
    } else {
        ipm_solve(w->system, &at, &w->z, w->system->rows, fmax(TAU, 1.0 - o->mu), w->steps[0]);
    }
    *step = solved(w, w->steps[0]);
    return 1;
}

/* Move to the end of the step that was found, whose values and first derivatives are known. */
static void take(solve_t *o)
{
    place_t *left = o->point;
    o->point = o->other, o->other = left, o->found = 0;
    ipm_take(&o->w->structure, o->point->own.v, &o->step.own->z, o->alpha, o->step.alpha_z, o->mu, KAPPA_SIGMA, &o->w->z);
    if (o->w->program.carried) o->w->program.carried(o->step.own->v + N_, o->alpha, o->w->structure.N, o->w->z.lambda);
    o->objective = o->objective_there, o->at = o->there;
}

/* See _ended of ipm.py; GO_ON where the solve goes on. */
static long ended(const solve_t *o)
{
    const interior_t *w = o->w;
    const optimality_t *now_ = &o->now_;
    if (!(fabs(now_->error) < HUGE_VAL)) return NOT_FINITE;
    if (now_->error <= w->gradient_tolerance && now_->violation <= w->constraint_tolerance) return CONVERGED;
    if (o->iteration >= w->max_iterations || (w->time_limit > 0.0 && now() - o->began > w->time_limit)) return STOPPED;
    if (o->objective < BOTTOM && now_->violation <= w->constraint_tolerance) return UNBOUNDED;
    return *w->stop ? INTERRUPTED : GO_ON;
}

/* Take the step that was found, if there is one, and find the next: GO_ON, or an end, of which only NO_STEP and PRECISION count as an iteration. */
EXPORT long interior_iterate(solve_t *o)
{
    double began = now();
    memset(o->seconds, 0, sizeof o->seconds);
    if (o->found) take(o);
    o->now_ = optimality(o);
    const long end = ended(o);
    if (end != GO_ON) return end;
    watch(o, o->now_);
    while (!o->is_free && o->now_.shifted <= KAPPA_EPS * o->mu && lowered(o) < o->mu) {
        o->mu = lowered(o);
        restart(o);
        o->now_ = optimality(o);
    }
    const double measured = now();
    find_second(PROBLEM(o), o->scale, &o->w->z, o->point);
    const double curved = now();
    o->found = find_direction(o, o->now_, &o->step);
    const double directed = now();
    o->found = o->found && search(o, &o->step, &o->alpha, &o->objective_there, &o->there);
    o->seconds[DERIVATIVES] = curved - measured, o->seconds[BACKWARD] = (measured - began) + (directed - curved);
    o->seconds[ROLLOUT] = now() - directed;
    o->iteration++;
    if (!o->found) return o->now_.error <= ACCEPTABLE ? PRECISION : NO_STEP;
    o->size = largest(o->step.own->v, numbers(&o->w->structure), 0.0);
    watch_curvature(o, o->now_.error, o->alpha);
    return GO_ON;
}

static long solve(solve_t *o, interior_t *w, const member_t *m)
{
    long code = interior_begin(o, w, m);
    if (code == GO_ON) interior_multipliers(o, 0);
    while (code == GO_ON) code = interior_iterate(o);
    const double *v = o->point->own.v;
    const optimality_t *last = &o->now_;
    memcpy(m->to_xs, o->point->xs, sizeof(double) * (w->structure.N + 1) * w->program.nx);
    memcpy(m->to_us, v + first_control(&w->structure), sizeof(double) * w->structure.N * M_);
    *m->result = (result_t){code,        o->iteration, o->objective,    last->gradient, last->violation, last->plain,
                            last->error, o->scale,     now() - o->began};
    return code;
}

/* Solve problems, one after the other in o, until there are none left, or until `stop` is set. */
static void solve_all(solve_t *o, interior_t *w)
{
    while (!*w->stop) {
        const long number = __atomic_fetch_add(w->next, 1, __ATOMIC_RELAXED);
        if (number >= w->total) break;
        const long code = solve(o, w, w->members + number);
        if (code != NOT_FINITE && code != NO_STEP) __atomic_add_fetch(w->done, 1, __ATOMIC_RELAXED);
    }
}

EXPORT void interior_run(interior_t *w)
{
    solve_t o;
    solve_all(&o, w);
}

/* The sizes of interior_t, part_t, result_t, member_t and solve_t. */
EXPORT long interior_size(int of)
{
    const long sizes[] = {sizeof(interior_t), sizeof(part_t), sizeof(result_t), sizeof(member_t), sizeof(solve_t)};
    return sizes[of];
}
