/* Symmetric matrices with the absolute values of their eigenvalues: Householder's reflections to a tridiagonal matrix, then implicit
   symmetric QR steps with Wilkinson's shift (G. H. Golub, C. F. Van Loan, Matrix Computations, sections 8.3.1 and 8.3.3).  Eigenvectors
   are rows, so that a rotation runs along memory; rows are ROW_ apart, whole packs, zero behind their entries.  REFLECTED_FLOOR, of the
   largest eigenvalue, is the least size of a reflected one. */

#define W_ (NDX + NU)
#define PACKS_ ((W_ + PACK - 1) / PACK)
#define ROW_ (PACKS_ * PACK)
#define MOST_STEPS 50        /* QR steps for one eigenvalue */
#define AT(X, j) (*(pack_t *)((X) + (j) * PACK))
#define ALONG_ROW TILED for (int j = 0; j < PACKS_; j++)

/* T = diagonal d, beside it e, and Z (n, n) by rows with H = Z'TZ; H is lost. */
static void tridiagonal(double *restrict H, double *restrict Z, double *restrict d, double *restrict e, const int n)
{
    memset(Z, 0, sizeof(double) * n * ROW_);
    for (int i = 0; i < n; i++) Z[i * (ROW_ + 1)] = 1.0;
    for (int k = 0; k < n; k++) {
        d[k] = H[k * ROW_ + k];
        if (k + 1 < n) e[k] = H[k * ROW_ + k + 1];
        if (k + 2 >= n) continue;
        double v[ROW_] = {0.0}, p[ROW_] = {0.0}, row[ROW_] = {0.0}; /* v, p of the rows below k; H is symmetric: its row k is its column */
        double square = 0.0, along = 0.0;
        for (int i = k + 1; i < n; i++) v[i] = H[k * ROW_ + i];
        square = dot(v, v, ROW_);
        if (!(square - v[k + 1] * v[k + 1] > 0.0)) continue;
        e[k] = v[k + 1] > 0.0 ? -sqrt(square) : sqrt(square);
        v[k + 1] -= e[k];
        const double beta = -1.0 / (e[k] * v[k + 1]); /* 2 / v'v */
        for (int i = k + 1; i < n; i++) {
            const double f = beta * v[i];
            ALONG_ROW AT(p, j) += f * AT(H + i * ROW_, j), AT(row, j) += f * AT(Z + i * ROW_, j);
        }
        along = dot(p, v, ROW_);
        ALONG_ROW AT(p, j) -= 0.5 * beta * along * AT(v, j);
        for (int i = k + 1; i < n; i++)
            ALONG_ROW {
                AT(H + i * ROW_, j) -= v[i] * AT(p, j) + p[i] * AT(v, j);
                AT(Z + i * ROW_, j) -= v[i] * AT(row, j);
            }
    }
}

/* One QR step on the rows low .. high of T. */
static void qr_step(double *restrict d, double *restrict e, double *restrict Z, const int low, const int high)
{
    const double half = 0.5 * (d[high - 1] - d[high]), beside = e[high - 1], root_ = sqrt(half * half + beside * beside);
    const double shift = d[high] - beside * beside / (half + (half < 0.0 ? -root_ : root_));
    double x = d[low] - shift, z = e[low];
    for (int k = low; k < high; k++) {
        const double r = sqrt(x * x + z * z), inverse = r > 0.0 ? 1.0 / r : 0.0, c = r > 0.0 ? x * inverse : 1.0, s = z * inverse;
        const double a = d[k], b = e[k], next = d[k + 1];
        if (k > low) e[k - 1] = r;
        d[k] = c * c * a + 2.0 * c * s * b + s * s * next;
        d[k + 1] = s * s * a - 2.0 * c * s * b + c * c * next;
        e[k] = c * s * (next - a) + (c * c - s * s) * b;
        if (k + 1 < high) x = e[k], z = s * e[k + 1], e[k + 1] *= c;
        double *restrict upper = Z + k * ROW_, *restrict below = upper + ROW_;
        ALONG_ROW {
            const pack_t t = AT(upper, j), u = AT(below, j);
            AT(upper, j) = c * t + s * u;
            AT(below, j) = c * u - s * t;
        }
    }
}

/* Whether H (n, n) is positive definite, by the pivots of its elimination. */
static int is_definite(const double *restrict H, const int n)
{
    double L[W_ * ROW_];
    memcpy(L, H, sizeof(double) * n * ROW_);
    for (int k = 0; k < n; k++) {
        const double pivot = L[k * (ROW_ + 1)];
        if (!(pivot > REFLECTED_FLOOR * fabs(H[k * (ROW_ + 1)]))) return 0;
        const double inverse = 1.0 / pivot;
        for (int i = k + 1; i < n; i++) {
            const double f = L[k * ROW_ + i] * inverse; /* what is left is symmetric */
            ALONG_ROW AT(L + i * ROW_, j) -= f * AT(L + k * ROW_, j);
        }
    }
    return 1;
}

/* H (n, n) <- the matrix with the sizes of its eigenvalues; 0: one is not finite. */
static int reflect(double *restrict H, const int n)
{
    double T[W_ * ROW_], Z[W_ * ROW_], d[W_], e[W_] = {0.0}, largest = 0.0, most = 0.0;
    int finite = 1;
    for (int i = 0; i < n * ROW_; i++) finite &= fabs(H[i]) < HUGE_VAL, largest = fabs(H[i]) > largest ? fabs(H[i]) : largest;
    if (!finite) return 0;
    if (largest == 0.0 || is_definite(H, n)) return 1;
    for (int i = 0; i < n * ROW_; i++) T[i] = H[i] / largest;
    tridiagonal(T, Z, d, e, n);
    for (int high = n - 1, steps = 0; high > 0 && steps < MOST_STEPS * n;) {
        int low = high;
        while (low > 0 && fabs(e[low - 1]) > 1e-15 * (fabs(d[low - 1]) + fabs(d[low]))) low--;
        if (low > 0) e[low - 1] = 0.0;
        if (low == high) {
            high--;
            continue;
        }
        qr_step(d, e, Z, low, high);
        steps++;
    }
    for (int i = 0; i < n; i++) most = fabs(d[i]) > most ? fabs(d[i]) : most;
    for (int i = 0; i < n; i++) {
        const double size = fabs(d[i]) > REFLECTED_FLOOR * most ? fabs(d[i]) : REFLECTED_FLOOR * most, more = largest * (size - d[i]);
        if (more == 0.0) continue;
        const double *z = Z + i * ROW_;
        for (int a = 0; a < n; a++) {
            const double f = more * z[a];
            ALONG_ROW AT(H + a * ROW_, j) += f * AT((double *)z, j);
        }
    }
    return 1;
}
