/* The sweep of equality_riccati.h over knots without equations, for several problems, one in each lane.  Before this text stand rows.h and, with
   ABREAST, free_knot.h. */

SCRATCH struct {
    num A[N_ * N_], B[N_ * M_], Q[N_ * N_], S[M_ * N_], R[M_ * M_], P[2][N_ * N_], K[M_ * N_], G[M_ * M_], uu[M_ * M_], ux[M_ * N_];
    double unused[(N_ + M_) * (N_ + M_)];
} blocks;

/* to <- rows of `width` numbers of each lane */
#define GATHER(to, row, width)                              \
    {                                                       \
        const double *rows[LANES];                          \
        for (int l = 0; l < LANES; l++) rows[l] = (row);    \
        pack_rows(rows, width, to);                         \
    }
/* Rows of the lanes that go on <- x */
#define SCATTER(x, row, width)                                                               \
    {                                                                                        \
        double *rows[LANES];                                                                 \
        for (int l = 0; l < LANES; l++) rows[l] = goes_on[l] ? (row) : blocks.unused;        \
        unpack_rows(x, width, rows);                                                         \
    }

/* The sweeps of as many problems as there are lanes to their first knots, or to where they fail, or to where fewer than `least` go on. */
EXPORT void elq_factor_abreast(elq_lane *lane, int least)
{
    long last = 0, k;
    num shift;
    for (int l = 0; l < LANES; l++) {
        lane[l].failed = lane[l].left = -1, shift[l] = lane[l].p->shift;
        if (lane[l].first > last) last = lane[l].first;
    }
    for (k = last; k >= 0; k--) {
        int begins = 0, waits = 0, works = 0, goes_on[LANES];
        long at[LANES];
        for (int l = 0; l < LANES; l++) {
            goes_on[l] = lane[l].first >= k && lane[l].failed < 0;
            at[l] = goes_on[l] ? k : lane[l].first;
            begins |= lane[l].first == k, waits |= lane[l].first < k, works += goes_on[l];
        }
        if (works < least && !waits) break;
        if (!works) continue;
        num *P = blocks.P[k & 1], *next = blocks.P[!(k & 1)];
        if (begins) GATHER(next, lane[l].f->knots[at[l] + 1].P, N_ * N_)
        GATHER(blocks.A, lane[l].p->A + at[l] * N_ * N_, N_ * N_)
        GATHER(blocks.B, lane[l].p->B + at[l] * N_ * M_, N_ * M_)
        GATHER(blocks.Q, lane[l].p->Q + at[l] * N_ * N_, N_ * N_)
        GATHER(blocks.S, lane[l].p->S + at[l] * M_ * N_, M_ * N_)
        GATHER(blocks.R, lane[l].p->R + at[l] * M_ * M_, M_ * M_)
        quadratic_at(blocks.A, blocks.B, blocks.Q, blocks.S, blocks.R, shift, next, blocks.uu, blocks.ux, P);
        const truth definite = free_gains(blocks.uu, blocks.ux, blocks.G, blocks.K, P);
        mirror(P);
        for (int l = 0; l < LANES; l++) {
            if (!goes_on[l]) continue;
            elq_knot *q = lane[l].f->knots + k;
            q->rows = q->pivots = q->kept = 0;
            if (!HOLDS(definite, l)) lane[l].failed = k, goes_on[l] = 0;
        }
        SCATTER(P, lane[l].f->knots[k].P, N_ * N_)
        SCATTER(blocks.K, lane[l].f->knots[k].K, M_ * N_)
        SCATTER(blocks.G, lane[l].f->knots[k].G, M_ * M_)
    }
    for (int l = 0; l < LANES; l++)
        if (lane[l].failed < 0) lane[l].left = k;
}
