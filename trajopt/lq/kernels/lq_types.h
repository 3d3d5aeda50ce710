/* What the kernels of LQ problems take and give, whatever the sizes n and m; and a search for numbers that are none.
   Matrices by rows; every array is one knot after the other. */

/* A (N, n, n), B (N, n, m), d (N, n), Q (N + 1, n, n), q (N + 1, n), S (N, m, n), R (N, m, m), r (N, m); N steps */
typedef struct {
    const double *A, *B, *d, *Q, *q, *S, *R, *r;
    long N;
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
