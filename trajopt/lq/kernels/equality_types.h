/* What the kernels of LQ problems with equations take and give: see trajopt/lq/equality_lq.py.  Before this text stands lq_types.h.
   Matrices by rows; every array is one knot after the other. */

/* A (N, n, n), B (N, n, m), Q (N + 1, n, n), S (N, m, n), R (N, m, m); equations C (rows, n), D (rows, m), those of knot k from row[k]
   up to row[k + 1], of N + 1 knots.  shift: added to the diagonals of Q and R.  soft: how far the dynamics give way, s of
   A dx + B du + d - dx_next = s lambda; without equations only. */
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

/* What the factorization leaves at a knot: P (n, n) of the value function, gains K (m, n), the quadratic function's Qux (m, n) and
   Quu (m, m), and the Cholesky factor G of Quu on the controls that are free, of one on the others.

   Where there are `rows` equations, those of the knot behind those that it has to see to for the next one, T (m + rows - pivots, rows) turns them
   into: one for each control, E du + X dx, zero for those that are free, `pivots` for the others, on which E is one; `kept` for the
   state, H dx, which the knot before has to see to; and rows that are zero. */
typedef struct {
    double *P, *K, *ux, *uu, *G;
} elq_knot;

typedef struct {
    long rows, pivots, kept;
} elq_counts;

/* Of N + 1 knots, one after the other: first, the arrays of the first knot, and counts.  turned: T, E (m, m), X (m, n) and H (kept, n) of each knot, in the memory for `most` rows; F = (1 + s P_next)^-1 (N, n, n) with
   soft dynamics, else NULL. */
typedef struct {
    elq_knot first;
    elq_counts *counts;
    double *turned, *F;
    long most;
} elq_factors;

/* dx (N + 1, n), du (N, m), multipliers lambda (N, n) of the dynamics and y (rows); room (N + 1, 3 m + most). */
typedef struct {
    double *dx, *du, *lambda, *y, *room;
} elq_step;

/* A problem in a lane: its matrices and factors, and the knot that it begins at, behind which all is known; failed: becomes the knot where Quu is not
   positive definite, or -1; left: the knot from which on the sweep is left to be made, or -1. */
typedef struct {
    const elq_matrices *p;
    const elq_factors *f;
    long first, failed, left;
} elq_lane;
