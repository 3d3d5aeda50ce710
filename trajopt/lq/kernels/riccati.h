/* LQ problem with defects: the counterpart of trajopt/lq/lq.py.  Matrices are row-major; arrays are contiguous over knots. */
#pragma once
#include "small_matrices.h"
#ifndef IN_LANES
#include "box_qp.h"
#include "definite_shift.h"
#endif

#ifdef IN_LANES
typedef void lq_changes; /* no changes with IN_LANES */
#else
/* Second derivatives, contracted with lam (n), of the knots first .. last: xx (n, n), ux (m, n), uu (m, m). */
typedef struct {
    long first, last;
    void (*contract)(const void *knots, long knot, const double *lam, double *xx, double *ux, double *uu);
    const void *knots;
} lq_curvature;

/* Second derivatives of the steps, stored: xx (N, n, n, n), ux (N, n, m, n), uu (N, n, m, m), the entry of the step first. */
typedef struct {
    int n, m;
    const double *xx, *ux, *uu;
} lq_tensors;

/* Changes of the problem during a sweep: see convex of trajopt/lq/lq_solver.py.  The sweep adds `parts` pieces of curvature to
   the problem's arrays Q, S and R and, if `modify`, the shift of R that makes Quu positive definite. */
typedef struct {
    int modify, parts;
    const lq_curvature *curvature;
    double *Q, *S, *R;
} lq_changes;

ALWAYS_INLINE void add_curvature(const lq_changes *changes, long i, const double *lam, lq_size dims)
{
    double xx[N_ * N_], ux[M_ * N_], uu[M_ * M_];
    double *restrict Q = changes->Q + i * N_ * N_, *restrict S = changes->S + i * M_ * N_, *restrict R = changes->R + i * M_ * M_;
    const lq_curvature *c = changes->curvature;
    for (int parts = changes->parts; parts > 0; parts--, c++) {
        if (i < c->first || i >= c->last) continue;
        c->contract(c->knots, i - c->first, lam, xx, ux, uu);
        for (int a = 0; a < N_ * N_; a++) Q[a] += xx[a];
        for (int a = 0; a < M_ * N_; a++) S[a] += ux[a];
        for (int a = 0; a < M_ * M_; a++) R[a] += uu[a];
    }
}
#endif

/* Blocks of a knot.  lower, upper: bounds on du, NULL for none. */
typedef struct {
    const num *A, *B, *d, *Q, *q, *S, *R, *r, *lower, *upper;
} blocks_t;

/* Regularization added to V'xx and to Quu. */
typedef struct {
    num on_state, on_control;
} damping_t;

/* Gains and value function of a knot. */
typedef struct {
    num *K, *k, *Vx, *Vxx;
} gains_t;

/* Q-function of (dx, du) at a knot: Qu (m), Quu (m, m), Qux (m, n); Qx and Qxx are stored in Vx and Vxx of the knot. */
typedef struct {
    num *u, *uu, *ux;
} q_t;

/* Columns of [K k], padded with zeros to whole packs. */
#define COLUMNS ((N_ + PACK) / PACK * PACK)

/* Linear system of the gains with damping: H (m, m) [K k 0] = -X (m, COLUMNS). */
typedef struct {
    num *H, *X;
} damped_t;

/* Q-function at a knot from V'xx of the next knot (V_) and V'x after the defect (ahead): see q_function of tests/cases/numpy_lq.py. */
ALWAYS_INLINE void q_function(blocks_t p, const num *ahead, const num *V_, const q_t *q, num *restrict Qx, num *restrict Qxx, lq_size dims)
{
    const num *A = p.A, *B = p.B;
    num VA[N_ * N_], VB[N_ * M_];
    PRODUCT(VA, V_, A, N_, N_, N_, 0);
    PRODUCT(VB, V_, B, N_, N_, M_, 0);
    SUM_TRANSPOSED_PRODUCT(q->uu, p.R, B, VB, M_, N_, M_);
    SUM_TRANSPOSED_PRODUCT(q->ux, p.S, B, VA, M_, N_, N_);
    SUM_PRODUCT(q->u, p.r, ahead, B, 1, N_, M_);
    SUM_PRODUCT(Qx, p.q, ahead, A, 1, N_, N_);
    UPPER_SUM_PRODUCT(Qxx, p.Q, A, VA, N_, N_);
}

/* Linear system of the gains with regularization: see damped of tests/cases/numpy_lq.py. */
ALWAYS_INLINE void damped(const q_t *q, const num *A, const num *B, damping_t by, const damped_t *s, lq_size dims)
{
    memcpy(s->H, q->uu, sizeof(num) * M_ * M_);
    for (int a = 0; a < M_; a++) {
        s->H[a * M_ + a] += by.on_control;
        num *x = s->X + a * COLUMNS;
        memcpy(x, q->ux + a * N_, sizeof(num) * N_);
        x[N_] = q->u[a];
        for (int b = N_ + 1; b < COLUMNS; b++) x[b] = number(0.0);
    }
    if (ANY(by.on_state != 0.0)) {
        num BA[M_ * N_], BB[M_ * M_];
        TRANSPOSED_PRODUCT(BB, B, B, M_, N_, M_, 0);
        TRANSPOSED_PRODUCT(BA, B, A, M_, N_, N_, 0);
        for (int a = 0; a < M_ * M_; a++) s->H[a] += by.on_state * BB[a];
        for (int a = 0; a < M_; a++)
            for (int b = 0; b < N_; b++) s->X[a * COLUMNS + b] += by.on_state * BA[a * N_ + b];
    }
}

#ifndef IN_LANES
/* Make the damped Quu positive definite by a shift, also added to R (m, m); returns 0 if Quu is not finite. */
ALWAYS_INLINE int convexified(const q_t *q, const damped_t *s, double *restrict R, lq_size dims)
{
    double shift[M_ * M_];
    for (int a = 0; a < M_ * M_; a++)
        if (!(fabs(s->H[a]) < HUGE_VAL)) return 0;
    if (definite_shift(s->H, shift, dims))
        for (int a = 0; a < M_ * M_; a++) {
            R[a] += shift[a];
            q->uu[a] += shift[a];
            s->H[a] += shift[a];
        }
    return 1;
}
#endif

/* Gains K (m, n) and k (m); false where H is not positive definite.  The Cholesky factor overwrites H. */
ALWAYS_INLINE truth gains_of(const damped_t *s, num *restrict K, num *restrict k, lq_size dims)
{
    const truth definite = cholesky(s->H, M_);
    if (!ANY(definite)) return definite;
    minus_solve(s->H, s->X, COLUMNS, M_);
    for (int a = 0; a < M_; a++) {
        memcpy(K + a * N_, s->X + a * COLUMNS, sizeof(num) * N_);
        k[a] = s->X[a * COLUMNS + N_];
    }
    return definite;
}

#ifndef IN_LANES
/* Gains with bounds on k: rows of K of clamped controls are zero; 0 if H is not positive definite on the free controls. */
ALWAYS_INLINE int box_gains(const damped_t *s, const double *Qu, const double *lower, const double *upper, double *restrict K, double *restrict k,
                            lq_size dims)
{
    int free_[M_];
    double factor[M_ * M_];
    if (!box_qp(s->H, Qu, lower, upper, k, free_, factor, dims)) return 0;
    for (int a = 0; a < M_; a++)
        for (int b = 0; b < N_; b++) K[a * N_ + b] = free_[a] ? s->X[a * COLUMNS + b] : 0.0;
    minus_solve(factor, K, N_, M_);
    return 1;
}
#endif

/* Vxx = Qxx + K'(Quu K + Qux) + Qux'K, Vx = Qx + K'(Quu k + Qu) + Qux'k, which overwrite Qxx and Qx; adds k'Qu + k'Quu k / 2 to `change`, the
   value at dx = 0 (NULL: skip) */
ALWAYS_INLINE void value_of(const q_t *q, const num *K, const num *k, num *restrict Vx, num *restrict Vxx, num *restrict change, lq_size dims)
{
    num T[M_ * N_], t[M_];
    SUM_PRODUCT(T, q->ux, q->uu, K, M_, M_, N_);
    SUM_PRODUCT(t, q->u, q->uu, k, M_, M_, 1);
    if (change)
        for (int a = 0; a < M_; a++) *change += 0.5 * k[a] * (t[a] + q->u[a]);
    PRODUCT(Vx, t, K, 1, M_, N_, 1);
    PRODUCT(Vx, k, q->ux, 1, M_, N_, 1);
    ADD_UPPER_PRODUCT(Vxx, K, T, N_, M_);
    ADD_UPPER_PRODUCT(Vxx, q->ux, K, N_, M_);
    for (int a = 0; a < N_; a++)
        for (int b = 0; b < a; b++) Vxx[a * N_ + b] = Vxx[b * N_ + a];
}

/* One knot i of the backward sweep: gains and value function from the value function of the next knot; false where Quu is not positive definite on
   the free controls.  changes: NULL for none; change: see value_of. */
ALWAYS_INLINE truth swept(blocks_t p, damping_t by, const lq_changes *changes, long i, gains_t next, gains_t to, num *restrict change,
                          lq_size dims)
{
    const num *V_ = next.Vxx, *Vx_next = next.Vx;
    num ahead[N_], u[M_], uu[M_ * M_], ux[M_ * N_], H[M_ * M_], X[M_ * COLUMNS];
    const q_t q = {u, uu, ux};
    const damped_t system = {H, X}, *s = &system;
    SUM_PRODUCT(ahead, Vx_next, p.d, V_, 1, N_, N_);
    if (change)
        for (int a = 0; a < N_; a++) *change += 0.5 * p.d[a] * (Vx_next[a] + ahead[a]);
#ifndef IN_LANES
    if (changes) add_curvature(changes, i, ahead, dims);
#endif
    q_function(p, ahead, V_, &q, to.Vx, to.Vxx, dims);
    damped(&q, p.A, p.B, by, s, dims);
#ifndef IN_LANES
    if (changes && changes->modify && !convexified(&q, s, changes->R + i * M_ * M_, dims)) return 0;
#endif
#ifdef IN_LANES
    const truth definite = gains_of(s, to.K, to.k, dims);
#else
    const int definite = p.lower ? box_gains(s, q.u, p.lower, p.upper, to.K, to.k, dims) : gains_of(s, to.K, to.k, dims);
#endif
    if (ANY(definite)) value_of(&q, to.K, to.k, to.Vx, to.Vxx, change, dims);
    return definite;
}

#ifndef IN_LANES
ALWAYS_INLINE blocks_t blocks_at(const lq_problem *p, const lq_bounds *limits, long i)
{
    SIZES(p->size);
    const double *lower = limits->lower ? limits->lower + i * M_ : NULL, *upper = lower ? limits->upper + i * M_ : NULL;
    return (blocks_t){p->A + i * N_ * N_, p->B + i * N_ * M_, p->d + i * N_, p->Q + i * N_ * N_, p->q + i * N_, p->S + i * M_ * N_,
                      p->R + i * M_ * M_, p->r + i * M_, lower, upper};
}

/* Backward sweep; returns the knot where Quu was not positive definite on the free controls, or -1.  changes: NULL for none. */
ALWAYS_INLINE long riccati(lq_problem p, lq_bounds limits, double on_state, double on_control, const lq_changes *changes, lq_policy to)
{
    SIZES(p.size);
    memcpy(to.Vx + p.N * N_, p.q + p.N * N_, sizeof(double) * N_);
    memcpy(to.Vxx + p.N * N_ * N_, p.Q + p.N * N_ * N_, sizeof(double) * N_ * N_);
    for (long i = p.N - 1; i >= 0; i--) {
        const gains_t own = {to.K + i * M_ * N_, to.k + i * M_, to.Vx + i * N_, to.Vxx + i * N_ * N_};
        const gains_t next = {NULL, NULL, own.Vx + N_, own.Vxx + N_ * N_};
        if (!swept(blocks_at(&p, &limits, i), (damping_t){on_state, on_control}, changes, i, next, own, NULL, dims)) return i;
    }
    return -1;
}

/* Costates lambda_k = q + A' lambda_(k+1) (N + 1, n) and gradient g = r + B' lambda_(k+1) (N, m), under the feedback K (NULL: none), and the size
   of the terms of g for each control (NULL: not wanted): see stationarity of tests/cases/numpy_lq.py. */
static void stationarity(lq_problem p, const double *K, double *restrict lambda, double *restrict g, double *restrict size)
{
    SIZES(p.size);
    const long N = p.N;
    memcpy(lambda, p.q, sizeof(double) * N_ * (N + 1));
    memcpy(g, p.r, sizeof(double) * M_ * N);
    if (size) memset(size, 0, sizeof(double) * M_);
    for (long i = N - 1; i >= 0; i--) {
        const double *next = lambda + (i + 1) * N_, *B = p.B + i * N_ * M_;
        double *gradient = g + i * M_, *own = lambda + i * N_, terms[M_];
        for (int a = 0; size && a < M_; a++) terms[a] = fabs(gradient[a]);
        for (int b = 0; size && b < N_; b++)
            for (int a = 0; a < M_; a++) terms[a] += fabs(next[b]) * fabs(B[b * M_ + a]);
        for (int a = 0; size && a < M_; a++)
            if (!(terms[a] <= size[a])) size[a] = terms[a];
        PRODUCT(gradient, next, B, 1, N_, M_, 1);
        PRODUCT(own, next, p.A + i * N_ * N_, 1, N_, N_, 1);
        if (K) PRODUCT(own, gradient, K + i * M_ * N_, 1, M_, N_, 1);
    }
    double largest = 0.0;
    if (!size) return;
    for (int a = 0; a < M_; a++) largest = fmax(largest, size[a]);
    const double least = HALF_OF_DIGITS * fmax(1.0, largest); /* least_size of trajopt/lq/lq.py */
    for (int a = 0; a < M_; a++) size[a] = size[a] < least ? least : size[a];
}

/* Linear rollout of a policy from dx_0, and change = (D1, D2) of its cost change alpha D1 + alpha^2/2 D2. */
ALWAYS_INLINE void linear_rollout(lq_problem p, lq_bounds limits, const double *K, const double *k, double *restrict dx, double *restrict du,
                                  double *restrict change, lq_size dims)
{
    const long N = p.N;
    const double *lower = limits.lower, *upper = limits.upper;
    double D1 = 0.0, D2 = 0.0;
    for (long i = 0; i <= N; i++) {
        double *x = dx + i * N_;
        D1 += dot(p.q + i * N_, x, N_);
        for (int a = 0; a < N_; a++) D2 += x[a] * dot(p.Q + (i * N_ + a) * N_, x, N_);
        if (i == N) break;
        double *u = du + i * M_, *next = x + N_;
        for (int a = 0; a < M_; a++) {
            double s = k[i * M_ + a] + dot(K + (i * M_ + a) * N_, x, N_);
            if (lower && s < lower[i * M_ + a]) s = lower[i * M_ + a];
            if (lower && s > upper[i * M_ + a]) s = upper[i * M_ + a];
            u[a] = s;
        }
        D1 += dot(p.r + i * M_, u, M_);
        for (int a = 0; a < M_; a++)
            D2 += u[a] * (2.0 * dot(p.S + (i * M_ + a) * N_, x, N_) + dot(p.R + (i * M_ + a) * M_, u, M_));
        for (int a = 0; a < N_; a++)
            next[a] = p.d[i * N_ + a] + dot(p.A + (i * N_ + a) * N_, x, N_) + dot(p.B + (i * N_ + a) * M_, u, M_);
    }
    change[0] = D1;
    change[1] = D2;
}

static long lq_sweep(const lq_problem *p, lq_bounds limits, double on_state, double on_control, const lq_policy *to)
{
    return riccati(*p, limits, on_state, on_control, NULL, *to);
}

static void lq_roll(const lq_problem *p, lq_bounds limits, const lq_policy *policy, double *dx, double *du, double *change)
{
#define LINEAR_ROLLOUT(n) linear_rollout(*p, limits, policy->K, policy->k, dx, du, change, (lq_size){n, p->size.m})
    FOR_SIZE(p->size.n, LINEAR_ROLLOUT) /* its sums are short */
#undef LINEAR_ROLLOUT
}

/* Kernels for problems with n states and m controls; n = 0: for all problems. */
typedef struct {
    int n, m;
    long (*sweep)(const lq_problem *p, lq_bounds limits, double on_state, double on_control, const lq_policy *to);
    void (*stationarity)(lq_problem p, const double *K, double *restrict lambda, double *restrict g, double *restrict size);
    void (*roll_out)(const lq_problem *p, lq_bounds limits, const lq_policy *policy, double *dx, double *du, double *change);
} lq_kernels_t;

#ifdef SIZED
const lq_kernels_t SIZED = {N_, M_, lq_sweep, stationarity, lq_roll};
#endif
#endif
