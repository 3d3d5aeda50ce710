/* Backward sweep of equality_riccati.h for several problems, one in each lane.  Include rows.h and, with ABREAST, equality_knot.h before this
   file. */

/* Matrices of a knot in lanes, and results of the sweep at this knot; P of this knot and of the next one. */
typedef struct {
    num *A, *B, *Q, *S, *R, *P[2], *K, *G, *uu, *ux;
} blocks_t;

/* The lanes, flags of the active ones, and the lane that each reads from: inactive lanes read from the first active one. */
typedef struct {
    elq_lane *lane;
    const elq_lane *from[LANES];
    int goes_on[LANES];
    double *unused;
    blocks_t blocks;
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
/* Rows of the active lanes <- x */
#define SCATTER(x, row, width)                                  \
    {                                                           \
        double *rows_[LANES];                                   \
        for (int l = 0; l < LANES; l++) {                       \
            const elq_lane *of = at->lane + l;                  \
            rows_[l] = at->goes_on[l] ? (row) : at->unused;     \
        }                                                       \
        unpack_rows(x, width, rows_);                           \
    }

/* Deactivate, from knot k on, lanes whose two counts differ from those of the first active lane. */
static void drop_unequal(abreast_t *at, const long (*numbers)[2], long k)
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

/* Eliminate the equations at knot k, with A and B in lanes, and store the results with their problems. */
static void eliminate_abreast(abreast_t *at, long k, long own, long carried, turned_t to, lq_size dims)
{
    const long most = at->from[0]->f->most, size = turned_size(most, dims), rows = own + carried;
    const int at_end = k == at->from[0]->p->N;
    num W[rows * (M_ + N_)], H[carried * N_ + 1], C[own * N_ + 1], D[own * M_ + 1], pivots, kept;
    if (carried) GATHER(H, of->f->turned + (k + 1) * size + H_at(most, dims), carried * N_)
    GATHER(C, of->p->C + of->p->row[k] * N_, own * N_)
    if (!at_end) GATHER(D, of->p->D + of->p->row[k] * M_, own * M_)
    joined(W, H, carried, at->blocks.A, at->blocks.B, C, at_end ? NULL : D, own, dims);
    turn(W, rows, at_end, to, &pivots, &kept, dims);
    long numbers[LANES][2];
    for (int l = 0; l < LANES; l++) numbers[l][0] = (long)OF(pivots, l), numbers[l][1] = (long)OF(kept, l);
    drop_unequal(at, numbers, k);
    for (int l = 0; l < LANES; l++) {
        elq_counts *q = at->lane[l].f->counts + k;
        if (at->goes_on[l]) q->rows = rows, q->pivots = numbers[l][0], q->kept = numbers[l][1];
    }
    const elq_counts *q = at->from[0]->f->counts + k;
    SCATTER(to.T, of->f->turned + k * size, (M_ + rows - q->pivots) * rows)
    SCATTER(to.E, of->f->turned + k * size + E_at(most, dims), M_ * (M_ + N_) + q->kept * N_)
}

/* Backward step at knot k < N, with the eliminated equations; P: receives the value function. */
static void step_abreast(abreast_t *at, long k, num shift, turned_t turned, const num *next, num *restrict P, lq_size dims)
{
    const int bound = at->from[0]->f->counts[k].pivots > 0;
    quadratic_at(at->blocks.A, at->blocks.B, at->blocks.Q, at->blocks.S, at->blocks.R, shift, next, at->blocks.uu, at->blocks.ux, P, dims);
    const truth definite = bound ? bound_gains(at->blocks.uu, at->blocks.ux, turned.E, turned.X, at->blocks.G, at->blocks.K, P, dims)
                                 : free_gains(at->blocks.uu, at->blocks.ux, at->blocks.G, at->blocks.K, P, dims);
    mirror(P, dims);
    for (int l = 0; l < LANES; l++)
        if (at->goes_on[l] && !HOLDS(definite, l)) at->lane[l].failed = k, at->goes_on[l] = 0;
    SCATTER(at->blocks.K, knot_at(of->f, k, dims).K, M_ * N_)
    SCATTER(at->blocks.G, knot_at(of->f, k, dims).G, M_ * M_)
    if (!bound) return;
    SCATTER(at->blocks.ux, knot_at(of->f, k, dims).ux, M_ * N_)
    SCATTER(at->blocks.uu, knot_at(of->f, k, dims).uu, M_ * M_)
}

/* Find the places of a workspace, for equations turned in the memory for `most` rows; its length, in vectors. */
static long take_abreast(abreast_t *at, turned_t *turned, num *workspace, long most, lq_size dims)
{
    const long n = N_, m = M_, size = turned_size(most, dims);
    num *end = workspace;
    blocks_t *b = &at->blocks;
    b->A = taken(&end, n * n), b->B = taken(&end, n * m), b->Q = taken(&end, n * n), b->S = taken(&end, m * n), b->R = taken(&end, m * m);
    b->P[0] = taken(&end, n * n), b->P[1] = taken(&end, n * n), b->K = taken(&end, m * n), b->G = taken(&end, m * m);
    b->uu = taken(&end, m * m), b->ux = taken(&end, m * n);
    *turned = turned_in(taken(&end, size), most, dims);
    at->unused = (double *)taken(&end, size + n * n);
    return end - workspace;
}

/* Doubles of the workspace of elq_factor_abreast. */
EXPORT long elq_abreast_room(int n, int m, long most)
{
    abreast_t at;
    turned_t turned;
    return LANES * take_abreast(&at, &turned, NULL, most, (lq_size){n, m});
}

/* Backward sweeps of a problem in each lane.  A lane stops where it fails or where its numbers of equations differ from the other lanes'; all
   lanes stop when fewer than `least` are active. */
EXPORT void elq_factor_abreast(elq_lane *lane, int least, num *workspace)
{
    const lq_size dims = lane->p->size;
    const long N = lane->p->N, most = lane->f->most; /* of the memory for problems of one structure */
    long last = 0, k;
    num shift;
    turned_t turned;
    for (int l = 0; l < LANES; l++) {
        lane[l].failed = lane[l].left = -1, shift[l] = lane[l].p->shift;
        if (lane[l].first > last) last = lane[l].first;
    }
    abreast_t lanes = {.lane = lane}, *at = &lanes;
    take_abreast(at, &turned, workspace, most, dims);
    for (k = last; k >= 0; k--) {
        int begins = 0, waits = 0, works = 0;
        long rows[LANES][2] = {{0}};
        for (int l = 0; l < LANES; l++) {
            const elq_lane *own = lane + l;
            at->goes_on[l] = own->first >= k && own->failed < 0 && own->left < 0;
            begins |= own->first == k, waits |= own->first < k, works += at->goes_on[l];
            if (at->goes_on[l]) rows[l][0] = own->p->row[k + 1] - own->p->row[k], rows[l][1] = k < N ? own->f->counts[k + 1].kept : 0;
        }
        if (works < least && !waits) break;
        if (!works) continue;
        drop_unequal(at, rows, k);
        num *P = at->blocks.P[k & 1], *next = at->blocks.P[!(k & 1)];
        GATHER(at->blocks.Q, of->p->Q + k * N_ * N_, N_ * N_)
        if (k == N) {
            value_at_end(at->blocks.Q, shift, P, dims);
        } else {
            if (begins) GATHER(next, knot_at(of->f, k + 1, dims).P, N_ * N_)
            GATHER(at->blocks.A, of->p->A + k * N_ * N_, N_ * N_)
            GATHER(at->blocks.B, of->p->B + k * N_ * M_, N_ * M_)
            GATHER(at->blocks.S, of->p->S + k * M_ * N_, M_ * N_)
            GATHER(at->blocks.R, of->p->R + k * M_ * M_, M_ * M_)
        }
        const long own = rows[at->from[0] - lane][0], carried = rows[at->from[0] - lane][1];
        if (own + carried) eliminate_abreast(at, k, own, carried, turned, dims);
        else
            for (int l = 0; l < LANES; l++) {
                elq_counts *q = lane[l].f->counts + k;
                if (at->goes_on[l]) q->rows = q->pivots = q->kept = 0;
            }
        if (k < N) step_abreast(at, k, shift, turned, next, P, dims);
        SCATTER(P, knot_at(of->f, k, dims).P, N_ * N_)
    }
    for (int l = 0; l < LANES; l++)
        if (lane[l].failed < 0 && lane[l].left < 0) lane[l].left = k;
}
