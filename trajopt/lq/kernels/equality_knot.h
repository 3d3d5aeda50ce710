/* Backward step of the recursion of equality_riccati.h. */
#pragma once
#include "equality_types.h"
#include "small_matrices.h"

#define PIVOT_TOLERANCE 1e-9 /* for rows scaled to a largest entry of one */

/* Q-function of (dx, du) at a knot from the value function P (n, n) of the next: uu (m, m), ux (m, n), and the upper half of xx. */
ALWAYS_INLINE void quadratic_at(const double *A, const double *B, const double *Q, const double *S, const double *R, double shift, const double *P,
                                double *restrict uu, double *restrict ux, double *restrict xx, lq_size dims)
{
    double PA[N_ * N_], PB[N_ * M_];
    PRODUCT(PA, P, A, N_, N_, N_, 0);
    PRODUCT(PB, P, B, N_, N_, M_, 0);
    SUM_TRANSPOSED_PRODUCT(uu, R, B, PB, M_, N_, M_);
    SUM_TRANSPOSED_PRODUCT(ux, S, B, PA, M_, N_, N_);
    UPPER_SUM_PRODUCT(xx, Q, A, PA, N_, N_);
    for (int a = 0; a < M_; a++) uu[a * (M_ + 1)] += shift;
    for (int a = 0; a < N_; a++) xx[a * (N_ + 1)] += shift;
}

ALWAYS_INLINE elq_knot knot_at(const elq_factors *f, long k, lq_size dims)
{
    const elq_knot *q = &f->first;
    return (elq_knot){q->P + k * N_ * N_, q->K + k * M_ * N_, q->ux + k * M_ * N_, q->uu + k * M_ * M_, q->G + k * M_ * M_};
}

ALWAYS_INLINE void mirror(double *P, lq_size dims)
{
    for (int a = 0; a < N_; a++)
        for (int b = 0; b < a; b++) P[a * N_ + b] = P[b * N_ + a];
}

/* Value function at the last knot. */
ALWAYS_INLINE void value_at_end(const double *Q, double shift, double *restrict P, lq_size dims)
{
    memcpy(P, Q, sizeof(double) * N_ * N_);
    for (int a = 0; a < N_; a++) P[a * (N_ + 1)] += shift;
}

/* Cholesky factor G of uu and gains K; xx becomes the upper half of the value function.  Returns 0 if uu is not positive definite. */
ALWAYS_INLINE int free_gains(const double *uu, const double *ux, double *restrict G, double *restrict K, double *restrict xx, lq_size dims)
{
    memcpy(G, uu, sizeof(double) * M_ * M_);
    if (!cholesky(G, M_)) return 0;
    memcpy(K, ux, sizeof(double) * M_ * N_);
    minus_solve(G, K, N_, M_);
    ADD_UPPER_PRODUCT(xx, ux, K, N_, M_);
    return 1;
}

/* -- equations ------------------------------------------------------------------------------------------------------------------------ */

/* Eliminated equations of a knot: see elq_knot. */
typedef struct {
    double *T, *E, *X, *H;
} turned_t;

/* Offsets of E and H in the memory for `most` rows, and its size. */
static long E_at(long most, lq_size dims) { return (M_ + most) * most; }
static long H_at(long most, lq_size dims) { return E_at(most, dims) + M_ * (M_ + N_); }
static long turned_size(long most, lq_size dims) { return H_at(most, dims) + most * N_; }

ALWAYS_INLINE turned_t turned_in(double *at, long most, lq_size dims)
{
    return (turned_t){at, at + E_at(most, dims), at + E_at(most, dims) + M_ * M_, at + H_at(most, dims)};
}

/* W (carried + own, m + n): H (carried, n) of the next knot with the dynamics substituted, then C, D of the knot; A, B, D: NULL at the last knot. */
ALWAYS_INLINE void joined(double *restrict W, const double *H, long carried, const double *A, const double *B, const double *C, const double *D, long own, lq_size dims)
{
    const long w = M_ + N_;
    for (long i = 0; i < carried; i++) {
        double on_u[M_], on_x[N_];
        PRODUCT(on_u, H + i * N_, B, 1, N_, M_, 0);
        PRODUCT(on_x, H + i * N_, A, 1, N_, N_, 0);
        memcpy(W + i * w, on_u, sizeof on_u);
        memcpy(W + i * w + M_, on_x, sizeof on_x);
    }
    for (long i = 0; i < own; i++) {
        double *to = W + (carried + i) * w;
        if (D) memcpy(to, D + i * M_, sizeof(double) * M_);
        else memset(to, 0, sizeof(double) * M_);
        memcpy(to + M_, C + i * N_, sizeof(double) * N_);
    }
}

/* Gauss-Jordan elimination with full pivoting in the columns first .. last of W (rows, m + n), with the same row operations on T.  place[i] of
   a row with a pivot is the control of the pivot, or m plus the number of earlier pivots on states; it is negative without a pivot.  Rows with
   a pivot on a control stay unchanged in the elimination of states.  Returns the number of pivots. */
static long eliminate(double *restrict W, double *restrict T, long *restrict place, long rows, long first, long last, lq_size dims)
{
    const long w = M_ + N_;
    for (long found = 0;; found++) {
        double most = 0.0;
        long row = 0, column = first;
        for (long i = 0; i < rows; i++)
            for (long j = first; place[i] < 0 && j < last; j++)
                if (fabs(W[i * w + j]) > most) most = fabs(W[i * w + j]), row = i, column = j;
        if (!(most > PIVOT_TOLERANCE)) return found;
        double *restrict pivot = W + row * w, *restrict turn = T + row * rows;
        const double inverse = 1.0 / pivot[column];
        for (long j = 0; j < w; j++) pivot[j] *= inverse;
        for (long j = 0; j < rows; j++) turn[j] *= inverse;
        pivot[column] = 1.0; /* without rounding */
        place[row] = first ? found + M_ : column;
        for (long i = 0; i < rows; i++) {
            if (i == row || (first && place[i] >= 0 && place[i] < M_)) continue;
            const double factor = W[i * w + column];
            for (long j = 0; j < w; j++) W[i * w + j] -= factor * pivot[j];
            for (long j = 0; j < rows; j++) T[i * rows + j] -= factor * turn[j];
            W[i * w + column] = 0.0;
        }
    }
}

/* Eliminate the equations W (rows, m + n), which is overwritten; at_end: no controls.  pivots: number of pivots on controls;
   passed: number of equations passed to the previous knot. */
static void turn(double *restrict W, long rows, int at_end, turned_t to, long *pivots, long *passed, lq_size dims)
{
    const long w = M_ + N_;
    double T[rows * rows];
    long place[rows];
    memset(T, 0, sizeof T);
    for (long i = 0; i < rows; i++) {
        double most = 0.0;
        for (long j = 0; j < w; j++) most = fabs(W[i * w + j]) > most ? fabs(W[i * w + j]) : most;
        const double scale = most > 0.0 ? 1.0 / most : 1.0;
        for (long j = 0; j < w; j++) W[i * w + j] *= scale;
        T[i * rows + i] = scale, place[i] = -1;
    }
    *pivots = at_end ? 0 : eliminate(W, T, place, rows, 0, M_, dims);
    *passed = eliminate(W, T, place, rows, M_, w, dims);
    memset(to.T, 0, sizeof(double) * M_ * rows);
    memset(to.E, 0, sizeof(double) * M_ * M_);
    memset(to.X, 0, sizeof(double) * M_ * N_);
    const long zero = M_ + *passed;
    for (long i = 0, next = zero; i < rows; i++) {
        const long at = place[i] < 0 ? next++ : place[i];
        memcpy(to.T + at * rows, T + i * rows, sizeof(double) * rows);
        if (at < M_) memcpy(to.E + at * M_, W + i * w, sizeof(double) * M_);
        if (at < zero) memcpy(at < M_ ? to.X + at * N_ : to.H + (at - M_) * N_, W + i * w + M_, sizeof(double) * N_);
    }
}

/* free_gains for a knot whose equations have pivots on controls: du = -X dx + (1 - E) w, with free w. */
ALWAYS_INLINE int bound_gains(const double *uu, const double *ux, const double *E, const double *X, double *restrict G, double *restrict K, double *restrict xx, lq_size dims)
{
    double Z[M_ * M_], H[M_ * M_], T[M_ * N_], w[M_ * N_];
    for (int i = 0; i < M_ * M_; i++) Z[i] = (i % (M_ + 1) == 0 ? 1.0 : 0.0) - E[i];
    for (int i = 0; i < M_ * N_; i++) K[i] = -X[i];
    SUM_PRODUCT(T, ux, uu, K, M_, M_, N_);
    PRODUCT(H, uu, Z, M_, M_, M_, 0);
    TRANSPOSED_PRODUCT(G, Z, H, M_, M_, M_, 0);
    for (int a = 0; a < M_; a++) G[a * (M_ + 1)] += E[a * (M_ + 1)];
    if (!cholesky(G, M_)) return 0;
    TRANSPOSED_PRODUCT(w, Z, T, M_, M_, N_, 0);
    minus_solve(G, w, N_, M_);
    PRODUCT(K, Z, w, M_, M_, N_, 1);
    SUM_PRODUCT(T, ux, uu, K, M_, M_, N_);
    ADD_UPPER_PRODUCT(xx, K, T, N_, M_);
    ADD_UPPER_PRODUCT(xx, ux, K, N_, M_);
    return 1;
}
