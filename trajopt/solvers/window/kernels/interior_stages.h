/* Evaluation of compiled stages at a point, the C version of trajopt/solvers/interior/stage_program.py. */
#pragma once
#include "slot.h"
#include "../../../stage/kernels/stage_types.h"
#include "../../interior/kernels/newton.h"

/* Phase with the knots first .. last - 1 and its compiled functions; its rows start at `row`, `count` per knot.  exact: 1 if the Hessian is that
   of the Lagrangian; else first derivatives include the Gauss-Newton Hessian of the cost. */
typedef struct {
    long first, last, row, count, exact;
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *workspace);
    void (*curve)(const stages_t *s, const point_t *at, long first, long last, const second_t *out, void *workspace);
    void *workspace, *curve_workspace;
} part_t;

typedef struct {
    long row, count, exact;
    void (*values)(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *workspace);
    void (*expand)(const end_t *s, const double *x, const end_first_t *out, void *workspace);
    void (*curve)(const end_t *s, const double *x, double sigma, const double *y, double *xx, void *workspace);
    void *workspace;
} final_t;

/* Point with its costs by knot, next states, and states xs (in a vector space those of v); stored: by phase, intermediate values of first
   derivatives that second derivatives reuse. */
typedef struct {
    ipm_point own;
    double *cost, *x_next, *xs;
    void **stored;
} place_t;

/* Data of a problem: of its phases and of its final knot. */
typedef struct {
    const stages_t *stages;
    const end_t *end;
} problem_t;

/* Program: phases and final knot; still (N, m): controls that are held but read, NULL for none; nx: numbers of a state; moved, carried:
   retraction and transport of stage.h on Lie groups, NULL in a vector space; structure: their first argument. */
typedef struct {
    const part_t *parts;
    long count;
    final_t end;
    const signed char *still;
    long nx;
    const void *structure;
    void (*moved)(const void *structure, const double *xs, const double *dx, double alpha, long count, double *to);
    void (*carried)(const void *structure, const double *dx, double alpha, long count, double *lambda);
} program_t;

static double total(const double *x, long count)
{
    double sum = 0.0;
    for (long i = 0; i < count; i++) sum += x[i];
    return sum;
}

static point_t seen_by(const program_t *w, const ipm_structure *s, const place_t *p, const part_t *part)
{
    const lq_size dims = s->size;
    const double *xs = p->xs + part->first * w->nx;
    return (point_t){xs, p->own.v + first_control(s) + part->first * M_, xs + w->nx};
}

/* Set the derivatives of dynamics and constraints with respect to held controls that functions read to zero; those of the cost stay. */
static void silence(const program_t *w, const ipm_structure *s, place_t *p)
{
    const lq_size dims = s->size;
    double *B = p->own.B, *gu = p->own.gu;
    for (long k = 0; k < s->N; k++)
        for (int j = 0; j < M_; j++) {
            if (!w->still[k * M_ + j]) continue;
            for (int i = 0; i < N_; i++) B[(k * N_ + i) * M_ + j] = 0.0;
            for (long i = s->row[k]; i < s->row[k + 1]; i++) gu[i * M_ + j] = 0.0;
        }
}

/* Find the values at a point, and first derivatives if `differentiate`; returns the objective. */
static double find_first(const program_t *w, const ipm_structure *s, const problem_t *m, place_t *p, int differentiate)
{
    const lq_size dims = s->size;
    const ipm_point *to = &p->own;
    const long N = s->N;
    for (long i = 0; i < w->count; i++) {
        const part_t *part = w->parts + i;
        const long k = part->first, r = part->row;
        const point_t at = seen_by(w, s, p, part);
        first_t out = {.values = {p->x_next + k * w->nx, to->d + k * N_, p->cost + k, to->g + r}};
        if (differentiate) {
            out.A = to->A + k * N_ * N_, out.B = to->B + k * N_ * M_, out.lx = to->lx + k * N_, out.lu = to->lu + k * M_;
            out.gx = to->gx + r * N_, out.gu = to->gu + r * M_, out.stored = p->stored[i];
        }
        if (differentiate && !part->exact) out.Q = to->Q + k * N_ * N_, out.S = to->S + k * M_ * N_, out.R = to->R + k * M_ * M_;
        part->expand(m->stages + i, &at, 0, part->last - k, &out, part->workspace);
    }
    if (!differentiate) {
        w->end.values(m->end, p->xs + N * w->nx, 0, 1, p->cost + N, to->g + w->end.row, w->end.workspace);
        return total(p->cost, N + 1);
    }
    const end_first_t out = {p->cost + N, to->g + w->end.row, to->lx + N * N_, to->gx + w->end.row * N_, to->Q + N * N_ * N_};
    w->end.expand(m->end, p->xs + N * w->nx, &out, w->end.workspace);
    if (w->still) silence(w, s, p);
    return total(p->cost, N + 1);
}

static void scaled(double *x, double by, long count)
{
    for (long i = 0; i < count; i++) x[i] *= by;
}

/* Find the second derivatives at a point with first derivatives: of the Lagrangian with the multipliers z, and the cost times `scale`, or in
   phases that are not exact the Gauss-Newton Hessian of the cost times `scale`, in place. */
static void find_second(const program_t *w, const ipm_structure *s, const problem_t *m, double scale, const ipm_multipliers *z, place_t *p)
{
    const lq_size dims = s->size;
    const ipm_point *to = &p->own;
    const long N = s->N;
    double *end = to->Q + N * N_ * N_;
    for (long i = 0; i < w->count; i++) {
        const part_t *part = w->parts + i;
        const long k = part->first, count = part->last - k;
        double *Q = to->Q + k * N_ * N_, *S = to->S + k * M_ * N_, *R = to->R + k * M_ * M_;
        if (!part->exact) {
            scaled(Q, scale, count * N_ * N_), scaled(S, scale, count * M_ * N_), scaled(R, scale, count * M_ * M_);
            continue;
        }
        const point_t at = seen_by(w, s, p, part);
        const second_t out = {scale, z->lambda + k * N_, part->count ? z->y + part->row : NULL, p->stored[i], Q, S, R};
        part->curve(m->stages + i, &at, 0, count, &out, part->curve_workspace);
    }
    if (w->end.exact) w->end.curve(m->end, p->xs + N * w->nx, scale, w->end.count ? z->y + w->end.row : NULL, end, w->end.workspace);
    else scaled(end, scale, N_ * N_);
}
