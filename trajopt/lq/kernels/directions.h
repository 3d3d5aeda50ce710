/* Directions of several problems, one in each lane, from expansions that are made on the way back, knot by knot: what a knot's problem is made of
   never leaves the fastest memory, but for A, B, the gaps and the gains, which a way forward reads.  Before this text stands riccati.h with ABREAST.

   On the way back, beside gains and value function (riccati.h): the costates and the gradient, lambda = q + A' lambda', g = r + B' lambda', and
   the same under the feedback K, as stationarity of lq.py has them.  On the way forward, where linear steps are asked for, dx' = A dx + B du + d, du = k + K dx from dx = 0. */

typedef struct {
    num A[N_ * N_], B[N_ * M_], d[N_], K[M_ * N_], k[M_];
} kept_t;

typedef struct {
    num S[M_ * N_], R[M_ * M_], r[M_], cost, g[M_], own[M_], Vx[2][N_], Vxx[2][N_ * N_], lambda[2][N_], held[2][N_];
} directions_t;

/* Doubles for N knots with linear steps, without them for one. */
EXPORT long lq_directions_room(long N) { return (sizeof(directions_t) + N * sizeof(kept_t)) / sizeof(double); }

/* Rows number i of `width` numbers of an array of each lane's problem <- x */
#define SCATTER(x, array, width)                                                              \
    {                                                                                         \
        double *rows[LANES];                                                                  \
        for (int l = 0; l < LANES; l++) rows[l] = lane[l].array + i * (width);                \
        unpack_rows(x, width, rows);                                                          \
    }

/* The gradient under the feedback at a knot, own (m), and the size of its terms, from the costates behind it: see stationarity of riccati.h. */
ALWAYS_INLINE void gradient_held(const kept_t *p, const num *r, const num *behind, num *restrict own, num *restrict size)
{
    num terms[M_], far[N_];
    for (int b = 0; b < N_; b++) far[b] = size_of(behind[b]);
    for (int a = 0; a < M_; a++) terms[a] = size_of(r[a]);
    for (int b = 0; b < N_; b++)
        for (int a = 0; a < M_; a++) terms[a] += far[b] * size_of(p->B[b * M_ + a]);
    for (int a = 0; a < M_; a++) size[a] = CHOSEN(terms[a] <= size[a], size[a], terms[a]);
    SUM_PRODUCT(own, r, behind, p->B, 1, N_, M_);
}

static void steps_ahead(const lq_direction *lane, long N, const kept_t *kept)
{
    num x[2][N_], u[M_];
    for (int a = 0; a < N_; a++) x[0][a] = number(0.0);
    for (long i = 0; i <= N; i++) {
        const num *own = x[i & 1];
        num *next = x[!(i & 1)];
        SCATTER(own, dx, N_)
        if (i == N) break;
        SUM_PRODUCT(u, kept[i].k, kept[i].K, own, M_, N_, 1);
        SCATTER(u, du, M_)
        SUM_PRODUCT(next, kept[i].d, kept[i].A, own, N_, N_, 1);
        PRODUCT(next, kept[i].B, u, N_, M_, 1, 1);
    }
}

/* Directions of as many problems of N steps as there are lanes, without bounds.  expand: gives the blocks of knot i, and q, Q and the cost of knot N. */
EXPORT void lq_directions(lq_direction *lane, long N, void (*expand)(void *of, long i, const lq_vectors *to), void *of, directions_t *restrict w)
{
    kept_t *kept = (kept_t *)(w + 1);
    const int forward = lane->dx != NULL;
    damping_t by;
    num change = number(0.0), slope = number(0.0), defect = number(0.0), kkt = number(0.0), whole = number(0.0);
    num size[M_], most[M_];
    truth closed, found = ALL;
    long i = N;
    for (int l = 0; l < LANES; l++) {
        by.on_state[l] = lane[l].on_state, by.on_control[l] = lane[l].on_control;
        closed[l] = lane[l].closed ? -1 : 0;
    }
    for (int a = 0; a < M_; a++) size[a] = most[a] = number(0.0);
    expand(of, N, &(lq_vectors){NULL, NULL, NULL, w->Vxx[N & 1], w->Vx[N & 1], NULL, NULL, NULL, &w->cost});
    memcpy(w->lambda[N & 1], w->Vx[N & 1], sizeof w->lambda[0]);
    memcpy(w->held[N & 1], w->Vx[N & 1], sizeof w->held[0]);
    SCATTER(&w->cost, costs, 1)
    SCATTER(w->lambda[N & 1], lambda, N_)
    for (i = N - 1; i >= 0; i--) {
        kept_t *p = kept + (forward ? i : 0);
        const int own = i & 1, next = !own;
        expand(of, i, &(lq_vectors){p->A, p->B, p->d, w->Vxx[own], w->Vx[own], w->S, w->R, w->r, &w->cost});
        SCATTER(&w->cost, costs, 1)
        SCATTER(p->d, d, N_)
        for (int a = 0; a < N_; a++) {
            defect = CHOSEN(size_of(p->d[a]) <= defect, defect, size_of(p->d[a]));
            p->d[a] = CHOSEN(closed, number(0.0), p->d[a]);
            whole += p->d[a] * 0.0;
        }
        SUM_PRODUCT(w->g, w->r, w->lambda[next], p->B, 1, N_, M_);
        SUM_PRODUCT(w->lambda[own], w->Vx[own], w->lambda[next], p->A, 1, N_, N_);
        SUM_PRODUCT(w->held[own], w->Vx[own], w->held[next], p->A, 1, N_, N_);
        SCATTER(w->g, g, M_)
        SCATTER(w->lambda[own], lambda, N_)
        const blocks_t blocks = {p->A, p->B, p->d, w->Vxx[own], w->Vx[own], w->S, w->R, w->r, NULL, NULL};
        const gains_t ahead = {NULL, NULL, w->Vx[next], w->Vxx[next]}, to = {p->K, p->k, w->Vx[own], w->Vxx[own]};
        found &= swept(blocks, by, NULL, i, ahead, to, &change);
        SCATTER(p->K, K, M_ * N_)
        SCATTER(p->k, k, M_)
        gradient_held(p, w->r, w->held[next], w->own, size);
        PRODUCT(w->held[own], w->own, p->K, 1, M_, N_, 1);
        for (int a = 0; a < M_; a++) slope += w->own[a] * p->k[a];
        for (int a = 0; a < N_; a++) slope += w->held[next][a] * p->d[a];
        for (int a = 0; a < M_; a++) {
            const num entry = size_of(w->own[a]);
            most[a] = CHOSEN(entry <= most[a], most[a], entry);
            whole += w->g[a] * 0.0;
        }
    }
    for (int a = 0; a < N_; a++) whole += w->lambda[0][a] * 0.0;
    num largest = number(0.0);
    for (int a = 0; a < M_; a++) largest = CHOSEN(size[a] > largest, size[a], largest);
    for (int a = 0; a < M_; a++) {
        const num least = HALF_OF_DIGITS * largest;
        size[a] = CHOSEN(size[a] < least, least, size[a]);
        const num share = CHOSEN(size[a] > 0.0, most[a] / size[a], number(0.0));
        kkt = CHOSEN(share > kkt, share, kkt);
    }
    if (forward) steps_ahead(lane, N, kept);
    for (int l = 0; l < LANES; l++) {
        lane[l].found = HOLDS(found, l) && OF(whole, l) == 0.0;
        lane[l].change = OF(change, l), lane[l].slope = OF(slope, l), lane[l].defect = OF(defect, l), lane[l].kkt = OF(kkt, l);
    }
}
