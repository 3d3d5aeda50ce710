/* Attempts at steps of Newton's method for several problems, one in each lane, from expansions that are made on the way back, knot by knot.  Before this text
   stands directions.h.

   The Hessians are H = P + share (E - P), with that of the Lagrangian as E, for some shares at once: each has a sweep of its own.  On the way back, costates
   under feedback are found with the gains: E asks for those of the next knot.  On the way forward, dx' = A dx + B du + d, du = k + K dx from dx = 0. */

typedef struct {
    num A[N_ * N_], B[N_ * M_], d[N_], q[N_], r[M_];
} motion_t;

/* The sweep of a share. */
typedef struct {
    num Vx[2][N_], Vxx[2][N_ * N_], S[M_ * N_], R[M_ * M_], K[M_ * N_], k[M_];
} share_t;

typedef struct {
    share_t by[MOST_SHARES];
    num cost, K[M_ * N_], k[M_], q[N_];
    held_t under;
} attempts_t;

/* Doubles for N knots. */
EXPORT long lq_attempts_room(long N) { return (sizeof(attempts_t) + N * sizeof(motion_t)) / sizeof(double); }

/* to <- a row of `width` numbers for each lane l; those `ahead` rows on, which come next, are sent for. */
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

/* Steps by the gains of each lane's share, and the slope of the cost along them. */
static num attempted_steps(const lq_attempt *lane, long N, const motion_t *motion, attempts_t *restrict w)
{
    num x[2][N_], u[M_], slope = number(0.0);
    int by[LANES];
    for (int l = 0; l < LANES; l++) by[l] = lane[l].share < 0 ? MOST_SHARES - 1 : lane[l].share;
    for (int a = 0; a < N_; a++) x[0][a] = number(0.0);
    for (long i = 0; i <= N; i++) {
        const num *own = x[i & 1], *q = i < N ? motion[i].q : w->q;
        num *next = x[!(i & 1)];
        SCATTER(own, dx, N_)
        for (int a = 0; a < N_; a++) slope += q[a] * own[a];
        if (i == N) break;
        const motion_t *p = motion + i;
        ROWS_OF(lane[l].K[by[l]] + i * M_ * N_, M_ * N_, 1, w->K)
        ROWS_OF(lane[l].k[by[l]] + i * M_, M_, 1, w->k)
        SUM_PRODUCT(u, w->k, w->K, own, M_, N_, 1);
        SCATTER(u, du, M_)
        for (int a = 0; a < M_; a++) slope += p->r[a] * u[a];
        SUM_PRODUCT(next, p->d, p->A, own, N_, N_, 1);
        PRODUCT(next, p->B, u, N_, M_, 1, 1);
    }
    return slope;
}

/* to (count) = plain + share (exact - plain) */
ALWAYS_INLINE void mixed(double share, const num *exact, const num *plain, num *restrict to, int count)
{
    for (int i = 0; i < count; i++) to[i] = plain[i] + share * (exact[i] - plain[i]);
}

/* The Hessians of shares between none and all, which come from the two others, and the damping of all, in knots up to the last one. */
static void hessians_of(lq_asked of, share_t *by, int own, int inner, num delta)
{
    const int last = MOST_SHARES - 1;
    for (int s = 1; s < last; s++) {
        if (!(of.asked & 1 << s)) continue;
        mixed(of.shares[s], by[0].Vxx[own], by[last].Vxx[own], by[s].Vxx[own], N_ * N_);
        if (!inner) continue;
        mixed(of.shares[s], by[0].S, by[last].S, by[s].S, M_ * N_);
        mixed(of.shares[s], by[0].R, by[last].R, by[s].R, M_ * M_);
    }
    if (!ANY(delta != 0.0)) return;
    for (int s = 0; s < MOST_SHARES; s++) {
        for (int a = 0; a < N_; a++) by[s].Vxx[own][a * (N_ + 1)] += delta;
        for (int a = 0; inner && a < M_; a++) by[s].R[a * (M_ + 1)] += delta;
    }
}

/* Attempts for as many problems of N steps as there are lanes.  expand: gives the blocks of knot i, and q, Q and the cost of knot N, for the costates
   of the next one, with the Hessians P and E; without E (NULL) where that is not asked for, without P where E alone is. */
EXPORT void lq_attempts(lq_attempt *lane, long N, const lq_asked *of,
                        void (*expand)(void *at, long i, const void *lambda, const lq_vectors *plain, const lq_vectors *exact), void *at,
                        attempts_t *restrict w)
{
    motion_t *motion = (motion_t *)(w + 1);
    const damping_t none = {number(0.0), number(0.0)};
    const int last = MOST_SHARES - 1, bends = (of->asked & ((1 << last) - 1)) != 0, both = bends && of->asked >> 1;
    share_t *P = w->by + last, *E = w->by;
    held_t *under = &w->under;
    num delta, defect = number(0.0), theta = number(0.0), gradient = number(0.0), whole = number(0.0);
    truth convex[MOST_SHARES];
    for (int l = 0; l < LANES; l++) delta[l] = lane[l].delta;
    for (int s = 0; s < MOST_SHARES; s++) convex[s] = of->asked & 1 << s ? ALL : NOT(ALL);
    const int end = N & 1;
    const lq_vectors plain_end = {NULL, NULL, NULL, P->Vxx[end], w->q, NULL, NULL, NULL, &w->cost};
    const lq_vectors exact_end = {NULL, NULL, NULL, E->Vxx[end], w->q, NULL, NULL, NULL, &w->cost};
    expand(at, N, NULL, both || !bends ? &plain_end : NULL, bends ? &exact_end : NULL);
    hessians_of(*of, w->by, end, 0, delta);
    for (int s = 0; s < MOST_SHARES; s++) memcpy(w->by[s].Vx[end], w->q, sizeof w->q);
    hold_end(under, w->q, end);
    num cost = w->cost, costate = most_of(number(0.0), w->q, N_);
    for (long i = N - 1; i >= 0; i--) {
        motion_t *p = motion + i;
        const int own = i & 1, next = !own;
        const lq_vectors plain = {p->A, p->B, p->d, P->Vxx[own], p->q, P->S, P->R, p->r, &w->cost};
        const lq_vectors exact = {p->A, p->B, p->d, E->Vxx[own], p->q, E->S, E->R, p->r, &w->cost};
        expand(at, i, under->lambda[next], both || !bends ? &plain : NULL, bends ? &exact : NULL);
        cost += w->cost, defect = most_of(defect, p->d, N_), theta += l1_of(p->d, N_);
        hold(under, p->A, p->B, p->q, p->r, own);
        hessians_of(*of, w->by, own, 1, delta);
        for (int s = 0; s < MOST_SHARES; s++) {
            share_t *o = w->by + s;
            if (!ANY(convex[s])) continue;
            memcpy(o->Vx[own], p->q, sizeof p->q);
            const blocks_t blocks = {p->A, p->B, p->d, o->Vxx[own], o->Vx[own], o->S, o->R, p->r, NULL, NULL};
            const gains_t ahead = {NULL, NULL, o->Vx[next], o->Vxx[next]}, to = {o->K, o->k, o->Vx[own], o->Vxx[own]};
            convex[s] &= swept(blocks, none, NULL, i, ahead, to, NULL);
            SCATTER(o->K, K[s], M_ * N_)
            SCATTER(o->k, k[s], M_)
        }
        ROWS_OF((lane[l].under ? lane[l].under : lane[l].K[last]) + i * M_ * N_, M_ * N_, -1, w->K)
        PRODUCT(under->lambda[own], under->g, w->K, 1, M_, N_, 1);
        costate = most_of(costate, under->lambda[own], N_);
        for (int a = 0; a < M_; a++) whole += under->g[a] * 0.0;
        for (int a = 0; a < N_; a++) whole += under->lambda[own][a] * 0.0;
    }
    for (int s = 0; s < MOST_SHARES; s++)
        for (int a = 0; a < N_ * N_ && ANY(convex[s]); a++) convex[s] &= w->by[s].Vxx[0][a] * 0.0 == 0.0;
    for (int l = 0; l < LANES; l++) {
        lane[l].convex = 0, lane[l].share = -1;
        for (int s = last; s >= 0; s--)
            if (HOLDS(convex[s], l) && lane[l].asked >> s & 1) lane[l].convex |= 1 << s, lane[l].share = s;
    }
    whole += (cost + theta) * 0.0;
    for (int a = 0; a < M_; a++) gradient = CHOSEN(under->most[a] <= gradient, gradient, under->most[a]);
    const num scaled = relative(under), slope = of->asked ? attempted_steps(lane, N, motion, w) : number(0.0);
    for (int l = 0; l < LANES; l++) {
        lane[l].finite = OF(whole, l) == 0.0;
        lane[l].cost = OF(cost, l), lane[l].defect = OF(defect, l), lane[l].theta = OF(theta, l), lane[l].costate = OF(costate, l);
        lane[l].gradient = OF(gradient, l), lane[l].scaled = OF(scaled, l), lane[l].slope = OF(slope, l);
    }
}
