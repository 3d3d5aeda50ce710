/* Newton steps of several problems, one in each lane, for several curvature fractions; the backward sweep expands the problems knot by knot.
   Include directions.h before this file.

   The Hessians are H = P + share (E - P), with E the Hessian of the Lagrangian, for several curvature fractions ("shares"), each with its own
   backward sweep.  The sweep also computes costates under feedback, because E at a knot needs the costates of the next knot.  The forward
   sweep is dx' = A dx + B du + d, du = k + K dx from dx = 0.

   A barrier may represent bounds on controls.  Its parameter mu enters only r of the step, as mu times `push`.  The caller chooses mu after the
   sweep, from the errors that come with the expansion: gains do not depend on mu, and the step is affine in mu.  So the sweep computes the
   step at mu = 0 and its derivative in mu. */

typedef struct {
    num *A, *B, *d, *q, *r;
} linear_dynamics_t;

/* Backward sweep of a curvature fraction; Vx_by, k_by: derivatives of Vx and k in mu. */
typedef struct {
    num *Vx[2], *Vxx[2], *S, *R, *K, *k, *Vx_by[2], *k_by;
} fraction_t;

/* The workspace; motion: of the first knot. */
typedef struct {
    fraction_t by[MAX_FRACTIONS];
    num *cost, *K, *k, *q, *bend, *r, *push, *motion;
    costates_t under;
} attempts_t;

static long motion_size(lq_size dims) { return N_ * (N_ + M_ + 2) + M_; }

ALWAYS_INLINE linear_dynamics_t motion_at(num *motion, long i, lq_size dims)
{
    num *A = motion + i * motion_size(dims), *B = A + N_ * N_, *d = B + N_ * M_, *q = d + N_;
    return (linear_dynamics_t){A, B, d, q, q + N_};
}

/* Find the places of a workspace for N knots that begins at `at`; its length, in vectors. */
static long take_attempts(attempts_t *w, num *at, long N, lq_size dims)
{
    const long n = N_, m = M_;
    num *end = at;
    for (int s = 0; s < MAX_FRACTIONS; s++) {
        fraction_t *o = w->by + s;
        for (int i = 0; i < 2; i++) o->Vx[i] = taken(&end, n), o->Vxx[i] = taken(&end, n * n), o->Vx_by[i] = taken(&end, n);
        o->S = taken(&end, m * n), o->R = taken(&end, m * m), o->K = taken(&end, m * n), o->k = taken(&end, m), o->k_by = taken(&end, m);
    }
    w->cost = taken(&end, 1), w->K = taken(&end, m * n), w->k = taken(&end, m), w->q = taken(&end, n);
    w->bend = taken(&end, m), w->r = taken(&end, m), w->push = taken(&end, m);
    take_costates(&w->under, &end, dims);
    w->motion = taken(&end, N * motion_size(dims));
    return end - at;
}

/* Workspace in doubles for N knots. */
EXPORT long lq_attempts_room(int n, int m, long N)
{
    attempts_t w;
    return LANES * take_attempts(&w, NULL, N, (lq_size){n, m});
}

/* to <- a row of `width` numbers for each lane l; prefetches the rows `ahead` rows further, which are read next. */
#define ROWS_OF(row, width, ahead, to)                                                                       \
    {                                                                                                        \
        const double *rows[LANES];                                                                           \
        for (int l = 0; l < LANES; l++) {                                                                    \
            rows[l] = (row);                                                                                 \
            for (int j = 0; j < (width); j += 8) __builtin_prefetch(rows[l] + (ahead) * (width) + j);        \
        }                                                                                                    \
        pack_rows(rows, width, to);                                                                          \
    }

ALWAYS_INLINE num l1_of(const num *x, int count)
{
    num sum = number(0.0);
    for (int a = 0; a < count; a++) sum += size_of(x[a]);
    return sum;
}

ALWAYS_INLINE num most_of(num most, const num *x, int count)
{
    for (int a = 0; a < count; a++) most = CHOSEN(size_of(x[a]) <= most, most, size_of(x[a]));
    return most;
}

/* to += x'y */
ALWAYS_INLINE void add_dot(num *to, const num *x, const num *y, int count)
{
    for (int a = 0; a < count; a++) *to += x[a] * y[a];
}

/* Steps by the gains of each lane's fraction, and the slope of the cost along them; with a barrier, also their derivatives in mu. */
static void attempted_steps(const lq_attempt *lane, long N, int barrier, num *restrict slope, const attempts_t *w, lq_size dims)
{
    num x[2][N_], u[M_], x_by[2][N_], u_by[M_];
    int by[LANES];
    for (int l = 0; l < LANES; l++) by[l] = lane[l].share < 0 ? MAX_FRACTIONS - 1 : lane[l].share;
    for (int a = 0; a < N_; a++) x[0][a] = x_by[0][a] = number(0.0);
    for (int s = 0; s < 3; s++) slope[s] = number(0.0);
    for (long i = 0; i <= N; i++) {
        const int own = i & 1, next = !own;
        const linear_dynamics_t at = motion_at(w->motion, i < N ? i : 0, dims), *p = &at;
        const num *q = i < N ? p->q : w->q;
        SCATTER(x[own], dx, N_)
        add_dot(slope, q, x[own], N_);
        if (barrier) {
            SCATTER(x_by[own], dx_by, N_)
            add_dot(slope + 1, q, x_by[own], N_);
        }
        if (i == N) break;
        ROWS_OF(lane[l].K[by[l]] + i * M_ * N_, M_ * N_, 1, w->K)
        ROWS_OF(lane[l].k[by[l]] + i * M_, M_, 1, w->k)
        SUM_PRODUCT(u, w->k, w->K, x[own], M_, N_, 1);
        SCATTER(u, du, M_)
        add_dot(slope, p->r, u, M_);
        SUM_PRODUCT(x[next], p->d, p->A, x[own], N_, N_, 1);
        PRODUCT(x[next], p->B, u, N_, M_, 1, 1);
        if (!barrier) continue;
        ROWS_OF(lane[l].k_by[by[l]] + i * M_, M_, 1, w->k)
        ROWS_OF(lane[l].barrier.push + i * M_, M_, 1, w->push)
        SUM_PRODUCT(u_by, w->k, w->K, x_by[own], M_, N_, 1);
        SCATTER(u_by, du_by, M_)
        add_dot(slope + 1, p->r, u_by, M_), add_dot(slope + 1, w->push, u, M_), add_dot(slope + 2, w->push, u_by, M_);
        PRODUCT(x_by[next], p->A, x_by[own], N_, N_, 1, 0);
        PRODUCT(x_by[next], p->B, u_by, N_, M_, 1, 1);
    }
}

/* to (count) = plain + share (exact - plain) */
ALWAYS_INLINE void mixed(double share, const num *exact, const num *plain, num *restrict to, int count)
{
    for (int i = 0; i < count; i++) to[i] = plain[i] + share * (exact[i] - plain[i]);
}

/* Hessians of fractions between 0 and 1, interpolated from those of 0 and 1, and damping of all Hessians; inner: 1 before the last knot. */
static void hessians_of(lq_asked of, const fraction_t *by, int own, int inner, num delta, lq_size dims)
{
    const int last = MAX_FRACTIONS - 1;
    for (int s = 1; s < last; s++) {
        if (!(of.asked & 1 << s)) continue;
        mixed(of.shares[s], by[0].Vxx[own], by[last].Vxx[own], by[s].Vxx[own], N_ * N_);
        if (!inner) continue;
        mixed(of.shares[s], by[0].S, by[last].S, by[s].S, M_ * N_);
        mixed(of.shares[s], by[0].R, by[last].R, by[s].R, M_ * M_);
    }
    if (!ANY(delta != 0.0)) return;
    for (int s = 0; s < MAX_FRACTIONS; s++) {
        for (int a = 0; a < N_; a++) by[s].Vxx[own][a * (N_ + 1)] += delta;
        for (int a = 0; inner && a < M_; a++) by[s].R[a * (M_ + 1)] += delta;
    }
}

/* Add the barrier of each lane at knot i to the blocks R of P and of E, unless NULL; w->r receives r with the barrier's gradient. */
static void add_barrier(const lq_attempt *lane, long i, num *P, num *E, const num *r, const attempts_t *w, lq_size dims)
{
    ROWS_OF(lane[l].barrier.bend + i * M_, M_, -1, w->bend)
    ROWS_OF(lane[l].barrier.pull + i * M_, M_, -1, w->r)
    ROWS_OF(lane[l].barrier.push + i * M_, M_, -1, w->push)
    for (int a = 0; a < M_; a++) {
        if (P) P[a * (M_ + 1)] += w->bend[a];
        if (E) E[a * (M_ + 1)] += w->bend[a];
        w->r[a] += r[a];
    }
}

/* Derivatives of k and Vx in mu at a knot, by the factor of Quu: g = push + B'Vx', k = - Quu^-1 g, Vx = A'Vx' + K'g. */
ALWAYS_INLINE void grown(const linear_dynamics_t *p, const num *factor, const num *push, int own, const fraction_t *o, lq_size dims)
{
    const num *next = o->Vx_by[!own];
    num g[M_];
    SUM_PRODUCT(g, push, next, p->B, 1, N_, M_);
    PRODUCT(o->Vx_by[own], next, p->A, 1, N_, N_, 0);
    PRODUCT(o->Vx_by[own], g, o->K, 1, M_, N_, 1);
    memcpy(o->k_by, g, sizeof(num) * M_);
    minus_solve(factor, o->k_by, 1, M_);
}

/* Newton steps for a problem of N steps in each lane.  expand: computes the blocks of knot i, and q, Q and the cost of knot N, from the costates
   of the next knot, with Hessian P in `plain` and E in `exact`; either is NULL if it is not needed. */
EXPORT void lq_attempts(lq_attempt *lane, lq_size dims, long N, const lq_asked *of,
                        void (*expand)(void *at, long i, const void *lambda, const lq_vectors *plain, const lq_vectors *exact), void *at,
                        num *room)
{
    attempts_t workspace, *w = &workspace;
    const damping_t none = {number(0.0), number(0.0)};
    const int last = MAX_FRACTIONS - 1, bends = (of->asked & ((1 << last) - 1)) != 0, both = bends && of->asked >> 1;
    const int barrier = lane->barrier.push != NULL;
    const fraction_t *P = w->by + last, *E = w->by;
    const costates_t *under = &w->under;
    num delta, defect = number(0.0), theta = number(0.0), gradient = number(0.0), whole = number(0.0), slope[3];
    num H[M_ * M_], X[M_ * COLUMNS];
    const damped_t factored = {H, X};
    truth convex[MAX_FRACTIONS];
    take_attempts(w, room, N, dims);
    for (int l = 0; l < LANES; l++) delta[l] = lane[l].delta;
    for (int s = 0; s < MAX_FRACTIONS; s++) convex[s] = of->asked & 1 << s ? ALL : NOT(ALL);
    const int end = N & 1;
    const lq_vectors plain_end = {NULL, NULL, NULL, P->Vxx[end], w->q, NULL, NULL, NULL, w->cost};
    const lq_vectors exact_end = {NULL, NULL, NULL, E->Vxx[end], w->q, NULL, NULL, NULL, w->cost};
    expand(at, N, NULL, both || !bends ? &plain_end : NULL, bends ? &exact_end : NULL);
    hessians_of(*of, w->by, end, 0, delta, dims);
    for (int s = 0; s < MAX_FRACTIONS; s++) memcpy(w->by[s].Vx[end], w->q, sizeof(num) * N_), memset(w->by[s].Vx_by[end], 0, sizeof(num) * N_);
    start_costates(under, w->q, end, dims);
    num cost = *w->cost;
    for (long i = N - 1; i >= 0; i--) {
        const linear_dynamics_t moved = motion_at(w->motion, i, dims), *p = &moved;
        const int own = i & 1, next = !own;
        const lq_vectors plain = {p->A, p->B, p->d, P->Vxx[own], p->q, P->S, P->R, p->r, w->cost};
        const lq_vectors exact = {p->A, p->B, p->d, E->Vxx[own], p->q, E->S, E->R, p->r, w->cost};
        expand(at, i, under->lambda[next], both || !bends ? &plain : NULL, bends ? &exact : NULL);
        cost += *w->cost, defect = most_of(defect, p->d, N_), theta += l1_of(p->d, N_);
        if (barrier) add_barrier(lane, i, both || !bends ? P->R : NULL, bends ? E->R : NULL, p->r, w, dims);
        step_costates(under, p->A, p->B, p->q, barrier ? w->r : p->r, own, dims);
        hessians_of(*of, w->by, own, 1, delta, dims);
        for (int s = 0; s < MAX_FRACTIONS; s++) {
            const fraction_t *o = w->by + s;
            if (!ANY(convex[s])) continue;
            memcpy(o->Vx[own], p->q, sizeof(num) * N_);
            const blocks_t blocks = {p->A, p->B, p->d, o->Vxx[own], o->Vx[own], o->S, o->R, p->r, NULL, NULL};
            const gains_t ahead = {NULL, NULL, o->Vx[next], o->Vxx[next]}, to = {o->K, o->k, o->Vx[own], o->Vxx[own]};
            convex[s] &= swept_factor(blocks, none, NULL, i, ahead, to, NULL, &factored, dims);
            SCATTER(o->K, K[s], M_ * N_)
            SCATTER(o->k, k[s], M_)
            if (!barrier) continue;
            grown(p, factored.H, w->push, own, o, dims);
            SCATTER(o->k_by, k_by[s], M_)
        }
        ROWS_OF((lane[l].under ? lane[l].under : lane[l].K[last]) + i * M_ * N_, M_ * N_, -1, w->K)
        PRODUCT(under->lambda[own], under->g, w->K, 1, M_, N_, 1);
        for (int a = 0; a < M_; a++) whole += under->g[a] * 0.0;
        for (int a = 0; a < N_; a++) whole += under->lambda[own][a] * 0.0;
    }
    for (int s = 0; s < MAX_FRACTIONS; s++)
        for (int a = 0; a < N_ * N_ && ANY(convex[s]); a++) convex[s] &= w->by[s].Vxx[0][a] * 0.0 == 0.0;
    for (int l = 0; l < LANES; l++) {
        lane[l].convex = 0, lane[l].share = -1;
        for (int s = last; s >= 0; s--)
            if (HOLDS(convex[s], l) && lane[l].asked >> s & 1) lane[l].convex |= 1 << s, lane[l].share = s;
    }
    whole += (cost + theta) * 0.0;
    for (int a = 0; a < M_; a++) gradient = CHOSEN(under->most[a] <= gradient, gradient, under->most[a]);
    const num scaled = relative(under, dims);
    if (of->asked) attempted_steps(lane, N, barrier, slope, w, dims);
    for (int l = 0; l < LANES; l++) {
        lane[l].finite = OF(whole, l) == 0.0;
        lane[l].cost = OF(cost, l), lane[l].defect = OF(defect, l), lane[l].theta = OF(theta, l);
        lane[l].gradient = OF(gradient, l), lane[l].scaled = OF(scaled, l);
        for (int s = 0; of->asked && s < 3; s++) lane[l].slope[s] = OF(slope[s], l);
    }
}
