/* Reflection of symmetric matrices, one in each lane: replaces eigenvalues by their absolute values.  Householder reflections yield a
   tridiagonal matrix, then implicit symmetric QR steps with Wilkinson's shift its eigenvalues (G. H. Golub, C. F. Van Loan, Matrix
   Computations, sections 8.3.1 and 8.3.3).  Lanes are independent: the result in a lane does not depend on the other lanes.  A reflected
   eigenvalue is at least REFLECTED_FLOOR times the largest one.

   A symmetric matrix of W_ rows stores the entries on and above its diagonal. */
#pragma once
#include "interior_point.h"
#include "../../../../dynamics_backends/compiled/templates/lanes/rows.h"

#define W_ (N_ + M_)
#define MOST_STEPS 50 /* QR steps for one eigenvalue */
#define UPPER(H, i, j) (H)[(i) < (j) ? (i) * W_ + (j) : (j) * W_ + (i)]

/* Factorization H = Z'TZ.  T: tridiagonal, with diagonal d and off-diagonal e; rows of Z: eigenvectors at the end; beta: Householder factors. */
typedef struct {
    V *H, *Z, *d, *e, *beta;
} reflecting_t;

/* Mask of the matrices that are not positive definite, from the pivots of an elimination; L: workspace. */
static VI indefinite(const V *restrict H, V *restrict L, lq_size dims)
{
    VI found = (VI){};
    memcpy(L, H, sizeof(V) * W_ * W_);
    for (int k = 0; k < W_; k++) {
        const V pivot = L[k * (W_ + 1)], inverse = 1.0 / pivot;
        found |= ~(pivot > REFLECTED_FLOOR * v_fabs(H[k * (W_ + 1)]));
        for (int i = k + 1; i < W_; i++) {
            const V f = L[k * W_ + i] * inverse;
            for (int j = i; j < W_; j++) L[i * W_ + j] -= f * L[k * W_ + j];
        }
    }
    return found;
}

/* Reduce H to the tridiagonal T.  Rows of H hold the vectors v of the reflections 1 - beta v v'. */
static void tridiagonal(const reflecting_t *w, lq_size dims)
{
    V *restrict H = w->H, p[W_];
    for (int k = 0; k < W_; k++) {
        V *restrict v = H + k * W_, square = ZERO, along = ZERO;
        w->d[k] = v[k], w->beta[k] = ZERO;
        if (k + 1 < W_) w->e[k] = v[k + 1];
        if (k + 2 >= W_) continue;
        for (int i = k + 1; i < W_; i++) square += v[i] * v[i];
        const VI turns = square - v[k + 1] * v[k + 1] > 0.0;
        const V length = v_sqrt(square), first = v[k + 1], end = either(first > 0.0, -length, length);
        w->e[k] = either(turns, end, first);
        v[k + 1] = first - end;
        const V beta = w->beta[k] = either(turns, -1.0 / (end * v[k + 1]), ZERO); /* 2 / v'v */
        for (int i = k + 1; i < W_; i++) {
            V sum = ZERO;
            for (int j = k + 1; j < W_; j++) sum += UPPER(H, i, j) * v[j];
            p[i] = beta * sum, along += p[i] * v[i];
        }
        for (int i = k + 1; i < W_; i++) p[i] -= 0.5 * beta * along * v[i];
        for (int i = k + 1; i < W_; i++)
            for (int j = i; j < W_; j++) H[i * W_ + j] -= v[i] * p[j] + p[i] * v[j];
    }
}

/* Accumulate the reflections in Z, from the last one on, so that each product changes only trailing rows and columns. */
static void accumulated(const reflecting_t *w, lq_size dims)
{
    V *restrict Z = w->Z;
    memset(Z, 0, sizeof(V) * W_ * W_);
    for (int i = 0; i < W_; i++) Z[i * (W_ + 1)] = splat(1.0);
    for (int k = W_ - 3; k >= 0; k--) {
        const V *v = w->H + k * W_, beta = w->beta[k];
        for (int i = k + 1; i < W_; i++) {
            V sum = ZERO;
            for (int j = k + 1; j < W_; j++) sum += Z[i * W_ + j] * v[j];
            sum *= beta;
            for (int j = k + 1; j < W_; j++) Z[i * W_ + j] -= sum * v[j];
        }
    }
}

/* Find the next unreduced block of T in each lane: the last coupled rows low .. high; high = 0 if T is diagonal.  Sets negligible off-diagonal
   entries to zero. */
static void next_block(const reflecting_t *w, V *restrict low, V *restrict high, lq_size dims)
{
    V at = splat(1.0);
    *low = *high = ZERO;
    for (int j = 0; j + 1 < W_; j++, at += 1.0) {
        const VI little = v_fabs(w->e[j]) <= 1e-15 * (v_fabs(w->d[j]) + v_fabs(w->d[j + 1]));
        w->e[j] = either(little, ZERO, w->e[j]);
        *high = either(little, *high, at);
    }
    at = splat(1.0);
    for (int j = 0; j + 1 < W_; j++, at += 1.0) *low = either((w->e[j] == 0.0) & (at < *high), at, *low);
}

/* First rotation of a QR step on the rows low .. high: the vector (x, z), with Wilkinson's shift. */
static void shifted(const reflecting_t *w, V low, V high, V *restrict x, V *restrict z)
{
    V last, before, beside, first;
    for (int l = 0; l < LANES; l++) {
        const int i = (int)low[l], j = high[l] > 0.0 ? (int)high[l] : 1;
        last[l] = w->d[j][l], before[l] = w->d[j - 1][l], beside[l] = w->e[j - 1][l], first[l] = w->d[i][l], (*z)[l] = w->e[i][l];
    }
    const V half = 0.5 * (before - last), root_ = v_sqrt(half * half + beside * beside);
    *x = first - (last - beside * beside / (half + either(half < 0.0, -root_, root_)));
}

/* Perform one QR step on the rows low .. high of T. */
static void qr_step(const reflecting_t *w, V low, V high, int first, int end, lq_size dims)
{
    V *restrict d = w->d, *restrict e = w->e, x0, z0, x = ZERO, z = ZERO, at = splat(first);
    shifted(w, low, high, &x0, &z0);
    for (int k = first; k < end; k++, at += 1.0) {
        const VI begins = at == low, turns = (at >= low) & (at < high);
        x = either(begins, x0, x), z = either(begins, z0, z);
        const V r = v_sqrt(x * x + z * z), inverse = either(r > 0.0, 1.0 / r, ZERO);
        const V c = either(turns & (r > 0.0), x * inverse, splat(1.0)), s = either(turns, z * inverse, ZERO);
        const V a = d[k], b = e[k], next = d[k + 1];
        if (k > first) e[k - 1] = either(turns & ~begins, r, e[k - 1]);
        d[k] = c * c * a + 2.0 * c * s * b + s * s * next;
        d[k + 1] = s * s * a - 2.0 * c * s * b + c * c * next;
        e[k] = c * s * (next - a) + (c * c - s * s) * b;
        if (k + 1 < end) x = e[k], z = s * e[k + 1], e[k + 1] *= c;
        V *restrict upper = w->Z + k * W_, *restrict below = upper + W_;
        for (int j = 0; j < W_; j++) {
            const V t = upper[j], u = below[j];
            upper[j] = c * t + s * u;
            below[j] = c * u - s * t;
        }
    }
}

/* Return the last row over the blocks of all lanes, and set the first row; 0 if no lane has a block. */
static int bounds_of(V low, V high, int *first, lq_size dims)
{
    int end = 0;
    *first = W_;
    for (int l = 0; l < LANES; l++) {
        if (!(high[l] > 0.0)) continue;
        if (high[l] > end) end = (int)high[l];
        if (low[l] < *first) *first = (int)low[l];
    }
    return end;
}

/* Reflect H in the lanes where it is finite and indefinite; returns 1 if any lane changed. */
static int reflect(V *restrict H, const reflecting_t *w, lq_size dims)
{
    V unknown = ZERO, size_of_all = ZERO, most = ZERO, low, high;
    for (int i = 0; i < W_; i++)
        for (int j = i; j < W_; j++) {
            const V entry = H[i * W_ + j];
            unknown += entry * 0.0, size_of_all = v_fmax(v_fabs(entry), size_of_all);
        }
    const VI finite = unknown == 0.0, turned = finite & indefinite(H, w->Z, dims);
    if (!somewhere(turned)) return 0;
    const V scale = either(size_of_all > 1e-300, 1.0 / size_of_all, ZERO);
    for (int i = 0; i < W_; i++)
        for (int j = i; j < W_; j++) w->H[i * W_ + j] = either(finite, H[i * W_ + j] * scale, ZERO);
    tridiagonal(w, dims);
    accumulated(w, dims);
    for (int steps = 0, first, end; steps < MOST_STEPS * W_; steps++) {
        next_block(w, &low, &high, dims);
        if (!(end = bounds_of(low, high, &first, dims))) break;
        qr_step(w, low, high, first, end, dims);
    }
    for (int i = 0; i < W_; i++) most = v_fmax(v_fabs(w->d[i]), most);
    for (int i = 0; i < W_; i++) {
        const V own = w->d[i], least = REFLECTED_FLOOR * most, size = v_fmax(v_fabs(own), least), *z = w->Z + i * W_;
        const V more = either(turned, size_of_all * (size - own), ZERO);
        if (!somewhere(more != 0.0)) continue;
        for (int a = 0; a < W_; a++) {
            const V f = more * z[a];
            for (int b = a; b < W_; b++) H[a * W_ + b] += f * z[b];
        }
    }
    return 1;
}
