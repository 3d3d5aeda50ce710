/* Backward step of the recursion of equality_riccati.h, for one problem or, with ABREAST, for one in each lane.  Include equality_types.h
   before this file. */

#define PIVOT_TOLERANCE 1e-9 /* for rows scaled to a largest entry of one */

/* Q-function of (dx, du) at a knot from the value function P (n, n) of the next: uu (m, m), ux (m, n), and the upper half of xx. */
ALWAYS_INLINE void quadratic_at(const num *A, const num *B, const num *Q, const num *S, const num *R, num shift, const num *P,
                                num *restrict uu, num *restrict ux, num *restrict xx, lq_size dims)
{
    num PA[N_ * N_], PB[N_ * M_];
    PRODUCT(PA, P, A, N_, N_, N_, 0);
    PRODUCT(PB, P, B, N_, N_, M_, 0);
    SUM_TRANSPOSED_PRODUCT(uu, R, B, PB, M_, N_, M_);
    SUM_TRANSPOSED_PRODUCT(ux, S, B, PA, M_, N_, N_);
    UPPER_SUM_PRODUCT(xx, Q, A, PA, N_, N_);
    for (int a = 0; a < M_; a++) uu[a * (M_ + 1)] += shift;
    for (int a = 0; a < N_; a++) xx[a * (N_ + 1)] += shift;
}

ALWAYS_INLINE elq_knot knot_at(const elq_factors *f, long k, lq_size dims)
{
    const elq_knot *q = &f->first;
    return (elq_knot){q->P + k * N_ * N_, q->K + k * M_ * N_, q->ux + k * M_ * N_, q->uu + k * M_ * M_, q->G + k * M_ * M_};
}

ALWAYS_INLINE void mirror(num *P, lq_size dims)
{
    for (int a = 0; a < N_; a++)
        for (int b = 0; b < a; b++) P[a * N_ + b] = P[b * N_ + a];
}

/* Value function at the last knot. */
ALWAYS_INLINE void value_at_end(const num *Q, num shift, num *restrict P, lq_size dims)
{
    memcpy(P, Q, sizeof(num) * N_ * N_);
    for (int a = 0; a < N_; a++) P[a * (N_ + 1)] += shift;
}

/* Cholesky factor G of uu and gains K; xx becomes the upper half of the value function.  False where uu is not positive definite. */
ALWAYS_INLINE truth free_gains(const num *uu, const num *ux, num *restrict G, num *restrict K, num *restrict xx, lq_size dims)
{
    memcpy(G, uu, sizeof(num) * M_ * M_);
    const truth definite = cholesky(G, M_);
    if (!ANY(definite)) return definite;
    memcpy(K, ux, sizeof(num) * M_ * N_);
    minus_solve(G, K, N_, M_);
    ADD_UPPER_PRODUCT(xx, ux, K, N_, M_);
    return definite;
}

/* -- equations ------------------------------------------------------------------------------------------------------------------------ */

/* Eliminated equations of a knot: see elq_knot. */
typedef struct {
    num *T, *E, *X, *H;
} turned_t;

/* Offsets of E and H in the memory for `most` rows, and its size. */
static long E_at(long most, lq_size dims) { return (M_ + most) * most; }
static long H_at(long most, lq_size dims) { return E_at(most, dims) + M_ * (M_ + N_); }
static long turned_size(long most, lq_size dims) { return H_at(most, dims) + most * N_; }

ALWAYS_INLINE turned_t turned_in(num *at, long most, lq_size dims)
{
    return (turned_t){at, at + E_at(most, dims), at + E_at(most, dims) + M_ * M_, at + H_at(most, dims)};
}

/* W (carried + own, m + n): H (carried, n) of the next knot with the dynamics substituted, then C, D of the knot; A, B, D: NULL at the last knot. */
ALWAYS_INLINE void joined(num *restrict W, const num *H, long carried, const num *A, const num *B, const num *C, const num *D, long own, lq_size dims)
{
    const long w = M_ + N_;
    for (long i = 0; i < carried; i++) {
        num on_u[M_], on_x[N_];
        PRODUCT(on_u, H + i * N_, B, 1, N_, M_, 0);
        PRODUCT(on_x, H + i * N_, A, 1, N_, N_, 0);
        memcpy(W + i * w, on_u, sizeof on_u);
        memcpy(W + i * w + M_, on_x, sizeof on_x);
    }
    for (long i = 0; i < own; i++) {
        num *to = W + (carried + i) * w;
        if (D) memcpy(to, D + i * M_, sizeof(num) * M_);
        else memset(to, 0, sizeof(num) * M_);
        memcpy(to + M_, C + i * N_, sizeof(num) * N_);
    }
}

/* Gauss-Jordan elimination with full pivoting in the columns first .. last of W (rows, m + n), with the same row operations on T.  place[i] of
   a row with a pivot is the control of the pivot, or m plus the number of earlier pivots on states; it is negative without a pivot.  Rows with
   a pivot on a control stay unchanged in the elimination of states.  Returns the number of pivots. */
static num eliminate(num *restrict W, num *restrict T, num *restrict place, long rows, long first, long last, lq_size dims)
{
    const long w = M_ + N_;
    num found = number(0.0);
    for (long tries = 0; tries < rows; tries++) {
        num most = number(0.0), row = most, column = most + (double)first, inverse, pivot[w], turn[rows];
        for (long i = 0; i < rows; i++) {
            const truth waits = place[i] < 0.0;
            for (long j = first; j < last; j++) {
                const num size = size_of(W[i * w + j]);
                const truth more = waits & (size > most);
                most = CHOSEN(more, size, most);
                row = CHOSEN(more, number((double)i), row);
                column = CHOSEN(more, number((double)j), column);
            }
        }
        const truth has = most > PIVOT_TOLERANCE;
        if (!ANY(has)) break;
        for (int l = 0; l < WIDTH; l++) {
            const long i = (long)OF(row, l), c = (long)OF(column, l);
            for (long j = 0; j < w; j++) OF(pivot[j], l) = OF(W[i * w + j], l);
            for (long j = 0; j < rows; j++) OF(turn[j], l) = OF(T[i * rows + j], l);
            OF(inverse, l) = HOLDS(has, l) ? 1.0 / OF(W[i * w + c], l) : 0.0;
        }
        for (long j = 0; j < w; j++) pivot[j] *= inverse;
        for (long j = 0; j < rows; j++) turn[j] *= inverse;
        for (long i = 0; i < rows; i++) {
            const truth own = has & (row == (double)i);
            truth other = has & NOT(own);
            num factor;
            if (first) other &= (place[i] < 0.0) | (place[i] >= (double)M_);
            for (int l = 0; l < WIDTH; l++) OF(factor, l) = OF(W[i * w + (long)OF(column, l)], l);
            factor = CHOSEN(other, factor, number(0.0));
            for (long j = 0; j < w; j++) W[i * w + j] = CHOSEN(own, pivot[j], W[i * w + j] - factor * pivot[j]);
            for (long j = 0; j < rows; j++) T[i * rows + j] = CHOSEN(own, turn[j], T[i * rows + j] - factor * turn[j]);
            for (int l = 0; l < WIDTH; l++) /* without rounding */
                if (HOLDS(own | other, l)) OF(W[i * w + (long)OF(column, l)], l) = HOLDS(own, l) ? 1.0 : 0.0;
            place[i] = CHOSEN(own, first ? found + (double)M_ : column, place[i]);
        }
        found += CHOSEN(has, number(1.0), number(0.0));
    }
    return found;
}

/* Eliminate the equations W (rows, m + n), which is overwritten; at_end: no controls.  pivots: number of pivots on controls; kept: number of
   equations passed to the previous knot. */
static void turn(num *restrict W, long rows, int at_end, turned_t to, num *pivots, num *kept, lq_size dims)
{
    const long w = M_ + N_;
    num T[rows * rows], place[rows];
    memset(T, 0, sizeof T);
    for (long i = 0; i < rows; i++) {
        num most = number(0.0);
        for (long j = 0; j < w; j++) most = CHOSEN(size_of(W[i * w + j]) > most, size_of(W[i * w + j]), most);
        const num scale = CHOSEN(most > 0.0, 1.0 / most, number(1.0));
        for (long j = 0; j < w; j++) W[i * w + j] *= scale;
        T[i * rows + i] = scale, place[i] = number(-1.0);
    }
    *pivots = at_end ? number(0.0) : eliminate(W, T, place, rows, 0, M_, dims);
    *kept = eliminate(W, T, place, rows, M_, w, dims);
    memset(to.T, 0, sizeof(num) * M_ * rows);
    memset(to.E, 0, sizeof(num) * M_ * M_);
    memset(to.X, 0, sizeof(num) * M_ * N_);
    for (int l = 0; l < WIDTH; l++) {
        const long zero = M_ + (long)OF(*kept, l);
        for (long i = 0, next = zero; i < rows; i++) {
            const long at = OF(place[i], l) < 0.0 ? next++ : (long)OF(place[i], l);
            for (long j = 0; j < rows; j++) OF(to.T[at * rows + j], l) = OF(T[i * rows + j], l);
            if (at >= zero) continue;
            for (long j = 0; at < M_ && j < M_; j++) OF(to.E[at * M_ + j], l) = OF(W[i * w + j], l);
            num *on_state = at < M_ ? to.X + at * N_ : to.H + (at - M_) * N_;
            for (long j = 0; j < N_; j++) OF(on_state[j], l) = OF(W[i * w + M_ + j], l);
        }
    }
}

/* free_gains for a knot whose equations have pivots on controls: du = -X dx + (1 - E) w, with free w. */
ALWAYS_INLINE truth bound_gains(const num *uu, const num *ux, const num *E, const num *X, num *restrict G, num *restrict K, num *restrict xx, lq_size dims)
{
    num Z[M_ * M_], H[M_ * M_], T[M_ * N_], w[M_ * N_];
    for (int i = 0; i < M_ * M_; i++) Z[i] = (i % (M_ + 1) == 0 ? 1.0 : 0.0) - E[i];
    for (int i = 0; i < M_ * N_; i++) K[i] = -X[i];
    SUM_PRODUCT(T, ux, uu, K, M_, M_, N_);
    PRODUCT(H, uu, Z, M_, M_, M_, 0);
    TRANSPOSED_PRODUCT(G, Z, H, M_, M_, M_, 0);
    for (int a = 0; a < M_; a++) G[a * (M_ + 1)] += E[a * (M_ + 1)];
    const truth definite = cholesky(G, M_);
    if (!ANY(definite)) return definite;
    TRANSPOSED_PRODUCT(w, Z, T, M_, M_, N_, 0);
    minus_solve(G, w, N_, M_);
    PRODUCT(K, Z, w, M_, M_, N_, 1);
    SUM_PRODUCT(T, ux, uu, K, M_, M_, N_);
    ADD_UPPER_PRODUCT(xx, K, T, N_, M_);
    ADD_UPPER_PRODUCT(xx, ux, K, N_, M_);
    return definite;
}
