/* The LQ problem with defects: the twin of trajopt/lq.py, with the sizes n = NDX and m = NU known at compile time.
   Matrices by rows; every array is one knot after the other. */

#include <math.h>
#include <string.h>

#define N_ NDX
#define M_ NU

#ifndef ALWAYS_INLINE /* else the prelude's */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#endif

typedef struct {
    const double *A, *B, *d, *Q, *q, *S, *R, *r;
} lq_data;

/* C (a x c) = X' Y for X (b x a), Y (b x c); plus = 1 adds to C. */
#define TRANSPOSED_PRODUCT(C, X, Y, a, b, c, plus)                              \
    for (int i_ = 0; i_ < (a); i_++) {                                          \
        double row_[c];                                                         \
        for (int j_ = 0; j_ < (c); j_++) row_[j_] = (plus) ? (C)[i_ * (c) + j_] : 0.0; \
        for (int k_ = 0; k_ < (b); k_++) {                                      \
            const double f_ = (X)[k_ * (a) + i_];                               \
            for (int j_ = 0; j_ < (c); j_++) row_[j_] += f_ * (Y)[k_ * (c) + j_]; \
        }                                                                       \
        for (int j_ = 0; j_ < (c); j_++) (C)[i_ * (c) + j_] = row_[j_];         \
    }

/* C (a x c) = X Y for X (a x b), Y (b x c). */
#define PRODUCT(C, X, Y, a, b, c)                                               \
    for (int i_ = 0; i_ < (a); i_++) {                                          \
        double row_[c];                                                         \
        for (int j_ = 0; j_ < (c); j_++) row_[j_] = 0.0;                        \
        for (int k_ = 0; k_ < (b); k_++) {                                      \
            const double f_ = (X)[i_ * (b) + k_];                               \
            for (int j_ = 0; j_ < (c); j_++) row_[j_] += f_ * (Y)[k_ * (c) + j_]; \
        }                                                                       \
        for (int j_ = 0; j_ < (c); j_++) (C)[i_ * (c) + j_] = row_[j_];         \
    }

/* In-place Cholesky factor of the m x m matrix G; 0 where it is not positive definite. */
static int cholesky(double *restrict G)
{
    for (int j = 0; j < M_; j++) {
        double s = G[j * M_ + j];
        for (int k = 0; k < j; k++) s -= G[j * M_ + k] * G[j * M_ + k];
        if (!(s > 0.0) || s > 1e300) return 0;
        s = sqrt(s);
        G[j * M_ + j] = s;
        const double inverse = 1.0 / s;
        for (int i = j + 1; i < M_; i++) {
            double t = G[i * M_ + j];
            for (int k = 0; k < j; k++) t -= G[i * M_ + k] * G[j * M_ + k];
            G[i * M_ + j] = t * inverse;
        }
    }
    return 1;
}

/* X (m x c) <- -G^-1 X by its Cholesky factor. */
ALWAYS_INLINE void minus_solve(const double *restrict G, double *restrict X, const int c)
{
    for (int i = 0; i < M_; i++) {
        for (int k = 0; k < i; k++)
            for (int j = 0; j < c; j++) X[i * c + j] -= G[i * M_ + k] * X[k * c + j];
        const double inverse = 1.0 / G[i * M_ + i];
        for (int j = 0; j < c; j++) X[i * c + j] *= inverse;
    }
    for (int i = M_ - 1; i >= 0; i--) {
        for (int k = i + 1; k < M_; k++)
            for (int j = 0; j < c; j++) X[i * c + j] -= G[k * M_ + i] * X[k * c + j];
        const double inverse = 1.0 / G[i * M_ + i];
        for (int j = 0; j < c; j++) X[i * c + j] *= inverse;
    }
    for (int i = 0; i < M_ * c; i++) X[i] = -X[i];
}

/* The backward sweep without bounds; returns the knot where Quu was not positive definite, or -1. */
static long riccati(lq_data p, long N, double on_state, double on_control,
                    double *restrict K, double *restrict k, double *restrict Vx, double *restrict Vxx)
{
    memcpy(Vx + N * N_, p.q + N * N_, sizeof(double) * N_);
    memcpy(Vxx + N * N_ * N_, p.Q + N * N_ * N_, sizeof(double) * N_ * N_);
    for (long i = N - 1; i >= 0; i--) {
        const double *A = p.A + i * N_ * N_, *B = p.B + i * N_ * M_, *V = Vxx + (i + 1) * N_ * N_, *d = p.d + i * N_;
        double ahead[N_], VA[N_ * N_], VB[N_ * M_], Quu[M_ * M_], G[M_ * M_], Qux[M_ * N_], Qu[M_], X[M_ * (N_ + 1)];
        double *Wx = Vx + i * N_, *W = Vxx + i * N_ * N_;
        for (int a = 0; a < N_; a++) {
            double s = Vx[(i + 1) * N_ + a];
            for (int b = 0; b < N_; b++) s += V[a * N_ + b] * d[b];
            ahead[a] = s;
        }
        PRODUCT(VA, V, A, N_, N_, N_)
        PRODUCT(VB, V, B, N_, N_, M_)
        memcpy(Quu, p.R + i * M_ * M_, sizeof Quu);
        TRANSPOSED_PRODUCT(Quu, B, VB, M_, N_, M_, 1)
        memcpy(Qux, p.S + i * M_ * N_, sizeof Qux);
        TRANSPOSED_PRODUCT(Qux, B, VA, M_, N_, N_, 1)
        memcpy(Qu, p.r + i * M_, sizeof Qu);
        TRANSPOSED_PRODUCT(Qu, B, ahead, M_, N_, 1, 1)
        memcpy(Wx, p.q + i * N_, sizeof(double) * N_);
        TRANSPOSED_PRODUCT(Wx, A, ahead, N_, N_, 1, 1)
        memcpy(W, p.Q + i * N_ * N_, sizeof(double) * N_ * N_);
        TRANSPOSED_PRODUCT(W, A, VA, N_, N_, N_, 1)
        memcpy(G, Quu, sizeof G);
        for (int a = 0; a < M_; a++) {
            G[a * M_ + a] += on_control;
            X[a * (N_ + 1)] = Qu[a];
            memcpy(X + a * (N_ + 1) + 1, Qux + a * N_, sizeof(double) * N_);
        }
        if (on_state != 0.0) {
            double BA[M_ * N_], BB[M_ * M_];
            TRANSPOSED_PRODUCT(BB, B, B, M_, N_, M_, 0)
            TRANSPOSED_PRODUCT(BA, B, A, M_, N_, N_, 0)
            for (int a = 0; a < M_ * M_; a++) G[a] += on_state * BB[a];
            for (int a = 0; a < M_; a++)
                for (int b = 0; b < N_; b++) X[a * (N_ + 1) + 1 + b] += on_state * BA[a * N_ + b];
        }
        if (!cholesky(G)) return i;
        minus_solve(G, X, N_ + 1);
        double *Ki = K + i * M_ * N_, *ki = k + i * M_, T[M_ * N_], t[M_];
        for (int a = 0; a < M_; a++) {
            ki[a] = X[a * (N_ + 1)];
            memcpy(Ki + a * N_, X + a * (N_ + 1) + 1, sizeof(double) * N_);
        }
        /* V = Qxx + K'(Quu K + Qux) + Qux'K,  Vx = Qx + K'(Quu k + Qu) + Qux'k */
        PRODUCT(T, Quu, Ki, M_, M_, N_)
        for (int a = 0; a < M_ * N_; a++) T[a] += Qux[a];
        PRODUCT(t, Quu, ki, M_, M_, 1)
        for (int a = 0; a < M_; a++) t[a] += Qu[a];
        TRANSPOSED_PRODUCT(Wx, Ki, t, N_, M_, 1, 1)
        TRANSPOSED_PRODUCT(Wx, Qux, ki, N_, M_, 1, 1)
        TRANSPOSED_PRODUCT(W, Ki, T, N_, M_, N_, 1)
        TRANSPOSED_PRODUCT(W, Qux, Ki, N_, M_, N_, 1)
        for (int a = 0; a < N_; a++)
            for (int b = 0; b < a; b++) W[a * N_ + b] = W[b * N_ + a] = 0.5 * (W[a * N_ + b] + W[b * N_ + a]);
    }
    return -1;
}

/* lambda_k = q + A' lambda_(k+1); g = r + B' lambda_(k+1) */
static void adjoint(lq_data p, long N, double *restrict lambda, double *restrict g)
{
    memcpy(lambda, p.q, sizeof(double) * N_ * (N + 1));
    memcpy(g, p.r, sizeof(double) * M_ * N);
    for (long i = N - 1; i >= 0; i--) {
        const double *next = lambda + (i + 1) * N_;
        TRANSPOSED_PRODUCT(g + i * M_, p.B + i * N_ * M_, next, M_, N_, 1, 1)
        TRANSPOSED_PRODUCT(lambda + i * N_, p.A + i * N_ * N_, next, N_, N_, 1, 1)
    }
}

/* The linear roll-out of a policy from dx_0, and the change of the cost along it: change = (D1, D2), alpha D1 + alpha^2/2 D2. */
static void linear_rollout(lq_data p, long N, const double *K, const double *k, double *restrict dx, double *restrict du,
                           double *restrict change)
{
    double D1 = 0.0, D2 = 0.0;
    for (long i = 0; i <= N; i++) {
        double *x = dx + i * N_;
        for (int a = 0; a < N_; a++) {
            double s = 0.0;
            for (int b = 0; b < N_; b++) s += p.Q[(i * N_ + a) * N_ + b] * x[b];
            D1 += p.q[i * N_ + a] * x[a];
            D2 += x[a] * s;
        }
        if (i == N) break;
        double *u = du + i * M_, *next = x + N_;
        for (int a = 0; a < M_; a++) {
            double s = k[i * M_ + a];
            for (int b = 0; b < N_; b++) s += K[(i * M_ + a) * N_ + b] * x[b];
            u[a] = s;
        }
        for (int a = 0; a < M_; a++) {
            double s = 0.0;
            for (int b = 0; b < N_; b++) s += 2.0 * p.S[(i * M_ + a) * N_ + b] * x[b];
            for (int b = 0; b < M_; b++) s += p.R[(i * M_ + a) * M_ + b] * u[b];
            D1 += p.r[i * M_ + a] * u[a];
            D2 += u[a] * s;
        }
        for (int a = 0; a < N_; a++) {
            double s = p.d[i * N_ + a];
            for (int b = 0; b < N_; b++) s += p.A[(i * N_ + a) * N_ + b] * x[b];
            for (int b = 0; b < M_; b++) s += p.B[(i * N_ + a) * M_ + b] * u[b];
            next[a] = s;
        }
    }
    change[0] = D1;
    change[1] = D2;
}

#define LQ_ARGUMENTS const double *A, const double *B, const double *d, const double *Q, const double *q, const double *S, const double *R, const double *r
#define LQ_DATA ((lq_data){A, B, d, Q, q, S, R, r})

EXPORT long lq_riccati(LQ_ARGUMENTS, long N, double on_state, double on_control, double *K, double *k, double *Vx, double *Vxx)
{
    return riccati(LQ_DATA, N, on_state, on_control, K, k, Vx, Vxx);
}

EXPORT void lq_adjoint(LQ_ARGUMENTS, long N, double *lambda, double *g) { adjoint(LQ_DATA, N, lambda, g); }

EXPORT void lq_rollout(LQ_ARGUMENTS, long N, const double *K, const double *k, double *dx, double *du, double *change)
{
    linear_rollout(LQ_DATA, N, K, k, dx, du, change);
}
