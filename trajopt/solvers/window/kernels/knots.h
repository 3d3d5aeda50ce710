/* Shared by the kernels of slots: expansions of the phases of a problem, its LQ problems, and reductions over arrays.

   The kernels here do not depend on the structure of a problem: stages are called through function pointers. */
#pragma once
#include "../../../../dynamics_backends/compiled/templates/lanes/vectors.h"
#include "../../../lq/kernels/lq_functions.h"
#include "../../../stage/kernels/stage_types.h"

/* Phase with the knots first .. last - 1 and its compiled functions; its dynamics and cost read the first `read` controls. */
typedef struct {
    long first, last, read;
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *workspace);
    void (*roll)(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *workspace);
    const stages_t *stages;
    void *workspace;
} phase_t;

typedef struct {
    void (*expand)(const end_t *s, const double *x, const end_first_t *out, void *workspace);
    void (*values)(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *workspace);
    const end_t *end;
    void *workspace;
} final_t;

/* Trajectory of the LQ problem: dx (N + 1, n) and du (N, m). */
typedef struct {
    double *dx, *du;
} lq_step;

/* Iterate: a trajectory with its expansion, costs (N + 1,) by knot, defects d (N, n), costates lambda (N + 1, n) and gradient g (N, m).
   defect, theta: largest entry and l1 norm of the defects; scaled: largest gradient relative to the size of its terms; plain: 1 if Q, S and R
   are those of Gauss-Newton. */
typedef struct {
    double *xs, *us, *x_next, *costs, *A, *B, *d, *Q, *q, *S, *R, *r, *lambda, *g;
    double cost, gradient, scaled, defect, theta;
    long plain;
} iterate_t;

enum { NONE = -1 };

/* Reductions use PARTS accumulators, as a compiler may not reorder sums by itself. */
#define PARTS 16

static double largest(const double *x, long count)
{
    double part[PARTS] = {0.0}, most = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] = fabs(x[i + j]) > part[j] ? fabs(x[i + j]) : part[j];
    for (; i < count; i++) most = fabs(x[i]) > most ? fabs(x[i]) : most;
    for (int j = 0; j < PARTS; j++) most = part[j] > most ? part[j] : most;
    return most;
}

static double l1(const double *x, long count)
{
    double part[PARTS] = {0.0}, sum = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] += fabs(x[i + j]);
    for (; i < count; i++) sum += fabs(x[i]);
    for (int j = 0; j < PARTS; j++) sum += part[j];
    return sum;
}

static double dot(const double *x, const double *y, long count)
{
    double part[PARTS] = {0.0}, sum = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] += x[i + j] * y[i + j];
    for (; i < count; i++) sum += x[i] * y[i];
    for (int j = 0; j < PARTS; j++) sum += part[j];
    return sum;
}

static double clipped(double x, double lower, double upper)
{
    x = x < lower ? lower : x;
    return x > upper ? upper : x;
}

static void copy(double *to, const double *from, long count) { memcpy(to, from, sizeof(double) * count); }

static lq_problem lq_of(const iterate_t *e, lq_size dims, long N)
{
    return (lq_problem){e->A, e->B, e->d, e->Q, e->q, e->S, e->R, e->r, N, dims};
}

/* Set a unit Hessian for controls that neither dynamics nor cost of a phase read, so that steps do not change them. */
static void hold_unread(const phase_t *p, long m, double *R)
{
    for (long i = p->first; i < p->last; i++)
        for (long a = p->read; a < m; a++) R[(i * m + a) * m + a] = 1.0;
}

/* Expand a phase about the trajectory of an iterate, into its blocks, or without A into Q, S and R alone; nx: numbers of a state. */
static void expand_phase(const phase_t *p, const stages_t *stages, lq_size dims, long nx, const iterate_t *e)
{
    const long k = p->first, n = dims.n, m = dims.m;
    const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
    first_t out = {.Q = e->Q + k * n * n, .S = e->S + k * m * n, .R = e->R + k * m * m};
    if (e->A) {
        out.values = (values_t){e->x_next + k * nx, e->d + k * n, e->costs + k, NULL};
        out.A = e->A + k * n * n, out.B = e->B + k * n * m, out.lx = e->q + k * n, out.lu = e->r + k * m;
    }
    p->expand(stages, &at, 0, p->last - k, &out, p->workspace);
    hold_unread(p, m, e->R);
}

/* Expand the final knot, after all phases, and sum the cost of the trajectory. */
static void expand_end(const final_t *end, const end_t *values, long N, lq_size dims, long nx, iterate_t *e)
{
    const long n = dims.n;
    end_first_t out = {.Q = e->Q + N * n * n};
    if (e->A) out.cost = e->costs + N, out.lx = e->q + N * n;
    end->expand(values, e->xs + N * nx, &out, end->workspace);
    e->cost = 0.0;
    for (long i = 0; e->A && i <= N; i++) e->cost += e->costs[i];
}

/* List the parts of a phase between shooting nodes (NULL: no nodes), `count` step lengths per part: first knot, last knot, and number of the
   step length.  Returns the number of parts. */
static long parts_between(const phase_t *p, const signed char *nodes, long count, long *start, long *stop, long *trial)
{
    long parts = 0, begin = p->first;
    for (long knot = p->first + 1; knot <= p->last; knot++) {
        if (knot < p->last && !(nodes && nodes[knot])) continue;
        for (long i = 0; i < count; i++, parts++) start[parts] = begin, stop[parts] = knot, trial[parts] = i;
        begin = knot;
    }
    return parts;
}

/* Slot in lane l of a window; unused lanes repeat the last problem. */
#define SLOT_OF(l, slots, count) (slots)[(l) < (count) ? (l) : (count) - 1]
