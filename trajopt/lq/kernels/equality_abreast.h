/* The backward sweep of equality_riccati.h for several problems, one in each lane.  Before this text stand rows.h and, with ABREAST,
   equality_knot.h. */

/* A knot's matrices in lanes, and what the sweep leaves at it; P of this knot and of the next one. */
SCRATCH struct {
    num A[N_ * N_], B[N_ * M_], Q[N_ * N_], S[M_ * N_], R[M_ * M_], P[2][N_ * N_], K[M_ * N_], G[M_ * M_], uu[M_ * M_], ux[M_ * N_];
} blocks;

/* The lanes, which of them go on at a knot, and where each reads: the others where the first one does that goes on. */
typedef struct {
    elq_lane *lane;
    const elq_lane *from[LANES];
    int goes_on[LANES];
    double *unused;
} abreast_t;

/* to <- rows of `width` numbers, `row` of the lane `of` */
#define GATHER(to, row, width)                                  \
    {                                                           \
        const double *rows_[LANES];                             \
        for (int l = 0; l < LANES; l++) {                       \
            const elq_lane *of = at->from[l];                   \
            rows_[l] = (row);                                   \
        }                                                       \
        pack_rows(rows_, width, to);                            \
    }
/* The lanes' rows <- x, of those that go on */
#define SCATTER(x, row, width)                                  \
    {                                                           \
        double *rows_[LANES];                                   \
        for (int l = 0; l < LANES; l++) {                       \
            const elq_lane *of = at->lane + l;                  \
            rows_[l] = at->goes_on[l] ? (row) : at->unused;     \
        }                                                       \
        unpack_rows(x, width, rows_);                           \
    }

/* Leave lanes alone from the knot k on, two numbers of which are not those of the first lane that goes on. */
static void keep_alike(abreast_t *at, const long (*numbers)[2], long k)
{
    int first = -1;
    for (int l = 0; l < LANES; l++) {
        if (!at->goes_on[l]) continue;
        if (first < 0) first = l;
        if (numbers[l][0] == numbers[first][0] && numbers[l][1] == numbers[first][1]) continue;
        at->lane[l].left = k, at->goes_on[l] = 0;
    }
    for (int l = 0; l < LANES; l++) at->from[l] = at->lane + (at->goes_on[l] ? l : first);
}

/* Turn the equations at the knot k, with A and B in lanes, and leave them to their problems. */
static void turn_abreast(abreast_t *at, long k, long own, long carried, turned_t to)
{
    const long most = at->from[0]->f->most, size = turned_size(most), rows = own + carried;
    const int at_end = k == at->from[0]->p->N;
    num W[rows * (M_ + N_)], H[carried * N_ + 1], C[own * N_ + 1], D[own * M_ + 1], pivots, kept;
    if (carried) GATHER(H, of->f->turned + (k + 1) * size + H_at(most), carried * N_)
    GATHER(C, of->p->C + of->p->row[k] * N_, own * N_)
    if (!at_end) GATHER(D, of->p->D + of->p->row[k] * M_, own * M_)
    joined(W, H, carried, blocks.A, blocks.B, C, at_end ? NULL : D, own);
    turn(W, rows, at_end, to, &pivots, &kept);
    long numbers[LANES][2];
    for (int l = 0; l < LANES; l++) numbers[l][0] = (long)OF(pivots, l), numbers[l][1] = (long)OF(kept, l);
    keep_alike(at, numbers, k);
    for (int l = 0; l < LANES; l++) {
        elq_knot *q = at->lane[l].f->knots + k;
        if (at->goes_on[l]) q->rows = rows, q->pivots = numbers[l][0], q->kept = numbers[l][1];
    }
    const elq_knot *q = at->from[0]->f->knots + k;
    SCATTER(to.T, of->f->turned + k * size, (M_ + rows - q->pivots) * rows)
    SCATTER(to.E, of->f->turned + k * size + E_at(most), M_ * (M_ + N_) + q->kept * N_)
}

/* A step back at the knot k < N, with what the equations there are turned into; P: becomes the value. */
static void step_abreast(abreast_t *at, long k, num shift, turned_t turned, const num *next, num *restrict P)
{
    const int bound = at->from[0]->f->knots[k].pivots > 0;
    quadratic_at(blocks.A, blocks.B, blocks.Q, blocks.S, blocks.R, shift, next, blocks.uu, blocks.ux, P);
    const truth definite = bound ? bound_gains(blocks.uu, blocks.ux, turned.E, turned.X, blocks.G, blocks.K, P)
                                 : free_gains(blocks.uu, blocks.ux, blocks.G, blocks.K, P);
    mirror(P);
    for (int l = 0; l < LANES; l++)
        if (at->goes_on[l] && !HOLDS(definite, l)) at->lane[l].failed = k, at->goes_on[l] = 0;
    SCATTER(blocks.K, of->f->knots[k].K, M_ * N_)
    SCATTER(blocks.G, of->f->knots[k].G, M_ * M_)
    if (!bound) return;
    SCATTER(blocks.ux, of->f->knots[k].ux, M_ * N_)
    SCATTER(blocks.uu, of->f->knots[k].uu, M_ * M_)
}

/* The sweeps of as many problems as there are lanes to their first knots, or to where they fail or have other numbers of equations, or to where
   fewer than `least` go on. */
EXPORT void elq_factor_abreast(elq_lane *lane, int least)
{
    const long N = lane->p->N, most = lane->f->most; /* of the memory for problems of one structure */
    long last = 0, k;
    num shift;
    for (int l = 0; l < LANES; l++) {
        lane[l].failed = lane[l].left = -1, shift[l] = lane[l].p->shift;
        if (lane[l].first > last) last = lane[l].first;
    }
    num room[turned_size(most)];
    double unused[turned_size(most) + N_ * N_];
    abreast_t lanes = {.lane = lane, .unused = unused}, *at = &lanes;
    const turned_t turned = turned_in(room, most);
    for (k = last; k >= 0; k--) {
        int begins = 0, waits = 0, works = 0;
        long rows[LANES][2] = {{0}};
        for (int l = 0; l < LANES; l++) {
            const elq_lane *own = lane + l;
            at->goes_on[l] = own->first >= k && own->failed < 0 && own->left < 0;
            begins |= own->first == k, waits |= own->first < k, works += at->goes_on[l];
            if (at->goes_on[l]) rows[l][0] = own->p->row[k + 1] - own->p->row[k], rows[l][1] = k < N ? own->f->knots[k + 1].kept : 0;
        }
        if (works < least && !waits) break;
        if (!works) continue;
        keep_alike(at, rows, k);
        num *P = blocks.P[k & 1], *next = blocks.P[!(k & 1)];
        GATHER(blocks.Q, of->p->Q + k * N_ * N_, N_ * N_)
        if (k == N) {
            value_at_end(blocks.Q, shift, P);
        } else {
            if (begins) GATHER(next, of->f->knots[k + 1].P, N_ * N_)
            GATHER(blocks.A, of->p->A + k * N_ * N_, N_ * N_)
            GATHER(blocks.B, of->p->B + k * N_ * M_, N_ * M_)
            GATHER(blocks.S, of->p->S + k * M_ * N_, M_ * N_)
            GATHER(blocks.R, of->p->R + k * M_ * M_, M_ * M_)
        }
        const long own = rows[at->from[0] - lane][0], carried = rows[at->from[0] - lane][1];
        if (own + carried) turn_abreast(at, k, own, carried, turned);
        else
            for (int l = 0; l < LANES; l++) {
                elq_knot *q = lane[l].f->knots + k;
                if (at->goes_on[l]) q->rows = q->pivots = q->kept = 0;
            }
        if (k < N) step_abreast(at, k, shift, turned, next, P);
        SCATTER(P, of->f->knots[k].P, N_ * N_)
    }
    for (int l = 0; l < LANES; l++)
        if (lane[l].failed < 0 && lane[l].left < 0) lane[l].left = k;
}
