/* Exported kernels of LQ problems.  They call the kernels for the sizes of the problem if the library has such: products of small matrices with
   known sizes take half the time.  KERNELS_BY_SIZE: the addresses of the tables of such kernels, each followed by a comma; default: none. */
#pragma once
#include "riccati.h"

#ifndef KERNELS_BY_SIZE
#define KERNELS_BY_SIZE
#endif

static const lq_bounds lq_no_bounds = {NULL, NULL};
static const lq_kernels_t lq_any_size = {0, 0, lq_sweep, stationarity, lq_roll};

static const lq_kernels_t *lq_kernels(lq_size size)
{
    static const lq_kernels_t *const by_size[] = {KERNELS_BY_SIZE &lq_any_size};
    const lq_kernels_t *const *at = by_size;
    while ((*at)->n && ((*at)->n != size.n || (*at)->m != size.m)) at++;
    return *at;
}

/* Backward sweep of one problem; bounds, changes: NULL for none. */
EXPORT long lq_riccati(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const lq_changes *changes,
                       const lq_policy *policy)
{
    const lq_bounds limits = bounds ? *bounds : lq_no_bounds;
    return changes ? riccati(*p, limits, on_state, on_control, changes, *policy)
                   : lq_kernels(p->size)->sweep(p, limits, on_state, on_control, policy);
}

/* to (count) = sum_a lam_a T_a, for T (n, count) */
static void contracted(const double *restrict T, const double *lam, long n, long count, double *restrict to)
{
    memset(to, 0, sizeof(double) * count);
    for (long a = 0; a < n; a++)
        for (long i = 0; i < count; i++) to[i] += lam[a] * T[a * count + i];
}

/* contract of lq_curvature for stored second derivatives. */
EXPORT void lq_contract_tensors(const void *knots, long knot, const double *lam, double *xx, double *ux, double *uu)
{
    const lq_tensors *t = knots;
    const long n = t->n, m = t->m;
    contracted(t->xx + knot * n * n * n, lam, n, n * n, xx);
    contracted(t->ux + knot * n * m * n, lam, n, m * n, ux);
    contracted(t->uu + knot * n * m * m, lam, n, m * m, uu);
}

EXPORT void lq_stationarity(const lq_problem *p, const double *K, double *lambda, double *g, double *size)
{
    lq_kernels(p->size)->stationarity(*p, K, lambda, g, size);
}

EXPORT void lq_rollout(const lq_problem *p, const lq_bounds *bounds, const lq_policy *policy, double *dx, double *du, double *change)
{
    lq_kernels(p->size)->roll_out(p, bounds ? *bounds : lq_no_bounds, policy, dx, du, change);
}

EXPORT int lq_finite(const lq_problem *of)
{
    const lq_problem p = *of;
    SIZES(p.size);
    const long N = p.N;
    return all_finite(p.q, (N + 1) * N_) && all_finite(p.r, N * M_) && all_finite(p.d, N * N_) && all_finite(p.A, N * N_ * N_) &&
           all_finite(p.B, N * N_ * M_) && all_finite(p.Q, (N + 1) * N_ * N_) && all_finite(p.S, N * M_ * N_) &&
           all_finite(p.R, N * M_ * M_);
}
