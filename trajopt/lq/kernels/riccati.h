/* The LQ problem with defects: the twin of trajopt/lq/lq.py, with the sizes n = NDX and m = NU known at compile time.
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

/* -- products of small matrices, in tiles whose sums stay in registers -------------------------------------------------------- */

#ifdef __GNUC__
#define PACK 4
typedef double pack_t __attribute__((vector_size(8 * PACK), aligned(8), may_alias));
#define TILED _Pragma("GCC unroll 4")
#else
#define PACK 1
typedef double pack_t;
#define TILED
#endif
#define TILE_ROWS 4
#define TILE_PACKS 3

/* A matrix by its entries X[i * by_row + k * by_column]: as it stands, or transposed. */
typedef struct {
    const double *at;
    int by_row, by_column;
} strided_t;

/* r x (w packs) of C (+)= X Y; rows of C and Y are `stride` apart, X has b columns */
ALWAYS_INLINE void tile(double *restrict C, strided_t X, const double *restrict Y, const int stride, const int b, const int r, const int w,
                        const int plus)
{
    pack_t sum[r][w];
    TILED for (int i = 0; i < r; i++)
        TILED for (int j = 0; j < w; j++) sum[i][j] = plus ? *(const pack_t *)(C + i * stride + j * PACK) : (pack_t){0.0};
    for (int k = 0; k < b; k++)
        TILED for (int i = 0; i < r; i++) {
            const double f = X.at[i * X.by_row + k * X.by_column];
            TILED for (int j = 0; j < w; j++) sum[i][j] += f * *(const pack_t *)(Y + k * stride + j * PACK);
        }
    TILED for (int i = 0; i < r; i++)
        TILED for (int j = 0; j < w; j++) *(pack_t *)(C + i * stride + j * PACK) = sum[i][j];
}

/* r rows of C (+)= X Y in the columns first .. c */
ALWAYS_INLINE void row_tiles(double *restrict C, strided_t X, const double *restrict Y, int first, const int b, const int c, const int r,
                             const int plus)
{
    int j = first;
    for (; j + TILE_PACKS * PACK <= c; j += TILE_PACKS * PACK) tile(C + j, X, Y + j, c, b, r, TILE_PACKS, plus);
    for (; j + PACK <= c; j += PACK) tile(C + j, X, Y + j, c, b, r, 1, plus);
    for (; j < c; j++)
        for (int i = 0; i < r; i++) {
            double s = plus ? C[i * c + j] : 0.0;
            for (int k = 0; k < b; k++) s += X.at[i * X.by_row + k * X.by_column] * Y[k * c + j];
            C[i * c + j] = s;
        }
}

/* C (a x c) (+)= X Y for X (a x b), Y (b x c); upper: of C only what is on and above its diagonal, and some entries below */
ALWAYS_INLINE void tiled_product(double *restrict C, strided_t X, const double *restrict Y, const int a, const int b, const int c,
                                 const int plus, const int upper)
{
    int i = 0;
    for (; i + TILE_ROWS <= a; i += TILE_ROWS, X.at += TILE_ROWS * X.by_row)
        row_tiles(C + i * c, X, Y, upper ? i : 0, b, c, TILE_ROWS, plus);
    for (; i < a; i++, X.at += X.by_row) row_tiles(C + i * c, X, Y, upper ? i : 0, b, c, 1, plus);
}

/* C (a x c) = X Y for X (a x b), Y (b x c); plus = 1 adds to C. */
#define PRODUCT(C, X, Y, a, b, c, plus) tiled_product(C, (strided_t){X, b, 1}, Y, a, b, c, plus, 0)
/* C (a x c) = X' Y for X (b x a), Y (b x c) */
#define TRANSPOSED_PRODUCT(C, X, Y, a, b, c, plus) tiled_product(C, (strided_t){X, 1, a}, Y, a, b, c, plus, 0)
/* The upper half of C (a x a) += X' Y for X, Y (b x a) */
#define ADD_UPPER_PRODUCT(C, X, Y, a, b) tiled_product(C, (strided_t){X, 1, a}, Y, a, b, a, 1, 1)

/* In-place Cholesky factor of the leading m x m block of G, whose rows have M_ entries; 0 where it is not positive definite. */
ALWAYS_INLINE int cholesky(double *restrict G, const int m)
{
    for (int j = 0; j < m; j++) {
        double s = G[j * M_ + j];
        for (int k = 0; k < j; k++) s -= G[j * M_ + k] * G[j * M_ + k];
        if (!(s > 0.0) || s > 1e300) return 0;
        s = sqrt(s);
        G[j * M_ + j] = s;
        const double inverse = 1.0 / s;
        for (int i = j + 1; i < m; i++) {
            double t = G[i * M_ + j];
            for (int k = 0; k < j; k++) t -= G[i * M_ + k] * G[j * M_ + k];
            G[i * M_ + j] = t * inverse;
        }
    }
    return 1;
}

/* X (m x c) <- -G^-1 X by its Cholesky factor. */
ALWAYS_INLINE void minus_solve(const double *restrict G, double *restrict X, const int c, const int m)
{
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < i; k++)
            for (int j = 0; j < c; j++) X[i * c + j] -= G[i * M_ + k] * X[k * c + j];
        const double inverse = 1.0 / G[i * M_ + i];
        for (int j = 0; j < c; j++) X[i * c + j] *= inverse;
    }
    for (int i = m - 1; i >= 0; i--) {
        for (int k = i + 1; k < m; k++)
            for (int j = 0; j < c; j++) X[i * c + j] -= G[k * M_ + i] * X[k * c + j];
        const double inverse = 1.0 / G[i * M_ + i];
        for (int j = 0; j < c; j++) X[i * c + j] *= inverse;
    }
    for (int i = 0; i < m * c; i++) X[i] = -X[i];
}

/* -- box QP: the twin of trajopt/lq/box_qp.py, with its constants --------------------------------------------------------------- */

#define MAX_BOX_ITERATIONS 100
#define ARMIJO 0.1
#define GRADIENT_TOLERANCE 1e-14
#define SHORTEN 0.6
#define SHORTEST 1e-10

static inline double clipped(double x, double lower, double upper)
{
    x = x < lower ? lower : x;
    return x > upper ? upper : x;
}

/* minimize 1/2 x'H x + g'x within bounds: x, the indices of the free variables and the Cholesky factor of their block of H.
   Returns how many they are, or -1 where the block is not positive definite. */
static int box_qp(const double *restrict H, const double *restrict g, const double *lower, const double *upper, double *restrict x,
                  int *restrict free_, double *restrict factor)
{
    int count = 0;
    for (int i = 0; i < M_; i++) x[i] = clipped(0.0, lower[i], upper[i]);
    for (int iteration = 0; iteration < MAX_BOX_ITERATIONS; iteration++) {
        double gradient[M_], direction[M_], step[M_], moved[M_];
        int moves = 0, changed = 0;
        count = 0;
        for (int i = 0; i < M_; i++) {
            double s = 0.0, scale = 0.0;
            for (int j = 0; j < M_; j++) {
                s += H[i * M_ + j] * x[j];
                scale += fabs(H[i * M_ + j]) * fabs(x[j]);
            }
            gradient[i] = g[i] + s;
            moved[i] = x[i];
            if ((x[i] <= lower[i] && gradient[i] > 0.0) || (x[i] >= upper[i] && gradient[i] < 0.0)) continue;
            free_[count++] = i;
            moves |= fabs(gradient[i]) > GRADIENT_TOLERANCE * (fabs(g[i]) + scale);
        }
        for (int a = 0; a < count; a++)
            for (int b = 0; b < count; b++) factor[a * M_ + b] = H[free_[a] * M_ + free_[b]];
        if (!cholesky(factor, count)) return -1;
        if (!moves) break;
        for (int a = 0; a < count; a++) step[a] = gradient[free_[a]];
        minus_solve(factor, step, 1, count);
        memset(direction, 0, sizeof direction);
        for (int a = 0; a < count; a++) direction[free_[a]] = step[a];
        for (double alpha = 1.0; alpha > SHORTEST; alpha *= SHORTEN) {
            double slope = 0.0, bend = 0.0, move[M_];
            for (int i = 0; i < M_; i++) {
                moved[i] = clipped(x[i] + alpha * direction[i], lower[i], upper[i]);
                move[i] = moved[i] - x[i];
                slope += gradient[i] * move[i];
            }
            for (int i = 0; i < M_; i++)
                for (int j = 0; j < M_; j++) bend += 0.5 * move[i] * H[i * M_ + j] * move[j];
            if (-(slope + bend) >= -ARMIJO * slope && slope < 0.0) {
                changed = 1;
                break;
            }
        }
        if (!changed || !memcmp(moved, x, sizeof moved)) break;
        memcpy(x, moved, sizeof moved);
    }
    return count;
}

/* -- a positive definite Quu: the twin of definite_shift of trajopt/solvers/shooting/ddp_model.py, with its constants --------------------------- */

#define FLOOR 1e-6
#define ROUNDING 1e-4 /* share of the floor that an eigenvalue may lie above zero and still be raised */
#define MAX_JACOBI_SWEEPS 50

/* Eigenvalues and eigenvectors (columns of X) of a symmetric m x m matrix, which is destroyed, by Jacobi's method. */
static void eigen(double *restrict G, double *restrict values, double *restrict X)
{
    for (int i = 0; i < M_ * M_; i++) X[i] = i % (M_ + 1) == 0;
    for (int sweep = 0; sweep < MAX_JACOBI_SWEEPS; sweep++) {
        double off = 0.0, size = 0.0;
        for (int i = 0; i < M_; i++)
            for (int j = 0; j < M_; j++) *(i == j ? &size : &off) += G[i * M_ + j] * G[i * M_ + j];
        if (off <= 1e-32 * size) break;
        for (int p = 0; p < M_; p++)
            for (int q = p + 1; q < M_; q++) {
                if (G[p * M_ + q] == 0.0) continue;
                const double tau = (G[q * M_ + q] - G[p * M_ + p]) / (2.0 * G[p * M_ + q]);
                const double t = (tau >= 0.0 ? 1.0 : -1.0) / (fabs(tau) + sqrt(1.0 + tau * tau)), c = 1.0 / sqrt(1.0 + t * t), s = t * c;
                for (int k = 0; k < M_; k++) {
                    const double a = G[k * M_ + p], b = G[k * M_ + q], x = X[k * M_ + p], y = X[k * M_ + q];
                    G[k * M_ + p] = c * a - s * b, G[k * M_ + q] = s * a + c * b;
                    X[k * M_ + p] = c * x - s * y, X[k * M_ + q] = s * x + c * y;
                }
                for (int k = 0; k < M_; k++) {
                    const double a = G[p * M_ + k], b = G[q * M_ + k];
                    G[p * M_ + k] = c * a - s * b, G[q * M_ + k] = s * a + c * b;
                }
            }
    }
    for (int i = 0; i < M_; i++) values[i] = G[i * M_ + i];
}

/* What makes a symmetric H positive definite: 0 where it is, else 1 with the shift. */
static int definite_shift(const double *restrict H, double *restrict shift)
{
    double G[M_ * M_], X[M_ * M_], values[M_], norm = 0.0, largest = 0.0, least = HUGE_VAL;
    for (int i = 0; i < M_; i++) {
        double row = 0.0;
        for (int j = 0; j < M_; j++) {
            G[i * M_ + j] = 0.5 * (H[i * M_ + j] + H[j * M_ + i]);
            row += fabs(G[i * M_ + j]);
        }
        norm = row > norm ? row : norm;
    }
    memcpy(X, G, sizeof X);
    for (int i = 0; i < M_; i++) X[i * M_ + i] -= ROUNDING * FLOOR * norm;
    if (cholesky(X, M_)) return 0; /* no eigenvalue exceeds the norm */
    eigen(G, values, X);
    for (int i = 0; i < M_; i++) {
        largest = fabs(values[i]) > largest ? fabs(values[i]) : largest;
        least = values[i] < least ? values[i] : least;
    }
    const double floor_ = FLOOR * largest;
    if (least > ROUNDING * floor_) return 0;
    for (int k = 0; k < M_; k++) {
        const double wanted = !(floor_ > 0.0) ? 1.0 : fabs(values[k]) > floor_ ? fabs(values[k]) : floor_;
        values[k] = wanted - values[k];
    }
    for (int i = 0; i < M_; i++)
        for (int j = 0; j < M_; j++) {
            double s = 0.0;
            for (int k = 0; k < M_; k++) s += X[i * M_ + k] * values[k] * X[j * M_ + k];
            shift[i * M_ + j] = s;
        }
    return 1;
}

/* Second derivatives, contracted with lam, of the knots first .. last: added to Q, S and R on the way. */
typedef struct {
    long first, last;
    void (*contract)(const void *knots, long knot, const double *lam, double *xx, double *ux, double *uu);
    const void *knots;
} lq_curvature;

static void add_curvature(const lq_curvature *c, int parts, long i, const double *lam, double *restrict Q, double *restrict S,
                          double *restrict R)
{
    double xx[N_ * N_], ux[M_ * N_], uu[M_ * M_];
    for (; parts > 0; parts--, c++) {
        if (i < c->first || i >= c->last) continue;
        c->contract(c->knots, i - c->first, lam, xx, ux, uu);
        for (int a = 0; a < N_ * N_; a++) Q[a] += xx[a];
        for (int a = 0; a < M_ * N_; a++) S[a] += ux[a];
        for (int a = 0; a < M_ * M_; a++) R[a] += uu[a];
    }
}

/* How the sweep changes the problem on its way: see convex_lq of trajopt/solvers/shooting/ddp_model.py. */
typedef struct {
    int modify, parts;
    const lq_curvature *curvature;
} changes_t;

/* The backward sweep; returns the knot where Quu was not positive definite on the free controls, or -1. lower, upper: bounds on
   du, NULL for none. changes: NULL, or what Q, S and R, which are then not constant, are changed by. */
ALWAYS_INLINE long riccati(lq_data p, long N, double on_state, double on_control, const double *lower, const double *upper,
                           const changes_t *changes, double *restrict K, double *restrict k, double *restrict Vx, double *restrict Vxx)
{
    memcpy(Vx + N * N_, p.q + N * N_, sizeof(double) * N_);
    memcpy(Vxx + N * N_ * N_, p.Q + N * N_ * N_, sizeof(double) * N_ * N_);
    for (long i = N - 1; i >= 0; i--) {
        const double *A = p.A + i * N_ * N_, *B = p.B + i * N_ * M_, *V = Vxx + (i + 1) * N_ * N_, *d = p.d + i * N_;
        double ahead[N_], VA[N_ * N_], VB[N_ * M_], Quu[M_ * M_], G[M_ * M_], Qux[M_ * N_], Qu[M_], X[M_ * (N_ + 1)];
        double *Wx = Vx + i * N_, *W = Vxx + i * N_ * N_;
        memcpy(ahead, Vx + (i + 1) * N_, sizeof ahead);
        PRODUCT(ahead, d, V, 1, N_, N_, 1);
        if (changes)
            add_curvature(changes->curvature, changes->parts, i, ahead, (double *)p.Q + i * N_ * N_, (double *)p.S + i * M_ * N_,
                          (double *)p.R + i * M_ * M_);
        PRODUCT(VA, V, A, N_, N_, N_, 0);
        PRODUCT(VB, V, B, N_, N_, M_, 0);
        memcpy(Quu, p.R + i * M_ * M_, sizeof Quu);
        TRANSPOSED_PRODUCT(Quu, B, VB, M_, N_, M_, 1);
        memcpy(Qux, p.S + i * M_ * N_, sizeof Qux);
        TRANSPOSED_PRODUCT(Qux, B, VA, M_, N_, N_, 1);
        memcpy(Qu, p.r + i * M_, sizeof Qu);
        PRODUCT(Qu, ahead, B, 1, N_, M_, 1);
        memcpy(Wx, p.q + i * N_, sizeof(double) * N_);
        PRODUCT(Wx, ahead, A, 1, N_, N_, 1);
        memcpy(W, p.Q + i * N_ * N_, sizeof(double) * N_ * N_);
        ADD_UPPER_PRODUCT(W, A, VA, N_, N_);
        memcpy(G, Quu, sizeof G);
        for (int a = 0; a < M_; a++) {
            G[a * M_ + a] += on_control;
            X[a * (N_ + 1)] = Qu[a];
            memcpy(X + a * (N_ + 1) + 1, Qux + a * N_, sizeof(double) * N_);
        }
        if (on_state != 0.0) {
            double BA[M_ * N_], BB[M_ * M_];
            TRANSPOSED_PRODUCT(BB, B, B, M_, N_, M_, 0);
            TRANSPOSED_PRODUCT(BA, B, A, M_, N_, N_, 0);
            for (int a = 0; a < M_ * M_; a++) G[a] += on_state * BB[a];
            for (int a = 0; a < M_; a++)
                for (int b = 0; b < N_; b++) X[a * (N_ + 1) + 1 + b] += on_state * BA[a * N_ + b];
        }
        if (changes && changes->modify) {
            double shift[M_ * M_];
            for (int a = 0; a < M_ * M_; a++)
                if (!(fabs(G[a]) < HUGE_VAL)) return i;
            if (definite_shift(G, shift))
                for (int a = 0; a < M_ * M_; a++) {
                    ((double *)p.R)[i * M_ * M_ + a] += shift[a];
                    Quu[a] += shift[a];
                    G[a] += shift[a];
                }
        }
        double *Ki = K + i * M_ * N_, *ki = k + i * M_, T[M_ * N_], t[M_];
        if (lower) {
            int free_[M_];
            double factor[M_ * M_];
            const int count = box_qp(G, Qu, lower + i * M_, upper + i * M_, ki, free_, factor);
            if (count < 0) return i;
            for (int a = 0; a < count; a++) memcpy(T + a * N_, X + free_[a] * (N_ + 1) + 1, sizeof(double) * N_);
            minus_solve(factor, T, N_, count);
            memset(Ki, 0, sizeof T); /* rows of clamped controls */
            for (int a = 0; a < count; a++) memcpy(Ki + free_[a] * N_, T + a * N_, sizeof(double) * N_);
        } else {
            if (!cholesky(G, M_)) return i;
            minus_solve(G, X, N_ + 1, M_);
            for (int a = 0; a < M_; a++) {
                ki[a] = X[a * (N_ + 1)];
                memcpy(Ki + a * N_, X + a * (N_ + 1) + 1, sizeof(double) * N_);
            }
        }
        /* V = Qxx + K'(Quu K + Qux) + Qux'K,  Vx = Qx + K'(Quu k + Qu) + Qux'k */
        memcpy(T, Qux, sizeof T);
        PRODUCT(T, Quu, Ki, M_, M_, N_, 1);
        memcpy(t, Qu, sizeof t);
        PRODUCT(t, Quu, ki, M_, M_, 1, 1);
        PRODUCT(Wx, t, Ki, 1, M_, N_, 1);
        PRODUCT(Wx, ki, Qux, 1, M_, N_, 1);
        ADD_UPPER_PRODUCT(W, Ki, T, N_, M_);
        ADD_UPPER_PRODUCT(W, Qux, Ki, N_, M_);
        for (int a = 0; a < N_; a++)
            for (int b = 0; b < a; b++) W[a * N_ + b] = W[b * N_ + a];
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
        PRODUCT(g + i * M_, next, p.B + i * N_ * M_, 1, N_, M_, 1);
        PRODUCT(lambda + i * N_, next, p.A + i * N_ * N_, 1, N_, N_, 1);
    }
}

/* The linear roll-out of a policy from dx_0, and the change of the cost along it: change = (D1, D2), alpha D1 + alpha^2/2 D2. */
static void linear_rollout(lq_data p, long N, const double *K, const double *k, const double *lower, const double *upper,
                           double *restrict dx, double *restrict du, double *restrict change)
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
            if (lower && s < lower[i * M_ + a]) s = lower[i * M_ + a];
            if (lower && s > upper[i * M_ + a]) s = upper[i * M_ + a];
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

EXPORT long lq_riccati(LQ_ARGUMENTS, long N, double on_state, double on_control, const double *lower, const double *upper, double *K,
                       double *k, double *Vx, double *Vxx)
{
    return riccati(LQ_DATA, N, on_state, on_control, lower, upper, NULL, K, k, Vx, Vxx);
}

/* The same sweep, which changes Q, S and R on its way. */
EXPORT long lq_convex(LQ_ARGUMENTS, long N, double on_state, double on_control, const double *lower, const double *upper, int modify,
                      int parts, const lq_curvature *curvature, double *K, double *k, double *Vx, double *Vxx)
{
    const changes_t changes = {modify, parts, curvature};
    return riccati(LQ_DATA, N, on_state, on_control, lower, upper, &changes, K, k, Vx, Vxx);
}

EXPORT void lq_adjoint(LQ_ARGUMENTS, long N, double *lambda, double *g) { adjoint(LQ_DATA, N, lambda, g); }

EXPORT void lq_rollout(LQ_ARGUMENTS, long N, const double *K, const double *k, const double *lower, const double *upper, double *dx,
                       double *du, double *change)
{
    linear_rollout(LQ_DATA, N, K, k, lower, upper, dx, du, change);
}
