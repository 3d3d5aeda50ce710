/* Slot of the interior point: memory of one problem, and the kernels that answer its requests
   (trajopt/solvers/methods/interior_requests.py), with the knots of the problem in lanes.  The method that decides is
   trajopt/solvers/methods/interior_point.py.

   A slot has two points (the current iterate and the last trial point) and two steps (of the last system, and a corrected one). */
#pragma once
#include "interior_slot_constants.h"
#include "interior_stages.h"
#include "../../../lq/kernels/lq_functions.h"

enum { TRIAL = 8 }; /* offset of the trial values in the answer of a step */

/* Problem: data of the phases and of the final knot, guess, bounds, targets, values of fixed state entries, and arrays of the solution. */
typedef struct {
    problem_t own;
    const double *x0, *xs, *us, *lower, *upper, *target, *at;
    double *to_xs, *to_us;
} interior_problem_t;

/* Functions of Python that evaluate the stages of a problem, NULL if all of them are compiled.  Places are numbered as in `places`.  evaluate: find
   the values, with `differentiate` also the first derivatives, and return the objective.  second: find the second derivatives with the multipliers
   z, and the cost times `scale`. */
typedef struct {
    double (*evaluate)(long place, long differentiate);
    void (*second)(long place, double scale);
} python_t;

/* Slot.  d, rows, fixes, new_rows, new_fixes: residuals of corrected steps.  problem: current problem; at: index of the current iterate in
   places; second_found: 1 if it has second derivatives; since: end of the last timed work; seconds: time in derivatives, linear algebra and
   values; answer: last answer. */
typedef struct {
    program_t program;
    python_t python;
    ipm_structure structure;
    ipm_system *system;
    place_t places[2];
    ipm_multipliers z;
    ipm_step *steps[2];
    double *d, *rows, *fixes, *new_rows, *new_fixes;
    const interior_problem_t *problem;
    long at, second_found;
    double since, seconds[3];
    double answer[ANSWER];
} interior_t;

/* Arguments of evaluations. */
#define PROBLEM(o) &(o)->program, &(o)->structure, &(o)->problem->own

static place_t *here(interior_t *o) { return o->places + o->at; }
static place_t *there(interior_t *o) { return o->places + 1 - o->at; }

/* Add the time since the last call to one kind of work. */
static void lap(interior_t *o, int phase)
{
    const double at = now();
    o->seconds[phase] += at - o->since, o->since = at;
}

/* Evaluate a point, with first derivatives if `differentiate`; returns the objective. */
static double evaluate(interior_t *o, place_t *p, int differentiate)
{
    if (o->python.evaluate) return o->python.evaluate(p - o->places, differentiate);
    return find_first(PROBLEM(o), p, differentiate);
}

/* -- answers ----------------------------------------------------------------------------------------------------------------------- */

/* answer: l1 violation, largest residual, largest defect, barrier term and sum of squares. */
static void write_violation(interior_t *o, const place_t *p, double *answer) { ipm_values(&o->structure, p->own.v, p->own.d, p->own.g, answer); }

static void write_measures(interior_t *o, double mu, double scale)
{
    ipm_measure(&o->structure, &here(o)->own, &o->z, scale, mu, o->answer);
}

/* answer: found, alpha, alpha_z, slope, size, mu, shift, reflected */
static void write_step(interior_t *o, int found, double mu)
{
    const ipm_system *s = o->system;
    double *a = o->answer;
    a[0] = found, a[1] = s->alpha, a[2] = s->alpha_z, a[3] = s->slope;
    a[4] = found ? largest(o->steps[0]->v, numbers(&o->structure), 0.0) : 0.0;
    a[5] = mu, a[6] = s->shift, a[7] = (double)s->reflected;
}

/* -- the start --------------------------------------------------------------------------------------------------------------------- */

/* Load the guess of the problem, moved inside its bounds, and find its first derivatives; answer: objective, violation, largest gradient of the
   cost. */
EXPORT void interior_start(interior_t *o, double push)
{
    const interior_problem_t *m = o->problem;
    const lq_size dims = o->structure.size;
    ipm_structure *s = &o->structure;
    o->since = now(), o->at = 0, o->second_found = 0;
    const ipm_point *p = &here(o)->own;
    double *v = p->v;
    s->lower = m->lower, s->upper = m->upper, s->target = m->target, s->at = m->at;
    o->system->structure = s;
    o->system->shift = o->system->last_shift = 0.0, o->system->reflected = 0;
    memcpy(here(o)->xs, m->xs, sizeof(double) * (s->N + 1) * o->program.nx);
    memcpy(here(o)->xs, m->x0, sizeof(double) * o->program.nx);
    memcpy(v + first_control(s), m->us, sizeof(double) * s->N * M_);
    memset(v + first_slack(s), 0, sizeof(double) * s->rows);
    ipm_push(s, NULL, push, push, v);
    o->answer[0] = evaluate(o, here(o), 1);
    lap(o, DERIVATIVES);
    ipm_push(s, p->g, push, push, v);
    write_violation(o, here(o), o->answer + 1);
    o->answer[6] = largest(p->lu, s->N * M_, largest(p->lx + N_, s->N * N_, 0.0));
    lap(o, BACKWARD);
}

/* Estimate the multipliers lambda, y and f by least squares; zero if the estimate exceeds LARGEST_ESTIMATE. */
static void estimate(interior_t *o, double scale)
{
    const lq_size dims = o->structure.size;
    const ipm_structure *s = &o->structure;
    const ipm_multipliers *z = &o->z, *found = &o->steps[0]->z;
    const ipm_point *at = &here(o)->own;
    o->system->settings = (ipm_settings){0.0, scale, 0.0, 0.0, ESTIMATE};
    ipm_build(o->system, at, z);
    memset(o->system->rows, 0, sizeof(double) * s->rows);
    ipm_factor_damped(o->system, 0.0, 0.0);
    ipm_solve(o->system, at, z, o->system->rows, 1.0, o->steps[0]);
    const double most = largest(found->f, s->fixes, largest(found->y, s->rows, largest(found->lambda, s->N * N_, 0.0)));
    const int bounded = most <= LARGEST_ESTIMATE;
    for (long i = 0; i < s->N * N_; i++) z->lambda[i] = bounded ? found->lambda[i] : 0.0;
    for (long i = 0; i < s->rows; i++) z->y[i] = bounded ? found->y[i] : 0.0;
    for (long i = 0; i < s->fixes; i++) z->f[i] = bounded ? found->f[i] : 0.0;
}

/* Initial multiplier of a bound at a distance; known: value of a warm start. */
static double multiplier_of_bound(int way, double known, double mu, double distance)
{
    if (!(distance < HUGE_VAL)) return 0.0;
    const double central = mu / distance;
    return way == COLD ? fmin(1.0, central) : way == NEAR ? central : way == GIVEN ? fmax(known, central) : fmin(central, LARGEST_ESTIMATE);
}

/* Initialize the multipliers at the current iterate; answer: its measures. */
EXPORT void interior_multipliers(interior_t *o, int way, double mu, double scale)
{
    const ipm_structure *s = &o->structure;
    const double *v = here(o)->own.v;
    const long count = numbers(s);
    o->since = now();
    for (long i = 0; i < count; i++) {
        o->z.zl[i] = multiplier_of_bound(way, o->z.zl[i], mu, v[i] - s->lower[i]);
        o->z.zu[i] = multiplier_of_bound(way, o->z.zu[i], mu, s->upper[i] - v[i]);
    }
    if (way != GIVEN) estimate(o, scale);
    write_measures(o, mu, scale);
    lap(o, BACKWARD);
}

EXPORT void interior_measure_again(interior_t *o, double mu, double scale)
{
    o->since = now();
    write_measures(o, mu, scale);
    lap(o, BACKWARD);
}

/* -- steps ------------------------------------------------------------------------------------------------------------------------- */

/* Find second derivatives at the current iterate.  If Q, S and R hold them for other multipliers, find first derivatives again before. */
static void find_second_here(interior_t *o, double scale)
{
    o->since = now();
    if (o->python.second) {
        o->python.second(o->at, scale);
    } else {
        if (o->second_found) find_first(PROBLEM(o), here(o), 1);
        find_second(PROBLEM(o), scale, &o->z, here(o));
    }
    o->second_found = 1;
    lap(o, DERIVATIVES);
}

static void move(interior_t *o, double alpha, const double *step)
{
    const ipm_structure *s = &o->structure;
    const program_t *w = &o->program;
    const long count = numbers(s), apart = w->moved ? first_control(s) : 0;
    const double *from = here(o)->own.v;
    double *to = there(o)->own.v;
    if (w->moved) w->moved(w->structure, here(o)->xs, step, alpha, s->N + 1, there(o)->xs);
    for (long i = apart; i < count; i++) to[i] = alpha * step[i] + from[i];
}

/* Try the step length alpha; differentiate: find first derivatives at the trial point; answer: objective, violation. */
static void try_length(interior_t *o, double alpha, int differentiate, double *answer)
{
    move(o, alpha, o->steps[0]->v);
    lap(o, ROLLOUT);
    answer[0] = evaluate(o, there(o), differentiate);
    lap(o, differentiate ? DERIVATIVES : ROLLOUT);
    write_violation(o, there(o), answer + 1);
    lap(o, ROLLOUT);
}

/* Compute the Newton step and, if it is found, evaluate its trial point; a centered request lets the quality function choose mu.  answer: see
   write_step, then the trial values. */
EXPORT void interior_newton(interior_t *o, double scale, int reflect, int differentiate, double mu, int centered, double tau, double mean,
                            double dual, double primal, double low, double high)
{
    const ipm_aim aim = {tau, mean, dual, primal, low, high};
    const ipm_point *at = &here(o)->own;
    find_second_here(o, scale);
    o->system->settings = (ipm_settings){mu, scale, 1.0, 0.0, NEWTON};
    ipm_build(o->system, at, &o->z);
    const int found = ipm_factor(o->system, reflect);
    if (found && centered) ipm_centered(o->system, at, &o->z, &aim, o->steps[1], o->steps[0]);
    else if (found) ipm_solve(o->system, at, &o->z, o->system->rows, tau, o->steps[0]);
    write_step(o, found, found && centered ? o->system->mu_of_step : mu);
    lap(o, BACKWARD);
    if (found) try_length(o, o->system->alpha, differentiate, o->answer + TRIAL);
}

/* Try the step length alpha; answer: objective, violation. */
EXPORT void interior_try(interior_t *o, double alpha)
{
    o->since = now();
    try_length(o, alpha, 0, o->answer);
}

/* Compute the second-order correction of a step, after its trial at this length, and evaluate its trial point; first: correct the Newton step,
   else the last correction.  answer: alpha, alpha_z, size, objective, violation. */
EXPORT void interior_correct(interior_t *o, double length, int first, double tau)
{
    const lq_size dims = o->structure.size;
    const ipm_structure *s = &o->structure;
    const ipm_point *start = &here(o)->own;
    const place_t *end = there(o);
    o->since = now();
    if (first) {
        memcpy(o->d, here(o)->own.d, sizeof(double) * s->N * N_);
        memcpy(o->rows, o->system->rows, sizeof(double) * s->rows);
        memcpy(o->fixes, o->system->fixes, sizeof(double) * s->fixes);
    }
    ipm_residuals(s, end->own.v, end->own.g, o->new_rows, o->new_fixes);
    for (long j = 0; j < s->N * N_; j++) o->d[j] = length * o->d[j] + end->own.d[j];
    for (long j = 0; j < s->rows; j++) o->rows[j] = length * o->rows[j] + o->new_rows[j];
    for (long j = 0; j < s->fixes; j++) o->fixes[j] = length * o->fixes[j] + o->new_fixes[j];
    lap(o, ROLLOUT);
    ipm_vectors(o->system, start, &o->z, o->d, o->rows, o->fixes);
    ipm_solve(o->system, start, &o->z, o->rows, tau, o->steps[1]);
    lap(o, BACKWARD);
    o->answer[0] = o->system->alpha, o->answer[1] = o->system->alpha_z;
    o->answer[2] = largest(o->steps[1]->v, numbers(s), 0.0);
    move(o, o->system->alpha, o->steps[1]->v);
    o->answer[3] = evaluate(o, there(o), 0);
    write_violation(o, there(o), o->answer + 4);
    lap(o, ROLLOUT);
}

/* Accept the trial point, with first derivatives if they are not known, and update the multipliers; answer: its measures. */
EXPORT void interior_take(interior_t *o, int corrected, double alpha, double alpha_z, int known, double mu, double scale)
{
    const lq_size dims = o->structure.size;
    const ipm_step *step = o->steps[corrected];
    o->since = now(), o->at = 1 - o->at, o->second_found = 0;
    if (!known) evaluate(o, here(o), 1);
    lap(o, DERIVATIVES);
    ipm_take(&o->structure, here(o)->own.v, &step->z, alpha, alpha_z, mu, KAPPA_SIGMA, &o->z);
    if (o->program.carried) o->program.carried(o->program.structure, step->v + N_, alpha, o->structure.N, o->z.lambda);
    write_measures(o, mu, scale);
    lap(o, BACKWARD);
}

/* Make the point in a place, changed by the caller, the current iterate, and evaluate it; answer: objective, violation. */
EXPORT void interior_go_to(interior_t *o, int place)
{
    o->since = now();
    o->at = place, o->second_found = 0;
    o->answer[0] = evaluate(o, here(o), 1);
    write_violation(o, here(o), o->answer + 1);
    lap(o, DERIVATIVES);
}

/* Write the current iterate to the solution arrays of the problem. */
EXPORT void interior_put(interior_t *o)
{
    const lq_size dims = o->structure.size;
    const ipm_structure *s = &o->structure;
    memcpy(o->problem->to_xs, here(o)->xs, sizeof(double) * (s->N + 1) * o->program.nx);
    memcpy(o->problem->to_us, here(o)->own.v + first_control(s), sizeof(double) * s->N * M_);
}
