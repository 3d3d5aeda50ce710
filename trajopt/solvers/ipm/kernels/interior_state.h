/* A solve by the interior-point method, its measures and its barrier: the twin of measure.py and barrier.py.  Before this text stand
   interior_stages.h, the constants of those modules, ipm.py and line_search.py, and the ends of compiled_ipm.py. */
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
   now_: of the iterate; seconds of the last iteration by phase; since: when the last phase ended. */
typedef struct {
    interior_t *w;
    const member_t *m;
    place_t *point, *other;
    violation_t at;
    double scale, objective, mu, most, filter_scale, errors[REMEMBERED], slow_errors[SLOW];
    long is_free, remembered, oldest, pairs, matched, blocked, emptied, hopeful, slow, slow_count, crept, iteration, found;
    double began;
    optimality_t now_;
    direction_t step;
    violation_t there;
    double alpha, objective_there, size, seconds[3], since;
} solve_t;

/* What evaluations ask for. */
#define PROBLEM(o) &(o)->w->program, &(o)->w->structure, &(o)->m->own

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Charge the time since the last phase ended to a phase. */
static void lap(solve_t *o, int phase)
{
    const double at = now();
    o->seconds[phase] += at - o->since, o->since = at;
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
