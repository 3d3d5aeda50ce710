/* What the kernels of LQ problems take and give, whatever the sizes n and m; and a search for numbers that are none.
   Matrices by rows; every array is one knot after the other. */

#define HALF_OF_DIGITS 0x1p-26 /* see lq.py */

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

/* du = k + K dx and its value function: K (N, m, n), k (N, m), Vx (N + 1, n), Vxx (N + 1, n, n) */
typedef struct {
    double *K, *k, *Vx, *Vxx;
} lq_policy;

/* A problem in a lane, where its gains go, and its damping; failed: becomes the knot where Quu was not positive definite, or -1. */
typedef struct {
    const lq_problem *p;
    const lq_bounds *bounds;
    const lq_policy *to;
    double on_state, on_control;
    long failed;
} lq_lane;

/* One of several problems whose directions are found side by side, see lq_directions: where its expansion about a trajectory and the direction go,
   and what is told of them.  closed: whether its gaps are rounding, and count as none.

   d (N, n), lambda (N + 1, n), g (N, m), costs (N + 1,): of the expansion; K (N, m, n), k (N, m), dx (N + 1, n), du (N, m), the last two
   NULL where none of the problems asks for its linear step; under (N, m, n): other gains, NULL where nothing is asked about them, and
   held_lambda (N + 1, n), held_g (N, m): costates and gradient under these.
   found: whether numbers are finite and Quu is positive definite; else all but the costs may be anything.  change: of the cost along the step;
   slope: of the cost at its beginning; defect: the largest gap; kkt: the largest entry of the gradient under the gains, by the size of its
   terms; kkt_under: that under the other ones. */
typedef struct {
    double on_state, on_control;
    long closed, found;
    double *d, *lambda, *g, *costs, *K, *k, *dx, *du, *held_lambda, *held_g;
    const double *under;
    double change, slope, defect, kkt, kkt_under;
} lq_direction;

#define MOST_SHARES 3

/* What a barrier, whose parameter mu is chosen after the sweep, adds, (N, m) each: to the diagonals of R; to r, where costates are found; and to r of the
   step, for each unit of mu. */
typedef struct {
    const double *bend, *pull, *push;
} lq_barrier;

/* One of several problems of which steps of Newton's method are attempted side by side, see lq_attempts.  delta: added to the diagonals of Q and R.
   asked: which shares, as bits.  under (N, m, n): the gains under which costates are found, NULL for those without curvature, which are asked for then.  barrier: of all problems or of none, with NULL.  K (N, m, n), k (N, m): where
   gains go, by the number of their share; dx (N + 1, n), du (N, m): where the step of the first share goes that leaves a convex problem; k_by, dx_by,
   du_by: how these grow with mu, where they stand at mu = 0.

   finite: whether cost, gaps, costates and gradient are; convex: the shares that do, as bits; share: the number of the first one, or -1.
   cost, defect and theta (largest entry and l1 norm of the gaps); gradient and scaled: its largest entry, as it is and by
   the size of its terms, see stationarity of lq.py; slope: of the cost along the step, slope[0] + slope[1] mu + slope[2] mu^2. */
typedef struct {
    double delta;
    long asked;
    const double *under;
    lq_barrier barrier;
    double *K[MOST_SHARES], *k[MOST_SHARES], *dx, *du, *k_by[MOST_SHARES], *dx_by, *du_by;
    long finite, convex, share;
    double cost, defect, theta, gradient, scaled, slope[3];
} lq_attempt;

/* What is attempted: shares of the curvature (MOST_SHARES, falling from 1 to 0), and which of them for some problem, as bits. */
typedef struct {
    const double *shares;
    long asked;
} lq_asked;

/* The blocks of a knot, of several problems: vectors with one problem in each lane. */
typedef struct {
    void *A, *B, *d, *Q, *q, *S, *R, *r, *cost;
} lq_vectors;

/* Whether all of `count` numbers are finite: what is not, times zero, is NaN. */
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
