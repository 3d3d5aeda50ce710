/* The LQ problem with equations at its knots, with the sizes n = NDX and m = NU known at compile time: see trajopt/lq/equality_lq.py.

   Before this text stand equality_types.h and free_knot.h.  What depends on the matrices is factored once; right-hand sides are solved for by
   a sweep of vectors each. */

#define PIVOT_TOLERANCE 1e-9 /* of rows whose largest entry is one */

static double *turned(const elq_factors *f, long k) { return f->T + k * f->most * (f->most + M_ + N_); }
static double *on_controls(const elq_factors *f, long k) { return turned(f, k) + f->most * f->most; }
static double *on_state(const elq_factors *f, long k) { return on_controls(f, k) + f->most * M_; }

static void swap_rows(double *restrict a, double *restrict b, long count)
{
    for (long j = 0; j < count; j++) {
        const double x = a[j];
        a[j] = b[j], b[j] = x;
    }
}

/* Gauss-Jordan with full pivoting in the columns first .. last of W (rows, m + n), from row `at` on; the rows of T follow.  above: the
   first row of those that are cleared.  Returns the rows that have a pivot, columns of which come first in `order` where it is given. */
static long eliminate(double *restrict W, double *restrict T, long rows, long at, long above, long first, long last, long *order)
{
    const long w = M_ + N_;
    long found = 0;
    for (; at + found < rows; found++) {
        const long p = at + found;
        long row = p, column = first;
        double most = 0.0;
        for (long i = p; i < rows; i++)
            for (long j = first; j < last; j++)
                if (fabs(W[i * w + j]) > most) most = fabs(W[i * w + j]), row = i, column = j;
        if (!(most > PIVOT_TOLERANCE)) break;
        swap_rows(W + p * w, W + row * w, w);
        swap_rows(T + p * rows, T + row * rows, rows);
        const double inverse = 1.0 / W[p * w + column];
        for (long j = 0; j < w; j++) W[p * w + j] *= inverse;
        for (long j = 0; j < rows; j++) T[p * rows + j] *= inverse;
        for (long i = above; i < rows; i++) {
            const double factor = W[i * w + column];
            if (i == p || factor == 0.0) continue;
            for (long j = 0; j < w; j++) W[i * w + j] -= factor * W[p * w + j];
            for (long j = 0; j < rows; j++) T[i * rows + j] -= factor * T[p * rows + j];
        }
        if (order) order[found] = column;
    }
    return found;
}

/* The controls that have no pivot, behind those that have. */
static void complete(long *order, long pivots)
{
    for (long j = 0, next = pivots; j < M_ && next < M_; j++) {
        int taken = 0;
        for (long i = 0; i < pivots; i++) taken |= order[i] == j;
        if (!taken) order[next++] = j;
    }
}

/* The equations at knot k, turned as elq_knot says; with A, B NULL at the last one. */
static void turn(const elq_matrices *p, const elq_factors *f, long k)
{
    elq_knot *to = f->knots + k;
    const long own = p->row[k + 1] - p->row[k], carried = k < p->N ? to[1].kept : 0, rows = carried + own, w = M_ + N_;
    to->rows = rows, to->pivots = to->kept = 0;
    if (!rows) return;
    double W[rows * w], *T = turned(f, k);
    for (long i = 0; i < carried; i++) {
        const double *H = on_state(f, k + 1) + i * N_;
        double on_u[M_], on_x[N_];
        PRODUCT(on_u, H, p->B + k * N_ * M_, 1, N_, M_, 0);
        PRODUCT(on_x, H, p->A + k * N_ * N_, 1, N_, N_, 0);
        memcpy(W + i * w, on_u, sizeof on_u);
        memcpy(W + i * w + M_, on_x, sizeof on_x);
    }
    for (long i = 0; i < own; i++) {
        if (k < p->N) memcpy(W + (carried + i) * w, p->D + (p->row[k] + i) * M_, sizeof(double) * M_);
        else memset(W + (carried + i) * w, 0, sizeof(double) * M_);
        memcpy(W + (carried + i) * w + M_, p->C + (p->row[k] + i) * N_, sizeof(double) * N_);
    }
    memset(T, 0, sizeof(double) * rows * rows);
    for (long i = 0; i < rows; i++) {
        double most = 0.0;
        for (long j = 0; j < w; j++) most = fabs(W[i * w + j]) > most ? fabs(W[i * w + j]) : most;
        T[i * rows + i] = most > 0.0 ? 1.0 / most : 1.0;
        for (long j = 0; j < w; j++) W[i * w + j] *= T[i * rows + i];
    }
    if (k < p->N) {
        to->pivots = eliminate(W, T, rows, 0, 0, 0, M_, to->order);
        complete(to->order, to->pivots);
        for (long i = 0; i < to->pivots; i++)
            for (long j = 0; j < M_; j++) on_controls(f, k)[i * M_ + j] = W[i * w + to->order[j]];
    }
    to->kept = eliminate(W, T, rows, to->pivots, to->pivots, M_, w, NULL);
    for (long i = 0; i < to->pivots + to->kept; i++) memcpy(on_state(f, k) + i * N_, W + i * w + M_, sizeof(double) * N_);
    /* the pivots' rows on the state stand first; those that are kept are moved to the front by who reads them */
    if (to->pivots && to->kept) {
        double held[to->pivots * N_];
        memcpy(held, on_state(f, k), sizeof held);
        memmove(on_state(f, k), on_state(f, k) + to->pivots * N_, sizeof(double) * to->kept * N_);
        memcpy(on_state(f, k) + to->kept * N_, held, sizeof held);
    }
}

/* P of the next knot as it is seen through soft dynamics: P (1 + s P)^-1, and F = (1 + s P)^-1; 0 where that is not positive. */
static int softened(const double *restrict P, double s, double *restrict F, double *restrict seen)
{
    double L[N_ * N_];
    for (int i = 0; i < N_ * N_; i++) L[i] = s * P[i] + (i % (N_ + 1) == 0), F[i] = i % (N_ + 1) == 0;
    for (int j = 0; j < N_; j++) {
        double t = L[j * N_ + j];
        for (int k = 0; k < j; k++) t -= L[j * N_ + k] * L[j * N_ + k];
        if (!(t > 0.0) || t > 1e300) return 0;
        L[j * N_ + j] = t = sqrt(t);
        for (int i = j + 1; i < N_; i++) {
            double v = L[i * N_ + j];
            for (int k = 0; k < j; k++) v -= L[i * N_ + k] * L[j * N_ + k];
            L[i * N_ + j] = v / t;
        }
    }
    for (int i = 0; i < N_; i++)
        for (int c = 0; c < N_; c++) {
            for (int k = 0; k < i; k++) F[i * N_ + c] -= L[i * N_ + k] * F[k * N_ + c];
            F[i * N_ + c] /= L[i * N_ + i];
        }
    for (int i = N_ - 1; i >= 0; i--)
        for (int c = 0; c < N_; c++) {
            for (int k = i + 1; k < N_; k++) F[i * N_ + c] -= L[k * N_ + i] * F[k * N_ + c];
            F[i * N_ + c] /= L[i * N_ + i];
        }
    PRODUCT(seen, P, F, N_, N_, N_, 0);
    for (int i = 0; i < N_; i++)
        for (int j = 0; j < i; j++) seen[i * N_ + j] = seen[j * N_ + i] = 0.5 * (seen[i * N_ + j] + seen[j * N_ + i]);
    return 1;
}

/* Gains and value at a knot whose pivots are given: du = Y dx + Z w on the pivot controls, w the free ones.  0: not positive. */
static int bound_gains(elq_knot *restrict q, const double *E, const double *X, double *restrict Vxx)
{
    const long p = q->pivots, c = M_ - p;
    double Y[M_ * N_], Z[M_ * M_], H[M_ * M_], T[M_ * N_], YT[M_ * N_], gains[M_ * N_];
    memset(Y, 0, sizeof Y);
    memset(Z, 0, sizeof Z);
    for (long i = 0; i < p; i++) {
        for (int j = 0; j < N_; j++) Y[q->order[i] * N_ + j] = -X[i * N_ + j];
        for (long j = 0; j < c; j++) Z[q->order[i] * M_ + j] = -E[i * M_ + p + j];
    }
    for (long j = 0; j < c; j++) Z[q->order[p + j] * M_ + j] = 1.0;
    memcpy(T, q->ux, sizeof T);
    PRODUCT(T, q->uu, Y, M_, M_, N_, 1); /* Qux + Quu Y */
    PRODUCT(H, q->uu, Z, M_, M_, M_, 0);
    memset(q->G, 0, sizeof q->G);
    TRANSPOSED_PRODUCT(q->G, Z, H, M_, M_, M_, 1);
    if (!cholesky(q->G, (int)c)) return 0;
    TRANSPOSED_PRODUCT(YT, Z, T, M_, M_, N_, 0);
    minus_solve(q->G, YT, N_, (int)c);
    for (long i = c; i < M_; i++) memset(YT + i * N_, 0, sizeof(double) * N_);
    memcpy(gains, Y, sizeof gains);
    PRODUCT(gains, Z, YT, M_, M_, N_, 1);
    memcpy(q->K, gains, sizeof gains);
    memcpy(T, q->ux, sizeof T);
    PRODUCT(T, q->uu, q->K, M_, M_, N_, 1);
    ADD_UPPER_PRODUCT(Vxx, q->K, T, N_, M_);
    ADD_UPPER_PRODUCT(Vxx, q->ux, q->K, N_, M_);
    return 1;
}

/* The value at the last knot. */
static void factor_end(const elq_matrices *p, const elq_factors *f)
{
    elq_knot *last = f->knots + p->N;
    memcpy(last->P, p->Q + p->N * N_ * N_, sizeof last->P);
    for (int a = 0; a < N_; a++) last->P[a * (N_ + 1)] += p->shift;
    turn(p, f, p->N);
}

/* Whether neither knot k nor those before have equations, nor any to see to for the next one. */
static int is_free(const elq_matrices *p, const elq_factors *f, long k)
{
    return p->soft == 0.0 && p->row[k + 1] == p->row[0] && !f->knots[k + 1].kept;
}

/* The backward sweep of the matrices over the knots `first` to 0, those behind being known.  Returns the knot where Quu is not positive
   definite on the free controls, or -1. */
static long factor_from(const elq_matrices *p, const elq_factors *f, long first)
{
    if (first >= p->N) factor_end(p, f), first = p->N - 1;
    for (long k = first; k >= 0; k--) {
        elq_knot *restrict q = f->knots + k;
        const double *A = p->A + k * N_ * N_, *B = p->B + k * N_ * M_, *P = q[1].P;
        double seen[N_ * N_];
        if (p->abreast && is_free(p, f, k)) return p->abreast(p, f, k);
        if (p->soft > 0.0) {
            if (!softened(P, p->soft, f->F + k * N_ * N_, seen)) return k;
            P = seen;
        }
        turn(p, f, k);
        quadratic_at(A, B, p->Q + k * N_ * N_, p->S + k * M_ * N_, p->R + k * M_ * M_, p->shift, P, q->uu, q->ux, q->P);
        const int definite = q->pivots ? bound_gains(q, on_controls(f, k), on_state(f, k) + q->kept * N_, q->P)
                                       : free_gains(q->uu, q->ux, q->G, q->K, q->P);
        if (!definite) return k;
        mirror(q->P);
    }
    return -1;
}

/* The backward sweep over all knots. */
EXPORT long elq_factor(const elq_matrices *p, const elq_factors *f) { return factor_from(p, f, p->N); }

/* Right-hand sides of the turned rows at knot k: t = T [H_next d + h_next; e].  h: those that are kept, of the knots. */
static void turned_sides(const elq_matrices *p, const elq_vectors *v, const elq_factors *f, long k, const double *h_next, double *restrict t)
{
    const elq_knot *q = f->knots + k;
    const long rows = q->rows, carried = k < p->N ? q[1].kept : 0;
    double side[rows + 1];
    for (long i = 0; i < carried; i++) {
        double s = h_next[i];
        for (int j = 0; j < N_; j++) s += on_state(f, k + 1)[i * N_ + j] * v->d[k * N_ + j];
        side[i] = s;
    }
    for (long i = carried; i < rows; i++) side[i] = v->e[p->row[k] + i - carried];
    const double *T = turned(f, k);
    for (long i = 0; i < rows; i++) {
        double s = 0.0;
        for (long j = 0; j < rows; j++) s += T[i * rows + j] * side[j];
        t[i] = s;
    }
}

/* One sweep back and one forth with the factors.  dx_0 is read from to->dx.  Returns the largest
   right-hand side of an equation that nothing can change. */
EXPORT double elq_solve(const elq_matrices *p, const elq_vectors *v, const elq_factors *f, const elq_step *to)
{
    const long N = p->N, width = 2 * M_ + f->most;
    double contradiction = 0.0, *x = to->dx;
    double *Vx = to->lambda; /* lambda_k holds V'x of knot k + 1 until the way forth */
    double next[N_];
    memcpy(next, v->q + N * N_, sizeof next);
    for (long k = N; k >= 0; k--) {
        const elq_knot *q = f->knots + k;
        double *ff = to->room + k * width, *Qu = ff + M_, *t = Qu + M_; /* feed-forward, gradient, what is kept of the sides */
        double sides[f->most + 1];
        if (q->rows) {
            const double *h_next = k < N ? to->room + (k + 1) * width + 2 * M_ : NULL;
            turned_sides(p, v, f, k, h_next, sides);
            for (long i = q->pivots + q->kept; i < q->rows; i++)
                contradiction = fabs(sides[i]) > contradiction ? fabs(sides[i]) : contradiction;
            memcpy(t, sides + q->pivots, sizeof(double) * q->kept);
        }
        if (k == N) continue;
        memcpy(Vx + k * N_, next, sizeof next);
        double ahead[N_], Qx[N_];
        const double *P = q[1].P;
        memcpy(ahead, next, sizeof ahead);
        PRODUCT(ahead, v->d + k * N_, P, 1, N_, N_, 1);
        if (p->soft > 0.0) {
            double through[N_];
            PRODUCT(through, ahead, f->F + k * N_ * N_, 1, N_, N_, 0);
            memcpy(ahead, through, sizeof ahead);
        }
        memcpy(Qu, v->r + k * M_, sizeof(double) * M_);
        PRODUCT(Qu, ahead, p->B + k * N_ * M_, 1, N_, M_, 1);
        memcpy(Qx, v->q + k * N_, sizeof Qx);
        PRODUCT(Qx, ahead, p->A + k * N_ * N_, 1, N_, N_, 1);
        if (!q->pivots) {
            memcpy(ff, Qu, sizeof(double) * M_);
            minus_solve(q->G, ff, 1, M_);
            memcpy(next, Qx, sizeof next);
            PRODUCT(next, Qu, q->K, 1, M_, N_, 1);
            continue;
        }
        const long n_pivots = q->pivots, c = M_ - n_pivots;
        const double *E = on_controls(f, k);
        double y[M_], g[M_], w[M_];
        memset(y, 0, sizeof y);
        for (long i = 0; i < n_pivots; i++) y[q->order[i]] = -sides[i];
        memcpy(g, Qu, sizeof g);
        PRODUCT(g, y, q->uu, 1, M_, M_, 1);
        for (long j = 0; j < c; j++) {
            double s = g[q->order[n_pivots + j]];
            for (long i = 0; i < n_pivots; i++) s -= E[i * M_ + n_pivots + j] * g[q->order[i]];
            w[j] = s;
        }
        minus_solve(q->G, w, 1, (int)c);
        for (long i = 0; i < n_pivots; i++) {
            double s = y[q->order[i]];
            for (long j = 0; j < c; j++) s -= E[i * M_ + n_pivots + j] * w[j];
            ff[q->order[i]] = s;
        }
        for (long j = 0; j < c; j++) ff[q->order[n_pivots + j]] = w[j];
        memcpy(g, Qu, sizeof g);
        PRODUCT(g, ff, q->uu, 1, M_, M_, 1);
        memcpy(next, Qx, sizeof next);
        PRODUCT(next, g, q->K, 1, M_, N_, 1);
        PRODUCT(next, ff, q->ux, 1, M_, N_, 1);
    }
    double nu[f->most + 1], eta[f->most + 1];
    for (long i = 0; i < f->knots[0].kept; i++) {
        double s = to->room[2 * M_ + i]; /* what is left of the equations at the first state, which is given */
        for (int j = 0; j < N_; j++) s += on_state(f, 0)[i * N_ + j] * x[j];
        contradiction = fabs(s) > contradiction ? fabs(s) : contradiction;
    }
    memset(nu, 0, sizeof nu);
    for (long k = 0; k <= N; k++, x += N_) {
        const elq_knot *q = f->knots + k;
        double *u = to->du + k * M_, *lambda = to->lambda + k * N_, g[M_];
        const double *A = p->A + k * N_ * N_, *B = p->B + k * N_ * M_;
        if (k < N) {
            memcpy(u, to->room + k * width, sizeof(double) * M_);
            for (int a = 0; a < M_; a++)
                for (int b = 0; b < N_; b++) u[a] += q->K[a * N_ + b] * x[b];
        }
        memcpy(eta + q->pivots, nu, sizeof(double) * q->kept); /* multipliers of what was kept, found at the knot before */
        if (k < N) {
            double *next_x = x + N_;
            for (int a = 0; a < N_; a++) {
                double s = v->d[k * N_ + a];
                for (int b = 0; b < N_; b++) s += A[a * N_ + b] * x[b];
                for (int b = 0; b < M_; b++) s += B[a * M_ + b] * u[b];
                next_x[a] = s;
            }
            if (p->soft > 0.0) {
                double moved[N_];
                for (int a = 0; a < N_; a++) moved[a] = next_x[a] - p->soft * lambda[a];
                PRODUCT(next_x, moved, f->F + k * N_ * N_, 1, N_, N_, 0);
            }
            PRODUCT(lambda, next_x, q[1].P, 1, N_, N_, 1);
        }
        if (!q->rows) continue;
        if (q->pivots) { /* Qu + Qux dx + Quu du */
            memcpy(g, to->room + k * width + M_, sizeof g);
            for (int a = 0; a < M_; a++) {
                for (int b = 0; b < N_; b++) g[a] += q->ux[a * N_ + b] * x[b];
                for (int b = 0; b < M_; b++) g[a] += q->uu[a * M_ + b] * u[b];
            }
        }
        for (long i = 0; i < q->pivots; i++) eta[i] = -g[q->order[i]];
        const double *T = turned(f, k);
        const long used = q->pivots + q->kept, carried = k < N ? q[1].kept : 0;
        for (long j = 0; j < q->rows; j++) {
            double s = 0.0;
            for (long i = 0; i < used; i++) s += T[i * q->rows + j] * eta[i];
            nu[j] = s;
        }
        memcpy(to->y + p->row[k], nu + carried, sizeof(double) * (q->rows - carried));
        if (k < N)
            for (int a = 0; a < N_; a++)
                for (long i = 0; i < carried; i++) lambda[a] += on_state(f, k + 1)[i * N_ + a] * nu[i];
    }
    return contradiction;
}
