/* What the kernels of LQ problems with equations take and give: see trajopt/lq/equality_lq.py.  Before this text stands small_matrices.h.
   Matrices by rows; every array is one knot after the other. */

#define N_ NDX

/* A (N, n, n), B (N, n, m), Q (N + 1, n, n), S (N, m, n), R (N, m, m); equations C (rows, n), D (rows, m), those of knot k from row[k]
   up to row[k + 1], of N + 1 knots.  shift: added to the diagonals of Q and R.  soft: how far the dynamics give way, s of
   A dx + B du + d - dx_next = s lambda; without equations only.  abreast: NULL, or who goes on from a knot on, where neither that nor those before
   have equations. */
typedef struct elq_matrices elq_matrices;
typedef struct elq_factors elq_factors;
struct elq_matrices {
    const double *A, *B, *Q, *S, *R, *C, *D;
    const long *row;
    long N;
    double shift, soft;
    long (*abreast)(const elq_matrices *p, const elq_factors *f, long first);
};

/* d (N, n), q (N + 1, n), r (N, m), e (rows) */
typedef struct {
    const double *d, *q, *r, *e;
} elq_vectors;

/* What the factorization leaves at a knot: P (n, n) of the value function, gains K (m, n), the quadratic function's Qux (m, n) and
   Quu (m, m), the Cholesky factor G of Quu on the controls that are free, and, with soft dynamics, F = (1 + s P_next)^-1 (n, n).

   Where there are `rows` equations, T (rows, rows) turns them into: `pivots` for as many controls, order[0 .. pivots), the others being
   free; `kept` for the state, H (kept, n), which the knot before has to see to; and rows that are zero.  own: how many of the rows are
   the knot's, behind those that it has to see to for the next one.  E (pivots, m): the pivot rows on all controls, in their order. */
typedef struct {
    double P[N_ * N_], K[M_ * N_], ux[M_ * N_], uu[M_ * M_], G[M_ * M_];
    long rows, pivots, kept;
    long order[M_];
} elq_knot;

/* knots (N + 1); T: `most` (most + m + n) numbers for each knot, T before E and H; F (N, n, n) with soft dynamics, else NULL. */
struct elq_factors {
    elq_knot *knots;
    double *T, *F;
    long most;
};

/* dx (N + 1, n), du (N, m), multipliers lambda (N, n) of the dynamics and y (rows); room (N + 1, 2 m + most). */
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
