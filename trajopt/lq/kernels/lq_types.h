/* Arguments and results of the kernels of LQ problems, for all sizes n and m; and a check for NaN and infinity.
   Matrices are row-major; arrays are contiguous over knots. */
#pragma once

#define HALF_OF_DIGITS 0x1p-26 /* HALF_OF_DIGITS of trajopt/lq/lq.py */

/* Numbers of states n and of controls m. */
typedef struct {
    int n, m;
} lq_size;

/* A (N, n, n), B (N, n, m), d (N, n), Q (N + 1, n, n), q (N + 1, n), S (N, m, n), R (N, m, m), r (N, m); N steps */
typedef struct {
    const double *A, *B, *d, *Q, *q, *S, *R, *r;
    long N;
    lq_size size;
} lq_problem;

/* Bounds on du, (N, m) each; NULL for none. */
typedef struct {
    const double *lower, *upper;
} lq_bounds;

/* Policy du = k + K dx and its value function: K (N, m, n), k (N, m), Vx (N + 1, n), Vxx (N + 1, n, n) */
typedef struct {
    double *K, *k, *Vx, *Vxx;
} lq_policy;

/* Problem of a lane in lq_directions, with its results.  closed: 1 if its gaps are rounding errors, which count as zero.

   Expansion: d (N, n), lambda (N + 1, n), g (N, m), costs (N + 1,).  Direction: K (N, m, n), k (N, m), dx (N + 1, n), du (N, m); dx and du are
   NULL if no problem needs its linear step.  under (N, m, n): other gains, NULL for none, with costates held_lambda (N + 1, n) and gradient
   held_g (N, m) under these gains.
   found: 1 if all numbers are finite and Quu is positive definite; otherwise only the costs are valid.  change: cost change along the step;
   slope: slope of the cost at its start; defect: largest gap; kkt: largest entry of the gradient under the gains, relative to the size of its
   terms; kkt_under: the same under the other gains. */
typedef struct {
    double on_state, on_control;
    long closed, found;
    double *d, *lambda, *g, *costs, *K, *k, *dx, *du, *held_lambda, *held_g;
    const double *under;
    double change, slope, defect, kkt, kkt_under;
} lq_direction;

/* Blocks of a knot of several problems: SIMD vectors with one problem in each lane. */
typedef struct {
    void *A, *B, *d, *Q, *q, *S, *R, *r, *cost;
} lq_vectors;

/* Most knots of an expansion. */
#define EXPANDED 8

/* Expand knots before knot `last`, at least knot last - 1; returns the first of them.  to[i % EXPANDED]: blocks of knot i; those of the dynamics are
   written to the given A, B and d, the addresses of the others are returned.  Of the final knot, Q, q and the cost. */
typedef long lq_expand(void *of, long last, lq_vectors *to);

/* 1 if all `count` numbers are finite: infinity and NaN times zero are NaN. */
static int all_finite(const double *x, long count)
{
    double sum[8] = {0.0}, rest = 0.0;
    long i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += x[i + j] * 0.0;
    for (; i < count; i++) rest += x[i] * 0.0;
    for (int j = 0; j < 8; j++) rest += sum[j];
    return rest == 0.0;
}
