/* Arguments and results of the kernels of LQ problems with equality constraints: see trajopt/lq/equality_lq.py.
   Matrices are row-major; arrays are contiguous over knots. */
#pragma once
#include "lq_types.h"

/* A (N, n, n), B (N, n, m), Q (N + 1, n, n), S (N, m, n), R (N, m, m); equations C (rows, n), D (rows, m), those of knot k in rows
   row[k] .. row[k + 1], of N + 1 knots.  shift: added to the diagonals of Q and R.  soft: softness s of the dynamics,
   A dx + B du + d - dx_next = s lambda; only without equations. */
typedef struct {
    const double *A, *B, *Q, *S, *R, *C, *D;
    const long *row;
    long N;
    lq_size size;
    double shift, soft;
} elq_matrices;

/* d (N, n), q (N + 1, n), r (N, m), e (rows) */
typedef struct {
    const double *d, *q, *r, *e;
} elq_vectors;

/* Factorization at a knot: value function P (n, n), gains K (m, n), Qux (m, n) and Quu (m, m) of the Q-function, and the Cholesky factor G of
   Quu on the free controls, with ones on the diagonal for the others.

   `rows` counts the equations: those of the next knot with the dynamics substituted, then those of this knot.  T (m + rows - pivots, rows)
   eliminates them to: a row E du + X dx for each control, zero for free controls, where E is one on the `pivots` controls with a pivot;
   `passed` rows H dx in the state, which are passed to the previous knot; and zero rows. */
typedef struct {
    double *P, *K, *ux, *uu, *G;
} elq_knot;

typedef struct {
    long rows, pivots, passed;
} elq_counts;

/* Factors of all knots: first: arrays of the first knot, with those of the others behind them; counts (N + 1); turned: T, E (m, m), X (m, n) and
   H (passed, n) of each knot, in memory for `most` rows; F = (1 + s P_next)^-1 (N, n, n) with soft dynamics, else NULL. */
typedef struct {
    elq_knot first;
    elq_counts *counts;
    double *turned, *F;
    long most;
} elq_factors;

/* dx (N + 1, n), du (N, m), multipliers lambda (N, n) of the dynamics and y (rows); workspace: (N + 1, 3 m + most). */
typedef struct {
    double *dx, *du, *lambda, *y, *workspace;
} elq_step;
