/* LQ problem with equality constraints at its knots: see trajopt/lq/equality_lq.py.
   The matrices are factored once; each right-hand side takes one sweep of vectors. */
#pragma once
#include "equality_knot.h"

static turned_t turned_at(const elq_factors *f, long k, lq_size dims) { return turned_in(f->turned + k * turned_size(f->most, dims), f->most, dims); }

/* seen <- P (1 + s P)^-1, the value function of the next knot through soft dynamics, and F = (1 + s P)^-1; returns 0 if that is not definite. */
static int softened(const double *restrict P, double s, double *restrict F, double *restrict seen, lq_size dims)
{
    double L[N_ * N_];
    for (int i = 0; i < N_ * N_; i++) {
        const int one = i % (N_ + 1) == 0;
        L[i] = s * P[i] + one, F[i] = -one;
    }
    if (!cholesky(L, N_)) return 0;
    minus_solve(L, F, N_, N_);
    PRODUCT(seen, P, F, N_, N_, N_, 0);
    for (int i = 0; i < N_; i++)
        for (int j = 0; j < i; j++) seen[i * N_ + j] = seen[j * N_ + i] = 0.5 * (seen[i * N_ + j] + seen[j * N_ + i]);
    return 1;
}

/* Eliminate the equations at knot k. */
static void turn_at(const elq_matrices *p, const elq_factors *f, long k)
{
    const lq_size dims = p->size;
    elq_counts *q = f->counts + k;
    const int at_end = k == p->N;
    const long own = p->row[k + 1] - p->row[k], carried = at_end ? 0 : q[1].passed;
    q->rows = carried + own, q->pivots = q->passed = 0;
    if (!q->rows) return;
    double W[q->rows * (M_ + N_)];
    const double *A = p->A + k * N_ * N_, *B = p->B + k * N_ * M_, *C = p->C + p->row[k] * N_, *D = p->D + p->row[k] * M_;
    joined(W, carried ? turned_at(f, k + 1, dims).H : NULL, carried, A, B, C, at_end ? NULL : D, own, dims);
    turn(W, q->rows, at_end, turned_at(f, k, dims), &q->pivots, &q->passed, dims);
}

/* Backward sweep of the matrices from knot `first` to 0, with the later knots known.  Returns the knot where Quu is not positive definite on
   the free controls, or -1. */
static long factor_from(const elq_matrices *p, const elq_factors *f, long first)
{
    const lq_size dims = p->size;
    for (long k = first; k >= 0; k--) {
        const elq_knot q = knot_at(f, k, dims);
        const double *A = p->A + k * N_ * N_, *B = p->B + k * N_ * M_, *Q = p->Q + k * N_ * N_, *P = q.P + N_ * N_;
        double seen[N_ * N_];
        turn_at(p, f, k);
        if (k == p->N) {
            value_at_end(Q, p->shift, q.P, dims);
            continue;
        }
        if (p->soft > 0.0) {
            if (!softened(P, p->soft, f->F + k * N_ * N_, seen, dims)) return k;
            P = seen;
        }
        quadratic_at(A, B, Q, p->S + k * M_ * N_, p->R + k * M_ * M_, p->shift, P, q.uu, q.ux, q.P, dims);
        const turned_t turned = turned_at(f, k, dims);
        const int definite = f->counts[k].pivots ? bound_gains(q.uu, q.ux, turned.E, turned.X, q.G, q.K, q.P, dims)
                                       : free_gains(q.uu, q.ux, q.G, q.K, q.P, dims);
        if (!definite) return k;
        mirror(q.P, dims);
    }
    return -1;
}

/* Backward sweep of the matrices over all knots. */
EXPORT long elq_factor(const elq_matrices *p, const elq_factors *f) { return factor_from(p, f, p->N); }

/* y (a) += X x for X (a, b) */
ALWAYS_INLINE void add_onto(double *restrict y, const double *X, const double *x, const int a, const int b)
{
    for (int i = 0; i < a; i++) y[i] += dot(X + i * b, x, b);
}

/* Right-hand sides of the eliminated rows at knot k, T [H_next d + h_next; e] (m + rows - pivots). */
static void turned_sides(const elq_matrices *p, const elq_vectors *v, const elq_factors *f, long k, const double *h_next, double *restrict t)
{
    const lq_size dims = p->size;
    const elq_counts *q = f->counts + k;
    const long rows = q->rows, carried = k < p->N ? q[1].passed : 0;
    double side[rows];
    for (long i = 0; i < carried; i++) side[i] = h_next[i] + dot(turned_at(f, k + 1, dims).H + i * N_, v->d + k * N_, N_);
    for (long i = carried; i < rows; i++) side[i] = v->e[p->row[k] + i - carried];
    const double *T = turned_at(f, k, dims).T;
    for (long i = 0; i < M_ + rows - q->pivots; i++) {
        double s = 0.0;
        for (long j = 0; j < rows; j++) s += T[i * rows + j] * side[j];
        t[i] = s;
    }
}

static void update_max(double *most, double by) { *most = fabs(by) > *most ? fabs(by) : *most; }

/* Results of the backward sweep of vectors at a knot, in the workspace of elq_step: feed-forward, gradient Qu, and right-hand sides of the
   eliminated rows, those of controls before those passed to the previous knot. */
typedef struct {
    double *ff, *Qu, *sides;
} backward_t;

static backward_t backward_at(const elq_factors *f, const elq_step *to, long k, lq_size dims)
{
    double *at = to->workspace + k * (3 * M_ + f->most);
    return (backward_t){at, at + M_, at + 2 * M_};
}

/* One backward and one forward sweep with the factors.  Reads dx_0 from to->dx.  Returns the largest right-hand side of the dependent
   equations, which no variable can change. */
EXPORT double elq_solve(const elq_matrices *p, const elq_vectors *v, const elq_factors *f, const elq_step *to)
{
    const lq_size dims = p->size;
    const long N = p->N;
    double contradiction = 0.0, *x = to->dx;
    double *Vx = to->lambda; /* lambda_k holds V'x of knot k + 1 until the forward sweep */
    double next[N_];
    memcpy(next, v->q + N * N_, sizeof next);
    for (long k = N; k >= 0; k--) {
        const elq_counts *c = f->counts + k;
        const elq_knot q = knot_at(f, k, dims);
        const backward_t a = backward_at(f, to, k, dims);
        if (c->rows) {
            turned_sides(p, v, f, k, k < N ? backward_at(f, to, k + 1, dims).sides + M_ : NULL, a.sides);
            for (long i = c->passed; i < c->rows - c->pivots; i++) update_max(&contradiction, a.sides[M_ + i]);
        }
        if (k == N) continue;
        memcpy(Vx + k * N_, next, sizeof next);
        double ahead[N_];
        memcpy(ahead, next, sizeof ahead);
        PRODUCT(ahead, v->d + k * N_, q.P + N_ * N_, 1, N_, N_, 1);
        if (p->soft > 0.0) {
            double through[N_];
            PRODUCT(through, ahead, f->F + k * N_ * N_, 1, N_, N_, 0);
            memcpy(ahead, through, sizeof ahead);
        }
        SUM_PRODUCT(a.Qu, v->r + k * M_, ahead, p->B + k * N_ * M_, 1, N_, M_);
        SUM_PRODUCT(next, v->q + k * N_, ahead, p->A + k * N_ * N_, 1, N_, N_);
        if (!c->pivots) {
            memcpy(a.ff, a.Qu, sizeof(double) * M_);
            minus_solve(q.G, a.ff, 1, M_);
            PRODUCT(next, a.Qu, q.K, 1, M_, N_, 1);
            continue;
        }
        const double *E = turned_at(f, k, dims).E;
        double g[M_], w[M_], unseen[M_];
        for (int i = 0; i < M_; i++) a.ff[i] = -a.sides[i];
        SUM_PRODUCT(g, a.Qu, a.ff, q.uu, 1, M_, M_);
        PRODUCT(unseen, g, E, 1, M_, M_, 0);
        for (int i = 0; i < M_; i++) w[i] = g[i] - unseen[i];
        minus_solve(q.G, w, 1, M_);
        for (int i = 0; i < M_; i++) a.ff[i] += w[i] - dot(E + i * M_, w, M_);
        SUM_PRODUCT(g, a.Qu, a.ff, q.uu, 1, M_, M_);
        PRODUCT(next, g, q.K, 1, M_, N_, 1);
        PRODUCT(next, a.ff, q.ux, 1, M_, N_, 1);
    }
    double nu[f->most + 1], eta[f->most + 1];
    for (long i = 0; i < f->counts[0].passed; i++) /* remaining equations on the initial state, which is fixed */
        update_max(&contradiction, backward_at(f, to, 0, dims).sides[M_ + i] + dot(turned_at(f, 0, dims).H + i * N_, x, N_));
    memset(nu, 0, sizeof nu);
    for (long k = 0; k <= N; k++, x += N_) {
        const elq_counts *c = f->counts + k;
        const elq_knot q = knot_at(f, k, dims);
        const backward_t a = backward_at(f, to, k, dims);
        double *u = to->du + k * M_, *lambda = to->lambda + k * N_, g[M_];
        memcpy(eta, nu, sizeof(double) * c->passed); /* multipliers of the passed equations, from the previous knot */
        if (k < N) {
            double *next_x = x + N_;
            memcpy(u, a.ff, sizeof(double) * M_);
            add_onto(u, q.K, x, M_, N_);
            memcpy(next_x, v->d + k * N_, sizeof(double) * N_);
            add_onto(next_x, p->A + k * N_ * N_, x, N_, N_);
            add_onto(next_x, p->B + k * N_ * M_, u, N_, M_);
            if (p->soft > 0.0) {
                double moved[N_];
                for (int i = 0; i < N_; i++) moved[i] = next_x[i] - p->soft * lambda[i];
                PRODUCT(next_x, moved, f->F + k * N_ * N_, 1, N_, N_, 0);
            }
            PRODUCT(lambda, next_x, q.P + N_ * N_, 1, N_, N_, 1);
        }
        if (!c->rows) continue;
        const double *T = turned_at(f, k, dims).T;
        const long rows = c->rows, carried = k < N ? c[1].passed : 0;
        memset(nu, 0, sizeof(double) * rows);
        if (c->pivots) { /* multipliers of rows with a pivot on a control are -(Qu + Qux dx + Quu du) */
            memcpy(g, a.Qu, sizeof g);
            add_onto(g, q.ux, x, M_, N_);
            add_onto(g, q.uu, u, M_, M_);
            for (int i = 0; i < M_; i++)
                for (long j = 0; j < rows; j++) nu[j] -= T[i * rows + j] * g[i];
        }
        for (long i = 0; i < c->passed; i++)
            for (long j = 0; j < rows; j++) nu[j] += T[(M_ + i) * rows + j] * eta[i];
        memcpy(to->y + p->row[k], nu + carried, sizeof(double) * (rows - carried));
        for (long i = 0; i < carried; i++)
            for (int j = 0; j < N_; j++) lambda[j] += turned_at(f, k + 1, dims).H[i * N_ + j] * nu[i];
    }
    return contradiction;
}
