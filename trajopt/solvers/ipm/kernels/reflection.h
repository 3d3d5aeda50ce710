/* Symmetric matrices with the absolute values of their eigenvalues: Householder's reflections to a tridiagonal matrix, then implicit
   symmetric QR steps with Wilkinson's shift (G. H. Golub, C. F. Van Loan, Matrix Computations, sections 8.3.1 and 8.3.3).  Eigenvectors
   are rows, so that a rotation runs along memory.  REFLECTED_FLOOR, of the largest eigenvalue, is the least size of a reflected one. */

#define W_ (NDX + NU)
#define MOST_STEPS 50        /* QR steps for one eigenvalue */

/* T = diagonal d, beside it e, and Z (n, n) by rows with H = Z'TZ; H is lost. */
static void tridiagonal(double *restrict H, double *restrict Z, double *restrict d, double *restrict e, const int n)
{
    for (int i = 0; i < n * n; i++) Z[i] = i % (n + 1) == 0;
    for (int k = 0; k < n; k++) {
        d[k] = H[k * n + k];
        if (k + 1 < n) e[k] = H[k * n + k + 1];
        if (k + 2 >= n) continue;
        double v[W_], p[W_], square = 0.0, along = 0.0; /* v, p of the rows below k; H is symmetric: its row k is its column */
        for (int i = k + 1; i < n; i++) v[i] = H[k * n + i], square += v[i] * v[i];
        if (!(square - v[k + 1] * v[k + 1] > 0.0)) continue;
        e[k] = v[k + 1] > 0.0 ? -sqrt(square) : sqrt(square);
        v[k + 1] -= e[k];
        const double beta = -1.0 / (e[k] * v[k + 1]); /* 2 / v'v */
        for (int i = k + 1; i < n; i++) p[i] = 0.0;
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++) p[j] += beta * v[i] * H[i * n + j];
        for (int i = k + 1; i < n; i++) along += p[i] * v[i];
        for (int i = k + 1; i < n; i++) p[i] -= 0.5 * beta * along * v[i];
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++) H[i * n + j] -= v[i] * p[j] + p[i] * v[j];
        double row[W_] = {0.0};
        for (int i = k + 1; i < n; i++)
            for (int j = 0; j < n; j++) row[j] += beta * v[i] * Z[i * n + j];
        for (int i = k + 1; i < n; i++)
            for (int j = 0; j < n; j++) Z[i * n + j] -= v[i] * row[j];
    }
}

/* One QR step on the rows low .. high of T. */
static void qr_step(double *restrict d, double *restrict e, double *restrict Z, const int low, const int high, const int n)
{
    const double half = 0.5 * (d[high - 1] - d[high]), beside = e[high - 1];
    const double shift = d[high] - beside * beside / (half + (half < 0.0 ? -1.0 : 1.0) * hypot(half, beside));
    double x = d[low] - shift, z = e[low];
    for (int k = low; k < high; k++) {
        const double r = hypot(x, z), c = r > 0.0 ? x / r : 1.0, s = r > 0.0 ? z / r : 0.0;
        const double a = d[k], b = e[k], next = d[k + 1];
        if (k > low) e[k - 1] = r;
        d[k] = c * c * a + 2.0 * c * s * b + s * s * next;
        d[k + 1] = s * s * a - 2.0 * c * s * b + c * c * next;
        e[k] = c * s * (next - a) + (c * c - s * s) * b;
        if (k + 1 < high) x = e[k], z = s * e[k + 1], e[k + 1] *= c;
        double *restrict upper = Z + k * n, *restrict below = upper + n;
        for (int j = 0; j < n; j++) {
            const double t = upper[j];
            upper[j] = c * t + s * below[j];
            below[j] = c * below[j] - s * t;
        }
    }
}

/* Whether H (n, n) is positive definite, by its Cholesky factor. */
static int is_definite(const double *restrict H, const int n)
{
    double L[W_ * W_];
    for (int j = 0; j < n; j++) {
        for (int i = j; i < n; i++) {
            double t = H[i * n + j];
            for (int k = 0; k < j; k++) t -= L[i * n + k] * L[j * n + k];
            if (i == j && !(t > REFLECTED_FLOOR * fabs(H[j * n + j]))) return 0;
            L[i * n + j] = i == j ? sqrt(t) : t / L[j * n + j];
        }
    }
    return 1;
}

/* H (n, n) <- the matrix with the sizes of its eigenvalues; 0: one is not finite. */
static int reflect(double *restrict H, const int n)
{
    double T[W_ * W_], Z[W_ * W_], d[W_], e[W_] = {0.0}, most = 0.0;
    for (int i = 0; i < n * n; i++)
        if (!(fabs(H[i]) < HUGE_VAL)) return 0;
    if (is_definite(H, n)) return 1;
    memcpy(T, H, sizeof(double) * n * n);
    tridiagonal(T, Z, d, e, n);
    for (int high = n - 1, steps = 0; high > 0 && steps < MOST_STEPS * n;) {
        int low = high;
        for (int i = 0; i < high; i++)
            if (fabs(e[i]) <= 1e-15 * (fabs(d[i]) + fabs(d[i + 1]))) e[i] = 0.0;
        while (low > 0 && e[low - 1] != 0.0) low--;
        if (low == high) {
            high--;
            continue;
        }
        qr_step(d, e, Z, low, high, n);
        steps++;
    }
    for (int i = 0; i < n; i++) most = fabs(d[i]) > most ? fabs(d[i]) : most;
    for (int i = 0; i < n; i++) {
        const double size = fabs(d[i]) > REFLECTED_FLOOR * most ? fabs(d[i]) : REFLECTED_FLOOR * most, more = size - d[i];
        if (more == 0.0) continue;
        const double *z = Z + i * n;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) H[a * n + b] += more * z[a] * z[b];
    }
    return 1;
}
