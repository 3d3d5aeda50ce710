/* Search directions of several problems, one in each lane; the backward sweep expands the problems a few knots at a time.  The blocks of a knot stay
   in cache, except A, B, the gaps and the gains, which a forward sweep reads.

   The backward sweep computes gains and value function (riccati.h), costates and gradient, lambda = q + A' lambda', g = r + B' lambda', and
   costates and gradient under the feedback K (stationarity of tests/cases/numpy_lq.py), or under other gains for problems that provide
   some.  The optional forward sweep computes linear steps dx' = A dx + B du + d, du = k + K dx from dx = 0. */
#pragma once
#ifndef IN_LANES
#define IN_LANES
#endif
#include "riccati.h"
#include "../../../dynamics_backends/compiled/templates/lanes/rows.h"

typedef struct {
    num *A, *B, *d, *K, *k;
} stored_t;

/* Costates of two knots and the gradient under a feedback, sizes of its terms, and its largest entries: see stationarity of riccati.h. */
typedef struct {
    num *lambda[2], *g, *size, *most;
} costates_t;

/* The workspace; Vx, Vxx: those of the knot after the last expansion; stored: of the first knot.  unseen: for rows that nobody reads. */
typedef struct {
    num *g, *Vx, *Vxx, *lambda[2], *K, *stored;
    costates_t held, under;
    double *unseen;
} directions_t;

static void take_costates(costates_t *h, num **end, lq_size dims)
{
    for (int i = 0; i < 2; i++) h->lambda[i] = taken(end, N_);
    h->g = taken(end, M_), h->size = taken(end, M_), h->most = taken(end, M_);
}

static long stored_size(lq_size dims) { return N_ * (N_ + M_ + 1) + M_ * (N_ + 1); }

ALWAYS_INLINE stored_t stored_at(num *stored, long i, lq_size dims)
{
    num *A = stored + i * stored_size(dims), *B = A + N_ * N_, *d = B + N_ * M_, *K = d + N_;
    return (stored_t){A, B, d, K, K + M_ * N_};
}

/* Knots with stored blocks: all of N, or without a forward sweep those of an expansion. */
static long stored_knots(long N, int forward) { return forward ? N : EXPANDED; }

/* Find the places of a workspace for `knots` stored knots that begins at `at`; its length, in vectors. */
static long take_directions(directions_t *w, num *at, long knots, lq_size dims)
{
    const long n = N_, m = M_;
    num *end = at;
    w->g = taken(&end, m), w->Vx = taken(&end, n), w->Vxx = taken(&end, n * n);
    for (int i = 0; i < 2; i++) w->lambda[i] = taken(&end, n);
    w->K = taken(&end, m * n);
    take_costates(&w->held, &end, dims), take_costates(&w->under, &end, dims);
    w->unseen = (double *)taken(&end, n + m);
    w->stored = taken(&end, knots * stored_size(dims));
    return end - at;
}

/* Workspace in doubles for N knots; forward: 1 with linear steps. */
EXPORT long lq_directions_workspace(int n, int m, long N, long forward)
{
    directions_t w;
    return LANES * take_directions(&w, NULL, stored_knots(N, forward), (lq_size){n, m});
}

/* Row i of `width` numbers of an array of each lane's problem <- x */
#define SCATTER(x, array, width)                                                              \
    {                                                                                         \
        double *rows[LANES];                                                                  \
        for (int l = 0; l < LANES; l++) rows[l] = lane[l].array + i * (width);                \
        unpack_rows(x, width, rows);                                                          \
    }
/* The same for the problems with other gains `under`. */
#define SCATTER_ASKED(x, array, width)                                                                        \
    {                                                                                                         \
        double *rows[LANES];                                                                                  \
        for (int l = 0; l < LANES; l++) rows[l] = lane[l].under ? lane[l].array + i * (width) : w->unseen;    \
        unpack_rows(x, width, rows);                                                                          \
    }

static void start_costates(const costates_t *h, const num *q, int own, lq_size dims)
{
    memcpy(h->lambda[own], q, sizeof(num) * N_);
    for (int a = 0; a < M_; a++) h->size[a] = h->most[a] = number(0.0);
}

/* Gradient at a knot from the costates of the next knot, and costates without the contribution of the feedback. */
ALWAYS_INLINE void step_costates(const costates_t *h, const num *A, const num *B, const num *q, const num *r, int own, lq_size dims)
{
    const num *behind = h->lambda[!own];
    num terms[M_], far[N_];
    for (int b = 0; b < N_; b++) far[b] = size_of(behind[b]);
    for (int a = 0; a < M_; a++) terms[a] = size_of(r[a]);
    for (int b = 0; b < N_; b++)
        for (int a = 0; a < M_; a++) terms[a] += far[b] * size_of(B[b * M_ + a]);
    for (int a = 0; a < M_; a++) h->size[a] = either(terms[a] <= h->size[a], h->size[a], terms[a]);
    SUM_PRODUCT(h->g, r, behind, B, 1, N_, M_);
    SUM_PRODUCT(h->lambda[own], q, behind, A, 1, N_, N_);
    for (int a = 0; a < M_; a++) {
        const num entry = size_of(h->g[a]);
        h->most[a] = either(entry <= h->most[a], h->most[a], entry);
    }
}

/* Largest entry of the gradient relative to the size of its terms. */
static num relative(const costates_t *h, lq_size dims)
{
    num largest = number(1.0), kkt = number(0.0); /* least_size of trajopt/lq/lq.py */
    for (int a = 0; a < M_; a++) largest = either(h->size[a] > largest, h->size[a], largest);
    for (int a = 0; a < M_; a++) {
        const num least = HALF_OF_DIGITS * largest, size = either(h->size[a] < least, least, h->size[a]);
        const num share = h->most[a] / size;
        kkt = either(share > kkt, share, kkt);
    }
    return kkt;
}

static void forward_steps(const lq_direction *lane, long N, num *stored, lq_size dims)
{
    num x[2][N_], u[M_];
    for (int a = 0; a < N_; a++) x[0][a] = number(0.0);
    for (long i = 0; i <= N; i++) {
        const num *own = x[i & 1];
        num *next = x[!(i & 1)];
        SCATTER(own, dx, N_)
        if (i == N) break;
        const stored_t p = stored_at(stored, i, dims);
        SUM_PRODUCT(u, p.k, p.K, own, M_, N_, 1);
        SCATTER(u, du, M_)
        SUM_PRODUCT(next, p.d, p.A, own, N_, N_, 1);
        PRODUCT(next, p.B, u, N_, M_, 1, 1);
    }
}

/* Directions of a problem of N steps in each lane, without bounds. */
EXPORT void lq_directions(lq_direction *lane, lq_size dims, long N, lq_expand *expand, void *of, num *workspace)
{
    directions_t arrays, *w = &arrays;
    const int forward = lane->dx != NULL;
    const double *under = NULL;
    damping_t by;
    num change = number(0.0), slope = number(0.0), defect = number(0.0), whole = number(0.0);
    truth closed, found = ALL;
    lq_vectors expanded[EXPANDED];
    take_directions(w, workspace, stored_knots(N, forward), dims);
    for (int l = 0; l < LANES; l++) {
        by.on_state[l] = lane[l].on_state, by.on_control[l] = lane[l].on_control;
        closed[l] = lane[l].closed ? -1 : 0;
        if (lane[l].under) under = lane[l].under;
    }
    expand(of, N + 1, expanded);
    gains_t ahead = {NULL, NULL, expanded[N % EXPANDED].q, expanded[N % EXPANDED].Q};
    memcpy(w->lambda[N & 1], ahead.Vx, sizeof(num) * N_);
    start_costates(&w->held, ahead.Vx, N & 1, dims);
    start_costates(&w->under, ahead.Vx, N & 1, dims);
    for (long i = N, first = N; i >= 0; i--) {
        const int own = i & 1, next = !own;
        if (i == N) {
            SCATTER(expanded[i % EXPANDED].cost, costs, 1)
            SCATTER(w->lambda[own], lambda, N_)
            if (under) SCATTER_ASKED(w->lambda[own], held_lambda, N_)
            continue;
        }
        if (i < first) {
            memcpy(w->Vx, ahead.Vx, sizeof(num) * N_), memcpy(w->Vxx, ahead.Vxx, sizeof(num) * N_ * N_);
            ahead.Vx = w->Vx, ahead.Vxx = w->Vxx;
            for (long k = i; k >= 0 && k > i - EXPANDED; k--) {
                const stored_t p = stored_at(w->stored, forward ? k : k % EXPANDED, dims);
                expanded[k % EXPANDED] = (lq_vectors){p.A, p.B, p.d};
            }
            first = expand(of, i + 1, expanded);
        }
        const stored_t at = stored_at(w->stored, forward ? i : i % EXPANDED, dims), *p = &at;
        const lq_vectors knot = expanded[i % EXPANDED];
        const num *q = knot.q, *r = knot.r;
        SCATTER(knot.cost, costs, 1)
        SCATTER(p->d, d, N_)
        for (int a = 0; a < N_; a++) {
            defect = either(size_of(p->d[a]) <= defect, defect, size_of(p->d[a]));
            p->d[a] = either(closed, number(0.0), p->d[a]);
            whole += p->d[a] * 0.0;
        }
        SUM_PRODUCT(w->g, r, w->lambda[next], p->B, 1, N_, M_);
        SUM_PRODUCT(w->lambda[own], q, w->lambda[next], p->A, 1, N_, N_);
        SCATTER(w->g, g, M_)
        SCATTER(w->lambda[own], lambda, N_)
        step_costates(&w->held, p->A, p->B, q, r, own, dims);
        if (under) {
            const double *rows[LANES];
            for (int l = 0; l < LANES; l++) rows[l] = (lane[l].under ? lane[l].under : under) + i * M_ * N_;
            pack_rows(rows, M_ * N_, w->K);
            step_costates(&w->under, p->A, p->B, q, r, own, dims);
            PRODUCT(w->under.lambda[own], w->under.g, w->K, 1, M_, N_, 1);
            SCATTER_ASKED(w->under.g, held_g, M_)
            SCATTER_ASKED(w->under.lambda[own], held_lambda, N_)
        }
        const blocks_t blocks = {p->A, p->B, p->d, knot.Q, q, knot.S, knot.R, r, NULL, NULL};
        const gains_t to = {p->K, p->k, knot.q, knot.Q};
        found &= swept(blocks, by, NULL, i, ahead, to, &change, dims);
        ahead = to;
        SCATTER(p->K, K, M_ * N_)
        SCATTER(p->k, k, M_)
        PRODUCT(w->held.lambda[own], w->held.g, p->K, 1, M_, N_, 1);
        for (int a = 0; a < M_; a++) slope += w->held.g[a] * p->k[a];
        for (int a = 0; a < N_; a++) slope += w->held.lambda[next][a] * p->d[a];
        for (int a = 0; a < M_; a++) whole += w->g[a] * 0.0;
    }
    for (int a = 0; a < N_; a++) whole += w->lambda[0][a] * 0.0;
    const num kkt = relative(&w->held, dims), kkt_under = under ? relative(&w->under, dims) : kkt;
    if (forward) forward_steps(lane, N, w->stored, dims);
    for (int l = 0; l < LANES; l++) {
        lane[l].found = HOLDS(found, l) && OF(whole, l) == 0.0;
        lane[l].change = OF(change, l), lane[l].slope = OF(slope, l), lane[l].defect = OF(defect, l);
        lane[l].kkt = OF(kkt, l), lane[l].kkt_under = OF(kkt_under, l);
    }
}
